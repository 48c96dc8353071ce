"""Run training steps on devices: compute, sum, clip and apply gradients."""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from beambert.trainers.backends.backend import MakeBatches, RunSteps, StepResults, uses_xla
from beambert.trainers.backends.step import Gradients, compute_update
from beambert.trainers.backends.tensorflow.distribution import (
    Distribution,
    replica_number,
    sum_over_replicas,
    update_together,
)
from beambert.trainers.objective import NOT_FINITE, Features, Objective, Sums, loss_of, to_host
from beambert.trainers.optimization.optimizers import Optimizer, VariableState
from beambert.trainers.options import TrainingOptions


def dropout_seed(
    seed: int, step: tf.Tensor, micro_step: tf.Tensor | int = 0, replica: tf.Tensor | int = 0
) -> tf.Tensor:
    """Return the dropout seed of a forward pass, int32 [2], a pure function of the arguments.

    The second element is 0; the model numbers its dropout call sites with it.
    """
    folded = tf.constant([seed, 0], tf.int32)
    # Folding in leaves the number in the second element; folding in a last 0 clears it.
    for number in (step, micro_step, replica, 0):
        folded = tf.random.experimental.stateless_fold_in(folded, tf.cast(number, tf.int32))
    return folded


class _Replicas:
    """The sums over replicas of a step; see `beambert.trainers.backends.step.Replicas`.

    Args:
        count: number of replicas.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        # `Distribution.sum` adds the metric sums of all replicas after the step.
        self.share = 1.0 / count

    def sum(self, values: Any) -> Any:
        """Return the sums over replicas."""
        return sum_over_replicas(values)

    def sum_gradients(self, gradients: Gradients, loss: tf.Tensor, sums: Sums) -> tuple[Gradients, tf.Tensor, Sums]:
        """Return the sums of gradients and loss over replicas, and the metric sums of this replica."""
        *summed, loss = sum_over_replicas([*gradients.values(), loss])
        return dict(zip(gradients, summed, strict=True)), loss, sums

    def norm(self, gradients: Gradients) -> tf.Tensor:
        """Return the norm of the gradients; as `optimizers.global_norm`, without a copy of each for its squares."""
        halves = [tf.nn.l2_loss(gradient) for gradient in gradients.values()]
        return tf.sqrt(2 * tf.reduce_sum(tf.stack(halves)))


class _Totals(NamedTuple):
    """Totals over steps, in the graph.

    Attributes:
        sums: metric sums over all replicas.
        first_nonfinite: int64 scalar, first step with a non-finite loss or gradient; -1 for none.
        seconds_waiting: float64 scalar, seconds spent waiting for batches.
    """

    sums: Sums
    first_nonfinite: tf.Tensor
    seconds_waiting: tf.Tensor


class Trainer:
    """An objective with its optimizer, the content of a checkpoint; see `beambert.trainers.backends.backend.Trainer`.

    Args:
        objective: the objective; its variables must be created in the scope of `distribution`.
        config: options of the steps.
        distribution: the devices; None for a single device.
    """

    def __init__(self, objective: Objective, config: TrainingOptions, distribution: Distribution | None = None) -> None:
        self.objective = objective
        self.config = config
        self.distribution = distribution or Distribution()
        with self.distribution.scope():
            self.optimizer = Optimizer(objective.variables, config, objective.vocab_size)
        # XLA compiles the formulas into a few loops over the values. The function assigns the variables itself, because
        # XLA then writes into their buffers; results would be new buffers, whose pages the system clears at every step.
        self._compiled_update = tf.function(self._assign_updated, autograph=False, jit_compile=True)

    @property
    def saved_variables(self) -> dict[str, keras.Variable]:
        """Return weights and optimizer slots, by their names in checkpoints."""
        return {**self.objective.frozen, **self.objective.variables, **self.optimizer.slots}

    def checkpoint_values(self) -> dict[str, keras.Variable]:
        """Return the content of a checkpoint: `saved_variables`, of which every worker has a copy."""
        return self.saved_variables

    def step(self, backward: Callable[..., Any], step: tf.Tensor, features: Features) -> Sums:
        """Run one step; call on every replica (`Distribution.run`), in a graph.

        Args:
            backward: the compiled `_gradients`.
            step: int64 scalar, number of earlier steps.
            features: this replica's part of the batch, [batch_size / replicas, ...].

        Returns:
            The replica's part of the metric sums, and of loss, gradient_norm, learning_rate and not_finite; the sums
            over all replicas are those of the step.
        """

        def gradients_of(
            features: Features, denominators: Mapping[str, tf.Tensor]
        ) -> tuple[tf.Tensor, Sums, Gradients]:
            loss, sums, gradients = backward(features, denominators, step, replica_number())
            pairs = zip(self.objective.variables, gradients, strict=True)
            return loss, sums, {name: gradient for name, gradient in pairs if gradient is not None}

        replicas = _Replicas(self.distribution.replicas)
        update = compute_update(self.objective, self.config, features, step, gradients_of, replicas)

        def update_variables(update_each: Callable[..., None], *tensors: Any) -> None:
            is_finite, *scalars = tensors[:4]
            for name, gradient in zip(update.gradients, tensors[4:], strict=True):
                slots = [slot.value for slot in self.optimizer.slots_of(name)]
                change = functools.partial(self._update, name, len(slots))
                arguments = (*slots, is_finite, gradient, *scalars)
                update_each(self.objective.variables[name].value, change, arguments)

        scalars = [update.is_finite, update.factor, update.rate, step]
        update_together(update_variables, [*scalars, *update.gradients.values()])
        return update.sums

    def _updated(
        self, name: str, state: VariableState, gradient: Any, factor: Any, rate: Any, step: Any
    ) -> VariableState:
        """Return the state of a variable after a step whose gradients are scaled by a factor."""
        return self.optimizer.update(name, state, gradient * factor, rate, step)

    def _assign_updated(self, name: str, handles: list[Any], gradient: Any, *scalars: Any) -> None:
        """Assign a variable and its slots, given by their resource handles, the values of `_updated`."""
        weight, *slots = (
            tf.ensure_shape(tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32), gradient.shape)
            for handle in handles
        )
        updated = self._updated(name, VariableState(weight, tuple(slots)), gradient, *scalars)
        for handle, value in zip(handles, [updated.weight, *updated.slots], strict=True):
            tf.raw_ops.AssignVariableOp(resource=handle, value=value)

    def _update(self, name: str, slot_count: int, weight: Any, *slots_and_arguments: Any) -> None:
        """Update a variable and its slots on one device; a variable without a gradient stays unchanged."""
        slots, (is_finite, *arguments) = slots_and_arguments[:slot_count], slots_and_arguments[slot_count:]

        def update() -> tf.Tensor:
            if self.distribution.is_tpu:
                # The whole step is one program of XLA.
                state = VariableState(weight.read_value(), tuple(slot.read_value() for slot in slots))
                updated = self._updated(name, state, *arguments)
                for variable, value in zip((weight, *slots), (updated.weight, *updated.slots), strict=True):
                    variable.assign(value)
            else:
                # Handles, because with several devices, variables as arguments of a function that is compiled once
                # for several variables are always the first of these.
                handles = [variable.handle for variable in (weight, *slots)]
                self._compiled_update(self.optimizer.first_alike(name), handles, *arguments)
            return tf.constant(True)

        if self.config.on_nonfinite == "skip":
            tf.cond(is_finite, update, lambda: tf.constant(False))
        else:
            update()

    def _gradients(
        self, features: Features, denominators: Mapping[str, tf.Tensor], step: tf.Tensor, replica: tf.Tensor
    ) -> tuple[tf.Tensor, Sums, list[tf.Tensor | None]]:
        """Return loss, metric sums and gradients of a replica's part of the batch, computed by micro-batches."""
        variables = [variable.value for variable in self.objective.variables.values()]
        count = self.config.gradient_accumulation_steps

        def micro_step(index: tf.Tensor | int, batch: Features) -> tuple[tf.Tensor, Sums, list[tf.Tensor | None]]:
            with tf.GradientTape() as tape:
                sums = self.objective.sums(batch, dropout_seed(self.config.seed, step, index, replica))
                loss = loss_of(sums, denominators)
            gradients = tape.gradient(loss, variables)
            # With a dynamic sequence length, the static shape of the gradient of the position embeddings is unknown.
            dense = [
                None if gradient is None else tf.ensure_shape(tf.convert_to_tensor(gradient), variable.shape)
                for gradient, variable in zip(gradients, variables, strict=True)
            ]
            return loss, sums, dense

        if count == 1:
            return micro_step(0, features)
        # [B, ...] to [count, B / count, ...]
        micro_batches = {
            name: tf.reshape(values, [count, values.shape[0] // count, *_shape(values)[1:]])
            for name, values in features.items()
        }
        spec = {name: tf.TensorSpec(values.shape[1:], values.dtype) for name, values in micro_batches.items()}
        # The structure of the results must be known before the loop in the graph.
        structure = tf.function(micro_step).get_concrete_function(tf.constant(0), spec).structured_outputs
        zeros = [tf.zeros(output.shape, output.dtype) for output in _leaves(structure)]

        def add(index: tf.Tensor, *totals: tf.Tensor) -> tuple[tf.Tensor, ...]:
            batch = {name: values[index] for name, values in micro_batches.items()}
            return index + 1, *map(tf.add, totals, _leaves(micro_step(index, batch)))

        _, *totals = tf.while_loop(lambda index, *_: index < count, add, (0, *zeros), parallel_iterations=1)
        remaining = iter(totals)
        flat = [None if output is None else next(remaining) for output in tf.nest.flatten(structure)]
        return tf.nest.pack_sequence_as(structure, flat)

    @contextlib.contextmanager
    def make_steps(self, make: MakeBatches) -> Iterator[RunSteps]:
        """Return a context with a function that runs the next steps on the batches of `make`, in order."""
        with self.distribution.batches(make) as batches:
            iterator = iter(batches)
            begin = time.perf_counter()
            several_steps, zeros = self._several_steps(iterator)
            seconds_tracing = time.perf_counter() - begin
            is_compiled = False

            def run(first_step: int, count: int, stop_vote: int) -> StepResults:
                nonlocal is_compiled
                totals, done, seconds_compiling = zeros, 0, 0.0
                if not is_compiled:
                    # The first call compiles; its single step is counted as compilation too, and added to the others.
                    begin = time.perf_counter()
                    totals, votes = several_steps(iterator, totals, *_scalars(first_step, 1, stop_vote))
                    waiting = float(totals.seconds_waiting.numpy())
                    seconds_compiling = seconds_tracing + time.perf_counter() - begin - waiting
                    is_compiled, done = True, 1
                if done < count:
                    scalars = _scalars(first_step + done, count - done, stop_vote)
                    totals, votes = several_steps(iterator, totals, *scalars)
                return StepResults(
                    to_host(totals.sums),
                    int(totals.first_nonfinite.numpy()),
                    float(totals.seconds_waiting.numpy()),
                    seconds_compiling,
                    int(votes.numpy()),
                )

            yield run

    def _several_steps(self, iterator: Any) -> tuple[Callable[..., tuple[_Totals, tf.Tensor]], _Totals]:
        """Return a compiled function that runs several steps, and the totals before the first step.

        Args:
            iterator: iterator of `Distribution.batches`.

        Returns:
            A function of the iterator, the totals of earlier steps, the first step and the number of steps, int64, and
            the stop vote of this process, int32. It returns the totals and the number of stop votes.
        """
        distribution = self.distribution
        # TPU programs are always compiled with XLA.
        xla = uses_xla(self.config, distribution) and not distribution.is_tpu
        backward = tf.function(self._gradients, autograph=False, jit_compile=xla or None)

        @tf.function(autograph=False)
        def one_step(iterator: Any, step: tf.Tensor) -> tuple[Sums, tf.Tensor]:
            begin = _clock()
            with tf.control_dependencies([begin]):
                batch = next(iterator)
            with tf.control_dependencies(tf.nest.flatten(distribution.first(batch))):
                waited = _clock() - begin

            def on_replica(step: tf.Tensor, features: Features) -> Sums:
                # A single thread would otherwise read the clock after the step. Hosts of TPUs have many threads, and
                # the step is a program on another device.
                with tf.control_dependencies([] if distribution.is_tpu else [waited]):
                    features = tf.nest.map_structure(tf.identity, features)
                return self.step(backward, step, features)

            return distribution.sum(distribution.run(on_replica, step, batch)), waited

        zero = tf.constant(0, tf.int64)
        structure, _ = one_step.get_concrete_function(iterator, zero).structured_outputs

        zeros = _Totals(
            tf.nest.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), structure),
            tf.constant(-1, tf.int64),
            tf.constant(0.0, tf.float64),
        )

        @tf.function
        def several_steps(
            iterator: Any, totals: _Totals, first_step: tf.Tensor, count: tf.Tensor, stop_vote: tf.Tensor
        ) -> tuple[_Totals, tf.Tensor]:
            sums, first_bad, seconds = totals
            for index in tf.range(count):
                added, waited = one_step(iterator, first_step + index)
                bad = added[NOT_FINITE][0] > 0
                first_bad = tf.where((first_bad < 0) & bad, first_step + index, first_bad)
                sums = tf.nest.map_structure(tf.add, sums, added)
                seconds += waited
            # All machines must leave the loop at the same step, after a signal to any of them.
            stop_votes = distribution.sum(distribution.run(lambda: tf.identity(stop_vote)))
            return _Totals(sums, first_bad, seconds), stop_votes

        return several_steps, zeros


def _scalars(first_step: int, count: int, stop_vote: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the numbers of a call of `several_steps` as tensors, which do not compile it again."""
    return tf.constant(first_step, tf.int64), tf.constant(count, tf.int64), tf.constant(stop_vote)


def _clock() -> tf.Tensor:
    """Return the seconds of a monotonic clock, float64 scalar; tf.timestamp is not allowed in deterministic runs."""
    return tf.ensure_shape(tf.numpy_function(time.perf_counter, [], tf.float64), [])


def _leaves(structure: Any) -> list[Any]:
    """Return the leaves of a structure that are not None."""
    return [leaf for leaf in tf.nest.flatten(structure) if leaf is not None]


def _shape(values: tf.Tensor) -> list[Any]:
    """Return the shape, with numbers for the known dimensions."""
    dynamic = tf.shape(values)
    return [dynamic[axis] if size is None else size for axis, size in enumerate(values.shape)]
