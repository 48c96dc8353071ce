"""Measure the quantities that grow with the corpus, for `beambert plan` and docs/benchmarks/scale.md.

    make bench-scale
    python benchmarks/scale.py ../shared/data [text] [blocks] [partitions] [graph] [manifests] [table] [runs]

`text`: lengths of documents and sentences, tokens per word by vocabulary size. `blocks`: bytes shuffled by number of
partitions. `partitions`: the largest partition, simulated. `graph`: bytes of the request to a cluster. `manifests`:
corpus.json and dataset.json of 1 TB. `table`: estimates of `beambert plan`, from 10 MB to 10 TB. `runs`: both jobs on
10, 40 and 160 MB, time and memory (about 2 minutes; needs 2 GB of disk).
"""

import argparse
import dataclasses
import functools
import hashlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from beambert.common.formatting import format_duration
from beambert.common.word_rules import WordRules
from beambert.deploy.plan.data import CPU_FACTOR, largest_partition, plan_data, plan_dataflow
from beambert.deploy.plan.estimate_lines import count, size
from beambert.deploy.plan.text_estimate import estimate_text
from beambert.pipelines.commands import corpus as corpus_flags
from beambert.pipelines.commands.corpus_run import corpus_options
from beambert.pipelines.corpus.blocks import to_block
from beambert.pipelines.corpus.options import CorpusOptions
from beambert.pipelines.documents import Document, choose_num_partitions, partition_of
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.sources.readers import read_file
from beambert.pipelines.transforms.documents import corpus_step
from beambert.tokenizer.learner import count_words, learn_vocabulary, most_frequent
from beambert.tokenizer.wordpiece import coverage
from benchmarks.corpus import run_command
from benchmarks.job_size import measure_graph, measure_manifests

VOCAB_SIZES = (2_000, 4_000, 8_000, 16_000, 30_522, 60_000)
# Characters that a reader holds before they go out as blocks (`beambert.pipelines.transforms.partitions`).
_FLUSH_CHARACTERS = 32 << 20
# Sizes of the table in docs/benchmarks/scale.md, in bytes of text.
SIZES = (10e6, 100e6, 1e9, 10e9, 100e9, 1e12, 10e12)
# Of documents on web pages, in bytes.
_PAGE_BYTES = 4000


def options() -> CorpusOptions:
    """Those of `beambert corpus` without flags."""
    parser = argparse.ArgumentParser()
    corpus_flags.add_arguments(parser)
    return corpus_options(parser.parse_args(["--output", "-"]), [])


def wikipedia(data: Path) -> Iterator[Document]:
    """The articles of all files."""
    for path in sorted(data.glob("wiki-extracted/*.bz2")):
        yield from read_file(str(path), ReadOptions())


@functools.cache
def documents_of(data: Path) -> list[Document]:
    """The articles, cleaned and segmented, less those that are left out."""
    return [document for document in map(corpus_step(options()), wikipedia(data)) if not document.rejected]


def describe(name: str, values: np.ndarray) -> None:
    """Prints mean and spread of a length; sigma is that of a log-normal distribution."""
    logarithms = np.log(values[values > 0])
    print(
        f"{name:<24} mean {values.mean():10,.1f}  median {np.median(values):9,.1f}  sigma {logarithms.std():.2f}  "
        f"largest {values.max():12,.0f}"
    )


def measure_text(data: Path) -> None:
    """Print lengths, and tokens per word for each vocabulary size.

    The vocabularies are learned on five sixths of the articles and measured on the rest.
    """
    documents = documents_of(data)
    sentences = [sentence for document in documents for sentence in document.sentences]
    words = np.array([len(sentence.split()) for sentence in sentences])
    size = sum(len(document.text.encode("utf-8")) for document in documents)
    print(f"{len(documents):,} documents, {len(sentences):,} sentences, {words.sum():,} words, {size:,} bytes")
    describe("words a sentence", words)
    describe("sentences a document", np.array([document.num_sentences for document in documents]))
    describe("bytes a document", np.array([len(document.text.encode("utf-8")) for document in documents]))
    learning = [document.text for document in documents if int(document.id[:2], 16) % 6]
    validation = [document.text for document in documents if not int(document.id[:2], 16) % 6]
    running = sum(len(text.split()) for text in validation)
    counts, others = most_frequent(count_words(learning, WordRules()), 2_000_000), count_words(validation, WordRules())
    for vocab_size in VOCAB_SIZES:
        start = time.process_time()
        vocabulary = learn_vocabulary(counts, vocab_size, 0, 1000)
        measured = coverage(others, set(vocabulary))
        seconds = time.process_time() - start
        a_word = measured.tokens / running
        print(f"{vocab_size:>8,} tokens: {a_word:.4f} per word between blanks, {measured} ({seconds:.0f} s)")


