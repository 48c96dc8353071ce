"""Estimate the memory of job 2 on this machine before the job starts.

Each worker process of job 2 holds the largest shard of the corpus in memory, and batches of rows of a constant size in
bytes. Memory does not grow with the corpus. The factors were measured on English Wikipedia, 2026-11-21
(docs/benchmarks/data.md, tests/pipelines/runner/test_memory.py).
"""

import contextlib
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from beambert.common.formatting import counted
from beambert.pipelines.errors import DatasetError

if TYPE_CHECKING:
    from beambert.pipelines.corpus.corpus_manifest import Corpus

# Bytes of a worker process without a shard, with its batches of rows.
_PROCESS = 300_000_000
# Bytes per byte of text in the largest shard: as text, as tokens, and as segments of tokens.
_PER_TEXT_BYTE = 8.0
_WARN_FROM = 0.7


def peak_memory(largest_text_bytes: int, workers: int) -> int:
    """Estimate the peak memory of job 2 in bytes.

    Args:
        largest_text_bytes: UTF-8 bytes of text in the largest shard.
        workers: Number of worker processes; with 1, this process does the work.
    """
    first = _PROCESS if workers > 1 else 0
    return int(first + workers * (_PROCESS + _PER_TEXT_BYTE * largest_text_bytes))


def largest_text_bytes(corpus: "Corpus") -> int:
    """Estimate the UTF-8 bytes of text in the largest shard from its fraction of the corpus's file bytes."""
    sizes = [shard.bytes for shard in corpus.shards]
    return round(corpus.counts["bytes"] * max(sizes, default=0) / max(sum(sizes), 1))


def available_memory() -> int:
    """Return the available bytes of this machine, or of the control group of this process if that has fewer."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        machine = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *_group_limits(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"))])


def _group_limits(root: Path, membership: Path) -> list[int]:
    """Return the limits of this process's control groups (version 2), less the memory in use."""
    try:
        name = next(line.rpartition(":")[2] for line in membership.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return []
    limits = []
    folder = root / name.lstrip("/")
    # A limit applies to all groups below. Inside a container, only the root group may be visible.
    for group in (folder, *(parent for parent in folder.parents if parent.is_relative_to(root))):
        # The files are missing for the root group of a machine, and "max" means no limit.
        with contextlib.suppress(OSError, ValueError):
            maximum, in_use = (int((group / file).read_text()) for file in ("memory.max", "memory.current"))
            statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            # The kernel frees cached files when memory is needed.
            limits.append(max(maximum - in_use + int(statistics.get("inactive_file", 0)), 0))
    return limits


def require_memory(corpus: "Corpus", workers: int, ignore: bool) -> None:
    """Warn if job 2 needs most of the available memory.

    Args:
        corpus: Manifest of the corpus.
        workers: Number of worker processes.
        ignore: Whether to warn instead of raising.

    Raises:
        DatasetError: It needs more than is available, and `ignore` is not set.
    """
    text = largest_text_bytes(corpus)
    needed, available = peak_memory(text, workers), available_memory()
    if needed <= _WARN_FROM * available:
        return
    message = (
        f"the estimated memory is {needed / 1e9:.1f} GB ({counted(workers, 'worker process', 'worker processes')}, "
        f"shards of up to {text / 1e6:,.0f} MB of text), and {available / 1e9:.1f} GB is available"
    )
    remedies = [f"fewer --direct_num_workers than {workers}"] if workers > 1 else []
    room = (_WARN_FROM * available - peak_memory(0, workers)) / workers / _PER_TEXT_BYTE  # of text in a shard
    if room > 0:
        shards = sum(shard.split == "train" for shard in corpus.shards)
        remedies.append(
            f"a corpus of smaller shards (`beambert corpus --num_partitions {math.ceil(shards * text / room)}`)"
        )
    remedy = f"use {' or '.join([*remedies, 'a machine with more memory'])}"
    if needed > available and not ignore:
        raise DatasetError(f"{message}; {remedy}, or run anyway with --ignore_memory_estimate")
    print(f"warning: {message}; if the job runs out of memory, {remedy}", file=sys.stderr, flush=True)
