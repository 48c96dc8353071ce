"""Test outputs in an emulator of Cloud Storage: order of uploads, deletions, resuming, locks."""

import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from beambert.pipelines.errors import OutputError
from beambert.pipelines.io.output_directory import LOCK_NAME, lock_content
from beambert.trainers.buckets import cache as bucket_cache
from beambert.trainers.buckets import objects, output_copy, output_lock
from beambert.trainers.buckets.objects import ChangedError
from beambert.trainers.buckets.output_copy import BackgroundUploads, OutputCopy
from tests.deploy.dataflow.gcp_stand_in import BUCKET


def write(folder, **contents):
    for name, text in contents.items():
        path = folder / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def checkpoint(folder, step):
    for part in ("data-00000-of-00001", "state.json", "index"):
        path = folder / "checkpoints" / f"model.ckpt-{step}.{part}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{step} {part}")


@pytest.fixture
def run(cloud, tmp_path, request):
    """A URL that no other test uses, its local directory, and a function that returns its downloaded `OutputCopy`."""
    url = f"gs://{BUCKET}/{request.node.name}"
    path = bucket_cache.output_path(url)
    path.parent.mkdir(parents=True)

    def start(show=lambda _: None):
        copy = OutputCopy(url, path)
        copy.download(show)
        return copy

    return url, path, start


def names(cloud, url):
    return cloud.contents(url.removeprefix(f"gs://{BUCKET}/")).keys()


def test_an_index_is_uploaded_after_its_data_and_deleted_before_it(cloud, run, monkeypatch):
    url, path, start = run
    requests = []
    upload, delete = objects.upload, objects.delete
    monkeypatch.setattr(objects, "upload", lambda file, to, old: (requests.append(f"+{to}"), upload(file, to, old))[1])
    monkeypatch.setattr(objects, "delete", lambda to, old: (requests.append(f"-{to}"), delete(to, old))[1])
    copy = start()
    write(path, run_DOT_json="r", metrics_DOT_jsonl="m", beambert_DOT_json="b", build_DOT_lock="l", logs__events="e")
    # A run with a checkpoint resumes with this configuration.
    write(path, bert_config_DOT_json="c")
    checkpoint(path, 1)
    assert copy.upload()
    first = [name.removeprefix(f"+{url}/") for name in requests]
    assert first[0] == "run.json"
    assert first[-2:] == ["checkpoints/model.ckpt-1.index", "beambert.json"]
    assert names(cloud, url) == {path.removeprefix("./") for path in first}
    assert "build.lock" not in first

    requests.clear()
    checkpoint(path, 2)
    for old in path.glob("checkpoints/model.ckpt-1.*"):
        old.unlink()
    copy.upload()
    deleted = [name for name in requests if name[0] == "-"]
    assert deleted[0] == f"-{url}/checkpoints/model.ckpt-1.index"
    assert len(deleted) == 3
    assert requests.index(deleted[0]) > requests.index(f"+{url}/checkpoints/model.ckpt-2.index")


def test_only_what_changed_is_uploaded(cloud, run, monkeypatch):
    url, path, start = run
    copy = start()
    write(path, a="1", b="2")
    # The files are older than the few seconds in which a file may change again with the same time.
    for file in path.iterdir():
        os.utime(file, (1_000_000_000, 1_000_000_000))
    copy.upload()
    uploads = []
    upload = objects.upload
    monkeypatch.setattr(objects, "upload", lambda file, to, old: (uploads.append(to), upload(file, to, old))[1])
    copy.upload()
    assert uploads == []
    write(path, b="22")
    copy.upload()
    assert uploads == [f"{url}/b"]
    assert cloud.contents(url.removeprefix(f"gs://{BUCKET}/"))["b"] == b"22"


def test_a_run_continues_on_another_machine(cloud, run):
    _, path, start = run
    copy = start()
    write(path, a="1", sub__b="2")
    copy.upload()
    shutil.rmtree(bucket_cache.cache_directory())
    lines = []
    path.parent.mkdir(parents=True)
    start(lines.append)
    assert (path / "a").read_text() + (path / "sub/b").read_text() == "12"
    assert lines == [f"Copying {run[0]}: 2 files, 0.0 MB"]


def test_local_changes_are_kept_if_the_bucket_did_not_change(cloud, run):
    url, path, start = run
    copy = start()
    write(path, a="1")
    copy.upload()
    write(path, a="11", c="3")
    copy = start()
    assert (path / "a").read_text() + (path / "c").read_text() == "113"
    copy.upload()
    assert names(cloud, url) == {"a", "c"}


