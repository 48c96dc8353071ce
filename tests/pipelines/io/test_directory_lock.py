"""Test the lock of an output directory, held by real processes."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time

import pytest
from chaos.disturbances import damage

from beambert.pipelines.errors import OutputError
from beambert.pipelines.io.output_directory import LOCK_NAME, lock_content, lock_destination, lock_directory

HOLD = """
import hashlib, signal, sys, threading
from pathlib import Path
from beambert.pipelines.io.output_directory import lock_directory
signal.signal(signal.SIGINT, signal.default_int_handler)
with lock_directory("--output X", Path(sys.argv[1]), "another --output"):
    if sys.argv[2] == "reads":
        print("holds", flush=True)
        sys.stdin.read()
    else:
        # Said within a call that no handler of Python's interrupts: minutes of SHA-256.
        threading.Timer(0.5, print, ("holds",), {"flush": True}).start()
        hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""

# Several processes take the lock repeatedly, so that some open the file just before its holder removes it.
IN_TURN = """
import os, sys
from pathlib import Path
from beambert.pipelines.errors import OutputError
from beambert.pipelines.io.output_directory import lock_directory
for _ in range(3):
    if not os.fork():
        taken = 0
        while taken < 100:
            try:
                with lock_directory("--output X", Path(sys.argv[1]), "another --output"):
                    mark = Path(sys.argv[1], "mark")
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


def locked(directory, what="--output X"):
    return lock_directory(what, directory, "another --output")


def run(script, *argv):
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, argv)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def holder(directory, how="reads"):
    process = run(HOLD, directory, how)
    assert process.stdout.readline() == "holds\n"
    return process


def end(process):
    process.stdin.close()
    process.stdout.close()
    process.wait(timeout=60)


def test_the_second_is_refused_in_one_line_that_names_the_first(tmp_path):
    process = holder(tmp_path / "a/b")
    with pytest.raises(OutputError) as refused, locked(tmp_path / "a/b", "--output a/b"):
        pass
    started = json.loads((tmp_path / "a/b" / LOCK_NAME).read_text())["started"]
    assert str(refused.value) == (
        f"--output a/b is in use by process {process.pid} on {os.uname().nodename} since {started}; wait for it, or "
        "choose another --output"
    )
    end(process)
    # Directories that were created for the lock alone are removed with it.
    assert list(tmp_path.iterdir()) == []


def test_two_processes_never_hold_the_lock_at_once(tmp_path):
    process = run(IN_TURN, tmp_path)
    assert process.communicate(timeout=60)[0] == "[0, 0, 0]\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("how", ["reads", "computes"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_ended_process_releases_the_lock_even_in_a_long_call(tmp_path, number, how):
    process = holder(tmp_path, how)
    process.send_signal(number)
    begin = time.monotonic()
    process.wait(timeout=30)
    assert time.monotonic() - begin < 10
    assert process.returncode == -number
    with locked(tmp_path):
        assert json.loads((tmp_path / LOCK_NAME).read_text())["process"] == os.getpid()
    assert list(tmp_path.iterdir()) == []
    end(process)


def test_lock_of_a_directory_that_replaced_ours_is_kept(tmp_path):
    with locked(tmp_path / "out"):
        (tmp_path / "out").rename(tmp_path / "moved")
        process = holder(tmp_path / "out")
    assert (tmp_path / "out" / LOCK_NAME).exists()
    with pytest.raises(OutputError, match=f"in use by process {process.pid} "), locked(tmp_path / "out"):
        pass
    end(process)


@pytest.mark.parametrize("content", ["mine", "[1, 2]\n", '"a process"', "9" * 5000, "[" * 100_000])
def test_a_file_of_a_person_with_the_name_of_the_lock_stays(tmp_path, content):
    (tmp_path / LOCK_NAME).write_text(content)
    refused = pytest.raises(OutputError, match=f"--output X contains {LOCK_NAME}, which is not a lock of beambert")
    with refused as error, locked(tmp_path):
        pass
    assert (tmp_path / LOCK_NAME).read_text() == content
    assert str(error.value).endswith(f", delete {tmp_path / LOCK_NAME}")


def test_a_directory_with_the_name_of_the_lock_stays(tmp_path):
    (tmp_path / LOCK_NAME).mkdir()
    with pytest.raises(OutputError, match=f"--output X contains {LOCK_NAME}, which is not a lock"), locked(tmp_path):
        pass
    assert (tmp_path / LOCK_NAME).is_dir()


@pytest.mark.parametrize("how", ["empty", "half", "byte", "appended"])
def test_the_corrupt_lock_of_a_killed_process_is_replaced(tmp_path, how):
    path = tmp_path / LOCK_NAME
    path.write_text(lock_content())
    damage(path, how, random.Random(1))
    with locked(tmp_path):
        assert os.getpid() == json.loads(path.read_text())["process"]
    assert not path.exists()


def test_a_directory_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    for directory, reason in (
        (tmp_path / "file", "file exists"),
        (tmp_path / "file/a", "not a directory"),
        (tmp_path / "d" / ("x" * 300), "file name too long"),
    ):
        with pytest.raises(OutputError, match=rf"^--output X cannot be written \({reason}\); [^;\n]+$"):
            locked(directory).__enter__()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("limit", [0, 10])
def test_without_space_nothing_is_left(tmp_path, limit):
    """Simulate a full disk by a limit on the size of files."""
    child = os.fork()
    if not child:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            locked(tmp_path / "out").__enter__()
        except OutputError as error:
            os._exit(0 if "cannot be written (file too large); raise the limit" in str(error) else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert list(tmp_path.iterdir()) == []


def test_destination_is_locked_by_a_file_beside_it(tmp_path):
    destination = tmp_path / "new/model"
    with lock_destination("DST model", destination, "another DST"):
        assert [path.name for path in destination.parent.iterdir()] == [".model.lock"]
        with pytest.raises(OutputError, match=r"^DST model is in use by .*; wait for it, or choose another DST$"):
            lock_destination("DST model", destination, "another DST").__enter__()
        destination.mkdir()
    assert [path.name for path in destination.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("target", ["missing", "empty"])
def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path, target):
    (tmp_path / "empty").touch()
    (tmp_path / ".model.lock").symlink_to(target)
    with (
        pytest.raises(OutputError, match=r"\.model\.lock, which is not a lock of beambert"),
        lock_destination("model", tmp_path / "model", "another"),
    ):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [".model.lock", "empty"]
