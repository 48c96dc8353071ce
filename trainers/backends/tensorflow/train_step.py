"""Run training steps on devices: compute, sum, clip and apply gradients."""

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from trainers.backends.tensorflow.distribution import Distribution, replica_number, sum_over_replicas, update_together
from trainers.checkpoints import checkpoint_manager
from trainers.objective import Features, Objective, Sums
from trainers.optimization.optimizer_options import OptimizerOptions
from trainers.optimization.optimizers import Optimizer, clip_by_global_norm, learning_rate_at

# Metric that counts steps with a non-finite loss or gradient.
NOT_FINITE = "not_finite"


@dataclass(frozen=True)
class TrainConfig:
    """The configuration of training steps.

    Attributes:
        num_train_steps: number of steps.
        num_warmup_steps: number of warm-up steps among them.
        learning_rate: peak learning rate.
        seed: dropout seed, below 2**31.
        lr_decay_power: power of the polynomial decay to 0; 1 is linear.
        gradient_accumulation_steps: number of micro-batches per replica and step, computed in sequence.
        clip_per_replica: whether gradients are clipped on each replica before the sum, with a loss averaged over the
            replica's part of the batch, as the released code does on TPUs; otherwise the sum is clipped.
        skip_nonfinite: whether to skip a step with a non-finite loss or gradient instead of stopping.
        xla: whether to compile the forward and backward pass with XLA.
        optimizer: optimizer and its hyperparameters.
    """

    num_train_steps: int
    num_warmup_steps: int
    learning_rate: float
    seed: int
    lr_decay_power: float = 1.0
    gradient_accumulation_steps: int = 1
    clip_per_replica: bool = False
    skip_nonfinite: bool = False
    xla: bool = False
    optimizer: OptimizerOptions = field(default_factory=OptimizerOptions)


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


