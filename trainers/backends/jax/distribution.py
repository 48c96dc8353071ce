"""Open the devices of a run with JAX: all devices of all processes, as a mesh with one axis.

Move the values of Keras variables to the devices, and recognize errors of devices without enough memory.
"""

import atexit
import contextlib
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import keras
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from beambert.trainers.backends.backend import MakeBatches
from beambert.trainers.backends.jax.prefetch import Prefetch
from beambert.trainers.backends.jax.startup import LOST_PROCESS
from beambert.trainers.data.pipeline import InputShard
from beambert.trainers.errors import TrainingError

# The axis of the mesh, over which batches are sharded.
DATA = "data"
_SIZES = re.compile(r"\(([\d.]+)([KMGT])\) exceeds available HBM \(([\d.]+)([KMGT])\)")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_REMEDY = "raise --gradient_accumulation_steps, use --activation_checkpointing or lower --train_batch_size"


class Distribution:
    """The devices of a run. Each device has a copy of every weight and gets an equal part of every batch.

    Args:
        devices: the devices, those of a process consecutive; None for all devices of all processes.

    Attributes:
        mesh: mesh of all devices with the axis `DATA`.
        replicas: number of devices over all processes.
        several_processes: whether several processes train together.
        is_chief: whether this process writes the run's files.
        is_tpu: False: TPU cores need no special input.
        is_accelerated: whether the devices are not CPUs.
        device_name: name of the devices, such as "TPU v5 lite"; empty for CPUs.
    """

    def __init__(self, devices: list[Any] | None = None) -> None:
        in_order = devices or sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
        self.mesh = Mesh(np.array(in_order), (DATA,))
        self.replicas = len(in_order)
        self.several_processes = jax.process_count() > 1
        self.is_chief = jax.process_index() == 0
        self.is_tpu = False
        self.is_accelerated = in_order[0].platform != "cpu"
        self.device_name = in_order[0].device_kind if self.is_accelerated else ""
        self.replicated = NamedSharding(self.mesh, PartitionSpec())
        self.by_example = NamedSharding(self.mesh, PartitionSpec(DATA))

    def scope(self) -> AbstractContextManager[Any]:
        """Return a context for new variables, which are copied to the devices when they are first used."""
        return contextlib.nullcontext()

    def batches(self, make: MakeBatches) -> Prefetch:
        """Return an iterator over global batches on the devices, of which each process reads its part ahead of use."""
        # The replicas of a process read their parts as one array.
        shard = InputShard(jax.process_count(), jax.process_index(), 1)
        return Prefetch(make(shard), self.global_arrays)

    def global_arrays(self, features: dict[str, np.ndarray]) -> dict[str, jax.Array]:
        """Return global arrays [B, ...], sharded over the devices, of this process's part of a batch."""
        return {
            name: jax.make_array_from_process_local_data(self.by_example, values) for name, values in features.items()
        }

    def on_devices(self, value: Any, spec: PartitionSpec) -> jax.Array:
        """Return a value that is equal in all processes as an array that is distributed over all devices.

        Args:
            value: an array, or the result of an earlier call.
            spec: the axis sharded over the devices; empty for a copy on every device.
        """
        sharding = NamedSharding(self.mesh, spec)
        if isinstance(value, jax.Array) and value.sharding == sharding:
            return value
        values = np.asarray(value)
        return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])

    def on_host(self, value: jax.Array) -> np.ndarray:
        """Return an array that is sharded over the processes, all of which must call this."""
        return np.asarray(multihost_utils.process_allgather(value, tiled=True))

    def shard_map(self, function: Callable[..., Any], in_specs: Any, out_specs: Any) -> Callable[..., Any]:
        """Return a function of global arrays that calls `function` on every device with the device's parts."""
        # Without check_vma, gradients of replicated values stay those of a device, and are summed once per step.
        return jax.shard_map(function, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)

    def votes(self, vote: int) -> int:
        """Return the sum of the votes of all processes."""
        return int(self.gather_from_processes(np.array(vote, np.int32)).sum())

    def gather_from_processes(self, values: np.ndarray) -> np.ndarray:
        """Return the values of every process, [processes, ...], equal in all processes."""
        return np.asarray(multihost_utils.process_allgather(values)).reshape(jax.process_count(), *values.shape)

    def from_chief(self, values: np.ndarray) -> np.ndarray:
        """Return the chief's values, int32 or uint8, in all processes, where `values` have the same shape and dtype."""
        return np.asarray(multihost_utils.broadcast_one_to_all(values))

    def barrier(self) -> None:
        """Wait until every process has called this, so that each sees the files that others wrote before."""
        if self.several_processes:
            multihost_utils.sync_global_devices("beambert barrier")

    @contextlib.contextmanager
    def machine_errors(self) -> Iterator[None]:
        """Raise TrainingError if another process ends or the memory of a device is too small during the body.

        Raises:
            TrainingError: another process ended or cannot be reached, or a device is out of memory.
        """
        try:
            yield
        except Exception as error:
            if self.several_processes:
                atexit.register(_exit_without_waiting)
            if isinstance(error, jax.errors.JaxRuntimeError) and (message := memory_error(error)):
                raise TrainingError(message) from error
            if isinstance(error, jax.errors.JaxRuntimeError) and self.several_processes:
                raise TrainingError(LOST_PROCESS) from error
            raise


