"""Write the shards of one copy of one partition: sample, lay out, mask, encode, write.

All random numbers are from a generator seeded by (seed, split, partition, copy).
"""

import numpy as np

from pipelines.corpus.corpus_manifest import CorpusShard
from pipelines.corpus.corpus_reader import CorpusReader
from pipelines.dataset import SPLITS, Shard
from pipelines.examples import shard_writer
from pipelines.examples.statistics import Statistics
from pipelines.instances.instances import TokenizedDocuments, from_sentences
from pipelines.instances.layout import RowPlan, Rows, lay_out, one_instance_per_row
from pipelines.instances.masking import Masked, MaskingVocabulary, mask_rows
from pipelines.instances.noise import add_noise
from pipelines.instances.options import PretrainingDataOptions
from pipelines.instances.packing import pack
from pipelines.instances.sampling import sample_instances
from tokenizer.tokenizer import Tokenizer

# Positions per batch, rounded down to whole rows. It limits memory and keeps a batch in the processor cache. The bytes
# of shards depend on it, because random numbers are drawn by batch.
_BATCH_POSITIONS = 2**17


def generator(random_seed: int, split: str, partition: int, copy: int) -> np.random.Generator:
    """Return the random generator of one shard, which is independent of the worker."""
    return np.random.default_rng([random_seed, SPLITS.index(split), partition, copy])


def copies_of(split: str, options: PretrainingDataOptions) -> int:
    """Return the number of copies of a split; the validation split has one."""
    return options.dupe_factor if split == "train" else 1


def shard_name(corpus_shard: CorpusShard, copy: int, row_length: int, options: PretrainingDataOptions) -> str:
    """Return the path of the shard for a row length, relative to the dataset directory."""
    of_length = f"length-{row_length:05d}-" if options.length_bins else ""
    return (
        f"shards/{corpus_shard.split}-copy-{copy:03d}-{of_length}{corpus_shard.partition:05d}-of-{corpus_shard.partitions:05d}"
        f"{shard_writer.extension(options)}"
    )


def current_name(name: str) -> str:
    """Return the current form of a shard name, which differs in datasets of format version 2."""
    return name.replace("-duplicate-", "-copy-", 1)


def tokenize_shard(
    corpus: CorpusReader, corpus_shard: CorpusShard, tokenizer: Tokenizer, options: PretrainingDataOptions
) -> TokenizedDocuments:
    """Read one Parquet shard of the corpus into flat arrays of token ids."""
    table, split = corpus.read_shard(corpus_shard.name), corpus_shard.split
    documents = table["sentences"].combine_chunks()
    sentences = np.diff(documents.offsets.to_numpy()).astype(np.int64)
    token_ids, token_starts = tokenizer.encode_batch(documents.flatten().to_pylist())
    # The validation split stays unchanged.
    weights = table["weight"].to_numpy() if split == "train" else np.ones(len(table))
    if split == "train" and options.language_factors:
        weights = weights * np.array([options.language_factors[language] for language in table["language"].to_pylist()])
    return from_sentences(token_ids, token_starts, sentences, weights)


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


def write_shards(
    documents: TokenizedDocuments,
    corpus_shard: CorpusShard,
    copy: int,
    output: str,
    tokenizer: Tokenizer,
    options: PretrainingDataOptions,
) -> tuple[list[Shard], Statistics]:
    """Write one copy of one partition, one file per row length that occurs.

    Args:
        documents: documents of the partition.
        corpus_shard: the corpus shard of the partition.
        copy: number of the copy.
        output: dataset directory.
        tokenizer: the tokenizer of `documents`.
        options: options of the examples.
    """
    rng = generator(options.random_seed, corpus_shard.split, corpus_shard.partition, copy)
    vocab = tokenizer.vocabulary
    masking_vocab = MaskingVocabulary.from_vocabulary(vocab)
    statistics = Statistics()
    if options.noise and corpus_shard.split == "train":  # The validation split stays unchanged.
        documents, statistics.words_with_noise = add_noise(documents, options.noise, tokenizer, rng)
    instances = sample_instances(documents, options, rng)
    statistics.add_instances(instances)
    shards = []
    for row_length, plan in plan_rows(instances.lengths, options, rng):
        if not len(plan) and len(options.row_lengths) > 1:
            continue
        predictions = options.predictions_in(row_length)
        name = shard_name(corpus_shard, copy, row_length, options)
        with shard_writer.create(f"{output}/{name}", options, row_length, len(vocab)) as file:
            batch_rows = max(1, _BATCH_POSITIONS // row_length)
            for first in range(0, len(plan), batch_rows):
                row_plan = plan.slice_rows(first, min(first + batch_rows, len(plan)))
                rows = lay_out(documents.token_ids, instances, row_plan, row_length, options.instances_per_row, vocab)
                masked = None
                if options.masking != "dynamic":
                    masked = mask_rows(rows, predictions, options, masking_vocab, rng)
                statistics.add_rows(rows, masked, vocab.mask_id)
                file.write(features_of(rows, masked))
        shards.append(
            Shard(name, corpus_shard.split, copy, file.examples, file.bytes, file.sha256, row_length, predictions)
        )
    return shards, statistics
