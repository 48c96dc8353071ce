import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary
from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.tasks.ner import FIRST_TOKENS, tagging_rows, word_labels

LETTERS = "abcdefgh"
TOKENIZER = Tokenizer(Vocabulary((*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS), "abc")), False)
CLS, SEP = TOKENIZER.vocabulary.cls_id, TOKENIZER.vocabulary.sep_id
# The tokenizer removes the last two words; the word before them is a single token, [UNK].
WORDS = ["a", "abcd", "hgfedcba" * 3, "b", "ce", "xyz", "\x01", "\u200b"]


def pieces_of(word):
    return TOKENIZER.encode_batch([word])[0].tolist()


def rows_of(rows):
    return [row.tolist() for row in np.split(rows.ids, rows.row_splits[1:-1])]


def test_sentences_that_fit():
    words = ["a", "abcd", "\x01", "ce", "xyz", "\u200b"]
    rows = tagging_rows(words, np.array([0, 4, 5, 6]), None, np.arange(6, dtype=np.int32), TOKENIZER, 32)
    wanted = [[CLS, *pieces_of("a"), *pieces_of("abcd"), *pieces_of("ce"), SEP], [CLS, *pieces_of("xyz"), SEP]]
    assert rows_of(rows) == [*wanted, [CLS, SEP]]
    assert len(rows) == 3
    # Only first tokens are labeled: those of "a", "abc ##d", "c ##e" and the unknown word.
    assert rows.targets["label_ids"].tolist() == [-1, 0, 1, -1, 3, -1, -1, -1, 4, -1, -1, -1]
    assert rows.extras[FIRST_TOKENS].tolist() == [1, 2, -1, 4, 8, -1]
    assert (rows.truncated, rows.skipped, rows.segment_ids.any()) == (0, 0, False)
    assert (rows.ids.dtype, rows.segment_ids.dtype, rows.row_splits.dtype) == (np.int32, np.int32, np.int64)
    assert rows.targets["label_ids"].dtype == np.int32
    assert tagging_rows(words, np.array([0, 6]), None, None, TOKENIZER, 32).targets == {}


def test_word_labels_are_those_of_the_first_token():
    words = ["a", "abcd", "\x01", "xyz"]
    rows = tagging_rows(words, np.array([0, 3, 4]), None, None, TOKENIZER, 32)
    logits = [np.zeros((size, 4), np.float32) for size in np.diff(rows.row_splits)]
    logits[0][1, 1] = logits[0][2, 3] = logits[0][3, 1] = logits[1][1, 2] = 1
    logits[1][-1, 3] = 1  # [SEP] belongs to no word.
    assert word_labels(rows, logits, 0).tolist() == [1, 3, 0, 2]


@settings(deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=12), min_size=1, max_size=6),
    st.integers(3, 30),
    st.booleans(),
    st.data(),
)
def test_every_word_is_labeled_once(sentences, length, with_context, data):
    splits = np.cumsum([0, *map(len, sentences)])
    inner = sorted(data.draw(st.sets(st.integers(0, len(sentences)))))
    documents = np.unique([0, *inner, len(sentences)])
    words = [word for sentence in sentences for word in sentence]
    labels = np.arange(len(words), dtype=np.int32)
    rows = tagging_rows(words, splits, documents if with_context else None, labels, TOKENIZER, length)
    room = length - 2
    own = [pieces_of(word) for word in words]
    of_row = rows_of(rows)
    assert all(row[0] == CLS and row[-1] == SEP and len(row) <= length for row in of_row)
    assert rows.truncated == sum(sum(len(pieces_of(word)) for word in sentence) > room for sentence in sentences)
    # Labels are at the first tokens, each label once.
    found = rows.targets["label_ids"]
    firsts = rows.extras[FIRST_TOKENS]
    assert sorted(found[found >= 0].tolist()) == [number for number, pieces in enumerate(own) if pieces]
    for number, (pieces, first) in enumerate(zip(own, firsts.tolist(), strict=True)):
        assert first == -1 if not pieces else (found[first] == number and rows.ids[first] == pieces[0])
    # A row is a range of words of one sentence or document, with as much context on both sides as fits.
    answered = [labels[labels >= 0].tolist() for labels in np.split(found, rows.row_splits[1:-1])]
    outer = splits[documents] if with_context else splits
    for row, numbers in zip(of_row, answered, strict=True):
        if not numbers:
            continue
        place = int(np.searchsorted(outer, numbers[0], side="right")) - 1
        first, last = outer[place], outer[place + 1]
        assert last > numbers[-1]
        around = [piece for pieces in own[first:last] for piece in pieces]
        before = sum(map(len, own[first : numbers[0]]))
        size = sum(map(len, own[numbers[0] : numbers[-1] + 1]))
        if size > room:
            assert len(numbers) == 1
            size = room
        left = row_left(found, rows, numbers[0])
        right = len(row) - 2 - left - size
        assert row[1:-1] == around[before - left : before + size + right]
        assert len(row) - 2 == min(room, len(around)) or size == room
        missing_left, missing_right = before - left, len(around) - before - size - right
        assert abs(left - right) <= 1 or (left < right and not missing_left) or (right < left and not missing_right)
    if not with_context:
        whole = [sum(len(pieces_of(word)) for word in sentence) <= room for sentence in sentences]
        assert len(rows) == len(sentences) if all(whole) else len(rows) >= len(sentences)


def row_left(labels, rows, number):
    """Return the number of tokens between [CLS] and the first token of a word in its row."""
    place = int(np.flatnonzero(labels == number)[0])
    return place - int(rows.row_splits[np.searchsorted(rows.row_splits, place, side="right") - 1]) - 1


def test_long_sentence_is_split_into_ranges_with_context():
    words = list(LETTERS) * 5
    rows = tagging_rows(words, np.array([0, 40]), None, np.arange(40, dtype=np.int32), TOKENIZER, 22)
    assert rows.truncated == 1
    assert [len(row) for row in rows_of(rows)] == [22, 22, 22, 22]
    labels = np.split(rows.targets["label_ids"], rows.row_splits[1:-1])
    assert [row[row >= 0].tolist() for row in labels] == [list(range(n, n + 10)) for n in (0, 10, 20, 30)]
    # Half of the room is context: on both sides of ranges inside the sentence, on one side at its start and end.
    assert [int(np.flatnonzero(row >= 0)[0]) for row in labels] == [1, 6, 6, 11]


def test_too_short_max_seq_length_is_refused():
    with pytest.raises(TaskDataError, match="invalid --max_seq_length 2: must be at least 3"):
        tagging_rows(["a"], np.array([0, 1]), None, None, TOKENIZER, 2)
