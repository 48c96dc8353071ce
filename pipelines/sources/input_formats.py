"""List the input formats, wikitext extractors and bad-record actions, without importing the readers.

This module imports neither Beam nor pyarrow, so that `--help` is fast.
"""

# Values of --input_format. All but the first are keys of `beambert.pipelines.sources.READERS`.
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
# Values of --wikitext_extractor.
WIKITEXT_EXTRACTORS = ("beambert", "wikiextractor")
