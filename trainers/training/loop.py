"""Define the training loop, which is the same for every objective and all devices.

An objective is a function from features to metric sums, some of which are the terms of its loss.
"""

import functools
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from beambert.trainers.backends.backend import Distribution, StepResults, Trainer
from beambert.trainers.checkpoints import checkpoint_manager
from beambert.trainers.checkpoints.checkpoint_manager import Checkpoint, best, record_if_improved
from beambert.trainers.data.pipeline import Batches, InputShard
from beambert.trainers.errors import DivergenceError, TrainingError
from beambert.trainers.metrics.chance_levels import PRETRAINING_COUNTS, is_level
from beambert.trainers.monitoring.throughput import StepCost
from beambert.trainers.monitoring.training_monitor import TrainingMonitor
from beambert.trainers.monitoring.training_progress import print_status
from beambert.trainers.objective import NOT_FINITE, Objective
from beambert.trainers.optimization.schedule import Stage, stage_at, stages_before
from beambert.trainers.options import TrainingOptions
from beambert.trainers.training.preemption import preemption_signals
from beambert.trainers.training.several_processes import decided_by_chief

# Number of consecutive skipped steps after which training is considered diverged and stops.
MOST_SKIPPED_IN_A_ROW = 100

Evaluate = Callable[[Stage], tuple[Mapping[str, float], Sequence[str]]]


class TrainData(NamedTuple):
    """Training data with the objective to train on it.

    Attributes:
        objective: the objective; all data of a run train the same variables.
        batches: function of a stage, a first step and an input shard; returns the batches from that step to the end of
            the stage.
        work: function of a stage; returns the cost of one of its steps.
        num_replaced_before: function of a step; returns the number of corrupt examples replaced before that step.
    """

    objective: Objective
    batches: Callable[[Stage, int, InputShard], Batches]
    work: Callable[[Stage], StepCost]
    num_replaced_before: Callable[[int], int] = lambda _step: 0


def train(
    trainer: Trainer,
    step: int,
    stages: Sequence[Stage],
    sources: Sequence[TrainData],
    checkpoint_directory: Path,
    monitor: TrainingMonitor,
    evaluate: Evaluate | None = None,
    patience: int = 0,
) -> int | None:
    """Train from a step to the end of the last stage, saving checkpoints in between and at the end.

    The loop leaves the graph at every report, checkpoint and evaluation, so that their steps do not depend on
    `iterations_per_loop`.

    Args:
        trainer: new or restored trainer; its options determine the intervals and the retention of checkpoints.
        step: number of completed steps.
        stages: all stages of training, in order.
        sources: training data, in the order of the data indices of the stages.
        checkpoint_directory: directory of the checkpoints.
        monitor: prints and records metrics; the caller has entered its context.
        evaluate: function of a stage; returns the metrics of the current model and lines of text to print. None
            disables evaluation. The caller evaluates after the last step.
        patience: number of consecutive evaluations without improvement that ends training; 0 for no early stopping.

    Returns:
        None on completion or early stopping; otherwise the number of the signal that stopped training, after a
        checkpoint was saved. A signal in the last steps is returned too: what follows training must not run.

    Raises:
        DivergenceError: the loss or the gradient is NaN or infinite.
        TrainingError: a checkpoint cannot be written, or an evaluation lacks the metric of the configuration.
    """
    config = trainer.config
    run = _Run(trainer, stages, checkpoint_directory, monitor, evaluate, patience)
    steps_per_call = iterations_per_loop(config, trainer.distribution)
    if run.evaluation_due(step):
        # A run stopped at this step may lack its evaluation; repeating an evaluation gives the same metrics.
        run.evaluate_again(step, stage_at(stages, step - 1))
        if run.out_of_patience(step):
            return None
    with preemption_signals() as interruption:
        while step < run.num_train_steps:
            stage = stage_at(stages, step)
            source = sources[stage.data]
            trainer.objective = source.objective
            monitor.begin_stage(source.work(stage), stage.end_step, _flops_after(stage, stages, sources))
            with trainer.make_steps(functools.partial(source.batches, stage, step)) as run_steps:
                while step < stage.end_step:
                    end = min(_next_stop(step, config, monitor, steps_per_call), stage.end_step)
                    results = run_steps(step, end - step, int(interruption.signal_number is not None))
                    metrics, skipped = run.finite_metrics(results, step, end)
                    step = end
                    replaced = source.num_replaced_before(step)
                    monitor.update(step, metrics, results.seconds_waiting, skipped, replaced, results.seconds_compiling)
                    stop = run.is_preempted(results, interruption.signal_number)
                    evaluation = run.evaluate(step, stage) if run.evaluation_due(step) and not stop else None
                    if stop or evaluation is not None or run.checkpoint_due(step):
                        prefix = run.save(step, evaluation)
                    if evaluation is not None and run.out_of_patience(step):
                        print_status(
                            f"Stopped early at step {step}: no better {config.best_metric} in {patience} evaluations"
                        )
                        return run.late_signal(step, interruption.signal_number)
                    if stop:
                        _print_stopped(step, prefix)
                        return interruption.signal_number or signal.SIGTERM
        return run.late_signal(step, interruption.signal_number)


