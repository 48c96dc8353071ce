"""Read documents from files, with one module and one reader function per format.

`read_file` opens a file on any Beam filesystem, decompresses it, and passes it to the reader of its format.
CONTRIBUTING.md explains how to add a format. Names are imported on first use, so that `--help` does not wait for Beam.
"""

from typing import TYPE_CHECKING

from beambert.common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from beambert.pipelines.errors import SourceError
    from beambert.pipelines.sources.documents import Document
    from beambert.pipelines.sources.files import ReadOptions
    from beambert.pipelines.sources.input_formats import FORMATS
    from beambert.pipelines.sources.readers import (
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
            "SourceError": "beambert.pipelines.errors",
            "Document": "beambert.pipelines.sources.documents",
            "ReadOptions": "beambert.pipelines.sources.files",
            "FORMATS": "beambert.pipelines.sources.input_formats",
            "READERS": "beambert.pipelines.sources.readers",
            "WITHOUT_LANGUAGES": "beambert.pipelines.sources.readers",
            "check_file": "beambert.pipelines.sources.readers",
            "is_one_document": "beambert.pipelines.sources.readers",
            "read_file": "beambert.pipelines.sources.readers",
            "recognize_format": "beambert.pipelines.sources.readers",
            "split_file": "beambert.pipelines.sources.readers",
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
