"""Test the conversion of logits to answers against a plain reference, and the answers of a perfect model."""

import dataclasses
import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.common.tokenizer_files import AddedToken
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary
from beambert.trainers.finetuning.tasks import squad_answers
from beambert.trainers.finetuning.tasks.squad_answers import ONLY_NULL, find_answers, write_answers
from beambert.trainers.finetuning.tasks.squad_files import read_squad
from beambert.trainers.finetuning.tasks.squad_scores import scores_of_1_1
from beambert.trainers.finetuning.tasks.squad_windows import window_rows
from tests.trainers.finetuning.tasks.squad_examples import plain, squad_file
from tests.trainers.finetuning.tasks.squad_reference import PlainTokenizer, answers_of, windows_of
from tests.trainers.finetuning.tasks.test_squad_windows import SMALL, files


def logits_of(rows, generator, ties):
    """Return random logits, higher at the first position; with `ties` they are multiples of one half."""
    logits = []
    for size in np.diff(rows.row_splits):
        values = generator.normal(0, 2, (2, size)).astype(np.float32)
        values[:, 0] += 3
        logits.append(np.round(values * 2) / 2 if ties else values)
    return logits


def perfect_logits(rows):
    logits = []
    for number, size in enumerate(np.diff(rows.row_splits)):
        values = np.zeros((2, size), np.float32)
        values[0, rows.targets["start_positions"][number]] = 20
        values[1, rows.targets["end_positions"][number]] = 20
        logits.append(values)
    return logits


def assert_same(file, tokenizer, reference, sizes, search, generator, ties, directory, threshold=0.0):
    """Assert that the answers, and the bytes of their files, equal those of the reference."""
    length, stride, longest_query = sizes
    rows = window_rows(file, tokenizer, length, doc_stride=stride, max_query_length=longest_query, training=False)
    logits = logits_of(rows, generator, ties)
    n_best, longest, version_2 = search
    found = find_answers(file, rows, logits, n_best_size=n_best, max_answer_length=longest, version_2=version_2)
    contexts, questions = plain(file)
    windows, _ = windows_of(contexts, questions, reference, length, stride, longest_query, training=False)
    of_question = {number: [] for number in range(len(questions))}
    for window, values in zip(windows, logits, strict=True):
        of_question[window.question].append((window, values))
    predictions, listed, all_odds = {}, {}, {}
    for number, (_, context, _) in enumerate(questions):
        pairs = of_question[number]
        wanted, probabilities, odds = answers_of(
            number,
            contexts,
            context,
            [w for w, _ in pairs],
            [v for _, v in pairs],
            reference,
            n_best,
            longest,
            version_2,
        )
        answer = found[number]
        assert [candidate[:3] for candidate in answer.n_best] == wanted
        for candidate in answer.n_best:
            if candidate.span:
                start, end = candidate.span
                assert candidate.text.split() == contexts[context][start:end].split()
        np.testing.assert_allclose(answer.probabilities(), probabilities, rtol=1e-12)
        best = next((text for text, *_ in wanted if text), None)
        key = file.questions[number].id
        if version_2:
            assert answer.null_odds == pytest.approx(ONLY_NULL if odds is None else odds, abs=1e-9)
            all_odds[key] = answer.null_odds
            if n_best > 1:  # Otherwise the best text may not be listed.
                predictions[key] = "" if best is None or answer.null_odds > threshold else best
            else:
                predictions[key] = answer.chosen(threshold).text
        else:
            assert answer.null_odds is None
            predictions[key] = wanted[0][0]
        listed[key] = [
            {"text": text, "probability": probability, "start_logit": start, "end_logit": end}
            for (text, start, end), probability in zip(wanted, answer.probabilities(), strict=True)
        ]
    contents = {"predictions.json": predictions, "nbest_predictions.json": listed}
    if version_2:
        contents["null_odds.json"] = all_odds
    paths = write_answers(file, found, directory, threshold)
    assert [path.name for path in paths] == list(contents)
    for path in paths:
        assert path.read_text(encoding="utf-8") == json.dumps(contents[path.name], indent=4) + "\n"
    return found


@pytest.fixture(scope="module")
def released(shared_data):
    return Vocabulary.load(shared_data / "tokenizer/bert-base-uncased-vocab.txt")


