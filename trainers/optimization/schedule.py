"""The data and the batch size of every step of a run: `--schedule` and `--batch_ramp` as a list of stages.

This file imports neither Keras nor TensorFlow.
"""

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from beambert_common.command_line.flags import shortened, whole_number
from trainers.errors import TrainingError

# A share in plain decimal notation or as a fraction. Fraction itself would compute 10 to the power of any exponent.
_SHARE = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?|[0-9]+/0*[1-9][0-9]*", re.ASCII)
_MOST_CHARACTERS = 60


class Stage(NamedTuple):
    """Consecutive steps of one data directory and one batch size.

    Attributes:
        data: which --data directory, by index.
        batch_size: examples a step, over all replicas and micro-steps.
        first_step: its first step, from 0.
        end_step: the first step after it.
        first_example: examples of that data directory that earlier stages consumed.
    """

    data: int
    batch_size: int
    first_step: int
    end_step: int
    first_example: int


class _Phase(NamedTuple):
    """A part of `--schedule`: a length of sequences up to a step, with a batch size of its own or None."""

    row_length: int
    batch_size: int | None
    end_step: int


def plan_stages(
    num_train_steps: int,
    row_lengths: Sequence[int],
    schedule: str | None,
    train_batch_size: int,
    batch_ramp: str | None,
) -> list[Stage]:
    """Plan a run. Every step from 0 to num_train_steps belongs to exactly one stage; stages follow in order.

    Args:
        num_train_steps: steps in all.
        row_lengths: max_seq_length of each --data directory, in their order.
        schedule: such as "128x0.9,512x0.1": the first nine tenths of the steps read the directory of rows of 128,
            the others that of 512 (Devlin et al. 2018, appendix A.2). "512x0.1@64" gives a phase its own batch size.
            None with one directory.
        train_batch_size: examples a step, where neither schedule nor batch_ramp says otherwise.
        batch_ramp: such as "32:1000,64:2000": 32 examples a step up to step 1,000, 64 up to step 2,000, and
            what the schedule or train_batch_size says after it. Each phase of the schedule takes what it covers.

    Raises:
        TrainingError: a text that is neither; shares that do not sum to 1; a length of no or of several directories; a
            directory that the schedule does not read; a phase too short for a step.
    """
    phases = _phases(num_train_steps, row_lengths, schedule)
    ramp = _ramp(batch_ramp)
    ends = {phase.end_step for phase in phases} | {end for _, end in ramp if end < num_train_steps}
    consumed = [0] * len(row_lengths)
    stages: list[Stage] = []
    step = 0
    for end_step in sorted(ends):
        phase = next(phase for phase in phases if step < phase.end_step)
        batch_size = next((size for size, end in ramp if step < end), phase.batch_size or train_batch_size)
        data = row_lengths.index(phase.row_length)
        last = stages[-1] if stages else None
        if last and (last.data, last.batch_size) == (data, batch_size):
            stages[-1] = last._replace(end_step=end_step)
        else:
            stages.append(Stage(data, batch_size, step, end_step, consumed[data]))
        consumed[data] += batch_size * (end_step - step)
        step = end_step
    return stages


def scheduled_lengths(schedule: str) -> list[int]:
    """Return the lengths of a schedule, each once, in its order. Raises TrainingError for an invalid text."""
    return list(dict.fromkeys(_parse_phase(text)[0] for text in schedule.split(",")))


def stage_at(stages: Sequence[Stage], step: int) -> Stage:
    """Return the stage of step `step`, which must be one of the run's."""
    return next(stage for stage in stages if stage.first_step <= step < stage.end_step)


def stages_before(stages: Sequence[Stage], step: int) -> list[Stage]:
    """Return the stages of the steps before `step`, the last one cut off at `step`."""
    return [stage._replace(end_step=min(stage.end_step, step)) for stage in stages if stage.first_step < step]


