"""Run the training loop on an objective and batches, with defaults for everything that a test does not set."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beambert.trainers.backends.tensorflow.runtime import evaluation_of
from beambert.trainers.backends.tensorflow.train_step import Trainer
from beambert.trainers.data.pipeline import Batches, InputShard
from beambert.trainers.monitoring.throughput import StepCost
from beambert.trainers.monitoring.training_monitor import TrainingMonitor
from beambert.trainers.objective import Objective
from beambert.trainers.optimization.schedule import Stage
from beambert.trainers.options import TrainingOptions
from beambert.trainers.training.loop import TrainData, train

Elements = Sequence[dict[str, np.ndarray]]
# More batches than any test reads.
_ENDLESS = 10_000


def settings(**changes: Any) -> TrainingOptions:
    """Return the options of ten steps with a decaying learning rate, without warm-up."""
    options = {"num_train_steps": 10, "num_warmup_steps": 0, "learning_rate": 0.1, "seed": 1}
    return TrainingOptions(**{**options, **changes})


def batches_of(elements: Elements, count: int | None = None) -> Batches:
    """Return `count` batches that cycle through the elements; with None, each element once."""
    count = len(elements) if count is None else count
    shapes = {
        name: (
            tuple(_common(sizes) for sizes in zip(*(element[name].shape for element in elements), strict=True)),
            dtype,
        )
        for name, dtype in ((name, values.dtype) for name, values in elements[0].items())
    }
    return Batches(count, shapes, lambda first: (elements[index % len(elements)] for index in range(first, count)))


def repeated(elements: Elements) -> Batches:
    """Return `_ENDLESS` batches that cycle through the elements."""
    return batches_of(elements, _ENDLESS)


def evaluated(objective: Objective, *elements: dict[str, np.ndarray]) -> dict[str, float]:
    """Return the metrics over some batches."""
    return evaluation_of(objective)(for_all(batches_of(elements)))


def for_all(batches: Batches) -> Callable[[InputShard], Batches]:
    """Return a function that returns all batches for any input shard, as for a single device."""
    return lambda share: batches


def trained(
    trainer: Trainer,
    batches: Batches,
    output: Path,
    evaluate: Any = None,
    batch_size: int = 2,
    shown: dict[str, str] | None = None,
    second_data_step: int | None = None,
    clock: Callable[[], float] = time.monotonic,
    patience: int = 0,
    **config: Any,
) -> int | None:
    """Run `train` and return its result; checkpoints are written to output/c.

    Args:
        trainer: a new trainer.
        batches: batches from the first step on.
        output: the run's directory.
        evaluate, patience, batch_size: as for `train` and `Stage`.
        shown: metrics of the progress line.
        second_data_step: first step of a second stage, whose data has the same batches; None for a single stage.
        clock: clock of the monitor.
        config: options that replace those of the trainer; by default checkpoints every 4 steps and loops of 3.
    """
    output.mkdir(exist_ok=True)
    steps = trainer.config.num_train_steps
    bounds = [0, steps] if second_data_step is None else [0, second_data_step, steps]
    stages = [Stage(data, batch_size, *bounds[data : data + 2], 0) for data in range(len(bounds) - 1)]

    def after(stage: Stage, step: int, share: InputShard) -> Batches:
        return Batches(batches.count - step, batches.shapes, lambda index: batches.from_index(step + index))

    source = TrainData(trainer.objective, after, lambda stage: StepCost(batch_size, 1.0, 1.0))
    config = {"iterations_per_loop": 3, "save_checkpoints_steps": 4, **config}
    trainer.config = dataclasses.replace(trainer.config, **config)
    with TrainingMonitor(output, steps, shown or {}, {}, step=0, clock=clock) as monitor:
        return train(trainer, 0, stages, [source] * len(stages), output / "c", monitor, evaluate, patience)


def updated(
    objective: Objective, features: dict[str, np.ndarray], count: int = 1, **changes: Any
) -> dict[str, tuple[float, float]]:
    """Make steps on the same batch; return the metric sums over them."""
    trainer = Trainer(objective, settings(num_train_steps=max(count, 2), **changes))
    with trainer.make_steps(for_all(repeated([features]))) as run:
        results = run(0, count, 0)
    assert results.first_nonfinite == -1
    return results.sums


def _common(sizes: tuple[int, ...]) -> int | None:
    return sizes[0] if len(set(sizes)) == 1 else None
