"""`beambert submit tpu`: run a training command on a Cloud TPU that is created for it and deleted afterwards.

    request a TPU -> wait -> copy wheel, lock files and command -> install -> run and print the log -> delete
         ^                                                           |
         '------------------------ delete after preemption <---------'

The TPU is deleted in every case: also after an error, Ctrl-C, SIGTERM and SIGHUP.
"""

import argparse
import contextlib
import re
import secrets
import shlex
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from beambert_common.command_line.flag_config import FlagConfig
from beambert_common.command_line.flags import non_negative_int, positive_float
from beambert_common.command_line.path_flags import LOCAL_PATH
from deploy.tpu.access import require_access
from deploy.tpu.interrupts import Interrupted, Signals
from deploy.tpu.job import build_wheel, job_of, python_of, runtime_version, training_config, write_package
from deploy.tpu.service import FOLDER, Preempted, Tpu
from pipelines.errors import SubmitError

if TYPE_CHECKING:
    from beambert_common.command_line.command import Command

DESCRIPTION = """Run pretrain, finetune or tune on a Cloud TPU.

Requests a TPU, installs beambert, runs the command, prints its log and deletes the TPU in every case. After a
preemption a new TPU resumes from the last checkpoint. All paths are in Cloud Storage; the Google Cloud CLI must be
logged in (docs/guides/cloud-tpu.md)."""

EXAMPLE = (
    "beambert submit tpu --project my-project --zone us-west4-a --accelerator_type v5litepod-8 "
    "pretrain --data gs://my-bucket/data --output gs://my-bucket/run"
)

COMMON_FLAGS = (
    "--project",
    "--zone",
    "--accelerator_type",
    "--spot",
    "--service_account",
    "--timeout",
    "--sync_seconds",
    "--dry_run",
)

RUNS = ("pretrain", "finetune", "tune")
# Time for a stopping run to save a checkpoint and copy its output.
_STOP_SECONDS = 600.0
# Maximum number of consecutive connections that end within a minute while the TPU VM exists.
_MAX_LOST_CONNECTIONS = 20


@dataclass(frozen=True, kw_only=True)
class TpuConfig(FlagConfig):
    """Options of `beambert submit tpu`; the help of each flag describes its field.

    None stands for an option without a fixed default that was not given.
    """

    project: str
    zone: str
    accelerator_type: str
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
    sync_seconds: float = 300.0
    poll_seconds: float = 20.0
    wheel: str | None = None
    keep: bool = False
    dry_run: bool = False

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
    group.add_argument("--project", required=True, metavar="ID", help="Google Cloud project ID")
    group.add_argument("--zone", required=True, help="Zone of the TPU, such as us-west4-a")
    group.add_argument(
        "--name",
        type=_name,
        help="Name of the request and of the TPU VM (default: beambert- and eight random characters)",
    )
    group.add_argument(
        "--service_account",
        metavar="EMAIL",
        help="Service account of the TPU VM; it needs to read and write the buckets only (default: the project's "
        "Compute Engine account, which may have broad permissions)",
    )
    group.add_argument("--network", help="VPC network of the TPU VM (default: the network named default)")
    group.add_argument("--subnetwork", help="Subnetwork of the TPU VM")
    group.add_argument(
        "--internal_ip",
        action="store_true",
        help="Request a TPU VM without a public IP address. Run this command in the same network; installing packages "
        "requires Cloud NAT.",
    )
    group.add_argument(
        "--dry_run", action="store_true", help="Print the request and the remote command without running them"
    )
    group = parser.add_argument_group("devices")
    group.add_argument(
        "--accelerator_type",
        required=True,
        metavar="TYPE",
        help="Single-host TPU type, such as v5litepod-8 or v6e-8",
    )
    group.add_argument(
        "--runtime_version",
        metavar="VERSION",
        help="TPU software version of the VM; beambert installs its own Python and TensorFlow (default: by type)",
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
        help="Maximum number of restarts after preemptions",
    )
    group.add_argument(
        "--sync_seconds",
        type=positive_float,
        default=TpuConfig.sync_seconds,
        metavar="SECONDS",
        help="Interval between uploads of the output to its bucket, in seconds. A preemption loses the progress since "
        "the last uploaded checkpoint.",
    )
    group.add_argument(
        "--wheel",
        type=LOCAL_PATH,
        metavar="FILE",
        help="Wheel of beambert for Linux on x86-64 (default: built from this checkout)",
    )


