"""The documents of one bucket -> the shard files of one duplicate: sample, lay out, mask, encode, write.

All that is random comes from a generator seeded by (seed, split, bucket, duplicate).
"""

from typing import Any

import numpy as np

from pipelines import corpus_files, shard_files
from pipelines.corpus_files import Part
from pipelines.dataset import Shard
from pipelines.instances import TokenizedDocuments, from_sentences, sample_instances
from pipelines.layout import Rows, lay_out, one_a_row
from pipelines.masking import Masked, MaskingVocabulary, mask_rows
from pipelines.pretraining_options import PretrainingDataOptions
from pipelines.statistics import Statistics
from tokenizer.tokenizer import Tokenizer
from tokenizer.vocabulary import Vocabulary

SPLITS = ("train", "validation")
# Rows laid out, masked and encoded at a time; bounds memory, and is part of what a seed means.
_BATCH_ROWS = 8192


def generator(random_seed: int, split: str, bucket: int, duplicate: int) -> np.random.Generator:
    """The source of all that is random in one shard: a function of what the shard is, not of who writes it or when."""
    return np.random.default_rng([random_seed, SPLITS.index(split), bucket, duplicate])


def duplicates_of(split: str, options: PretrainingDataOptions) -> int:
    """Passes over a split. Held-out text is measured, not trained on: one set of masks is enough."""
    return options.dupe_factor if split == "train" else 1


def shard_name(part: Part, duplicate: int, row_length: int, options: PretrainingDataOptions) -> str:
    """Where the shard with rows of that length lies, relative to the dataset's directory."""
    of_length = f"length-{row_length:05d}-" if options.length_bins else ""
    return (
        f"shards/{part.split}-duplicate-{duplicate:03d}-{of_length}{part.bucket:05d}-of-{part.buckets:05d}"
        f"{shard_files.extension(options)}"
    )


def tokenize_part(path: str, split: str, tokenizer: Tokenizer, options: PretrainingDataOptions) -> TokenizedDocuments:
    """Reads one Parquet part into flat arrays of token ids."""
    table = corpus_files.read_part(path)
    documents = table["sentences"].combine_chunks()
    sentences = np.diff(documents.offsets.to_numpy()).astype(np.int64)
    token_ids, token_starts = tokenizer.encode_batch(documents.flatten().to_pylist())
    # Held-out text is measured as it is.
    weights = table["weight"].to_numpy() if split == "train" else np.ones(len(table))
    if split == "train" and options.language_factors:
        weights = weights * np.array([options.language_factors[language] for language in table["language"].to_pylist()])
    return from_sentences(token_ids, token_starts, sentences, weights)


def features_of(rows: Rows, masked: Masked | None, options: PretrainingDataOptions) -> dict[str, np.ndarray]:
    """The features of a batch of n rows, those of `options.names_of_features`: integers [n, L], [n, P] or [n, K]."""
    features: dict[str, Any] = {
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
    return {name: features[name] for name in options.names_of_features()}


def write_shards(
    documents: TokenizedDocuments,
    part: Part,
    duplicate: int,
    output: str,
    vocab: Vocabulary,
    options: PretrainingDataOptions,
) -> tuple[list[Shard], Statistics]:
    """Writes one duplicate of one bucket: a file, or one for each length of rows that occurs.

    Args:
        documents: the bucket.
        part: what it is: split, bucket and how many there are.
        duplicate: which pass over the corpus.
        output: the dataset directory.
        vocab: the pieces.
        options: what the examples are like.
    """
    rng = generator(options.random_seed, part.split, part.bucket, duplicate)
    masking_vocab = MaskingVocabulary.of(vocab)
    statistics = Statistics()
    instances = sample_instances(documents, options, rng)
    statistics.add_instances(instances)
    order = rng.permutation(len(instances))
    shards = []
    shorter = 0
    for row_length in options.row_lengths:
        lengths = instances.lengths[order]
        plan = one_a_row(order[(lengths > shorter) & (lengths <= row_length)])
        shorter = row_length
        if not len(plan) and len(options.row_lengths) > 1:
            continue
        predictions = options.predictions_in(row_length)
        name = shard_name(part, duplicate, row_length, options)
        with shard_files.create(f"{output}/{name}", options, row_length, len(vocab)) as file:
            for first in range(0, len(plan), _BATCH_ROWS):
                some = plan.some(first, min(first + _BATCH_ROWS, len(plan)))
                rows = lay_out(documents.token_ids, instances, some, row_length, options.instances_per_row, vocab)
                masked = mask_rows(rows, predictions, options, masking_vocab, rng)
                statistics.add_rows(rows, masked)
                file.write(features_of(rows, masked, options))
        shards.append(
            Shard(name, part.split, duplicate, file.examples, file.bytes, file.sha256, row_length, predictions)
        )
    return shards, statistics
