"""Draw masks while reading data built with `--masking dynamic`, by the rules of `pipelines.instances.masking`.

`--mask_rate_schedule` changes the masking rate by training step. This file imports neither Keras nor TensorFlow.
"""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from beambert.common.command_line.flags import in_quotes, real_number, whole_number
from beambert.pipelines.dataset import VOCAB_FILE_NAME, Dataset
from beambert.pipelines.errors import DatasetError
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.trainers.data.example_order import extend_hash
from beambert.trainers.errors import TrainingError

# Purposes of the random numbers at a position.
_CHOICE, _ACTION, _REPLACEMENT = range(3)
# Positions hashed at a time, so that the intermediate arrays stay in the cache.
_CHUNK = 1 << 14


@dataclasses.dataclass(frozen=True)
class DynamicMasking:
    """The masking options and the vocabulary of a dataset.

    Attributes:
        masked_lm_prob: fraction of tokens to predict.
        mask_rate, random_rate: fractions of these that become [MASK] or a random token; the others are unchanged.
        mask_id, cls_id, sep_id: ids of [MASK], [CLS] and [SEP].
        replacement_ids: int32 [k], candidates for random tokens: all except special and [unused] tokens.
    """

    masked_lm_prob: float
    mask_rate: float
    random_rate: float
    mask_id: int
    cls_id: int
    sep_id: int
    replacement_ids: np.ndarray

    @classmethod
    def from_dataset(cls, directory: Path, dataset: Dataset) -> "DynamicMasking | None":
        """Return the dynamic masking of a dataset; None if its records already contain masks.

        Raises:
            DatasetError: the manifest does not record the masking options.
            VocabularyError: vocab.txt is missing, or not a valid vocabulary.
        """
        if "masked_lm_ids" in dataset.features:
            return None
        try:
            rates = {name: float(dataset.options[name]) for name in ("masked_lm_prob", "mask_rate", "random_rate")}
        except (KeyError, TypeError, ValueError) as error:
            raise DatasetError(
                f"{directory} has examples without masks, but dataset.json does not record the masking options "
                f"({error!r}); build the data again"
            ) from error
        vocab = Vocabulary.load(directory / VOCAB_FILE_NAME)
        return cls(
            **rates,
            mask_id=vocab.mask_id,
            cls_id=vocab.cls_id,
            sep_id=vocab.sep_id,
            replacement_ids=vocab.text_ids(),
        )


def mask_batch(
    features: dict[str, np.ndarray], masking: DynamicMasking, predictions: int, keys: np.ndarray
) -> dict[str, np.ndarray]:
    """Mask a uniform sample of the tokens in every row.

    A row of `length` tokens gets round(length * masked_lm_prob) predictions, at least 1 and at most P, and at most the
    number of tokens other than [CLS], [SEP] and padding.

    Args:
        features: input_ids and input_mask, int32 [B, L], and others, which are unchanged.
        masking: rates and vocabulary.
        predictions: P, at most L.
        keys: uint64 [B], hash keys (`beambert.trainers.data.example_order.stateless_hash`); the masks of a row
            depend only on its key.

    Returns:
        The features with masked input_ids, and with masked_lm_positions (ascending, padded with 0) and masked_lm_ids,
        int32 [B, P], and masked_lm_weights, float32 [B, P].
    """
    input_ids, input_mask = features["input_ids"], features["input_mask"]
    maskable = (input_mask > 0) & (input_ids != masking.cls_id) & (input_ids != masking.sep_id)  # [B, L]
    # Rounded half to even.
    wanted = np.rint(input_mask.sum(axis=1) * masking.masked_lm_prob).astype(np.int64)  # [B]
    wanted = np.minimum(np.clip(wanted, 1, predictions), np.count_nonzero(maskable, axis=1))
    rows, length = input_ids.shape
    positions = np.empty((rows, predictions), np.int32)
    for first in range(0, rows, max(_CHUNK // length, 1)):
        chunk = slice(first, first + max(_CHUNK // length, 1))
        positions[chunk] = _sample(keys[chunk], maskable[chunk], wanted[chunk], predictions)

    predicted = positions < length  # [B, P]
    row, slot = np.nonzero(predicted)
    position = positions[row, slot]  # [N], of all predictions
    original = input_ids[row, position]
    action = _random_bits(keys[row], position, _ACTION) / 2**32
    index = _random_bits(keys[row], position, _REPLACEMENT) * len(masking.replacement_ids) >> 32
    replacement = np.where(action < masking.mask_rate + masking.random_rate, masking.replacement_ids[index], original)
    replacement[action < masking.mask_rate] = masking.mask_id
    masked_ids = input_ids.copy()
    masked_ids[row, position] = replacement
    masked_lm_ids = np.zeros((rows, predictions), np.int32)
    masked_lm_ids[row, slot] = original
    return {
        **features,
        "input_ids": masked_ids,
        "masked_lm_positions": np.where(predicted, positions, np.int32(0)),
        "masked_lm_ids": masked_lm_ids,
        "masked_lm_weights": predicted.astype(np.float32),
    }


def _random_bits(keys: np.ndarray, positions: np.ndarray, purpose: int) -> np.ndarray:
    """Return 32 random bits for each position, int64 of the broadcast shape."""
    return (extend_hash(keys, positions.astype(np.uint64) * np.uint64(3) + np.uint64(purpose)) >> np.uint64(32)).view(
        np.int64
    )


def _sample(keys: np.ndarray, maskable: np.ndarray, wanted: np.ndarray, predictions: int) -> np.ndarray:
    """Return a uniform sample of the maskable positions of each row, without replacement.

    Args:
        keys: uint64 [b].
        maskable: bool [b, L].
        wanted: size of each sample, int64 [b], at most P and at most the number of maskable positions.
        predictions: P.

    Returns:
        int64 [b, P], ascending; L after the sample.
    """
    length = maskable.shape[1]
    # The tokens with the largest independent keys are a uniform sample without replacement. Equal keys are in the
    # order of their positions: the lower bits hold the distance from the end.
    bits = (length - 1).bit_length()
    order = _random_bits(keys[:, None], np.arange(length), _CHOICE)
    order >>= 1
    order <<= bits
    order |= np.arange(length - 1, -1, -1)
    order[~maskable] = -1
    order.partition(length - predictions, axis=1)
    largest = -np.sort(-order[:, length - predictions :], axis=1)  # [b, P], descending
    positions = length - 1 - (largest & ((1 << bits) - 1))
    positions[np.arange(predictions) >= wanted[:, None]] = length
    positions.sort(axis=1)
    return positions


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
                f"invalid --mask_rate_schedule phase {in_quotes(text)}: must be RATE:STEP or RATE-RATE:STEP, with "
                "rates above 0 and below 1, such as 0.3:10000 or 0.3-0.15:10000; the last phase may omit :STEP"
            )
        if phases and end_step is not None and end_step <= (phases[-1].end_step or 0):
            raise TrainingError(
                f"invalid --mask_rate_schedule {in_quotes(schedule)}: steps count from the start of training and must "
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
