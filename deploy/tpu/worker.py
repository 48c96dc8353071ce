"""Run a training command on a TPU host; `beambert submit tpu` copies this file to the TPU VMs and runs it over ssh.

    tpu_worker.py install          create an environment with the locked packages and the wheel
    tpu_worker.py start            start the job in the background, unless it has started
    tpu_worker.py follow OFFSET    print the job's log from a byte offset until the job ends
    tpu_worker.py stop             stop the job after saving a checkpoint
    tpu_worker.py status           wait for the end of the job for at most a minute and print its result

Each step may be repeated after a lost connection. The command's arguments come from job.json in the same directory and
never pass through a shell. The command itself reads its inputs from the bucket and writes its output there. This file
needs Python 3.10, which a TPU VM has, and imports only the standard library.
"""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

# Name of this file on the TPU VM.
SCRIPT = "tpu_worker.py"
# Exit code of a job that ended without writing one.
DIED = 255
# As set by an example of keras-rs for TensorFlow 2.19 on TPUs; not tested with 2.20.
TENSORFLOW_VARIABLES = {
    "PJRT_DEVICE": "TPU",
    "NEXT_PLUGGABLE_DEVICE_USE_C_API": "true",
    "TF_XLA_FLAGS": "--tf_mlir_enable_mlir_bridge=true "
    "--tf_mlir_enable_convert_control_to_data_outputs_pass=true "
    "--tf_mlir_enable_merge_control_flow_pass=true",
}
# With a platform named, JAX fails where it does not find the TPU, instead of using the CPU.
JAX_VARIABLES = {"JAX_PLATFORMS": "tpu,cpu"}
# Start of the line that a host prints when a step has succeeded.
DONE = "done\t"
_STATUS_SECONDS = 60.0
_LOG_UPLOAD_SECONDS = 60.0
# Number of lines at the end of the log in a status, and their maximum length.
_LAST_LINES, _LINE_LENGTH = 8, 300


