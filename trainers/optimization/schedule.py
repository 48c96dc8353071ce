"""Plan the stages of training from `--schedule` and `--batch_ramp`: the data and the batch size of every step.

This file imports neither Keras nor TensorFlow.
"""

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from beambert.common.command_line.flags import in_quotes, whole_number
from beambert.trainers.errors import TrainingError

# A fraction of the steps in decimal notation or as a quotient. Fraction itself would expand any exponent.
_FRACTION = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?|[0-9]+/0*[1-9][0-9]*", re.ASCII)
_MOST_CHARACTERS = 60


class Stage(NamedTuple):
    """Consecutive steps with the same data directory and batch size.

    Attributes:
        data: index of the --data directory.
        batch_size: global batch size in examples.
        first_step: first step, from 0.
        end_step: first step after the stage.
        first_example: number of examples of the directory that earlier stages consumed.
    """

    data: int
    batch_size: int
    first_step: int
    end_step: int
    first_example: int


class _Phase(NamedTuple):
    """A phase of `--schedule`: a sequence length up to a step, with an optional batch size."""

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
    """Return the stages of training, in order; every step from 0 to num_train_steps belongs to exactly one stage.

    Args:
        num_train_steps: number of training steps.
        row_lengths: max_seq_length of each --data directory, in order.
        schedule: phases such as "128x0.9,512x0.1": the first 90 % of the steps read the directory of sequence length
            128, the others that of 512 (Devlin et al. 2018, appendix A.2). "512x0.1@64" also sets the batch size of a
            phase. None with one directory.
        train_batch_size: global batch size, unless schedule or batch_ramp sets another one.
        batch_ramp: batch sizes such as "32:1000,64:2000": 32 examples until step 1,000, 64 until step 2,000, then the
            batch size of the schedule or train_batch_size.

    Raises:
        TrainingError: a text is invalid; the fractions do not sum to 1; a length has no directory or several; the
            schedule does not read a directory; a phase is shorter than a step.
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
    """Return the distinct sequence lengths of a schedule, in order. Raises TrainingError for an invalid text."""
    return list(dict.fromkeys(_parse_phase(text)[0] for text in schedule.split(",")))


def stage_at(stages: Sequence[Stage], step: int) -> Stage:
    """Return the stage that contains a step."""
    return next(stage for stage in stages if stage.first_step <= step < stage.end_step)


def stages_before(stages: Sequence[Stage], step: int) -> list[Stage]:
    """Return the stages of the steps before `step`; the last one ends at `step`."""
    return [stage._replace(end_step=min(stage.end_step, step)) for stage in stages if stage.first_step < step]


def check_batch_sizes(stages: Sequence[Stage], replicas: int, gradient_accumulation_steps: int) -> None:
    """Check that every batch can be divided evenly.

    Raises:
        TrainingError: a batch size is not a multiple of replicas times micro-batches.
    """
    parts = replicas * gradient_accumulation_steps
    for size in dict.fromkeys(stage.batch_size for stage in stages):
        if size % parts:
            raise TrainingError(
                f"invalid batch size {size}: must be a multiple of {parts}, {replicas} replicas times "
                f"{gradient_accumulation_steps} gradient accumulation steps; change it, or "
                "--gradient_accumulation_steps"
            )


def _phases(num_train_steps: int, row_lengths: Sequence[int], schedule: str | None) -> list[_Phase]:
    if schedule is None:
        if len(row_lengths) != 1:
            raise TrainingError(
                f"--schedule is missing: --data has {len(row_lengths)} directories; give a phase for each sequence "
                "length, such as --schedule 128x0.9,512x0.1"
            )
        return [_Phase(row_lengths[0], None, num_train_steps)]
    phases = []
    total = Fraction(0)
    begin = 0
    for text in schedule.split(","):
        length, fraction, batch_size = _parse_phase(text)
        total += fraction
        end = min(round(total * num_train_steps), num_train_steps)
        if end <= begin:
            raise TrainingError(
                f"invalid --schedule {schedule}: phase {text} has less than one of the {num_train_steps} steps"
            )
        phases.append(_Phase(length, batch_size, end))
        begin = end
    if abs(total - 1) > Fraction(1, 10**6):
        raise TrainingError(f"invalid --schedule {schedule}: fractions must sum to 1, not {float(total):g}")
    # Rounded fractions would end a run of millions of steps a few steps early.
    phases[-1] = phases[-1]._replace(end_step=num_train_steps)
    _check_lengths(row_lengths, [phase.row_length for phase in phases])
    return phases


def _check_lengths(row_lengths: Sequence[int], scheduled: Sequence[int]) -> None:
    lengths = ", ".join(map(str, row_lengths))
    for length in scheduled:
        if row_lengths.count(length) != 1:
            raise TrainingError(
                f"invalid --schedule: sequence length {length} must have exactly one --data directory, not "
                f"{row_lengths.count(length)} (lengths in --data: {lengths})"
            )
    for length in row_lengths:
        if length not in scheduled:
            raise TrainingError(
                f"invalid --schedule: no phase for the --data directory of sequence length {length}; add a "
                "phase or omit "
                "the directory"
            )


def _parse_phase(text: str) -> tuple[int, Fraction, int | None]:
    """Return length, fraction and batch size of "LENGTHxFRACTION" or "LENGTHxFRACTION@BATCH_SIZE"."""
    rest, at, size = text.partition("@")
    length, _, fraction_text = rest.partition("x")
    fraction = (
        Fraction(fraction_text)
        if len(fraction_text) <= _MOST_CHARACTERS and _FRACTION.fullmatch(fraction_text)
        else Fraction(0)
    )
    batch_size = _count(size) if at else None
    if _count(length) is None or fraction <= 0 or (at and batch_size is None):
        raise TrainingError(
            f"invalid --schedule phase {in_quotes(text)}: must be LENGTHxFRACTION or LENGTHxFRACTION@BATCH_SIZE, such "
            "as 128x0.9 or 512x0.1@64"
        )
    return int(length), fraction, batch_size


def _ramp(batch_ramp: str | None) -> list[tuple[int, int]]:
    """Return the batch size and the end step of each entry of a ramp."""
    ramp: list[tuple[int, int]] = []
    for text in batch_ramp.split(",") if batch_ramp else []:
        size, _, end = text.partition(":")
        if _count(size) is None or _count(end) is None:
            raise TrainingError(f"invalid --batch_ramp entry {in_quotes(text)}: must be SIZE:STEP, such as 32:1000")
        if ramp and int(end) <= ramp[-1][1]:
            raise TrainingError(
                f"invalid --batch_ramp {batch_ramp}: steps count from the start of training and must increase, but "
                f"{end} follows {ramp[-1][1]}"
            )
        ramp.append((int(size), int(end)))
    return ramp


def _count(text: str) -> int | None:
    """Return a positive integer in plain digits, or None."""
    count = whole_number(text)
    return count if count is not None and 0 < count < 2**31 and text.isdigit() else None
