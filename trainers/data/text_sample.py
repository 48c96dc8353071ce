"""Read a bounded sample of the training split, for baselines and measures of the text.

This file imports neither Keras nor TensorFlow.
"""

import gzip
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from beambert.pipelines.dataset import Dataset, Shard
from beambert.pipelines.errors import DatasetError
from beambert.pipelines.io.tfrecord import read_records
from beambert.trainers.buckets.dataset_copies import shard_path
from beambert.trainers.data.example_order import BASELINE_MASKS, stateless_hash
from beambert.trainers.data.parsing import InvalidExampleError
from beambert.trainers.data.pipeline import by_row_length, records_to_features
from beambert.trainers.metrics.ngram_baselines import MaskedText

# Size of the sample: token positions to count, and predictions to evaluate.
COUNTED_POSITIONS = 1 << 20
EVALUATED_PREDICTIONS = 1 << 13
# Shards to read, of which every other one is evaluated. Shards are partitions of the documents by a hash, and their
# rows are shuffled, so the first rows of any of them are a random sample.
_SHARDS = 8


class TextSample(NamedTuple):
    """Rows of the training split.

    Attributes:
        counted: rows to count n-grams in.
        evaluated: other rows, of other documents unless the data has a single shard.
        next_sentence_labels: int32 [n], of the counted rows; empty for data without sentence pairs.
        rows: number of rows in a copy of the data.
    """

    counted: MaskedText
    evaluated: MaskedText
    next_sentence_labels: np.ndarray
    rows: int


def read_sample(directory: Path, dataset: Dataset) -> TextSample | None:
    """Return a sample of the training split, which depends on the data only.

    It has rows of the first copy and of the sequence length with the most tokens.

    Args:
        directory: dataset directory.
        dataset: the manifest.

    Returns:
        The sample; None if there are too few readable rows. Training reports the errors of unreadable shards.
    """
    shards = [shard for shard in dataset.shards_of("train") if shard.examples]
    shards = [shard for shard in shards if shard.copy == shards[0].copy]
    if not shards:
        return None
    rows = sum(shard.examples for shard in shards)
    of_length = max(by_row_length(shards), key=lambda group: sum(s.examples * s.max_seq_length for s in group))
    chosen = [of_length[len(of_length) * index // _SHARDS] for index in range(_SHARDS)]
    chosen = list(dict.fromkeys(chosen))
    first = chosen[0]
    counted_rows = max(1, COUNTED_POSITIONS // first.max_seq_length)
    # Rows have fewer predictions than the maximum.
    evaluated_rows = max(1, 2 * EVALUATED_PREDICTIONS // first.max_predictions_per_seq)
    if len(chosen) > 1:
        counted = _interleaved(directory, dataset, chosen[::2], counted_rows)
        evaluated = _interleaved(directory, dataset, chosen[1::2], evaluated_rows)
    else:
        records = _read(directory, dataset, first, counted_rows + evaluated_rows)
        # Every fourth row is evaluated, so that both parts are of the same text.
        evaluated = records[3::4]
        counted = [record for index, record in enumerate(records) if index % 4 != 3]
    if not counted or not evaluated:
        return None
    (to_features,) = records_to_features(directory, dataset, [[first]], pad_rows=False)
    count = len(counted)
    keys = stateless_hash(0, BASELINE_MASKS, np.arange(count + len(evaluated)))
    try:
        features = to_features([*counted, *evaluated], keys)
    except InvalidExampleError:
        return None
    return TextSample(
        _masked_text(features, slice(count)),
        _masked_text(features, slice(count, None)),
        _next_sentence_labels(features, count),
        rows,
    )


def _interleaved(directory: Path, dataset: Dataset, shards: Sequence[Shard], rows: int) -> list[bytes]:
    """Return the first records of several shards, one of each in turn, so that any first part is of all of them."""
    parts = [_read(directory, dataset, shard, -(-rows // len(shards))) for shard in shards]
    return [record for group in itertools.zip_longest(*parts) for record in group if record is not None]


def _read(directory: Path, dataset: Dataset, shard: Shard, rows: int) -> list[bytes]:
    """Return the first records of a shard, up to the first one that cannot be read."""
    records: list[bytes] = []
    try:
        path = shard_path(directory, shard.name)
        with gzip.open(path) if dataset.compression == "gzip" else path.open("rb") as file:
            records.extend(content for _, content in itertools.islice(read_records(file, str(path)), rows))
    except (DatasetError, OSError):
        pass
    return records


def _masked_text(features: dict[str, np.ndarray], rows: slice) -> MaskedText:
    is_token = features["input_mask"] if "input_mask" in features else features["sequence_ids"]
    return MaskedText(
        features["input_ids"][rows],
        is_token[rows] > 0,
        features["masked_lm_positions"][rows],
        features["masked_lm_ids"][rows],
        features["masked_lm_weights"][rows] > 0,
    )


def _next_sentence_labels(features: dict[str, np.ndarray], count: int) -> np.ndarray:
    """Return the next-sentence labels of the first rows, without those of absent instances."""
    labels: Sequence[int] | np.ndarray = []
    if "next_sentence_labels" in features:
        labels = features["next_sentence_labels"][:count]
        if "next_sentence_weights" in features:
            labels = labels[features["next_sentence_weights"][:count] > 0]
    return np.asarray(labels, np.int32).ravel()
