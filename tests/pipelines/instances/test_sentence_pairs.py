"""Test sentence pairs: against a plain implementation of the published procedure, and their invariants."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.instances.sentence_pairs import next_sentence_pairs, sentence_order_pairs
from tests.pipelines.instances import reference_instances as reference
from tests.pipelines.instances.reference_instances import GivenDraws
from tests.pipelines.toy_documents import Recorded, corpora, document_of_token, flat, numbered

sampling = {
    "lengths": corpora,
    "seed": st.integers(0, 2**32),
    "max_seq_length": st.integers(8, 64),
    "short": st.sampled_from([0, 0.1, 1]),
}


def assert_equal(documents, instances, expected):
    assert len(instances) == len(expected)
    for row, pair in enumerate(expected):
        assert documents.token_ids[instances.a_start[row] :][: instances.a_length[row]].tolist() == pair.a
        assert documents.token_ids[instances.b_start[row] :][: instances.b_length[row]].tolist() == pair.b
    assert instances.labels.tolist() == [pair.label for pair in expected]


@settings(max_examples=300, deadline=None)
@given(**sampling)
def test_same_draws_give_the_next_sentence_pairs_of_the_published_procedure(lengths, seed, max_seq_length, short):
    documents, rng = numbered(lengths), Recorded(seed)
    pairs = next_sentence_pairs(flat(documents), max_seq_length, short, rng)
    targets, by_sentence, by_pair = rng.uniforms
    draws = GivenDraws(
        short=targets[0],
        length=targets[1],
        a_end=by_sentence[0],
        random_next=by_sentence[1],
        document=by_pair[0],
        sentence=by_pair[1],
        front_a=rng.binomials[0],
        front_b=rng.binomials[1],
    )
    expected = list(reference.next_sentence_pairs(documents, max_seq_length, short, draws))
    assert_equal(flat(documents), pairs, expected)
    assert pairs.tokens_truncated == sum(pair.cut_a + (0 if pair.label else pair.cut_b) for pair in expected)
    assert pairs.segments_dropped == 0


@settings(max_examples=300, deadline=None)
@given(**sampling)
def test_same_draws_give_the_sentence_order_pairs_of_the_reference(lengths, seed, max_seq_length, short):
    documents, rng = numbered(lengths), Recorded(seed)
    pairs = sentence_order_pairs(flat(documents), max_seq_length, short, rng)
    targets, by_chunk = rng.uniforms
    draws = GivenDraws(
        short=targets[0],
        length=targets[1],
        split=by_chunk[0],
        swap=by_chunk[1],
        front_a=rng.binomials[0],
        front_b=rng.binomials[1],
    )
    expected = list(reference.sentence_order_pairs(documents, max_seq_length, short, draws))
    assert_equal(flat(documents), pairs, expected)
    assert pairs.tokens_truncated == sum(pair.cut_a + pair.cut_b for pair in expected)
    assert pairs.segments_dropped == by_chunk.shape[1] - len(expected)


@settings(max_examples=200, deadline=None)
@given(lengths=corpora, seed=st.integers(0, 2**32), max_seq_length=st.integers(8, 64), balance=st.booleans())
def test_invariants_of_every_next_sentence_pair(lengths, seed, max_seq_length, balance):
    documents = flat(numbered(lengths))
    pairs = next_sentence_pairs(documents, max_seq_length, 0.1, np.random.default_rng(seed), balance=balance)
    of_token = document_of_token(documents)
    a_document, b_document = of_token[pairs.a_start], of_token[pairs.b_start]
    assert (pairs.a_length >= 1).all()
    assert (pairs.b_length >= 1).all()
    assert (pairs.a_length + pairs.b_length <= max_seq_length - 3).all()
    assert (of_token[pairs.a_start + pairs.a_length - 1] == a_document).all()
    assert (of_token[pairs.b_start + pairs.b_length - 1] == b_document).all()
    assert ((a_document == b_document) == (pairs.labels == 0)).all()
    assert (pairs.b_start >= pairs.a_start + pairs.a_length)[(pairs.labels == 0)].all()


def test_no_documents_give_no_pairs():
    nothing = flat([])
    for sample in (next_sentence_pairs, sentence_order_pairs):
        assert len(sample(nothing, 16, 0.1, np.random.default_rng(0))) == 0


def test_a_single_document_gives_true_pairs_only_and_counts_what_it_cannot_pair():
    pairs = next_sentence_pairs(flat(numbered([[10, 10, 10]])), 128, 0.0, np.random.default_rng(0))
    assert len(pairs) == 1
    assert not pairs.labels.any()
    alone = next_sentence_pairs(flat(numbered([[10]])), 128, 0.0, np.random.default_rng(0))
    assert len(alone) == 0
    assert alone.segments_dropped == 1


def test_not_next_share_is_a_half_plus_the_chunks_of_one_sentence():
    documents = flat(numbered([[9] * 400] * 20))
    pairs = next_sentence_pairs(documents, 128, 0.0, np.random.default_rng(3))
    # Chunks have 14 sentences, so that labels are random, except for the few last chunks with a single sentence.
    assert abs(pairs.labels.mean() - 0.5) < 0.04
    assert next_sentence_pairs(flat(numbered([[200]] * 9)), 128, 0.0, np.random.default_rng(3)).labels.all()


@pytest.mark.parametrize("one_sentence_documents", [0, 100, 180])
def test_balanced_labels(one_sentence_documents):
    """Test documents of two sentences (one true pair or two random ones) and of one sentence (one random pair)."""
    several = 600 - one_sentence_documents
    documents = flat(numbered([[9, 9]] * several + [[9]] * one_sentence_documents))
    pairs = next_sentence_pairs(documents, 128, 0.0, np.random.default_rng(3), balance=True)
    assert abs(pairs.labels.mean() - 0.5) < 0.01


def test_all_possible_pairs_are_true_if_balance_is_impossible():
    documents = flat(numbered([[9, 9]] * 30 + [[9]] * 70))
    pairs = next_sentence_pairs(documents, 128, 0.0, np.random.default_rng(3), balance=True)
    assert pairs.labels.sum() == 70
    assert len(pairs) == 100


def test_order_is_swapped_half_of_the_time_in_chunks_of_one_sentence_too():
    for documents in ([[200]] * 2000, [[9, 9, 9]] * 2000):
        pairs = sentence_order_pairs(flat(numbered(documents)), 128, 0.0, np.random.default_rng(3))
        # Three standard deviations.
        assert abs(pairs.labels.mean() - 0.5) < 3 * 0.5 / 2000**0.5
        assert ((pairs.b_start < pairs.a_start) == pairs.labels).all()


def test_a_sentence_is_split_at_every_place_and_one_token_is_dropped():
    pairs = sentence_order_pairs(flat(numbered([[4]] * 300 + [[1]] * 5)), 16, 0.0, np.random.default_rng(3))
    assert len(pairs) == 300
    assert pairs.segments_dropped == 5
    assert set(pairs.a_length.tolist()) == {1, 2, 3}
    assert (pairs.a_length + pairs.b_length == 4).all()


def test_truncation_cuts_from_both_ends():
    documents = flat(numbered([[100], [100]] * 200))
    pairs = next_sentence_pairs(documents, 64, 0.0, np.random.default_rng(5))
    front = pairs.a_start % 100
    back = 100 - front - pairs.a_length
    assert abs(front.mean() - back.mean()) < 2
    assert front.std() > 2


def test_same_seed_same_pairs():
    documents = flat(numbered([[7] * 30, [5] * 40, [30] * 8]))
    for seed, sample in itertools.product(range(3), (next_sentence_pairs, sentence_order_pairs)):
        first, second, third = (sample(documents, 64, 0.1, np.random.default_rng(s)) for s in (seed, seed, seed + 1))
        assert np.array_equal(first.a_start, second.a_start)
        assert np.array_equal(first.b_start, second.b_start)
        assert not np.array_equal(first.b_start, third.b_start)
