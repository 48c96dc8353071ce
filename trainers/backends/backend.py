"""Define the interface between the training loop and its backends, and load a backend.

Model, losses, optimizers and metrics are written in keras.ops; a backend has only devices, compilation and input. It is
a package of this directory whose module `runtime` has the members of `Backend`.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import keras
import numpy as np

from beambert.trainers.data.pipeline import Batches, InputShard
from beambert.trainers.objective import Features, Objective, Ratios, Tensor
from beambert.trainers.optimization.optimizers import Optimizer
from beambert.trainers.options import TrainingOptions

# The input pipelines of the processes that train together, each of which reads its part of every batch.
MakeBatches = Callable[[InputShard], Batches]


class StepResults(NamedTuple):
    """The results of several steps.

    Attributes:
        sums: metric sums over the steps and all replicas.
        first_nonfinite: first step with a non-finite loss or gradient; -1 for none.
        seconds_waiting: seconds spent waiting for batches.
        seconds_compiling: seconds spent compiling the step.
        stop_votes: number of processes that voted to stop.
    """

    sums: Ratios
    first_nonfinite: int
    seconds_waiting: float
    seconds_compiling: float
    stop_votes: int


# Function of first step, number of steps and the stop vote of this process (0 or 1).
RunSteps = Callable[[int, int, int], StepResults]


class Distribution(Protocol):
    """The devices of a run. Each replica has a copy of every weight and gets an equal part of every batch.

    Attributes:
        replicas: number of devices over all processes.
        several_processes: whether several processes train together.
        is_chief: whether this process writes the run's files.
        is_tpu: whether the replicas are TPU cores.
        is_accelerated: whether there is a device other than a CPU.
        device_name: name of the accelerators, such as "NVIDIA A100-SXM4-40GB"; empty on CPUs and where it is unknown.
    """

    replicas: int
    several_processes: bool
    is_chief: bool
    is_tpu: bool
    is_accelerated: bool
    device_name: str

    def scope(self) -> AbstractContextManager[Any]:
        """Return a context in which new variables get a copy on every replica."""

    def barrier(self) -> None:
        """Wait until every process has called this, so that each sees the files that others wrote before."""

    def gather_from_processes(self, values: np.ndarray) -> np.ndarray:
        """Return the values of every process, [processes, ...], equal in all processes."""

    def from_chief(self, values: np.ndarray) -> np.ndarray:
        """Return the chief's values, int32 or uint8, in all processes, where `values` have the same shape and dtype."""

    def machine_errors(self) -> AbstractContextManager[None]:
        """Return a context that raises TrainingError if another process ends during the body."""


class Trainer(Protocol):
    """An objective with its optimizer, the content of a checkpoint.

    Attributes:
        objective: the objective. Between two calls of `make_steps` it may be replaced by another objective of the same
            variables.
        config: options of the steps; the learning rate and the numbers of steps must be known.
        distribution: the devices.
        optimizer: the optimizer with its slots.
        saved_variables: weights and optimizer slots by their names in checkpoints.
    """

    objective: Objective
    config: TrainingOptions
    distribution: Distribution
    optimizer: Optimizer
    saved_variables: dict[str, keras.Variable]

    def checkpoint_values(self) -> Mapping[str, keras.Variable | np.ndarray]:
        """Return the content of a checkpoint, which the chief can read; every process must call this."""

    def make_steps(self, make: MakeBatches) -> AbstractContextManager[RunSteps]:
        """Return a context with a function that runs the next steps on the batches of `make`, in order."""


class Backend(Protocol):
    """The members of the module `runtime` of a backend."""

    def open_distribution(
        self, strategy: str, tpu_name: str | None = None, tpu_zone: str | None = None, gcp_project: str | None = None
    ) -> Distribution:
        """Open the devices; call before any computation. Raises TrainingError if they are not available."""

    def make_trainer(self, objective: Objective, config: TrainingOptions, distribution: Distribution) -> Trainer:
        """Return a trainer of an objective whose variables were created in the scope of the devices."""

    def evaluation_of(
        self, objective: Objective, distribution: Distribution
    ) -> Callable[[MakeBatches], dict[str, float]]:
        """Return a function from batches to the metrics of an objective over them; it is compiled once."""

    def outputs_of(
        self, function: Callable[[Features], Tensor], variables: Sequence[keras.Variable], distribution: Distribution
    ) -> Callable[[MakeBatches], Iterator[np.ndarray]]:
        """Return a function from batches to the outputs of a forward pass, an array [batch_size, ...] per batch.

        Args:
            function: function of features and of the variables.
            variables: the variables that the function reads, whose values may change between calls.
            distribution: the devices.
        """

    def compiled(
        self, function: Callable[..., Any], variables: Sequence[keras.Variable], *, once: bool = False
    ) -> Callable[..., Any]:
        """Return a compiled forward pass on a device of this process, from and to structures of numpy arrays.

        Args:
            function, variables: as for `outputs_of`.
            once: whether it will be called only once. TensorFlow then runs operation by operation, without a graph.
        """


def uses_xla(config: TrainingOptions, distribution: Distribution) -> bool:
    """Return whether the training step is compiled with XLA, separately for each shape."""
    is_jax = keras.backend.backend() == "jax"
    return is_jax or config.xla == "on" or (config.xla == "auto" and distribution.is_accelerated)


def active_backend() -> Backend:
    """Return the backend that was started."""
    return load(keras.backend.backend())


def load(name: str) -> Backend:
    """Return a backend whose library was started (`beambert.trainers.backends.startup`)."""
    backend: Backend = importlib.import_module(f"beambert.trainers.backends.{name}.runtime")
    return backend
