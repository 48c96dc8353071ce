"""The job on a TPU VM: its command line, its paths in buckets, and the directory that is copied to the VM."""

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from deploy.tpu import worker
from pipelines.errors import SubmitError
from trainers.commands.tune import TuneConfig
from trainers.config.finetune_config import FinetuneConfig
from trainers.config.run_config import RunConfig

if TYPE_CHECKING:
    from beambert_common.command_line.command import Command

# Single-host types and runtime version of each generation. Sources: the pages "TPU v5e", "TPU v6e" and "TPU software
# versions" of cloud.google.com/tpu/docs, as of 2025-08.
_ONE_HOST = {
    "v2": ("v2-8",),
    "v3": ("v3-8",),
    "v4": ("v4-8",),
    "v5litepod": ("v5litepod-1", "v5litepod-4", "v5litepod-8"),
    "v5p": ("v5p-8",),
    "v6e": ("v6e-1", "v6e-4", "v6e-8"),
}
_RUNTIMES = {
    "v2": "tpu-ubuntu2204-base",
    "v3": "tpu-ubuntu2204-base",
    "v4": "tpu-ubuntu2204-base",
    "v5litepod": "v2-alpha-tpuv5-lite",
    "v5p": "v2-alpha-tpuv5",
    "v6e": "v2-alpha-tpuv6e",
}
_BUCKET = "gs://"
# Flags for a TPU that another machine uses.
_TPU_FLAGS = ("--tpu_name", "--tpu_zone", "--gcp_project")
_LOCKS = ("installer.lock", "requirements.lock")


class Job(NamedTuple):
    """A training command on a TPU VM.

    Attributes:
        argv: the command and its flags, with paths on the VM.
        inputs: pairs of a bucket path and a path on the VM, relative to the job's directory.
        output: such a pair for --output.
    """

    argv: list[str]
    inputs: list[tuple[str, str]]
    output: tuple[str, str]


def runtime_version(accelerator_type: str) -> str:
    """Return the runtime version of an accelerator type.

    Raises:
        SubmitError: the type is unknown, or has several hosts.
    """
    generation = accelerator_type.rpartition("-")[0]
    if generation not in _ONE_HOST or not re.fullmatch(r"\d+", accelerator_type.rpartition("-")[2]):
        known = ", ".join(name for names in _ONE_HOST.values() for name in names)
        raise SubmitError(f"unknown --accelerator_type {accelerator_type}: use one of {known}")
    if accelerator_type not in _ONE_HOST[generation]:
        raise SubmitError(
            f"--accelerator_type {accelerator_type} has several hosts, which is not supported: examples are read on "
            f"one host (docs/guides/cloud-tpu.md); use {' or '.join(_ONE_HOST[generation])}"
        )
    return _RUNTIMES[generation]


def training_config(command: "Command") -> RunConfig:
    """Return the configuration of a training command.

    Raises:
        SubmitError: a flag has no meaning on a TPU VM.
        TrainingError: flags contradict each other.
    """
    flags = {word.partition("=")[0] for word in command.argv}
    for flag in _TPU_FLAGS:
        if flag in flags:
            raise SubmitError(f"{flag} does not apply, since the command runs on the TPU VM: omit the flag")
    config = command.configure()
    if isinstance(config, TuneConfig):
        config = config.finetuning
    if isinstance(config, FinetuneConfig) and config.cache_dir:
        raise SubmitError("--cache_dir would be deleted with the TPU VM: omit the flag; features are saved in --output")
    return config


