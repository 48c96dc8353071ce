"""Copy the inputs and the output of a training command between a bucket and the disk of a host, with `gcloud storage`.

`worker.py` uses this file on TPU VMs and in containers. It needs Python 3.10, and only the standard library otherwise.
"""

import shutil
import subprocess
from pathlib import Path

from beambert.common.run_snapshot import file_states, snapshot

_WILDCARDS = frozenset("*?[]")


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


def copy_file(path: Path, bucket_path: str) -> bool:
    """Copy a file to a path in a bucket; return whether it succeeded."""
    return _storage("cp", str(path), bucket_path)[0]


class OutputSync:
    """Copies the output of a command from a bucket at its start, and to the bucket while the command writes it.

    Only objects that it copied or uploaded itself are deleted, after the command has removed their files.

    Args:
        output: the output of the command.
        bucket_path: its path in the bucket.
        folder: directory for snapshots, on the file system of the output.
    """

    def __init__(self, output: Path, bucket_path: str, folder: Path) -> None:
        self._output = output
        self._bucket_path = bucket_path
        self._folder = folder
        # Names of the files that were copied from the bucket, and of those in earlier snapshots.
        self._copied: set[str] = set()
        self._uploaded: set[str] = set()
        # The files that equal the objects in the bucket; None where an interrupted start left others.
        self._unchanged: dict[str, tuple[int, int]] | None = None

    def fetch(self) -> bool:
        """Copy the existing output from the bucket, if there is any; return whether it succeeded."""
        is_new = not self._output.exists()
        exists, output_text = _storage("ls", f"{self._bucket_path}/", shown=False)
        if exists:
            self._output.mkdir(parents=True, exist_ok=True)
            print_status(f"Resuming from {self._bucket_path}")
            if not _storage("rsync", "--recursive", self._bucket_path, str(self._output))[0]:
                return False
        elif "matched no objects" not in output_text:
            print_status(output_text)
            return False
        files = file_states(self._output)
        self._copied = set(files)
        self._unchanged = files if is_new else None
        return True

    def upload(self) -> bool:
        """Synchronize the output to the bucket; return whether it succeeded.

        Nothing is uploaded before the command has changed a file: it may refuse an output with files of others.

        The host may be preempted at any time. Therefore the index of a checkpoint is uploaded after its data and after
        all files that the run wrote before it, and old checkpoints are deleted after the new one is complete.
        """
        shutil.rmtree(self._folder, ignore_errors=True)
        if not self._output.is_dir() or file_states(self._output) == self._unchanged:
            return True
        self._unchanged = None
        without_indexes, whole = snapshot(self._output, self._folder)
        names = set(file_states(whole))
        # Files that no snapshot had are incomplete checkpoints, which the command removes at its start.
        gone = {name for name in self._copied if not (self._output / name).exists()}
        removed = (self._uploaded | gone) - names
        self._uploaded |= names
        if not (
            _storage("rsync", "--recursive", str(without_indexes), self._bucket_path)[0]
            and _storage("rsync", "--recursive", str(whole), self._bucket_path)[0]
            and self._delete(removed)
        ):
            return False
        self._copied -= removed
        self._uploaded = names
        return True

    def _delete(self, names: set[str]) -> bool:
        """Delete objects, indexes first, so that no incomplete checkpoint has one; return whether it succeeded."""
        if not names:
            return True
        exists, listing = _storage("ls", f"{self._bucket_path}/**", shown=False)
        if not exists and "matched no objects" not in listing:
            print_status(listing)
            return False
        # `gcloud storage rm` fails for an object that does not exist, and expands wildcards.
        there = set(listing.splitlines())
        urls = {f"{self._bucket_path}/{name}" for name in names if not _WILDCARDS.intersection(name)} & there
        indexes = {url for url in urls if url.endswith(".index")}
        return all(_storage("rm", *sorted(batch))[0] for batch in (indexes, urls - indexes) if batch)


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
