"""Test the output directory of a data job: its lock, and files that are deleted, kept or refused."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from beambert.pipelines.errors import DatasetError, OutputError
from beambert.pipelines.io.atomic_files import write_atomically
from beambert.pipelines.io.output_directory import LOCK_NAME
from beambert.pipelines.runner.job_output import begun_work, lock_output, require_own_output, require_writable
from beambert.pipelines.transforms.vocabulary import write_vocabulary


def half_write_and_die(paths):
    """Start to write files in a child process that exits without cleanup."""
    child = os.fork()
    if not child:
        files = [write_atomically(str(path)) for path in paths]
        for file in files:
            file.__enter__().write(b"half")
        os._exit(9)
    os.waitpid(child, 0)


def test_temporary_files_of_killed_workers_go_and_all_else_stays(tmp_path):
    for folder in ("corpus", "shards", "rejected", "mine"):
        (tmp_path / folder).mkdir()
    names = ("dataset.json", "corpus/a", "shards/b", "rejected/c")
    kept = [tmp_path / name for name in ("notes.tmp", "dataset.json", "shards/b", "mine/x.tmp", "shards/short.abc.tmp")]
    for path in kept:
        path.write_text("kept")
    with begun_work(str(tmp_path), "corpus"):
        half_write_and_die(tmp_path / name for name in names)
        assert len(list(tmp_path.rglob("*.tmp"))) == len(names) + 3
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(kept)


def test_concurrent_checks_all_find_a_directory_writable(tmp_path):
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: [require_writable(str(tmp_path)) for _ in range(100)], range(4)))
    assert list(tmp_path.iterdir()) == []


def test_the_check_leaves_no_file_in_a_directory_like_a_pattern(tmp_path):
    require_writable(str(tmp_path / "v[1]"))
    assert list((tmp_path / "v[1]").iterdir()) == []


@pytest.mark.parametrize("foreign", ["", "thesis.txt", "vocab.txt"])
def test_what_workers_write_after_their_directory_was_deleted_is_not_foreign(foreign, tmp_path):
    """Let the same command use the directory again, unless it has other files, which may be the user's."""
    output = tmp_path / "data"

    def run():
        with begun_work(str(output), "corpus"):
            shutil.rmtree(output)
            (output / "corpus").mkdir(parents=True)
            (output / "corpus" / "train-00000-of-00001.parquet").write_text("")
            if foreign:
                (output / foreign).write_text("")
            raise OutputError("removed")

    with pytest.raises(OutputError, match="removed"):
        run()
    if foreign:
        with pytest.raises(OutputError, match=foreign):
            require_own_output(str(output), "corpus", ["corpus.json"], ["corpus", "vocab.txt"])
    else:
        require_own_output(str(output), "corpus", ["corpus.json"], ["corpus", "vocab.txt"])


@pytest.mark.parametrize("files", [[], [f"started.json.{'0' * 32}.tmp"]])
def test_a_job_that_was_killed_before_its_first_file_can_be_repeated(files, tmp_path):
    (tmp_path / "unfinished").mkdir()
    for name in files:
        (tmp_path / "unfinished" / name).touch()
    require_own_output(str(tmp_path), "corpus", ["corpus.json"], ["corpus", "vocab.txt"])
    (tmp_path / "unfinished" / "essay.txt").touch()
    if not files:
        with pytest.raises(OutputError, match="contains unfinished, which beambert corpus did not write"):
            require_own_output(str(tmp_path), "corpus", ["corpus.json"], ["corpus", "vocab.txt"])


def test_a_vocabulary_is_not_written_into_a_directory_that_was_deleted_meanwhile(tmp_path):
    with pytest.raises(DatasetError, match="removed while the command ran; run the same command again"):
        write_vocabulary(None, [], str(tmp_path / "vocab.txt"), str(tmp_path / "unfinished" / "job.json"))
    assert not list(tmp_path.iterdir())


def test_where_the_filesystem_has_no_locks_the_file_is_the_lock(tmp_path, monkeypatch):
    def no_locks(file, operation):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", no_locks)
    path = tmp_path / LOCK_NAME
    with lock_output(str(tmp_path)):
        held = pytest.raises(OutputError, match=f"process {os.getpid()} .* if that process has ended, delete {path}")
        with held, lock_output(str(tmp_path)):
            pass
        assert path.exists()
    assert not path.exists()
    path.write_text("what is this")
    with pytest.raises(OutputError, match="is in use by another process"), lock_output(str(tmp_path)):
        pass
