"""Run a command with time limits, in a child process forked from a process that has imported everything."""

import dataclasses
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

CPU_SECONDS = 40
WALL_SECONDS = 120
_LARGEST_FILE = 1 << 30


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a command.

    Attributes:
        code: exit code, or the negative number of the signal that ended it.
        hung: whether it was ended because it exceeded a time limit.
        stdout, stderr: its output, with the case's folder written as `<folder>`.
        folder: the folder in which it ran.
    """

    code: int
    hung: bool
    stdout: str
    stderr: str
    folder: Path


class Child:
    """A command that runs in a forked child, with the case's folder as its current directory."""

    def __init__(self, argv: Sequence[str], folder: Path):
        self.argv = list(argv)
        self.folder = folder
        self._logs = [folder.parent / f"{folder.name}.{stream}" for stream in ("stdout", "stderr")]
        self._deadline = time.monotonic() + WALL_SECONDS
        self._hung = False
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._run()

    def _run(self) -> None:
        code = 70
        try:
            os.setsid()
            for descriptor, log in zip((1, 2), self._logs, strict=True):
                os.dup2(os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), descriptor)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 5))
            resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.chdir(self.folder)
            code = _exit_code(self.argv)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)

    def poll(self) -> Outcome | None:
        """Return the outcome, or None while the command runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            if time.monotonic() > self._deadline and not self._hung:
                self._hung = True
                self._end()
            return None
        self._end()
        code = os.waitstatus_to_exitcode(status)
        hung = self._hung or code in (-signal.SIGXCPU, -signal.SIGKILL)
        stdout, stderr = (log.read_text(encoding="utf-8", errors="replace") for log in self._logs)
        for log in self._logs:
            log.unlink()
        where = str(self.folder)
        return Outcome(code, hung, stdout.replace(where, "<folder>"), stderr.replace(where, "<folder>"), self.folder)

    def wait(self) -> Outcome:
        """Wait for the end of the command and return the outcome."""
        while True:
            outcome = self.poll()
            if outcome:
                return outcome
            time.sleep(0.005)

    def _end(self) -> None:
        """Kill all processes that the command started."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return


def _exit_code(argv: Sequence[str]) -> int:
    from beambert import cli

    try:
        return cli.main(list(argv))
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        return 70


def preload() -> None:
    """Import what the commands import, so that a child starts at once."""
    import importlib

    from beambert import cli

    # TensorFlow is imported before any thread starts, and computes nothing here.
    for module, _ in cli.COMMANDS.values():
        importlib.import_module(module)
    for name in (
        "apache_beam.runners.portability.fn_api_runner.fn_runner",
        "beambert.pipelines.runner.pipeline_runner",
        "keras",
        "beambert.pipelines.transforms.corpora",
        "pyarrow.parquet",
        "tensorflow",
        "beambert.trainers.finetuning.finetuning_run",
        "beambert.trainers.inference.model_loading",
        "beambert.trainers.pretraining.pretraining_run",
    ):
        importlib.import_module(name)
