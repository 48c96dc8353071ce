"""Measure pretraining data of English Wikipedia: CPU time by stage and command, memory.

    make bench-data
    python benchmarks/pretraining_data.py ../shared/data

Times are CPU seconds (user and system) of all processes, so other load on the machine hardly changes them. Memory is
the proportional set size of a command and its children, sampled four times per second.
"""

import functools
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from beambert.pipelines.corpus import corpus_manifest
from beambert.pipelines.corpus.corpus_manifest import CorpusReader
from beambert.pipelines.examples import pretraining_examples, shards, statistics
from beambert.pipelines.examples.shards import write_shards
from beambert.pipelines.examples.work_items import WorkItem
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.io import atomic_files
from beambert.pipelines.transforms import examples as examples_transform
from beambert.tokenizer.vocabulary import Vocabulary
from benchmarks.corpus import run_command

# A hundredth of google-research/bert's create_pretraining_data.py on an AMD EPYC; `make bench-peers` measures both.
MAX_CPU_SECONDS_A_MB = 0.037
MAX_BYTES_AN_EXAMPLE = 850
DUPE_FACTOR = 5


def time_stages(corpus_directory: Path, output: Path) -> None:
    """Print a row per stage of job 2, run in this process; nested calls count for the inner stage."""
    spent: Counter[str] = Counter()
    running: list[str] = []
    last = time.process_time()

    def charge() -> None:
        nonlocal last
        now = time.process_time()
        spent[running[-1] if running else "the rest"] += now - last
        last = now

    def timed(stage: str, function: Callable) -> Callable:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            charge()
            running.append(stage)
            try:
                return function(*args, **kwargs)
            finally:
                charge()
                running.pop()

        return call

    for owner, name, stage in (
        (examples_transform, "tokenize_shard", "read, tokenise"),
        (pretraining_examples, "sample_instances", "sample"),
        (pretraining_examples, "lay_out", "lay out"),
        (pretraining_examples, "mask_rows", "mask"),
        (statistics.Statistics, "add_instances", "count"),
        (statistics.Statistics, "add_rows", "count"),
        (shards.ShardFile, "write", "encode, checksum"),
        (atomic_files.HashedFile, "write", "write, SHA-256"),
    ):
        setattr(owner, name, timed(stage, getattr(owner, name)))

    corpus = corpus_manifest.load(str(corpus_directory))
    assert corpus
    options = PretrainingDataOptions(dupe_factor=DUPE_FACTOR)
    reader = CorpusReader.open(str(corpus_directory))
    vocabulary = Vocabulary.load(corpus_directory / "vocab.txt")
    train = [part for part in corpus.shards if part.split == "train"]
    spent.clear()
    last = time.process_time()
    made = []
    create_examples = examples_transform._CreateExamplesOfItem(options)
    for part in train:
        item = WorkItem(part, tuple(range(options.dupe_factor)))
        for of_partition in create_examples.process(item, reader, vocabulary):
            made += [write_shards(of_partition, copy, str(output))[0] for copy in item.copies]
    charge()
    examples, size = (sum(getattr(each, name) for shard in made for each in shard) for name in ("examples", "bytes"))
    megabytes = corpus.counts["bytes"] / 1e6
    total = sum(spent.values())
    print(
        f"{megabytes:.1f} MB of text, {DUPE_FACTOR} copies, {examples:,} instances, {size / 1e6:.0f} MB of shards, "
        f"{size / examples:.0f} bytes an example (at most {MAX_BYTES_AN_EXAMPLE})"
    )
    print(f"{'stage':<20}{'CPU s':>8}{'MB of text/s':>14}{'instances/s':>14}{'share':>8}")
    for stage, seconds in [*sorted(spent.items(), key=lambda item: -item[1]), ("all", total)]:
        print(f"{stage:<20}{seconds:8.2f}{megabytes / seconds:14,.1f}{examples / seconds:14,.0f}{seconds / total:8.0%}")


def main(data: Path) -> None:
    vocab_file = (data / "tokenizer/bert-base-uncased-vocab.txt").resolve()
    texts = (data / "wiki-extracted").resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build = run_command(
            *("build", "--input", f"{texts}/*.bz2", "--output", folder / "60", "--vocab_file", vocab_file),
            *("--dupe_factor", DUPE_FACTOR),
        )
        first = sorted(texts.glob("*.bz2"))[0]
        run_command("corpus", "--input", first, "--output", folder / "10", "--vocab_file", vocab_file)
        time_stages(folder / "10", folder / "stages")

        costs, megabytes = [], []
        for size in ("10", "60"):
            megabytes.append(json.loads((folder / size / "corpus.json").read_text())["counts"]["bytes"] / 1e6)
            flags = ("--output", folder / f"out{size}", "--dupe_factor", DUPE_FACTOR)
            costs.append(run_command("pretraining-data", "--input", folder / size, *flags))
        slope = (costs[1][0] - costs[0][0]) / (megabytes[1] - megabytes[0])
        print(f"\n{'command':<44}{'CPU s':>8}{'s':>8}{'memory':>10}")
        for label, (cpu, seconds, peak) in (
            (f"build, {megabytes[1]:.0f} MB, vocabulary given", build),
            (f"pretraining-data, {megabytes[0]:.0f} MB", costs[0]),
            (f"pretraining-data, {megabytes[1]:.0f} MB", costs[1]),
        ):
            print(f"{label:<44}{cpu:8.1f}{seconds:8.1f}{peak / 1e9:7.2f} GB")
        print(f"pretraining-data: {slope:.3f} CPU s per further MB of text (at most {MAX_CPU_SECONDS_A_MB:.3f})")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
