"""Test commands on full disks and in directories without write permission.

Errors are one line, no incomplete file remains, and a later run writes the same bytes. Every command runs on a disk
with almost no space, which grows after each failure, so that one file after the other fails. At the end the output
equals that of an undisturbed run.
"""

import json
import os
from pathlib import Path

import pytest

from tests.conftest import ROOT, with_slow
from tests.small_disk import UNLIMITED, call, contents, remount, small_disk, temporary_files
from tests.trainers.forked import run as run_forked
from tests.trainers.pretraining_shards import SMALLEST, write_dataset

MODELS = ROOT / "tests/fixtures/hugging_face"
MODEL = MODELS / "classification"
ROOM = "size=30m,nr_inodes=5000"
TEXT = "".join(f"Day {n} was wet and cold.\nThe river rose {n} feet that day.\n\n" for n in range(30))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """A directory with the inputs of the commands."""
    folder = tmp_path_factory.mktemp("inputs")
    write_dataset(folder / "data")
    (folder / "model.json").write_text(SMALLEST.to_json(), encoding="utf-8")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    (folder / "task").mkdir()
    for name in ("train", "dev"):
        (folder / "task" / f"{name}.csv").write_text("text,label\n" + "a,0\nb,1\n" * 4, encoding="utf-8")
    return folder


def command_of(name: str, inputs: Path, directory: Path) -> list[str]:
    """Return the command line of a command that writes into `directory`."""
    out = str(directory / "out")
    text = ["--input", f"{inputs}/text.txt", "--input_format", "sentences", "--vocab_size", "60"]
    steps = ["--model", f"{inputs}/model.json", "--num_train_steps", "2", "--train_batch_size", "4"]
    features = ["--init_checkpoint", str(MODEL), "--input_file", f"{inputs}/text.txt"]
    features += ["--layers=-1", "--max_seq_length", "16"]
    tuned = ["--data_dir", f"{inputs}/task", "--init_checkpoint", str(MODEL), "--max_seq_length", "8"]
    return {
        "convert native": ["convert", "--to", "native", str(MODEL), out],
        "convert tf1": ["convert", "--to", "tf1", str(MODEL), out],
        "convert huggingface": ["convert", "--to", "huggingface", str(MODEL), out],
        "export": ["export", str(MODEL), out],
        "predict": ["predict", str(MODEL), "--input_file", f"{inputs}/text.txt", "--output_file", f"{out}.txt"],
        "features jsonl": ["features", *features, "--output_file", f"{out}.jsonl"],
        "features parquet": ["features", *features, "--output_file", f"{out}.parquet"],
        "features npz": ["features", *features, "--output_file", f"{out}.npz"],
        "vocab": ["vocab", *text, "--output", f"{out}.txt"],
        "build": ["build", *text, "--validation_fraction", "0.2", "--dupe_factor", "1", "--output", out],
        "pretrain": ["pretrain", "--data", f"{inputs}/data", *steps, "--output", out],
        "finetune": ["finetune", "csv", *tuned, "--train_batch_size", "4", "--num_train_epochs", "1", "--output", out],
    }[name]


# Mount options of successive attempts, which fail at one file after the other.
GROWTH = {
    "convert native": ["size=4k", "size=8k", "nr_inodes=4,size=30m", "nr_inodes=7", "ro"],
    "convert tf1": ["size=4k", "size=12k", "nr_inodes=3,size=30m"],
    "convert huggingface": ["size=4k", "size=12k", "nr_inodes=4,size=30m"],
    "export": ["size=4k"],
    "predict": ["size=4k", "nr_inodes=1,size=30m", "ro"],
    "features jsonl": ["size=4k", "nr_inodes=1,size=30m"],
    "features parquet": ["size=4k", "nr_inodes=1,size=30m", "ro"],
    "features npz": ["size=4k", "nr_inodes=1,size=30m", "nr_inodes=2", "nr_inodes=3", "nr_inodes=5"],
    "vocab": ["size=4k", "nr_inodes=2,size=30m"],
    "build": ["size=4k", "nr_inodes=8,size=30m", "nr_inodes=16", "ro"],
    "pretrain": ["nr_inodes=2", "nr_inodes=3", "nr_inodes=5", "size=60k,nr_inodes=5000", "ro"],
    "finetune": ["nr_inodes=3", "nr_inodes=6", "nr_inodes=9", "size=100k,nr_inodes=5000"],
}


