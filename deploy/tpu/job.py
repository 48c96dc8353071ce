"""The job on a TPU VM: its command line, and the directory that is copied to the VM."""

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from beambert.common.process import python_command
from beambert.deploy.source_copy import SOURCE, copy_source
from beambert.deploy.tpu import worker
from beambert.pipelines.errors import SubmitError
from beambert.trainers.buckets.objects import SCHEME, split_url
from beambert.trainers.commands.tune import TuneOptions
from beambert.trainers.finetuning.options import FinetuneOptions
from beambert.trainers.options import RunOptions

if TYPE_CHECKING:
    from beambert.common.command_line.command import Command

# Flags for a TPU that another machine uses.
_TPU_FLAGS = ("--tpu_name", "--tpu_zone", "--gcp_project")
# Lock files of the packages by backend: the TPU VM gets only the one of its backend.
REQUIREMENTS = {"jax": "requirements-jax.lock", "tensorflow": "requirements.lock"}
_BACKEND_FLAG = "--backend"
# Ports of the coordinator of JAX's processes, which is JAX's default, and of the slices, as set by Ray.
_COORDINATOR_PORT, _MEGASCALE_PORT = 8482, "8081"
# Flags of several processes, which every host sets by itself.
_PROCESS_FLAGS = ("--coordinator_address", "--num_processes", "--process_id")
# Time for a command to save a checkpoint after SIGTERM; afterwards it is killed, since it may wait for a lost host.
_STOP_SECONDS = 300.0


class Job(NamedTuple):
    """A training command on a TPU VM.

    Attributes:
        argv: the command and its flags, with paths in buckets.
        output: URL of --output.
        backend: "jax" or "tensorflow".
    """

    argv: list[str]
    output: str
    backend: str


def training_config(command: "Command") -> RunOptions:
    """Return the configuration of a training command.

    Raises:
        SubmitError: a flag has no meaning on a TPU VM.
        TrainingError: flags contradict each other.
    """
    for flag in (*_TPU_FLAGS, *_PROCESS_FLAGS):
        if _has_flag(command, flag):
            raise SubmitError(f"{flag} does not apply, since the command runs on the TPU VM: omit the flag")
    config = command.configure()
    if isinstance(config, TuneOptions):
        config = config.finetuning
    if isinstance(config, FinetuneOptions) and config.cache_dir:
        raise SubmitError("--cache_dir would be deleted with the TPU VM: omit the flag; features are saved in --output")
    return config


def job_of(command: "Command") -> Job:
    """Convert a command with paths in buckets to a job on a TPU VM.

    Raises:
        SubmitError: a path is local, paths overlap, or a flag has no meaning on a TPU VM.
        StorageError: a path is not one in a bucket.
    """
    paths = {flag: _require_url(flag, path).rstrip("/") for flag, path in command.path_arguments}
    config = training_config(command)
    output = paths["--output"]
    for flag, path in command.path_arguments:
        if flag != "--output" and (_is_within(path, output) or _is_within(output, path.rstrip("/"))):
            raise SubmitError(f"--output {output} and {path} overlap: use a separate directory for --output")
    backend = "tensorflow" if config.backend == "tensorflow" else "jax"
    argv = [command.name, *command.argv]
    if not _has_flag(command, _BACKEND_FLAG):
        argv += [_BACKEND_FLAG, backend]
    if backend == "tensorflow" and config.strategy == "auto":
        # TensorFlow lists a TPU only after it is initialized, so "auto" would choose the CPU.
        argv += ["--strategy", "tpu"]
    return Job(argv, output, backend)


def python_of(wheel: Path) -> str:
    """Return the Python version of a wheel, such as "3.11".

    Raises:
        SubmitError: the file is not a wheel of beambert for Linux on x86-64.
    """
    match = re.fullmatch(r"beambert-[^-]+-(?:cp3(\d+)|py3)-[^-]+-([\w.]+)\.whl", wheel.name)
    if not match or not (match[2] == "any" or re.search(r"linux\w{0,60}x86_64", match[2])):
        raise SubmitError(
            f"{wheel} is not a wheel of beambert for Linux on x86-64, the platform of TPU VMs: build one on such a "
            "machine with pip wheel --no-deps . and give it as --wheel"
        )
    return f"3.{match[1] or 11}"


