"""Test the task metrics against values recorded from scikit-learn 1.9.1 and SciPy 1.17.1, and plain definitions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.metrics import task_metrics

THREE = ([0, 1, 2, 2, 1, 0, 1, 1, 2, 0, 1, 2], [0, 1, 1, 2, 1, 1, 1, 0, 2, 0, 2, 2])
TWO = ([1, 1, 0, 1, 0, 0, 1, 1, 0, 1], [1, 0, 0, 1, 1, 0, 1, 1, 1, 1])
SCORES = (
    [4.25, 2.2, 5.0, 3.867, 4.667, 3.8, 5.0, 4.8, 5.0, 4.2],
    [4.0, 2.5, 4.5, 3.867, 4.0, 2.5, 5.5, 4.0, 3.0, 4.2],
)
LABELS = (
    [[1, 0, 1], [0, 1, 0], [0, 0, 0], [1, 1, 0], [0, 0, 1]],
    [[1, 0, 0], [0, 1, 1], [0, 0, 0], [1, 0, 0], [0, 0, 1]],
)


def counts(labels, predictions, classes):
    return task_metrics.confusion(np.array(labels, np.int32), np.array(predictions, np.int64), classes)


def flags(values):
    return np.array(values, bool)


def test_classes_score_as_in_scikit_learn():
    three, two = counts(*THREE, 3), counts(*TWO, 2)
    assert task_metrics.accuracy(three) == pytest.approx(0.6666666666666666)
    assert task_metrics.macro_f1(three) == pytest.approx(0.6722222222222222)
    assert task_metrics.matthews(three) == pytest.approx(0.48936170212765956)
    assert task_metrics.accuracy(two) == pytest.approx(0.7)
    assert task_metrics.f1(two) == pytest.approx(0.7692307692307693)
    assert task_metrics.matthews(two) == pytest.approx(0.3563483225498992)


def test_numbers_score_as_in_scipy():
    labels, predictions = map(np.array, SCORES)
    assert task_metrics.pearson(labels, predictions) == pytest.approx(0.6400414036072041)
    assert task_metrics.spearman(labels, predictions) == pytest.approx(0.6479782221629948)
    assert task_metrics.ranks(predictions).tolist() == [6, 1.5, 9, 4, 6, 1.5, 10, 6, 3, 8]


def test_several_labels_score_as_in_scikit_learn():
    labels, predictions = map(flags, LABELS)
    assert task_metrics.micro_f1(labels, predictions) == pytest.approx(0.7272727272727273)
    assert task_metrics.mean_label_f1(labels, predictions) == pytest.approx(0.7222222222222222)
    assert task_metrics.subset_accuracy(labels, predictions) == pytest.approx(0.4)


def test_rows_of_the_confusion_matrix_are_true_classes():
    assert counts([0, 0, 0, 1], [0, 1, 1, 0], 2).tolist() == [[1, 2], [1, 0]]


def test_an_absent_class_does_not_affect_macro_f1():
    assert task_metrics.macro_f1(counts([0, 1], [0, 1], 3)) == 1.0


def test_predictions_that_are_all_the_same_score_zero():
    for constant in (0, 1):
        assert task_metrics.matthews(counts([0, 1, 1], [constant] * 3, 2)) == 0.0
    assert task_metrics.f1(counts([0, 1, 1], [0] * 3, 2)) == 0.0
    labels = np.array([1.0, 2.0, 4.0])
    for constant in (0.0, 1 / 3, 1e-30, 1e30):
        assert task_metrics.pearson(labels, np.full(3, constant, np.float32)) == 0.0
        assert task_metrics.spearman(np.full(3, constant), labels) == 0.0


def test_empty_input_scores_zero():
    none = np.zeros((0, 2), bool)
    assert [score(counts([], [], 2)) for score in task_metrics.CLASS_METRICS.values()] == [0.0] * 4
    assert [score(none, none) for score in task_metrics.MULTI_LABEL_METRICS.values()] == [0.0] * 3
    assert [score(np.zeros(0), np.zeros(0)) for score in task_metrics.REGRESSION_METRICS.values()] == [0.0] * 2


def test_a_nan_prediction_gives_nan():
    assert math.isnan(task_metrics.pearson(np.array([1.0, 2.0]), np.array([math.nan, 1.0])))


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=30))
def test_two_classes_follow_the_definitions(pairs):
    tp, tn, fp, fn = (pairs.count(pair) for pair in ((1, 1), (0, 0), (0, 1), (1, 0)))
    matrix = counts(*zip(*pairs, strict=True), 2)
    precision, recall = tp / max(tp + fp, 1), tp / max(tp + fn, 1)
    assert task_metrics.accuracy(matrix) == pytest.approx((tp + tn) / len(pairs))
    expected = 2 * precision * recall / (precision + recall) if tp else 0.0
    assert task_metrics.f1(matrix) == pytest.approx(expected)
    below = math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    assert task_metrics.matthews(matrix) == pytest.approx((tp * tn - fp * fn) / below if below else 0.0)
    # The Matthews correlation is the Pearson correlation of the two series of zeros and ones.
    series = np.array(pairs, np.float64).T
    assert task_metrics.matthews(matrix) == pytest.approx(task_metrics.pearson(*series), abs=1e-12)


@given(st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=2, max_size=30))
def test_numbers_follow_the_definitions(pairs):
    def correlation(xs, ys):
        x, y = sum(xs) / len(xs), sum(ys) / len(ys)
        above = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True))
        below = math.sqrt(sum((a - x) ** 2 for a in xs) * sum((b - y) ** 2 for b in ys))
        return above / below if len(set(xs)) > 1 and len(set(ys)) > 1 else 0.0

    def ranks(values):
        return [sum(other < value for other in values) + (values.count(value) + 1) / 2 for value in values]

    xs, ys = map(list, zip(*pairs, strict=True))
    x, y = np.array(xs, np.float32), np.array(ys, np.float32)
    assert task_metrics.ranks(x).tolist() == ranks(xs)
    assert task_metrics.pearson(x, y) == pytest.approx(correlation(xs, ys), abs=1e-9)
    assert task_metrics.spearman(x, y) == pytest.approx(correlation(ranks(xs), ranks(ys)), abs=1e-9)


@given(st.lists(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=3, max_size=3), min_size=1, max_size=12))
def test_several_labels_follow_the_definitions(rows):
    def f1(pairs):
        right = sum(label and prediction for label, prediction in pairs)
        return 2 * right / max(sum(label + prediction for label, prediction in pairs), 1)

    labels, predictions = (flags([[pair[side] for pair in row] for row in rows]) for side in (0, 1))
    assert task_metrics.micro_f1(labels, predictions) == pytest.approx(f1([pair for row in rows for pair in row]))
    of_labels = [f1([row[number] for row in rows]) for number in range(3)]
    assert task_metrics.mean_label_f1(labels, predictions) == pytest.approx(sum(of_labels) / 3)
    right = sum(all(label == prediction for label, prediction in row) for row in rows)
    assert task_metrics.subset_accuracy(labels, predictions) == pytest.approx(right / len(rows))
