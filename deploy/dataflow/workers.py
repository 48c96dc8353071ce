"""What Dataflow's workers are: machines with the memory that a partition takes, and the packages that they install."""

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

from pipelines.errors import SubmitError
from pipelines.runner.memory import peak_memory

# GB of memory for a vCPU (https://cloud.google.com/compute/docs/general-purpose-machines, as known in 2025).
_MEMORY = {
    "standard": {"n1": 3.75, "": 4.0},
    "highmem": {"n1": 6.5, "": 8.0},
    "highcpu": {"n1": 0.9, "c3": 2.0, "c4": 2.0, "n4": 2.0, "": 1.0},
}
_DEFAULTS = ("n2-standard-4", "n2-highmem-4")
# What Dataflow's own processes take of a worker (https://cloud.google.com/dataflow/docs/guides/troubleshoot-oom).
_SYSTEM_GB = 1.0
# The estimate of a partition is of its mean; a few are larger.
_SHARE_TO_USE = 0.7
# Packages whose version shows in the bytes, so that workers have the one that is here; Beam's image has its own.
_AS_HERE = ("numpy", "pyarrow")


def _memory_per_process(machine_type: str) -> float | None:
    """Return the GB of memory per worker process (one a vCPU); None for an unknown machine type."""
    parts = re.fullmatch(r"([a-z0-9]+)-(standard|highmem|highcpu)-(\d+)", machine_type)
    if not parts:
        return None
    family, kind, cores = parts.groups()
    per_core = _MEMORY[kind].get(family, _MEMORY[kind][""])
    return per_core - _SYSTEM_GB / int(cores)


def choose_machine_type(requested: str | None, partition_bytes: int) -> str:
    """Return a machine type on which every core can hold a partition.

    Args:
        requested: the machine type that the user names, or None.
        partition_bytes: bytes of text in a partition.

    Raises:
        SubmitError: the machine type named by the user, or every candidate, has too little memory.
    """
    needed = peak_memory(partition_bytes, 1) / 1e9
    for machine_type in [requested] if requested else _DEFAULTS:
        memory = _memory_per_process(machine_type)
        if memory is None or needed <= _SHARE_TO_USE * memory:
            return machine_type
    remedy = (
        "more --num_partitions" if not requested else f"--worker_machine_type {_DEFAULTS[1]} or more --num_partitions"
    )
    raise SubmitError(
        f"a partition of {partition_bytes / 1e6:,.0f} MB of text needs about {needed:.1f} GB in each process, and "
        f"{machine_type} has {memory:.1f} GB for each; use {remedy}"
    )


def make_source_package(setup_file: str | None, folder: Path) -> Path:
    """Pack the source of beambert that workers install and compile the tokenizer's kernels from.

    Beam's own --setup_file would do the same, once for every job, and write into the checkout.

    Args:
        setup_file: a setup.py, or None for beambert's own.
        folder: directory of the package.

    Raises:
        SubmitError: setup.py is missing, or packing fails.
    """
    path = Path(setup_file) if setup_file else Path(__file__).parents[2] / "setup.py"
    if not path.is_file():
        raise SubmitError(
            f"--setup_file {path} does not exist; name the setup.py of a checkout of beambert, or give "
            "--sdk_container_image"
        )
    command = [
        sys.executable,
        path.name,
        "-q",
        "egg_info",
        "--egg-base",
        str(folder),
        "sdist",
        "--dist-dir",
        str(folder),
    ]
    result = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)  # noqa: S603
    packages = list(folder.glob("*.tar.gz"))
    if result.returncode or not packages:
        reason = (result.stderr.strip().splitlines() or ["no word why"])[-1]
        raise SubmitError(f"{path} cannot be packed ({reason}); pip install 'setuptools>=77', and try it by hand")
    return packages[0]


def requirements() -> list[str]:
    """Return the requirements that workers add to Beam's image, pinned to the installed versions.

    Beam's image contains the requirements of Apache Beam; beambert's `data` and `clean` extras add to it.
    """
    names = _closure("beambert", {"", "data", "clean"})
    of_beam = _closure("apache-beam", {"", "gcp"})
    names = (names - of_beam - {"beambert"}) | set(_AS_HERE)
    return [f"{name}=={importlib.metadata.version(name)}" for name in sorted(names)]


def _closure(distribution: str, extras: set[str]) -> set[str]:
    """Return the names of an installed distribution and its dependencies, without extras that are not installed."""
    from packaging.requirements import Requirement

    closure: set[str] = set()
    pending = [(distribution, extras)]
    while pending:
        name, active_extras = pending.pop()
        normal = re.sub(r"[-_.]+", "-", name).lower()
        try:
            dependencies = importlib.metadata.requires(normal) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        closure.add(normal)
        for requirement in map(Requirement, dependencies):
            needed = requirement.marker is None or any(
                requirement.marker.evaluate({"extra": extra}) for extra in active_extras or {""}
            )
            if needed and re.sub(r"[-_.]+", "-", requirement.name).lower() not in closure:
                pending.append((requirement.name, {"", *requirement.extras}))
    return closure
