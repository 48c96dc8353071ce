"""From sentences of words to rows of pieces with a label at the first piece of each word, and back to words.

The paper (section 5.3) does it so: the first piece of a word stands for it, and around a sentence stands as much of its
document as there is room for. W words, N sentences, T pieces of all rows.
"""

from collections.abc import Sequence

import numpy as np

from pipelines.instances.ragged import ranges
from tokenizer.tokenizer import Tokenizer
from trainers.errors import TaskDataError
from trainers.finetuning.finetuning_task import Logits, Rows

# In Rows.extras: int64 [W], the place in Rows.ids of the first piece of each word, -1 for a word without pieces.
FIRST_PIECES = "first_pieces"


def tagging_rows(
    words: Sequence[str],
    sentence_splits: np.ndarray,
    document_splits: np.ndarray | None,
    label_ids: np.ndarray | None,
    tokenizer: Tokenizer,
    max_seq_length: int,
) -> Rows:
    """Rows of a split.

    A sentence is a row. One that is longer than a row is read in several, each of which answers for a stretch of its
    words and has what stands around them beside; so every word is learned from and answered for once. A word of which
    the tokenizer leaves nothing is in no row.

    Args:
        words: W.
        sentence_splits: int64 [N + 1], of words.
        document_splits: int64 [D + 1], of sentences, to fill rows up with the sentences around, of the same document;
            None to leave them alone.
        label_ids: int32 [W], or None for a split without labels.
        tokenizer: of the model.
        max_seq_length: longest row, with [CLS] and [SEP].

    Returns:
        Rows with the targets `label_ids` and the extra `FIRST_PIECES`; `truncated` counts the sentences that were
        longer than a row.

    Raises:
        TaskDataError: rows have no room.
    """
    room = max_seq_length - 2
    if room < 1:
        raise TaskDataError(f"--max_seq_length is {max_seq_length}; give 3 or more: [CLS], a piece, [SEP]")
    pieces, piece_splits = tokenizer.encode_batch(words)  # [P], [W + 1]
    stretches, truncated = _stretches(sentence_splits, piece_splits, room)  # words [R + 1]
    rows = len(stretches) - 1
    starts, ends = piece_splits[stretches[:-1]], piece_splits[stretches[1:]]  # [R], pieces
    ends = np.minimum(ends, starts + room)  # One word alone may be too long.

    # What may stand beside: of the sentence, or of the document.
    outer = sentence_splits if document_splits is None else sentence_splits[document_splits]
    place = np.searchsorted(outer, stretches[:-1], side="right") - 1
    first, last = piece_splits[outer[place]], piece_splits[outer[place + 1]]
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
    ids[within] = pieces[ranges(starts - left, lengths)]

    row_of_word = np.repeat(np.arange(rows), np.diff(stretches))  # [W]
    in_row = row_splits[row_of_word] + 1 + left[row_of_word] + piece_splits[:-1] - starts[row_of_word]
    first_pieces = np.where(piece_splits[1:] > piece_splits[:-1], in_row, -1)  # [W]
    targets = {}
    if label_ids is not None:
        labels = np.full(len(ids), -1, np.int32)
        labels[first_pieces[first_pieces >= 0]] = label_ids[first_pieces >= 0]
        targets["label_ids"] = labels
    return Rows(
        ids=ids,
        segment_ids=np.zeros(len(ids), np.int32),
        row_splits=row_splits,
        targets=targets,
        truncated=truncated,
        extras={FIRST_PIECES: first_pieces},
    )


def word_labels(rows: Rows, logits: Logits, without_pieces: int) -> np.ndarray:
    """The best label of each word, int64 [W].

    Args:
        rows: of `tagging_rows`.
        logits: of every row, float32 [S_i, n].
        without_pieces: label of a word without pieces.
    """
    best = np.concatenate([np.argmax(values, axis=-1) for values in logits])  # [T]
    first_pieces = rows.extras[FIRST_PIECES]
    return np.where(first_pieces >= 0, best[first_pieces], without_pieces)


def _stretches(sentence_splits: np.ndarray, piece_splits: np.ndarray, room: int) -> tuple[np.ndarray, int]:
    """Number of the first word of each row's stretch, and W at the end; and how many sentences have several.

    A stretch of a sentence that is too long has half the room, so that it is seen among what stands around it.
    """
    lengths = np.diff(piece_splits[sentence_splits])  # [N], pieces
    # Of one word nothing can be split off.
    long = np.flatnonzero((lengths > room) & (np.diff(sentence_splits) > 1))
    inner = []
    for sentence in long.tolist():
        start, end = sentence_splits[sentence : sentence + 2].tolist()
        while True:
            # The first word that ends beyond half the room begins the next stretch.
            fit = int(np.searchsorted(piece_splits, piece_splits[start] + max(room // 2, 1), side="right")) - 1
            start = max(fit, start + 1)
            if start >= end:
                break
            inner.append(start)
    return np.sort(np.concatenate([sentence_splits, np.array(inner, np.int64)])), int((lengths > room).sum())
