"""Test the windows over contexts against a plain reference, on real and made-up texts."""

import dataclasses

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary
from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.tasks.squad_files import read_squad
from beambert.trainers.finetuning.tasks.squad_windows import window_rows
from tests.trainers.finetuning.tasks.squad_examples import plain, squad_file
from tests.trainers.finetuning.tasks.squad_reference import PlainTokenizer, windows_of

PIECES = (*SPECIAL_TOKENS, *"abeßσς.(,)1#-", "##a", "##b", "##e", "##σ", "##ς", "##1", "ab", "##ab", "ᄀ", "##ᅡ", "中")
LETTERS = "aAabbé ..(,)1#-\u202f\u00a0\t\n\u2028\u200b\x1cΣßÅ가中x"
SMALL = Vocabulary(PIECES)


def assert_same(file, tokenizer, reference, length, stride, longest_query, training):
    rows = window_rows(file, tokenizer, length, doc_stride=stride, max_query_length=longest_query, training=training)
    windows, skipped = windows_of(*plain(file), reference, length, stride, longest_query, training)
    assert len(rows) == len(windows)
    assert rows.skipped == skipped
    for number, window in enumerate(windows):
        row = slice(rows.row_splits[number], rows.row_splits[number + 1])
        assert rows.ids[row].tolist() == [reference.ids[token] for token in window.tokens]
        assert rows.segment_ids[row].tolist() == window.segments
        target = rows.targets["start_positions"][number], rows.targets["end_positions"][number]
        assert target == window.target
        if not training:
            assert rows.extras["examples"][number] == window.question
            assert set(np.flatnonzero(rows.extras["max_context"][row])) == window.max_context
    for values in (rows.ids, rows.segment_ids, *rows.targets.values()):
        assert values.dtype == np.int32
    return rows


@pytest.fixture(scope="module")
def released(shared_data):
    return Vocabulary.load(shared_data / "tokenizer/bert-base-uncased-vocab.txt")


@pytest.mark.parametrize(
    ("language", "length", "stride", "longest_query"), [("en", 384, 128, 64), ("de", 96, 30, 12), ("en", 70, 200, 40)]
)
def test_rows_of_real_files_equal_the_reference(shared_data, released, language, length, stride, longest_query):
    reference = PlainTokenizer(released.tokens, lower=True)
    path = shared_data / f"squad/xquad.{language}.json"
    # Small windows are numerous, so only every third question is used.
    for training in (True, False):
        file = read_squad(path, version_2=False, training=training)
        if length < 384:
            file = squad_file(plain(file)[0], plain(file)[1][::3])
        rows = assert_same(file, Tokenizer(released), reference, length, stride, longest_query, training)
        if longest_query == 12:
            assert rows.truncated == sum(len(reference(question.text)) > 12 for question in file.questions) > 0


@st.composite
def files(draw):
    """Draw files whose answers are mostly slices of their contexts, otherwise random texts of the same length."""
    texts = st.text(LETTERS, max_size=40)
    contexts = draw(st.lists(texts, min_size=1, max_size=3))
    questions = []
    for _ in range(draw(st.integers(1, 4))):
        number = draw(st.integers(0, len(contexts) - 1))
        context = contexts[number]
        answers = []
        for _ in range(draw(st.integers(0, 2))):
            start, end = sorted((draw(st.integers(0, len(context))), draw(st.integers(0, len(context)))))
            text = context[start:end]
            if draw(st.integers(0, 3)) == 0:
                text = draw(st.text(LETTERS, min_size=end - start, max_size=end - start))
            if text.strip():
                answers.append((text, start))
        questions.append((draw(st.text(LETTERS, max_size=12)), number, answers))
    return squad_file(contexts, questions)


@settings(max_examples=250, deadline=None)
@given(files(), st.booleans(), st.integers(7, 20), st.integers(1, 9), st.integers(1, 3), st.booleans())
@example(squad_file([" \n", "a b"], [("a", 0, []), ("b", 1, [("b", 2)])]), True, 9, 1, 1, False)
@example(squad_file(["  ab"], [("a", 0, [("  ab", 0)]), ("a", 0, [("x", 0)])]), True, 9, 1, 1, True)
@example(squad_file([" a b"], [("a", 0, [(" a b", 0)])]), True, 9, 1, 1, True)
@example(squad_file(["  ab"], [("a", 0, [("ab", 0)])]), True, 9, 1, 1, True)
@example(squad_file(["a \u200b b"], [("a", 0, [("\u200b", 2)])]), True, 9, 1, 1, True)
def test_rows_of_made_up_files_equal_the_reference(file, lower, length, stride, longest_query, training):
    reference = PlainTokenizer(SMALL.tokens, lower)
    assert_same(file, Tokenizer(SMALL, lower), reference, length, stride, longest_query, training)


def test_an_answer_inside_a_word_is_narrowed_to_its_pieces():
    # The published example: 1895 in "(1895-1943).".
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "born", "(", "1895", "-", "1943", ")", "."))
    file = squad_file(["born (1895-1943)."], [("born", 0, [("1895", 6)]), ("born", 0, [("1895-1943).", 6)])])
    rows = window_rows(file, Tokenizer(vocabulary), 20, training=True)
    # [CLS] born [SEP] born ( 1895 - 1943 ) . [SEP]
    assert rows.targets["start_positions"].tolist() == [5, 5]
    assert rows.targets["end_positions"].tolist() == [5, 9]


@pytest.mark.parametrize("space", ["\u00a0", "\u2009", "\u3000", "\u202f", "\u2003", "\t"], ids=ascii)
def test_answers_with_any_white_space_are_kept(space):
    context = f"b{space}a a{space}b b"
    file = squad_file([context], [("a", 0, [(f"a{space}b", 4)]), ("a", 0, [("a b", 4)])])
    rows = window_rows(file, Tokenizer(SMALL), 20, training=True)
    assert rows.skipped == 0
    # [CLS] a [SEP] b a a b b [SEP]
    assert rows.targets["start_positions"].tolist() == [5, 5]
    assert rows.targets["end_positions"].tolist() == [6, 6]


def test_no_room_for_a_context_is_an_error_that_names_the_question():
    file = squad_file(["a b"], [("a", 0, []), ("a b a b", 0, [])])
    assert len(window_rows(file, Tokenizer(SMALL), 8, training=False)) == 3
    file = squad_file(["a b"], [("a", 0, []), ("a b a b a", 0, [])])
    with pytest.raises(TaskDataError, match=r"question q1 has 5 tokens.*--max_seq_length 8.*--max_query_length \(64\)"):
        window_rows(file, Tokenizer(SMALL), 8, training=False)


def test_a_file_without_answers_has_no_targets():
    file = dataclasses.replace(squad_file(["a b"], [("a", 0, [])]), labeled=False)
    assert window_rows(file, Tokenizer(SMALL), 9, training=False).targets == {}
