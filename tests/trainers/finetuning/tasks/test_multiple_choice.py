"""Test the task `swag`: rows, metrics and predictions for SWAG's files and for other multiple choice files."""

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary
from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.finetuning_task import DEV, TEST, TRAIN
from beambert.trainers.finetuning.options import FinetuneOptions
from beambert.trainers.finetuning.tasks.text import multiple_choice

LETTERS = "abcdefghijklmnopqrstuvwxyz.,"
TOKENIZER = Tokenizer(Vocabulary((*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS))))
PIECES = TOKENIZER.vocabulary.tokens

# First columns of the published files; the very first, an index, has no name.
SWAG_HEADER = [
    "",
    "video-id",
    "fold-ind",
    "startphrase",
    "sent1",
    "sent2",
    "gold-source",
    *(f"ending{i}" for i in range(4)),
]
# sent1, sent2, endings, label.
_SITUATIONS = [
    (
        "A man stands on a ladder beside a window.",
        "He",
        ["wipes the glass with a cloth.", "swims to the other side.", "eats the ladder.", "is a window in the sun."],
        0,
    ),
    (
        "Someone lifts the lid of a pot, and steam rises.",
        "She",
        ["rides the pot home.", "stirs the soup slowly.", 'says "goal" to the lid.', "becomes a long road."],
        1,
    ),
    (
        "Two boys kick a ball across a field.",
        "A dog",
        ["reads the score aloud.", "paints the field blue.", "runs after the ball.", "closes the door of the sea."],
        2,
    ),
    (
        "The band walks on stage, and the lights go down.",
        "The singer",
        ["melts the crowd, then sells it.", "folds the stage.", "was the lights.", "steps up to the microphone."],
        3,
    ),
]


def swag_rows(count: int = 24) -> list[list]:
    """Return rows in SWAG's layout, labels last: the four situations in turn, with endings rotated by one per round."""
    rows = []
    for number in range(count):
        first, second, endings, label = _SITUATIONS[number % 4]
        turn = number // 4 % 4
        turned = endings[turn:] + endings[:turn]
        source = "gold" if number % 2 else "gen"
        start = f"{first} {second}"
        rows.append(
            [number, f"anetv_{number}", 1000 + number, start, first, second, source, *turned, (label - turn) % 4]
        )
    return rows


def write_swag(path: Path, rows: list[list], labelled: bool = True) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([*SWAG_HEADER, "label"] if labelled else SWAG_HEADER)
        writer.writerows(rows if labelled else [row[:-1] for row in rows])


