"""TPU types: chips, hosts and topology of a slice, and their names in the Cloud TPU API and in GKE.

Sources: the pages "TPU v4", "TPU v5e", "TPU v5p", "TPU v6e" and "TPU software versions" of cloud.google.com/tpu/docs
(2025-09), "Plan TPUs in GKE" of cloud.google.com/kubernetes-engine/docs, and for TPU7x the table of
github.com/AI-Hypercomputer/xpk, src/xpk/core/system_characteristics.py (2026-06).
"""

import re
from typing import NamedTuple

from beambert.pipelines.errors import SubmitError

# The default engine of `beambert submit tpu`, and Google Kubernetes Engine.
CLOUD_TPU, GKE = "cloud-tpu", "gke"
ANY_ENGINE = "any"
_CHIPS_PER_HOST = 4
# Chips and hosts of v5e and v6e slices, with their topologies.
_FLAT = {
    1: (1, "1x1"),
    4: (1, "2x2"),
    8: (1, "2x4"),
    16: (4, "4x4"),
    32: (8, "4x8"),
    64: (16, "8x8"),
    128: (32, "8x16"),
    256: (64, "16x16"),
}
# Topologies of v4, v5p and TPU7x slices of fewer chips than a cube of 4x4x4.
_CUBOID = {4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4"}
_CUBE = 64


class Generation(NamedTuple):
    """A generation of TPUs.

    Attributes:
        units_per_chip: number by which the name of a type counts a chip: 2 where it counts TensorCores.
        cubes: maximum number of 4x4x4 cubes in a slice; 0 for two-dimensional slices.
        runtime_version: TPU software version of the VMs; "" where the Cloud TPU API does not offer the generation.
        gke_accelerator: value of the node label `cloud.google.com/gke-tpu-accelerator`; "" where GKE does not offer it.
        machine: GKE machine type without the number of chips.
        single_host_only: whether only slices of one host are supported.
    """

    units_per_chip: int
    cubes: int
    runtime_version: str
    gke_accelerator: str = ""
    machine: str = ""
    single_host_only: bool = False


GENERATIONS = {
    "v2": Generation(2, 0, "tpu-ubuntu2204-base", single_host_only=True),
    "v3": Generation(2, 0, "tpu-ubuntu2204-base", single_host_only=True),
    "v4": Generation(2, 32, "tpu-ubuntu2204-base"),
    "v5litepod": Generation(1, 0, "v2-alpha-tpuv5-lite", "tpu-v5-lite-podslice", "ct5lp-hightpu"),
    "v5p": Generation(2, 96, "v2-alpha-tpuv5", "tpu-v5p-slice", "ct5p-hightpu"),
    "v6e": Generation(1, 0, "v2-alpha-tpuv6e", "tpu-v6e-slice", "ct6e-standard"),
    "tpu7x": Generation(2, 96, "", "tpu7x", "tpu7x-standard"),
}
# Other names of generations, which the Cloud TPU API does not know.
ALIASES = {"v5e": "v5litepod", "v7x": "tpu7x", "tpu7": "tpu7x"}


class TpuType(NamedTuple):
    """A TPU slice.

    Attributes:
        name: accelerator type, such as "v5litepod-16".
        generation: its generation.
        chips, hosts: numbers of chips and of hosts, which are TPU VMs, in the slice.
        topology: arrangement of the chips, such as "4x4".
    """

    name: str
    generation: Generation
    chips: int
    hosts: int
    topology: str

    @property
    def chips_per_host(self) -> int:
        """Return the number of chips of each host."""
        return self.chips // self.hosts

    @property
    def machine_type(self) -> str:
        """Return the machine type of the nodes in GKE."""
        return f"{self.generation.machine}-{self.chips_per_host}t"


def tpu_type(name: str, engine: str = CLOUD_TPU, flag: str = "--accelerator_type") -> TpuType:
    """Return the slice of an accelerator type.

    Args:
        name: value of the flag.
        engine: `CLOUD_TPU`, `GKE`, or `ANY_ENGINE` for the slices of both.
        flag: flag of the command, for messages.

    Raises:
        SubmitError: the type does not exist, or the engine does not offer it.
    """
    prefix, _, size = name.rpartition("-")
    if prefix in ALIASES and size.isdigit():
        raise SubmitError(f"unknown {flag} {name}: use {ALIASES[prefix]}-{size}")
    generation = GENERATIONS.get(prefix)
    if generation is None or not re.fullmatch(r"[1-9]\d{0,5}", size):
        offered = (f"{prefix}-N" for prefix, generation in GENERATIONS.items() if _is_offered(generation, engine))
        raise SubmitError(f"unknown {flag} {name}: use one of {', '.join(offered)}, such as v5litepod-16")
    if not _is_offered(generation, engine):
        other = GKE if engine == CLOUD_TPU else CLOUD_TPU
        raise SubmitError(f"{flag} {name} is not available with --engine {engine}: use --engine {other}")
    slices = _slices(generation)
    chips = int(size) / generation.units_per_chip
    if chips not in slices:
        sizes = [f"{prefix}-{count * generation.units_per_chip}" for count in sorted(slices)]
        near = sorted(sizes, key=lambda other: abs(int(other.rpartition("-")[2]) - int(size)))[:3]
        raise SubmitError(
            f"{flag} {name} does not exist, or has several hosts, which {prefix} does not support here: use {sizes[0]}"
            if generation.single_host_only
            else f"{flag} {name} does not exist: use one of {', '.join(sorted(near, key=sizes.index))}"
        )
    hosts, topology = slices[int(chips)]
    return TpuType(name, generation, int(chips), hosts, topology)


def _is_offered(generation: Generation, engine: str) -> bool:
    offered = {CLOUD_TPU: generation.runtime_version, GKE: generation.gke_accelerator}
    return engine == ANY_ENGINE or bool(offered[engine])


def _slices(generation: Generation) -> dict[int, tuple[int, str]]:
    """Return hosts and topology by the number of chips."""
    if generation.single_host_only:
        return {4: (1, "2x2")}
    if not generation.cubes:
        return _FLAT
    cubes = {_CUBE * count: _cube_topology(count) for count in range(1, generation.cubes + 1)}
    return {chips: (chips // _CHIPS_PER_HOST, topology) for chips, topology in {**_CUBOID, **cubes}.items()}


def _cube_topology(cubes: int) -> str:
    """Return the topology of a number of 4x4x4 cubes whose sides differ least."""
    sides = [
        (a, b, cubes // (a * b))
        for a in range(1, round(cubes ** (1 / 3)) + 1)
        for b in range(a, cubes + 1)
        if cubes % (a * b) == 0 and b <= cubes // (a * b)
    ]
    return "x".join(str(4 * side) for side in min(sides, key=sum))
