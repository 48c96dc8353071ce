"""Rows with random tokens and targets for every head."""

import numpy as np

from beambert.bert_model.config import BertConfig
from beambert.bert_model.heads import HEADS
from beambert.trainers.finetuning.finetuning_task import Rows

LABELS = 3
CHOICES = 4
CONFIG = BertConfig(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=24,
)


def random_rows(head: str, count: int = 10, seed: int = 0) -> Rows:
    """Return random rows of 4 to 24 tokens for the head of a name; each choice has this length."""
    generator = np.random.default_rng(seed)
    choices = CHOICES if head == "multiple_choice" else 1
    lengths = generator.integers(4, 25, count * choices)
    splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    total = int(splits[-1])
    if head == "regression":
        targets = {"label_values": generator.normal(size=count).astype(np.float32)}
    elif head == "multi_label":
        targets = {"label_values": generator.integers(0, 2, (count, LABELS)).astype(np.float32)}
    elif head == "span":
        targets = {
            name: (generator.integers(0, 1 << 30, count) % lengths).astype(np.int32)
            for name in ("start_positions", "end_positions")
        }
    elif HEADS[head].labels_positions:
        labels = generator.integers(0, HEADS[head].fixed_labels or LABELS, total)
        targets = {"label_ids": np.where(generator.random(total) < 0.4, -1, labels).astype(np.int32)}
    else:
        targets = {"label_ids": generator.integers(0, max(choices, LABELS), count).astype(np.int32) % LABELS}
    ids = generator.integers(5, CONFIG.vocab_size, total).astype(np.int32)
    return Rows(ids, generator.integers(0, 2, total).astype(np.int32), splits, targets, choices)