@pytest.mark.parametrize(
    ("language", "lower", "version_2", "ties"),
    [("en", True, False, False), ("en", False, True, True), ("de", True, True, False), ("de", False, False, True)],
)
def test_answers_to_real_questions_equal_the_reference(
    shared_data, released, tmp_path, language, lower, version_2, ties
):
    file = read_squad(shared_data / f"squad/xquad.{language}.json", version_2=version_2).first(40)
    generator = np.random.default_rng(7)
    search = (20, 30, version_2)
    reference = PlainTokenizer(released.tokens, lower)
    assert_same(file, Tokenizer(released, lower), reference, (96, 30, 64), search, generator, ties, tmp_path)


@settings(max_examples=200, deadline=None)
@given(
    files(),
    st.booleans(),
    st.tuples(st.integers(7, 20), st.integers(1, 9), st.integers(1, 3)),
    st.tuples(st.integers(1, 6), st.integers(1, 6), st.booleans()),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
def test_answers_to_made_up_questions_equal_the_reference(tmp_path_factory, file, lower, sizes, search, seed, ties):
    reference = PlainTokenizer(SMALL.tokens, lower)
    directory = tmp_path_factory.mktemp("answers")
    generator = np.random.default_rng(seed)
    assert_same(file, Tokenizer(SMALL, lower), reference, sizes, search, generator, ties, directory)


# The three answers on XQuAD that the published procedure cannot return at any maximum answer length, by question id
# (uncased, 384 tokens, stride 128). With the default maximum of 30 tokens, it also loses 17 longer answers in German.
NEVER = {
    "en": {"5729e2316aef0514001550c5": "2,70 of 2,700,000, whose pieces are 2 , 700 , 000"},
    "de": {
        "5725c337271a42140099d166": "Tentakel of keineTentakel, whose pieces are keine ##tent ##ake ##l",
        "57274b35f1498d1400e8f5d4": "the word has a byte-order mark, which the tokenizer removes",
    },
}


@pytest.mark.parametrize(("language", "longest", "too_long"), [("en", 30, 0), ("de", 30, 17), ("de", 384, 0)])
def test_a_perfect_model_gets_every_answer_that_can_be_recovered(shared_data, released, language, longest, too_long):
    file = read_squad(shared_data / f"squad/xquad.{language}.json", version_2=False)
    rows = window_rows(file, Tokenizer(released), 384, training=False)
    found = find_answers(file, rows, perfect_logits(rows), max_answer_length=longest)
    contexts, questions = plain(file)
    reference = PlainTokenizer(released.tokens, True)
    windows, _ = windows_of(contexts, questions, reference, 384, 128, 64, training=False)
    targets = {window.question: window for window in windows if window.target[0] in window.max_context}
    assert len(targets) == len(questions)
    golds, texts, long = [], [], 0
    for number, (_, context, ((text, start),)) in enumerate(questions):
        best = found[number].n_best[0]
        first, last = targets[number].target
        if last - first >= longest:
            long += 1
            assert best.text != text
        elif file.questions[number].id in NEVER[language]:
            assert best.text != text
            assert text in best.text
        else:
            assert best.span == (start, start + len(text))
            assert contexts[context][slice(*best.span)] == text
            golds.append([text])
            texts.append(best.text)
    assert long == too_long
    assert len(golds) == len(questions) - too_long - len(NEVER[language])
    assert scores_of_1_1(golds, texts) == {"exact_match": 100.0, "f1": 100.0}


def test_answer_inside_a_single_token_is_extended_to_the_word(shared_data, released):
    """Test the published example: the answer "Japan" in "Japanese"."""
    file = squad_file(["the japanese tea"], [("who", 0, [("japan", 4)])])
    rows = window_rows(file, Tokenizer(released), 20, training=False)
    assert find_answers(file, rows, perfect_logits(rows))[0].n_best[0].text == "japanese"


def test_token_text_is_searched_in_its_words():
    """Check that the second token of "Aa" is found at the first letter, as in the published procedure."""
    file = squad_file(["Aa"], [("b", 0, [])])
    rows = window_rows(file, Tokenizer(SMALL), 9, training=False)
    values = np.array([[0, 0, 0, 0, 5, 0]] * 2, np.float32)  # [CLS] b [SEP] a ##a [SEP]
    assert find_answers(file, rows, [values])[0].n_best[0][::3] == ("A", (0, 1))


def test_answers_with_added_tokens_of_several_words_or_parts_of_words():
    base = (*SPECIAL_TOKENS, "cases", "in", "x", "s", ".", "a", "##b", "who")
    added = ("covid19", "new york", "[E1]")
    tokens = Vocabulary((*base, *added), added_tokens=tuple(map(AddedToken, added)))
    context = "Cases  of xCOVID19s in NEW York. [e1]; ab, Covid19"
    golds = ["Cases", "NEW York", "[e1]", "Covid19", "in NEW York", "ab"]
    questions = [("who", 0, [(gold, context.rindex(gold))]) for gold in golds]
    file = squad_file([context], questions)
    rows = window_rows(file, Tokenizer(tokens), 40, training=False)
    found = find_answers(file, rows, perfect_logits(rows))
    assert [answer.n_best[0].text for answer in found] == golds
    assert [context[slice(*answer.n_best[0].span)] for answer in found] == golds
    # A token inside a word is found there, as in `test_token_text_is_searched_in_its_words`.
    kept = rows.ids[rows.row_splits[0] : rows.row_splits[1]].tolist()
    at = kept.index(tokens.ids["covid19"])
    values = np.zeros((2, len(kept)), np.float32)
    values[:, at] = 5
    best = find_answers(file, rows, [values] * len(golds))[0].n_best[0]
    assert best.text == "COVID19"


def test_the_text_is_that_of_the_context_with_single_spaces():
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "cafe", "noir", "(", ")", "s", "'", "##x"))
    file = squad_file(["(Café \n Noir's)"], [("noir", 0, [("Café \n Noir", 1)])])
    rows = window_rows(file, Tokenizer(vocabulary), 20, training=False)
    best = find_answers(file, rows, perfect_logits(rows))[0].n_best[0]
    assert (best.text, best.span) == ("Café Noir", (1, 12))