def check_batch_sizes(stages: Sequence[Stage], replicas: int, gradient_accumulation_steps: int) -> None:
    """Refuse a batch that cannot be divided equally.

    Raises:
        TrainingError: a batch size is no multiple of replicas times micro-steps.
    """
    parts = replicas * gradient_accumulation_steps
    for size in dict.fromkeys(stage.batch_size for stage in stages):
        if size % parts:
            raise TrainingError(
                f"a batch of {size} cannot be split evenly over {replicas} replicas times "
                f"{gradient_accumulation_steps} gradient accumulation steps; batch sizes must be multiples of {parts} "
                "(--train_batch_size, --schedule, --batch_ramp)"
            )


def _phases(num_train_steps: int, row_lengths: Sequence[int], schedule: str | None) -> list[_Phase]:
    if schedule is None:
        if len(row_lengths) != 1:
            raise TrainingError(
                f"--data names {len(row_lengths)} directories; --schedule must say when each is read, such as "
                "--schedule 128x0.9,512x0.1"
            )
        return [_Phase(row_lengths[0], None, num_train_steps)]
    phases = []
    total = Fraction(0)
    begin = 0
    for text in schedule.split(","):
        length, share, batch_size = _parse_phase(text)
        total += share
        end = min(round(total * num_train_steps), num_train_steps)
        if end <= begin:
            raise TrainingError(f"--schedule: {text} of {num_train_steps} updates is not one update")
        phases.append(_Phase(length, batch_size, end))
        begin = end
    if abs(total - 1) > Fraction(1, 10**6):
        raise TrainingError(f"--schedule {schedule}: the shares sum to {float(total):g}, not to 1")
    # Shares that sum to a little less than 1 would end a run of millions some steps early.
    phases[-1] = phases[-1]._replace(end_step=num_train_steps)
    _check_lengths(row_lengths, [phase.row_length for phase in phases])
    return phases


def _check_lengths(row_lengths: Sequence[int], scheduled: Sequence[int]) -> None:
    lengths = ", ".join(map(str, row_lengths))
    for length in scheduled:
        if row_lengths.count(length) != 1:
            raise TrainingError(
                f"--schedule reads sequences of {length}, but {row_lengths.count(length) or 'none'} of the --data "
                f"directories ({lengths}) holds them; give one directory for each length, or another --schedule"
            )
    for length in row_lengths:
        if length not in scheduled:
            raise TrainingError(
                f"--schedule never reads the --data directory of sequences of {length}; leave it out or schedule it"
            )


def _parse_phase(text: str) -> tuple[int, Fraction, int | None]:
    """Return length, share and batch size of "LENGTHxSHARE" or "LENGTHxSHARE@BATCH_SIZE"."""
    rest, at, size = text.partition("@")
    length, _, share_text = rest.partition("x")
    share = (
        Fraction(share_text) if len(share_text) <= _MOST_CHARACTERS and _SHARE.fullmatch(share_text) else Fraction(0)
    )
    batch_size = _count(size) if at else None
    if _count(length) is None or share <= 0 or (at and batch_size is None):
        raise TrainingError(
            f"--schedule: {shortened(text)} is not LENGTHxSHARE or LENGTHxSHARE@BATCH_SIZE, such as 128x0.9 or "
            "512x0.1@64"
        )
    return int(length), share, batch_size


def _ramp(batch_ramp: str | None) -> list[tuple[int, int]]:
    """Return batch size and first step after it, of each step of a ramp."""
    ramp: list[tuple[int, int]] = []
    for text in batch_ramp.split(",") if batch_ramp else []:
        size, _, end = text.partition(":")
        if _count(size) is None or _count(end) is None:
            raise TrainingError(f"--batch_ramp: {shortened(text)} is not BATCH_SIZE:UPDATES, such as 32:1000")
        if ramp and int(end) <= ramp[-1][1]:
            raise TrainingError(
                f"--batch_ramp {batch_ramp}: the updates are counted from the beginning of the run and must rise, "
                f"but {end} follows {ramp[-1][1]}"
            )
        ramp.append((int(size), int(end)))
    return ramp


def _count(text: str) -> int | None:
    """Return a whole number from 1 in plain digits, or None."""
    count = whole_number(text)
    return count if count is not None and 0 < count < 2**31 and text.isdigit() else None
