"""The TPU slices that steps are compiled for, and the process of the TPU compiler.

The compiler runs in a process of its own, so that its log output and aborts do not reach the user. This file imports
neither Keras nor JAX.
"""

import dataclasses
import json
import re
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from beambert.common.imports import is_installed
from beambert.common.process import python_command, python_environment
from beambert.common.typed_json import Count, JsonError, Positive, decode
from beambert.deploy.tpu.accelerators import ALIASES, ANY_ENGINE, tpu_type
from beambert.pipelines.errors import SubmitError
from beambert.trainers.monitoring.throughput import peak_flops
from beambert.trainers.pretraining.options import PretrainOptions

# Variables that start JAX on the CPU next to the TPU compiler.
ENVIRONMENT = {
    "KERAS_BACKEND": "jax",
    "JAX_PLATFORMS": "cpu",
    # The compiler does not ask the metadata server for a TPU, and processes compile at the same time.
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_STDERR_LOG_LEVEL": "3",
}
_PACKAGES = ("libtpu", "jax", "keras")
# A fatal error in the log of the compiler, which a stack trace follows.
_FATAL = re.compile(r"F\d{4} [\d:.]+\s+\d+ (.*)")
_COMMAND = python_command("-m", "beambert.deploy.plan.tpu_compiler.compile_step")


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


@dataclass(frozen=True, kw_only=True)
class StepRequest:
    """A training step to compile.

    Attributes:
        topology: topology in the compiler's words, such as "v6e:4x4".
        bert_config: content of a bert_config.json.
        training: configuration of the pretraining run; only its training step is compiled.
        features: number of values of each feature in an example.
        examples: examples per device and step, over all micro-batches.
        cycles: whether to estimate cycles, which takes several times as long as the other results.
    """

    topology: str
    bert_config: str
    training: PretrainOptions
    features: dict[str, Positive]
    examples: Positive
    cycles: bool = False


@dataclass(frozen=True, kw_only=True)
class CompiledStep:
    """The results of a compilation; bytes are those of one device.

    Attributes:
        compiler: versions of JAX and of the compiler.
        fits: whether the step fits into the memory of a device.
        required_bytes: memory for arguments, results, temporary data and code.
        available_bytes: memory that the compiler has for a program.
        state_bytes: weights and optimizer slots.
        collectives: number of collective operations per step; 0 where the step does not fit.
        collective_bytes: bytes of their results per step.
        cycles: estimated cycles per step, without collectives; None where they were not requested.
    """

    compiler: str
    fits: bool
    required_bytes: Count
    available_bytes: Positive
    state_bytes: Count
    collectives: Count = 0
    collective_bytes: Count = 0
    cycles: Count | None = None


def require_compiler() -> None:
    """Check that the TPU compiler is installed, without importing it.

    Raises:
        SubmitError: a package is missing.
    """
    missing = [package for package in _PACKAGES if not is_installed(package)]
    if missing:
        raise SubmitError(
            f"--compile requires {' and '.join(missing)}, which cannot be found; install the TPU compiler with "
            "pip install 'beambert[tpu]' (Linux)"
        )


def compile_step(request: StepRequest, command: Sequence[str] = _COMMAND) -> CompiledStep:
    """Compile a training step in a new process.

    Args:
        request: the step.
        command: command that reads the request from stdin and writes the results to stdout, both as JSON.

    Raises:
        SubmitError: the compiler failed.
    """
    result = subprocess.run(  # noqa: S603
        command,
        input=json.dumps(dataclasses.asdict(request)).encode(),
        capture_output=True,
        check=False,
        env={**python_environment(), **ENVIRONMENT},
    )
    try:
        return decode(result.stdout, CompiledStep)
    except JsonError as error:
        raise SubmitError(_failure(result.returncode, result.stderr.decode(errors="replace"))) from error


def _failure(code: int, log: str) -> str:
    """Return the message for an exit code without results, and the text that the process wrote to stderr."""
    if code == -signal.SIGKILL:
        return (
            "the TPU compiler was killed, probably by a lack of memory: it needs about 4 GiB for base and 7 GiB for "
            "large; free memory, or omit --compile"
        )
    lines = log.strip().splitlines()
    fatal = next((match[1] for line in lines if (match := _FATAL.match(line))), None)
    reason = fatal or (lines[-1] if lines else "no message")
    event = f"crashed with {signal.Signals(-code).name}" if code < 0 else "failed"
    return (
        f"the TPU compiler {event} ({reason}); change --compile, --model, --max_seq_length or --train_batch_size, or "
        "omit --compile"
    )
