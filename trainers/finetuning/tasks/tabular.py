"""The task `csv`: classification or regression of texts or pairs from CSV, TSV, JSON lines or Parquet files."""

import contextlib
import dataclasses
import hashlib
import json
import math
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from beambert.common.formatting import join_first, replace_surrogates
from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.finetuning_task import DEV, TEST, TRAIN, sample_limits
from beambert.trainers.finetuning.options import FinetuneOptions
from beambert.trainers.finetuning.tasks.table_files import Table, find_split, read_split
from beambert.trainers.finetuning.tasks.text_task import (
    ClassTask,
    LabelSetTask,
    NumberTask,
    TextExample,
    TextTask,
)

DEFAULT_MAX_SEQ_LENGTH = 128
CLASSIFICATION, MULTI_LABEL, REGRESSION = "classification", "multi_label", "regression"
PROBLEMS: dict[str, type[TextTask]] = {CLASSIFICATION: ClassTask, MULTI_LABEL: LabelSetTask, REGRESSION: NumberTask}
# Values of multi-hot labels, in any format of file.
_BITS = {"0": False, "1": True, "0.0": False, "1.0": True, "False": False, "True": True}
# Values of hidden labels in a test file with a column for each label.
_HIDDEN = ("-1", "-1.0")
# Default columns of the texts.
_TEXT_COLUMNS = ("text", "sentence")
_TEXT_PAIR_COLUMN = "text_pair"
# More distinct labels than this, and than half the rows, indicate numbers or the wrong column.
_PLAUSIBLE_LABELS = 20

Label = str | tuple[str, ...] | float


def open_task(config: FinetuneOptions, wanted: Collection[str], labels: tuple[str, ...] | None) -> TextTask:
    """Read the splits.

    The classes are the sorted labels of the whole train file, in numerical order where all are numbers; a fine-tuned
    model has its own. The test split may have no labels, or one placeholder for all, such as -1. Several different
    labels that are not classes are an error, as in dev.

    Args:
        config: `TableOptions`, and data_dir, max_train_samples, max_eval_samples, max_predict_samples.
        wanted: subset of "train", "dev" and "test".
        labels: labels of the model, in the order of the logits; None where it has none.

    Raises:
        TaskDataError: a file is missing, cannot be read or has no rows, a column is missing, or a label is missing, not
            among the classes, or for regression not a number.
    """
    if not config.label_separator:
        raise TaskDataError("invalid --label_separator '': must not be empty, for example ';'")
    directory = config.data_directory
    if config.problem == REGRESSION:
        labels = None
    discovers = labels is None and config.problem != REGRESSION
    shares = _splits_dev_from_train(config, directory)
    if DEV in wanted and not shares and find_split(directory, DEV) is None:
        raise TaskDataError(
            f"{directory} has no dev or validation file: add it, or split it from train with --dev_fraction 0.1"
        )
    columns: _Columns | None = None
    examples: dict[str, list[TextExample]] = {}
    if discovers and TRAIN not in wanted and find_split(directory, TRAIN) is None:
        raise TaskDataError(
            f"{directory} has no train file, which defines the labels: add it, or train the model first"
        )
    if discovers or TRAIN in wanted or (shares and DEV in wanted):
        table = read_split(directory, TRAIN)
        columns = _Columns.from_options(config, table)
        examples[TRAIN] = _examples(table, columns, config)
        if discovers:
            labels = columns.labels if len(columns.labels) > 1 else _discovered_labels(table, examples[TRAIN])
        if shares and config.dev_fraction is not None:
            examples |= _split_train_dev(table, examples[TRAIN], config.dev_fraction)
    for split in (DEV, TEST):
        if split in wanted and split not in examples:
            table = read_split(directory, split)
            columns = columns or _Columns.from_options(config, table)
            examples[split] = _examples(table, columns, config, optional=split == TEST)
    if columns is not None and len(columns.labels) > 1 and sorted(columns.labels) != sorted(labels or ()):
        raise TaskDataError(
            f"--label_column {config.label_column} are not the labels of the model ({join_first(labels or ())}): name "
            "a column for each of them"
        )
    if TEST in examples and _hides_labels(examples[TEST], labels):
        examples[TEST] = [dataclasses.replace(example, label=None) for example in examples[TEST]]
    limits = sample_limits(config)
    return PROBLEMS[config.problem](
        name="csv",
        labels=labels,
        splits={split: examples[split][: limits[split]] for split in (TRAIN, DEV, TEST) if split in wanted},
        metric_names=_metric_names(config.problem, labels),
    )


