"""Writers of `beambert features`: JSON lines as the released extract_features.py writes them, Parquet and npz."""

import contextlib
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from beambert.common import file_errors
from beambert.common.signals import ended_by_signals
from beambert.pipelines.io.output_file import OutputFile
from beambert.trainers.errors import TrainingError

FORMATS = ("jsonl", "parquet", "npz")


class Layout(NamedTuple):
    """The properties that all features of a file share.

    Attributes:
        layers: indices of the layers, as in --layers.
        hidden_size: hidden size, H.
        vocabulary: its tokens, by id.
        pooled: whether there is one vector per text instead of one per token.
    """

    layers: Sequence[int]
    hidden_size: int
    vocabulary: Sequence[str]
    pooled: bool


class Features(NamedTuple):
    """The features of N texts.

    Attributes:
        first: index of the first text.
        input_ids: int32 [T], token ids of all texts, including [CLS] and [SEP].
        token_splits: int64 [N + 1]; text i has the tokens `token_splits[i]:token_splits[i + 1]`.
        row_splits: int64 [N + 1], the same for the rows of `values`: one row per token, or per text if pooled.
        values: for each layer float32 [rows, H].
    """

    first: int
    input_ids: np.ndarray
    token_splits: np.ndarray
    row_splits: np.ndarray
    values: list[np.ndarray]


def format_of(path: Path) -> str:
    """Return the format of a file by its suffix.

    Raises:
        TrainingError: the suffix is not in `FORMATS`.
    """
    suffix = path.suffix.removeprefix(".")
    if suffix not in FORMATS:
        raise TrainingError(f"unknown suffix of --output_file {path}: use one of {', '.join(FORMATS)}, or set --format")
    return suffix


class FeatureWriter:
    """Context manager that writes features of texts, starting with index 0.

    The file appears, complete, when the block ends without an error.

    Args:
        path: path of the file.
        kind: one of `FORMATS`.
        layout: properties of the features.
        overwrite: whether to replace an existing file.

    Attributes:
        count: number of texts written so far.
        tokens: number of tokens written so far.

    Raises:
        OutputFileError, TrainingError: the file cannot be written.
    """

    def __init__(self, path: Path, kind: str, layout: Layout, *, overwrite: bool = False) -> None:
        self.path = path
        self.count = self.tokens = 0
        self._signals = contextlib.ExitStack()
        self._output = OutputFile("--output_file", path, overwrite=overwrite)
        if self._output.is_stream and kind != "jsonl":
            raise TrainingError(f"--output_file {path} is a stream, which --format {kind} does not support: use a file")
        try:
            self._writer = _WRITERS[kind](self._output.path, layout)
        except OSError as error:
            self._output.discard()
            raise TrainingError(file_errors.write_line(f"--output_file {path}", error)) from error

    def write(self, features: Features) -> None:
        """Write the features of texts.

        Raises:
            TrainingError: the file cannot be written.
        """
        try:
            self._writer.write(features)
        except OSError as error:
            raise TrainingError(file_errors.write_line(f"--output_file {self.path}", error)) from error
        self.count += len(features.token_splits) - 1
        self.tokens += len(features.input_ids)

    def __enter__(self) -> "FeatureWriter":
        self._signals.enter_context(ended_by_signals())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._signals:
            self._end(kind)

    def _end(self, kind: type[BaseException] | None) -> None:
        """Rename the temporary file to its final name, or remove it after an exception."""
        if kind is not None:
            # A failed write fails again when the file is closed.
            with contextlib.suppress(OSError):
                self._writer.abandon()
            self._output.discard()
            return
        try:
            self._writer.finish()
        except OSError as problem:
            with contextlib.suppress(OSError):
                self._writer.abandon()
            self._output.discard()
            if isinstance(problem, FileNotFoundError):
                raise TrainingError(
                    f"--output_file {self.path}: {problem.filename} was removed while the command ran: run the same "
                    "command again"
                ) from problem
            raise TrainingError(file_errors.write_line(f"--output_file {self.path}", problem)) from problem
        self._output.commit()


class _JsonLines:
    """JSON lines `{"linex_index": 0, "features": [{"token": "[CLS]", "layers": [{"index": -1, "values": [...]}]}]}`.

    Pooled: `{"linex_index": 0, "layers": [{"index": -1, "values": [...]}]}`.
    """

    def __init__(self, path: Path, layout: Layout) -> None:
        self.layout = layout
        self.file = path.open("ab")

    def write(self, features: Features) -> None:
        import orjson

        option = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
        for text in range(len(features.token_splits) - 1):
            start, end = features.row_splits[text : text + 2]
            rounded = [rounded_to_6_decimals(layer[start:end]) for layer in features.values]  # [rows, H] each
            rows = [
                [
                    {"index": index, "values": layer[row]}
                    for index, layer in zip(self.layout.layers, rounded, strict=True)
                ]
                for row in range(end - start)
            ]
            line: dict[str, Any] = {"linex_index": features.first + text}
            if self.layout.pooled:
                line["layers"] = rows[0]
            else:
                tokens = features.input_ids[features.token_splits[text] : features.token_splits[text + 1]]
                line["features"] = [
                    {"token": self.layout.vocabulary[token], "layers": row}
                    for token, row in zip(tokens, rows, strict=True)
                ]
            self.file.write(orjson.dumps(line, option=option))

    def finish(self) -> None:
        self.file.close()

    abandon = finish


