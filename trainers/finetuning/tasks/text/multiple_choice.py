"""The task `swag`: multiple choice (paper, section 4.4), from SWAG's files or your own.

Letters in shapes: N examples, C choices.
"""

import dataclasses
import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beambert.common.formatting import counted, replace_surrogates
from beambert.common.local_files import write_atomic
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.trainers.data.text_encoding import encode_texts
from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.finetuning_task import DEV, TEST, TRAIN, Logits, Rows
from beambert.trainers.finetuning.options import FinetuneOptions
from beambert.trainers.finetuning.tasks.submission import readable_predictions, test_results
from beambert.trainers.finetuning.tasks.text.table_files import Table, read_split
from beambert.trainers.metrics.score_warnings import choice_warnings
from beambert.trainers.metrics.task_metrics import softmax

DEFAULT_MAX_SEQ_LENGTH = 128
_REMEDY = "use SWAG's columns sent1, sent2, ending0, ending1, ..., or context and choices (a list), and label"
_MISTAKES = 50


@dataclasses.dataclass(frozen=True, slots=True)
class ChoiceExample:
    """A context and its choices.

    Attributes:
        context: first text of every pair.
        choices: second texts of the pairs, each with the common beginning.
        label: index of the correct choice; None where the file has no label.
        where: location for messages and the report, such as "val.csv, row 17 (line 18)".
    """

    context: str
    choices: tuple[str, ...]
    label: int | None
    where: str


def open_task(config: FinetuneOptions, wanted: Collection[str], labels: tuple[str, ...] | None) -> "ChoiceTask":  # noqa: ARG001
    """Read train, dev (or val, valid, validation) and test, as CSV, TSV, JSON lines or Parquet.

    The columns determine one of two layouts:
    - SWAG: sent1 is the context, and a choice is sent2 with one of ending0, ending1, ...
    - context and choices, a list. The text of a column "question" precedes each choice; without a column "context" it
      is the context.
    The label is the index of the correct choice, from 0. The test split may have no labels, or -1 for all.

    Args:
        config: data_dir, max_train_samples, max_eval_samples, max_predict_samples.
        wanted: subset of "train", "dev" and "test".
        labels: unused, since choices have no names.

    Raises:
        TaskDataError: a file is missing or has no rows, a column is missing, a row has fewer than two choices or a
            different number than the first row, or a label is not an index of the choices.
    """
    limits = {TRAIN: config.max_train_samples, DEV: config.max_eval_samples, TEST: config.max_predict_samples}
    directory = config.data_directory
    return ChoiceTask(
        {
            split: read_examples(read_split(directory, split), label_needed=split != TEST)[: limits[split]]
            for split in (TRAIN, DEV, TEST)
            if split in wanted
        }
    )


def read_examples(table: Table, label_needed: bool) -> list[ChoiceExample]:
    """Return the examples of a table, all with the same number of choices; see `open_task`.

    Raises:
        TaskDataError: as `open_task`.
    """
    if "ending0" in table.columns and "choices" not in table.columns:
        contexts = table.texts("sent1", _REMEDY)
        choices = _swag_choices(table)
    else:
        choices = _listed_choices(table)
        asks_alone = "question" in table.columns and "context" not in table.columns
        contexts = table.texts("question" if asks_alone else "context", _REMEDY)
    for row, texts in enumerate(choices):
        if len(texts) < 2:
            raise TaskDataError(f"{table.where(row)}: {counted(len(texts), 'choice')}: at least 2 are required")
        if len(texts) != len(choices[0]):
            raise TaskDataError(
                f"{table.where(row)}: {len(texts)} choices, while the first row has {len(choices[0])}: all rows need "
                "the same number"
            )
    labels = _labels(table, len(choices[0]), label_needed)
    return [
        ChoiceExample(context, tuple(texts), label, table.where(row))
        for row, (context, texts, label) in enumerate(zip(contexts, choices, labels, strict=True))
    ]


def _swag_choices(table: Table) -> list[list[str]]:
    starts = table.texts("sent2", _REMEDY)
    names: list[str] = []
    while f"ending{len(names)}" in table.columns:
        names.append(f"ending{len(names)}")
    endings = zip(*(table.texts(name, _REMEDY) for name in names), strict=True)
    return [[f"{start} {ending}" for ending in row] for start, row in zip(starts, endings, strict=True)]


def _listed_choices(table: Table) -> list[list[str]]:
    """Return the lists of the column "choices", each text after that of "question" where "context" exists too."""
    questions = table.columns["question"] if {"question", "context"} <= table.columns.keys() else [None] * len(table)
    choices = []
    for row, (question, cell) in enumerate(zip(questions, table.cells("choices", _REMEDY), strict=True)):
        if not isinstance(cell, list) or not all(isinstance(text, str) for text in cell):
            raise TaskDataError(f'{table.where(row)}: \'choices\' is not a list of strings: write ["...", "..."]')
        if not isinstance(question, str | None):
            raise TaskDataError(f"{table.where(row)}: 'question' is {question!r}, not a string: fix the row")
        choices.append([replace_surrogates(f"{question} {text}" if question else text) for text in cell])
    return choices


def _labels(table: Table, choices: int, needed: bool) -> Sequence[int | None]:
    cells = table.cells("label", _REMEDY) if needed else table.columns.get("label", [None])
    if not needed and {str(cell).strip() for cell in cells} <= {"None", "nan", "", "-1", "-1.0"}:
        return [None] * len(table)
    return [_index(cell, choices, table.where(row)) for row, cell in enumerate(cells)]


