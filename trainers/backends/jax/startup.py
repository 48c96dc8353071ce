"""Start JAX and connect the processes that train together."""

import os
import socket
import time

from beambert.common.imports import uncollected_imports
from beambert.trainers.errors import TrainingError
from beambert.trainers.options import ProcessGroup

# Time to connect to the coordinator, and time without a sign of life after which a process counts as lost. JAX then
# aborts the other processes, with a line that another task died.
_CONNECT_SECONDS = 300
_HEARTBEAT_SECONDS = 30
LOST_PROCESS = (
    "another process that trains with this one ended or cannot be reached; check its log and start all processes "
    "again: they resume from the last checkpoint"
)


def start_jax(cpu_devices: int = 1, deterministic: bool = True, processes: ProcessGroup | None = None) -> None:
    """Import JAX and Keras, connect the processes and initialize the devices; a second call changes nothing.

    Args:
        cpu_devices: number of logical CPU devices, where the CPU is the only device.
        deterministic: whether GPU kernels are deterministic.
        processes: the processes that train together; None for a single process.

    Raises:
        TrainingError: the processes cannot be connected.
    """
    os.environ["KERAS_BACKEND"] = "jax"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if deterministic and "xla_gpu_deterministic_ops" not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_deterministic_ops=true".strip()
    with uncollected_imports():
        import jax

    if not jax._src.xla_bridge.backends_are_initialized():
        if cpu_devices > 1:
            jax.config.update("jax_num_cpu_devices", cpu_devices)
        if processes is not None and not jax.distributed.is_initialized():
            _connect(processes)
    with uncollected_imports():
        import keras  # noqa: F401


def _connect(processes: ProcessGroup) -> None:
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # The training loop handles SIGTERM.
    jax.config.update("jax_enable_preemption_service", False)
    if processes.coordinator_address is not None and processes.process_id != 0:
        _wait_for(processes.coordinator_address)
    try:
        jax.distributed.initialize(
            processes.coordinator_address,
            processes.num_processes,
            processes.process_id,
            initialization_timeout=_CONNECT_SECONDS,
            heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
        )
    except (RuntimeError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise TrainingError(
            f"cannot connect the processes that train together ({reason}); check --coordinator_address, "
            "--num_processes and --process_id, and that every process runs"
        ) from error


def _wait_for(address: str) -> None:
    """Wait until the coordinator listens; JAX itself aborts with a stack trace where it does not.

    Raises:
        TrainingError: the address is not valid, or nothing listens there in time.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise TrainingError(f"invalid --coordinator_address {address}: must be HOST:PORT, such as host0:1234")
    deadline = time.monotonic() + _CONNECT_SECONDS
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except (OSError, OverflowError) as error:
            if time.monotonic() > deadline:
                raise TrainingError(
                    f"--coordinator_address {address} does not answer ({error}); start the process with --process_id 0 "
                    "there, and open the port in the firewall"
                ) from error
            time.sleep(0.5)
        else:
            return
