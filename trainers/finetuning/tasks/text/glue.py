"""The tasks of GLUE and XNLI, read from the published files.

Columns are identified by the names in the header; CoLA's training and development files have no header. Sources:
https://gluebenchmark.com/tasks and https://github.com/facebookresearch/XNLI. Labels and their order are those of
run_classifier.py, which has cola, mnli, mrpc and xnli.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.finetuning_task import DEV, TEST, TRAIN
from beambert.trainers.finetuning.options import FinetuneOptions
from beambert.trainers.finetuning.tasks.text.glue_files import TsvFile, TsvRow
from beambert.trainers.finetuning.tasks.text.text_example import TextExample
from beambert.trainers.finetuning.tasks.text.text_task import TextTask, listed

DEFAULT_MAX_SEQ_LENGTH = 128

# Alternative names of a column in different distributions of the files.
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
# GLUE's files, or Microsoft's files with GLUE's list of development pairs.
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
# Placeholders of hidden labels in test files.
_NO_LABEL = ("", "-1")


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """The columns and metrics of a task.

    Attributes:
        text, text_pair, label: alternative names of the columns.
        labels: names of the classes; None for regression.
        metric_names: metrics of the task, first the one that GLUE ranks by.
        submission: name of the file for the GLUE server, by split.
        files: alternative paths of each split in --data_dir; {train_language} is the language of the training data.
        columns_without_header: column names of files without a header.
        same_as: synonyms of class names.
        skips_broken_rows: whether training and development rows without all columns are skipped and counted.
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
    # Newlines inside questions split some rows of the published file.
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


def open_task(config: FinetuneOptions, wanted: Collection[str], labels: tuple[str, ...] | None) -> TextTask:
    """Read and validate the files of a task.

    Args:
        config: `XnliOptions`, and task, data_dir, max_train_samples, max_eval_samples,
            max_predict_samples.
        wanted: subset of "train", "dev" and "test".
        labels: labels of the model where it is fine-tuned already, else None.

    Raises:
        TaskDataError: a file is missing, empty or invalid, a row is invalid, or the labels of the model are not those
            of the task.
    """
    task = TASKS[config.task]
    if labels is not None and task.labels is not None and sorted(labels) != sorted(task.labels):
        raise TaskDataError(
            f"the labels of the model ({listed(labels)}) are not those of {config.task} ({listed(task.labels)}): use a "
            f"model of {config.task}, or a pretrained model"
        )
    directory = _directory(config.data_dir)
    language = config.xnli_language or "zh"
    train_language = config.xnli_train_language or language
    most = {TRAIN: config.max_train_samples, DEV: config.max_eval_samples, TEST: config.max_predict_samples}
    splits: dict[str, list[TextExample]] = {}
    skipped: dict[str, int] = {}
    for split, names in task.files.items():
        kind = split.partition("_")[0]
        if kind not in wanted:
            continue
        paths = [directory / name.format(train_language=train_language) for name in names]
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            if split == "test_diagnostic":
                continue
            raise TaskDataError(
                f"{' or '.join(map(str, paths))} does not exist, which {config.task} needs for split {split}: add it"
            )
        file = TsvFile(path, task.columns_without_header)
        if config.task == "xnli" and kind != TRAIN:
            keeps = _language_filter(file, language)
        elif path.name == _MRPC_TRAIN:
            keeps = _dev_ids_filter(file, directory / _MRPC_DEV_IDS, kind == DEV)
        else:
            keeps = None
        splits[split], skipped[split] = _read(task, file, kind == TEST, keeps, most[kind])
        if not splits[split]:
            raise TaskDataError(f"{path} has no row for split {split}: use another file")
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
        raise TaskDataError("--data_dir is missing: give the directory of the task's files")
    if not Path(data_dir).is_dir():
        raise TaskDataError(f"--data_dir {data_dir} is not a directory: give the directory of the task's files")
    return Path(data_dir)


def _read(
    task: GlueTask, file: TsvFile, is_test: bool, keeps: Callable[[TsvRow], bool] | None, most: int | None
) -> tuple[list[TextExample], int]:
    """Return the first examples of a file, and the number of incomplete rows that were skipped.

    Args:
        task: columns of the task.
        file: the file.
        is_test: whether labels may be missing; rows may not.
        keeps: filter of the rows; None for all rows.
        most: maximum number of examples; None for all.
    """
    text = file.required_column(task.text)
    pair = None if task.text_pair is None else file.required_column(task.text_pair)
    label = file.column(task.label) if is_test else file.required_column(task.label)
    index = file.column(_INDEX)
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


def _label(task: GlueTask, row: TsvRow, column: int, is_test: bool) -> str | float | None:
    label = row.fields[column]
    if is_test and label in _NO_LABEL:
        return None
    if task.labels is not None:
        return task.same_as.get(label, label)
    try:
        return float(label)
    except ValueError as error:
        raise TaskDataError(f"{row.where}: score {label!r} is not a number: fix the row") from error


def _language_filter(file: TsvFile, language: str) -> Callable[[TsvRow], bool]:
    """Return a filter for the rows of a language in XNLI, which has all languages in one file.

    Raises:
        TaskDataError: the file has no row in the language.
    """
    column = file.required_column(("language",))
    languages = sorted({row.fields[column] for row in file.rows() if column < len(row.fields)})
    if language not in languages:
        raise TaskDataError(
            f"{file.path} has no row in language {language!r}: set --xnli_language to one of {', '.join(languages)}"
        )
    return lambda row: row.fields[column] == language


def _dev_ids_filter(file: TsvFile, dev_ids: Path, is_dev: bool) -> Callable[[TsvRow], bool]:
    """Return a filter for the development rows in Microsoft's training file, or for the training rows.

    Raises:
        TaskDataError: GLUE's list of the development rows is missing.
    """
    if not dev_ids.is_file():
        raise TaskDataError(
            f"{dev_ids}, the list of development pairs in {file.path.name}, does not exist: download it from GLUE, or "
            "provide train.tsv and dev.tsv"
        )
    scored = {tuple(row.fields) for row in TsvFile(dev_ids, ("#1 ID", "#2 ID")).rows()}
    first, second = file.required_column(("#1 ID",)), file.required_column(("#2 ID",))
    return lambda row: ((row.fields[first], row.fields[second]) in scored) == is_dev
