"""One training loop and one evaluation for every task.

A task is a function from features to a loss and metrics; the loop knows nothing else of it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainers import checkpointing
from trainers.errors import TrainingError
from trainers.interruption import noticed
from trainers.optimization import AdamWeightDecay, learning_rate_at
from trainers.progress import Progress, say, steps_a_report

Features = dict[str, tf.Tensor]
# Numerator and denominator of each metric: summed over batches, divided once.
Sums = dict[str, tuple[tf.Tensor, tf.Tensor]]
Ratios = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Task:
    """What is trained.

    Attributes:
        variables: trained variables by TF1 name.
        loss: from (features, dropout seed int32 [2] or None for evaluation) to the scalar to descend and the sums of
            each metric, float32 scalars.
        vocab_size: rows that checkpoints hold of variables with a row for every piece; None if none is padded.
    """

    variables: Mapping[str, tf.Variable]
    loss: Callable[[Features, tf.Tensor | None], tuple[tf.Tensor, Sums]]
    vocab_size: int | None = None


@dataclass(frozen=True)
class Schedule:
    """How long and how fast.

    Attributes:
        num_train_steps: updates in all.
        num_warmup_steps: updates of warm-up among them.
        learning_rate: the rate that warm-up climbs to.
        save_checkpoints_steps: updates between checkpoints.
        iterations_per_loop: updates made inside the graph between two looks at the metrics.
        batch_size: examples an update, for sequences/s.
        seed: seed of dropout, below 2**31.
    """

    num_train_steps: int
    num_warmup_steps: int
    learning_rate: float
    save_checkpoints_steps: int
    iterations_per_loop: int
    batch_size: int
    seed: int


def dropout_seed(seed: int, step: tf.Tensor, micro_step: int = 0, replica: int = 0) -> tf.Tensor:
    """The dropout seed of one forward pass, int32 [2]: a pure function of its arguments.

    The second element is 0, for the model to count its call sites in.
    """
    folded = tf.constant([seed, 0], tf.int32)
    # Folding in leaves the number itself in the second element, so a last 0 is folded in to clear it.
    for number in (step, micro_step, replica, 0):
        folded = tf.random.experimental.stateless_fold_in(folded, tf.cast(number, tf.int32))
    return folded


class Trainer:
    """A task with its optimizer and step counter: all that a checkpoint holds.

    Args:
        task: what is trained.
        schedule: how long and how fast.
    """

    def __init__(self, task: Task, schedule: Schedule) -> None:
        self.task = task
        self.schedule = schedule
        self.optimizer = AdamWeightDecay(task.variables)
        self.global_step = tf.Variable(0, dtype=tf.int64, trainable=False)

    @property
    def saved_variables(self) -> dict[str, tf.Variable]:
        """Weights, optimizer slots and step, by the names they are saved under."""
        return {**self.task.variables, **self.optimizer.slots, checkpointing.GLOBAL_STEP: self.global_step}

    def step(self, features: Features) -> Sums:
        """Makes one update, in the graph.

        Returns:
            The sums of the task's metrics and of loss, gradient_norm and learning_rate.
        """
        step = self.global_step.read_value()
        with tf.GradientTape() as tape:
            loss, sums = self.task.loss(features, dropout_seed(self.schedule.seed, step))
        gradients = tape.gradient(loss, list(self.optimizer.variables.values()))
        schedule = self.schedule
        rate = learning_rate_at(step, schedule.learning_rate, schedule.num_train_steps, schedule.num_warmup_steps)
        norm = self.optimizer.apply(gradients, rate)
        self.global_step.assign_add(1)
        one = tf.constant(1.0)
        return {"loss": (loss, one), **sums, "gradient_norm": (norm, one), "learning_rate": (rate, one)}

    def make_loop(self, element_spec: Any) -> Callable[[Any, tf.Tensor], tuple[Sums, tf.Tensor]]:
        """Compiles several updates into one call.

        Args:
            element_spec: of the dataset of batches.

        Returns:
            A function of (iterator, number of updates) that returns the sums over them, and the first step whose
            loss or gradient was not finite, -1 if none.
        """
        one_step = tf.function(self.step)
        # The structure of the sums, which a loop in the graph must know before its first round.
        structure = one_step.get_concrete_function(element_spec).structured_outputs

        @tf.function
        def several_steps(iterator: Any, count: tf.Tensor) -> tuple[Sums, tf.Tensor]:
            sums = tf.nest.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), structure)
            first_bad = tf.constant(-1, tf.int64)
            for _ in tf.range(count):
                step = self.global_step.read_value()
                added = one_step(next(iterator))
                finite = tf.math.is_finite(added["loss"][0]) & tf.math.is_finite(added["gradient_norm"][0])
                first_bad = tf.where((first_bad < 0) & ~finite, step, first_bad)
                sums = tf.nest.map_structure(tf.add, sums, added)
            return sums, first_bad

        return several_steps


def train(
    trainer: Trainer,
    batches: tf.data.Dataset,
    checkpoint_directory: Path,
    log_directory: Path,
    shown_metrics: Mapping[str, str],
) -> int | None:
    """Trains from the trainer's step to num_train_steps, saving on the way and at the end.

    Args:
        trainer: new or restored.
        batches: without end, beginning with the batch of the trainer's step.
        checkpoint_directory: where checkpoints go.
        log_directory: where TensorBoard's event files go.
        shown_metrics: metrics of the progress line, in its order, with the words for them.

    Returns:
        None when done, or the number of the signal that stopped it, after saving.

    Raises:
        TrainingError: the loss or the gradient became NaN or infinite, or a checkpoint cannot be written.
    """
    schedule = trainer.schedule
    step = int(trainer.global_step.numpy())
    loop = trainer.make_loop(batches.element_spec)
    iterator = iter(batches)
    report_steps = steps_a_report(schedule.num_train_steps)
    # Metrics are shown over the steps of one report: those of a single step jump.
    window = max(1, report_steps // schedule.iterations_per_loop)
    recent: deque[Ratios] = deque(maxlen=window)
    with (
        closing(tf.summary.create_file_writer(str(log_directory))) as writer,
        noticed() as interruption,
        Progress(schedule.num_train_steps, schedule.batch_size, window) as progress,
    ):
        while step < schedule.num_train_steps:
            next_save = (step // schedule.save_checkpoints_steps + 1) * schedule.save_checkpoints_steps
            count = min(schedule.iterations_per_loop, next_save - step, schedule.num_train_steps - step)
            sums, first_bad = loop(iterator, tf.constant(count))
            if first_bad.numpy() >= 0:
                raise _not_finite(int(first_bad.numpy()), checkpoint_directory)
            recent.append(_on_host(sums))
            metrics = divided(recent)
            report = step // report_steps < (step + count) // report_steps or step + count == schedule.num_train_steps
            step += count
            rate = progress.update(step, {words: metrics[name] for name, words in shown_metrics.items()}, report)
            if report:
                _log(writer, step, metrics if rate is None else {**metrics, "sequences_per_second": rate})
            stop = interruption.signal_number is not None
            if step == next_save or step == schedule.num_train_steps or stop:
                saved = checkpointing.save(checkpoint_directory, step, trainer.saved_variables, trainer.task.vocab_size)
                checkpointing.remove_old(checkpoint_directory, checkpointing.Keeping(), best_step=None)
                if stop and step < schedule.num_train_steps:
                    say(f"Stopped: {saved.prefix} holds the state after step {step}; the same command goes on from it")
                    return interruption.signal_number
    return None


def evaluate(task: Task, batches: Iterable[Features]) -> dict[str, float]:
    """The task's metrics over all batches: numerators and denominators summed in float64, then divided once.

    Examples therefore weigh the same whatever batch they fall into, the last and smaller one too.
    """
    step = tf.function(lambda features: task.loss(features, None)[1])
    return divided(_on_host(step(features)) for features in batches)


def divided(batches: Iterable[Ratios]) -> dict[str, float]:
    """Adds the sums of several batches and divides; a metric with nothing to count is 0."""
    totals: dict[str, tuple[float, float]] = {}
    for sums in batches:
        for name, (numerator, denominator) in sums.items():
            top, bottom = totals.get(name, (0.0, 0.0))
            totals[name] = (top + numerator, bottom + denominator)
    return {name: top / bottom if bottom else 0.0 for name, (top, bottom) in totals.items()}


def _on_host(sums: Sums) -> Ratios:
    return {name: (float(numerator), float(denominator)) for name, (numerator, denominator) in sums.items()}


def _log(writer: Any, step: int, metrics: Mapping[str, float]) -> None:
    with writer.as_default(step=step):
        for name, value in metrics.items():
            tf.summary.scalar(name, value)


def _not_finite(step: int, checkpoint_directory: Path) -> TrainingError:
    whole = checkpointing.checkpoints(checkpoint_directory)
    last = f"the last good checkpoint is {whole[-1].prefix}" if whole else "no checkpoint had been saved"
    return TrainingError(
        f"loss or gradient is not finite at step {step}; {last}; start again with a lower --learning_rate or a "
        "longer --num_warmup_steps"
    )
