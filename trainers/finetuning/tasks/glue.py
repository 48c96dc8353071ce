"""The tasks of GLUE and XNLI, read from the published files.

Columns are identified by the names in the header; CoLA's training and development files have no header. Sources:
https://gluebenchmark.com/tasks and https://github.com/facebookresearch/XNLI. Labels and their order are those of
run_classifier.py, which has cola, mnli, mrpc and xnli.

The files are tab-separated, one row per line, without quoting: quotation marks are ordinary text. A byte order mark and
carriage returns before newlines are removed.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from beambert.common.formatting import join_first
from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.finetuning_task import DEV, TEST, TRAIN, sample_limits
from beambert.trainers.finetuning.options import FinetuneOptions
from beambert.trainers.finetuning.tasks.text_task import ClassTask, NumberTask, TextExample, TextTask
from beambert.trainers.finetuning.tasks.utf8_files import read_text

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


@dataclasses.dataclass(frozen=True, slots=True)
class TsvRow:
    """A non-blank row.

    Attributes:
        where: location, such as "dev.tsv, row 17 (line 18)"; rows are counted from 1 after the header.
        fields: tab-separated fields.
    """

    where: str
    fields: list[str]


class TsvFile:
    """A file and the names of its columns.

    Args:
        path: path of the file.
        columns_without_header: column names of a file without header; None where a header is required. A first line
            that contains the last of these names is a header.

    Attributes:
        columns: names of the columns.

    Raises:
        TaskDataError: the file cannot be read, is not UTF-8, or is empty.
    """

    def __init__(self, path: Path, columns_without_header: Sequence[str] | None = None) -> None:
        self.path = path
        # Not splitlines: texts contain other Unicode line separators.
        self._lines = [line.removesuffix("\r") for line in read_text(path).split("\n")]
        first = next((line for line in self._lines if line.strip()), None)
        if first is None:
            raise TaskDataError(f"{path} is empty: use a file with rows")
        columns = [name.strip() for name in first.split("\t")]
        self._has_header = columns_without_header is None or columns_without_header[-1] in columns
        self.columns = columns if self._has_header else list(columns_without_header or ())

    def column(self, names: Sequence[str]) -> int | None:
        """Return the index of the column with one of these names; None otherwise."""
        return next((self.columns.index(name) for name in names if name in self.columns), None)

    def required_column(self, names: Sequence[str]) -> int:
        """Return the index of the column with one of these names.

        Raises:
            TaskDataError: there is no such column.
        """
        index = self.column(names)
        if index is None:
            shown = ", ".join(repr(column[:30]) for column in self.columns[:12])
            raise TaskDataError(
                f"{self.path} has no column {' or '.join(map(repr, names))}: the first line must contain tab-separated "
                f"column names, and has {shown}"
            )
        return index

    def rows(self) -> Iterator[TsvRow]:
        """Yield the rows after the header, without blank lines."""
        row = 0 if not self._has_header else -1
        for number, line in enumerate(self._lines, 1):
            if line.strip():
                row += 1
                if row:
                    yield TsvRow(f"{self.path.name}, row {row} (line {number})", line.split("\t"))

    def check_width(self, row: TsvRow) -> None:
        """Check the number of fields of a row. Raise TaskDataError where it differs from the number of columns."""
        if len(row.fields) != len(self.columns):
            raise TaskDataError(
                f"{row.where}: {len(row.fields)} fields, while the file has {len(self.columns)} columns "
                f"({', '.join(self.columns[:12])}): fix the tabs or line ends of the row"
            )


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
            f"the labels of the model ({join_first(labels)}) are not those of {config.task} "
            f"({join_first(task.labels)}): use a model of {config.task}, or a pretrained model"
        )
    directory = config.data_directory
    language = config.xnli_language or "zh"
    train_language = config.xnli_train_language or language
    most = sample_limits(config)
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
    kind_of_task = NumberTask if task.labels is None else ClassTask
    return kind_of_task(
        name=config.task,
        labels=task.labels if labels is None or task.labels is None else labels,
        splits=splits,
        metric_names=task.metric_names,
        positive_label="1" if task.labels == _BINARY else None,
        submission_files=task.submission,
        skipped=skipped,
    )


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
