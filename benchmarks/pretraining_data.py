"""Measure pretraining data of English Wikipedia: CPU time by stage and command, memory, speed-up of two processes.

    make bench-data
    python benchmarks/pretraining_data.py ../shared/data

Times are CPU seconds (user and system) of all processes, so other load on the machine hardly changes them. Memory is
the proportional set size of a command and its children, sampled four times per second.
"""

import dataclasses
import functools
import json
import os
import shutil
import subprocess
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
from benchmarks.corpus import memory

# google-research/bert's create_pretraining_data.py on the same text with the same options, without start-up.
REFERENCE_CPU_SECONDS_A_MB = 3.7
MAX_CPU_SECONDS_A_MB = REFERENCE_CPU_SECONDS_A_MB / 100
MAX_BYTES_AN_EXAMPLE = 850
MIN_SPEEDUP = 1.85
DUPE_FACTOR = 5
# Long enough that the start of worker processes has little effect.
DUPE_FACTOR_OF_SCALING = 80
_TICKS = os.sysconf("SC_CLK_TCK")


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


@dataclasses.dataclass
class Cost:
    """Cost of a command: CPU seconds of all processes and of each, wall-clock seconds, bytes of memory."""

    cpu: float
    of_processes: list[float]
    seconds: float
    memory: int

    @property
    def longest(self) -> float:
        """Return the CPU seconds of the first process plus its busiest child, a lower bound of the wall-clock time."""
        return self.of_processes[0] + max(self.of_processes[1:], default=0.0)


def tree(process: int) -> list[int]:
    """Return a process and its descendants."""
    try:
        tasks = list(Path(f"/proc/{process}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return [process]
    return [process, *(each for child in children for each in tree(child))]


def cpu_of(process: int) -> float:
    """Return the CPU seconds of a process so far, 0 after its end."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def run(*argv: object) -> Cost:
    """Run a beambert command and measure it."""
    start, before = time.monotonic(), os.times()
    peak, busy = 0, {}
    command = [sys.executable, "-m", "beambert", *map(str, argv)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, memory(process.pid))
            for each in tree(process.pid):
                busy[each] = max(busy.get(each, 0.0), cpu_of(each))
            time.sleep(0.25)
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed with {process.returncode}; run it to see why")
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(cpu, list(busy.values()), time.monotonic() - start, peak)


def main(data: Path) -> None:
    vocab_file = (data / "tokenizer/bert-base-uncased-vocab.txt").resolve()
    texts = (data / "wiki-extracted").resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build = run(
            *("build", "--input", f"{texts}/*.bz2", "--output", folder / "60", "--vocab_file", vocab_file),
            *("--dupe_factor", DUPE_FACTOR),
        )
        first = sorted(texts.glob("*.bz2"))[0]
        run("corpus", "--input", first, "--output", folder / "10", "--vocab_file", vocab_file)
        time_stages(folder / "10", folder / "stages")

        costs, megabytes = {}, {}
        for size in ("10", "60"):
            megabytes[size] = json.loads((folder / size / "corpus.json").read_text())["counts"]["bytes"] / 1e6
            costs[size] = run(
                *("pretraining-data", "--input", folder / size, "--output", folder / f"out{size}"),
                *("--dupe_factor", DUPE_FACTOR),
            )
        slope = (costs["60"].cpu - costs["10"].cpu) / (megabytes["60"] - megabytes["10"])
        print(f"\n{'command':<44}{'CPU s':>8}{'s':>8}{'memory':>10}")
        for label, cost in (
            (f"build, {megabytes['60']:.0f} MB, vocabulary given", build),
            (f"pretraining-data, {megabytes['10']:.0f} MB", costs["10"]),
            (f"pretraining-data, {megabytes['60']:.0f} MB", costs["60"]),
        ):
            print(f"{label:<44}{cost.cpu:8.1f}{cost.seconds:8.1f}{cost.memory / 1e9:7.2f} GB")
        print(
            f"pretraining-data: {slope:.3f} CPU s a MB of text (slope; at most {MAX_CPU_SECONDS_A_MB:.3f}), "
            f"{REFERENCE_CPU_SECONDS_A_MB / slope:.0f} times less than google-research/bert's "
            f"{REFERENCE_CPU_SECONDS_A_MB}"
        )

        print(f"\nfrom one process to two, {megabytes['60']:.0f} MB, {DUPE_FACTOR_OF_SCALING} copies")
        found = []
        for workers in (1, 2):
            output = folder / "scaling"
            flags = ("--dupe_factor", DUPE_FACTOR_OF_SCALING, "--direct_num_workers", workers)
            found.append(run("pretraining-data", "--input", folder / "60", "--output", output, *flags))
            # 11 GB.
            shutil.rmtree(output)
        one, two = found
        print(f"{'processes':<12}{'CPU s':>8}{'longest':>9}{'s':>8}{'memory':>10}")
        for workers, cost in ((1, one), (2, two)):
            print(f"{workers:<12}{cost.cpu:8.1f}{cost.longest:9.1f}{cost.seconds:8.1f}{cost.memory / 1e9:7.2f} GB")
        print(
            f"{one.seconds / two.seconds:.2f} times as fast on the clock (at least {MIN_SPEEDUP}), "
            f"{one.longest / two.longest:.2f} by the CPU seconds of the first process and the busiest other one"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
