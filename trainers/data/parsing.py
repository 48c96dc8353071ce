"""Parse records of pretraining data into arrays, as the manifest describes them.

A compiled extension parses the records (`_examples.c`). Without it, `parse_in_python` gives the same results.
This file imports neither Keras nor TensorFlow.
"""

from collections.abc import Callable, Sequence

import numpy as np

from beambert.pipelines.dataset import Dataset
from beambert.pipelines.io.tfrecord import features_of, floats, integers, lists_of

try:
    import beambert.trainers.data._examples as _examples
except ImportError:  # Installed on a machine without a C compiler.
    _examples = None  # type: ignore[assignment]

Parser = Callable[[Sequence[bytes]], dict[str, np.ndarray]]
# The name of a feature in the records as UTF-8, whether its values are floats, and the array for its values:
# int32 or float32 [B, length of a row].
_Output = tuple[bytes, bool, np.ndarray]
# A problem, the index of the record, the index of the feature, and its number of values.
_Invalid = tuple[int, int, int, int]
# Problems of a record, as in _examples.c.
_INVALID, _MISSING, _WRONG_TYPE, _WRONG_LENGTH = range(4)


class InvalidExampleError(ValueError):
    """A record is not an example as the manifest describes it.

    Attributes:
        record: index of the record in its batch.
        problem: what is wrong, for a message that names the record.
    """

    def __init__(self, record: int, problem: str) -> None:
        super().__init__(f"record {record} {problem}")
        self.record = record
        self.problem = problem


def feature_lengths(instances_per_row: int, row_length: int, predictions: int) -> dict[str, int]:
    """Return the number of values of each possible feature in a padded row, by feature name."""
    return {
        **dict.fromkeys(("input_ids", "input_mask", "segment_ids", "sequence_ids"), row_length),
        **dict.fromkeys(("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"), predictions),
        **dict.fromkeys(
            ("next_sentence_labels", "next_sentence_positions", "next_sentence_weights"), instances_per_row
        ),
    }


def parser(dataset: Dataset, row_length: int, predictions: int) -> Parser:
    """Return a parser for batches of records with the same sequence length.

    Args:
        dataset: the manifest, with the features, their names in the files, and whether padding is omitted.
        row_length: L, the sequence length.
        predictions: P, the maximum number of predictions per row.

    Returns:
        A function from B serialized records to the dataset's features by their internal names
        (`PretrainingDataOptions.names_of_features`), padded with zeros. Possible features are input_ids, input_mask,
        segment_ids and sequence_ids, int32 [B, L]; masked_lm_positions and masked_lm_ids, int32 [B, P];
        masked_lm_weights, float32 [B, P]; next_sentence_labels and next_sentence_positions, int32 [B, K]; and
        next_sentence_weights, float32 [B, K], with K instances per row. It raises InvalidExampleError.
    """
    lengths = feature_lengths(dataset.instances_per_row, row_length, predictions)
    parse_records = parse_in_python if _examples is None else _examples.parse

    def parse(records: Sequence[bytes]) -> dict[str, np.ndarray]:
        # 64-bit integers are slow on accelerators.
        features = {
            name: np.zeros((len(records), lengths[name]), np.float32 if name.endswith("_weights") else np.int32)
            for name in dataset.features
        }
        outputs = [
            (in_file.encode(), features[name].dtype == np.float32, features[name])
            for name, in_file in dataset.features.items()
        ]
        if (invalid := parse_records(records, outputs, dataset.ragged)) is not None:
            raise _error(invalid, outputs)
        return features

    return parse


def parse_in_python(records: Sequence[bytes], outputs: Sequence[_Output], ragged: bool) -> _Invalid | None:
    """Parse records into arrays of zeros.

    Args:
        records: B serialized examples.
        outputs: the features to parse; others are skipped.
        ragged: whether a record may have fewer values of a feature than the array, or none.

    Returns:
        None, or the first problem.
    """
    index_of = {name: index for index, (name, _, _) in enumerate(outputs)}
    for number, record in enumerate(records):
        # Values by feature; None for values of another type. Of features with equal names the last one counts.
        values: dict[int, np.ndarray | None] = {}
        try:
            for name, feature in features_of(record):
                if (index := index_of.get(name)) is None:
                    continue
                values.pop(index, None)
                own, others = _lists_by_type(feature, outputs[index][1])
                if own:
                    values[index] = floats(own) if outputs[index][1] else integers(own)
                elif others:
                    values[index] = None
        except ValueError:
            return _INVALID, number, 0, 0
        for index, (_, _, rows) in enumerate(outputs):
            if index not in values:
                if ragged:
                    continue
                return _MISSING, number, index, 0
            row = values[index]
            if row is None:
                return _WRONG_TYPE, number, index, 0
            length = rows.shape[1]
            if len(row) > length or (len(row) < length and not ragged):
                return _WRONG_LENGTH, number, index, len(row)
            rows[number, : len(row)] = row.astype(rows.dtype)
    return None


def _lists_by_type(feature: list[bytes], is_float: bool) -> tuple[list[bytes], list[bytes]]:
    """Return the lists of a feature with the expected type, and those of another type."""
    bytes_lists, float_lists, integer_lists = lists_of(feature)
    if is_float:
        return float_lists, bytes_lists + integer_lists
    return integer_lists, bytes_lists + float_lists


def _error(invalid: _Invalid, outputs: Sequence[_Output]) -> InvalidExampleError:
    problem, record, index, count = invalid
    name, is_float, rows = outputs[index]
    if problem == _INVALID:
        text = "is not a valid tf.train.Example"
    elif problem == _MISSING:
        text = f"has no feature {name.decode()}"
    elif problem == _WRONG_TYPE:
        text = f"has a feature {name.decode()} whose values are not {'floats' if is_float else 'integers'}"
    else:
        text = f"has {count} values of the feature {name.decode()}, not {rows.shape[1]}"
    return InvalidExampleError(record, text)
