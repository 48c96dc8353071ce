"""Change the number of rows of embedding matrices: other vocabularies and more position embeddings.

This file imports neither Keras nor TensorFlow. Letters in shapes: V tokens, P positions, H hidden_size.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Sequence

import numpy as np

from beambert.bert_model.checkpoints.reader import Checkpoint, first_token_rows
from beambert.bert_model.checkpoints.stored_tensors import StoredTensor
from beambert.bert_model.variable_names import POSITION_EMBEDDINGS, TOKEN_VARIABLES

# Values of --position_init.
POSITION_METHODS = ("random", "tile", "interpolate")

# Former rows of each new row: one row is copied, several are averaged, and a row without any is drawn.
RowSources = Sequence[Sequence[int]]


def with_vocabulary(checkpoint: Checkpoint, tokens: Sequence[str], sources: RowSources) -> Checkpoint:
    """Return a checkpoint for another vocabulary, without its optimizer state.

    The variables with one row per token are the word embeddings, which BERT also uses as the output weights of the
    masked-LM head, and the output bias of this head. All other weights stay. Rows are computed when they are read.

    Args:
        checkpoint: an open checkpoint.
        tokens: the V tokens of the new vocabulary.
        sources: former rows of each token, length V.
    """
    tensors = dict(checkpoint.tensors)
    for name in TOKEN_VARIABLES:
        if name in tensors:
            tensors[name] = _computed(tensors[name], len(tokens), lambda matrix: rows_from(matrix, sources, tokens))
    config = dataclasses.replace(checkpoint.config, vocab_size=len(tokens))
    return dataclasses.replace(checkpoint, config=config, tensors=tensors, optimizer={})


def with_first_rows(checkpoint: Checkpoint, count: int) -> Checkpoint:
    """Return a checkpoint with the first rows of the variables with one row per token, and of their optimizer slots.

    Args:
        checkpoint: an open checkpoint.
        count: new vocab_size, at most that of the checkpoint.
    """
    if count == checkpoint.config.vocab_size:
        return checkpoint
    return dataclasses.replace(
        checkpoint,
        config=dataclasses.replace(checkpoint.config, vocab_size=count),
        tensors=first_token_rows(checkpoint.tensors, count),
        optimizer=first_token_rows(checkpoint.optimizer, count),
    )


def with_positions(checkpoint: Checkpoint, count: int, method: str) -> Checkpoint:
    """Return a checkpoint with another number of position embeddings, without its optimizer state.

    Args:
        checkpoint: an open checkpoint.
        count: new max_position_embeddings.
        method: one of `POSITION_METHODS`.
    """
    position_embeddings = checkpoint.tensors[POSITION_EMBEDDINGS]
    deviation = checkpoint.config.initializer_range
    resized = _computed(position_embeddings, count, lambda matrix: position_rows(matrix, count, method, deviation))
    record = checkpoint.record
    if record and record.max_seq_length and record.max_seq_length > count:
        record = dataclasses.replace(record, max_seq_length=count)
    if record and method == "interpolate":
        # Outputs change at every position, so the recorded metrics do not hold.
        record = dataclasses.replace(record, metrics={})
    return dataclasses.replace(
        checkpoint,
        config=dataclasses.replace(checkpoint.config, max_position_embeddings=count),
        tensors={**checkpoint.tensors, POSITION_EMBEDDINGS: resized},
        optimizer={},
        record=record,
    )


def rows_from(matrix: np.ndarray, sources: RowSources, tokens: Sequence[str]) -> np.ndarray:
    """Return the rows of tokens as copies, means or draws of former rows.

    Args:
        matrix: former rows, [former V, H], or values, [former V].
        sources: former rows of each token, length V. A single row is copied bit for bit. Several rows are averaged. A
            token without former rows is drawn from the normal distribution with the mean and the standard deviation of
            all former rows, by dimension. The seed is a hash of the token.
        tokens: the V tokens.

    Returns:
        [V, H] or [V], with the dtype of `matrix`.
    """
    rows = np.empty((len(sources), *matrix.shape[1:]), matrix.dtype)
    if not all(sources):
        mean, deviation = matrix.mean(axis=0, dtype=np.float64), matrix.std(axis=0, dtype=np.float64)
    for row, (source, token) in enumerate(zip(sources, tokens, strict=True)):
        if len(source) == 1:
            rows[row] = matrix[source[0]]
        elif source:
            rows[row] = matrix[list(source)].mean(axis=0, dtype=np.float64)
        else:
            seed = int.from_bytes(hashlib.blake2b(token.encode("utf-8"), digest_size=8).digest(), "big")
            rows[row] = np.random.default_rng(seed).normal(mean, deviation)
    return rows


def position_rows(matrix: np.ndarray, count: int, method: str, deviation: float = 0.02) -> np.ndarray:
    """Return position embeddings for another number of positions.

    Args:
        matrix: former position embeddings, [former P, H].
        count: number P of positions.
        method: "tile" repeats the former rows from the first one on; "interpolate" spreads them over all positions,
            linearly between two neighbors, with the first and the last position unchanged. "random" keeps the former
            rows and draws further ones, as for a new model. If P is smaller, "tile" and "random" keep the first P rows.
        deviation: standard deviation of random rows.

    Returns:
        [P, H], with the dtype of `matrix`.
    """
    if method == "tile":
        return matrix[np.arange(count) % len(matrix)]
    if method == "random":
        further = np.random.default_rng(0).normal(0, deviation, (max(count - len(matrix), 0), *matrix.shape[1:]))
        return np.concatenate([matrix[:count], further.astype(matrix.dtype)])
    places = np.linspace(0.0, len(matrix) - 1.0, count)
    lower = np.minimum(places.astype(np.int64), max(len(matrix) - 2, 0))
    upper = np.minimum(lower + 1, len(matrix) - 1)
    weight = (places - lower)[:, None]
    return (matrix[lower] * (1.0 - weight) + matrix[upper] * weight).astype(matrix.dtype)


def _computed(tensor: StoredTensor, rows: int, compute: Callable[[np.ndarray], np.ndarray]) -> StoredTensor:
    return StoredTensor((rows, *tensor.shape[1:]), tensor.dtype, lambda: compute(tensor.read()))
