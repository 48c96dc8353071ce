"""The job on the machine of a TPU: its command line, its paths in buckets, and the folder that is copied."""

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

# Of each generation: the types that are one host, and the software that its machine begins with. Sources: the pages
# "TPU v5e", "TPU v6e" and "TPU software versions" of cloud.google.com/tpu/docs, as of 2025-08.
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
# They say where a TPU is that another machine uses.
_TPU_FLAGS = ("--tpu_name", "--tpu_zone", "--gcp_project")
_LOCKS = ("installer.lock", "requirements.lock")


class Job(NamedTuple):
    """A training command on another machine.

    Attributes:
        argv: the command and its flags, with paths on that machine.
        inputs: pairs of a path in a bucket and the local path, relative to the job's folder.
        output: the same for what the command writes.
    """

    argv: list[str]
    inputs: list[tuple[str, str]]
    output: tuple[str, str]


def runtime_version(accelerator_type: str) -> str:
    """Return the software version of a new machine of a type.

    Raises:
        SubmitError: an unknown type, or one with several hosts.
    """
    generation = accelerator_type.rpartition("-")[0]
    if generation not in _ONE_HOST or not re.fullmatch(r"\d+", accelerator_type.rpartition("-")[2]):
        known = ", ".join(name for names in _ONE_HOST.values() for name in names)
        raise SubmitError(f"--accelerator_type {accelerator_type} is not known here; give one of {known}")
    if accelerator_type not in _ONE_HOST[generation]:
        raise SubmitError(
            f"--accelerator_type {accelerator_type} has several hosts, which beambert cannot feed: examples are read "
            f"on the machine that runs the command (docs/TRAINING.md); give {' or '.join(_ONE_HOST[generation])}"
        )
    return _RUNTIMES[generation]


def training_config(command: "Command") -> RunConfig:
    """Return the configuration of a training command.

    Raises:
        SubmitError: a flag makes no sense on the TPU's own machine.
        TrainingError: flags that contradict each other.
    """
    flags = {word.partition("=")[0] for word in command.argv}
    for flag in _TPU_FLAGS:
        if flag in flags:
            raise SubmitError(f"{flag} is not needed: the command runs on the TPU's own machine; leave it out")
    config = command.configure()
    if isinstance(config, TuneConfig):
        config = config.finetuning
    if isinstance(config, FinetuneConfig) and config.cache_dir:
        raise SubmitError("--cache_dir would be lost with the machine; leave it out, features are kept in --output")
    return config


def job_of(command: "Command") -> Job:
    """Turn a command with paths in buckets into a job of the machine.

    Raises:
        SubmitError: a path is local, or paths overlap, or a flag has no meaning there.
    """
    paths = [(flag, _bucket_path(flag, place)) for flag, place in command.path_arguments]
    strategy = training_config(command).strategy
    (output,) = (place for flag, place in paths if flag == "--output")
    inputs = list(dict.fromkeys(place for flag, place in paths if flag != "--output"))
    for place in inputs:
        if _is_within(place, output) or _is_within(output, place):
            raise SubmitError(f"--output {output} and {place} lie one in the other; give --output a place of its own")
    argv = [command.name, *(_rewritten(word) for word in command.argv)]
    if strategy == "auto":
        # A TPU shows itself only when it is asked for; without, the run would be one on the CPU.
        argv += ["--strategy", "tpu"]
    return Job(argv, [(place, _local_path(place)) for place in inputs], (output, _local_path(output)))


