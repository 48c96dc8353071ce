"""Test text tasks: metrics, prediction files and report details from logits."""

import csv

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from beambert.bert_model.heads import HEADS
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.tasks.text_task import (
    ClassTask,
    LabelSetTask,
    NumberTask,
    TextExample,
)
from tests.trainers.finetuning.tasks import glue_layouts
from tests.trainers.finetuning.tasks.glue_layouts import open_glue, write_task

TOKENIZER = Tokenizer(glue_layouts.VOCABULARY)
# Logits of five examples with the most probable classes 1 0 1 1 0.
TWO_CLASSES = np.array([[-1, 1], [2, -2], [0, 1], [-3, 3], [1, 0]], np.float32)


def small_task(labels, examples, kind=None, **options):
    kind = kind or (NumberTask if labels is None else ClassTask)
    defaults = {
        "name": "csv",
        "labels": labels,
        "metric_names": ("pearson", "spearman") if labels is None else ("accuracy",),
        "splits": {"dev": examples, "test": examples},
    }
    return kind(**{**defaults, **options})


def emotions():
    """Return a multi-label task with three examples, the last of which has no label."""
    examples = [
        TextExample("a", label=("joy", "awe"), where="row 1"),
        TextExample("b", label=("fear",), where="row 2"),
        TextExample("one\ttwo\r\n", label=(), where="row 3"),
    ]
    metric_names = ("micro_f1", "macro_f1", "subset_accuracy")
    return small_task(("awe", "fear", "joy"), examples, LabelSetTask, metric_names=metric_names)


EMOTION_LOGITS = np.array([[2, -1, 3], [-1, -2, 4], [-5, -5, -5]], np.float32)


def logits_of(task):
    count = 1 if task.labels is None else len(task.labels)
    logits = np.random.default_rng(0).normal(0, 3, (5, count)).astype(np.float32)
    return logits[:, 0] if task.labels is None else logits


def read_lines(path):
    return path.read_text(encoding="utf-8").splitlines()


def test_the_names_of_the_scores(tmp_path):
    names = {
        "mrpc": {"dev": ["eval_accuracy", "eval_f1"]},
        "qqp": {"dev": ["eval_accuracy", "eval_f1"]},
        "cola": {"dev": ["eval_matthews", "eval_accuracy"]},
        "stsb": {"dev": ["eval_pearson", "eval_spearman"]},
        "mnli": {"dev": ["eval_accuracy"], "dev_mismatched": ["eval_mismatched_accuracy"]},
        "xnli": {"dev": ["eval_accuracy"], "test": ["test_accuracy"]},
    }
    for name, by_split in names.items():
        write_task(tmp_path / name, name)
        task = open_glue(name, tmp_path / name, "dev", "test")
        for split, expected in by_split.items():
            assert list(task.metrics(split, task.rows(split, TOKENIZER, 12), logits_of(task))) == expected


def test_f1_is_that_of_paraphrases_in_any_order_of_classes(tmp_path):
    # Labels 0 1 0 1 0, predictions 1 1 1 1 0. Two of the four predicted 1s are correct, and both true 1s are found.
    write_task(tmp_path, "mrpc")
    logits = np.array([[0, 1], [0, 1], [0, 1], [0, 1], [1, 0]], np.float32)
    for labels, columns in ((("0", "1"), logits), (("1", "0"), logits[:, ::-1])):
        task = open_glue("mrpc", tmp_path, "dev", labels=labels)
        scores = task.metrics("dev", task.rows("dev", TOKENIZER, 12), columns)
        assert scores == pytest.approx({"eval_accuracy": 3 / 5, "eval_f1": 4 / 6})


def test_test_results_are_those_of_run_classifier(tmp_path):
    write_task(tmp_path, "mrpc")
    task = open_glue("mrpc", tmp_path, "test")
    files = task.write_predictions("test", task.rows("test", TOKENIZER, 12), TWO_CLASSES, tmp_path)
    assert [file.name for file in files] == ["test_results.tsv", "MRPC.tsv"]
    values = [list(map(float, line.split("\t"))) for line in read_lines(files[0])]
    exponentials = np.exp(TWO_CLASSES.astype(np.float64))
    np.testing.assert_allclose(values, exponentials / exponentials.sum(1, keepdims=True), rtol=1e-6)
    assert read_lines(files[1]) == ["index\tprediction", "100\t1", "101\t0", "102\t1", "103\t1", "104\t0"]


def test_submissions_contain_label_names(tmp_path):
    write_task(tmp_path, "mnli")
    task = open_glue("mnli", tmp_path, "test")
    rows = task.rows("test", TOKENIZER, 12)
    names = [file.name for split in task.splits for file in task.write_predictions(split, rows, np.eye(5, 3), tmp_path)]
    assert names == [
        "test_results.tsv",
        "MNLI-m.tsv",
        "test_results_mismatched.tsv",
        "MNLI-mm.tsv",
        "test_results_diagnostic.tsv",
        "AX.tsv",
    ]
    assert read_lines(tmp_path / "AX.tsv")[1:4] == ["100\tcontradiction", "101\tentailment", "102\tneutral"]