def configure(args: argparse.Namespace) -> TpuConfig:
    """Return the configuration of parsed flags."""
    return TpuConfig.from_args(args)


def run(config: TpuConfig, command: "Command") -> int:
    """Run the command on a TPU.

    Returns:
        The command's exit code; 130, 143 or 129 after Ctrl-C, SIGTERM or SIGHUP; 1 where the TPU could not be deleted.

    Raises:
        SubmitError: a flag is invalid, or the request is rejected.
    """
    runtime = runtime_version(config.accelerator_type)
    job = job_of(command)
    strategy = training_config(command).strategy
    tpu = Tpu(config.project, config.zone, config.name or f"beambert-{secrets.token_hex(4)}", config.internal_ip)
    create = tpu.create_command(config.accelerator_type, config.runtime_version or runtime, config.request_flags)
    if strategy not in ("auto", "tpu"):
        _print_status(f"warning: --strategy {strategy} does not use the TPU; use auto or tpu")
    if config.dry_run:
        _print_status(shlex.join(create))
        _print_status(f"on the TPU VM: {shlex.join(['beambert', *job.argv])}")
        for bucket_path, local_path in [*job.inputs, job.output]:
            _print_status(f"  {bucket_path} maps to {local_path}")
        return 0
    require_access(tpu)
    with tempfile.TemporaryDirectory() as folder:
        wheel = Path(config.wheel) if config.wheel else build_wheel(Path(folder))
        if not wheel.is_file():
            raise SubmitError(f"--wheel {wheel} does not exist: build one with pip wheel --no-deps .")
        python_of(wheel)
        package = Path(folder) / FOLDER
        write_package(package, job, wheel, config.sync_seconds)
        signals = Signals()
        with signals.as_interrupts():
            try:
                code = _start_until_done(config, tpu, create, package, signals, job.output[0])
            except Interrupted as interrupted:
                code = 128 + interrupted.number
                if tpu.may_exist and not config.keep:
                    # The signal arrived just before the deletion.
                    _delete(tpu, config.poll_seconds, signals)
                _print_status(f"Interrupted; run the same command to resume from {job.output[0]}")
        return code or int(tpu.may_exist and not config.keep)


def _start_until_done(
    config: TpuConfig, tpu: Tpu, create: list[str], package: Path, signals: Signals, output: str
) -> int:
    """Run the command, with a new TPU after each preemption, and return its exit code."""
    for start in range(config.max_restarts + 1):
        try:
            with _requested_tpu(tpu, create, config, signals):
                for state in tpu.wait(60 * config.timeout, config.poll_seconds):
                    _print_status(f"{tpu.name}: {state}")
                _print_status(f"{tpu.name} is ready; installing beambert")
                tpu.copy(package)
                tpu.remote("install")
                return _run_remotely(tpu, config.poll_seconds)
        except Preempted as preempted:
            if tpu.may_exist:
                raise SubmitError(
                    f"{preempted}; {tpu.name} could not be deleted, so no other TPU is requested"
                ) from None
            if start == config.max_restarts:
                raise SubmitError(
                    f"{preempted}, after --max_restarts {config.max_restarts} restarts; run the same command to resume "
                    f"from {output}"
                ) from None
            _print_status(f"{preempted}; requesting another TPU, restart {start + 1} of {config.max_restarts}")
    raise AssertionError


