"""Test that JAX computes the same steps on any number of devices and processes, also after kills and signals."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT, with_slow
from tests.trainers.backends.device_runs import assert_same_update, free_address, made, results, start
from tests.trainers.backends.pretraining_cluster import SLOW_DISK, Cluster, variables, write_inputs
from trainers.backends.jax.distribution import check_equal_devices
from trainers.errors import TrainingError

CASES = ({"dropout": 0.1}, {"accumulation": 2, "dropout": 0.1}, {"optimizer": "lamb"})


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


@pytest.mark.parametrize(("processes", "devices"), with_slow([(2, 2), (4, 1)], [(4, 1)]))
def test_several_processes_make_the_update_of_one(tmp_path, one_device, processes, devices):
    address = free_address()
    outputs = [tmp_path / f"{index}.npz" for index in range(processes)]
    running = [
        start("jax", devices, processes * devices, output, CASES[:1], processes=[address, processes, index])
        for index, output in enumerate(outputs)
    ]
    for process, output in zip(running, outputs, strict=True):
        assert_same_update(one_device[0], results(process, output, 1)[0])


@pytest.fixture(scope="module")
def exchanged(tmp_path_factory):
    """What each of two processes has after they exchanged values."""
    directory = tmp_path_factory.mktemp("exchanged")
    program, address = Path(__file__).with_name("exchanged_values.py"), free_address()
    processes = [
        subprocess.Popen(
            [sys.executable, str(program), address, "2", str(index), str(directory)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for index in range(2)
    ]
    logs = [process.communicate(timeout=600)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], logs
    return [json.loads((directory / f"{index}.json").read_text(encoding="utf-8")) for index in range(2)]


def test_a_single_device_is_refused_for_several_processes(exchanged):
    # Each process would train on its part of every batch, without the gradients of the others.
    message = "invalid --strategy single with 2 processes: it is the first device of each, without an exchange of "
    assert all(values["single"].startswith(message) for values in exchanged)


def test_all_processes_get_the_initial_weights_of_the_chief(exchanged):
    expected = np.array([-0.0, 1.5, 0], np.float32).view(np.int32).tolist()
    assert [values["sent"] for values in exchanged] == [expected, expected]


def test_sharded_slots_are_restored_in_all_processes(exchanged):
    # As --max_train_time does after the measured steps.
    expected = {"kernel": [1.0], "kernel/adam_m": [0.0], "kernel/adam_v": [0.0]}
    assert [values["restored"] for values in exchanged] == [expected, expected]


def test_processes_with_different_numbers_of_devices_are_refused():
    check_equal_devices([0, 0, 1, 1])
    with pytest.raises(TrainingError, match=r"^process 0 has 1 device, process 1 has 3: start every process with the "):
        check_equal_devices([0, 1, 1, 1])


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """Directory with data and an uninterrupted run of two processes."""
    directory = tmp_path_factory.mktemp("runs")
    write_inputs(directory)
    Cluster(directory, "straight", 2).finish()
    return directory


# As in test_hosts_without_shared_disk.py, but with a shared directory.
@pytest.mark.slow
def test_a_signal_to_one_process_stops_all_and_the_run_resumes(straight):
    cluster = Cluster(straight, "stopped", 2)
    cluster.wait_for("step ")
    cluster.processes[1].send_signal(signal.SIGTERM)
    assert cluster.codes() == [128 + signal.SIGTERM] * 2, cluster.log(0)
    cluster = Cluster(straight, "stopped", 2)
    cluster.finish()
    assert "Resuming stopped from step" in cluster.log(1)
    resumed = variables(straight / "stopped", 60)
    for name, value in variables(straight / "straight", 60).items():
        np.testing.assert_array_equal(resumed[name], value, err_msg=name)


@pytest.mark.parametrize("count", with_slow([2, 4], [4]))
def test_a_killed_process_ends_all_and_the_run_resumes(straight, tmp_path, count):
    directory = straight if count == 2 else tmp_path
    if count != 2:
        write_inputs(directory)
        Cluster(directory, "straight", count).finish()
    cluster = Cluster(directory, "killed", count)
    cluster.wait_for_checkpoint(20)
    # The last process of two, or the third of four.
    killed = count // 2
    cluster.processes[killed].kill()
    codes = cluster.codes()
    assert codes.pop(killed) == -signal.SIGKILL
    # The other processes end on their own.
    assert not {0, -signal.SIGKILL}.intersection(codes)
    for index in set(range(count)) - {killed}:
        # JAX aborts with its own message, unless a collective operation fails first.
        log = cluster.log(index)
        assert "another task died" in log or "another process that trains with this one" in log
    cluster = Cluster(directory, "killed", count)
    cluster.finish()
    assert "Resuming killed from step 20 of 60" in cluster.log(count - 1)
    resumed = variables(directory / "killed", 60)
    for name, value in variables(directory / "straight", 60).items():
        np.testing.assert_array_equal(resumed[name], value, err_msg=name)


# The tests above compare the steps.
@pytest.mark.slow
def test_one_process_makes_the_run_of_two(straight):
    Cluster(straight, "single", 1).finish()
    single = variables(straight / "single", 60)
    for name, value in variables(straight / "straight", 60).items():
        np.testing.assert_allclose(single[name], value, rtol=1e-3, atol=1e-4, err_msg=name)
    both = [(straight / name / "eval_results.txt").read_text() for name in ("single", "straight")]
    assert both[0].splitlines()[0] == both[1].splitlines()[0]


def test_processes_with_different_options_end_with_an_error(straight):
    cluster = Cluster(straight, "different", 2, flags_of={1: ["--seed", "7"]})
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