def test_scores_for_the_server_lie_between_0_and_5(tmp_path):
    write_task(tmp_path, "stsb")
    task = open_glue("stsb", tmp_path, "test")
    scores = np.array([-0.5, 0.1, 2.5, 5.1, 5], np.float32)
    task.write_predictions("test", task.rows("test", TOKENIZER, 12), scores, tmp_path)
    assert [line.split("\t")[1] for line in read_lines(tmp_path / "STS-B.tsv")[1:]] == [
        "0.0",
        "0.1",
        "2.5",
        "5.0",
        "5.0",
    ]
    assert read_lines(tmp_path / "test_results.tsv") == ["-0.5", "0.1", "2.5", "5.1", "5.0"]


def test_examples_without_index_are_numbered_from_0(tmp_path):
    examples = [TextExample("a", label="0"), TextExample("b", label="1")]
    task = small_task(("0", "1"), examples, submission_files={"test": "X.tsv"})
    task.write_predictions("test", task.rows("test", TOKENIZER, 16), TWO_CLASSES[:2], tmp_path)
    assert (tmp_path / "X.tsv").read_bytes() == b"index\tprediction\n0\t1\n1\t0\n"


def test_readable_predictions(tmp_path):
    examples = [
        TextExample('say "hi"\tnow\n', "pair", "yes"),
        TextExample("a\u2028b", None, "no"),
    ]
    task = small_task(("no", "yes"), examples)
    logits = np.log(np.array([[1, 3], [1, 1]], np.float32))
    files = task.write_predictions("test", task.rows("test", TOKENIZER, 12), logits, tmp_path)
    assert [file.name for file in files] == ["test_results.tsv", "predictions.tsv"]
    assert len(read_lines(files[1])) == 3
    with files[1].open(encoding="utf-8", newline="") as lines:
        table = list(csv.reader(lines, delimiter="\t"))
    assert table == [
        ["text", "text_pair", "label", "prediction", "probability"],
        ['say "hi" now', "pair", "yes", "yes", "0.75"],
        ["a b", "", "no", "no", "0.5"],
    ]


def test_several_labels(tmp_path):
    task = emotions()
    rows = task.rows("dev", TOKENIZER, 12)
    assert rows.targets["label_values"].tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 0]]
    # Predicted: awe and joy; joy; none.
    assert task.metrics("dev", rows, EMOTION_LOGITS) == pytest.approx(
        {"eval_micro_f1": 4 / 6, "eval_macro_f1": (1 + 0 + 2 / 3) / 3, "eval_subset_accuracy": 2 / 3}
    )
    details = task.details("dev", rows, EMOTION_LOGITS)
    assert details["by_type"][2] == {"type": "joy", "precision": 0.5, "recall": 1.0, "f1": 2 / 3, "count": 1}
    (mistake,) = details["errors"]
    assert (mistake["location"], mistake["label"], mistake["prediction"]) == ("row 2", "fear", "joy")
    _, answers = task.write_predictions("test", rows, EMOTION_LOGITS, tmp_path)
    lines = [line.split("\t") for line in read_lines(answers)]
    assert lines[0] == ["text", "label", "prediction", *(f"probability of {name}" for name in ("awe", "fear", "joy"))]
    assert [line[:3] for line in lines[1:]] == [
        ["a", "joy, awe", "awe, joy"],
        ["b", "fear", "joy"],
        ["one two", "", ""],
    ]


def test_the_most_confident_mistakes_come_first():
    examples = [TextExample(f"text {number}", "pair", "no", f"row {number}") for number in range(80)]
    task = small_task(("no", "yes"), examples)
    confidence = (
        np.random.default_rng(3).permutation(80) - 9
    )  # Nine are negative and one is 0: these predict "no", correctly.
    logits = np.stack([np.zeros(80), confidence / 10], axis=1).astype(np.float32)
    details = task.details("dev", task.rows("dev", TOKENIZER, 12), logits)
    assert details["confusion"] == {"labels": ["no", "yes"], "counts": [[10, 70], [0, 0]]}
    order = [int(place) for place in np.argsort(-confidence)[:50]]
    assert [mistake["location"] for mistake in details["errors"]] == [f"row {place}" for place in order]
    first = details["errors"][0]
    assert first["probability"] == pytest.approx(1 / (1 + np.exp(-7)))
    assert (first["text"], first["text_pair"]) == (f"text {order[0]}", "pair")
    assert (first["label"], first["prediction"]) == ("no", "yes")


