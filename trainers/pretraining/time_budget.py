"""Measure the speed of a new pretraining run, and fix the number of training steps for `--max_train_time`.

The measured steps train on the first batches of every stage and are then undone: the run starts from its initial
weights at step 0, so that it equals a run with `--num_train_steps`.
"""

import contextlib
import functools
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from beambert.common.formatting import format_duration
from beambert.trainers.backends.backend import Trainer
from beambert.trainers.checkpoints import checkpoint_manager
from beambert.trainers.checkpoints.checkpoint_manager import Checkpoint
from beambert.trainers.errors import TrainingError
from beambert.trainers.monitoring.training_progress import print_status
from beambert.trainers.optimization.schedule import Stage
from beambert.trainers.pretraining.plan import PretrainingPlan
from beambert.trainers.training.loop import TrainData, iterations_per_loop
from beambert.trainers.training.several_processes import decided_by_chief, restore

# Measured time of all stages together, as a fraction of the time budget, and its maximum per stage in seconds.
_MEASURED_FRACTION, _MOST_MEASURED_SECONDS = 0.02, 60.0
# Most steps per measured call, after which the clock is read again.
_STEPS_PER_CALL = 10
# Part of the remaining time that is planned; the rest covers the report and small variations of speed.
_PLANNED_FRACTION = 0.98
_LARGEST_STEPS = 2**31 - 1
# A hidden directory in the run directory, which no command reads.
_DIRECTORY_NAME = ".speed-measurement"


class StageCost(NamedTuple):
    """The time of a stage in seconds: of a step, and of compiling it."""

    step_seconds: float
    compile_seconds: float


class RunCosts(NamedTuple):
    """The measured times of a run in seconds.

    Attributes:
        stages: cost by data index and batch size.
        checkpoint_seconds: saving a checkpoint.
        evaluation_seconds: an evaluation; 0 for a run without evaluations.
    """

    stages: Mapping[tuple[int, int], StageCost]
    checkpoint_seconds: float
    evaluation_seconds: float

    def of(self, stage: Stage) -> StageCost:
        """Return the cost of a stage.

        Batch sizes at a step depend on the number of steps, so that not all of them are measured. Another one has the
        cost of the next larger one, or the proportional cost of the largest one.
        """
        measured = {size: cost for (data, size), cost in self.stages.items() if data == stage.data}
        size = min((size for size in measured if size >= stage.batch_size), default=max(measured))
        cost = measured[size]
        return cost._replace(step_seconds=cost.step_seconds * max(1.0, stage.batch_size / size))


def run_seconds(stages: Sequence[Stage], costs: RunCosts, save_steps: int, eval_steps: int) -> float:
    """Return the estimated time of a run from its first step to its last evaluation, in seconds.

    Args:
        stages: all stages of training.
        costs: measured times.
        save_steps: steps between checkpoints; the last step has one too.
        eval_steps: steps between evaluations; 0 for none. The last step has one too.
    """
    seconds = 0.0
    for stage in stages:
        cost = costs.of(stage)
        seconds += cost.compile_seconds + cost.step_seconds * (stage.end_step - stage.first_step)
    last = stages[-1].end_step
    # An evaluation saves a checkpoint too, also between those of save_steps.
    evaluations = (last - 1) // eval_steps if eval_steps else 0
    saved = (last - 1) // save_steps + 1 + evaluations
    return seconds + saved * costs.checkpoint_seconds + (evaluations + 1) * costs.evaluation_seconds


def steps_within(seconds: float, seconds_of: Callable[[int], float]) -> int:
    """Return the largest number of steps whose time fits, rounded down to three digits; 0 if none does.

    Args:
        seconds: available time.
        seconds_of: nondecreasing function of the number of steps; returns their time in seconds.
    """
    fits, exceeds = 0, _LARGEST_STEPS
    while exceeds - fits > 1:
        middle = (fits + exceeds) // 2
        if seconds_of(middle) <= seconds:
            fits = middle
        else:
            exceeds = middle
    return fits - fits % 10 ** max(len(str(fits)) - 3, 0)


