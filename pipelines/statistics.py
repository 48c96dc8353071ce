"""What a dataset is like, in numbers that can be added up: gathered a shard at a time, shown by `report.html`."""

import dataclasses

import numpy as np

from pipelines.instances import Instances
from pipelines.layout import Rows
from pipelines.masking import Masked


@dataclasses.dataclass
class Statistics:
    """Numbers of one shard or of many; every one a sum.

    Attributes:
        instances, instances_labelled_1: how many, and how many of them have label 1 (B is not what follows A).
        rows, positions, instance_tokens: rows, positions in them with padding, and without.
        masked_tokens: tokens to predict.
        tokens_truncated: tokens in no instance, for they were cut from a pair to fit.
        tokens_packed: tokens of the documents, as often as they were packed; what tokens_truncated is a share of.
        segments_dropped: single segments that nothing could be paired with, or too short to split.
        words_with_noise: words that got a typing error.
    """

    instances: int = 0
    instances_labelled_1: int = 0
    rows: int = 0
    positions: int = 0
    instance_tokens: int = 0
    masked_tokens: int = 0
    tokens_truncated: int = 0
    tokens_packed: int = 0
    segments_dropped: int = 0
    words_with_noise: int = 0

    def add_instances(self, instances: Instances) -> None:
        """Counts what was sampled from a bucket for one duplicate."""
        self.instances += len(instances)
        self.instances_labelled_1 += int(np.count_nonzero(instances.labels))
        self.instance_tokens += int(instances.lengths.sum())
        self.tokens_truncated += instances.tokens_truncated
        self.tokens_packed += instances.tokens_packed
        self.segments_dropped += instances.segments_dropped

    def add_rows(self, rows: Rows, masked: Masked | None) -> None:
        """Counts a batch of rows as they are written; `masked` is None where the trainer masks."""
        self.rows += len(rows)
        self.positions += rows.input_ids.size
        if masked is not None:
            self.masked_tokens += int(masked.weights.sum())

    def to_json(self) -> dict[str, int]:
        """The numbers by name."""
        return dataclasses.asdict(self)