def test_points_and_the_largest_errors_of_a_regression():
    examples = [TextExample("a", label=float(number), where=f"row {number}") for number in range(2000)]
    task = small_task(None, examples)
    rows = task.rows("dev", TOKENIZER, 12)
    assert rows.targets["label_values"].dtype == np.float32
    predictions = np.arange(2000, dtype=np.float32)
    predictions[[3, 700]] = [0.5, 690]
    details = task.details("dev", rows, predictions)
    points = details["regression"]["points"]
    assert len(points) == 500
    assert (points[0], points[-1]) == ([0, 0], [1999, 1999])
    assert details["errors"] == [
        {"location": "row 700", "text": "a", "text_pair": None, "label": "700", "prediction": "690"},
        {"location": "row 3", "text": "a", "text_pair": None, "label": "3", "prediction": "0.5"},
    ]


def test_the_label_of_an_error_has_all_digits():
    task = small_task(None, [TextExample("a", label=label, where="row 1") for label in (1234567.0, 0.1)])
    details = task.details("dev", task.rows("dev", TOKENIZER, 12), np.zeros(2, np.float32))
    assert [mistake["label"] for mistake in details["errors"]] == ["1234567", "0.1"]


def test_missing_and_unknown_labels_are_refused():
    known, unknown = TextExample("a", label="yes"), TextExample("b", where="dev.csv, row 2")
    with pytest.raises(TaskDataError, match=r"^dev\.csv, row 2: label is missing, "):
        small_task(("no", "yes"), [known, unknown])
    with pytest.raises(TaskDataError, match=r"^dev\.csv, row 3: label 'rage' is not one of awe, joy: "):
        small_task(("awe", "joy"), [TextExample("a", label=("awe", "rage"), where="dev.csv, row 3")], LabelSetTask)
    with pytest.raises(TaskDataError, match=r"not one of 0, 1, 2, 3, 4, 5 and 194 more: "):
        small_task(tuple(map(str, range(200))), [TextExample("a", label="x")])


@pytest.mark.parametrize("label", [float("nan"), float("inf"), 1e39, -1e39])
def test_numbers_that_are_not_finite_in_float32_are_refused(label):
    with pytest.raises(TaskDataError) as caught:
        small_task(None, [TextExample("a", label=label, where="dev.tsv, row 2")])
    assert str(caught.value).startswith(f"dev.tsv, row 2: label {label!r} is not a finite number in float32")
    assert "\n" not in str(caught.value)


def test_the_largest_number_of_float32_is_a_label():
    largest = float(np.finfo(np.float32).max)
    task = small_task(None, [TextExample("a", label=largest)])
    assert task.rows("dev", TOKENIZER, 12).targets["label_values"].tolist() == [largest]


def test_partly_labeled_test_split_has_no_targets():
    examples = [TextExample("a", label="yes"), TextExample("b")]
    task = small_task(("no", "yes"), [], splits={"dev": examples[:1], "test": examples})
    assert task.eval_splits == ("dev",)
    assert task.rows("test", TOKENIZER, 12).targets == {}


def test_a_test_split_is_not_scored_in_place_of_dev():
    # A run selects its best checkpoint by the first evaluated split.
    examples = [TextExample("a", label="yes")]
    assert small_task(("no", "yes"), [], splits={"train": examples, "test": examples}).eval_splits == ()


def test_fingerprint_depends_on_the_inputs_of_rows():
    def fingerprint(*examples, labels=("no", "yes"), **options):
        return small_task(labels, list(examples), **options).fingerprint("dev")

    example = TextExample("a", "b", "yes", "row 1", "7")
    same = fingerprint(example)
    assert same == fingerprint(TextExample("a", "b", "yes", "elsewhere", "8"))
    assert len(same) == 32
    others = [
        fingerprint(TextExample("a b", None, "yes")),
        fingerprint(TextExample("a", "b", "no")),
        fingerprint(TextExample("a", "", "yes")),
        fingerprint(TextExample("a", None, "yes")),
        fingerprint(example, example),
        fingerprint(example, labels=("yes", "no")),
        fingerprint(example, skipped={"dev": 1}),
        fingerprint(TextExample("a", "b", ("yes",)), kind=LabelSetTask),
    ]
    assert len({same, *others}) == 9


@given(arrays(np.float32, (3, 4), elements=st.floats(-(2.0**100), 2.0**100, width=32)))
def test_probabilities_of_any_logits(logits):
    softmaxed, sigmoided = (HEADS[name].probabilities(logits) for name in ("classification", "multi_label"))
    np.testing.assert_allclose(softmaxed.sum(axis=1), 1)
    for row, probabilities in zip(logits.astype(np.float64), softmaxed, strict=True):
        np.testing.assert_allclose(
            probabilities, [1 / sum(np.exp(np.clip(row - one, -700, 700))) for one in row], atol=1e-12
        )
    np.testing.assert_allclose(sigmoided, 1 / (1 + np.exp(-np.clip(logits.astype(np.float64), -700, 700))), atol=1e-12)
