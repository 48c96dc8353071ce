"""Rehearse a build of a Wikipedia on one machine: dumps of several sizes through both jobs, each killed and resumed.

    make bench-rehearsal SIZES="2000 12000"
    python benchmarks/rehearsal.py ../shared/data FOLDER 2000 12000

Sizes are megabytes of XML. FOLDER keeps the dumps, so that the next run does not write them again. Every size is built
twice: once undisturbed and measured, and once killed with signal 9 in the middle of each job and resumed; the shards
must have the same SHA-256. Two worker processes; masks are drawn by the trainer (`--masking dynamic --dupe_factor 1`).
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from beambert.common.formatting import format_duration
from beambert.deploy.plan.data import plan_data
from beambert.deploy.plan.text_sample import sample_text
from beambert.pipelines.instances.options import PretrainingDataOptions
from benchmarks.corpus import run_command
from benchmarks.wikipedia_dump import write_dump

WORKERS = 2
VOCAB_SIZE = 30_000
# English Wikipedia, 2026: pages-articles-multistream.
WIKIPEDIA_MB = 90_000
MAX_HOURS, MAX_MEMORY = 3, 4e9


class Cost(NamedTuple):
    """What a job took: CPU seconds, seconds, peak bytes of memory of all processes, peak bytes of disk."""

    cpu: float
    seconds: float
    memory: int
    disk: int


def _jobs(dump: Path, output: Path) -> list[list[str]]:
    corpus, shards = str(output / "corpus"), str(output / "shards")
    workers = ["--direct_num_workers", str(WORKERS)]
    examples = ["--masking", "dynamic", "--dupe_factor", "1"]
    return [
        ["corpus", "--input", str(dump), "--output", corpus, "--vocab_size", str(VOCAB_SIZE), *workers],
        ["pretraining-data", "--input", corpus, "--output", shards, *examples, *workers],
    ]


def _disk(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def _measure(job: list[str], folder: Path) -> Cost:
    free = least = _disk(folder)
    done = threading.Event()

    def watch() -> None:
        nonlocal least
        while not done.wait(0.5):
            least = min(least, _disk(folder))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        cpu, seconds, memory = run_command(*job)
    finally:
        done.set()
        thread.join()
    return Cost(cpu, seconds, memory, free - min(least, _disk(folder)))


def _kill_and_resume(job: list[str], seconds: float) -> None:
    """Run a job, kill it after some seconds, and run it again."""
    command = [sys.executable, "-m", "beambert", *job]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
    if process.returncode != -signal.SIGKILL:
        sys.exit(f"{job[0]} ended before it was killed, with {process.returncode}")
    start = time.monotonic()
    run_command(*job)
    print(f"  {job[0]}: killed after {seconds:.0f} s, resumed in {time.monotonic() - start:.0f} s", flush=True)


def _checksums(output: Path) -> list[tuple[str, str]]:
    """Return the names and SHA-256 of the shards of both jobs, and that of the vocabulary."""
    corpus = json.loads((output / "corpus/corpus.json").read_text())
    dataset = json.loads((output / "shards/dataset.json").read_text())
    shards = [(shard["name"], shard["sha256"]) for shard in [*corpus["shards"], *dataset["shards"]]]
    return [*shards, ("vocab.txt", corpus["vocab"]["sha256"])]


def rehearse(dump: Path, megabytes: int, folder: Path) -> tuple[Cost, Cost]:
    """Build a dump twice, and print and return what the jobs took."""
    print(f"\n{megabytes:,} MB of XML, {dump.stat().st_size / 1e6:,.0f} MB as bzip2", flush=True)
    first, second = folder / "first", folder / "second"
    for output in (first, second):
        shutil.rmtree(output, ignore_errors=True)
    text = sample_text([str(dump)], "auto", "text", "en", VOCAB_SIZE, None)
    plan = plan_data(text, [PretrainingDataOptions(masking="dynamic", dupe_factor=1)], VOCAB_SIZE)
    costs = [_measure(job, folder) for job in _jobs(dump, first)]
    for job, cost in zip(_jobs(dump, first), costs, strict=True):
        print(
            f"  {job[0]}: {cost.seconds:.0f} s, {cost.cpu:.0f} CPU s, {cost.memory / 1e9:.2f} GB of memory, "
            f"{cost.disk / 1e9:.2f} GB of disk",
            flush=True,
        )
    corpus = json.loads((first / "corpus/corpus.json").read_text())
    dataset = json.loads((first / "shards/dataset.json").read_text())
    for name, planned, measured in (
        ("bytes of text", text.bytes, corpus["counts"]["bytes"]),
        ("documents", text.documents, sum(corpus["counts"]["documents"].values())),
        ("shard bytes", plan.shard_bytes, sum(shard["bytes"] for shard in dataset["shards"])),
        ("CPU seconds", plan.cpu_seconds, sum(cost.cpu for cost in costs)),
    ):
        print(f"  plan: {name} {planned:,.0f}, measured {measured:,.0f} ({planned / measured - 1:+.1%})", flush=True)
    for job, cost in zip(_jobs(dump, second), costs, strict=True):
        _kill_and_resume(job, cost.seconds / 2)
    print("  same bytes" if _checksums(first) == _checksums(second) else "  OTHER BYTES", flush=True)
    shutil.rmtree(first)
    shutil.rmtree(second)
    return costs[0], costs[1]


def estimate(sizes: list[int], costs: list[tuple[Cost, Cost]]) -> None:
    """Print the time of English Wikipedia, by the slope between the smallest and the largest size."""
    seconds = [sum(cost.seconds for cost in jobs) for jobs in costs]
    slope = (seconds[-1] - seconds[0]) / (sizes[-1] - sizes[0])
    total = seconds[-1] + slope * (WIKIPEDIA_MB - sizes[-1])
    memory = max(cost.memory for jobs in costs for cost in jobs)
    print(
        f"\n{1000 * slope:.1f} s per GB of XML; {WIKIPEDIA_MB / 1000:.0f} GB: {seconds[-1]:.0f} s + {slope:.4f} s x "
        f"{WIKIPEDIA_MB - sizes[-1]:,} = {format_duration(total)} (at most {MAX_HOURS} h), largest memory so far "
        f"{memory / 1e9:.2f} GB (at most {MAX_MEMORY / 1e9:.0f} GB)"
    )


def main(data: Path, folder: Path, sizes: list[int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    costs = []
    for size in sorted(sizes):
        dump = folder / f"wikipedia-{size}.xml.bz2"
        if not dump.exists():
            part = dump.with_suffix(".part")
            write_dump(data / "wiki-dump", part, size * 10**6)
            part.rename(dump)
        costs.append(rehearse(dump, size, folder))
    if len(costs) > 1:
        estimate(sorted(sizes), costs)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), [int(size) for size in sys.argv[3:]])
