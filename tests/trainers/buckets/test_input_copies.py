"""Test inputs in an emulator of Cloud Storage: files that are copied once, and shards that are copied when read."""

import json
import shutil

import pytest

from beambert.pipelines import dataset
from beambert.trainers.buckets import cache as bucket_cache
from beambert.trainers.buckets import dataset_copies, input_copies
from beambert.trainers.data.pipeline import train_batches
from beambert.trainers.data.shard_reader import check_sizes, verify
from beambert.trainers.errors import StorageError
from beambert.trainers.optimization.schedule import Stage
from tests.deploy.dataflow.gcp_stand_in import BUCKET


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def lines():
    return []


def put(cloud, names, content="x"):
    for name in names:
        cloud.bucket().blob(name).upload_from_string(content)


def test_a_file_is_copied_once_and_again_when_it_changed(cloud, lines):
    put(cloud, ["texts/a.txt"], "one")
    url = f"gs://{BUCKET}/texts/a.txt"
    path = input_copies.fetch(url, lines.append)
    assert path.read_text() == "one"
    assert lines == [f"Copying gs://{BUCKET}/texts/: 1 of 1 files, 0.0 MB"]
    assert input_copies.fetch(url, lines.append) == path
    assert len(lines) == 1
    put(cloud, ["texts/a.txt"], "two")
    assert input_copies.fetch(url, lines.append).read_text() == "two"
    assert bucket_cache.with_urls(f"{path} is bad") == f"{url} is bad"


def test_a_copied_directory_equals_the_current_one_in_the_bucket(cloud, lines):
    put(cloud, ["model/a", "model/sub/b", "model2/c"])
    path = input_copies.fetch(f"gs://{BUCKET}/model/", lines.append)
    assert files(path) == {"a": b"x", "sub/b": b"x"}
    cloud.bucket().blob("model/a").delete()
    put(cloud, ["model/sub/b"], "new")
    assert files(input_copies.fetch(f"gs://{BUCKET}/model", lines.append)) == {"sub/b": b"new"}


def test_the_incomplete_files_of_another_command_are_kept(cloud, lines):
    put(cloud, ["shared/a"])
    path = input_copies.fetch(f"gs://{BUCKET}/shared", lines.append)
    for name in (".b.0123abcd.unfinished", "old"):
        (path / name).write_text("x")
    put(cloud, ["shared/b"])
    input_copies.fetch(f"gs://{BUCKET}/shared", lines.append)
    assert files(path).keys() == {"a", "b", ".b.0123abcd.unfinished"}


def test_a_directory_replaces_a_file_of_the_same_name_and_back(cloud, lines):
    put(cloud, ["kind"])
    assert input_copies.fetch(f"gs://{BUCKET}/kind", lines.append).is_file()
    cloud.bucket().blob("kind").delete()
    put(cloud, ["kind/a"])
    assert files(input_copies.fetch(f"gs://{BUCKET}/kind", lines.append)) == {"a": b"x"}
    cloud.bucket().blob("kind/a").delete()
    put(cloud, ["kind"])
    assert input_copies.fetch(f"gs://{BUCKET}/kind", lines.append).is_file()


def test_only_the_used_checkpoints_of_a_run_are_copied(cloud, lines):
    parts = ("index", "data-00000-of-00001", "state.json")
    names = [f"run/checkpoints/model.ckpt-{step}.{part}" for step in (10, 20, 30) for part in parts]
    # The data of an incomplete checkpoint.
    names += ["run/checkpoints/model.ckpt-40.data-00000-of-00001", "run/run.json", "run/logs/events"]
    put(cloud, names)
    put(cloud, ["run/beambert.json"], json.dumps({"steps": 20}))
    path = input_copies.fetch(f"gs://{BUCKET}/run", lines.append)
    used = {f"checkpoints/model.ckpt-{step}.{part}" for step in (20, 30) for part in parts}
    assert files(path).keys() == used | {"run.json", "beambert.json"}


def test_a_checkpoint_comes_with_the_files_that_describe_it(cloud, lines):
    names = ["bert/bert_model.ckpt.index", "bert/bert_model.ckpt.data-00000-of-00001", "bert/vocab.txt"]
    put(cloud, [*names, "bert/bert_config.json", "bert/other.bin", "bert/deep/vocab.txt"])
    path = input_copies.fetch(f"gs://{BUCKET}/bert/bert_model.ckpt", lines.append)
    assert files(path.parent).keys() == {name.removeprefix("bert/") for name in names} | {"bert_config.json"}
    put(cloud, ["r/checkpoints/model.ckpt-5.index", "r/vocab.txt", "r/run.bin"])
    path = input_copies.fetch(f"gs://{BUCKET}/r/checkpoints/model.ckpt-5", lines.append)
    assert files(path.parent.parent).keys() == {"checkpoints/model.ckpt-5.index", "vocab.txt"}


def test_a_missing_input_is_a_one_line_error(cloud, lines):
    put(cloud, ["texts/a.txt", "part.data"])
    for name in ("texts/b.txt", "text", "part"):
        with pytest.raises(StorageError, match=f"^gs://{BUCKET}/{name} does not exist; check the path"):
            input_copies.fetch(f"gs://{BUCKET}/{name}", lines.append)


