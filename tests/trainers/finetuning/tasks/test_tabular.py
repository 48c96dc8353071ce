"""Test the task `csv`: rows, metrics, details and predictions for files of every format and kind of label."""

import csv
import dataclasses
import json
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary
from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.finetuning_task import DEV, TEST, TRAIN
from beambert.trainers.finetuning.options import FinetuneOptions
from beambert.trainers.finetuning.tasks.text import tabular
from tests.trainers.finetuning.tasks.parsed_options import parse_options

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOKENIZER = Tokenizer(Vocabulary((*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS))))
FORMATS = ("csv", "tsv", "jsonl", "parquet")


def options(folder: Path, *flags: str, **limits: int) -> FinetuneOptions:
    return dataclasses.replace(parse_options("csv", "--data_dir", folder, *flags), **limits)


def write(path: Path, rows: list[dict]) -> Path:
    """Write rows in the format of the suffix; in CSV and TSV, lists are text with commas."""
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    else:
        with path.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, delimiter="," if path.suffix == ".csv" else "\t")
            writer.writerow(rows[0])
            writer.writerows(
                [",".join(cell) if isinstance(cell, list) else cell for cell in row.values()] for row in rows
            )
    return path


def refused(folder: Path, *flags: str, wanted=(TRAIN, DEV), labels=None) -> str:
    with pytest.raises(TaskDataError) as caught:
        tabular.open_task(options(folder, *flags), wanted, labels)
    assert "\n" not in str(caught.value)
    return str(caught.value)


TEXTS = ['he said "yes"', "no, not\nthat", "a tab\there", "café", "a ; b", "long words here"]
# For each kind of label: flags, labels of the texts, classes, logits of these labels, names of the metrics.
PROBLEMS = {
    "classification": (
        [],
        ["spam", "ham", "spam", "eggs", "ham", "ham"],
        ("eggs", "ham", "spam"),
        np.eye(3)[[2, 1, 2, 0, 1, 1]],
        {"accuracy", "macro_f1", "matthews"},
    ),
    "numbers": (
        [],
        [10, 9, 10, 9, 9, 10],
        ("9", "10"),
        np.eye(2)[[1, 0, 1, 0, 0, 1]],
        {"accuracy", "macro_f1", "matthews", "f1"},
    ),
    "multi_label": (
        ["--problem", "multi_label"],
        [["b", "a"], [], ["c"], ["a"], ["a", "b", "c"], ["b"]],
        ("a", "b", "c"),
        2 * np.array([[1, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 1, 1], [0, 1, 0]]) - 1,
        {"micro_f1", "macro_f1", "subset_accuracy"},
    ),
    "regression": (
        ["--problem", "regression"],
        [0.5, -1.25, 3.0, 2.0, 1e-3, 7.5],
        None,
        np.array([0.5, -1.25, 3.0, 2.0, 1e-3, 7.5]),
        {"pearson", "spearman"},
    ),
}


