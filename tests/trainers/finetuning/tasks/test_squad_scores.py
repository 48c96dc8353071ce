"""Test exact match and F1 against a slow oracle, written from the definitions, and against recorded scores."""

import json
import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.trainers.finetuning.tasks.squad_scores import (
    applied_threshold,
    exact_match,
    f1_score,
    normalized,
    question_scores,
    scores_of_1_1,
    scores_of_2_0,
)

ANSWERS = st.text("a tnheA.,'-\u00a0Ünß1", max_size=12) | st.sampled_from(
    ["", "the", "a cat", "The cat!", "an", "t h e"]
)


def plain_words(text):
    """Return the words between spaces, in lower case, without ASCII punctuation and separate articles."""
    kept = "".join(character for character in text.lower() if character not in string.punctuation)
    # An article is separate if no letter, digit or underscore is next to it.
    words, word = [], ""
    for character in kept + " ":
        if character.isalnum() or character == "_":
            word += character
        else:
            words += [word if word not in ("a", "an", "the") else " ", character]
            word = ""
    return "".join(words).split()


def plain_f1(gold, prediction):
    gold, prediction = plain_words(gold), plain_words(prediction)
    rest, same = list(gold), 0
    for word in prediction:
        if word in rest:
            rest.remove(word)
            same += 1
    return 2 * same / (len(gold) + len(prediction)) if same else 0.0


def plain_2_0(golds, predictions, odds):
    exact, f1 = [], []
    for answers, prediction in zip(golds, predictions, strict=True):
        answers = [answer for answer in answers if plain_words(answer)] or [""]
        exact.append(max(float(plain_words(answer) == plain_words(prediction)) for answer in answers))
        f1.append(
            max(
                plain_f1(answer, prediction)
                if plain_words(answer) and plain_words(prediction)
                else float(plain_words(answer) == plain_words(prediction))
                for answer in answers
            )
        )
    result = {}
    for name, scores in (("exact", exact), ("f1", f1)):
        groups = {"": lambda answers: True, "HasAns_": bool, "NoAns_": lambda answers: not answers}
        for prefix, belongs in groups.items():
            of_group = [score for score, answers in zip(scores, golds, strict=True) if belongs(answers)]
            if of_group:
                result[f"{prefix}{name}"] = 100 * sum(of_group) / len(of_group)
                result[f"{prefix}total"] = len(of_group)
        # Try every threshold, also between equal odds, since the script proceeds one question at a time.
        order = sorted(range(len(odds)), key=lambda number: odds[number])
        best, threshold = -1.0, 0.0
        for answered in range(len(order) + 1):
            total = 0.0
            for place, number in enumerate(order):
                if place >= answered:
                    total += not golds[number]
                elif golds[number]:
                    total += scores[number]
                else:
                    total += not predictions[number]
            if total > best + 1e-9:
                best, threshold = total, odds[order[answered - 1]] if answered else 0.0
        result[f"best_{name}"] = 100 * best / len(scores)
        result[f"best_{name}_thresh"] = threshold
    return result


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The Cat, a dog", "cat dog"),
        ("theatre anthem", "theatre anthem"),
        ("U.S.A.", "usa"),
        ("a-the", "athe"),
        ("“the”", "“ ”"),
        ("the\u00a0Nile", "nile"),
        ("A", ""),
    ],
)
def test_normalized(text, wanted):
    assert normalized(text) == wanted


@settings(max_examples=300)
@given(ANSWERS, ANSWERS)
def test_pairs_score_as_defined(gold, prediction):
    assert normalized(gold).split() == plain_words(gold)
    assert exact_match(gold, prediction) == float(plain_words(gold) == plain_words(prediction))
    assert f1_score(gold, prediction) == pytest.approx(plain_f1(gold, prediction), abs=1e-12)


def test_the_best_of_several_answers_counts():
    scores = scores_of_1_1([["tea leaf", "the tea"], ["rain"]], ["Tea", "sun and rain"])
    assert scores == {"exact_match": 50.0, "f1": 75.0}