def test_the_memory_of_a_large_n_best_size_is_bounded(monkeypatch):
    file = squad_file(["a aa " * 30], [("b", 0, [])] * 40)
    rows = window_rows(file, Tokenizer(SMALL), 128, training=False)
    logits = logits_of(rows, np.random.default_rng(1), False)
    expected = find_answers(file, rows, logits, n_best_size=60)
    peaks = []
    for pairs in (squad_answers._CHUNK_PAIRS, 60**2):
        monkeypatch.setattr(squad_answers, "_CHUNK_PAIRS", pairs)
        tracemalloc.start()
        assert find_answers(file, rows, logits, n_best_size=60) == expected
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] / 2


def test_empty_context_has_an_entry(tmp_path):
    file = squad_file(["", "a b"], [("a", 0, []), ("b", 1, [])])
    rows = window_rows(file, Tokenizer(SMALL), 9, training=False)
    zeros = [np.zeros((2, int(size)), np.float32) for size in np.diff(rows.row_splits)]
    empty, full = find_answers(file, rows, zeros)
    assert [candidate.text for candidate in empty.n_best] == ["empty"]
    assert empty.chosen(0.0).text == "empty"
    assert full.n_best[0].span is not None
    empty, full = find_answers(file, rows, zeros, version_2=True)
    assert (empty.chosen(1e9).text, empty.null_odds) == ("", ONLY_NULL)
    for path in write_answers(file, [empty, full], tmp_path):
        json.loads(path.read_text())


def test_no_answer_as_the_only_best_has_null_odds():
    # The released code crashes here, since none of the n best has a text.
    file = squad_file(["a b"], [("a", 0, [])])
    rows = window_rows(file, Tokenizer(SMALL), 9, training=False)
    values = np.array([[5, 0, 0, 2, 2, 0], [5, 0, 0, 2, 1, 0]], np.float32)
    (answer,) = find_answers(file, rows, [values], n_best_size=1, version_2=True)
    assert [candidate.text for candidate in answer.n_best] == [""]
    assert answer.null_odds is not None
    # The only start and end candidates are [CLS], so no candidate has a text.
    assert answer.null_odds == ONLY_NULL
    (answer,) = find_answers(file, rows, [values], n_best_size=2, version_2=True)
    assert (answer.null_odds, answer.chosen(6.0).text, answer.chosen(5.0).text) == (6.0, "a", "")


def test_no_questions_no_answers():
    file = dataclasses.replace(squad_file(["a"], []), questions=())
    rows = window_rows(file, Tokenizer(SMALL), 9, training=False)
    assert find_answers(file, rows, []) == []
