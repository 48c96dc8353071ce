"""Fine-tuning tasks about a text or a pair of texts: one class of several, several classes, or a number.

Letters in shapes: N examples, n labels.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tokenizer.tokenizer import Tokenizer
from trainers.errors import TaskDataError
from trainers.finetuning import details, metrics, submission
from trainers.finetuning.contract import DEV, TEST, TRAIN, Logits, Rows
from trainers.finetuning.text_rows import encode_texts
from trainers.whole_files import write_whole

# More of a list of labels than a line can hold is not shown.
_SHOWN_LABELS = 10


@dataclasses.dataclass(frozen=True, slots=True)
class TextExample:
    """A text, or a pair of texts, and what is to be learnt of it.

    Attributes:
        text: as the file has it.
        text_pair: the second text, None where there is one alone.
        label: name of the class; of several classes their names, possibly none; for regression a finite number; None
            where the file does not say.
        where: for messages and the report, such as "dev.tsv, row 17 (line 18)".
        index: what a submission calls the example; "" where files of the task have no such column.
    """

    text: str
    text_pair: str | None = None
    label: str | tuple[str, ...] | float | None = None
    where: str = ""
    index: str = ""


class TextTask:
    """A task of `contract.FinetuningTask` over text examples.

    Args:
        name: such as "mrpc".
        head: "classification" or "regression".
        labels: names of the classes in the order of the logits; None for regression.
        splits: the examples of "train", "dev" and "test", of those that were read; others that are scored are called
            "dev_...", others that are predicted "test_...".
        metric_names: of `metrics.CLASS_METRICS`, `MULTI_LABEL_METRICS` or `REGRESSION_METRICS`, by what the task is.
        best_metric: what `metrics` calls the number that the best checkpoint is chosen by, such as "eval_accuracy".
        multi_label: whether an example may have several labels.
        positive_label: the class that F1 is about where there are two; None for the second.
        submission_files: of a GLUE task, the name of the file for the server, by split.
        skipped: rows of a split that the reader left out.

    Raises:
        TaskDataError: an example to train or score without a label, a label that is none of `labels`, or a split of
            which some examples have a label and some have none; the message has the example's `where`.
    """

    def __init__(
        self,
        *,
        name: str,
        head: str,
        labels: Sequence[str] | None,
        splits: Mapping[str, Sequence[TextExample]],
        metric_names: Sequence[str],
        best_metric: str,
        multi_label: bool = False,
        positive_label: str | None = None,
        submission_files: Mapping[str, str] | None = None,
        skipped: Mapping[str, int] | None = None,
    ) -> None:
        self.name = name
        self.head = head
        self.labels = None if labels is None else tuple(labels)
        self.multi_label = multi_label
        self.best_metric = best_metric
        self.splits = tuple(splits)
        self.eval_splits = tuple(split for split in splits if _is_kind(split, DEV))
        self.predict_splits = tuple(split for split in splits if _is_kind(split, TEST))
        self.examples = dict(splits)
        self._metric_names = tuple(metric_names)
        self._positive_label = positive_label
        self._submission_files = dict(submission_files or {})
        self._skipped = dict(skipped or {})
        for split, examples in splits.items():
            self._check(split, examples)