def _exit_without_waiting() -> None:
    """End a process that failed: JAX's own end waits for the others, which wait for this one in a collective."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def open_distribution(strategy: str, tpu_name: str | None = None, *_: str | None) -> Distribution:
    """Open the devices; JAX must have been started.

    Args:
        strategy: "auto" and "mirrored" take all devices, "multi_worker" those of all processes, "single" the first
            device, and "tpu" the TPU of this process and the others.
        tpu_name: not supported: a program that uses JAX runs on the TPU's own machines.

    Raises:
        TrainingError: the devices are not available, several processes have the strategy "single", or processes differ
            in their number of devices.
    """
    if tpu_name is not None:
        raise TrainingError(
            "invalid --tpu_name with --backend jax: run the command on every machine of the TPU instead"
        )
    try:
        devices = jax.devices()
    except RuntimeError as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise TrainingError(f"JAX cannot open its devices ({reason}); check JAX_PLATFORMS and the driver") from error
    if strategy == "tpu" and devices[0].platform != "tpu":
        raise TrainingError(
            f"--strategy tpu: JAX found no TPU, but {devices[0].device_kind}; run the command on a TPU machine and "
            "install beambert[tpu]"
        )
    if strategy == "single" and jax.process_count() > 1:
        raise TrainingError(
            f"invalid --strategy single with {jax.process_count()} processes: it is the first device of each, without "
            "an exchange of gradients; omit --strategy, or start a single process"
        )
    check_equal_devices([device.process_index for device in devices])
    return Distribution(jax.local_devices()[:1]) if strategy == "single" else Distribution()


def check_equal_devices(processes: Sequence[int]) -> None:
    """Check that all processes have the same number of devices, so that their parts of a batch are equal.

    Args:
        processes: the index of the process of each device.

    Raises:
        TrainingError: a process and the first one have different numbers of devices.
    """
    counts = Counter(processes)
    for process, count in sorted(counts.items()):
        if count != counts[0]:
            plural = "s" if counts[0] > 1 else ""
            raise TrainingError(
                f"process 0 has {counts[0]} device{plural}, process {process} has {count}: start every process with "
                "the same number of devices"
            )


def with_values(variables: Sequence[keras.Variable], values: Sequence[Any]) -> keras.StatelessScope:
    """Return a context in which variables have the given values, which may be traced."""
    return keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True)))


def place(
    variables: Sequence[keras.Variable], distribution: Distribution, specs: Sequence[PartitionSpec] | None = None
) -> list[jax.Array]:
    """Return the values of variables on the devices, where they stay.

    Args:
        variables: the variables.
        distribution: the devices.
        specs: how each variable is distributed; None for a copy on every device.
    """
    specs = specs or [PartitionSpec()] * len(variables)
    values = [distribution.on_devices(variable.value, spec) for variable, spec in zip(variables, specs, strict=True)]
    assign(variables, values)
    return values


def assign(variables: Sequence[keras.Variable], values: Sequence[jax.Array]) -> None:
    """Assign arrays to variables without copying them."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


class ExceededMemory(NamedTuple):
    """Memory that a program needs, arguments included, and the memory of a device for a program."""

    required_bytes: int
    available_bytes: int


def exceeded_memory(error: jax.errors.JaxRuntimeError) -> ExceededMemory | None:
    """Return the sizes in the error of a TPU program that does not fit into the memory of a device; None for others."""
    if (sizes := _SIZES.search(str(error))) is None:
        return None
    required, unit, available, available_unit = sizes.groups()
    return ExceededMemory(round(float(required) * _UNITS[unit]), round(float(available) * _UNITS[available_unit]))


def memory_error(error: jax.errors.JaxRuntimeError) -> str | None:
    """Return the message for a program that does not fit into the memory of a device; None for other errors.

    Args:
        error: error of compiling or running a program.
    """
    text = str(error)
    if not text.startswith("RESOURCE_EXHAUSTED"):
        return None
    sizes = _SIZES.search(text)
    needed = f" ({sizes[1]}{sizes[2]}iB of temporary data, {sizes[3]}{sizes[4]}iB available)" if sizes else ""
    return f"the step does not fit into the memory of a device{needed}: {_REMEDY}"