def write_lines(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def open_task(folder: Path, wanted=(TRAIN, DEV, TEST), **limits) -> multiple_choice.ChoiceTask:
    config = FinetuneOptions(output="out", task="swag", data_dir=str(folder), **limits)
    return multiple_choice.open_task(config, wanted, None)


def refused(folder: Path, wanted=(DEV,)) -> str:
    with pytest.raises(TaskDataError) as caught:
        open_task(folder, wanted)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def by_hand(context: str, choice: str, length: int) -> tuple[list[str], list[int]]:
    """Return tokens and segment ids of one choice, truncated one token at a time."""
    first, second = TOKENIZER.tokenize(context), TOKENIZER.tokenize(choice)
    while len(first) + len(second) > length - 3:
        (first if len(first) > len(second) else second).pop()
    pieces = ["[CLS]", *first, "[SEP]", *second, "[SEP]"]
    return pieces, [0] * (len(first) + 2) + [1] * (len(second) + 1)


@pytest.fixture
def swag(tmp_path):
    write_swag(tmp_path / "train.csv", swag_rows(24))
    write_swag(tmp_path / "val.csv", swag_rows(16))
    write_swag(tmp_path / "test.csv", swag_rows(8), labelled=False)
    return tmp_path


@pytest.mark.parametrize("length", [128, 70, 41])
def test_the_files_of_swag_become_rows(swag, length):
    task = open_task(swag)
    assert (task.splits, task.eval_splits, task.predict_splits) == ((TRAIN, DEV, TEST), (DEV,), (TEST,))
    encoded = task.rows(TRAIN, TOKENIZER, length)
    assert (len(encoded), encoded.choices, len(encoded.row_splits)) == (24, 4, 24 * 4 + 1)
    assert encoded.ids.dtype == encoded.segment_ids.dtype == encoded.targets["label_ids"].dtype == np.int32
    cut = 0
    for number, row in enumerate(swag_rows(24)):
        too_long = False
        for choice in range(4):
            text = f"{row[5]} {row[7 + choice]}"
            pieces, segments = by_hand(row[4], text, length)
            too_long |= len(TOKENIZER.tokenize(row[4])) + len(TOKENIZER.tokenize(text)) > length - 3
            start, end = encoded.row_splits[number * 4 + choice : number * 4 + choice + 2]
            assert [PIECES[i] for i in encoded.ids[start:end]] == pieces
            assert encoded.segment_ids[start:end].tolist() == segments
        assert encoded.targets["label_ids"][number] == row[-1]
        cut += too_long
    assert encoded.truncated == cut
    assert task.rows(TEST, TOKENIZER, length).targets == {}


def test_scores_details_and_predictions(swag, tmp_path):
    task = open_task(swag)
    encoded = task.rows(DEV, TOKENIZER, 64)
    labels = encoded.targets["label_ids"]
    logits = np.eye(4, dtype=np.float32)[labels] * 5
    assert task.metrics(DEV, encoded, logits) == {"eval_accuracy": 1.0}
    assert task.details(DEV, encoded, logits) == {"warnings": [], "choices": []}
    assert task.chance_levels(DEV, encoded) == {"eval_accuracy_random_choice": 0.25}
    # Two errors; the model is more confident in the second one.
    logits[3] = np.roll(logits[3], 1)
    logits[5] = np.roll(logits[5], 1) * 2
    assert task.metrics(DEV, encoded, logits) == {"eval_accuracy": 14 / 16}
    mistakes = task.details(DEV, encoded, logits)["choices"]
    json.dumps(mistakes)
    assert [mistake["location"] for mistake in mistakes] == ["val.csv, row 6 (line 7)", "val.csv, row 4 (line 5)"]
    row = swag_rows()[5]
    assert mistakes[0] == {
        "location": "val.csv, row 6 (line 7)",
        "text": row[4],
        "text_pair": None,
        "choices": [f"{row[5]} {ending}" for ending in row[7:11]],
        "label": row[-1],
        "prediction": (row[-1] + 1) % 4,
        "probability": pytest.approx(np.exp(10) / (np.exp(10) + 3)),
    }

    rows = task.rows(TEST, TOKENIZER, 64)
    logits = np.array([[0, 1, 2, 3], [1, 1, 1, 1], *[[9, 0, 0, 0]] * 6], np.float32)
    files = task.write_predictions(TEST, rows, logits, tmp_path)
    assert files == [tmp_path / "test_results.tsv", tmp_path / "predictions.tsv"]
    written = np.loadtxt(files[0], delimiter="\t")
    np.testing.assert_allclose(written, np.exp(logits) / np.exp(logits).sum(1, keepdims=True), rtol=1e-5)
    with files[1].open(encoding="utf-8", newline="") as stream:
        table = list(csv.DictReader(stream, delimiter="\t"))
    assert [row["prediction"] for row in table] == ["3", "0", *"000000"]
    assert table[1] == {
        "context": _SITUATIONS[1][0],
        "prediction": "0",
        "probability": "0.25",
        "choice": "She rides the pot home.",
    }


def test_any_multiple_choice_in_json_lines(tmp_path):
    rows = [
        {"context": "it rains.", "question": "what is wet?", "choices": ["the street", "the sun", "b"], "label": 0},
        {"context": "it snows.", "question": None, "choices": ["a", "b", "c"], "label": "2"},
    ]
    write_lines(tmp_path / "train.jsonl", rows)
    task = open_task(tmp_path, (TRAIN,))
    assert [(e.context, e.choices, e.label) for e in task.examples[TRAIN]] == [
        ("it rains.", ("what is wet? the street", "what is wet? the sun", "what is wet? b"), 0),
        ("it snows.", ("a", "b", "c"), 2),
    ]
    assert task.rows(TRAIN, TOKENIZER, 32).choices == 3
    # Without a context the question is the context. Two choices are the minimum.
    write_lines(tmp_path / "dev.jsonl", [{"question": "wet?", "choices": ["yes", "no"], "label": 1}])
    assert [(e.context, e.choices) for e in open_task(tmp_path, (DEV,)).examples[DEV]] == [("wet?", ("yes", "no"))]


def test_parquet_with_a_stand_in_for_hidden_labels(tmp_path):
    rows = [dict(zip([*SWAG_HEADER, "label"], row, strict=True)) for row in swag_rows(8)]
    for name, label in (("train", None), ("validation", None), ("test", -1)):
        table = [{**row, "label": row["label"] if label is None else label} for row in rows]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table), tmp_path / f"{name}.parquet")
    task = open_task(tmp_path)
    assert [example.label for example in task.examples[TRAIN]] == [row["label"] for row in rows]
    assert {example.label for example in task.examples[TEST]} == {None}
    assert task.examples[DEV][2].where == "validation.parquet, row 3"


