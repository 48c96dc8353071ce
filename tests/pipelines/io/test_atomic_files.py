"""Test atomic writes: a file is complete or absent."""

import hashlib

import pytest

from beambert.pipelines.io.atomic_files import (
    delete_files,
    delete_matching,
    list_files,
    read_bytes,
    write_atomically,
    write_text,
)


def test_file_appears_only_when_complete(tmp_path):
    path = tmp_path / "folder" / "file"
    with write_atomically(str(path)) as file:
        file.write(b"half")
        assert not path.exists()
        file.write(b" whole")
    assert path.read_bytes() == b"half whole"
    assert file.bytes == 10
    assert file.sha256 == hashlib.sha256(b"half whole").hexdigest()
    assert list(path.parent.iterdir()) == [path]


def test_an_error_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    write_text(str(path), "old")

    def interrupted() -> None:
        with write_atomically(str(path)) as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_two_writers_of_one_file_do_not_interfere(tmp_path):
    path = str(tmp_path / "file")
    with write_atomically(path) as first:
        first.write(b"first")
        with write_atomically(path) as second:
            second.write(b"second")
    assert read_bytes(path) == b"first"


def test_read_and_delete(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_bytes(f"{tmp_path}/none")
    for name in ("a.x", "b.x", "c.y"):
        write_text(f"{tmp_path}/{name}", "")
    assert delete_matching(f"{tmp_path}/*.x") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["c.y"]


def test_directories_and_deleted_paths_are_literal(tmp_path):
    """Never delete a file of a directory that the path matches as a pattern: a1 for a[1]."""
    own, other = tmp_path / "a[1]", tmp_path / "a1"
    for folder in (own, other):
        for name in ("a.x", "b.x", "c1", "c[1]"):
            write_text(f"{folder}/{name}", "text")
    assert sorted((file.path, file.size_in_bytes) for file in list_files(f"{own}/*.x")) == [
        (f"{own}/a.x", 4),
        (f"{own}/b.x", 4),
    ]
    assert delete_matching(f"{own}/*.x") == 2
    delete_files([f"{own}/c[1]", f"{own}/missing"])
    assert [path.name for path in own.iterdir()] == ["c1"]
    assert sorted(path.name for path in other.iterdir()) == ["a.x", "b.x", "c1", "c[1]"]
    assert list_files(f"{tmp_path}/missing/*") == []


def test_a_failed_write_leaves_no_file_in_a_directory_like_a_pattern(tmp_path):
    with pytest.raises(ValueError, match="stopped"), write_atomically(f"{tmp_path}/a[1]/file"):
        raise ValueError("stopped")
    assert list((tmp_path / "a[1]").iterdir()) == []
