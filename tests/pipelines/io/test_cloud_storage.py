"""Test commands on gs:// with an emulator of Cloud Storage: locks, atomic writes, leftovers and repair."""

import gc
import json
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow
import pyarrow.parquet
import pytest

from beambert import cli
from beambert.pipelines.errors import DatasetError, OutputError, SourceError
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.io.atomic_files import read_bytes, write_atomically, write_text
from beambert.pipelines.io.output_directory import CORPUS_ENTRIES, CORPUS_MANIFEST, LOCK_NAME
from beambert.pipelines.runner.job_output import (
    begin_work,
    delete_work,
    lock_output,
    require_own_output,
    require_writable,
    work_directory,
)
from beambert.pipelines.sources.files import match_files, require_unchanged
from beambert.pipelines.sources.readers import read_file
from tests.conftest import SMALL
from tests.deploy.dataflow.gcp_stand_in import BUCKET


def test_a_file_is_whole_or_absent(cloud):
    path = f"gs://{BUCKET}/files/a.txt"
    write_text(path, "first")
    with suppress(RuntimeError), write_atomically(path) as file:
        file.write(b"half")
        raise RuntimeError("stopped")
    assert cloud.contents("files") == {"a.txt": b"first"}
    write_text(path, "second")
    assert cloud.contents("files") == {"a.txt": b"second"}
    with pytest.raises(FileNotFoundError):
        read_bytes(f"gs://{BUCKET}/files/b.txt")


def test_only_the_work_directory_is_deleted(cloud):
    output = f"gs://{BUCKET}/work"
    work = work_directory(output, ["x"]).removeprefix(f"{output}/")
    for name in (f"{work}/y/note.json", f"{work}/note.json", "unfinished/essay.txt", "unfinished-not/a", "corpus/a"):
        write_text(f"{output}/{name}", "x")
    begin_work(output, "corpus")
    delete_work(output)
    assert cloud.contents("work").keys() == {"unfinished/essay.txt", "unfinished-not/a", "corpus/a"}
    delete_work(output)


def test_an_output_with_somebody_elses_files_is_refused(cloud):
    output = f"gs://{BUCKET}/theirs"
    claim = (output, "corpus", (CORPUS_MANIFEST,), CORPUS_ENTRIES)
    require_own_output(*claim)
    begin_work(output, "corpus")
    write_text(f"{output}/corpus/a.parquet", "x")
    with lock_output(output):
        require_own_output(*claim)
    delete_work(output)
    with pytest.raises(OutputError, match="theirs contains corpus, which beambert corpus did not write"):
        require_own_output(*claim)
    write_text(f"{output}/run.json", "{}")
    with pytest.raises(OutputError, match=r"contains a training run \(run.json\)"):
        require_own_output(*claim)


def test_a_bucket_that_is_not_there_is_one_line(cloud):
    with pytest.raises(DatasetError, match="--output gs://no-such-bucket/x cannot be written"):
        require_writable("gs://no-such-bucket/x")
    with pytest.raises(DatasetError, match="--output gs://no-such-bucket/x cannot be written"):
        lock_output("gs://no-such-bucket/x").__enter__()


def test_a_write_that_failed_is_not_tried_again_when_its_file_is_collected(cloud):
    """Test that the collection, in any thread, does not repeat the write, which could leave an unknown object."""
    with pytest.raises(OSError, match="404"):
        write_text("gs://made-later/a.txt", "x")
    cloud.make_bucket("made-later")
    gc.collect()
    write_text("gs://made-later/b.txt", "x")
    assert cloud.contents("", "made-later").keys() == {"b.txt"}


def test_a_prefix_is_no_input(cloud):
    write_text(f"gs://{BUCKET}/texts/a.txt", "Some text.")
    with pytest.raises(SourceError, match=rf"texts is a directory; .*'gs://{BUCKET}/texts/\*'"):
        match_files([f"gs://{BUCKET}/texts"])
    with pytest.raises(SourceError, match="no-texts matches no files"):
        match_files([f"gs://{BUCKET}/no-texts"])


