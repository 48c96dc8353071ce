"""Small models with weights far from their initial zeros and ones, and features for them."""

import keras
import numpy as np

from beambert.bert_model.config import BertConfig
from beambert.bert_model.variable_names import variables_by_tf1_name

CONFIG = BertConfig(
    vocab_size=50,
    hidden_size=24,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=40,
    max_position_embeddings=20,
)


def randomise(model, seed=2):
    """Set every variable to random values, so that each variable and every nonlinearity affects the outputs.

    Returns:
        The values, float64 by TF1 name, without the padding of the vocabulary.
    """
    generator = np.random.default_rng(seed)
    weights = {}
    for name, variable in variables_by_tf1_name(model).items():
        real = model.config.vocab_size if name.endswith(("word_embeddings", "predictions/output_bias")) else None
        values = np.full(variable.shape, 7.0)
        values[:real] = generator.normal(0, 0.4, values[:real].shape)
        variable.assign(values)
        weights[name] = keras.ops.convert_to_numpy(variable)[:real].astype(np.float64)
    return weights


def encoder_inputs(shape, config=CONFIG, seed=0):
    """Return input_ids, input_mask and segment_ids of a shape [..., S] as a dict; at least half of each row is real."""
    generator = np.random.default_rng(seed)
    real = generator.integers(shape[-1] // 2, shape[-1], shape[:-1])
    return {
        "input_ids": generator.integers(0, config.vocab_size, shape).astype(np.int32),
        "input_mask": (np.arange(shape[-1]) < real[..., None]).astype(np.int32),
        "segment_ids": generator.integers(0, 2, shape).astype(np.int32),
    }


def packed_inputs(lengths, row_length, config=CONFIG, seed=0):
    """Return a packed row of instances of given lengths: its features [1, S], and each instance's inputs [length]."""
    generator = np.random.default_rng(seed)
    row = {
        name: np.zeros((1, row_length), np.int32) for name in ("input_ids", "input_mask", "segment_ids", "sequence_ids")
    }
    instances, start = [], 0
    for number, length in enumerate(lengths, start=1):
        instance = {
            "input_ids": generator.integers(0, config.vocab_size, length),
            "input_mask": np.ones(length, np.int32),
            "segment_ids": generator.integers(0, 2, length),
        }
        for name, values in instance.items():
            row[name][0, start : start + length] = values
        row["sequence_ids"][0, start : start + length] = number
        instances.append(instance)
        start += length
    row["next_sentence_positions"] = np.cumsum([[0, *lengths[:-1]]], axis=1).astype(np.int32)
    return row, instances
