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
    """GB for each of the processes that Dataflow starts, one a vCPU; None for a machine of which nothing is known."""
    parts = re.fullmatch(r"([a-z0-9]+)-(standard|highmem|highcpu)-(\d+)", machine_type)
    if not parts:
        return None
    family, kind, cores = parts.groups()
    per_core = _MEMORY[kind].get(family, _MEMORY[kind][""])
    return per_core - _SYSTEM_GB / int(cores)


def choose_machine_type(asked: str | None, partition_bytes: int) -> str:
    """A machine on which every core can hold a partition.

    Args:
        asked: what the user names, or None.
        partition_bytes: of text in a partition.

    Raises:
        SubmitError: the machine that is asked for, or any that would be chosen, has too little memory.
    """
    needed = peak_memory(partition_bytes, 1) / 1e9
    for machine_type in [asked] if asked else _DEFAULTS:
        there = _memory_per_process(machine_type)
        if there is None or needed <= _SHARE_TO_USE * there:
            return machine_type
    way_out = "more --num_partitions" if not asked else f"--worker_machine_type {_DEFAULTS[1]} or more --num_partitions"
    raise SubmitError(
        f"a partition of {partition_bytes / 1e6:,.0f} MB of text needs about {needed:.1f} GB in each process, and "
        f"{machine_type} has {there:.1f} GB for each; use {way_out}"
    )


def make_source_package(setup_file: str | None, folder: Path) -> Path:
    """Packs the code that workers install: beambert's source, which they compile the tokenizer's kernels from.

    Beam's own --setup_file would do the same, once for every job, and write into the checkout.

    Args:
        setup_file: a setup.py, or None for beambert's own.
        folder: where to put it.

    Raises:
        SubmitError: there is no setup.py, or it cannot be packed.
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
    """What workers need beside Beam's own image, each pinned to the version that is here, as pip reads it.

    Beam's image brings what Apache Beam needs; beambert's `data` and `clean` extras add to it.
    """
    wanted = _closure("beambert", {"", "data", "clean"})
    of_beam = _closure("apache-beam", {"", "gcp"})
    names = (wanted - of_beam - {"beambert"}) | set(_AS_HERE)
    return [f"{name}=={importlib.metadata.version(name)}" for name in sorted(names)]


def _closure(distribution: str, extras: set[str]) -> set[str]:
    """Names of an installed distribution and all it needs, the extras' own left out where they are not installed."""
    from packaging.requirements import Requirement

    found: set[str] = set()
    waiting = [(distribution, extras)]
    while waiting:
        name, wanted = waiting.pop()
        normal = re.sub(r"[-_.]+", "-", name).lower()
        try:
            stated = importlib.metadata.requires(normal) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        found.add(normal)
        for each in map(Requirement, stated):
            needed = each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in wanted or {""})
            if needed and re.sub(r"[-_.]+", "-", each.name).lower() not in found:
                waiting.append((each.name, {"", *each.extras}))
    return found
