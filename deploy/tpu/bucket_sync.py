"""Copy the inputs and the output of a training command between a bucket and the disk of a host, with `gcloud storage`.

`worker.py` uses this file on TPU VMs and in containers. It needs Python 3.10, and only the standard library otherwise.
"""

import shutil
import subprocess
from pathlib import Path

from beambert_common.run_snapshot import snapshot


def fetch(source: str, target: Path) -> bool:
    """Copy a file or a directory from a bucket."""
    if target.exists():
        # Left over from an interrupted start.
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink()
    target.parent.mkdir(parents=True, exist_ok=True)
    print_status(f"Copying {source} to this host")
    return _storage("cp", "--recursive", source, f"{target.parent}/")[0]


def fetch_output(bucket_path: str, output: Path) -> bool:
    """Copy the existing output from the bucket, if there is any."""
    exists, output_text = _storage("ls", f"{bucket_path}/", shown=False)
    if exists:
        output.mkdir(parents=True, exist_ok=True)
        print_status(f"Resuming from {bucket_path}")
        return _storage("rsync", "--recursive", bucket_path, str(output))[0]
    if "matched no objects" in output_text:
        return True
    print_status(output_text)
    return False


def copy_file(path: Path, bucket_path: str) -> bool:
    """Copy a file to a path in a bucket; return whether it succeeded."""
    return _storage("cp", str(path), bucket_path)[0]


def upload(output: Path, bucket_path: str, folder: Path) -> bool:
    """Synchronize the output to the bucket; return whether it succeeded.

    The host may be preempted at any time. Therefore the index of a checkpoint is uploaded after its data and after all
    files that the run wrote before it, and old checkpoints are deleted after the new one is complete.

    Args:
        output: the output of the command.
        bucket_path: its path in the bucket.
        folder: directory for the snapshot, on the file system of the output.
    """
    shutil.rmtree(folder, ignore_errors=True)
    if not output.is_dir():
        return True
    without_indexes, whole = snapshot(output, folder)
    return (
        _storage("rsync", "--recursive", str(without_indexes), bucket_path)[0]
        and _storage("rsync", "--recursive", str(whole), bucket_path)[0]
        and _storage("rsync", "--recursive", "--delete-unmatched-destination-objects", str(whole), bucket_path)[0]
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
        print_status(text)
    return result.returncode == 0, text


def print_status(line: str) -> None:
    """Print a line of the job's log."""
    print(line, flush=True)
