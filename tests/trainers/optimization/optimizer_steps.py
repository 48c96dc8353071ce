"""Optimizer steps with the active Keras backend; as a program, save `compiled_results` in an .npz file."""

import functools
import sys
from collections.abc import Callable, Mapping, Sequence

import keras
import numpy as np
from keras import ops

from beambert.common.command_line.options import options_of
from beambert.trainers.optimization.optimizers import Optimizer, VariableState, clip_factor, global_norm
from beambert.trainers.options import LearningRateSchedule, OptimizerOptions, TrainingOptions
from tests.trainers.optimization.optimizer_problem import PEAK_RATE, STEPS, WARMUP_STEPS, gradients, initial_weights

CHOICES = {option.name: option.keywords().get("choices") for option in options_of(TrainingOptions)}
OPTIMIZERS, LR_SCHEDULES = CHOICES["optimizer"], CHOICES["lr_schedule"]

CHANGES = {
    "released": {},
    "layerwise": {"layerwise_lr_decay": 0.5, "lr_multiplier": (("dense/bias", 3.0), ("bias$", 2.0))},
    "others": {"weight_decay": 0.2, "clip_norm": 2.0, "adam_epsilon": 1e-2},
}


def compiled(function: Callable) -> Callable:
    """Return a function of tensors, compiled by XLA."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    import tensorflow as tf

    return tf.function(function, autograph=False, jit_compile=True)


def new_optimizer(weights: Mapping[str, np.ndarray], options: OptimizerOptions, **changes: int) -> Optimizer:
    """Return an optimizer of new variables."""
    return Optimizer({name: keras.Variable(value) for name, value in weights.items()}, options, **changes)


def updates_of(updated: Callable) -> Callable:
    """Return a function that applies `Optimizer.update`, or a function with its arguments, to several variables.

    It takes states and gradients by name, the rate and the step, and returns the new states by name.
    """
    return lambda states, given, rate, step: {
        name: updated(name, states[name], gradient, rate, step) for name, gradient in given.items()
    }


def make_step(optimizer: Optimizer, given: Mapping, rate: float, step: int, updates: Callable | None = None) -> None:
    """Update all variables that have a gradient, by `updates` or, without it, by the optimizer's own method."""
    variables = {name: (optimizer.variables[name], *optimizer.slots_of(name)) for name in given}
    states = {name: state_of(*map(ops.convert_to_tensor, values)) for name, values in variables.items()}
    tensors = {name: ops.convert_to_tensor(gradient) for name, gradient in given.items()}
    scalars = ops.convert_to_tensor(np.float32(rate)), ops.cast(step, "int32")
    for name, state in (updates or updates_of(optimizer.update))(states, tensors, *scalars).items():
        for variable, value in zip(variables[name], (state.weight, *state.slots), strict=True):
            variable.assign(value)


def state_of(weight, *slots) -> VariableState:
    return VariableState(weight, slots)


def clipped(gradients: Sequence, clip_norm: float | None) -> tuple[list, float]:
    """Return gradients scaled down to a maximum global norm, and their norm before."""
    norm = global_norm(gradients)
    factor = clip_factor(norm, clip_norm) if clip_norm else 1.0
    return [gradient * factor for gradient in gradients], norm


@functools.cache
def weights_after(optimizer_name: str, changes: str, is_compiled: bool) -> dict[str, np.ndarray]:
    """Make all steps of the problem with an optimizer.

    Returns:
        Arrays by name: "norms" with the norms of the gradients, [STEPS], and "<step>:<name>" with the weights after
        each step. Slots are included after the last step.
    """
    optimizer = new_optimizer(initial_weights(), OptimizerOptions(optimizer=optimizer_name, **CHANGES[changes]))
    updates = updates_of(optimizer.update)
    updates = compiled(updates) if is_compiled else updates
    schedule = LearningRateSchedule(learning_rate=PEAK_RATE, num_train_steps=STEPS, num_warmup_steps=WARMUP_STEPS)
    results = {}
    norms = []
    for step in range(STEPS):
        given = {name: ops.convert_to_tensor(gradient) for name, gradient in gradients(step).items()}
        scaled, norm = clipped(list(given.values()), optimizer.options.clip_norm)
        norms.append(float(norm))
        rate = schedule.rate_at(ops.cast(step, "float32"), ops)
        make_step(optimizer, dict(zip(given, scaled, strict=True)), float(rate), step, updates)
        values = optimizer.variables | (optimizer.slots if step == STEPS - 1 else {})
        # An array of TensorFlow on a CPU may share the memory of its variable.
        results |= {f"{step + 1}:{name}": np.array(value) for name, value in values.items()}
    return {"norms": np.array(norms), **results}


def rates_of(name: str) -> np.ndarray:
    """Return the compiled learning rates of steps 0 to 21 of a run of 20 steps: [22], float32."""
    numbers = {"learning_rate": 1e-3, "num_train_steps": 20, "num_warmup_steps": 4}
    schedule = LearningRateSchedule(lr_schedule=name, **numbers)
    rate = compiled(lambda step: schedule.rate_at(step, ops))
    return np.array([float(rate(ops.cast(step, "float32"))) for step in range(22)], np.float32)


def compiled_results() -> dict[str, np.ndarray]:
    """Return the weights of every optimizer, "<optimizer>/<name>", and the rates of every schedule, "rates/<name>"."""
    results = {f"rates/{name}": rates_of(name) for name in LR_SCHEDULES}
    for name in OPTIMIZERS:
        results |= {f"{name}/{key}": value for key, value in weights_after(name, "released", True).items()}
    return results


if __name__ == "__main__":
    np.savez(sys.argv[1], **compiled_results())
