import numpy as np
import pytest

from beambert.bert_model.config import BertConfig
from beambert.bert_model.finetuning_models import BertForTask
from beambert.bert_model.heads import HEADS
from beambert.bert_model.pretraining import BertForPretraining
from beambert.bert_model.size import (
    forward_flops_per_token,
    parameter_counts,
    skipped_training_flops_per_token,
    training_flops_per_token,
)

SMALL = BertConfig(
    vocab_size=11, hidden_size=6, num_hidden_layers=3, num_attention_heads=2, intermediate_size=10, type_vocab_size=3
)


@pytest.mark.parametrize(
    ("name", "encoder", "total"),
    # The first count is of encoder and pooler, as in the released checkpoints; the second includes pretraining heads.
    [("base", 109_482_240, 110_106_428), ("large", 335_141_888, 336_226_108)],
)
def test_published_counts(name, encoder, total):
    counts = parameter_counts(BertConfig.preset(name, 30522))
    assert (counts.encoder, counts.total) == (encoder, total)


@pytest.mark.parametrize(
    ("name", "millions"),
    # Table 1 of Turc et al. 2019.
    [("L-2_H-128", 4.4), ("L-4_H-256", 11.2), ("L-4_H-512", 28.8), ("L-8_H-512", 41.4), ("L-12_H-768", 109.5)],
)
def test_published_counts_of_compact_models(name, millions):
    assert parameter_counts(BertConfig.preset(name, 30522)).encoder / 1e6 == pytest.approx(millions, abs=0.06)


def sizes(layer):
    return sum(int(np.prod(variable.shape)) for variable in layer.variables)


def test_counts_are_those_of_the_model():
    model = BertForPretraining(SMALL)
    counts = parameter_counts(SMALL)
    assert counts.embeddings == sizes(model.encoder.embeddings)
    assert counts.layers == sum(sizes(layer) for layer in model.encoder.layers)
    assert counts.pooler == sizes(model.encoder.pooler)
    assert counts.heads == sizes(model.masked_lm) + sizes(model.next_sentence)
    assert counts.total == sizes(model)
    for name, head in HEADS.items():
        labels = head.fixed_labels or 5
        counts = parameter_counts(SMALL, head, labels)
        assert counts.total == sizes(BertForTask(SMALL, name, labels))
        assert counts.encoder == parameter_counts(SMALL).encoder


def test_flops_count_every_product_of_a_naive_forward_pass():
    length, predictions = 7, 2
    total = 0

    def product(rows, inner, columns):
        nonlocal total
        total += 2 * rows * inner * columns

    heads, width = SMALL.num_attention_heads, SMALL.hidden_size // SMALL.num_attention_heads
    for _ in range(SMALL.num_hidden_layers):
        for _ in ("query", "key", "value", "output"):
            product(length, SMALL.hidden_size, SMALL.hidden_size)
        for _ in range(heads):
            product(length, width, length)
            product(length, length, width)
        product(length, SMALL.hidden_size, SMALL.intermediate_size)
        product(length, SMALL.intermediate_size, SMALL.hidden_size)
    product(1, SMALL.hidden_size, SMALL.hidden_size)
    without_head = total
    product(predictions, SMALL.hidden_size, SMALL.hidden_size)
    product(predictions, SMALL.hidden_size, SMALL.vocab_size)
    assert forward_flops_per_token(SMALL, length) * length == pytest.approx(without_head)
    assert forward_flops_per_token(SMALL, length, predictions) * length == pytest.approx(total)
    assert training_flops_per_token(SMALL, length, predictions) * length == pytest.approx(3 * total)


def test_flops_that_the_last_layer_skips():
    """Check that the last layer skips nothing if all positions are predicted.

    Each skipped position saves the operations of a layer except those of keys and values.
    """
    config = BertConfig.preset("tiny", 100)
    assert skipped_training_flops_per_token(config, 128, 127) == 0
    of_layer = 8 * 128**2 + 4 * 128 * 512 + 4 * 128 * 128
    keys_and_values = 2 * 2 * 128**2
    assert skipped_training_flops_per_token(config, 128, 19) == pytest.approx(
        3 * (of_layer - keys_and_values) * 108 / 128
    )
