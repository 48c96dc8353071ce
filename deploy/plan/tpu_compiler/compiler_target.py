"""The TPU slices that steps are compiled for. This file imports neither Keras nor JAX."""

from typing import NamedTuple

from beambert.deploy.tpu.accelerators import ALIASES, ANY_ENGINE, tpu_type
from beambert.pipelines.errors import SubmitError
from beambert.trainers.monitoring.throughput import peak_flops


class _Chip(NamedTuple):
    """A chip in the words of the compiler.

    Attributes:
        name: prefix of its topologies.
        devices: devices per chip, as JAX counts them.
        flops_per_cycle: bfloat16 operations of a device's matrix units per cycle, from "System architecture" of its
            page in cloud.google.com/tpu/docs: units x rows x columns x 2.
        is_assumed: whether flops_per_cycle is an assumption.
    """

    name: str
    devices: int
    flops_per_cycle: int
    is_assumed: bool = False


# Without v4, whose topologies have two devices per chip where JAX has one, and the older v2 and v3.
_CHIPS = {
    "v5litepod": _Chip("v5e", 1, 4 * 128 * 128 * 2),
    "v5p": _Chip("v5p", 1, 8 * 128 * 128 * 2),
    # The documentation has two units of 256 x 256 per TensorCore. The compiler estimates fewer cycles for a product
    # than these would take, so that each is assumed to count twice: 1.75 and 2.2 GHz at the documented peaks.
    "v6e": _Chip("v6e", 1, 2 * 2 * 256 * 256 * 2, is_assumed=True),
    "tpu7x": _Chip("tpu7x", 2, 2 * 2 * 256 * 256 * 2, is_assumed=True),
}


class CompilerTarget(NamedTuple):
    """A TPU slice to compile for.

    Attributes:
        name: accelerator type, such as "v6e-16".
        topology: its topology in the compiler's words, such as "v6e:4x4".
        chips: number of chips.
        devices: number of devices: chips, or their TensorCores where JAX counts these.
        peak_flops: peak of a device in bfloat16, in FLOP/s.
        flops_per_cycle: operations per cycle at the peak.
        is_assumed: whether flops_per_cycle is an assumption.
    """

    name: str
    topology: str
    chips: int
    devices: int
    peak_flops: float
    flops_per_cycle: int
    is_assumed: bool

    @property
    def device(self) -> str:
        """Return the noun for a device."""
        return "chip" if self.devices == self.chips else "TensorCore"

    @property
    def clock(self) -> float:
        """Return the clock frequency in Hz at which the matrix units reach the peak."""
        return self.peak_flops / self.flops_per_cycle


def target_of(name: str) -> CompilerTarget:
    """Return the slice of `--compile`.

    Args:
        name: accelerator type, such as "v6e-16"; "v5e-16" is "v5litepod-16".

    Raises:
        SubmitError: the type does not exist, or steps cannot be compiled for it.
    """
    prefix, dash, size = name.rpartition("-")
    tpu = tpu_type(f"{ALIASES.get(prefix, prefix)}{dash}{size}", ANY_ENGINE, "--compile")
    generation = tpu.name.rpartition("-")[0]
    chip = _CHIPS.get(generation)
    peak = peak_flops(generation, "bfloat16")
    if chip is None or peak is None:
        raise SubmitError(
            f"--compile {name}: steps for {generation} cannot be compiled without a TPU; use a type of "
            f"{', '.join(_CHIPS)}, or omit --compile"
        )
    return CompilerTarget(
        tpu.name,
        f"{chip.name}:{tpu.topology}",
        tpu.chips,
        tpu.chips * chip.devices,
        peak,
        chip.flops_per_cycle,
        chip.is_assumed,
    )
