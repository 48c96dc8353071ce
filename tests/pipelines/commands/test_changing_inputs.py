"""Tests of input files that change while a job reads them.

The job ends with an error, since the manifest must describe the data that was read.
"""

import json
import os
from pathlib import Path

import pytest

import beambert
import pipelines.corpus.reading
from pipelines.sources import SourceError, readers
from pipelines.sources.files import require_unchanged
from tokenizer.vocabulary import SPECIAL_TOKENS

SENTENCES = [f"The river rose {number} feet on day {number}.\nNobody saw it.\n" for number in range(12)]


@pytest.fixture
def inputs(tmp_path) -> Path:
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        lines = [json.dumps({"text": f"{name}: {text}"}) for text in SENTENCES]
        (tmp_path / f"in/{name}.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path / "in"


def run(inputs: Path, output: Path, *flags: str) -> int:
    argv = ["corpus", "--input", f"{inputs}/*", "--output", str(output), "--num_partitions", "1"]
    vocabulary = [] if "--vocab_file" in flags else ["--vocab_size", "60"]
    return beambert.main([*argv, "--validation_fraction", "0", *vocabulary, *flags])


def while_reading(monkeypatch, change, after: int = 3) -> None:
    """Call `change` after a given number of documents was read."""
    read_file = pipelines.corpus.reading.read_file
    number = 0

    def read_and_change(*args, **keywords):
        nonlocal number
        for document in read_file(*args, **keywords):
            number += 1
            if number == after:
                change()
            yield document

    monkeypatch.setattr(pipelines.corpus.reading, "read_file", read_and_change)


def append(path: Path) -> None:
    with path.open("a") as file:
        file.write('{"text": "One more."}\n')


def rewrite_with_another_time(path: Path) -> None:
    stamp = path.stat().st_mtime_ns
    path.write_text(path.read_text().replace("river", "RIVER"))
    os.utime(path, ns=(stamp + 2_000_000_000, stamp + 2_000_000_000))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (append, "changed while the job read it"),
        (Path.unlink, "is missing ("),
    ],
)
@pytest.mark.parametrize("name", ["a.jsonl", "b.jsonl"])
def test_a_file_that_changes_is_named(inputs, tmp_path, monkeypatch, capsys, change, message, name):
    """Change the first file while it is read, the second one before it is read."""
    while_reading(monkeypatch, lambda: change(inputs / name))
    assert run(inputs, tmp_path / "out") == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    if change is not Path.unlink or name == "a.jsonl":
        assert f"{inputs / name} {message}" in error
    assert name in error
    assert not (tmp_path / "out/corpus.json").exists()


def test_the_same_command_reads_what_has_changed_again(inputs, tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        while_reading(patch, lambda: append(inputs / "b.jsonl"))
        assert run(inputs, tmp_path / "out") == 1
    assert run(inputs, tmp_path / "out") == 0
    manifest = json.loads((tmp_path / "out/corpus.json").read_text())
    assert manifest["counts"]["documents_read"] == 25
    for path, size, changed, _ in manifest["files"]:
        assert (size, changed) == (Path(path).stat().st_size, Path(path).stat().st_mtime)


def test_a_file_cut_while_it_is_read_is_not_called_damaged(inputs, tmp_path, monkeypatch, capsys):
    """Require that the error reports the change of the file, not the truncated line at its end."""
    while_reading(monkeypatch, lambda: (inputs / "b.jsonl").write_text('{"text": "cut'), after=12)
    assert run(inputs, tmp_path / "out") == 1
    assert f"{inputs}/b.jsonl changed while the job read it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "content"),
    [("--vocab_file", "\n".join([*SPECIAL_TOKENS, "river"])), ("--decontaminate", "A text about a river. " * 4)],
)
def test_a_changing_vocabulary_or_evaluation_file_is_named(inputs, tmp_path, monkeypatch, capsys, flag, content):
    other = tmp_path / "other.txt"
    other.write_text(f"{content}\n")
    while_reading(monkeypatch, lambda: rewrite_with_another_time(other))
    capsys.readouterr()
    assert run(inputs, tmp_path / "out", flag, str(other)) == 1
    assert f"{other} changed while the job read it" in capsys.readouterr().err


def test_every_split_of_a_file_is_checked(inputs, tmp_path, monkeypatch, capsys):
    path = inputs / "a.jsonl"
    monkeypatch.setattr(readers, "_SPLIT_BYTES", {"": 300})
    read_range = pipelines.corpus.reading.read_range

    def read_and_change(path, options, start, stop):
        yield from read_range(path, options, start, stop)
        if start.offset > 300:
            append(inputs / "a.jsonl")

    monkeypatch.setattr(pipelines.corpus.reading, "read_range", read_and_change)
    assert run(inputs, tmp_path / "out") == 1
    assert f"{path} changed while the job read it" in capsys.readouterr().err


def test_a_name_with_brackets_is_not_a_pattern(tmp_path):
    path = tmp_path / "a[1].txt"
    path.write_text("x")
    require_unchanged(str(path), 1, path.stat().st_mtime)
    with pytest.raises(SourceError, match="changed while"):
        require_unchanged(str(path), 2, path.stat().st_mtime)
