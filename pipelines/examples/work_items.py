"""The work of job 2: passes over a corpus shard. How they are dealt to workers, and how a finished one is noted.

A pass over a corpus shard makes one copy of it and depends on no other: bytes are the same however passes are grouped
or dealt, and a job that was stopped does again only those that it had not noted.
"""

import dataclasses
import json
import math
import zlib
from typing import NamedTuple

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from beambert_common.typed_json import Count, decode
from pipelines.corpus.corpus_manifest import CorpusShard
from pipelines.dataset import Shard
from pipelines.examples.make_shards import copies_of
from pipelines.examples.statistics import Statistics
from pipelines.instances.options import PretrainingDataOptions
from pipelines.io.atomic_files import read_bytes, write_text
from pipelines.io.manifest_schemas import Split

# Reading and tokenising a corpus shard takes about as long as a pass over it (2026-11-21, `make bench-data`).
_COST_OF_TOKENIZING = 1.0
# What the busiest worker may have more than the mean without a search for a better deal.
_EVEN = 1.02


class ShardResult(NamedTuple):
    """What was written in one pass: split, shards and their statistics."""

    split: str
    shards: list[Shard]
    statistics: Statistics


class WorkItem(NamedTuple):
    """Some passes over one corpus shard, made by one worker, which tokenises the corpus shard once for them.

    Attributes:
        corpus_shard: what to read.
        copies: which passes.
    """

    corpus_shard: CorpusShard
    copies: tuple[int, ...]

    @property
    def cost(self) -> float:
        """Work, in bytes of Parquet passed over."""
        return self.corpus_shard.bytes * (len(self.copies) + _COST_OF_TOKENIZING)


def deal_passes(corpus_shards: list[CorpusShard], options: PretrainingDataOptions, workers: int) -> list[WorkItem]:
    """All passes over all corpus shards, in groups and in an order that keeps every worker busy to the end.

    The embedded engine deals its input once, like cards, whatever each takes. So a corpus shard's passes stay together,
    for it is then tokenised once, unless a worker would wait for another: corpus shards may be fewer than workers.

    Args:
        corpus_shards: of the corpus.
        options: how many passes there are.
        workers: how many take one each in turn.
    """
    dealt: list[WorkItem] = []
    busiest = even = math.inf
    for groups in range(1, options.dupe_factor + 1):
        some = _in_rounds(_in_groups(corpus_shards, options, groups), workers)
        loads = _loads(some, workers)
        if max(loads) < busiest:
            dealt, busiest = some, max(loads)
        # More groups mean more tokenising: of many corpus shards, whole ones already are as even as can be.
        even = min(even, sum(loads) / workers)
        if busiest <= _EVEN * even:
            break
    return dealt


def _in_groups(corpus_shards: list[CorpusShard], options: PretrainingDataOptions, groups: int) -> list[WorkItem]:
    """The passes of each corpus shard in that many groups, as even as can be; the longest first."""
    found = []
    for corpus_shard in corpus_shards:
        number = copies_of(corpus_shard.split, options)
        some = min(groups, number)
        bounds = [number * group // some for group in range(some + 1)]
        found += [WorkItem(corpus_shard, tuple(range(*bounds[group : group + 2]))) for group in range(some)]
    return sorted(found, key=lambda passes: (-passes.cost, passes.corpus_shard.name, passes.copies))


def _in_rounds(passes: list[WorkItem], workers: int) -> list[WorkItem]:
    """Longest first, every second round backwards, so that not the same worker has the longer one in each."""
    rounds = [passes[first : first + workers] for first in range(0, len(passes), workers)]
    return [each for number, dealt in enumerate(rounds) for each in (reversed(dealt) if number % 2 else dealt)]


def _loads(passes: list[WorkItem], workers: int) -> list[float]:
    return [sum(each.cost for each in passes[worker::workers]) for worker in range(workers)]


def note_name(corpus_shard: CorpusShard, copy: int) -> str:
    """File name of the note that a pass is finished."""
    return f"{corpus_shard.split}-{corpus_shard.partition:05d}-of-{corpus_shard.partitions:05d}-copy-{copy:03d}.json"


def write_note(path: str, finished: ShardResult) -> None:
    """Notes that a pass is finished: its shards are on disk."""
    shards = [dataclasses.asdict(shard) for shard in finished.shards]
    write_text(path, json.dumps([finished.split, shards, finished.statistics.to_json()]))


def read_completion_marker(path: str) -> ShardResult | None:
    """What a note says; None if there is none, or it is damaged: then the pass is made again."""
    try:
        split, shards, content = decode(read_bytes(path), tuple[Split, list[Shard], dict[str, Count | str]])
        statistics = Statistics.from_json(content)
    except (OSError, ValueError, zlib.error):
        return None
    if statistics.rows != sum(shard.examples for shard in shards) or any(shard.split != split for shard in shards):
        return None
    return ShardResult(split, shards, statistics)


def find_finished(path: str, output: str) -> ShardResult | None:
    """What a note says of a pass if all its shards are in `output`, of the size they were; else None."""
    finished = read_completion_marker(path)
    if finished and all(_size(f"{output}/{shard.name}") == shard.bytes for shard in finished.shards):
        return finished
    return None


def _size(path: str) -> int:
    """Bytes of a file, -1 if there is none."""
    try:
        return FileSystems.get_filesystem(path).size(path)
    except (BeamIOError, OSError):
        return -1
