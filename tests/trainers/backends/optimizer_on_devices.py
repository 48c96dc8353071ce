"""Makes some updates on four logical CPU devices under MirroredStrategy, and the same ones on one device.

The gradients of the replicas are whole numbers, so that their sum is the same in every order, and all bits must agree.
Run it as a program.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from tests.trainers.optimization.optimizer_problem import SHAPES, UNUSED, initial_weights
from trainers.optimization.optimizer_options import OPTIMIZERS, OptimizerOptions
from trainers.optimization.optimizers import Optimizer, clip_by_global_norm

DEVICES = 4
STEPS = 4
RATE = 0.01


def part(name: str, step: int, replica: int) -> np.ndarray:
    """One replica's part of a gradient."""
    count = int(np.prod(SHAPES[name]))
    return ((np.arange(count) * (step + 3) + 7 * replica) % 11 - 5).reshape(SHAPES[name]).astype(np.float32)


def on_one_device(options: OptimizerOptions) -> Optimizer:
    """The updates with the sum of all parts."""
    optimizer = Optimizer({name: tf.Variable(value) for name, value in initial_weights().items()}, options)

    @tf.function
    def update(given: dict[str, tf.Tensor], step: tf.Tensor, finite: tf.Tensor) -> None:
        clipped, _ = clip_by_global_norm([given.get(name) for name in SHAPES], options.clip_norm)
        optimizer.apply(clipped, tf.constant(RATE), step, finite)

    for step in range(STEPS):
        given = {
            name: tf.constant(sum(part(name, step, replica) for replica in range(DEVICES)))
            for name in SHAPES
            if name != UNUSED
        }
        update(given, tf.constant(step), tf.constant(step != 2))
    return optimizer


def on_all_devices(options: OptimizerOptions) -> Optimizer:
    """The updates with the parts summed over the replicas; the third is not finite and skipped."""
    strategy = tf.distribute.MirroredStrategy([f"/cpu:{index}" for index in range(DEVICES)])
    with strategy.scope():
        optimizer = Optimizer({name: tf.Variable(value) for name, value in initial_weights().items()}, options)

    def in_replica(step: tf.Tensor, parts: dict[str, tf.Tensor]) -> None:
        context = tf.distribute.get_replica_context()
        names = list(parts)
        summed = dict(zip(names, context.all_reduce("sum", [parts[name] for name in names]), strict=True))
        clipped, _ = clip_by_global_norm([summed.get(name) for name in SHAPES], options.clip_norm)
        finite = tf.not_equal(step, 2)

        def merged(strategy: tf.distribute.Strategy, gradients: list, rate: tf.Tensor, *others: tf.Tensor) -> None:
            def update_each(variable: tf.Variable, function: Any, arguments: tuple) -> Any:
                return strategy.extended.update(variable, function, args=arguments, group=False)

            optimizer.apply(gradients, rate, *others, update_each=update_each)

        context.merge_call(merged, args=(clipped, tf.constant(RATE), step, finite))

    @tf.function
    def update(step: tf.Tensor, parts: dict[str, tf.Tensor]) -> None:
        strategy.run(in_replica, args=(step, parts))

    for step in range(STEPS):
        parts = {
            name: strategy.experimental_distribute_values_from_function(
                lambda context, name=name, step=step: tf.constant(part(name, step, context.replica_id_in_sync_group))
            )
            for name in SHAPES
            if name != UNUSED
        }
        update(tf.constant(step), parts)
    return optimizer


def main() -> None:
    """Compares both."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * DEVICES)
    for optimizer in OPTIMIZERS:
        options = OptimizerOptions(name=optimizer)
        one, several = on_one_device(options), on_all_devices(options)
        copied = {**several.variables, **several.slots}
        for name, expected in {**one.variables, **one.slots}.items():
            copies = copied[name].values
            assert len({copy.device for copy in copies}) == len(copies) == DEVICES
            for copy in copies:
                np.testing.assert_array_equal(copy.numpy(), expected.numpy(), err_msg=f"{optimizer}: {name}")
        print(optimizer)


if __name__ == "__main__":
    main()
