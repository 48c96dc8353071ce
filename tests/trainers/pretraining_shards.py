"""Writes small pretraining datasets for the tests."""

import hashlib
from pathlib import Path

import numpy as np
import tensorflow as tf

from pipelines.dataset import FILE_NAME, Dataset, Shard
from pipelines.pretraining_options import PretrainingDataOptions
from tokenizer.vocabulary import Vocabulary

LENGTH = 32
PREDICTIONS = 4
VOCABULARY = Vocabulary(
    ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"{a}{b}" for a in "bcdfg" for b in "aeiou"), "##s", "."),
    "vocab.txt",
)


def random_features(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """`count` examples of the seven features with some padding: [count, ...] as int64 and float32."""
    features = {
        "input_ids": generator.integers(5, len(VOCABULARY), (count, LENGTH)),
        "input_mask": np.ones((count, LENGTH), np.int64),
        "segment_ids": np.zeros((count, LENGTH), np.int64),
        "masked_lm_positions": np.zeros((count, PREDICTIONS), np.int64),
        "masked_lm_ids": np.zeros((count, PREDICTIONS), np.int64),
        "masked_lm_weights": np.zeros((count, PREDICTIONS), np.float32),
        "next_sentence_labels": generator.integers(0, 2, (count, 1)),
    }
    for row in range(count):
        real = int(generator.integers(LENGTH // 2, LENGTH + 1))
        features["segment_ids"][row, real // 2 : real] = 1
        for name in ("input_ids", "input_mask", "segment_ids"):
            features[name][row, real:] = 0
        masked = int(generator.integers(1, PREDICTIONS + 1))
        positions = np.sort(generator.choice(np.arange(1, real), masked, replace=False))
        features["masked_lm_positions"][row, :masked] = positions
        features["masked_lm_ids"][row, :masked] = features["input_ids"][row, positions]
        features["masked_lm_weights"][row, :masked] = 1
        features["input_ids"][row, positions] = VOCABULARY.mask_id
    return features


def write_dataset(
    directory: Path,
    examples: dict[tuple[str, int], list[int]] | None = None,
    max_seq_length: int = LENGTH,
    seed: int = 0,
) -> Dataset:
    """Writes shards, vocabulary and manifest.

    Args:
        directory: made if need be.
        examples: for (split, duplicate), the number of examples of each shard.
        max_seq_length: what the manifest says; the examples have LENGTH whatever it is.
        seed: of the random examples.
    """
    if examples is None:
        examples = {("train", 0): [10, 7], ("train", 1): [8, 9], ("validation", 0): [11], ("validation", 1): [3]}
    directory.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    shards = []
    for (split, duplicate), counts in examples.items():
        for number, count in enumerate(counts):
            name = f"{split}-{duplicate}-{number}.tfrecord"
            features = random_features(generator, count)
            with tf.io.TFRecordWriter(str(directory / name)) as writer:
                for row in range(count):
                    writer.write(serialized({key: values[row] for key, values in features.items()}))
            content = (directory / name).read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            shards.append(Shard(name, split, duplicate, count, len(content), digest, max_seq_length, PREDICTIONS))
    (directory / "vocab.txt").write_bytes(VOCABULARY.to_bytes())
    dataset = Dataset(
        max_seq_length=max_seq_length,
        max_predictions_per_seq=PREDICTIONS,
        instances_per_row=1,
        features=PretrainingDataOptions().names_of_features(),
        file_format="tfrecord",
        compression="none",
        ragged=False,
        vocab_size=len(VOCABULARY),
        vocab_sha256=VOCABULARY.sha256,
        do_lower_case=True,
        options={"seed": seed},
        counts={},
        shards=shards,
        versions={},
    )
    (directory / FILE_NAME).write_text(dataset.to_json(), encoding="utf-8")
    return dataset


def serialized(example: dict[str, np.ndarray]) -> bytes:
    """One tf.train.Example."""
    feature = {
        name: tf.train.Feature(float_list=tf.train.FloatList(value=value))
        if value.dtype == np.float32
        else tf.train.Feature(int64_list=tf.train.Int64List(value=value))
        for name, value in example.items()
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString(deterministic=True)
