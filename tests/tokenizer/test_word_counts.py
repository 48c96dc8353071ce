import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert.common.word_rules import WordRules
from beambert.tokenizer import word_counts
from beambert.tokenizer.normalization import split_words
from beambert.tokenizer.word_counts import count_words, most_frequent

TEXTS = st.lists(st.text(st.sampled_from("aB\u00e9\u535a.,' \n\x0b\x85\u2028\u0301"), max_size=30))


@pytest.mark.parametrize("do_lower_case", [True, False], ids=["uncased", "cased"])
@given(texts=TEXTS)
def test_count_words(do_lower_case: bool, texts: list[str]) -> None:
    expected = Counter(word for text in texts for word in split_words(text, WordRules(do_lower_case)))
    assert count_words(iter(texts), WordRules(do_lower_case)) == expected


def test_count_words_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{i % 7}, {i}." for i in range(100)]
    expected = Counter(word for text in texts for word in split_words(text, WordRules()))
    monkeypatch.setattr(word_counts, "_MAX_CHUNKS", 10)
    assert count_words(texts, WordRules()) == expected


def test_most_frequent() -> None:
    counts = {"\U0001f600": 2, "b": 2, "\uff01": 2, "a": 1, "c": 7, "x" * 201: 9, "y" * 200: 3}
    assert most_frequent(counts, 9) == {word: counts[word] for word in counts if len(word) < 201}
    assert most_frequent(counts, 4) == {"c": 7, "y" * 200: 3, "b": 2, "\uff01": 2}
    assert most_frequent(counts, 9, min_count=3) == {"c": 7, "y" * 200: 3}
    assert most_frequent(counts, 1, min_count=3) == {"c": 7}


@given(st.dictionaries(st.text("ab\u00e9", max_size=3), st.integers(1, 3)), st.integers(0, 12), st.integers(0, 99))
def test_most_frequent_whatever_the_order(counts: dict[str, int], limit: int, seed: int) -> None:
    items = list(counts.items())
    random.Random(seed).shuffle(items)
    kept = most_frequent(dict(items), limit)
    assert kept == most_frequent(counts, limit)
    assert len(kept) == min(limit, len(counts))
    assert all((-counts[word], word) < (-count, other) for word in kept for other, count in items if other not in kept)
