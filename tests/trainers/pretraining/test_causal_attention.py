"""Test that every command that loads a model with causal attention uses causal attention."""

import numpy as np
import pytest
import tensorflow as tf

from beambert import cli
from beambert.bert_model.checkpoints import native
from beambert.trainers.commands.features import FeatureExtractor
from beambert.trainers.inference.model_loading import load_model
from beambert.trainers.inference.signatures import forward_function
from tests.trainers.random_models import write_model

IDS = np.array([[2, 7, 8, 9, 3]], np.int32)
CHANGED = np.array([[2, 7, 8, 10, 3]], np.int32)
ONES, ZEROS = np.ones_like(IDS), np.zeros_like(IDS)


def inputs(ids):
    return {"input_ids": tf.constant(ids), "input_mask": tf.constant(ONES), "segment_ids": tf.constant(ZEROS)}


@pytest.mark.parametrize(
    ("all_positions", "causal_attention"),
    [(False, True), (True, True), (True, False)],
)
def test_exports_use_the_attention_of_the_model(tmp_path, all_positions, causal_attention):
    """Change a later token: the outputs at earlier positions stay equal if and only if attention is causal."""
    opened = load_model(write_model(tmp_path / "model", causal_attention=causal_attention))
    forward = forward_function(opened, all_positions=all_positions)
    hidden, changed = (forward(inputs(ids))[0].numpy() for ids in (IDS, CHANGED))  # [1, 5, H]
    assert np.array_equal(hidden[:, :3], changed[:, :3]) == causal_attention
    assert not np.array_equal(hidden[:, 3:], changed[:, 3:])

    opened = load_model(
        write_model(tmp_path / "classifier", "classification", ("a", "b"), causal_attention=causal_attention)
    )
    # With causal attention, [CLS] at the first position attends only to itself.
    forward = forward_function(opened, all_positions=all_positions)
    logits, changed = (np.asarray(forward(inputs(ids))) for ids in (IDS, CHANGED))
    assert np.array_equal(logits, changed) == causal_attention


@pytest.mark.parametrize("causal_attention", [False, True])
def test_features_use_the_attention_of_the_model(tmp_path, causal_attention):
    extractor = FeatureExtractor(
        write_model(tmp_path / "model", causal_attention=causal_attention), [-1], max_seq_length=8
    )
    (features,) = extractor.extract(["all human", "all rights"])
    first, second = np.split(features.values[0], features.row_splits[1:-1])
    # The features of [CLS] and "all" in the last layer.
    assert np.array_equal(first[:2], second[:2]) == causal_attention
    assert not np.array_equal(first[2], second[2])


def test_conversion_keeps_causal_attention_or_warns(tmp_path, capsys):
    directory = write_model(tmp_path / "model", causal_attention=True)
    for kind in ("native", "tf1", "huggingface"):
        assert cli.main(["convert", str(directory), str(tmp_path / kind), "--to", kind]) == 0
        assert ("uses causal attention" in capsys.readouterr().err) == (kind != "native")
    assert native.load(tmp_path / "native").causal_attention
    assert "| Attention | causal |" in (tmp_path / "native" / "README.md").read_text(encoding="utf-8")
    plain = write_model(tmp_path / "plain")
    assert cli.main(["convert", str(plain), str(tmp_path / "plain-tf1"), "--to", "tf1"]) == 0
    assert capsys.readouterr().err == ""
