"""Estimate a build: partitions, instances, shards, CPU seconds, shuffle, and its time on Google Cloud Dataflow.

Instances are not estimated by a formula: the sampler of the pretraining-data job runs on a sample of documents. This
file imports neither Beam nor TensorFlow.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from beambert.deploy.plan.text_estimate import Text
from beambert.pipelines.examples.example_encoder import ExampleEncoder
from beambert.pipelines.instances.instances import pack
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.instances.sampling import sample_instances
from beambert.pipelines.runner.memory import peak_memory

# Ratio of a record's bytes to those of the padded record, for 128 positions with 10 % padding
# (docs/benchmarks/data.md).
_OF_PADDED = {"gzip": 0.296, "parquet": 0.222, "array_record": 0.581}
# Parquet bytes per byte of text.
_CORPUS_OF_TEXT = 0.44
# Shuffled bytes per byte of text, by the bytes of text in a block (`make bench-scale`).
_BLOCKS_OF_TEXT = {4_300: 0.561, 5_200: 0.547, 18_000: 0.470, 190_000: 0.442, 1_800_000: 0.433}
# Text that a reader buffers before it emits blocks (`beambert.pipelines.transforms.partitions`).
_FLUSHED_BYTES = 32 << 20
# CPU seconds per MB of text (`make bench-scale`, `make bench-data`). CORPUS: read, clean, segment, deduplicate, write
# and count words. TOKENIZE: read and tokenize a corpus shard. COPY: sample, mask and write one copy. DUMP: per MB of
# XML, decompress and extract wikitext.
DUMP_SECONDS = 0.09
CORPUS_SECONDS = 0.25
TOKENIZE_SECONDS = 0.029
COPY_SECONDS = 0.012
# CPU seconds to learn a vocabulary from 2 million distinct words, the maximum
# (docs/benchmarks/vocabulary.md); it runs in one process.
LEARN_SECONDS = 82.0
_WORDS_LEARNED_FROM = 2_000_000
# Dataflow vCPU seconds per CPU second of the benchmark machine: a vCPU is half a core, and workers wait for storage.
# An assumption; calibrate --cpu_factor with the first job.
CPU_FACTOR = 2.0
# e2-standard and n2-standard machines.
MEMORY_GB_A_VCPU = 4.0
DISK_GB_A_WORKER = 30.0
_VCPUS_A_WORKER = 4
# Limit of the default number of workers, which is chosen to finish in about an hour.
_MOST_WORKERS = 250
# Start-up time of each of the two jobs.
_START_HOURS = 0.1


class LengthPlan(NamedTuple):
    """Estimated shards of one sequence length.

    Attributes:
        row_length: positions in a row.
        predictions: maximum number of masked tokens in a row.
        instances: instances in one copy of the training split.
        rows: rows in one copy of the training split; fewer than instances with packing.
        fill: fraction of the positions that are not padding.
        examples: rows in all shards of both splits.
        files: number of shards.
        bytes: bytes of all shards.
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
    """Estimate of a build.

    Attributes:
        partitions: partitions of the training split.
        corpus_shards: corpus shards of both splits.
        largest_partition: expected bytes of text in the largest partition.
        partition_memory: memory in bytes of the process that writes the shards of the largest partition.
        corpus_bytes: bytes of the corpus as Parquet.
        lengths: estimated shards, one entry per sequence length.
        cpu_seconds: CPU seconds of both jobs on a core of the benchmark machine.
        serial_seconds: the part of `cpu_seconds` that runs in one process.
        shuffle_bytes: bytes written to the shuffle.
        validation_documents: documents in the validation split.
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
    validation_documents: float

    @property
    def files(self) -> int:
        """Return the number of shards of all lengths."""
        return sum(length.files for length in self.lengths)

    @property
    def shard_bytes(self) -> float:
        """Return the bytes of the shards of all lengths."""
        return sum(length.bytes for length in self.lengths)

    @property
    def stored_bytes(self) -> float:
        """Return the bytes of the corpus and of all shards."""
        return self.corpus_bytes + self.shard_bytes


def plan_data(
    text: Text,
    options: Sequence[PretrainingDataOptions],
    vocab_size: int,
    *,
    num_partitions: int | None = None,
    validation_fraction: float = 0.02,
    learns_vocabulary: bool = True,
) -> DataPlan:
    """Estimate both data jobs.

    Args:
        text: estimate of the input.
        options: options of the second job, one for each row length.
        vocab_size: number of tokens in the vocabulary.
        num_partitions: number of partitions; None for the default of the corpus job.
        validation_fraction: fraction of the documents in the validation split.
        learns_vocabulary: whether the vocabulary is learned rather than read from a file.
    """
    partitions = num_partitions or text.num_partitions
    validation_shards = max(1, round(partitions * validation_fraction)) if validation_fraction else 0
    lengths = [
        _plan_length(text, examples, vocab_size, partitions, validation_shards, validation_fraction)
        for examples in options
    ]
    megabytes = text.bytes / 1e6
    learning = min(1.0, _distinct_words(text.words) / _WORDS_LEARNED_FROM) * LEARN_SECONDS if learns_vocabulary else 0.0
    cpu_seconds = text.dump_bytes / 1e6 * DUMP_SECONDS + megabytes * CORPUS_SECONDS + learning
    for examples in options:
        cpu_seconds += megabytes * (TOKENIZE_SECONDS + COPY_SECONDS * examples.dupe_factor)
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
        shuffle_bytes=text.bytes * _compressed_ratio(text, partitions + validation_shards),
        validation_documents=text.documents * validation_fraction,
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
    everything = text.tokens / float(text.sentence_tokens.sum())
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
    """Return the bytes of an example: exact for uncompressed TFRecord, else by the measured ratio."""
    # Parquet has fewer features, but the ratio is to TFRecord.
    padded = ExampleEncoder(dataclasses.replace(options, format="tfrecord"), row_length, vocab_size).record_bytes
    kind = options.compression if options.format == "tfrecord" else options.format
    return padded * _OF_PADDED.get(kind, 1.0)


def largest_partition(text: Text, partitions: int, validation_fraction: float = 0.0) -> float:
    """Return the expected bytes of the largest partition.

    A partition is a sum of documents chosen by hash. The estimate is the expected maximum of N normal variables, and at
    least the largest document of the sample. `make bench-scale` checks it against simulated partitions.
    """
    mean = text.bytes * (1 - validation_fraction) / partitions
    sizes = text.document_bytes.astype(np.float64)
    documents = mean / sizes.mean()
    spread = math.sqrt(documents * float((sizes**2).mean()))
    return min(text.bytes, max(mean + math.sqrt(2 * math.log(partitions)) * spread, float(sizes.max())))


def _compressed_ratio(text: Text, shards: int) -> float:
    """Return the shuffled bytes per byte of text; documents flushed together form one block per shard."""
    documents = _FLUSHED_BYTES / float(text.document_bytes.mean())
    blocks = shards * -math.expm1(-documents / shards)
    sizes = [math.log(size) for size in _BLOCKS_OF_TEXT]
    return float(np.interp(math.log(_FLUSHED_BYTES / blocks), sizes, list(_BLOCKS_OF_TEXT.values())))


def _distinct_words(words: float) -> float:
    """Return the number of distinct words by Heaps' law."""
    # Fits two English corpora: 130,935 distinct in 4.8 million words, 293,035 in 16 million.
    return 130_935 * (words / 4.8e6) ** 0.67


