"""Write event files for TensorBoard: scalars and text.

`tf.summary` cannot mark that a run resumes from an earlier step, so that TensorBoard would show later steps twice. The
events are therefore written here.
"""

import contextlib
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import tensorflow as tf

from beambert_common import file_errors
from trainers.errors import StorageError

_Value = tf.compat.v1.Summary.Value
_Metadata = tf.compat.v1.SummaryMetadata


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
        self.writer: tf.io.TFRecordWriter | None = None
        self.path: Path | None = None

    def write(self, step: int, scalars: Mapping[str, float], texts: Mapping[str, Sequence[str]] | None = None) -> None:
        """Write the values of a step, and flush.

        Args:
            step: number of completed steps.
            scalars: values by tag.
            texts: paragraphs by tag, written as Markdown code blocks, so that TensorBoard shows them verbatim.
        """
        values = [
            _Value(
                tag=tag,
                tensor=tf.make_tensor_proto(value, tf.float32),
                metadata=_metadata("scalars", "DATA_CLASS_SCALAR"),
            )
            for tag, value in scalars.items()
        ]
        values += [
            _Value(
                tag=tag,
                tensor=tf.make_tensor_proto(["\n".join(f"    {line}" for line in lines)], tf.string),
                metadata=_metadata("text", "DATA_CLASS_TENSOR"),
            )
            for tag, lines in (texts or {}).items()
        ]
        with file_errors.writing(self.path or self.directory):
            if self.writer is None:
                self.writer = self._begin()
            self._add(self.writer, step=step, summary=tf.compat.v1.Summary(value=values))
            self.writer.flush()

    def require_file(self) -> None:
        """Check that the event file still exists.

        Raises:
            StorageError: the file was removed.
        """
        if self.path is not None and not self.path.exists():
            raise StorageError(f"{self.path} was removed while the command ran; run the same command again")

    def close(self) -> None:
        """Close the file, if any."""
        if self.writer is not None:
            # Errors of earlier writes were already reported.
            with contextlib.suppress(tf.errors.OpError):
                self.writer.close()
            self.writer = None

    def _begin(self) -> tf.io.TFRecordWriter:
        self.directory.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads the files of a directory in the order of their names.
        name = f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}"
        self.path = self.directory / name
        writer = tf.io.TFRecordWriter(str(self.path))
        self._add(writer, file_version="brain.Event:2")
        start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
        self._add(writer, step=self.first_step + 1, session_log=start)
        return writer

    @staticmethod
    def _add(writer: tf.io.TFRecordWriter, **fields: object) -> None:
        writer.write(tf.compat.v1.Event(wall_time=time.time(), **fields).SerializeToString())


def _metadata(plugin: str, data_class: str) -> object:
    content = _Metadata(plugin_data=_Metadata.PluginData(plugin_name=plugin))
    # The message has this enum, but TensorFlow exports no public name for it.
    content.data_class = content.DESCRIPTOR.fields_by_name["data_class"].enum_type.values_by_name[data_class].number
    return content