def test_the_bucket_takes_precedence_after_another_machine_continued(cloud, run):
    url, path, start = run
    copy = start()
    write(path, a="1", sub__b="2")
    copy.upload()
    cloud.bucket().blob(f"{url.removeprefix(f'gs://{BUCKET}/')}/a").upload_from_string("theirs")
    cloud.bucket().blob(f"{url.removeprefix(f'gs://{BUCKET}/')}/sub/b").delete()
    write(path, c="3")
    start()
    assert {str(file.relative_to(path)) for file in path.rglob("*")} == {"a"}
    assert (path / "a").read_text() == "theirs"


def test_a_file_that_a_cleaner_of_caches_removed_is_not_deleted_in_the_bucket(cloud, run):
    url, path, start = run
    copy = start()
    write(path, a="1", b="2")
    copy.upload()
    (path / "a").unlink()
    start().upload()
    assert names(cloud, url) == {"a", "b"}


def test_an_object_of_another_process_is_neither_replaced_nor_deleted(cloud, run):
    url, path, start = run
    copy = start()
    write(path, a="1")
    copy.upload()
    folder = url.removeprefix(f"gs://{BUCKET}/")
    cloud.bucket().blob(f"{folder}/theirs").upload_from_string("x")
    cloud.bucket().blob(f"{folder}/a").upload_from_string("theirs")
    write(path, a="12")
    with pytest.raises(ChangedError, match="/a was written by another process"):
        copy.upload()
    (path / "a").unlink()
    copy.upload()
    assert cloud.contents(folder) == {"a": b"theirs", "theirs": b"x"}


def test_checkpoints_are_uploaded_in_the_background(cloud, run, monkeypatch):
    url, path, start = run
    monkeypatch.setattr(output_copy, "_POLL_SECONDS", 0.05)
    warnings = []
    with BackgroundUploads(start(), path, 3600, warnings.append):
        checkpoint(path, 1)
        end = time.monotonic() + 30
        while "checkpoints/model.ckpt-1.index" not in names(cloud, url) and time.monotonic() < end:
            time.sleep(0.05)
    assert "checkpoints/model.ckpt-1.index" in names(cloud, url)
    assert warnings == []


def test_a_failed_upload_in_the_background_is_one_warning_and_is_tried_again(cloud, run, monkeypatch):
    url, path, start = run
    monkeypatch.setattr(output_copy, "_POLL_SECONDS", 0.02)
    upload, fail = objects.upload, threading.Event()
    fail.set()

    def failing(file, to, old):
        if fail.is_set():
            raise objects.StorageError(f"{to} cannot be written")
        return upload(file, to, old)

    monkeypatch.setattr(objects, "upload", failing)
    warnings = []
    with BackgroundUploads(start(), path, 0.02, warnings.append):
        write(path, a="1")
        time.sleep(0.5)
        fail.clear()
        end = time.monotonic() + 30
        while not names(cloud, url) and time.monotonic() < end:
            time.sleep(0.05)
    assert names(cloud, url) == {"a"}
    assert warnings == [f"{url}/a cannot be written; the next upload tries again"]


@pytest.fixture
def fast(monkeypatch):
    monkeypatch.setattr(output_lock, "HEARTBEAT_SECONDS", 0.1)
    monkeypatch.setattr(output_lock, "ABANDONED_SECONDS", 1.0)
    monkeypatch.setattr(output_lock, "_POLL_SECONDS", 0.05)


def test_an_output_in_use_is_refused_while_its_holder_lives(cloud, run, fast):
    url, _, _ = run
    lines = []
    with output_lock.lock_output("--output o", url, lines.append):
        time.sleep(0.3)
        with (
            pytest.raises(OutputError, match=r"--output o is in use by process \d+ on .*; wait for it"),
            output_lock.lock_output("--output o", url, lines.append),
        ):
            pass
        assert names(cloud, url) == {"build.lock"}
    assert names(cloud, url) == set()
    assert lines == [f"{url}/build.lock is locked; waiting 1 s for a sign of its holder"]


