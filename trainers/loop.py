"""One training loop and one evaluation for every task, on any devices.

A task is a function from features to sums, some of which are the terms of its loss; the loop knows nothing else of it.
"""

import functools
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from trainers import checkpointing
from trainers.best_checkpoint import best, better
from trainers.chance_levels import PRETRAINING_COUNTS, is_level
from trainers.checkpointing import Keeping
from trainers.distribution import Share
from trainers.errors import TrainingError
from trainers.evaluation import on_host
from trainers.interruption import noticed
from trainers.progress import say
from trainers.stages import Stage, stage_at
from trainers.task import Task
from trainers.throughput import Work
from trainers.trainer import NOT_FINITE, Trainer
from trainers.watching import Watch

# Skipped updates in a row after which a run that skips them stops: it has diverged for good.
MOST_SKIPPED_IN_A_ROW = 100


@dataclass(frozen=True)
class Rhythm:
    """When a run looks up from its updates.

    Attributes:
        iterations_per_loop: updates made inside the graph between two looks at the metrics, at most.
        save_checkpoints_steps: updates between checkpoints.
        eval_steps: updates between evaluations, 0 for none.
        keeping: which checkpoints stay.
        best_metric: the metric of evaluations that the best checkpoint is chosen by.
        patience: evaluations in a row without a better one that end the run; 0 to go on to the last update.
    """

    iterations_per_loop: int
    save_checkpoints_steps: int
    eval_steps: int = 0
    keeping: Keeping = field(default_factory=Keeping)
    best_metric: str = "loss"
    patience: int = 0


class Source(NamedTuple):
    """What a run reads, as the loop sees it.

    Attributes:
        task: what is trained on it; of the same variables for every source of a run.
        batches: from a stage, a step of it and the share of an input pipeline to the batches from that step to the
            stage's end.
        work: from a stage to what one of its updates amounts to.
        replaced_before: from a step to how many examples of the updates before it were replaced, being corrupt.
    """

    task: Task
    batches: Callable[[Stage, int, Share], tf.data.Dataset]
    work: Callable[[Stage], Work]
    replaced_before: Callable[[int], int] = lambda _step: 0


def train(
    trainer: Trainer,
    stages: Sequence[Stage],
    sources: Sequence[Source],
    rhythm: Rhythm,
    checkpoint_directory: Path,
    watch: Watch,
    evaluate: Callable[[Stage], tuple[Mapping[str, float], Sequence[str]]] | None = None,
) -> int | None:
    """Trains from the trainer's step to the end of the last stage, saving on the way and at the end.

    Whatever the rhythm, the loop comes back at every report, checkpoint and evaluation, so that their steps are those
    of any other run of the same stages.

    Args:
        trainer: new or restored.
        stages: of the whole run.
        sources: by the numbers that stages have for their data.
        rhythm: when to save and to evaluate.
        checkpoint_directory: where checkpoints go.
        watch: shows and records what happens; entered.
        evaluate: gives the metrics of the model as it is, and lines of text to show, in a stage; None if there is
            nothing to evaluate on. What comes after the last update is the caller's to do.

    Returns:
        None when done or out of patience, or the number of the signal that stopped it, after saving.

    Raises:
        TrainingError: the loss or the gradient became NaN or infinite, or a checkpoint cannot be written.
    """
    distribution = trainer.distribution
    num_train_steps = stages[-1].end_step
    step = int(trainer.global_step.numpy())
    skipped_in_a_row = 0
    # A run that was stopped at this step did not wait for its evaluation; one that did gets the same numbers again.
    if evaluate is not None and _evaluation_due(step, rhythm, num_train_steps):
        with watch.pause():
            metrics, lines = evaluate(stage_at(stages, step - 1))
            watch.evaluated(step, metrics, lines)
            if distribution.is_chief:
                record_evaluation(checkpoint_directory, step, rhythm, metrics)
        distribution.meet()
        if _out_of_patience(step, rhythm, checkpoint_directory):
            return None
    with noticed() as interruption:
        while step < num_train_steps:
            stage = stage_at(stages, step)
            source = sources[stage.data]
            trainer.task = source.task
            iterator = iter(distribution.batches(functools.partial(source.batches, stage, step)))
            loop = trainer.make_loop(iterator)
            later = [other for other in stages if other.first_step >= stage.end_step]
            later_flops = sum(
                sources[other.data].work(other).flops * (other.end_step - other.first_step) for other in later
            )
            watch.begin_stage(source.work(stage), stage.end_step, later_flops)
            while step < stage.end_step:
                end = min(_next_stop(step, rhythm, watch), stage.end_step)
                told_to_stop = tf.constant(int(interruption.signal_number is not None))
                sums, first_bad, waited, wishes = loop(
                    iterator, tf.constant(step, tf.int64), tf.constant(end - step, tf.int64), told_to_stop
                )
                bad_step = int(first_bad.numpy())
                if bad_step >= 0 and not trainer.settings.skip_not_finite:
                    raise _not_finite(bad_step, checkpoint_directory)
                ratios = on_host(sums)
                skipped, made = ratios.pop(NOT_FINITE)
                skipped_in_a_row = skipped_in_a_row + end - step if skipped == made else 0
                if skipped_in_a_row >= MOST_SKIPPED_IN_A_ROW:
                    raise _not_finite(end - skipped_in_a_row, checkpoint_directory)
                step = end
                watch.update(step, ratios, float(waited.numpy()), round(skipped), source.replaced_before(step))
                # Several machines leave the loop together; one need not wait for the next look at the signal.
                wished = int(wishes.numpy()) > 0 or (
                    not distribution.several_processes and interruption.signal_number is not None
                )
                stop = wished and step < num_train_steps
                evaluation = None
                if evaluate is not None and _evaluation_due(step, rhythm, num_train_steps) and not stop:
                    with watch.pause():
                        evaluation, lines = evaluate(stage)
                    watch.evaluated(step, evaluation, lines)
                due = step % rhythm.save_checkpoints_steps == 0 or step == num_train_steps
                if due or stop or evaluation is not None:
                    with watch.pause():
                        prefix = _save(trainer, step, rhythm, checkpoint_directory, watch.state(), evaluation)
                if evaluation is not None and _out_of_patience(step, rhythm, checkpoint_directory):
                    say(f"Ended after step {step}: {rhythm.patience} evaluations without a better {rhythm.best_metric}")
                    return None
                if stop:
                    say(f"Stopped: {prefix} holds the state after step {step}; the same command goes on from it")
                    return interruption.signal_number or signal.SIGTERM
    return None


