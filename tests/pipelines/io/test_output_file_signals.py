"""Test SIGTERM and SIGHUP while an output file is written."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WRITE = """
import pathlib, signal, sys, time
from beambert_common.signals import cleanup_on_signals
from pipelines.io.output_file import OutputFile

for number in (signal.SIGTERM, signal.SIGHUP):
    # A shell may leave them ignored.
    signal.signal(number, signal.SIG_DFL)
folder = pathlib.Path(sys.argv[1]).with_name("folder")
folder.mkdir()
with cleanup_on_signals(folder.rmdir), OutputFile("--output_file", sys.argv[1]) as output:
    output.path.write_text("half of it")
    print("writing", flush=True)
    if sys.argv[2] == "wait":
        time.sleep(60)
print(*(signal.getsignal(number) == signal.SIG_DFL for number in (signal.SIGTERM, signal.SIGHUP)))
"""


def write(path, mode):
    command = [sys.executable, "-c", WRITE, str(path), mode]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing_temporary(number, tmp_path):
    with write(tmp_path / "out.tsv", "wait") as process:
        assert process.stdout.readline() == "writing\n"
        assert len(list(tmp_path.iterdir())) == 2
        process.send_signal(number)
        assert process.wait(30) == -number
    assert list(tmp_path.iterdir()) == []


def test_the_signals_have_their_effect_again_afterwards(tmp_path):
    with write(tmp_path / "out.tsv", "go on") as process:
        assert process.communicate(timeout=30)[0] == "writing\nTrue True\n"
    assert (tmp_path / "out.tsv").read_text(encoding="utf-8") == "half of it"
