"""Test worker processes of the embedded engine that end too early, or whose main process ends."""

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from beambert import cli
from beambert.pipelines.runner import worker_server
from tests.conftest import without_progress

FLAGS = ["--vocab_size", "1000", "--max_seq_length", "64", "--dupe_factor", "1", "--num_partitions", "2"]


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    """Enough text for a stage to be interrupted: 100 documents of 60 sentences."""
    path = tmp_path_factory.mktemp("text") / "a.jsonl"
    with path.open("w") as file:
        for document in range(100):
            sentences = [f"Line {line} of {document} has the word w{line * document % 997}." for line in range(60)]
            file.write(json.dumps({"text": "\n".join(sentences)}) + "\n")
    return path


class Build:
    """A build with two worker processes, in its own session and with its own directory for temporary files."""

    def __init__(self, text: Path, folder: Path) -> None:
        self.output, self.temporary, self.log = folder / "out", folder / "temporary", folder / "log"
        self.temporary.mkdir()
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "beambert", "build", "--input", str(text), "--output", str(self.output)),
                    *(*FLAGS, "--direct_num_workers", "2"),
                ],
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, "TMPDIR": str(self.temporary)},
                start_new_session=True,
                # The tests themselves may run in the background, where Ctrl-C is ignored.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )

    def workers(self) -> list[int]:
        """Return the process IDs of the rest of the session."""
        found = subprocess.run(["pgrep", "-s", str(self.process.pid)], capture_output=True, text=True, check=False)
        return [int(word) for word in found.stdout.split() if int(word) != self.process.pid and is_running(int(word))]

    def wait_for_workers(self, stage: str) -> list[int]:
        """Wait for workers, and for files that match `stage`; return the process IDs."""
        deadline = time.monotonic() + 120
        while not (self.workers() and any(self.output.glob(stage))):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.002)
        return self.workers()

    def ends(self) -> tuple[int, list[str]]:
        """Return the exit code, and standard error without progress; check that nothing of the job is left."""
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise
        deadline = time.monotonic() + 20
        while self.workers():
            assert time.monotonic() < deadline, "processes are left"
            time.sleep(0.01)
        assert not list(self.temporary.iterdir())
        return code, without_progress(self.log.read_text())


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def build(text, tmp_path):
    started = Build(text, tmp_path)
    yield started
    if started.process.poll() is None:
        os.killpg(started.process.pid, signal.SIGKILL)
        started.process.wait()


@pytest.mark.slow
def test_workers_end_with_the_main_process(build):
    # A stopped worker cannot even detect that the main process has ended.
    os.kill(build.wait_for_workers("unfinished/*/*")[0], signal.SIGSTOP)
    build.process.kill()
    code, lines = build.ends()
    assert code == -signal.SIGKILL
    assert lines == []


@pytest.mark.slow
def test_ctrl_c_ends_workers_wherever_they_are(build):
    os.kill(build.wait_for_workers("unfinished/*/*")[0], signal.SIGSTOP)
    os.killpg(build.process.pid, signal.SIGINT)
    code, lines = build.ends()
    assert code == 130
    assert lines == ["beambert build: interrupted; run the same command again to resume"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ((sys.executable, "-c", "raise SystemExit('no luck')"), "a worker process exited with code 1 (no luck); run"),
        ((sys.executable, "-c", "pass"), "a worker process exited with code 0 (no output); run"),
        ((sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"), "a worker process was killed (signal 9)"),
        ((sys.executable, "-c", "import os; os.abort()"), "a worker process was ended by signal 6"),
        (("./missing",), "worker processes cannot be started (No such file or directory)"),
    ],
)
def test_a_worker_that_ends_before_it_has_connected(text, tmp_path, monkeypatch, capsys, command, message):
    monkeypatch.setattr(worker_server, "_COMMAND", command)
    argv = ["build", "--input", str(text), "--output", str(tmp_path / "out"), *FLAGS, "--direct_num_workers", "2"]
    assert cli.main(argv) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("beambert")]
    assert message in line


def test_workers_wait_although_sockets_have_a_default_timeout(text, tmp_path, request):
    """Beam sets one when it asks for credentials of Google Cloud."""
    request.addfinalizer(functools.partial(socket.setdefaulttimeout, socket.getdefaulttimeout()))
    socket.setdefaulttimeout(60)
    argv = ["corpus", "--input", str(text), "--output", str(tmp_path / "out"), "--vocab_size", "1000"]
    assert cli.main([*argv, "--direct_num_workers", "2"]) == 0


@pytest.mark.slow
def test_a_package_in_the_current_directory_does_not_reach_workers(text, tmp_path):
    for name in ("beambert", "pipelines"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('not this one')")
    argv = ["corpus", "--input", str(text), "--output", str(tmp_path / "out"), "--vocab_size", "1000"]
    argv += ["--direct_num_workers", "2"]
    # As with the console script, the current directory is not in the module search path.
    program = f"import sys; sys.path[0] = {str(Path(cli.__file__).parents[1])!r}; from beambert import cli; cli.main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *argv], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (tmp_path / "out/corpus.json").exists(), done.stderr