@dataclass(frozen=True)
class JobFolder:
    """The files of a job on a host.

    Attributes:
        path: the directory.
        job: content of job.json, from `beambert.deploy.tpu.job.job_content`.
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


def main(argv: list[str], path: Path) -> int:
    """Run the step named by the first argument and return the exit code.

    Args:
        argv: the arguments.
        path: the job's directory.
    """
    what = argv[0] if argv else ""
    steps = {"install": install, "start": start, "stop": stop, "status": status, "work": work}
    if what not in (*steps, "follow"):
        print(__doc__)
        return 2
    folder = JobFolder(path, json.loads((path / "job.json").read_text(encoding="utf-8")))
    return follow(folder, int(argv[1])) if what == "follow" else steps[what](folder)


def install(folder: JobFolder) -> int:
    """Create the environment unless it exists; return 0, or the exit code of the failed step."""
    installed = folder.path / "installed"
    with (folder.path / "install.lock").open("w") as lock:
        # A call from before a lost connection may still be running.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not installed.exists():
            uv, python = str(folder.path / "tools" / "bin" / "uv"), str(folder.environment / "bin" / "python")
            hashed = ["--quiet", "--require-hashes"]
            steps = (
                # Isolated from the current directory; the Python 3.10 of a TPU VM has no -P.
                [
                    *("python3", "-I", "-m", "pip", "install", *hashed),
                    *("--upgrade", "--target", "tools", "-r", "installer.lock"),
                ],
                # The system's Python is too old for beambert; uv downloads and verifies another.
                [uv, "venv", "--quiet", "--clear", "--python", folder.job["python"], str(folder.environment)],
                [uv, "pip", "install", *hashed, "--python", python, "-r", folder.job["requirements"]],
                [uv, "pip", "install", "--quiet", "--no-deps", "--python", python, folder.job["wheel"]],
            )
            for step in steps:
                code = subprocess.run(step, cwd=folder.path, check=False).returncode  # noqa: S603
                if code:
                    print(f"Installation failed: {' '.join(step)}", flush=True)
                    return code
            installed.touch()
    return _done(folder)


def start(folder: JobFolder) -> int:
    """Start the job in its own session, which survives the connection."""
    if not has_started(folder):
        with folder.log.open("ab") as log:
            subprocess.Popen(  # noqa: S603
                [sys.executable, str(folder.path / SCRIPT), "work"],
                cwd=folder.path,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end = time.monotonic() + 10
        while not has_started(folder):
            if time.monotonic() > end:
                print("The job did not start", flush=True)
                return 1
            time.sleep(0.1)
    return _done(folder)


def follow(folder: JobFolder, offset: int) -> int:
    """Print the log, each line as `<offset after the line>TAB<line>`, and finally `endTAB<exit code>`.

    After a lost connection, the offsets let the reader skip lines that it has already printed.
    """
    pending = b""
    with folder.log.open("rb") as log:
        log.seek(offset)
        while True:
            # Checked before the log is read, so that the last lines of the job are included.
            code = read_exit_code(folder)
            pending += log.read()
            *lines, pending = pending.split(b"\n")
            if code is not None and pending:
                lines, pending = [*lines, pending], b""
            for line in lines:
                offset += len(line) + 1
                sys.stdout.write(f"{offset}\t{line.decode('utf-8', 'replace')}\n")
            if code is not None:
                sys.stdout.write(f"end\t{code}\n")
            sys.stdout.flush()
            if code is not None:
                return 0
            time.sleep(0.5)


def stop(folder: JobFolder) -> int:
    """Send SIGTERM to the job, which forwards it to the command; the command saves a checkpoint and ends.

    A job that has not started will not run: an interrupted request to start it may still arrive.
    """
    with folder.lock.open("a") as lock:
        if _try_lock(lock, tries=1):
            if not folder.exit_code.exists():
                folder.log.touch()
                folder.exit_code.write_text(str(128 + signal.SIGTERM))
        else:
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(folder.process.read_text()), signal.SIGTERM)
    return _done(folder)


def status(folder: JobFolder) -> int:
    """Wait for the end of the job for at most a minute, and print its exit code and the end of its log as JSON."""
    end = time.monotonic() + _STATUS_SECONDS
    while (code := read_exit_code(folder)) is None and time.monotonic() < end:
        time.sleep(0.2)
    lines = folder.log.read_text(encoding="utf-8", errors="replace").splitlines() if folder.log.exists() else []
    ended = folder.exit_code.stat().st_mtime if folder.exit_code.exists() else None
    last = [line[:_LINE_LENGTH] for line in lines[-_LAST_LINES:]]
    result = {"worker": worker_number(folder.job), "exit_code": code, "ended": ended, "last": last}
    # One call, so that the lines of several hosts do not mix.
    os.write(1, f"{json.dumps(result)}\n".encode())
    return 0


def work(folder: JobFolder) -> int:
    """Run the command; write the exit code last."""
    with folder.lock.open("a") as lock:
        if not _try_lock(lock) or folder.exit_code.exists():
            return 0
        folder.process.write_text(str(os.getpid()))
        code = _train(folder)
        # Not `write_atomic`, since this file does not import beambert.
        unfinished = folder.exit_code.with_name("exit_code.unfinished")
        unfinished.write_text(str(code))
        unfinished.replace(folder.exit_code)
    return code


def _train(folder: JobFolder) -> int:
    child: subprocess.Popen[bytes] | None = None
    signals: list[float] = []

    def forward(_number: int, _frame: Any) -> None:
        signals.append(time.monotonic())
        if child is not None:
            child.terminate()

    # A VM sends SIGTERM before a preemption too.
    signal.signal(signal.SIGTERM, forward)
    job, worker = folder.job, worker_number(folder.job)
    child = subprocess.Popen(  # noqa: S603
        [str(folder.environment / "bin" / "beambert"), *job["argv"], *_process_flags(job, worker)],
        cwd=folder.path,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **job["environment"], **_tpu_variables(folder)},
        stdin=subprocess.DEVNULL,
    )
    if signals:
        child.terminate()
    uploaded = time.monotonic()
    while True:
        try:
            code = child.wait(timeout=1.0)
            break
        except subprocess.TimeoutExpired:
            if time.monotonic() >= uploaded + _LOG_UPLOAD_SECONDS:
                _upload_log(folder, worker)
                uploaded = time.monotonic()
            if signals and time.monotonic() > signals[0] + job["stop_seconds"]:
                # It waits for a host that is gone. It uploaded each checkpoint when that was complete.
                child.kill()
    _upload_log(folder, worker)
    return code if code >= 0 else 128 - code


def _process_flags(job: dict[str, Any], worker: int) -> list[str]:
    """Return the flags by which the processes of several hosts find each other."""
    if not job["coordinator"]:
        return []
    return [
        *("--coordinator_address", job["coordinator"]),
        *("--num_processes", str(job["hosts"] * job["slices"])),
        # JAX numbers the hosts of a slice one after another.
        *("--process_id", str(job["slice_id"] * job["hosts"] + worker)),
    ]


def _upload_log(folder: JobFolder, worker: int) -> None:
    """Copy the log to the bucket where the job has several hosts; a failure is repaired by the next copy."""
    if folder.job["logs"]:
        url = f"{folder.job['logs']}/slice-{folder.job['slice_id']}-worker-{worker}.log"
        subprocess.run(  # noqa: S603
            ["gcloud", "storage", "cp", str(folder.log), url, "--quiet"],  # noqa: S607
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            # Signals must not interrupt an upload.
            start_new_session=True,
        )


def worker_number(job: dict[str, Any]) -> int:
    """Return the number of this host in its slice, as the metadata server states it for JAX too."""
    if job["hosts"] == 1:
        return 0
    server = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
    request = urllib.request.Request(
        f"http://{server}/computeMetadata/v1/instance/attributes/agent-worker-number",
        headers={"Metadata-Flavor": "Google"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return int(answer.read())


def _tpu_variables(folder: JobFolder) -> dict[str, str]:
    """Return the variables for the TPU where the environment has its driver."""
    libraries = sorted(str(path) for path in folder.environment.glob("lib/python3*/site-packages/libtpu/libtpu.so"))
    if not libraries:
        return {}
    if folder.job["backend"] == "jax":
        return JAX_VARIABLES
    return {**TENSORFLOW_VARIABLES, "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": libraries[0]}


def _done(folder: JobFolder) -> int:
    """Print that the step succeeded on this host, where there are several; return 0."""
    if folder.job["hosts"] > 1:
        os.write(1, f"{DONE}{worker_number(folder.job)}\n".encode())
    return 0


def has_started(folder: JobFolder) -> bool:
    """Return whether the job was started."""
    return folder.exit_code.exists() or _is_locked(folder.lock)


def read_exit_code(folder: JobFolder) -> int | None:
    """Return the job's exit code; None while it runs."""
    for last in (False, True):
        if folder.exit_code.exists():
            return int(folder.exit_code.read_text())
        if _is_locked(folder.lock):
            return None
        if not last:
            # The job may have ended between the two checks.
            time.sleep(0.2)
    return DIED


def _is_locked(path: Path) -> bool:
    """Return whether a process holds the lock on a file."""
    if not path.exists():
        return False
    with path.open("a") as lock:
        return not _try_lock(lock, tries=1)


def _try_lock(lock: IO[str], tries: int = 20) -> bool:
    """Take the lock on an open file; return False if another process holds it for longer than a query takes."""
    for left in reversed(range(tries)):
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if left:
            time.sleep(0.05)
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parent))
