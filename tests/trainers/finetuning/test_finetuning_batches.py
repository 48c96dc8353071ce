import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert.trainers.data.pipeline import InputShard
from beambert.trainers.finetuning.batches import (
    EpochOrder,
    Grouping,
    Width,
    evaluation_batches,
    evaluation_order,
    features_of,
    mean_width,
    order_of,
    train_batches,
)
from beambert.trainers.optimization.schedule import Stage
from tests.trainers.finetuning.rows_of_random_text import CHOICES, HEADS, random_rows

DYNAMIC, FIXED = Width(24, False, 8), Width(24, True)


@given(st.integers(1, 30), st.integers(0, 2**31 - 1), st.integers(1, 50))
def test_every_epoch_has_every_row_once_and_batches_cross_epochs(count, seed, size):
    order = EpochOrder(count, seed)
    one_by_one = np.concatenate([EpochOrder(count, seed).rows(position, 1) for position in range(3 * count)])
    for epoch in range(3):
        assert sorted(one_by_one[epoch * count : (epoch + 1) * count]) == list(range(count))
    for first in range(0, 3 * count - size, size):
        assert order.rows(first, size).tolist() == one_by_one[first : first + size].tolist()


def test_epochs_and_seeds_have_other_orders():
    orders = {tuple(EpochOrder(50, seed).rows(epoch * 50, 50)) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25


@pytest.mark.parametrize(("head", "multi_label"), HEADS)
def test_features_are_the_rows_padded(head, multi_label):
    rows = random_rows(head, multi_label=multi_label)
    features = features_of(rows, head, np.array([3, 0, 7]), 26)
    for place, row in enumerate([3, 0, 7]):
        for choice in range(rows.choices):
            start, end = rows.row_splits[row * rows.choices + choice : row * rows.choices + choice + 2]
            at = (place, choice) if head == "multiple_choice" else (place,)
            padding = [0] * (26 - (end - start))
            assert features["input_ids"][at].tolist() == [*rows.ids[start:end], *padding]
            assert features["segment_ids"][at].tolist() == [*rows.segment_ids[start:end], *padding]
            assert features["input_mask"][at].tolist() == [1] * (end - start) + padding
            if head == "token_classification":
                nothing = [-1] * len(padding)
                assert features["label_ids"][at].tolist() == [*rows.targets["label_ids"][start:end], *nothing]
        if head != "token_classification":
            for name, values in rows.targets.items():
                assert np.array_equal(features[name][place], values[row])
    assert len(features) == 3 + len(rows.targets)


def test_a_batch_is_as_wide_as_its_longest_row_needs():
    rows = random_rows("classification", 40)
    lengths = np.diff(rows.row_splits)
    for row, length in enumerate(lengths):
        assert DYNAMIC.of_rows(rows)[row] == min(-(-length // 8) * 8, 24)
    assert set(FIXED.of_rows(rows)) == {24}
    assert Width(21, False).of_rows(rows).max() == 21
    assert set(Width(100, False, 32).of_rows(rows)) == {32}
    stage = Stage(0, 4, 0, 10, 0)
    for grouped in (False, True):
        widths = [
            batch["input_ids"].shape[1]
            for batch in train_batches(rows, "classification", 0, stage, 0, InputShard(), DYNAMIC, grouped=grouped)
        ]
        order = order_of(rows, 0, 4, DYNAMIC, grouped=grouped)
        longest = [lengths[order.rows(4 * step, 4)].max() for step in range(10)]
        assert widths == [min(-(-length // 8) * 8, 24) for length in longest]
        assert mean_width(rows, 4, DYNAMIC, grouped=grouped) == np.mean(widths)
    assert mean_width(rows, 4, FIXED, grouped=True) == 24


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=60),
    st.integers(0, 2**31 - 1),
    st.integers(1, 9),
    st.integers(1, 7),
)
def test_grouped_epochs_have_every_row_once_in_batches_of_similar_widths(widths, seed, batch_size, size):
    grouping = Grouping(batch_size, np.array(widths))
    count = len(widths)
    order = EpochOrder(count, seed, grouping)
    straight = order.rows(0, 4 * count)
    for first in range(0, 4 * count - size, size):
        # Reading can start at any position, as after a restart.
        assert EpochOrder(count, seed, grouping).rows(first, size).tolist() == straight[first : first + size].tolist()
    for epoch in range(4):
        rows = straight[epoch * count : (epoch + 1) * count]
        assert sorted(rows) == list(range(count))
        first = -epoch * count % batch_size
        batches = (count - first) // batch_size
        if batches < 2:
            continue
        whole = np.array(widths)[rows[first : first + batches * batch_size]].reshape(batches, batch_size)
        # The batches partition the sorted widths: no two of them overlap.
        ranges = sorted((batch.min(), batch.max()) for batch in whole)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(ranges))


def test_grouped_batches_are_shuffled_and_differ_by_epoch():
    widths = np.repeat([8, 16, 24], 40)
    order = EpochOrder(120, 7, Grouping(8, widths))
    epochs = [order.rows(120 * epoch, 120).reshape(15, 8) for epoch in range(6)]
    of_batches = [tuple(widths[epoch[:, 0]]) for epoch in epochs]
    assert len(set(of_batches)) == 6
    assert all(list(lengths) != sorted(lengths) for lengths in of_batches)
    batches = {tuple(sorted(batch)) for epoch in epochs for batch in epoch}
    assert len(batches) == 6 * 15


def test_grouping_computes_less_padding():
    rows = random_rows("classification", 400)
    plain = mean_width(rows, 8, Width(24, False, 1), grouped=False)
    assert mean_width(rows, 8, Width(24, False, 1), grouped=True) < 0.8 * plain


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("width", [DYNAMIC, FIXED])
def test_replicas_share_a_step_and_reading_can_start_anywhere(width, grouped):
    rows = random_rows("classification", 7)
    stage = Stage(0, 4, 0, 6, 0)

    def read(step, share):
        return list(train_batches(rows, "classification", 3, stage, step, share, width, grouped=grouped))

    whole = read(0, InputShard())
    assert len(whole) == 6
    parts = [read(0, InputShard(2, replica, 1)) for replica in range(2)]
    both = read(0, InputShard(2, 0, 2))
    for step, batch in enumerate(whole):
        for name, values in batch.items():
            halves = [part[step][name] for part in parts]
            assert np.array_equal(np.concatenate(halves), values)
            assert np.array_equal(both[2 * step][name], halves[0])
            assert np.array_equal(both[2 * step + 1][name], halves[1])
    batches = train_batches(rows, "classification", 3, stage, 0, InputShard(4, 1, 3), width, grouped=grouped)
    straight = list(batches)
    assert len(straight) == batches.count == 18
    for index in range(19):
        for batch, later in zip(straight[index:], batches.from_index(index), strict=True):
            assert all(np.array_equal(values, later[name]) for name, values in batch.items())
    for step in (1, 4, 5):
        for batch, later in zip(whole[step:], read(step, InputShard()), strict=True):
            assert all(np.array_equal(values, later[name]) for name, values in batch.items())


@pytest.mark.parametrize(("count", "batch_size"), [(10, 4), (3, 8), (8, 8)])
def test_evaluation_has_every_row_once_the_longest_first_and_full_batches(count, batch_size):
    rows = random_rows("multiple_choice", count)
    batches = list(evaluation_batches(rows, "multiple_choice", batch_size, InputShard(), DYNAMIC))
    assert all(batch["input_ids"].shape[:2] == (batch_size, CHOICES) for batch in batches)
    assert all("label_ids" not in batch for batch in batches)
    order = evaluation_order(rows)
    assert sorted(order) == list(range(count))
    lengths = np.diff(rows.row_splits).reshape(-1, CHOICES).max(axis=1)
    assert list(lengths[order]) == sorted(lengths, reverse=True)
    seen = np.concatenate([batch["input_mask"].sum(axis=-1).max(axis=-1) for batch in batches])
    assert seen[:count].tolist() == lengths[order].tolist()