@pytest.fixture
def in_bucket(cloud, built, lines):
    """A dataset in the bucket: the local directory of its copy, and its manifest."""
    if not cloud.contents("data"):
        cloud.upload(built, "data")
    directory = input_copies.fetch(f"gs://{BUCKET}/data", lines.append)
    return directory, dataset.load(directory)


def batches(directory, manifest):
    shards = [shard for shard in manifest.shards if shard.split == "train"]
    steps = sum(shard.examples for shard in shards) // 4
    stages = [Stage(data=0, batch_size=4, first_step=0, end_step=steps, first_example=0)]
    return [
        {name: value.tobytes() for name, value in batch.items()}
        for batch in train_batches(directory, manifest, stages, 0, 1)
    ]


def test_shards_are_copied_when_they_are_read_within_the_limit_of_the_disk(in_bucket, built, monkeypatch):
    directory, manifest = in_bucket
    assert not (directory / "shards").exists()
    check_sizes(directory, manifest.shards)
    assert not (directory / "shards").exists()
    sizes = [shard.bytes for shard in manifest.shards]
    limit = 2 * max(sizes)
    monkeypatch.setenv("BEAMBERT_CACHE_GB", str(limit / 1e9))
    assert batches(directory, manifest) == batches(built, dataset.load(built))
    verify(directory, manifest)
    kept = [path.stat().st_size for path in (directory / "shards").iterdir()]
    assert 0 < sum(kept) <= limit < sum(sizes)


def test_the_shard_that_was_used_longest_ago_is_removed_first(in_bucket, monkeypatch):
    directory, manifest = in_bucket
    first, second, third = (shard for shard in manifest.shards[:3])
    monkeypatch.setenv("BEAMBERT_CACHE_GB", str((first.bytes + second.bytes + third.bytes - 1) / 1e9))
    for shard in (first, second, first, third):
        dataset_copies.shard_path(directory, shard.name)
    names = {str(path.relative_to(directory)) for path in (directory / "shards").iterdir()}
    assert names == {first.name, third.name}


def test_a_shard_that_is_missing_or_was_replaced_in_the_bucket_is_named(cloud, built, lines):
    cloud.upload(built, "broken")
    url = f"gs://{BUCKET}/broken"
    directory = input_copies.fetch(url, lines.append)
    manifest = dataset.load(directory)
    name = manifest.shards[0].name
    put(cloud, [f"broken/{name}"], "other")
    with pytest.raises(StorageError, match=f"{url}/{name} was replaced or deleted while it was read"):
        dataset_copies.shard_path(directory, name)
    cloud.bucket().blob(f"broken/{name}").delete()
    directory = input_copies.fetch(url, lines.append)
    with pytest.raises(dataset.DatasetError, match="is missing, but listed in the manifest"):
        check_sizes(directory, manifest.shards)


def test_a_shard_that_another_process_removes_is_copied_again(in_bucket, monkeypatch):
    directory, manifest = in_bucket
    shard = manifest.shards[0]
    dataset_copies.shard_path(directory, shard.name)
    is_current, removed = bucket_cache.is_current, []

    def removing(found, path):
        current = is_current(found, path)
        if current and not removed:
            removed.append(path)
            path.unlink()
        return current

    monkeypatch.setattr(bucket_cache, "is_current", removing)
    assert dataset_copies.shard_path(directory, shard.name).stat().st_size == shard.bytes
    assert removed


def test_a_shard_that_other_processes_always_remove_is_a_one_line_error(in_bucket, monkeypatch):
    directory, manifest = in_bucket
    copy_object = bucket_cache.copy_object

    def removed(found, path):
        copy_object(found, path)
        path.unlink()

    monkeypatch.setattr(bucket_cache, "copy_object", removed)
    with pytest.raises(StorageError, match=r"other processes remove .* while it is copied; give .* BEAMBERT_CACHE_GB"):
        dataset_copies.shard_path(directory, manifest.shards[0].name)


def test_a_limit_above_any_disk_is_no_limit(in_bucket, monkeypatch):
    directory, manifest = in_bucket
    monkeypatch.setenv("BEAMBERT_CACHE_GB", "1e300")
    shutil.rmtree(directory / "shards", ignore_errors=True)
    assert dataset_copies.shard_path(directory, manifest.shards[0].name).exists()


@pytest.mark.parametrize("value", ["0", "-1", "many", "nan", "inf"])
def test_an_invalid_limit_is_a_one_line_error(in_bucket, monkeypatch, value):
    directory, manifest = in_bucket
    monkeypatch.setenv("BEAMBERT_CACHE_GB", value)
    shutil.rmtree(directory / "shards", ignore_errors=True)
    with pytest.raises(StorageError, match=f"BEAMBERT_CACHE_GB '{value}' is not a number above 0"):
        dataset_copies.shard_path(directory, manifest.shards[0].name)


def test_a_local_dataset_is_read_where_it_is(built, monkeypatch):
    monkeypatch.chdir(built)
    from pathlib import Path

    name = dataset.load(".").shards[0].name
    assert dataset_copies.shard_path(Path(), name) == Path(name)
    assert dataset_copies.shard_size(Path(), name) == Path(name).stat().st_size
