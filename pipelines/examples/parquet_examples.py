"""Batches of pretraining examples as Arrow tables, for Parquet: lists without padding, one row an example."""

from typing import Any

import numpy as np
import pyarrow

from pipelines.examples.example_encoder import mask_of
from pipelines.instances.options import PretrainingDataOptions

# Nothing is ever missing; readers are told so.
_INT32 = pyarrow.field("element", pyarrow.int32(), nullable=False)
_UINT8 = pyarrow.field("element", pyarrow.uint8(), nullable=False)
_BYTES = ("segment_ids", "sequence_ids", "next_sentence_labels")


def schema(options: PretrainingDataOptions) -> pyarrow.Schema:
    """The columns: lists of int32, of uint8 where values are small; of rows that are not packed one label, no list."""
    fields = []
    for name, name_in_file in options.names_of_features().items():
        value = _UINT8 if name in _BYTES else _INT32
        is_list = options.pack or not name.startswith("next_sentence_")
        fields.append(pyarrow.field(name_in_file, pyarrow.list_(value) if is_list else value.type, nullable=False))
    return pyarrow.schema(fields)


def encodings(options: PretrainingDataOptions) -> dict[str, Any]:
    """How pyarrow.parquet.ParquetWriter is to write the columns.

    The two low bytes of ids and positions apart from the two high ones are 15 % smaller after zstd, and take half the
    time, of plain values or of a dictionary's.
    """
    split = [f"{field.name}.list.element" for field in schema(options) if field.type == pyarrow.list_(_INT32)]
    return {"use_dictionary": False, "use_byte_stream_split": split}


def table(features: dict[str, np.ndarray], options: PretrainingDataOptions) -> pyarrow.Table:
    """A batch of n rows.

    Args:
        features: as for `pipelines.examples.example_encoder.ExampleEncoder.encode`, with `mask_of` every feature.
        options: as for `schema`.
    """
    columns = []
    types = schema(options)
    for name, name_in_file in options.names_of_features().items():
        of_type = types.field(name_in_file).type
        if not pyarrow.types.is_list(of_type):
            columns.append(pyarrow.array(features[name][:, 0], of_type))
            continue
        content = features[mask_of(name)] != 0  # [n, L], [n, P] or [n, K]
        offsets = np.concatenate([[0], np.cumsum(content.sum(axis=1))]).astype(np.int32)
        values = pyarrow.array(features[name][content], of_type.value_type)
        columns.append(pyarrow.ListArray.from_arrays(offsets, values, type=of_type))
    return pyarrow.Table.from_arrays(columns, schema=types)
