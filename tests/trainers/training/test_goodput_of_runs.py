"""Test the goodput of runs: with a failure, and with slow evaluations and checkpoints."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from beambert.trainers.backends.tensorflow.train_step import Trainer
from beambert.trainers.checkpoints import checkpoint_manager
from beambert.trainers.commands.pretrain import run as run_pretraining
from beambert.trainers.monitoring import metrics_jsonl
from beambert.trainers.monitoring.goodput import latest_seconds, recorded_seconds
from beambert.trainers.monitoring.training_monitor import MonitorState, TrainingMonitor
from beambert.trainers.objective import Objective
from tests.trainers.small_runs import repeated, settings, trained


def seconds_of(output):
    return latest_seconds(metrics_jsonl.read(output / "metrics.jsonl"))


@pytest.mark.usefixtures("numpy_backend")
def test_the_steps_of_a_failed_process_are_lost_work(tmp_path, options, monkeypatch, capsys):
    readings = itertools.count()

    def clock():
        return 0.25 * next(readings)

    update = TrainingMonitor.update

    def failing(self, step, *arguments):
        update(self, step, *arguments)
        if step == 14:
            raise MemoryError

    config = options("--num_train_steps", "20", "--save_checkpoints_steps", "10", "--iterations_per_loop", "1")
    with monkeypatch.context() as patched:
        patched.setattr(TrainingMonitor, "update", failing)
        with pytest.raises(MemoryError):
            run_pretraining(config, clock)
    output = tmp_path / "output"
    first_seconds = clock()
    logged = seconds_of(output)
    checkpoint = checkpoint_manager.checkpoints(output / "checkpoints")[-1]
    saved = recorded_seconds(checkpoint_manager.state_of(checkpoint, MonitorState))
    assert saved.step_seconds < logged.step_seconds
    assert logged.lost_seconds == 0
    # The last record is the end of the process, except for a few readings of the clock.
    assert first_seconds - 1 < logged.total <= first_seconds

    start = clock()
    assert run_pretraining(config, clock) == 0
    seconds = seconds_of(output)
    assert seconds.lost_seconds == pytest.approx(logged.step_seconds - saved.step_seconds)
    assert seconds.start_seconds > logged.start_seconds > 0
    assert seconds.total == pytest.approx(logged.total + clock() - start, abs=2)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Goodput ")]
    assert line.startswith(f"Goodput      {seconds.goodput:.0%} of ")
    assert "lost work" in (output / "report.html").read_text(encoding="utf-8")


def test_slow_evaluations_and_checkpoints_are_seen(tmp_path, monkeypatch):
    slope = keras.Variable(0.0)

    def sums(features, seed):
        return {"error": (tf.square(slope * features["x"][0] - 1), tf.constant(1.0))}

    task = Objective({"slope": slope}, sums, lambda features: {"error": tf.constant(1.0)})
    save, now = checkpoint_manager.save, 0.0

    def clock():
        return now

    def slow_save(*arguments):
        nonlocal now
        now += 2
        return save(*arguments)

    def slow_evaluation(stage):
        nonlocal now
        now += 4
        return {"loss": 1.0}, []

    monkeypatch.setattr(checkpoint_manager, "save", slow_save)
    batches = repeated([{"x": np.array([1.0, 2.0], np.float32)}])
    trained(Trainer(task, settings()), batches, tmp_path, slow_evaluation, clock=clock, eval_steps=4)
    seconds = seconds_of(tmp_path)
    # Evaluations at steps 4 and 8, checkpoints there and at step 10.
    assert seconds.evaluation_seconds == 2 * 4
    assert seconds.checkpoint_seconds == 3 * 2
