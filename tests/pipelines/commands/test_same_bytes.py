"""Tests that equal text, options and seed give equal bytes, for any workers, file order and interruptions."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import beambert
from pipelines import dataset
from pipelines.errors import DatasetError
from tests.conftest import SMALL, command, with_slow


def digests(output: Path) -> dict[str, str]:
    """Return the SHA-256 of each shard, corpus file and the vocabulary, by file name."""
    files = [*output.glob("shards/*"), *output.glob("corpus/*"), output / "vocab.txt"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def kept(output: Path) -> dict[str, int]:
    """Return the modification time of each shard, in nanoseconds, by file name."""
    return {path.name: path.stat().st_mtime_ns for path in output.glob("shards/*")}


def stop_when(condition: Callable[[], bool], process: subprocess.Popen, number: int) -> None:
    """Send a signal to a process and its children as soon as a condition holds."""
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.003)
    os.killpg(process.pid, number)


def start(*argv: object) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "beambert", *map(str, argv)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # The tests may run with SIGINT ignored, which child processes inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def test_in_process_again(built, articles, tmp_path):
    assert beambert.main(["build", "--input", f"{articles}/*.jsonl", "--output", str(tmp_path / "out"), *SMALL]) == 0
    assert digests(tmp_path / "out") == digests(built)
    assert (tmp_path / "out/dataset.json").read_bytes() == (built / "dataset.json").read_bytes()
    assert {path.name for path in built.iterdir()} == {
        *("corpus", "rejected", "shards", "corpus.json", "dataset.json", "report.html", "vocab.txt"),
        *("README.md", "croissant.json"),
    }


@pytest.mark.parametrize("workers", with_slow([2, 4], [2]))
def test_worker_processes(built, articles, tmp_path, workers):
    output = tmp_path / "out"
    result = command("build", "--input", f"{articles}/*", "--output", output, *SMALL, "--direct_num_workers", workers)
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    assert digests(output) == digests(built)


def test_more_workers_than_corpus_shards(articles, tmp_path):
    """Distribute the copies of a single corpus shard over several workers."""
    argv = ["corpus", "--input", f"{articles}/*", "--output", str(tmp_path / "corpus"), "--vocab_size", "2000"]
    assert beambert.main([*argv, "--num_partitions", "1", "--validation_fraction", "0"]) == 0
    argv = ["pretraining-data", "--input", str(tmp_path / "corpus"), "--dupe_factor", "7", "--output"]
    assert beambert.main([*argv, str(tmp_path / "one")]) == 0
    assert beambert.main([*argv, str(tmp_path / "three"), "--direct_num_workers", "3"]) == 0
    assert digests(tmp_path / "three") == digests(tmp_path / "one")
    manifests = [dataset.load(tmp_path / name) for name in ("one", "three")]
    assert manifests[0] == manifests[1]


def test_repeated_bundles(built, articles, tmp_path):
    argv = ["build", "--input", f"{articles}/*", "--output", str(tmp_path / "out"), *SMALL]
    assert beambert.main([*argv, "--direct_runner_bundle_repeat=1"]) == 0
    assert digests(tmp_path / "out") == digests(built)
    assert not list(tmp_path.rglob("*.tmp"))


def test_files_renamed_and_in_another_order(built, articles, tmp_path):
    order = list(articles.glob("*.jsonl"))
    random.Random(1).shuffle(order)
    (tmp_path / "in").mkdir()
    for number, path in enumerate(order):
        (tmp_path / "in" / f"renamed-{number}.json").write_bytes(path.read_bytes())
    argv = ["build", "--input", f"{tmp_path}/in/*", "--output", str(tmp_path / "out"), *SMALL]
    assert beambert.main(argv) == 0
    shards = {name: digest for name, digest in digests(built).items() if not name.endswith(".parquet")}
    assert shards.items() <= digests(tmp_path / "out").items()
    assert kept(tmp_path / "out").keys() == kept(built).keys()


@pytest.mark.parametrize("flags", [[], ["--length_bins", "32,128", "--direct_num_workers", "2"]])
def test_a_shard_deleted_and_another_cut_are_made_again(built, tmp_path, capsys, flags):
    output = tmp_path / "out"
    argv = ["pretraining-data", "--input", str(built), "--output", str(output), "--dupe_factor", "3", *flags]
    assert beambert.main(argv) == 0
    before, manifest, times = digests(output), (output / "dataset.json").read_bytes(), kept(output)
    train, validation = (dataset.load(output).shards_of(split)[0].name for split in ("train", "validation"))
    (output / train).unlink()
    with (output / validation).open("r+b") as file:
        file.truncate(100)
    (output / "vocab.txt").unlink()
    capsys.readouterr()
    assert beambert.main(argv) == 0
    assert f"rebuilding 2 missing or truncated of {len(times)} shards" in capsys.readouterr().out
    assert digests(output) == before
    assert (output / "dataset.json").read_bytes() == manifest
    made = {name for name, changed in kept(output).items() if changed != times[name]}
    assert made == {Path(train).name, Path(validation).name}
    assert beambert.main(argv) == 0
    assert "up to date" in capsys.readouterr().out
    assert not (output / "unfinished").exists()


def test_a_rebuilt_shard_with_another_checksum_is_an_error(built, tmp_path, capsys):
    output = tmp_path / "out"
    argv = ["pretraining-data", "--input", str(built), "--output", str(output), "--dupe_factor", "1"]
    assert beambert.main(argv) == 0
    shard = dataset.load(output).shards_of("train")[0]
    manifest = (
        (output / "dataset.json").read_text().replace(shard.sha256, "0" * 64).replace('"numpy": "', '"numpy": "0')
    )
    (output / "dataset.json").write_text(manifest)
    (output / shard.name).unlink()
    capsys.readouterr()
    assert beambert.main(argv) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"{shard.name} was rebuilt, but its checksum differs from" in error
    assert "numpy 0" in error
    assert not (output / shard.name).exists()


@pytest.mark.parametrize(
    ("number", "workers"),
    with_slow(
        [(signal.SIGKILL, 1), (signal.SIGKILL, 2), (signal.SIGINT, 1)], [(signal.SIGKILL, 1), (signal.SIGINT, 1)]
    ),
)
def test_a_stopped_job_resumes_with_the_same_result(built, tmp_path, number, workers):
    argv = ["pretraining-data", "--input", str(built), "--dupe_factor", "40", "--output"]
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert beambert.main([*argv, str(whole)]) == 0
    process = start(*argv, stopped, "--direct_num_workers", workers)
    stop_when(lambda: len(list(stopped.glob("unfinished/*/*.json"))) >= 5, process, number)
    _, error = process.communicate(timeout=60)
    assert not (stopped / "dataset.json").exists()
    with pytest.raises(DatasetError, match="its build has not finished"):
        dataset.load(stopped)
    assert (stopped / "build.lock").exists() == (number == signal.SIGKILL)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert [line for line in error.splitlines() if " shard copies" not in line] == [
            "beambert pretraining-data: interrupted; run the same command again to resume"
        ]
    notes = [json.loads(path.read_text()) for path in stopped.glob("unfinished/*/*.json")]
    finished = {Path(shard["name"]).name for _, shards, _ in notes for shard in shards}
    assert 5 <= len(finished) < len(kept(whole))
    before = {name: changed for name, changed in kept(stopped).items() if name in finished}
    # A shard that is missing in spite of its completion marker is rebuilt.
    lost = sorted(finished)[0]
    (stopped / "shards" / lost).unlink()
    del before[lost]
    result = command(*argv, stopped)
    assert result.returncode == 0, result.stderr
    assert f"resuming an earlier run ({len(notes)} complete)" in result.stdout
    assert before.items() <= kept(stopped).items()
    assert digests(stopped) == digests(whole)
    assert (stopped / "dataset.json").read_bytes() == (whole / "dataset.json").read_bytes()
    assert {path.name for path in stopped.iterdir()} == {
        *("shards", "dataset.json", "report.html", "vocab.txt", "README.md", "croissant.json")
    }


def test_files_of_a_job_with_other_options_are_removed(built, tmp_path):
    output = tmp_path / "out"
    (output / "unfinished/0123456789abcdef01234567").mkdir(parents=True)
    (output / "unfinished/0123456789abcdef01234567/train-00000-of-00003-copy-000.json").write_text("[[], {}]")
    (output / "shards").mkdir()
    for name in ("train-copy-009-00000-of-00003.tfrecord", "train-copy-009-00000-of-00003.parquet"):
        (output / "shards" / name).write_text("stale")
    argv = ["pretraining-data", "--input", str(built), "--output", str(output), "--dupe_factor", "3"]
    assert beambert.main(argv) == 0
    assert kept(output).keys() == kept(built).keys()
    assert not (output / "unfinished").exists()