def pages_of(documents: list[Document]) -> list[Document]:
    """The articles cut into documents of about 4 kB, such as web pages have."""
    pages = []
    for document in documents:
        sentences: list[str] = []
        for number, sentence in enumerate(document.sentences):
            sentences.append(sentence)
            if sum(map(len, sentences)) >= _PAGE_BYTES:
                text = "\n".join(sentences)
                identity = hashlib.blake2b(f"{number} {text}".encode(), digest_size=16).hexdigest()
                pages.append(dataclasses.replace(document, id=identity, paragraphs=[text]))
                sentences = []
    return pages


def measure_blocks(data: Path) -> None:
    """Bytes that go through the shuffle for a byte of text, by number of partitions, and how many blocks they are."""
    articles = documents_of(data)
    for name, documents in (("articles", articles), ("pages of 4 kB", pages_of(articles))):
        text = sum(len(document.text.encode("utf-8")) for document in documents)
        for total in (100e6, *SIZES[3:]):
            partitions = choose_num_partitions(round(total))
            sizes = []
            held: dict[int, list[Document]] = {}
            characters = 0
            for document in documents:
                held.setdefault(partition_of(bytes.fromhex(document.id), partitions), []).append(document)
                characters += len(document.text)
                if characters > _FLUSH_CHARACTERS:
                    sizes += [len(to_block(some)) for some in held.values()]
                    held, characters = {}, 0
            sizes += [len(to_block(some)) for some in held.values()]
            print(
                f"{name:<14} {partitions:>8,} partitions: {sum(sizes) / text:.3f} bytes a byte of text, {len(sizes):,} "
                f"blocks of {len(documents):,} documents"
            )


def size_classes(name: str, data: Path) -> tuple[np.ndarray, np.ndarray]:
    """Sizes of documents and the share of each: float64 [C] both.

    "articles": as measured. "pages": log-normal, 4 kB on average, sigma 1.5. "heavy": Pareto with index 1.2, 4 kB on
    average, up to 100 MB. "books": the files of Project Gutenberg.
    """
    quantiles = (np.arange(100) + 0.5) / 100
    if name == "articles":
        sizes = np.array([len(document.text.encode("utf-8")) for document in documents_of(data)], np.float64)
    elif name == "books":
        sizes = np.array([path.stat().st_size for path in data.glob("gutenberg/*.txt")], np.float64)
    elif name == "pages":
        normal = np.random.default_rng(20181011).standard_normal(100_000)
        sizes = np.exp(1.5 * normal)
        sizes *= _PAGE_BYTES / sizes.mean()
    else:
        # Finer towards the largest, which decide.
        tail = 1 - np.concatenate([quantiles, 1 - np.geomspace(4e-3, 1e-9, 100)])
        order = np.argsort(-tail)
        least = _PAGE_BYTES * 0.2 / 1.2
        sizes = np.minimum(least * tail[order] ** (-1 / 1.2), 100e6)
        return sizes, -np.diff(np.append(tail[order], 0.0))
    # Means of classes of documents in order of size.
    classes = np.array([some.mean() for some in np.array_split(np.sort(sizes), min(200, len(sizes)))])
    return classes, np.full(len(classes), 1 / len(classes))


def simulate_partitions(data: Path) -> None:
    """The largest partition: documents of each size fall on partitions by hash, so their number in one is Poisson's."""
    for name in ("articles", "pages", "heavy", "books"):
        sizes, shares = size_classes(name, data)
        mean = float(sizes @ shares)
        rng = np.random.default_rng(20181011)
        for total in SIZES:
            partitions = choose_num_partitions(round(total))
            largest = 0.0
            for first in range(0, partitions, 2000):
                number = min(2000, partitions - first)
                drawn = rng.poisson(total / mean / partitions * shares, (number, len(shares)))  # [partitions, classes]
                largest = max(largest, float((drawn @ sizes).max()))
            text = estimate_text(total, mean, 30_000, "")
            text = dataclasses.replace(text, document_bytes=rng.choice(sizes, 100_000, p=shares / shares.sum()))
            print(
                f"{name:<9} {total:8.0e} bytes, {total / mean:14,.0f} documents: {partitions:>8,} partitions of "
                f"{total / partitions / 1e6:5.1f} MB, largest {largest / 1e6:6.1f} MB; plan expects "
                f"{largest_partition(text, partitions) / 1e6:6.1f} MB"
            )


