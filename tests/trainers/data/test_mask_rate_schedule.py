"""Tests of masking rates that change during training: the rate of every step, and the masks drawn with it."""

import dataclasses
import itertools

import numpy as np
import pytest

from beambert.trainers.data.dynamic_masking import check_predictions, mask_rate_at, parse_mask_rates
from beambert.trainers.data.pipeline import train_batches, validation_batches
from beambert.trainers.errors import TrainingError
from beambert.trainers.optimization.schedule import Stage
from tests.trainers.pretraining_shards import LENGTH, OPTIONS, write_dataset

PREDICTIONS = 16
DYNAMIC = dataclasses.replace(OPTIONS, masking="dynamic", max_predictions_per_seq=PREDICTIONS)


def rates(schedule, steps, num_train_steps=100):
    phases = parse_mask_rates(schedule)
    return [mask_rate_at(phases, step, num_train_steps) for step in steps]


def test_constant_phases():
    assert rates("0.3:10,0.15", [0, 9, 10, 99]) == [0.3, 0.3, 0.15, 0.15]
    assert rates("0.4:10,0.2:20", [0, 9, 10, 19, 20, 99]) == [0.4, 0.4, 0.2, 0.2, None, None]
    assert rates("0.3", [0, 99]) == [0.3, 0.3]


def test_linear_phases():
    # Ankner et al.: 30 % at the start, 15 % at the end.
    assert rates("0.3-0.15", [0, 20, 50, 80]) == pytest.approx([0.3, 0.27, 0.225, 0.18])
    assert rates("0.3-0.15", [0, 100], num_train_steps=200) == pytest.approx([0.3, 0.225])
    assert rates("0.3:10,0.3-0.1:30,0.1", [9, 10, 20, 29, 30, 90]) == pytest.approx([0.3, 0.3, 0.2, 0.11, 0.1, 0.1])
    assert rates("0.1-0.5", [0, 50]) == pytest.approx([0.1, 0.3])


@pytest.mark.parametrize(
    "schedule",
    [
        *("", "0.3,0.15", "0.3:", "0.3:0,0.15", "0.3:-5,0.15", "1:5", "0:5", "nan", "0.3-", "-0.3", "0.3-0.15-0.1"),
        *("30%", "0.3:1e3,0.15", "0.3:10000000000,0.15", "0.3:10,", "x" * 9999),
    ],
)
def test_invalid_phases_are_named(schedule):
    with pytest.raises(TrainingError, match=r"^invalid --mask_rate_schedule phase .*RATE:STEP") as error:
        parse_mask_rates(schedule)
    assert len(str(error.value)) < 400


def test_steps_must_increase():
    with pytest.raises(TrainingError, match=r"must increase, but 10 follows 10"):
        parse_mask_rates("0.3:10,0.2:10")


def drawn(tmp_path, dataset, schedule, steps=8, first=0):
    phases = parse_mask_rates(schedule) if schedule else []
    stages = [Stage(0, 12, 0, steps, 0)]
    batches = train_batches(
        tmp_path, dataset, stages, first, seed=1, mask_rate=lambda step: mask_rate_at(phases, step, steps)
    )
    return list(itertools.islice(batches, steps - first))


def test_every_step_predicts_its_fraction_of_the_tokens(tmp_path):
    dataset = write_dataset(tmp_path, {("train", 0): [12]}, options=DYNAMIC)
    for step, batch in enumerate(drawn(tmp_path, dataset, "0.45-0.05")):
        rate = 0.45 + (0.05 - 0.45) * step / 8
        for mask, weights in zip(batch["input_mask"], batch["masked_lm_weights"], strict=True):
            assert weights.sum() == max(1, round(int(mask.sum()) * rate))
        # Shapes do not depend on the rate.
        assert batch["masked_lm_positions"].shape == (12, PREDICTIONS)


def test_masks_are_resumed_and_without_schedule_unchanged(tmp_path):
    dataset = write_dataset(tmp_path, {("train", 0): [12]}, options=DYNAMIC)
    straight = drawn(tmp_path, dataset, "0.4:3,0.4-0.15:6")
    for step in (1, 4, 7):
        for batch, expected in zip(
            drawn(tmp_path, dataset, "0.4:3,0.4-0.15:6", first=step), straight[step:], strict=True
        ):
            assert all(np.array_equal(batch[name], expected[name]) for name in expected)
    # After the last phase and without a schedule, the rate is that of the data.
    plain = list(train_batches(tmp_path, dataset, [Stage(0, 12, 0, 8, 0)], 0, seed=1))
    assert all(np.array_equal(plain[7][name], straight[7][name]) for name in plain[7])
    assert not np.array_equal(plain[0]["input_ids"], straight[0]["input_ids"])
    assert all(
        np.array_equal(batch["input_ids"], other["input_ids"])
        for batch, other in zip(plain, drawn(tmp_path, dataset, None), strict=True)
    )


def test_validation_keeps_the_rate_of_the_data(tmp_path):
    dataset = write_dataset(tmp_path, {("validation", 0): [9]}, options=DYNAMIC)
    (batch,) = validation_batches(tmp_path, dataset, 9, max_batches=1)
    assert batch["masked_lm_weights"].sum(axis=1).tolist() == [
        max(1, round(0.15 * int(mask.sum()))) for mask in batch["input_mask"]
    ]


def test_data_that_cannot_be_masked_at_the_highest_rate_is_an_error(tmp_path):
    dataset = write_dataset(tmp_path, options=DYNAMIC)
    check_predictions(parse_mask_rates("0.5-0.15"), tmp_path, dataset)
    message = (
        rf"rate 0.6 predicts up to 19 of {LENGTH} tokens, but max_predictions_per_seq of .* is 16; build the data "
    )
    with pytest.raises(TrainingError, match=message + "with --max_predictions_per_seq 20"):
        check_predictions(parse_mask_rates("0.15-0.6"), tmp_path, dataset)
    static = write_dataset(tmp_path / "static")
    with pytest.raises(TrainingError, match=r"already contain masks; build the data with --masking dynamic"):
        check_predictions(parse_mask_rates("0.3"), tmp_path / "static", static)
