import bz2
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenizer.learner
from tokenizer.learner import count_words, learn_vocabulary
from tokenizer.normalization import split_words
from tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary, VocabularyError
from tokenizer.wordpiece import split_word


def recounting_learner(word_counts: dict[str, int], vocab_size: int, min_count: int, alphabet_limit: int) -> list[str]:
    """Byte-pair encoding that counts all pairs of all words anew before each merge; shorter than asked if exhausted."""
    word_counts = {word: count for word, count in word_counts.items() if count >= min_count and len(word) <= 200}
    characters: Counter[str] = Counter()
    for word, count in word_counts.items():
        characters.update(dict.fromkeys(word, 0))
        for character in word:
            characters[character] += count
    ranked = sorted(characters.items(), key=lambda item: (-item[1], ord(item[0])))
    alphabet = [character for character, _ in ranked[:alphabet_limit]]
    spelt = {
        word: [word[0]] + ["##" + character for character in word[1:]]
        for word in word_counts
        if all(character in alphabet for character in word)
    }
    used = [piece for pieces in spelt.values() for piece in pieces]
    vocabulary = list(SPECIAL_TOKENS)
    vocabulary += sorted({piece for piece in used if not piece.startswith("##")})
    vocabulary += sorted({piece for piece in used if piece.startswith("##")})
    while len(vocabulary) < vocab_size:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, pieces in spelt.items():
            for pair in pairwise(pieces):
                pairs[pair] += word_counts[word]
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merged = best[0] + best[1][2:]
        for word, pieces in spelt.items():
            i = 0
            while i + 1 < len(pieces):
                if (pieces[i], pieces[i + 1]) == best:
                    pieces[i : i + 2] = [merged]
                i += 1
            spelt[word] = pieces
        if merged not in vocabulary:
            vocabulary.append(merged)
    return vocabulary


WORD_COUNTS = st.dictionaries(st.text("abc\u00e9", min_size=1, max_size=9), st.integers(1, 6), min_size=1, max_size=25)


@given(
    word_counts=WORD_COUNTS,
    vocab_size=st.integers(5, 80),
    min_count=st.integers(1, 3),
    alphabet_limit=st.integers(1, 5),
)
def test_against_recounting(word_counts: dict[str, int], vocab_size: int, min_count: int, alphabet_limit: int) -> None:
    expected = recounting_learner(word_counts, vocab_size, min_count, alphabet_limit)
    if len(expected) == vocab_size:
        assert learn_vocabulary(word_counts, vocab_size, min_count, alphabet_limit) == expected
    else:
        with pytest.raises(VocabularyError, match=f" {len(expected)} "):
            learn_vocabulary(word_counts, vocab_size, min_count, alphabet_limit)


@given(word_counts=WORD_COUNTS, seed=st.integers(0, 100))
def test_order_of_words_has_no_influence(word_counts: dict[str, int], seed: int) -> None:
    size = len(recounting_learner(word_counts, 40, 1, 1000))
    items = list(word_counts.items())
    random.Random(seed).shuffle(items)
    assert learn_vocabulary(dict(items), size) == learn_vocabulary(word_counts, size)


def wikipedia(shared_data: Path, characters: int) -> list[str]:
    with bz2.open(shared_data / "wiki-extracted/enwiki-2015-00.bz2", "rt", encoding="utf-8") as file:
        return [line for line in file.read(characters).split("\n") if not line.startswith("<")]


def test_real_text_against_recounting(shared_data: Path) -> None:
    word_counts = count_words(wikipedia(shared_data, 20_000), do_lower_case=True)
    expected = recounting_learner(word_counts, 500, 1, 50)
    assert len(expected) == 500
    assert learn_vocabulary(word_counts, 500, alphabet_limit=50) == expected


def test_learnt_vocabulary_is_a_vocabulary_and_spells_the_text(shared_data: Path) -> None:
    word_counts = count_words(wikipedia(shared_data, 300_000), do_lower_case=False)
    pieces = learn_vocabulary(word_counts, 3000)
    vocabulary = Vocabulary(tuple(pieces))
    assert len(vocabulary) == 3000
    assert (vocabulary.pad_id, pieces[:5]) == (0, list(SPECIAL_TOKENS))
    spelt = {word: split_word(word, vocabulary.ids) for word in word_counts}
    assert not any(spelling == ["[UNK]"] for spelling in spelt.values())
    frequent = [word for word, _ in word_counts.most_common(300)]
    assert all(spelt[word] == [word] for word in frequent)


def test_by_hand() -> None:
    # Pairs at first: (u ##n) 7, (##n ##t) 4, (f ##u) 2; then "un" takes the u's that start a word only.
    word_counts = {"un": 3, "unt": 4, "fun": 2, ".": 9}
    assert learn_vocabulary(word_counts, 15) == [
        *SPECIAL_TOKENS,
        *(".", "f", "u", "##n", "##t", "##u"),
        *("un", "unt", "##un", "fun"),
    ]


def test_no_more_than_the_words_can_fill() -> None:
    with pytest.raises(VocabularyError, match=r"only 9 pieces, not for --vocab_size 10; lower --vocab_size to 9"):
        learn_vocabulary({"ab": 1, "b": 1}, 10)
    assert learn_vocabulary({"ab": 1, "b": 1}, 9) == [*SPECIAL_TOKENS, "a", "b", "##b", "ab"]
    with pytest.raises(VocabularyError, match=r"--vocab_size 7 is less than the 8 pieces .* raise --vocab_size"):
        learn_vocabulary({"ab": 1, "b": 1}, 7)


def test_words_left_out() -> None:
    # "a" 5, "b" 5, "c" 4: the tie goes to the lower code point, and a word with "c" is not learnt from.
    assert learn_vocabulary({"ab": 5, "c": 4}, 8, alphabet_limit=2) == [*SPECIAL_TOKENS, "a", "##b", "ab"]
    assert learn_vocabulary({"b": 5, "a": 5}, 6, alphabet_limit=1) == [*SPECIAL_TOKENS, "a"]
    assert learn_vocabulary({"a": 2, "b": 1}, 6, min_count=2) == [*SPECIAL_TOKENS, "a"]
    assert learn_vocabulary({"a" * 200: 1, "b" * 201: 1}, 7) == [*SPECIAL_TOKENS, "a", "##a"]


TEXTS = st.lists(st.text(st.sampled_from("aB\u00e9\u535a.,' \n\x0b\x85\u2028\u0301"), max_size=30))


@pytest.mark.parametrize("do_lower_case", [True, False], ids=["uncased", "cased"])
@given(texts=TEXTS)
def test_count_words(do_lower_case: bool, texts: list[str]) -> None:
    expected = Counter(word for text in texts for word in split_words(text, do_lower_case))
    assert count_words(iter(texts), do_lower_case) == expected


def test_count_words_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{i % 7}, {i}." for i in range(100)]
    expected = Counter(word for text in texts for word in split_words(text, True))
    monkeypatch.setattr(tokenizer.learner, "_MAX_CHUNKS", 10)
    assert count_words(texts, do_lower_case=True) == expected
