"""Test the task `squad`: the files that it reads, scores and answers."""

import dataclasses
import json

import numpy as np
import pytest

from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary
from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.tasks.spans.span_task import open_task
from tests.trainers.finetuning.tasks.parsed_options import parse_options
from tests.trainers.finetuning.tasks.squad_examples import arguments, write_squad

TOKENIZER = Tokenizer(Vocabulary((*SPECIAL_TOKENS, "green", "tea", "rain", "sun", "what", "?")))
CONTEXT = "green tea rain sun"
NULL = "no answer"


def write(path, *answers, labelled=True):
    """Write questions about CONTEXT; each answer is a word of CONTEXT, or NULL for a question without an answer."""
    questions = []
    for number, answer in enumerate(answers):
        questions.append({"id": f"q{number}", "question": "what?", "is_impossible": answer == NULL, "answers": []})
        if answer != NULL:
            questions[-1]["answers"].append({"text": answer, "answer_start": CONTEXT.index(answer)})
        if not labelled:
            del questions[-1]["answers"], questions[-1]["is_impossible"]
    return write_squad(path, (CONTEXT, questions))


def logits_for(rows, words, null=0.0):
    """Return logits of one row per question, high at its word in CONTEXT.

    `null` is the logit at [CLS], one for all questions or one per question.
    """
    logits = []
    for word, at_cls in zip(words, np.broadcast_to(null, len(words)), strict=True):
        values = np.zeros((2, 9), np.float32)  # [CLS] what ? [SEP] green tea rain sun [SEP]
        values[:, 4 + CONTEXT.split().index(word)] = 5
        values[:, 0] = at_cls
        logits.append(values)
    assert len(rows) == len(words)
    return logits


def test_which_files_are_read(tmp_path):
    write(tmp_path / "train-v1.1.json", "tea", "rain")
    write(tmp_path / "dev.json", "tea")
    task = open_task(arguments(data_dir=str(tmp_path)), {"train", "dev"}, None)
    assert (task.splits, task.eval_splits, task.predict_splits) == (("train", "dev"), ("dev",), ("dev",))
    # For the test split, the predict file is read, and the test file if it exists.
    assert open_task(arguments(data_dir=str(tmp_path)), {"test"}, None).predict_splits == ("dev",)
    write(tmp_path / "test-v1.1.json", "tea", labelled=False)
    task = open_task(arguments(data_dir=str(tmp_path)), {"dev", "test"}, None)
    assert (task.splits, task.eval_splits, task.predict_splits) == (("dev", "test"), ("dev",), ("dev", "test"))
    # Files named after the version take precedence, and files given by flags precede all others.
    write(tmp_path / "dev-v1.1.json", "tea", "sun")
    assert len(open_task(arguments(data_dir=str(tmp_path)), {"dev"}, None).files["dev"].questions) == 2
    write(tmp_path / "dev-v2.0.json", "tea", "sun", NULL)
    args = arguments(data_dir=str(tmp_path), version_2_with_negative=True, max_eval_samples=2)
    assert open_task(args, {"dev"}, None).files["dev"].path.name == "dev-v2.0.json"
    assert len(open_task(args, {"dev"}, None).files["dev"].questions) == 2
    given = arguments(train_file=str(tmp_path / "dev.json"), predict_file=str(tmp_path / "train-v1.1.json"))
    task = open_task(given, {"train", "dev", "test"}, None)
    assert {split: file.path.name for split, file in task.files.items()} == {
        "train": "dev.json",
        "dev": "train-v1.1.json",
    }


def test_predict_file_without_answers_is_not_evaluated(tmp_path):
    path = str(write(tmp_path / "f.json", "tea", "sun", labelled=False))
    task = open_task(arguments(predict_file=path, max_predict_samples=1), {"dev"}, None)
    assert (task.splits, task.eval_splits, task.predict_splits) == (("test",), (), ("test",))
    rows = task.rows("test", TOKENIZER, 20)
    paths = task.write_predictions("test", rows, logits_for(rows, ["sun"]), tmp_path)
    assert [path.name for path in paths] == ["predictions.json", "nbest_predictions.json"]
    assert json.loads(paths[0].read_text()) == {"q0": "sun"}
    with pytest.raises(TaskDataError, match=r"f.json has no answers, which --do_eval requires: omit --do_eval"):
        open_task(arguments(predict_file=path, do_eval=True), {"dev"}, None)


