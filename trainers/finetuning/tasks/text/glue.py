"""The tasks of GLUE and XNLI, from the files as they are published.

Columns are found by the names in the first line of a file; CoLA's files to train and to score have no such line.
Published: https://gluebenchmark.com/tasks, https://github.com/facebookresearch/XNLI; the classes and their order are
those of run_classifier.py, which has cola, mnli, mrpc and xnli.
"""

import argparse
import dataclasses
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from trainers.config.finetune_config import FinetuneConfig
from trainers.errors import TaskDataError
from trainers.finetuning.finetuning_task import DEV, TEST, TRAIN
from trainers.finetuning.tasks.text.glue_files import TsvFile, TsvRow
from trainers.finetuning.tasks.text.text_example import TextExample
from trainers.finetuning.tasks.text.text_task import TextTask, listed

DEFAULT_MAX_SEQ_LENGTH = 128

# Names of one column, as one or another copy of the files has it.
Names = tuple[str, ...]

_FILES = {TRAIN: ("train.tsv",), DEV: ("dev.tsv",), TEST: ("test.tsv",)}
_MNLI_FILES = {
    TRAIN: ("train.tsv",),
    DEV: ("dev_matched.tsv",),
    "dev_mismatched": ("dev_mismatched.tsv",),
    TEST: ("test_matched.tsv",),
    "test_mismatched": ("test_mismatched.tsv",),
    "test_diagnostic": ("diagnostic.tsv",),
}
# GLUE's own files, or Microsoft's with the list of the pairs that GLUE scores.
_MRPC_TRAIN, _MRPC_TEST, _MRPC_DEV_IDS = "msr_paraphrase_train.txt", "msr_paraphrase_test.txt", "dev_ids.tsv"
_MRPC_FILES = {
    TRAIN: ("train.tsv", _MRPC_TRAIN),
    DEV: ("dev.tsv", _MRPC_TRAIN),
    TEST: ("test.tsv", _MRPC_TEST),
}
_XNLI_TRAIN = "multinli.train.{train_language}.tsv"
_XNLI_FILES = {
    TRAIN: (f"multinli/{_XNLI_TRAIN}", f"XNLI-MT-1.0/multinli/{_XNLI_TRAIN}", _XNLI_TRAIN),
    DEV: ("xnli.dev.tsv", "XNLI-1.0/xnli.dev.tsv"),
    TEST: ("xnli.test.tsv", "XNLI-1.0/xnli.test.tsv"),
}
_FIRST, _SECOND = ("sentence1",), ("sentence2",)
_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_INFERENCE = ("contradiction", "entailment", "neutral")
_INDEX = ("index", "id", "idx")
# Copies of the files write one of these where the label is kept from those who predict it.
_NO_LABEL = ("", "-1")


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """The columns of a task's files and its metrics.

    Attributes:
        text, text_pair, label: the columns, by any of their names.
        labels: the classes; None for a number.
        metric_names: how it is scored, first the score that GLUE ranks by.
        submission: the file that the GLUE server takes, by split.
        files: where the splits are in --data_dir, each in the first of several places; {train_language} stands for
            the language to train on.
        columns_without_header: of files that have no header.
        same_as: other words for a class.
        skips_broken_rows: whether rows to train on and to score are left out, and counted, that have not all columns.
    """

    text: Names
    text_pair: Names | None
    label: Names
    labels: Names | None
    metric_names: Names
    submission: Mapping[str, str]
    files: Mapping[str, Names] = dataclasses.field(default_factory=lambda: _FILES)
    columns_without_header: Names | None = None
    same_as: Mapping[str, str] = dataclasses.field(default_factory=dict)
    skips_broken_rows: bool = False


