"""Request a TPU, run a job on all its hosts, and delete it in every case; restart after preemptions.

request a TPU -> wait -> copy wheel, lock files and command -> install -> run and print the log -> delete
     ^                                                           |
     '------------------------ delete after preemption <---------'
"""

import contextlib
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from beambert.common import terminal
from beambert.common.signals import REPEAT_SECONDS, handled_signals
from beambert.deploy.tpu.gcloud import print_line
from beambert.deploy.tpu.service import Preempted, Tpu
from beambert.deploy.tpu.worker import DIED
from beambert.pipelines.errors import SubmitError

# Time for a stopping run to save a checkpoint and copy its output.
_STOP_SECONDS = 600.0
_STOPPED = 128 + signal.SIGTERM
_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Maximum number of consecutive connections that end within a minute while the TPU VM exists.
_MAX_LOST_CONNECTIONS = 20


class Interrupted(BaseException):
    """A signal requested the end of the program."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """Convert signals to exceptions, except while a TPU is being deleted."""

    def __init__(self) -> None:
        self._ignored_message: str | None = None
        self._last = -REPEAT_SECONDS

    @contextlib.contextmanager
    def as_interrupts(self) -> Iterator[None]:
        """Raise `Interrupted` in the main thread on a signal during the body; signals ignored before stay ignored."""
        with handled_signals(_NUMBERS, self._handle):
            yield

    @contextlib.contextmanager
    def ignored(self, message: str) -> Iterator[None]:
        """Ignore signals during the body except for printing a message."""
        self._ignored_message = message
        try:
            yield
        finally:
            self._ignored_message = None

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        before, self._last = self._last, time.monotonic()
        if self._ignored_message is not None:
            print_line(self._ignored_message)
        elif self._last - before >= REPEAT_SECONDS:
            raise Interrupted(number)


class Log:
    """The log of the command on the chief, printed as it grows.

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
                        return DIED
                    if line is None:
                        self._tpu.check()
                    elif (code := self._show(line)) is not None:
                        return code
            self._tpu.check()
            lost = lost + 1 if time.monotonic() - begun < 60 else 0
            time.sleep(min(5.0, self._poll_seconds))
        raise SubmitError(f"{self._tpu.nodes[0]} exists, but ssh cannot connect to it: {lines.errors.strip()[-300:]}")

    def _show(self, line: str) -> int | None:
        """Print a line unless it was printed before; return the exit code where the line is the end marker."""
        number, _, text = line.partition("\t")
        if number == "end":
            return int(text)
        if number.isdigit() and int(number) > self._seen:
            print_line(text)
            self._seen = int(number)
        return None


class SessionConfig(NamedTuple):
    """Configuration of the requests for TPUs.

    Attributes:
        create: command that requests a TPU.
        description: accelerator type, and number of slices where there are several.
        output: path of the output in its bucket.
        max_restarts: maximum number of restarts after preemptions.
        timeout: maximum wait for a TPU, in seconds.
        poll_seconds: interval between requests for the state of the TPU, in seconds.
        keep: whether to keep the TPU.
    """

    create: list[str]
    description: str
    output: str
    max_restarts: int
    timeout: float
    poll_seconds: float
    keep: bool


# Returns the directories to copy to the hosts, one per slice, for a number of restarts and the chief's IP address.
Packages = Callable[[int, str], Sequence[Path]]


def run_session(config: SessionConfig, tpu: Tpu, packages: Packages) -> int:
    """Run a job and return its exit code.

    Returns:
        The command's exit code; 130, 143 or 129 after Ctrl-C, SIGTERM or SIGHUP; 1 where the TPU could not be deleted.

    Raises:
        SubmitError: the request is rejected, a host is unreachable, or neither the output could be written nor the TPU
            be deleted.
        OSError: the output could not be written; the TPU is deleted.
    """
    signals = Signals()
    with signals.as_interrupts():
        try:
            code = _start_until_done(config, tpu, packages, signals)
        except Interrupted as interrupted:
            code = 128 + interrupted.number
            if tpu.may_exist and not config.keep:
                # The signal arrived just before the deletion.
                _delete(tpu, config.poll_seconds, signals)
            print_line(f"Interrupted; run the same command to resume from {config.output}")
        except OSError as error:
            if tpu.may_exist and not config.keep:
                raise SubmitError(
                    f"{tpu.name} could not be deleted and is still billed; delete it by hand: "
                    f"{shlex.join(tpu.delete_command)}"
                ) from error
            raise
    return code or int(tpu.may_exist and not config.keep)


