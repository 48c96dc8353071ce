"""Test the layout of instances in rows."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.pipelines.instances.instances import Instances, RowPlan, lay_out
from beambert.tokenizer.vocabulary import Vocabulary

VOCAB = Vocabulary(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(995))))


def random_instances(rng, count, longest):
    """Return tokens, and instances with segments of up to `longest` tokens, some without B."""
    token_ids = rng.integers(5, 1000, 5000).astype(np.int32)
    a_length, b_length = rng.integers(1, longest + 1, count), rng.integers(0, longest + 1, count)
    a_start, b_start = rng.integers(0, 5000 - longest, (2, count))
    labels = rng.integers(0, 2, count).astype(np.uint8)
    return token_ids, Instances(a_start, a_length, b_start, b_length, labels, 0, 0)


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(
        st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 1)), min_size=1, max_size=4),
        min_size=1,
        max_size=6,
    ),
    seed=st.integers(0, 2**32),
    spare=st.integers(0, 5),
)
def test_rows_equal_those_of_a_plain_loop(rows, seed, spare):
    rng = np.random.default_rng(seed)
    token_ids = rng.integers(5, 1000, 500).astype(np.int32)
    every = [instance for row in rows for instance in row]
    a_length, b_length, labels = (np.array(column) for column in zip(*every, strict=True))
    a_start, b_start = rng.integers(0, 480, (2, len(every)))
    # The order of the instances in the arrays differs from their order in the rows.
    shuffled = rng.permutation(len(every))
    place = np.argsort(shuffled)
    instances = Instances(
        *(column[shuffled] for column in (a_start, a_length, b_start, b_length)),
        labels[shuffled].astype(np.uint8),
        0,
        0,
    )
    plan = RowPlan(place, np.cumsum([0] + [len(row) for row in rows]))
    expected = []
    number = 0
    for row in rows:
        ids, segments, sequences, starts = [], [], [], []
        for sequence, (a, b, _) in enumerate(row, start=1):
            starts.append(len(ids))
            run_a = token_ids[a_start[number] :][:a].tolist()
            run_b = token_ids[b_start[number] :][:b].tolist()
            tokens = [2, *run_a, 3, *([*run_b, 3] if b else [])]
            ids += tokens
            segments += [0] * (a + 2) + [1] * (b + 1 if b else 0)
            sequences += [sequence] * len(tokens)
            number += 1
        expected.append((ids, segments, sequences, starts, [label for _, _, label in row]))
    width = max(len(ids) for ids, *_ in expected) + spare
    laid = lay_out(token_ids, instances, plan, width, 4, VOCAB)
    assert len(laid) == len(rows)
    for row, (ids, segments, sequences, starts, of_row) in enumerate(expected):
        padding = [0] * (width - len(ids))
        assert laid.input_ids[row].tolist() == ids + padding
        assert laid.segment_ids[row].tolist() == segments + padding
        assert laid.sequence_ids[row].tolist() == sequences + padding
        assert laid.lengths[row] == len(ids)
        assert laid.maskable[row].tolist() == [token > 4 for token in ids] + [False] * len(padding)
        empty = [0] * (4 - len(starts))
        assert laid.instance_positions[row].tolist() == starts + empty
        assert laid.labels[row].tolist() == of_row + empty
        assert laid.filled[row].tolist() == [True] * len(starts) + [False] * len(empty)
