"""The options of `beambert submit dataflow`, under the names that Beam uses. Does not import Beam."""

import argparse
import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from beambert.common.command_line import options
from beambert.common.command_line.options import Flag
from beambert.common.command_line.path_flags import LOCAL_PATH
from beambert.pipelines.errors import SubmitError

# A bucket and a path in it; https://cloud.google.com/storage/docs/buckets defines the names.
CLOUD_PATH = r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](?:/.*)?"


def _matching(pattern: str, complaint: str) -> Callable[[str], str]:
    """Return the argument type of a flag whose value must match a pattern."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise argparse.ArgumentTypeError(f"{text!r} {complaint}")
        return text

    return parse


parse_project = _matching(
    r"(?:[a-z][a-z0-9.-]*:)?[a-z][a-z0-9-]{4,28}[a-z0-9]",
    "is not a project ID: use 6 to 30 lower-case letters, digits and hyphens, such as my-project-123 (not the "
    "project's name or number)",
)
parse_region = _matching(
    r"[a-z]+-[a-z]+[0-9]+", "is not a region: use a name such as us-central1 (us-central1-a is a zone)"
)
parse_cloud_path = _matching(CLOUD_PATH, "is not of the form gs://BUCKET/FOLDER")
parse_job_name = _matching(
    r"[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?",
    "is not a job name: use at most 63 lower-case letters, digits and hyphens, starting with a letter",
)
parse_label = _matching(
    r"[a-z][a-z0-9_-]{0,62}=[a-z0-9_-]{0,63}",
    "is not a label KEY=VALUE: use at most 63 lower-case letters, digits, hyphens and underscores each, a letter first",
)
parse_service_account = _matching(
    r"[^@\s]+@(?=[^@\s]+\.[^@\s])[^@\s]++",
    "is not a service account: use an address such as NAME@PROJECT.iam.gserviceaccount.com",
)


_Workers = Annotated[int, Meta(ge=1, le=10_000)]


@dataclass(frozen=True, kw_only=True)
class DataflowOptions:
    """The options of `beambert submit dataflow`; None is an option without a fixed default that was not given.

    Attributes:
        project: Google Cloud project ID.
        region: Region of the job, such as us-central1; use the region of the bucket.
        temp_location: Directory for temporary files of the job, gs://BUCKET/FOLDER.
        staging_location: Directory for the staged pipeline and code, gs://BUCKET/FOLDER (default: --temp_location).
        job_name: Job name (default: derived from --output, so that Dataflow rejects a second job for the same output).
        labels: Labels of the job for billing reports, in addition to tool=beambert and command=NAME.
        service_account_email: Service account of the workers; docs/reference/cloud-permissions.md lists its roles
            (default: the project's Compute Engine service account).
        network: VPC network of the workers.
        subnetwork: Subnetwork of the workers, as regions/REGION/subnetworks/NAME.
        use_public_ips: Assign public IP addresses to the workers; without them the subnetwork needs Private Google
            Access.
        dry_run: Print the jobs and their staged files without submitting anything.
        dataflow_endpoint: URL of the Dataflow API, for tests.
        no_auth: Call the Dataflow API without credentials, for tests.
        sdk_container_image: Container image with beambert (deploy/images/Dockerfile); workers then need no internet
            access.
        setup_file: setup.py of the source that workers install when no image is given; they fetch its requirements from
            PyPI (default: beambert's own).
        worker_machine_type: Machine type of the workers (default: n2-standard-4, or n2-highmem-4 for large partitions).
        num_workers: Initial number of workers (default: chosen by Dataflow).
        max_num_workers: Maximum number of workers, which limits the cost per hour.
        autoscaling_algorithm: Autoscaling algorithm; NONE keeps --num_workers workers.
        disk_size_gb: Disk size of each worker, in GB.

    Raises:
        SubmitError: a value is out of range, or options contradict each other.
    """

    project: Annotated[str, Flag("Google Cloud", required=True, type=parse_project, metavar="ID")]
    region: Annotated[str, Flag("Google Cloud", required=True, type=parse_region, metavar="NAME")]
    temp_location: Annotated[str, Flag("Google Cloud", required=True, type=parse_cloud_path, metavar="GS")]
    staging_location: Annotated[str | None, Flag("Google Cloud", type=parse_cloud_path, metavar="GS")] = None
    job_name: Annotated[str | None, Flag("Google Cloud", type=parse_job_name, metavar="NAME")] = None
    labels: Annotated[list[str], Flag("Google Cloud", type=parse_label, metavar="KEY=VALUE")] = dataclasses.field(
        default_factory=list
    )
    service_account_email: Annotated[str | None, Flag("Google Cloud", type=parse_service_account, metavar="EMAIL")] = (
        None
    )
    network: Annotated[str | None, Flag("Google Cloud", metavar="NAME")] = None
    subnetwork: Annotated[str | None, Flag("Google Cloud", metavar="URL")] = None
    use_public_ips: Annotated[bool, Flag("Google Cloud")] = False
    dry_run: Annotated[bool, Flag("Google Cloud")] = False
    dataflow_endpoint: Annotated[str | None, Flag("Google Cloud", metavar="URL")] = None
    no_auth: Annotated[bool, Flag("Google Cloud")] = False
    sdk_container_image: Annotated[str | None, Flag("cluster", metavar="IMAGE")] = None
    setup_file: Annotated[str | None, Flag("cluster", type=LOCAL_PATH, metavar="FILE")] = None
    worker_machine_type: Annotated[str | None, Flag("cluster", metavar="TYPE")] = None
    num_workers: Annotated[_Workers | None, Flag("cluster")] = None
    max_num_workers: Annotated[_Workers, Flag("cluster")] = 20
    autoscaling_algorithm: Annotated[Literal["THROUGHPUT_BASED", "NONE"], Flag("cluster")] = "THROUGHPUT_BASED"
    disk_size_gb: Annotated[int, Meta(ge=1, le=65_536), Flag("cluster", metavar="GB")] = 30

    def __post_init__(self) -> None:
        options.check(self, SubmitError)
        if self.sdk_container_image and self.setup_file:
            raise SubmitError("--sdk_container_image and --setup_file cannot be combined: omit one of them")
        if self.num_workers and self.num_workers > self.max_num_workers:
            raise SubmitError(
                f"invalid --num_workers {self.num_workers}: must be at most --max_num_workers {self.max_num_workers}"
            )
        if self.autoscaling_algorithm == "NONE" and not self.num_workers:
            raise SubmitError("--autoscaling_algorithm NONE requires --num_workers, the fixed number of workers")
