"""Test the goodput of real runs: with slow evaluations and checkpoints, and after a kill."""

import json
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import ROOT
from tests.trainers.pretraining_shards import SMALLEST, write_dataset
from tests.trainers.small_runs import repeated, settings, trained
from trainers.backends.tensorflow.train_step import Trainer
from trainers.checkpoints import checkpoint_manager
from trainers.checkpoints.checkpoint_manager import Checkpoint
from trainers.monitoring import metrics_jsonl
from trainers.monitoring.goodput import latest_seconds, recorded_seconds
from trainers.monitoring.training_monitor import MonitorState
from trainers.objective import Objective

STEPS = 40
KILLED_AT, SAVED_EVERY = 14, 10
# A pretraining run that kills itself after step `killed_at`, or never if it is 0. It prints the earliest and latest
# possible times of the start of the command and of its last record.
CHILD = """
import json, os, signal, sys, time
import beambert
from trainers.monitoring.training_monitor import TrainingMonitor
from trainers.pretraining import prepare

killed_at, argv = int(sys.argv[1]), sys.argv[2:]
update, record_evaluation = TrainingMonitor.update, TrainingMonitor.record_evaluation
choose_backend = prepare.choose_backend
times = {}

def chosen(name):
    times["start_latest"] = time.monotonic()
    return choose_backend(name)

def updated(self, step, *arguments):
    before = time.monotonic()
    update(self, step, *arguments)
    if step == killed_at:
        print(json.dumps({**times, "end_earliest": before, "end_latest": time.monotonic()}), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

def recorded(self, *arguments):
    times["end_earliest"] = time.monotonic()
    record_evaluation(self, *arguments)

prepare.choose_backend, TrainingMonitor.update, TrainingMonitor.record_evaluation = chosen, updated, recorded
times["start_earliest"] = time.monotonic()
code = beambert.main(argv)
print(json.dumps({**times, "end_latest": time.monotonic()}), flush=True)
sys.exit(code)
"""


def seconds_of(output):
    return latest_seconds(metrics_jsonl.read(output / "metrics.jsonl"))


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_the_steps_of_a_killed_process_are_lost_work(tmp_path, backend):
    write_dataset(tmp_path / "data")
    (tmp_path / "model.json").write_text(SMALLEST.to_json(), encoding="utf-8")
    output = tmp_path / "output"
    argv = ["pretrain", "--data", tmp_path / "data", "--model", tmp_path / "model.json", "--output", output]
    argv += ["--num_train_steps", STEPS, "--save_checkpoints_steps", SAVED_EVERY, "--train_batch_size", "4"]
    argv += ["--do_train", "--do_eval", "--backend", backend]

    def run(killed_at):
        command = [sys.executable, "-c", CHILD, str(killed_at), *map(str, argv)]
        result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        return result, json.loads(result.stdout.splitlines()[-1])

    killed, first = run(KILLED_AT)
    assert killed.returncode == -9, killed.stderr
    checkpoint = Checkpoint(10, output / "checkpoints/model.ckpt-10")
    saved = recorded_seconds(checkpoint_manager.state_of(checkpoint, MonitorState))
    logged = seconds_of(output)
    assert saved.step_seconds < logged.step_seconds
    assert logged.lost_seconds == 0

    completed, second = run(0)
    assert completed.returncode == 0, completed.stderr
    seconds = seconds_of(output)
    assert seconds.lost_seconds == pytest.approx(logged.step_seconds - saved.step_seconds, abs=0.002)
    assert min(seconds) > 0
    processes = (first, second)
    shortest = sum(times["end_earliest"] - times["start_latest"] for times in processes)
    longest = sum(times["end_latest"] - times["start_earliest"] for times in processes)
    assert shortest - 0.01 < seconds.total < longest + 0.01
    # Both processes started and compiled.
    for name in ("start_seconds", "compile_seconds"):
        assert getattr(seconds, name) > getattr(logged, name) > 0
    (line,) = [line for line in completed.stdout.splitlines() if line.startswith("Goodput ")]
    assert line.startswith(f"Goodput      {seconds.goodput:.0%} of ")
    assert "lost work" in (output / "report.html").read_text(encoding="utf-8")


def test_slow_evaluations_and_checkpoints_are_seen(tmp_path, monkeypatch):
    slope = keras.Variable(0.0)

    def sums(features, seed):
        return {"error": (tf.square(slope * features["x"][0] - 1), tf.constant(1.0))}

    task = Objective({"slope": slope}, sums, lambda features: {"error": tf.constant(1.0)})
    save = checkpoint_manager.save

    def slow_save(*arguments):
        time.sleep(0.2)
        return save(*arguments)

    def slow_evaluation(stage):
        time.sleep(0.4)
        return {"loss": 1.0}, []

    monkeypatch.setattr(checkpoint_manager, "save", slow_save)
    batches = repeated([{"x": np.array([1.0, 2.0], np.float32)}])
    trained(Trainer(task, settings()), batches, tmp_path, slow_evaluation, eval_steps=4)
    seconds = seconds_of(tmp_path)
    # Evaluations at steps 4 and 8, checkpoints there and at step 10.
    assert seconds.evaluation_seconds >= 2 * 0.4
    assert seconds.checkpoint_seconds >= 3 * 0.2
    assert seconds.goodput == pytest.approx(seconds.step_seconds / sum(seconds))
    lines = metrics_jsonl.read(tmp_path / "metrics.jsonl")
    assert lines[-1]["goodput"] == pytest.approx(seconds.goodput, abs=0.001)
