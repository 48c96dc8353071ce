"""Pairs against a plain implementation of the published procedure, and against what must hold of any pair."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.instances import (
    Instances,
    TokenizedDocuments,
    from_sentences,
    sample_instances,
    sample_pairs,
    truncation,
)
from pipelines.pretraining_options import PretrainingDataOptions
from tests.pipelines.reference_instances import sample_document, truncated_lengths


def flat(documents: list[list[list[int]]]) -> TokenizedDocuments:
    sentences = [sentence for document in documents for sentence in document]
    return TokenizedDocuments(
        token_ids=np.array([token for sentence in sentences for token in sentence], np.int32),
        sentence_starts=np.cumsum([0] + [len(sentence) for sentence in sentences]),
        document_starts=np.cumsum([0] + [len(document) for document in documents]),
        weights=np.ones(len(documents)),
    )


def sampling(max_seq_length: int, short_seq_prob: float) -> PretrainingDataOptions:
    return PretrainingDataOptions(
        max_seq_length=max_seq_length, max_predictions_per_seq=1, short_seq_prob=short_seq_prob
    )


def numbered(lengths: list[list[int]]) -> list[list[list[int]]]:
    """Documents of the given sentence lengths in which every token is different."""
    tokens = iter(range(1_000_000))
    return [[[next(tokens) for _ in range(length)] for length in document] for document in lengths]


class Recorded:
    """A generator that remembers its uniforms."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.uniforms: list[np.ndarray] = []

    def random(self, shape):
        self.uniforms.append(self._rng.random(shape))
        return self.uniforms[-1]

    def binomial(self, n, p):
        return self._rng.binomial(n, p)


corpora = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=2, max_size=8)


@settings(max_examples=300, deadline=None)
@given(
    lengths=corpora, seed=st.integers(0, 2**32), max_seq_length=st.integers(8, 64), short=st.sampled_from([0, 0.1, 1])
)
def test_same_draws_give_the_instances_of_the_published_procedure(lengths, seed, max_seq_length, short):
    documents = numbered(lengths)
    rng = Recorded(seed)
    pairs = sample_pairs(flat(documents), max_seq_length, short, rng)
    max_num_tokens = max_seq_length - 3
    is_short, short_length, *steps = rng.uniforms
    token_ids = flat(documents).token_ids

    targets = [
        2 + int(short_length[d] * (max_num_tokens - 1)) if is_short[d] < short else max_num_tokens
        for d in range(len(documents))
    ]
    # All documents move one pair forward in a step, so the reference is given its draws in that order.
    streams: dict[int, list] = {d: [] for d in range(len(documents))}
    generators = {d: sample_document(documents, d, targets[d], iter_of(streams[d])) for d in range(len(documents))}
    expected: dict[int, list] = {d: [] for d in range(len(documents))}
    active = list(range(len(documents)))
    rows = []
    for draw in steps:
        assert draw.shape == (4, len(active))
        for column, d in enumerate(active):
            streams[d].append(tuple(draw[:, column]))
            pair = next(generators[d])
            expected[d].append(pair)
            rows.append(pair)
        active = [d for d in active if not ends(documents[d], expected[d])]
    assert active == []
    assert len(rows) == len(pairs)

    cut = 0
    for row, (a, b, random_next) in enumerate(rows):
        a_length, b_length = truncated_lengths(len(a), len(b), max_num_tokens)
        cut += len(a) + len(b) - a_length - b_length
        got_a = token_ids[pairs.a_start[row] :][: pairs.a_length[row]].tolist()
        got_b = token_ids[pairs.b_start[row] :][: pairs.b_length[row]].tolist()
        assert (len(got_a), len(got_b)) == (a_length, b_length)
        assert contains_run(a, got_a)
        assert contains_run(b, got_b)
        assert pairs.labels[row] == random_next
    assert pairs.tokens_truncated == cut
    assert pairs.segments_dropped == 0


def iter_of(growing: list):
    position = 0
    while True:
        yield growing[position]
        position += 1


def ends(document, pairs) -> bool:
    """Whether the pairs so far have used up the document: A always, B too where it is the true next."""
    used = sum(len(a) + (0 if random_next else len(b)) for a, b, random_next in pairs)
    return used == sum(map(len, document))


def contains_run(whole: list[int], run: list[int]) -> bool:
    return bool(run) and whole[whole.index(run[0]) :][: len(run)] == run


@settings(max_examples=200, deadline=None)
@given(lengths=corpora, seed=st.integers(0, 2**32), max_seq_length=st.integers(8, 64))
def test_what_holds_of_every_pair(lengths, seed, max_seq_length):
    documents = flat(numbered(lengths))
    pairs = sample_pairs(documents, max_seq_length, 0.1, np.random.default_rng(seed))
    document_of_token = np.repeat(
        np.arange(len(documents)), np.diff(documents.sentence_starts[documents.document_starts])
    )
    a_document = document_of_token[pairs.a_start]
    b_document = document_of_token[pairs.b_start]
    assert (pairs.a_length >= 1).all()
    assert (pairs.b_length >= 1).all()
    assert (pairs.a_length + pairs.b_length <= max_seq_length - 3).all()
    assert (document_of_token[pairs.a_start + pairs.a_length - 1] == a_document).all()
    assert (document_of_token[pairs.b_start + pairs.b_length - 1] == b_document).all()
    assert ((a_document == b_document) == (pairs.labels == 0)).all()
    assert (pairs.b_start >= pairs.a_start + pairs.a_length)[(pairs.labels == 0)].all()