@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("suffix", FORMATS)
def test_every_kind_of_label_in_every_format(tmp_path, suffix, problem, pair):
    flags, labels, classes, right, names = PROBLEMS[problem]
    rows = [
        {"text": text, **({"text_pair": text[::-1]} if pair else {}), "label": label}
        for text, label in zip(TEXTS, labels, strict=True)
    ]
    write(tmp_path / f"train.{suffix}", rows)
    write(tmp_path / f"validation.{suffix}", rows)
    write(tmp_path / f"test.{suffix}", [{k: v for k, v in row.items() if k != "label"} for row in rows])
    task = tabular.open_task(options(tmp_path, *flags), (TRAIN, DEV, TEST), None)
    assert (task.name, task.labels, task.splits) == ("csv", classes, (TRAIN, DEV, TEST))
    assert (task.eval_splits, task.predict_splits) == ((DEV,), (TEST,))
    assert task.multi_label == (problem == "multi_label")
    assert task.head == ("regression" if problem == "regression" else "classification")
    assert [example.text for example in task.examples[DEV]] == TEXTS
    assert [example.text_pair for example in task.examples[DEV]] == [text[::-1] if pair else None for text in TEXTS]

    encoded = task.rows(DEV, TOKENIZER, 16)
    assert (len(encoded), encoded.choices, encoded.skipped) == (6, 1, 0)
    if problem == "regression":
        np.testing.assert_array_equal(encoded.targets["label_values"], right.astype(np.float32))
    elif problem == "multi_label":
        np.testing.assert_array_equal(encoded.targets["label_values"], right > 0)
    else:
        np.testing.assert_array_equal(encoded.targets["label_ids"], right.argmax(axis=1))
    assert task.rows(TEST, TOKENIZER, 16).targets == {}
    np.testing.assert_array_equal(task.rows(TEST, TOKENIZER, 16).ids, encoded.ids)

    logits = right.astype(np.float32)
    scores = task.metrics(DEV, encoded, logits)
    assert set(scores) == {f"eval_{name}" for name in names}
    assert task.best_metric in scores
    assert list(scores.values()) == pytest.approx([1.0] * len(names))
    assert max(task.metrics(DEV, encoded, -logits).values()) < 1.0
    details = task.details(DEV, encoded, -logits)
    json.dumps(details)
    assert details["errors"][0]["location"].startswith(f"validation.{suffix}, row ")

    files = task.write_predictions(TEST, task.rows(TEST, TOKENIZER, 16), logits, tmp_path)
    assert files == [tmp_path / "test_results.tsv", tmp_path / "predictions.tsv"]
    assert len(files[0].read_text().splitlines()) == 6
    with files[1].open(encoding="utf-8", newline="") as stream:
        written = list(csv.DictReader(stream, delimiter="\t"))
    assert [row["text"] for row in written] == [" ".join(text.split()) for text in TEXTS]
    assert [row["prediction"] for row in written] == [
        ", ".join(sorted(label)) if isinstance(label, list) else str(label).removesuffix(".0") for label in labels
    ]


def test_classes_are_the_same_from_every_format(tmp_path):
    labels = [2, 10, 1, 2]
    tasks = []
    for suffix in FORMATS:
        folder = tmp_path / suffix
        folder.mkdir()
        write(folder / f"train.{suffix}", [{"text": "a", "label": label} for label in labels])
        tasks.append(tabular.open_task(options(folder), (TRAIN,), None))
    # pandas stores integers with missing values as floating-point numbers.
    write(tmp_path / "train.parquet", [{"text": "a", "label": float(label)} for label in labels])
    tasks.append(tabular.open_task(options(tmp_path), (TRAIN,), None))
    assert {task.labels for task in tasks} == {("1", "2", "10")}
    assert len({task.fingerprint(TRAIN) for task in tasks}) == 1


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["b", "a"], ("a", "b")),
        (["10", "9", "-1", "0.5"], ("-1", "0.5", "9", "10")),
        (["10", "9", "x"], ("10", "9", "x")),
        (["nan", "2", "10"], ("10", "2", "nan")),
        ([" pos ", "neg"], ("neg", "pos")),
    ],
)
def test_classes_are_sorted(tmp_path, labels, classes):
    write(tmp_path / "train.csv", [{"text": "a", "label": label} for label in labels])
    assert tabular.open_task(options(tmp_path), (TRAIN,), None).labels == classes


def test_json_truth_values_are_classes(tmp_path):
    write(tmp_path / "train.jsonl", [{"text": "a", "label": True}, {"text": "b", "label": False}])
    assert tabular.open_task(options(tmp_path), (TRAIN,), None).labels == ("false", "true")


