"""The rule of every output directory: a command writes into a new one, an empty one, or one that it began itself.

A directory is known by the manifest that its command writes there, or, while a data job is under way, by its work
directory. This file imports neither Beam nor TensorFlow.
"""

import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from beambert_common import file_errors
from beambert_common.typed_json import JsonError, decode
from pipelines.errors import OutputError

CORPUS_MANIFEST = "corpus.json"
DATASET_MANIFEST = "dataset.json"
RUN_MANIFEST = "run.json"
RUNS_MANIFEST = "runs.json"
MODEL_MANIFEST = "beambert.json"
# What a data job has begun: completion markers in a folder for each input and set of options, and a file that says so.
WORK_NAME = "unfinished"
WORK_FILE_NAME = "started.json"
LOCK_NAME = "build.lock"

# The entries that each data job writes.
CORPUS_ENTRIES = frozenset({CORPUS_MANIFEST, "corpus", "rejected", "vocab.txt"})
DATASET_ENTRIES = frozenset({DATASET_MANIFEST, "shards", "vocab.txt", "report.html"})
# The first of these files that exists identifies the directory.
_KINDS = (
    (RUNS_MANIFEST, "several fine-tuning runs"),
    (RUN_MANIFEST, "a training run"),
    (DATASET_MANIFEST, "a dataset"),
    (CORPUS_MANIFEST, "a corpus"),
    (MODEL_MANIFEST, "a converted model"),
    ("saved_model.pb", "a SavedModel"),
    ("model.onnx", "an exported model"),
    ("model.tflite", "an exported model"),
    ("model.safetensors", "a Hugging Face model"),
    ("pytorch_model.bin", "a Hugging Face model"),
    ("bert_config.json", "a BERT checkpoint"),
)
_VOUCHED = {CORPUS_MANIFEST: CORPUS_ENTRIES, DATASET_MANIFEST: DATASET_ENTRIES}
_WORK_FOLDER = re.compile(r"[0-9a-f]{24}")
_SHOWN_ENTRIES = 4
_REMEDY = "give a new or empty directory"


def is_work_entry(name: str) -> bool:
    """Return whether an entry of the folder `WORK_NAME` is one that a data job makes there."""
    return name == WORK_FILE_NAME or _WORK_FOLDER.fullmatch(name) is not None


def entries_of(directory: Path) -> set[str]:
    """Return the names in a local directory, those in its `WORK_NAME` folder too, as "unfinished/NAME".

    Hidden files, a file system's own `lost+found` and the lock of a data job are left out.

    Raises:
        OutputError: it is a file, or cannot be listed.
    """
    try:
        names = {path.name for path in directory.iterdir()}
        if WORK_NAME in names and (directory / WORK_NAME).is_dir():
            names |= {f"{WORK_NAME}/{path.name}" for path in (directory / WORK_NAME).iterdir()}
    except FileNotFoundError:
        return set()
    except NotADirectoryError as error:
        file = next(path for path in (directory, *directory.parents) if path.exists())
        problem = f"{directory} is" if file == directory else f"{directory} cannot be written: {file} is"
        raise OutputError(f"{problem} a file; choose another directory") from error
    except OSError as error:
        reason = file_errors.reason_of(error)
        raise OutputError(f"{directory} cannot be listed ({reason}); choose another directory") from error
    if LOCK_NAME in names and _is_lock(directory / LOCK_NAME):
        names.remove(LOCK_NAME)
    return visible_names(names)


def visible_names(names: Iterable[str]) -> set[str]:
    """Return the names of a directory without hidden ones and a file system's own."""
    return {name for name in names if not name.startswith(".") and name != "lost+found"}


def _is_lock(path: Path) -> bool:
    """Return whether a file of that name is the lock of a data job: its holder as JSON, or nothing yet."""
    try:
        with path.open("rb") as file:
            return is_lock(file.read(10_000))
    except OSError:
        return False


def is_lock(content: bytes) -> bool:
    """Return whether the content of a lock file is what a data job writes."""
    try:
        return not content or "process" in decode(content, dict[str, Any])
    except JsonError:
        return False


def kind_of(entries: Collection[str]) -> str | None:
    """Return the kind of a directory with these entries, such as "a dataset (dataset.json)"; None if it is unknown."""
    for name, kind in _KINDS:
        if name in entries:
            return f"{kind} ({name})"
    if any(name.endswith(".ckpt.index") for name in entries):
        return "a BERT checkpoint"
    return None


def require_own(
    label: str, entries: Collection[str], command: str, manifests: Collection[str], writes: Collection[str] = ()
) -> None:
    """Refuse an output directory that holds anything but what this command wrote there.

    Beside the command's own manifest other files may lie, if it replaces none of them.

    Args:
        label: how the flag and its value are called in the message, such as "--output DIR".
        entries: the names in the directory, from `entries_of`.
        command: its name, for the message.
        manifests: the names of the manifests by which a directory is known as the command's own.
        writes: the entries that the command writes, where a manifest of its own does not vouch for all of them.

    Raises:
        OutputError: the directory holds another kind of output, or files of another program.
    """
    foreign = {name for name, _ in _KINDS if name in entries and name not in manifests}
    # A run is a model too, and so has the files of one.
    if RUN_MANIFEST in manifests and RUN_MANIFEST in entries:
        foreign -= {MODEL_MANIFEST, "bert_config.json"}
    if kind := kind_of(foreign):
        raise OutputError(f"{label} holds {kind}, which is not what beambert {command} writes; {_REMEDY}")
    present = [name for name in manifests if name in entries]
    begun = any(name.startswith(f"{WORK_NAME}/") and is_work_entry(name.partition("/")[2]) for name in entries)
    if begun and not _VOUCHED.keys().isdisjoint(manifests):
        return
    if present:
        vouched = frozenset[str]().union(*(_VOUCHED.get(name, frozenset(writes)) for name in present))
        names = set(writes) & set(entries) - vouched
    else:
        names = {name for name in entries if "/" not in name}
    if names:
        raise OutputError(f"{label} holds {listed(sorted(names))}, which beambert {command} did not write; {_REMEDY}")


def listed(names: list[str]) -> str:
    """Return the first names of a directory in words."""
    more = f" and {len(names) - _SHOWN_ENTRIES} more" if len(names) > _SHOWN_ENTRIES else ""
    return ", ".join(names[:_SHOWN_ENTRIES]) + more
