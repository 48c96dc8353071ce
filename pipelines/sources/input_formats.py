"""The formats that commands need for their flags, without importing the readers.

This file imports neither Beam nor pyarrow, so that `--help` does not wait for them.
"""

# Values of --input_format; `pipelines.sources.READERS` has the reader of each but the first.
FORMATS = (
    "auto",
    "sentences",
    "text",
    "bookcorpus",
    "gutenberg",
    "jsonl",
    "json",
    "csv",
    "tsv",
    "parquet",
    "wikiextractor",
    "wikipedia",
    "language_reference",
)
# Values of --on_bad_record.
BAD_RECORD_ACTIONS = ("stop", "skip")