def with_measured_steps(
    plan: PretrainingPlan,
    trainer: Trainer,
    sources: Sequence[TrainData],
    evaluate: Callable[[Stage], Any] | None,
) -> PretrainingPlan:
    """Measure the speed of a run and return its plan with the final number of steps; the trainer stays unchanged.

    Args:
        plan: plan with a provisional number of steps; all processes must call this.
        trainer: new trainer.
        sources: training data, in the order of the data indices of the stages.
        evaluate: function of a stage that evaluates the current model; None for a run without evaluations.

    Raises:
        TrainingError: the time does not suffice, or only for fewer steps than warm-up or a phase needs.
    """
    budget = plan.config.max_train_time
    assert budget is not None
    flag = f"--max_train_time {format_duration(budget)}"
    print_status(f"Measuring the speed, to fix the number of steps for {flag}")
    with _unchanged(plan, trainer) as checkpoint_seconds:
        costs = RunCosts(
            _stage_costs(plan, trainer, sources, budget, iterations_per_loop(plan.config, trainer.distribution)),
            checkpoint_seconds,
            0.0 if evaluate is None else _seconds(plan.clock, lambda: evaluate(plan.stages[-1])),
        )

    def seconds_of(steps: int) -> float:
        try:
            stages = plan.stages_of(steps)
        except TrainingError:
            # Too few steps for the phases, which `with_steps` reports.
            return 0.0
        return run_seconds(stages, costs, plan.config.save_checkpoints_steps, plan.config.eval_steps)

    def fixed_steps() -> int:
        elapsed = plan.clock() - plan.start
        steps = steps_within(_PLANNED_FRACTION * (budget - elapsed), seconds_of)
        if not steps:
            raise TrainingError(
                f"invalid {flag}: start and measurement took {format_duration(elapsed)}, and compilation, one step, a "
                f"checkpoint and the evaluation take {format_duration(seconds_of(1))}; give more time, or "
                "--num_train_steps"
            )
        return steps

    steps = decided_by_chief(trainer.distribution, fixed_steps)
    final = plan.with_steps(steps)
    if final.config.num_warmup_steps is not None and final.config.num_warmup_steps >= steps:
        raise TrainingError(
            f"invalid --num_warmup_steps {final.config.num_warmup_steps}: {flag} suffices for {steps} steps; give "
            "fewer warm-up steps or more time"
        )
    step_times = ", ".join(f"{1000 * cost.step_seconds:.3g} ms" for cost in costs.stages.values())
    print_status(
        f"{flag}: {steps} steps, from {step_times} per step, {costs.checkpoint_seconds:.2g} s per checkpoint and "
        f"{costs.evaluation_seconds:.2g} s per evaluation; the number is recorded and kept when the run resumes"
    )
    return final


def print_time_left(step: int, last_step: int, seconds: float) -> None:
    """Print the remaining steps of a resumed run, and their estimated time.

    Args:
        step: number of completed steps, at least 1.
        last_step: number of training steps.
        seconds: time of the completed steps.
    """
    left = last_step - step
    print_status(
        f"--max_train_time keeps the number of steps that was fixed at the start: {left} steps are left, about "
        f"{format_duration(left * seconds / step)} at the speed so far"
    )


@contextlib.contextmanager
def _unchanged(plan: PretrainingPlan, trainer: Trainer) -> Iterator[float]:
    """Save the variables, yield the seconds that a checkpoint takes, and restore the variables."""
    directory = plan.output / _DIRECTORY_NAME
    distribution, vocab_size = trainer.distribution, trainer.objective.vocab_size
    values = trainer.checkpoint_values()
    objective = trainer.objective

    def save() -> None:
        if distribution.is_chief:
            # Left by a killed command.
            _remove(directory)
            checkpoint_manager.save(directory, 0, values, vocab_size)

    try:
        yield _seconds(plan.clock, save)
        trainer.objective = objective
        restore(distribution, Checkpoint.of_step(directory, 0), trainer.saved_variables, vocab_size)
        distribution.barrier()
    finally:
        if distribution.is_chief:
            _remove(directory)


def _stage_costs(
    plan: PretrainingPlan, trainer: Trainer, sources: Sequence[TrainData], budget: float, steps_per_call: int
) -> dict[tuple[int, int], StageCost]:
    """Return the cost of every kind of stage, by data index and batch size."""
    first_stages = {(stage.data, stage.batch_size): stage for stage in reversed(plan.stages)}
    seconds = min(_MOST_MEASURED_SECONDS, _MEASURED_FRACTION * budget / len(first_stages))
    costs = {}
    for key in sorted(first_stages):
        stage = first_stages[key]
        source = sources[stage.data]
        trainer.objective = source.objective
        costs[key] = _stage_cost(plan, trainer, stage, source, seconds, min(steps_per_call, _STEPS_PER_CALL))
    return costs


def _stage_cost(
    plan: PretrainingPlan, trainer: Trainer, stage: Stage, source: TrainData, seconds: float, steps_per_call: int
) -> StageCost:
    clock = plan.clock
    begin = clock()
    step = stage.first_step
    with trainer.make_steps(functools.partial(source.batches, stage, step)) as run_steps:
        run_steps(step, 1, 0)
        step += 1
        compile_seconds = clock() - begin
        begin = clock()

        def is_short() -> bool:
            return clock() - begin < seconds

        compiling = 0.0
        # The chief decides, because all processes must make the same steps.
        while step < stage.end_step and (
            step == stage.first_step + 1 or decided_by_chief(trainer.distribution, is_short)
        ):
            count = min(steps_per_call, stage.end_step - step)
            # Other sequence lengths may be compiled here.
            compiling += run_steps(step, count, 0).seconds_compiling
            step += count
        elapsed, steps = clock() - begin, step - stage.first_step - 1
    if not steps:
        # A stage of one step.
        return StageCost(compile_seconds, 0.0)
    compiling = min(compiling, elapsed)
    return StageCost((elapsed - compiling) / steps, compile_seconds + compiling)


def _seconds(clock: Callable[[], float], action: Callable[[], Any]) -> float:
    """Return the time of a call in seconds."""
    begin = clock()
    action()
    return clock() - begin


def _remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
