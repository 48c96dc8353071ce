"""Work items of job 2: copies of corpus shards, their distribution over workers, and completion markers.

Copies are independent of each other: their bytes do not depend on grouping or order, and a resumed job repeats only the
copies without a completion marker.
"""

import dataclasses
import math
from typing import Any, NamedTuple

from beambert.pipelines.corpus.corpus_manifest import CorpusShard
from beambert.pipelines.dataset import PartitionOfSplit, Shard
from beambert.pipelines.examples.pretraining_examples import num_copies
from beambert.pipelines.examples.statistics import Statistics
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.io.atomic_files import is_written, read_marker, write_marker

# Reading and tokenizing a corpus shard takes about as long as writing one copy of it (2026-11-21, `make bench-data`).
_COST_OF_TOKENIZING = 1.0
# Ratio of the maximum to the mean load up to which a distribution is considered balanced.
_BALANCED = 1.02


class ShardResult(NamedTuple):
    """The result of one copy: split, shards and their statistics."""

    split: str
    shards: list[Shard]
    statistics: Statistics


class WorkItem(NamedTuple):
    """One or more copies of one corpus shard, which a worker builds after tokenizing the corpus shard once.

    Attributes:
        corpus_shard: the corpus shard to read.
        copies: numbers of the copies to build.
    """

    corpus_shard: CorpusShard
    copies: tuple[int, ...]

    @property
    def cost(self) -> float:
        """Return the cost in bytes of Parquet: one for tokenization and one per copy, times the shard size."""
        return self.corpus_shard.bytes * (len(self.copies) + _COST_OF_TOKENIZING)


def deal_work_items(corpus_shards: list[CorpusShard], options: PretrainingDataOptions, workers: int) -> list[WorkItem]:
    """Return the work items of all copies of all corpus shards, in an order that balances the load of the workers.

    The local runner distributes its input once, round robin, regardless of the cost of an item. All copies of a corpus
    shard form one item, so that it is tokenized once, unless workers would be idle, such as with fewer corpus shards
    than workers.

    Args:
        corpus_shards: shards of the corpus.
        options: options of the examples; the number of copies is used.
        workers: number of workers.
    """
    distribution: list[WorkItem] = []
    max_load = mean_load = math.inf
    for groups in range(1, options.dupe_factor + 1):
        candidate = _in_rounds(_in_groups(corpus_shards, options, groups), workers)
        loads = _loads(candidate, workers)
        if max(loads) < max_load:
            distribution, max_load = candidate, max(loads)
        # More groups mean more tokenization; many corpus shards are balanced without groups.
        mean_load = min(mean_load, sum(loads) / workers)
        if max_load <= _BALANCED * mean_load:
            break
    return distribution


def _in_groups(corpus_shards: list[CorpusShard], options: PretrainingDataOptions, groups: int) -> list[WorkItem]:
    """Return the copies of each corpus shard in up to `groups` items of similar size, by descending cost."""
    items = []
    for corpus_shard in corpus_shards:
        number = num_copies(corpus_shard.split, options)
        num_items = min(groups, number)
        bounds = [number * group // num_items for group in range(num_items + 1)]
        items += [WorkItem(corpus_shard, tuple(range(*bounds[group : group + 2]))) for group in range(num_items)]
    return sorted(items, key=lambda item: (-item.cost, item.corpus_shard.name, item.copies))


def _in_rounds(items: list[WorkItem], workers: int) -> list[WorkItem]:
    """Return the items with every second round reversed, so that round robin gives workers similar totals."""
    rounds = [items[first : first + workers] for first in range(0, len(items), workers)]
    return [item for number, items in enumerate(rounds) for item in (reversed(items) if number % 2 else items)]


def _loads(items: list[WorkItem], workers: int) -> list[float]:
    return [sum(item.cost for item in items[worker::workers]) for worker in range(workers)]


def completion_marker_name(place: PartitionOfSplit, copy: int) -> str:
    """Return the file name of the completion marker of a copy of a partition."""
    return f"{place.split}-{place.partition:05d}-of-{place.partitions:05d}-copy-{copy:03d}.json"


def write_completion_marker(path: str, result: ShardResult) -> None:
    """Write the completion marker of a copy whose shards are on disk."""
    shards = [dataclasses.asdict(shard) for shard in result.shards]
    write_marker(path, [result.split, shards, result.statistics.to_json()])


def find_finished(path: str, output: str) -> ShardResult | None:
    """Return the content of a completion marker if all its shards exist in `output` with their sizes, else `None`."""
    marker = read_marker(path, tuple[str, list[Shard], dict[str, Any]])
    if marker is None or not all(is_written(f"{output}/{shard.name}", shard.bytes) for shard in marker[1]):
        return None
    return ShardResult(marker[0], marker[1], Statistics.from_json(marker[2]))
