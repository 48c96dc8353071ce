"""Start beambert processes in a session of their own, and find them by a marker in their environment."""

import dataclasses
import os
import resource
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_MARKER = "BEAMBERT_CHAOS_PROCESS"
_POLL_SECONDS = 0.01


@dataclasses.dataclass
class Launched:
    """A running command.

    Attributes:
        process: the main process.
        marker: the value of an environment variable that all its descendants inherit.
        log: the file with its stdout and stderr.
        started: start time in seconds of the monotonic clock.
        reader: the process that copies the output of the command to the log.
    """

    process: subprocess.Popen[bytes]
    marker: str
    log: Path
    started: float
    reader: subprocess.Popen[bytes]

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    @property
    def text(self) -> str:
        """The output of the processes so far; it is complete if none of them is alive."""
        if not self.members():
            self.reader.wait()
        return self.log.read_text(encoding="utf-8", errors="replace")

    def is_running(self) -> bool:
        """Return whether the main process runs."""
        return self.process.poll() is None

    def members(self) -> list[int]:
        """Return the identifiers of all living processes of the command, in ascending order."""
        return processes_with(self.marker)

    def workers(self) -> list[int]:
        """Return the identifiers of all living processes but the main one."""
        return [number for number in self.members() if number != self.process.pid]

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` for the main process; return whether it has ended."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def orphans(self, seconds: float) -> list[int]:
        """Wait at most `seconds` for the end of the processes that outlive the main one; return those still alive."""
        until = time.monotonic() + seconds
        while (left := self.members()) and time.monotonic() < until:
            time.sleep(5 * _POLL_SECONDS)
        return left

    def kill(self) -> None:
        """Kill all processes of the command."""
        while numbers := self.members():
            for number in numbers:
                send(number, signal.SIGKILL)
            time.sleep(_POLL_SECONDS)
        self.process.wait()
        self.reader.wait()


def start(arguments: tuple[str, ...], directory: Path, log: Path, *, file_size: int | None = None) -> Launched:
    """Start `beambert` from this checkout.

    Args:
        arguments: the command line.
        directory: the current directory of the process.
        log: a file for stdout and stderr; it is overwritten.
        file_size: limit in bytes of every file that the process writes (RLIMIT_FSIZE).
    """
    marker = uuid.uuid4().hex
    environment = {
        **os.environ,
        _MARKER: marker,
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(directory / "tmp"),
        # The same arithmetic on every machine, and less competition for its cores.
        "TF_NUM_INTRAOP_THREADS": "1",
        "TF_NUM_INTEROP_THREADS": "1",
    }

    def prepare() -> None:
        # A shell ignores SIGINT in background jobs, nohup ignores SIGHUP, and child processes inherit this.
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        if file_size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))

    read_end, write_end = os.pipe()
    # The output passes through a pipe, so that the size limit does not cut the log.
    with log.open("wb") as file:
        reader = subprocess.Popen(["cat"], stdin=read_end, stdout=file, start_new_session=True)
    os.close(read_end)
    process = subprocess.Popen(
        [sys.executable, "-m", "beambert", *arguments],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=write_end,
        stderr=write_end,
        start_new_session=True,
        preexec_fn=prepare,
    )
    os.close(write_end)
    return Launched(process, marker, log, time.monotonic(), reader)


def processes_with(marker: str) -> list[int]:
    """Return the living processes with a marker in their environment, except processes of other users."""
    wanted = f"{_MARKER}={marker}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                # The environment of a process that has ended (a zombie) is empty.
                environment = (folder / "environ").read_bytes()
            except OSError:
                continue
            if wanted in environment.split(b"\0"):
                found.append(int(folder.name))
    return sorted(found)


def send(number: int, which: int) -> None:
    """Send a signal to a process that may have ended meanwhile."""
    try:
        os.kill(number, which)
    except ProcessLookupError:
        return


def paths_below(folder: Path) -> set[str]:
    """Return the relative paths of all files and directories below a folder that may change meanwhile."""
    names: set[str] = set()
    for parent, folders, files in os.walk(folder):
        names |= {str((Path(parent) / name).relative_to(folder)) for name in (*folders, *files)}
    return names


def wait_for_moment(launched: Launched, folder: Path, *, seconds: float, paths: int, delay: float) -> bool:
    """Wait for a moment of a run.

    Args:
        launched: the running command.
        folder: the folder that it writes into.
        seconds: end of the wait, since the start of the command; used only if `paths` is 0.
        paths: number of new paths in the folder that ends the wait; 0 to wait for `seconds`.
        delay: seconds to wait after that.

    Returns:
        Whether the main process still runs.
    """
    seen = before = paths_below(folder)
    while launched.is_running():
        if paths:
            seen = seen | paths_below(folder)
            if len(seen) - len(before) >= paths:
                break
        elif launched.seconds >= seconds:
            break
        time.sleep(_POLL_SECONDS)
    time.sleep(delay)
    return launched.is_running()


def count_paths(launched: Launched, folder: Path, seconds: float) -> tuple[bool, int]:
    """Wait for the end of a command, up to a number of seconds after its start.

    Returns:
        Whether it ended, and the number of distinct new paths seen in a folder.
    """
    seen = before = paths_below(folder)
    while launched.is_running() and launched.seconds < seconds:
        seen = seen | paths_below(folder)
        time.sleep(_POLL_SECONDS)
    return not launched.is_running(), len(seen) - len(before)
