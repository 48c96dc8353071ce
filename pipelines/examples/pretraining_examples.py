"""The examples of a partition: sample, lay out, mask.

All random numbers are from a generator seeded by (seed, split, partition, copy).
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from beambert.pipelines.dataset import SPLITS, PartitionOfSplit
from beambert.pipelines.examples.statistics import Statistics
from beambert.pipelines.instances.instances import (
    Instances,
    RowPlan,
    Rows,
    TokenizedDocuments,
    lay_out,
    one_instance_per_row,
    pack,
)
from beambert.pipelines.instances.masking import Masked, MaskingVocabulary, mask_rows
from beambert.pipelines.instances.noise import add_noise
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.instances.sampling import sample_instances
from beambert.tokenizer.tokenizer import Tokenizer

# Positions per batch, rounded down to whole rows. It limits memory and keeps a batch in the processor cache. The bytes
# of shards depend on it, because random numbers are drawn by batch.
_BATCH_POSITIONS = 2**17

# Arrays of n rows by name.
Features = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class PretrainingExamples:
    """The examples of one partition, in one or more copies.

    They are not stored: every iteration samples and masks them again, with the same result.

    Attributes:
        load: returns the tokenized documents of the partition, in order of their IDs.
        place: the partition.
        copies: numbers of the copies.
        tokenizer: the tokenizer of the documents.
        options: options of the examples.
        size: size of a copy for estimates of progress, in any unit.
    """

    load: Callable[[Tokenizer], TokenizedDocuments]
    place: PartitionOfSplit
    copies: tuple[int, ...]
    tokenizer: Tokenizer
    options: PretrainingDataOptions
    size: int = 0

    @functools.cached_property
    def documents(self) -> TokenizedDocuments:
        """Return the tokenized documents."""
        return self.load(self.tokenizer)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields, without the tokenized documents."""
        return {name: value for name, value in vars(self).items() if name != "documents"}

    def by_row_length(
        self, copy: int, statistics: Statistics | None = None
    ) -> Iterator[tuple[int, Iterator[Features]]]:
        """Yield (row length, batches of features) of a copy for every row length; a batch is as of `features_of`.

        The batches of a row length must be read before the next row length.

        Args:
            copy: number of the copy.
            statistics: statistics to which instances and rows are added; None for none.
        """
        statistics = Statistics() if statistics is None else statistics
        rng = generator(self.options.random_seed, self.place, copy)
        documents = self.documents
        if self.options.noise and self.place.split == "train":  # The validation split stays unchanged.
            documents, statistics.words_with_noise = add_noise(documents, self.options.noise, self.tokenizer, rng)
        instances = sample_instances(documents, self.options, rng)
        statistics.add_instances(instances)
        for row_length, plan in plan_rows(instances.lengths, self.options, rng):
            if len(plan) or len(self.options.row_lengths) == 1:
                yield row_length, self._batches(documents, instances, plan, row_length, statistics, rng)

    def rows(self) -> Iterator[Features]:
        """Yield the examples of all copies one by one, with arrays of the shapes [L], [P] or [K] of `features_of`."""
        for copy in self.copies:
            for _, batches in self.by_row_length(copy):
                for features in batches:
                    for number in range(len(features["input_ids"])):
                        yield {name: features[name][number] for name in self.options.names_of_features()}

    def _batches(
        self,
        documents: TokenizedDocuments,
        instances: Instances,
        plan: RowPlan,
        row_length: int,
        statistics: Statistics,
        rng: np.random.Generator,
    ) -> Iterator[Features]:
        vocab, options = self.tokenizer.vocabulary, self.options
        masking_vocab = MaskingVocabulary.from_vocabulary(vocab)
        batch_rows = max(1, _BATCH_POSITIONS // row_length)
        for first in range(0, len(plan), batch_rows):
            row_plan = plan.slice_rows(first, min(first + batch_rows, len(plan)))
            rows = lay_out(documents.token_ids, instances, row_plan, row_length, options.instances_per_row, vocab)
            masked = None
            if options.masking != "dynamic":
                masked = mask_rows(rows, options.predictions_in(row_length), options, masking_vocab, rng)
            statistics.add_rows(rows, masked, vocab.mask_id)
            yield features_of(rows, masked)


def generator(random_seed: int, place: PartitionOfSplit, copy: int) -> np.random.Generator:
    """Return the random generator of one copy of a partition, which is independent of the worker."""
    return np.random.default_rng([random_seed, SPLITS.index(place.split), place.partition, copy])


def num_copies(split: str, options: PretrainingDataOptions) -> int:
    """Return the number of copies of a split; the validation split has one."""
    return options.dupe_factor if split == "train" else 1


def plan_rows(
    lengths: np.ndarray, options: PretrainingDataOptions, rng: np.random.Generator
) -> list[tuple[int, RowPlan]]:
    """Assign instances to rows, in random order, for every row length.

    Args:
        lengths: int64 [instances], at most max_seq_length.
        options: pack, max_instances_per_row, length_bins and max_seq_length are used.
        rng: random generator.
    """
    if options.pack:
        return [(options.max_seq_length, pack(lengths, options.max_seq_length, options.max_instances_per_row, rng))]
    order = rng.permutation(len(lengths))
    bins = np.searchsorted(options.row_lengths, lengths[order])
    return [
        (row_length, one_instance_per_row(order[bins == number]))
        for number, row_length in enumerate(options.row_lengths)
    ]


def features_of(rows: Rows, masked: Masked | None) -> dict[str, np.ndarray]:
    """Return all features of n rows: [n, L], [n, P] or [n, K], float32 for weights, else integers.

    A file contains the features of `options.names_of_features`.
    """
    features: dict[str, np.ndarray] = {
        "input_ids": rows.input_ids if masked is None else masked.input_ids,
        "input_mask": (rows.sequence_ids > 0).astype(np.uint8),
        "segment_ids": rows.segment_ids,
        "sequence_ids": rows.sequence_ids,
        "next_sentence_labels": rows.labels,
        "next_sentence_positions": rows.instance_positions,
        "next_sentence_weights": rows.filled.astype(np.float32),
    }
    if masked is not None:
        features["masked_lm_positions"] = masked.positions
        features["masked_lm_ids"] = masked.label_ids
        features["masked_lm_weights"] = masked.weights
    return features
