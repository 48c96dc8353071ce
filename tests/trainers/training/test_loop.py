import contextlib
import itertools
import json
import os
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf

from beambert.trainers.backends.tensorflow.distribution import Distribution
from beambert.trainers.backends.tensorflow.train_step import Trainer, dropout_seed
from beambert.trainers.checkpoints import checkpoint_manager
from beambert.trainers.errors import TrainingError
from beambert.trainers.objective import NOT_FINITE, Objective
from tests.trainers.fake_backend import FakeTrainer
from tests.trainers.small_runs import batches_of, evaluated, repeated, settings, trained, updated


def line_task():
    """Return a task that fits y = slope * x by squared error, and its slope."""
    slope = keras.Variable(0.0)

    def weights(features):
        return {"error": tf.cast(tf.size(features["x"]), tf.float32)}

    def sums(features, seed):
        x, y = features["x"], features["y"]
        return {"error": (tf.reduce_sum(tf.square(slope * x - y)), weights(features)["error"])}

    return Objective({"slope": slope}, sums, weights), slope


class StepsInPython(FakeTrainer):
    """A trainer whose steps change nothing; it calls `before_step` with the number of each step."""

    def __init__(self, config, before_step=None, distribution=None):
        super().__init__(line_task()[0], config, distribution)
        self.before_step = before_step

    def _step(self, step, batch):
        if self.before_step is not None:
            self.before_step(step)
        return {"loss": (1.0, 1.0), NOT_FINITE: (0.0, 1.0)}


def batches(values, size=2):
    """Return the elements of batches of y = 3 x; the last may be smaller."""
    parts = [np.array(values[first : first + size], np.float32) for first in range(0, len(values), size)]
    return [{"x": x, "y": 3 * x} for x in parts]


def saved_step(output):
    """Return the number of steps in the last checkpoint."""
    return tf.train.load_variable(str(checkpoint_manager.checkpoints(output / "c")[-1].prefix), "global_step")


@pytest.mark.parametrize("iterations_per_loop", [1, 3, 100])
def test_intervals_do_not_depend_on_iterations_per_loop(tmp_path, iterations_per_loop):
    # Reports are due every 10 steps, so that a call makes up to 3 steps, or up to the next interval.
    calls = []
    trainer = StepsInPython(settings(num_train_steps=200))
    make_steps = trainer.make_steps

    @contextlib.contextmanager
    def counted(make):
        with make_steps(make) as run:
            yield lambda step, count, vote: (calls.append(count), run(step, count, vote))[1]

    trainer.make_steps = counted
    intervals = {"iterations_per_loop": iterations_per_loop, "save_checkpoints_steps": 32, "eval_steps": 45}
    evaluated_at = []

    def evaluation(stage):
        evaluated_at.append(sum(calls))
        return {"loss": 1.0}, []

    assert trained(trainer, repeated(batches([1, 2, 3, 4])), tmp_path, evaluation, **intervals) is None
    # Evaluations save too. The best checkpoint, of step 45, is kept with the last five.
    steps = [checkpoint.step for checkpoint in checkpoint_manager.checkpoints(tmp_path / "c")]
    assert steps == [45, 135, 160, 180, 192, 200]
    assert evaluated_at == [45, 90, 135, 180]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["step"] for line in lines if line["split"] == "train"] == list(range(10, 201, 10))
    assert max(calls) == min(iterations_per_loop, 10)


def signal_at(step, number):
    """Return a function of a step that sends this process a signal at one step."""
    return lambda at: os.kill(os.getpid(), number) if at == step and number is not None else None


@pytest.mark.usefixtures("interrupt_handler")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_after_saving(tmp_path, capsys, number):
    handler = signal.getsignal(number)
    trainer = StepsInPython(settings(num_train_steps=1000), signal_at(3, number))
    stopped = trained(trainer, repeated(batches([1, 2])), tmp_path, save_checkpoints_steps=1000)
    assert stopped == number
    assert signal.getsignal(number) is handler
    (saved,) = checkpoint_manager.checkpoints(tmp_path / "c")
    assert saved.step == 6
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"Stopped at step {saved.step}: saved {saved.prefix};")


def test_a_signal_after_the_last_steps_stops_the_command(tmp_path, capsys, monkeypatch):
    save = checkpoint_manager.save

    def interrupted(directory, step, *values):
        if step == 10:
            os.kill(os.getpid(), signal.SIGTERM)
        return save(directory, step, *values)

    monkeypatch.setattr(checkpoint_manager, "save", interrupted)
    assert trained(StepsInPython(settings()), repeated(batches([1, 2])), tmp_path) == signal.SIGTERM
    assert saved_step(tmp_path) == 10
    assert capsys.readouterr().out.splitlines()[-1].startswith("Stopped at step 10: saved ")


def test_a_signal_in_the_evaluation_that_ends_training_stops_the_command(tmp_path, capsys):
    losses = iter([1.0, 2.0])

    def evaluation(stage):
        loss = next(losses)
        if loss == 2.0:
            os.kill(os.getpid(), signal.SIGTERM)
        return {"loss": loss}, []

    trainer = StepsInPython(settings())
    stopped = trained(trainer, repeated(batches([1, 2])), tmp_path, evaluation, eval_steps=2, patience=1)
    assert stopped == signal.SIGTERM
    assert saved_step(tmp_path) == 4
    assert capsys.readouterr().out.splitlines()[-1].startswith("Stopped at step 4: saved ")


