"""Tests of data jobs whose output is deleted while they run: a one-line error, and no manifest of missing files."""

import hashlib
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import beambert
from pipelines.corpus import reading
from pipelines.corpus.records import write_block_file
from tests.conftest import ROOT

FLAGS = ["--input_format", "language_reference", "--vocab_size", "2000", "--num_partitions", "12"]
PROGRESS = re.compile(r"(Corpus|Pretraining data|Vocabulary): \d+ of \d+ ")


def run_and_delete(argv, appears, delete, cwd):
    """Run a command and call `delete` with the first file that matches the pattern `appears`.

    Returns:
        The exit code, and stderr without lines of progress.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "beambert", *map(str, argv)],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    found: list[Path] = []
    while process.poll() is None and not found:
        found = sorted(cwd.glob(appears))
        time.sleep(0.002)
    assert found
    delete(found[0])
    _, error = process.communicate(timeout=300)
    # On a slow machine, stderr also has lines of progress.
    lines = [line for line in error.splitlines(keepends=True) if not PROGRESS.match(line)]
    return process.returncode, "".join(lines)


def digests(output):
    files = [*output.glob("corpus/*"), output / "vocab.txt", output / "corpus.json"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    output = tmp_path_factory.mktemp("whole") / "data"
    assert beambert.main(["corpus", *FLAGS, "--output", str(output)]) == 0
    return output


def test_a_corpus_shard_is_deleted(corpus, tmp_path):
    output = tmp_path / "data"
    argv = ["corpus", *FLAGS, "--output", output]
    deleted = []
    code, error = run_and_delete(
        argv, "data/corpus/train-*.parquet", lambda path: (path.unlink(), deleted.append(path)), tmp_path
    )
    assert code == 1, error
    assert f"{deleted[0]} is missing: it was removed after it was written" in error
    assert error.count("\n") == 1
    assert not (output / "corpus.json").exists()
    # The remedy of the message works: the same command rebuilds the corpus with the same bytes.
    assert beambert.main([str(word) for word in argv]) == 0
    assert digests(output) == digests(corpus)


@pytest.mark.parametrize(
    ("command", "appears"),
    [
        ("corpus", "data/corpus/train-*.parquet"),
        ("corpus", "data/unfinished/*/*.json"),
        ("build", "data/shards/*.tfrecord"),
    ],
)
def test_the_output_directory_is_deleted(command, appears, tmp_path):
    output = tmp_path / "data"
    code, error = run_and_delete(
        [command, *FLAGS, "--output", output], appears, lambda _: shutil.rmtree(output, ignore_errors=True), tmp_path
    )
    assert code == 1, error
    assert f"{output}/" in error
    assert "run the same command again" in error or "build the corpus again" in error
    assert error.count("\n") == 1
    for manifest in ("corpus.json", "dataset.json"):
        assert not (output / manifest).exists()


def test_the_output_directory_is_deleted_before_a_block_file_is_read_again(tmp_path, monkeypatch, capsys):
    output = tmp_path / "data"
    paths = []

    def write_and_delete(path, *rest):
        write_block_file(path, *rest)
        shutil.rmtree(output)
        paths.append(path)

    monkeypatch.setattr(reading, "write_block_file", write_and_delete)
    assert beambert.main(["corpus", *FLAGS, "--output", str(output), "--direct_num_workers", "1"]) == 1
    line = f"beambert corpus: error: {paths[0]} was removed while the command ran; run the same command again\n"
    assert capsys.readouterr().err == line


def test_a_dataset_shard_is_deleted(corpus, tmp_path):
    output = tmp_path / "data"
    deleted = []
    code, error = run_and_delete(
        ["pretraining-data", "--input", corpus, "--output", output, "--dupe_factor", "3"],
        "data/shards/*.tfrecord",
        lambda path: (path.unlink(), deleted.append(path)),
        tmp_path,
    )
    assert code == 1, error
    assert str(deleted[0]) in error
    assert error.count("\n") == 1
    assert not (output / "dataset.json").exists()


def test_a_finished_corpus_without_its_shards_is_not_up_to_date(corpus, tmp_path, capsys):
    output = shutil.copytree(corpus, tmp_path / "data")
    part = next(output.glob("corpus/train-*.parquet"))
    part.write_bytes(part.read_bytes()[:-1])
    assert beambert.main(["corpus", *FLAGS, "--output", str(output)]) == 1
    assert f"{part} has {part.stat().st_size:,} bytes instead of" in capsys.readouterr().err
    part.unlink()
    assert beambert.main(["corpus", *FLAGS, "--output", str(output)]) == 1
    error = capsys.readouterr().err
    assert f"{part} is missing: it was removed after it was written" in error
    assert f"delete {output} and run the same command again" in error


@pytest.mark.parametrize(("command", "manifest"), [("corpus", "corpus.json"), ("build", "dataset.json")])
def test_remedy_for_an_empty_manifest_works(command, manifest, tmp_path, capsys):
    output = tmp_path / "data"
    argv = [command, *FLAGS, "--output", str(output)]
    assert beambert.main(argv) == 0
    whole = digests(output)
    (output / manifest).write_bytes(b"")
    capsys.readouterr()
    assert beambert.main(argv) == 1
    error = capsys.readouterr().err
    assert f"{manifest}: the file is empty; restore it from a copy, or delete {output} and run the same" in error
    shutil.rmtree(output)
    assert beambert.main(argv) == 0
    assert digests(output) == whole


def test_a_directory_with_a_name_like_a_pattern_is_refused(tmp_path, capsys):
    """Refuse the name, since Beam would list, and cleanup would delete, files of directories that match the pattern."""
    (tmp_path / "data 1").mkdir()
    assert beambert.main(["corpus", *FLAGS, "--output", str(tmp_path / "data [1]")]) == 1
    assert "a glob pattern; give a directory without the characters *, ? and [" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["data 1"]


def test_the_directory_of_a_vocabulary_is_deleted(tmp_path):
    folder = tmp_path / "folder"
    code, error = run_and_delete(
        ["vocab", *FLAGS, "--output", folder / "vocab.txt"],
        "folder/*/*/*.json",
        lambda _: shutil.rmtree(folder, ignore_errors=True),
        tmp_path,
    )
    assert code == 1, error
    assert "was removed while the command ran" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("flags", [(), ("--overwrite",)])
def test_a_vocabulary_never_replaces_what_it_is_learned_from(flags, corpus, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("One sentence. Another.\n" * 5)
    (tmp_path / "link.txt").symlink_to(text)
    other = tmp_path / "other.vocab"
    other.write_bytes((corpus / "vocab.txt").read_bytes())
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    common = ["--input", f"{tmp_path}/*.txt", "--vocab_size", "100", "--compare_vocab", str(other), *flags]
    for output, flag in ((text, "--input"), (tmp_path / "link.txt", "--input"), (other, "--compare_vocab")):
        assert beambert.main(["vocab", *common, "--output", str(output)]) == 1
        error = capsys.readouterr().err
        assert f"--output {output} is the same file as {flag}" in error
        assert error.count("\n") == 1
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_vocabulary_is_replaced_with_overwrite(corpus, tmp_path, capsys):
    output = tmp_path / "vocab.txt"
    output.write_text("old")
    assert beambert.main(["vocab", *FLAGS, "--output", str(output)]) == 1
    assert "already exists; use --overwrite" in capsys.readouterr().err
    assert beambert.main(["vocab", *FLAGS, "--output", str(output), "--overwrite"]) == 0
    assert output.read_bytes() == (corpus / "vocab.txt").read_bytes()
    assert beambert.main(["vocab", *FLAGS, "--output", "/dev/null", "--overwrite"]) == 1
    assert "is a device or a pipe" in capsys.readouterr().err
