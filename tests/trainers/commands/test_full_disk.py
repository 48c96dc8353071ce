"""Test two commands on full disks and one in a directory without write permission; `make chaos` covers all commands.

Errors are one line, no incomplete file remains, and a later run writes the same bytes. A disk with almost no space
grows after each failure, so that one file after the other fails. At the end the output equals that of an undisturbed
run.
"""

import json
import os
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.forked import run
from tests.small_disk import UNLIMITED, call, contents, remount, small_disk, temporary_files
from tests.trainers import fake_backend
from tests.trainers.pretraining_shards import SMALLEST, write_dataset

MODEL = ROOT / "tests/fixtures/hugging_face/classification"
ROOM = "size=30m,nr_inodes=5000"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """A directory with the inputs of the commands."""
    folder = tmp_path_factory.mktemp("inputs")
    write_dataset(folder / "data")
    (folder / "model.json").write_text(SMALLEST.to_json(), encoding="utf-8")
    return folder


def command_of(name: str, inputs: Path, directory: Path) -> list[str]:
    """Return the command line of a command that writes into `directory`."""
    steps = ["--model", f"{inputs}/model.json", "--num_train_steps", "2", "--train_batch_size", "4"]
    return {
        "convert": ["convert", "--to", "native", str(MODEL), f"{directory}/out"],
        "pretrain": ["pretrain", "--data", f"{inputs}/data", *steps, "--output", f"{directory}/out"],
    }[name]


# Mount options of successive attempts, which fail at one file after the other.
GROWTH = {
    "convert": ["size=4k", "size=8k", "nr_inodes=4,size=30m", "nr_inodes=7", "ro"],
    "pretrain": ["nr_inodes=2", "nr_inodes=5", "size=60k,nr_inodes=5000", "ro"],
}


def call_with_numpy(report: Path, argv: list[str], most_bytes: int = UNLIMITED) -> int:
    """Run a command as `call`, with the numpy backend."""
    with pytest.MonkeyPatch.context() as patch:
        fake_backend.install(patch)
        return call(report, argv, most_bytes)


def failure(code: int, error: str, directory: Path) -> str:
    """Check the error of a failed command and return its line."""
    lines = [line for line in error.splitlines() if ": error: " in line]
    assert code == 1, error
    assert lines == error.splitlines()[-1:], error
    assert "Traceback" not in error
    assert len(lines[0]) <= 400
    assert str(directory) in lines[0]
    assert "rrno" not in lines[0]
    assert "os error" not in lines[0]
    assert "unfinished" not in lines[0]
    assert temporary_files(directory) == []
    return lines[0]


@pytest.mark.parametrize("name", GROWTH)
def test_a_disk_that_grows_after_each_failure(name, inputs, tmp_path):
    log, report = tmp_path / "log", tmp_path / "report"

    def result(directory: Path) -> tuple[int, str]:
        assert run(log, call_with_numpy, report, command_of(name, inputs, directory)) == 0, log.read_text()
        return tuple(json.loads(report.read_text(encoding="utf-8")))

    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    assert result(undisturbed)[0] == 0
    failures = []
    with small_disk(tmp_path / "disk", GROWTH[name][0]) as disk:
        for options in [*GROWTH[name], f"rw,{ROOM}"]:
            remount(disk, options)
            code, error = result(disk)
            if code == 0:
                break
            failures.append(failure(code, error, disk))
            assert ("read-only" if options == "ro" else "no space left on device") in failures[-1]
            assert any(remedy in failures[-1] for remedy in ("free some space", "choose", "give another"))
        assert code == 0, error
        assert len(failures) >= len(GROWTH[name]) - 1, failures
        assert contents(disk) == contents(undisturbed)
        assert temporary_files(disk) == []


def without_rights(report: Path, argv: list[str]) -> int:
    """Run a command, as an unprivileged user if the tests run as root."""
    import beambert  # noqa: F401  (before the rights are given up)

    report.touch()
    report.chmod(0o666)
    if os.geteuid() == 0:
        os.seteuid(65534)
    return call(report, argv)


def test_permission_denied_names_the_file_and_the_remedy(inputs, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o555)
    report = tmp_path / "report"
    # The third parent is the directory of all test runs of a user, if several processes run the tests.
    for path in (inputs, tmp_path, *tmp_path.parents[:3]):
        mode = path.stat().st_mode
        if mode & 0o005 != 0o005:
            path.chmod(mode | 0o055)
    assert run(tmp_path / "log", without_rights, report, command_of("convert", inputs, folder)) == 0
    code, error = json.loads(report.read_text(encoding="utf-8"))
    line = failure(code, error, folder)
    assert "permission denied" in line or "read-only" in line
    assert "choose" in line or "give" in line
