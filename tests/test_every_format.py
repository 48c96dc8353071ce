"""Test building, inspecting and training on every kind of pretraining example, starting from a corpus."""

import json
from pathlib import Path

import pytest

from beambert import cli
from beambert.pipelines import dataset
from tests.conftest import with_slow

FORMATS = {
    "lengths in bins, masks drawn by the trainer": ["--length_bins", "32,64", "--masking", "dynamic"],
    "packed rows, spans, no padding": ["--pack", "--ragged", "--masking", "span"],
    "masked words alone, packed": [
        *("--objective", "mlm", "--pack", "--masking", "whole_word", "--compression", "gzip", "--noise", "0.1")
    ],
    "order of sentences": ["--objective", "sop", "--feature_names", "model_garden", "--ragged"],
}
SLOW_FORMATS = ("lengths in bins, masks drawn by the trainer", "masked words alone, packed", "order of sentences")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("corpus") / "data"
    argv = ["corpus", "--input_format", "language_reference", "--vocab_size", "600", "--num_partitions", "1"]
    assert cli.main([*argv, "--validation_fraction", "0.15", "--output", str(output)]) == 0
    return output


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("config") / "bert_config.json"
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    path.write_text(json.dumps({"vocab_size": 600, "max_position_embeddings": 64, **shape}))
    return path


def build(corpus: Path, output: Path, flags: list[str]) -> dataset.Dataset:
    lengths = ["--max_seq_length", "64", "--max_predictions_per_seq", "10", "--dupe_factor", "2"]
    assert cli.main(["pretraining-data", "--input", str(corpus), "--output", str(output), *lengths, *flags]) == 0
    assert (output / "report.html").is_file()
    return dataset.load(output)


@pytest.mark.parametrize("name", with_slow(FORMATS, SLOW_FORMATS))
def test_examples_are_built_inspected_and_trained_on(name, corpus, config, tmp_path, capsys):
    manifest = build(corpus, tmp_path / "data", FORMATS[name])
    shard = tmp_path / "data" / manifest.shards_of("train")[0].name
    capsys.readouterr()
    assert cli.main(["inspect", str(shard), "--number", "2"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown if line[:1].isdigit()] == ["0", "1"]
    assert any("MASK" in line for line in shown) == (manifest.options["masking"] != "dynamic")
    argv = ["pretrain", "--data", str(tmp_path / "data"), "--output", str(tmp_path / "run"), "--model", str(config)]
    assert cli.main([*argv, "--num_train_steps", "4", "--train_batch_size", "8"]) == 0
    results = dict(
        line.split(" = ") for line in (tmp_path / "run" / "eval_results.txt").read_text().splitlines() if line
    )
    # Chance is ln 600 = 6.40: four steps are too few to learn anything, and the loss must stay close to chance.
    assert 6.0 < float(results["masked_lm_loss"]) < 6.8
    assert ("next_sentence_loss" in results) == ("mlm" not in FORMATS[name])
