"""Tests of a corpus whose files differ from `corpus.json`: a one-line error that names the file, and no dataset."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import beambert
from pipelines.corpus.corpus_reader import CorpusReader
from pipelines.sources import SourceError
from tests.conftest import without_progress

TRAIN, OTHER = "corpus/train-00001-of-00003.parquet", "corpus/train-00002-of-00003.parquet"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("corpus") / "data"
    argv = ["corpus", "--input_format", "language_reference", "--vocab_size", "500", "--num_partitions", "3"]
    argv += ["--validation_fraction", "0.2", "--direct_num_workers", "1", "--output", str(output)]
    assert beambert.main(argv) == 0
    return output


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def make_data(corpus: Path, output: Path, *flags: str) -> int:
    argv = ["pretraining-data", "--input", str(corpus), "--output", str(output), "--dupe_factor", "1"]
    return beambert.main([*argv, *flags])


def error_line(capsys) -> str:
    """Return the only line of stderr that does not report progress."""
    (error,) = without_progress(capsys.readouterr().err)
    return error


def copy_over(source: str, name: str) -> Callable[[Path], object]:
    return lambda corpus: shutil.copy(corpus / source, corpus / name)


DAMAGES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a flipped byte": (lambda corpus: flip(corpus / TRAIN, 40), TRAIN, "differs from corpus.json"),
    "another part": (copy_over(OTHER, TRAIN), TRAIN, "differs from corpus.json"),
    "a part cut": (lambda corpus: (corpus / OTHER).write_bytes(b"PAR1"), OTHER, "differs from corpus.json"),
    "a part missing": (lambda corpus: (corpus / OTHER).unlink(), OTHER, "is missing"),
    "the vocabulary": (lambda corpus: flip(corpus / "vocab.txt", -5), "vocab.txt", "differs from corpus.json"),
    "the vocabulary missing": (lambda corpus: (corpus / "vocab.txt").unlink(), "vocab.txt", "is missing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_differs_is_named_in_one_line(corpus, tmp_path, capsys, damage):
    change, name, problem = DAMAGES[damage]
    shutil.copytree(corpus, tmp_path / "corpus")
    change(tmp_path / "corpus")
    assert make_data(tmp_path / "corpus", tmp_path / "out") == 1
    error = error_line(capsys)
    assert f"{tmp_path}/corpus/{name} {problem}" in error
    assert "restore it from a copy, or build the corpus again" in error
    assert not (tmp_path / "out/dataset.json").exists()


def test_a_changed_vocabulary_is_accepted_as_vocab_file(corpus, tmp_path, capsys):
    shutil.copytree(corpus, tmp_path / "corpus")
    vocab = tmp_path / "corpus/vocab.txt"
    vocab.write_text(vocab.read_text() + "another\n")
    assert make_data(tmp_path / "corpus", tmp_path / "out") == 1
    assert f"--vocab_file {vocab}" in error_line(capsys)
    assert make_data(tmp_path / "corpus", tmp_path / "out", "--vocab_file", str(vocab)) == 0


def test_every_flipped_byte_is_found(corpus, tmp_path):
    shutil.copytree(corpus, tmp_path / "corpus")
    reader = CorpusReader.open(str(tmp_path / "corpus"))
    path = tmp_path / "corpus" / TRAIN
    expected = reader.read_shard(TRAIN)
    size = path.stat().st_size
    for offset in range(0, size, size // 50):
        flip(path, offset)
        with pytest.raises(SourceError, match=r"differs from corpus\.json"):
            reader.read_shard(TRAIN)
        flip(path, offset)
    assert reader.read_shard(TRAIN).equals(expected)


def test_a_manifest_that_changes_during_the_job_is_found(corpus, tmp_path):
    shutil.copytree(corpus, tmp_path / "corpus")
    reader = CorpusReader.open(str(tmp_path / "corpus"))
    manifest = tmp_path / "corpus/corpus.json"
    manifest.write_text(manifest.read_text().replace("sha256", "sha257", 1))
    with pytest.raises(SourceError, match=r"corpus\.json differs from its state at the start of the job"):
        reader.read_shard(TRAIN)
