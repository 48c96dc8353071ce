"""Collect additive statistics of a dataset, shard by shard, for `dataset.json` and `report.html`."""

import base64
import dataclasses
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from beambert.pipelines.instances.instances import Instances, Rows, TokenizedDocuments
from beambert.pipelines.instances.masking import Masked
from beambert.tokenizer.vocabulary import Vocabulary

# Longer sentences are counted with this length.
_MAX_SENTENCE_LENGTH = 1024
# Bins of document lengths per doubling.
_BINS_PER_DOUBLING = 2


def _empty_counts() -> np.ndarray:
    return np.zeros(0, np.int64)


@dataclasses.dataclass(eq=False)
class Statistics:
    """Sums over one or more shards. Arrays are int64 histograms of variable length.

    Attributes:
        documents, sentences, tokens, unknown_tokens: counts of the text, in one copy.
        sentence_lengths: number of sentences by tokens; the last bin, `_MAX_SENTENCE_LENGTH`, includes longer ones.
        document_lengths: number of documents by tokens; bin i starts at `document_bin_start(i)`.
        piece_counts: [V], occurrences of each token in the text, before masking.
        instances: number of instances.
        instances_labeled_1: instances with label 1 (B does not follow A).
        instance_tokens: tokens of all instances, including [CLS] and [SEP].
        tokens_truncated: tokens that are in no instance because pairs were truncated.
        tokens_packed: tokens of all sampled documents, the denominator of tokens_truncated.
        segments_dropped: segments that could not be paired, or were too short to split.
        words_with_noise: words with a typing error.
        instance_lengths, a_lengths, b_lengths: number of instances by tokens of the instance, of A and of B.
        rows: number of rows (examples).
        positions: positions of all rows, including padding.
        row_lengths: number of rows by positions before the padding.
        masked_tokens: tokens to predict.
        masked_as_mask, masked_as_random, masked_as_original: tokens to predict that are replaced by [MASK], replaced by
            a random token, or kept.
        masked_in_row: number of rows by tokens to predict.
    """

    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    unknown_tokens: int = 0
    sentence_lengths: np.ndarray = dataclasses.field(default_factory=_empty_counts)
    document_lengths: np.ndarray = dataclasses.field(default_factory=_empty_counts)
    piece_counts: np.ndarray = dataclasses.field(default_factory=_empty_counts)
    instances: int = 0
    instances_labeled_1: int = 0
    instance_tokens: int = 0
    tokens_truncated: int = 0
    tokens_packed: int = 0
    segments_dropped: int = 0
    words_with_noise: int = 0
    instance_lengths: np.ndarray = dataclasses.field(default_factory=_empty_counts)
    a_lengths: np.ndarray = dataclasses.field(default_factory=_empty_counts)
    b_lengths: np.ndarray = dataclasses.field(default_factory=_empty_counts)
    rows: int = 0
    positions: int = 0
    row_lengths: np.ndarray = dataclasses.field(default_factory=_empty_counts)
    masked_tokens: int = 0
    masked_as_mask: int = 0
    masked_as_random: int = 0
    masked_as_original: int = 0
    masked_in_row: np.ndarray = dataclasses.field(default_factory=_empty_counts)

    def add_text(self, documents: TokenizedDocuments, vocab: Vocabulary) -> None:
        """Add the text of a partition."""
        self.add_tokens(documents.token_ids, vocab)
        self.documents += len(documents)
        self.sentences += len(documents.sentence_starts) - 1
        lengths = np.minimum(np.diff(documents.sentence_starts), _MAX_SENTENCE_LENGTH)
        self.sentence_lengths = _sum(self.sentence_lengths, np.bincount(lengths))
        document_tokens = np.diff(documents.sentence_starts[documents.document_starts])
        bins = np.floor(np.log2(document_tokens) * _BINS_PER_DOUBLING).astype(np.int64)
        self.document_lengths = _sum(self.document_lengths, np.bincount(bins))

    def add_tokens(self, token_ids: np.ndarray, vocab: Vocabulary) -> None:
        """Add tokens of the text: int [n]."""
        counts = np.bincount(token_ids, minlength=len(vocab))
        self.tokens += len(token_ids)
        self.unknown_tokens += int(counts[vocab.unk_id])
        self.piece_counts = _sum(self.piece_counts, counts)

    def add_instances(self, instances: Instances) -> None:
        """Add the instances of a partition in one copy."""
        self.instances += len(instances)
        self.instances_labeled_1 += int(np.count_nonzero(instances.labels))
        self.instance_tokens += int(instances.lengths.sum())
        self.tokens_truncated += instances.tokens_truncated
        self.tokens_packed += instances.tokens_packed
        self.segments_dropped += instances.segments_dropped
        self.instance_lengths = _sum(self.instance_lengths, np.bincount(instances.lengths))
        self.a_lengths = _sum(self.a_lengths, np.bincount(instances.a_length))
        self.b_lengths = _sum(self.b_lengths, np.bincount(instances.b_length))

    def add_rows(self, rows: Rows, masked: Masked | None, mask_id: int) -> None:
        """Add a batch of rows; `masked` is `None` with dynamic masking."""
        self.rows += len(rows)
        self.positions += rows.input_ids.size
        self.row_lengths = _sum(self.row_lengths, np.bincount(rows.lengths))
        if masked is None:
            return
        predicted = masked.weights > 0
        row_start = np.arange(len(rows))[:, None] * rows.input_ids.shape[1]
        seen = masked.input_ids.reshape(-1)[row_start + masked.positions]  # [n, P]
        in_row = np.count_nonzero(predicted, axis=1)
        self._add_masks(
            int(in_row.sum()),
            int(np.count_nonzero((seen == mask_id) & predicted)),
            int(np.count_nonzero((seen == masked.label_ids) & predicted)),
        )
        self.masked_in_row = _sum(self.masked_in_row, np.bincount(in_row))

    def add_masks(self, input_ids: np.ndarray, label_ids: np.ndarray, mask_id: int) -> None:
        """Add tokens to predict, given their input ids and labels: int [n] each."""
        as_mask = int(np.count_nonzero(input_ids == mask_id))
        self._add_masks(len(label_ids), as_mask, int(np.count_nonzero(input_ids == label_ids)))

    def _add_masks(self, tokens: int, as_mask: int, as_same: int) -> None:
        self.masked_tokens += tokens
        self.masked_as_mask += as_mask
        self.masked_as_original += as_same
        self.masked_as_random += tokens - as_mask - as_same

    def __add__(self, other: "Statistics") -> "Statistics":
        values: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            first, second = getattr(self, field.name), getattr(other, field.name)
            values[field.name] = _sum(first, second) if isinstance(first, np.ndarray) else first + second
        return Statistics(**values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Statistics) and self.to_json() == other.to_json()

    def numbers(self) -> dict[str, int]:
        """Return the scalar statistics by name, for `dataset.json`."""
        return {name: value for name, value in vars(self).items() if isinstance(value, int)}

    def to_json(self) -> dict[str, Any]:
        """Return all statistics as JSON; arrays are zlib-compressed and base64-encoded."""
        return {
            name: base64.b64encode(zlib.compress(value.astype("<i8").tobytes(), level=1)).decode("ascii")
            if isinstance(value, np.ndarray)
            else value
            for name, value in vars(self).items()
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Statistics":
        """Return the statistics of a result of `to_json`."""
        values: dict[str, Any] = {
            name: np.frombuffer(zlib.decompress(base64.b64decode(value)), "<i8").astype(np.int64)
            if isinstance(value, str)
            else value
            for name, value in content.items()
        }
        return cls(**values)


def total(parts: Iterable[Statistics]) -> Statistics:
    """Return the sum of statistics."""
    return sum(parts, Statistics())


def document_bin_start(number: int | np.ndarray) -> np.ndarray:
    """Return the minimum number of tokens of a document in a bin of `Statistics.document_lengths`."""
    return np.ceil(2.0 ** (np.asarray(number) / _BINS_PER_DOUBLING)).astype(np.int64)


def _sum(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the sum of two histograms, the shorter one padded with zeros."""
    longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
    result = longer.astype(np.int64)
    result[: len(shorter)] += shorter
    return result
