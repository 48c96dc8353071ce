"""Estimate a build on Google Cloud Dataflow: workers, hours and billed quantities.

This file imports neither Beam nor TensorFlow.
"""

from typing import NamedTuple

from beambert.deploy.plan.data import DataPlan

# Dataflow vCPU seconds per CPU second of the benchmark machine: a vCPU is half a core, and workers wait for storage.
# An assumption; calibrate --cpu_factor with the first job.
CPU_FACTOR = 2.0
# e2-standard and n2-standard machines.
MEMORY_GB_A_VCPU = 4.0
DISK_GB_A_WORKER = 30.0
_VCPUS_A_WORKER = 4
# Limit of the default number of workers, which is chosen to finish in about an hour.
_MOST_WORKERS = 250
# Start-up time of each of the two jobs.
_START_HOURS = 0.1


class CloudPlan(NamedTuple):
    """Estimate of both jobs on Dataflow.

    Attributes:
        workers: number of workers.
        vcpus: vCPUs of a worker.
        vcpu_hours, memory_gb_hours, disk_gb_hours: totals over all workers and the whole duration.
        hours: wall-clock hours.
        shuffle_bytes: bytes processed by the shuffle: each byte is written and read.
        writes: write operations on objects: creation, renaming, completion markers.
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
        workers: number of workers; None for a number that finishes in about an hour.
        cpu_factor: Dataflow vCPU seconds per CPU second of the benchmark machine.
    """
    even = (data.cpu_seconds - data.serial_seconds) * cpu_factor / 3600
    if workers is None:
        workers = max(1, min(_MOST_WORKERS, data.corpus_shards, round(even / _VCPUS_A_WORKER)))
    # A corpus shard is the unit of work, so further vCPUs are idle.
    busy = min(workers * _VCPUS_A_WORKER, data.corpus_shards)
    hours = even / busy + data.serial_seconds * cpu_factor / 3600 + 2 * _START_HOURS
    vcpu_hours = hours * workers * _VCPUS_A_WORKER
    # A data shard has a completion marker, a corpus shard has none; each file is created under a temporary name and
    # renamed.
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
