"""Tests of sharded optimizer state: the sharded axes, the memory, and the same steps and checkpoints as without it."""

import numpy as np
import pytest

from tests.trainers.backends.device_runs import free_address, made, results, start
from trainers.backends.jax.optimizer_sharding import LEAST_ELEMENTS, sharded_axes

TWENTY = {"batch_size": 16, "steps": 20}
CASES = {
    "bert_adam": {"dropout": 0.1, "accumulation": 2},
    "adamw": {"optimizer": "adamw", "clip_per_replica": True},
    "lamb": {"optimizer": "lamb", "padded": True},
}
REPLICATED, SHARDED = {"shard_optimizer_state": False}, {"shard_optimizer_state": True}


def test_the_first_axis_that_the_devices_divide():
    shapes = {
        "bert/embeddings/word_embeddings": (30_592, 768),
        "bert/embeddings/token_type_embeddings": (2, 768),
        "bert/encoder/layer_0/output/dense/kernel": (3072, 768),
        "odd": (31, 33, 5),
        "bias": (LEAST_ELEMENTS,),
        "small": (LEAST_ELEMENTS - 16,),
        "scalar": (),
    }
    assert sharded_axes(shapes, 16) == {
        "bert/embeddings/word_embeddings": 0,
        "bert/embeddings/token_type_embeddings": 1,
        "bert/encoder/layer_0/output/dense/kernel": 0,
        "bias": 0,
    }
    assert sharded_axes({"odd": (31, 33, 5)}, 5) == {"odd": 2}
    assert sharded_axes({"odd": (31, 33, 5)}, 3) == {"odd": 1}
    assert sharded_axes(shapes, 1) == {}
    assert sharded_axes({"empty": (0, 5)}, 2) == {}


@pytest.fixture(scope="module")
def four_devices(tmp_path_factory):
    """Values of each case by its name, without and with sharding."""
    cases = [{**TWENTY, **case, **option} for case in CASES.values() for option in (REPLICATED, SHARDED)]
    values = made(tmp_path_factory.mktemp("four"), "jax", 4, *cases)
    return dict(zip(CASES, zip(values[::2], values[1::2], strict=True), strict=True))


def assert_same_values(values, expected):
    """Assert equality of each variable and metric to 1e-6 of its norm, and of each slot to 5e-6."""
    assert values.keys() == expected.keys()
    for name in expected.keys() - {"slot_bytes"}:
        assert (values[name].shape, values[name].dtype) == (expected[name].shape, expected[name].dtype)
        difference = np.linalg.norm(values[name] - expected[name])
        variable = name.removesuffix("/adam_m").removesuffix("/adam_v")
        if variable.endswith("key/bias"):
            # The gradient is 0 in theory and noise in both.
            assert expected[f"{variable}/adam_v"].max() < 1e-12
            tolerance = 1e-5 if name == variable else np.inf
        else:
            tolerance = 1e-6 if name == variable else 5e-6
        assert difference <= tolerance * np.linalg.norm(expected[name]), name


@pytest.mark.parametrize("name", CASES)
def test_twenty_steps_equal_those_without_sharding(four_devices, name):
    expected, sharded = four_devices[name]
    assert_same_values(sharded, expected)


@pytest.mark.parametrize("name", CASES)
def test_a_device_has_a_quarter_of_the_slots_of_large_variables(four_devices, name):
    expected, sharded = four_devices[name]
    slots = {key: value for key, value in expected.items() if key.endswith(("adam_m", "adam_v"))}
    large = sum(value.nbytes for value in slots.values() if value.size >= LEAST_ELEMENTS)
    small = sum(value.nbytes for value in slots.values() if value.size < LEAST_ELEMENTS)
    assert large > 5 * small
    assert expected["slot_bytes"] == large + small
    assert sharded["slot_bytes"] == large / 4 + small


@pytest.mark.slow
def test_two_processes_of_two_devices_make_the_steps_of_four_devices(tmp_path, four_devices):
    address = free_address()
    outputs = [tmp_path / f"{index}.npz" for index in range(2)]
    case = {**TWENTY, **CASES["lamb"], **SHARDED}
    running = [
        start("jax", 2, 4, output, [case], processes=[address, 2, index]) for index, output in enumerate(outputs)
    ]
    _, expected = four_devices["lamb"]
    chief, other = (results(process, output, 1)[0] for process, output in zip(running, outputs, strict=True))
    assert_same_values(chief, expected)
    assert other["slot_bytes"] == chief["slot_bytes"] == expected["slot_bytes"]
    # Only the chief saves checkpoints, so only the chief has the complete slots.
    assert chief.keys() - other.keys() == {name for name in expected if name.endswith(("adam_m", "adam_v"))}
    for name in other:
        np.testing.assert_array_equal(other[name], chief[name], err_msg=name)
