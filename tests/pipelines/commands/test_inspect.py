"""Tests of `beambert inspect` on shards in every format, on datasets and corpora, and its errors."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from beambert import cli
from beambert.common.formatting import counted
from beambert.pipelines import dataset


@pytest.fixture(scope="module")
def single(tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("inspect") / "data"
    argv = ["build", "--input_format", "language_reference", "--output", str(output), "--vocab_size", "1500"]
    assert cli.main([*argv, "--dupe_factor", "1", "--num_partitions", "1"]) == 0
    return output


@pytest.fixture(scope="module")
def shard(single) -> Path:
    return single / dataset.load(single).shards_of("train")[0].name


def run(capsys, *argv: object) -> tuple[int, str, str]:
    code = cli.main(["inspect", *map(str, argv)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def body(out: str) -> list[str]:
    """Return the lines of text, without file names and headings."""
    return [line for line in out.splitlines() if line[:3] in ("A  ", "B  ")]


def test_numbers_are_those_of_the_manifest(single, shard, capsys):
    code, out, _ = run(capsys, shard, "--stats")
    assert code == 0
    counts = dataset.load(single).counts["train"]
    assert f"examples    {counts['rows']:,} rows with {counts['instances']:,} instances" in out
    assert f"{1 - counts['instance_tokens'] / counts['positions']:.1%} padding" in out
    assert f"labels      {counts['instances_labeled_1'] / counts['instances']:.1%} NotNext" in out
    masked = counts["masked_tokens"]
    assert f"masked      {masked / counts['instance_tokens']:.1%} of tokens" in out
    assert f"{counts['masked_as_mask'] / masked:.1%} [MASK]" in out
    assert f"{counts['masked_as_original'] / masked:.1%} unchanged" in out


def test_what_labels_mean_is_read_from_the_manifest(single, shard, tmp_path, capsys):
    content = json.loads((single / "dataset.json").read_text())
    content["options"]["objective"] = "sop"
    (tmp_path / "dataset.json").write_text(json.dumps(content))
    (tmp_path / "vocab.txt").write_bytes((single / "vocab.txt").read_bytes())
    (tmp_path / "shards").mkdir()
    path = shutil.copy(shard, tmp_path / "shards")
    _, out, _ = run(capsys, path)
    assert "swapped, A " in out
    assert "in order, A " in out
    assert "% swapped" in run(capsys, path, "--stats")[1]


def test_start_and_number_select_examples(shard, capsys):
    _, all_out, _ = run(capsys, shard, "--number", 7)
    _, some, _ = run(capsys, shard, "--start", 4, "--number", 3)
    assert body(some) == body(all_out)[8:]
    assert "\n4  " in some
    code, out, _ = run(capsys, shard, "--start", 10**6)
    assert code == 0
    assert "no examples at or after index 1000000" in out


def test_mistakes_are_one_line(single, shard, tmp_path, capsys):
    lonely = shutil.copy(shard, tmp_path / "lonely.tfrecord")
    (tmp_path / "few.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    pyarrow.parquet.write_table(pyarrow.table({"x": [1]}), tmp_path / "other.parquet")
    torn = tmp_path / "torn.tfrecord"
    record_bytes = shard.stat().st_size // dataset.load(single).shards_of("train")[0].examples
    torn.write_bytes(shard.read_bytes()[: 2 * record_bytes - 9])
    vocab = ("--vocab_file", single / "vocab.txt")
    for argv, says in (
        ((lonely,), "give the vocabulary of"),
        ((lonely, "--vocab_file", tmp_path / "none"), "none does not exist"),
        ((lonely, "--vocab_file", tmp_path / "few.txt"), "lonely.tfrecord, example 0: token id"),
        ((torn, *vocab), "torn.tfrecord ends within the record at byte"),
        ((tmp_path / "none.tfrecord",), "none.tfrecord does not exist"),
        ((tmp_path / "other.parquet", *vocab), "input_ids is missing"),
    ):
        code, _, err = run(capsys, *argv)
        assert (code, err.count("\n")) == (1, 1), err
        assert says in err
    # The valid examples before the corrupt record are shown.
    code, out, _ = run(capsys, torn, *vocab)
    assert (code, len(body(out))) == (1, 2)


@pytest.mark.parametrize("flags", [(), ("--stats",)])
def test_rows_without_tokens_are_empty(single, tmp_path, capsys, flags):
    table = pyarrow.table({"input_ids": [[], None, [0, 0]], "input_mask": [[], None, [0, 0]]})
    pyarrow.parquet.write_table(table, tmp_path / "empty.parquet")
    pyarrow.parquet.write_table(table.slice(0, 1), tmp_path / "none.parquet")
    for name, number in (("empty.parquet", 3), ("none.parquet", 1)):
        code, out, err = run(capsys, tmp_path / name, "--vocab_file", single / "vocab.txt", *flags)
        assert (code, err) == (0, "")
        if flags:
            assert f"examples    {number} rows with 0 instances" in out
        else:
            assert out.count("no tokens, row length ") == number


def test_closed_stdout_prints_no_error(shard):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "beambert", "inspect", str(shard), "--number", "100000"]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=120)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, b"")


def test_colors_are_for_terminals_only(shard, monkeypatch, capsys):
    assert "\x1b" not in run(capsys, shard)[1]
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert cli.main(["inspect", str(shard), "--number", "1"]) == 0
    assert "→MASK" in terminal.getvalue()
    assert "\x1b[" in terminal.getvalue()


@pytest.mark.parametrize(
    "options",
    [
        "--format parquet --pack --max_seq_length 256 --feature_names model_garden --objective mlm",
        "--masking dynamic --objective sop --length_bins 32,64,128 --compression gzip",
    ],
)
def test_shards_with_other_options_are_inspected_and_reported(single, tmp_path, capsys, options):
    output = tmp_path / "data"
    argv = ["pretraining-data", "--input", str(single), "--output", str(output), "--dupe_factor", "1"]
    assert cli.main([*argv, *options.split()]) == 0
    manifest = dataset.load(output)
    counts = manifest.counts["train"]
    capsys.readouterr()
    paths = [output / shard.name for shard in manifest.shards_of("train")]
    code, out, _ = run(capsys, *paths, "--stats")
    assert code == 0
    assert ("  labels  " in out) is ("mlm" not in options)
    assert ("  masked      during training" in out) is ("dynamic" in options)
    rows, instances = (
        sum(int(number.replace(",", "")) for number in numbers)
        for numbers in zip(*re.findall(r"examples    ([\d,]+) rows with ([\d,]+) instances", out), strict=True)
    )
    assert (rows, instances) == (counts["rows"], counts["instances"])
    _, out, _ = run(capsys, paths[-1])
    assert ("\n0.1  " in out) is ("pack" in options)
    assert ("masked during training" in out) is ("dynamic" in options)
    page = (output / "report.html").read_text(encoding="utf-8")
    assert page.count("<article") == 8
    assert ('<mark class="mask">' in page.split('id="samples"')[1]) is ("dynamic" not in options)


@pytest.fixture(scope="module")
def folder(built, tmp_path_factory) -> Path:
    """A folder with a dataset, `dataset`, and its corpus alone, `corpus`."""
    folder = tmp_path_factory.mktemp("inspect")
    shutil.copytree(built, folder / "dataset")
    shutil.copytree(built, folder / "corpus", ignore=shutil.ignore_patterns("dataset.json", "shards"))
    return folder


@pytest.mark.parametrize("flags", [("--number", "2"), ("--stats",)])
def test_a_dataset_shows_its_first_shard(folder, capsys, flags):
    manifest = dataset.load(folder / "dataset")
    shard = manifest.shards_of("train")[0].name
    code, out, err = run(capsys, folder / "dataset", *flags)
    assert (code, err) == (0, "")
    line, rest = out.split("\n", 1)
    assert f"is a dataset of {len(manifest.shards)} shards with {manifest.num_examples('train'):,} train" in line
    assert line.endswith(f"first shard: {shard}")
    assert rest == run(capsys, folder / "dataset" / shard, *flags)[1]


def test_a_corpus_shows_its_first_documents(folder, capsys):
    shards = json.loads((folder / "corpus" / "corpus.json").read_text(encoding="utf-8"))["shards"]
    code, out, err = run(capsys, folder / "corpus", "--number", "2", "--start", "1")
    assert (code, err) == (0, "")
    documents, sentences = (
        sum(shard[name] for shard in shards if shard["split"] == "train") for name in ("documents", "sentences")
    )
    assert f"train       {documents:,} documents, {sentences:,} sentences" in out
    first = next(shard["name"] for shard in shards if shard["documents"])
    table = pyarrow.parquet.read_table(folder / "corpus" / first).to_pylist()
    texts = ["\n".join(document["sentences"]) for document in table]
    assert [text in out for text in texts] == [False, True, True, *[False] * (len(texts) - 3)]
    # A file of the corpus, given by its name, shows the same documents.
    code, alone, err = run(capsys, folder / "corpus" / first, "--number", "2", "--start", "1")
    assert (code, err) == (0, "")
    assert out.endswith(alone.partition("\n")[2])
    assert run(capsys, folder / "corpus", "--start", "1000")[1].endswith("no documents at or after index 1000\n")
    assert run(capsys, folder / "corpus", "--stats")[1].splitlines() == out.splitlines()[:3]


def test_statistics_of_a_corpus_shard_are_its_sizes(folder, capsys):
    shards = json.loads((folder / "corpus" / "corpus.json").read_text(encoding="utf-8"))["shards"]
    paths = [folder / "corpus" / shard["name"] for shard in shards]
    code, out, err = run(capsys, *paths, "--stats")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"{path} has {counted(shard['documents'], 'document')}, {counted(shard['sentences'], 'sentence')}"
        for path, shard in zip(paths, shards, strict=True)
    ]


def test_other_directories_are_named(folder, capsys):
    (folder / "empty").mkdir()
    for path, says in ((folder / "empty", "is an empty directory"), (folder / "corpus" / "corpus", "is a directory")):
        code, _, err = run(capsys, path)
        assert (code, err.count("\n")) == (1, 1)
        assert f"{path} {says}" in err
        assert "give a shard, or a directory written by beambert build" in err


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("dataset", "shards/train-copy-000-00000-of-00003.tfrecord", "it was changed after it was written; copy"),
        ("dataset", "vocab.txt", "is not the vocabulary of the dataset"),
        ("corpus", "corpus/train-00000-of-00003.parquet", "differs from corpus.json"),
    ],
)
def test_a_file_that_is_not_the_one_of_the_manifest_is_refused(folder, tmp_path, capsys, kind, name, message):
    copied = shutil.copytree(folder / kind, tmp_path / kind)
    path = copied / name
    path.write_bytes(path.read_bytes()[:-100] if name != "vocab.txt" else path.read_bytes() + b"qqqqqq\n")
    code, out, err = run(capsys, copied)
    assert code == 1
    assert str(path) in err
    assert message in err
    assert "  examples" not in out
    assert "\nA  " not in out
