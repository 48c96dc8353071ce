"""Compute random numbers and the order of the training examples as pure functions of seed and position.

Random numbers are hashes of seed, position and purpose instead of draws from a generator. A number does not depend on
the numbers drawn before it, so that batches, replicas and resumed runs all use the same numbers. numpy does not
guarantee the streams of its generators across versions; these hashes are defined here. The mixing function is that of
SplitMix64 (Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014, figure 17). Each input
adds a multiple of 2**64 divided by the golden ratio to the state and applies the mixing function.

Epoch e of a sequence length reads the shards of one copy, with number e modulo the number of copies that have examples
of this length. The shards of an epoch are in random order and grouped into blocks; the records of a block are shuffled
together. The example at a position depends only on its block, so that reading can start at any position.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from beambert.pipelines.dataset import Shard
from beambert.trainers.optimization.schedule import Stage, stages_before

_GOLDEN_64 = 0x9E3779B97F4A7C15
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_SHIFTS = (30, 27, 31)
# Maximum size of a block in tokens of padded rows, about 180 MB of records; a larger shard is a block of its own.
BLOCK_POSITIONS = 1 << 25
# Purposes of random numbers, so that no two purposes use the same numbers.
ORDER, TRAIN_MASKS, VALIDATION_MASKS, BASELINE_MASKS = range(4)
# 2**32 divided by the golden ratio: multiples of it, modulo 2**32, fall evenly (Knuth, TAOCP 3, section 6.4).
_GOLDEN = 2_654_435_769


def stateless_hash(*numbers: int | np.ndarray) -> np.ndarray:
    """Return the hash of one or more numbers.

    Args:
        numbers: integers from 0 to 2**64 - 1, scalars or arrays that broadcast.

    Returns:
        uint64 of the broadcast shape, [1] if all are scalars.
    """
    state = np.zeros(1, np.uint64)
    for number in numbers:
        state = extend_hash(state, number)
    return state


def extend_hash(keys: np.ndarray, number: int | np.ndarray) -> np.ndarray:
    """Return `stateless_hash` with a further number appended to those of the keys.

    Args:
        keys: uint64, at least one dimension, results of `stateless_hash`.
        number: integers from 0 to 2**64 - 1, a scalar or an array that broadcasts with the keys.

    Returns:
        uint64 of the broadcast shape.
    """
    # Arrays wrap around modulo 2**64 silently; scalars raise a warning.
    state = keys + (np.atleast_1d(np.asarray(number, np.uint64)) + np.uint64(1)) * np.uint64(_GOLDEN_64)
    # In place: with many keys, allocating arrays takes longer than the arithmetic.
    shifted = np.empty_like(state)
    for shift, multiplier in zip(_SHIFTS, _MULTIPLIERS, strict=False):
        state ^= np.right_shift(state, np.uint64(shift), out=shifted)
        state *= np.uint64(multiplier)
    state ^= np.right_shift(state, np.uint64(_SHIFTS[-1]), out=shifted)
    return state


def permutation(key: int, count: int) -> np.ndarray:
    """Return a permutation of `count` items, int64 [count], determined by the key."""
    return np.argsort(stateless_hash(key, np.arange(count)), kind="stable")


class Block(NamedTuple):
    """Shards that are read together, at consecutive positions.

    Attributes:
        first: position of the first example.
        shards: the shards, in order.
        key: hash key of the shuffle; None keeps the order of the shards.
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
    """Yield blocks indefinitely, from the block that contains a position.

    Args:
        shards: training shards of one sequence length, with at least one example in total.
        seed: an integer below 2**31.
        position: position in the order of examples, from 0.
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


def blocks_in_order(shards: Iterable[Shard]) -> Iterator[Block]:
    """Yield a block for each shard, without shuffling."""
    first = 0
    for shard in shards:
        yield (block := Block(first, (shard,), None))
        first = block.end


class StepExamples(NamedTuple):
    """The examples of a step.

    Attributes:
        step: number of the step.
        length_index: index of the sequence length, from the shortest.
        first: position of the first example in the order of that length.
    """

    step: int
    length_index: int
    first: int


def step_examples(stages: Sequence[Stage], step: int, examples: Sequence[int], seed: int) -> Iterator[StepExamples]:
    """Yield the examples of each step, from a step to the end of the last stage.

    Args:
        stages: all stages that read a data directory, up to the stage of `step`.
        step: first step.
        examples: number of training examples of each sequence length.
        seed: the run's random seed.
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
    """Return the sequence length of each step's batch.

    Any range of steps has each length in proportion to its examples, to within a few batches, so that all lengths reach
    the end of an epoch together. Integer arithmetic gives the same result on every machine.

    Args:
        steps: int64 [n], step numbers.
        examples: number of training examples of each sequence length.
        seed: offset of the sequence of lengths.

    Returns:
        int64 [n], indices of `examples`.
    """
    total = sum(examples)
    bounds = [2**32 * int(number) // total for number in np.cumsum(examples)[:-1]]
    fractions = (steps + seed) * _GOLDEN % 2**32
    return np.searchsorted(np.array(bounds, np.int64), fractions, side="right")


def _blocks(shards: Sequence[Shard], first: int) -> Iterator[Block]:
    """Yield blocks of consecutive shards, each up to BLOCK_POSITIONS."""
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
