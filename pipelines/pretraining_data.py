"""Job 2: a corpus's parts and a vocabulary -> tokens -> pairs -> masks -> TFRecord shards, dataset.json last.

This file only composes; rules live in `instances.py`, `masking.py`, `examples.py` and the `tokenizer` package.
A part is a bucket: all that is random comes from a generator seeded by (seed, split, bucket, duplicate).
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np

from pipelines import corpus_files, dataset
from pipelines.corpus_files import Corpus, Part
from pipelines.dataset import Dataset, DatasetError, Shard
from pipelines.examples import ExampleEncoder
from pipelines.instances import TokenizedDocuments, assemble, from_sentences, sample_pairs, sample_weighted_pairs
from pipelines.masking import mask_tokens
from pipelines.versions import require_same_rules, versions
from pipelines.writing import read_bytes, write_atomically, write_text
from tokenizer.normalization import CHARACTER_RULES
from tokenizer.tokenizer import Tokenizer
from tokenizer.vocabulary import Vocabulary

# Rows laid out, masked and encoded at a time; bounds memory, and is part of what a seed means.
_BATCH_ROWS = 8192
_SPLITS = ("train", "validation")


@dataclasses.dataclass(frozen=True)
class PretrainingDataOptions:
    """What job 2 does; names and defaults are those of create_pretraining_data.py.

    Attributes:
        do_lower_case: lower-case and strip accents before WordPiece.
        max_seq_length: tokens in an example, [CLS] and both [SEP] included.
        max_predictions_per_seq: room for masked tokens in an example.
        masked_lm_prob: share of tokens to predict.
        short_seq_prob: share of documents packed to a shorter random length.
        dupe_factor: passes over the corpus, each with fresh pairs and masks.
        random_seed: the same seed, corpus and options give the same bytes.
        language_factors: how often documents of each language are to be seen; {} for as often as they are there.
        character_rules: what the tokenizer knows of Unicode; a worker with another Python refuses to take part.

    Raises:
        DatasetError: a value is out of range.
    """

    do_lower_case: bool = True
    max_seq_length: int = 128
    max_predictions_per_seq: int = 20
    masked_lm_prob: float = 0.15
    short_seq_prob: float = 0.1
    dupe_factor: int = 10
    random_seed: int = 12345
    language_factors: dict[str, float] = dataclasses.field(default_factory=dict)
    character_rules: str = CHARACTER_RULES

    def __post_init__(self) -> None:
        limits = {
            "max_seq_length": (8, 65_536),
            "max_predictions_per_seq": (1, self.max_seq_length),
            "masked_lm_prob": (0.0, 1.0),
            "short_seq_prob": (0.0, 1.0),
            "dupe_factor": (1, 1000),
            "random_seed": (0, 2**63 - 1),
        }
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise DatasetError(f"--{name} {value} is out of range; choose one from {low} to {high}")


def replacement_ids(vocab: Vocabulary) -> np.ndarray:
    """int32 [k]: the ids a random replacement is drawn from, all but special and [unused] pieces."""
    return np.setdiff1d(np.arange(len(vocab), dtype=np.int32), vocab.special_ids())


def generator(random_seed: int, split: str, bucket: int, duplicate: int) -> np.random.Generator:
    """The source of all that is random in one shard: a function of what the shard is, not of who writes it or when."""
    return np.random.default_rng([random_seed, _SPLITS.index(split), bucket, duplicate])


def tokenize_part(path: str, tokenizer: Tokenizer, language_factors: dict[str, float]) -> TokenizedDocuments:
    """Reads one Parquet part into flat arrays of token ids."""
    table = corpus_files.read_part(path)
    documents = table["sentences"].combine_chunks()
    sentences = np.diff(documents.offsets.to_numpy()).astype(np.int64)
    token_ids, token_starts = tokenizer.encode_batch(documents.flatten().to_pylist())
    weights = table["weight"].to_numpy()
    if language_factors:
        weights = weights * np.array([language_factors[language] for language in table["language"].to_pylist()])
    return from_sentences(token_ids, token_starts, sentences, weights)


class WriteShards(beam.DoFn):
    """Part -> a TFRecord file for each duplicate; yields (Shard, counts)."""

    def __init__(self, corpus: str, output: str, options: PretrainingDataOptions) -> None:
        self._corpus = corpus
        self._output = output
        self._options = options

    def setup(self) -> None:
        """Loads the vocabulary, once a worker thread."""
        require_same_rules(self._options.character_rules, "the machine that started the job")
        path = f"{self._output}/{dataset.VOCAB_FILE_NAME}"
        self._vocab = Vocabulary.from_bytes(read_bytes(path), path)
        self._tokenizer = Tokenizer(self._vocab, self._options.do_lower_case)
        self._replacement_ids = replacement_ids(self._vocab)
        self._encoder = ExampleEncoder(
            len(self._vocab), self._options.max_seq_length, self._options.max_predictions_per_seq
        )

    def process(self, part: Part) -> Iterator[tuple[Shard, dict[str, int]]]:
        """Tokenises one part and writes its shards."""
        documents = tokenize_part(f"{self._corpus}/{part.name}", self._tokenizer, self._options.language_factors)
        unknown = int(np.count_nonzero(documents.token_ids == self._vocab.unk_id))
        # Held-out text is measured, not trained on: one set of masks is enough.
        for duplicate in range(self._options.dupe_factor if part.split == "train" else 1):
            shard, counts = self._write_shard(part, documents, duplicate)
            if duplicate == 0:
                counts |= {"tokens": len(documents.token_ids), "unknown_tokens": unknown}
            yield shard, counts

    def _write_shard(self, part: Part, documents: TokenizedDocuments, duplicate: int) -> tuple[Shard, dict[str, int]]:
        options, vocab = self._options, self._vocab
        rng = generator(options.random_seed, part.split, part.bucket, duplicate)
        # Held-out text is measured as it is.
        sample = sample_weighted_pairs if part.split == "train" else sample_pairs
        pairs = sample(documents, options.max_seq_length, options.short_seq_prob, rng)
        order = rng.permutation(len(pairs))
        counts = {
            "instances": len(pairs),
            "instances_not_next": int(pairs.is_random_next.sum()),
            "instance_tokens": int(pairs.a_length.sum() + pairs.b_length.sum()) + 3 * len(pairs),
            "masked_tokens": 0,
            "tokens_truncated": pairs.tokens_truncated,
            "segments_dropped": pairs.segments_dropped,
        }
        name = f"shards/{part.split}-duplicate-{duplicate:03d}-{part.bucket:05d}-of-{part.buckets:05d}.tfrecord"
        with write_atomically(f"{self._output}/{name}") as file:
            for first in range(0, len(order), _BATCH_ROWS):
                rows = order[first : first + _BATCH_ROWS]
                input_ids, segment_ids, lengths, from_text = assemble(
                    documents.token_ids, pairs, rows, options.max_seq_length, vocab.cls_id, vocab.sep_id, vocab.pad_id
                )
                masked = mask_tokens(
                    input_ids,
                    lengths,
                    from_text,
                    options.max_predictions_per_seq,
                    options.masked_lm_prob,
                    vocab.mask_id,
                    self._replacement_ids,
                    rng,
                )
                counts["masked_tokens"] += int(masked.weights.sum())
                features = {
                    "input_ids": masked.input_ids,
                    "input_mask": (np.arange(options.max_seq_length) < lengths[:, None]).astype(np.uint8),
                    "segment_ids": segment_ids,
                    "masked_lm_positions": masked.positions,
                    "masked_lm_ids": masked.label_ids,
                    "masked_lm_weights": masked.weights,
                    "next_sentence_labels": pairs.is_random_next[rows, None].astype(np.uint8),
                }
                file.write(self._encoder.encode(features))
        return Shard(name, part.split, duplicate, len(pairs), file.bytes, file.sha256), counts


class WriteDatasetManifest(beam.DoFn):
    """Every shard is on disk: writes dataset.json."""

    def __init__(self, output: str, options: dict[str, Any], corpus: Corpus, vocab: dict[str, Any]) -> None:
        self._output = output
        self._options = options
        self._corpus = corpus
        self._vocab = vocab

    def process(self, _: None, shards: Iterable[tuple[Shard, dict[str, int]]]) -> Iterator[str]:
        """Writes the manifest and yields its path."""
        shards = list(shards)
        counts: dict[str, Any] = dict(self._corpus.counts)
        for split in _SPLITS:
            total: Counter[str] = Counter()
            for shard, shard_counts in shards:
                if shard.split == split:
                    total.update(shard_counts)
            counts[split] = dict(sorted(total.items()))
        if not counts["train"].get("instances"):
            raise DatasetError("the corpus gives no training instance: its documents are too short; add longer ones")
        manifest = Dataset(
            max_seq_length=self._options["max_seq_length"],
            max_predictions_per_seq=self._options["max_predictions_per_seq"],
            vocab_size=self._vocab["size"],
            vocab_sha256=self._vocab["sha256"],
            do_lower_case=self._options["do_lower_case"],
            options=self._options,
            counts=counts,
            shards=sorted((shard for shard, _ in shards), key=lambda shard: shard.name),
            versions=versions(),
        )
        path = f"{self._output}/{dataset.FILE_NAME}"
        write_text(path, manifest.to_json())
        yield path


def build_pretraining_data(
    pipeline: beam.Pipeline,
    corpus: Corpus,
    corpus_directory: str,
    options: PretrainingDataOptions,
    recorded_options: dict[str, Any],
    vocab: dict[str, Any],
    output: str,
) -> None:
    """Composes job 2.

    Args:
        pipeline: to add the steps to.
        corpus: the manifest of job 1.
        corpus_directory: where it lies.
        options: what to do.
        recorded_options: what `dataset.json` is to say of options: these and the corpus's.
        vocab: "size" and "sha256" of vocab.txt, which lies in `output` already.
        output: the dataset directory, on any Beam filesystem.
    """
    shards = (
        pipeline
        | "Parts" >> beam.Create(corpus.parts)
        | "Spread" >> beam.Reshuffle()
        | "WriteShards" >> beam.ParDo(WriteShards(corpus_directory, output, options))
    )
    _ = (
        pipeline
        | "Start" >> beam.Create([None])
        | "Manifest"
        >> beam.ParDo(WriteDatasetManifest(output, recorded_options, corpus, vocab), shards=beam.pvalue.AsIter(shards))
    )
