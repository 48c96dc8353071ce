"""Test local files: writes by several processes at once, and reads of bounded size."""

import os
import threading
import time
from pathlib import Path

import pytest

from beambert.common.local_files import open_atomic, read_small, remove_unfinished, write_atomic
from tests.processes_at_once import run_at_once


def test_processes_that_write_one_file_at_once_all_succeed_and_one_is_whole(tmp_path):
    contents = [bytes([number]) * 300_000 for number in range(4)]

    def write(number):
        for _ in range(20):
            write_atomic(tmp_path / "file", contents[number])
            remove_unfinished(tmp_path)

    assert run_at_once(4, write) == [0] * 4
    assert (tmp_path / "file").read_bytes() in contents
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_a_killed_process_left_is_removed_and_what_is_being_written_stays(tmp_path):
    def killed(number):
        with open_atomic(tmp_path / "a.json") as file:
            file.write(b"half")
            file.flush()
            os.kill(os.getpid(), 9)

    assert run_at_once(2, killed) == [-9, -9]
    # Files with similar names, of a user and of a command that writes files of its own here.
    others = [".a.json.unfinished", ".b.txt.0123456789ab.unfinished", "unfinished", "x.0123456789abcdef.unfinished"]
    for name in others:
        (tmp_path / name).write_text("")
    assert len(list(tmp_path.iterdir())) == len(others) + 2
    with open_atomic(tmp_path / "b.json") as file:
        remove_unfinished(tmp_path)
        assert len(list(tmp_path.iterdir())) == len(others) + 1
        file.write(b"whole")
    assert {path.name for path in tmp_path.iterdir()} == {*others, "b.json"}
    assert (tmp_path / "b.json").read_bytes() == b"whole"


def test_an_error_leaves_the_previous_file_and_no_temporary_file(tmp_path):
    write_atomic(tmp_path / "file", b"before")
    with pytest.raises(TypeError), open_atomic(tmp_path / "file") as file:
        file.writelines([b"half", "no bytes"])
    assert (tmp_path / "file").read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    begin = time.monotonic()
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "none/file", b"")
    assert time.monotonic() - begin < 5


def test_without_locks_a_file_is_written_and_nothing_taken_for_a_leftover(tmp_path, monkeypatch):
    def no_locks(file, operation):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with open_atomic(tmp_path / "file") as file:
        remove_unfinished(tmp_path)
        file.write(b"whole")
    assert (tmp_path / "file").read_bytes() == b"whole"


def test_a_file_of_the_limit_is_read(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert read_small(path, 5) == read_small(path) == b"12345"
    with pytest.raises(OSError, match="File too large"):
        read_small(path, 4)


def test_an_endless_file_is_not_read_to_its_end():
    with pytest.raises(OSError, match="File too large"):
        read_small(Path("/dev/zero"), 1000)


def test_a_pipe_is_read_to_its_end(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"x" * 100_000,))
    writer.start()
    assert read_small(path) == b"x" * 100_000
    writer.join()
