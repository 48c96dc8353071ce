"""Extractive question answering: the answers of `finetune squad --do_predict` to questions in memory.

`span_signatures.py` computes answers in a TensorFlow graph, for exported models. There, all spans of a window are
scored, while run_squad.py combines the 20 best starts and ends. The answer has the characters of its tokens, while
run_squad.py extends it to whole words in contexts with [UNK].

Letters in shapes: N questions, W windows of all of them, S_i tokens of window i.
"""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from beambert.tokenizer.tokenizer import Tokenizer
from beambert.trainers.finetuning.tasks.spans.squad_answers import Answers, find_answers
from beambert.trainers.finetuning.tasks.spans.squad_files import Question, SquadFile
from beambert.trainers.finetuning.tasks.spans.squad_windows import window_rows

DOC_STRIDE = 128
MAX_QUERY_LENGTH = 64
MAX_ANSWER_LENGTH = 30


def answer_questions(
    logits: Callable[[list[np.ndarray], list[np.ndarray]], Sequence[np.ndarray]],
    tokenizer: Tokenizer,
    questions: Sequence[str],
    contexts: Sequence[str],
    max_seq_length: int,
) -> tuple[list[Answers], int]:
    """Return the answers to each of N questions, with that of no answer, and the number of truncated questions.

    Args:
        logits: function of the token ids and the segment ids of W windows, int32 [S_i] each; returns the start and end
            logits of each, float32 [2, S_i or more].
        tokenizer: tokenizer of the model.
        questions: N questions, truncated to `max_query_length` tokens.
        contexts: N contexts of any length, read in windows with a stride of 128 tokens. One without tokens is in no
            window.
        max_seq_length: tokens of a window, including question, [CLS] and [SEP].
    """
    file = SquadFile(
        path=Path("questions"),
        contexts=tuple(contexts),
        questions=tuple(Question(str(number), text, number, ()) for number, text in enumerate(questions)),
        labeled=False,
    )
    rows = window_rows(
        file,
        tokenizer,
        max_seq_length,
        doc_stride=DOC_STRIDE,
        max_query_length=max_query_length(max_seq_length),
        training=False,
    )
    bounds = list(itertools.pairwise(rows.row_splits.tolist()))
    padded = logits(*([values[start:end] for start, end in bounds] for values in (rows.ids, rows.segment_ids)))
    of_rows = [values[:, : end - start] for values, (start, end) in zip(padded, bounds, strict=True)]
    answers = find_answers(file, rows, of_rows, max_answer_length=MAX_ANSWER_LENGTH, version_2=True)
    return answers, rows.truncated


def max_query_length(max_seq_length: int) -> int:
    """Return the maximum number of tokens of a question: 64, or half of the window without [CLS] and two [SEP]."""
    return min(MAX_QUERY_LENGTH, (max_seq_length - 3) // 2)
