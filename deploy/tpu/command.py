"""`beambert submit tpu`: a training command on a Cloud TPU that is created for it and deleted after it.

    request a TPU -> wait for it -> copy wheel, lock and command there -> install -> run, showing the log -> delete
         ^                                                                  |
         '------------------ delete, when the service took the TPU away <---'

Whatever happens, what was created is deleted: after an error, Ctrl-C, SIGTERM and SIGHUP too.
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

DESCRIPTION = """Runs a training command on a Cloud TPU: requests one, installs beambert there, runs the command, shows
its log, and deletes the TPU at the end, whatever the end. When the service takes the TPU away, another is requested and
the command resumes from the last checkpoint in the bucket. All paths of the command are places in buckets,
gs://... It needs the Google Cloud CLI, logged in. What it costs, beambert plan reckons; docs/TPU.md says the rest."""
EXAMPLE = (
    "beambert submit tpu --project PROJECT --zone us-west4-a --accelerator_type v5litepod-8 "
    "pretrain --data gs://BUCKET/data --output gs://BUCKET/run"
)
COMMON_FLAGS = ()

RUNS = ("pretrain", "finetune", "tune")
# How long a run that is to end may take to save and to copy its output.
_STOP_SECONDS = 600.0
# Connections in a row that end within a minute, while the machine is there.
_MOST_LOST = 20


