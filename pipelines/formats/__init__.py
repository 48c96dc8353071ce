"""The input formats: one module per format, and one table of them.

To add a format, write a module with an `InputFormat` that has the name of the format in capitals, and add it to
`FORMATS`.
"""

import functools
import importlib

from beambert.pipelines.formats.input_format import InputFormat

# The module of each format, in the order in which `--input_format auto` recognizes them. A module is imported on first
# use, so that `--help` is fast. The last format accepts every file.
FORMATS = {
    "parquet": "parquet",
    "wikipedia": "wikipedia.dump",
    "wikiextractor": "wikiextractor",
    "warc": "warc",
    "wet": "warc",
    "html": "html",
    "json": "json_values",
    "jsonl": "jsonl",
    "csv": "delimited_text",
    "tsv": "delimited_text",
    "gutenberg": "gutenberg",
    "sentences": "text",
    "bookcorpus": "text",
    "language_reference": "language_reference",
    "text": "text",
}


@functools.cache
def get_format(name: str) -> InputFormat:
    """Return a format by its name, a key of `FORMATS`."""
    module = importlib.import_module(f"{__name__}.{FORMATS[name]}")
    input_format: InputFormat = getattr(module, name.upper())
    return input_format


def reads_files(name: str) -> bool:
    """Return whether a value of --input_format reads files, rather than text that every Python includes."""
    return name == "auto" or get_format(name).reads_files


def recognize(name: str, head: bytes) -> InputFormat:
    """Return the format with which `--input_format auto` reads a file.

    Args:
        name: Name or path of the file.
        head: Its first decompressed bytes, up to 4096.
    """
    from beambert.pipelines.formats.frames import stem_of

    stem = stem_of(name)
    return next(known for known in map(get_format, FORMATS) if known.recognizes(stem, head))
