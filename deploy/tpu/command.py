"""`beambert submit tpu`: run a training command on a Cloud TPU that is created for it and deleted afterwards.

With --engine gke, write a Kubernetes manifest that runs the command on TPU nodes of Google Kubernetes Engine.
"""

import argparse
import secrets
import shlex
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from beambert.common.command_line import options
from beambert.common.formatting import counted
from beambert.deploy.tpu.accelerators import GKE, TpuType, tpu_type
from beambert.deploy.tpu.gcloud import print_line
from beambert.deploy.tpu.gke import write_manifest
from beambert.deploy.tpu.job import Job, build_wheel, job_content, job_of, python_of, training_config, write_package
from beambert.deploy.tpu.options import TpuOptions
from beambert.deploy.tpu.service import FOLDER, Tpu, require_access, require_ssh_key
from beambert.deploy.tpu.session import SessionConfig, run_session
from beambert.pipelines.errors import SubmitError

if TYPE_CHECKING:
    from beambert.common.command_line.command import Command

DESCRIPTION = """Run pretrain, finetune or tune on a Cloud TPU.

Requests a TPU of one or several slices, installs beambert on all hosts, runs the command, prints its log and deletes
the TPU in every case. After a preemption a new TPU resumes from the last checkpoint. All paths are in Cloud Storage;
the Google Cloud CLI must be logged in (docs/guides/cloud-tpu.md).

With --engine gke, writes a JobSet manifest for Google Kubernetes Engine instead (docs/guides/gke-tpu.md)."""

EXAMPLE = (
    "beambert submit tpu --project my-project --zone us-west4-a --accelerator_type v5litepod-16 "
    "pretrain --data gs://my-bucket/data --output gs://my-bucket/run --do_train"
)

COMMON_FLAGS = (
    "--project",
    "--zone",
    "--accelerator_type",
    "--num_slices",
    "--spot",
    "--service_account",
    "--engine",
    "--dry_run",
)

RUNS = ("pretrain", "finetune", "tune")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    options.add_arguments(parser, TpuOptions)


def configure(args: argparse.Namespace) -> TpuOptions:
    """Return the options of parsed flags.

    Raises:
        SubmitError: a flag is missing or does not apply to the engine.
    """
    return options.from_args(TpuOptions, args)


def run(config: TpuOptions, command: "Command") -> int:
    """Run the command on a TPU, or write the manifest that does.

    Returns:
        The command's exit code; 130, 143 or 129 after Ctrl-C, SIGTERM or SIGHUP; 1 where the TPU could not be deleted.

    Raises:
        SubmitError: a flag is invalid, or the request is rejected.
    """
    accelerator = tpu_type(config.accelerator_type, config.engine)
    job = job_of(command)
    if job.backend == "tensorflow" and (accelerator.hosts * config.num_slices > 1 or config.engine == GKE):
        raise SubmitError(
            f"--backend tensorflow does not run on --accelerator_type {accelerator.name} with {_hosts(config)}: omit "
            "the flag to use JAX"
        )
    if accelerator.hosts * config.num_slices > 1:
        _require_single_run(command, _description(config))
    if config.engine == GKE:
        return write_manifest(config, accelerator, job)
    strategy = training_config(command).strategy
    tpu = Tpu(
        str(config.project),
        str(config.zone),
        config.name or f"beambert-{secrets.token_hex(4)}",
        config.internal_ip,
        config.num_slices,
        accelerator.hosts,
    )
    runtime = config.runtime_version or accelerator.generation.runtime_version
    create = tpu.create_command(accelerator.name, runtime, config.request_flags)
    if job.backend == "tensorflow" and strategy not in ("auto", "tpu"):
        print_line(f"warning: --strategy {strategy} does not use the TPU; use auto or tpu")
    if config.dry_run:
        _print_plan(tpu, accelerator, create, job)
        return 0
    require_access(tpu)
    if accelerator.hosts > 1:
        require_ssh_key()
    with tempfile.TemporaryDirectory() as folder:
        wheel = Path(config.wheel) if config.wheel else build_wheel(Path(folder))
        if not wheel.is_file():
            raise SubmitError(f"--wheel {wheel} does not exist: build one with pip wheel --no-deps .")
        python_of(wheel)
        session = SessionConfig(
            create,
            _description(config),
            job.output,
            config.max_restarts,
            60 * config.timeout,
            config.poll_seconds,
            config.keep,
        )
        logs = f"{job.output}-worker-logs/{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"

        def packages(start: int, address: str) -> Sequence[Path]:
            folders = []
            for number in range(config.num_slices):
                content = job_content(
                    job,
                    hosts=accelerator.hosts,
                    slices=config.num_slices,
                    slice_id=number,
                    address=address,
                    logs=f"{logs}/start-{start}" if accelerator.hosts * config.num_slices > 1 else "",
                )
                folders.append(Path(folder) / f"start-{start}" / f"slice-{number}" / FOLDER)
                write_package(folders[-1], wheel, content)
            return folders

        if accelerator.hosts * config.num_slices > 1:
            print_line(f"Logs of the hosts: {logs}/")
        return run_session(session, tpu, packages)


def _require_single_run(command: "Command", description: str) -> None:
    """Check that a command trains a single model.

    Raises:
        SubmitError: the command trains several models.
    """
    if command.name == "tune" or getattr(training_config(command), "seeds", 1) > 1:
        raise SubmitError(
            f"tune and finetune --seeds do not run on {description}, which has several hosts: use a type of one host, "
            "or submit each run on its own"
        )


def _print_plan(tpu: Tpu, accelerator: TpuType, create: list[str], job: Job) -> None:
    """Print the request and the remote command."""
    print_line(shlex.join(create))
    hosts = len(tpu.nodes) * accelerator.hosts
    if hosts > 1:
        chips = len(tpu.nodes) * accelerator.chips
        print_line(f"{counted(len(tpu.nodes), 'slice')}, {hosts} hosts, {chips} chips")
    print_line(f"on {'the TPU VM' if hosts == 1 else 'every host'}: {shlex.join(['beambert', *job.argv])}")


def _description(config: TpuOptions) -> str:
    slices = f"{config.num_slices} slices of " if config.num_slices > 1 else ""
    return f"{slices}{config.accelerator_type}"


def _hosts(config: TpuOptions) -> str:
    if config.engine == GKE:
        return f"--engine {GKE}"
    return f"--num_slices {config.num_slices}" if config.num_slices > 1 else "several hosts"
