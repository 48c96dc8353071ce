"""Runs the loop over a task and a dataset of batches, with everything that a test does not care about chosen."""

from pathlib import Path
from typing import Any

import tensorflow as tf

from trainers.backends.tensorflow.train_step import TrainConfig, Trainer
from trainers.monitoring.throughput import StepCost
from trainers.monitoring.training_monitor import TrainingMonitor
from trainers.objective import Objective
from trainers.optimization.schedule import Stage
from trainers.training.loop import LoopConfig, TrainData, train


def settings(**changes: Any) -> TrainConfig:
    """Return ten steps at a decaying rate without warm-up."""
    options = {"num_train_steps": 10, "num_warmup_steps": 0, "learning_rate": 0.1, "seed": 1}
    return TrainConfig(**{**options, **changes})


def trained(
    trainer: Trainer,
    batches: tf.data.Dataset,
    output: Path,
    evaluate: Any = None,
    batch_size: int = 2,
    shown: dict[str, str] | None = None,
    **config: Any,
) -> int | None:
    """Return the result of `train`; checkpoints go to output/c.

    Args:
        trainer: new or restored.
        batches: from the first step on.
        output: the run's directory.
        evaluate, batch_size: as of `train` and `Stage`.
        shown: metrics of the progress line.
        config: fields of `LoopConfig`; by default checkpoints every 4 steps and loops of 3.
    """
    output.mkdir(exist_ok=True)
    steps = trainer.settings.num_train_steps
    stages = [Stage(0, batch_size, 0, steps, 0)]
    source = TrainData(
        trainer.task, lambda stage, step, share: batches.skip(step), lambda stage: StepCost(batch_size, 1.0, 1.0)
    )
    config = {"iterations_per_loop": 3, "save_checkpoints_steps": 4, **config}
    step = int(trainer.global_step.numpy())
    with TrainingMonitor(output, steps, shown or {}, {}, step=step) as monitor:
        return train(trainer, stages, [source], LoopConfig(**config), output / "c", monitor, evaluate)


def updated(
    task: Objective, features: dict[str, tf.Tensor], count: int = 1, **changes: Any
) -> dict[str, tuple[float, float]]:
    """Make steps on the same batch; return the metric sums over them."""
    trainer = Trainer(task, settings(num_train_steps=max(count, 2), **changes))
    iterator = iter(tf.data.Dataset.from_tensors(features).repeat())
    loop = trainer.make_loop(iterator)
    sums, first_bad, _, _ = loop(iterator, tf.constant(0, tf.int64), tf.constant(count, tf.int64), tf.constant(0))
    assert int(first_bad) == -1
    return {name: (float(top), float(bottom)) for name, (top, bottom) in sums.items()}
