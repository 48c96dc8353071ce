import os
import threading
from pathlib import Path

import pytest

from beambert.common.small_files import read_small


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
