"""Describe the contents of a path that is not a model, for error messages."""

from pathlib import Path

# The first of these entries identifies the directory; the files of data and of exports have fixed names.
_KINDS = (
    ("dataset.json", "is a dataset (dataset.json)"),
    ("corpus.json", "is a corpus (corpus.json)"),
    ("runs.json", "contains several fine-tuning runs (runs.json), each in a subdirectory"),
    ("saved_model.pb", "is a SavedModel (saved_model.pb)"),
    ("model.onnx", "is an exported model (model.onnx)"),
    ("model.tflite", "is an exported model (model.tflite)"),
)
_OTHER = "is a directory with"
_SHOWN_ENTRIES = 4


def contents_of(path: Path) -> str:
    """Return a description of a path, to follow the path in a message.

    Args:
        path: any path, existing or not.

    Returns:
        A text such as "does not exist", "is an empty directory" or "is a dataset (dataset.json)".
    """
    if path.is_file():
        return "is a file"
    try:
        names = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("."))
    except FileNotFoundError:
        return "does not exist"
    except OSError as error:
        return f"cannot be listed ({error.strerror})"
    if not names:
        return "is an empty directory"
    for name, kind in _KINDS:
        if name in names:
            return kind
    more = f" and {len(names) - _SHOWN_ENTRIES} more" if len(names) > _SHOWN_ENTRIES else ""
    return f"{_OTHER} {', '.join(names[:_SHOWN_ENTRIES])}{more}"


def has_other_files(directory: Path) -> bool:
    """Return whether a directory is neither empty nor identified by `contents_of`."""
    return directory.is_dir() and contents_of(directory).startswith(_OTHER)