@contextlib.contextmanager
def _requested_tpu(tpu: Tpu, create: list[str], config: TpuConfig, signals: Signals) -> Iterator[None]:
    """Request a TPU, and delete it after the body; with --keep only after a preemption.

    Raises:
        SubmitError: the request was rejected.
    """
    preempted = False
    try:
        _print_status(
            f"Requesting {config.accelerator_type} in {tpu.zone} as {tpu.name}. Command to delete it by hand:"
        )
        _print_status(f"  {shlex.join(tpu.delete_command)}")
        tpu.create(create)
        yield
    except Preempted:
        preempted = True
        raise
    finally:
        if tpu.may_exist:
            # A rejected or interrupted request is not worth keeping.
            if config.keep and not preempted and tpu.created:
                _print_status(f"{tpu.name} is kept and billed until it is deleted: {shlex.join(tpu.delete_command)}")
            else:
                _delete(tpu, config.poll_seconds, signals)


def _delete(tpu: Tpu, pause_seconds: float, signals: Signals) -> None:
    """Delete the TPU, or print prominently that it still exists or may exist."""
    with signals.ignored(f"{tpu.name} is being deleted; wait, or it continues to be billed"):
        _print_status(f"Deleting {tpu.name}")
        if tpu.delete(pause_seconds):
            return
    if not tpu.created:
        _print_status(f"It is unknown whether {tpu.name} was created. Check, and delete it if it exists:")
        _print_status(f"  {shlex.join(tpu.describe_command)}\n  {shlex.join(tpu.delete_command)}")
        return
    line = "!" * 100
    _print_status(f"{line}\n{tpu.name} COULD NOT BE DELETED AND IS STILL BILLED. Delete it by hand:")
    _print_status(f"  {shlex.join(tpu.delete_command)}\n{line}")


def _run_remotely(tpu: Tpu, poll_seconds: float) -> int:
    """Start the command on the TPU VM, print its log and return its exit code."""
    tpu.remote("start")
    log = Log(tpu, poll_seconds)
    try:
        code = log.follow()
    except Interrupted:
        _print_status("Stopping after saving a checkpoint and copying it to the bucket; a second signal skips this")
        tpu.remote("stop")
        log.follow(time.monotonic() + _STOP_SECONDS)
        raise
    if code == 255:
        raise SubmitError(
            f"the run on {tpu.name} ended without an exit code; run the same command to resume from the last checkpoint"
        )
    return code


class Log:
    """The log of the command on the TPU VM, printed as it grows.

    Args:
        tpu: the TPU.
        poll_seconds: seconds without a line after which the state of the TPU is checked.
    """

    def __init__(self, tpu: Tpu, poll_seconds: float) -> None:
        self._tpu, self._poll_seconds = tpu, poll_seconds
        self._seen = 0

    def follow(self, end: float = float("inf")) -> int:
        """Print the log until the command ends, and return its exit code.

        Args:
            end: time on the monotonic clock after which 255 is returned.

        Raises:
            Preempted: the TPU was preempted.
            SubmitError: the TPU VM is unreachable.
        """
        lost = 0
        while lost < _MAX_LOST_CONNECTIONS:
            begun = time.monotonic()
            with self._tpu.connection(f"follow {self._seen}", self._poll_seconds) as lines:
                for line in lines:
                    if time.monotonic() > end:
                        return 255
                    if line is None:
                        self._tpu.check()
                    elif (code := self._show(line)) is not None:
                        return code
            self._tpu.check()
            lost = lost + 1 if time.monotonic() - begun < 60 else 0
            time.sleep(min(5.0, self._poll_seconds))
        raise SubmitError(f"{self._tpu.name} exists, but ssh cannot connect to it: {lines.errors.strip()[-300:]}")

    def _show(self, line: str) -> int | None:
        """Print a line unless it was printed before; return the exit code where the line is the end marker."""
        number, _, text = line.partition("\t")
        if number == "end":
            return int(text)
        if number.isdigit() and int(number) > self._seen:
            print(text, flush=True)
            self._seen = int(number)
        return None


def _name(text: str) -> str:
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,48}[a-z0-9])?", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a valid name: use at most 50 lower-case letters, digits and hyphens, a letter first"
        )
    return text


def _print_status(line: str) -> None:
    print(line, flush=True)
