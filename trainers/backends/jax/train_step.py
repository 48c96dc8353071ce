"""Run training steps with JAX: compute, sum, clip and apply gradients in one compiled function.

Every device computes the gradients of its part of the batch with its copy of the weights (`jax.shard_map`); one sum
over the devices follows. Dropout masks are functions of an example's position in the batch, so that neither the number
of devices nor that of micro-batches changes a step.
"""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import keras
import numpy as np
from jax.extend.core import Var
from jax.sharding import PartitionSpec

from beambert.bert_model.ops.jax.dropout import example_seeds
from beambert.trainers.backends.backend import MakeBatches, RunSteps, StepResults
from beambert.trainers.backends.jax.distribution import DATA, Distribution, assign, place, with_values
from beambert.trainers.backends.jax.optimizer_sharding import (
    Devices,
    VariableSlice,
    own_part,
    sharded_axes,
    slot_spec,
    with_all_parts,
)
from beambert.trainers.backends.step import Gradients, compute_update
from beambert.trainers.objective import NOT_FINITE, Features, Objective, Sums, Tensor, loss_of, to_host
from beambert.trainers.optimization.optimizers import Optimizer, VariableState
from beambert.trainers.options import TrainingOptions

# Weights and slots of every trained variable, by TF1 name.
TrainState = dict[str, VariableState]
# Number of steps that may be waiting for the devices.
_STEPS_AHEAD = 2


