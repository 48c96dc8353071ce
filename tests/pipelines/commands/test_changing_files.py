"""Tests of files that change or are deleted while a job runs: a one-line error, and no manifest of other data."""

import json
import os
import shutil
from pathlib import Path

import pytest

from beambert import cli
from beambert.pipelines.corpus import corpus_manifest
from beambert.pipelines.corpus.blocks import write_block_file
from beambert.pipelines.errors import DatasetError
from beambert.pipelines.io.atomic_files import require_written
from beambert.pipelines.sources import readers
from beambert.pipelines.transforms import documents, examples
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS
from tests.conftest import SMALL, without_progress
from tests.every_output import tree_of

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
    return cli.main([*argv, "--validation_fraction", "0", *vocabulary, *flags])


def while_reading(monkeypatch, change, after: int = 3) -> None:
    """Call `change` after a given number of documents was read."""
    read_file = readers.read_file
    number = 0

    def read_and_change(*args, **keywords):
        nonlocal number
        for document in read_file(*args, **keywords):
            number += 1
            if number == after:
                change()
            yield document

    monkeypatch.setattr(readers, "read_file", read_and_change)


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
    (error,) = without_progress(capsys.readouterr().err)
    if change is not Path.unlink or name == "a.jsonl":
        assert f"{inputs / name} {message}" in error
    assert name in error
    assert not (tmp_path / "out/corpus.json").exists()


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
    monkeypatch.setattr(readers, "_LINE_RANGE_BYTES", {"": 300})
    read_file = readers.read_file

    def read_and_change(path, options, start, stop, **flags):
        yield from read_file(path, options, start, stop, **flags)
        if start > 300:
            append(inputs / "a.jsonl")

    monkeypatch.setattr(readers, "read_file", read_and_change)
    assert run(inputs, tmp_path / "out") == 1
    assert f"{path} changed while the job read it" in capsys.readouterr().err


def test_the_first_file_that_is_missing_or_has_another_size_is_named(tmp_path):
    (tmp_path / "a").write_text("12345")
    require_written(str(tmp_path), {"a": 5})
    require_written(str(tmp_path), {"a": None})
    with pytest.raises(DatasetError, match=f"^{tmp_path}/a has 5 bytes instead of 6: .*; run the same command again"):
        require_written(str(tmp_path), {"a": 6, "b": 1})
    with pytest.raises(DatasetError, match=f"^{tmp_path}/b is missing: it was removed .*; build it again$"):
        require_written(str(tmp_path), {"a": 5, "b": None}, "build it again")


def argv_of_corpus(articles, output):
    return ["corpus", "--input", f"{articles}/*.jsonl", *SMALL[:2], *SMALL[4:], "--output", str(output)]


def test_a_corpus_shard_is_deleted(corpus, articles, tmp_path, monkeypatch, capsys):
    output = tmp_path / "out"
    argv = argv_of_corpus(articles, output)
    write_shard = corpus_manifest.write_shard
    deleted = []

    def write_and_delete(path, *rest):
        written = write_shard(path, *rest)
        if not deleted:
            (output / path).unlink()
            deleted.append(path)
        return written

    with monkeypatch.context() as patch:
        patch.setattr(corpus_manifest, "write_shard", write_and_delete)
        assert cli.main(argv) == 1
    (error,) = without_progress(capsys.readouterr().err)
    assert f"{deleted[0]} is missing: it was removed after it was written" in error
    assert not (output / "corpus.json").exists()
    # The remedy of the message works: the same command rebuilds the corpus with the same bytes.
    assert cli.main(argv) == 0
    assert tree_of(output) == tree_of(corpus)


def test_the_output_directory_is_deleted_before_a_block_file_is_read_again(articles, tmp_path, monkeypatch, capsys):
    output = tmp_path / "data"
    paths = []

    def write_and_delete(path, *rest):
        locations = write_block_file(path, *rest)
        shutil.rmtree(output)
        paths.append(path)
        return locations

    monkeypatch.setattr(documents, "write_block_file", write_and_delete)
    assert cli.main([*argv_of_corpus(articles, output), "--direct_num_workers", "1"]) == 1
    line = f"beambert corpus: error: {paths[0]} was removed while the command ran; run the same command again\n"
    assert capsys.readouterr().err == line


def test_a_dataset_shard_is_deleted(corpus, tmp_path, monkeypatch, capsys):
    write_shards = examples.write_shards

    def write_and_delete(*args):
        written = write_shards(*args)
        for shard in written[0]:
            (tmp_path / "out" / shard.name).unlink()
        return written

    monkeypatch.setattr(examples, "write_shards", write_and_delete)
    argv = ["pretraining-data", "--input", str(corpus), "--output", f"{tmp_path}/out", "--dupe_factor", "1"]
    assert cli.main(argv) == 1
    (error,) = without_progress(capsys.readouterr().err)
    assert f"{tmp_path}/out/shards/train-copy-000-00000-of-00003.tfrecord is missing" in error
    assert not (tmp_path / "out/dataset.json").exists()


def test_a_finished_corpus_without_its_shards_is_not_up_to_date(corpus, articles, capsys):
    next(corpus.glob("corpus/train-*.parquet")).unlink()
    assert cli.main(argv_of_corpus(articles, corpus)) == 1
    assert f"delete {corpus} and run the same command again" in capsys.readouterr().err


def test_a_vocabulary_never_replaces_what_it_is_learned_from(built, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("One sentence. Another.\n" * 5)
    (tmp_path / "link.txt").symlink_to(text)
    other = tmp_path / "other.vocab"
    other.write_bytes((built / "vocab.txt").read_bytes())
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    common = ["--input", f"{tmp_path}/*.txt", "--vocab_size", "100", "--compare_vocab", str(other), "--overwrite"]
    for output, flag in ((text, "--input"), (tmp_path / "link.txt", "--input"), (other, "--compare_vocab")):
        assert cli.main(["vocab", *common, "--output", str(output)]) == 1
        error = capsys.readouterr().err
        assert f"--output {output} is the same file as {flag}" in error
        assert error.count("\n") == 1
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
