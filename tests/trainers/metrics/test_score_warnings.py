"""Test warnings about scores and chance levels against all constant predictions and all permutations."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.trainers.metrics import task_metrics
from beambert.trainers.metrics.score_warnings import (
    answer_warnings,
    choice_warnings,
    class_warnings,
    entity_warnings,
    label_set_warnings,
    label_warnings,
    number_warnings,
)
from beambert.trainers.metrics.task_metrics import confusion


def classes(labels, predictions, names=("no", "yes")):
    return class_warnings("dev", names, confusion(np.array(labels), np.array(predictions), len(names)))


def answers(generator, count, accuracy, share=0.5):
    """Return labels of two classes, and predictions that are correct with the same probability for both classes."""
    labels = (generator.random(count) < share).astype(int)
    return labels, np.where(generator.random(count) < accuracy, labels, 1 - labels)


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_in_the_labels(label):
    (line,) = classes([label] * 9, [label] * 9)
    assert line.startswith(f"Every example of dev has the label {('no', 'yes')[label]} (9 examples)")
    (line,) = classes([label] * 9, [0, 1] * 4 + [0])
    assert "has the label" in line


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        ({"label_ids": np.ones(30, np.int32)}, "the label yes (30 labels)"),
        # Words without a label do not count.
        ({"label_ids": np.repeat(np.array([-1, 0], np.int32), 30)}, "the label no (30 labels)"),
        ({"label_values": np.full(30, 2.5, np.float32)}, "the label 2.5 (30 labels)"),
        ({"label_values": np.tile(np.array([0, 1, 1], np.float32), (30, 1))}, "the same labels (30 labels)"),
        ({"label_ids": np.array([0] * 29 + [1], np.int32)}, None),
        ({"label_ids": np.ones(5, np.int32)}, None),
        ({"label_values": np.eye(30, dtype=np.float32)}, None),
        ({"label_ids": np.full(30, -1, np.int32)}, None),
        ({"start_positions": np.zeros(30, np.int32)}, None),
        ({}, None),
    ],
)
def test_labels_that_are_all_the_same(targets, words):
    names = None if "label_values" in targets else ("no", "yes")
    for split, remedy in (("train", "Train on examples"), ("dev", "Evaluate on examples")):
        lines = label_warnings(split, names, targets, is_training=split == "train")
        assert len(lines) == (words is not None)
        if words is not None:
            assert f"Every example of {split} has {words}" in lines[0]
            assert remedy in lines[0]


def test_one_class_in_the_predictions():
    (line,) = classes([1] * 13 + [0] * 6, [1] * 19)
    assert line.startswith(
        "The model predicts the label yes for every example of dev (accuracy 0.684, majority class 0.684)"
    )
    # The minority class as a constant prediction gives a warning too.
    assert "predicts the label no for every example" in classes([1] * 13 + [0] * 6, [0] * 19)[0]


def test_only_predictions_at_chance_give_a_warning():
    generator = np.random.default_rng(1)
    warned = sum(bool(classes(*answers(generator, 200, 0.5))) for _ in range(200))
    # About one random prediction in twenty is significantly above chance.
    assert warned > 180
    for accuracy, count, share in ((0.9, 40, 0.5), (0.75, 200, 0.5), (0.66, 1000, 0.5), (0.95, 500, 0.1)):
        assert not any(classes(*answers(generator, count, accuracy, share)) for _ in range(100))


def test_no_warning_if_rare_classes_are_found_with_an_accuracy_below_the_majority():
    # Like CoLA or a spam filter: 40 of 100 examples of the rare class are found, with 70 false positives.
    labels = np.repeat([0, 1], [900, 100])
    predictions = labels.copy()
    predictions[900:960] = 0
    predictions[:70] = 1
    assert (labels == predictions).mean() < 0.9
    assert not classes(labels, predictions)


def test_a_tiny_gain_over_many_examples_is_still_chance():
    # An accuracy of 0.506 over a million examples is significant, but the gain is negligible.
    counts = np.array([[253_000, 247_000], [247_000, 253_000]])
    (line,) = class_warnings("dev", ("no", "yes"), counts)
    assert "The accuracy on dev is 0.506, not significantly above the chance level (majority class 0.500" in line


def test_few_examples_are_not_significant():
    assert "standard error 0.354, 2 examples" in classes([0, 1], [0, 1])[0]
    assert not classes([0, 1] * 6, [0, 1] * 6)
    assert class_warnings("dev", ("a", "b"), np.zeros((2, 2), int)) == []


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=3, max_size=6))
def test_agreement_is_judged_as_by_all_permutations(pairs):
    """Compute the mean and the variance of the number of correct predictions over all permutations."""
    from beambert.trainers.metrics import score_warnings

    labels, predictions = (np.array(column) for column in zip(*pairs, strict=True))
    right = [(labels == predictions[list(order)]).sum() for order in itertools.permutations(range(len(labels)))]
    excess = (labels == predictions).sum() - np.mean(right)
    expected = excess < 2 * np.std(right) or excess < 0.05 * (len(labels) - np.mean(right))
    margin = abs(excess - 2 * np.std(right)), abs(excess - 0.05 * (len(labels) - np.mean(right)))
    if min(margin) > 1e-9:
        assert score_warnings._agree_at_chance(confusion(labels, predictions, 3)) == expected


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(2, 4))
def test_levels_of_classes_are_the_best_of_all_constant_answers(labels, classes):
    labels = np.array([label % classes for label in labels])
    levels = task_metrics.constant_class_levels(np.bincount(labels, minlength=classes))
    constants = [confusion(labels, np.full(len(labels), answer), classes) for answer in range(classes)]
    for name in ("accuracy", "macro_f1", "matthews"):
        (found,) = (value for key, value in levels.items() if key.startswith(name))
        assert found == pytest.approx(max(task_metrics.CLASS_METRICS[name](counts) for counts in constants))
    if classes == 2:
        assert levels["f1_constant_prediction"] == pytest.approx(max(task_metrics.f1(counts) for counts in constants))


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=8))
def test_levels_of_several_labels_are_the_best_of_all_sets(rows):
    labels = np.array(rows)
    levels = task_metrics.constant_labels_levels(labels)
    sets = [np.tile(answer, (len(labels), 1)) for answer in itertools.product([False, True], repeat=3)]
    for name, score in task_metrics.MULTI_LABEL_METRICS.items():
        (found,) = (value for key, value in levels.items() if key.startswith(name))
        assert found == pytest.approx(max(score(labels, answer) for answer in sets))


def test_numbers():
    generator = np.random.default_rng(2)
    labels = generator.uniform(0, 5, 200)
    assert number_warnings("dev", labels, labels + generator.normal(0, 1, 200)) == []
    # Predictions on another scale have the same correlation.
    assert number_warnings("dev", labels, labels / 50) == []
    assert "has the label 3" in number_warnings("dev", np.full(9, 3.0), labels[:9])[0]
    assert "nearly the same value for every example of dev, 2.5" in number_warnings("dev", labels, np.full(200, 2.5))[0]
    assert "nearly the same value" in number_warnings("dev", labels, 2.5 + labels * 1e-5)[0]
    assert "not significantly above 0" in number_warnings("dev", labels, generator.permutation(labels))[0]
    assert "not significantly above 0" in number_warnings("dev", labels, -labels)[0]
    assert number_warnings("dev", labels[:0], labels[:0]) == []


def test_several_labels():
    generator = np.random.default_rng(3)
    labels = generator.random((200, 4)) < 0.3
    good = labels ^ (generator.random((200, 4)) < 0.1)
    assert label_set_warnings("dev", labels, good) == []
    assert "predicts no label for any example of dev" in label_set_warnings("dev", labels, labels & False)[0]
    assert "predicts the same labels" in label_set_warnings("dev", labels, labels | True)[0]
    assert "have the same labels" in label_set_warnings("dev", labels[:1].repeat(9, 0), good[:9])[0]
    shuffled = generator.permutation(labels)
    assert "not above that of a constant prediction" in label_set_warnings("dev", labels, shuffled)[0]


def test_choices():
    generator = np.random.default_rng(4)
    labels = generator.integers(0, 4, 300)
    good = np.where(generator.random(300) < 0.6, labels, 0)
    assert choice_warnings("dev", labels, good, 4) == []
    assert "random choice 0.250" in choice_warnings("dev", labels, generator.permutation(labels), 4)[0]
    assert "number 0" in choice_warnings("dev", labels * 0, good, 4)[0]


def test_entities():
    numbers = {"true": 50, "predicted": 48, "f1": 0.8, "accuracy": 0.95, "majority": 0.8, "words": 900}
    assert entity_warnings("dev", **numbers) == []
    assert (
        "predicts no entity on dev"
        in entity_warnings("dev", **(numbers | {"predicted": 0, "f1": 0.0, "accuracy": 0.8}))[0]
    )
    assert "has no entities" in entity_warnings("dev", **(numbers | {"true": 0, "f1": 0.0}))[0]
    assert "entity F1 on dev" in entity_warnings("dev", **(numbers | {"f1": 0.02, "accuracy": 0.75}))[0]


def test_answers():
    has_answer = np.repeat([True, False], 50)
    texts = ["an answer", "another"] * 25 + [""] * 50
    assert answer_warnings("dev", has_answer, np.ones(100), texts) == []
    assert answer_warnings("dev", has_answer[:50], np.ones(50), texts[:50]) == []
    assert (
        "predicts no answer for every question of dev"
        in answer_warnings("dev", has_answer, 1.0 - has_answer, [""] * 100)[0]
    )
    assert "the same answer" in answer_warnings("dev", has_answer, np.zeros(100), ["x"] * 100)[0]
    assert "has no answerable question" in answer_warnings("dev", ~has_answer[:50], np.ones(50), [""] * 50)[0]
    half = np.repeat([0.0, 1.0], 50)
    assert "predicting no answer (50.0" in answer_warnings("dev", has_answer, half, texts)[0]
    assert "None of the 50 predicted answers" in answer_warnings("dev", has_answer[:50], np.zeros(50), texts[:50])[0]
