"""Test the lock of the output of a data job; see also `tests/pipelines/io/test_directory_lock.py`."""

import os

import pytest

from pipelines.errors import OutputError
from pipelines.runner.output_lock import FILE_NAME, lock_output


def test_directory_created_for_the_lock_is_removed_if_empty(tmp_path):
    with pytest.raises(KeyError), lock_output(str(tmp_path / "out")):
        raise KeyError
    assert not (tmp_path / "out").exists()
    with lock_output(str(tmp_path / "out")):
        (tmp_path / "out/file").write_text("")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["file"]


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