@pytest.mark.parametrize(
    ("given", "wanted", "said"),
    [
        ({}, "train", r"does not contain train-v1.1.json or train.json: add the file, or give --train_file"),
        (
            {"version_2_with_negative": True},
            "dev",
            r"does not contain dev-v2.0.json or dev.json: add the file, or give --predict_file",
        ),
        ({}, "test", r"does not contain dev-v1.1.json or dev.json"),
        ({"null_score_diff_threshold": 1.0}, "dev", "add --version_2_with_negative"),
    ],
)
def test_missing_files_and_flags_are_named(tmp_path, given, wanted, said):
    with pytest.raises(TaskDataError, match=said):
        open_task(arguments(data_dir=str(tmp_path), **given), {wanted}, None)
    with pytest.raises(TaskDataError, match=r"--data_dir or --\w+ is missing|add --version_2"):
        open_task(arguments(**given), {wanted}, None)


def test_scores_and_files_of_1_1(tmp_path):
    task = open_task(arguments(predict_file=str(write(tmp_path / "f.json", "tea", "sun"))), {"dev"}, None)
    rows = task.rows("dev", TOKENIZER, 20)
    logits = logits_for(rows, ["tea", "rain"])
    assert task.metrics("dev", rows, logits) == {"exact_match": 50.0, "f1": 50.0}
    paths = task.write_predictions("dev", rows, logits, tmp_path)
    assert json.loads(paths[0].read_text()) == {"q0": "tea", "q1": "rain"}
    assert (task.name, task.head, task.labels, task.multi_label, task.best_metric) == (
        "squad",
        "span",
        None,
        False,
        "f1",
    )


def test_files_of_two_splits_have_different_names(tmp_path):
    write(tmp_path / "dev.json", "tea")
    write(tmp_path / "test.json", "tea", labelled=False)
    task = open_task(arguments(data_dir=str(tmp_path)), {"dev", "test"}, None)
    names = []
    for split in task.predict_splits:
        rows = task.rows(split, TOKENIZER, 20)
        names += [path.name for path in task.write_predictions(split, rows, logits_for(rows, ["tea"]), tmp_path)]
    assert names == [
        "predictions.json",
        "nbest_predictions.json",
        "test_predictions.json",
        "test_nbest_predictions.json",
    ]


def test_best_threshold_is_reported_and_applied_only_on_request(tmp_path):
    path = str(write(tmp_path / "f.json", "tea", "sun", NULL, "rain"))
    words = ["tea", "sun", "sun", "rain"]
    null = [4.0, 5.5, 6.5, 6.0]  # Null odds -2, 1, 3, 2: with threshold 2 all four predictions are correct.
    task = open_task(arguments(predict_file=path, version_2_with_negative=True), {"dev"}, None)
    rows = task.rows("dev", TOKENIZER, 20)
    logits = logits_for(rows, words, null)
    scores = task.metrics("dev", rows, logits)
    assert (scores["f1"], scores["HasAns_f1"], scores["NoAns_f1"]) == (50.0, pytest.approx(100 / 3), 100.0)
    # As in the script, which does not have the best texts of questions that are predicted to have no answer.
    assert (scores["best_f1"], scores["best_f1_thresh"]) == (50.0, -2.0)
    paths = task.write_predictions("dev", rows, logits, tmp_path)
    assert json.loads(paths[0].read_text()) == {"q0": "tea", "q1": "", "q2": "", "q3": ""}
    assert json.loads(paths[2].read_text()) == {"q0": -2.0, "q1": 1.0, "q2": 3.0, "q3": 2.0}

    args = arguments(predict_file=path, version_2_with_negative=True, null_score_diff_threshold="best")
    task = open_task(args, {"dev"}, None)
    scores = task.metrics("dev", rows, logits)
    assert (scores["f1"], scores["best_f1"], scores["best_f1_thresh"]) == (100.0, 100.0, 2.0)
    paths = task.write_predictions("dev", rows, logits, tmp_path)
    assert json.loads(paths[0].read_text()) == {"q0": "tea", "q1": "sun", "q2": "", "q3": "rain"}
    write(tmp_path / "g.json", "tea", labelled=False)
    args = dataclasses.replace(args, predict_file=str(tmp_path / "g.json"))
    with pytest.raises(TaskDataError, match="--null_score_diff_threshold best needs answers"):
        open_task(args, {"dev"}, None)