class _Columns(NamedTuple):
    """The columns of the text, of the second text (None for single texts) and of the label, or one for each label."""

    text: str
    text_pair: str | None
    labels: tuple[str, ...]

    @classmethod
    def from_options(cls, config: FinetuneOptions, table: Table) -> "_Columns":
        """Return the columns of the flags, or the default columns of the first file."""
        usual = [name for name in _TEXT_COLUMNS if name in table.columns]
        pair = config.text_pair_column or (_TEXT_PAIR_COLUMN if _TEXT_PAIR_COLUMN in table.columns else None)
        return cls(config.text_column or [*usual, _TEXT_COLUMNS[0]][0], pair, _label_columns(config, table))


def _label_columns(config: FinetuneOptions, table: Table) -> tuple[str, ...]:
    """Return the columns of --label_column, several for multi-label problems with a column for each label."""
    names = tuple(name.strip() for name in config.label_column.split(","))
    if len(names) == 1 or config.label_column in table.columns:
        return (config.label_column,)
    if config.problem != MULTI_LABEL:
        raise TaskDataError(
            f"--label_column {config.label_column} names a column for each label, which --problem {config.problem} "
            f"does not have: use --problem {MULTI_LABEL}"
        )
    if not all(names) or len(set(names)) < len(names):
        raise TaskDataError(
            f"invalid --label_column {config.label_column!r}: must be different names, separated by commas"
        )
    return names


def _examples(table: Table, columns: _Columns, config: FinetuneOptions, optional: bool = False) -> list[TextExample]:
    """Return the examples of a table; labels may be missing where `optional`."""
    texts = table.texts(columns.text, "set --text_column to the column of the text")
    pairs: Sequence[str | None] = [None] * len(table)
    if columns.text_pair is not None:
        pairs = table.texts(columns.text_pair, "set --text_pair_column to the column of the second text")
    labels: list[Label | None] = [None] * len(table)
    if optional and not set(columns.labels) & set(table.columns):
        pass
    elif len(columns.labels) > 1:
        labels = _labels_by_column(table, columns.labels, optional)
    else:
        cells = table.cells(columns.labels[0], _label_remedy(table))
        if config.problem == MULTI_LABEL:
            cells = _without_multi_hot([_listed(cell, config.label_separator) for cell in cells])
        labels = [
            None if optional and _is_missing(cell) else _label(cell, config, table.where(row))
            for row, cell in enumerate(cells)
        ]
    return [
        TextExample(text, pair, label, table.where(row))
        for row, (text, pair, label) in enumerate(zip(texts, pairs, labels, strict=True))
    ]


def _labels_by_column(table: Table, names: tuple[str, ...], optional: bool) -> list[Label | None]:
    """Return the names of the columns with a 1, for each row; None for placeholders of hidden labels, if `optional`."""
    columns = [table.cells(name, "set --label_column to the columns of the labels") for name in names]
    labels: list[Label | None] = []
    for row, cells in enumerate(zip(*columns, strict=True)):
        if optional and all(_is_missing(cell) or str(cell).strip() in _HIDDEN for cell in cells):
            labels.append(None)
            continue
        bits = [_BITS.get(str(cell).strip()) for cell in cells]
        if None in bits:
            name, cell = names[bits.index(None)], cells[bits.index(None)]
            raise TaskDataError(
                f"{table.where(row)}: {name!r} is {'nothing' if cell is None else repr(cell)}, not 0 or 1, as the "
                "column of a label requires: fix or remove the row"
            )
        labels.append(tuple(name for name, bit in zip(names, bits, strict=True) if bit))
    return labels


def _label_remedy(table: Table) -> str:
    """Return the remedy for a missing label column, which is several columns if some have nothing but 0 and 1."""
    bits = [name for name, cells in table.columns.items() if all(str(cell).strip() in _BITS for cell in cells)]
    if len(bits) < 2:
        return "set --label_column to the column of the label"
    names = shlex.quote(",".join(bits))
    return f"for a column of 0 and 1 for each label, use --problem {MULTI_LABEL} --label_column {names}"


def _listed(cell: Any, separator: str) -> Any:
    """Return a text of several labels as a list: an array of JSON, or names that the separator divides."""
    if not isinstance(cell, str):
        return cell
    if cell.strip().startswith("[") and cell.strip().endswith("]"):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(cell)
    return [name for name in cell.split(separator) if name.strip()]


def _without_multi_hot(cells: list[Any]) -> list[Any]:
    """Return multi-hot rows, lists of one 0 or 1 for each label, as lists of the positions of the ones.

    The rows are multi-hot if all with labels are lists of the same length, at least 2, of nothing but 0 and 1.
    """
    rows = [cell for cell in cells if not _is_missing(cell)]
    sizes = {len(row) if isinstance(row, list) else 0 for row in rows}
    if len(sizes) != 1 or min(sizes) < 2 or not all(str(value).strip() in _BITS for row in rows for value in row):
        return cells
    return [
        [position for position, value in enumerate(cell) if _BITS[str(value).strip()]]
        if isinstance(cell, list)
        else cell
        for cell in cells
    ]


