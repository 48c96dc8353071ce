"""A build on Google Cloud Dataflow, on paper: workers, hours, and what is paid for.

This file imports neither Beam nor TensorFlow.
"""

from typing import NamedTuple

from deploy.plan.data import DataPlan

# CPU seconds of a Dataflow vCPU for one here: such a vCPU is half a core, and the workers of a real cluster wait for
# storage. A guess, to be put right by --cpu_factor after the first job.
CPU_FACTOR = 2.0
# Machines of the e2-standard and n2-standard kind.
MEMORY_GB_A_VCPU = 4.0
DISK_GB_A_WORKER = 30.0
_VCPUS_A_WORKER = 4
# A job's workers, if nobody says, are as many as end it in about an hour.
_MOST_WORKERS = 250
# Until the first worker reads, for each of the two jobs.
_START_HOURS = 0.1


class CloudPlan(NamedTuple):
    """Both jobs on Dataflow.

    Attributes:
        workers: machines, of `vcpus` each.
        vcpus: of a worker.
        vcpu_hours, memory_gb_hours, disk_gb_hours: of all workers, from the first to the last minute.
        hours: on the clock.
        shuffle_bytes: processed, which is written and read.
        writes: objects created, renamed and written as completion markers.
    """

    workers: int
    vcpus: int
    vcpu_hours: float
    memory_gb_hours: float
    disk_gb_hours: float
    hours: float
    shuffle_bytes: float
    writes: int


def plan_cloud(data: DataPlan, workers: int | None, cpu_factor: float) -> CloudPlan:
    """Estimate both jobs on Dataflow.

    Args:
        data: estimate of the data jobs.
        workers: number of machines; None for a number that finishes in about an hour.
        cpu_factor: seconds of a Dataflow vCPU for one CPU second of this machine.
    """
    even = (data.cpu_seconds - data.serial_seconds) * cpu_factor / 3600
    if workers is None:
        workers = max(1, min(_MOST_WORKERS, data.corpus_shards, round(even / _VCPUS_A_WORKER)))
    # More vCPUs than corpus shards have nothing to do.
    busy = min(workers * _VCPUS_A_WORKER, data.corpus_shards)
    hours = even / busy + data.serial_seconds * cpu_factor / 3600 + 2 * _START_HOURS
    vcpu_hours = hours * workers * _VCPUS_A_WORKER
    # A data shard has a completion marker, a corpus shard none; each file is created under another name and renamed.
    writes = 2 * (data.corpus_shards + 2 * data.files)
    return CloudPlan(
        workers=workers,
        vcpus=_VCPUS_A_WORKER,
        vcpu_hours=vcpu_hours,
        memory_gb_hours=vcpu_hours * MEMORY_GB_A_VCPU,
        disk_gb_hours=hours * workers * DISK_GB_A_WORKER,
        hours=hours,
        shuffle_bytes=2 * data.shuffle_bytes,
        writes=writes,
    )
