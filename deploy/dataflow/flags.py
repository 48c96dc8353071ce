"""The flags of Dataflow: what is a right value, and what Beam is told. No Beam here: `--help` stays quick."""

import argparse
import hashlib
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from deploy.dataflow.config import DataflowConfig
from pipelines.errors import SubmitError
from pipelines.io.output_file import check_output_file

if TYPE_CHECKING:
    from beambert_common.command_line.command import Command

# Flags that this package sets, which are refused among the flags of Beam.
_OURS = (
    "--runner",
    "--project",
    "--region",
    "--temp_location",
    "--staging_location",
    "--job_name",
    "--number_of_worker_harness_threads",
)
# Files that Beam writes the description of a job to.
_FILES_OF_BEAM = ("--dataflow_job_file", "--template_location")
FOR_EVERY_JOB = (
    # A partition fills a core and its memory; a second one in the same process would wait for both.
    "--number_of_worker_harness_threads=1",
    # Shuffled blocks on the service, not on the workers' disks, so that workers come and go without loss.
    "--experiments=shuffle_mode=service",
    # Beam would stage what `pip freeze` prints here, with the addresses of private indexes and their passwords.
    "--experiments=disable_logging_submission_environment",
    # Nothing of the submitting process is needed there: all that is pickled lies in modules of the package.
    "--no_save_main_session",
)


def _matching(pattern: str, complaint: str) -> Callable[[str], str]:
    """Return the argument type of a flag whose value must match a pattern."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise argparse.ArgumentTypeError(f"{text!r} {complaint}")
        return text

    return parse


project = _matching(
    r"(?:[a-z][a-z0-9.-]*:)?[a-z][a-z0-9-]{4,28}[a-z0-9]",
    "is no project ID: 6 to 30 lower-case letters, digits and hyphens, such as my-project-123 (not the project's "
    "name or number)",
)
region = _matching(
    r"[a-z]+-[a-z]+[0-9]+", "is no region, such as us-central1 (a zone such as us-central1-a is inside one)"
)
# A bucket and a path in it; https://cloud.google.com/storage/docs/buckets has the rules for names.
CLOUD_PATH = r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](?:/.*)?"
cloud_path = _matching(CLOUD_PATH, "is not of the form gs://BUCKET/FOLDER")
job_name = _matching(
    r"[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?",
    "is no job name: lower-case letters, digits and hyphens, a letter first, at most 63",
)
label = _matching(
    r"[a-z][a-z0-9_-]{0,62}=[a-z0-9_-]{0,63}",
    "is no label KEY=VALUE: lower-case letters, digits, hyphens and underscores, a letter first, at most 63 each",
)
service_account = _matching(
    r"[^@\s]+@(?=[^@\s]+\.[^@\s])[^@\s]++", "is no service account, such as NAME@PROJECT.iam.gserviceaccount.com"
)


def require_cloud_paths(places: Iterable[tuple[str, str]]) -> None:
    """Raise SubmitError, naming the flag, where a file or directory of a command is not in a bucket."""
    for flag, path in places:
        if not re.fullmatch(CLOUD_PATH, path):
            raise SubmitError(
                f"{flag} {path} is no file that Dataflow's workers can see; copy it to a bucket (gcloud storage cp) "
                "and give gs://BUCKET/..."
            )


def refuse_ours(beam_flags: list[str], command: str) -> None:
    """Raise SubmitError where a flag of `submit dataflow` is repeated in the Beam flags after the command."""
    for flag in beam_flags:
        if flag.split("=")[0] in _OURS:
            raise SubmitError(f"{flag.split('=')[0]} stands behind {command}; put it before, or leave it out")


def refuse_existing_files(beam_flags: list[str], places: Iterable[tuple[str, str]]) -> None:
    """Refuse to replace a local file with the description of a job, which flags of Beam's name.

    Args:
        beam_flags: as they were typed.
        places: (flag, path) of what the command reads and writes.

    Raises:
        OutputFileError: such a file exists, or cannot be written.
    """
    for flag, path in zip(beam_flags, [*beam_flags[1:], ""], strict=False):
        name, equals, value = flag.partition("=")
        path = value if equals else path
        if name in _FILES_OF_BEAM and "://" not in path:
            check_output_file(name, path, places, overwrite=None, takes_stream=False)


def job_name_of(output: str) -> str:
    """Return the job name of an output: Dataflow runs jobs of one name one at a time."""
    last = re.sub(r"[^a-z0-9]+", "-", output.rstrip("/").rsplit("/", 1)[-1].lower()).strip("-")[:30].strip("-")
    digest = hashlib.blake2b(output.rstrip("/").encode("utf-8"), digest_size=6).hexdigest()
    return "-".join(filter(None, ("beambert", last, digest)))


def beam_flags(config: DataflowConfig, command: "Command", machine_type: str) -> list[str]:
    """Return all flags of Beam except those that define what the workers install.

    Args:
        config: options of `beambert submit dataflow`.
        command: the data command that runs.
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
