"""Optimizer steps with the active Keras backend.

Run as a program, it makes the steps of every case and saves the results. Arguments: an .npz file.
"""

import sys
from collections.abc import Callable, Mapping
from itertools import product

import keras
import numpy as np
from keras import ops

from tests.trainers.optimization.optimizer_problem import PEAK_RATE, STEPS, WARMUP_STEPS, gradients, initial_weights
from trainers.optimization.learning_rate_schedule import LR_SCHEDULES, LearningRateSchedule
from trainers.optimization.optimizer_options import OPTIMIZERS, OptimizerOptions
from trainers.optimization.optimizers import Optimizer, OptimizerState, clip_by_global_norm, learning_rate_at

CHANGES = {
    "released": {},
    "layerwise": {"layerwise_lr_decay": 0.5, "lr_multipliers": (("dense/bias", 3.0), ("bias$", 2.0))},
    "others": {"weight_decay": 0.2, "clip_norm": 2.0, "epsilon": 1e-2},
}


def compiled(function: Callable) -> Callable:
    """Return a function of a name and tensors, compiled by XLA."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function, static_argnums=0)
    import tensorflow as tf

    return tf.function(function, autograph=False, jit_compile=True)


def new_optimizer(weights: Mapping[str, np.ndarray], options: OptimizerOptions, **changes: int) -> Optimizer:
    """Return an optimizer of new variables."""
    return Optimizer({name: keras.Variable(value) for name, value in weights.items()}, options, **changes)


def make_step(optimizer: Optimizer, given: Mapping, rate: float, step: int, updated: Callable | None = None) -> None:
    """Update all variables that have a gradient, by `updated` or, without it, by the optimizer's own method."""
    for name, gradient in given.items():
        variables = (optimizer.variables[name], *optimizer.slots_of(name))
        state = OptimizerState(*(ops.convert_to_tensor(variable) for variable in variables))
        new = (updated or optimizer.updated)(
            name,
            state,
            ops.convert_to_tensor(gradient),
            ops.convert_to_tensor(np.float32(rate)),
            ops.cast(step, "int32"),
        )
        for variable, value in zip(variables, new, strict=True):
            variable.assign(value)


def weights_after(optimizer_name: str, changes: str, is_compiled: bool) -> dict[str, np.ndarray]:
    """Make all steps of the problem with an optimizer.

    Returns:
        Arrays by name: "norms" with the norms of the gradients, [STEPS], and "<step>:<name>" with the weights after
        each step. Slots are included after the last step.
    """
    optimizer = new_optimizer(initial_weights(), OptimizerOptions(name=optimizer_name, **CHANGES[changes]))
    updated = compiled(optimizer.updated) if is_compiled else None
    results = {}
    norms = []
    for step in range(STEPS):
        given = {name: ops.convert_to_tensor(gradient) for name, gradient in gradients(step).items()}
        clipped, norm = clip_by_global_norm(list(given.values()), optimizer.options.clip_norm)
        norms.append(float(norm))
        rate = learning_rate_at(ops.cast(step, "int32"), PEAK_RATE, STEPS, WARMUP_STEPS)
        make_step(optimizer, dict(zip(given, clipped, strict=True)), float(rate), step, updated)
        values = optimizer.variables | (optimizer.slots if step == STEPS - 1 else {})
        # An array of TensorFlow on a CPU may share the memory of its variable.
        results |= {f"{step + 1}:{name}": np.array(value) for name, value in values.items()}
    return {"norms": np.array(norms), **results}


def rates_of(name: str) -> np.ndarray:
    """Return the compiled learning rates of steps 0 to 21 of a run of 20 steps: [22], float32."""
    rate = compiled(lambda name, step: learning_rate_at(step, 1e-3, 20, 4, LearningRateSchedule(name)))
    return np.array([float(rate(name, ops.cast(step, "int32"))) for step in range(22)], np.float32)


CASES = list(product(OPTIMIZERS, CHANGES, (False, True)))

if __name__ == "__main__":
    np.savez(
        sys.argv[1],
        **{
            f"{number}/{key}": value for number, case in enumerate(CASES) for key, value in weights_after(*case).items()
        },
        **{f"rates/{name}": rates_of(name) for name in LR_SCHEDULES},
    )
