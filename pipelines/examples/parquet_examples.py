"""Convert batches of pretraining examples to Arrow tables for Parquet: lists without padding, one row per example."""

from typing import Any

import numpy as np
import pyarrow

from beambert.pipelines.examples.example_encoder import mask_of
from beambert.pipelines.instances.options import PretrainingDataOptions

# Values are never null, which the schema declares.
_INT32 = pyarrow.field("element", pyarrow.int32(), nullable=False)
_UINT8 = pyarrow.field("element", pyarrow.uint8(), nullable=False)
_BYTES = ("segment_ids", "sequence_ids", "next_sentence_labels")


def schema(options: PretrainingDataOptions) -> pyarrow.Schema:
    """Return the schema: lists of int32, or of uint8 for small values, and a scalar label without packing."""
    fields = []
    for name, name_in_file in options.names_of_features().items():
        value = _UINT8 if name in _BYTES else _INT32
        is_list = options.pack or not name.startswith("next_sentence_")
        fields.append(pyarrow.field(name_in_file, pyarrow.list_(value) if is_list else value.type, nullable=False))
    return pyarrow.schema(fields)


def encodings(options: PretrainingDataOptions) -> dict[str, Any]:
    """Return the arguments of pyarrow.parquet.ParquetWriter for the column encodings.

    Ids and positions use byte stream split. After zstd they are 15 % smaller than with plain or dictionary encoding,
    and take half the time.
    """
    split = [f"{field.name}.list.element" for field in schema(options) if field.type == pyarrow.list_(_INT32)]
    return {"use_dictionary": False, "use_byte_stream_split": split}


def table(features: dict[str, np.ndarray], options: PretrainingDataOptions) -> pyarrow.Table:
    """Return a batch of n rows as a table.

    Args:
        features: as for `beambert.pipelines.examples.example_encoder.ExampleEncoder.encode`, including `mask_of` of
            every feature.
        options: options of the examples.
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