def run(log: Path, function, *arguments) -> int:
    """Run a function in a process of its own, with a timeout for slow machines."""
    return run_forked(log, function, *arguments, timeout=600)


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


# The other commands are faster and write with the same functions.
SLOW_GROWTH = ("export", "finetune", "vocab")


@pytest.mark.parametrize("name", with_slow(GROWTH, SLOW_GROWTH))
def test_a_disk_that_grows_after_each_failure(name, inputs, tmp_path):
    log, report = tmp_path / "log", tmp_path / "report"

    def result(directory: Path) -> tuple[int, str]:
        assert run(log, call, report, command_of(name, inputs, directory)) == 0, log.read_text()
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


LIMITS = {
    "convert huggingface": [50, 5_000],
    "convert native": [50, 5_000],
    "features npz": [50, 5_000],
    "features parquet": [50, 5_000],
    "predict": [50],
    "build": [400, 2_000],
    "pretrain": [100, 700],
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_on_the_size_of_a_file(name, inputs, tmp_path):
    log, report, folder = tmp_path / "log", tmp_path / "report", tmp_path / "folder"
    folder.mkdir()
    for most_bytes in [*LIMITS[name], UNLIMITED]:
        assert run(log, call, report, command_of(name, inputs, folder), most_bytes) == 0, log.read_text()
        code, error = json.loads(report.read_text(encoding="utf-8"))
        if most_bytes == UNLIMITED:
            assert code == 0, error
        else:
            assert "file too large" in failure(code, error, folder)


def test_a_full_disk_ends_a_command_with_several_runs(inputs, tmp_path):
    """Fill the disk in the second of two runs: the command ends with an error, and later resumes with that run."""
    argv = [*command_of("finetune", inputs, tmp_path / "disk"), "--seeds", "2"]
    log, report = tmp_path / "log", tmp_path / "report"

    def result(most_bytes: int = UNLIMITED) -> tuple[int, str]:
        assert run(log, call, report, argv, most_bytes) == 0, log.read_text()
        return tuple(json.loads(report.read_text(encoding="utf-8")))

    with small_disk(tmp_path / "disk", ROOM) as disk:
        assert run(log, call, report, [*argv[:-2], "--seeds", "1"]) == 0, log.read_text()
        assert json.loads(report.read_text(encoding="utf-8"))[0] == 0
        status = os.statvfs(disk)
        taken = (status.f_blocks - status.f_bfree) * status.f_frsize
        for path in list(disk.iterdir()):
            path.rename(disk / "first")
        remount(disk, f"size={(taken * 5 // 2) // 1024}k")
        code, error = result()
        line = failure(code, error, disk)
        assert "seed-12346" in line
        assert "failed" not in line
        remount(disk, ROOM)
        code, error = result()
        assert code == 0
        outcomes = json.loads((disk / "out/runs.json").read_text(encoding="utf-8"))
        assert [outcome["problem"] for outcome in outcomes.values()] == [None, None]


def without_rights(report: Path, argv: list[str]) -> int:
    """Run a command, as an unprivileged user if the tests run as root."""
    import beambert  # noqa: F401  (before the rights are given up)
    from trainers.backends.tensorflow.startup import start_tensorflow

    start_tensorflow()
    report.touch()
    report.chmod(0o666)
    if os.geteuid() == 0:
        os.seteuid(65534)
    return call(report, argv)


@pytest.mark.parametrize("name", ["convert native", "predict", "finetune"])
def test_permission_denied_names_the_file_and_the_remedy(name, inputs, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o555)
    report = tmp_path / "report"
    # The third parent is the directory of all test runs of a user, if several processes run the tests.
    for path in (inputs, tmp_path, *tmp_path.parents[:3]):
        mode = path.stat().st_mode
        if mode & 0o005 != 0o005:
            path.chmod(mode | 0o055)
    assert run(tmp_path / "log", without_rights, report, command_of(name, inputs, folder)) == 0
    code, error = json.loads(report.read_text(encoding="utf-8"))
    line = failure(code, error, folder)
    assert "permission denied" in line or "read-only" in line
    assert "choose" in line or "give" in line
