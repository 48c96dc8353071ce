"""Copy the inputs and the output of a training command between a bucket and the disk of a host, with `gcloud storage`.

`worker.py` uses this file on TPU VMs and in containers. It needs Python 3.10 and imports only the standard library.
"""

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path

# Lock file of the command in its output: `pipelines.io.output_directory.LOCK_NAME`.
_OUTPUT_LOCK = "build.lock"
# `gcloud storage rsync` compares size and modification time in seconds.
_SAME_SECOND = 3.0


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
        print_status(text)
    return result.returncode == 0, text


def print_status(line: str) -> None:
    """Print a line of the job's log."""
    print(line, flush=True)
