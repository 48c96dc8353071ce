"""Test the rule that excludes words from learning; it does not depend on the order of shards and of merging."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert.pipelines.transforms.vocabulary import MergeWordCounts, Vocabularies, measure_group, scale_language_counts
from beambert.pipelines.vocabulary import word_groups
from beambert.pipelines.vocabulary.vocabulary_options import VocabularyOptions, language_factors
from beambert.pipelines.vocabulary.word_groups import num_word_groups, prune_group, word_batches
from beambert.tokenizer.normalization import CHARACTER_RULES
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.tokenizer.wordpiece import Coverage

OPTIONS = VocabularyOptions(
    do_lower_case=True,
    vocab_size=100,
    vocab_file="",
    num_unused=0,
    alphabet_limit=1000,
    min_count=1,
    compare_vocab="",
    language_sampling_exponent=1.0,
    character_rules=CHARACTER_RULES,
)
TEXTS = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=12).map(" ".join), max_size=5)


def merged(parts: list[list[str]], split: str, num_groups: int, seed: int) -> dict[int, tuple[dict[str, int], int]]:
    """Merge the word counts of shards as the engine does: batches in any order, in any number of accumulators."""
    draw = random.Random(seed)
    combine = MergeWordCounts()
    accumulators: dict[int, list[dict[float, tuple[dict[str, int], int]]]] = {}
    batches = [batch for texts in parts for batch in word_batches(split, texts, OPTIONS, num_groups)]
    draw.shuffle(batches)
    for (batch_split, _, group), batch in batches:
        assert batch_split == split
        some = accumulators.setdefault(group, [])
        if not some or draw.random() < 0.5:
            some.append(combine.create_accumulator())
        number = draw.randrange(len(some))
        some[number] = combine.add_input(some[number], batch)
    return {
        group: combine.extract_output(combine.merge_accumulators(some)) for group, some in sorted(accumulators.items())
    }


@given(parts=st.lists(TEXTS, max_size=5), seed=st.integers(0, 99))
def test_word_counts_add_up_in_any_order(parts: list[list[str]], seed: int) -> None:
    groups = merged(parts, "train", 4, seed)
    total = {word: count for counts, _ in groups.values() for word, count in counts.items()}
    assert total == Counter(word for texts in parts for text in texts for word in text.split())
    assert sum(len(counts) for counts, _ in groups.values()) == len(total)
    assert not any(withheld for _, withheld in groups.values())


@given(parts=st.lists(TEXTS, max_size=5), seed=st.integers(0, 99))
def test_only_the_most_frequent_words_of_a_shard_are_counted(parts: list[list[str]], seed: int) -> None:
    expected: Counter[str] = Counter()
    withheld = 0
    for texts in parts:
        counts = Counter(word for text in texts for word in text.split())
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        expected.update({word: counts[word] for word in ranked[:3]})
        withheld += sum(counts[word] for word in ranked[3:])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_groups, "WORDS_PER_SHARD", 3)
        groups = merged(parts, "train", 4, seed)
        assert {word: count for counts, _ in groups.values() for word, count in counts.items()} == expected
        assert sum(left_out for _, left_out in groups.values()) == withheld
        # All words of the validation split are measured.
        assert not any(left_out for _, left_out in merged(parts, "validation", 4, seed).values())


def test_words_that_are_too_long_are_withheld_from_both_splits() -> None:
    text = f"{'x' * 201} {'y' * 200} {'x' * 201}"
    for split in ("train", "validation"):
        counts, withheld = merged([[text]], split, 1, 0)[0]
        assert (counts, withheld) == ({"y" * 200: 1}, 2)
    only_too_long = merged([["x" * 201]], "validation", 4, 0)
    assert only_too_long == {0: ({}, 1)}


def test_a_group_keeps_its_most_frequent_words() -> None:
    group = prune_group(({"a": 2, "b": 3, "c": 2, "d": 1}, 7), limit=2, min_count=1)
    assert (group.words, group.distinct, group.running) == ({"a": 2, "b": 3}, 4, 15)
    assert prune_group(({"a": 2, "b": 3}, 0), limit=2, min_count=3).words == {"b": 3}


def test_dropped_words_of_the_validation_split_are_unknown() -> None:
    vocab = Vocabulary(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b"))
    other = Vocabulary((*vocab.tokens, "ab"))
    counts = ({"a": 2, "ab": 1, "x": 1}, 3)
    measured = Coverage(words=7, unknown=4, whole_words=2, tokens=8)
    assert measure_group(counts, Vocabularies(vocab, None, None)) == (measured, Coverage())
    assert measure_group(counts, Vocabularies(vocab, None, other)) == (measured, Coverage(7, 4, 3, 7))


def test_number_of_groups() -> None:
    assert [num_word_groups(partitions) for partitions in (1, 64, 65, 1024, 160_000)] == [64, 64, 65, 1024, 1024]


def test_given_vocabulary_needs_no_training_words() -> None:
    options = VocabularyOptions(**{**OPTIONS.__dict__, "vocab_size": 0, "vocab_file": "vocab.txt"})
    assert not list(word_batches("train", ["a b"], options, 4))
    assert list(word_batches("validation", ["a b"], options, 1)) == [(("validation", "", 0), ("a b", [1, 1], 0, 1.0))]


def test_language_factors() -> None:
    factors = language_factors({"en": 9000, "is": 10, "none": 0, "de": 990}, 0.7)
    shares = {"en": 0.9, "is": 0.001, "de": 0.099}
    smoothed = {language: share**0.7 for language, share in shares.items()}
    for language, share in shares.items():
        assert factors[language] * share == pytest.approx(smoothed[language] / sum(smoothed.values()))
    assert sum(factors[language] * share for language, share in shares.items()) == pytest.approx(1)
    assert factors.keys() == shares.keys()
    assert set(language_factors({"en": 5, "de": 3}, 1.0).values()) == {1.0}
    equal = language_factors({"en": 9, "de": 1}, 0.0)
    assert equal["en"] * 9 == pytest.approx(equal["de"] * 1)


@pytest.mark.parametrize("num_shards", [1, 2, 10])
def test_weighted_counts_do_not_depend_on_the_number_of_shards(num_shards: int) -> None:
    # 10 times "a", 3 times "b" and once each "c" and a long word in the input of weight 0.4, "b" once in the other.
    words = [*"abacaabaabaaa", "x" * 201, "a"]
    batches = list(word_batches("train", ["b b"], OPTIONS, 1, weight=1.0))
    for number in range(num_shards):
        batches += word_batches("train", words[number::num_shards], OPTIONS, 1, weight=0.4)
    combine = MergeWordCounts()
    for seed in range(3):
        random.Random(seed).shuffle(batches)
        accumulators = [combine.add_input(combine.create_accumulator(), batch) for _, batch in batches]
        counts = combine.extract_output(combine.merge_accumulators(accumulators))
        # 10 x 0.4, 3 x 0.4 + 2 x 1, and 0.4 + 0.4 for the words without a count.
        assert counts == ({"a": 4, "b": 3, "c": 0}, 1)
    group = prune_group(counts, limit=10, min_count=1)
    assert (group.words, group.distinct, group.running) == ({"a": 4, "b": 3}, 3, 8)


def test_weights_scale_counts() -> None:
    ((group, batch),) = word_batches("train", ["a a a b"], OPTIONS, 1, "de", 2.5)
    assert group == ("train", "de", 0)
    combine = MergeWordCounts()
    merged_once = combine.extract_output(combine.add_input(combine.create_accumulator(), batch))
    assert merged_once == ({"a": 8, "b": 2}, 0)
    counts = scale_language_counts((("train", "de", 3), ({"a": 8, "b": 2, "c": 1}, 4)), {"en": 75, "de": 25}, 0.0)
    # A share of a quarter becomes a half.
    assert counts == (("train", "", 3), ("a b c", [16, 4, 2], 8, 1.0))
    counts = scale_language_counts((("train", "en", 3), ({"a": 3, "c": 1}, 1)), {"en": 95, "de": 5}, 0.0)
    assert counts == (("train", "", 3), ("a c", [2, 1], 1, 1.0))
    # A word without a count is excluded, not forgotten.
    counts = scale_language_counts((("train", "en", 3), ({"a": 9, "c": 1}, 4)), {"en": 900, "de": 100, "fr": 1}, 0.0)
    assert counts == (("train", "", 3), ("a c", [3, 0], 2, 1.0))
