"""Disturbances of a running command: a function for each kind, and the kinds that apply to a command."""

import dataclasses
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from . import disks
from .commands import FOREIGN_FILE, FOREIGN_HIDDEN_NAME, Command
from .processes import Launched, send

MOVED_NAME = "moved"
_STOPPED_SECONDS = 3.0
# Files that are written once for users; no command reads them again.
RECORDS = ("init_checkpoint.txt",)
_DAMAGES = ("empty", "half", "noise", "byte", "appended")


@dataclasses.dataclass
class Scene:
    """The objects that a disturbance acts on, and the facts that the judgement of the case needs.

    Attributes:
        command: the running command.
        directory: directory of the case.
        launched: processes of the command.
        random: random generator for all choices.
        start_again: starts the same command in the same directory.
        is_complete: returns whether the output already equals that of an undisturbed run.
        done: description of the disturbance; "" if it could not be applied.
        signaled: the signal that was sent to end the command.
        killed: whether a process was killed, or a worker was ended by a signal.
        touched: original content of changed input files, by path.
        removed: whether output was removed or changed.
        removed_late: whether that happened to a complete output, while the command ended.
        second: processes of the second writer.
    """

    command: Command
    directory: Path
    launched: Launched
    random: random.Random
    start_again: Callable[[], Launched]
    is_complete: Callable[[], bool]
    done: str = ""
    signaled: int = 0
    killed: bool = False
    touched: dict[Path, bytes] = dataclasses.field(default_factory=dict)
    removed: bool = False
    removed_late: bool = False
    second: Launched | None = None

    @property
    def work(self) -> Path:
        """The folder that the command writes into."""
        return self.directory / "work"

    @property
    def output(self) -> Path:
        """The output of the command."""
        return self.directory / self.command.output


def _signal_main(which: int) -> Callable[[Scene], None]:
    def disturb(scene: Scene) -> None:
        send(scene.launched.process.pid, which)
        scene.signaled, scene.killed = which, which == signal.SIGKILL
        scene.done = f"{signal.Signals(which).name} to the main process"

    return disturb


def _signal_all(which: int) -> Callable[[Scene], None]:
    def disturb(scene: Scene) -> None:
        numbers = scene.launched.members()
        for number in numbers:
            send(number, which)
        scene.signaled, scene.killed = which, which == signal.SIGKILL
        scene.done = f"{signal.Signals(which).name} to {len(numbers)} processes"

    return disturb


def _end_worker(scene: Scene) -> None:
    """End a worker process; if none runs yet, wait for the first ones."""
    which = scene.random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
    place, delay, shells_too = scene.random.random(), scene.random.random(), scene.random.random() < 0.25
    while scene.launched.is_running() and not scene.launched.workers():
        time.sleep(0.01)
    # The delay grows with the elapsed time, because workers live longer on a slow machine.
    time.sleep(delay * scene.launched.seconds / 2)
    workers = {number: _command_line(number) for number in scene.launched.workers()}
    numbers = [number for number, words in workers.items() if shells_too or not words.startswith("/bin/sh")]
    if numbers:
        number = numbers[int(place * len(numbers))]
        send(number, which)
        scene.killed = True
        scene.done = f"{which.name} to worker {number} of {sorted(workers)} ({workers[number][:60]})"


def _command_line(number: int) -> str:
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _stop(scene: Scene) -> None:
    """Suspend all processes, or one of them, for a few seconds."""
    numbers = scene.launched.members()
    if scene.random.random() < 0.5:
        numbers = [scene.random.choice(numbers)] if numbers else []
    for number in numbers:
        send(number, signal.SIGSTOP)
    time.sleep(_STOPPED_SECONDS)
    for number in numbers:
        send(number, signal.SIGCONT)
    scene.done = f"SIGSTOP to {len(numbers)} processes for {_STOPPED_SECONDS:g} s"


def _fill_disk(scene: Scene) -> None:
    pages = scene.random.randrange(12)
    disks.fill(scene.work, free_pages=pages)
    scene.done = f"disk full but for {pages} pages"


def _make_read_only(scene: Scene) -> None:
    if disks.make_read_only(scene.work):
        scene.done = "file system of the output read-only"


def _files(scene: Scene) -> list[Path]:
    """Return the output files, without the foreign ones."""
    folder = scene.work if scene.command.is_file else scene.output
    left = (FOREIGN_HIDDEN_NAME, Path(FOREIGN_FILE).name)
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in left]


def _wait_for_files(scene: Scene) -> list[Path]:
    """Wait for output files and return them; return none if the command ends first."""
    while not (files := _files(scene)) and scene.launched.is_running():
        time.sleep(0.01)
    return files if scene.launched.is_running() else []


