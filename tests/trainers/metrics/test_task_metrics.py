"""Test the task metrics against values recorded from scikit-learn 1.9.1 and SciPy 1.17.1, and plain definitions."""

import math

import numpy as np
import pytest

from beambert.trainers.metrics import task_metrics

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
