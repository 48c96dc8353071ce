"""Define the interface between the training loop and its backends, and load a backend.

Model, losses, optimizers and metrics are written in keras.ops; a backend has only devices, compilation and input. It is
a package of this directory whose module `runtime` has the members of `Backend`.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import keras
import numpy as np

from beambert.trainers.data.batches import Batches, InputShard
from beambert.trainers.objective import Features, Objective, Ratios, Tensor
from beambert.trainers.optimization.learning_rate_schedule import LearningRateSchedule
from beambert.trainers.optimization.optimizer_options import OptimizerOptions
from beambert.trainers.optimization.optimizers import Optimizer

# The input pipelines of the processes that train together, each of which reads its part of every batch.
MakeBatches = Callable[[InputShard], Batches]


@dataclass(frozen=True)
class TrainConfig:
    """The configuration of training steps.

    Attributes:
        num_train_steps: number of steps.
        num_warmup_steps: number of warm-up steps among them.
        learning_rate: peak learning rate.
        seed: dropout seed, below 2**31.
        lr_schedule: learning rate after warm-up.
        gradient_accumulation_steps: number of micro-batches per replica and step, computed in sequence.
        clip_per_replica: whether gradients are clipped on each replica before the sum, with a loss averaged over the
            replica's part of the batch, as the released code does on TPUs; otherwise the sum is clipped.
        skip_nonfinite: whether to skip a step with a non-finite loss or gradient instead of stopping.
        xla: whether TensorFlow compiles the forward and backward pass with XLA; JAX always does.
        shard_optimizer_state: whether JAX shards the optimizer slots over the devices; TensorFlow has no such option.
        optimizer: optimizer and its hyperparameters.
    """

    num_train_steps: int
    num_warmup_steps: int
    learning_rate: float
    seed: int
    lr_schedule: LearningRateSchedule = field(default_factory=LearningRateSchedule)
    gradient_accumulation_steps: int = 1
    clip_per_replica: bool = False
    skip_nonfinite: bool = False
    xla: bool = False
    shard_optimizer_state: bool = False
    optimizer: OptimizerOptions = field(default_factory=OptimizerOptions)

    def learning_rate_at(self, step: Any, ops: ModuleType | None = None) -> Any:
        """Return the learning rate of a step; the arguments are those of `LearningRateSchedule.rate_at`."""
        return self.lr_schedule.rate_at(step, self.learning_rate, self.num_train_steps, self.num_warmup_steps, ops)


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

    def gathered(self, values: np.ndarray) -> np.ndarray:
        """Return the values of every process, [processes, ...], equal in all processes."""

    def from_chief(self, values: np.ndarray) -> np.ndarray:
        """Return the chief's values, int32 or uint8, in all processes, where `values` have the same shape and dtype."""

    def machine_errors(self) -> AbstractContextManager[None]:
        """Return a context that raises TrainingError if another process ends during the body."""


class Trainer(Protocol):
    """An objective with its optimizer, the content of a checkpoint.

    Attributes:
        task: the objective. Between two calls of `make_steps` it may be replaced by another objective of the same
            variables.
        config: configuration of the training steps.
        distribution: the devices.
        optimizer: the optimizer with its slots.
        saved_variables: weights and optimizer slots by their names in checkpoints.
    """

    task: Objective
    config: TrainConfig
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

    def make_trainer(self, task: Objective, config: TrainConfig, distribution: Distribution) -> Trainer:
        """Return a trainer of an objective whose variables were created in the scope of the devices."""

    def evaluation_of(self, task: Objective, distribution: Distribution) -> Callable[[MakeBatches], dict[str, float]]:
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


def active_backend() -> Backend:
    """Return the backend that was started."""
    return load(keras.backend.backend())


def load(name: str) -> Backend:
    """Return a backend whose library was started (`beambert.trainers.backends.startup`)."""
    backend: Backend = importlib.import_module(f"beambert.trainers.backends.{name}.runtime")
    return backend
