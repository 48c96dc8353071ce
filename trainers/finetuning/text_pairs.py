"""Infer from a model's files whether it reads single texts or pairs of texts.

This file imports neither Keras nor TensorFlow.
"""

import numpy as np

from beambert.bert_model.checkpoints.reader import Checkpoint
from beambert.trainers.finetuning.finetuning_task import Rows

# Heads whose input is a text or a pair of texts.
HEADS = ("classification", "regression")
# Labels of natural language inference, whose input is a pair of premise and hypothesis.
_INFERENCE_LABELS = {"entailment", "not_entailment", "contradiction", "neutral"}


def pairs_in(rows: Rows) -> bool | None:
    """Return True where all rows are pairs of texts, False where none is, and None for a mixture.

    Rows with an empty text, which may be the second one, are ignored.
    """
    if len(rows) == len(rows.empty):
        return None
    is_pair = np.maximum.reduceat(rows.segment_ids, rows.row_splits[:-1]) > 0  # [N]
    is_pair = np.delete(is_pair, rows.empty)
    return bool(is_pair[0]) if (is_pair == is_pair[0]).all() else None


def likely_pairs(checkpoint: Checkpoint) -> bool:
    """Return whether a model was probably trained on pairs, by its labels, where nothing records it.

    Args:
        checkpoint: an open checkpoint.
    """
    labels = {label.lower() for label in checkpoint.labels or ()}
    return checkpoint.task in HEADS and bool(labels) and labels <= _INFERENCE_LABELS