class DataflowPlan(NamedTuple):
    """Estimate of both jobs on Dataflow.

    Attributes:
        workers: number of workers.
        vcpus: vCPUs of a worker.
        vcpu_hours, memory_gb_hours, disk_gb_hours: totals over all workers and the whole duration.
        hours: wall-clock hours.
        shuffle_bytes: bytes processed by the shuffle: each byte is written and read.
        writes: write operations on objects: creation, renaming, completion markers.
    """

    workers: int
    vcpus: int
    vcpu_hours: float
    memory_gb_hours: float
    disk_gb_hours: float
    hours: float
    shuffle_bytes: float
    writes: int


def plan_dataflow(data: DataPlan, workers: int | None, cpu_factor: float) -> DataflowPlan:
    """Estimate both jobs on Dataflow.

    Args:
        data: estimate of the data jobs.
        workers: number of workers; None for a number that finishes in about an hour.
        cpu_factor: Dataflow vCPU seconds per CPU second of the benchmark machine.
    """
    even = (data.cpu_seconds - data.serial_seconds) * cpu_factor / 3600
    if workers is None:
        workers = max(1, min(_MOST_WORKERS, data.corpus_shards, round(even / _VCPUS_A_WORKER)))
    # A corpus shard is the unit of work, so further vCPUs are idle.
    busy = min(workers * _VCPUS_A_WORKER, data.corpus_shards)
    hours = even / busy + data.serial_seconds * cpu_factor / 3600 + 2 * _START_HOURS
    vcpu_hours = hours * workers * _VCPUS_A_WORKER
    # A data shard has a completion marker, a corpus shard has none; each file is created under a temporary name and
    # renamed.
    writes = 2 * (data.corpus_shards + 2 * data.files)
    return DataflowPlan(
        workers=workers,
        vcpus=_VCPUS_A_WORKER,
        vcpu_hours=vcpu_hours,
        memory_gb_hours=vcpu_hours * MEMORY_GB_A_VCPU,
        disk_gb_hours=hours * workers * DISK_GB_A_WORKER,
        hours=hours,
        shuffle_bytes=2 * data.shuffle_bytes,
        writes=writes,
    )
