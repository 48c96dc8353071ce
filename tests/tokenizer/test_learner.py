"""Test the vocabulary learner against a slow one that counts and tokenizes everything again at each step."""

import bz2
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.common.word_rules import WordRules
from beambert.tokenizer import learner
from beambert.tokenizer.learner import (
    count_words,
    learn_vocabulary,
    merge_pairs,
    most_frequent,
    prune_tokens,
    reserved_tokens,
)
from beambert.tokenizer.normalization import split_words
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary, VocabularyError
from beambert.tokenizer.wordpiece import coverage, split_word
from tests import cpu_time

TEXTS = st.lists(st.text(st.sampled_from("aB\u00e9\u535a.,' \n\x0b\x85\u2028\u0301"), max_size=30))


@pytest.mark.parametrize("do_lower_case", [True, False], ids=["uncased", "cased"])
@given(texts=TEXTS)
def test_count_words(do_lower_case: bool, texts: list[str]) -> None:
    expected = Counter(word for text in texts for word in split_words(text, WordRules(do_lower_case)))
    assert count_words(iter(texts), WordRules(do_lower_case)) == expected


def test_count_words_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{i % 7}, {i}." for i in range(100)]
    expected = Counter(word for text in texts for word in split_words(text, WordRules()))
    monkeypatch.setattr(learner, "_MAX_CHUNKS", 10)
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


def recounted_merges(word_counts: dict[str, int]) -> list[str]:
    """Return the tokens of byte-pair encoding that counts all pairs of all words again before each merge."""
    spelt = {word: [word[0]] + ["##" + character for character in word[1:]] for word in word_counts}
    made = []
    while True:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, pieces in spelt.items():
            for pair in pairwise(pieces):
                pairs[pair] += word_counts[word]
        if not pairs:
            return made
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        made.append(best[0] + best[1][2:])
        for pieces in spelt.values():
            i = 0
            while i + 1 < len(pieces):
                if (pieces[i], pieces[i + 1]) == best:
                    pieces[i : i + 2] = [made[-1]]
                i += 1


def respelt_pruning(word_counts: dict[str, int], alphabet: list[str], candidates: list[str], keep: int) -> list[str]:
    """Return the tokens kept if all words are tokenized again, without each token in turn, before each removal."""
    left = list(candidates)
    while len(left) > keep:
        costs = []
        for number, piece in enumerate(left):
            without = {*alphabet, *left} - {piece}
            cost = 0
            for word, count in word_counts.items():
                if piece.replace("##", "") in word:
                    cost += count * (len(split_word(word, without)) - len(split_word(word, without | {piece})))
            costs.append((cost, -number))
        del left[-min(costs)[1]]
    uses: Counter[str] = Counter()
    for word, count in word_counts.items():
        for piece in split_word(word, {*alphabet, *left}):
            uses[piece] += count
    return sorted(left, key=lambda piece: (-uses[piece], piece))


