"""Read and write `metrics.jsonl`, the metrics of a run with one JSON object per line.

    {"split": "train", "step": 200, "loss": 7.9, ..., "examples": 6400, "tokens": 819200, "seconds": 21.5, ...}
    {"split": "validation", "step": 200, "masked_lm_loss": 6.2, ..., "mlm_samples": ["..."]}

All fields except `TIMING_FIELDS` are deterministic: a run that was stopped and resumed at any step writes the same
lines as an uninterrupted run.
"""

import contextlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Required, TextIO, TypedDict

from beambert.common import file_errors
from beambert.common.local_files import write_atomic
from beambert.common.typed_json import Count, JsonError, NonEmpty, Number, decode, require
from beambert.trainers.errors import StorageError, TrainingError
from beambert.trainers.monitoring.goodput import GOODPUT, GoodputSeconds

FILE_NAME = "metrics.jsonl"
# Fields that depend on the machine.
TIMING_FIELDS = frozenset(
    {
        "seconds",
        "sequences_per_second",
        "tokens_per_second",
        "unpadded_tokens_per_second",
        "model_flops_utilization",
        "data_wait_fraction",
        "corrupt_records",
        GOODPUT,
        *GoodputSeconds._fields,
    }
)
_SAMPLES = "mlm_samples"


class _Line(TypedDict, total=False):
    """The fields of a line other than metrics."""

    split: Required[NonEmpty]
    step: Required[Count]
    mlm_samples: list[str]


def read(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines of a log, in order; empty if the file does not exist.

    An incomplete last line, as after a kill, is ignored.

    Raises:
        TrainingError: a line is not valid JSON with split, step and metrics; the message has the line number.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise TrainingError(
            f"{path} cannot be read ({error.strerror or error}); move it to another directory"
        ) from error
    # After a power failure a file may end in zeros.
    *lines, _ = content.rstrip(b"\0").split(b"\n")
    return [_parsed(path, number, line) for number, line in enumerate(lines, 1)]


class MetricsLog:
    """Append to a log, after truncating it to the step that a run resumes from.

    The first line or the first `sync` truncates it: until then the times in the later lines are recorded nowhere else.

    Args:
        path: path of the file; its directory must exist.
        step: lines of later steps and an incomplete last line are removed.
    """

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        self.step = step
        lines = read(path)
        self.has_later_lines = any(line["step"] > step for line in lines)
        _write_lines(path, lines)
        self._open(lines)

    def write(self, split: str, step: int, fields: Mapping[str, Any]) -> None:
        """Append a line, or replace the line of the same split and step; a line of an earlier step is inserted.

        Args:
            split: "train" or "validation".
            step: number of completed steps.
            fields: numbers and texts by name; non-finite numbers are written as null.
        """
        line = {"split": split, "step": step, **{name: _finite(value) for name, value in fields.items()}}
        if self.has_later_lines or (split, step) in self.written or any(step < other for _, other in self.written):
            lines = [other for other in self._kept() if _key(other) != (split, step)]
            later = next((index for index, other in enumerate(lines) if other["step"] > step), len(lines))
            self._replace([*lines[:later], line, *lines[later:]])
            self.has_later_lines = False
            return
        with file_errors.writing(self.path):
            self.file.write(_text(line))
            self.file.flush()
        self.written.add((split, step))

    def update_last(self, fields: Mapping[str, Any]) -> None:
        """Replace fields of the last line, if there is a line."""
        lines = read(self.path)
        if lines:
            self._replace([*lines[:-1], {**lines[-1], **fields}])

    def sync(self) -> None:
        """Flush the lines to disk, so that they are durable before the checkpoint is.

        Raises:
            StorageError: the file or its directory was removed, moved or replaced.
        """
        with file_errors.writing(self.path):
            os.fsync(self.file.fileno())
        self._require_file()
        if self.has_later_lines:
            self._replace(self._kept())
            self.has_later_lines = False

    def close(self) -> None:
        """Close the file. Errors of earlier writes were already reported."""
        with contextlib.suppress(OSError):
            self.file.close()

    def _require_file(self) -> None:
        """Raise StorageError if the file was removed, moved or replaced: writes would go to another file."""
        try:
            is_there = os.path.samestat(os.fstat(self.file.fileno()), self.path.stat())
        except OSError:
            is_there = False
        if not is_there:
            vanished = self.path if self.path.parent.is_dir() else self.path.parent
            raise StorageError(
                f"{vanished} was removed, moved or replaced while the command ran; run the same command again"
            )

    def _kept(self) -> list[dict[str, Any]]:
        """Return the lines without those that truncation removes."""
        lines = read(self.path)
        return [line for line in lines if line["step"] <= self.step] if self.has_later_lines else lines

    def _replace(self, lines: list[dict[str, Any]]) -> None:
        """Replace the lines of the file atomically."""
        self._require_file()
        _write_lines(self.path, lines)
        self.close()
        self._open(lines)

    def _open(self, lines: list[dict[str, Any]]) -> None:
        """Open the file, which has these lines, for appending."""
        self.written = set(map(_key, lines))
        self.file: TextIO = self.path.open("a", encoding="utf-8")


def _write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    """Write a log atomically, unless the file has these lines already."""
    content = "".join(map(_text, lines)).encode()
    if not path.exists() or path.read_bytes() != content:
        write_atomic(path, content)


def _key(line: Mapping[str, Any]) -> tuple[str, int]:
    return line["split"], line["step"]


def _text(line: Mapping[str, Any]) -> str:
    return json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n"


def _parsed(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        content = decode(line, dict[str, Any])
        require(content, _Line)
        metrics = {name: value for name, value in content.items() if name not in ("split", "step", _SAMPLES)}
        require(metrics, dict[str, Number | None])
    except JsonError as error:
        raise TrainingError(f"{path}, line {number}: {error}; remove the line, or restore the file") from error
    return content


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
