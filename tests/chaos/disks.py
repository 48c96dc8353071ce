"""Simulate disks that fill up or become read-only, with a small tmpfs where mounting is allowed."""

import functools
import subprocess
import tempfile
import time
from pathlib import Path

# More than any command under test writes.
_BYTES = 16 << 20
_FILLER_NAME = ".filler"
_PAGE_BYTES = 4096
_REMOUNT_SECONDS = 2.0


def _mount(*arguments: str) -> bool:
    try:
        return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def mount(folder: Path) -> bool:
    """Mount a small file system on a folder; return whether that is allowed."""
    return _mount("-t", "tmpfs", "-o", f"size={_BYTES}", "tmpfs", str(folder))


def unmount(folder: Path) -> None:
    """Unmount a folder, even if a process still uses it."""
    subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=False)


@functools.cache
def can_mount() -> bool:
    """Return whether this process may mount a file system."""
    with tempfile.TemporaryDirectory() as name:
        allowed = mount(Path(name))
        if allowed:
            unmount(Path(name))
    return allowed


def fill(folder: Path, *, free_pages: int) -> None:
    """Fill the file system of a folder, except for some pages.

    Args:
        folder: the folder on which `mount` was called.
        free_pages: number of pages of memory that stay free.
    """
    filler = folder / _FILLER_NAME
    try:
        with filler.open("wb", buffering=0) as file:
            while file.write(b"\0" * _PAGE_BYTES):
                pass
    except OSError:
        pass
    size = filler.stat().st_size
    with filler.open("rb+") as file:
        file.truncate(max(0, size - free_pages * _PAGE_BYTES))


def free(folder: Path) -> None:
    """Undo `fill`."""
    (folder / _FILLER_NAME).unlink(missing_ok=True)


def make_read_only(folder: Path) -> bool:
    """Make the file system of a folder read-only, at the first moment at which no file is open for writing.

    Returns:
        Whether that moment came within two seconds.
    """
    until = time.monotonic() + _REMOUNT_SECONDS
    while time.monotonic() < until:
        if _mount("-o", "remount,ro", str(folder)):
            return True
        time.sleep(0.01)
    return False


def make_writable(folder: Path) -> None:
    """Undo `make_read_only`."""
    _mount("-o", "remount,rw", str(folder))
