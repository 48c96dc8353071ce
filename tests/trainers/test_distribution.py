"""The same updates whatever devices make them, in processes whose CPU is split into logical devices."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PROGRAM = Path(__file__).with_name("updates_on_devices.py")
PLAIN = {"batch_size": 32, "steps": 3}


def start(devices, replicas, output, cases, **environment):
    cases = [{**PLAIN, **case} for case in cases]
    arguments = json.dumps({"devices": devices, "replicas": replicas, "output": str(output), "cases": cases})
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    )


def results(process, output, count):
    """What each case came to, by name."""
    said, _ = process.communicate(timeout=400)
    assert process.returncode == 0, said[-3000:]
    with np.load(output) as file:
        values = {name: file[name] for name in file.files}
    return [
        {name.partition(":")[2]: value for name, value in values.items() if name.startswith(f"{number}:")}
        for number in range(count)
    ]


def made(tmp_path, devices, *cases):
    output = tmp_path / f"{devices}.npz"
    return results(start(devices, devices, output, cases), output, len(cases))


@pytest.fixture(scope="module")
def one_device(tmp_path_factory):
    """Cases on one device: plain, accumulated, compiled by XLA, LAMB, clipped per replica."""
    return made(
        tmp_path_factory.mktemp("one"),
        1,
        {},
        {"accumulation": 4},
        {"accumulation": 2, "xla": True},
        {"optimizer": "lamb"},
        {"clip_per_replica": True},
        {"dropout": 0.1},
        {"dropout": 0.1},
    )


def assert_same_update(first, second):
    """Equal to what float32 sums in another order differ by; slots beside the size of what they hold."""
    assert first.keys() == second.keys()
    for name, value in first.items():
        # A gradient that is 0 in theory, as that of the keys' bias, is noise of this size.
        np.testing.assert_allclose(second[name], value, rtol=2e-4, atol=2e-5, err_msg=name)


def test_accumulation_and_xla_change_nothing(one_device):
    plain, accumulated, compiled, *_ = one_device
    assert plain["global_step"] == accumulated["global_step"] == 3
    assert plain["metric/loss"][1] == 3
    assert_same_update(plain, accumulated)
    assert_same_update(plain, compiled)


def test_on_one_device_clipping_per_replica_is_clipping(one_device):
    whole, per_replica = (
        {name: value for name, value in values.items() if name != "metric/gradient_norm"}
        for values in (one_device[0], one_device[4])
    )
    assert_same_update(whole, per_replica)
    # What is reported is the norm of what the optimizer gets: here, that of a clipped gradient.
    assert one_device[4]["metric/gradient_norm"][0] / 3 <= 1.0001


def test_the_same_seed_gives_the_same_bits(one_device):
    *_, first, second = one_device
    for name, value in first.items():
        np.testing.assert_array_equal(second[name], value, err_msg=name)
    name = "bert/embeddings/word_embeddings"
    assert not np.array_equal(first[name], one_device[0][name])


def test_four_devices_make_the_update_of_one(tmp_path, one_device):
    # The masked tokens of the parts differ in number, so that a mean of means would be another update.
    plain, accumulated, lamb, per_replica = made(
        tmp_path, 4, {}, {"accumulation": 2}, {"optimizer": "lamb"}, {"clip_per_replica": True}
    )
    assert_same_update(one_device[0], plain)
    assert_same_update(one_device[0], accumulated)
    assert_same_update(one_device[3], lamb)
    name = "bert/encoder/layer_0/intermediate/dense/kernel"
    assert np.abs(per_replica[name] - one_device[4][name]).max() > 1e-3
    # Each of the four gradients is clipped to 1 and then added, as the released code does on a TPU's cores.
    assert per_replica["metric/gradient_norm"][0] / 3 > 1.5


def test_two_machines_make_the_update_of_one_device(tmp_path, one_device):
    ports = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            ports.append(probe.getsockname()[1])
    processes, outputs = [], [tmp_path / "first.npz", tmp_path / "second.npz"]
    for index, output in enumerate(outputs):
        cluster = {"worker": [f"localhost:{port}" for port in ports]}
        config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
        processes.append(start(1, 2, output, [{}], TF_CONFIG=config))
    for process, output in zip(processes, outputs, strict=True):
        (made_there,) = results(process, output, 1)
        assert_same_update(one_device[0], made_there)
