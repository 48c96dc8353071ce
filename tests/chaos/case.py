"""One case: run a command, disturb it, judge how it ends, run it again until it succeeds, compare the result."""

import dataclasses
import os
import random
import re
import shutil
from pathlib import Path

from beambert.pipelines.io.output_directory import LOCK_NAME

from . import disks, judgement, results
from .commands import BY_NAME, FOREIGN_HIDDEN_NAME, INPUT_TIME, Command, prepare, write_foreign_files
from .disturbances import KINDS, MOVED_NAME, ON_SMALL_DISK, RECORDS, Scene, kinds_of
from .processes import Launched, count_paths, start, wait_for_moment

# Time limits in seconds. For slow machines, the duration of an undisturbed run is added, for END times END_FACTOR.
END_SECONDS = 60.0
END_FACTOR = 5.0
# Limits after a signal, or after the end of a worker.
SIGNAL_SECONDS = 10.0
ORPHAN_SECONDS = 5.0
_AGAIN = 4
# Names of directories in a slot.
CASE_NAME = "case"
REFERENCES_NAME = "references"
_REMOVE = re.compile(
    r"(?:remove|delete) (?:the (?:file|directory) )?(?!it\b)(\S+?)[;,.:]?(?=\s|$)"
    r"|(\S+) already exists; .*remove it first"
)


@dataclasses.dataclass(frozen=True)
class Reference:
    """An undisturbed run: its output, its duration in seconds, and the number of paths that existed at some time."""

    contents: dict[str, str]
    seconds: float
    paths: int


@dataclasses.dataclass(frozen=True)
class Case:
    """A command, a kind of disturbance, and the number and seed from which the rest is drawn."""

    command: str
    kind: str
    seed: int
    number: int


@dataclasses.dataclass
class Outcome:
    """The outcome of a case.

    Attributes:
        case: the case.
        done: description of the disturbance; "" if the command ended before it.
        faults: descriptions of the faults.
        code: exit code of the disturbed run.
        ended: seconds from the disturbance to the end of the main process.
        runs: number of runs until success.
        kept: the directory of a failed case.
    """

    case: Case
    done: str = ""
    faults: list[str] = dataclasses.field(default_factory=list)
    code: int | None = None
    ended: float = 0.0
    runs: int = 1
    kept: Path | None = None


