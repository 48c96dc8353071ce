"""Copy a consistent state of a run directory, while the command continues to write.

TPU hosts use this file with Python 3.10; it imports only the standard library.
"""

import contextlib
import os
import shutil
import time
from pathlib import Path, PurePath

# Lock file of the command in its output: `beambert.pipelines.io.output_directory.LOCK_NAME`.
_OUTPUT_LOCK = "build.lock"
# `gcloud storage rsync` compares size and modification time in seconds.
_SAME_SECOND = 3.0


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
        if not is_excluded(relative):
            _link_checkpoint(index, whole / relative, without / relative)
    for path in sorted(output.rglob("*")):
        relative = path.relative_to(output)
        if is_excluded(relative) or path.name.startswith("model.ckpt-") or not path.is_file():
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


def file_states(directory: Path) -> dict[str, tuple[int, int]]:
    """Return the size and modification time in nanoseconds of each file, by its path in the directory.

    Temporary files and the lock of the output are excluded, as in a snapshot.
    """
    states = {}
    for path in directory.rglob("*"):
        relative = path.relative_to(directory)
        if is_excluded(relative):
            continue
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                status = path.stat()
                states[str(relative)] = (status.st_size, status.st_mtime_ns)
    return states


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


def is_excluded(relative: PurePath) -> bool:
    """Return whether snapshots exclude a path: a temporary file, a file of a temporary directory, or a lock."""
    return relative.name == _OUTPUT_LOCK or any(
        part.startswith(".") or part.endswith(".unfinished") for part in relative.parts
    )