def test_columns_and_separator_by_flag(tmp_path):
    write(
        tmp_path / "train.csv",
        [{"review": "a", "reply": "b", "tags": "x| y "}, {"review": "c", "reply": "d", "tags": ""}],
    )
    flags = ["--text_column", "review", "--text_pair_column", "reply", "--label_column", "tags"]
    flags += ["--problem", "multi_label", "--label_separator", "|"]
    task = tabular.open_task(options(tmp_path, *flags), (TRAIN,), None)
    assert [(e.text, e.text_pair, e.label) for e in task.examples[TRAIN]] == [("a", "b", ("x", "y")), ("c", "d", ())]


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("values", [(0, 1), (0.0, 1.0), (False, True), ("0", "1")], ids=str)
def test_multi_hot_labels_are_positions(tmp_path, suffix, values):
    rows = [[0, 1, 1], [0, 0, 0], [1, 0, 1], [1, 1, 1]]
    labels = [[values[bit] for bit in row] for row in rows]
    for form in [list] if suffix in ("jsonl", "parquet") else [lambda row: ",".join(map(str, row)), str]:
        if form is str and suffix in ("csv", "tsv") and isinstance(values[0], bool | str):
            continue
        write(tmp_path / f"train.{suffix}", [{"text": "t", "label": form(row)} for row in labels])
        write(tmp_path / f"dev.{suffix}", [{"text": "t", "label": form(row)} for row in labels[1:2]])
        task = tabular.open_task(options(tmp_path, "--problem", "multi_label"), (TRAIN, DEV), None)
        assert task.labels == ("0", "1", "2")
        assert [example.label for example in task.examples[TRAIN]] == [("1", "2"), (), ("0", "2"), ("0", "1", "2")]
        assert [example.label for example in task.examples[DEV]] == [()]


def test_multi_hot_labels_beside_rows_without_labels(tmp_path):
    rows = [{"text": "t", "label": label} for label in ([0, 1], None, [1, 0])]
    write(tmp_path / "test.jsonl", rows)
    task = tabular.open_task(options(tmp_path, "--problem", "multi_label"), (TEST,), ("0", "1"))
    assert [example.label for example in task.examples[TEST]] == [("1",), None, ("0",)]


COMMENTS = {"id": "x1", "comment_text": "t", "toxic": 0, "severe_toxic": 0, "threat": 0}
LABEL_COLUMNS = ("--text_column", "comment_text", "--label_column", "toxic, severe_toxic,threat")
LABEL_COLUMNS += ("--problem", "multi_label")


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("values", [(0, 1), (0.0, 1.0), (False, True), ("0", "1")], ids=str)
def test_a_column_for_each_label(tmp_path, suffix, values):
    bits = [(1, 1, 0), (0, 0, 0), (0, 0, 1)]
    rows = [COMMENTS | {name: values[bit] for name, bit in zip(list(COMMENTS)[2:], row, strict=True)} for row in bits]
    for split in (TRAIN, DEV):
        write(tmp_path / f"{split}.{suffix}", rows)
    hidden = [row | dict.fromkeys(list(COMMENTS)[2:], -1 if values[1] == 1 else "-1") for row in rows]
    write(tmp_path / f"test.{suffix}", hidden if values in ((0, 1), ("0", "1")) else [{"comment_text": "t"}])
    task = tabular.open_task(options(tmp_path, *LABEL_COLUMNS), (TRAIN, DEV, TEST), None)
    # In the order of the flag, also those that no row has.
    assert task.labels == ("toxic", "severe_toxic", "threat")
    assert [example.label for example in task.examples[TRAIN]] == [("toxic", "severe_toxic"), (), ("threat",)]
    assert {example.label for example in task.examples[TEST]} == {None}
    assert task.eval_splits == (DEV,)
    # A model has its own order.
    of_model = ("threat", "toxic", "severe_toxic")
    assert tabular.open_task(options(tmp_path, *LABEL_COLUMNS), (DEV,), of_model).labels == of_model