def test_the_lock_of_a_killed_process_is_replaced(cloud, run, fast):
    url, _, _ = run
    folder, killed = url.removeprefix(f"gs://{BUCKET}/"), lock_content()
    cloud.bucket().blob(f"{folder}/build.lock").upload_from_string(killed)
    lines = []
    with output_lock.lock_output("--output o", url, lines.append):
        assert cloud.contents(folder)["build.lock"] != killed.encode()
    assert len(lines) == 1
    assert names(cloud, url) == set()


def test_another_object_with_the_name_of_the_lock_stays(cloud, run, fast):
    url, _, _ = run
    folder = url.removeprefix(f"gs://{BUCKET}/")
    cloud.bucket().blob(f"{folder}/build.lock").upload_from_string("mine")
    message = rf"--output o contains build.lock, which is not a lock of beambert; .* delete {url}/build.lock$"
    with pytest.raises(OutputError, match=message), output_lock.lock_output("--output o", url, lambda _: None):
        pass
    assert cloud.contents(folder) == {"build.lock": b"mine"}


def test_a_lock_that_another_process_took_is_left_alone(cloud, run, fast):
    url, _, _ = run
    blob = cloud.bucket().blob(f"{url.removeprefix(f'gs://{BUCKET}/')}/build.lock")
    with output_lock.lock_output("--output o", url, lambda _: None):
        blob.upload_from_string("theirs")
        time.sleep(0.4)
    assert cloud.contents(url.removeprefix(f"gs://{BUCKET}/")) == {"build.lock": b"theirs"}


def test_a_lock_is_written_again_after_errors_of_the_network(cloud, run, fast, monkeypatch):
    url, _, _ = run
    object_at, errors = objects.object_at, []

    def lost(path, content, generation):
        raise ChangedError(f"{path} was written by another process")

    def failing(path):
        errors.append(path)
        raise objects.StorageError(f"{path} cannot be read")

    with output_lock.lock_output("--output o", url, lambda _: None):
        before = object_at(f"{url}/build.lock").generation
        with monkeypatch.context() as patch:
            patch.setattr(objects, "write", lost)
            patch.setattr(objects, "object_at", failing)
            time.sleep(0.5)
        assert errors
        end = time.monotonic() + 10
        while object_at(f"{url}/build.lock").generation == before and time.monotonic() < end:
            time.sleep(0.05)
        assert object_at(f"{url}/build.lock").generation != before


def test_an_output_within_another_one_keeps_its_local_files(cloud, run):
    url, path, start = run
    start()
    inner_path = path / "x"
    inner_path.parent.mkdir(exist_ok=True)
    inner = OutputCopy(f"{url}/x", inner_path)
    inner.download(lambda _: None)
    write(inner_path, sub__saved="1")
    inner.upload()
    write(inner_path, unsaved="2")
    write(path, other="3")
    cloud.bucket().blob(f"{url.removeprefix(f'gs://{BUCKET}/')}/theirs").upload_from_string("x")
    start()
    assert (inner_path / "unsaved").read_text() == "2"
    assert bucket_cache.state_path(inner_path).exists()
    assert not (path / "other").exists()


def test_objects_that_no_upload_has_are_not_deleted(cloud, run):
    url, path, start = run
    folder = url.removeprefix(f"gs://{BUCKET}/")
    theirs = (".gitkeep", "notes.unfinished", "x/build.lock", "model.ckpt-9.data-00000-of-00001")
    for name in theirs:
        cloud.bucket().blob(f"{folder}/{name}").upload_from_string("theirs")
    copy = start()
    write(path, a="1")
    copy.upload()
    assert names(cloud, url) == {"a", *theirs}
    # A new process reads the list of objects of the last one.
    write(path, a="12")
    copy = start()
    assert (path / "a").read_text() == "12"
    copy.upload()
    assert names(cloud, url) == {"a", *theirs}


def test_an_incomplete_checkpoint_that_the_command_removed_is_deleted(cloud, run):
    url, path, start = run
    data = "checkpoints/model.ckpt-1.data-00000-of-00001"
    cloud.bucket().blob(f"{url.removeprefix(f'gs://{BUCKET}/')}/{data}").upload_from_string("1")
    copy = start()
    copy.upload()
    assert names(cloud, url) == {data}
    (path / data).unlink()
    write(path, a="1")
    copy.upload()
    assert names(cloud, url) == {"a"}


