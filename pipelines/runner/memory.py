"""How much memory job 2 will take on this machine, told before it is spent.

Job 2 holds the largest shard of the corpus as a whole in each worker process, and batches of rows that are alike large
at every length; nothing grows with the corpus. The factors were measured on English Wikipedia, 2026-11-21
(docs/EXAMPLES.md, tests/pipelines/runner/test_memory.py).
"""

import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.errors import DatasetError

if TYPE_CHECKING:
    from pipelines.corpus.corpus_manifest import Corpus

# Bytes of a process that has read nothing, and of the batches of rows that pass through it.
_PROCESS = 300_000_000
# Bytes for a byte of text in the largest shard: as text, as tokens, and as runs of tokens.
_PER_TEXT_BYTE = 8.0
_WARN_FROM = 0.7


def peak_memory(largest_text_bytes: int, workers: int) -> int:
    """Estimate the peak memory of job 2 in bytes.

    Args:
        largest_text_bytes: UTF-8 bytes of text in the largest shard.
        workers: worker processes; 1 is this process itself.
    """
    first = _PROCESS if workers > 1 else 0
    return int(first + workers * (_PROCESS + _PER_TEXT_BYTE * largest_text_bytes))


def largest_text_bytes(corpus: "Corpus") -> int:
    """Return the UTF-8 bytes of text in the largest shard, by its share of the files' bytes."""
    sizes = [shard.bytes for shard in corpus.shards]
    return round(corpus.counts["bytes"] * max(sizes, default=0) / max(sum(sizes), 1))


def available_memory() -> int:
    """Return the free bytes of this machine, or of the control group of this process."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        machine = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *_group_limits(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"))])


def _group_limits(root: Path, membership: Path) -> list[int]:
    """Return the limits of this process's control groups (version 1 or 2), less the memory in use."""
    try:
        groups = [line.split(":", 2) for line in membership.read_text().splitlines()]
    except OSError:
        return []
    limits = []
    for _, controllers, name in groups:
        if controllers not in ("", "memory"):
            continue
        top, limit, used, cache = (
            (root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            if controllers
            else (root, "memory.max", "memory.current", "inactive_file")
        )
        folder = top / name.lstrip("/")
        # A limit binds all groups below. Inside a container only the root may be there to see.
        for group in (folder, *folder.parents):
            if group != top and top not in group.parents:
                break
            try:
                maximum, in_use = (group / limit).read_text().strip(), int((group / used).read_text())
                statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                if maximum != "max":
                    # Cached files are given up when memory is needed.
                    limits.append(max(int(maximum) - in_use + int(statistics.get(cache, 0)), 0))
            except (OSError, ValueError):
                continue
    return limits


def require_memory(corpus: "Corpus", workers: int, ignore: bool) -> None:
    """Warn when job 2 would need most of the available memory.

    Args:
        corpus: the manifest of the corpus.
        workers: worker processes.
        ignore: whether to warn instead of raising.

    Raises:
        DatasetError: it would need more than is available, and `ignore` is not set.
    """
    text = largest_text_bytes(corpus)
    needed, available = peak_memory(text, workers), available_memory()
    if needed <= _WARN_FROM * available:
        return
    message = (
        f"{workers} process(es) on shards of up to {text / 1e6:,.0f} MB of text need about {needed / 1e9:.1f} GB of "
        f"memory, and {available / 1e9:.1f} GB are free"
    )
    ways = [f"fewer --direct_num_workers than {workers}"] if workers > 1 else []
    room = (_WARN_FROM * available - peak_memory(0, workers)) / workers / _PER_TEXT_BYTE  # of text in a shard
    if room > 0:
        shards = sum(shard.split == "train" for shard in corpus.shards)
        ways.append(
            f"a corpus of smaller shards (`beambert corpus --num_partitions {math.ceil(shards * text / room)}`)"
        )
    way_out = f"use {' or '.join([*ways, 'a machine with more'])}"
    if needed > available and not ignore:
        raise DatasetError(f"{message}; {way_out}; --ignore_memory_estimate goes ahead all the same")
    print(f"Warning: {message}; if that is too tight, {way_out}", file=sys.stderr, flush=True)
