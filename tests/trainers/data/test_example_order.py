"""Tests of the order of examples: every example once per epoch, starting at any position, shuffled uniformly."""

import collections
import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.pipelines.dataset import Shard
from beambert.trainers.data import example_order
from beambert.trainers.data.example_order import (
    StepExamples,
    blocks_in_order,
    extend_hash,
    length_of_step,
    permutation,
    stateless_hash,
    step_examples,
    train_blocks,
)
from beambert.trainers.optimization.schedule import Stage


def shards(*counts_of_copies, row_length=128):
    return [
        Shard(f"{copy}-{number}", "train", copy, count, 0, "", row_length, 20)
        for copy, counts in enumerate(counts_of_copies)
        for number, count in enumerate(counts)
        if count
    ]


def order(blocks, first, end):
    """Return (shard, record) at the positions from `first` to `end`; check that blocks are consecutive."""
    places, at = [], None
    for block in blocks:
        if block.first >= end:
            break
        assert at in (None, block.first)
        at = block.end
        which, record = block.records()
        found = [(block.shards[index].name, int(number)) for index, number in zip(which, record, strict=True)]
        places += found[max(first - block.first, 0) : end - block.first]
    return places


@settings(max_examples=100, deadline=None)
@given(
    counts=st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=5), min_size=1, max_size=4).filter(
        lambda counts: any(map(sum, counts))
    ),
    seed=st.integers(0, 2**31 - 1),
    position=st.integers(0, 100),
    room=st.sampled_from([1, 5 * 128, 1 << 25]),
)
def test_every_epoch_has_a_copy_and_reading_starts_at_any_position(counts, seed, position, room):
    some = shards(*counts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(example_order, "BLOCK_POSITIONS", room)
        straight = order(train_blocks(some, seed, 0), 0, 140)
        assert order(train_blocks(some, seed, position), position, 140) == straight[position:]
    epochs = [sorted((shard.name, record) for shard in of for record in range(shard.examples)) for of in _epochs(some)]
    start = 0
    for epoch in itertools.cycle(epochs):
        if start + len(epoch) > len(straight):
            break
        assert sorted(straight[start : start + len(epoch)]) == epoch
        start += len(epoch)


def _epochs(some):
    copies = sorted({shard.copy for shard in some})
    return [[shard for shard in some if shard.copy == copy] for copy in copies]


def test_blocks_hold_what_fits_and_large_shards_stand_alone(monkeypatch):
    monkeypatch.setattr(example_order, "BLOCK_POSITIONS", 128 * 10)
    some = shards([4, 4, 4, 11, 2])
    for seed in range(20):
        (*of_epoch,) = itertools.takewhile(lambda block: block.first < 25, train_blocks(some, seed, 0))
        assert sorted(shard.name for block in of_epoch for shard in block.shards) == [shard.name for shard in some]
        for block, following in itertools.pairwise(of_epoch):
            assert block.end - block.first <= 10 or len(block.shards) == 1
            # The next shard does not fit into the block.
            assert block.end - block.first + following.shards[0].examples > 10


def test_order_is_uniform_and_fresh_every_epoch():
    some = shards([3, 3])
    seen = collections.Counter()
    for epoch in range(4000):
        seen[tuple(order(train_blocks(some, 7, 6 * epoch), 6 * epoch, 6 * epoch + 6))] += 1
    # Each of 720 orders occurs 5.6 times on average. Pearson's statistic must be within five standard deviations of
    # its mean.
    expected = 4000 / 720
    statistic = sum((seen.get(way, 0) - expected) ** 2 / expected for way in seen) + (720 - len(seen)) * expected
    assert abs(statistic - 719) < 5 * np.sqrt(2 * 719)


def test_the_order_equals_a_recorded_order():
    # Recorded: with another order, a resumed run would read other examples than an uninterrupted one.
    some = shards([3, 2], [4])
    first = " ".join(f"{shard}:{record}" for shard, record in order(train_blocks(some, 1, 0), 0, 14))
    assert first == "0-0:2 0-0:1 0-1:0 0-1:1 0-0:0 1-0:1 1-0:3 1-0:2 1-0:0 0-1:0 0-0:2 0-0:1 0-0:0 0-1:1"


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4))
def test_the_hash_is_that_of_splitmix64(numbers):
    def of(state):  # As published, with Python integers.
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) % 2**64
        return state ^ (state >> 31)

    state = 0
    for number in numbers:
        state = of((state + (number + 1) * 0x9E3779B97F4A7C15) % 2**64)
    assert stateless_hash(*numbers).tolist() == [state]


def test_the_first_draws_are_the_published_ones():
    # The generator's first outputs for seed 0, as its reference implementation in C prints them.
    assert stateless_hash(np.arange(3)).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_a_hash_can_be_extended():
    keys = stateless_hash(5, np.arange(1000))
    copy = keys.copy()
    columns = np.arange(50)
    assert np.array_equal(extend_hash(keys[:, None], columns), stateless_hash(5, np.arange(1000)[:, None], columns))
    assert np.array_equal(keys, copy)


def test_a_permutation_has_everything_once():
    assert sorted(permutation(3, 1000)) == list(range(1000))
    assert permutation(3, 1000).tolist() != permutation(4, 1000).tolist()


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=4),
    examples=st.lists(st.integers(1, 50), min_size=1, max_size=3),
    gap=st.integers(0, 5),
    seed=st.integers(0, 2**31 - 1),
)
def test_steps_read_consecutive_examples_of_each_length(sizes, examples, gap, seed):
    # Stages of one data directory; another directory may be read between them.
    stages, step, consumed = [], 0, 0
    for updates_of_it, batch_size in sizes:
        stages.append(Stage(0, batch_size, step, step + updates_of_it, consumed))
        step, consumed = step + updates_of_it + gap, consumed + batch_size * updates_of_it
    position, expected = [0] * len(examples), []
    for number, stage in enumerate(stages):
        of_stage = []
        for at in range(stage.first_step, stage.end_step):
            (index,) = length_of_step(np.array([at]), examples, seed)
            of_stage.append(StepExamples(at, int(index), position[index]))
            position[index] += stage.batch_size
        for at in range(stage.first_step, stage.end_step):
            assert list(step_examples(stages[: number + 1], at, examples, seed)) == of_stage[at - stage.first_step :]
        expected += of_stage
    if len(examples) == 1:
        sizes_by_step = [stage.batch_size for stage in stages for _ in range(stage.first_step, stage.end_step)]
        assert [update.first for update in expected] == [0, *itertools.accumulate(sizes_by_step)][:-1]


def test_blocks_in_order_shuffle_nothing():
    some = shards([3, 1, 2])
    expected = [(shard.name, record) for shard in some for record in range(shard.examples)]
    assert order(blocks_in_order(some), 0, 100) == expected


def test_lengths_of_rows_have_orders_of_their_own():
    first, second = (
        [record for _, record in order(train_blocks(shards([100], row_length=length), 1, 0), 0, 100)]
        for length in (64, 128)
    )
    assert first != second
    renamed = [dataclasses.replace(shard, name="other") for shard in shards([100])]
    assert [record for _, record in order(train_blocks(renamed, 1, 0), 0, 100)] == second