def build_wheel(folder: Path) -> Path:
    """Build a wheel from the source of this package.

    Args:
        folder: output directory.

    Raises:
        SubmitError: the source is missing, or the build fails.
    """
    remedy = "give --wheel FILE, built in a checkout with pip wheel --no-deps ."
    if not (SOURCE / "setup.py").is_file():
        raise SubmitError(f"a wheel cannot be built, since beambert is installed without its source: {remedy}")
    copy = copy_source(folder / "source")
    # With setuptools installed, the build needs no download.
    isolation = ["--no-build-isolation"] if importlib.util.find_spec("setuptools") else []
    command = python_command("-m", "pip", "wheel", "--quiet", "--no-deps", *isolation, "--wheel-dir", str(folder))
    result = subprocess.run([*command, str(copy)], capture_output=True, text=True, check=False)  # noqa: S603
    wheels = sorted(folder.glob("beambert-*.whl"))
    if result.returncode or not wheels:
        last = (result.stderr.strip().splitlines() or ["no error message"])[-1]
        raise SubmitError(f"building the wheel failed ({last}): {remedy}")
    return wheels[0]


def write_package(folder: Path, wheel: Path, content: dict[str, Any]) -> None:
    """Write the directory that is copied to the TPU VMs of a slice.

    Args:
        folder: a new directory.
        wheel: wheel of beambert.
        content: content of job.json, from `job_content`.
    """
    folder.mkdir(parents=True)
    here = Path(__file__).parent
    shutil.copy(worker.__file__, folder / worker.SCRIPT)
    for file in (here / "installer.lock", here / REQUIREMENTS[content["backend"]], wheel):
        shutil.copy(file, folder / file.name)
    content = {**content, "wheel": wheel.name, "python": python_of(wheel)}
    (folder / "job.json").write_text(json.dumps(content, indent=2), encoding="utf-8")


def job_content(
    job: Job,
    *,
    hosts: int = 1,
    slices: int = 1,
    slice_id: int = 0,
    address: str = "",
    logs: str = "",
) -> dict[str, Any]:
    """Return the content of job.json for the hosts of a slice.

    Args:
        job: the job.
        hosts: number of hosts in each slice.
        slices: number of slices.
        slice_id: number of the slice.
        address: IP address of the chief, by which several hosts find each other; "" for one host.
        logs: directory in a bucket for the logs of the hosts; "" to upload none.
    """
    return {
        "argv": job.argv,
        "backend": job.backend,
        "requirements": REQUIREMENTS[job.backend],
        "hosts": hosts,
        "slices": slices,
        "slice_id": slice_id,
        "coordinator": f"{address}:{_COORDINATOR_PORT}" if address else "",
        "stop_seconds": _STOP_SECONDS,
        "logs": logs,
        "environment": _megascale_variables(address, slices, slice_id) if address and slices > 1 else {},
    }


def _megascale_variables(address: str, slices: int, slice_id: int) -> dict[str, str]:
    """Return the environment variables by which the TPU runtimes of several slices find each other."""
    return {
        "MEGASCALE_COORDINATOR_ADDRESS": f"{address}:{_MEGASCALE_PORT}",
        "MEGASCALE_PORT": _MEGASCALE_PORT,
        "MEGASCALE_NUM_SLICES": str(slices),
        "MEGASCALE_SLICE_ID": str(slice_id),
    }


def _has_flag(command: "Command", flag: str) -> bool:
    return any(word.partition("=")[0] == flag for word in command.argv)


def _require_url(flag: str, path: str) -> str:
    """Return the path of a flag, which must be in a bucket."""
    if not path.startswith(SCHEME):
        name = PurePosixPath(path).name or "data"
        copy = f"gcloud storage cp --recursive {shlex.quote(path)} gs://BUCKET/"
        if flag == "--output":
            raise SubmitError(f"{flag} {path} would be deleted with the TPU VM: use gs://BUCKET/{name}")
        raise SubmitError(
            f"{flag} {path} is a local path, which the TPU VM cannot read: run {copy}, then use gs://BUCKET/{name}"
        )
    split_url(path)
    return path


def _is_within(inner: str, outer: str) -> bool:
    return f"{inner}/".startswith(f"{outer}/")