def _index(cell: Any, choices: int, where: str) -> int:
    """Return the label as an integer; text files contain digits."""
    if cell is None or cell == "":
        raise TaskDataError(f"{where}: label is missing: give the index of the correct choice, 0 to {choices - 1}")
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)  # Integers of a column with missing values are read as floats.
    indices = [str(index) for index in range(choices)]
    if str(cell).strip() not in indices:
        raise TaskDataError(f"{where}: invalid label {cell!r}: must be the index of a choice, 0 to {choices - 1}")
    return indices.index(str(cell).strip())


class ChoiceTask:
    """Multiple choice: each choice is encoded as a pair with the context; see `finetuning_task.FinetuningTask`.

    Args:
        splits: examples by split.
    """

    name = "swag"
    head = "multiple_choice"
    labels: tuple[str, ...] | None = None
    multi_label = False
    best_metric = "eval_accuracy"

    def __init__(self, splits: Mapping[str, Sequence[ChoiceExample]]) -> None:
        self.examples = dict(splits)
        self.splits = tuple(splits)
        self.predict_splits = tuple(split for split in splits if split == TEST)
        scored = [split for split in (DEV, TEST) if split in splits and splits[split][0].label is not None]
        self.eval_splits = tuple(scored) if DEV in splits else ()

    def fingerprint(self, split: str) -> str:
        """Return a digest as `FinetuningTask.fingerprint` defines it."""
        content = [[example.context, example.choices, example.label] for example in self.examples[split]]
        return hashlib.blake2b(json.dumps([self.name, content]).encode(), digest_size=32).hexdigest()

    def rows(self, split: str, tokenizer: Tokenizer, max_seq_length: int) -> Rows:
        """Encode [CLS] context [SEP] choice [SEP]; an example with a truncated choice counts as truncated."""
        examples = self.examples[split]
        choices = len(examples[0].choices)
        encoded = encode_texts(
            [example.context for example in examples for _ in range(choices)],
            [choice for example in examples for choice in example.choices],
            tokenizer,
            max_seq_length,
        )
        labels = [example.label for example in examples]
        return Rows(
            ids=encoded.ids,
            segment_ids=encoded.segment_ids,
            row_splits=encoded.row_splits,
            targets={} if None in labels else {"label_ids": np.array(labels, np.int32)},
            choices=choices,
            truncated=int(encoded.truncated.reshape(-1, choices).any(axis=1).sum()),
            empty=np.flatnonzero(encoded.empty.reshape(-1, choices).any(axis=1)),
        )

    def truncation(self, split: str, rows: Rows, max_seq_length: int) -> str:
        """Return the number of truncated examples."""
        count = f"{rows.truncated} of {len(rows)} {split} examples"
        return f"{count} exceed --max_seq_length {max_seq_length} and were truncated"

    def emptiness(self, split: str, rows: Rows) -> str:
        """Return the number of examples with an empty context or choice, and the location of the first."""
        first = self.examples[split][rows.empty[0]].where
        return (
            f"{len(rows.empty)} of {len(rows)} {split} examples have an empty context or choice, the first in {first}; "
            "add the text or remove the rows"
        )

    def texts(self, split: str) -> Iterator[str]:
        """Yield the contexts and choices of all examples."""
        for example in self.examples[split]:
            yield example.context
            yield from example.choices

    def metrics(self, split: str, rows: Rows, logits: Logits) -> dict[str, float]:
        """Return "eval_accuracy", or "test_accuracy" for the test split."""
        right = np.asarray(logits).argmax(axis=1) == rows.targets["label_ids"]
        return {f"{'eval' if split == DEV else split}_accuracy": float(right.mean())}

    def chance_levels(self, split: str, rows: Rows) -> dict[str, float]:
        """Return the accuracy of random choices; choices have no names, so there is no majority class."""
        return {f"{'eval' if split == DEV else split}_accuracy_random_choice": 1 / rows.choices}

    def write_predictions(self, split: str, rows: Rows, logits: Logits, output: Path) -> list[Path]:  # noqa: ARG002
        """Write test_results.tsv, the probabilities of the choices with one line per example, and predictions.tsv."""
        probabilities = softmax(np.asarray(logits))
        table = [
            [
                example.context,
                *(() if example.label is None else (str(example.label),)),
                str(choice),
                float(probabilities[row, choice]),
                example.choices[choice],
            ]
            for row, (example, choice) in enumerate(
                zip(self.examples[split], probabilities.argmax(axis=1), strict=True)
            )
        ]
        labeled = self.examples[split][0].label is not None
        columns = ["context", *["label"] * labeled, "prediction", "probability", "choice"]
        files = {
            "test_results.tsv": test_results(probabilities),
            "predictions.tsv": readable_predictions(columns, table),
        }
        for name, content in files.items():
            write_atomic(output / name, content)
        return [output / name for name in files]

    def details(self, split: str, rows: Rows, logits: Logits) -> dict[str, Any]:
        """Return "choices": the errors, most confident first."""
        probabilities = softmax(np.asarray(logits))
        confidence, predictions = probabilities.max(axis=1), probabilities.argmax(axis=1)
        labels = rows.targets["label_ids"]
        wrong = np.flatnonzero(predictions != labels)
        mistakes = wrong[np.argsort(-confidence[wrong], kind="stable")[:_MISTAKES]]
        return {
            "warnings": choice_warnings(split, labels, predictions, rows.choices),
            "choices": [
                {
                    "location": self.examples[split][row].where,
                    "text": self.examples[split][row].context,
                    "text_pair": None,
                    "choices": list(self.examples[split][row].choices),
                    "label": int(labels[row]),
                    "prediction": int(predictions[row]),
                    "probability": float(confidence[row]),
                }
                for row in mistakes
            ],
        }
