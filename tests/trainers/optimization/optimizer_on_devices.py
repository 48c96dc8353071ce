"""Compare steps of LAMB on two logical CPU devices with the same steps on one device.

Under JAX, the steps are made with replicated and with sharded optimizer state. The gradients of the devices are
integers, so that their sum is the same in every order.
As a program with KERAS_BACKEND=jax, it also saves `compiled_results` of `optimizer_steps`. Arguments: an .npz file.
"""

import sys
from itertools import pairwise

import keras
import numpy as np
from keras import ops

from tests.trainers.optimization.optimizer_problem import SHAPES, UNUSED, initial_weights
from tests.trainers.optimization.optimizer_steps import compiled_results
from trainers.backends import backend
from trainers.backends.backend import Distribution, TrainConfig, Trainer
from trainers.backends.startup import start_backend
from trainers.data.batches import Batches, InputShard
from trainers.objective import Features, Objective, Sums, Tensor
from trainers.optimization.optimizer_options import OptimizerOptions

BACKEND = keras.backend.backend()
DEVICES = 2
STEPS = 5
# Steps that are skipped: a gradient is not finite, on the second device only.
SKIPPED = (0, 3)
# Zeros of either sign and numbers near underflow: arithmetic instead of a selection would change them.
HARD = np.array([-0.0, 0.0, 1e-38, -1e-40, 1e-45], np.float32)


def part(name: str, step: int, row: int) -> np.ndarray:
    """Return the gradient of a row of the batch."""
    count = int(np.prod(SHAPES[name]))
    values = ((np.arange(count) * (step + 3) + 7 * row) % 11 - 5).reshape(SHAPES[name]).astype(np.float32)
    if step in SKIPPED and row == 1 and name == "bert/encoder/layer_0/output/dense/kernel":
        values[1, 2] = np.inf if step else np.nan
    return values


def batches(share: InputShard) -> Batches:
    """Return batches with a row for each device."""
    size = DEVICES // share.replicas
    elements = []
    for step in range(STEPS):
        for replica in range(share.first_replica, share.first_replica + share.local_replicas):
            rows = range(replica * size, (replica + 1) * size)
            of_rows = {name: np.stack([part(name, step, row) for row in rows]) for name in SHAPES if name != UNUSED}
            elements.append({"input_ids": np.zeros((size, 1), np.int32), **of_rows})
    shapes = {name: (values.shape, values.dtype) for name, values in elements[0].items()}
    return Batches(len(elements), shapes, lambda index: iter(elements[index:]))


def objective(variables: dict[str, keras.Variable]) -> Objective:
    """Return the mean over rows of a linear function whose gradients are the features."""

    def weights(features: Features) -> dict[str, Tensor]:
        return {"linear": ops.cast(ops.shape(features["input_ids"])[0], "float32")}

    def sums(features: Features, seed: Tensor | None) -> Sums:
        total = sum(ops.sum(variables[name] * features[name]) for name in SHAPES if name != UNUSED)
        return {"linear": (total, weights(features)["linear"])}

    return Objective(variables, sums, weights)


def copies(variable: keras.Variable) -> list[np.ndarray]:
    """Return the values on every device; for a sharded variable, a single array with the complete value."""
    if BACKEND == "jax" and not variable.value.is_fully_replicated:
        return [np.array(variable.value)]
    if BACKEND == "jax":
        return [np.array(shard.data) for shard in variable.value.addressable_shards]
    return [copy.numpy() for copy in getattr(variable.value, "values", [variable.value])]


def bits(trainer: Trainer) -> dict[str, bytes]:
    """Return the bits of every variable and slot; check that they are equal on all devices."""
    found = {}
    for name, variable in trainer.saved_variables.items():
        (found[name],) = {copy.tobytes() for copy in copies(variable)}
    return found


def bits_of_steps(distribution: Distribution, is_sharded: bool) -> list[dict[str, bytes]]:
    """Return the bits before the first step and after every step."""
    with distribution.scope():
        variables = {name: keras.Variable(value) for name, value in initial_weights().items()}
    # LAMB also has the bias correction of AdamW and, as the only one, a norm of a whole variable.
    options = OptimizerOptions(name="lamb")
    config = TrainConfig(10, 0, 0.01, seed=1, skip_nonfinite=True, shard_optimizer_state=is_sharded, optimizer=options)
    trainer = backend.load(BACKEND).make_trainer(objective(variables), config, distribution)
    for variable in trainer.saved_variables.values():
        values = copies(variable)[0].copy()
        values.flat[: HARD.size] = HARD[: values.size]
        variable.assign(values)
    found = [bits(trainer)]
    with trainer.make_steps(batches) as run:
        for step in range(STEPS):
            assert run(step, 1, 0).first_nonfinite == (step if step in SKIPPED else -1)
            found.append(bits(trainer))
    devices = 1 if distribution.several_processes else distribution.replicas
    are_sharded = [len(copies(slot)) < devices for slot in trainer.optimizer.slots.values()]
    assert any(are_sharded) == (is_sharded and distribution.replicas > 1)
    assert not all(are_sharded)
    return found


def assert_equal(values: bytes, expected: bytes, message: str) -> None:
    """Assert equal bits under TensorFlow, close values under JAX: XLA rounds in another order for several devices."""
    if BACKEND == "tensorflow":
        assert values == expected, message
    pair = (np.frombuffer(content, np.float32) for content in (values, expected))
    np.testing.assert_allclose(*pair, rtol=1e-6, atol=1e-8, err_msg=message)


def compare_devices() -> None:
    """Compare the bits of one and of two devices, and the bits before and after each step."""
    start_backend(BACKEND, cpu_devices=DEVICES)
    if BACKEND == "jax":
        from trainers.backends.jax import optimizer_sharding

        # Matrices are sharded along either axis, and vectors too; some variables have no axis divisible by two.
        optimizer_sharding.LEAST_ELEMENTS = 1
    runtime = backend.load(BACKEND)
    one, several = runtime.open_distribution("single"), runtime.open_distribution("mirrored")
    assert (one.replicas, several.replicas) == (1, DEVICES)
    of_one = bits_of_steps(one, is_sharded=False)
    for is_sharded in (False, True) if BACKEND == "jax" else (False,):
        of_several = bits_of_steps(several, is_sharded)
        for step, (before, after) in enumerate(pairwise(of_several)):
            assert after.keys() == before.keys()
            for name, values in after.items():
                is_same = step in SKIPPED or name.startswith(UNUSED)
                assert (values == before[name]) == is_same, (is_sharded, step, name)
                assert_equal(values, of_one[step + 1][name], f"sharded {is_sharded}, step {step}, {name}")


if __name__ == "__main__":
    start_backend(BACKEND, cpu_devices=DEVICES)
    np.savez(sys.argv[1], **compiled_results())
    compare_devices()
