"""The files of a job on a TPU host, its state, and the position of the host among the others.

`worker.py` uses this file on TPU VMs and in containers. It needs Python 3.10 and imports only the standard library.
"""

import contextlib
import fcntl
import os
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

# Exit code of a job that ended without writing one.
DIED = 255


@dataclass(frozen=True)
class JobFolder:
    """The files of a job on a host.

    Attributes:
        path: the directory.
        job: content of job.json: see `beambert.deploy.tpu.job.write_package`.
    """

    path: Path
    job: dict[str, Any]

    @property
    def log(self) -> Path:
        """Return the path of the log."""
        return self.path / "log.txt"

    @property
    def exit_code(self) -> Path:
        """Return the path of the file that is written last."""
        return self.path / "exit_code"

    @property
    def lock(self) -> Path:
        """Return the path of the file that a running job locks."""
        return self.path / "work.lock"

    @property
    def process(self) -> Path:
        """Return the path of the file with the process ID of a running job."""
        return self.path / "work.pid"

    @property
    def environment(self) -> Path:
        """Return the virtual environment."""
        return self.path / "env"


@dataclass(frozen=True)
class Host:
    """The position of this host in the job.

    Attributes:
        slice_id: number of the slice.
        worker: number of the host in its slice.
    """

    slice_id: int
    worker: int

    @property
    def is_chief(self) -> bool:
        """Return whether this host copies the output to the bucket."""
        return self.slice_id == self.worker == 0


def host(job: dict[str, Any]) -> Host:
    """Return the position of this host.

    In GKE, environment variables state it. On a TPU VM, the metadata server states the number in the slice, as it does
    for JAX.
    """
    slice_id = int(os.environ.get("MEGASCALE_SLICE_ID", job["slice_id"]))
    if job["hosts"] == 1:
        return Host(slice_id, 0)
    worker = os.environ.get("TPU_WORKER_ID")
    if worker is None:
        server = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
        request = urllib.request.Request(
            f"http://{server}/computeMetadata/v1/instance/attributes/agent-worker-number",
            headers={"Metadata-Flavor": "Google"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            worker = answer.read().decode()
    return Host(slice_id, int(worker))


def has_started(folder: JobFolder) -> bool:
    """Return whether the job was started."""
    return folder.exit_code.exists() or is_locked(folder.lock)


def read_exit_code(folder: JobFolder) -> int | None:
    """Return the job's exit code; None while it runs."""
    for last in (False, True):
        if folder.exit_code.exists():
            return int(folder.exit_code.read_text())
        if is_locked(folder.lock):
            return None
        if not last:
            # The job may have ended between the two checks.
            time.sleep(0.2)
    return DIED


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock on a file."""
    if not path.exists():
        return False
    with path.open("a") as lock:
        return not try_lock(lock, tries=1)


def try_lock(lock: IO[str], tries: int = 20) -> bool:
    """Take the lock on an open file; return False if another process holds it for longer than a query takes."""
    for left in reversed(range(tries)):
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if left:
            time.sleep(0.05)
    return False