def _start_until_done(config: SessionConfig, tpu: Tpu, packages: Packages, signals: Signals) -> int:
    """Run the command, with a new TPU after each preemption, and return its exit code."""
    for start in range(config.max_restarts + 1):
        try:
            with _requested_tpu(config, tpu, signals):
                for state in tpu.wait(config.timeout, config.poll_seconds):
                    print_line(f"{tpu.name}: {state}")
                print_line(f"{tpu.name} is ready; installing beambert{_on_hosts(tpu)}")
                tpu.copy(packages(start, tpu.address() if len(tpu.nodes) * tpu.hosts > 1 else ""))
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
                    f"from {config.output}"
                ) from None
            print_line(f"{preempted}; requesting another TPU, restart {start + 1} of {config.max_restarts}")
    raise AssertionError


def _on_hosts(tpu: Tpu) -> str:
    slices = f" of {len(tpu.nodes)} slices" if len(tpu.nodes) > 1 else ""
    return f" on {len(tpu.nodes) * tpu.hosts} hosts{slices}" if len(tpu.nodes) * tpu.hosts > 1 else ""


@contextlib.contextmanager
def _requested_tpu(config: SessionConfig, tpu: Tpu, signals: Signals) -> Iterator[None]:
    """Request a TPU, and delete it after the body; with --keep only after a preemption.

    Raises:
        SubmitError: the request was rejected.
    """
    preempted = False
    try:
        print_line(f"Requesting {config.description} in {tpu.zone} as {tpu.name}. Command to delete it by hand:")
        print_line(f"  {shlex.join(tpu.delete_command)}")
        tpu.create(config.create)
        yield
    except Preempted:
        preempted = True
        raise
    finally:
        if tpu.may_exist:
            # A rejected or interrupted request is not worth keeping.
            if config.keep and not preempted and tpu.created:
                print_line(f"{tpu.name} is kept and billed until it is deleted: {shlex.join(tpu.delete_command)}")
            else:
                _delete(tpu, config.poll_seconds, signals)


def _delete(tpu: Tpu, pause_seconds: float, signals: Signals) -> None:
    """Delete the TPU, or print prominently that it still exists or may exist."""
    message = f"{tpu.name} is being deleted; wait, or it continues to be billed"
    with signals.ignored(message), terminal.lossy_stdout():
        print_line(f"Deleting {tpu.name}")
        if tpu.delete(pause_seconds):
            return
    if not tpu.created:
        print_line(f"It is unknown whether {tpu.name} was created. Check, and delete it if it exists:")
        print_line(f"  {shlex.join(tpu.describe_command)}\n  {shlex.join(tpu.delete_command)}")
        return
    line = "!" * 100
    print_line(f"{line}\n{tpu.name} COULD NOT BE DELETED AND IS STILL BILLED. Delete it by hand:")
    print_line(f"  {shlex.join(tpu.delete_command)}\n{line}")


def _run_remotely(tpu: Tpu, poll_seconds: float) -> int:
    """Start the command on all hosts, print the log of the chief and return its exit code.

    Raises:
        Preempted: a host was preempted, stopped by the service or lost.
        SubmitError: the run ended without an exit code.
    """
    log = Log(tpu, poll_seconds)
    try:
        # The command runs before the start returns.
        tpu.remote("start")
        code = log.follow()
    except (Interrupted, OSError):
        # An OSError: the log cannot be printed, as in `beambert submit tpu | head` or on a full disk.
        with terminal.lossy_stdout():
            print_line("Stopping after saving a checkpoint and copying it to the bucket; a second signal skips this")
            tpu.remote("stop")
            log.follow(time.monotonic() + _STOP_SECONDS)
        raise
    if code == _STOPPED:
        raise Preempted("the run was stopped by SIGTERM on a TPU VM, as before a preemption")
    if len(tpu.nodes) * tpu.hosts > 1:
        _check_hosts(tpu, code)
    if code == DIED:
        raise SubmitError(
            f"the run on {tpu.name} ended without an exit code; run the same command to resume from the last checkpoint"
        )
    return code


def _check_hosts(tpu: Tpu, code: int) -> None:
    """Wait until all hosts have ended; after a failure, print the end of the log of the host that failed first.

    Args:
        tpu: the TPU.
        code: exit code of the chief.

    Raises:
        Preempted: the run failed and a host was preempted or does not answer.
    """
    statuses = tpu.status()
    if code == 0:
        return
    tpu.check()
    for node, hosts in statuses.items():
        if len(hosts) < tpu.hosts:
            raise Preempted(f"{len(hosts)} of {tpu.hosts} hosts of {node} answer, and the run failed")
    failed = [
        (status["ended"], node, status)
        for node, hosts in statuses.items()
        for status in hosts
        if status["ended"] and status["exit_code"]
    ]
    for _, node, status in sorted(failed, key=lambda failure: failure[0])[:1]:
        _print_failure(node, status)


def _print_failure(node: str, status: dict[str, Any]) -> None:
    print_line(f"The first host that failed is worker {status['worker']} of {node}. The end of its log:")
    for line in status["last"]:
        print_line(f"  {line}")
