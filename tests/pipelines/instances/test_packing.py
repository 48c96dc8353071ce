"""Test the packing of several instances into one row."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.pipelines.examples.pretraining_examples import plan_rows
from beambert.pipelines.instances.instances import lay_out, pack, pack_lengths
from beambert.pipelines.instances.options import PretrainingDataOptions
from tests.pipelines.instances.test_layout import VOCAB, random_instances


def contents(plan, lengths):
    """Return the lengths of the instances of each row, longest first."""
    return [
        sorted(lengths[plan.instances[first:last]].tolist(), reverse=True)
        for first, last in itertools.pairwise(plan.row_starts)
    ]


@pytest.mark.parametrize(
    ("counts", "room", "most", "expected"),
    [
        # No two instances fit into one row.
        ({6: 2}, 10, 8, [((6,), 2)]),
        # Two different lengths share a row; the remaining instance has its own row.
        ({6: 2, 4: 3}, 10, 8, [((6, 4), 2), ((4,), 1)]),
        # The fullest row with enough room is used: the 3 is added to the 7, not to the 5.
        ({7: 1, 5: 1, 3: 1}, 10, 8, [((7, 3), 1), ((5,), 1)]),
        # A row is full when it has the maximum number of instances.
        ({2: 5}, 10, 2, [((2, 2), 2), ((2,), 1)]),
        ({10: 3}, 10, 8, [((10,), 3)]),
        ({1: 9}, 10, 8, [((1,) * 8, 1), ((1,), 1)]),
    ],
)
def test_tiny_cases(counts, room, most, expected):
    # The same row content may be in several entries.
    total = {}
    for content, rows in pack_lengths(counts, room, most):
        total[content] = total.get(content, 0) + rows
    assert total == dict(expected)


@settings(max_examples=200, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 40), max_size=80),
    spare=st.integers(0, 30),
    most=st.integers(2, 9),
    seed=st.integers(0, 2**32),
)
def test_every_instance_is_in_one_row_and_fits(lengths, spare, most, seed):
    lengths = np.array(lengths, np.int64)
    room = int(lengths.max(initial=1)) + spare
    plan = pack(lengths, room, most, np.random.default_rng(seed))
    assert sorted(plan.instances.tolist()) == list(range(len(lengths)))
    rows = contents(plan, lengths)
    assert all(0 < len(row) <= most and sum(row) <= room for row in rows)
    again = pack(lengths, room, most, np.random.default_rng(seed))
    assert np.array_equal(plan.instances, again.instances)
    assert np.array_equal(plan.row_starts, again.row_starts)
    # Best fit never leaves two rows that fit into one.
    if len(rows) > 1:
        by_room = sorted(rows, key=sum)
        joined = [row for row in by_room if len(row) <= most // 2][:2]
        assert len(joined) < 2 or sum(map(sum, joined)) > room


def plain_best_fit(lengths, room, most):
    """Return rows filled one instance at a time, longest first, each in the fullest row with enough room."""
    rows = []
    for length in sorted(lengths, reverse=True):
        fits = [row for row in rows if sum(row) + length <= room and len(row) < most]
        if fits:
            max(fits, key=sum).append(length)
        else:
            rows.append([length])
    return rows


@settings(max_examples=100, deadline=None)
@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=60), spare=st.integers(0, 30))
def test_as_many_rows_as_plain_best_fit_makes(lengths, spare):
    room = max(lengths) + spare
    plan = pack(np.array(lengths), room, len(lengths) + 1, np.random.default_rng(0))
    assert sorted(map(sum, contents(plan, np.array(lengths)))) == sorted(map(sum, plain_best_fit(lengths, room, 99)))


def test_rows_of_real_lengths_are_full_and_in_no_order():
    rng = np.random.default_rng(1)
    # Lengths as in Wikipedia with rows of 512: half of the instances fill a row, the others have any length.
    lengths = np.where(rng.random(20_000) < 0.5, 512, rng.integers(5, 513, 20_000))
    plan = pack(lengths, 512, 16, rng)
    assert lengths.sum() / (len(plan) * 512) > 0.98
    sizes = np.diff(plan.row_starts)
    # The order of rows, the order within rows, and the choice among instances of equal length are random.
    assert abs(np.corrcoef(sizes[:-1], sizes[1:])[0, 1]) < 0.05
    first, last = lengths[plan.instances[plan.row_starts[:-1]]], lengths[plan.instances[plan.row_starts[1:] - 1]]
    shared = sizes > 1
    assert abs((first > last)[shared].mean() - (first < last)[shared].mean()) < 0.05
    assert abs(np.corrcoef(plan.instances[:-1], plan.instances[1:])[0, 1]) < 0.05


@pytest.mark.parametrize("options", [{"pack": True, "max_instances_per_row": 5}, {"length_bins": (32, 64, 128)}, {}])
def test_rows_contain_all_tokens_of_the_instances(options):
    options = PretrainingDataOptions(**options)
    rng = np.random.default_rng(2)
    token_ids, instances = random_instances(rng, 500, 62)
    alone = lay_out(
        token_ids, instances, plan_rows(instances.lengths, PretrainingDataOptions(), rng)[0][1], 128, 1, VOCAB
    )
    expected = sorted(row[:length].tolist() for row, length in zip(alone.input_ids, alone.lengths, strict=True))
    seen = []
    shorter = 0
    for row_length, plan in plan_rows(instances.lengths, options, rng):
        rows = lay_out(token_ids, instances, plan, row_length, options.instances_per_row, VOCAB)
        assert rows.input_ids.shape == (len(plan), row_length)
        if options.length_bins:
            # Every instance is in the shortest bin that it fits into.
            assert ((rows.lengths > shorter) & (rows.lengths <= row_length)).all()
            shorter = row_length
        for ids, sequences in zip(rows.input_ids, rows.sequence_ids, strict=True):
            seen += [ids[sequences == number].tolist() for number in range(1, sequences.max() + 1)]
    assert sorted(seen) == expected