def table(data: Path) -> None:  # noqa: ARG001
    """Print the table of docs/benchmarks/scale.md: the plan of web pages, with 10 copies of 128 positions."""
    option = PretrainingDataOptions()
    for total in SIZES:
        plan = plan_data(estimate_text(total, _PAGE_BYTES, 30_000, ""), [option], 30_000)
        dataflow = plan_dataflow(plan, None, CPU_FACTOR)
        shown = (
            size(total),
            count(total / _PAGE_BYTES),
            f"{plan.partitions:,}",
            size(plan.largest_partition),
            size(plan.partition_memory),
            f"{plan.files:,}",
            size(plan.shard_bytes),
            size(plan.shuffle_bytes),
            f"{dataflow.workers}",
            format_duration(3600 * dataflow.hours),
            f"{plan.cpu_seconds / 3600:,.1f}",
        )
        print(f"| {' | '.join(shown)} |")


def write_texts(data: Path, folder: Path, megabytes: int) -> None:
    """JSON lines of so much text, none of it twice: articles, books, then articles with paragraphs of two others."""
    documents = list(wikipedia(data))
    texts = ["\n".join(document.paragraphs) for document in documents]
    for path in sorted(data.glob("gutenberg/*.txt")):
        read = read_file(str(path), ReadOptions(document_unit="chapter"))
        texts += ["\n".join(document.paragraphs) for document in read]
    for shift in range(1, 4):
        others = documents[7 * shift :] + documents[: 7 * shift]
        texts += [
            "\n".join(one.paragraphs[::2] + other.paragraphs[1::2])
            for one, other in zip(documents, others, strict=True)
        ]
    wanted, number = megabytes * 1e6, 0
    while wanted > 0:
        with (folder / f"{number:03d}.jsonl").open("w", encoding="utf-8") as file:
            while wanted > 0 and file.tell() < 4e6:
                text = texts.pop(0)
                wanted -= len(text.encode("utf-8"))
                file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
        number += 1


def measure_runs(data: Path) -> None:
    """Both jobs on 10, 40 and 160 MB: CPU seconds, time, memory."""
    vocab_file = (data / "tokenizer/bert-base-uncased-vocab.txt").resolve()
    with tempfile.TemporaryDirectory() as name:
        for megabytes in (10, 40, 160):
            folder, output = Path(name) / f"texts{megabytes}", Path(name) / f"out{megabytes}"
            folder.mkdir()
            write_texts(data, folder, megabytes)
            corpus = run_command(
                "corpus", "--input", f"{folder}/*.jsonl", "--output", output, "--vocab_file", vocab_file
            )
            shards = Path(name) / "shards"
            pretraining = run_command("pretraining-data", "--input", output, "--output", shards, "--dupe_factor", 5)
            counts = json.loads((output / "corpus.json").read_text())["counts"]
            size = sum(path.stat().st_size for path in (output / "corpus").iterdir())
            print(
                f"{counts['bytes'] / 1e6:6.1f} MB of text, {sum(counts['documents'].values()):,} documents, Parquet "
                f"{size / counts['bytes']:.3f} of it"
            )
            for job, (cpu, seconds, peak) in (("corpus", corpus), ("pretraining-data", pretraining)):
                print(f"  {job:<17} CPU {cpu:6.1f} s, {seconds:6.1f} s on the clock, {peak / 1e9:.2f} GB")
            shutil.rmtree(shards)


def main(data: Path, parts: list[str]) -> None:
    steps: dict[str, Callable[[Path], None]] = {
        "text": measure_text,
        "blocks": measure_blocks,
        "partitions": simulate_partitions,
        "graph": lambda _: measure_graph(options()),
        "manifests": lambda _: measure_manifests(),
        "table": table,
        "runs": measure_runs,
    }
    for part in parts or steps:
        print(f"\n{part}", flush=True)
        steps[part](data)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
