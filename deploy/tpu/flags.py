"""The flags of `beambert submit tpu`."""

import argparse
import re
from dataclasses import dataclass

from beambert.common.command_line.flags import FlagConfig, non_negative_int, positive_float, positive_int
from beambert.common.command_line.path_flags import LOCAL_OUTPUT_FILE, LOCAL_PATH
from beambert.deploy.tpu.accelerators import CLOUD_TPU, GKE
from beambert.pipelines.errors import SubmitError

# As gcloud's zones: a region, a hyphen and a letter.
_ZONE = re.compile(r"[a-z]+-[a-z]+\d+-[a-z]")
# Flags that only one of the engines has.
_CLOUD_TPU_FLAGS = (
    *("project", "zone", "runtime_version", "reserved", "service_account", "network", "subnetwork", "internal_ip"),
    *("wheel", "keep"),
)
_GKE_FLAGS = ("image", "namespace", "kubernetes_service_account", "manifest")


@dataclass(frozen=True, kw_only=True)
class TpuConfig(FlagConfig):
    """Options of `beambert submit tpu`; the help of each flag describes its field.

    None stands for an option without a fixed default that was not given.
    """

    accelerator_type: str
    engine: str = CLOUD_TPU
    num_slices: int = 1
    project: str | None = None
    zone: str | None = None
    runtime_version: str | None = None
    name: str | None = None
    spot: bool = False
    reserved: bool = False
    service_account: str | None = None
    network: str | None = None
    subnetwork: str | None = None
    internal_ip: bool = False

    max_restarts: int = 10
    timeout: float = 120.0
    poll_seconds: float = 20.0
    wheel: str | None = None
    keep: bool = False
    dry_run: bool = False

    image: str | None = None
    namespace: str | None = None
    kubernetes_service_account: str | None = None
    manifest: str | None = None

    def __post_init__(self) -> None:
        """Check the flags against the engine.

        Raises:
            SubmitError: a required flag is missing, or a flag does not apply.
        """
        required, foreign = (
            (("project", "zone"), _GKE_FLAGS) if self.engine == CLOUD_TPU else (("image",), _CLOUD_TPU_FLAGS)
        )
        for name in required:
            if getattr(self, name) is None:
                raise SubmitError(f"--{name} is missing: --engine {self.engine} requires it")
        for name in foreign:
            if getattr(self, name):
                raise SubmitError(f"--{name} does not apply to --engine {self.engine}: omit the flag")
        if self.zone is not None and not _ZONE.fullmatch(self.zone):
            raise SubmitError(f"invalid --zone {self.zone}: a zone is a region and a letter, such as us-west4-a")
        if self.engine == GKE and not self.dry_run and self.manifest is None:
            raise SubmitError("--manifest is missing: name the file to write, or use --dry_run to print the manifest")

    @property
    def request_flags(self) -> list[str]:
        """Return gcloud's flags for the request."""
        values = {
            "--service-account": self.service_account,
            "--network": self.network,
            "--subnetwork": self.subnetwork,
        }
        switches = {"--spot": self.spot, "--reserved": self.reserved, "--internal-ips": self.internal_ip}
        flags = [f"{flag}={value}" for flag, value in values.items() if value]
        return flags + [flag for flag, is_on in switches.items() if is_on]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `beambert submit tpu`."""
    group = parser.add_argument_group("Google Cloud")
    group.add_argument("--project", metavar="ID", help="Google Cloud project ID; required for Cloud TPU")
    group.add_argument("--zone", help="Zone of the TPU, such as us-west4-a; required for Cloud TPU")
    group.add_argument(
        "--engine",
        choices=(CLOUD_TPU, GKE),
        default=TpuConfig.engine,
        help="Service that runs the TPU: the Cloud TPU API, or Google Kubernetes Engine (writes a manifest)",
    )
    group.add_argument(
        "--name",
        type=_name,
        help="Name of the request and the TPU VMs, or of the JobSet (default: beambert- and eight random characters)",
    )
    group.add_argument(
        "--service_account",
        metavar="EMAIL",
        help="Service account of the TPU VMs; it needs to read and write the buckets only (default: the project's "
        "Compute Engine account, which may have broad permissions)",
    )
    group.add_argument("--network", help="VPC network of the TPU VMs (default: the network named default)")
    group.add_argument("--subnetwork", help="Subnetwork of the TPU VMs")
    group.add_argument(
        "--internal_ip",
        action="store_true",
        help="Request TPU VMs without public IP addresses. Run this command in the same network; installing packages "
        "requires Cloud NAT.",
    )
    group.add_argument(
        "--dry_run",
        action="store_true",
        help="Print the request and the remote command, or the manifest, without running or writing them",
    )
    group.add_argument(
        "--image", help="Container image for GKE, best by digest, built from deploy/images/tpu.Dockerfile"
    )
    group.add_argument(
        "--manifest",
        type=LOCAL_OUTPUT_FILE,
        metavar="FILE",
        help="File to write the GKE manifest to; it must not exist",
    )
    group.add_argument("--namespace", help="Namespace of the JobSet (default: the one of kubectl)")
    group.add_argument(
        "--kubernetes_service_account",
        metavar="NAME",
        help="Kubernetes service account with access to the buckets (default: beambert-train)",
    )
    group = parser.add_argument_group("devices")
    group.add_argument(
        "--accelerator_type",
        required=True,
        metavar="TYPE",
        help="TPU type of each slice, such as v5litepod-8, v5p-32 or v6e-256; tpu7x types need --engine gke",
    )
    group.add_argument(
        "--num_slices",
        type=positive_int,
        default=TpuConfig.num_slices,
        metavar="N",
        help="Number of slices, which are connected by the data center network (multislice)",
    )
    group.add_argument(
        "--runtime_version",
        metavar="VERSION",
        help="TPU software version of the VMs; beambert installs its own Python and JAX (default: by type)",
    )
    kind = group.add_mutually_exclusive_group()
    kind.add_argument(
        "--spot",
        action="store_true",
        help="Request a spot TPU, which is cheaper and may be preempted; the run then restarts automatically",
    )
    kind.add_argument("--reserved", action="store_true", help="Use a reservation of the project")
    group.add_argument(
        "--timeout",
        type=positive_float,
        default=TpuConfig.timeout,
        metavar="MINUTES",
        help="Maximum wait for each TPU, in minutes; the request is deleted afterwards",
    )
    group.add_argument(
        "--poll_seconds",
        type=positive_float,
        default=TpuConfig.poll_seconds,
        metavar="SECONDS",
        help="Interval between requests for the state of the TPU, in seconds",
    )
    group.add_argument(
        "--keep",
        action="store_true",
        help="Keep the TPU, which is billed until it is deleted, and print the command that deletes it",
    )
    group = parser.add_argument_group("training")
    group.add_argument(
        "--max_restarts",
        type=non_negative_int,
        default=TpuConfig.max_restarts,
        metavar="N",
        help="Maximum number of restarts after preemptions; in GKE, after any failure",
    )
    group.add_argument(
        "--wheel",
        type=LOCAL_PATH,
        metavar="FILE",
        help="Wheel of beambert for Linux on x86-64 (default: built from this checkout)",
    )


def _name(text: str) -> str:
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,48}[a-z0-9])?", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a valid name: use at most 50 lower-case letters, digits and hyphens, a letter first"
        )
    return text
