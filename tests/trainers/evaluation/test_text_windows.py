"""Test windows of text, which contain every token once, in order."""

import numpy as np
import pytest

from beambert.tokenizer.tokenizer import Tokenizer
from beambert.trainers.evaluation.text_windows import read_texts, sample_windows, text_units, text_windows
from tests.trainers.random_models import TEXTS, VOCABULARY

TOKENIZER = Tokenizer(VOCABULARY)


def test_units_are_lines_or_documents():
    lines = ["  one ", "two", "", " \t", "three\r", ""]
    assert list(text_units(lines, "line")) == ["  one ", "two", "three\r"]
    assert list(text_units(lines, "document")) == ["one two", "three"]
    assert list(text_units([], "document")) == list(text_units(["", " "], "line")) == []


@pytest.mark.parametrize("length", [3, 7, 64])
def test_every_token_is_in_one_window(length):
    windows = text_windows(TEXTS, TOKENIZER, length)
    ids, _ = TOKENIZER.encode_batch(TEXTS)
    assert windows.tokens == len(ids)
    counts = np.bincount(ids, minlength=len(VOCABULARY))
    assert [windows.occurrences(token) for token in range(5, 60)] == counts[5:60].tolist()
    assert (windows.counts.max() == 1) == (length == 64)
    if length == 64:
        np.testing.assert_array_equal(np.concatenate([row[1:-1] for row in windows.rows]), ids)
    for row in windows.rows:
        assert (row[0], row[-1]) == (VOCABULARY.cls_id, VOCABULARY.sep_id)
        assert 3 <= len(row) <= length
        assert row.dtype == np.int32


def test_the_windows_of_a_text_have_almost_equal_lengths():
    windows = text_windows(["human " * 11], TOKENIZER, 7)
    assert [len(row) - 2 for row in windows.rows] == [4, 3]
    assert windows.tokens == 11
    assert windows.counts.tolist() == [2, 1]


def test_equal_windows_are_counted():
    windows = text_windows(["all human rights", "All human rights", "rights"], TOKENIZER, 64)
    assert windows.counts.tolist() == [2, 1]
    assert windows.occurrences(VOCABULARY.ids["rights"]) == 3


def test_a_sample_has_at_most_the_given_tokens_and_depends_on_the_content():
    windows = text_windows(TEXTS, TOKENIZER, 16)
    sample = sample_windows(windows, 200)
    assert 186 <= sample.tokens <= 200
    other = sample_windows(text_windows(TEXTS[::-1], TOKENIZER, 16), 200)
    assert {row.tobytes() for row in other.rows} == {row.tobytes() for row in sample.rows}
    assert {row.tobytes() for row in sample.rows} != {row.tobytes() for row in windows.rows[: len(sample.rows)]}
    assert len(sample_windows(windows, 1).rows) == 1
    assert sample_windows(windows, None) is windows


def test_files_are_read_in_order(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo", encoding="utf-8")
    (tmp_path / "b.txt").write_bytes(b"\xef\xbb\xbfthree\r\n")
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    assert [text.strip() for text in read_texts(files, "line")] == ["one", "two", "three"]
    # Each file is a separate document.
    assert list(read_texts(files, "document")) == ["one two", "three"]
