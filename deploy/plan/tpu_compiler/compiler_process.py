"""Run the TPU compiler in a process of its own, so that its log output and aborts do not reach the user.

This file imports neither Keras nor JAX.
"""

import dataclasses
import json
import re
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from beambert.common.imports import is_installed
from beambert.common.process import python_command, python_environment
from beambert.common.typed_json import Count, JsonError, Positive, decode
from beambert.pipelines.errors import SubmitError
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