def test_a_column_for_each_label_is_validated(tmp_path):
    write(tmp_path / "train.csv", [COMMENTS, COMMENTS | {"threat": 2}])
    write(tmp_path / "dev.csv", [COMMENTS])
    assert "train.csv, row 2 (line 3): 'threat' is '2', not 0 or 1" in refused(tmp_path, *LABEL_COLUMNS)
    write(tmp_path / "train.csv", [COMMENTS, COMMENTS | {"threat": 1}])
    single = refused(tmp_path, *LABEL_COLUMNS[:4])
    assert single.endswith("--problem classification does not have: use --problem multi_label")
    assert "must be different names" in refused(tmp_path, *LABEL_COLUMNS, "--label_column", "toxic,toxic")
    assert "has no column 'obscene'" in refused(tmp_path, *LABEL_COLUMNS, "--label_column", "toxic,obscene")
    message = refused(tmp_path, *LABEL_COLUMNS, wanted=(DEV,), labels=("toxic", "threat"))
    assert "are not the labels of the model (toxic, threat): name a column for each of them" in message
    # Without the flag, the message has the columns.
    for flags in ((), ("--problem", "multi_label")):
        assert refused(tmp_path, "--text_column", "comment_text", *flags).endswith(
            "use --problem multi_label --label_column toxic,severe_toxic,threat"
        )
    # A key that a JSON line lacks is no 0.
    (tmp_path / "train.csv").unlink()
    write(tmp_path / "train.jsonl", [COMMENTS, {"comment_text": "t", "toxic": 1}])
    assert "train.jsonl, row 2 (line 2): 'severe_toxic' is nothing, not 0 or 1" in refused(tmp_path, *LABEL_COLUMNS)


def test_a_column_whose_name_has_a_comma(tmp_path):
    for split in (TRAIN, DEV):
        write(tmp_path / f"{split}.csv", [{"text": "t", "good, bad": label} for label in ("good", "bad")])
    task = tabular.open_task(options(tmp_path, "--label_column", "good, bad"), (TRAIN, DEV), None)
    assert task.labels == ("bad", "good")


def test_a_deeply_nested_array_is_text(tmp_path):
    nested = "[" * 100_000 + "]" * 100_000
    write(tmp_path / "train.csv", [{"text": "t", "label": nested}, {"text": "t", "label": "b"}])
    task = tabular.open_task(options(tmp_path, "--problem", "multi_label"), (TRAIN,), None)
    assert task.examples[TRAIN][0].label == (nested,)


def test_lists_of_other_values_or_lengths_are_names(tmp_path):
    write(tmp_path / "train.jsonl", [{"text": "t", "label": labels} for labels in ([0, 1], [1], [0, 2], [])])
    task = tabular.open_task(options(tmp_path, "--problem", "multi_label"), (TRAIN,), None)
    assert [example.label for example in task.examples[TRAIN]] == [("0", "1"), ("1",), ("0", "2"), ()]


def test_classes_and_their_order_are_those_of_the_model(tmp_path):
    write(tmp_path / "dev.csv", [{"sentence": "a", "label": "no"}, {"sentence": "b", "label": "yes"}])
    task = tabular.open_task(options(tmp_path), (DEV,), ("yes", "no", "maybe"))
    assert task.labels == ("yes", "no", "maybe")
    assert task.rows(DEV, TOKENIZER, 8).targets["label_ids"].tolist() == [1, 0]


def test_classes_come_from_train_even_if_it_is_not_trained_on(tmp_path):
    write(tmp_path / "train.csv", [{"text": "a", "label": "no"}, {"text": "b", "label": "yes"}])
    write(tmp_path / "test.csv", [{"text": "a"}])
    task = tabular.open_task(options(tmp_path), (TEST,), None)
    assert (task.labels, task.splits) == (("no", "yes"), (TEST,))
    (tmp_path / "train.csv").unlink()
    assert "no train file, which defines the labels" in refused(tmp_path, wanted=(TEST,))