def python_of(wheel: Path) -> str:
    """Return the version of Python that a wheel is for, such as "3.11".

    Raises:
        SubmitError: it is not a wheel for Linux on x86-64.
    """
    match = re.fullmatch(r"beambert-[^-]+-(?:cp3(\d+)|py3)-[^-]+-([\w.]+)\.whl", wheel.name)
    if not match or not (match[2] == "any" or re.search(r"linux\w{0,60}x86_64", match[2])):
        raise SubmitError(
            f"{wheel} is no wheel of beambert for Linux on x86-64, which TPU machines run; build one there with pip "
            "wheel --no-deps . and give it as --wheel"
        )
    return f"3.{match[1] or 11}"


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this beambert.

    Raises:
        SubmitError: the source is missing, or the build fails.
    """
    source = Path(__file__).parents[2]
    remedy = "give --wheel FILE, made in a checkout by pip wheel --no-deps ."
    if not (source / "setup.py").is_file():
        raise SubmitError(f"beambert is installed here without its source, so no wheel can be built; {remedy}")
    # Of a copy: what an earlier build left in a checkout would get into the wheel.
    copy = folder / "source"
    copy.mkdir()
    for path in source.iterdir():
        if (path / "__init__.py").is_file():
            shutil.copytree(path, copy / path.name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        elif path.suffix in (".py", ".toml", ".md") or path.name == "LICENSE":
            shutil.copy(path, copy)
    # Where setuptools is at hand nothing need be downloaded.
    isolation = ["--no-build-isolation"] if importlib.util.find_spec("setuptools") else []
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", *isolation, "--wheel-dir", str(folder)]
    result = subprocess.run([*command, str(copy)], capture_output=True, text=True, check=False)  # noqa: S603
    wheels = sorted(folder.glob("beambert-*.whl"))
    if result.returncode or not wheels:
        last = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise SubmitError(f"building the wheel failed ({last}); {remedy}")
    return wheels[0]


def write_package(folder: Path, job: Job, wheel: Path, sync_seconds: float) -> None:
    """Write the files that are copied to the machine.

    Args:
        folder: a new directory.
        job: the job of the machine.
        wheel: the wheel of beambert.
        sync_seconds: seconds between two uploads of the output to the bucket.
    """
    folder.mkdir()
    here = Path(__file__).parent
    shutil.copy(worker.__file__, folder / worker.FILE_NAME)
    for file in (*(here / name for name in _LOCKS), wheel):
        shutil.copy(file, folder / file.name)
    content = {**job._asdict(), "wheel": wheel.name, "python": python_of(wheel), "sync_seconds": sync_seconds}
    (folder / "job.json").write_text(json.dumps(content, indent=2), encoding="utf-8")


def _bucket_path(flag: str, place: str) -> str:
    """Return a path in a bucket without a trailing slash."""
    if not place.startswith(_BUCKET):
        name = PurePosixPath(place).name or "data"
        copy = f"gcloud storage cp --recursive {shlex.quote(place)} gs://BUCKET/"
        if flag == "--output":
            raise SubmitError(
                f"{flag} {place} would be lost with the TPU's machine; give a place as gs://BUCKET/{name}"
            )
        raise SubmitError(
            f"{flag} {place} is not in a bucket, and the TPU's machine sees nothing else; {copy}, then give "
            f"gs://BUCKET/{name}"
        )
    parts = place[len(_BUCKET) :].rstrip("/").split("/")
    if len(parts) < 2:
        raise SubmitError(
            f"{flag} {place} is a whole bucket; give a place in it, such as {place.rstrip('/')}/{flag[2:]}"
        )
    if any(part in ("", ".", "..") for part in parts) or re.search(r"[*?\[\]#\x00-\x1f]", place):
        raise SubmitError(
            f"{flag} {place!r} has .., // or a character that gcloud takes for a pattern; rename the place"
        )
    return _BUCKET + "/".join(parts)


def _local_path(place: str) -> str:
    """Return the path of a bucket path on the machine, relative to the job's folder and the same on every machine."""
    return "places/" + place[len(_BUCKET) :]


def _rewritten(word: str) -> str:
    flag, equals, value = word.partition("=")
    if word.startswith(_BUCKET):
        return _local_path(word.rstrip("/"))
    if equals and flag.startswith("--") and value.startswith(_BUCKET):
        return f"{flag}={_local_path(value.rstrip('/'))}"
    return word


def _is_within(inner: str, outer: str) -> bool:
    return f"{inner}/".startswith(f"{outer}/")
