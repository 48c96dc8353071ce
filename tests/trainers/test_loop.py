import itertools
import os
import re
import signal

import numpy as np
import pytest
import tensorflow as tf

from trainers import checkpointing
from trainers.errors import TrainingError
from trainers.loop import Schedule, Task, Trainer, dropout_seed, evaluate, train
from trainers.progress import steps_a_report


def line_task(side_effect=None):
    """Fits y = slope * x by squared error; `side_effect` is called with each batch's first x."""
    slope = tf.Variable(0.0)

    def loss(features, seed):
        x, y = features["x"], features["y"]
        if side_effect is not None:
            tf.py_function(side_effect, [x[0]], [])
        errors = tf.square(slope * x - y)
        return tf.reduce_mean(errors), {"error": (tf.reduce_sum(errors), tf.cast(tf.size(x), tf.float32))}

    return Task({"slope": slope}, loss), slope


def batches(values, size=2):
    x = tf.constant(values, tf.float32)
    return tf.data.Dataset.from_tensor_slices({"x": x, "y": 3 * x}).batch(size)


def schedule(**changes):
    options = {
        "num_train_steps": 10,
        "num_warmup_steps": 0,
        "learning_rate": 0.1,
        "save_checkpoints_steps": 4,
        "iterations_per_loop": 3,
        "batch_size": 2,
        "seed": 1,
    }
    return Schedule(**{**options, **changes})


def test_saves_on_the_way_and_at_the_end_whatever_the_loop_length(tmp_path, capsys):
    task, slope = line_task()
    trainer = Trainer(task, schedule())
    stopped = train(
        trainer, batches([1, 2, 3, 4]).repeat(), tmp_path / "c", tmp_path / "logs", {"error": "squared error"}
    )
    assert stopped is None
    assert [checkpoint.step for checkpoint in checkpointing.checkpoints(tmp_path / "c")] == [4, 8, 10]
    assert int(trainer.global_step) == 10
    assert slope.numpy() > 0.3
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("step 3/10  squared error ")
    assert re.match(r"step 10/10  ETA 0:00:00  \d+ sequences/s  squared error \d", lines[-1])


def test_tensorboard_has_the_metrics(tmp_path):
    task, _ = line_task()
    train(Trainer(task, schedule()), batches([1, 2]).repeat(), tmp_path / "c", tmp_path / "logs", {})
    (path,) = (tmp_path / "logs").iterdir()
    scalars = {
        (value.tag, event.step): float(tf.make_ndarray(value.tensor))
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
    }
    assert {tag for tag, _ in scalars} == {"loss", "error", "gradient_norm", "learning_rate", "sequences_per_second"}
    # The mean over steps 0, 1, 2 of a decay from 0.1 at step 0 to 0 at step 10.
    assert scalars["learning_rate", 3] == pytest.approx((0.1 + 0.09 + 0.08) / 3)
    assert scalars["loss", 3] == pytest.approx(scalars["error", 3])


@pytest.fixture
def interrupt_handler():
    """Ctrl-C as in a foreground process, wherever the tests run; returns the function that sets another handler."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda handler: signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupt_handler")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_after_saving(tmp_path, capsys, number):
    seen = []

    def interrupt(x):
        seen.append(float(x))
        if len(seen) == 4:
            os.kill(os.getpid(), number)

    task, _ = line_task(interrupt)
    handler = signal.getsignal(number)
    trainer = Trainer(task, schedule(num_train_steps=1000, save_checkpoints_steps=1000))
    stopped = train(trainer, batches([1, 2]).repeat(), tmp_path / "c", tmp_path / "logs", {})
    assert stopped == number
    assert signal.getsignal(number) is handler
    (saved,) = checkpointing.checkpoints(tmp_path / "c")
    assert saved.step in (6, 9)
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"Stopped: {saved.prefix} holds the state after step")


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_names_step_and_checkpoint(tmp_path, bad):
    task, _ = line_task()
    trainer = Trainer(task, schedule())
    values = batches([1, 2] * 6 + [bad, 1] + [1, 2] * 20)
    with pytest.raises(TrainingError, match=r"not finite at step 6; the last good checkpoint is .*model.ckpt-4"):
        train(trainer, values, tmp_path / "c", tmp_path / "logs", {})
    task, _ = line_task()
    with pytest.raises(TrainingError, match="not finite at step 0; no checkpoint had been saved"):
        train(Trainer(task, schedule()), batches([bad] * 20), tmp_path / "d", tmp_path / "logs", {})


def test_a_gradient_that_is_not_finite_is_no_checkpoint(tmp_path):
    variable = tf.Variable(0.0)
    # The root of 0 is finite, its slope is not.
    task = Task({"v": variable}, lambda features, seed: (tf.sqrt(variable) + 0 * features["x"][0], {}))
    with pytest.raises(TrainingError, match="not finite at step 0"):
        train(Trainer(task, schedule()), batches([1, 2]).repeat(), tmp_path / "c", tmp_path / "logs", {})
    assert not checkpointing.checkpoints(tmp_path / "c")


def test_evaluation_weighs_examples_not_batches():
    task, slope = line_task()
    slope.assign(1.0)
    values = [1.0, 2.0, 5.0]
    expected = np.mean([(value - 3 * value) ** 2 for value in values])
    for size in (1, 2, 3):
        assert evaluate(task, batches(values, size)) == {"error": pytest.approx(expected)}


def test_dropout_seeds_differ_in_every_coordinate_and_are_repeatable():
    seeds = {}
    for coordinates in itertools.product((1, 2), (0, 1, 2), (0, 1), (0, 1, 2)):
        first, last = dropout_seed(*coordinates).numpy().tolist()
        assert last == 0
        assert dropout_seed(*coordinates).numpy().tolist() == [first, last]
        seeds[coordinates] = first
    # No two share a first element, so the call sites counted in the second never meet.
    assert len(set(seeds.values())) == len(seeds)


def test_every_step_has_its_own_dropout_seed_and_evaluation_none():
    variable = tf.Variable(0.0)

    def loss(features, seed):
        if seed is None:
            return variable, {"seed": (tf.constant(0.0), tf.constant(1.0))}
        return variable * features["x"][0], {"seed": (tf.cast(seed[0], tf.float32), tf.constant(1.0))}

    task = Task({"v": variable}, loss)
    trainer = Trainer(task, schedule())
    endless = batches([1, 2]).repeat()
    loop, iterator = trainer.make_loop(endless.element_spec), iter(endless)
    seeds = [float(loop(iterator, tf.constant(1))[0]["seed"][0]) for _ in range(4)]
    assert seeds == [float(tf.cast(dropout_seed(1, step)[0], tf.float32)) for step in range(4)]
    assert evaluate(task, batches([1, 2])) == {"seed": 0.0}


def test_reports():
    assert [steps_a_report(steps) for steps in (1, 19, 40, 1000, 2000, 100_000)] == [1, 1, 2, 50, 100, 100]
