"""Write event files for TensorBoard: scalars and text.

An event file is a TFRecord file of tf.Event messages, which are encoded here without TensorFlow. `tf.summary` also
cannot mark that a run resumes from an earlier step, so that TensorBoard would show later steps twice.

Source: tensorflow/core/util/event.proto, tensorflow/core/framework/summary.proto and tensor.proto.
"""

import contextlib
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from beambert.common import file_errors
from beambert.common.wire_format import bytes_field, double_field, varint_field
from beambert.pipelines.io.tfrecord import framed
from beambert.trainers.errors import StorageError

# Values of enums: DataType, DataClass and SessionLog.SessionStatus.
_DT_FLOAT, _DT_STRING = 1, 7
_DATA_CLASS_SCALAR, _DATA_CLASS_TENSOR = 1, 2
_START = 1


class EventLog:
    """Write the events of a split; the first event creates the file.

    Args:
        directory: directory of the event files, such as `logs/train`; created if needed.
        first_step: step at which the run starts or resumes. TensorBoard discards events of later steps written by an
            earlier process.
    """

    def __init__(self, directory: Path, first_step: int) -> None:
        self.directory = directory
        self.first_step = first_step
        self.file: BinaryIO | None = None
        self.path: Path | None = None

    def write(self, step: int, scalars: Mapping[str, float], texts: Mapping[str, Sequence[str]] | None = None) -> None:
        """Write the values of a step, and flush.

        Args:
            step: number of completed steps.
            scalars: values by tag.
            texts: paragraphs by tag, written as Markdown code blocks, so that TensorBoard shows them verbatim.
        """
        values = [_scalar(tag, value) for tag, value in scalars.items()]
        values += [_text(tag, lines) for tag, lines in (texts or {}).items()]
        with file_errors.writing(self.path or self.directory):
            if self.file is None:
                self.file = self._begin()
            summary = b"".join(bytes_field(1, value) for value in values)
            self.file.write(_event(varint_field(2, step) + bytes_field(5, summary)))
            self.file.flush()

    def require_file(self) -> None:
        """Check that the event file still exists.

        Raises:
            StorageError: the file was removed.
        """
        if self.path is not None and not self.path.exists():
            raise StorageError(f"{self.path} was removed while the command ran; run the same command again")

    def close(self) -> None:
        """Close the file, if any."""
        if self.file is not None:
            # Errors of earlier writes were already reported.
            with contextlib.suppress(OSError):
                self.file.close()
            self.file = None

    def _begin(self) -> BinaryIO:
        self.directory.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads the files of a directory in the order of their names.
        name = f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}"
        self.path = self.directory / name
        file = self.path.open("wb")
        start = bytes_field(7, varint_field(1, _START))
        file.write(_event(bytes_field(3, b"brain.Event:2")) + _event(varint_field(2, self.first_step + 1) + start))
        return file


def _event(fields: bytes) -> bytes:
    """Return the record of an Event with the current time."""
    return framed(double_field(1, time.time()) + fields)


def _scalar(tag: str, value: float) -> bytes:
    """Encode a Summary.Value with a float32 scalar."""
    with np.errstate(over="ignore"):
        number = np.array(value, "<f4").tobytes()
    tensor = varint_field(1, _DT_FLOAT) + bytes_field(2, b"") + bytes_field(5, number)
    return bytes_field(1, tag.encode()) + bytes_field(8, tensor) + _metadata("scalars", _DATA_CLASS_SCALAR)


def _text(tag: str, lines: Sequence[str]) -> bytes:
    """Encode a Summary.Value with a Markdown code block, as a tensor with one string."""
    text = "\n".join(f"    {line}" for line in lines)
    shape = bytes_field(2, varint_field(1, 1))
    tensor = varint_field(1, _DT_STRING) + bytes_field(2, shape) + bytes_field(8, text.encode())
    return bytes_field(1, tag.encode()) + bytes_field(8, tensor) + _metadata("text", _DATA_CLASS_TENSOR)


def _metadata(plugin: str, data_class: int) -> bytes:
    """Encode the field of a SummaryMetadata in a Summary.Value."""
    return bytes_field(9, bytes_field(1, bytes_field(1, plugin.encode())) + varint_field(4, data_class))