def test_sample_limits_keep_the_first_rows_and_all_classes(tmp_path):
    rows = [{"text": "a", "label": "x"}, {"text": "b", "label": "x"}, {"text": "c", "label": "y"}]
    for name in ("train", "dev", "test"):
        write(tmp_path / f"{name}.csv", rows)
    args = options(tmp_path, max_train_samples=2, max_eval_samples=1, max_predict_samples=9)
    task = tabular.open_task(args, (TRAIN, DEV, TEST), None)
    assert [len(task.examples[split]) for split in task.splits] == [2, 1, 3]
    assert task.labels == ("x", "y")


@pytest.mark.parametrize(
    ("flags", "labels", "hidden"),
    [
        ([], ["a", "b"], False),
        ([], ["-1", "-1"], True),
        ([], ["", ""], True),
        ([], ["?", ""], True),
        (["--problem", "regression"], [-1.0, -1.0], True),
        (["--problem", "regression"], [3.0], False),
        (["--problem", "regression"], [1.0, 2.0], False),
        (["--problem", "multi_label"], ["a", ""], False),
        (["--problem", "multi_label"], ["", ""], True),
        (["--problem", "multi_label"], ["-1", "-1"], True),
    ],
)
def test_test_split_is_evaluated_unless_its_labels_are_placeholders(tmp_path, flags, labels, hidden):
    train = [1, 2] if "regression" in flags else ["a", "b"]
    for name in ("train", "dev"):
        write(tmp_path / f"{name}.csv", [{"text": "t", "label": label} for label in train])
    write(tmp_path / "test.csv", [{"text": "t", "label": label} for label in labels])
    task = tabular.open_task(options(tmp_path, *flags), (TRAIN, DEV, TEST), None)
    assert (task.rows(TEST, TOKENIZER, 8).targets == {}) == hidden
    assert task.eval_splits == ((DEV,) if hidden else (DEV, TEST))


@pytest.mark.parametrize("problem", ["classification", "regression", "multi_label"])
@pytest.mark.parametrize(("suffix", "label"), [("jsonl", float("nan")), ("parquet", float("nan")), ("csv", " ")])
def test_test_labels_may_be_nan_or_blank(tmp_path, problem, suffix, label):
    train = [1, 2] if problem == "regression" else ["a", "b"]
    write(tmp_path / "train.csv", [{"text": "t", "label": label} for label in train])
    write(tmp_path / f"test.{suffix}", [{"text": "t", "label": label}, {"text": "u", "label": label}])
    task = tabular.open_task(options(tmp_path, "--problem", problem), (TRAIN, TEST), None)
    assert task.rows(TEST, TOKENIZER, 8).targets == {}


def test_one_unknown_label_of_test_is_an_error(tmp_path):
    write(tmp_path / "test.csv", [{"text": "t", "label": label} for label in ("a", "b", "c")])
    assert "test.csv, row 3 (line 4): label 'c'" in refused(tmp_path, wanted=(TEST,), labels=("a", "b"))


@pytest.mark.parametrize(
    ("train", "test", "part"),
    [
        (
            {"csv": ["pos", "neg"]},
            {"csv": ["Pos", "Neg"]},
            "test.csv, row 1 (line 2): label 'Pos' is not one of neg, pos",
        ),
        (
            {"csv": ["True", "False"]},
            {"jsonl": [True, False]},
            "test.jsonl, row 1 (line 1): label 'true' is not one of False, True",
        ),
    ],
)
def test_several_unknown_labels_of_test_are_no_placeholders(tmp_path, train, test, part):
    for name, files in (("train", train), ("test", test)):
        for suffix, labels in files.items():
            write(tmp_path / f"{name}.{suffix}", [{"text": "t", "label": label} for label in labels])
    assert refused(tmp_path, wanted=(TRAIN, TEST)).startswith(part)


