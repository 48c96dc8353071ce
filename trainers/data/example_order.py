"""The order of the train examples as a pure function of (seed, position).

Epoch e reads the shards of one copy, e modulo their number. The shards of an epoch come in a random order, a few
at a time: a block, whose records are shuffled together. Nothing but the block of a position has to be known to find
its example, so that reading can begin anywhere.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pipelines.dataset import Shard
from trainers.data.stateless_random import permutation, stateless_hash
from trainers.optimization.schedule import Stage, stages_before

# The most that a block holds, in positions of padded rows, unless one shard is more: about 180 MB of records.
BLOCK_POSITIONS = 1 << 25
# What random numbers are drawn for, so that no two uses see the same.
ORDER, TRAIN_MASKS, VALIDATION_MASKS = range(3)
# 2**32 divided by the golden ratio: multiples of it, modulo 2**32, fall evenly (Knuth, TAOCP 3, section 6.4).
_GOLDEN = 2_654_435_769


class Block(NamedTuple):
    """Shards that are read together, at consecutive positions.

    Attributes:
        first: position of its first example.
        shards: in their order.
        key: what its records are shuffled by; None leaves them in the order of the shards.
    """

    first: int
    shards: tuple[Shard, ...]
    key: int | None

    @property
    def end(self) -> int:
        """Return the position after its last example."""
        return self.first + sum(shard.examples for shard in self.shards)

    def records(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the shard index and the record index of each position, int64 [end - first] each."""
        counts = [shard.examples for shard in self.shards]
        shard = np.repeat(np.arange(len(counts)), counts)
        record = np.arange(len(shard)) - (np.cumsum(counts) - counts)[shard]
        if self.key is None:
            return shard, record
        order = permutation(self.key, len(shard))
        return shard[order], record[order]


def train_blocks(shards: Sequence[Shard], seed: int, position: int) -> Iterator[Block]:
    """Yield blocks from the one that contains a position on, without end.

    Args:
        shards: train shards of one length of rows, by copy, at least one example in all.
        seed: any whole number below 2**31.
        position: from 0.
    """
    numbers = sorted({shard.copy for shard in shards})
    copies = [[shard for shard in shards if shard.copy == number] for number in numbers]
    examples = [sum(shard.examples for shard in shards_read) for shards_read in copies]
    row_length = shards[0].max_seq_length
    cycle, rest = divmod(position, sum(examples))
    epoch, first = cycle * len(copies), position - rest
    while True:
        shards_read = copies[epoch % len(copies)]
        end = first + examples[epoch % len(copies)]
        if position < end:
            key = int(stateless_hash(seed, ORDER, row_length, epoch)[0])
            in_order = [shards_read[index] for index in permutation(key, len(shards_read))]
            for number, block in enumerate(_blocks(in_order, first)):
                if position < block.end:
                    yield block._replace(key=int(stateless_hash(key, number)[0]))
        epoch, first = epoch + 1, end


def blocks_in_order(shards: Sequence[Shard]) -> Iterator[Block]:
    """Return a block for each shard, nothing shuffled."""
    first = 0
    for shard in shards:
        yield (block := Block(first, (shard,), None))
        first = block.end


class StepExamples(NamedTuple):
    """The examples that one step reads.

    Attributes:
        step: its number.
        length_index: which length of rows, from the shortest.
        first: position of its first example in the order of that length.
    """

    step: int
    length_index: int
    first: int


def step_examples(stages: Sequence[Stage], step: int, examples: Sequence[int], seed: int) -> Iterator[StepExamples]:
    """Yield the steps from a step to the end of the last stage.

    Args:
        stages: those that read one data directory, all from the first on; `step` lies in the last.
        step: the first step.
        examples: how many train examples there are of each length of rows.
        seed: of the run.
    """
    consumed = np.zeros(len(examples), np.int64)
    for stage in stages_before(stages, step):
        lengths = length_of_step(np.arange(stage.first_step, stage.end_step), examples, seed)
        consumed += stage.batch_size * np.bincount(lengths, minlength=len(examples))
    for number in range(step, stages[-1].end_step):
        index = int(length_of_step(np.array([number]), examples, seed)[0])
        yield StepExamples(number, index, int(consumed[index]))
        consumed[index] += stages[-1].batch_size


def length_of_step(steps: np.ndarray, examples: Sequence[int], seed: int) -> np.ndarray:
    """Return the length of the rows in each step's batch.

    Any run of steps has each length in proportion to its examples, to within a few batches. So all lengths reach the
    end of an epoch together. In whole numbers, so that every machine has the same.

    Args:
        steps: int64 [n].
        examples: how many there are of each length.
        seed: decides with which batch of the cycle a run begins.

    Returns:
        int64 [n], indices of `examples`.
    """
    total = sum(examples)
    bounds = [2**32 * int(number) // total for number in np.cumsum(examples)[:-1]]
    places = (steps + seed) * _GOLDEN % 2**32
    return np.searchsorted(np.array(bounds, np.int64), places, side="right")


def _blocks(shards: Sequence[Shard], first: int) -> Iterator[Block]:
    """Group neighboring shards together, as many as BLOCK_POSITIONS allows."""
    taken: list[Shard] = []
    positions = 0
    for shard in shards:
        size = shard.examples * shard.max_seq_length
        if taken and positions + size > BLOCK_POSITIONS:
            yield (block := Block(first, tuple(taken), None))
            first, taken, positions = block.end, [], 0
        taken.append(shard)
        positions += size
    if taken:
        yield Block(first, tuple(taken), None)