@pytest.mark.parametrize(
    ("answers", "null", "expected"),
    [
        # Null odds -3, -2, -1 and 0.5: every threshold that answers "tea" answers the other questions too.
        ([NULL, NULL, NULL, "tea"], [3.5, 4.0, 4.5, 5.25], (75.0, 75.0, 0.0)),
        # With equal null odds, one question cannot be answered without the other.
        (["tea", "tea", NULL, NULL], [3.0, 4.0, 4.0, 4.0], (75.0, 75.0, -4.0)),
    ],
)
def test_best_threshold_applies_to_questions_without_answer_and_to_equal_odds(tmp_path, answers, null, expected):
    path = str(write(tmp_path / "f.json", *answers))
    args = arguments(predict_file=path, version_2_with_negative=True, null_score_diff_threshold="best")
    task = open_task(args, {"dev"}, None)
    rows = task.rows("dev", TOKENIZER, 20)
    scores = task.metrics("dev", rows, logits_for(rows, ["tea"] * 4, null))
    assert (scores["f1"], scores["best_f1"], scores["best_f1_thresh"]) == expected


def test_details_show_confident_mistakes_first(tmp_path):
    answers = ["tea"] * 25 + ["sun"] * 25 + [NULL]
    path = str(write(tmp_path / "f.json", *answers))
    task = open_task(arguments(predict_file=path, version_2_with_negative=True), {"dev"}, None)
    rows = task.rows("dev", TOKENIZER, 20)
    logits = logits_for(rows, ["tea"] * 51)
    logits[30][:, 5] = 9
    logits[31][:, 0] = 7
    shown = task.details("dev", rows, logits)["answers"]
    assert len(shown) == 30
    assert [item["exact"] for item in shown] == [False] * 20 + [True] * 10
    assert shown[0] == {
        "location": "f.json, question q30",
        "question": "what?",
        "context": CONTEXT,
        "answers": [[15, 18]],
        "prediction": [6, 9],
        "text": "tea",
        "probability": pytest.approx(1.0, abs=0.01),
        "exact": False,
    }
    assert (shown[1]["location"], shown[1]["prediction"], shown[1]["text"]) == ("f.json, question q31", None, "")
    assert 0 < shown[1]["probability"] < 1
    json.dumps(shown)


def test_fingerprint_depends_on_the_inputs_of_rows(tmp_path):
    path = str(write(tmp_path / "f.json", "tea", "sun"))
    other = str(write(tmp_path / "g.json", "tea", "rain"))

    def digest(split="dev", **given):
        return open_task(
            arguments(train_file=path, predict_file=given.pop("file", path), **given), {split}, None
        ).fingerprint(split)

    same = [digest(), digest(n_best_size=3)]
    different = [
        digest(split="train"),
        digest(doc_stride=64),
        digest(max_query_length=5),
        digest(max_eval_samples=1),
        digest(file=other),
    ]
    assert len(set(same)) == 1
    assert len({*same, *different}) == 6


def test_flags_are_those_of_the_released_code():
    args = parse_options("squad", "--version_2_with_negative", "--null_score_diff_threshold", "-1.5")
    assert (args.version_2_with_negative, args.null_score_diff_threshold) == (True, -1.5)
    assert parse_options("squad", "--version_2_with_negative=False").version_2_with_negative is False
    assert (args.doc_stride, args.max_query_length, args.n_best_size, args.max_answer_length) == (128, 64, 20, 30)
    with pytest.raises(SystemExit):
        parse_options("squad", "--null_score_diff_threshold", "low")


def test_truncation_counts_questions(tmp_path):
    path = str(write(tmp_path / "f.json", "tea", "sun"))
    task = open_task(arguments(predict_file=path, max_query_length=1, doc_stride=1), {"dev"}, None)
    rows = task.rows("dev", TOKENIZER, 6)
    assert len(rows) > 2
    assert task.truncation("dev", rows, 6) == "2 of 2 dev questions exceed --max_query_length 1 and were truncated"
