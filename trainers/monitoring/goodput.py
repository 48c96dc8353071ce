"""Account for the wall time of a run: training steps whose results were kept (goodput), and all other time by cause."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from beambert.common.formatting import format_duration


class GoodputSeconds(NamedTuple):
    """Wall time of all processes of a run in seconds, by cause.

    Attributes:
        step_seconds: training steps whose results were kept.
        start_seconds: from the start of the command to its first training step.
        compile_seconds: compilation of the training step.
        input_seconds: waiting for batches.
        checkpoint_seconds: saving checkpoints.
        evaluation_seconds: evaluations, with their compilation.
        lost_seconds: training steps that no checkpoint contained when a process ended, and that were computed again.
    """

    step_seconds: float = 0.0
    start_seconds: float = 0.0
    compile_seconds: float = 0.0
    input_seconds: float = 0.0
    checkpoint_seconds: float = 0.0
    evaluation_seconds: float = 0.0
    lost_seconds: float = 0.0

    @property
    def total(self) -> float:
        """Return the wall time of all causes."""
        return math.fsum(self)

    @property
    def shares(self) -> dict[str, float]:
        """Return the fraction of the wall time by field; empty without wall time."""
        total = self.total
        return {name: seconds / total for name, seconds in self._asdict().items()} if total > 0 else {}

    @property
    def goodput(self) -> float:
        """Return the fraction of the wall time in training steps whose results were kept; 0 without wall time."""
        return self.shares.get("step_seconds", 0.0)

    def plus(self, **seconds: float) -> "GoodputSeconds":
        """Return the sum with the seconds of some causes."""
        return self._replace(**{name: getattr(self, name) + added for name, added in seconds.items()})


# Field of a line of metrics.jsonl with `GoodputSeconds.goodput`.
GOODPUT = "goodput"
LABELS = {
    "step_seconds": "training steps",
    "start_seconds": "start",
    "compile_seconds": "compilation",
    "input_seconds": "waiting for data",
    "checkpoint_seconds": "checkpoints",
    "evaluation_seconds": "evaluation",
    "lost_seconds": "lost work",
}


def recorded_seconds(fields: Mapping[str, Any]) -> GoodputSeconds:
    """Return the seconds in a checkpoint's state or a line of metrics.jsonl, 0 where they are missing."""
    return GoodputSeconds(*(float(fields.get(name) or 0.0) for name in GoodputSeconds._fields))


def latest_seconds(lines: Iterable[Mapping[str, Any]]) -> GoodputSeconds:
    """Return the seconds in the line of metrics.jsonl that was written last; they only increase."""
    return max(map(recorded_seconds, lines), key=lambda seconds: seconds.total, default=GoodputSeconds())


def resumed_seconds(state: Mapping[str, Any], lines: Iterable[Mapping[str, Any]]) -> GoodputSeconds:
    """Return the seconds of the earlier processes of a run that resumes from a checkpoint.

    The log of a process that was killed has later seconds than the checkpoint. Its steps since then are lost work.

    Args:
        state: state of the checkpoint; {} if the run starts again without one.
        lines: all lines of metrics.jsonl, including those after the step of the checkpoint.
    """
    saved, logged = recorded_seconds(state), latest_seconds(lines)
    if logged.total <= saved.total:
        return saved
    lost = max(logged.step_seconds - saved.step_seconds, 0.0)
    return logged.plus(step_seconds=-lost, lost_seconds=lost)


class GoodputTimer:
    """Count every second of a process to one cause.

    Args:
        seconds: seconds of earlier processes.
        clock: monotonic clock in seconds.
        start: time of the clock at which the command started; None starts at the first `switch`.
    """

    def __init__(self, seconds: GoodputSeconds, clock: Callable[[], float], start: float | None = None) -> None:
        self.seconds = seconds
        self.clock = clock
        self.since = start
        self.cause = "start_seconds"

    def count(self, *, waiting: float = 0.0, compiling: float = 0.0) -> None:
        """Count the time since the last call to the current cause.

        Args:
            waiting: part of this time that waited for batches, in seconds.
            compiling: part of this time that compiled the training step, in seconds.
        """
        if self.since is None:
            return
        now = self.clock()
        elapsed, self.since = now - self.since, now
        waiting = min(waiting, elapsed)
        compiling = min(compiling, elapsed - waiting)
        self.seconds = self.seconds.plus(input_seconds=waiting, compile_seconds=compiling)
        self.seconds = self.seconds.plus(**{self.cause: elapsed - waiting - compiling})

    def switch(self, cause: str) -> None:
        """Count the time since the last call to the current cause, and the time from now on to another one.

        Args:
            cause: a field of `GoodputSeconds`.
        """
        self.count()
        if self.since is None:
            self.since = self.clock()
        self.cause = cause

    def fields(self) -> dict[str, float]:
        """Return the fields of a line of metrics.jsonl; empty if no time was counted."""
        if not self.seconds.total > 0:
            return {}
        rounded = {name: round(seconds, 3) for name, seconds in self.seconds._asdict().items()}
        return {GOODPUT: round(self.seconds.goodput, 4), **rounded}


def summary(seconds: GoodputSeconds) -> str:
    """Return the goodput and the shares of the other causes, largest first, without those below half a percent."""
    shares = sorted(seconds.shares.items(), key=lambda item: -item[1])
    others = [f"{LABELS[name]} {share:.0%}" for name, share in shares if name != "step_seconds" and share >= 0.005]
    return f"{seconds.goodput:.0%} of {format_duration(seconds.total)}" + (f"; {', '.join(others)}" if others else "")
