"""Test documents made from sentences, and how often each document is sampled."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.instances.instances import Instances, TokenizedDocuments, from_sentences
from pipelines.instances.options import OBJECTIVES, PretrainingDataOptions
from pipelines.instances.sampling import sample_instances
from pipelines.instances.sentence_pairs import next_sentence_pairs
from tests.pipelines.toy_documents import corpora, document_of_token, flat, numbered


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


@pytest.mark.parametrize("objective", [objective for objective in OBJECTIVES if objective != "nsp"])
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