class _Parquet:
    """Parquet with one row per text: `linex_index`, `tokens`, and for each layer `layer_-1` a list of vectors.

    Pooled: one vector for each layer.
    """

    def __init__(self, path: Path, layout: Layout) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.layout = layout
        self.vocabulary = pa.array(layout.vocabulary)
        vector = pa.list_(pa.float32(), layout.hidden_size)
        column = vector if layout.pooled else pa.list_(vector)
        fields = [("linex_index", pa.int64()), ("tokens", pa.list_(pa.string()))]
        self.schema = pa.schema([*fields, *((f"layer_{layer}", column) for layer in layout.layers)])
        # Floats hardly compress.
        self.writer = pq.ParquetWriter(path, self.schema, compression="none", use_dictionary=["tokens.list.element"])

    def write(self, features: Features) -> None:
        import pyarrow as pa

        count = len(features.token_splits) - 1
        tokens = pa.ListArray.from_arrays(
            pa.array(features.token_splits, pa.int32()), self.vocabulary.take(pa.array(features.input_ids))
        )
        columns = [pa.array(range(features.first, features.first + count), pa.int64()), tokens]
        for layer in features.values:
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(layer.ravel()), self.layout.hidden_size)
            splits = pa.array(features.row_splits, pa.int32())
            columns.append(vectors if self.layout.pooled else pa.ListArray.from_arrays(splits, vectors))
        self.writer.write_table(pa.Table.from_arrays(columns, schema=self.schema))

    def finish(self) -> None:
        self.writer.close()

    abandon = finish


class _Npz:
    """Arrays for `numpy.load` with the concatenated texts.

    For each layer `layer_-1` float32 [T, H], or [N, H] if pooled; `input_ids` int32 [T]; `row_splits` int64 [N + 1], so
    that text i has the rows `row_splits[i]:row_splits[i + 1]` of input_ids; `vocabulary`, the token of each id.
    """

    def __init__(self, path: Path, layout: Layout) -> None:
        self.path, self.layout = path, layout
        path.touch()
        # The number of rows is unknown until the end, so rows are written to files without a header.
        self.folder = Path(tempfile.mkdtemp(prefix=f"{path.name}.", dir=path.parent))
        self.shapes: dict[str, tuple[type, tuple[int, ...]]] = {
            **{f"layer_{layer}": (np.float32, (layout.hidden_size,)) for layer in layout.layers},
            "input_ids": (np.int32, ()),
            "row_splits": (np.int64, ()),
        }
        self.rows = dict.fromkeys(self.shapes, 0)
        self.files: dict[str, BinaryIO] = {}
        try:
            for name in self.shapes:
                self.files[name] = (self.folder / name).open("wb")
            self._add("row_splits", np.zeros(1, np.int64))
        except BaseException:
            self.abandon()
            raise

    def write(self, features: Features) -> None:
        layers = [name for name in self.shapes if name.startswith("layer_")]
        for name, layer in zip(layers, features.values, strict=True):
            self._add(name, layer)
        self._add("row_splits", features.token_splits[1:] + self.rows["input_ids"])
        self._add("input_ids", features.input_ids)

    def _add(self, name: str, values: np.ndarray) -> None:
        self.files[name].write(np.ascontiguousarray(values, self.shapes[name][0]).data)
        self.rows[name] += len(values)

    def finish(self) -> None:
        for file in self.files.values():
            file.close()
        self._assemble()
        shutil.rmtree(self.folder)

    def abandon(self) -> None:
        for file in self.files.values():
            with contextlib.suppress(OSError):
                file.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _assemble(self) -> None:
        with zipfile.ZipFile(self.path, "w", zipfile.ZIP_STORED) as archive:
            for name, (dtype, shape) in self.shapes.items():
                header = {
                    "descr": np.lib.format.dtype_to_descr(np.dtype(dtype)),
                    "fortran_order": False,
                    "shape": (self.rows[name], *shape),
                }
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    np.lib.format.write_array_header_1_0(member, header)
                    with (self.folder / name).open("rb") as rows:
                        shutil.copyfileobj(rows, member, 2**20)
            with archive.open(zipfile.ZipInfo("vocabulary.npy"), "w") as member:
                np.lib.format.write_array(member, np.array(self.layout.vocabulary), allow_pickle=False)


def rounded_to_6_decimals(values: np.ndarray) -> np.ndarray:
    """Return Python's `round(x, 6)` of every float32, as float64.

    A float32 has 24 significant bits and 1,000,000 has 14, so their product is exact in the 53 bits of a float64.
    Therefore its nearest integer is correct below 2**53, and `round` returns the float64 nearest to that integer
    divided by 1,000,000.

    Args:
        values: float32 of any shape, less than 9e9.

    Returns:
        float64 of the same shape.
    """
    return np.rint(values.astype(np.float64) * 1e6) / 1e6


_WRITERS: dict[str, Any] = {"jsonl": _JsonLines, "parquet": _Parquet, "npz": _Npz}
