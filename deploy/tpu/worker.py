"""Run a training command on a TPU host; `beambert submit tpu` copies this file to the TPU VMs and runs it over ssh.

    tpu_worker.py install          create an environment with the locked packages and the wheel
    tpu_worker.py start            start the job in the background, unless it has started
    tpu_worker.py follow OFFSET    print the job's log from a byte offset until the job ends
    tpu_worker.py stop             stop the job after saving a checkpoint
    tpu_worker.py status           wait for the end of the job for at most a minute and print its result

Each step may be repeated after a lost connection. The command's arguments come from job.json in the same directory and
never pass through a shell. This file needs Python 3.10 and `gcloud storage`, which a TPU VM has, and imports nothing of
beambert but `bucket_sync.py`, `job_folder.py` and `run_snapshot.py`.

In a container of Google Kubernetes Engine, `python -m beambert.deploy.tpu.worker pod FILE` runs the job of a file in
the working directory and returns the exit code of the command.

The command reads and writes local files only. Every host copies the inputs from the bucket, and the existing output
when a run resumes. The chief is the first host of the first slice: it copies the output to the bucket at intervals and
at the end.
"""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from beambert.deploy.tpu import bucket_sync
from beambert.deploy.tpu.job_folder import Host, JobFolder, has_started, host, read_exit_code, try_lock

# Name of the script on the TPU VM that runs this file.
SCRIPT = "tpu_worker.py"
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
_LAST_UPLOADS = 5
_STATUS_SECONDS = 60.0
# Number of lines at the end of the log in a status, and their maximum length.
_LAST_LINES, _LINE_LENGTH = 8, 300
_POLL_SECONDS = 1.0


def main(argv: list[str], path: Path) -> int:
    """Run the step named by the first argument and return the exit code.

    Args:
        argv: the arguments.
        path: the job's directory.
    """
    what = argv[0] if argv else ""
    if what == "pod":
        return pod(Path(argv[1]), path)
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
                    bucket_sync.print_status(f"Installation failed: {' '.join(step)}")
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
                bucket_sync.print_status("The job did not start")
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
        if try_lock(lock, tries=1):
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
    result = {"worker": host(folder.job).worker, "exit_code": code, "ended": ended, "last": last}
    # One call, so that the lines of several hosts do not mix.
    os.write(1, f"{json.dumps(result)}\n".encode())
    return 0


def work(folder: JobFolder) -> int:
    """Download the inputs, run the command and upload the output; write the exit code last."""
    with folder.lock.open("a") as lock:
        if not try_lock(lock) or folder.exit_code.exists():
            return 0
        folder.process.write_text(str(os.getpid()))
        code = _train(folder, str(folder.environment / "bin" / "beambert"))
        # Not `write_atomic`, since this file does not import beambert.
        unfinished = folder.exit_code.with_name("exit_code.unfinished")
        unfinished.write_text(str(code))
        unfinished.replace(folder.exit_code)
    return code


def pod(job: Path, path: Path) -> int:
    """Run the job of a file in a container, where beambert is installed, and return the exit code.

    Args:
        job: the file, as job.json of a TPU VM.
        path: empty working directory.
    """
    return _train(JobFolder(path, json.loads(job.read_text(encoding="utf-8"))), "beambert")


def _train(folder: JobFolder, program: str) -> int:
    child: subprocess.Popen[bytes] | None = None
    signals: list[float] = []

    def forward(_number: int, _frame: Any) -> None:
        signals.append(time.monotonic())
        if child is not None:
            child.terminate()

    # A VM sends SIGTERM before a preemption too.
    signal.signal(signal.SIGTERM, forward)
    job, place = folder.job, host(folder.job)
    bucket_path, output = job["output"]
    sync = bucket_sync.OutputSync(folder.path / output, bucket_path, folder.path / "snapshot")
    for source, target in job["inputs"]:
        if not bucket_sync.fetch(source, folder.path / target):
            return 1
    if not sync.fetch():
        return 1
    if signals:
        return 128 + signal.SIGTERM
    child = subprocess.Popen(  # noqa: S603
        [program, *job["argv"], *_process_flags(job, place)],
        cwd=folder.path,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **job["environment"], **_tpu_variables(folder)},
        stdin=subprocess.DEVNULL,
    )
    if signals:
        child.terminate()
    uploaded = time.monotonic()
    while True:
        try:
            code = child.wait(timeout=min(_POLL_SECONDS, job["sync_seconds"]))
            break
        except subprocess.TimeoutExpired:
            if time.monotonic() >= uploaded + job["sync_seconds"]:
                _upload(folder, place, sync)
                uploaded = time.monotonic()
            if signals and time.monotonic() > signals[0] + job["stop_seconds"]:
                # It waits for a host that is gone; its last checkpoint is still uploaded.
                child.kill()
    code = code if code >= 0 else 128 - code
    for seconds in range(_LAST_UPLOADS):
        if _upload(folder, place, sync):
            return code
        time.sleep(2**seconds)
    bucket_sync.print_status(f"The last upload of the output to {bucket_path} failed; it contains the previous upload")
    return code or 1


def _process_flags(job: dict[str, Any], place: Host) -> list[str]:
    """Return the flags by which the processes of several hosts find each other; in GKE JAX finds them by itself."""
    if not job["coordinator"]:
        return []
    return [
        *("--coordinator_address", job["coordinator"]),
        *("--num_processes", str(job["hosts"] * job["slices"])),
        # JAX numbers the hosts of a slice one after another.
        *("--process_id", str(place.slice_id * job["hosts"] + place.worker)),
    ]


def _upload(folder: JobFolder, place: Host, sync: bucket_sync.OutputSync) -> bool:
    """Copy the output of the chief, and the log of every host where the job has several; return whether it worked."""
    job = folder.job
    if job["logs"]:
        bucket_sync.copy_file(folder.log, f"{job['logs']}/slice-{place.slice_id}-worker-{place.worker}.log")
    return sync.upload() if place.is_chief else True


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
        os.write(1, f"{DONE}{host(folder.job).worker}\n".encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path.cwd()))
