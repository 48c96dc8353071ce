"""`beambert submit dataflow`: run a data command on Google Cloud Dataflow."""

import argparse
import importlib.util
from typing import TYPE_CHECKING

from beambert.common.command_line.flags import WholeNumber
from beambert.common.command_line.path_flags import LOCAL_PATH
from beambert.deploy.dataflow import flags
from beambert.deploy.dataflow.config import DataflowConfig
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

_workers = WholeNumber(1, 10_000)

RUNS = ("build", "corpus", "pretraining-data")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of Dataflow, under the names that Beam uses."""
    group = parser.add_argument_group("Google Cloud")
    group.add_argument("--project", required=True, type=flags.project, metavar="ID", help="Google Cloud project ID")
    group.add_argument(
        "--region",
        required=True,
        type=flags.region,
        metavar="NAME",
        help="Region of the job, such as us-central1; use the region of the bucket",
    )
    group.add_argument(
        "--temp_location",
        required=True,
        type=flags.cloud_path,
        metavar="GS",
        help="Directory for temporary files of the job, gs://BUCKET/FOLDER",
    )
    group.add_argument(
        "--staging_location",
        type=flags.cloud_path,
        metavar="GS",
        help="Directory for the staged pipeline and code, gs://BUCKET/FOLDER (default: --temp_location)",
    )
    group.add_argument(
        "--job_name",
        type=flags.job_name,
        metavar="NAME",
        help="Job name (default: derived from --output, so that Dataflow rejects a second job for the same output)",
    )
    group.add_argument(
        "--labels",
        action="extend",
        nargs="+",
        default=[],
        type=flags.label,
        metavar="KEY=VALUE",
        help="Labels of the job for billing reports, in addition to tool=beambert and command=NAME",
    )
    group.add_argument(
        "--service_account_email",
        type=flags.service_account,
        metavar="EMAIL",
        help="Service account of the workers; docs/reference/cloud-permissions.md lists its roles (default: the "
        "project's Compute Engine service account)",
    )
    group.add_argument("--network", metavar="NAME", help="VPC network of the workers")
    group.add_argument(
        "--subnetwork", metavar="URL", help="Subnetwork of the workers, as regions/REGION/subnetworks/NAME"
    )
    group.add_argument(
        "--use_public_ips",
        action="store_true",
        help="Assign public IP addresses to the workers; without them the subnetwork needs Private Google Access",
    )
    group.add_argument(
        "--dry_run", action="store_true", help="Print the jobs and their staged files without submitting anything"
    )
    group.add_argument("--dataflow_endpoint", metavar="URL", help="URL of the Dataflow API, for tests")
    group.add_argument("--no_auth", action="store_true", help="Call the Dataflow API without credentials, for tests")
    group = parser.add_argument_group("cluster")
    code = group.add_mutually_exclusive_group()
    code.add_argument(
        "--sdk_container_image",
        metavar="IMAGE",
        help="Container image with beambert (deploy/images/Dockerfile); workers then need no internet access",
    )
    code.add_argument(
        "--setup_file",
        type=LOCAL_PATH,
        metavar="FILE",
        help="setup.py of the source that workers install when no image is given; they fetch its requirements from "
        "PyPI (default: beambert's own)",
    )
    group.add_argument(
        "--worker_machine_type",
        metavar="TYPE",
        help="Machine type of the workers (default: n2-standard-4, or n2-highmem-4 for large partitions)",
    )
    group.add_argument(
        "--num_workers", type=_workers, metavar="N", help="Initial number of workers (default: chosen by Dataflow)"
    )
    group.add_argument(
        "--max_num_workers",
        type=_workers,
        default=DataflowConfig.max_num_workers,
        metavar="N",
        help="Maximum number of workers, which limits the cost per hour",
    )
    group.add_argument(
        "--autoscaling_algorithm",
        choices=("THROUGHPUT_BASED", "NONE"),
        default=DataflowConfig.autoscaling_algorithm,
        help="Autoscaling algorithm; NONE keeps --num_workers workers",
    )
    group.add_argument(
        "--disk_size_gb",
        type=WholeNumber(1, 65_536),
        default=DataflowConfig.disk_size_gb,
        metavar="GB",
        help="Disk size of each worker, in GB",
    )


def configure(args: argparse.Namespace) -> DataflowConfig:
    """Return the configuration of parsed flags. Raise SubmitError where they contradict each other."""
    return DataflowConfig.from_args(args)


def run(config: DataflowConfig, command: "Command") -> int:
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
