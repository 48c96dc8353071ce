"""Under JAX the same steps follow from any number of devices and processes, also after kills and signals."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bert_model.checkpoints import tf1
from tests.conftest import ROOT
from tests.trainers.backends.device_runs import assert_same_update, made, results, start
from tests.trainers.pretraining_shards import SMALLEST, write_dataset

CASES = ({"dropout": 0.1}, {"accumulation": 2, "dropout": 0.1}, {"optimizer": "lamb"})
# The command with a slow disk: a process that does not wait for the chief would not find the checkpoint.
SLOW_DISK = """
import sys, time
import beambert
from trainers.checkpoints import checkpoint_manager as checkpointing
save = checkpointing.save
def slowly(*arguments, **named):
    time.sleep(2)
    return save(*arguments, **named)
checkpointing.save = slowly
sys.exit(beambert.main(sys.argv[1:]))
"""


def free_address():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return f"localhost:{probe.getsockname()[1]}"


@pytest.fixture(scope="module")
def one_device(tmp_path_factory):
    return made(tmp_path_factory.mktemp("one"), "jax", 1, *CASES, {"clip_per_replica": True})


def test_micro_batches_have_the_dropout_masks_of_the_batch(one_device):
    assert_same_update(one_device[0], one_device[1])


def test_four_devices_make_the_update_of_one(tmp_path, one_device):
    *same, per_replica = made(tmp_path, "jax", 4, *CASES, {"clip_per_replica": True})
    for expected, values in zip(one_device, same, strict=False):
        assert_same_update(expected, values)
    name = "bert/encoder/layer_0/intermediate/dense/kernel"
    assert np.abs(per_replica[name] - one_device[3][name]).max() > 1e-3
    assert per_replica["metric/gradient_norm"][0] / 3 > 1.5


@pytest.mark.parametrize(("processes", "devices"), [(2, 2), (4, 1)])
def test_several_processes_make_the_update_of_one(tmp_path, one_device, processes, devices):
    address = free_address()
    outputs = [tmp_path / f"{index}.npz" for index in range(processes)]
    running = [
        start("jax", devices, processes * devices, output, CASES[:1], processes=[address, processes, index])
        for index, output in enumerate(outputs)
    ]
    for process, output in zip(running, outputs, strict=True):
        assert_same_update(one_device[0], results(process, output, 1)[0])


class Cluster:
    """Processes of `beambert pretrain` that train together on this machine.

    Args:
        directory: directory with the data, the model and the outputs.
        output: value of --output.
        count: number of processes.
        flags_of: further flags by the index of a process.
    """

    def __init__(self, directory: Path, output: str, count: int, flags_of: dict[int, list[str]] | None = None) -> None:
        address = free_address()
        self.logs = [directory / f"{output}-{count}-{time.time_ns()}-{index}.log" for index in range(count)]
        self.processes = []
        for index, path in enumerate(self.logs):
            command = [sys.executable, "-c", SLOW_DISK, "pretrain", "--backend", "jax", "--data", "data", "--model"]
            command += ["model.json", "--output", output, "--num_train_steps", "120", "--train_batch_size", "8"]
            command += ["--save_checkpoints_steps", "40", "--eval_batch_size", "4", *(flags_of or {}).get(index, [])]
            if count > 1:
                command += ["--coordinator_address", address, "--num_processes", str(count), "--process_id", str(index)]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            with path.open("w") as log:
                process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log, env=environment)
            self.processes.append(process)

    def wait_for(self, text: str) -> None:
        """Wait until the first process has printed a text."""
        while text not in self.log(0):
            assert self.processes[0].poll() is None, self.log(0)
            time.sleep(0.05)

    def log(self, index: int) -> str:
        return self.logs[index].read_text(encoding="utf-8")

    def codes(self) -> list[int]:
        """Return the exit codes of all processes."""
        return [process.wait(180) for process in self.processes]


def weights(directory):
    return {name: tensor.read() for name, tensor in tf1.read(directory / "checkpoints/model.ckpt-120").items()}


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """Directory with data and an uninterrupted run of two processes."""
    directory = tmp_path_factory.mktemp("runs")
    write_dataset(directory / "data")
    (directory / "model.json").write_text(SMALLEST.to_json(), encoding="utf-8")
    cluster = Cluster(directory, "straight", 2)
    assert cluster.codes() == [0, 0], cluster.log(0)
    return directory


def test_a_signal_to_one_process_stops_all_and_the_run_resumes(straight):
    cluster = Cluster(straight, "stopped", 2)
    cluster.wait_for("step ")
    cluster.processes[1].send_signal(signal.SIGTERM)
    assert cluster.codes() == [128 + signal.SIGTERM] * 2, cluster.log(0)
    cluster = Cluster(straight, "stopped", 2)
    assert cluster.codes() == [0, 0], cluster.log(0)
    assert "Resuming stopped from step" in cluster.log(1)
    resumed = weights(straight / "stopped")
    for name, value in weights(straight / "straight").items():
        np.testing.assert_array_equal(resumed[name], value, err_msg=name)


def test_a_killed_process_ends_all_and_the_run_resumes(straight):
    cluster = Cluster(straight, "killed", 2)
    while not (straight / "killed/checkpoints/model.ckpt-40.index").exists():
        assert cluster.processes[0].poll() is None, cluster.log(0)
        time.sleep(0.05)
    cluster.processes[1].kill()
    begin = time.monotonic()
    assert 0 not in cluster.codes()
    assert time.monotonic() - begin < 60
    # JAX aborts with a line of its own, unless a collective operation fails before.
    assert "another task died" in cluster.log(0) or "another process that trains with this one" in cluster.log(0)
    cluster = Cluster(straight, "killed", 2)
    assert cluster.codes() == [0, 0], cluster.log(0)
    resumed = weights(straight / "killed")
    for name, value in weights(straight / "straight").items():
        np.testing.assert_array_equal(resumed[name], value, err_msg=name)


def test_one_process_makes_the_run_of_two(straight):
    cluster = Cluster(straight, "single", 1)
    assert cluster.codes() == [0], cluster.log(0)
    single = weights(straight / "single")
    for name, value in weights(straight / "straight").items():
        np.testing.assert_allclose(single[name], value, rtol=1e-3, atol=1e-4, err_msg=name)
    both = [(straight / name / "eval_results.txt").read_text() for name in ("single", "straight")]
    assert both[0].splitlines()[0] == both[1].splitlines()[0]


def test_processes_with_different_options_end_with_a_line(straight):
    cluster = Cluster(straight, "different", 2, {1: ["--seed", "7"]})
    assert cluster.codes() == [1, 1]
    for index in range(2):
        assert (
            cluster.log(index)
            .rstrip()
            .endswith(
                "process 1 and process 0 differ in options: give the same flags to every process, except --process_id"
            )
        )
    assert not (straight / "different/checkpoints").exists()


def test_a_coordinator_that_does_not_answer(straight):
    program = "import trainers.backends.jax.startup as startup\nstartup._CONNECT_SECONDS = 2\n" + SLOW_DISK
    command = [sys.executable, "-c", program, "pretrain", "--backend", "jax", "--data", "data", "--output", "alone"]
    command += ["--model", "model.json", "--coordinator_address", free_address(), "--num_processes", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    options = {"cwd": straight, "env": environment, "capture_output": True, "text": True, "check": False}
    done = subprocess.run([*command, "--process_id", "1"], **options)
    assert done.returncode == 1
    assert "does not answer" in done.stderr.splitlines()[-1]
