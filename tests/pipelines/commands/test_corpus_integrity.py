"""Tests of a corpus that differs from `corpus.json`, or from the Unicode version or the vocabulary of the job."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from beambert import cli
from beambert.pipelines.corpus.corpus_manifest import CorpusReader
from beambert.pipelines.corpus.options import CorpusOptions
from beambert.pipelines.errors import DatasetError, SourceError
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.transforms.corpora import _WriteCorpusShard
from beambert.pipelines.transforms.examples import make_tokenizer
from beambert.tokenizer.vocabulary import Vocabulary
from tests.conftest import without_progress

TRAIN, OTHER = "corpus/train-00001-of-00003.parquet", "corpus/train-00002-of-00003.parquet"


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def make_data(corpus: Path, output: Path, *flags: str) -> int:
    argv = ["pretraining-data", "--input", str(corpus), "--output", str(output), "--dupe_factor", "1"]
    return cli.main([*argv, *flags])


def error_line(capsys) -> str:
    """Return the only line of stderr that does not report progress."""
    (error,) = without_progress(capsys.readouterr().err)
    return error


def copy_over(source: str, name: str) -> Callable[[Path], object]:
    return lambda corpus: shutil.copy(corpus / source, corpus / name)


DAMAGES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "another part": (copy_over(OTHER, TRAIN), TRAIN, "differs from corpus.json"),
    "a part missing": (lambda corpus: (corpus / OTHER).unlink(), OTHER, "is missing"),
    "the vocabulary": (lambda corpus: flip(corpus / "vocab.txt", -5), "vocab.txt", "differs from corpus.json"),
    "the vocabulary missing": (lambda corpus: (corpus / "vocab.txt").unlink(), "vocab.txt", "is missing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_differs_is_named_in_one_line(corpus, tmp_path, capsys, damage):
    change, name, problem = DAMAGES[damage]
    change(corpus)
    assert make_data(corpus, tmp_path / "out") == 1
    error = error_line(capsys)
    assert f"{corpus}/{name} {problem}" in error
    assert "restore it from a copy, or build the corpus again" in error
    assert not (tmp_path / "out/dataset.json").exists()


def test_a_changed_vocabulary_is_accepted_as_vocab_file(corpus, tmp_path, capsys):
    vocab = corpus / "vocab.txt"
    vocab.write_text(vocab.read_text() + "qqqqqq\n")
    assert make_data(corpus, tmp_path / "out") == 1
    assert f"--vocab_file {vocab}" in error_line(capsys)
    assert make_data(corpus, tmp_path / "out", "--vocab_file", str(vocab)) == 0


def test_every_flipped_byte_is_found(corpus):
    reader = CorpusReader.open(str(corpus))
    path = corpus / TRAIN
    expected = reader.read_shard(TRAIN)
    size = path.stat().st_size
    for offset in range(0, size, size // 50):
        flip(path, offset)
        with pytest.raises(SourceError, match=r"differs from corpus\.json"):
            reader.read_shard(TRAIN)
        flip(path, offset)
    assert reader.read_shard(TRAIN).equals(expected)


def test_a_manifest_that_changes_during_the_job_is_found(corpus):
    reader = CorpusReader.open(str(corpus))
    manifest = corpus / "corpus.json"
    manifest.write_text(manifest.read_text().replace("sha256", "sha257", 1))
    with pytest.raises(SourceError, match=r"corpus\.json differs from its state at the start of the job"):
        reader.read_shard(TRAIN)


def test_a_corpus_of_another_unicode_version_is_refused(corpus, tmp_path, capsys):
    manifest = json.loads((corpus / "corpus.json").read_text())
    assert manifest["options"]["character_rules"].startswith("Unicode 1")
    manifest["options"]["character_rules"] = "Unicode 99.0.0"
    (corpus / "corpus.json").write_text(json.dumps(manifest))
    argv = ["pretraining-data", "--input", str(corpus), "--output", str(tmp_path / "out")]
    assert cli.main(argv) == 1
    error = capsys.readouterr().err
    assert "uses Unicode 99.0.0" in error
    assert "use the same Python" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_worker_of_another_unicode_version_refuses(corpus):
    options = dataclasses.replace(PretrainingDataOptions(), character_rules="Unicode 99.0.0")
    with pytest.raises(DatasetError, match=r"the machine that started the job uses Unicode 99\.0\.0"):
        make_tokenizer(Vocabulary.load(corpus / "vocab.txt"), options)
    options = CorpusOptions(do_lower_case=True, vocab_size=500, character_rules="Unicode 99.0.0", num_partitions=1)
    with pytest.raises(DatasetError, match=r"the machine that started the job uses Unicode 99\.0\.0"):
        _WriteCorpusShard(str(corpus), options, "").setup()


def test_a_corpus_keeps_its_own_vocabulary(corpus, tmp_path, capsys):
    vocab = (corpus / "vocab.txt").read_bytes()
    (tmp_path / "other.txt").write_bytes(vocab + b"qqqqqq\n")
    argv = ["pretraining-data", "--input", str(corpus), "--vocab_file", str(tmp_path / "other.txt")]
    assert cli.main([*argv, "--output", str(corpus)]) == 1
    error = capsys.readouterr().err
    assert "whose vocab.txt differs from --vocab_file" in error
    assert error.count("\n") == 1
    assert (corpus / "vocab.txt").read_bytes() == vocab
    assert not (corpus / "dataset.json").exists()
    assert cli.main([*argv, "--output", str(tmp_path / "out"), "--dupe_factor", "1"]) == 0
    assert (tmp_path / "out/vocab.txt").read_bytes() == vocab + b"qqqqqq\n"
