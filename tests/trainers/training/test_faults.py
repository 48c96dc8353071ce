"""Test that `beambert pretrain` resumes after kills, signals and a full disk, as if nothing had happened."""

import dataclasses
import json
import os
import re
import resource
import signal
import sys
import time

import pytest
import tensorflow as tf

from beambert import cli
from beambert.trainers.checkpoints import checkpoint_manager
from beambert.trainers.checkpoints.checkpoint_manager import best
from beambert.trainers.monitoring import metrics_jsonl
from beambert.trainers.monitoring.goodput import GoodputSeconds
from beambert.trainers.monitoring.training_monitor import TrainingMonitor
from tests.forked import run
from tests.trainers import fake_backend
from tests.trainers.pretraining_shards import LENGTH, OPTIONS, SMALLEST, write_dataset

STEPS = 40
SAVED_EVERY = 5
EVALUATED_EVERY = 8


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A directory with a small dataset, `data`, and a small model, `model.json`."""
    directory = tmp_path_factory.mktemp("inputs")
    write_dataset(directory / "data")
    (directory / "model.json").write_text(SMALLEST.to_json(), encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def pretrain(inputs):
    """A function that runs the command in a child process, and returns its exit code and its output."""

    def call(output, *flags, fault=None):
        argv = ["pretrain", "--model", str(inputs / "model.json"), "--do_train"]
        argv += [] if "--data" in flags else ["--data", str(inputs / "data")]
        argv += ["--output", str(output), "--num_train_steps", str(STEPS), "--train_batch_size", "4"]
        argv += ["--save_checkpoints_steps", str(SAVED_EVERY), "--eval_steps", str(EVALUATED_EVERY), *flags]
        log = output.with_suffix(".log")
        log.unlink(missing_ok=True)
        code = run(log, command, argv, fault)
        return code, log.read_text(encoding="utf-8")

    return call


@pytest.fixture(scope="module")
def straight(pretrain, tmp_path_factory):
    """The output directory of a run without faults."""
    output = tmp_path_factory.mktemp("straight") / "output"
    code, said = pretrain(output)
    assert code == 0, said
    return output


def command(argv, fault):
    """Prepare the fault, then run the command with the numpy backend; called in the child process."""
    fake_backend.install(pytest.MonkeyPatch())
    if fault:
        name, *arguments = fault
        globals()[name](*arguments)
    return cli.main(argv)


def at_step(step, action):
    """Call `action` when the loop has completed N steps, before it saves a checkpoint."""
    update = TrainingMonitor.update

    def updated(self, made, *arguments, **named):
        result = update(self, made, *arguments, **named)
        if made == step:
            action()
        return result

    TrainingMonitor.update = updated


def before_save(step, action):
    """Call `action` before the checkpoint of a step is saved."""
    save = checkpoint_manager.save

    def saved(directory, made, *arguments, **named):
        if made == step:
            action()
        return save(directory, made, *arguments, **named)

    checkpoint_manager.save = saved


def signals_at(step, *numbers):
    def send():
        for number in numbers:
            os.kill(os.getpid(), number)
            # A second signal less than a second later would be ignored.
            time.sleep(1.1 if len(numbers) > 1 else 0)

    at_step(step, send)


def killed_in_save(step):
    """Kill the process during a save, when all files but the index are in place."""
    name = f"model.ckpt-{step}.index"

    def look(event, arguments):
        if event == "os.rename" and os.fspath(arguments[1]).endswith(name):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)


def disk_full_at_save(step):
    """Limit the size of files to a few kilobytes, from the save of a step on."""
    before_save(step, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, resource.RLIM_INFINITY)))


def last_saved(output):
    return checkpoint_manager.checkpoints(output / "checkpoints")[-1].step


def assert_same(output, straight):
    """Check that two runs have the same bytes in the last checkpoint, the same best checkpoint and lines of metrics."""
    for kind in ("index", "data-00000-of-00001"):
        name = f"checkpoints/model.ckpt-{STEPS}.{kind}"
        assert (output / name).read_bytes() == (straight / name).read_bytes(), name
    assert logged(output) == logged(straight)
    assert best(output / "checkpoints") == best(straight / "checkpoints")
    states = [
        checkpoint_manager.state_of(checkpoint_manager.checkpoints(run / "checkpoints")[-1])
        for run in (output, straight)
    ]
    for state in states:
        assert state.pop("seconds") > 0
        for name in GoodputSeconds._fields:
            del state[name]
    assert states[0] == states[1]


def logged(output):
    """Return the lines of `metrics.jsonl`, without the fields that depend on time."""
    lines = (output / metrics_jsonl.FILE_NAME).read_text(encoding="utf-8").splitlines()
    lines = map(json.loads, lines)
    return [{name: line[name] for name in line.keys() - metrics_jsonl.TIMING_FIELDS} for line in lines]


def test_a_run_with_faults_ends_like_an_uninterrupted_run(tmp_path, pretrain, straight):
    output = tmp_path / "output"

    def meets(code, saved, *fault):
        """Run the command with a fault; check that it resumes, its exit code and the step of its last checkpoint."""
        before = last_saved(output) if output.exists() else None
        got, said = pretrain(output, fault=fault or None)
        assert got == code, said
        assert last_saved(output) == saved
        assert "Traceback" not in said
        if before:
            assert f"Resuming {output} from step {before} of {STEPS}" in said
        return said

    meets(-signal.SIGKILL, 10, "signals_at", 13, signal.SIGKILL)

    meets(-signal.SIGKILL, 10, "killed_in_save", 15)
    assert (output / "checkpoints" / "model.ckpt-15.data-00000-of-00001").exists()

    said = meets(1, 16, "disk_full_at_save", 20)
    (line,) = [line for line in said.splitlines() if "error" in line]
    assert re.search(r"model.ckpt-20 cannot be written .*file too large.* resumes from .*model.ckpt-16$", line)

    # The signal arrives at a step after which an evaluation is due. Stopping does not wait for the evaluation.
    said = meets(128 + signal.SIGTERM, 24, "signals_at", 24, signal.SIGTERM)
    assert re.search(r"Stopped at step 24: saved .*model.ckpt-24;", said)

    meets(128 + signal.SIGINT, 27, "signals_at", 27, signal.SIGINT)

    # The second signal ends the process at once, without a checkpoint.
    meets(128 + signal.SIGINT, 32, "signals_at", 33, signal.SIGINT, signal.SIGINT)

    meets(0, STEPS)
    assert_same(output, straight)
    kinds = {re.sub(r"\d+", "N", path.name) for path in (output / "checkpoints").iterdir()}
    assert kinds <= {
        "model.ckpt-N.index",
        "model.ckpt-N.data-N-of-N",
        "model.ckpt-N.state.json",
        "best.json",
    }


def test_a_run_of_two_phases_resumes_in_either_phase(tmp_path, inputs, pretrain):
    # First rows of half the length in growing batches, then rows of full length. Every step has two micro-batches.
    short = tmp_path / "short"
    write_dataset(short, max_seq_length=LENGTH // 2, options=dataclasses.replace(OPTIONS, max_seq_length=LENGTH // 2))
    flags = [
        *("--data", str(short), str(inputs / "data"), "--schedule", f"{LENGTH // 2}x0.6,{LENGTH}x0.4@8"),
        *("--batch_ramp", "2:4,4:10", "--train_batch_size", "6", "--gradient_accumulation_steps", "2"),
        *("--optimizer", "adamw", "--learning_rate", "0.01", "--num_warmup_steps", "4", "--keep_checkpoint_max", "99"),
    ]
    output, straight = tmp_path / "output", tmp_path / "straight"
    assert pretrain(straight, *flags)[0] == 0
    assert pretrain(output, *flags, fault=("signals_at", 13, signal.SIGKILL))[0] == -signal.SIGKILL
    assert pretrain(output, *flags, fault=("signals_at", 31, signal.SIGTERM))[0] == 128 + signal.SIGTERM
    code, said = pretrain(output, *flags)
    assert code == 0, said
    assert_same(output, straight)

    lines = {line["step"]: line for line in logged(straight) if line["split"] == "train"}
    # A new phase resets neither the learning rate nor the optimizer. A line has the mean over two steps.
    rates = [0.01 * min(made / 4, 1 - made / 40) for made in range(STEPS)]
    for step in (2, 4, 6, 24, 26, 40):
        assert lines[step]["learning_rate"] == pytest.approx(sum(rates[step - 2 : step]) / 2, rel=1e-5)
    assert [lines[step]["examples"] for step in (4, 10, 24, 26, 40)] == [8, 32, 116, 132, 244]
    before, after = (tf.train.load_checkpoint(str(straight / f"checkpoints/model.ckpt-{step}")) for step in (20, STEPS))
    name = "cls/predictions/output_bias/adam_v"
    # In each step, a running mean of squares falls at most by its decay rate.
    assert (after.get_tensor(name) > 0.99 * 0.999**20 * before.get_tensor(name)).all()
