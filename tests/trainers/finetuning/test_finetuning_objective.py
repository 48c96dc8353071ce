"""Test the losses against plain sums over rows, computed from the logits."""

import math

import numpy as np
import pytest
import tensorflow as tf

from beambert.bert_model.finetuning_models import BertForTask
from beambert.bert_model.heads import HEADS
from beambert.trainers.finetuning.batches import features_of, row_lengths
from beambert.trainers.finetuning.finetuning_objective import LOSS, finetuning_objective
from tests.trainers.finetuning.rows_of_random_text import CONFIG, LABELS, random_rows


def model_of(head):
    tf.keras.utils.set_random_seed(1)
    model = BertForTask(CONFIG, head, HEADS[head].fixed_labels or LABELS)
    for variable in model.linear.variables:
        variable.assign(np.random.default_rng(2).normal(size=variable.shape))
    return model


def cross_entropy(scores, label):
    return math.log(sum(math.exp(float(score)) for score in scores)) - float(scores[label])


def plain_loss(head, features, logits, class_weights=None):
    """Return numerator and denominator of the loss, summed one prediction at a time."""
    top = bottom = 0.0
    for row in range(len(features["input_ids"])):
        if head == "regression":
            losses = [((float(logits[row]) - float(features["label_values"][row])) ** 2, 1.0)]
        elif head == "multi_label":
            each = []
            for score, value in zip(logits[row], features["label_values"][row], strict=True):
                probability = 1 / (1 + math.exp(-float(score)))
                each.append(-math.log(probability if value else 1 - probability))
            losses = [(sum(each) / len(each), 1.0)]
        elif head == "span":
            start = cross_entropy(logits[row][0], features["start_positions"][row])
            end = cross_entropy(logits[row][1], features["end_positions"][row])
            losses = [((start + end) / 2, 1.0)]
        elif HEADS[head].labels_positions:
            losses = [
                (cross_entropy(scores, label), class_weights[label] if class_weights else 1.0)
                for scores, label in zip(logits[row], features["label_ids"][row], strict=True)
                if label >= 0
            ]
        else:
            label = features["label_ids"][row]
            losses = [(cross_entropy(logits[row], label), class_weights[label] if class_weights else 1.0)]
        top += sum(loss * weight for loss, weight in losses)
        bottom += sum(weight for _, weight in losses)
    return top, bottom


WEIGHTS = (0.5, 2.0, 0.0)
CASES = [(head, None) for head in HEADS]
CASES += [("classification", WEIGHTS), ("token_classification", WEIGHTS)]


@pytest.mark.parametrize(("head", "class_weights"), CASES)
def test_losses_are_those_of_the_plain_sums(head, class_weights):
    rows = random_rows(head)
    model = model_of(head)
    task = finetuning_objective(model, class_weights=class_weights)
    features = features_of(rows, HEADS[head], np.arange(len(rows)), 24)
    tensors = {name: tf.constant(values) for name, values in features.items()}
    plain = model(tensors).numpy()
    top, bottom = plain_loss(head, features, plain, class_weights)
    sums = task.sums(tensors, None)
    assert float(sums[LOSS][0]) == pytest.approx(top, rel=1e-5)
    assert float(sums[LOSS][1]) == pytest.approx(bottom)
    assert float(task.weights(tensors)[LOSS]) == pytest.approx(bottom)
    # Rows with weight 0 do not contribute to the sums.
    half = {**tensors, "example_weights": tf.constant([1.0] * 5 + [0.0] * 5)}
    first = {name: values[:5] for name, values in tensors.items()}
    for name in sums:
        expected = task.sums(first, None)[name]
        assert [float(value) for value in task.sums(half, None)[name]] == pytest.approx(
            [float(value) for value in expected], rel=1e-5
        )
    by_row = HEADS[head].rows_of_batch(plain, row_lengths(rows).tolist())
    if HEADS[head].labels_positions or head == "span":
        assert [values.shape[1 if head == "span" else 0] for values in by_row] == row_lengths(rows).tolist()
    if head == "span":
        assert HEADS[head].evaluation_loss(rows.targets, by_row) is None
    elif class_weights is None:
        assert HEADS[head].evaluation_loss(rows.targets, by_row) == pytest.approx(top / bottom, rel=1e-5)


def test_accuracy_ignores_class_weights():
    rows = random_rows("classification", 30)
    model = model_of("classification")
    features = {
        name: tf.constant(v) for name, v in features_of(rows, HEADS["classification"], np.arange(30), 24).items()
    }
    right = np.mean(model(features).numpy().argmax(-1) == rows.targets["label_ids"])
    for weights in (None, (1.0, 5.0, 0.1)):
        top, bottom = finetuning_objective(model, class_weights=weights).sums(features, None)["accuracy"]
        assert float(top / bottom) == pytest.approx(right)


def test_frozen_variables_are_kept_but_not_trained():
    task = finetuning_objective(model_of("token_classification_bilstm"))
    assert len(task.variables) == 14
    assert not any(name.startswith("bert/") for name in task.variables)
    assert len(task.frozen) == 5 + 16 * 2 + 2
    assert not finetuning_objective(model_of("classification")).frozen