def test_a_test_file_with_labels_is_scored(swag):
    write_swag(swag / "test.csv", swag_rows(8))
    task = open_task(swag)
    assert task.eval_splits == (DEV, TEST)
    rows = task.rows(TEST, TOKENIZER, 64)
    assert task.metrics(TEST, rows, np.eye(4)[rows.targets["label_ids"]]) == {"test_accuracy": 1.0}


def test_sample_limits_keep_the_first_examples(swag):
    task = open_task(swag, max_train_samples=3, max_eval_samples=1, max_predict_samples=100)
    assert [len(task.examples[split]) for split in task.splits] == [3, 1, 8]


def test_the_fingerprint_is_that_of_the_content(swag):
    task = open_task(swag)
    prints = {split: task.fingerprint(split) for split in task.splits}
    assert len(set(prints.values())) == 3
    rows = swag_rows(24)
    rows[7][-1] = (rows[7][-1] + 1) % 4
    write_swag(swag / "train.csv", rows)
    changed = open_task(swag)
    assert changed.fingerprint(TRAIN) != prints[TRAIN]
    assert changed.fingerprint(DEV) == prints[DEV]


GOOD = {"context": "a", "choices": ["b", "c"], "label": 0}


@pytest.mark.parametrize(
    ("rows", "part"),
    [
        ([GOOD, {**GOOD, "choices": ["b", "c", "d"]}], "row 2 (line 2): 3 choices, while the first row has 2"),
        ([{**GOOD, "choices": ["b"]}], "dev.jsonl, row 1 (line 1): 1 choice: at least 2 are required"),
        ([{**GOOD, "choices": []}], "dev.jsonl, row 1 (line 1): 0 choices: at least 2 are required"),
        ([GOOD, {**GOOD, "choices": "b"}], "dev.jsonl, row 2 (line 2): 'choices' is not a list of strings"),
        ([{**GOOD, "choices": ["b", 1]}], "dev.jsonl, row 1 (line 1): 'choices' is not a list of strings"),
        ([GOOD, {**GOOD, "label": 2}], "row 2 (line 2): invalid label 2: must be the index of a choice, 0 to 1"),
        ([{**GOOD, "label": -1}], "row 1 (line 1): invalid label -1"),
        ([{**GOOD, "label": True}], "row 1 (line 1): invalid label True"),
        ([{**GOOD, "label": "b"}], "row 1 (line 1): invalid label 'b'"),
        ([{**GOOD, "label": 0.5}], "row 1 (line 1): invalid label 0.5"),
        ([GOOD, {**GOOD, "label": None}], "row 2 (line 2): label is missing: give the index of the correct choice"),
        ([{"context": "a", "choices": ["b", "c"]}], "has no column 'label' (columns: 'context', 'choices')"),
        ([{"context": "a", "label": 1}], "has no column 'choices' (columns: 'context', 'label')"),
        ([{"choices": ["b", "c"], "label": 1}], "has no column 'context'"),
        ([GOOD, {**GOOD, "context": None}], "row 2 (line 2): 'context' is nothing, not text"),
        ([GOOD, {**GOOD, "question": 3}], "row 2 (line 2): 'question' is 3, not a string"),
        ([], "dev.jsonl has no rows"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_used_is_named(tmp_path, rows, part):
    write_lines(tmp_path / "dev.jsonl", rows)
    assert part in refused(tmp_path)


@pytest.mark.parametrize("label", [float("nan"), -1.0, " "])
def test_test_labels_may_be_nan_or_placeholders(tmp_path, label):
    write_lines(tmp_path / "test.jsonl", [{**GOOD, "label": label}, {**GOOD, "label": label}])
    assert open_task(tmp_path, (TEST,)).rows(TEST, TOKENIZER, 8).targets == {}


def test_a_file_that_cannot_be_used_is_named(tmp_path):
    assert "has no dev or validation" in refused(tmp_path)
    (tmp_path / "dev.jsonl").write_text('{"context": "a"\n', encoding="utf-8")
    assert "dev.jsonl, row 1 (line 1): invalid JSON" in refused(tmp_path)
    (tmp_path / "dev.jsonl").unlink()
    rows = swag_rows(4)
    rows[2][-1] = 4
    write_swag(tmp_path / "val.csv", rows)
    assert "val.csv, row 3 (line 4): invalid label '4': must be the index of a choice, 0 to 3" in refused(tmp_path)
    (tmp_path / "val.csv").write_text("sent1,sent2,ending0,ending1\na,b,c,d\n", encoding="utf-8")
    assert "has no column 'label'" in refused(tmp_path)
    (tmp_path / "val.csv").write_text("sent1,ending0,ending1,label\na,c,d,0\n", encoding="utf-8")
    assert "has no column 'sent2'" in refused(tmp_path)
    (tmp_path / "val.csv").write_text("context,choices,label\na,b,0\n", encoding="utf-8")
    assert "'choices' is not a list of strings" in refused(tmp_path)
