"""Tests of `beambert inspect` on directories: datasets, corpora, and others."""

import json
import random
import shutil
from pathlib import Path

import pyarrow.parquet
import pytest

import beambert
from pipelines import dataset


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with two outputs for the same text: `dataset` by `beambert build`, `corpus` by `beambert corpus`."""
    folder = tmp_path_factory.mktemp("inspect")
    generator = random.Random(0)
    words = ["the", "cat", "dog", "sat", "on", "mat", "and", "ran", "to", "house", "big", "small", "red", "blue"]
    lines = []
    for _ in range(40):
        for _ in range(6):
            lines.append(" ".join(generator.choice(words) for _ in range(9)).capitalize() + ".")
        lines.append("")
    (folder / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    given = ["--input", str(folder / "text.txt"), "--input_format", "sentences", "--vocab_size", "50"]
    given += ["--num_partitions", "2"]
    assert beambert.main(["corpus", *given, "--output", str(folder / "corpus")]) == 0
    made = ["build", *given, "--dupe_factor", "1", "--max_seq_length", "32", "--output", str(folder / "dataset")]
    assert beambert.main(made) == 0
    return folder


def inspect(capsys, *argv: object) -> tuple[int, str, str]:
    code = beambert.main(["inspect", *map(str, argv)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("flags", [("--number", "2"), ("--stats",)])
def test_a_dataset_shows_its_first_shard(folder, capsys, flags):
    manifest = dataset.load(folder / "dataset")
    shard = manifest.shards_of("train")[0].name
    code, out, err = inspect(capsys, folder / "dataset", *flags)
    assert (code, err) == (0, "")
    line, rest = out.split("\n", 1)
    assert f"is a dataset of {len(manifest.shards)} shards with {manifest.num_examples('train'):,} train" in line
    assert line.endswith(f"first shard: {shard}")
    assert rest == inspect(capsys, folder / "dataset" / shard, *flags)[1]


def test_a_corpus_shows_its_first_documents(folder, capsys):
    parts = json.loads((folder / "corpus" / "corpus.json").read_text(encoding="utf-8"))["shards"]
    code, out, err = inspect(capsys, folder / "corpus", "--number", "2", "--start", "1")
    assert (code, err) == (0, "")
    trained = [part for part in parts if part["split"] == "train"]
    counts = [f"{sum(part[name] for part in trained)} {name}" for name in ("documents", "sentences")]
    assert f"train       {', '.join(counts)}" in out
    first = next(part["name"] for part in parts if part["documents"])
    table = pyarrow.parquet.read_table(folder / "corpus" / first).to_pylist()
    shown = [line for line in out.splitlines() if line.endswith(".") and " " in line and "/" not in line]
    assert shown == [sentence for document in table[1:3] for sentence in document["sentences"]]
    # A file of the corpus, given by its name, shows the same documents.
    code, alone, err = inspect(capsys, folder / "corpus" / first, "--number", "2", "--start", "1")
    assert (code, err) == (0, "")
    assert out.endswith(alone)
    assert inspect(capsys, folder / "corpus", "--start", "1000")[1].endswith("no documents at or after index 1000\n")


def test_statistics_of_a_corpus_are_its_sizes(folder, capsys):
    code, out, _ = inspect(capsys, folder / "corpus", "--stats")
    assert code == 0
    assert "train       39 documents, 234 sentences" in out
    assert len(out.splitlines()) <= 3


def test_statistics_of_a_corpus_shard_are_its_sizes(folder, capsys):
    shards = json.loads((folder / "corpus" / "corpus.json").read_text(encoding="utf-8"))["shards"]
    paths = [folder / "corpus" / shard["name"] for shard in shards]
    code, out, err = inspect(capsys, *paths, "--stats")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        line
        for path, shard in zip(paths, shards, strict=True)
        for line in (str(path), f"  documents   {shard['documents']:,}", f"  sentences   {shard['sentences']:,}")
    ]


def test_other_directories_are_named(folder, capsys):
    (folder / "empty").mkdir()
    for path, says in ((folder / "empty", "is an empty directory"), (folder / "corpus" / "corpus", "is a directory")):
        code, _, err = inspect(capsys, path)
        assert (code, err.count("\n")) == (1, 1)
        assert f"{path} {says}" in err
        assert "give a shard, or a directory written by beambert build" in err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shards/train-copy-000-00000-of-00002.tfrecord", "it was changed after it was written; copy"),
        ("vocab.txt", "is not the vocabulary of the dataset"),
    ],
)
def test_a_file_that_is_not_the_one_of_the_manifest_is_refused(folder, tmp_path, capsys, name, message):
    copied = tmp_path / "dataset"
    shutil.copytree(folder / "dataset", copied)
    path = copied / name
    path.write_bytes(path.read_bytes() + b"new\n" if name == "vocab.txt" else b"")
    code, out, err = inspect(capsys, copied)
    assert code == 1
    assert str(path) in err
    assert message in err
    assert "  examples" not in out
    assert "\nA  " not in out


def test_a_cut_file_of_a_corpus_is_refused(folder, tmp_path, capsys):
    copied = tmp_path / "corpus"
    shutil.copytree(folder / "corpus", copied)
    path = next(iter(sorted((copied / "corpus").glob("train*"))))
    path.write_bytes(path.read_bytes()[:-100])
    code, _, err = inspect(capsys, copied)
    assert code == 1
    assert str(path) in err
    assert "differs from corpus.json" in err
