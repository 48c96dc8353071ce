"""Score tokens with a masked-LM head: log-probabilities of the original tokens at masked positions.

Pseudo-log-likelihood (Salazar et al. 2020, Masked Language Model Scoring): each token of a text is masked in turn, and
its log-probability is taken given all other tokens. In the whole-word variant (Kauf and Ivanova 2023, A Better Way to
Do Masked Language Model Scoring), the later tokens of the same word are masked too.

Letters in shapes: B rows, S positions, P masked positions, K labels, V rows of the vocabulary, N texts.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from beambert.tokenizer.wordpiece import CONTINUATION
from beambert.trainers.inference.forward import TextForward
from beambert.trainers.inference.model_loading import InferenceModel

# Maximum size of the masked copies that are prepared together, in tokens; texts with equal copies are close together.
TOKENS_A_CHUNK = 2**21
# Function of the numbers of scored tokens and of computed positions, called after each batch.
Report = Callable[[int, int], None]


class MaskedCopies(NamedTuple):
    """Distinct rows with one position to predict, and the tokens to score there.

    Attributes:
        rows: token ids, int32 [S_i] each; the first [MASK] is the position to predict.
        positions: that position, int64 [1] each.
        labels: ids of the tokens to score, int64 [K_i] each.
        places: for each text and each of its tokens, the index of the row and that of its label, int64 [S_i - 2, 2].
    """

    rows: list[np.ndarray]
    positions: list[np.ndarray]
    labels: list[np.ndarray]
    places: list[np.ndarray]


class MaskedScorer:
    """Scores tokens of texts with a masked-LM head, on the backend of the model.

    Args:
        inference_model: a model with a masked-LM head.
        max_seq_length: maximum number of positions.
        batch_size: maximum batch size in rows; None as for `TextForward`.
    """

    def __init__(self, inference_model: InferenceModel, max_seq_length: int, batch_size: int | None = None) -> None:
        model, vocabulary = inference_model.model, inference_model.vocabulary
        self.vocabulary = vocabulary
        self.max_seq_length = max_seq_length
        self.continues_word = np.array([token.startswith(CONTINUATION) for token in vocabulary.tokens])  # [V]
        self._labels = TextForward(inference_model, label_scores(model), max_seq_length, batch_size, short_texts=True)
        self._predictions = TextForward(inference_model, predictions(model), max_seq_length, batch_size)

    def token_log_probabilities(
        self, rows: Sequence[np.ndarray], *, whole_word: bool = False, report: Report | None = None
    ) -> list[np.ndarray]:
        """Return the log-probability of each token of each text, masked in turn.

        Args:
            rows: token ids of N distinct texts, int32 [S_i] each, from [CLS] to [SEP].
            whole_word: whether the later tokens of the same word are masked too.
            report: called after each batch.

        Returns:
            Natural logarithms, float32 [S_i - 2] each, without [CLS] and [SEP].
        """
        return [scores for chunk in _chunks(rows) for scores in self._chunk_scores(chunk, whole_word, report)]

    def _chunk_scores(self, rows: Sequence[np.ndarray], whole_word: bool, report: Report | None) -> list[np.ndarray]:
        copies = distinct_copies(rows, self.vocabulary.mask_id, self.continues_word if whole_word else None)
        segments = [np.zeros_like(row) for row in copies.rows]
        # Of all copies one after the other: a single copy may have most of the labels.
        starts = np.cumsum([0, *map(len, copies.labels)])
        scores = np.zeros(starts[-1], np.float32)
        for batch, found in self._labels.batches(copies.rows, segments, copies.positions, copies.labels):
            for index, of_copy in zip(batch, found, strict=False):  # A batch may be padded.
                scores[starts[index] : starts[index + 1]] = of_copy[: len(copies.labels[index])]
            if report:
                tokens = sum(len(copies.labels[index]) for index in batch)
                report(tokens, sum(len(copies.rows[index]) for index in batch))
        return [scores[starts[place[:, 0]] + place[:, 1]] for place in copies.places]

    def predictions(
        self, rows: Sequence[np.ndarray], positions: Sequence[np.ndarray], labels: Sequence[np.ndarray]
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield the scores of the masked positions of each row, in any order of the rows.

        Args:
            rows: token ids of N masked rows, int32 [S_i] each.
            positions: masked positions, int [P_i] each.
            labels: original tokens of these positions, int [P_i] each.

        Yields:
            The index of the row, the log-probabilities float32 [P_i], and whether the label has the highest logit,
            bool [P_i].
        """
        segments = [np.zeros_like(row) for row in rows]
        for batch, (scores, best) in self._predictions.batches(rows, segments, positions, labels):
            for index, of_row, best_of_row in zip(batch, scores, best, strict=False):  # A batch may be padded.
                count = len(labels[index])
                yield index, of_row[:count], best_of_row[:count] == labels[index]


