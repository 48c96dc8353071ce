import numpy as np
import pytest
import tensorflow as tf

from trainers.optimization.optimizers import learning_rate_at


def rates(steps, peak, num_train_steps, num_warmup_steps, **options):
    return [
        float(learning_rate_at(tf.constant(step, tf.int64), peak, num_train_steps, num_warmup_steps, **options))
        for step in steps
    ]


def test_the_released_shape():
    assert rates([0, 1, 5, 9], 1e-3, 100, 10) == pytest.approx([0, 1e-4, 5e-4, 9e-4])
    # The jump: warm-up ends near the peak, the decay has been running since step 0.
    assert rates([10, 11, 50, 99, 100, 200], 1e-3, 100, 10) == pytest.approx([9e-4, 8.9e-4, 5e-4, 1e-5, 0, 0], abs=1e-9)
    assert rates([0, 1, 100], 1e-3, 100, 0) == pytest.approx([1e-3, 9.9e-4, 0], abs=1e-9)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(("num_train_steps", "num_warmup_steps"), [(1, 0), (7, 3), (100, 10), (1_000_000, 10_000)])
def test_decay_is_tensorflows_polynomial_decay(num_train_steps, num_warmup_steps, power):
    peak = 1e-4
    steps = sorted({*np.linspace(0, num_train_steps + 2, 23, dtype=int).tolist(), num_warmup_steps, num_train_steps})
    oracle = [
        float(tf.compat.v1.train.polynomial_decay(peak, step, num_train_steps, 0.0, power, cycle=False)())
        if step >= num_warmup_steps
        else peak * step / num_warmup_steps
        for step in steps
    ]
    assert rates(steps, peak, num_train_steps, num_warmup_steps, power=power) == pytest.approx(
        oracle, rel=1e-6, abs=1e-12
    )


def test_plain_numbers():
    # (1 - 3/4)^2 = 1/16; (1 - 3/4)^0.5 = 1/2.
    assert rates([3], 1.0, 4, 0, power=2.0) == [0.0625]
    assert rates([3], 1.0, 4, 0, power=0.5) == [0.5]
