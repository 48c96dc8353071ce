"""Test objects in an emulator of Cloud Storage: names, checksums, generations, large files."""

import os
from types import SimpleNamespace

import pytest

from beambert.trainers.buckets import cache, objects
from beambert.trainers.buckets.objects import ChangedError
from beambert.trainers.errors import StorageError
from tests.deploy.dataflow.gcp_stand_in import BUCKET


@pytest.fixture
def put(cloud):
    def write(name, content):
        cloud.bucket().blob(name).upload_from_string(content)
        return objects.object_at(f"gs://{BUCKET}/{name}")

    return write


@pytest.mark.parametrize(
    "url",
    [
        "gs://",
        "gs://bucket",
        "gs://bucket/",
        "gs:///a",
        "/a/b",
        "gs://bucket/a/../b",
        "gs://bucket/a//b",
        "gs://../b",
        "gs://./b",
        "gs://a\nb/c",
        "gs://~/c",
        "gs://b/a\nb",
    ],
)
def test_a_url_without_a_safe_name_is_a_one_line_error(url):
    with pytest.raises(StorageError) as error:
        objects.split_url(url)
    assert "\n" not in str(error.value)


def test_objects_below_a_directory_and_of_a_checkpoint(put):
    for name in ("l/a/one", "l/a/b/two", "l/ab/three", "l/a.index", "l/a.data", "l/a/"):
        put(name, "x")
    url = f"gs://{BUCKET}/l/a"
    assert [found.name for found in objects.objects_below(url)] == ["b/two", "one"]
    assert [found.url for found in objects.objects_below(url)] == [f"{url}/b/two", f"{url}/one"]
    assert [found.name for found in objects.objects_starting_with(f"{url}.")] == ["a.data", "a.index"]


@pytest.mark.parametrize("name", ["evil/../../outside", "evil//etc/passwd", "evil/./a", "evil/a\0"])
def test_an_object_whose_name_leaves_the_directory_is_refused(monkeypatch, name):
    """Check with a fake listing, because Cloud Storage allows such names and the emulator does not."""

    class Listing:
        def list_blobs(self, *args, **options):
            return [SimpleNamespace(name=name, size=1, generation=1, crc32c="AAAAAA==")]

    monkeypatch.setattr(objects, "_client", Listing)
    with pytest.raises(StorageError, match=r"gs://b/evil/.* has a part that is not a file name"):
        objects.objects_below("gs://b/evil")


@pytest.mark.parametrize("size", [0, 100, 9 << 20])
def test_a_file_is_the_same_after_an_upload_and_a_download(cloud, tmp_path, size):
    path, content = tmp_path / "a", os.urandom(size)
    path.write_bytes(content)
    url = f"gs://{BUCKET}/round/{size}"
    written = objects.upload(path, url, 0)
    assert cloud.contents("round")[str(size)] == content
    assert written == objects.object_at(url)
    copy = tmp_path / "deep/er/b"
    cache.copy_object(written, copy)
    assert copy.read_bytes() == content
    assert cache.is_current(written, copy)
    copy.write_bytes(content)
    assert not cache.is_current(written, copy)


def test_a_wrong_checksum_is_an_error_and_leaves_no_file(put, tmp_path):
    found = put("sum", "content")
    wrong = found._replace(crc32c="AAAAAA==")
    with pytest.raises(StorageError, match="sum was read with another CRC32C than it has"):
        objects.download(wrong, tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_another_generation_is_neither_read_nor_replaced_nor_deleted(cloud, put, tmp_path):
    old = put("changing", "old")
    new = put("changing", "new")
    path = tmp_path / "a"
    with pytest.raises(ChangedError, match="changing was replaced or deleted while it was read"):
        objects.download(old, path)
    assert objects.read(old) is None
    path.write_text("mine")
    for generation in (0, old.generation):
        with pytest.raises(ChangedError, match="changing was written by another process"):
            objects.upload(path, new.url, generation)
        with pytest.raises(ChangedError, match="changing was written by another process"):
            objects.write(new.url, b"mine", generation)
    objects.delete(new.url, old.generation)
    assert objects.read(new) == b"new"
    objects.delete(new.url, new.generation)
    assert objects.object_at(new.url) is None
    objects.delete(new.url, new.generation)


def test_an_upload_whose_answer_was_lost_is_no_conflict(put, tmp_path):
    there = put("lost", "same")
    path = tmp_path / "a"
    path.write_text("same")
    assert objects.upload(path, there.url, 0) == there


def test_a_missing_bucket_is_a_one_line_error(cloud, tmp_path):
    path = tmp_path / "a"
    path.write_text("x")
    with pytest.raises(StorageError, match=r"^gs://missing/a cannot be written \(.*\); check the network"):
        objects.upload(path, "gs://missing/a", 0)
    with pytest.raises(StorageError, match=r"^gs://missing/a cannot be read"):
        objects.objects_below("gs://missing/a")
