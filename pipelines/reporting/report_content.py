"""The content of the report on the training data."""

import dataclasses
from typing import Any

from pipelines.dataset import Dataset
from pipelines.examples.inspection import InstanceText
from pipelines.examples.statistics import Statistics
from pipelines.instances.options import PretrainingDataOptions

# Rows of a table that are shown.
ROWS_SHOWN = 20


@dataclasses.dataclass(frozen=True)
class Report:
    """The content of the report.

    Attributes:
        manifest: the dataset; its counts hold those of the corpus, "overlap" and "warnings" too.
        options: what the examples were made with.
        statistics: "train" and "validation".
        corpus_options: what the corpus was made with.
        tokens: the vocabulary.
        samples: some instances of the training data.
    """

    manifest: Dataset
    options: PretrainingDataOptions
    statistics: dict[str, Statistics]
    corpus_options: dict[str, Any]
    tokens: tuple[str, ...]
    samples: list[InstanceText]