def test_a_run_neither_copies_nor_uploads_the_run_within_it(cloud, run):
    url, path, start = run
    folder = url.removeprefix(f"gs://{BUCKET}/")
    for name in ("run.json", "export/config.json", "x/run.json", "x/checkpoints/model.ckpt-1.index"):
        cloud.bucket().blob(f"{folder}/{name}").upload_from_string("1")
    copy = start()
    assert {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()} == {
        "run.json",
        "export/config.json",
    }
    write(path, run_DOT_json="12", x__run_DOT_json="ours")
    copy.upload()
    assert cloud.contents(folder) == {
        "run.json": b"12",
        "export/config.json": b"1",
        "x/run.json": b"1",
        "x/checkpoints/model.ckpt-1.index": b"1",
    }


def test_several_runs_in_one_output_are_copied_and_uploaded(cloud, run):
    url, path, start = run
    folder = url.removeprefix(f"gs://{BUCKET}/")
    for name in ("runs.json", "seed-1/run.json"):
        cloud.bucket().blob(f"{folder}/{name}").upload_from_string("1")
    copy = start()
    (path / "seed-1/run.json").write_text("12")
    copy.upload()
    assert cloud.contents(folder) == {"runs.json": b"1", "seed-1/run.json": b"12"}


def test_an_output_within_another_one_is_left_to_its_own_command(cloud, run):
    url, path, start = run
    inner_path = path / "x"
    inner_path.parent.mkdir(exist_ok=True)
    inner = OutputCopy(f"{url}/x", inner_path)
    inner.download(lambda _: None)
    write(inner_path, saved="1")
    inner.upload()
    write(inner_path, saved="12", unsaved="2")
    copy = start()
    assert (inner_path / "saved").read_text() == "12"
    (inner_path / "saved").unlink()
    write(path, other="3")
    copy.upload()
    assert cloud.contents(url.removeprefix(f"gs://{BUCKET}/")) == {"x/saved": b"1", "other": b"3"}
    write(inner_path, saved="12")
    inner.upload()
    assert names(cloud, url) == {"x/saved", "x/unsaved", "other"}


def test_local_changes_are_kept_after_an_output_within_this_one_began(cloud, run):
    url, path, start = run
    copy = start()
    write(path, a="1", x__b="1")
    copy.upload()
    write(path, a="12")
    OutputCopy(f"{url}/x", path / "x").download(lambda _: None)
    start()
    assert (path / "a").read_text() == "12"


def test_an_upload_has_whole_checkpoints_and_nothing_half_written(cloud, run):
    url, path, start = run
    copy = start()
    checkpoint(path, 10)
    checkpoint(path / "seed-2", 7)
    # A checkpoint being removed, a checkpoint being written, a file being written, and the lock.
    write(path, checkpoints__model_DOT_ckpt="", run_DOT_json="{}")
    (path / "checkpoints/model.ckpt-5.data-00000-of-00001").touch()
    checkpoint(path / "checkpoints/.unfinished", 20)
    for name in (".run.json.unfinished", "model.unfinished", LOCK_NAME):
        (path / name).touch()
    copy.upload()
    parts = ("data-00000-of-00001", "state.json", "index")
    assert names(cloud, url) == {
        *(f"checkpoints/model.ckpt-10.{part}" for part in parts),
        *(f"seed-2/checkpoints/model.ckpt-7.{part}" for part in parts),
        *("checkpoints/model.ckpt", "run.json"),
    }


def test_a_checkpoint_that_is_removed_while_it_is_linked_is_left_out(cloud, run, monkeypatch):
    url, path, start = run
    copy = start()
    checkpoint(path, 5)
    checkpoint(path, 6)
    link = Path.hardlink_to

    def link_and_remove(new, part):
        link(new, part)
        if part.name == "model.ckpt-5.index":
            for removed in part.parent.glob("model.ckpt-5.*"):
                removed.unlink()

    monkeypatch.setattr(Path, "hardlink_to", link_and_remove)
    copy.upload()
    parts = ("data-00000-of-00001", "state.json", "index")
    assert names(cloud, url) == {f"checkpoints/model.ckpt-6.{part}" for part in parts}


def test_a_file_that_changes_again_at_the_same_time_and_size_is_uploaded_again(cloud, run):
    url, path, start = run
    copy = start()
    for text in ("1", "2"):
        write(path, best_DOT_json=text)
        now = time.time()
        os.utime(path / "best.json", (now, int(now)))
        copy.upload()
        assert cloud.contents(url.removeprefix(f"gs://{BUCKET}/")) == {"best.json": text.encode()}
