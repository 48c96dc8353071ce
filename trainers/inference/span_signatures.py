"""Extractive question answering in a graph: windows over the context, and the best span of all windows.

Computes the same as `predictor.py`, with byte offsets.

Letters in shapes: B questions, W windows of all of them, S positions, A lengths of an answer.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import tensorflow as tf

from beambert.tokenizer.in_graph import InGraphTokenizer
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.trainers.inference.predictor import DOC_STRIDE, MAX_ANSWER_LENGTH, max_query_length

if TYPE_CHECKING:
    from beambert.tokenizer.tensorflow_text_tokenizer import TensorFlowTextTokenizer

# Score of positions that are not an answer.
_IMPOSSIBLE = -1e30


def answer_spans(
    logits: Callable[[dict[str, tf.Tensor]], tf.Tensor],
    tokenizer: "InGraphTokenizer | TensorFlowTextTokenizer",
    vocabulary: Vocabulary,
    question: tf.Tensor,
    context: tf.Tensor,
    max_seq_length: int,
) -> dict[str, tf.Tensor]:
    """Return the best answers.

    Args:
        logits: function from features to the logits of start and end, [W, 2, S].
        tokenizer, vocabulary: tokenizer and vocabulary of the model.
        question: string [B]; truncated to 64 tokens, or to half of the window.
        context: string [B] of any length, read in windows with a stride of 128 tokens.
        max_seq_length: tokens of a window, including question, [CLS] and [SEP].

    Returns:
        answer string [B], a slice of the context; start and end int32 [B], its byte offsets; score float32 [B], the sum
        of both logits; null_score float32 [B], the same for [CLS], minimized over the windows. For models trained with
        unanswerable questions, there is no answer where null_score - score exceeds a threshold. A context without
        tokens has the answer "", start and end -1, and null_score as its score.
    """
    questions = tokenizer(question)[:, : max_query_length(max_seq_length)]  # [B, (S)]
    tokens, starts, ends = tokenizer.with_offsets(context)  # [B, (S)]
    sizes, first_token = tf.cast(tokens.row_lengths(), tf.int32), tf.cast(tokens.row_starts(), tf.int32)  # [B]
    before = tf.cast(questions.row_lengths(), tf.int32) + 2  # [B], positions up to the context

    # Windows.
    room = max_seq_length - before - 1  # [B]
    stride = tf.minimum(room, DOC_STRIDE)
    windows = 1 + (tf.maximum(sizes - room, 0) + stride - 1) // stride  # [B]
    row = tf.repeat(tf.range(tf.size(question)), windows)  # [W]
    window_start = tf.ragged.range(windows).flat_values * tf.gather(stride, row)  # [W]
    length = tf.minimum(tf.gather(sizes, row) - window_start, tf.gather(room, row))  # [W]
    before = tf.gather(before, row)  # [W]
    first_inside = tf.gather(first_token, row) + window_start  # [W], among the tokens of all contexts
    inside = tf.ragged.range(first_inside, first_inside + length)  # [W, (S)]

    def column(token: int) -> tf.Tensor:
        return tf.fill([tf.size(row), 1], token)

    rows = [
        column(vocabulary.cls_id),
        tf.gather(questions, row),
        column(vocabulary.sep_id),
        tf.gather(tokens.flat_values, inside),
        column(vocabulary.sep_id),
    ]
    input_ids = tf.concat(rows, axis=1).to_tensor(vocabulary.pad_id)  # [W, S]
    place = tf.range(tf.shape(input_ids)[1])[None, :]  # [1, S]
    input_mask = tf.cast(place < (before + length + 1)[:, None], tf.int32)
    segment_ids = tf.cast(place >= before[:, None], tf.int32) * input_mask
    features = {"input_ids": input_ids, "input_mask": input_mask, "segment_ids": segment_ids}
    start_logits, end_logits = tf.unstack(logits(features), axis=1)  # [W, S]

    # An answer is in the context, and its start has the maximum context in this window.
    in_context = (place >= before[:, None]) & (place < (before + length)[:, None])  # [W, S]
    total = tf.size(tokens.flat_values)
    has_most_context = _has_most_context(place - before[:, None], length, in_context, first_inside, total)
    start_scores = tf.where(has_most_context, start_logits, _IMPOSSIBLE)
    end_scores = tf.where(in_context, end_logits, _IMPOSSIBLE)
    following = tf.pad(end_scores, [[0, 0], [0, MAX_ANSWER_LENGTH - 1]], constant_values=_IMPOSSIBLE)
    spans = start_scores[:, :, None] + tf.signal.frame(following, MAX_ANSWER_LENGTH, 1, axis=1)  # [W, S, A]
    spans = tf.reshape(spans, [tf.size(row), -1])  # [W, S * A]
    best_span = tf.argmax(spans, axis=1, output_type=tf.int32)  # [W]
    window_scores = tf.RaggedTensor.from_row_lengths(tf.reduce_max(spans, axis=1), windows).to_tensor(4 * _IMPOSSIBLE)
    null_scores = tf.RaggedTensor.from_row_lengths(start_logits[:, 0] + end_logits[:, 0], windows)
    null_score = tf.reduce_min(null_scores, axis=1)  # [B]

    # The best window of each question.
    chosen = tf.argmax(window_scores, axis=1, output_type=tf.int32)  # [B]
    score = tf.reduce_max(window_scores, axis=1)  # [B]
    chosen += tf.cumsum(windows, exclusive=True)
    span = tf.gather(best_span, chosen)
    first = span // MAX_ANSWER_LENGTH - tf.gather(before - window_start, chosen) + first_token  # [B]
    last = first + span % MAX_ANSWER_LENGTH
    has_answer = sizes > 0

    def byte_of(places: tf.RaggedTensor, token: tf.Tensor) -> tf.Tensor:
        # One more element, for look-ups in a batch without tokens.
        return tf.where(
            has_answer, tf.gather(tf.concat([places.flat_values, [0]], axis=0), tf.where(has_answer, token, 0)), -1
        )

    start, end = byte_of(starts, first), byte_of(ends, last)
    return {
        "answer": tf.where(has_answer, tf.strings.substr(context, tf.maximum(start, 0), end - start), ""),
        "start": start,
        "end": end,
        "score": tf.where(has_answer, score, null_score),
        "null_score": null_score,
    }


def _has_most_context(
    offset: tf.Tensor, length: tf.Tensor, in_context: tf.Tensor, first: tf.Tensor, total: tf.Tensor
) -> tf.Tensor:
    """Return whether a token has its maximum context in this window, the first of equals (`_check_is_max_context`).

    Args:
        offset: int32 [W, S], positions in the window's part of the context.
        length: int32 [W], length of that part.
        in_context: bool [W, S], whether a position is in that part.
        first: int32 [W], index of its first token among the tokens of all contexts.
        total: int32 scalar, number of tokens of all contexts.

    Returns:
        bool [W, S], False outside the context.
    """
    around = tf.minimum(offset, length[:, None] - 1 - offset)
    amount = tf.cast(around, tf.float32) + 0.01 * tf.cast(length, tf.float32)[:, None]  # [W, S]
    # Positions outside the context share one additional slot.
    token = tf.where(in_context, first[:, None] + offset, total)  # [W, S]
    most = tf.gather(tf.math.unsorted_segment_max(amount, token, total + 1), token)
    window = tf.broadcast_to(tf.range(tf.size(length))[:, None], tf.shape(token))
    candidate = tf.where(amount == most, window, tf.size(length))
    return in_context & (window == tf.gather(tf.math.unsorted_segment_min(candidate, token, total + 1), token))