def _is_missing(cell: Any) -> bool:
    """Return whether a cell is null, NaN or blank; for `multi_label`, where texts are lists, only null or NaN."""
    if isinstance(cell, str):
        return not cell.strip()
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def _label(cell: Any, config: FinetuneOptions, where: str) -> Label:
    if config.problem == REGRESSION:
        return _number(cell, where)
    if config.problem == CLASSIFICATION:
        return _class_name(cell, where)
    if cell is None:
        raise TaskDataError(f"{where}: labels are missing: write an empty list for no labels, or remove the row")
    names = tuple(_class_name(name, where) for name in (cell if isinstance(cell, list) else [cell]))
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise TaskDataError(
            f"{where}: label {repeated!r} occurs twice: give each label once, or in every row a list with one 0 or 1 "
            "for each label"
        )
    return names


def _class_name(cell: Any, where: str) -> str:
    """Return a label as text, the same for every file format."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))  # Integers of a column with missing values are read as floats.
    if cell is None or cell != cell or (isinstance(cell, str) and not cell.strip()):
        raise TaskDataError(f"{where}: label is missing: add it, or remove the row")
    if isinstance(cell, str | int | float):
        return replace_surrogates(str(cell).strip())
    raise TaskDataError(
        f"{where}: label {cell!r} is neither text nor a number: use --problem multi_label for several labels"
    )


def _number(cell: Any, where: str) -> float:
    try:
        number = float(cell)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or isinstance(cell, bool):
        raise TaskDataError(f"{where}: label {cell!r} is not a number, as --problem regression requires: fix the row")
    return number


def _discovered_labels(table: Table, examples: Sequence[TextExample]) -> tuple[str, ...]:
    """Return all labels, sorted numerically if all are numbers, else by code point."""
    names = _names(examples)
    several = isinstance(examples[0].label, tuple)
    if len(names) < (1 if several else 2):
        problem = f"only one label, {min(names)!r}" if names else "no labels"
        raise TaskDataError(f"{table.path} has {problem}, so there is nothing to learn: check --label_column")
    if len(names) > max(_PLAUSIBLE_LABELS, len(examples) / 2) and not several:
        raise TaskDataError(
            f"{table.path} has {len(names)} distinct labels in {len(examples)} rows, such as {min(names)!r}: check "
            "--label_column, or use --problem regression for numbers"
        )
    try:
        numbers = {name: float(name) for name in names}
    except ValueError:
        numbers = {}
    if not numbers or not all(math.isfinite(number) for number in numbers.values()):
        return tuple(sorted(names))
    return tuple(sorted(names, key=lambda name: (numbers[name], name)))


def _hides_labels(examples: Sequence[TextExample], labels: tuple[str, ...] | None) -> bool:
    """Return whether the labels of a test file are placeholders: none, or one value that is not a class.

    For regression, the value must be that of several rows, since any number may be a label.
    """
    values = {example.label for example in examples} - {None}
    if labels is None:
        return len(values) == 1 and len(examples) > 1
    return len(values) <= 1 and _names(examples).isdisjoint(labels)


def _names(examples: Sequence[TextExample]) -> set[str]:
    """Return the distinct labels of examples."""
    labels = [(example.label,) if isinstance(example.label, str) else example.label or () for example in examples]
    return {name for names in labels if isinstance(names, tuple) for name in names}


def _splits_dev_from_train(config: FinetuneOptions, directory: Path) -> bool:
    if config.dev_fraction is None:
        return False
    if not 0 < config.dev_fraction < 1:
        raise TaskDataError(f"invalid --dev_fraction {config.dev_fraction}: must be between 0 and 1, such as 0.1")
    dev_file = find_split(directory, DEV)
    if dev_file is not None:
        raise TaskDataError(f"{dev_file} and --dev_fraction exclude each other: remove the file, or omit the flag")
    return True


def _split_train_dev(
    table: Table, examples: Sequence[TextExample], dev_fraction: float
) -> dict[str, list[TextExample]]:
    """Return train and dev examples; equal texts are in the same split."""
    divided: dict[str, list[TextExample]] = {TRAIN: [], DEV: []}
    for example in examples:
        content = f"{example.text}\0{example.text_pair or ''}".encode()
        hash_fraction = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest()) / 2**64
        divided[DEV if hash_fraction < dev_fraction else TRAIN].append(example)
    for split, part in divided.items():
        if not part:
            raise TaskDataError(
                f"{table.path}: --dev_fraction {dev_fraction} of {len(table)} rows leaves no rows for {split}: use "
                "another fraction, or a dev file"
            )
    return divided


def _metric_names(problem: str, labels: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the metrics; the first one selects the best checkpoint."""
    if problem == REGRESSION:
        return ("pearson", "spearman")
    if problem == MULTI_LABEL:
        return ("micro_f1", "macro_f1", "subset_accuracy")
    return ("accuracy", "macro_f1", "matthews", *(["f1"] if labels is not None and len(labels) == 2 else []))