def record_evaluation(checkpoint_directory: Path, step: int, rhythm: Rhythm, metrics: Mapping[str, float]) -> None:
    """Notes whether the checkpoint of a step is the best so far, and removes those that need not stay.

    Raises:
        TrainingError: the evaluation has no such metric, or the files cannot be written or removed.
    """
    if rhythm.best_metric not in metrics:
        raise TrainingError(
            f"--best_metric {rhythm.best_metric} is not in the evaluation; choose from "
            f"{', '.join(sorted(name for name in metrics if not is_level(name) and name not in PRETRAINING_COUNTS))}"
        )
    better(checkpoint_directory, step, rhythm.best_metric, metrics[rhythm.best_metric])
    _remove_old(checkpoint_directory, rhythm)


def _save(
    trainer: Trainer,
    step: int,
    rhythm: Rhythm,
    directory: Path,
    state: dict[str, Any],
    evaluation: Mapping[str, float] | None,
) -> Path:
    """Saves a checkpoint, or waits for the process that does, and returns its path without `.index`."""
    if trainer.distribution.is_chief:
        checkpointing.save(directory, step, trainer.saved_variables, trainer.task.vocab_size, state)
        if evaluation is not None:
            record_evaluation(directory, step, rhythm, evaluation)
        else:
            _remove_old(directory, rhythm)
    trainer.distribution.meet()
    return directory / f"model.ckpt-{step}"


def _remove_old(directory: Path, rhythm: Rhythm) -> None:
    record = best(directory)
    checkpointing.remove_old(directory, rhythm.keeping, record.step if record else None)


def _next_stop(step: int, rhythm: Rhythm, watch: Watch) -> int:
    """The next step at which a report, checkpoint or evaluation is due, or the longest loop ends."""
    periods = (rhythm.iterations_per_loop, rhythm.save_checkpoints_steps, rhythm.eval_steps)
    return min(watch.next_report(step), *((step // period + 1) * period for period in periods if period))


def _evaluation_due(step: int, rhythm: Rhythm, num_train_steps: int) -> bool:
    """Whether to evaluate after so many updates; what comes after the last one is not the loop's to decide."""
    return rhythm.eval_steps > 0 and step % rhythm.eval_steps == 0 and 0 < step < num_train_steps


def _out_of_patience(step: int, rhythm: Rhythm, directory: Path) -> bool:
    """Whether the evaluation of this step was the last of too many that were no better than the best."""
    record = best(directory) if rhythm.patience else None
    return record is not None and step - record.step >= rhythm.patience * rhythm.eval_steps


def _not_finite(step: int, checkpoint_directory: Path) -> TrainingError:
    whole = checkpointing.checkpoints(checkpoint_directory)
    last = f"the last good checkpoint is {whole[-1].prefix}" if whole else "no checkpoint had been saved"
    return TrainingError(
        f"loss or gradient is not finite at step {step}; {last}; start again with a lower --learning_rate or a "
        "longer --num_warmup_steps"
    )
