"""Choose the machine type of Dataflow workers by the memory of a partition, and the packages that they install."""

import importlib.metadata
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from beambert.common.process import python_command
from beambert.deploy.source_copy import SOURCE, copy_source
from beambert.pipelines.errors import SubmitError
from beambert.pipelines.runner.memory import peak_memory

# GB of memory per vCPU (https://cloud.google.com/compute/docs/general-purpose-machines, as of 2025).
_MEMORY = {
    "standard": {"n1": 3.75, "": 4.0},
    "highmem": {"n1": 6.5, "": 8.0},
    "highcpu": {"n1": 0.9, "c3": 2.0, "c4": 2.0, "n4": 2.0, "": 1.0},
}
_DEFAULTS = ("n2-standard-4", "n2-highmem-4")
# Memory of Dataflow's own processes on a worker (https://cloud.google.com/dataflow/docs/guides/troubleshoot-oom).
_SYSTEM_GB = 1.0
# Fraction of the memory to plan with: the estimate is that of a mean partition, and some are larger.
_USABLE_MEMORY = 0.7
# Packages whose version affects the output bytes: workers install the versions of this machine, not of Beam's image.
_PINNED = ("numpy", "pyarrow")


def _memory_per_process(machine_type: str) -> float | None:
    """Return the GB of memory per worker process (one per vCPU); None for an unknown machine type."""
    parts = re.fullmatch(r"([a-z0-9]+)-(standard|highmem|highcpu)-(\d+)", machine_type)
    if not parts:
        return None
    family, kind, cores = parts.groups()
    per_core = _MEMORY[kind].get(family, _MEMORY[kind][""])
    return per_core - _SYSTEM_GB / int(cores)


def choose_machine_type(requested: str | None, partition_bytes: int) -> str:
    """Return a machine type with enough memory for a partition per vCPU.

    Args:
        requested: the machine type of --worker_machine_type; None to choose one.
        partition_bytes: bytes of text in a partition.

    Raises:
        SubmitError: the requested machine type, or every candidate, has too little memory.
    """
    needed = peak_memory(partition_bytes, 1) / 1e9
    for machine_type in [requested] if requested else _DEFAULTS:
        memory = _memory_per_process(machine_type)
        if memory is None or needed <= _USABLE_MEMORY * memory:
            return machine_type
    remedy = (
        "a higher --num_partitions"
        if not requested
        else f"--worker_machine_type {_DEFAULTS[1]} or a higher --num_partitions"
    )
    raise SubmitError(
        f"a partition of {partition_bytes / 1e6:,.0f} MB of text needs about {needed:.1f} GB per process, and "
        f"{machine_type} has {memory:.1f} GB per process: use {remedy}"
    )


def make_source_package(setup_file: str | None, folder: Path) -> Path:
    """Build the source package of beambert; workers install it and compile the tokenizer's native code.

    Beam's own --setup_file builds it once per job, and writes into the checkout.

    Args:
        setup_file: a setup.py, which is run in its own directory; None for beambert's own, which is run in a copy.
        folder: output directory of the package.

    Returns:
        The path of the source distribution, a tar.gz file.

    Raises:
        SubmitError: setup.py is missing, or the build fails.
    """
    path = Path(setup_file) if setup_file else SOURCE / "setup.py"
    if not path.is_file():
        raise SubmitError(
            f"--setup_file {path} does not exist: use setup.py of a checkout of beambert, or --sdk_container_image"
        )
    directory = path.parent if setup_file else copy_source(folder / "source")
    arguments = ["-q", "egg_info", "--egg-base", str(folder), "sdist", "--dist-dir", str(folder)]
    command = python_command(path.name, *arguments)
    result = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)  # noqa: S603
    packages = list(folder.glob("*.tar.gz"))
    if result.returncode or not packages:
        reason = (result.stderr.strip().splitlines() or ["no error message"])[-1]
        raise SubmitError(
            f"the source package of {path} cannot be built ({reason}): pip install 'setuptools>=77', and try again"
        )
    return packages[0]


def requirements(extras: Iterable[str] = ()) -> list[str]:
    """Return the requirements that workers install, pinned to the versions of this machine.

    Beam's image contains the requirements of Apache Beam; those of beambert's extras `data`, `clean` and `web` are
    added.

    Args:
        extras: further extras of beambert.
    """
    names = _closure("beambert", {"", "data", "clean", "web", *extras})
    of_beam = _closure("apache-beam", {"", "gcp"})
    names = (names - of_beam - {"beambert"}) | set(_PINNED)
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
