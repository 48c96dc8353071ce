"""Test sampling of instances against plain implementations: pairs, full sentences, and weights of documents."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.pipelines.errors import DatasetError
from beambert.pipelines.instances.instances import Instances, TokenizedDocuments, from_sentences
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.instances.sampling import (
    full_sentences,
    next_sentence_pairs,
    sample_instances,
    sentence_order_pairs,
)
from tests.pipelines.instances import reference_instances as reference
from tests.pipelines.instances.reference_instances import GivenDraws
from tests.pipelines.toy_documents import Recorded, corpora, document_of_token, flat, numbered

DRAWN = {
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
@given(**DRAWN)
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
@given(**DRAWN)
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
    # Every token is in one pair, or counted as truncated; a random B is a token's second use.
    kept = pairs.a_length.sum() + pairs.b_length[pairs.labels == 0].sum()
    assert kept + pairs.tokens_truncated == pairs.tokens_packed == len(documents.token_ids)


def test_no_documents_give_no_pairs():
    nothing = flat([])
    for sample in (next_sentence_pairs, sentence_order_pairs, full_sentences):
        assert len(sample(nothing, 16, 0.1, np.random.default_rng(0))) == 0


def test_a_single_document_gives_true_pairs_only_and_counts_what_it_cannot_pair():
    pairs = next_sentence_pairs(flat(numbered([[10, 10, 10]])), 128, 0.0, np.random.default_rng(0))
    assert len(pairs) == 1
    assert not pairs.labels.any()
    alone = next_sentence_pairs(flat(numbered([[10]])), 128, 0.0, np.random.default_rng(0))
    assert len(alone) == 0
    assert alone.segments_dropped == 1


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


def test_truncation_cuts_from_both_ends():
    documents = flat(numbered([[100], [100]] * 200))
    pairs = next_sentence_pairs(documents, 64, 0.0, np.random.default_rng(5))
    front = pairs.a_start % 100
    back = 100 - front - pairs.a_length
    assert abs(front.mean() - back.mean()) < 2
    assert front.std() > 2


@settings(max_examples=300, deadline=None)
@given(
    lengths=corpora, seed=st.integers(0, 2**32), max_seq_length=st.integers(8, 64), short=st.sampled_from([0, 0.1, 1])
)
def test_same_draws_give_the_instances_of_the_reference(lengths, seed, max_seq_length, short):
    documents, rng = numbered(lengths), Recorded(seed)
    instances = full_sentences(flat(documents), max_seq_length, short, rng)
    (targets,) = rng.uniforms
    draws = GivenDraws(short=targets[0], length=targets[1])
    expected = [instance.a for instance in reference.full_sentences(documents, max_seq_length, short, draws)]
    tokens = flat(documents).token_ids
    found = [tokens[a : a + n].tolist() for a, n in zip(instances.a_start, instances.a_length, strict=True)]
    assert found == expected
    # Every token occurs exactly once.
    assert [token for run in found for token in run] == tokens.tolist()
    assert instances.tokens_truncated == instances.segments_dropped == 0
    assert not instances.b_length.any()
    assert not instances.labels.any()
    assert (instances.lengths <= max_seq_length).all()


def sampling(max_seq_length: int, short_seq_prob: float, **options) -> PretrainingDataOptions:
    return PretrainingDataOptions(
        max_seq_length=max_seq_length, max_predictions_per_seq=1, short_seq_prob=short_seq_prob, **options
    )


def test_from_sentences_drops_empty_sentences_and_documents():
    # Documents of 2, 1 and 2 sentences; the first sentence of the first and the only one of the second are empty.
    documents = from_sentences(np.arange(6, dtype=np.int32), np.array([0, 0, 2, 2, 5, 6]), np.array([2, 1, 2]))
    assert documents.sentence_starts.tolist() == [0, 2, 5, 6]
    assert documents.document_starts.tolist() == [0, 1, 3]


def weighted(documents: TokenizedDocuments, weights: list[float]) -> TokenizedDocuments:
    return dataclasses.replace(documents, weights=np.array(weights))


def test_a_weight_of_one_changes_nothing() -> None:
    documents = flat([[[0, 1], [2]], [[3], [4, 5]], [[6]]])
    first = next_sentence_pairs(documents, 12, 0.1, np.random.default_rng(5))
    second = sample_instances(documents, sampling(12, 0.1), np.random.default_rng(5))
    assert all(np.array_equal(getattr(first, f.name), getattr(second, f.name)) for f in dataclasses.fields(Instances))


def test_documents_are_sampled_as_often_as_their_weights() -> None:
    """Test documents of one sentence: whenever one is sampled, it gives one pair with itself as A."""
    weights = [0.25, 1.0, 2.5, 3.0] * 200
    documents = weighted(flat([[[number, number]] for number in range(800)]), weights)
    pairs = sample_instances(documents, sampling(16, 0.0), np.random.default_rng(6))
    packed = np.bincount(documents.token_ids[pairs.a_start], minlength=800).reshape(200, 4)
    assert (packed[:, 1] == 1).all()
    assert (packed[:, 3] == 3).all()
    assert set(packed[:, 0]) == {0, 1}
    assert set(packed[:, 2]) == {2, 3}
    # Four standard deviations.
    assert abs(packed[:, 0].mean() - 0.25) < 4 * (0.25 * 0.75 / 200) ** 0.5
    assert abs(packed[:, 2].mean() - 2.5) < 4 * (0.25 / 200) ** 0.5
    first, second = documents.token_ids[pairs.a_start], documents.token_ids[pairs.b_start]
    assert (first != second).all()
    assert pairs.labels.all()


some_weights = st.lists(st.sampled_from([0.0, 0.3, 1.0, 1.7, 2.0]), min_size=8, max_size=8)


@given(lengths=corpora, weights=some_weights, seed=st.integers(0, 2**32))
def test_weighted_pairs_are_runs_of_one_document(lengths: list[list[int]], weights: list[float], seed: int) -> None:
    documents = weighted(flat(numbered(lengths)), weights[: len(lengths)])
    pairs = sample_instances(documents, sampling(16, 0.3), np.random.default_rng(seed))
    document_of = document_of_token(documents)
    for start, length in ((pairs.a_start, pairs.a_length), (pairs.b_start, pairs.b_length)):
        assert (document_of[start] == document_of[start + length - 1]).all()
    same = document_of[pairs.a_start] == document_of[pairs.b_start]
    assert (same == (pairs.labels == 0)).all()
    a_end = pairs.a_start + pairs.a_length
    assert (pairs.b_start[(pairs.labels == 0)] >= a_end[(pairs.labels == 0)]).all()
    # A document of weight 0 is in no pair.
    seen = set(document_of[pairs.a_start]) | set(document_of[pairs.b_start])
    assert not seen & {i for i in range(len(lengths)) if weights[i] == 0}


@pytest.mark.parametrize("objective", ["sop", "mlm"])
@given(lengths=corpora, weights=some_weights, seed=st.integers(0, 2**32))
def test_tokens_occur_as_often_as_their_document_is_sampled(objective, lengths, weights, seed) -> None:
    documents = weighted(flat(numbered(lengths)), weights[: len(lengths)])
    options = sampling(100, 0.3, objective=objective)
    instances = sample_instances(documents, options, np.random.default_rng(seed))
    used = np.zeros(len(documents.token_ids), np.int64)
    for row in range(len(instances)):
        used[instances.a_start[row] :][: instances.a_length[row]] += 1
        used[instances.b_start[row] :][: instances.b_length[row]] += 1
    lost = instances.tokens_truncated + instances.segments_dropped
    times = np.repeat(documents.weights, [sum(document) for document in lengths])
    assert (used <= np.ceil(times)).all()
    assert (np.maximum(np.floor(times) - used, 0)).sum() <= lost


def test_more_predictions_than_tokens_are_refused():
    with pytest.raises(DatasetError, match="129: must be at most --max_seq_length 128"):
        PretrainingDataOptions(max_predictions_per_seq=129)
