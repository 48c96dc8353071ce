"""Cache of encoded rows in files named by a digest of all inputs."""

import hashlib
import zipfile
from pathlib import Path

import numpy as np

from beambert.common import file_errors
from beambert.common.local_files import open_atomic, remove_unfinished
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.trainers.finetuning.finetuning_task import FinetuningTask, Rows

# Increment when the encoding of rows changes.
_FORMAT = 3
_NUMBERS = ("choices", "truncated", "skipped")


def encode_cached(
    task: FinetuningTask, split: str, tokenizer: Tokenizer, max_seq_length: int, directory: Path | None
) -> Rows:
    """Return the rows of a split from the cache, or encode and cache them.

    Args:
        task: task that has read the split.
        split: name of the split.
        tokenizer: tokenizer of the model.
        max_seq_length: maximum length of a row, in tokens.
        directory: cache directory; None for no cache.
    """
    if directory is None:
        return task.rows(split, tokenizer, max_seq_length)
    parts = (
        str(_FORMAT),
        task.name,
        task.fingerprint(split),
        tokenizer.vocabulary.sha256,
        str(tokenizer.rules),
        str(max_seq_length),
        *map(str, tokenizer.vocabulary.added_tokens),
    )
    digest = hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()
    path = directory / f"{split}-{digest}.npz"
    rows = _read(path)
    if rows is None:
        rows = task.rows(split, tokenizer, max_seq_length)
        _write(path, rows)
    return rows


def fingerprint(rows: Rows) -> str:
    """Return the hex digest of the training data: token ids, segment ids and targets."""
    digest = hashlib.sha256()
    arrays = {"ids": rows.ids, "segment_ids": rows.segment_ids, "row_splits": rows.row_splits, **rows.targets}
    for name, values in sorted(arrays.items()):
        digest.update(f"{name} {values.dtype.str} {values.shape}\n".encode())
        digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()


def _write(path: Path, rows: Rows) -> None:
    arrays = {
        "ids": rows.ids,
        "segment_ids": rows.segment_ids,
        "row_splits": rows.row_splits,
        **{f"target.{name}": values for name, values in rows.targets.items()},
        **{f"extra.{name}": values for name, values in rows.extras.items()},
        "empty": rows.empty,
        **{name: np.array(getattr(rows, name)) for name in _NUMBERS},
    }
    with file_errors.writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_unfinished(path.parent)
        with open_atomic(path) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]


def _read(path: Path) -> Rows | None:
    """Return the cached rows; None where the file is missing or corrupt, so that they are encoded again."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        return Rows(
            arrays["ids"],
            arrays["segment_ids"],
            arrays["row_splits"],
            {name.removeprefix("target."): values for name, values in arrays.items() if name.startswith("target.")},
            **{name: int(arrays[name]) for name in _NUMBERS},
            empty=arrays["empty"],
            extras={name.removeprefix("extra."): arrays[name] for name in arrays if name.startswith("extra.")},
        )
    except (OSError, ValueError, KeyError, EOFError, TypeError, RuntimeError, zipfile.BadZipFile):
        return None
