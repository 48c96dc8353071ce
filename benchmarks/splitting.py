"""Measure the reading of one large file by one and two workers: the reading and cleaning stage of `beambert corpus`.

    make bench-splitting
    python benchmarks/splitting.py ../shared/data

The input is one JSON lines file of 500 MB, English Wikipedia, plain and as frames of zstandard. The stage begins when
the command starts, and ends with the completion marker of the last file split; then the command is interrupted. Other
programs on the machine add much to wall time and little to CPU time, so the CPU seconds of the busiest process are
printed too.
"""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import zstandard

from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.sources.readers import split_file
from benchmarks.corpus import articles

BYTES = 500_000_000
FRAME_BYTES = 4_000_000
RUNS = (1, 2, 1, 2)
_MARKER = re.compile(r"[0-9a-f]{24}\.json")
_TICKS = os.sysconf("SC_CLK_TCK")


def write_input(data: Path, path: Path) -> None:
    """Write one JSON lines file of `BYTES`; an added line in each document keeps copies from being duplicates."""
    texts = articles(data)
    size = 0
    with path.open("w", encoding="ascii") as file:
        for copy in itertools.count():
            for title, text in texts:
                line = {"title": title, "text": f"This is copy number {copy} of the article.\n{text}"}
                size += file.write(json.dumps(line) + "\n")
                if size >= BYTES:
                    return


def write_frames(path: Path, compressed: Path) -> None:
    """Compress a file into frames of `FRAME_BYTES` of text, as pzstd does."""
    with path.open("rb") as source, compressed.open("wb") as file:
        while data := source.read(FRAME_BYTES):
            file.write(zstandard.compress(data))


def cpu_seconds(process: int) -> dict[int, float]:
    """Return the CPU seconds of a process and each of its descendants, by process."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        tasks = list(Path(f"/proc/{process}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return {}
    seconds = {process: (int(fields[11]) + int(fields[12])) / _TICKS}
    for child in children:
        seconds.update(cpu_seconds(child))
    return seconds


def measure(path: Path, output: Path, vocab_file: Path, workers: int) -> tuple[float, float, float]:
    """Return seconds, CPU seconds of all processes and CPU seconds of the busiest one until all splits are read."""
    splits = len(split_file(str(path), path.stat().st_size, ReadOptions()))
    flags = ["--input", path, "--output", output, "--vocab_file", vocab_file, "--direct_num_workers", workers]
    argv = [sys.executable, "-m", "beambert", "corpus", *map(str, flags)]
    start = time.monotonic()
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        cpu: dict[int, float] = {}
        while sum(bool(_MARKER.fullmatch(file.name)) for file in output.glob("unfinished/*/*.json")) < splits:
            if process.poll() is not None:
                sys.exit("beambert corpus ended before it had read all splits")
            time.sleep(0.1)
            cpu.update(cpu_seconds(process.pid))
        seconds = time.monotonic() - start
        process.send_signal(signal.SIGINT)
    return seconds, sum(cpu.values()), max(cpu.values())


def main(data: Path) -> None:
    vocab_file = (data / "tokenizer/bert-base-uncased-vocab.txt").resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "wikipedia.jsonl"
        write_input(data, path)
        report(path, vocab_file, folder)
        compressed = folder / "wikipedia.jsonl.zst"
        write_frames(path, compressed)
        path.unlink()
        report(compressed, vocab_file, folder)


def report(path: Path, vocab_file: Path, folder: Path) -> None:
    """Print the measurements of a file."""
    best: dict[int, list[float]] = {}
    for number, workers in enumerate(RUNS):
        load = os.getloadavg()[0]
        measured = measure(path, folder / f"{path.suffix}{number}", vocab_file, workers)
        best[workers] = list(map(min, measured, best.get(workers, measured)))
        print(
            f"{path.name}, {path.stat().st_size / 1e6:.0f} MB, {workers} worker(s): {measured[0]:.1f} s, CPU "
            f"{measured[1]:.1f} s, busiest process {measured[2]:.1f} s; load before the run {load:.1f} on "
            f"{os.cpu_count()} cores",
            flush=True,
        )
    print(
        f"{path.name}: two workers are {best[1][0] / best[2][0]:.2f} times as fast as one (wall clock), "
        f"{best[1][2] / best[2][2]:.2f} times by the CPU seconds of the busiest process"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
