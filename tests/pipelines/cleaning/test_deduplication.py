"""Test near-duplicates against a pairwise comparison of shingle sets, and paragraphs repeated in documents."""

import random
import re
from collections.abc import Iterable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert.pipelines.cleaning import deduplication
from beambert.pipelines.cleaning.deduplication import (
    BANDS,
    PERMUTATIONS,
    band_keys,
    duplicate_keys,
    frequent_keys,
    join_links,
    near_duplicates,
    paragraph_key,
    repeated_paragraphs,
    signature,
    sketch,
)

WORDS = [f"w{i}" for i in range(500)]


def jaccard(a: str, b: str) -> float:
    shingles = [
        {tuple(words[i : i + 5]) for i in range(len(words) - 4)}
        for words in (re.findall(r"\w+", text.lower()) for text in (a, b))
    ]
    return len(shingles[0] & shingles[1]) / len(shingles[0] | shingles[1])


def changed(text: str, words: int, rng: random.Random) -> str:
    """Return the text with one run of `words` words replaced by random ones."""
    split = text.split()
    start = rng.randrange(len(split) - words + 1)
    split[start : start + words] = rng.choices(WORDS, k=words)
    return " ".join(split)


def dropped_of(texts: list[str], ids: list[int]) -> dict[int, int]:
    """Return {ID of a dropped document: ID of the document kept instead}, from all bands in one call."""
    signatures = np.stack([signature(text) for text in texts])
    keys = band_keys(signatures)
    identities = np.repeat(np.array([[0, i] for i in ids], np.uint64), BANDS, axis=0)
    sketches = np.repeat(sketch(signatures), BANDS, axis=0)
    links = near_duplicates(keys.reshape(-1), identities, sketches)
    assert not links[:, ::2].any()
    return dict(links[:, 1::2].tolist())