@dataclass
class _Run:
    """Apply the policies of a run: non-finite values, preemption, evaluation, checkpoints, early stopping."""

    trainer: Trainer
    stages: Sequence[Stage]
    checkpoint_directory: Path
    monitor: TrainingMonitor
    evaluate_model: Evaluate | None
    patience: int
    skipped_in_a_row: int = 0

    @property
    def config(self) -> TrainingOptions:
        """The options of the trainer."""
        return self.trainer.config

    @property
    def num_train_steps(self) -> int:
        """The last step of training."""
        return self.stages[-1].end_step

    def finite_metrics(self, results: StepResults, step: int, end: int) -> tuple[dict[str, tuple[float, float]], int]:
        """Return the metric sums of the steps from `step` to `end`, and the number of skipped steps.

        Args:
            results: results of the steps.
            step, end: first step, and the step after the last one.

        Raises:
            DivergenceError: a step is not finite and such steps are not skipped, or too many were skipped in a row.
        """
        if results.first_nonfinite >= 0 and self.config.on_nonfinite == "stop":
            raise _not_finite(results.first_nonfinite, self.checkpoint_directory)
        metrics = dict(results.sums)
        skipped, made = metrics.pop(NOT_FINITE)
        self.skipped_in_a_row = self.skipped_in_a_row + end - step if skipped == made else 0
        if self.skipped_in_a_row >= MOST_SKIPPED_IN_A_ROW:
            raise _not_finite(end - self.skipped_in_a_row, self.checkpoint_directory)
        return metrics, round(skipped)

    def is_preempted(self, results: StepResults, signal_number: int | None) -> bool:
        """Return whether to stop. Several machines stop by vote, so that all leave the loop at the same step."""
        is_single = not self.trainer.distribution.several_processes
        return results.stop_votes > 0 or (is_single and signal_number is not None)

    def late_signal(self, step: int, signal_number: int | None) -> int | None:
        """Return the signal that this process or another one received during the last steps; all must call this."""
        distribution = self.trainer.distribution
        if distribution.several_processes:
            votes = distribution.gather_from_processes(np.array([signal_number is not None], np.int32))
            signal_number = (signal_number or signal.SIGTERM) if votes.any() else None
        if signal_number is None:
            return None
        _print_stopped(step, Checkpoint.of_step(self.checkpoint_directory, step).prefix)
        return signal_number

    def evaluation_due(self, step: int) -> bool:
        """Return whether to evaluate after a step; the caller evaluates after the last one."""
        every = self.config.eval_steps if self.evaluate_model else 0
        return every > 0 and step % every == 0 and 0 < step < self.num_train_steps

    def evaluate(self, step: int, stage: Stage) -> Mapping[str, float]:
        """Evaluate the model, print the metrics and return them."""
        assert self.evaluate_model is not None
        with self.monitor.pause("evaluation_seconds"):
            metrics, lines = self.evaluate_model(stage)
        self.monitor.record_evaluation(step, metrics, lines)
        return metrics

    def evaluate_again(self, step: int, stage: Stage) -> None:
        """Evaluate a restored model at the step of its checkpoint, and record the result."""
        metrics = self.evaluate(step, stage)
        if self.trainer.distribution.is_chief:
            record_evaluation(self.checkpoint_directory, step, self.config, metrics, self.stages)
        self.trainer.distribution.barrier()

    def out_of_patience(self, step: int) -> bool:
        """Return whether early stopping applies: `patience` evaluations without improvement."""

        def is_out() -> bool:
            record = best(self.checkpoint_directory)
            return record is not None and step - record.step >= self.patience * self.config.eval_steps

        return self.patience > 0 and decided_by_chief(self.trainer.distribution, is_out)

    def checkpoint_due(self, step: int) -> bool:
        """Return whether to save after a step."""
        config = self.config
        return step % config.save_checkpoints_steps == 0 or step in (self.num_train_steps, config.decay_start)

    def save(self, step: int, evaluation: Mapping[str, float] | None) -> Path:
        """Save a checkpoint, or wait for the chief to save it, and return its path without `.index`."""
        trainer, directory = self.trainer, self.checkpoint_directory
        with self.monitor.pause("checkpoint_seconds"):
            # The chief has only parts of values that are sharded over processes.
            values = trainer.checkpoint_values()
            if trainer.distribution.is_chief:
                state = self.monitor.state()
                checkpoint_manager.save(directory, step, values, trainer.objective.vocab_size, state)
                if evaluation is not None:
                    record_evaluation(directory, step, self.config, evaluation, self.stages)
                else:
                    _remove_old(directory, self.config)
            trainer.distribution.barrier()
        return Checkpoint.of_step(directory, step).prefix


