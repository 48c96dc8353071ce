"""Test the encoding of examples against TensorFlow's own parser and record reader."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.pipelines.examples.example_encoder import ExampleEncoder, mask_feature
from beambert.pipelines.instances.options import PretrainingDataOptions


def feature_spec(length: int, predictions: int) -> dict:
    """Return `name_to_features` of run_pretraining.py."""
    return {
        "input_ids": tf.io.FixedLenFeature([length], tf.int64),
        "input_mask": tf.io.FixedLenFeature([length], tf.int64),
        "segment_ids": tf.io.FixedLenFeature([length], tf.int64),
        "masked_lm_positions": tf.io.FixedLenFeature([predictions], tf.int64),
        "masked_lm_ids": tf.io.FixedLenFeature([predictions], tf.int64),
        "masked_lm_weights": tf.io.FixedLenFeature([predictions], tf.float32),
        "next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64),
    }


def model_garden_spec(length: int, predictions: int) -> dict:
    """Return the features for use_v2_feature_names in official/nlp/data/pretrain_dataloader.py of tensorflow/models."""
    names = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}
    return {names.get(name, name): spec for name, spec in feature_spec(length, predictions).items()}


def random_features(rng, rows, vocab_size, length, predictions, instances):
    """Return all features; every row has content of random length, followed by zeros."""

    def content(count):
        return np.arange(count) < rng.integers(1, count + 1, (rows, 1))

    present, predicted, filled = content(length), content(predictions), content(instances)
    return {
        "input_ids": (rng.integers(0, vocab_size, (rows, length)) * present).astype(np.int32),
        "input_mask": present.astype(np.uint8),
        "segment_ids": (rng.integers(0, 2, (rows, length)) * present).astype(np.uint8),
        "sequence_ids": (rng.integers(1, instances + 1, (rows, length)) * present).astype(np.uint8),
        "masked_lm_positions": rng.integers(0, length, (rows, predictions)) * predicted,
        "masked_lm_ids": (rng.integers(0, vocab_size, (rows, predictions)) * predicted).astype(np.int32),
        "masked_lm_weights": predicted.astype(np.float32),
        "next_sentence_labels": (rng.integers(0, 2, (rows, instances)) * filled).astype(np.uint8),
        "next_sentence_positions": rng.integers(0, length, (rows, instances)) * filled,
        "next_sentence_weights": filled.astype(np.float32),
    }


def written_options(**changes) -> PretrainingDataOptions:
    return PretrainingDataOptions(**{"max_seq_length": 128, "max_predictions_per_seq": 20, **changes})


def read_records(path) -> list[bytes]:
    # TFRecordDataset checks both checksums of every record.
    return list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 9),
    vocab_size=st.sampled_from([100, 128, 129, 8000, 16384, 16385, 30522, 250_000, 2_200_000]),
    length=st.sampled_from([8, 127, 128, 129, 512]),
    predictions=st.sampled_from([1, 7, 130]),
    packed=st.sampled_from([0, 2, 16, 200]),
    ragged=st.booleans(),
    rest=st.fixed_dictionaries(
        {
            "objective": st.sampled_from(["nsp", "mlm"]),
            "masking": st.sampled_from(["token", "dynamic"]),
            "feature_names": st.sampled_from(["bert", "model_garden"]),
        }
    ),
)
def test_tensorflow_reads_what_was_written(
    tmp_path_factory, seed, rows, vocab_size, length, predictions, packed, ragged, rest
):
    if packed:
        rest = {**rest, "pack": True, "max_instances_per_row": packed, "masking": "token"}
    options = written_options(
        max_seq_length=length, max_predictions_per_seq=min(predictions, length), ragged=ragged, **rest
    )
    instances = options.instances_per_row
    features = random_features(
        np.random.default_rng(seed), rows, vocab_size, length, options.max_predictions_per_seq, instances
    )
    features["input_ids"][0, 0] = vocab_size - 1
    path = tmp_path_factory.mktemp("examples") / "shard.tfrecord"
    encoder = ExampleEncoder(options, length, vocab_size)
    path.write_bytes(encoder.encode(features))
    if not ragged:
        assert path.stat().st_size == rows * encoder.record_bytes
    records = read_records(path)
    assert len(records) == rows
    names = options.names_of_features()
    dtypes = {name: tf.float32 if name.endswith("_weights") else tf.int64 for name in names}
    if ragged:
        spec = {
            in_file: tf.io.RaggedFeature(dtypes[name], row_splits_dtype=tf.int64) for name, in_file in names.items()
        }
    else:
        spec = {
            in_file: tf.io.FixedLenFeature(features[name].shape[1:], dtypes[name]) for name, in_file in names.items()
        }
    parsed = tf.io.parse_example(records, spec)
    for name, in_file in names.items():
        values = parsed[in_file]
        if ragged:
            sizes = np.count_nonzero(features[mask_feature(name)], axis=1)
            assert values.row_lengths().numpy().tolist() == sizes.tolist(), name
            values = values.to_tensor(shape=features[name].shape)
        assert np.array_equal(values.numpy(), features[name]), name
    # Protobuf's slow, general parser agrees, and finds no other feature.
    message = tf.train.Example.FromString(records[0])
    assert set(message.features.feature) == set(names.values())
    expected = features["input_ids"][0]
    if ragged:
        expected = expected[features["input_mask"][0] > 0]
    assert list(message.features.feature[names["input_ids"]].int64_list.value) == expected.tolist()


@pytest.mark.parametrize(
    ("feature_names", "spec"), [("bert", feature_spec(128, 20)), ("model_garden", model_garden_spec(128, 20))]
)
def test_trainers_of_other_projects_read_the_examples(tmp_path, feature_names, spec):
    options = written_options(feature_names=feature_names)
    features = random_features(np.random.default_rng(3), 5, 30522, 128, 20, 1)
    path = tmp_path / "shard.tfrecord"
    path.write_bytes(ExampleEncoder(options, 128, 30522).encode(features))
    parsed = tf.io.parse_example(read_records(path), spec)
    assert parsed.keys() == set(options.names_of_features().values())
    for name, in_file in options.names_of_features().items():
        assert np.array_equal(parsed[in_file].numpy(), features[name])


def test_bytes_are_those_of_protobuf_but_for_the_width_of_integers(tmp_path):
    """Test values that need the width they get: the record equals protobuf's own, with the features in order."""
    features = random_features(np.random.default_rng(4), 3, 128, 100, 20, 1)
    options = written_options(max_seq_length=100)
    path = tmp_path / "shard.tfrecord"
    path.write_bytes(ExampleEncoder(options, 100, 128).encode(features))
    for record in read_records(path):
        assert tf.train.Example.FromString(record).SerializeToString(deterministic=True) == record


def test_wrong_shapes_and_ids_are_refused():
    encoder = ExampleEncoder(written_options(max_seq_length=16, max_predictions_per_seq=4), 16, 1000)
    features = random_features(np.random.default_rng(0), 3, 1000, 16, 4, 1)
    with pytest.raises(ValueError, match="of input_mask: must be"):
        encoder.encode({**features, "input_mask": features["input_mask"][:, :8]})
    features["masked_lm_ids"][1, 1] = 20_000
    with pytest.raises(ValueError, match="invalid value in masked_lm_ids"):
        encoder.encode(features)


def test_a_batch_of_no_rows_is_no_bytes():
    features = random_features(np.random.default_rng(0), 0, 1000, 128, 20, 1)
    for ragged in (False, True):
        assert ExampleEncoder(written_options(ragged=ragged), 128, 1000).encode(features) == b""
