"""What grows when the corpus grows: the figures that `beambert plan` reckons with and docs/SCALE.md shows.

    make bench-scale
    PYTHONPATH=. python benchmarks/scale.py ../shared/data [text] [blocks] [buckets] [graph] [runs]

`text`: lengths of documents and sentences, pieces a word by size of vocabulary. `blocks`: bytes through the shuffle by
number of buckets. `buckets`: the largest bucket, simulated. `graph`: bytes of the job that is sent to a cluster.
`runs`: `beambert build` on 10, 40 and 160 MB, time and memory (about 5 minutes; needs 2 GB of disk).
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.corpus import memory
from pipelines.buckets import choose_num_buckets
from pipelines.corpus_options import CorpusOptions
from pipelines.documents import Document
from pipelines.reading import to_record
from pipelines.records import Record, to_block
from pipelines.sources import ReadOptions, read_file
from tokenizer.coverage import coverage
from tokenizer.learner import learn_vocabulary
from tokenizer.normalization import CHARACTER_RULES
from tokenizer.word_counts import count_words, most_frequent

VOCAB_SIZES = (2_000, 4_000, 8_000, 16_000, 30_522, 60_000)
# Characters that a reader holds before they go out as blocks (`pipelines.reading`).
_FLUSH_CHARACTERS = 32 << 20
_BUCKET_BYTES = 64 << 20


def options(num_buckets: int = 1) -> CorpusOptions:
    """Those of `beambert corpus` without flags."""
    return CorpusOptions(
        do_lower_case=True,
        vocab_size=30_000,
        vocab_file="",
        num_unused=0,
        alphabet_limit=1000,
        min_count=1,
        compare_vocab="",
        language_sampling_exponent=1.0,
        character_rules=CHARACTER_RULES,
        read=ReadOptions(),
        language="en",
        segmenter="rules",
        truncation_noise=0.0,
        num_buckets=num_buckets,
        validation_fraction=0.02,
    )


def wikipedia(data: Path) -> Iterator[Document]:
    """The articles of all files."""
    for path in sorted(data.glob("wiki-extracted/*.bz2")):
        yield from read_file(str(path), ReadOptions())


def records_of(data: Path) -> list[Record]:
    """The articles, cleaned and segmented, less those that are left out."""
    records = (to_record(document, options()) for document in wikipedia(data))
    return [record for record in records if not record.reason]


def describe(name: str, values: np.ndarray) -> None:
    """Prints mean and spread of a length; sigma is that of a log-normal distribution."""
    logarithms = np.log(values[values > 0])
    print(
        f"{name:<24} mean {values.mean():10,.1f}  median {np.median(values):9,.1f}  sigma {logarithms.std():.2f}  "
        f"largest {values.max():12,.0f}"
    )


def measure_text(data: Path) -> None:
    """Lengths, and pieces a word by size of vocabulary: learnt on five sixths of the articles, measured on the rest."""
    records = records_of(data)
    sentences = [sentence for record in records for sentence in record.text.split("\n")]
    words = np.array([len(sentence.split()) for sentence in sentences])
    size = sum(len(record.text.encode("utf-8")) for record in records)
    print(f"{len(records):,} documents, {len(sentences):,} sentences, {words.sum():,} words, {size:,} bytes")
    describe("words a sentence", words)
    describe("sentences a document", np.array([record.text.count("\n") + 1 for record in records]))
    describe("bytes a document", np.array([len(record.text.encode("utf-8")) for record in records]))
    learning = [record.text for record in records if record.id[0] % 6]
    held_out = [record.text for record in records if not record.id[0] % 6]
    running = sum(len(text.split()) for text in held_out)
    counts, others = most_frequent(count_words(learning, True), 2_000_000), count_words(held_out, True)
    for vocab_size in VOCAB_SIZES:
        start = time.process_time()
        pieces = learn_vocabulary(counts, vocab_size, 0, 1000)
        measured = coverage(others, set(pieces))
        seconds = time.process_time() - start
        print(
            f"{vocab_size:>8,} pieces: {measured.pieces / running:.4f} a word between blanks, {measured} ({seconds:.0f} s)"
        )


def main(data: Path, parts: list[str]) -> None:
    steps = {"text": measure_text}
    for part in parts or steps:
        print(f"\n{part}")
        steps[part](data)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