class Trainer:
    """An objective with its optimizer, the content of a checkpoint; see `beambert.trainers.backends.backend.Trainer`.

    Args:
        objective: the objective.
        config: options of the steps.
        distribution: the devices; None for all devices.
    """

    def __init__(self, objective: Objective, config: TrainingOptions, distribution: Distribution | None = None) -> None:
        self.objective = objective
        self.config = config
        self.distribution = distribution or Distribution()
        self.optimizer = Optimizer(objective.variables, config, objective.vocab_size)
        shapes = {name: tuple(variable.shape) for name, variable in objective.variables.items()}
        # Axes along which slots are sharded, of variables that have one.
        self.slot_axes = sharded_axes(shapes, self.distribution.replicas) if config.shard_optimizer_state else {}

    @property
    def saved_variables(self) -> dict[str, keras.Variable]:
        """Return weights and optimizer slots, by their names in checkpoints."""
        return {**self.objective.frozen, **self.objective.variables, **self.optimizer.slots}

    def checkpoint_values(self) -> dict[str, keras.Variable | np.ndarray]:
        """Return the content of a checkpoint; the chief gets copies in host memory of slots sharded over processes."""
        values: dict[str, keras.Variable | np.ndarray] = dict(self.saved_variables)
        for name, slot in self.optimizer.slots.items():
            if not slot.value.is_fully_addressable and not slot.value.is_fully_replicated:
                whole = self.distribution.on_host(slot.value)
                if self.distribution.is_chief:
                    values[name] = whole
        return values

    @contextlib.contextmanager
    def make_steps(self, make: MakeBatches) -> Iterator[RunSteps]:
        """Return a context with a function that runs the next steps on the batches of `make`, in order."""
        compiled_step = self.compiled_step()
        compiled_shapes: set[tuple[tuple[int, ...], ...]] = set()
        with self.distribution.batches(make) as batches:

            def run(first_step: int, count: int, stop_vote: int) -> StepResults:
                state = self.state()
                frozen = place(list(self.objective.frozen.values()), self.distribution)
                metrics: list[dict[str, jax.Array]] = []
                waiting = compiling = 0.0
                for step in range(first_step, first_step + count):
                    if len(metrics) > _STEPS_AHEAD:
                        jax.block_until_ready(metrics[-1 - _STEPS_AHEAD])
                    begin = time.perf_counter()
                    features = next(batches)
                    ready = time.perf_counter()
                    waiting += ready - begin
                    state, of_step = compiled_step(state, frozen, np.int32(step), features)
                    shapes = tuple(values.shape for values in features.values())
                    if shapes not in compiled_shapes:
                        # The call compiles new shapes, and returns before the devices have computed the step.
                        compiled_shapes.add(shapes)
                        compiling += time.perf_counter() - ready
                    metrics.append(of_step)
                self._assign(state)
                sums = [to_host(of_step) for of_step in jax.device_get(metrics)]
                nonfinite = [step for step, of_step in enumerate(sums, first_step) if of_step[NOT_FINITE][0]]
                first_nonfinite = nonfinite[0] if nonfinite else -1
                return StepResults(
                    sum_steps(sums), first_nonfinite, waiting, compiling, self.distribution.votes(stop_vote)
                )

            yield run

    def compiled_step(self) -> Callable[..., tuple[TrainState, dict[str, jax.Array]]]:
        """Return the compiled step.

        Returns:
            A function of the state, which is donated, the values of the frozen variables, the number of earlier steps,
            int32 scalar, and the features of the global batch. It returns the new state and the metric sums, pairs of
            numerator and denominator, float32 [2].
        """
        everywhere, by_example = PartitionSpec(), PartitionSpec(DATA)
        state = {name: self.state_spec(name) for name in self.objective.variables}
        step = self.distribution.shard_map(self._step, (state, everywhere, everywhere, by_example), (state, everywhere))
        return jax.jit(step, donate_argnums=0)

    def _step(
        self, state: TrainState, frozen: list[Tensor], step: Tensor, features: Features
    ) -> tuple[TrainState, dict[str, Tensor]]:
        """Run one step on a device; features are its part of the batch, [batch_size / devices, ...]."""

        def gradients_of(features: Features, denominators: Mapping[str, Tensor]) -> tuple[Tensor, Sums, Gradients]:
            return self._gradients(state, frozen, denominators, step, features)

        devices = Devices(self.distribution.replicas, self.slot_axes)
        update = compute_update(self.objective, self.config, features, step, gradients_of, devices)
        new_state = dict(state)
        for name, gradient in update.gradients.items():
            axis = self.slot_axes.get(name)
            old, part = state[name], None
            if axis is not None:
                old = old._replace(weight=own_part(old.weight, axis))
                part = VariableSlice(name, axis, self.objective.vocab_size)
            updated = self.optimizer.update(name, old, gradient * update.factor, update.rate, step, part)
            if self.config.on_nonfinite == "skip":
                updated = jax.tree.map(functools.partial(jax.numpy.where, update.is_finite), updated, old)
            if axis is not None:
                updated = updated._replace(weight=with_all_parts(updated.weight, axis))
            new_state[name] = updated
        return new_state, {name: jax.numpy.stack(ratio) for name, ratio in update.sums.items()}

    def _gradients(
        self,
        state: TrainState,
        frozen: list[Tensor],
        denominators: Mapping[str, Tensor],
        step: Tensor,
        features: Features,
    ) -> tuple[Tensor, Sums, Gradients]:
        """Return loss, metric sums and gradients of a device's part of the batch, computed by micro-batches.

        Variables that the loss does not depend on have no gradient.
        """
        count = self.config.gradient_accumulation_steps
        size = features["input_ids"].shape[0]
        seeds = example_seeds(self.config.seed, step, jax.lax.axis_index(DATA) * size, size)  # [B, 2]
        frozen_variables = list(self.objective.frozen.values())

        def loss_of_part(weights: dict[str, Tensor], part: tuple[Features, Tensor]) -> tuple[Tensor, Sums]:
            variables = [self.objective.variables[name] for name in weights]
            with with_values([*variables, *frozen_variables], [*weights.values(), *frozen]):
                sums = self.objective.sums(*part)
            return loss_of(sums, denominators), sums

        weights = {name: values.weight for name, values in state.items()}
        # [B, ...] to [count, B / count, ...]
        parts = jax.tree.map(lambda values: values.reshape(count, size // count, *values.shape[1:]), (features, seeds))
        first = jax.tree.map(lambda values: values[0], parts)
        used = used_arguments(lambda weights: loss_of_part(weights, first)[0], weights)
        unused = {name: values for name, values in weights.items() if name not in used}

        def gradients_of(part: tuple[Features, Tensor]) -> tuple[Tensor, Sums, dict[str, Tensor]]:
            def loss_of_used(trained: dict[str, Tensor]) -> tuple[Tensor, Sums]:
                return loss_of_part({**trained, **unused}, part)

            trained = {name: values for name, values in weights.items() if name in used}
            (loss, sums), gradients = jax.value_and_grad(loss_of_used, has_aux=True)(trained)
            return loss, sums, gradients

        if count == 1:
            return gradients_of(first)

        def add(totals: Any, part: tuple[Features, Tensor]) -> tuple[Any, None]:
            return jax.tree.map(jax.numpy.add, totals, gradients_of(part)), None

        zeros = jax.tree.map(
            lambda shape: jax.numpy.zeros(shape.shape, shape.dtype), jax.eval_shape(gradients_of, first)
        )
        totals, _ = jax.lax.scan(add, zeros, parts)
        return totals

    def state_spec(self, name: str) -> VariableState:
        """Return how a variable and its slots are distributed."""
        slots = slot_spec(self.slot_axes.get(name))
        return VariableState(PartitionSpec(), (slots,) * len(self.optimizer.slots_of(name)))

    def state(self) -> TrainState:
        """Return the values of weights and slots on the devices: copies, or parts of sharded slots."""
        state = {}
        for name, variable in self.objective.variables.items():
            spec, slots = self.state_spec(name), self.optimizer.slots_of(name)
            (weight,) = place([variable], self.distribution, [spec.weight])
            state[name] = VariableState(weight, tuple(place(slots, self.distribution, spec.slots)))
        return state

    def _assign(self, state: TrainState) -> None:
        for name, values in state.items():
            assign([self.objective.variables[name], *self.optimizer.slots_of(name)], [values.weight, *values.slots])


def sum_steps(steps: list[dict[str, tuple[float, float]]]) -> dict[str, tuple[float, float]]:
    """Return the sums of numerators and denominators over steps."""
    return {name: (sum(step[name][0] for step in steps), sum(step[name][1] for step in steps)) for name in steps[0]}


def used_arguments(function: Callable[[dict[str, Any]], Any], arguments: dict[str, Any]) -> set[str]:
    """Return the names of the arguments that the result of a function depends on.

    Differentiation gives zeros for the others. A variable that the loss does not depend on must not be updated, not
    even by weight decay, as in the released code.

    Args:
        function: function of a dict of arrays.
        arguments: arrays or shapes by name.
    """
    program = jax.make_jaxpr(function)(arguments).jaxpr
    needed = {variable for variable in program.outvars if isinstance(variable, Var)}
    for equation in reversed(program.eqns):
        if needed.intersection(equation.outvars):
            needed.update(variable for variable in equation.invars if isinstance(variable, Var))
    # The leaves of a dict are in the order of its sorted keys.
    return {name for name, variable in zip(sorted(arguments), program.invars, strict=True) if variable in needed}
