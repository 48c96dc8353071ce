"""Read documents from files, with one module and one reader function per format.

`read_file` opens a file on any Beam filesystem, decompresses it, and passes it to the reader of its format.
CONTRIBUTING.md explains how to add a format. Names are imported on first use, so that `--help` does not wait for Beam.
"""

from typing import TYPE_CHECKING

from beambert_common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from pipelines.errors import SourceError
    from pipelines.sources.documents import Document
    from pipelines.sources.files import ReadOptions
    from pipelines.sources.input_formats import FORMATS
    from pipelines.sources.readers import (
        READERS,
        WITHOUT_LANGUAGES,
        check_file,
        is_one_document,
        read_file,
        recognize_format,
        split_file,
    )
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "SourceError": "pipelines.errors",
            "Document": "pipelines.sources.documents",
            "ReadOptions": "pipelines.sources.files",
            "FORMATS": "pipelines.sources.input_formats",
            "READERS": "pipelines.sources.readers",
            "WITHOUT_LANGUAGES": "pipelines.sources.readers",
            "check_file": "pipelines.sources.readers",
            "is_one_document": "pipelines.sources.readers",
            "read_file": "pipelines.sources.readers",
            "recognize_format": "pipelines.sources.readers",
            "split_file": "pipelines.sources.readers",
        },
    )

__all__ = [
    "FORMATS",
    "READERS",
    "WITHOUT_LANGUAGES",
    "Document",
    "ReadOptions",
    "SourceError",
    "check_file",
    "is_one_document",
    "read_file",
    "recognize_format",
    "split_file",
]
