"""`metrics.jsonl`: what was measured of a run, one JSON object a line.

    {"split": "train", "step": 200, "loss": 7.9, ..., "examples": 6400, "tokens": 819200, "seconds": 21.5, ...}
    {"split": "validation", "step": 200, "masked_lm_loss": 6.2, ..., "filled_masks": ["..."]}

All fields but `TIMING_FIELDS` are a function of the run alone: a run that was stopped and resumed, wherever that was,
leaves the lines of one that never stopped.
"""

import contextlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import beambert_file_errors as file_errors
from trainers.errors import StorageError
from trainers.whole_files import write_whole

FILE_NAME = "metrics.jsonl"
# What the machine did, not the run.
TIMING_FIELDS = frozenset(
    {
        "seconds",
        "sequences_per_second",
        "tokens_per_second",
        "model_flops_utilization",
        "data_wait_share",
        "corrupt_records",
    }
)


def read(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a log, in its order; none if there is no file.

    A line that a kill tore, or that is no JSON object with a step and a split, is left out.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    lines = (_parsed(line) for line in content.splitlines(keepends=True))
    return [line for line in lines if line is not None]


class MetricsLog:
    """Appends to a log, after cutting it back to the step that a run goes on from.

    Args:
        path: of the file; its directory exists.
        step: lines of later steps are removed, and with them what a kill left torn.
    """

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        kept = [line for line in read(path) if line["step"] <= step]
        self._rewrite(kept)

    def write(self, split: str, step: int, fields: Mapping[str, Any]) -> None:
        """Adds a line, in place of the one that the same split already has for this step.

        Args:
            split: "train" or "validation".
            step: updates made.
            fields: numbers and texts; a number that is not finite is written as null.
        """
        line = {"split": split, "step": step, **{name: _finite(value) for name, value in fields.items()}}
        if (split, step) in self.written:
            others = [other for other in read(self.path) if (other["split"], other["step"]) != (split, step)]
            self.file.close()
            self._rewrite(others)
        with file_errors.writing(self.path):
            self.file.write(_text(line))
            self.file.flush()
        self.written.add((split, step))

    def sync(self) -> None:
        """Waits until the lines lie on the disk, so that a checkpoint never outlives them.

        Raises:
            StorageError: the file, or the directory that it is in, was removed, moved or replaced.
        """
        with file_errors.writing(self.path):
            os.fsync(self.file.fileno())
        # What is written after that would go into a file without a name, or beside what was moved away.
        try:
            is_there = os.path.samestat(os.fstat(self.file.fileno()), self.path.stat())
        except OSError:
            is_there = False
        if not is_there:
            vanished = self.path if self.path.parent.is_dir() else self.path.parent
            raise StorageError(
                f"{vanished} was removed, moved or replaced while the command ran; run the same command again"
            )

    def close(self) -> None:
        """Closes the file. What could not be written to it was reported when it was."""
        with contextlib.suppress(OSError):
            self.file.close()

    def _rewrite(self, lines: list[dict[str, Any]]) -> None:
        """Makes the file hold these lines, at once or not at all, and opens it to go on."""
        content = "".join(map(_text, lines)).encode()
        if not self.path.exists() or self.path.read_bytes() != content:
            write_whole(self.path, content)
        self.written = {(line["split"], line["step"]) for line in lines}
        self.file: TextIO = self.path.open("a", encoding="utf-8")


def _text(line: Mapping[str, Any]) -> str:
    return json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n"


def _parsed(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None
    try:
        content = json.loads(line)
    except ValueError:
        return None
    if not isinstance(content, dict) or not isinstance(content.get("split"), str):
        return None
    return content if type(content.get("step")) is int else None


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