def test_an_unknown_label_beside_rows_without_labels_is_no_placeholder(tmp_path):
    write(tmp_path / "test.csv", [{"text": "t", "label": label} for label in ("A", "")])
    flags = ("--problem", "multi_label")
    assert "test.csv, row 1 (line 2): label 'A'" in refused(tmp_path, *flags, wanted=(TEST,), labels=("a", "b"))


def test_regression_label_beyond_float32_is_named(tmp_path):
    write(tmp_path / "train.csv", [{"text": "t", "label": label} for label in (1, "1e39")])
    assert refused(tmp_path, "--problem", "regression", wanted=(TRAIN,)) == (
        "train.csv, row 2 (line 3): label 1e+39 is not a finite number in float32: fix the row, or scale all labels"
    )


def test_regression_labels_are_written_exactly(tmp_path):
    labels = [20240131, 0.1234567891, 5, -2.5]
    for name in ("train", "dev", "test"):
        write(tmp_path / f"{name}.csv", [{"text": "t", "label": label} for label in labels])
    task = tabular.open_task(options(tmp_path, "--problem", "regression"), (TRAIN, DEV, TEST), None)
    files = task.write_predictions(TEST, task.rows(TEST, TOKENIZER, 8), np.zeros(4, np.float32), tmp_path)
    assert [line.split("\t")[1] for line in files[1].read_text().splitlines()[1:]] == [str(label) for label in labels]


@settings(max_examples=20, deadline=None)
@given(
    texts=st.lists(st.text(LETTERS, min_size=1, max_size=3), min_size=60, max_size=80, unique=True),
    share=st.sampled_from([0.2, 0.5]),
)
def test_a_share_of_train_is_dev(tmp_path_factory, texts, share):
    folder = tmp_path_factory.mktemp("share")
    # Every second text has two rows, which are in the same split.
    rows = [{"text": text, "label": number % 2} for number, text in enumerate([*texts, *texts[::2]])]
    write(folder / "train.csv", rows)
    flags = ["--dev_fraction", str(share)]
    task = tabular.open_task(options(folder, *flags), (TRAIN, DEV), None)
    train, dev = ({example.text for example in task.examples[split]} for split in (TRAIN, DEV))
    assert train | dev == set(texts)
    assert not train & dev
    # Another order of rows, or fewer requested splits, does not move a text to the other split.
    write(folder / "train.csv", rows[::-1])
    alone = tabular.open_task(options(folder, *flags), (TRAIN,), None)
    assert {example.text for example in alone.examples[TRAIN]} == train


def test_dev_fraction_is_approximate(tmp_path):
    write(tmp_path / "train.csv", [{"text": f"row {n}", "label": n % 2} for n in range(2000)])
    task = tabular.open_task(options(tmp_path, "--dev_fraction", "0.1"), (TRAIN, DEV), None)
    assert 150 < len(task.examples[DEV]) < 250
    assert len(task.examples[TRAIN]) + len(task.examples[DEV]) == 2000
    where = task.examples[DEV][0].where
    assert where.startswith("train.csv, row ")


def test_long_texts_are_cut_and_counted(tmp_path):
    rows = [{"text": "a " * length, "text_pair": "b", "label": length % 2} for length in (4, 5, 6, 7)]
    write(tmp_path / "train.csv", rows)
    encoded = tabular.open_task(options(tmp_path), (TRAIN,), None).rows(TRAIN, TOKENIZER, 9)
    assert encoded.truncated == 2
    assert np.diff(encoded.row_splits).tolist() == [8, 9, 9, 9]


GOOD = [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]


