"""The members of `beambert.trainers.backends.backend.Backend` for TensorFlow: training, evaluation and outputs."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from beambert.trainers.backends.backend import MakeBatches
from beambert.trainers.backends.tensorflow.distribution import Distribution
from beambert.trainers.backends.tensorflow.train_step import Trainer
from beambert.trainers.objective import Features, Objective, Sums, Tensor, compute_metrics, to_host

__all__ = ["compiled", "evaluation_of", "make_trainer", "open_distribution", "outputs_of"]

open_distribution = Distribution.open
make_trainer = Trainer


def evaluation_of(
    objective: Objective, distribution: Distribution | None = None
) -> Callable[[MakeBatches], dict[str, float]]:
    """Return a function from batches to the metrics over all of them; it is compiled once.

    Numerators and denominators are summed in float64 and divided once, so that the weight of an example does not
    depend on its batch.

    Args:
        objective: the objective.
        distribution: the devices; None for a single device.
    """
    devices = distribution or Distribution()

    def sums(features: Features) -> Sums:
        return objective.sums(features, None)

    def sums_of(batch: Features) -> Sums:
        return devices.sum(devices.run(sums, batch))

    # AutoGraph takes longer than tracing, and there is no Python control flow to convert.
    step = tf.function(sums_of, autograph=False)

    def evaluate(make: MakeBatches) -> dict[str, float]:
        with devices.batches(make) as batches:
            return compute_metrics(to_host(step(features)) for features in batches)

    return evaluate


def outputs_of(
    function: Callable[[Features], Tensor], _variables: Sequence[keras.Variable], distribution: Distribution
) -> Callable[[MakeBatches], Iterator[np.ndarray]]:
    """Return a function from batches to the outputs of a forward pass, an array [batch_size, ...] per batch.

    At most two graphs are traced: for the shape of the first batch, and for all other shapes.
    """

    def gather(features: Features) -> Tensor:
        return distribution.gather(distribution.run(function, features))

    step = tf.function(gather, autograph=False, reduce_retracing=True)

    def run(make: MakeBatches) -> Iterator[np.ndarray]:
        with distribution.batches(make) as batches:
            for features in batches:
                yield step(features).numpy()

    return run


def compiled(
    function: Callable[..., Any], _variables: Sequence[keras.Variable], *, once: bool = False
) -> Callable[..., Any]:
    """Return a compiled forward pass, from and to structures of numpy arrays; one graph is traced for all shapes.

    With `once`, it runs without a graph: tracing takes longer than a batch.
    """
    in_graph = tf.function(function, autograph=False)

    def run(*inputs: Any) -> Any:
        tensors = tf.nest.map_structure(tf.convert_to_tensor, inputs)
        if once:
            return tf.nest.map_structure(lambda output: output.numpy(), function(*tensors))
        specs = tf.nest.map_structure(lambda tensor: tf.TensorSpec([None] * tensor.shape.rank, tensor.dtype), tensors)
        outputs = in_graph.get_concrete_function(*specs)(*tensors)
        return tf.nest.map_structure(lambda output: output.numpy(), outputs)

    return run
