"""Measure time and memory of `beambert corpus` on 60 and 600 MB of English Wikipedia, and the speed-up of both jobs.

    make bench-corpus
    python benchmarks/corpus.py ../shared/data

Memory is the proportional set size of the command and its children, sampled five times per second.
"""

import bz2
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COPIES = 10
# Targets, for a core of the machine on which the job took 0.14 to 0.19 before (docs/benchmarks/data.md).
MAX_CPU_SECONDS_A_MB, MIN_SPEEDUP = 0.07, 1.85
_DOCUMENT = re.compile(r'<doc [^>]*title="([^"]*)"[^>]*>\n(.*?)</doc>', re.DOTALL)


def articles(data: Path) -> list[tuple[str | None, ...]]:
    """Return (title, text) of the articles of WikiExtractor's output."""
    return [
        match.groups()
        for path in sorted(data.glob("wiki-extracted/*.bz2"))
        for match in _DOCUMENT.finditer(bz2.decompress(path.read_bytes()).decode("utf-8"))
    ]


def write_copies(data: Path, folder: Path) -> None:
    """Write one JSON Lines file per copy; an added line in each document keeps copies from being duplicates."""
    texts = articles(data)
    for copy in range(COPIES):
        with (folder / f"{copy}.jsonl").open("w", encoding="utf-8") as file:
            for title, text in texts:
                line = {"title": title, "text": f"This is copy number {copy} of the article.\n{text}"}
                file.write(json.dumps(line) + "\n")


def memory(process: int) -> int:
    """Return the proportional set size of a process and its descendants in bytes."""
    try:
        rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
        own = sum(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))
        tasks = Path(f"/proc/{process}/task").iterdir()
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return 0
    return own + sum(map(memory, children))


def run_command(command: str, *flags: object) -> tuple[float, float, int]:
    """Run a beambert command; return CPU seconds, seconds, and peak bytes of it and its children."""
    start, before = time.monotonic(), os.times()
    argv = [sys.executable, "-m", "beambert", command, *map(str, flags)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        peak = 0
        while process.poll() is None:
            peak = max(peak, memory(process.pid))
            time.sleep(0.2)
    if process.returncode:
        sys.exit(process.returncode)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return cpu, time.monotonic() - start, peak


def print_cost(job: str, workers: int, cost: tuple[float, float, int], megabytes: float) -> None:
    """Print a row of the table."""
    cpu, seconds, peak = cost
    print(
        f"{job:<17} {workers} process(es), {megabytes:4.0f} MB of text: {seconds:6.1f} s, CPU {cpu:6.1f} s, "
        f"{peak / 1e9:.2f} GB",
        flush=True,
    )


def main(data: Path) -> None:
    vocab_file = (data / "tokenizer/bert-base-uncased-vocab.txt").resolve()
    cpu_seconds, megabytes, seconds = [], [], {1: 0.0, 2: 0.0}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_copies(data, folder)
        for files, workers in (("0", 1), ("*", 1), ("*", 2)):
            corpus = folder / f"corpus-{len(megabytes)}"
            flags = ("--output", corpus, "--vocab_file", vocab_file, "--direct_num_workers", workers)
            cost = run_command("corpus", "--input", f"{folder}/{files}.jsonl", *flags)
            megabytes.append(json.loads((corpus / "corpus.json").read_text())["counts"]["bytes"] / 1e6)
            print_cost("corpus", workers, cost, megabytes[-1])
            cpu_seconds.append(cost[0])
            if files == "0":
                continue
            shards = folder / "shards"
            flags = ("--output", shards, "--dupe_factor", 5, "--direct_num_workers", workers)
            of_examples = run_command("pretraining-data", "--input", corpus, *flags)
            print_cost("pretraining-data", workers, of_examples, megabytes[-1])
            seconds[workers] = cost[1] + of_examples[1]
            shutil.rmtree(shards)  # 7 GB.
    slope = (cpu_seconds[1] - cpu_seconds[0]) / (megabytes[1] - megabytes[0])
    print(f"corpus: {slope:.3f} CPU s per further MB (at most {MAX_CPU_SECONDS_A_MB})")
    print(f"two processes: {seconds[1] / seconds[2]:.2f} times as fast in both jobs (at least {MIN_SPEEDUP})")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