def test_every_sentence_of_a_document_is_used_where_nothing_is_cut():
    # Sentences short enough that no pair can exceed its target by more than one sentence, and a generous width.
    documents = flat(numbered([[3] * 50, [2] * 70, [5] * 30]))
    pairs = sample_pairs(documents, 64, 0.0, np.random.default_rng(1))
    used = np.zeros(len(documents.token_ids), bool)
    for row in range(len(pairs)):
        used[pairs.a_start[row] : pairs.a_start[row] + pairs.a_length[row]] = True
        if not pairs.labels[row]:
            used[pairs.b_start[row] : pairs.b_start[row] + pairs.b_length[row]] = True
    assert len(documents.token_ids) - used.sum() <= pairs.tokens_truncated


def test_a_single_document_gives_true_pairs_only_and_counts_what_it_cannot_pair():
    pairs = sample_pairs(flat(numbered([[10, 10, 10]])), 128, 0.0, np.random.default_rng(0))
    assert len(pairs) == 1
    assert not pairs.labels.any()
    alone = sample_pairs(flat(numbered([[10]])), 128, 0.0, np.random.default_rng(0))
    assert len(alone) == 0
    assert alone.segments_dropped == 1


def test_not_next_share_is_a_half_plus_the_chunks_of_one_sentence():
    documents = flat(numbered([[9] * 400] * 20))
    pairs = sample_pairs(documents, 128, 0.0, np.random.default_rng(3))
    # Chunks of 14 sentences: chance alone decides, but for the few chunks that end a document with one sentence.
    assert abs(pairs.labels.mean() - 0.5) < 0.04
    assert sample_pairs(flat(numbered([[200]] * 9)), 128, 0.0, np.random.default_rng(3)).labels.all()


@given(a=st.integers(1, 300), b=st.integers(1, 300), limit=st.integers(2, 300))
def test_truncation_equals_removing_one_token_at_a_time(a, b, limit):
    cut_a, cut_b = truncation(np.array([a]), np.array([b]), limit)
    assert (a - cut_a[0], b - cut_b[0]) == truncated_lengths(a, b, limit)


def test_truncation_cuts_from_both_ends():
    documents = flat(numbered([[100], [100]] * 200))
    pairs = sample_pairs(documents, 64, 0.0, np.random.default_rng(5))
    front = pairs.a_start % 100
    back = 100 - front - pairs.a_length
    assert abs(front.mean() - back.mean()) < 2
    assert front.std() > 2


def test_from_sentences_leaves_out_what_is_empty():
    # Documents of 2, 1 and 2 sentences; the first sentence of the first and the only one of the second are empty.
    documents = from_sentences(np.arange(6, dtype=np.int32), np.array([0, 0, 2, 2, 5, 6]), np.array([2, 1, 2]))
    assert documents.sentence_starts.tolist() == [0, 2, 5, 6]
    assert documents.document_starts.tolist() == [0, 1, 3]


@pytest.mark.parametrize("seed", range(3))
def test_same_seed_same_pairs(seed):
    documents = flat(numbered([[7] * 30, [5] * 40, [30] * 8]))
    first, second, third = (sample_pairs(documents, 64, 0.1, np.random.default_rng(s)) for s in (seed, seed, seed + 1))
    assert np.array_equal(first.a_start, second.a_start)
    assert np.array_equal(first.b_start, second.b_start)
    assert not np.array_equal(first.b_start, third.b_start)


def weighted(documents: TokenizedDocuments, weights: list[float]) -> TokenizedDocuments:
    return dataclasses.replace(documents, weights=np.array(weights))


def test_a_weight_of_one_changes_nothing() -> None:
    documents = flat([[[0, 1], [2]], [[3], [4, 5]], [[6]]])
    first = sample_pairs(documents, 12, 0.1, np.random.default_rng(5))
    second = sample_instances(documents, sampling(12, 0.1), np.random.default_rng(5))
    assert all(np.array_equal(getattr(first, f.name), getattr(second, f.name)) for f in dataclasses.fields(Instances))


def test_documents_are_packed_as_often_as_they_weigh() -> None:
    """Every document is one sentence, so that each packing makes one pair with it as A."""
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


@given(
    lengths=st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=6), min_size=2, max_size=8),
    weights=st.lists(st.sampled_from([0.0, 0.3, 1.0, 1.7, 2.0]), min_size=8, max_size=8),
    seed=st.integers(0, 2**32),
)
def test_weighted_pairs_are_runs_of_one_document(lengths: list[list[int]], weights: list[float], seed: int) -> None:
    numbers = iter(range(10_000))
    tokens = [[[next(numbers) for _ in range(length)] for length in document] for document in lengths]
    documents = weighted(flat(tokens), weights[: len(lengths)])
    pairs = sample_instances(documents, sampling(16, 0.3), np.random.default_rng(seed))
    document_of = np.repeat(np.arange(len(lengths)), [sum(document) for document in lengths])
    for start, length in ((pairs.a_start, pairs.a_length), (pairs.b_start, pairs.b_length)):
        assert (document_of[start] == document_of[start + length - 1]).all()
    same = document_of[pairs.a_start] == document_of[pairs.b_start]
    assert (same == (pairs.labels == 0)).all()
    a_end = pairs.a_start + pairs.a_length
    assert (pairs.b_start[(pairs.labels == 0)] >= a_end[(pairs.labels == 0)]).all()
    # A document of weight 0 is in no pair.
    seen = set(document_of[pairs.a_start]) | set(document_of[pairs.b_start])
    assert not seen & {i for i in range(len(lengths)) if weights[i] == 0}
