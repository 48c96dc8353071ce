"""Test near-duplicates against a pairwise comparison of shingle sets, and paragraphs repeated in documents."""

import random
import re
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


def dropped_of(texts: list[str], ids: list[int]) -> dict[int, set[int]]:
    """Return {ID of a dropped document: IDs of the documents kept instead}, from all bands in one call."""
    signatures = np.stack([signature(text) for text in texts])
    keys = band_keys(signatures)
    identities = np.repeat(np.array([[0, i] for i in ids], np.uint64), BANDS, axis=0)
    sketches = np.repeat(sketch(signatures), BANDS, axis=0)
    found: dict[int, set[int]] = {}
    for dropped, kept in zip(*near_duplicates(keys.reshape(-1), identities, sketches), strict=True):
        found.setdefault(int(identities[dropped, 1]), set()).add(int(identities[kept, 1]))
    return found


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
            assert lesser in found[greater]
        elif similarity < 0.5:
            assert lesser not in found.get(greater, ())
    assert 20 < len(found) < 45


def test_smallest_id_of_every_cluster_is_kept() -> None:
    rng = random.Random(3)
    text = " ".join(rng.choices(WORDS, k=400))
    texts = [changed(text, 4, rng) for _ in range(40)]
    ids = rng.sample(range(1000), 40)
    found = dropped_of(texts, ids)
    assert set(found) == set(ids) - {min(ids)}
    order = rng.sample(range(40), 40)
    assert dropped_of([texts[i] for i in order], [ids[i] for i in order]) == found


def test_dissimilar_documents_of_one_band_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Test that documents of a band are compared with more than the first one; band keys can be equal by chance."""
    rng = np.random.default_rng(4)
    sketches = rng.integers(0, 256, (6, PERMUTATIONS), np.uint8)
    sketches[5] = sketches[2]
    keys = np.full(6, 7, np.uint64)
    ids = np.array([[1, i] for i in (9, 8, 5, 6, 4, 7)], np.uint64)
    dropped, kept = near_duplicates(keys, ids, sketches)
    assert (dropped.tolist(), kept.tolist()) == ([5], [2])
    monkeypatch.setattr(deduplication, "_LEADERS", 1)
    assert [found.tolist() for found in near_duplicates(keys, ids, sketches)] == [[], []]


def test_zero_documents_and_one_document() -> None:
    for count in (0, 1):
        arguments = (np.zeros(count, np.uint64), np.zeros((count, 2), np.uint64), np.zeros((count, 112), np.uint8))
        assert [found.tolist() for found in near_duplicates(*arguments)] == [[], []]
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