class TwoProcesses(Distribution):
    """A device of two processes; the other process votes, as a number, whether it received a signal."""

    def __init__(self, other):
        super().__init__()
        self.several_processes = True
        self.other = other

    def gather_from_processes(self, values):
        return np.stack((values, np.full_like(values, self.other)))


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [(None, 0, None), (None, 1, signal.SIGTERM), (signal.SIGINT, 0, signal.SIGINT), (signal.SIGINT, 1, signal.SIGINT)],
)
@pytest.mark.usefixtures("interrupt_handler")
def test_a_signal_to_a_process_in_the_last_steps_stops_all(tmp_path, capsys, own, other, expected):
    trainer = StepsInPython(settings(), signal_at(9, own), TwoProcesses(other))
    assert trained(trainer, repeated(batches([1, 2])), tmp_path) == expected
    assert saved_step(tmp_path) == 10
    has_stopped = capsys.readouterr().out.splitlines()[-1].startswith("Stopped at step 10: saved ")
    assert has_stopped == (expected is not None)


def test_evaluations_on_the_data_of_an_earlier_stage_are_not_compared(tmp_path):
    # Losses of longer examples are higher at first: the second stage must neither end early, nor have no best step.
    losses = {2: 3.0, 4: 1.0, 6: 5.0, 8: 4.0}
    trainer = StepsInPython(settings())
    steps = iter(losses)

    def evaluation(stage):
        step = next(steps)
        assert stage.data == (0 if step <= 4 else 1)
        return {"loss": losses[step]}, []

    values = repeated(batches([1, 2]))
    assert trained(trainer, values, tmp_path, evaluation, second_data_step=4, eval_steps=2, patience=1) is None
    assert saved_step(tmp_path) == 10
    assert json.loads((tmp_path / "c" / "best.json").read_text(encoding="utf-8"))["step"] == 8


def test_a_nonfinite_gradient_is_not_saved(tmp_path):
    variable = keras.Variable(0.0)
    # The square root of 0 is finite, but its derivative is not.
    one = tf.constant(1.0)
    task = Objective(
        {"v": variable}, lambda f, seed: {"a": (tf.sqrt(variable) + 0 * f["x"][0], one)}, lambda f: {"a": one}
    )
    with pytest.raises(TrainingError, match="not finite at step 0; no checkpoint was saved"):
        trained(Trainer(task, settings()), repeated(batches([1, 2])), tmp_path)
    assert not checkpoint_manager.checkpoints(tmp_path / "c")


def test_evaluation_weighs_examples_not_batches():
    task, slope = line_task()
    slope.assign(1.0)
    values = [1.0, 2.0, 5.0]
    expected = np.mean([(value - 3 * value) ** 2 for value in values])
    for size in (1, 2, 3):
        assert evaluated(task, *batches(values, size)) == {"error": pytest.approx(expected)}


def test_dropout_seeds_differ_in_every_coordinate_and_are_repeatable():
    seeds = {}
    for coordinates in itertools.product((1, 2), (0, 1, 2), (0, 1), (0, 1, 2)):
        first, last = dropout_seed(*coordinates).numpy().tolist()
        assert last == 0
        assert dropout_seed(*coordinates).numpy().tolist() == [first, last]
        seeds[coordinates] = first
    # No two seeds share their first element, so dropout call sites, numbered in the second, never have equal seeds.
    assert len(set(seeds.values())) == len(seeds)


def test_every_step_and_micro_step_has_its_own_dropout_seed_and_evaluation_none():
    variable = keras.Variable(0.0)
    seen = []

    def sums(features, seed):
        if seed is not None:
            tf.py_function(lambda number: seen.append(int(number)), [seed[0]], [])
        return {"a": (variable * features["x"][0], tf.constant(1.0))}

    task = Objective({"v": variable}, sums, lambda features: {"a": tf.constant(1.0)})
    updated(task, {"x": np.array([1.0, 2.0], np.float32)}, 3)
    assert seen == [int(dropout_seed(1, step)[0]) for step in range(3)]
    seen.clear()
    updated(task, {"x": np.array([1.0, 2.0], np.float32)}, 2, gradient_accumulation_steps=2)
    assert seen == [int(dropout_seed(1, step, micro)[0]) for step in range(2) for micro in range(2)]
    seen.clear()
    evaluated(task, *batches([1, 2]))
    assert seen == []


def test_updates_that_are_not_finite_are_skipped_and_counted(tmp_path):
    task, slope = line_task()
    trainer = Trainer(task, settings(on_nonfinite="skip"))
    nan = float("nan")
    trained(trainer, batches_of(batches([1, 2, nan, 1] + [1, 2] * 8)), tmp_path)
    good, other = line_task()
    assert np.isfinite(slope.numpy())
    assert saved_step(tmp_path) == 10
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert lines[-1]["skipped_steps"] == 1
    assert all(np.isfinite(line["loss"]) for line in lines if "loss" in line)
    # The steps before and after the skipped one are made as usual; only the learning-rate schedule counts it too.
    assert other.numpy() == 0.0
    updated(good, batches([1, 2])[0])
    assert 0 < other.numpy() < slope.numpy()


def test_a_run_that_only_skips_stops(tmp_path):
    task, _ = line_task()
    trainer = Trainer(task, settings(on_nonfinite="skip", num_train_steps=1000))
    with pytest.raises(TrainingError, match="not finite at step 0"):
        trained(trainer, repeated(batches([float("nan")] * 2)), tmp_path, save_checkpoints_steps=1000)
