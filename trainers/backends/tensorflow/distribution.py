"""Open the devices of a run with tf.distribute: a single device, several GPUs, several machines or a TPU."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import tensorflow as tf

from beambert.trainers.backends.tensorflow.input import dataset_of
from beambert.trainers.data.pipeline import Batches, InputShard
from beambert.trainers.errors import TrainingError


class Distribution:
    """The devices of a run. Each replica has a copy of every variable and gets an equal part of every batch.

    Args:
        strategy: a strategy created before any computation; None for the default single device.

    Attributes:
        replicas: number of replicas over all machines.
        several_processes: whether several machines train together.
        is_chief: whether this process writes the run's files.
        is_tpu: whether the replicas are TPU cores.
        is_accelerated: whether there is a device other than a CPU.
        device_name: name of the first GPU; empty without one.
    """

    def __init__(self, strategy: tf.distribute.Strategy | None = None) -> None:
        self._strategy = tf.distribute.get_strategy() if strategy is None else strategy
        self.replicas = int(self._strategy.num_replicas_in_sync)
        resolver = self._strategy.cluster_resolver
        self.several_processes = isinstance(self._strategy, tf.distribute.MultiWorkerMirroredStrategy)
        self.is_tpu = isinstance(self._strategy, tf.distribute.TPUStrategy)
        self.is_chief = self.is_tpu or resolver is None or _is_chief(resolver)
        self.is_accelerated = any(device.device_type != "CPU" for device in tf.config.list_logical_devices())
        self.device_name = _gpu_name()

    @classmethod
    def open(
        cls, name: str, tpu_name: str | None = None, tpu_zone: str | None = None, gcp_project: str | None = None
    ) -> "Distribution":
        """Open the devices; call before any computation.

        Args:
            name: as in `DeviceOptions`. "auto" is "multi_worker" if TF_CONFIG is set, else "tpu" if a TPU
                is attached or named, else "mirrored" with several GPUs or logical CPU devices, else "single".
            tpu_name: name of the TPU; None for the TPU attached to this machine.
            tpu_zone: zone of the TPU; None for the zone of this machine.
            gcp_project: project of the TPU; None for the project of this machine.

        Raises:
            TrainingError: the devices are not available.
        """
        if name == "auto":
            name = _auto_strategy(tpu_name)
        if name == "single":
            return cls()
        if name == "tpu":
            return cls(_tpu(tpu_name, tpu_zone, gcp_project))
        if name == "multi_worker":
            if "TF_CONFIG" not in os.environ:
                raise TrainingError(
                    "--strategy multi_worker requires the environment variable TF_CONFIG, with the addresses of the "
                    "cluster and the task of this machine; set it on every machine"
                )
            try:
                return cls(tf.distribute.MultiWorkerMirroredStrategy())
            except (ValueError, KeyError, tf.errors.OpError) as error:
                raise TrainingError(
                    f"cannot join the cluster in TF_CONFIG ({error}); check the addresses and the task of this machine"
                ) from error
        return cls(tf.distribute.MirroredStrategy(_devices()))

    def scope(self) -> AbstractContextManager[Any]:
        """Return a context in which new variables get a copy on every replica."""
        return self._strategy.scope()

    @contextlib.contextmanager
    def batches(self, make: Callable[[InputShard], Batches]) -> Iterator[Any]:
        """Return a context with an iterable that yields one element for each replica at a time.

        The context raises the original error of the input pipeline in place of TensorFlow's error.

        Args:
            make: function of an input shard, one per machine; returns the elements of the shard's replicas in order.
        """
        errors: list[Exception] = []

        def of_pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
            local = context.num_replicas_in_sync // context.num_input_pipelines
            shard = InputShard(context.num_replicas_in_sync, context.input_pipeline_id * local, local)
            return dataset_of(make(shard), errors)

        try:
            yield self._strategy.distribute_datasets_from_function(of_pipeline)
        except tf.errors.OpError as error:
            if errors:
                raise errors[-1] from error
            raise

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on every replica; the result has one value per replica."""
        return self._strategy.run(function, arguments)

    def sum(self, values: Any) -> Any:
        """Return the sums over replicas of a structure of tensors that `run` returned."""
        return tf.nest.map_structure(lambda value: self._strategy.reduce("SUM", value, axis=None), values)

    def gather(self, values: Any) -> Any:
        """Return the results of `run` of all replicas, concatenated along the first dimension.

        Args:
            values: one structure of tensors per replica; shapes may differ in the first dimension only.
        """
        return tf.nest.map_structure(lambda value: self._strategy.gather(value, axis=0), values)

    def gather_from_processes(self, values: np.ndarray) -> np.ndarray:
        """Return the values of every process, [processes, ...], equal in all processes."""
        if not self.several_processes:
            return values[None]
        row = tf.constant(values[None].astype(np.int32))
        # All replicas of a process have its values.
        of_replicas = tf.function(lambda: self.gather(self.run(lambda: tf.identity(row))))().numpy()
        return of_replicas[:: len(self._strategy.extended.worker_devices)].astype(values.dtype)

    def from_chief(self, values: np.ndarray) -> np.ndarray:
        """Return the chief's values, int32 or uint8, in all processes, where `values` have the same shape and dtype."""
        received: np.ndarray = self.gather_from_processes(values)[0]
        return received

    def barrier(self) -> None:
        """Wait until every process has called this, so that each sees the files that others wrote before."""
        if self.several_processes:
            # A graph of its own, so that its collective operations have keys of their own.
            tf.function(lambda: self.sum(self.run(lambda: tf.constant(1))))().numpy()

    @contextlib.contextmanager
    def machine_errors(self) -> Iterator[None]:
        """Raise TrainingError if another process ends during the body.

        Raises:
            TrainingError: another process ended or cannot be reached.
        """
        try:
            yield
        except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError) as error:
            if not self.several_processes:
                raise
            raise TrainingError(
                "another machine in TF_CONFIG stopped or cannot be reached; check its log, stop all machines and start "
                "them again: they resume from the last checkpoint"
            ) from error

    def first(self, values: Any) -> Any:
        """Return the values of the first replica of this process."""
        return tf.nest.map_structure(lambda value: self._strategy.experimental_local_results(value)[0], values)


