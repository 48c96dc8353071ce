"""Test that steps are the same on one and several devices, in processes whose CPU is split into logical devices."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import ROOT, with_slow
from tests.trainers.backends.device_runs import assert_same_update, made, results, start
from tests.trainers.backends.pretraining_cluster import SLOW_DISK
from tests.trainers.pretraining_shards import SMALLEST, write_dataset


@pytest.fixture(scope="module")
def one_device(tmp_path_factory):
    """Values of cases on one device: plain, accumulated, compiled by XLA, LAMB, clipped per replica, dropout twice."""
    return made(
        tmp_path_factory.mktemp("one"),
        "tensorflow",
        1,
        {},
        {"accumulation": 4},
        {"accumulation": 2, "xla": True},
        {"optimizer": "lamb"},
        {"clip_per_replica": True},
        {"dropout": 0.1},
        {"dropout": 0.1},
    )


def test_accumulation_and_xla_change_nothing(one_device):
    plain, accumulated, compiled, *_ = one_device
    assert plain["metric/loss"][1] == 3
    assert_same_update(plain, accumulated)
    assert_same_update(plain, compiled)


def test_on_one_device_clipping_per_replica_is_clipping(one_device):
    whole, per_replica = (
        {name: value for name, value in values.items() if name != "metric/gradient_norm"}
        for values in (one_device[0], one_device[4])
    )
    assert_same_update(whole, per_replica)
    # The reported norm is that of the gradient passed to the optimizer, which is clipped here.
    assert one_device[4]["metric/gradient_norm"][0] / 3 <= 1.0001


def test_the_same_seed_gives_the_same_bits(one_device):
    *_, first, second = one_device
    for name, value in first.items():
        np.testing.assert_array_equal(second[name], value, err_msg=name)
    name = "bert/embeddings/word_embeddings"
    assert not np.array_equal(first[name], one_device[0][name])


@pytest.mark.parametrize("devices", with_slow([2, 4], [4]))
def test_several_devices_make_the_update_of_one(tmp_path, one_device, devices):
    # The parts have different numbers of masked tokens, so that a mean of means would give another result.
    accumulated, per_replica = made(
        tmp_path, "tensorflow", devices, {"accumulation": 2, "optimizer": "lamb"}, {"clip_per_replica": True}
    )
    assert_same_update(one_device[3], accumulated)
    name = "bert/encoder/layer_0/intermediate/dense/kernel"
    assert np.abs(per_replica[name] - one_device[4][name]).max() > 1e-3
    # Each device's gradient is clipped to 1 and then added, as the released code does on TPU cores.
    assert per_replica["metric/gradient_norm"][0] / 3 > 1.2


def clusters(count):
    """Return TF_CONFIG for each of several processes on this machine."""
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("localhost", 0))
    cluster = {"worker": [f"localhost:{probe.getsockname()[1]}" for probe in probes]}
    for probe in probes:
        probe.close()
    return [json.dumps({"cluster": cluster, "task": {"type": "worker", "index": n}}) for n in range(count)]


def test_two_machines_make_the_update_of_one_device(tmp_path, one_device):
    outputs = [tmp_path / "first.npz", tmp_path / "second.npz"]
    configs = clusters(2)
    processes = [
        start("tensorflow", 1, 2, output, [{}], environment={"TF_CONFIG": config})
        for output, config in zip(outputs, configs, strict=True)
    ]
    for process, output in zip(processes, outputs, strict=True):
        (made_there,) = results(process, output, 1)
        assert_same_update(one_device[0], made_there)


@pytest.mark.slow
def test_two_machines_stop_together_and_resume(tmp_path):
    write_dataset(tmp_path / "data")
    (tmp_path / "model.json").write_text(SMALLEST.to_json(), encoding="utf-8")
    command = [sys.executable, "-c", SLOW_DISK, "pretrain", "--data", "data", "--model", "model.json"]
    command += ["--num_train_steps", "80", "--train_batch_size", "4", "--eval_batch_size", "4"]
    command += ["--save_checkpoints_steps", "40"]

    def begin(output, *flags, **environment):
        log = (tmp_path / f"{len(list(tmp_path.iterdir()))}.log").open("w+")
        whole = [*command, "--output", output, *flags]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        return subprocess.Popen(whole, cwd=tmp_path, stdout=log, stderr=log, env=environment), log

    def said(log):
        return Path(log.name).read_text(encoding="utf-8")

    # The second process evaluates the checkpoint that the first one wrote.
    runs = [begin("short", "--num_train_steps", "3", TF_CONFIG=config) for config in clusters(2)]
    for process, log in runs:
        assert process.wait(300) == 0, said(log)

    runs = [begin("together", TF_CONFIG=config) for config in clusters(2)]
    (first, first_log), (second, _) = runs
    while "step " not in said(first_log) and first.poll() is None:
        time.sleep(0.05)
    # The first process stops too, instead of waiting for the second one, which gets the signal.
    second.send_signal(signal.SIGTERM)
    assert [process.wait(300) for process, _ in runs] == [128 + signal.SIGTERM] * 2, said(first_log)
    runs = [begin("together", TF_CONFIG=config) for config in clusters(2)]
    for process, log in runs:
        assert process.wait(300) == 0, said(log)
        assert "Resuming together from step" in said(log)

    process, log = begin("mirrored", "--cpu_devices", "2")
    assert process.wait(300) == 0, said(log)
    results_of = [(tmp_path / output / "eval_results.txt").read_text() for output in ("together", "mirrored")]
    assert results_of[0] == results_of[1]
    one, other = (
        tf.train.load_checkpoint(str(tmp_path / output / "checkpoints/model.ckpt-80"))
        for output in ("together", "mirrored")
    )
    for name in one.get_variable_to_shape_map():
        # The sum of two numbers is the same in either order.
        np.testing.assert_array_equal(one.get_tensor(name), other.get_tensor(name), err_msg=name)
