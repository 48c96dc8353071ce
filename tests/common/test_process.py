"""Test Ctrl-C before a command runs, and the end of a command's process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

ONE_LINE = "interrupted; run the same command again to resume\n"
WAITS = "import sys, time\nprint('ready', file=sys.__stdout__, flush=True)\ntime.sleep(120)\n"


def start(argv, modules: Path, **options) -> subprocess.Popen:
    """Start Python with modules that take precedence over all others."""
    paths = os.pathsep.join([str(modules), str(ROOT)])
    return subprocess.Popen(
        [sys.executable, *argv],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # The tests themselves may run in the background, where Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, options.get("handler", signal.default_int_handler)),
    )


def interrupted(process: subprocess.Popen) -> tuple[int, str]:
    """Send Ctrl-C as soon as the process prints "ready", and return its exit code and standard error."""
    assert process.stdout.readline() == "ready\n", process.communicate()[1]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    return process.returncode, err


def test_ctrl_c_while_the_command_line_is_imported_is_one_line(tmp_path):
    (tmp_path / "difflib.py").write_text(WAITS)
    code, err = interrupted(start(["-m", "beambert", "build", "--help"], tmp_path))
    assert (code, err) == (130, f"beambert: {ONE_LINE}")


def test_an_ignored_ctrl_c_stays_ignored(tmp_path):
    (tmp_path / "difflib.py").write_text(WAITS.replace("120", "1") + "def get_close_matches(*a, **b): return []\n")
    process = start(["-m", "beambert", "--version"], tmp_path, handler=signal.SIG_IGN)
    assert interrupted(process) == (0, "")


def test_ctrl_c_while_beam_is_imported_is_one_line(tmp_path):
    (tmp_path / "a.txt").write_text("A sentence of words.\n")
    (tmp_path / "apache_beam").mkdir()
    (tmp_path / "apache_beam" / "__init__.py").write_text(WAITS)
    argv = ["build", "--input", str(tmp_path / "a.txt"), "--output", str(tmp_path / "out"), "--vocab_size", "99"]
    code, err = interrupted(start(["-m", "beambert", *argv], tmp_path))
    assert (code, err) == (130, f"beambert build: {ONE_LINE}")


def run_program(body: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", body], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("return 0", 0),
        ("return 3", 3),
        ("sys.exit(2)", 2),
        ("sys.exit('words')", 1),
        ("raise RuntimeError('fault')", 1),
        # A second Ctrl-C while the first one is handled.
        ("raise KeyboardInterrupt", 130),
    ],
)
def test_a_process_ends_with_its_code_after_exit_functions_and_without_finalization(body, code):
    done = run_program(f"""
import atexit, sys
from beambert.common import process

class Module:
    def __del__(self):
        print("finalized", flush=True)

sys.modules["kept"] = Module()

@process.ends_process
def main(argv=None):
    atexit.register(print, "exit function")
    print("printed")
    {body}

sys.exit(main())
""")
    assert done.returncode == code
    assert done.stdout == "printed\nexit function\n"
    assert ("RuntimeError: fault" in done.stderr) == ("fault" in body)
    assert (done.stderr == f"beambert: {ONE_LINE}") == ("Keyboard" in body)


def test_an_interrupt_within_a_destructor_is_not_lost():
    """Interrupt a destructor, where Python only prints a KeyboardInterrupt and continues."""
    done = run_program("""
import signal, sys, time
# A shell that starts programs in the background has them ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
from beambert.common import process

class Interrupted:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

class Broken:
    def __del__(self):
        raise ValueError("shown as ever")

@process.ends_process
def main(argv=None):
    Broken()
    Interrupted()
    try:
        time.sleep(10)
    except KeyboardInterrupt:
        return 130
    return 0

sys.exit(main())
""")
    assert done.returncode == 130
    assert "shown as ever" in done.stderr
    assert "KeyboardInterrupt" not in done.stderr


def test_an_interrupted_process_does_not_wait_for_its_threads():
    """Leave a thread that never ends, as an interrupt does while Beam's sampler of states runs."""
    done = run_program("""
import atexit, sys, threading
from beambert.common import process

@process.ends_process
def main(argv=None):
    atexit.register(print, "exit function")
    threading.Thread(target=threading.Event().wait).start()
    return 130

sys.exit(main())
""")
    assert (done.returncode, done.stdout) == (130, "exit function\n")


def test_main_called_with_arguments_leaves_the_process_alone():
    done = run_program("""
import sys
from beambert import cli
assert cli.main(["--version"]) == 0
class Module:
    def __del__(self):
        print("finalized", flush=True)
sys.modules["kept"] = Module()
""")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "finalized")


def test_a_program_that_puts_its_own_stream_back_can_print():
    done = run_program("""
import sys
from beambert import cli
stdout = sys.stdout
cli.main(["--version"])
sys.stdout = stdout
print("after")
""")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1:] == ["after"]
