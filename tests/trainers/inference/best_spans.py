"""The best span of all windows of a question, in NumPy, as `trainers.inference.span_signatures` computes it in a graph.

Letters in shapes: N questions, W windows of all of them, S_i tokens of window i, T tokens of a context, A lengths of an
answer.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from beambert.tokenizer.tokenizer import Tokenizer
from beambert.trainers.inference.predictor import DOC_STRIDE, MAX_ANSWER_LENGTH, max_query_length


class Span(NamedTuple):
    """The best answer to a question.

    Attributes:
        start, end: character offsets in the context, end exclusive; -1 for a context without tokens.
        score: sum of the start and the end logit; for a context without tokens `null_score`.
        null_score: sum of both logits of [CLS], minimized over the windows. For models trained with unanswerable
            questions, there is no answer where null_score - score exceeds a threshold.
    """

    start: int
    end: int
    score: float
    null_score: float


def best_spans(
    logits: Callable[[list[np.ndarray], list[np.ndarray]], Sequence[np.ndarray]],
    tokenizer: Tokenizer,
    questions: Sequence[str],
    contexts: Sequence[str],
    max_seq_length: int,
) -> list[Span]:
    """Return the best answer to each of N questions.

    Args:
        logits: function of the token ids and the segment ids of W windows, int32 [S_i] each; returns the start and end
            logits of each, float32 [2, S_i or more].
        tokenizer: tokenizer of the model.
        questions: N questions, truncated to `max_query_length` tokens.
        contexts: N contexts of any length, read in windows with a stride of 128 tokens.
        max_seq_length: tokens of a window, including question, [CLS] and [SEP].
    """
    question_ids, question_splits = tokenizer.encode_batch(questions)
    ids, splits, offsets = tokenizer.encode_batch_with_offsets(contexts)
    query_length = max_query_length(max_seq_length)
    cls_id, sep_id = tokenizer.vocabulary.cls_id, tokenizer.vocabulary.sep_id
    bounds = list(itertools.pairwise(splits.tolist()))
    rows, segments = [], []
    befores, windows = [], []
    for (first, last), (query_first, query_last) in zip(bounds, itertools.pairwise(question_splits), strict=True):
        query = question_ids[query_first:query_last][:query_length]
        befores.append(len(query) + 2)
        windows.append(context_windows(last - first, max_seq_length - len(query) - 3))
        for start, end in windows[-1]:
            row = np.concatenate([[cls_id], query, [sep_id], ids[first + start : first + end], [sep_id]])
            rows.append(row.astype(np.int32))
            segments.append((np.arange(len(row)) >= befores[-1]).astype(np.int32))
    window_logits = iter(logits(rows, segments))
    return [
        _best_span(list(itertools.islice(window_logits, len(of_question))), of_question, before, offsets[first:last])
        for of_question, before, (first, last) in zip(windows, befores, bounds, strict=True)
    ]


def context_windows(count: int, room: int) -> list[tuple[int, int]]:
    """Return start and end of each window over a context.

    Args:
        count: number of tokens of the context.
        room: maximum number of tokens of a window, at least 1.

    Returns:
        At least one window; an empty one for a context without tokens.
    """
    stride = min(room, DOC_STRIDE)
    starts = range(0, max(count - room, 0) + stride, stride)
    return [(start, min(start + room, count)) for start in starts]


def _best_span(
    logits: Sequence[np.ndarray], windows: Sequence[tuple[int, int]], before: int, offsets: np.ndarray
) -> Span:
    """Return the span with the highest score of the windows of a question, the first of equals.

    Args:
        logits: start and end logits of each window, float32 [2, S_i or more].
        windows: start and end of each window in the context.
        before: number of tokens of a row before the context.
        offsets: int32 [T, 2], character offsets of the context's tokens.
    """
    null_score = min(float(window_logits[:, 0].sum()) for window_logits in logits)
    best_window = windows_with_most_context(windows)  # [T]
    best = Span(-1, -1, -np.inf, null_score)
    for number, ((start, end), window_logits) in enumerate(zip(windows, logits, strict=True)):
        starts = np.flatnonzero(best_window[start:end] == number)
        if not len(starts):
            continue
        start_logits, end_logits = window_logits[:, before : before + end - start]
        following = np.pad(end_logits, (0, MAX_ANSWER_LENGTH - 1), constant_values=-np.inf)
        ends_of_start = np.lib.stride_tricks.sliding_window_view(following, MAX_ANSWER_LENGTH)[starts]
        scores = start_logits[starts, None] + ends_of_start  # [starts, A]
        row, length = divmod(int(scores.argmax()), MAX_ANSWER_LENGTH)
        if (score := float(scores[row, length])) > best.score:
            token = start + int(starts[row])
            best = Span(int(offsets[token, 0]), int(offsets[token + length, 1]), score, null_score)
    return best if len(offsets) else best._replace(score=null_score)


def windows_with_most_context(windows: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return the window in which each token has its maximum context, the first of equals (`_check_is_max_context`).

    Args:
        windows: start and end of each window in the context.

    Returns:
        int64 [T], index of a window.
    """
    count = windows[-1][1]
    most, window_of_token = np.full(count, -1, np.float32), np.zeros(count, np.int64)
    for number, (start, end) in enumerate(windows):
        position = np.arange(end - start)
        around = np.minimum(position, end - start - 1 - position)
        # In float32, as in the graph: sums of equal amounts stay equal.
        amount = around.astype(np.float32) + np.float32(0.01) * np.float32(end - start)
        is_better = amount > most[start:end]
        most[start:end][is_better] = amount[is_better]
        window_of_token[start:end][is_better] = number
    return window_of_token
