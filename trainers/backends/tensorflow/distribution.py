"""Where a run computes: one device, several GPUs, several machines, a TPU. The only file that names tf.distribute."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import tensorflow as tf

from trainers.errors import TrainingError


class InputShard(NamedTuple):
    """The part of every step's examples that an input pipeline reads.

    Attributes:
        replicas: number of replicas that share the examples of a step.
        first_replica: the first of those that the pipeline reads for.
        local_replicas: how many it reads for.
    """

    replicas: int = 1
    first_replica: int = 0
    local_replicas: int = 1


class Distribution:
    """The devices of a run, each of which, a replica, holds a copy of every variable and gets a share of every batch.

    Args:
        strategy: made before anything else is computed; None for TensorFlow's own choice of one device.

    Attributes:
        replicas: number of devices, over all machines.
        several_processes: whether machines run this program side by side.
        is_chief: whether this process writes the run's files.
        is_tpu: whether the replicas are TPU cores.
    """

    def __init__(self, strategy: tf.distribute.Strategy | None = None) -> None:
        self._strategy = tf.distribute.get_strategy() if strategy is None else strategy
        self.replicas = int(self._strategy.num_replicas_in_sync)
        resolver = self._strategy.cluster_resolver
        self.several_processes = isinstance(self._strategy, tf.distribute.MultiWorkerMirroredStrategy)
        self.is_tpu = isinstance(self._strategy, tf.distribute.TPUStrategy)
        self.is_chief = self.is_tpu or resolver is None or _is_chief(resolver)

    @classmethod
    def open(
        cls, name: str, tpu_name: str | None = None, tpu_zone: str | None = None, gcp_project: str | None = None
    ) -> "Distribution":
        """Find the devices; call before any computation.

        Args:
            name: of `training_options.STRATEGIES`. "auto" is "multi_worker" where TF_CONFIG is set, "tpu" where a TPU
                is attached or named, "mirrored" with several GPUs or logical CPU devices, else "one".
            tpu_name: name of the TPU, or None for the one attached to this machine.
            tpu_zone: zone of the TPU; None for this machine's.
            gcp_project: project of the TPU; None for this machine's.

        Raises:
            TrainingError: the devices are missing.
        """
        if name == "auto":
            name = _found(tpu_name)
        if name == "one":
            return cls()
        if name == "tpu":
            return cls(_tpu(tpu_name, tpu_zone, gcp_project))
        if name == "multi_worker":
            if "TF_CONFIG" not in os.environ:
                raise TrainingError(
                    "--strategy multi_worker needs the environment variable TF_CONFIG, with the cluster's addresses "
                    "and this machine's place among them; set it on every machine"
                )
            try:
                return cls(tf.distribute.MultiWorkerMirroredStrategy())
            except (ValueError, KeyError, tf.errors.OpError) as error:
                raise TrainingError(
                    f"TF_CONFIG describes no cluster that could be joined ({error}); check it"
                ) from error
        return cls(tf.distribute.MirroredStrategy(_devices()))

    def scope(self) -> AbstractContextManager[Any]:
        """Return a context in which new variables have a copy on every device."""
        return self._strategy.scope()

    def batches(self, make: Callable[[InputShard], tf.data.Dataset]) -> Any:
        """Return an iterable of one element for every replica at a time.

        Args:
            make: function from the shard of an input pipeline (one per machine) to its dataset, which yields the
                elements of its replicas in order.
        """

        def of_pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
            local = context.num_replicas_in_sync // context.num_input_pipelines
            return make(InputShard(context.num_replicas_in_sync, context.input_pipeline_id * local, local))

        return self._strategy.distribute_datasets_from_function(of_pipeline)

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function once on every replica; the result holds one value per replica."""
        return self._strategy.run(function, arguments)

    def sum(self, values: Any) -> Any:
        """Return the sum over replicas of each tensor of a structure that `run` returned."""
        return tf.nest.map_structure(lambda value: self._strategy.reduce("SUM", value, axis=None), values)

    def gather(self, values: Any) -> Any:
        """Return the results of `run` of every replica on this process, concatenated along the first dimension.

        Args:
            values: one structure of tensors per replica; shapes differ at most in the first dimension.
        """
        return tf.nest.map_structure(lambda value: self._strategy.gather(value, axis=0), values)

    def barrier(self) -> None:
        """Return when every process has called it, so that each sees the files that others wrote before."""
        if self.several_processes:
            # In a graph, whose collective operations have numbers of their own.
            tf.function(lambda: self.sum(self.run(lambda: tf.constant(1))))().numpy()

    @contextlib.contextmanager
    def machine_errors(self) -> Iterator[None]:
        """Turn the end of another process during the body into a user error.

        Raises:
            TrainingError: another process ended or cannot be reached.
        """
        try:
            yield
        except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError) as error:
            if not self.several_processes:
                raise
            raise TrainingError(
                "another machine of TF_CONFIG has ended or cannot be reached; see what it said, end all, and start all "
                "again: they go on from the last checkpoint"
            ) from error

    def first(self, values: Any) -> Any:
        """Return the value of this process's first replica, of a structure of values per replica."""
        return tf.nest.map_structure(lambda value: self._strategy.experimental_local_results(value)[0], values)


def replica_number() -> tf.Tensor:
    """Return the number of this replica, int32 scalar; call within `Distribution.run`."""
    return tf.cast(_context().replica_id_in_sync_group, tf.int32)


def sum_over_replicas(values: Any) -> Any:
    """Return the sums over replicas, equal on every replica; call within `Distribution.run`."""
    context = _context()
    return values if context.num_replicas_in_sync == 1 else context.all_reduce(tf.distribute.ReduceOp.SUM, values)


def update_together(function: Callable[..., None], tensors: Sequence[tf.Tensor]) -> None:
    """Call a function once for all replicas, to change variables; call within `Distribution.run`.

    Args:
        function: called with `update_each` and then the tensors. It changes a variable by
            update_each(variable, change, (argument, ...)), which calls change(copy, argument, ...) for the copy of the
            variable, and those of the arguments, on every device.
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


def _found(tpu_name: str | None) -> str:
    if "TF_CONFIG" in os.environ:
        return "multi_worker"
    if tpu_name or tf.config.list_physical_devices("TPU"):
        return "tpu"
    return "mirrored" if len(_devices()) > 1 else "one"


def _devices() -> list[str]:
    """Return all GPUs, or all logical CPU devices if there is no GPU."""
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return [device.name for device in devices]


def _tpu(name: str | None, zone: str | None, project: str | None) -> tf.distribute.TPUStrategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name or "local", zone=zone, project=project)
        if name:
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except Exception as error:  # The resolver raises whatever the network, the cloud's API or the driver do.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise TrainingError(
            f"TPU {name or 'of this machine'} cannot be used ({reason}); check --tpu_name, --tpu_zone and "
            "--gcp_project, and that tensorflow-tpu is installed"
        ) from error
    return tf.distribute.TPUStrategy(resolver)