def label_scores(model: Any) -> Callable[[dict[str, Any]], Any]:
    """Return a function of features with masked_lm_positions [B, 1] and masked_lm_ids [B, K] to float32 [B, K].

    The result has the log-probability of each label at the position.
    """

    def scores(features: dict[str, Any]) -> Any:
        return log_probabilities(model(features).masked_lm[:, 0], features["masked_lm_ids"])

    return scores


def predictions(model: Any) -> Callable[[dict[str, Any]], Any]:
    """Return a function of features with masked_lm_positions and masked_lm_ids [B, P].

    The results are the log-probabilities of the labels, float32 [B, P], and the ids with the highest logits,
    int32 [B, P].
    """

    def scores(features: dict[str, Any]) -> Any:
        logits = model(features).masked_lm  # [B, P, V]
        labels = ops.expand_dims(features["masked_lm_ids"], -1)
        return log_probabilities(logits, labels)[..., 0], ops.cast(ops.argmax(logits, axis=-1), "int32")

    return scores


def log_probabilities(logits: Any, labels: Any) -> Any:
    """Return the log-softmax of logits float32 [..., V] at labels int [..., K], float32 [..., K]."""
    return ops.take_along_axis(logits, labels, axis=-1) - ops.logsumexp(logits, axis=-1, keepdims=True)


def masked_copies(row: np.ndarray, mask_id: int, continues_word: np.ndarray | None = None) -> np.ndarray:
    """Return a copy of a text for each token, with that token masked.

    Args:
        row: token ids from [CLS] to [SEP], int32 [S].
        mask_id: id of [MASK].
        continues_word: whether each token of the vocabulary continues a word, bool [V], to mask the later tokens of
            the word too; None to mask one token.

    Returns:
        int32 [S - 2, S].
    """
    columns = np.arange(len(row))
    masked = columns[1:-1]
    ends = masked + 1
    if continues_word is not None:
        starts = np.flatnonzero(~continues_word[row])  # [SEP] is one of them.
        ends = starts[np.searchsorted(starts, masked, side="right")]
    is_masked = (columns >= masked[:, None]) & (columns < ends[:, None])  # [S - 2, S]
    return np.where(is_masked, np.int32(mask_id), row)


def distinct_copies(rows: Sequence[np.ndarray], mask_id: int, continues_word: np.ndarray | None = None) -> MaskedCopies:
    """Return the distinct masked copies of texts.

    Two texts that differ in one token have an equal copy, which scores both tokens.

    Args:
        rows: token ids of N texts, from [CLS] to [SEP], int32 [S_i] each. They contain no [MASK].
        mask_id, continues_word: as for `masked_copies`.
    """
    index_of: dict[bytes, int] = {}
    distinct: list[np.ndarray] = []
    positions: list[int] = []
    labels: list[list[int]] = []
    places = []
    for row in rows:
        place = np.empty((len(row) - 2, 2), np.int64)
        for number, copy in enumerate(masked_copies(row, mask_id, continues_word)):
            index = index_of.setdefault(copy.tobytes(), len(distinct))
            if index == len(distinct):
                distinct.append(copy)
                positions.append(number + 1)
                labels.append([])
            place[number] = index, len(labels[index])
            labels[index].append(int(row[number + 1]))
        places.append(place)
    return MaskedCopies(
        distinct, [np.array([position]) for position in positions], [np.array(ids) for ids in labels], places
    )


def computed_positions(rows: Sequence[np.ndarray]) -> int:
    """Return the number of positions of all masked copies of texts, an estimate of the work."""
    return sum(len(row) * (len(row) - 2) for row in rows)


def _chunks(rows: Sequence[np.ndarray]) -> Iterator[Sequence[np.ndarray]]:
    """Yield consecutive texts whose masked copies have `TOKENS_A_CHUNK` tokens, or a single text."""
    sizes = np.cumsum([len(row) * (len(row) - 2) for row in rows])
    start = 0
    while start < len(rows):
        done = sizes[start - 1] if start else 0
        end = max(int(np.searchsorted(sizes, done + TOKENS_A_CHUNK, side="right")), start + 1)
        yield rows[start:end]
        start = end