def test_ranges_of_parquet_in_a_bucket(cloud, tmp_path):
    table = pyarrow.table({"text": [f"Text {number}." for number in range(90)]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=10)
    path = f"gs://{BUCKET}/parquet/a.parquet"
    with write_atomically(path) as file:
        file.write((tmp_path / "a.parquet").read_bytes())
    cut = pyarrow.parquet.read_metadata(tmp_path / "a.parquet").row_group(4).column(0).data_page_offset
    parts = [list(read_file(path, ReadOptions(), *edges)) for edges in ((0, cut), (cut, None))]
    assert [[document.line for document in part] for part in parts] == [[*range(1, 41)], [*range(41, 91)]]


def test_an_object_that_changes_while_it_is_read_is_named(cloud):
    path = f"gs://{BUCKET}/changing/a.txt"
    write_text(path, "Some text.")
    for pattern in (path, f"gs://{BUCKET}/changing/*"):
        (found,) = match_files([pattern])
        require_unchanged(found.path, found.size_in_bytes, found.last_updated_in_seconds)
    write_text(path, "Other text")
    with pytest.raises(SourceError, match=r"changing/a.txt changed while the job read it"):
        require_unchanged(found.path, found.size_in_bytes, found.last_updated_in_seconds)
    cloud.bucket().blob("changing/a.txt").delete()
    with pytest.raises(SourceError, match=r"changing/a.txt is missing"):
        require_unchanged(found.path, found.size_in_bytes, found.last_updated_in_seconds)


def test_a_lost_shard_is_made_again_in_the_bucket(cloud, built, tmp_path, capsys):
    """Test the embedded engine with input and output in the bucket: the repaired directory is as before."""
    data = tmp_path / "data"
    shutil.copytree(built, data)
    cloud.upload(data, "repaired")
    before = cloud.contents("repaired")
    lost = next(name for name in before if name.startswith("shards/train"))
    cloud.bucket().blob(f"repaired/{lost}").delete()
    output = f"gs://{BUCKET}/repaired"
    flags = SMALL[2:4]
    assert cli.main(["pretraining-data", "--input", output, "--output", output, *flags]) == 0
    assert "rebuilding 1 missing or truncated of 10 shards" in capsys.readouterr().out
    assert cloud.contents("repaired") == before


@pytest.mark.slow
def test_array_record_shards_are_written_to_the_bucket_and_read_from_it(cloud, built, tmp_path, capsys):
    pytest.importorskip("array_record")
    output = f"gs://{BUCKET}/array-record"
    argv = ["pretraining-data", "--input", str(built), "--format", "array_record", "--dupe_factor", "1", "--output"]
    assert cli.main([*argv, output]) == 0
    assert cli.main([*argv, str(tmp_path / "data")]) == 0
    local = {str(path.relative_to(tmp_path / "data")): path.read_bytes() for path in tmp_path.glob("data/shards/*")}
    remote = cloud.contents("array-record")
    assert {name: content for name, content in remote.items() if name.startswith("shards/")} == local
    assert len(local) == 4
    assert cli.main(["inspect", output, "--number", "3"]) == 0
    assert "→MASK]" in capsys.readouterr().out


ROUNDS, AT_ONCE = 8, 4


def test_of_several_threads_one_holds_the_output(cloud):
    barrier = threading.Barrier(AT_ONCE)

    def build(number):
        barrier.wait()
        try:
            with lock_output(f"gs://{BUCKET}/threads/{number}"):
                barrier.wait()
                return True
        except OutputError as error:
            barrier.wait()
            return str(error)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        for number in range(ROUNDS):
            answers = list(threads.map(build, [number] * AT_ONCE))
            refused = [answer for answer in answers if answer is not True]
            assert len(refused) == AT_ONCE - 1, answers
            assert all(f"is in use by process {os.getpid()} on" in answer for answer in refused)
    assert cloud.contents("threads") == {}


def test_a_lock_that_another_took_meanwhile_is_not_deleted(cloud):
    output = f"gs://{BUCKET}/taken"
    with lock_output(output):
        # The error message recommends this if the process has ended.
        cloud.bucket().blob(f"taken/{LOCK_NAME}").delete()
        other = lock_output(output)
        other.__enter__()
    assert cloud.contents("taken").keys() == {LOCK_NAME}
    with suppress(OutputError):
        other.__exit__(None, None, None)
    assert cloud.contents("taken") == {}


def test_a_request_that_is_repeated_after_its_answer_was_lost_holds_the_output(cloud, monkeypatch):
    from google.cloud.storage import Blob

    upload = Blob.upload_from_string

    def twice(blob, *args, **options):
        upload(blob, *args, **options)
        upload(blob, *args, **options)

    monkeypatch.setattr(Blob, "upload_from_string", twice)
    with lock_output(f"gs://{BUCKET}/repeated"):
        assert json.loads(cloud.contents("repeated")[LOCK_NAME])["process"] == os.getpid()
    assert cloud.contents("repeated") == {}
