"""What building the data takes, on paper: partitions, instances, shards, CPU seconds, shuffle.

Instances are not estimated by a formula: the sampler of the second job runs on a sample of documents. This file imports
neither Beam nor TensorFlow.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from deploy.plan.text_estimate import Text
from pipelines.examples.example_encoder import ExampleEncoder
from pipelines.instances.options import PretrainingDataOptions
from pipelines.instances.packing import pack
from pipelines.instances.sampling import sample_instances
from pipelines.runner.memory import peak_memory

# Bytes of a record against the padded one (docs/EXAMPLES.md, Files; 128 positions, 90 % of them filled).
_OF_PADDED = {"gzip": 0.296, "parquet": 0.222}
# Bytes of Parquet for a byte of text.
_CORPUS_OF_TEXT = 0.44
# Bytes of blocks on their way to their partition for a byte of text, by the text in a block (`make bench-scale`).
_BLOCKS_OF_TEXT = {4_300: 0.600, 5_200: 0.581, 18_000: 0.480, 190_000: 0.440, 1_800_000: 0.426}
# Characters that a reader holds before they go out as blocks (`pipelines.corpus.reading`).
_FLUSHED_BYTES = 32 << 20
# CPU seconds for a MB of text (`make bench-scale`, `make bench-data`): reading, cleaning, segmenting, deduplicating,
# writing and counting words; reading and tokenising a shard of the corpus; sampling, masking and writing one copy.
CORPUS_SECONDS = 0.20
TOKENIZE_SECONDS = 0.025
DUPLICATE_SECONDS = 0.010
# Of a vocabulary learnt from 2 million words, the most there are (docs/VOCABULARY.md); it runs in one place.
LEARN_SECONDS = 138.0
_WORDS_LEARNED_FROM = 2_000_000


class LengthPlan(NamedTuple):
    """The shards of one length of rows.

    Attributes:
        row_length: positions of a row.
        predictions: room for masked pieces in a row.
        instances: of one copy of the training text.
        rows: likewise; fewer where rows are packed.
        fill: share of the positions that is not padding.
        examples: rows of all shards, held out ones too.
        files: shards.
        bytes: of all shards.
    """

    row_length: int
    predictions: int
    instances: float
    rows: float
    fill: float
    examples: float
    files: int
    bytes: float


class DataPlan(NamedTuple):
    """A build.

    Attributes:
        partitions: of the training text.
        corpus_shards: of it and of the held-out text.
        largest_partition: expected bytes of text in the largest.
        partition_memory: bytes of a process that makes it into shards.
        corpus_bytes: Parquet.
        lengths: shards, a plan for each length.
        cpu_seconds: of both jobs, on a core of the machine that was measured.
        serial_seconds: of these, what one worker does alone while the others wait.
        shuffle_bytes: written to the shuffle.
        held_out_documents: documents held out.
    """

    partitions: int
    corpus_shards: int
    largest_partition: float
    partition_memory: int
    corpus_bytes: float
    lengths: list[LengthPlan]
    cpu_seconds: float
    serial_seconds: float
    shuffle_bytes: float
    held_out_documents: float

    @property
    def files(self) -> int:
        """Shards of all lengths."""
        return sum(length.files for length in self.lengths)

    @property
    def shard_bytes(self) -> float:
        """Of all lengths."""
        return sum(length.bytes for length in self.lengths)


def plan_data(
    text: Text,
    options: Sequence[PretrainingDataOptions],
    vocab_size: int,
    *,
    num_partitions: int | None = None,
    validation_fraction: float = 0.02,
    learns_vocabulary: bool = True,
) -> DataPlan:
    """Plans both jobs.

    Args:
        text: what there is to read.
        options: of the second job, once for each length of rows.
        vocab_size: pieces.
        num_partitions: instead of what the corpus job would choose.
        validation_fraction: share of the documents held out.
        learns_vocabulary: whether the vocabulary is learnt rather than given.
    """
    partitions = num_partitions or text.num_partitions
    validation_shards = max(1, round(partitions * validation_fraction)) if validation_fraction else 0
    lengths = [
        _plan_length(text, each, vocab_size, partitions, validation_shards, validation_fraction) for each in options
    ]
    megabytes = text.bytes / 1e6
    learning = min(1.0, _distinct_words(text.words) / _WORDS_LEARNED_FROM) * LEARN_SECONDS if learns_vocabulary else 0.0
    cpu_seconds = megabytes * CORPUS_SECONDS + learning
    for each in options:
        cpu_seconds += megabytes * (TOKENIZE_SECONDS + DUPLICATE_SECONDS * each.dupe_factor)
    largest = largest_partition(text, partitions, validation_fraction)
    return DataPlan(
        partitions=partitions,
        corpus_shards=partitions + validation_shards,
        largest_partition=largest,
        partition_memory=peak_memory(round(largest), 1),
        corpus_bytes=text.bytes * _CORPUS_OF_TEXT,
        lengths=lengths,
        cpu_seconds=cpu_seconds,
        serial_seconds=learning,
        shuffle_bytes=text.bytes * _blocks_of_text(text, partitions + validation_shards),
        held_out_documents=text.documents * validation_fraction,
    )


def _plan_length(
    text: Text,
    options: PretrainingDataOptions,
    vocab_size: int,
    partitions: int,
    validation_shards: int,
    validation_fraction: float,
) -> LengthPlan:
    rng = np.random.default_rng(options.random_seed)
    instances = sample_instances(text.tokenized(), options, rng)
    lengths, row_length = instances.lengths, options.max_seq_length
    rows = len(pack(lengths, row_length, options.max_instances_per_row, rng)) if options.pack else len(lengths)
    fill = float(lengths.sum()) / max(rows * row_length, 1)
    everything = text.pieces / float(text.sentence_pieces.sum())
    training = everything * (1 - validation_fraction)
    examples = rows * (training * options.dupe_factor + everything * validation_fraction)
    return LengthPlan(
        row_length=row_length,
        predictions=options.max_predictions_per_seq,
        instances=len(lengths) * training,
        rows=rows * training,
        fill=fill,
        examples=examples,
        files=partitions * options.dupe_factor + validation_shards,
        bytes=examples * _record_bytes(options, row_length, vocab_size),
    )


def _record_bytes(options: PretrainingDataOptions, row_length: int, vocab_size: int) -> float:
    """Bytes of an example: exact for padded TFRecord, else by the share that was measured."""
    padded = ExampleEncoder(options, row_length, vocab_size).record_bytes
    kind = "parquet" if options.format == "parquet" else options.compression
    return padded * _OF_PADDED.get(kind, 1.0)


def largest_partition(text: Text, partitions: int, validation_fraction: float = 0.0) -> float:
    """Bytes that the largest of the partitions is expected to hold.

    A partition is a sum of documents drawn by hash: the mean, and as many standard deviations as the largest of so many
    normal numbers lies above it, and no less than the largest document of the sample. `make bench-scale` holds this
    against simulated partitions.
    """
    mean = text.bytes * (1 - validation_fraction) / partitions
    sizes = text.document_bytes.astype(np.float64)
    documents = mean / sizes.mean()
    spread = math.sqrt(documents * float((sizes**2).mean()))
    return min(text.bytes, max(mean + math.sqrt(2 * math.log(partitions)) * spread, float(sizes.max())))


def _blocks_of_text(text: Text, shards: int) -> float:
    """What compression leaves of a byte of text that goes through the shuffle.

    Documents that are flushed together are one block for each shard that any of them belongs to.
    """
    documents = _FLUSHED_BYTES / float(text.document_bytes.mean())
    blocks = shards * -math.expm1(-documents / shards)
    sizes = [math.log(size) for size in _BLOCKS_OF_TEXT]
    return float(np.interp(math.log(_FLUSHED_BYTES / blocks), sizes, list(_BLOCKS_OF_TEXT.values())))


def _distinct_words(words: float) -> float:
    """Heaps's law through the two corpora of docs/VOCABULARY.md: 130,935 in 4.8 million words, 293,035 in 16."""
    return 130_935 * (words / 4.8e6) ** 0.67
