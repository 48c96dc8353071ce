"""Define the processes that train together under JAX.

This file imports neither Keras, TensorFlow nor JAX.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that train together, as far as they are given; None leaves it to JAX's detection of the cluster.

    Attributes:
        coordinator_address: address and port of the first process.
        num_processes: number of processes.
        process_id: index of this process.
    """

    coordinator_address: str | None = None
    num_processes: int | None = None
    process_id: int | None = None

    @property
    def is_chief(self) -> bool:
        """Return whether this process writes the files of a run, as far as it is known before JAX starts."""
        index = self.process_id if self.process_id is not None else _index_of_process(os.environ)
        return index == 0


def runs_several_processes(environment: Mapping[str, str]) -> bool:
    """Return whether the environment of a process names others: hosts of a TPU slice, or several slices."""
    hosts = environment.get("TPU_WORKER_HOSTNAMES", "").split(",")
    return "JAX_COORDINATOR_ADDRESS" in environment or len(hosts) > 1 or "MEGASCALE_COORDINATOR_ADDRESS" in environment


def _index_of_process(environment: Mapping[str, str]) -> int:
    # The last one is that of an indexed job of Kubernetes.
    for name in ("TPU_WORKER_ID", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "JOB_COMPLETION_INDEX"):
        if environment.get(name, "").isdigit():
            # The first host of the first slice is the chief.
            return int(environment[name]) + int(environment.get("MEGASCALE_SLICE_ID") or 0)
    return 0