@dataclass(frozen=True, kw_only=True)
class TpuConfig(FlagConfig):
    """Which TPU to request and how to run a training command on it; the help of each flag says what it does.

    None is an option that was not given and has no fixed default.
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
        """Return the options of the request as flags of gcloud."""
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
    group = parser.add_argument_group("the TPU")
    group.add_argument("--project", required=True, help="the Google Cloud project that pays")
    group.add_argument("--zone", required=True, help="such as us-west4-a; each has some types of TPU")
    group.add_argument(
        "--accelerator_type",
        required=True,
        metavar="TYPE",
        help="such as v5litepod-8 or v6e-8; types of one host alone, since examples are read on one",
    )
    group.add_argument(
        "--runtime_version",
        metavar="VERSION",
        help="software that the machine begins with; beambert brings its own Python and TensorFlow (default: by type)",
    )
    group.add_argument(
        "--name",
        type=_name,
        help="of the request and the machine (default: beambert- and eight random characters)",
    )
    kind = group.add_mutually_exclusive_group()
    kind.add_argument(
        "--spot", action="store_true", help="cheaper, and may be taken away at any time, after which it goes on anew"
    )
    kind.add_argument("--reserved", action="store_true", help="from a reservation of the project")
    group.add_argument(
        "--service_account",
        metavar="EMAIL",
        help="whose rights the machine has: to read and write the places in buckets, no more (default: the project's "
        "compute account, which may do much)",
    )
    group.add_argument("--network", help="the machine's network (default: the one named default)")
    group.add_argument("--subnetwork", help="and subnetwork")
    group.add_argument(
        "--internal_ip",
        action="store_true",
        help="no public address: run this within the network, which needs Cloud NAT for the packages",
    )
    group = parser.add_argument_group("the run")
    group.add_argument(
        "--max_restarts",
        type=non_negative_int,
        default=TpuConfig.max_restarts,
        metavar="N",
        help="how often a TPU that was taken away is replaced",
    )
    group.add_argument(
        "--timeout",
        type=positive_float,
        default=TpuConfig.timeout,
        metavar="MINUTES",
        help="how long to wait for a TPU, each time; then the request is deleted",
    )
    group.add_argument(
        "--sync_seconds",
        type=positive_float,
        default=TpuConfig.sync_seconds,
        metavar="SECONDS",
        help="between two copies of the output to its bucket; so much, and what came after the last checkpoint, is "
        "lost when a TPU is taken away",
    )
    group.add_argument(
        "--poll_seconds",
        type=positive_float,
        default=TpuConfig.poll_seconds,
        metavar="SECONDS",
        help="between two questions to the service",
    )
    group.add_argument(
        "--wheel", type=LOCAL_PATH, metavar="FILE", help="of beambert, for Linux (default: built from this checkout)"
    )
    group.add_argument(
        "--keep", action="store_true", help="leave the TPU, which costs until it is deleted, and print how to delete it"
    )
    group.add_argument("--dry_run", action="store_true", help="print what would be requested and run, and end")


def configure(args: argparse.Namespace) -> TpuConfig:
    """Return the configuration of the TPU flags."""
    return TpuConfig.from_args(args)


def run(config: TpuConfig, command: "Command") -> int:
    """Run the command on a TPU.

    Returns:
        The command's exit code; 130, 143 or 129 after Ctrl-C, SIGTERM or SIGHUP; 1 where a TPU could not be deleted.

    Raises:
        SubmitError: invalid flags, or a rejected request; one line for the user.
    """
    runtime = runtime_version(config.accelerator_type)
    job = job_of(command)
    strategy = training_config(command).strategy
    tpu = Tpu(config.project, config.zone, config.name or f"beambert-{secrets.token_hex(4)}", config.internal_ip)
    create = tpu.create_command(config.accelerator_type, config.runtime_version or runtime, config.request_flags)
    if strategy not in ("auto", "tpu"):
        _say(f"Warning: --strategy {strategy} leaves the TPU idle")
    if config.dry_run:
        _say(shlex.join(create))
        _say(f"on the machine: {shlex.join(['beambert', *job.argv])}")
        for place, local in [*job.inputs, job.output]:
            _say(f"  {place} is {local}")
        return 0
    require_access(tpu)
    with tempfile.TemporaryDirectory() as folder:
        wheel = Path(config.wheel) if config.wheel else build_wheel(Path(folder))
        if not wheel.is_file():
            raise SubmitError(f"--wheel {wheel} is not there; build one with pip wheel --no-deps .")
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
                    # The signal came in the moment before the deletion.
                    _delete(tpu, config.poll_seconds, signals)
                _say(f"Interrupted; the same command resumes from what is in {job.output[0]}")
        return code or int(tpu.may_exist and not config.keep)


def _start_until_done(
    config: TpuConfig, tpu: Tpu, create: list[str], package: Path, signals: Signals, output: str
) -> int:
    """Run the command on one TPU after another until it ends, and return its exit code."""
    for start in range(config.max_restarts + 1):
        try:
            with _requested_tpu(tpu, create, config, signals):
                for state in tpu.wait(60 * config.timeout, config.poll_seconds):
                    _say(f"{tpu.name}: {state}")
                _say(f"{tpu.name} is there; installing")
                tpu.copy(package)
                tpu.remote("install")
                return _run_there(tpu, config.poll_seconds)
        except Preempted as preempted:
            if tpu.may_exist:
                raise SubmitError(f"{preempted}; {tpu.name} could not be deleted, so no other is requested") from None
            if start == config.max_restarts:
                raise SubmitError(
                    f"{preempted}, after {config.max_restarts} restarts, the most that --max_restarts allows; the same "
                    f"command resumes from what is in {output}"
                ) from None
            _say(f"{preempted}; requesting another, restart {start + 1} of at most {config.max_restarts}")
    raise AssertionError


@contextlib.contextmanager
def _requested_tpu(tpu: Tpu, create: list[str], config: TpuConfig, signals: Signals) -> Iterator[None]:
    """Request a TPU, and delete it after the body; with --keep only where the service took it away.

    Raises:
        SubmitError: the request was rejected.
    """
    taken = False
    try:
        _say(f"Requesting {config.accelerator_type} in {tpu.zone} as {tpu.name}; by hand it is deleted with")
        _say(f"  {shlex.join(tpu.delete_command)}")
        tpu.create(create)
        yield
    except Preempted:
        taken = True
        raise
    finally:
        if tpu.may_exist:
            # A request that was refused or broken off is not worth keeping.
            if config.keep and not taken and tpu.created:
                _say(f"{tpu.name} is kept and costs until it is deleted: {shlex.join(tpu.delete_command)}")
            else:
                _delete(tpu, config.poll_seconds, signals)


def _delete(tpu: Tpu, pause_seconds: float, signals: Signals) -> None:
    """Delete the TPU, or print prominently that it still exists or may exist."""
    with signals.held(f"{tpu.name} is being deleted; wait, or it goes on to cost"):
        _say(f"Deleting {tpu.name}")
        if tpu.delete(pause_seconds):
            return
    if not tpu.created:
        _say(f"It is unknown whether {tpu.name} was created. Check it, and delete it if it exists:")
        _say(f"  {shlex.join(tpu.describe_command)}\n  {shlex.join(tpu.delete_command)}")
        return
    line = "!" * 100
    _say(f"{line}\n{tpu.name} COULD NOT BE DELETED AND COSTS MONEY. Delete it by hand:")
    _say(f"  {shlex.join(tpu.delete_command)}\n{line}")


def _run_there(tpu: Tpu, poll_seconds: float) -> int:
    """Start the command on the machine, print its log and return its exit code."""
    tpu.remote("start")
    log = Log(tpu, poll_seconds)
    try:
        code = log.follow()
    except Interrupted:
        _say("Stopping: a checkpoint is saved and copied to the bucket; another signal leaves that out")
        tpu.remote("stop")
        log.follow(time.monotonic() + _STOP_SECONDS)
        raise
    if code == 255:
        raise SubmitError(
            f"the run on {tpu.name} died without a word; the same command resumes from the last checkpoint"
        )
    return code


class Log:
    """The log of the work on the machine, shown while it grows.

    Args:
        tpu: the machine.
        poll_seconds: without a line after which the service is asked whether the machine is there.
    """

    def __init__(self, tpu: Tpu, poll_seconds: float) -> None:
        self._tpu, self._poll_seconds = tpu, poll_seconds
        self._seen = 0

    def follow(self, end: float = float("inf")) -> int:
        """Print the log until the work ends, and return its exit code.

        Args:
            end: time on the monotonic clock after which 255 is returned.

        Raises:
            Preempted: the machine was taken away.
            SubmitError: the machine is unreachable.
        """
        lost = 0
        while lost < _MOST_LOST:
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
        raise SubmitError(f"{self._tpu.name} is there and cannot be entered any more: {lines.errors.strip()[-300:]}")

    def _show(self, line: str) -> int | None:
        """Print a line unless it was printed before; return the exit code if it is the end."""
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
            f"{text!r} is not lower-case letters, digits and hyphens, a letter first, 50 at most"
        )
    return text


def _say(line: str) -> None:
    print(line, flush=True)