def _delete_file(scene: Scene) -> None:
    place = scene.random.random()
    if files := _wait_for_files(scene):
        path = files[int(place * len(files))]
        scene.removed_late = scene.is_complete()
        path.unlink(missing_ok=True)
        scene.removed = True
        scene.done = f"deleted {path.relative_to(scene.directory)}"


def _delete_output(scene: Scene) -> None:
    if _wait_for_files(scene):
        scene.removed_late = scene.is_complete()
        if scene.output.is_dir():
            shutil.rmtree(scene.output, ignore_errors=True)
        else:
            scene.output.unlink(missing_ok=True)
        scene.removed = True
        scene.done = f"deleted {scene.command.output}"


def _rename_output(scene: Scene) -> None:
    if _wait_for_files(scene):
        scene.removed_late = scene.is_complete()
        scene.output.rename(scene.work / MOVED_NAME)
        scene.removed = True
        scene.done = f"renamed {scene.command.output} to work/{MOVED_NAME}"


def _input(scene: Scene) -> Path:
    paths = sorted({path for pattern in scene.command.reads for path in scene.directory.glob(pattern)})
    return scene.random.choice(paths)


def _change_input(scene: Scene) -> None:
    path = _input(scene)
    scene.touched[path] = path.read_bytes()
    how = scene.random.choice(["byte", "appended"])
    damage(path, how, scene.random)
    scene.done = f"changed {path.relative_to(scene.directory)}: {how}"


def _truncate_input(scene: Scene) -> None:
    path = _input(scene)
    scene.touched[path] = path.read_bytes()
    damage(path, scene.random.choice(["half", "empty"]), scene.random)
    scene.done = f"truncated {path.relative_to(scene.directory)} to {path.stat().st_size} bytes"


def _delete_input(scene: Scene) -> None:
    path = _input(scene)
    scene.touched[path] = path.read_bytes()
    path.unlink()
    scene.done = f"deleted {path.relative_to(scene.directory)}"


def _write_twice(scene: Scene) -> None:
    scene.second = scene.start_again()
    scene.done = "started the same command a second time"


def _damage_leftover(scene: Scene) -> None:
    """Kill the command and corrupt one of the files that it leaves."""
    scene.launched.kill()
    if scene.launched.process.returncode == 0:
        # The command ended first, with its complete result.
        return
    scene.killed = True
    place, how = scene.random.random(), scene.random.choice(_DAMAGES)
    files = [path for path in _files(scene) if path.name not in RECORDS and "tfevents" not in path.name]
    if files:
        path = files[int(place * len(files))]
        damage(path, how, scene.random)
        scene.removed = True
        scene.done = f"killed; damaged {path.relative_to(scene.directory)}: {how}"


def damage(path: Path, how: str, source: random.Random) -> None:
    """Corrupt a file in place.

    Args:
        path: the file.
        how: one of "empty", "half" (truncated), "noise" (other bytes, the same size), "byte" (one other byte in the
            middle) or "appended".
        source: random generator of the noise.
    """
    content = path.read_bytes()
    middle = len(content) // 2
    changed = {
        "empty": b"",
        "half": content[:middle],
        "noise": source.randbytes(len(content)),
        "byte": content[:middle] + bytes([content[middle] ^ 1 if content else 0]) + content[middle + 1 :],
        "appended": content + b"One more line.\n",
    }[how]
    # Write in place, as an editor or a failing disk does.
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(descriptor, changed)
    finally:
        os.close(descriptor)


KINDS: dict[str, Callable[[Scene], None]] = {
    "kill-main": _signal_main(signal.SIGKILL),
    "kill-all": _signal_all(signal.SIGKILL),
    "end-worker": _end_worker,
    "terminate-main": _signal_main(signal.SIGTERM),
    "terminate-all": _signal_all(signal.SIGTERM),
    "interrupt-main": _signal_main(signal.SIGINT),
    "interrupt-all": _signal_all(signal.SIGINT),
    "hang-up-all": _signal_all(signal.SIGHUP),
    "stop": _stop,
    "full-disk": _fill_disk,
    "read-only": _make_read_only,
    # The limit is set before the start of the command.
    "size-limit": lambda scene: None,
    "delete-file": _delete_file,
    "delete-output": _delete_output,
    "rename-output": _rename_output,
    "change-input": _change_input,
    "truncate-input": _truncate_input,
    "delete-input": _delete_input,
    "second-writer": _write_twice,
    "damaged-leftover": _damage_leftover,
}
ON_SMALL_DISK = ("full-disk", "read-only")


def kinds_of(command: Command) -> list[str]:
    """Return the kinds of disturbance that apply to a command on this machine."""
    left = set() if command.workers else {"end-worker", "kill-main", "terminate-main", "interrupt-main"}
    if not disks.can_mount():
        left |= set(ON_SMALL_DISK)
    if command.is_file:
        # There is one file, which appears at the end.
        left |= {"rename-output", "delete-output"}
    return [kind for kind in KINDS if kind not in left]