def clusters_of(links: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return {document: smallest of its cluster}, without the smallest, by moving one set into another."""
    cluster: dict[int, set[int]] = {}
    for first, second in links:
        both = cluster.setdefault(first, {first}) | cluster.setdefault(second, {second})
        cluster.update(dict.fromkeys(both, both))
    return {document: min(both) for document, both in cluster.items() if document != min(both)}


def test_signature_agreement_estimates_jaccard_similarity() -> None:
    rng = random.Random(1)
    text = " ".join(rng.choices(WORDS, k=600))
    for words in (0, 30, 100, 200, 300, 600):
        other = changed(text, words, rng)
        agreeing = (signature(text) == signature(other)).mean()
        similarity = jaccard(text, other)
        # Five standard deviations of 112 draws.
        assert abs(agreeing - similarity) <= 5 * (max(similarity * (1 - similarity), 0.001) / PERMUTATIONS) ** 0.5


def test_signatures_look_at_words_only() -> None:
    text = "The quick brown fox jumps over the lazy dog; and so on, and so forth."
    same = "  the QUICK brown-fox jumps \u201cover\u201d the lazy dog and so on AND SO FORTH"
    assert (signature(text) == signature(same)).all()
    assert signature(text).dtype == np.uint32
    assert not (signature(text) == signature(text.replace("fox", "cat"))).all()
    assert signature("one two three four") is None
    assert signature("... !!! -- , ;") is None
    # Ideographs are words.
    assert signature("\u4eba\u4eba\u751f\u800c\u81ea\u7531") is not None
    # Recorded: another value would mean that a corpus can no longer be built again.
    assert signature(text)[:3].tolist() == [28904389, 92331867, 640341745]


def test_only_near_duplicates_are_found() -> None:
    rng = random.Random(2)
    texts = []
    for _ in range(60):
        text = " ".join(rng.choices(WORDS, k=300))
        texts += [text, changed(text, rng.choice([0, 5, 10, 60, 150]), rng)]
    ids = rng.sample(range(10_000), len(texts))
    found = dropped_of(texts, ids)
    for (i, a), (j, b) in combinations(enumerate(texts), 2):
        similarity = jaccard(a, b)
        lesser, greater = sorted((ids[i], ids[j]))
        if similarity > 0.9:
            assert found[greater] == lesser
        elif similarity < 0.5:
            assert found.get(greater) != lesser
    assert 20 < len(found) < 45


def test_smallest_id_of_every_cluster_is_kept() -> None:
    rng = random.Random(3)
    text = " ".join(rng.choices(WORDS, k=400))
    texts = [changed(text, 4, rng) for _ in range(40)]
    ids = rng.sample(range(1000), 40)
    found = dropped_of(texts, ids)
    assert found == dict.fromkeys(set(ids) - {min(ids)}, min(ids))
    order = rng.sample(range(40), 40)
    assert dropped_of([texts[i] for i in order], [ids[i] for i in order]) == found


def test_dissimilar_documents_of_one_band_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Test that documents of a band are compared with more than the first one; band keys can be equal by chance."""
    rng = np.random.default_rng(4)
    sketches = rng.integers(0, 256, (6, PERMUTATIONS), np.uint8)
    sketches[5] = sketches[2]
    keys = np.full(6, 7, np.uint64)
    ids = np.array([[1, i] for i in (9, 8, 5, 6, 4, 7)], np.uint64)
    assert near_duplicates(keys, ids, sketches).tolist() == [[1, 7, 1, 5]]
    monkeypatch.setattr(deduplication, "_ALL_PAIRS", 1)
    assert near_duplicates(keys, ids, sketches).tolist() == [[1, 7, 1, 5]]
    monkeypatch.setattr(deduplication, "_MAX_CLUSTERS", 1)
    assert not len(near_duplicates(keys, ids, sketches))


def test_a_chain_collapses_to_the_smallest_id() -> None:
    """Test that the ends of a chain are not both kept, although they share little, in any order of the IDs."""
    rng = random.Random(5)
    words = rng.choices([f"v{i}" for i in range(5000)], k=900)
    # Neighbors share 95% of their words, the ends less than half.
    texts = [" ".join(words[30 * number : 30 * number + 600]) for number in range(10)]
    assert jaccard(texts[0], texts[1]) > 0.85
    assert jaccard(texts[0], texts[9]) < 0.5
    for _ in range(5):
        ids = rng.sample(range(100), 10)
        assert dropped_of(texts, ids) == dict.fromkeys(set(ids) - {min(ids)}, min(ids))


@pytest.mark.parametrize("documents", [16, 17, 60])
def test_a_chain_within_a_band_is_followed(documents: int) -> None:
    """Test a band that is compared completely, and larger ones."""
    rng = np.random.default_rng(documents)
    sketches = np.tile(rng.integers(0, 256, (1, PERMUTATIONS), np.uint8), (documents, 1))
    # Three groups of equal sketches: 80% of the bytes agree with those of the middle group, 60% at both ends.
    middle, last = np.arange(documents) % 3 > 0, np.arange(documents) % 3 > 1
    sketches[middle, :22] += 1
    sketches[last, 22:44] += 1
    ids = np.stack([np.zeros(documents), rng.permutation(documents) + 1], axis=-1).astype(np.uint64)
    links = near_duplicates(np.full(documents, 7, np.uint64), ids, sketches)
    assert links[:, 1::2].tolist() == [[number, 1] for number in range(2, documents + 1)]


@pytest.mark.parametrize("kinds", [1, 40, 3000])
def test_comparisons_of_a_band_are_linear_in_its_documents(kinds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test pages of one template: documents of one band that are all similar, in clusters, or all dissimilar."""
    compared = 0
    are_similar = deduplication._are_similar

    def count(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        nonlocal compared
        compared += len(first)
        return are_similar(first, second)

    monkeypatch.setattr(deduplication, "_are_similar", count)
    rng = np.random.default_rng(kinds)
    sketches = rng.integers(0, 256, (kinds, PERMUTATIONS), np.uint8)[np.arange(3000) % kinds]
    ids = np.stack([np.zeros(3000), np.arange(3000)], axis=-1).astype(np.uint64)
    links = near_duplicates(np.full(3000, 7, np.uint64), ids, sketches)
    # Up to 16 clusters of a large band are found.
    assert len(links) == {1: 2999, 40: 16 * 74, 3000: 0}[kinds]
    assert compared <= 128 * 3000


@given(seed=st.integers(0, 2**32 - 1), documents=st.integers(0, 16), bands=st.integers(1, 3))
def test_near_duplicates_are_the_clusters_of_similar_pairs_of_a_band(seed: int, documents: int, bands: int) -> None:
    rng = np.random.default_rng(seed)
    sketches = np.tile(rng.integers(0, 256, (1, PERMUTATIONS), np.uint8), (documents, 1))
    for number in range(documents):
        sketches[number, rng.permutation(PERMUTATIONS)[: rng.integers(0, 40)]] = number
    keys = rng.integers(0, bands, documents).astype(np.uint64)
    ids = np.stack([np.zeros(documents), rng.permutation(documents)], axis=-1).astype(np.uint64)
    similar = [
        (int(ids[i, 1]), int(ids[j, 1]))
        for i, j in combinations(range(documents), 2)
        if keys[i] == keys[j] and ((sketches[i] == sketches[j]).mean() - 1 / 256) / (1 - 1 / 256) >= 0.7
    ]
    assert dict(near_duplicates(keys, ids, sketches)[:, 1::2].tolist()) == clusters_of(similar)


@given(
    batches=st.lists(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=30), max_size=6),
    at_once=st.integers(1, 50),
)
def test_links_are_joined_to_clusters(batches: list[list[tuple[int, int]]], at_once: int) -> None:
    arrays = [np.array([[a % 2, a, b % 2, b] for a, b in batch], np.uint64).reshape(-1, 4) for batch in batches]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deduplication, "_PAIRS_AT_ONCE", at_once)
        joined = join_links(iter(arrays))
    # IDs are compared as two words.
    order = {number: (number % 2, number) for number in range(41)}
    rank = {number: place for place, number in enumerate(sorted(order, key=order.get))}
    expected = clusters_of((rank[a], rank[b]) for batch in batches for a, b in batch)
    assert {rank[int(a)]: rank[int(b)] for a, b in joined[:, 1::2]} == expected
    assert len(joined) == len(expected)


def test_a_long_chain_of_links_is_joined() -> None:
    """Test that the number of rounds does not grow with the length of a chain."""
    names = np.random.default_rng(6).permutation(200_000).astype(np.uint64)
    links = np.zeros((len(names) - 1, 4), np.uint64)
    links[:, 1], links[:, 3] = names[:-1], names[1:]
    joined = join_links([links])
    assert (joined[:, 1] == np.arange(1, len(names))).all()
    assert not joined[:, 2:].any()


def test_zero_documents_and_one_document() -> None:
    for count in (0, 1):
        arguments = (np.zeros(count, np.uint64), np.zeros((count, 2), np.uint64), np.zeros((count, 112), np.uint8))
        assert near_duplicates(*arguments).shape == (0, 4)
        assert repeated_paragraphs(*arguments[:2]).tolist() == [False] * count


KEYS_AND_IDS = st.lists(
    st.tuples(st.sampled_from([0, 1, 2, 2**64 - 1]), st.integers(0, 2), st.integers(0, 3)), max_size=30
)


@given(entries=KEYS_AND_IDS)
def test_repeated_paragraphs_are_kept_in_the_smallest_id(entries: list[tuple[int, int, int]]) -> None:
    keys = np.array([key for key, *_ in entries], np.uint64)
    ids = np.array([identity for _, *identity in entries], np.uint64).reshape(-1, 2)
    expected = [
        any(other == key and tuple(identity) < (high, low) for other, *identity in entries)
        for key, high, low in entries
    ]
    assert repeated_paragraphs(keys, ids).tolist() == expected


def test_paragraph_key() -> None:
    text = "All rights are reserved by the authors of this page."
    assert paragraph_key(text) == paragraph_key("all RIGHTS are reserved, by the authors of this page")
    assert paragraph_key(text) != paragraph_key(text.replace("page", "book"))
    assert paragraph_key("See the table below for all that.") is None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 1)), max_size=14), st.integers(2, 4))
def test_keys_of_several_documents(entries: list[tuple[int, int, int]], minimum: int) -> None:
    keys = np.array([key for key, _, _ in entries], np.uint64)
    ids = np.array([pair for _, *pair in entries], np.uint64).reshape(-1, 2)
    documents = {key: {tuple(pair) for other, *pair in entries if other == key} for key, _, _ in entries}
    assert frequent_keys(keys, ids, minimum).tolist() == [len(documents[key]) >= minimum for key, _, _ in entries]
    pairs = zip(*duplicate_keys(keys, ids), strict=True)
    found = {(int(keys[dropped]), tuple(ids[dropped]), tuple(ids[kept])) for dropped, kept in pairs}
    assert found == {(key, pair, min(same)) for key, same in documents.items() for pair in same - {min(same)}}
