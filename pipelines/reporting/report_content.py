"""The content of the data report."""

import dataclasses
from typing import Any

from beambert.pipelines.dataset import Dataset
from beambert.pipelines.examples.inspection import InstanceText
from beambert.pipelines.examples.statistics import Statistics
from beambert.pipelines.instances.options import PretrainingDataOptions

# Maximum rows of a table.
ROWS_SHOWN = 20


@dataclasses.dataclass(frozen=True)
class Report:
    """The content of the data report.

    Attributes:
        manifest: the dataset; its counts include those of the corpus, "overlap" and "warnings".
        options: options of the examples.
        statistics: statistics of "train" and "validation".
        corpus_options: options of the corpus.
        tokens: tokens of the vocabulary in id order.
        num_replacements: number of tokens of which random replacements of masked tokens are drawn.
        samples: sample instances of the training data.
    """

    manifest: Dataset
    options: PretrainingDataOptions
    statistics: dict[str, Statistics]
    corpus_options: dict[str, Any]
    tokens: tuple[str, ...]
    num_replacements: int
    samples: list[InstanceText]