def cases_of(names: list[str], seed: int, first: int, count: int) -> list[Case]:
    """Return the cases with numbers from `first`: commands in turn, each with its kinds in turn, in drawn orders."""
    source = random.Random(f"{seed} commands")
    order = source.sample(names, len(names))
    kinds = {name: kinds_of(BY_NAME[name]) for name in names}
    kinds = {name: source.sample(found, len(found)) for name, found in kinds.items()}
    cases = []
    for number in range(first, first + count):
        name = order[number % len(order)]
        cases.append(Case(name, kinds[name][number // len(order) % len(kinds[name])], seed, number))
    return cases


def complete_round(names: list[str]) -> int:
    """Return the number of cases in which every kind of every command occurs."""
    return len(names) * max(len(kinds_of(BY_NAME[name])) for name in names)


def run_reference(command: Command, slot: Path) -> Reference:
    """Run a command without disturbance; keep its directory in `references` of the slot, for cases that need it.

    Args:
        command: the command.
        slot: a directory in which one case runs at a time.

    Raises:
        RuntimeError: The command fails; the message contains its output.
    """
    directory = slot / CASE_NAME
    prepare(command, directory, slot / REFERENCES_NAME)
    launched = start(command.arguments, directory, directory / "log.txt")
    try:
        ended, paths = count_paths(launched, directory / "work", 10 * END_SECONDS)
        seconds = launched.seconds
    finally:
        launched.kill()
    if not ended or launched.process.returncode != 0:
        raise RuntimeError(f"beambert {' '.join(command.arguments)} fails undisturbed:\n{launched.text}")
    reference = Reference(results.contents_of(command, directory), seconds, paths)
    (slot / REFERENCES_NAME).mkdir(exist_ok=True)
    directory.rename(slot / REFERENCES_NAME / command.name)
    return reference


def run_case(case: Case, slot: Path, reference: Reference) -> Outcome:
    """Run a case in the directory `CASE_NAME` of a slot; the caller removes or renames it."""
    directory, references = slot / CASE_NAME, slot / REFERENCES_NAME
    command = BY_NAME[case.command]
    source = random.Random(f"{case.seed} {case.number} {case.command} {case.kind}")
    hidden_file = source.random() < 0.5 and case.kind not in ("delete-output", "rename-output")
    prepare(command, directory, references, hidden_file=hidden_file)
    on_small_disk = case.kind in ON_SMALL_DISK and disks.mount(directory / "work")
    try:
        if on_small_disk:
            write_foreign_files(command, directory, hidden_file=hidden_file)
        return _Trial(case, command, reference, references, directory, source, hidden_file).run()
    finally:
        if on_small_disk:
            _keep(directory / "work")


def _keep(work: Path) -> None:
    """Unmount a folder and leave its content in its place."""
    kept = work.with_name("kept")
    shutil.copytree(work, kept)
    disks.unmount(work)
    shutil.copytree(kept, work, dirs_exist_ok=True)
    shutil.rmtree(kept)


def _other_files(path: Path) -> list[Path]:
    """Return the visible files and directories beside a file."""
    return [other for other in path.parent.iterdir() if other != path and not other.name.startswith(".")]


class _Trial:
    """The steps of one case."""

    def __init__(
        self,
        case: Case,
        command: Command,
        reference: Reference,
        references: Path,
        directory: Path,
        source: random.Random,
        hidden_file: bool,
    ) -> None:
        self.case = case
        self.command = command
        self.reference = reference
        self.references = references
        self.directory = directory
        self.source = source
        self.hidden_file = hidden_file
        self.outcome = Outcome(case)
        self.arguments = command.arguments
        self.disturbed_at = 0.0
        self.bound = END_SECONDS + END_FACTOR * reference.seconds

    def run(self) -> Outcome:
        """Run, disturb, judge, run again, compare."""
        scene = self._disturbed()
        if scene.removed and not self._own_hidden_file().exists():
            self.hidden_file = False
        self._judge_foreign("after the disturbance")
        codes = [launched.process.returncode for launched in (scene.launched, scene.second) if launched]
        if 0 not in codes and not scene.removed and (wrong := self._incomplete()):
            self.outcome.faults.append(f"looks complete and is not: {wrong}")
        different = self._difference(scene)
        if 0 in codes and different and scene.touched and not self._follows_input(scene):
            self.outcome.faults.append(
                f"exit code 0, and neither the result of the old nor of the new input: {different}"
            )
        if scene.second and 0 not in codes:
            self.outcome.faults.append("neither of two writers succeeded")
        for path, content in scene.touched.items():
            path.write_bytes(content)
            os.utime(path, (INPUT_TIME, INPUT_TIME))
        if self.case.kind == "full-disk":
            disks.free(scene.work)
        if self.case.kind == "read-only":
            disks.make_writable(scene.work)
        if 0 in codes and different and not scene.touched and not scene.removed_late:
            self.outcome.faults.append(f"exit code 0 with another result: {different}")
        elif 0 in codes and scene.touched:
            return self.outcome
        # The same command may refuse an output that was complete before the disturbance.
        if different or (self.command.resumes and codes != [0]):
            self._run_again(scene)
        # A signal that ends a process at once leaves it no time to remove its own temporary files.
        if all(code >= 0 for code in codes) and not scene.killed:
            self.outcome.faults += results.temporary_errors(self.directory)
        self._judge_foreign("at the end")
        return self.outcome

    def _start(self, name: str, file_size: int | None = None) -> Launched:
        return start(self.arguments, self.directory, self.directory / name, file_size=file_size)

    def _disturbed(self) -> Scene:
        """Run the command, disturb it and wait for its end."""
        size_limit = None
        if self.case.kind == "size-limit":
            size_limit = 2 ** self.source.randrange(6, 19)
            self.outcome.done = f"RLIMIT_FSIZE {size_limit}"
        if (
            self.case.kind == "read-only"
            and self.source.random() < 0.5
            and disks.make_read_only(self.directory / "work")
        ):
            # Later, the remount is refused while the command has a file open.
            self.outcome.done = "file system of the output read-only from the start"
        # Two writers overlap only if the second one starts early.
        by_paths = self.source.random() < 0.6 and self.case.kind != "second-writer"
        latest = 0.3 if self.case.kind == "second-writer" else 1.0
        seconds = 0.0 if by_paths else self.source.uniform(0.05, latest) * self.reference.seconds
        paths = self.source.randint(1, max(1, self.reference.paths)) if by_paths else 0
        delay = self.source.choice([0.0, 0.0, self.source.random() * 0.3])
        launched = self._start("log-1.txt", size_limit)
        scene = Scene(
            self.command,
            self.directory,
            launched,
            self.source,
            start_again=lambda: self._start("log-second-writer.txt"),
            is_complete=lambda: not self._difference(scene, output_only=True),
        )
        try:
            self.disturbed_at = launched.seconds
            if wait_for_moment(launched, scene.work, seconds=seconds, paths=paths, delay=delay):
                self.disturbed_at = launched.seconds
                KINDS[self.case.kind](scene)
                self.outcome.done = scene.done or self.outcome.done
            short = scene.signaled or self.case.kind == "end-worker"
            bound = SIGNAL_SECONDS + self.reference.seconds if short else self.bound
            for process in filter(None, (launched, scene.second)):
                self._judge_end(process, scene, bound)
            self.outcome.code = launched.process.returncode
        finally:
            for process in filter(None, (launched, scene.second)):
                process.kill()
        return scene

    def _judge_end(self, launched: Launched, scene: Scene, bound: float) -> None:
        """Wait for the end of a process and record its faults."""
        ended = launched.wait(bound)
        if launched is scene.launched:
            self.outcome.ended = launched.seconds - self.disturbed_at
        if not ended:
            self.outcome.faults.append(f"runs {bound:.0f} s after: {self.outcome.done}")
            launched.kill()
            return
        seconds = ORPHAN_SECONDS + self.reference.seconds
        if orphans := launched.orphans(seconds):
            self.outcome.faults.append(f"{len(orphans)} processes live {seconds:.0f} s longer than the main one")
            launched.kill()
        text, code = launched.text, launched.process.returncode
        self.outcome.faults += judgement.output_errors(text)
        self.outcome.faults += judgement.ending_errors(code, text, signaled=scene.signaled, killed=scene.killed)

    def _run_again(self, scene: Scene) -> None:
        """Run the same command until it succeeds, apply the remedies of its errors, and compare the result."""
        for _ in range(_AGAIN):
            self.outcome.runs += 1
            launched = self._start(f"log-{self.outcome.runs}.txt")
            try:
                ended = launched.wait(self.bound)
            finally:
                launched.kill()
            text, code = launched.text, launched.process.returncode
            if not ended:
                self.outcome.faults.append(f"run {self.outcome.runs} does not end within {self.bound:.0f} s")
                return
            self.outcome.faults += judgement.output_errors(text) + judgement.ending_errors(code, text)
            if code == 0:
                if different := self._difference(scene):
                    self.outcome.faults.append(f"another result after {self.outcome.runs} runs: {different}")
                return
            if not self._obey(judgement.error_lines(text)):
                self.outcome.faults.append(f"run {self.outcome.runs} fails: {text.rstrip().splitlines()[-1][:400]}")
                return
        self.outcome.faults.append(f"no success after {self.outcome.runs} runs")

    def _obey(self, lines: list[str]) -> bool:
        """Apply the remedy that an error names; return whether it is one that a test can apply."""
        for line in lines:
            if "--overwrite" in line and "--overwrite" not in self.arguments:
                self.arguments = (*self.arguments, "--overwrite")
                return True
            if match := _REMOVE.search(line):
                path = (self.directory / (match[1] or match[2])).resolve()
                if path.is_relative_to(self.directory / "work") and path.exists():
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                    self.hidden_file = self.hidden_file and self._own_hidden_file().exists()
                    return True
            lock = self.directory / self.command.output / LOCK_NAME
            if "give a new or empty directory" in line and lock.exists() and not _other_files(lock):
                # The command was killed before it wrote anything else.
                lock.unlink()
                return True
            if "run the same command again" in line or "again" in line.rpartition(";")[2]:
                return True
        return False

    def _difference(self, scene: Scene, *, output_only: bool = False) -> str:
        written = results.contents_of(self.command, self.directory)
        if output_only:
            written = {name: content for name, content in written.items() if not name.startswith("../")}
        moved = (f"../{MOVED_NAME}", "../.filler")
        written = {name: content for name, content in written.items() if not name.startswith(moved)}
        if scene.killed and self.command.is_file:
            written = results.without_temporary(self.command, written)
        # An error may name a file beside the output as the result, such as that of a second writer.
        logs = "".join(path.read_text(encoding="utf-8", errors="replace") for path in self.directory.glob("log*.txt"))
        written = {
            name: content
            for name, content in written.items()
            if not (name.startswith("../") and f"the result is in work/{name[3:]}" in logs)
        }
        reference = self.reference.contents
        if scene.removed:
            # A record that is deleted during a run stays missing: no later run can restore its content.
            written, reference = results.without_names(written, RECORDS), results.without_names(reference, RECORDS)
        others = bool(scene.signaled) or scene.removed
        return results.difference(written, reference, other_checkpoints=others)

    def _follows_input(self, scene: Scene) -> bool:
        """Return whether the result equals that of an undisturbed run on the changed input."""
        written = results.contents_of(self.command, self.directory)
        aside = self.directory.with_name("aside")
        self.directory.rename(aside)
        try:
            prepare(self.command, self.directory, self.references)
            for path in scene.touched:
                path.unlink()
                if (changed := aside / path.relative_to(self.directory)).exists():
                    shutil.copy2(changed, path)
            launched = start(self.arguments, self.directory, aside / "log-changed.txt")
            try:
                launched.wait(self.bound)
            finally:
                launched.kill()
            if launched.process.returncode != 0:
                return False
            return not results.difference(written, results.contents_of(self.command, self.directory))
        finally:
            shutil.rmtree(self.directory)
            aside.rename(self.directory)

    def _incomplete(self) -> str:
        return results.incomplete(self.command, self.directory, self.reference.contents)

    def _own_hidden_file(self) -> Path:
        return self.directory / self.command.output / FOREIGN_HIDDEN_NAME

    def _judge_foreign(self, when: str) -> None:
        if wrong := results.foreign_errors(self.command, self.directory, hidden_file=self.hidden_file):
            self.outcome.faults.append(f"{when}: {wrong}")
