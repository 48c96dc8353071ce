"""Test several processes of JAX that train together, with and without a shared disk, also after signals and kills."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from beambert.bert_model.checkpoints import native
from tests.conftest import ROOT
from tests.trainers.backends.device_runs import SLOW_DISK, free_address
from tests.trainers.checkpoints.saved_checkpoints import variables
from tests.trainers.finetuning.task_files import write_pairs
from tests.trainers.pretraining_shards import SMALLEST, write_dataset
from tests.trainers.random_models import write_model

pytestmark = pytest.mark.slow

PRETRAIN = ["pretrain", "--backend", "jax", "--data", "data", "--init_checkpoint", "initial"]
PRETRAIN += ["--output", "run", "--num_train_steps", "60", "--train_batch_size", "8"]
PRETRAIN += ["--save_checkpoints_steps", "30", "--eval_batch_size", "4", "--eval_steps", "20"]
PRETRAIN += ["--shard_optimizer_state"]
FINETUNE = ["finetune", "rte", "--backend", "jax", "--data_dir", "rte", "--init_checkpoint", "pretrained"]
FINETUNE += ["--output", "model", "--max_seq_length", "60", "--train_batch_size", "4", "--num_train_epochs", "2"]
FINETUNE += ["--eval_steps", "4", "--early_stopping", "2", "--do_train", "--do_eval", "--do_predict"]


def assert_equal_variables(actual, expected):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)


def assert_close_variables(actual, expected):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """Directories of two hosts with the same inputs, except for the initial weights, which the chief sends."""
    first, second = (tmp_path_factory.mktemp(f"host{number}") for number in range(2))
    write_dataset(first / "data")
    write_models(first, seed=0)
    (first / "rte").mkdir()
    write_pairs(first / "rte", ("sentence1", "sentence2"), ["not_entailment", "entailment"], ("train", "dev", "test"))
    shutil.copytree(first, second, dirs_exist_ok=True)
    for name in ("initial", "pretrained"):
        shutil.rmtree(second / name)
    write_models(second, seed=1)
    return first, second


def write_models(host, seed):
    """Write the initial models of both commands."""
    write_model(host / "pretrained", seed=seed)
    # Its kernels are large enough to be sharded.
    config = dataclasses.replace(SMALLEST, hidden_size=32, intermediate_size=64)
    write_model(host / "initial", config=config, seed=seed)
    shutil.copy(host / "data" / native.VOCAB_FILE_NAME, host / "initial")


def start(hosts, command, last_flags=()):
    """Start a command on every host, with further flags on the last one; return the processes and their logs."""
    address = free_address()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    logs = [host / f"{command[0]}-{time.time_ns()}-{index}.log" for index, host in enumerate(hosts)]
    processes = []
    for index, (host, path) in enumerate(zip(hosts, logs, strict=True)):
        group = ["--coordinator_address", address, "--num_processes", str(len(hosts)), "--process_id", str(index)]
        further = last_flags if index == len(hosts) - 1 else ()
        with path.open("w") as log:
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", SLOW_DISK, *command, *group, *further],
                    cwd=host,
                    stdout=log,
                    stderr=log,
                    env=environment,
                )
            )
    return processes, logs


def run(hosts, command):
    """Run a command on every host; return the logs of a success."""
    processes, logs = start(hosts, command)
    assert [process.wait(300) for process in processes] == [0, 0], [log.read_text() for log in logs]
    return [log.read_text() for log in logs]


def wait_for_checkpoint(run, step, process, log):
    """Wait until a process has saved the checkpoint of a step."""
    while not (run / f"checkpoints/model.ckpt-{step}.index").exists():
        assert process.poll() is None, log.read_text()
        time.sleep(0.02)


def run_alone(host, command):
    """Run a command in one process; return what a success printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "beambert", *command]
    done = subprocess.run(command, cwd=host, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def straight(hosts):
    """The variables and the scores of an uninterrupted run."""
    run(hosts, PRETRAIN)
    assert not (hosts[1] / "run/checkpoints").exists()
    result = variables(hosts[0] / "run", 60), (hosts[0] / "run/eval_results.txt").read_text()
    shutil.rmtree(hosts[0] / "run")
    return result


def test_pretraining_resumes_and_evaluates_with_the_files_of_the_chief(hosts, straight):
    """Stop both processes by a signal to one, and resume with sharded optimizer state and without."""
    expected, scores = straight
    processes, logs = start(hosts, PRETRAIN)
    wait_for_checkpoint(hosts[0] / "run", 20, processes[0], logs[0])
    processes[1].send_signal(signal.SIGTERM)
    assert [process.wait(300) for process in processes] == [128 + signal.SIGTERM] * 2, logs[0].read_text()
    shutil.copytree(hosts[0] / "run", hosts[0] / "without")
    printed = run(hosts, PRETRAIN)
    assert all("Resuming run from step" in text for text in printed)
    assert_equal_variables(variables(hosts[0] / "run", 60), expected)
    assert (hosts[0] / "run/eval_results.txt").read_text() == scores

    # One process with two devices.
    flags = ["without" if flag == "run" else flag for flag in PRETRAIN if flag != "--shard_optimizer_state"]
    printed = run_alone(hosts[0], [*flags, "--cpu_devices", "2"])
    assert "shard_optimizer_state True to False" in printed
    assert_close_variables(variables(hosts[0] / "without", 60), expected)
    # Both checkpoints have the same format.
    prefixes = [hosts[0] / name / "checkpoints" / "model.ckpt-60" for name in ("run", "without")]
    sizes = {prefix.with_name(f"{prefix.name}.data-00000-of-00001").stat().st_size for prefix in prefixes}
    assert len(sizes) == 1


def test_a_killed_process_ends_the_other_and_the_run_resumes(hosts, straight):
    """Train with a shared disk, as on two hosts with the same directory."""
    shared = [hosts[0], hosts[0]]
    command = ["killed" if flag == "run" else flag for flag in PRETRAIN]
    processes, logs = start(shared, command)
    wait_for_checkpoint(hosts[0] / "killed", 20, processes[0], logs[0])
    processes[1].kill()
    codes = [process.wait(600) for process in processes]
    assert codes[1] == -signal.SIGKILL
    # The other process ends on its own.
    assert codes[0] not in (0, -signal.SIGKILL)
    # JAX aborts with its own message, unless a collective operation fails first.
    printed = logs[0].read_text()
    assert "another task died" in printed or "another process that trains with this one" in printed
    assert "Resuming killed from step 20 of 60" in run(shared, command)[1]
    assert_equal_variables(variables(hosts[0] / "killed", 60), straight[0])


def test_processes_with_different_options_end_with_an_error(hosts):
    command = ["different" if flag == "run" else flag for flag in PRETRAIN]
    processes, logs = start(hosts, command, ["--seed", "7"])
    assert [process.wait(300) for process in processes] == [1, 1]
    for log in logs:
        assert "process 1 and process 0 differ in options: give the same flags to every process" in log.read_text()
    assert not (hosts[0] / "different/checkpoints").exists()


def test_fine_tuning_ends_with_the_best_checkpoint_of_the_chief(hosts):
    run(hosts, FINETUNE)
    assert not (hosts[1] / "model/checkpoints").exists()
    assert not list((hosts[1] / "model").glob("*.tsv"))
    results = json.loads((hosts[0] / "model/eval_results.json").read_text())
    run_alone(hosts[0], ["single" if flag == "model" else flag for flag in FINETUNE])
    expected = json.loads((hosts[0] / "single/eval_results.json").read_text())
    assert results["global_step"] == expected["global_step"]
    assert results["eval_loss"] == pytest.approx(expected["eval_loss"], rel=1e-3)
    predictions = [(hosts[0] / name / "RTE.tsv").read_text().splitlines() for name in ("model", "single")]
    assert len(predictions[0]) == len(predictions[1]) > 10
    assert_close_variables(*(variables(hosts[0] / name, results["global_step"]) for name in ("model", "single")))
