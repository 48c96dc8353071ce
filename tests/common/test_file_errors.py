"""Test file system errors as libraries really raise them: one line each, with file, reason and remedy."""

import contextlib
import errno
import os
import pickle
import resource
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert.common import file_errors


@contextlib.contextmanager
def files_of_ten_bytes():
    """Limit files to ten bytes, as a quota does; some libraries would replace /dev/full by a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def with_python(path):
    with path.open("wb", buffering=0) as file:
        file.write(b"x" * 10)
        file.write(b"x")


def with_safetensors(path):
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(10_000, np.float32)}, path)


def with_parquet(path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pa.OSFile(str(path), "wb") as file:
        pq.write_table(pa.table({"a": list(range(100_000))}), file)


def with_zip(path):
    with path.open("wb", buffering=0) as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", "x" * 100)


def with_tensorflow(path):
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(b"x" * 100)
        writer.flush()


WRITERS = [with_python, with_safetensors, with_parquet, with_zip, with_tensorflow]


@pytest.mark.parametrize("write", WRITERS)
def test_a_file_that_is_too_large_is_the_same_error_for_every_library(write, tmp_path):
    with (
        files_of_ten_bytes(),
        pytest.raises(file_errors.FileError) as caught,
        file_errors.writing("out/.model.bin.unfinished"),
    ):
        write(tmp_path / "file")
    assert caught.value.errno == errno.EFBIG
    assert str(caught.value) == (
        "out/model.bin cannot be written (file too large); raise the limit on the size of a file (ulimit -f) and run "
        "the same command again"
    )


@pytest.mark.parametrize("write", [with_python, with_parquet, with_tensorflow])
def test_an_error_that_names_its_file(write, tmp_path):
    (tmp_path / "a file").touch()
    path = tmp_path / "a file" / "new.bin"
    with pytest.raises(Exception) as caught:
        write(path)
    line = file_errors.line_of(caught.value)
    assert line.startswith(f"{path} cannot be opened, read or written (not a directory); check the path")


NUMBERS = {name: number for name, number in vars(errno).items() if name.startswith("E")}


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_has_a_reason_and_a_remedy(name):
    error = OSError(NUMBERS[name], os.strerror(NUMBERS[name]), "/data/out/.run.json.unfinished")
    line = file_errors.line_of(error)
    assert line.startswith("/data/out/run.json ")
    assert "; " in line
    assert "rrno" not in line
    assert file_errors.write_line("f", error).startswith("f cannot be written (")
    # A worker process prints the error as text, in which the number is found.
    assert file_errors.errno_in(f"x: {error} [while running 'y']") == NUMBERS[name]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x cannot be read ([Errno 13] Permission denied: 'x'); go", "x cannot be read (Permission denied: 'x'); go"),
        ("I/O error: No space left on device (os error 28)", "I/O error: No space left on device"),
    ],
)
def test_numbers_are_taken_out_of_messages(text, expected):
    assert file_errors.without_numbers(text) == expected


def test_a_worker_process_sends_the_error():
    error = file_errors.FileError(errno.ENOSPC, "no space", "a/b")
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == file_errors.write_line("a/b", errno.ENOSPC)


@pytest.mark.parametrize(
    ("temporary", "name"),
    [
        ("o/.run.json.unfinished", "o/run.json"),
        ("o/.run.json.0123456789abcdef.unfinished", "o/run.json"),
        (f"o/corpus.json.{'0' * 32}.tmp", "o/corpus.json"),
        ("o/checkpoints/.unfinished/model.ckpt-2.data-00000-of-00001.tempstate123", "o/checkpoints/model.ckpt-2"),
        ("o/.new.unfinished/model.ckpt.index.tempstate5", "o/new/model.ckpt"),
        ("a.tmp", "a.tmp"),
        (".hidden/a.unfinished", ".hidden/a.unfinished"),
    ],
)
def test_temporary_names_become_those_the_user_knows(temporary, name):
    assert file_errors.without_temporary_suffix(temporary) == name


@given(st.text())
def test_any_text_is_searched_without_an_error(text):
    file_errors.errno_in(text)
    file_errors.without_numbers(text)
    file_errors.line_of(OSError(text))


def test_a_missing_file_is_left_to_the_caller(tmp_path):
    with pytest.raises(FileNotFoundError), file_errors.writing("x"):
        (tmp_path / "missing").read_bytes()
    with pytest.raises(ValueError, match="No space left"), file_errors.writing("x"):
        raise ValueError("a message of ours: No space left on device")