class Trainer:
    """An objective with its optimizer and step counter, the content of a checkpoint.

    Args:
        task: the objective; its variables must be created in the scope of `distribution`. Between two calls of
            `make_loop` it may be replaced by another objective of the same variables.
        settings: configuration of the training steps.
        distribution: the devices; None for a single device.
    """

    def __init__(self, task: Objective, settings: TrainConfig, distribution: Distribution | None = None) -> None:
        self.task = task
        self.settings = settings
        self.distribution = distribution or Distribution()
        with self.distribution.scope():
            self.optimizer = Optimizer(task.variables, settings.optimizer, task.vocab_size)
            self.global_step = tf.Variable(0, dtype=tf.int64, trainable=False)

    @property
    def saved_variables(self) -> dict[str, tf.Variable]:
        """Return weights, optimizer slots and step counter, by their names in checkpoints."""
        return {
            **self.task.frozen,
            **self.task.variables,
            **self.optimizer.slots,
            checkpoint_manager.GLOBAL_STEP: self.global_step,
        }

    def step(self, backward: Callable[..., Any], features: Features) -> Sums:
        """Run one step; call on every replica (`Distribution.run`), in a graph.

        Args:
            backward: the compiled `_gradients`.
            features: this replica's part of the batch, [batch_size / replicas, ...].

        Returns:
            The replica's part of the metric sums, and of loss, gradient_norm, learning_rate and not_finite; the sums
            over all replicas are those of the step.
        """
        settings, replicas = self.settings, self.distribution.replicas
        step = tf.identity(self.global_step)
        local = self.task.weights(features)
        # Loss terms are divided by the weight of the whole batch, so that the step does not depend on how the batch and
        # its masked tokens are distributed over replicas.
        denominators = local if settings.clip_per_replica else sum_over_replicas(local)
        loss, sums, gradients = backward(features, denominators, step, replica_number())
        if settings.clip_per_replica:
            gradients, _ = clip_by_global_norm(gradients, settings.optimizer.clip_norm)
        present = [gradient for gradient in gradients if gradient is not None]
        *present, loss = sum_over_replicas([*present, loss])
        if settings.clip_per_replica:
            loss /= replicas
            norm = tf.linalg.global_norm(present)
        else:
            present, norm = clip_by_global_norm(present, settings.optimizer.clip_norm)
        rate = learning_rate_at(
            step, settings.learning_rate, settings.num_train_steps, settings.num_warmup_steps, settings.lr_decay_power
        )
        finite = tf.math.is_finite(loss) & tf.math.is_finite(norm)

        def update(update_each: Callable[..., None], rate: Any, step: Any, finite: Any, *present: Any) -> None:
            remaining = iter(present)
            dense = [None if gradient is None else next(remaining) for gradient in gradients]
            self.optimizer.apply(dense, rate, step, finite if settings.skip_nonfinite else None, update_each)
            update_each(self.global_step, lambda copy: copy.assign_add(1), ())

        update_together(update, [rate, step, finite, *present])
        part = tf.constant(1.0 / replicas)
        step_metrics = {"loss": loss, "gradient_norm": norm, "learning_rate": rate}
        if settings.skip_nonfinite:
            # The values of a skipped step would make every mean infinite.
            sums = {name: (tf.where(finite, n, 0.0), tf.where(finite, d, 0.0)) for name, (n, d) in sums.items()}
            step_metrics = {name: tf.where(finite, value, 0.0) for name, value in step_metrics.items()}
            finite_part = tf.where(finite, part, 0.0)
        else:
            finite_part = part
        skipped = part * tf.cast(~finite, tf.float32)
        return {
            **{name: (value * part, finite_part) for name, value in step_metrics.items()},
            **sums,
            NOT_FINITE: (skipped, part),
        }

    def _gradients(
        self, features: Features, denominators: Mapping[str, tf.Tensor], step: tf.Tensor, replica: tf.Tensor
    ) -> tuple[tf.Tensor, Sums, list[tf.Tensor | None]]:
        """Return loss, metric sums and gradients of a replica's part of the batch, computed by micro-batches."""
        variables = list(self.task.variables.values())
        count = self.settings.gradient_accumulation_steps

        def micro_step(index: tf.Tensor | int, batch: Features) -> tuple[tf.Tensor, Sums, list[tf.Tensor | None]]:
            with tf.GradientTape() as tape:
                sums = self.task.sums(batch, dropout_seed(self.settings.seed, step, index, replica))
                loss = tf.add_n([tf.math.divide_no_nan(sums[name][0], weight) for name, weight in denominators.items()])
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

    def make_loop(self, iterator: Any) -> Callable[..., tuple[Sums, tf.Tensor, tf.Tensor, tf.Tensor]]:
        """Return a compiled function that runs several steps.

        Args:
            iterator: iterator of `Distribution.batches`.

        Returns:
            A function of the iterator, the first step and the number of steps, int64, and the stop vote of this
            process, int32. It returns the metric sums over the steps, the first step with a non-finite loss or gradient
            (-1 if none), the seconds spent waiting for batches, and the number of stop votes.
        """
        distribution = self.distribution
        # TPU programs are always compiled with XLA.
        xla = self.settings.xla and not distribution.is_tpu
        backward = tf.function(self._gradients, autograph=False, jit_compile=xla or None)

        @tf.function(autograph=False)
        def one_step(iterator: Any) -> tuple[Sums, tf.Tensor]:
            begin = _clock()
            with tf.control_dependencies([begin]):
                batch = next(iterator)
            with tf.control_dependencies(tf.nest.flatten(distribution.first(batch))):
                waited = _clock() - begin
            return distribution.sum(distribution.run(functools.partial(self.step, backward), batch)), waited

        structure, _ = one_step.get_concrete_function(iterator).structured_outputs

        @tf.function
        def several_steps(
            iterator: Any, first_step: tf.Tensor, count: tf.Tensor, stop_vote: tf.Tensor
        ) -> tuple[Sums, tf.Tensor, tf.Tensor, tf.Tensor]:
            sums = tf.nest.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), structure)
            first_bad = tf.constant(-1, tf.int64)
            seconds = tf.constant(0.0, tf.float64)
            for index in tf.range(count):
                added, waited = one_step(iterator)
                bad = added[NOT_FINITE][0] > 0
                first_bad = tf.where((first_bad < 0) & bad, first_step + index, first_bad)
                sums = tf.nest.map_structure(tf.add, sums, added)
                seconds += waited
            # All machines must leave the loop at the same step, after a signal to any of them.
            stop_votes = distribution.sum(distribution.run(lambda: tf.identity(stop_vote)))
            return sums, first_bad, seconds, stop_votes

        return several_steps


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