def job_of(command: "Command") -> Job:
    """Convert a command with paths in buckets to a job on a TPU VM.

    Raises:
        SubmitError: a path is local, paths overlap, or a flag has no meaning on a TPU VM.
    """
    paths = [(flag, _bucket_path(flag, path)) for flag, path in command.path_arguments]
    strategy = training_config(command).strategy
    (output,) = (path for flag, path in paths if flag == "--output")
    inputs = list(dict.fromkeys(path for flag, path in paths if flag != "--output"))
    for path in inputs:
        if _is_within(path, output) or _is_within(output, path):
            raise SubmitError(f"--output {output} and {path} overlap: use a separate directory for --output")
    argv = [command.name, *(_rewritten(word) for word in command.argv)]
    if strategy == "auto":
        # TensorFlow lists a TPU only after it is initialized, so "auto" would choose the CPU.
        argv += ["--strategy", "tpu"]
    return Job(argv, [(path, _local_path(path)) for path in inputs], (output, _local_path(output)))


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
    source = Path(__file__).parents[2]
    remedy = "give --wheel FILE, built in a checkout with pip wheel --no-deps ."
    if not (source / "setup.py").is_file():
        raise SubmitError(f"a wheel cannot be built, since beambert is installed without its source: {remedy}")
    # From a copy: the wheel would include files that an earlier build left in the checkout.
    copy = folder / "source"
    copy.mkdir()
    for path in source.iterdir():
        if (path / "__init__.py").is_file():
            shutil.copytree(path, copy / path.name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        elif path.suffix in (".py", ".toml", ".md") or path.name == "LICENSE":
            shutil.copy(path, copy)
    # With setuptools installed, the build needs no download.
    isolation = ["--no-build-isolation"] if importlib.util.find_spec("setuptools") else []
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", *isolation, "--wheel-dir", str(folder)]
    result = subprocess.run([*command, str(copy)], capture_output=True, text=True, check=False)  # noqa: S603
    wheels = sorted(folder.glob("beambert-*.whl"))
    if result.returncode or not wheels:
        last = (result.stderr.strip().splitlines() or ["no error message"])[-1]
        raise SubmitError(f"building the wheel failed ({last}): {remedy}")
    return wheels[0]


def write_package(folder: Path, job: Job, wheel: Path, sync_seconds: float) -> None:
    """Write the directory that is copied to the TPU VM.

    Args:
        folder: a new directory.
        job: the job.
        wheel: wheel of beambert.
        sync_seconds: interval between uploads of the output to the bucket, in seconds.
    """
    folder.mkdir()
    here = Path(__file__).parent
    shutil.copy(worker.__file__, folder / worker.FILE_NAME)
    for file in (*(here / name for name in _LOCKS), wheel):
        shutil.copy(file, folder / file.name)
    content = {**job._asdict(), "wheel": wheel.name, "python": python_of(wheel), "sync_seconds": sync_seconds}
    (folder / "job.json").write_text(json.dumps(content, indent=2), encoding="utf-8")


def _bucket_path(flag: str, path: str) -> str:
    """Return a path in a bucket without a trailing slash."""
    if not path.startswith(_BUCKET):
        name = PurePosixPath(path).name or "data"
        copy = f"gcloud storage cp --recursive {shlex.quote(path)} gs://BUCKET/"
        if flag == "--output":
            raise SubmitError(f"{flag} {path} would be deleted with the TPU VM: use gs://BUCKET/{name}")
        raise SubmitError(
            f"{flag} {path} is a local path, which the TPU VM cannot read: run {copy}, then use gs://BUCKET/{name}"
        )
    parts = path[len(_BUCKET) :].rstrip("/").split("/")
    if len(parts) < 2:
        raise SubmitError(f"{flag} {path} is a bucket: use a path in it, such as {path.rstrip('/')}/{flag[2:]}")
    if any(part in ("", ".", "..") for part in parts) or re.search(r"[*?\[\]#\x00-\x1f]", path):
        raise SubmitError(f"{flag} {path!r} contains .., // or a wildcard character of gcloud: rename the path")
    return _BUCKET + "/".join(parts)


def _local_path(bucket_path: str) -> str:
    """Return the path of a bucket path on every TPU VM, relative to the job's directory."""
    return "places/" + bucket_path[len(_BUCKET) :]


def _rewritten(word: str) -> str:
    flag, equals, value = word.partition("=")
    if word.startswith(_BUCKET):
        return _local_path(word.rstrip("/"))
    if equals and flag.startswith("--") and value.startswith(_BUCKET):
        return f"{flag}={_local_path(value.rstrip('/'))}"
    return word


def _is_within(inner: str, outer: str) -> bool:
    return f"{inner}/".startswith(f"{outer}/")