def record_evaluation(
    checkpoint_directory: Path,
    step: int,
    config: TrainingOptions,
    metrics: Mapping[str, float],
    stages: Sequence[Stage],
) -> None:
    """Record the checkpoint of a step as the best if it improved, and apply the checkpoint retention.

    Evaluations on the data of an earlier stage are not compared with this one.

    Raises:
        TrainingError: the evaluation has no such metric, or the files cannot be written or removed.
    """
    if config.best_metric is None or config.best_metric not in metrics:
        raise TrainingError(
            f"invalid --best_metric {config.best_metric}: not a metric of the evaluation; choose from "
            f"{', '.join(sorted(name for name in metrics if not is_level(name) and name not in PRETRAINING_COUNTS))}"
        )
    data = stages_before(stages, step)[-1].data
    data_step = min(stage.first_step for stage in stages if stage.data == data)
    record_if_improved(checkpoint_directory, step, config.best_metric, metrics[config.best_metric], data_step)
    _remove_old(checkpoint_directory, config)


def _print_stopped(step: int, prefix: Path) -> None:
    print_status(f"Stopped at step {step}: saved {prefix}; run the same command again to resume")


def _remove_old(directory: Path, config: TrainingOptions) -> None:
    record = best(directory)
    checkpoint_manager.remove_old(directory, config, record.step if record else None)


def _flops_after(stage: Stage, stages: Sequence[Stage], sources: Sequence[TrainData]) -> float:
    """Return the floating-point operations of all later stages."""
    later = [other for other in stages if other.first_step >= stage.end_step]
    return sum(sources[other.data].work(other).flops * (other.end_step - other.first_step) for other in later)


def iterations_per_loop(config: TrainingOptions, distribution: Distribution) -> int:
    """Return --iterations_per_loop, or its default for the devices."""
    return config.iterations_per_loop or (100 if distribution.is_accelerated else 1)


def _next_stop(step: int, config: TrainingOptions, monitor: TrainingMonitor, steps_per_call: int) -> int:
    """Return the next step at which a report, checkpoint or evaluation is due, or a call of several steps ends."""
    periods = (steps_per_call, config.save_checkpoints_steps, config.eval_steps)
    ends = [(step // period + 1) * period for period in periods if period]
    kept = config.decay_start
    if kept is not None and kept > step:
        ends.append(kept)
    return min(monitor.next_report(step), *ends)


def _not_finite(step: int, checkpoint_directory: Path) -> DivergenceError:
    saved = checkpoint_manager.checkpoints(checkpoint_directory)
    last = f"the last checkpoint is {saved[-1].prefix}" if saved else "no checkpoint was saved"
    return DivergenceError(
        f"loss or gradient is not finite at step {step}; {last}; train again with a lower --learning_rate or a longer "
        "warm-up"
    )
