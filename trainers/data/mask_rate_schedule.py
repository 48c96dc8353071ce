"""Parse `--mask_rate_schedule`, and compute the masking rate of every training step, for dynamic masking.

This file imports neither Keras nor TensorFlow.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from beambert.common.command_line.flags import real_number, shortened, whole_number
from beambert.pipelines.dataset import Dataset
from beambert.trainers.errors import TrainingError


class MaskRatePhase(NamedTuple):
    """Consecutive steps whose masking rate is constant or changes linearly.

    Attributes:
        first_rate: rate at the first step, a fraction of the tokens.
        last_rate: rate that a linear change reaches at the end of the phase; equal to first_rate if constant.
        end_step: first step after the phase; None for the end of training.
    """

    first_rate: float
    last_rate: float
    end_step: int | None


def parse_mask_rates(schedule: str) -> list[MaskRatePhase]:
    """Return the phases of a schedule.

    Args:
        schedule: phases as RATE or RATE-RATE, all but the last with :STEP. "0.3:10000,0.15" masks 30 % of the tokens
            until step 10,000, then 15 %; "0.3-0.15" decreases linearly over all steps, as in Ankner et al. 2024
            ("Dynamic Masking Rate Schedules for MLM Pretraining").

    Raises:
        TrainingError: the text is invalid.
    """
    phases: list[MaskRatePhase] = []
    texts = schedule.split(",")
    for number, text in enumerate(texts, 1):
        rates, colon, end_text = text.partition(":")
        first, dash, last = rates.partition("-")
        first_rate = real_number(first)
        last_rate = real_number(last) if dash else first_rate
        end_step = whole_number(end_text) if colon else None
        valid_end = end_step is not None and 0 < end_step < 2**31 if colon else number == len(texts)
        if not (0.0 < first_rate < 1.0 and 0.0 < last_rate < 1.0 and valid_end):
            raise TrainingError(
                f"invalid --mask_rate_schedule phase {shortened(text)}: must be RATE:STEP or RATE-RATE:STEP, with "
                "rates above 0 and below 1, such as 0.3:10000 or 0.3-0.15:10000; the last phase may omit :STEP"
            )
        if phases and end_step is not None and end_step <= (phases[-1].end_step or 0):
            raise TrainingError(
                f"invalid --mask_rate_schedule {shortened(schedule)}: steps count from the start of training and must "
                f"increase, but {end_step} follows {phases[-1].end_step}"
            )
        phases.append(MaskRatePhase(first_rate, last_rate, end_step))
    return phases


def mask_rate_at(phases: Sequence[MaskRatePhase], step: int, num_train_steps: int) -> float | None:
    """Return the masking rate of a step; None after the last phase, for the rate of the data.

    Args:
        phases: result of `parse_mask_rates`.
        step: number of completed steps.
        num_train_steps: number of training steps, at which a last phase without a step ends.
    """
    begin = 0
    for phase in phases:
        end = num_train_steps if phase.end_step is None else phase.end_step
        if step < end:
            return phase.first_rate + (phase.last_rate - phase.first_rate) * (step - begin) / (end - begin)
        begin = end
    return None


def check_predictions(phases: Sequence[MaskRatePhase], directory: Path, dataset: Dataset) -> None:
    """Check that a dataset can be masked at every rate of a schedule.

    Args:
        phases: result of `parse_mask_rates`.
        directory: the dataset directory, for messages.
        dataset: its manifest.

    Raises:
        TrainingError: its masks are not dynamic, or its rows have no room for the predictions of the highest rate.
    """
    if "masked_lm_ids" in dataset.features:
        raise TrainingError(
            f"invalid --mask_rate_schedule: the records in {directory} already contain masks; build the data with "
            "--masking dynamic"
        )
    highest = max(rate for phase in phases for rate in (phase.first_rate, phase.last_rate))
    for shard in dataset.shards_of("train"):
        if shard.max_predictions_per_seq < round(highest * shard.max_seq_length):
            raise TrainingError(
                f"invalid --mask_rate_schedule: rate {highest:g} predicts up to "
                f"{round(highest * shard.max_seq_length)} of {shard.max_seq_length} tokens, but "
                f"max_predictions_per_seq of {directory} is {shard.max_predictions_per_seq}; build the data with "
                f"--max_predictions_per_seq {math.ceil(highest * dataset.max_seq_length)}"
            )
