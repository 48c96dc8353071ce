"""Validate the options of Dataflow, and translate them to Beam's flags. Does not import Beam, so `--help` is fast."""

import hashlib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from beambert.deploy.dataflow.options import CLOUD_PATH, DataflowOptions
from beambert.pipelines.errors import SubmitError
from beambert.pipelines.io.output_file import check_output_file

if TYPE_CHECKING:
    from beambert.common.command_line.command import Command

# Flags that `submit dataflow` sets, which are rejected among Beam's flags after the command.
_RESERVED = (
    "--runner",
    "--project",
    "--region",
    "--temp_location",
    "--staging_location",
    "--job_name",
    "--number_of_worker_harness_threads",
)
# Beam's flags for files that receive the description of a job.
_JOB_FILE_FLAGS = ("--dataflow_job_file", "--template_location")
FOR_EVERY_JOB = (
    # A partition uses a core and its memory; a second one in the same process would wait for both.
    "--number_of_worker_harness_threads=1",
    # Dataflow Shuffle keeps blocks off the workers' disks, so that workers can be lost and autoscaled.
    "--experiments=shuffle_mode=service",
    # All pickled code is in modules of the package, so the main session is not needed.
    "--no_save_main_session",
)


def require_cloud_paths(paths: Iterable[tuple[str, str]]) -> None:
    """Check that every (flag, path) is in a bucket. Raise SubmitError, naming the flag, for any other path."""
    for flag, path in paths:
        if not re.fullmatch(CLOUD_PATH, path):
            raise SubmitError(
                f"{flag} {path} is not readable by Dataflow workers: copy it to a bucket (gcloud storage cp) and give "
                "gs://BUCKET/..."
            )


def reject_reserved_flags(beam_flags: list[str], command: str) -> None:
    """Raise SubmitError where a flag of `submit dataflow` is among the Beam flags after the command."""
    for flag in beam_flags:
        if flag.split("=")[0] in _RESERVED:
            raise SubmitError(f"{flag.split('=')[0]} is a flag of submit dataflow: put it before {command}")


def refuse_existing_files(beam_flags: list[str], paths: Iterable[tuple[str, str]]) -> None:
    """Check that Beam would not replace an existing local file with the description of a job.

    Args:
        beam_flags: Beam's flags as typed.
        paths: (flag, path) of the command's inputs and outputs.

    Raises:
        OutputFileError: the file exists, or cannot be written.
    """
    for flag, path in zip(beam_flags, [*beam_flags[1:], ""], strict=False):
        name, equals, value = flag.partition("=")
        path = value if equals else path
        if name in _JOB_FILE_FLAGS and "://" not in path:
            check_output_file(name, path, paths, overwrite=None, takes_stream=False)


def job_name_of(output: str) -> str:
    """Return the job name for an output; Dataflow rejects a second running job of the same name."""
    last = re.sub(r"[^a-z0-9]+", "-", output.rstrip("/").rsplit("/", 1)[-1].lower()).strip("-")[:30].strip("-")
    digest = hashlib.blake2b(output.rstrip("/").encode("utf-8"), digest_size=6).hexdigest()
    return "-".join(filter(None, ("beambert", last, digest)))


def beam_flags(config: DataflowOptions, command: "Command", machine_type: str) -> list[str]:
    """Return all flags of Beam except those that install code on the workers.

    Args:
        config: options of `beambert submit dataflow`.
        command: the data command to run.
        machine_type: machine type of the workers.
    """
    values: dict[str, object] = {
        "runner": "DataflowRunner",
        "project": config.project,
        "region": config.region,
        "temp_location": config.temp_location,
        "staging_location": config.staging_location or config.temp_location,
        "job_name": config.job_name or job_name_of(command.output[1]),
        "sdk_container_image": config.sdk_container_image,
        "machine_type": machine_type,
        "num_workers": config.num_workers,
        "max_num_workers": config.max_num_workers,
        "autoscaling_algorithm": config.autoscaling_algorithm,
        "disk_size_gb": config.disk_size_gb,
        "service_account_email": config.service_account_email,
        "network": config.network,
        "subnetwork": config.subnetwork,
        "dataflow_endpoint": config.dataflow_endpoint,
    }
    flags = [f"--{name}={value}" for name, value in values.items() if value is not None]
    flags += [f"--labels={label}" for label in _labels(config.labels, command.name)]
    flags.append("--use_public_ips" if config.use_public_ips else "--no_use_public_ips")
    if config.no_auth:
        flags.append("--no_auth")
    return [*flags, *FOR_EVERY_JOB, *command.beam_flags]


def _labels(labels: Iterable[str], command: str) -> list[str]:
    return [*labels, "tool=beambert", f"command={command}"]
