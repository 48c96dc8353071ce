"""Measure both jobs on corpora of unusual shape: many small files, one huge document, short documents, partitions.

    make bench-extremes
    python benchmarks/extremes.py ../shared/data [small_files] [large_document] [sentences] [partitions]

Each shape is built at a quarter of its size and in full, with one process; `growth` is the ratio of the CPU seconds,
which is at most that of the sizes. The sentences are those of English Wikipedia, with a number that makes each unique.
"""

import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.corpus import articles, run_command

QUARTER = 4


def _sentences(data: Path) -> Iterator[str]:
    """Yield an endless number of sentences, none of them twice."""
    lines = [
        line
        for _, text in articles(data)
        for line in (text or "").split(". ")
        if 40 < len(line) < 400 and line[0].isalpha()
    ]
    for number, line in enumerate(itertools.cycle(lines)):
        yield f"{line}, number {number}.".replace("\n", " ")


def _small_files(data: Path, folder: Path, size: int) -> str:
    """100,000 files of two sentences, in 100 folders."""
    sentences = _sentences(data)
    for number in range(size):
        path = folder / f"{number % 100:02d}" / f"{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{next(sentences)} {next(sentences)}\n", encoding="utf-8")
    return f"{folder}/*/*.txt"


def _large_document(data: Path, folder: Path, size: int) -> str:
    """One text file of 500 MB, in paragraphs of five sentences."""
    sentences = _sentences(data)
    with (folder / "one.txt").open("w", encoding="utf-8") as file:
        while file.tell() < size:
            file.write(" ".join(itertools.islice(sentences, 5)) + "\n\n")
    return f"{folder}/one.txt"


def _one_sentence_documents(data: Path, folder: Path, size: int) -> str:
    """2 million JSON lines of one sentence."""
    with (folder / "sentences.jsonl").open("w", encoding="utf-8") as file:
        for sentence in itertools.islice(_sentences(data), size):
            file.write(json.dumps({"text": sentence}) + "\n")
    return f"{folder}/*.jsonl"


def _many_partitions(data: Path, folder: Path, size: int) -> str:  # noqa: ARG001
    """60 MB of articles in 3,000 partitions."""
    with (folder / "articles.jsonl").open("w", encoding="utf-8") as file:
        for title, text in articles(data):
            file.write(json.dumps({"title": title, "text": text}) + "\n")
    return f"{folder}/*.jsonl"


class Shape(NamedTuple):
    """A shape of corpus.

    Attributes:
        write: writes the input of a size into a folder, and returns its pattern.
        size: the full size.
        corpus: flags of the corpus job; SIZE stands for the size.
        examples: flags of the pretraining-data job.
    """

    write: Callable[[Path, Path, int], str]
    size: int
    corpus: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()


SHAPES = {
    "small_files": Shape(_small_files, 100_000),
    # Its sentences differ in their numbers only, and pairs need two documents.
    "large_document": Shape(_large_document, 500_000_000, ("--skip_rules", "repeated_ngrams"), ("--objective", "mlm")),
    "sentences": Shape(_one_sentence_documents, 2_000_000),
    "partitions": Shape(_many_partitions, 3_000, ("--num_partitions", "SIZE")),
}


def main(data: Path, names: list[str]) -> None:
    vocab_file = (data / "tokenizer/bert-base-uncased-vocab.txt").resolve()
    for name in names or SHAPES:
        shape = SHAPES[name]
        print(f"\n{(shape.write.__doc__ or '').rstrip('.')}", flush=True)
        before: dict[str, float] = {}
        for size in (shape.size // QUARTER, shape.size):
            with tempfile.TemporaryDirectory() as directory:
                folder, corpus = Path(directory) / "input", Path(directory) / "corpus"
                folder.mkdir()
                pattern = shape.write(data, folder, size)
                flags = [str(size) if flag == "SIZE" else flag for flag in shape.corpus]
                jobs = {
                    "corpus": ["--input", pattern, "--output", corpus, "--vocab_file", vocab_file, *flags],
                    "pretraining-data": [
                        *("--input", corpus, "--output", Path(directory) / "shards"),
                        *("--masking", "dynamic", "--dupe_factor", "1", *shape.examples),
                    ],
                }
                for job, arguments in jobs.items():
                    cpu, seconds, memory = run_command(job, *arguments)
                    growth = f", growth {cpu / before[job]:.1f}" if job in before else ""
                    before[job] = cpu
                    print(
                        f"  {size:>11,} {job:<17}{seconds:7.1f} s {cpu:7.1f} CPU s {memory / 1e9:5.2f} GB{growth}",
                        flush=True,
                    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