QUESTIONS = st.lists(
    st.tuples(st.lists(ANSWERS, max_size=3), ANSWERS, st.integers(-4, 4).map(lambda half: half / 2)),
    min_size=1,
    max_size=9,
)


@settings(max_examples=300)
@given(QUESTIONS)
def test_scores_of_2_0_are_as_defined(questions):
    golds, predictions, odds = map(list, zip(*questions, strict=True))
    found, wanted = scores_of_2_0(golds, predictions, odds), plain_2_0(golds, predictions, odds)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value, abs=1e-9), name


@settings(max_examples=300)
@given(QUESTIONS)
def test_applied_threshold_gives_the_best_f1(questions):
    golds, predictions, odds = map(list, zip(*questions, strict=True))
    # The script counts answers without words, such as "the", as answers.
    golds = [list(filter(normalized, answers)) for answers in golds]
    predictions = [prediction if normalized(prediction) else "" for prediction in predictions]

    def f1_with(threshold):
        pairs = zip(predictions, odds, strict=True)
        chosen = ["" if odd > threshold else prediction for prediction, odd in pairs]
        return question_scores(golds, chosen).f1.sum()

    scores = question_scores(golds, predictions)
    threshold = applied_threshold(scores.f1, scores.has_answer, predictions, odds)
    assert f1_with(threshold) == pytest.approx(max(map(f1_with, [min(odds) - 1, *odds])))


def test_keys_have_the_order_of_the_script():
    keys = list(scores_of_2_0([["tea"], []], ["tea", ""], [-1.0, 2.0]))
    groups = [f"{prefix}{name}" for prefix in ("", "HasAns_", "NoAns_") for name in ("exact", "f1", "total")]
    assert keys == [*groups, "best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh"]


def test_recorded_scores_of_the_official_scripts(shared_data):
    """Check the scores of both scripts for predictions derived from XQuAD by a rule."""
    content = json.loads((shared_data / "squad/xquad.en.json").read_text(encoding="utf-8"))
    golds, predictions, odds = predictions_by_rule(content)
    with_answers = [number for number, answers in enumerate(golds) if answers]
    first = scores_of_1_1([golds[n] for n in with_answers], [predictions[n] for n in with_answers])
    assert first == pytest.approx(RECORDED_1_1, abs=1e-9)
    assert scores_of_2_0(golds, predictions, odds) == pytest.approx(RECORDED_2_0, abs=1e-9)


def predictions_by_rule(content):
    """Return the answers, a prediction and the null odds of each question.

    A prediction is the answer (exact, truncated, extended or in upper case), empty, or the start of the context.
    """
    golds, predictions, odds = [], [], []
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                number = len(golds)
                text, start = question["answers"][0]["text"], question["answers"][0]["answer_start"]
                golds.append([] if number % 5 == 0 else [text, text[: len(text) // 2]])
                context = paragraph["context"]
                predictions.append(
                    [
                        text,
                        text[:-3],
                        context[max(0, start - 12) : start + len(text) + 5],
                        "",
                        context[:20],
                        text.upper(),
                    ][number % 6]
                )
                odds.append(round(float(np.sin(number)) * 4 + (1.5 if number % 5 == 0 else -1), 3))
    return golds, predictions, odds


RECORDED_1_1 = {"exact_match": 34.87394957983193, "f1": 51.624976483373025}
RECORDED_2_0 = {
    "exact": 31.34453781512605,
    "f1": 44.91342656484966,
    "total": 1190,
    "HasAns_exact": 34.66386554621849,
    "HasAns_f1": 51.624976483373025,
    "HasAns_total": 952,
    "NoAns_exact": 18.067226890756302,
    "NoAns_f1": 18.067226890756302,
    "NoAns_total": 238,
    "best_exact": 37.563025210084035,
    "best_exact_thresh": 3.0,
    "best_f1": 51.131913959807605,
    "best_f1_thresh": 3.0,
}
