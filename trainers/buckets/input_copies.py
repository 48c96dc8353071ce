"""Copy inputs from buckets to the cache directory: files, directories, checkpoints and the manifests of datasets.

The shards of a dataset are copied when they are read (`beambert.trainers.buckets.dataset_copies`).
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from beambert.bert_model.checkpoints import native
from beambert.common.typed_json import JsonError, decode
from beambert.pipelines.io.output_directory import RUN_MANIFEST
from beambert.trainers.buckets import cache, dataset_copies, objects
from beambert.trainers.buckets.objects import BucketObject
from beambert.trainers.errors import StorageError

_CHECKPOINT = re.compile(r"((?:.*/)?model\.ckpt)-(\d+)\.(?:index|data-\d{5}-of-\d{5}|state\.json)")
# Directories of a run that no command reads as an input.
_UNUSED = ("logs/", "features/")
# Files beside a checkpoint that describe it, such as vocab.txt and bert_config.json.
_DESCRIPTIONS = (".json", ".txt")
_MAX_DESCRIPTION = 10_000_000


def fetch(url: str, show: Callable[[str], None]) -> Path:
    """Copy an input to the cache, unless the copy there is current, and return the path of the copy.

    Args:
        url: URL of an object, of a directory, or of a checkpoint without `.index`.
        show: called with a line to print before a copy starts.

    Raises:
        StorageError: there is no such input, or it cannot be read.
        FileError: the copy cannot be written.
    """
    url = url.rstrip("/")
    path = cache.input_path(url)
    found = objects.object_at(url)
    if found is not None:
        _copy([found._replace(name=path.name)], path.parent, show)
        return path
    listed = objects.objects_below(url)
    if listed:
        _fetch_directory(url, path, listed, show)
        return path
    parts = objects.objects_starting_with(f"{url}.")
    if not any(part.name == f"{path.name}.index" for part in parts):
        raise StorageError(f"{url} does not exist; check the path with gcloud storage ls")
    parent, local = url.rpartition("/")[0], path.parent
    _copy([*parts, *_descriptions(parent)], local, show)
    if local.name == native.CHECKPOINTS_NAME and "/" in parent.removeprefix(objects.SCHEME):
        _copy(_descriptions(parent.rpartition("/")[0]), local.parent, show)
    return path


def _fetch_directory(url: str, path: Path, listed: Sequence[BucketObject], show: Callable[[str], None]) -> None:
    """Copy a directory, and remove files of its former content; of a dataset, leave out the shards."""
    if path.is_file():
        path.unlink()
    by_name = {found.name: found for found in listed}
    records = [by_name[name] for name in (dataset_copies.MANIFEST, native.FILE_NAME) if name in by_name]
    _copy(records, path, show)
    shards = dataset_copies.shard_names(path) if dataset_copies.MANIFEST in by_name else frozenset()
    wanted = [found for found in _needed(listed, path) if found.name not in shards]
    kept = {found.name for found in wanted} | shards
    for old in sorted(path.rglob("*")) if path.is_dir() else []:
        # Hidden files may be incomplete copies of another command.
        if old.is_file() and not old.name.startswith(".") and str(old.relative_to(path)) not in kept:
            old.unlink(missing_ok=True)
    _copy(wanted, path, show)
    dataset_copies.write_list(url, path, [found for found in listed if found.name in shards])


def _needed(listed: Sequence[BucketObject], path: Path) -> list[BucketObject]:
    """Return the objects of a directory that a command reads: of a run, those of the model's checkpoint and the last.

    Args:
        listed: the objects.
        path: local directory, which has the record of the model.
    """
    try:
        steps = decode((path / native.FILE_NAME).read_bytes(), dict[str, object]).get("steps")
    except (FileNotFoundError, JsonError):
        steps = None
    complete: dict[str, set[int]] = {}
    for found in listed:
        if (match := _CHECKPOINT.fullmatch(found.name)) and found.name.endswith(".index"):
            complete.setdefault(match[1], set()).add(int(match[2]))
    is_run = any(found.name == RUN_MANIFEST for found in listed)
    needed = []
    for found in listed:
        match = _CHECKPOINT.fullmatch(found.name)
        if match and int(match[2]) not in (steps, max(complete.get(match[1], {-1}))):
            continue
        if is_run and found.name.startswith(_UNUSED):
            continue
        needed.append(found)
    return needed


def _descriptions(directory: str) -> list[BucketObject]:
    return [
        found
        for found in objects.objects_starting_with(f"{directory}/")
        if found.name.endswith(_DESCRIPTIONS) and found.size <= _MAX_DESCRIPTION
    ]


def _copy(wanted: Sequence[BucketObject], directory: Path, show: Callable[[str], None]) -> None:
    """Copy the objects whose copies are not current to a directory, several at a time."""
    old = [found for found in wanted if not cache.is_current(found, directory / found.name)]
    if not old:
        return
    size = sum(found.size for found in old)
    show(f"Copying {cache.with_urls(f'{directory}/')}: {len(old)} of {len(wanted)} files, {size / 1e6:,.1f} MB")
    cache.copy_objects(old, directory)
