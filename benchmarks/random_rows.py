"""Make random examples and weights for timing training steps, masked as the released BERT's data is."""

import numpy as np

from beambert.bert_model.config import BertConfig
from beambert.bert_model.heads import PRETRAINING


def random_features(vocab_size: int, batch_size: int, length: int, predictions: int) -> dict[str, np.ndarray]:
    """Return a batch of examples with two segments each, equal at every call.

    Args:
        vocab_size: number of tokens in the vocabulary.
        batch_size: number of sequences, B.
        length: positions of a sequence, S.
        predictions: masked positions of a sequence, P.

    Returns:
        The seven features of the released code: [B, S], [B, P] and [B, 1], int32; masked_lm_weights float32.
    """
    generator = np.random.default_rng(0)
    positions = np.stack([generator.permutation(length)[:predictions] for _ in range(batch_size)])
    return {
        "input_ids": generator.integers(0, vocab_size, (batch_size, length)).astype(np.int32),
        "input_mask": np.ones((batch_size, length), np.int32),
        "segment_ids": np.repeat([np.arange(length) >= length // 2], batch_size, axis=0).astype(np.int32),
        "masked_lm_positions": np.sort(positions).astype(np.int32),
        "masked_lm_ids": generator.integers(0, vocab_size, (batch_size, predictions)).astype(np.int32),
        "masked_lm_weights": np.ones((batch_size, predictions), np.float32),
        "next_sentence_labels": generator.integers(0, 2, (batch_size, 1)).astype(np.int32),
    }


def random_weights(config: BertConfig) -> dict[str, np.ndarray]:
    """Return weights by TF1 name, equal on every backend: a normal initialization without truncation."""
    generator = np.random.default_rng(0)
    weights = {}
    for name in PRETRAINING.variable_names(config):
        values = generator.normal(0, config.initializer_range, name.shape)
        if name.tf1.endswith(("beta", "bias")):
            values = np.zeros(name.shape)
        weights[name.tf1] = (np.ones(name.shape) if name.tf1.endswith("gamma") else values).astype(np.float32)
    return weights


def packed_features(features: dict[str, np.ndarray], instances: int = 2) -> dict[str, np.ndarray]:
    """Return examples as packed rows of instances of equal length, with their segment ids and [CLS] positions."""
    batch_size, length = features["input_ids"].shape
    sequence_ids = np.repeat([np.arange(length) * instances // length + 1], batch_size, axis=0)
    starts = [(np.arange(length) * instances // length).searchsorted(number) for number in range(instances)]
    labels = np.repeat(features["next_sentence_labels"], instances, axis=1)
    return {
        **features,
        "sequence_ids": sequence_ids.astype(np.int32),
        "next_sentence_positions": np.repeat([starts], batch_size, axis=0).astype(np.int32),
        "next_sentence_labels": labels,
        "next_sentence_weights": np.ones((batch_size, instances), np.float32),
    }
