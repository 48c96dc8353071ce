"""Test the chance levels of pretraining: against counts in the shards, next to the scores, and in warnings."""

import json

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from beambert.trainers.commands import pretrain
from beambert.trainers.metrics.chance_levels import (
    is_level,
    level_of,
    pretraining_levels,
    pretraining_warnings,
    with_level,
)


def counted(data) -> tuple[float, float, int]:
    """Return the fractions of the most frequent masked token and label, and the number of masked tokens.

    The counts are of copy 0 of the validation split.
    """
    tokens: list[int] = []
    labels: list[int] = []
    for path in sorted(data.glob("validation-0-*")):
        for record in tf.data.TFRecordDataset(str(path)):
            example = tf.train.Example.FromString(record.numpy()).features.feature
            weights = example["masked_lm_weights"].float_list.value
            ids = example["masked_lm_ids"].int64_list.value
            tokens += [token for token, weight in zip(ids, weights, strict=True) if weight]
            labels += example["next_sentence_labels"].int64_list.value
    return (
        np.bincount(tokens).max() / len(tokens),
        max(labels.count(0), labels.count(1)) / len(labels),
        len(tokens),
    )


def results_of(output):
    return json.loads((output / "eval_results.json").read_text(encoding="utf-8"))


@pytest.mark.usefixtures("numpy_backend")
def test_a_model_at_chance_gives_a_warning_on_the_terminal_and_in_the_report(data, options, tmp_path, capsys):
    assert pretrain.run(options("--eval_steps", "4", "--save_checkpoints_steps", "4")) == 0
    said, output = capsys.readouterr(), tmp_path / "output"
    token, label, predictions = counted(data)
    results = results_of(output)
    assert results["masked_lm_accuracy_most_frequent_token"] == pytest.approx(token)
    assert results["next_sentence_accuracy_majority_class"] == pytest.approx(label)
    assert (results["masked_lm_predictions"], results["next_sentence_pairs"]) == (predictions, 11)
    report = (output / "report.html").read_text(encoding="utf-8")
    beside = f"(most frequent token {token:.3f})"
    assert f"masked-LM accuracy {results['masked_lm_accuracy']:.3f} {beside}" in said.out
    assert f"{beside}" in report
    # The validation lines during training show the levels too.
    line = said.out.partition("step 4/6  validation")[2].partition("\nstep ")[0]
    assert beside in line
    assert f"(majority class {label:.3f})" in line
    (warning,) = (line for line in said.err.splitlines() if "masked-LM accuracy" in line)
    assert warning.startswith("warning: ")
    assert "not significantly above the most frequent token baseline" in warning
    assert warning.removeprefix("warning: ") in report
    assert "No warnings." not in report
    # A chance level has neither a curve nor a column.
    assert "most frequent token by step" not in report
    assert "masked lm accuracy most frequent token" not in report


def metrics(mlm, token, predictions, nsp=None, label=None, pairs=None):
    found = {
        "masked_lm_accuracy": mlm,
        "masked_lm_accuracy_most_frequent_token": token,
        "masked_lm_predictions": predictions,
    }
    if nsp is not None:
        found |= {
            "next_sentence_accuracy": nsp,
            "next_sentence_accuracy_majority_class": label,
            "next_sentence_pairs": pairs,
        }
    return found


@pytest.mark.parametrize(
    ("found", "warned"),
    [
        # Like BERT in its first thousands of steps: at the chance level, and slightly above and below it.
        (metrics(0.055, 0.055, 20_000), ["masked-LM"]),
        (metrics(0.057, 0.055, 1_000_000), ["masked-LM"]),
        (metrics(0.050, 0.055, 20_000), ["masked-LM"]),
        (metrics(0.075, 0.055, 20_000), []),
        # With few predictions, the same difference is not significant.
        (metrics(0.075, 0.055, 200), ["masked-LM"]),
        (metrics(0.4, 0.055, 200, 0.5, 0.5, 1000), ["next-sentence"]),
        (metrics(0.4, 0.055, 200, 0.9, 0.9, 1000), ["next-sentence"]),
        (metrics(0.4, 0.055, 200, 0.95, 0.5, 100), []),
        (metrics(0.01, 0.055, 200, 0.55, 0.5, 100), ["masked-LM", "next-sentence"]),
        ({"masked_lm_accuracy": 0.0}, []),
        ({"masked_lm_accuracy": 0.1, "masked_lm_accuracy_most_frequent_token": "x", "masked_lm_predictions": None}, []),
    ],
)
def test_scores_at_chance_and_above(found, warned):
    lines = pretraining_warnings(found)
    assert [line.split(" accuracy")[0].removeprefix("The ") for line in lines] == warned


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([0.0, 1.0]), st.booleans()), min_size=1, max_size=12))
def test_levels_are_those_of_all_batches_together(rows):
    batches = [
        {
            "masked_lm_ids": np.array([[token]]),
            "masked_lm_weights": np.array([[weight]], np.float32),
            "next_sentence_labels": np.array([token % 2]),
            "example_weights": np.array([float(real)], np.float32),
        }
        for token, weight, real in rows
    ]
    tokens = [token for token, weight, real in rows if weight and real]
    labels = [token % 2 for token, _, real in rows if real]
    expected = {}
    if tokens:
        share = max(map(tokens.count, tokens)) / len(tokens)
        expected |= {"masked_lm_accuracy_most_frequent_token": share, "masked_lm_predictions": len(tokens)}
    if labels:
        share = max(map(labels.count, labels)) / len(labels)
        expected |= {"next_sentence_accuracy_majority_class": share, "next_sentence_pairs": len(labels)}
    assert pretraining_levels(batches, True) == pytest.approx(expected)
    assert not any("next" in name for name in pretraining_levels(batches, False))


def test_a_level_is_found_by_the_name_of_its_score():
    found = {"eval_accuracy": 0.683, "eval_accuracy_majority_class": 0.684, "eval_loss": 0.6}
    assert level_of("eval_accuracy", found) == ("majority class", 0.684)
    assert level_of("eval_loss", found) is None
    assert with_level("accuracy 0.683", "eval_accuracy", found) == "accuracy 0.683 (majority class 0.684)"
    assert with_level("loss 0.6", "eval_loss", found) == "loss 0.6"
    assert [is_level(name) for name in found] == [False, True, False]
