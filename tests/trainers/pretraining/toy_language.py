"""Write pretraining data of toy languages, whose neighbors a small model learns within a few hundred steps."""

import dataclasses
import hashlib
from pathlib import Path

import numpy as np

from beambert.bert_model.config import BertConfig
from beambert.pipelines.dataset import FILE_NAME, Dataset, Shard
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.io.tfrecord import framed
from beambert.tokenizer.vocabulary import Vocabulary
from tests.trainers.pretraining_shards import serialized

LENGTH, PREDICTIONS = 32, 5
OPTIONS = PretrainingDataOptions(max_seq_length=LENGTH, max_predictions_per_seq=PREDICTIONS)
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PAD, UNKNOWN, CLS, SEP, MASK = range(len(SPECIAL))
# Faults that the data can have.
FAULTS = ("repeated lines", "shuffled labels", "no masks", "one class", "large vocabulary")


@dataclasses.dataclass(frozen=True)
class Language:
    """A Markov chain over words: each has a few successors, and frequent words follow many others.

    Attributes:
        seed: seed of the chain and of the texts.
        words: number of words.
        successors: number of successors of each word.
        unused: number of vocabulary entries that occur in no text.
    """

    seed: int = 0
    words: int = 80
    successors: int = 3
    unused: int = 0

    @property
    def vocabulary(self) -> Vocabulary:
        words = [f"w{number:03}" for number in range(self.words + self.unused)]
        return Vocabulary((*SPECIAL, *words), "vocab.txt")

    def text(self, generator: np.random.Generator, lines: int, length: int) -> np.ndarray:
        """Return lines of ids, int64 [lines, length]."""
        chain = np.random.default_rng(self.seed)
        frequency = 1 / np.arange(1, self.words + 1)
        following = np.stack(
            [
                chain.choice(self.words, self.successors, replace=False, p=frequency / frequency.sum())
                for _ in range(self.words)
            ]
        )
        ids = np.empty((lines, length), np.int64)
        ids[:, 0] = generator.integers(self.words, size=lines)
        for position in range(1, length):
            ids[:, position] = following[ids[:, position - 1], generator.integers(self.successors, size=lines)]
        return ids + len(SPECIAL)

    def model(self, hidden_size: int = 64, layers: int = 1) -> BertConfig:
        return BertConfig(
            vocab_size=len(SPECIAL) + self.words + self.unused,
            hidden_size=hidden_size,
            num_hidden_layers=layers,
            num_attention_heads=2,
            intermediate_size=2 * hidden_size,
            max_position_embeddings=LENGTH,
        )


def write_language(directory: Path, language: Language, fault: str | None = None, rows: int = 3000) -> None:
    """Write a dataset with four training shards and one for validation.

    Args:
        directory: directory of the dataset; created.
        language: the language of the text.
        fault: one of `FAULTS`, or None.
        rows: number of training rows.
    """
    directory.mkdir(parents=True)
    generator = np.random.default_rng([language.seed, 1])
    shards = []
    for number in range(5):
        split, count = ("train", rows // 4) if number < 4 else ("validation", 200)
        features = _features(language, generator, count, fault)
        records = [serialized({name: values[row] for name, values in features.items()}) for row in range(count)]
        name = f"{split}-0-{number}.tfrecord"
        content = b"".join(map(framed, records))
        (directory / name).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        shards.append(Shard(name, split, 0, count, len(content), digest, LENGTH, PREDICTIONS))
    vocabulary = language.vocabulary
    (directory / "vocab.txt").write_bytes(vocabulary.to_bytes())
    dataset = Dataset(
        max_seq_length=LENGTH,
        max_predictions_per_seq=PREDICTIONS,
        instances_per_row=1,
        features=OPTIONS.names_of_features(),
        file_format="tfrecord",
        compression="none",
        ragged=False,
        vocab_size=len(vocabulary),
        vocab_sha256=vocabulary.sha256,
        do_lower_case=True,
        options={**dataclasses.asdict(OPTIONS), "length_bins": []},
        counts={},
        shards=shards,
        versions={},
    )
    (directory / FILE_NAME).write_text(dataset.to_json(), encoding="utf-8")


def _features(
    language: Language, generator: np.random.Generator, count: int, fault: str | None
) -> dict[str, np.ndarray]:
    """Return masked examples of two segments, [count, ...]."""
    ids = np.zeros((count, LENGTH), np.int64)
    half = LENGTH // 2
    ids[:, 0], ids[:, half], ids[:, -1] = CLS, SEP, SEP
    ids[:, 1:half] = language.text(generator, count, half - 1)
    ids[:, half + 1 : -1] = language.text(generator, count, LENGTH - half - 2)
    if fault == "repeated lines":
        lines = language.text(np.random.default_rng(language.seed), 5, half - 1)
        repeated = generator.random(count) < 0.8
        ids[repeated, 1:half] = lines[generator.integers(len(lines), size=repeated.sum())]
    positions = np.stack(
        [np.sort(generator.choice(np.flatnonzero(row > MASK), PREDICTIONS, replace=False)) for row in ids]
    )
    rows = np.arange(count)[:, None]
    labels = ids[rows, positions]
    action = generator.random(labels.shape)
    random = generator.integers(len(SPECIAL), len(SPECIAL) + language.words, labels.shape)
    shown = np.where(action < 0.8, MASK, np.where(action < 0.9, random, labels))
    if fault != "no masks":
        ids[rows, positions] = shown
    if fault == "shuffled labels":
        labels = generator.permuted(labels.ravel()).reshape(labels.shape)
    segments = np.zeros_like(ids)
    segments[:, half + 1 :] = 1
    classes = np.zeros(count, np.int64) if fault == "one class" else generator.integers(0, 2, count)
    return {
        "input_ids": ids,
        "input_mask": np.ones_like(ids),
        "segment_ids": segments,
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "masked_lm_weights": np.ones(labels.shape, np.float32),
        "next_sentence_labels": classes[:, None],
    }
