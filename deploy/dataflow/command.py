"""`beambert submit dataflow`: run a data command on Google Cloud Dataflow."""

import argparse
import importlib.util
from typing import TYPE_CHECKING

from beambert.common.command_line import options
from beambert.deploy.dataflow import flags
from beambert.deploy.dataflow.options import DataflowOptions
from beambert.pipelines.errors import SubmitError
from beambert.pipelines.io import access

if TYPE_CHECKING:
    from beambert.common.command_line.command import Command

DESCRIPTION = """Run build, corpus or pretraining-data on Google Cloud Dataflow.

Flags of Dataflow precede the command; flags of the command and further Beam flags follow it. Input and output are in
Cloud Storage, and the output has the same bytes as a local run. Ctrl-C cancels the job; see docs/guides/dataflow.md."""

EXAMPLE = (
    "beambert submit dataflow --project my-project --region us-central1 --temp_location gs://my-bucket/temp "
    "build --input 'gs://my-bucket/texts/*' --output gs://my-bucket/data"
)
COMMON_FLAGS = (
    "--project",
    "--region",
    "--temp_location",
    "--sdk_container_image",
    "--max_num_workers",
    "--service_account_email",
    "--subnetwork",
    "--dry_run",
)


RUNS = ("build", "corpus", "pretraining-data")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    options.add_arguments(parser, DataflowOptions)


def configure(args: argparse.Namespace) -> DataflowOptions:
    """Return the options of parsed flags. Raise SubmitError where they contradict each other."""
    return options.from_args(DataflowOptions, args)


def run(config: DataflowOptions, command: "Command") -> int:
    """Validate the flags, then run the command's jobs, or describe them with --dry_run.

    Args:
        config: options of Dataflow.
        command: the data command to run.

    Raises:
        SubmitError: a flag is invalid, credentials are missing, or Dataflow rejects a request.
        SourceError, DatasetError, VocabularyError: raised by the command.
    """
    if importlib.util.find_spec("apache_beam") is None or not _has_cloud_packages():
        raise SubmitError("Google's client libraries are not installed: pip install 'beambert[data,gcp]'")
    flags.require_cloud_paths(command.path_arguments)
    flags.reject_reserved_flags(command.beam_flags, command.name)
    flags.refuse_existing_files(command.beam_flags, command.path_arguments)
    paths = command.path_arguments
    if not config.dry_run:
        paths += [("--temp_location", config.temp_location)]
        paths += [("--staging_location", config.staging_location)] if config.staging_location else []
    access.require_access(paths, command.beam_flags, credentials=not (config.no_auth or config.dry_run))
    # Imports Apache Beam, which takes seconds, so the flags are validated first.
    from beambert.deploy.dataflow import jobs

    if config.dry_run:
        return jobs.describe(config, command)
    return jobs.submit(config, command)


def _has_cloud_packages() -> bool:
    try:
        return all(map(importlib.util.find_spec, ("google.cloud.dataflow", "google.cloud.storage", "google.auth")))
    except ModuleNotFoundError:
        return False
