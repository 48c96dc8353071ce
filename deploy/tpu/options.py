"""The options of `beambert submit tpu`."""

import argparse
import re
from dataclasses import dataclass
from typing import Annotated

from beambert.common.command_line import options
from beambert.common.command_line.options import Flag, NonNegativeInt, PositiveFloat, PositiveInt
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


def _parse_name(text: str) -> str:
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,48}[a-z0-9])?", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a valid name: use at most 50 lower-case letters, digits and hyphens, a letter first"
        )
    return text


@dataclass(frozen=True, kw_only=True)
class TpuOptions:
    """The options of `beambert submit tpu`; None is an option without a fixed default that was not given.

    Attributes:
        project: Google Cloud project ID; required for Cloud TPU.
        zone: Zone of the TPU, such as us-west4-a; required for Cloud TPU.
        engine: Service that runs the TPU: the Cloud TPU API, or Google Kubernetes Engine (writes a manifest).
        name: Name of the request and the TPU VMs, or of the JobSet (default: beambert- and eight random characters).
        service_account: Service account of the TPU VMs; it needs to read and write the buckets only (default: the
            project's Compute Engine account, which may have broad permissions).
        network: VPC network of the TPU VMs (default: the network named default).
        subnetwork: Subnetwork of the TPU VMs.
        internal_ip: Request TPU VMs without public IP addresses. Run this command in the same network; installing
            packages requires Cloud NAT.
        dry_run: Print the request and the remote command, or the manifest, without running or writing them.
        image: Container image for GKE, best by digest, built from deploy/images/tpu.Dockerfile.
        manifest: File to write the GKE manifest to; it must not exist.
        namespace: Namespace of the JobSet (default: the one of kubectl).
        kubernetes_service_account: Kubernetes service account with access to the buckets (default: beambert-train).
        accelerator_type: TPU type of each slice, such as v5litepod-8, v5p-32 or v6e-256; tpu7x types need --engine gke.
        num_slices: Number of slices, which are connected by the data center network (multislice).
        runtime_version: TPU software version of the VMs; beambert installs its own Python and JAX (default: by type).
        spot: Request a spot TPU, which is cheaper and may be preempted; the run then restarts automatically.
        reserved: Use a reservation of the project.
        timeout: Maximum wait for each TPU, in minutes; the request is deleted afterwards.
        poll_seconds: Interval between requests for the state of the TPU, in seconds.
        keep: Keep the TPU, which is billed until it is deleted, and print the command that deletes it.
        max_restarts: Maximum number of restarts after preemptions; in GKE, after any failure.
        wheel: Wheel of beambert for Linux on x86-64 (default: built from this checkout).

    Raises:
        SubmitError: a value is out of range, a required flag is missing, or a flag does not apply to the engine.
    """

    project: Annotated[str | None, Flag("Google Cloud", metavar="ID")] = None
    zone: Annotated[str | None, Flag("Google Cloud")] = None
    engine: Annotated[str, Flag("Google Cloud", choices=(CLOUD_TPU, GKE))] = CLOUD_TPU
    name: Annotated[str | None, Flag("Google Cloud", type=_parse_name)] = None
    service_account: Annotated[str | None, Flag("Google Cloud", metavar="EMAIL")] = None
    network: Annotated[str | None, Flag("Google Cloud")] = None
    subnetwork: Annotated[str | None, Flag("Google Cloud")] = None
    internal_ip: Annotated[bool, Flag("Google Cloud")] = False
    dry_run: Annotated[bool, Flag("Google Cloud")] = False
    image: Annotated[str | None, Flag("Google Cloud")] = None
    manifest: Annotated[str | None, Flag("Google Cloud", type=LOCAL_OUTPUT_FILE, metavar="FILE")] = None
    namespace: Annotated[str | None, Flag("Google Cloud")] = None
    kubernetes_service_account: Annotated[str | None, Flag("Google Cloud", metavar="NAME")] = None
    accelerator_type: Annotated[str, Flag("devices", required=True, metavar="TYPE")]
    num_slices: Annotated[PositiveInt, Flag("devices")] = 1
    runtime_version: Annotated[str | None, Flag("devices", metavar="VERSION")] = None
    spot: Annotated[bool, Flag("devices")] = False
    reserved: Annotated[bool, Flag("devices")] = False
    timeout: Annotated[PositiveFloat, Flag("devices", metavar="MINUTES")] = 120.0
    poll_seconds: Annotated[PositiveFloat, Flag("devices", metavar="SECONDS")] = 20.0
    keep: Annotated[bool, Flag("devices")] = False
    max_restarts: Annotated[NonNegativeInt, Flag("training")] = 10
    wheel: Annotated[str | None, Flag("training", type=LOCAL_PATH, metavar="FILE")] = None

    def __post_init__(self) -> None:
        options.check(self, SubmitError)
        if self.spot and self.reserved:
            raise SubmitError("--reserved and --spot cannot be combined: omit one of them")
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