def replica_number() -> tf.Tensor:
    """Return the index of this replica, int32 scalar; call within `Distribution.run`."""
    return tf.cast(_context().replica_id_in_sync_group, tf.int32)


def sum_over_replicas(values: Any) -> Any:
    """Return the sums over all replicas; call within `Distribution.run`."""
    context = _context()
    return values if context.num_replicas_in_sync == 1 else context.all_reduce(tf.distribute.ReduceOp.SUM, values)


def update_together(function: Callable[..., None], tensors: Sequence[tf.Tensor]) -> None:
    """Call a function once for all replicas, to update variables; call within `Distribution.run`.

    Args:
        function: called with `update_each` and the tensors. It changes a variable by
            update_each(variable, change, (argument, ...)), which calls change(copy, argument, ...) on every device with
            that device's copy of the variable and of the arguments.
        tensors: tensors of this replica.
    """

    def merged(strategy: tf.distribute.Strategy, *merged_tensors: Any) -> None:
        def update_each(variable: Any, change: Callable[..., None], arguments: tuple[Any, ...]) -> None:
            strategy.extended.update(variable, change, args=arguments, group=False)

        function(update_each, *merged_tensors)

    _context().merge_call(merged, args=tuple(tensors))


def _context() -> Any:
    return tf.distribute.get_replica_context()


def _is_chief(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> bool:
    """Return whether this is the task "chief", or the first worker of a cluster without a chief."""
    return resolver.task_type == "chief" or (not resolver.task_id and "chief" not in resolver.cluster_spec().jobs)


def _auto_strategy(tpu_name: str | None) -> str:
    """Return the strategy for --strategy auto."""
    if "TF_CONFIG" in os.environ:
        return "multi_worker"
    if tpu_name or tf.config.list_physical_devices("TPU"):
        return "tpu"
    return "mirrored" if len(_devices()) > 1 else "single"


def _gpu_name() -> str:
    for gpu in tf.config.list_physical_devices("GPU"):
        return tf.config.experimental.get_device_details(gpu).get("device_name", "")
    return ""


def _devices() -> list[str]:
    """Return the names of all GPUs, or of all logical CPU devices without a GPU."""
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return [device.name for device in devices]


def _tpu(name: str | None, zone: str | None, project: str | None) -> tf.distribute.TPUStrategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name or "local", zone=zone, project=project)
        if name:
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except Exception as error:  # The network, the cloud API and the driver raise errors of many types.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise TrainingError(
            f"cannot connect to the TPU {name or 'of this machine'} ({reason}); check --tpu_name, --tpu_zone, "
            "--gcp_project and the installation of tensorflow-tpu"
        ) from error
    return tf.distribute.TPUStrategy(resolver)
