"""`beambert submit dataflow`: a data command on Google Cloud Dataflow."""

import argparse
import importlib.util
from typing import TYPE_CHECKING

from beambert_common.command_line.flags import WholeNumber
from beambert_common.command_line.path_flags import LOCAL_PATH
from deploy.dataflow import flags
from deploy.dataflow.config import DataflowConfig
from pipelines.errors import SubmitError
from pipelines.io import cloud_access

if TYPE_CHECKING:
    from beambert_common.command_line.command import Command

DESCRIPTION = """Runs a data command on Google Cloud Dataflow: from gs:// to gs://, the same bytes as here.
Put the flags of Dataflow before the command and the flags of the command behind it:

  beambert submit dataflow --project P --region us-central1 --temp_location gs://B/tmp build --input gs://B/text/* ...

`build` is two jobs, one after the other. Flags of Beam's that are not listed here go behind the command too.
Ctrl-C cancels the job. docs/DATAFLOW.md has the set-up, line by line."""
EXAMPLE = (
    "beambert submit dataflow --project PROJECT --region us-central1 --temp_location gs://BUCKET/temp "
    "build --input 'gs://BUCKET/texts/*' --output gs://BUCKET/data"
)
COMMON_FLAGS = ()

_workers = WholeNumber(1, 10_000)

RUNS = ("build", "corpus", "pretraining-data")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of Dataflow, under the names that Beam uses for them."""
    group = parser.add_argument_group("where")
    group.add_argument("--project", required=True, type=flags.project, metavar="ID", help="the cloud project")
    group.add_argument(
        "--region", required=True, type=flags.region, metavar="NAME", help="such as us-central1; the bucket's"
    )
    group.add_argument(
        "--temp_location",
        required=True,
        type=flags.cloud_path,
        metavar="GS",
        help="gs://BUCKET/FOLDER for what is needed while the job runs",
    )
    group.add_argument(
        "--staging_location",
        type=flags.cloud_path,
        metavar="GS",
        help="gs://BUCKET/FOLDER for the pipeline and the code (default: --temp_location)",
    )
    group.add_argument(
        "--job_name",
        type=flags.job_name,
        metavar="NAME",
        help="(default: one that --output gives, so that the service refuses a second job at the same output)",
    )
    group.add_argument(
        "--labels",
        action="extend",
        nargs="+",
        default=[],
        type=flags.label,
        metavar="KEY=VALUE",
        help="for the bill; tool=beambert is always there",
    )
    group = parser.add_argument_group("what the workers run")
    code = group.add_mutually_exclusive_group()
    code.add_argument(
        "--sdk_container_image",
        metavar="IMAGE",
        help="an image with beambert in it (deploy/images/Dockerfile); workers then need nothing from the internet",
    )
    code.add_argument(
        "--setup_file",
        type=LOCAL_PATH,
        metavar="FILE",
        help="without an image: the setup.py that workers install, its packages from PyPI (default: beambert's own)",
    )
    group = parser.add_argument_group("the workers")
    group.add_argument(
        "--worker_machine_type",
        metavar="TYPE",
        help="(default: n2-standard-4, or n2-highmem-4 where a partition needs the memory)",
    )
    group.add_argument("--num_workers", type=_workers, metavar="N", help="how many to start with")
    group.add_argument(
        "--max_num_workers",
        type=_workers,
        default=DataflowConfig.max_num_workers,
        metavar="N",
        help="how many at most: the bound on the bill",
    )
    group.add_argument(
        "--autoscaling_algorithm",
        choices=("THROUGHPUT_BASED", "NONE"),
        default=DataflowConfig.autoscaling_algorithm,
        help="NONE keeps --num_workers",
    )
    group.add_argument(
        "--disk_size_gb",
        type=WholeNumber(1, 65_536),
        default=DataflowConfig.disk_size_gb,
        metavar="GB",
        help="of each worker",
    )
    group.add_argument(
        "--service_account_email",
        type=flags.service_account,
        metavar="EMAIL",
        help="whom the workers act as; docs/SECURITY.md has its roles (default: the project's Compute Engine account)",
    )
    group.add_argument("--network", metavar="NAME", help="VPC network of the workers")
    group.add_argument("--subnetwork", metavar="URL", help="regions/REGION/subnetworks/NAME")
    group.add_argument(
        "--use_public_ips",
        action="store_true",
        help="give workers addresses on the internet; without them the subnetwork needs Private Google Access",
    )
    group = parser.add_argument_group("trying it out")
    group.add_argument("--dry_run", action="store_true", help="show the jobs and what they would stage; submit nothing")
    group.add_argument("--dataflow_endpoint", metavar="URL", help="another service than Google's, for tests")
    group.add_argument("--no_auth", action="store_true", help="ask Dataflow without credentials, for tests")


def configure(args: argparse.Namespace) -> DataflowConfig:
    """Return the options of Dataflow. Raise SubmitError where they contradict each other."""
    return DataflowConfig.from_args(args)


def run(config: DataflowConfig, command: "Command") -> int:
    """Check the command's flags, then run or (with --dry_run) describe its jobs.

    Args:
        config: options of Dataflow.
        command: the data command to run.

    Raises:
        SubmitError: invalid flags, missing credentials, or a rejected request.
        SourceError, DatasetError, VocabularyError: see the command.
    """
    if importlib.util.find_spec("apache_beam") is None or not _has_cloud_packages():
        raise SubmitError("Google's client libraries are not installed; pip install 'beambert[data,gcp]'")
    flags.require_cloud_paths(command.path_arguments)
    flags.refuse_ours(command.beam_flags, command.name)
    flags.refuse_existing_files(command.beam_flags, command.path_arguments)
    places = command.path_arguments
    if not config.dry_run:
        places += [("--temp_location", config.temp_location)]
        places += [("--staging_location", config.staging_location)] if config.staging_location else []
    cloud_access.require_access(places, command.beam_flags, credentials=not (config.no_auth or config.dry_run))
    # From here on Apache Beam is imported, which takes seconds.
    from deploy.dataflow import jobs

    if config.dry_run:
        return jobs.describe(config, command)
    return jobs.submit(config, command)


def _has_cloud_packages() -> bool:
    try:
        return all(map(importlib.util.find_spec, ("google.cloud.dataflow", "google.cloud.storage", "google.auth")))
    except ModuleNotFoundError:
        return False