def slow_learner(word_counts: dict[str, int], vocab_size: int, alphabet_limit: int) -> tuple[list[str], int]:
    """Return the vocabulary, empty if `vocab_size` is not possible, and the largest possible `vocab_size`."""
    word_counts = {word: count for word, count in word_counts.items() if len(word) <= 200}
    characters: Counter[str] = Counter()
    for word, count in word_counts.items():
        for character in word:
            characters[character] += count
    ranked = sorted(characters.items(), key=lambda item: (-item[1], ord(item[0])))[:alphabet_limit]
    kept_characters = sorted(item[0] for item in ranked)
    word_counts = {word: count for word, count in word_counts.items() if set(word) <= set(kept_characters)}
    # Punctuation of ASCII is always a word.
    alphabet = kept_characters + ["##" + character for character in kept_characters if character.isalnum()]
    if len(SPECIAL_TOKENS) + len(alphabet) > vocab_size:
        alphabet = sorted({word[0] for word in word_counts})
        alphabet += sorted({"##" + character for word in word_counts for character in word[1:]})
    made = list(dict.fromkeys(recounted_merges(word_counts)))
    fixed = len(SPECIAL_TOKENS) + len(alphabet)
    if not fixed <= vocab_size <= fixed + len(made):
        return [], fixed + len(made)
    kept = respelt_pruning(word_counts, alphabet, made[: vocab_size * 3 // 2 - fixed], vocab_size - fixed)
    return [*SPECIAL_TOKENS, *alphabet, *kept], fixed + len(made)


WORD_COUNTS = st.dictionaries(st.text("abc\u00e9", min_size=1, max_size=9), st.integers(1, 6), min_size=1, max_size=20)


@settings(deadline=None)
@given(word_counts=WORD_COUNTS, data=st.data())
def test_pruning_against_respelling(encoders: list[bool], word_counts: dict[str, int], data: st.DataObject) -> None:
    """Prune any candidates, not only those that merging proposes, whose costs are seldom below 0."""
    alphabet = [*"abc\u00e9", *("##" + character for character in "abc\u00e9")]
    parts = sorted(
        {
            ("##" if start else "") + word[start:end]
            for word in word_counts
            for start in range(len(word))
            for end in range(start + 2, len(word) + 1)
        }
    )
    candidates = data.draw(st.lists(st.sampled_from(parts), unique=True, max_size=25)) if parts else []
    keep = data.draw(st.integers(0, len(candidates)))
    expected = respelt_pruning(word_counts, alphabet, candidates, keep)
    for found in prunings(encoders, word_counts, alphabet, candidates, keep):
        assert found == expected


def prunings(
    encoders: list[bool], word_counts: dict[str, int], alphabet: list[str], candidates: list[str], keep: int
) -> list[list[str]]:
    """Return the tokens that are kept, in Python and compiled."""
    results = []
    for compiled in encoders:
        with pytest.MonkeyPatch.context() as patch:
            if not compiled:
                patch.setattr(learner, "_native", None)
            results.append(prune_tokens(list(word_counts), list(word_counts.values()), alphabet, candidates, keep))
    return results


def test_a_token_that_the_tokens_without_it_skip_costs_nothing(encoders: list[bool]) -> None:
    # Without ##ab, cabab is c ##a ##bab: the second ##ab is within ##bab.
    alphabet = [*"abc", "##a", "##b", "##c"]
    for kept in prunings(encoders, {"cabab": 1}, alphabet, ["##bab", "##ab"], 1):
        assert kept == ["##bab"]


@settings(deadline=None)
@given(word_counts=WORD_COUNTS, vocab_size=st.integers(5, 60), alphabet_limit=st.integers(1, 5))
def test_against_the_slow_learner(word_counts: dict[str, int], vocab_size: int, alphabet_limit: int) -> None:
    expected, available = slow_learner(word_counts, vocab_size, alphabet_limit)
    if expected:
        learnt = learn_vocabulary(word_counts, vocab_size, alphabet_limit=alphabet_limit)
        assert learnt == expected
        assert len(learnt) == vocab_size
    else:
        limit = (
            f"at most {available} tokens" if vocab_size > available else "the alphabet and the reserved tokens alone"
        )
        with pytest.raises(VocabularyError, match=f"invalid --vocab_size {vocab_size}: .*{limit}"):
            learn_vocabulary(word_counts, vocab_size, alphabet_limit=alphabet_limit)


def wikipedia(shared_data: Path, characters: int) -> list[str]:
    with bz2.open(shared_data / "wiki-extracted/enwiki-2015-00.bz2", "rt", encoding="utf-8") as file:
        return [line for line in file.read(characters).split("\n") if not line.startswith("<")]


def test_fewer_pieces_than_merging_alone(shared_data: Path) -> None:
    word_counts = count_words(wikipedia(shared_data, 300_000), WordRules(do_lower_case=True))
    learnt = learn_vocabulary(word_counts, 3000)
    alphabet = [piece for piece in learnt if len(piece.removeprefix("##")) == 1]
    merged = set(alphabet)
    for piece in merge_pairs(list(word_counts), list(word_counts.values())):
        if len(merged) == 3000 - len(SPECIAL_TOKENS):
            break
        merged.add(piece)
    ours, theirs = coverage(word_counts, set(learnt)), coverage(word_counts, merged)
    assert ours.unknown == theirs.unknown == 0
    # Measured: 6.3 % fewer tokens.
    assert ours.tokens < 0.95 * theirs.tokens


def test_learnt_vocabulary_is_a_vocabulary_and_spells_the_text(shared_data: Path) -> None:
    word_counts = count_words(wikipedia(shared_data, 300_000), WordRules(do_lower_case=False))
    pieces = learn_vocabulary(word_counts, 3000, num_unused=120)
    vocabulary = Vocabulary(tuple(pieces))
    assert len(vocabulary) == 3000
    assert vocabulary.pad_id == 0
    assert (pieces[1], pieces[99], vocabulary.unk_id, pieces[104]) == ("[unused0]", "[unused98]", 100, "[unused99]")
    assert len(vocabulary.special_ids()) == 125
    spelt = {word: split_word(word, vocabulary.ids) for word in word_counts}
    assert not any(spelling == ["[UNK]"] for spelling in spelt.values())
    frequent = [word for word, _ in word_counts.most_common(300)]
    assert all(spelt[word] == [word] for word in frequent)
    # After the alphabet, tokens are in descending order of their uses.
    uses = Counter()
    for word, count in word_counts.items():
        uses.update(dict.fromkeys(spelt[word], 0))
        for piece in spelt[word]:
            uses[piece] += count
    longer = [piece for piece in pieces[125:] if len(piece.removeprefix("##")) > 1]
    assert pieces[-len(longer) :] == longer == sorted(longer, key=lambda piece: (-uses[piece], piece))


def test_reserved_pieces_are_laid_out_as_released(shared_data: Path) -> None:
    released = (shared_data / "tokenizer/bert-base-uncased-vocab.txt").read_text(encoding="utf-8").split("\n")
    assert reserved_tokens(994) == released[:999]
    assert reserved_tokens(0) == list(SPECIAL_TOKENS)
    assert reserved_tokens(2) == ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def test_impossible_vocab_sizes_are_refused() -> None:
    with pytest.raises(VocabularyError, match=r"invalid --vocab_size 13: .* at most 12 tokens; lower --vocab_size to"):
        learn_vocabulary({"ab": 1, "b": 1}, 13, num_unused=2)
    assert learn_vocabulary({"ab": 1, "b": 1}, 10) == [*SPECIAL_TOKENS, "a", "b", "##a", "##b", "ab"]
    # Without room for both forms, only those of the text.
    assert learn_vocabulary({"ab": 1, "b": 1}, 8) == [*SPECIAL_TOKENS, "a", "b", "##b"]
    with pytest.raises(VocabularyError, match=r"invalid --vocab_size 9: .* alone are 10 tokens; raise --vocab_size"):
        learn_vocabulary({"ab": 1, "b": 1}, 9, num_unused=2)


def test_every_character_starts_and_continues_words() -> None:
    """Check words of other text, whose characters the text has in the other form only, or alone."""
    text = "box taxi next noe queen q λ 文 本 ー。 ."
    for rules in (WordRules(do_lower_case=True), WordRules(do_lower_case=False)):
        word_counts = count_words([text], rules)
        vocabulary = learn_vocabulary(word_counts, 45)
        assert len(vocabulary) == 45
        for word in ("xenon", "ixo", "iqu", "nb", "λx", "xλ", "ーx"):
            assert split_word(word, set(vocabulary)) != ["[UNK]"], word
        # Words of their own never continue a word.
        assert {"文", "本", ".", "。"} <= set(vocabulary)
        assert not {"##文", "##本", "##.", "##。"} & set(vocabulary)
    # Words of several ideographs, as in segmented text.
    assert {"文", "本", "##文", "##本"} <= set(learn_vocabulary({"本文": 2, "本": 1}, 9))


def test_words_left_out() -> None:
    # "a" and "b" occur equally often: the lower code point is in the alphabet.
    assert learn_vocabulary({"b": 5, "a": 5}, 6, alphabet_limit=1) == [*SPECIAL_TOKENS, "a"]
    assert learn_vocabulary({"a" * 200: 1, "b" * 201: 1}, 7) == [*SPECIAL_TOKENS, "a", "##a"]


def test_the_time_of_long_words_is_proportional_to_their_length():
    def prune(length):
        rng = random.Random(1)
        words = ["".join(rng.choices("abcd", k=length)) for _ in range(4000 // length)]
        candidates = {
            ("##" if start else "") + word[start : start + 3] for word in words for start in range(length - 3)
        }
        alphabet = [mark + letter for mark in ("", "##") for letter in "abcd"]
        return lambda: prune_tokens(words, [1] * len(words), alphabet, sorted(candidates), 20)

    assert cpu_time.seconds(prune(800), 60.0) < 6 * cpu_time.seconds(prune(50), 60.0)
