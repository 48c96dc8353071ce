"""Run a training command on a TPU VM; `beambert submit tpu` copies this file to the VM and runs it over ssh.

    tpu_worker.py install          create an environment with the locked packages and the wheel
    tpu_worker.py start            start the job in the background, unless it has started
    tpu_worker.py follow OFFSET    print the job's log from a byte offset until the job ends
    tpu_worker.py stop             stop the job after saving a checkpoint

Each step may be repeated after a lost connection. The command's arguments come from job.json in the same directory and
never pass through a shell. This file needs Python 3.10 and `gcloud storage`, which a TPU VM has, and does not import
beambert.

The command reads and writes local files only. Its inputs are copied from the bucket. Its output is copied to the bucket
at intervals and at the end, and back to the VM when a run resumes.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).resolve().parent
# Name of the copy of this file on the TPU VM.
FILE_NAME = "tpu_worker.py"
LOG, EXIT_CODE, LOCK, PROCESS = (HERE / name for name in ("log.txt", "exit_code", "work.lock", "work.pid"))
INSTALLED, ENVIRONMENT, SNAPSHOT = (HERE / name for name in ("installed", "env", "snapshot"))
# As set by an example of keras-rs for TensorFlow 2.19 on TPUs; not tested with 2.20.
TPU_VARIABLES = {
    "PJRT_DEVICE": "TPU",
    "NEXT_PLUGGABLE_DEVICE_USE_C_API": "true",
    "TF_XLA_FLAGS": "--tf_mlir_enable_mlir_bridge=true "
    "--tf_mlir_enable_convert_control_to_data_outputs_pass=true "
    "--tf_mlir_enable_merge_control_flow_pass=true",
}
# Lock file of the command in its output: `pipelines.io.output_directory.LOCK_NAME`.
_OUTPUT_LOCK = "build.lock"
_LAST_UPLOADS = 5
# `gcloud storage rsync` compares size and modification time in seconds.
_SAME_SECOND = 3.0
# Exit code of a job that ended without writing one.
_DIED = 255


def main(argv: list[str]) -> int:
    """Run the step named by the first argument and return the exit code."""
    what = argv[0] if argv else ""
    if what == "install":
        return install()
    if what == "start":
        return start()
    if what == "follow":
        return follow(int(argv[1]))
    if what == "stop":
        return stop()
    if what == "work":
        return work()
    print(__doc__)
    return 2


def install() -> int:
    """Create the environment unless it exists; return 0, or the exit code of the failed step."""
    job = _job()
    with (HERE / "install.lock").open("w") as lock:
        # A call from before a lost connection may still be running.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if INSTALLED.exists():
            return 0
        uv, python = str(HERE / "tools" / "bin" / "uv"), str(ENVIRONMENT / "bin" / "python")
        hashed = ["--quiet", "--require-hashes"]
        steps = (
            ["python3", "-m", "pip", "install", *hashed, "--upgrade", "--target", "tools", "-r", "installer.lock"],
            # The system's Python is too old for beambert; uv downloads and verifies another.
            [uv, "venv", "--quiet", "--clear", "--python", job["python"], str(ENVIRONMENT)],
            [uv, "pip", "install", *hashed, "--python", python, "-r", "requirements.lock"],
            [uv, "pip", "install", "--quiet", "--no-deps", "--python", python, job["wheel"]],
        )
        for step in steps:
            code = subprocess.run(step, cwd=HERE, check=False).returncode  # noqa: S603
            if code:
                _print_status(f"Installation failed: {' '.join(step)}")
                return code
        INSTALLED.touch()
    return 0


def start() -> int:
    """Start the job in its own session, which survives the connection."""
    if EXIT_CODE.exists() or _is_locked(LOCK):
        return 0
    with LOG.open("ab") as log:
        subprocess.Popen(  # noqa: S603
            [sys.executable, str(HERE / FILE_NAME), "work"],
            cwd=HERE,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    for _ in range(100):
        if EXIT_CODE.exists() or _is_locked(LOCK):
            return 0
        time.sleep(0.1)
    _print_status("The job did not start")
    return 1


def follow(offset: int) -> int:
    """Print the log, each line as `<offset after the line>TAB<line>`, and finally `endTAB<exit code>`.

    After a lost connection, the offsets let the reader skip lines that it has already printed.
    """
    pending = b""
    with LOG.open("rb") as log:
        log.seek(offset)
        while True:
            # Checked before the log is read, so that the last lines of the job are included.
            code = _exit_code()
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


def stop() -> int:
    """Send SIGTERM to the job, which forwards it to the command; the command saves a checkpoint and ends."""
    with contextlib.suppress(OSError, ValueError):
        if _is_locked(LOCK):
            os.kill(int(PROCESS.read_text()), signal.SIGTERM)
    return 0


def work() -> int:
    """Download the inputs, run the command and upload the output; write the exit code last."""
    with LOCK.open("a") as lock:
        if not _try_lock(lock) or EXIT_CODE.exists():
            return 0
        PROCESS.write_text(str(os.getpid()))
        code = _train(_job())
        # Not `write_atomic`, since this file does not import beambert.
        unfinished = EXIT_CODE.with_name("exit_code.unfinished")
        unfinished.write_text(str(code))
        unfinished.replace(EXIT_CODE)
    return code


def _train(job: dict[str, Any]) -> int:
    child: subprocess.Popen[bytes] | None = None
    signals: list[int] = []

    def forward(number: int, _frame: Any) -> None:
        signals.append(number)
        if child is not None:
            child.terminate()

    # A VM sends SIGTERM before a preemption too.
    signal.signal(signal.SIGTERM, forward)
    output, bucket_path = HERE / job["output"][1], job["output"][0]
    for source, target in job["inputs"]:
        if not _fetch(source, HERE / target):
            return 1
    if not _fetch_output(bucket_path, output):
        return 1
    if signals:
        return 128 + signals[0]
    child = subprocess.Popen(  # noqa: S603
        [str(ENVIRONMENT / "bin" / "beambert"), *job["argv"]],
        cwd=HERE,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **_tpu_variables()},
        stdin=subprocess.DEVNULL,
    )
    if signals:
        child.terminate()
    while True:
        try:
            code = child.wait(timeout=job["sync_seconds"])
            break
        except subprocess.TimeoutExpired:
            upload(output, bucket_path)
    code = code if code >= 0 else 128 - code
    for seconds in range(_LAST_UPLOADS):
        if upload(output, bucket_path):
            return code
        time.sleep(2**seconds)
    _print_status(f"The last upload of the output to {bucket_path} failed; it contains the previous upload")
    return code or 1


def _tpu_variables() -> dict[str, str]:
    libraries = sorted(str(path) for path in ENVIRONMENT.glob("lib/python3*/site-packages/libtpu/libtpu.so"))
    return {**TPU_VARIABLES, "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": libraries[0]} if libraries else {}


def _fetch(source: str, target: Path) -> bool:
    """Copy a file or a directory from a bucket."""
    if target.exists():
        # Left over from an interrupted start.
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink()
    target.parent.mkdir(parents=True, exist_ok=True)
    _print_status(f"Copying {source} to the TPU VM")
    return _storage("cp", "--recursive", source, f"{target.parent}/")[0]


def _fetch_output(bucket_path: str, output: Path) -> bool:
    """Copy the existing output from the bucket, if there is any."""
    exists, output_text = _storage("ls", f"{bucket_path}/", shown=False)
    if exists:
        output.mkdir(parents=True, exist_ok=True)
        _print_status(f"Resuming from {bucket_path}")
        return _storage("rsync", "--recursive", bucket_path, str(output))[0]
    if "matched no objects" in output_text:
        return True
    _print_status(output_text)
    return False


def upload(output: Path, bucket_path: str) -> bool:
    """Synchronize the output to the bucket; return whether it succeeded.

    The VM may be preempted at any time. Therefore the index of a checkpoint is uploaded after its data and after all
    files that the run wrote before it, and old checkpoints are deleted after the new one is complete.
    """
    shutil.rmtree(SNAPSHOT, ignore_errors=True)
    if not output.is_dir():
        return True
    without_indexes, whole = snapshot(output, SNAPSHOT)
    return (
        _storage("rsync", "--recursive", str(without_indexes), bucket_path)[0]
        and _storage("rsync", "--recursive", str(whole), bucket_path)[0]
        and _storage("rsync", "--recursive", "--delete-unmatched-destination-objects", str(whole), bucket_path)[0]
    )


def snapshot(output: Path, folder: Path) -> tuple[Path, Path]:
    """Link a consistent snapshot of the output, while the command continues to write.

    Returns:
        Two directories in `folder`: one without the indexes of checkpoints, and one with all files.
    """
    without, whole = folder / "without_indexes", folder / "whole"
    for directory in (without, whole):
        directory.mkdir(parents=True)
    # Checkpoints first, so that the other files, copied next, are at least as new.
    for index in sorted(output.rglob("model.ckpt-*.index")):
        relative = index.relative_to(output)
        if not _hidden(relative):
            _link_checkpoint(index, whole / relative, without / relative)
    for path in sorted(output.rglob("*")):
        relative = path.relative_to(output)
        if _hidden(relative) or path.name.startswith("model.ckpt-") or not path.is_file():
            continue
        copy = without / relative
        copy.parent.mkdir(parents=True, exist_ok=True)
        # Files may be deleted or appended to during the snapshot, so they are copied.
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(path, copy)
            if time.time() - copy.stat().st_mtime < _SAME_SECOND:
                # It may change again within the second at the same size; a unique time makes rsync copy it again.
                stamp = time.time_ns() // 1_000_000 % 1_000_000_000
                os.utime(copy, (stamp, stamp))
            _link(copy, whole / relative)
    return without, whole


def _link_checkpoint(index: Path, index_in_whole: Path, index_in_without: Path) -> None:
    """Link the files of a checkpoint, which never change; link none where it is being removed.

    The index is written last and removed first: while it exists, all data files exist.
    """
    linked: list[Path] = []
    with contextlib.suppress(FileNotFoundError):
        _link(index, index_in_whole)
        linked.append(index_in_whole)
        for part in index.parent.glob(f"{index.stem}.*"):
            if part.suffix != ".index":
                for index_link in (index_in_whole, index_in_without):
                    _link(part, index_link.with_name(part.name))
                    linked.append(index_link.with_name(part.name))
        if index.samefile(index_in_whole):
            return
    for path in linked:
        path.unlink()


def _link(path: Path, new: Path) -> None:
    new.parent.mkdir(parents=True, exist_ok=True)
    new.hardlink_to(path)


def _hidden(relative: Path) -> bool:
    """Return whether a path is a temporary file, is in a temporary directory, or is the lock of the output."""
    return relative.name == _OUTPUT_LOCK or any(
        part.startswith(".") or part.endswith(".unfinished") for part in relative.parts
    )


def _storage(*words: str, shown: bool = True) -> tuple[bool, str]:
    """Run `gcloud storage`; return whether it succeeded, and its output, which is printed after a failure."""
    result = subprocess.run(  # noqa: S603
        ["gcloud", "storage", *words, "--quiet"],  # noqa: S607
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        # Signals must not interrupt an upload.
        start_new_session=True,
    )
    text = result.stdout.decode("utf-8", "replace").strip()
    if result.returncode and shown:
        _print_status(text)
    return result.returncode == 0, text


def _exit_code() -> int | None:
    """Return the job's exit code; None while it runs."""
    for last in (False, True):
        if EXIT_CODE.exists():
            return int(EXIT_CODE.read_text())
        if _is_locked(LOCK):
            return None
        if not last:
            # The job may have ended between the two checks.
            time.sleep(0.2)
    return _DIED


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


def _job() -> dict[str, Any]:
    return json.loads((HERE / "job.json").read_text(encoding="utf-8"))


def _print_status(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
