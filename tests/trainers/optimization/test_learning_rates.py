import math

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from beambert.trainers.errors import TrainingError
from beambert.trainers.options import LearningRateSchedule
from tests.trainers.optimization.optimizer_steps import LR_SCHEDULES, rates_of


def schedule_of(peak, num_train_steps, num_warmup_steps, **options):
    numbers = {"num_train_steps": num_train_steps, "num_warmup_steps": num_warmup_steps}
    return LearningRateSchedule(learning_rate=peak, **numbers, **options)


def rates(steps, *numbers, **options):
    schedule = schedule_of(*numbers, **options)
    return [float(schedule.rate_at(tf.constant(step, tf.float32), ops)) for step in steps]


def plain_rate(step, peak, steps, warmup, name, fraction=0.2, least=0.0):
    """Return the rate by the formulas of the help, in Python's float64, without the schedule's own code."""
    if step < warmup:
        return peak * step / warmup
    if name == "constant":
        return peak
    if name == "cosine":
        halved = (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2
        return peak * least + peak * (1 - least) * halved
    decay = max(1, round(steps * fraction))
    stable = steps - decay
    return peak if step < stable else peak * (1 - math.sqrt((step - stable) / decay))


def test_the_default_schedule_of_the_released_code():
    assert rates([0, 1, 5, 9], 1e-3, 100, 10) == pytest.approx([0, 1e-4, 5e-4, 9e-4])
    # The rate drops after warm-up, because the decay starts at step 0.
    assert rates([10, 11, 50, 99, 100, 200], 1e-3, 100, 10) == pytest.approx([9e-4, 8.9e-4, 5e-4, 1e-5, 0, 0], abs=1e-9)
    assert rates([0, 1, 100], 1e-3, 100, 0) == pytest.approx([1e-3, 9.9e-4, 0], abs=1e-9)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(("num_train_steps", "num_warmup_steps"), [(1, 0), (7, 3), (1_000_000, 10_000)])
def test_decay_is_tensorflows_polynomial_decay(num_train_steps, num_warmup_steps, power):
    peak = 1e-4
    steps = sorted({*np.linspace(0, num_train_steps + 2, 23, dtype=int).tolist(), num_warmup_steps, num_train_steps})
    oracle = [
        float(tf.compat.v1.train.polynomial_decay(peak, step, num_train_steps, 0.0, power, cycle=False)())
        if step >= num_warmup_steps
        else peak * step / num_warmup_steps
        for step in steps
    ]
    assert rates(steps, peak, num_train_steps, num_warmup_steps, lr_decay_power=power) == pytest.approx(
        oracle, rel=1e-6, abs=1e-12
    )


@pytest.mark.parametrize("name", ["cosine", "constant", "wsd"])
@pytest.mark.parametrize(("steps", "warmup"), [(1, 0), (7, 3), (97, 0)])
def test_every_step_has_the_rate_of_the_plain_formula(name, steps, warmup):
    expected = [plain_rate(step, 3e-4, steps, warmup, name) for step in range(steps + 1)]
    assert rates(range(steps + 1), 3e-4, steps, warmup, lr_schedule=name) == pytest.approx(expected, rel=1e-5, abs=1e-9)


def test_the_options_of_cosine_and_wsd():
    expected = [plain_rate(step, 1.0, 50, 5, "cosine", least=0.1) for step in range(51)]
    assert rates(range(51), 1.0, 50, 5, lr_schedule="cosine", lr_min_fraction=0.1) == pytest.approx(expected, rel=1e-5)
    assert expected[-1] == pytest.approx(0.1)
    expected = [plain_rate(step, 1.0, 50, 5, "wsd", fraction=0.5) for step in range(51)]
    assert rates(range(51), 1.0, 50, 5, lr_schedule="wsd", lr_decay_fraction=0.5) == pytest.approx(
        expected, rel=1e-5, abs=1e-6
    )
    # Step 40 is a quarter of the way through the decay from step 20 to step 100: sqrt(1/4) = 1/2.
    assert rates([19, 20, 40, 100], 1.0, 100, 0, lr_schedule="wsd", lr_decay_fraction=0.8) == [1.0, 1.0, 0.5, 0.0]


@pytest.mark.parametrize("name", ["cosine", "constant", "wsd"])
def test_the_compiled_step_has_the_rate_of_the_plain_formula(name):
    expected = [plain_rate(min(step, 20), 1e-3, 20, 4, name) for step in range(22)]
    assert rates_of(name) == pytest.approx(expected, rel=1e-5, abs=1e-9)


def test_rates_after_the_last_step_stay_those_of_the_last_step():
    for name in LR_SCHEDULES:
        assert rates([100, 101, 1000], 1.0, 100, 10, lr_schedule=name) == rates(
            [100] * 3, 1.0, 100, 10, lr_schedule=name
        )


def test_the_decay_of_wsd_starts_where_its_fraction_begins():
    for fraction, start in ((0.2, 800), (1e-9, 999), (1.0, 0)):
        options = {"lr_schedule": "wsd", "lr_decay_fraction": fraction}
        assert LearningRateSchedule(**options, num_train_steps=1000).decay_start == start
        assert LearningRateSchedule(**options).decay_start is None
    for name in ("linear", "cosine", "constant"):
        assert LearningRateSchedule(lr_schedule=name, num_train_steps=1000).decay_start is None


def test_a_decay_within_warm_up_is_an_error():
    options = {"lr_schedule": "wsd", "lr_decay_fraction": 0.5}
    schedule_of(1.0, 100, 50, **options)
    with pytest.raises(TrainingError, match=r"--lr_decay_fraction 0.5: the decay would start at step 50 of 100"):
        schedule_of(1.0, 100, 51, **options)


@pytest.mark.parametrize(
    ("options", "flag", "schedule"),
    [
        ({"lr_schedule": "wsd", "lr_decay_power": 2.0}, "--lr_decay_power 2", "linear"),
        ({"lr_schedule": "linear", "lr_decay_fraction": 0.1}, "--lr_decay_fraction 0.1", "wsd"),
        ({"lr_schedule": "wsd", "lr_min_fraction": 0.1}, "--lr_min_fraction 0.1", "cosine"),
    ],
)
def test_an_option_of_another_schedule_is_an_error(options, flag, schedule):
    with pytest.raises(TrainingError, match=f"invalid {flag} with .*requires --lr_schedule {schedule}"):
        LearningRateSchedule(**options)


@pytest.mark.parametrize("warmup", [0, 7])
@pytest.mark.parametrize(
    "options",
    [
        {"lr_decay_power": 0.5},
        {"lr_decay_power": 2.0},
        {"lr_schedule": "cosine", "lr_min_fraction": 0.1},
        {"lr_schedule": "constant"},
        {"lr_schedule": "wsd", "lr_decay_fraction": 0.3},
    ],
)
def test_the_formulas_in_numpy_are_those_of_training(warmup, options):
    schedule = schedule_of(0.3, 20, warmup, **options)
    expected = rates(range(23), 0.3, 20, warmup, **options)
    assert [schedule.rate_at(step) for step in range(23)] == pytest.approx(expected, abs=1e-7)