@pytest.mark.parametrize(
    ("flags", "rows", "parts"),
    [
        (
            [],
            [{"txt": "a", "label": "x"}],
            ["train.csv has no column 'text' (columns: 'txt', 'label')", "--text_column"],
        ),
        ([], [{"text": "a", "lable": "x"}], ["no column 'label'", "did you mean 'lable'?", "--label_column"]),
        (["--text_pair_column", "b"], GOOD, ["no column 'b'", "--text_pair_column"]),
        ([], [*GOOD, {"text": "c", "label": " "}], ["train.csv, row 3 (line 4): label is missing"]),
        ([], GOOD[:1], ["one label, 'x'", "--label_column"]),
        ([], [{"text": "a", "label": n / 100} for n in range(50)], ["50 distinct labels in 50 rows", "regression"]),
        (["--problem", "regression"], GOOD, ["train.csv, row 1 (line 2): label 'x' is not a number"]),
        (["--problem", "regression"], [{"text": "a", "label": "inf"}], ["row 1 (line 2): label 'inf' is not a number"]),
        (["--problem", "multi_label"], [{"text": "a", "label": ""}], ["no labels", "--label_column"]),
        (["--label_separator", ""], GOOD, ["invalid --label_separator ''"]),
        (["--dev_fraction", "1e-9"], GOOD, ["leaves no rows for dev"]),
        ([], GOOD, ["no dev or validation file", "--dev_fraction 0.1"]),
    ],
)
def test_invalid_train_files_and_flags_are_named(tmp_path, flags, rows, parts):
    write(tmp_path / "dev.csv", GOOD)
    if "--dev_fraction" in flags or parts[0].startswith("no dev"):
        (tmp_path / "dev.csv").unlink()
    write(tmp_path / "train.csv", rows)
    found = refused(tmp_path, *flags)
    assert [part for part in parts if part not in found] == [], found


@pytest.mark.parametrize(
    ("suffix", "label", "flags", "part"),
    [
        ("jsonl", None, [], "label is missing"),
        ("jsonl", ["x"], [], "--problem multi_label"),
        ("jsonl", float("nan"), [], "label is missing"),
        ("jsonl", True, ["--problem", "regression"], "True is not a number"),
        ("jsonl", None, ["--problem", "multi_label"], "labels are missing: write an empty list"),
        ("jsonl", [["x"]], ["--problem", "multi_label"], "label ['x'] is neither text"),
        ("jsonl", ["x", "y", "x"], ["--problem", "multi_label"], "label 'x' occurs twice: give each label once"),
        ("parquet", ["1", "0", "1"], ["--problem", "multi_label"], "label '1' occurs twice"),
        ("parquet", None, [], "label is missing"),
    ],
)
def test_invalid_labels_are_named(tmp_path, suffix, label, flags, part):
    first = {"[": ["x"], "r": 1.0}.get(
        str(label)[:1] if "multi_label" in flags else flags[-1][:1] if flags else "", "x"
    )
    write(tmp_path / f"train.{suffix}", [{"text": "a", "label": first}, {"text": "b", "label": label}])
    found = refused(tmp_path, *flags, wanted=(TRAIN,))
    assert found.startswith(f"train.{suffix}, row 2")
    assert part in found


@pytest.mark.parametrize("labels", [None, ("x", "y")])
def test_a_label_that_is_no_class_is_named(tmp_path, labels):
    write(tmp_path / "train.csv", GOOD)
    write(tmp_path / "dev.csv", [*GOOD, {"text": "c", "label": "z"}])
    assert refused(tmp_path, labels=labels).startswith("dev.csv, row 3 (line 4): label 'z' is not one of x, y")
    assert refused(tmp_path, wanted=(TRAIN,), labels=("y", "w")).startswith("train.csv, row 1 (line 2): label 'x'")


def test_dev_and_a_share_of_train_exclude_each_other(tmp_path):
    write(tmp_path / "train.csv", GOOD)
    write(tmp_path / "dev.tsv", GOOD)
    assert "dev.tsv and --dev_fraction exclude each other" in refused(tmp_path, "--dev_fraction", "0.5")


def test_an_empty_split_is_named(tmp_path):
    write(tmp_path / "train.csv", GOOD)
    (tmp_path / "dev.csv").write_text("text,label\n")
    assert "dev.csv has no rows" in refused(tmp_path)