TASKS = {
    "cola": GlueTask(
        ("sentence",), None, ("label",), _BINARY, ("matthews", "accuracy"), {TEST: "CoLA.tsv"},
        columns_without_header=("source", "label", "mark", "sentence"),
    ),
    "sst2": GlueTask(("sentence",), None, ("label",), _BINARY, ("accuracy",), {TEST: "SST-2.tsv"}),
    "mrpc": GlueTask(
        ("#1 String", *_FIRST), ("#2 String", *_SECOND), ("Quality", "label"), _BINARY, ("accuracy", "f1"),
        {TEST: "MRPC.tsv"}, files=_MRPC_FILES,
    ),
    "stsb": GlueTask(_FIRST, _SECOND, ("score", "label"), None, ("pearson", "spearman"), {TEST: "STS-B.tsv"}),
    # Line ends inside questions break some rows of the published file in two.
    "qqp": GlueTask(
        ("question1",), ("question2",), ("is_duplicate", "label"), _BINARY, ("accuracy", "f1"), {TEST: "QQP.tsv"},
        skips_broken_rows=True,
    ),
    "mnli": GlueTask(
        _FIRST, _SECOND, ("gold_label", "label"), _INFERENCE, ("accuracy",),
        {TEST: "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv", "test_diagnostic": "AX.tsv"}, files=_MNLI_FILES,
    ),
    "qnli": GlueTask(("question",), ("sentence",), ("label",), _ENTAILMENT, ("accuracy",), {TEST: "QNLI.tsv"}),
    "rte": GlueTask(_FIRST, _SECOND, ("label",), _ENTAILMENT, ("accuracy",), {TEST: "RTE.tsv"}),
    "wnli": GlueTask(_FIRST, _SECOND, ("label",), _BINARY, ("accuracy",), {TEST: "WNLI.tsv"}),
    "xnli": GlueTask(
        (*_FIRST, "premise"), (*_SECOND, "hypo"), ("gold_label", "label"), _INFERENCE, ("accuracy",), {},
        files=_XNLI_FILES, same_as={"contradictory": "contradiction"},
    ),
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of these tasks; all of them are of xnli."""
    group = parser.add_argument_group("xnli")
    group.add_argument(
        "--xnli_language",
        metavar="CODE",
        help="the language of the rows to score and to predict, such as en (default: zh, as run_classifier.py)",
    )
    group.add_argument(
        "--xnli_train_language",
        metavar="CODE",
        help="the language to train on, whose multinli.train.CODE.tsv is read (default: that of --xnli_language)",
    )


def open_task(config: FinetuneConfig, wanted: Collection[str], labels: tuple[str, ...] | None) -> TextTask:
    """Read and check the files of a task.

    Args:
        config: task, data_dir, max_train_samples, max_eval_samples, max_predict_samples and those of `add_arguments`.
        wanted: of "train", "dev" and "test".
        labels: classes of the model where it has been trained before.

    Raises:
        TaskDataError: a file is missing, empty or no such file, a row cannot be used, the model's classes are not the
            task's, or a flag is another task's.
    """
    task = TASKS[config.task]
    if labels is not None and task.labels is not None and sorted(labels) != sorted(task.labels):
        raise TaskDataError(
            f"the model was trained for other classes ({listed(labels)}) than {config.task} has "
            f"({listed(task.labels)}); start from one that was trained for {config.task}, or only pretrained"
        )
    for flag in ("xnli_language", "xnli_train_language"):
        if getattr(config, flag) is not None and config.task != "xnli":
            raise TaskDataError(f"--{flag} is for xnli, not for {config.task}; leave it out")
    directory = _directory(config.data_dir)
    language = config.xnli_language or "zh"
    train_language = config.xnli_train_language or language
    most = {TRAIN: config.max_train_samples, DEV: config.max_eval_samples, TEST: config.max_predict_samples}
    splits: dict[str, list[TextExample]] = {}
    skipped: dict[str, int] = {}
    for split, places in task.files.items():
        kind = split.partition("_")[0]
        if kind not in wanted:
            continue
        paths = [directory / place.format(train_language=train_language) for place in places]
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            if split == "test_diagnostic":
                continue
            raise TaskDataError(f"{' and '.join(map(str, paths))} is not there; {config.task} needs it for {split}")
        file = TsvFile(path, task.columns_without_header)
        if config.task == "xnli" and kind != TRAIN:
            keeps = _language_filter(file, language)
        elif path.name == _MRPC_TRAIN:
            keeps = _dev_ids_filter(file, directory / _MRPC_DEV_IDS, kind == DEV)
        else:
            keeps = None
        splits[split], skipped[split] = _read(task, file, kind == TEST, keeps, most[kind])
        if not splits[split]:
            raise TaskDataError(f"{path} has no row for {split}; give a file that has")
    return TextTask(
        name=config.task,
        head="regression" if task.labels is None else "classification",
        labels=task.labels if labels is None or task.labels is None else labels,
        splits=splits,
        metric_names=task.metric_names,
        best_metric=f"eval_{task.metric_names[0]}",
        positive_label="1" if task.labels == _BINARY else None,
        submission_files=task.submission,
        skipped=skipped,
    )


def _directory(data_dir: str | None) -> Path:
    if not data_dir:
        raise TaskDataError("--data_dir is missing; name the directory with the files of the task")
    if not Path(data_dir).is_dir():
        raise TaskDataError(f"--data_dir {data_dir} is no directory; name the one with the files of the task")
    return Path(data_dir)


def _read(
    task: GlueTask, file: TsvFile, is_test: bool, keeps: Callable[[TsvRow], bool] | None, most: int | None
) -> tuple[list[TextExample], int]:
    """Return the first examples of a file, and how many broken rows were left out among them.

    Args:
        task: what the file looks like.
        file: the file.
        is_test: whether the labels may be missing, and no row.
        keeps: of which rows the file is read; None for all.
        most: examples; None for all.
    """
    text = file.needed_place(task.text)
    pair = None if task.text_pair is None else file.needed_place(task.text_pair)
    label = file.place(task.label) if is_test else file.needed_place(task.label)
    index = file.place(_INDEX)
    examples: list[TextExample] = []
    skipped = 0
    for row in file.rows():
        if len(examples) == most:
            break
        fields = row.fields
        if len(fields) != len(file.columns) and task.skips_broken_rows and not is_test:
            skipped += 1
            continue
        file.check_width(row)
        if keeps is None or keeps(row):
            examples.append(
                TextExample(
                    text=fields[text],
                    text_pair=None if pair is None else fields[pair],
                    label=None if label is None else _label(task, row, label, is_test),
                    where=row.where,
                    index="" if index is None else fields[index],
                )
            )
    return examples, skipped


def _label(task: GlueTask, row: TsvRow, place: int, is_test: bool) -> str | float | None:
    label = row.fields[place]
    if is_test and label in _NO_LABEL:
        return None
    if task.labels is not None:
        return task.same_as.get(label, label)
    try:
        return float(label)
    except ValueError as error:
        raise TaskDataError(f"{row.where}: score {label!r} is no number; mend the row") from error


def _language_filter(file: TsvFile, language: str) -> Callable[[TsvRow], bool]:
    """Return a filter for the rows of a language in XNLI, which has all languages in one file.

    Raises:
        TaskDataError: no row is.
    """
    place = file.needed_place(("language",))
    languages = sorted({row.fields[place] for row in file.rows() if place < len(row.fields)})
    if language not in languages:
        raise TaskDataError(
            f"{file.path} has no row in {language!r}; give --xnli_language one of {', '.join(languages)}"
        )
    return lambda row: row.fields[place] == language


def _dev_ids_filter(file: TsvFile, dev_ids: Path, is_dev: bool) -> Callable[[TsvRow], bool]:
    """Return a filter for the rows of Microsoft's training file that GLUE scores, or for the others.

    Raises:
        TaskDataError: the list of them, which comes with GLUE, is not there.
    """
    if not dev_ids.is_file():
        raise TaskDataError(
            f"{dev_ids} is not there, which lists the pairs of {file.path.name} that are scored and not trained on; "
            "get it from GLUE, or give train.tsv and dev.tsv"
        )
    scored = {tuple(row.fields) for row in TsvFile(dev_ids, ("#1 ID", "#2 ID")).rows()}
    first, second = file.needed_place(("#1 ID",)), file.needed_place(("#2 ID",))
    return lambda row: ((row.fields[first], row.fields[second]) in scored) == is_dev
