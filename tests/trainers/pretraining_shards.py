"""Write small pretraining datasets for the tests, in every format, with the encoder of the protocol buffer library."""

import dataclasses
import hashlib
from pathlib import Path

import numpy as np

from beambert.bert_model.config import BertConfig
from beambert.pipelines.dataset import FILE_NAME, Dataset, Shard
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.tokenizer.vocabulary import Vocabulary

LENGTH = 32
PREDICTIONS = 4
OPTIONS = PretrainingDataOptions(max_seq_length=LENGTH, max_predictions_per_seq=PREDICTIONS)
VOCABULARY = Vocabulary(
    ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"{a}{b}" for a in "bcdfg" for b in "aeiou"), "##s", "."),
    "vocab.txt",
)
# The model of tests with many or long runs.
SMALLEST = BertConfig(
    vocab_size=len(VOCABULARY),
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=LENGTH,
)


def random_features(
    generator: np.random.Generator, count: int, length: int = LENGTH, predictions: int = PREDICTIONS, instances: int = 1
) -> dict[str, np.ndarray]:
    """Return `count` masked examples with some padding: [count, ...] as int64 and float32.

    They have the seven features of the released code. With `instances` above 1, they have all ten features, and each
    row has two instances.
    """
    features = {
        "input_ids": generator.integers(5, len(VOCABULARY), (count, length)),
        "input_mask": np.ones((count, length), np.int64),
        "segment_ids": np.zeros((count, length), np.int64),
        "masked_lm_positions": np.zeros((count, predictions), np.int64),
        "masked_lm_ids": np.zeros((count, predictions), np.int64),
        "masked_lm_weights": np.zeros((count, predictions), np.float32),
        "next_sentence_labels": np.zeros((count, instances), np.int64),
    }
    if instances > 1:
        features["sequence_ids"] = np.zeros((count, length), np.int64)
        features["next_sentence_positions"] = np.zeros((count, instances), np.int64)
        features["next_sentence_weights"] = np.zeros((count, instances), np.float32)
    for row in range(count):
        real = int(generator.integers(length // 2, length + 1))
        starts = [0] if instances == 1 else [0, real // 2]
        ends = [*starts[1:], real]
        for start, end in zip(starts, ends, strict=True):
            features["input_ids"][row, start] = VOCABULARY.cls_id
            features["input_ids"][row, [(start + end) // 2, end - 1]] = VOCABULARY.sep_id
            features["segment_ids"][row, (start + end) // 2 + 1 : end] = 1
        features["next_sentence_labels"][row, : len(starts)] = generator.integers(0, 2, len(starts))
        if instances > 1:
            features["sequence_ids"][row, :real] = np.arange(real) // (real // 2) + 1
            features["sequence_ids"][row, real - 1] = 2
            features["next_sentence_positions"][row, : len(starts)] = starts
            features["next_sentence_weights"][row, : len(starts)] = 1
        for name in ("input_ids", "input_mask", "segment_ids"):
            features[name][row, real:] = 0
        masked = int(generator.integers(1, predictions + 1))
        text = np.flatnonzero(features["input_ids"][row] > VOCABULARY.mask_id)
        positions = np.sort(generator.choice(text, masked, replace=False))
        features["masked_lm_positions"][row, :masked] = positions
        features["masked_lm_ids"][row, :masked] = features["input_ids"][row, positions]
        features["masked_lm_weights"][row, :masked] = 1
        features["input_ids"][row, positions] = VOCABULARY.mask_id
    return features


def unmasked_ids(features: dict[str, np.ndarray]) -> np.ndarray:
    """Return input_ids with the original tokens at the masked positions."""
    ids = features["input_ids"].copy()
    row, slot = np.nonzero(features["masked_lm_weights"])
    ids[row, features["masked_lm_positions"][row, slot]] = features["masked_lm_ids"][row, slot]
    return ids


def write_dataset(
    directory: Path,
    examples: dict[tuple[str, int], list[int]] | None = None,
    max_seq_length: int = LENGTH,
    seed: int = 0,
    options: PretrainingDataOptions = OPTIONS,
) -> Dataset:
    """Write shards, vocabulary and manifest.

    Args:
        directory: directory of the dataset; created if needed.
        examples: for each (split, copy), the number of examples of each shard, for every row length.
        max_seq_length: value in the manifest; the examples have the lengths of `options`, regardless of it.
        seed: seed of the random examples.
        options: the format.
    """
    import tensorflow as tf  # Programs that train with JAX import this file too.

    if examples is None:
        examples = {("train", 0): [10, 7], ("train", 1): [8, 9], ("validation", 0): [11], ("validation", 1): [3]}
    directory.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    compression = "GZIP" if options.compression == "gzip" else ""
    shards = []
    for (split, copy), counts in examples.items():
        for number, count in enumerate(counts):
            for length in options.row_lengths:
                of_length = f"-length-{length}" if options.length_bins else ""
                name = f"{split}-{copy}-{number}{of_length}.tfrecord" + (".gz" if compression else "")
                predictions = options.predictions_in(length)
                features = random_features(generator, count, length, predictions, options.instances_per_row)
                with tf.io.TFRecordWriter(str(directory / name), compression) as writer:
                    for row in range(count):
                        writer.write(record(features, row, options))
                content = (directory / name).read_bytes()
                digest = hashlib.sha256(content).hexdigest()
                said = length if options.length_bins else max_seq_length
                shards.append(Shard(name, split, copy, count, len(content), digest, said, predictions))
    (directory / "vocab.txt").write_bytes(VOCABULARY.to_bytes())
    dataset = Dataset(
        max_seq_length=max_seq_length,
        max_predictions_per_seq=PREDICTIONS,
        instances_per_row=options.instances_per_row,
        features=options.names_of_features(),
        file_format=options.format,
        compression=options.compression,
        ragged=options.ragged,
        vocab_size=len(VOCABULARY),
        vocab_sha256=VOCABULARY.sha256,
        do_lower_case=True,
        options={**dataclasses.asdict(options), "length_bins": list(options.length_bins), "seed": seed},
        counts={},
        shards=shards,
        versions={},
    )
    (directory / FILE_NAME).write_text(dataset.to_json(), encoding="utf-8")
    return dataset


def record(features: dict[str, np.ndarray], row: int, options: PretrainingDataOptions) -> bytes:
    """Return a serialized example with the features, their names and the padding that the options require."""
    ids = unmasked_ids(features) if options.masking == "dynamic" else features["input_ids"]
    instances = int(features["next_sentence_weights"][row].sum()) if options.pack else 1
    example = {}
    for name, in_file in options.names_of_features().items():
        values = (ids if name == "input_ids" else features[name])[row]
        if options.ragged:
            filled = {"masked": features["masked_lm_weights"][row].sum(), "next": instances}
            values = values[: int(filled.get(name.split("_")[0], features["input_mask"][row].sum()))]
        example[in_file] = values
    return serialized(example)


def serialized(example: dict[str, np.ndarray]) -> bytes:
    """Return a serialized tf.train.Example."""
    import tensorflow as tf

    feature = {
        name: tf.train.Feature(float_list=tf.train.FloatList(value=value))
        if value.dtype == np.float32
        else tf.train.Feature(int64_list=tf.train.Int64List(value=value))
        for name, value in example.items()
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString(deterministic=True)
