"""Test two builds with one output: exactly one proceeds, and the error of the other names it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import beambert
from pipelines.errors import OutputError
from pipelines.runner.output_lock import FILE_NAME, lock_output

# Takes the lock, reports it, and holds it until its input ends.
HOLD = """
import signal, sys
from pipelines.runner.output_lock import lock_output
# As in a terminal's foreground, wherever the tests run.
signal.signal(signal.SIGINT, signal.default_int_handler)
with lock_output(sys.argv[1]):
    print("holds", flush=True)
    sys.stdin.read()
"""
# The requested number of processes take the lock at the same time, and its holder keeps it until the input ends.
AT_ONCE = """
import os, sys
from pipelines.runner.output_lock import lock_output
from pipelines.io.output_directory import OutputError
wait, release = os.pipe()
for _ in range(int(sys.argv[2])):
    if not os.fork():
        os.close(release)
        os.read(wait, 1)
        try:
            with lock_output(sys.argv[1]):
                os.write(1, f"holds {os.getpid()}\\n".encode())
                sys.stdin.read()
        except OutputError as error:
            os.write(1, f"{error}\\n".encode())
        os._exit(0)
os.close(release)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""
# Several processes take the lock repeatedly, so that some open the file just before its holder removes it.
IN_TURN = """
import os, pathlib, sys
from pipelines.runner.output_lock import lock_output
from pipelines.io.output_directory import OutputError
for _ in range(3):
    if not os.fork():
        taken = 0
        while taken < 100:
            try:
                with lock_output(sys.argv[1]):
                    mark = pathlib.Path(sys.argv[1], "mark")
                    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                    mark.unlink()
                    taken += 1
            except OutputError as error:
                if "in use" not in str(error):
                    os._exit(1)
            except FileExistsError:
                os._exit(2)
        os._exit(0)
print([os.wait()[1] for _ in range(3)])
"""


def run(script: str, *argv: object) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, argv)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def end(process: subprocess.Popen) -> None:
    process.stdin.close()
    process.wait(timeout=60)
    process.stdout.close()


def holder(output: Path) -> subprocess.Popen:
    process = run(HOLD, output)
    assert process.stdout.readline() == "holds\n"
    return process


def test_of_many_that_start_at_the_same_moment_one_wins(tmp_path):
    process = run(AT_ONCE, tmp_path / "out", 6)
    answers = [process.stdout.readline().strip() for _ in range(6)]
    winners = [answer.split()[1] for answer in answers if answer.startswith("holds ")]
    assert len(winners) == 1, answers
    losers = [answer for answer in answers if not answer.startswith("holds ")]
    assert all(f"is in use by process {winners[0]} on {os.uname().nodename} since" in answer for answer in losers)
    end(process)
    assert not (tmp_path / "out" / FILE_NAME).exists()


def test_two_processes_never_hold_the_lock_at_once(tmp_path):
    process = run(IN_TURN, tmp_path)
    assert process.communicate(timeout=60)[0] == "[0, 0, 0]\n"
    assert not list(tmp_path.iterdir())


def test_directory_created_for_the_lock_is_removed_if_empty(tmp_path):
    with pytest.raises(KeyError), lock_output(str(tmp_path / "out")):
        raise KeyError
    assert not (tmp_path / "out").exists()
    with lock_output(str(tmp_path / "out")):
        (tmp_path / "out/file").write_text("")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["file"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_frees_the_output(tmp_path, number):
    process = holder(tmp_path)
    assert json.loads((tmp_path / FILE_NAME).read_text())["process"] == process.pid
    process.send_signal(number)
    process.wait(timeout=30)
    assert process.returncode == -number
    # Only a killed process leaves the file, which does not block the next process.
    assert (tmp_path / FILE_NAME).exists() == (number == signal.SIGKILL)
    with lock_output(str(tmp_path)):
        assert json.loads((tmp_path / FILE_NAME).read_text())["process"] == os.getpid()
    assert not (tmp_path / FILE_NAME).exists()
    process.stdin.close()
    process.stdout.close()


@pytest.mark.parametrize("command", ["build", "corpus", "pretraining-data"])
def test_commands_refuse_an_output_in_use(tmp_path, capsys, command):
    (tmp_path / "in.txt").write_text("One sentence. Two.\n\nThree.\n")
    if command == "pretraining-data":
        lines = [json.dumps({"text": f"Sentence {n} has words. Another follows it."}) for n in range(9)]
        (tmp_path / "in.jsonl").write_text("\n".join(lines))
        argv = ["corpus", "--input", f"{tmp_path}/in.jsonl", "--output", str(tmp_path / "c"), "--vocab_size", "50"]
        assert beambert.main(argv) == 0
        capsys.readouterr()
    process = holder(tmp_path / "out")
    source = tmp_path / ("c" if command == "pretraining-data" else "in.txt")
    assert beambert.main([command, "--input", str(source), "--output", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"is in use by process {process.pid} on" in error
    assert [path.name for path in (tmp_path / "out").iterdir()] == [FILE_NAME]
    end(process)


def test_sigterm_in_the_middle_of_a_build_frees_the_output(tmp_path):
    argv = ["build", "--input_format", "language_reference", "--output", str(tmp_path), "--vocab_size", "2000"]
    process = subprocess.Popen([sys.executable, "-m", "beambert", *argv, "--dupe_factor", "60"])
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("shards/*")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert (tmp_path / FILE_NAME).exists()
    process.terminate()
    assert process.wait(timeout=30) == -signal.SIGTERM
    assert not (tmp_path / FILE_NAME).exists()
    assert not (tmp_path / "dataset.json").exists()


def test_where_the_filesystem_has_no_locks_the_file_is_the_lock(tmp_path, monkeypatch):
    def no_locks(file, operation):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", no_locks)
    path = tmp_path / FILE_NAME
    with lock_output(str(tmp_path)):
        held = pytest.raises(OutputError, match=f"process {os.getpid()} .* if that process has ended, delete {path}")
        with held, lock_output(str(tmp_path)):
            pass
        assert path.exists()
    assert not path.exists()
    path.write_text("what is this")
    with pytest.raises(OutputError, match="is in use by another process"), lock_output(str(tmp_path)):
        pass
