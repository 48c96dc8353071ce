"""Tests of runs with --shard_optimizer_state: stopping, resuming with and without the flag, and checkpoints."""

import shutil
import signal

import numpy as np
import pytest

from bert_model.checkpoints import tf1
from tests.trainers.backends.pretraining_cluster import Cluster, variables, write_inputs

FLAG = ["--shard_optimizer_state"]


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """Directory with data and an uninterrupted run of two processes with a device each, with the flag."""
    directory = tmp_path_factory.mktemp("runs")
    write_inputs(directory)
    Cluster(directory, "straight", 2, FLAG).finish()
    return directory


def stop(cluster):
    """Send SIGTERM to the last process and wait until all have stopped."""
    cluster.wait_for("step ")
    cluster.processes[-1].send_signal(signal.SIGTERM)
    assert set(cluster.codes()) == {128 + signal.SIGTERM}, cluster.log(0)


def assert_close_to_straight(directory, name):
    resumed = variables(directory / name, 60)
    for variable, value in variables(directory / "straight", 60).items():
        np.testing.assert_allclose(resumed[variable], value, rtol=1e-3, atol=1e-4, err_msg=variable)


def test_a_stopped_run_resumes_with_and_without_the_flag(straight):
    stop(Cluster(straight, "stopped", 2, FLAG))
    shutil.copytree(straight / "stopped", straight / "without")
    Cluster(straight, "stopped", 2, FLAG).finish()
    resumed = variables(straight / "stopped", 60)
    for name, value in variables(straight / "straight", 60).items():
        np.testing.assert_array_equal(resumed[name], value, err_msg=name)
    # One process with two devices.
    cluster = Cluster(straight, "without", 1, ["--cpu_devices", "2"])
    cluster.finish()
    assert "shard_optimizer_state True to False" in cluster.log(0)
    assert_close_to_straight(straight, "without")
    # Both checkpoints have the same format: names, shapes, dtypes and size.
    prefixes = [straight / name / "checkpoints" / "model.ckpt-60" for name in ("straight", "without")]
    sharded, replicated = (
        {name: (tensor.shape, tensor.dtype) for name, tensor in tf1.read(prefix).items()} for prefix in prefixes
    )
    assert sharded == replicated
    sizes = {prefix.with_name(f"{prefix.name}.data-00000-of-00001").stat().st_size for prefix in prefixes}
    assert len(sizes) == 1


# The reverse of the previous test.
@pytest.mark.slow
def test_a_stopped_run_without_the_flag_resumes_with_it(straight):
    stop(Cluster(straight, "replicated", 1, ["--cpu_devices", "2"]))
    cluster = Cluster(straight, "replicated", 1, ["--cpu_devices", "2", *FLAG])
    cluster.finish()
    assert "shard_optimizer_state False to True" in cluster.log(0)
    assert_close_to_straight(straight, "replicated")
