"""Tests of `beambert pretraining-data` with another Unicode version, or another vocabulary, than the corpus."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

import beambert
from pipelines.build_pretraining_data import WriteShards
from pipelines.corpus.corpus_reader import CorpusReader
from pipelines.corpus.options import CorpusOptions
from pipelines.corpus.write_shards import WriteCorpusShard
from pipelines.errors import DatasetError
from pipelines.instances.options import PretrainingDataOptions
from pipelines.sources import ReadOptions


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("corpus") / "data"
    argv = ["corpus", "--input_format", "language_reference", "--vocab_size", "500", "--num_partitions", "1"]
    assert beambert.main([*argv, "--output", str(output)]) == 0
    return output


def test_a_corpus_of_another_unicode_version_is_refused(corpus, tmp_path, capsys):
    shutil.copytree(corpus, tmp_path / "other")
    manifest = json.loads((corpus / "corpus.json").read_text())
    assert manifest["options"]["character_rules"].startswith("Unicode 1")
    manifest["options"]["character_rules"] = "Unicode 99.0.0"
    (tmp_path / "other/corpus.json").write_text(json.dumps(manifest))
    argv = ["pretraining-data", "--input", str(tmp_path / "other"), "--output", str(tmp_path / "out")]
    assert beambert.main(argv) == 1
    error = capsys.readouterr().err
    assert "uses Unicode 99.0.0" in error
    assert "use the same Python" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_worker_of_another_unicode_version_refuses(corpus):
    options = dataclasses.replace(PretrainingDataOptions(), character_rules="Unicode 99.0.0")
    with pytest.raises(DatasetError, match=r"the machine that started the job uses Unicode 99\.0\.0"):
        WriteShards(CorpusReader.open(str(corpus)), str(corpus), str(corpus / "vocab.txt"), options, "").setup()
    options = CorpusOptions(
        True, 500, "", 0, 1000, 1, "", 1.0, "Unicode 99.0.0", ReadOptions(), "en", "rules", 0.0, 1, 0.1
    )
    with pytest.raises(DatasetError, match=r"the machine that started the job uses Unicode 99\.0\.0"):
        WriteCorpusShard(str(corpus), options, "").setup()


def test_a_corpus_keeps_its_own_vocabulary(corpus, tmp_path, capsys):
    shutil.copytree(corpus, tmp_path / "corpus")
    vocab = (corpus / "vocab.txt").read_bytes()
    (tmp_path / "other.txt").write_bytes(vocab + b"another\n")
    argv = ["pretraining-data", "--input", str(tmp_path / "corpus"), "--vocab_file", str(tmp_path / "other.txt")]
    assert beambert.main([*argv, "--output", str(tmp_path / "corpus")]) == 1
    error = capsys.readouterr().err
    assert "whose vocab.txt differs from --vocab_file" in error
    assert error.count("\n") == 1
    assert (tmp_path / "corpus/vocab.txt").read_bytes() == vocab
    assert not (tmp_path / "corpus/dataset.json").exists()
    assert beambert.main([*argv, "--output", str(tmp_path / "out"), "--dupe_factor", "1"]) == 0
    assert (tmp_path / "out/vocab.txt").read_bytes() == vocab + b"another\n"
