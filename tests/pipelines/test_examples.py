"""Our encoding against TensorFlow's own parser and record reader."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.examples import ExampleEncoder


def feature_spec(length: int, predictions: int) -> dict:
    """run_pretraining.py's name_to_features."""
    return {
        "input_ids": tf.io.FixedLenFeature([length], tf.int64),
        "input_mask": tf.io.FixedLenFeature([length], tf.int64),
        "segment_ids": tf.io.FixedLenFeature([length], tf.int64),
        "masked_lm_positions": tf.io.FixedLenFeature([predictions], tf.int64),
        "masked_lm_ids": tf.io.FixedLenFeature([predictions], tf.int64),
        "masked_lm_weights": tf.io.FixedLenFeature([predictions], tf.float32),
        "next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64),
    }


def random_features(rng, rows, vocab_size, length, predictions):
    return {
        "input_ids": rng.integers(0, vocab_size, (rows, length), dtype=np.int32),
        "input_mask": rng.integers(0, 2, (rows, length), dtype=np.uint8),
        "segment_ids": rng.integers(0, 2, (rows, length), dtype=np.uint8),
        "masked_lm_positions": rng.integers(0, length, (rows, predictions)),
        "masked_lm_ids": rng.integers(0, vocab_size, (rows, predictions), dtype=np.int32),
        "masked_lm_weights": rng.integers(0, 2, (rows, predictions)).astype(np.float32),
        "next_sentence_labels": rng.integers(0, 2, (rows, 1), dtype=np.uint8),
    }


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 9),
    vocab_size=st.sampled_from([100, 128, 129, 8000, 16384, 16385, 30522, 250_000, 2_200_000]),
    length=st.sampled_from([8, 127, 128, 129, 512]),
    predictions=st.sampled_from([1, 20, 130]),
)
def test_tensorflow_reads_what_was_written(tmp_path_factory, seed, rows, vocab_size, length, predictions):
    features = random_features(np.random.default_rng(seed), rows, vocab_size, length, predictions)
    features["input_ids"][0, 0] = vocab_size - 1
    path = tmp_path_factory.mktemp("examples") / "shard.tfrecord"
    encoder = ExampleEncoder(vocab_size, length, predictions)
    path.write_bytes(encoder.encode(features))
    assert path.stat().st_size == rows * encoder.record_bytes
    # TFRecordDataset checks both checksums of every record.
    records = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    assert len(records) == rows
    parsed = tf.io.parse_example(records, feature_spec(length, predictions))
    for name, expected in features.items():
        assert np.array_equal(parsed[name].numpy(), expected), name
    # The slow, general parser agrees, and knows no other feature.
    message = tf.train.Example.FromString(records[0])
    assert set(message.features.feature) == set(features)
    assert list(message.features.feature["input_ids"].int64_list.value) == features["input_ids"][0].tolist()


def test_wrong_shapes_and_ids_are_refused():
    encoder = ExampleEncoder(1000, 16, 4)
    features = random_features(np.random.default_rng(0), 3, 1000, 16, 4)
    with pytest.raises(ValueError, match="input_mask has shape"):
        encoder.encode({**features, "input_mask": features["input_mask"][:, :8]})
    features["masked_lm_ids"][1, 1] = 20_000
    with pytest.raises(ValueError, match="masked_lm_ids holds a value"):
        encoder.encode(features)
