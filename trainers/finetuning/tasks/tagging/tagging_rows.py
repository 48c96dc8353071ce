"""Convert sentences of words to rows of tokens with a label at the first token of each word, and back.

The paper (section 5.3) does it so: the first token of a word stands for it, and around a sentence stands as much of its
document as there is room for. W words, N sentences, T tokens of all rows.
"""

from collections.abc import Sequence

import numpy as np

from pipelines.instances.ragged import ranges
from tokenizer.tokenizer import Tokenizer
from trainers.errors import TaskDataError
from trainers.finetuning.finetuning_task import Logits, Rows

# In Rows.extras: int64 [W], the place in Rows.ids of the first token of each word, -1 for a word without tokens.
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

    A sentence is a row. One that is longer than a row is read in several rows. Each answers for a stretch of its words
    and has their context on both sides; so every word is learned from and answered for once. A word of which the
    tokenizer leaves nothing is in no row.

    Args:
        words: W.
        sentence_splits: int64 [N + 1], of words.
        document_splits: int64 [D + 1], of sentences, to fill rows up with the sentences around, of the same document;
            None to leave them alone.
        label_ids: int32 [W], or None for a split without labels.
        tokenizer: of the model.
        max_seq_length: longest row, with [CLS] and [SEP].

    Returns:
        Rows with the targets `label_ids` and the extra `FIRST_TOKENS`; `truncated` counts the sentences that were
        longer than a row.

    Raises:
        TaskDataError: rows have no room.
    """
    room = max_seq_length - 2
    if room < 1:
        raise TaskDataError(f"--max_seq_length is {max_seq_length}; give 3 or more: [CLS], a piece, [SEP]")
    tokens, token_splits = tokenizer.encode_batch(words)  # [P], [W + 1]
    stretches, truncated = _stretches(sentence_splits, token_splits, room)  # words [R + 1]
    rows = len(stretches) - 1
    starts, ends = token_splits[stretches[:-1]], token_splits[stretches[1:]]  # [R], tokens
    ends = np.minimum(ends, starts + room)  # One word alone may be too long.

    # What may stand beside: of the sentence, or of the document.
    outer = sentence_splits if document_splits is None else sentence_splits[document_splits]
    place = np.searchsorted(outer, stretches[:-1], side="right") - 1
    first, last = token_splits[outer[place]], token_splits[outer[place + 1]]
    spare = room - (ends - starts)
    left = np.minimum(starts - first, spare // 2)
    right = np.minimum(last - ends, spare - left)
    left = np.minimum(starts - first, spare - right)

    lengths = left + (ends - starts) + right
    row_splits = np.concatenate([[0], np.cumsum(lengths + 2)]).astype(np.int64)
    within = ranges(row_splits[:-1] + 1, lengths)  # Places in the rows that are neither [CLS] nor [SEP].
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
        extras={FIRST_TOKENS: first_tokens},
    )


def word_labels(rows: Rows, logits: Logits, without_tokens: int) -> np.ndarray:
    """Return the best label of each word, int64 [W].

    Args:
        rows: of `tagging_rows`.
        logits: of every row, float32 [S_i, n].
        without_tokens: label of a word without tokens.
    """
    best = np.concatenate([np.argmax(values, axis=-1) for values in logits])  # [T]
    first_tokens = rows.extras[FIRST_TOKENS]
    return np.where(first_tokens >= 0, best[first_tokens], without_tokens)


def _stretches(sentence_splits: np.ndarray, token_splits: np.ndarray, room: int) -> tuple[np.ndarray, int]:
    """Return the first word of each row's stretch, and W at the end; and how many sentences have several.

    A stretch of a sentence that is too long has half the room, so that it is seen among what stands around it.
    """
    lengths = np.diff(token_splits[sentence_splits])  # [N], tokens
    # Of one word nothing can be split off.
    long = np.flatnonzero((lengths > room) & (np.diff(sentence_splits) > 1))
    inner = []
    for sentence in long.tolist():
        start, end = sentence_splits[sentence : sentence + 2].tolist()
        while True:
            # The first word that ends beyond half the room begins the next stretch.
            fit = int(np.searchsorted(token_splits, token_splits[start] + max(room // 2, 1), side="right")) - 1
            start = max(fit, start + 1)
            if start >= end:
                break
            inner.append(start)
    return np.sort(np.concatenate([sentence_splits, np.array(inner, np.int64)])), int((lengths > room).sum())
