"""Test the warnings of `beambert finetune` about uninformative scores, on the terminal and in the report.

Other scores cause no warning.
"""

import json

import pytest

from beambert import cli
from tests.trainers.finetuning.conftest import ONE_LAYER
from tests.trainers.random_models import VOCABULARY

GOOD, BAD = ("human rights", "all rights", "rights for all"), ("a b c", "no one is", "d e f")


@pytest.fixture
def finetune(tmp_path, capsys):
    """A function that fine-tunes on train labels, evaluates on dev labels, and returns printed output and report."""
    (tmp_path / "model.json").write_text(ONE_LAYER.to_json(), encoding="utf-8")
    (tmp_path / "vocab.txt").write_bytes(VOCABULARY.to_bytes())

    def run(train: list[str], dev: list[str], *flags: str, command: str = "finetune"):
        for name, labels in (("train", train), ("dev", dev)):
            rows = [f"{(GOOD if label == 'good' else BAD)[i // 3 % 3]},{label}" for i, label in enumerate(labels)]
            (tmp_path / f"{name}.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
        argv = [command, "csv", "--data_dir", str(tmp_path), "--output", str(tmp_path / "output"), *flags]
        argv += ["--model", str(tmp_path / "model.json"), "--vocab_file", str(tmp_path / "vocab.txt")]
        assert cli.main([*argv, "--max_seq_length", "32"]) == 0
        return capsys.readouterr(), (tmp_path / "output" / "report.html").read_text(encoding="utf-8")

    return run


QUICK = ("--num_train_epochs", "1", "--train_batch_size", "8", "--learning_rate", "0.1")


def results_of(tmp_path):
    return json.loads((tmp_path / "output" / "eval_results.json").read_text(encoding="utf-8"))


def test_a_development_set_of_one_class(finetune, tmp_path):
    said, report = finetune(["good", "bad"] * 16, ["bad"] * 20, *QUICK)
    warning = "Every example of dev has the label bad (20 examples)"
    # The warning is printed before the first step and in the summary.
    assert said.err.count("Every example of dev has the label bad") == 2
    assert f"warning: {warning}" in said.err
    assert warning in report
    assert "No warnings." not in report
    assert results_of(tmp_path)["eval_accuracy_majority_class"] == 1.0


def test_a_classifier_that_predicts_one_class(finetune, tmp_path):
    said, report = finetune(["good"] * 95 + ["bad"], ["good", "good", "bad"] * 10, *QUICK)
    warning = "The model predicts the label good for every example of dev (accuracy 0.667, majority class 0.667)"
    assert f"warning: {warning}" in said.err
    assert warning in report
    # The chance level follows each score: in the evaluation line, in the files and in the report.
    assert "eval_accuracy 0.6667 (majority class 0.6667), eval_f1 0.8 (constant prediction 0.8)" in said.out
    assert "validation" in said.out
    assert "eval_accuracy 0.667 (majority class 0.667)" in said.out
    assert "0.667 (majority class 0.667)" in report
    text = (tmp_path / "output" / "eval_results.txt").read_text(encoding="utf-8")
    assert "eval_accuracy_majority_class = 0.6666666666666666\n" in text


def test_warnings_of_several_runs_are_repeated_with_their_names(finetune, tmp_path):
    said, report = finetune(["good"] * 47 + ["bad"], ["good", "good", "bad"] * 10, *QUICK, "--seeds", "2")
    line = "seed-12345, seed-12346: The model predicts the label good for every example of dev"
    assert f"warning: {line}" in said.err
    assert said.err.count("The model predicts the label good for every example of dev") == 3
    assert line in report
    assert "majority class 0.6667" in said.out
    assert "accuracy (majority class 0.6667)" in report
    assert "eval_accuracy_majority_class" not in report
