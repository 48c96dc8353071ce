"""Test typing errors: at most one per word, of the documented kinds, and no other changes."""

import string

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.pipelines.dataset import PartitionOfSplit
from beambert.pipelines.examples.pretraining_examples import PretrainingExamples
from beambert.pipelines.examples.shards import write_shards
from beambert.pipelines.instances.instances import from_sentences
from beambert.pipelines.instances.noise import add_noise
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary

# Single letters, so that every word without a q inside can be tokenized; also some longer tokens and digits.
INNER = set(string.ascii_lowercase) - {"q"}
VOCAB = Vocabulary(
    (
        *SPECIAL_TOKENS,
        *string.ascii_lowercase,
        *string.digits,
        *(f"##{letter}" for letter in sorted(INNER)),
        *("##0", "the", "word", "##ing", "##ord", "letter", "##qz", "."),
    )
)
TOKENIZER = Tokenizer(VOCAB)


def tokenized(documents: list[list[str]]):
    sentences = [sentence for document in documents for sentence in document]
    ids, splits = TOKENIZER.encode_batch(sentences)
    return from_sentences(ids, splits, np.array([len(document) for document in documents], np.int64))


def words_of(documents) -> list[list[str]]:
    """Return the words of every sentence."""
    bounds = documents.sentence_starts
    return [TOKENIZER.decode(documents.token_ids[bounds[i] : bounds[i + 1]]).split(" ") for i in range(len(bounds) - 1)]


def errors_of(word: str) -> set[str]:
    """Return all words that one typing error inside a word can give."""
    places = range(1, len(word) - 1)
    swapped = {word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in range(1, len(word) - 2)}
    dropped = {word[:i] + word[i + 1 :] for i in places}
    doubled = {word[:i] + word[i] + word[i:] for i in places}
    return (swapped | dropped | doubled) - {word}


texts = st.lists(
    st.sampled_from(
        ["the", "wording", "word", "letters", "a1bcd", "10000", ".", "abcd", "eeee", "aqua", "xyzzy", "aqz"]
    )
    | st.text(string.ascii_lowercase, min_size=1, max_size=9),
    min_size=1,
    max_size=12,
).map(" ".join)


@settings(max_examples=200, deadline=None)
@given(
    texts=st.lists(st.lists(texts, min_size=1, max_size=5), min_size=1, max_size=4),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 2**32),
)
def test_invariants_of_every_word(texts, share, seed):
    documents = tokenized(texts)
    before = documents.token_ids.copy()
    noisy, count = add_noise(documents, share, TOKENIZER, np.random.default_rng(seed))
    assert np.array_equal(documents.token_ids, before)
    assert np.array_equal(noisy.document_starts, documents.document_starts)
    assert np.array_equal(noisy.weights, documents.weights)
    assert noisy.token_ids.dtype == np.int32
    changed = 0
    for old, new in zip(words_of(documents), words_of(noisy), strict=True):
        for old_word, new_word in zip(old, new, strict=True):
            if new_word == old_word:
                # With a share of 1, a word stays only if it is short, is not all letters, or would become [UNK].
                can_fail = len(old_word) < 4 or not old_word.isalpha() or "q" in old_word
                assert share < 1 or can_fail
            else:
                assert len(old_word) >= 4
                assert old_word.isalpha()
                assert new_word in errors_of(old_word)
                changed += 1
    assert count == changed
    # The tokens are those that the tokenizer returns for the new words.
    sentences = [" ".join(words) for words in words_of(noisy)]
    ids, splits = TOKENIZER.encode_batch([sentence.replace("[UNK]", "qq") for sentence in sentences])
    assert np.array_equal(ids, noisy.token_ids)
    assert np.array_equal(splits, noisy.sentence_starts)


def test_share_and_kinds_of_errors():
    documents = tokenized([["word letter abcd the ."] * 3000])
    noisy, count = add_noise(documents, 0.1, TOKENIZER, np.random.default_rng(2))
    # Three standard deviations, of 9000 words of four letters or more.
    assert abs(count - 900) < 3 * (9000 * 0.1 * 0.9) ** 0.5
    lengths = [len(new[0]) for new in words_of(noisy) if new[0] != "word"]
    for length in (3, 4, 5):
        assert abs(lengths.count(length) / len(lengths) - 1 / 3) < 3 * (2 / 9 / len(lengths)) ** 0.5


def test_errors_occur_at_all_inner_letters_and_only_there():
    documents = tokenized([["abcdef"] * 2000])
    noisy, count = add_noise(documents, 1.0, TOKENIZER, np.random.default_rng(2))
    assert count == 2000
    assert {words[0] for words in words_of(noisy)} == errors_of("abcdef")


def test_errors_make_no_word_unknown():
    # Errors that would need the token "##q" are not made; it is missing, and a q inside occurs only in "##qz".
    documents = tokenized([["aaqz unspeakableé~ ßß"] * 300])
    noisy, _ = add_noise(documents, 1.0, TOKENIZER, np.random.default_rng(1))
    unknown = VOCAB.unk_id
    assert (noisy.token_ids == unknown).sum() == (documents.token_ids == unknown).sum()


def test_no_documents_and_no_words_to_change():
    for texts in ([], [["the . 1234"]]):
        documents = tokenized(texts)
        noisy, count = add_noise(documents, 1.0, TOKENIZER, np.random.default_rng(1))
        assert count == 0
        assert np.array_equal(noisy.token_ids, documents.token_ids)
        assert np.array_equal(noisy.sentence_starts, documents.sentence_starts)


def test_noise_is_added_to_the_training_split_only(tmp_path):
    documents = tokenized([["word letter wording abcdefgh"] * 20, ["the letter the word"] * 20])
    (tmp_path / "shards").mkdir()

    def written(split, copy, noise):
        options = PretrainingDataOptions(noise=noise)
        examples = PretrainingExamples(lambda _: documents, PartitionOfSplit(split, 0, 1), (copy,), TOKENIZER, options)
        shards, statistics = write_shards(examples, copy, str(tmp_path))
        return shards[0].sha256, statistics.words_with_noise

    assert written("validation", 0, 0.5) == written("validation", 0, 0.0)
    (first, first_count), (second, second_count), (clean, clean_count) = (
        written("train", copy, noise) for copy, noise in ((0, 0.5), (1, 0.5), (0, 0.0))
    )
    assert len({first, second, clean}) == 3
    # 120 words of four letters or more, four standard deviations.
    assert abs(first_count - 60) < 22
    assert abs(second_count - 60) < 22
    assert clean_count == 0
