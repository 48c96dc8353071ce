"""Test that TensorFlow makes the same steps on one and several devices and machines."""

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

from beambert.trainers.backends.tensorflow.distribution import Distribution
from tests.conftest import ROOT
from tests.trainers.backends.device_runs import SLOW_DISK, assert_same_update, values_on_devices
from tests.trainers.backends.updates import run_case
from tests.trainers.checkpoints.saved_checkpoints import variables
from tests.trainers.pretraining_shards import SMALLEST, write_dataset

LAMB = {"optimizer": "lamb"}
PER_REPLICA = {"clip": "per_shard"}


@pytest.fixture(scope="module")
def plain():
    """Values of a case on one device: LAMB, with evaluation."""
    return run_case({**LAMB, "evaluation": True}, Distribution())


@pytest.fixture(scope="module")
def per_replica():
    return run_case({**LAMB, **PER_REPLICA}, Distribution())


@pytest.mark.slow
def test_accumulation_and_xla_change_nothing(plain):
    assert plain["metric/loss"][1] == 3
    options = {"accumulation": 2, "xla": "on", "evaluation": True}
    assert_same_update(plain, run_case({**LAMB, **options}, Distribution()))


def test_on_one_device_clipping_per_replica_is_clipping(plain, per_replica):
    for name, value in per_replica.items():
        if name != "metric/gradient_norm":
            np.testing.assert_allclose(plain[name], value, rtol=2e-4, atol=2e-5, err_msg=name)
    # The reported norm is that of the gradient passed to the optimizer, which is clipped here.
    assert per_replica["metric/gradient_norm"][0] / 3 <= 1.0001


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits(plain):
    first, second = (run_case({**LAMB, "dropout": 0.1}, Distribution()) for _ in range(2))
    for name, value in first.items():
        np.testing.assert_array_equal(second[name], value, err_msg=name)
    name = "bert/embeddings/word_embeddings"
    assert not np.array_equal(first[name], plain[name])


def test_two_devices_make_the_update_of_one(tmp_path, plain, per_replica):
    # The parts have different numbers of masked tokens, so that a mean of means would give another result.
    skipping = {**LAMB, "skipped_step": 1}
    accumulated, clipped, skipped = values_on_devices(
        tmp_path, "tensorflow", 2, {**LAMB, "accumulation": 2, "evaluation": True}, {**LAMB, **PER_REPLICA}, skipping
    )
    assert_same_update(plain, accumulated)
    # The gradient of the second device is not finite, and neither device changes.
    assert_same_update(run_case(skipping, Distribution()), skipped)
    name = "bert/encoder/layer_0/intermediate/dense/kernel"
    assert np.abs(clipped[name] - per_replica[name]).max() > 1e-3
    # Each device's gradient is clipped to 1 and then added, as the released code does on TPU cores.
    assert clipped["metric/gradient_norm"][0] / 3 > 1.2


def clusters(count):
    """Return TF_CONFIG for each of several processes on this machine."""
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("localhost", 0))
    cluster = {"worker": [f"localhost:{probe.getsockname()[1]}" for probe in probes]}
    for probe in probes:
        probe.close()
    return [json.dumps({"cluster": cluster, "task": {"type": "worker", "index": n}}) for n in range(count)]


@pytest.mark.slow
def test_two_machines_stop_together_and_resume_as_two_devices(tmp_path):
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
    one, other = (variables(tmp_path / output, 80) for output in ("together", "mirrored"))
    for name, value in one.items():
        # The sum of two numbers is the same in either order.
        np.testing.assert_array_equal(value, other[name], err_msg=name)
