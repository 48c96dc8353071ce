"""Encode sentences as rows of tokens with a label at the first token of each word, and decode them.

As in the paper (section 5.3), the first token of a word represents it, and the rest of the row is filled with context
from the document. W words, N sentences, T tokens of all rows.
"""

from collections.abc import Sequence

import numpy as np

from beambert.pipelines.instances.instances import ranges
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.finetuning_task import Logits, Rows

# In Rows.extras: int64 [W], index in Rows.ids of the first token of each word, -1 for a word without tokens.
FIRST_TOKENS = "first_pieces"


def tagging_rows(
    words: Sequence[str],
    sentence_splits: np.ndarray,
    document_splits: np.ndarray | None,
    label_ids: np.ndarray | None,
    tokenizer: Tokenizer,
    max_seq_length: int,
) -> Rows:
    """Return the rows of a split.

    A sentence is a row. A sentence that is longer than a row is split over several rows: each row labels a range of its
    words, with context on both sides, so that every word is labeled once. Words without tokens are in no row.

    Args:
        words: W words.
        sentence_splits: int64 [N + 1], offsets of words.
        document_splits: int64 [D + 1], offsets of sentences, to fill rows with neighboring sentences of the same
            document; None for no document context.
        label_ids: int32 [W], or None for a split without labels.
        tokenizer: tokenizer of the model.
        max_seq_length: maximum length of a row in tokens, including [CLS] and [SEP].

    Returns:
        Rows with the target `label_ids` and the extra `FIRST_TOKENS`; `truncated` counts the sentences that are longer
        than a row, `empty` are the words without tokens.

    Raises:
        TaskDataError: max_seq_length is less than 3.
    """
    room = max_seq_length - 2
    if room < 1:
        raise TaskDataError(f"invalid --max_seq_length {max_seq_length}: must be at least 3 ([CLS] token [SEP])")
    tokens, token_splits = tokenizer.encode_batch(words)  # [P], [W + 1]
    stretches, truncated = _stretches(sentence_splits, token_splits, room)  # words [R + 1]
    rows = len(stretches) - 1
    starts, ends = token_splits[stretches[:-1]], token_splits[stretches[1:]]  # [R], tokens
    ends = np.minimum(ends, starts + room)  # A single word may be too long.

    # Range of the context: the sentence, or the document.
    outer = sentence_splits if document_splits is None else sentence_splits[document_splits]
    outer_index = np.searchsorted(outer, stretches[:-1], side="right") - 1
    first, last = token_splits[outer[outer_index]], token_splits[outer[outer_index + 1]]
    spare = room - (ends - starts)
    left = np.minimum(starts - first, spare // 2)
    right = np.minimum(last - ends, spare - left)
    left = np.minimum(starts - first, spare - right)

    lengths = left + (ends - starts) + right
    row_splits = np.concatenate([[0], np.cumsum(lengths + 2)]).astype(np.int64)
    within = ranges(row_splits[:-1] + 1, lengths)  # Positions in the rows other than [CLS] and [SEP].
    vocabulary = tokenizer.vocabulary
    ids = np.full(row_splits[-1], vocabulary.cls_id, np.int32)
    ids[row_splits[1:] - 1] = vocabulary.sep_id
    ids[within] = tokens[ranges(starts - left, lengths)]

    row_of_word = np.repeat(np.arange(rows), np.diff(stretches))  # [W]
    in_row = row_splits[row_of_word] + 1 + left[row_of_word] + token_splits[:-1] - starts[row_of_word]
    first_tokens = np.where(token_splits[1:] > token_splits[:-1], in_row, -1)  # [W]
    targets = {}
    if label_ids is not None:
        labels = np.full(len(ids), -1, np.int32)
        labels[first_tokens[first_tokens >= 0]] = label_ids[first_tokens >= 0]
        targets["label_ids"] = labels
    return Rows(
        ids=ids,
        segment_ids=np.zeros(len(ids), np.int32),
        row_splits=row_splits,
        targets=targets,
        truncated=truncated,
        empty=np.flatnonzero(first_tokens < 0),
        extras={FIRST_TOKENS: first_tokens},
    )


def word_labels(rows: Rows, logits: Logits, without_tokens: int) -> np.ndarray:
    """Return the predicted label of each word, int64 [W].

    Args:
        rows: rows of `tagging_rows`.
        logits: logits of each row, float32 [S_i, n].
        without_tokens: label of a word without tokens.
    """
    best = np.concatenate([np.argmax(values, axis=-1) for values in logits])  # [T]
    first_tokens = rows.extras[FIRST_TOKENS]
    return np.where(first_tokens >= 0, best[first_tokens], without_tokens)


def _stretches(sentence_splits: np.ndarray, token_splits: np.ndarray, room: int) -> tuple[np.ndarray, int]:
    """Return the first word of each row's range, followed by W, and the number of sentences with several ranges.

    Ranges of a sentence that is too long have half the length of a row, which leaves room for context.
    """
    lengths = np.diff(token_splits[sentence_splits])  # [N], tokens
    # A single word cannot be split.
    long = np.flatnonzero((lengths > room) & (np.diff(sentence_splits) > 1))
    inner = []
    for sentence in long.tolist():
        start, end = sentence_splits[sentence : sentence + 2].tolist()
        while True:
            # The first word that ends beyond half the row starts the next range.
            fit = int(np.searchsorted(token_splits, token_splits[start] + max(room // 2, 1), side="right")) - 1
            start = max(fit, start + 1)
            if start >= end:
                break
            inner.append(start)
    return np.sort(np.concatenate([sentence_splits, np.array(inner, np.int64)])), int((lengths > room).sum())
