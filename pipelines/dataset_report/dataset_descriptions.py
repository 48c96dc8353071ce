"""Write the descriptions of a dataset beside its manifest: the dataset card and croissant.json.

A file of the same name that another program wrote is kept.
"""

from collections.abc import Iterator

from apache_beam.io.filesystems import FileSystems

from beambert.pipelines.dataset import Dataset
from beambert.pipelines.dataset_report import croissant, dataset_card
from beambert.pipelines.io.atomic_files import delete_files, read_bytes, storage_errors, write_text

_RENDERERS = {croissant.FILE_NAME: croissant.render, dataset_card.FILE_NAME: dataset_card.render}
_MARKS = {croissant.FILE_NAME: f'"name": "{croissant.NAME}"', dataset_card.FILE_NAME: dataset_card.MARK}
FILE_NAMES = tuple(_RENDERERS)


def write_missing_descriptions(manifest: Dataset, output: str) -> None:
    """Write the descriptions that do not exist.

    Args:
        manifest: Manifest of the dataset.
        output: The dataset directory, on any Beam filesystem.
    """
    for name, render in _RENDERERS.items():
        path = f"{output}/{name}"
        with storage_errors(path):
            exists = FileSystems.exists(path)
        if not exists:
            write_text(path, render(manifest))


def delete_own_descriptions(output: str) -> None:
    """Delete the descriptions that a stopped job has written; they describe a dataset that does not exist yet."""
    own = [f"{output}/{name}" for name, is_own in _origins(output) if is_own]
    delete_files(own)


def foreign_descriptions(output: str) -> list[str]:
    """Return the names of the descriptions that exist and that beambert did not write."""
    return [name for name, is_own in _origins(output) if not is_own]


def _origins(output: str) -> Iterator[tuple[str, bool]]:
    """Yield the name of every description that exists, and whether beambert wrote it."""
    for name, mark in _MARKS.items():
        try:
            yield name, mark.encode() in read_bytes(f"{output}/{name}")
        except (IsADirectoryError, PermissionError):
            yield name, False
        except (FileNotFoundError, NotADirectoryError):
            continue
