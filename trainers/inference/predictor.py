"""Predict texts with a fine-tuned model, as JSON-serializable values; `predict` prints them.

Answers to questions are those of `finetune squad --do_predict`. `span_signatures.py` computes them in a TensorFlow
graph, for exported models. There, all spans of a window are scored, while run_squad.py combines the 20 best starts and
ends. The answer has the characters of its tokens, while run_squad.py extends it to whole words in contexts with [UNK].

Letters in shapes: N texts or questions, W windows of all questions, S_i tokens of row or window i, n labels.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beambert.bert_model.heads import HEADS
from beambert.bert_model.heads.head import Answer, AnswerLimits, FinetuningHead, Inputs, rounded
from beambert.tokenizer.normalization import is_whitespace
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.wordpiece import CONTINUATION
from beambert.trainers.data.text_encoding import UnknownTokens, encode_texts
from beambert.trainers.errors import TrainingError
from beambert.trainers.finetuning.tasks.squad_answers import Answers, find_answers
from beambert.trainers.finetuning.tasks.squad_files import Question, SquadFile
from beambert.trainers.finetuning.tasks.squad_windows import window_rows
from beambert.trainers.finetuning.tasks.tag_schemes import entities_of, scheme_of_labels
from beambert.trainers.inference.model_loading import InferenceModel, text_length
from beambert.trainers.inference.tokenization import PAIR_SEPARATOR, split_pair, split_texts

WORDS_AT = ("punctuation", "whitespace")
# Threshold of the labels of a multi-label model.
THRESHOLD = 0.5
# Windows over a context, and answers in it, as in run_squad.py.
DOC_STRIDE = 128
MAX_QUERY_LENGTH = 64
MAX_ANSWER_LENGTH = 30


class Predictor:
    """Predicts texts with a fine-tuned model, on the backend of the model.

    Args:
        inference_model: the model.
        max_seq_length: maximum sequence length, as for `model_loading.text_length`.
        batch_size: maximum batch size in rows; None as for `TextForward`.
        top_k: maximum number of labels per text, most probable first.
        question: question about every text, for a span model; None where each text has its own.
        null_score_diff_threshold: predict no answer where null_score - score exceeds this threshold; None to always
            predict an answer.
        threshold: probability above which a multi-label model predicts a label, or equal to it; None for `THRESHOLD`.
        words_at: word boundaries of a token classifier: "punctuation", as in the tokenizer, or "whitespace" for
            pre-tokenized texts.

    Attributes:
        cut: number of truncated texts so far, of a span model that of truncated questions; contexts and texts for token
            classification are read in windows instead.
        unknown: the [UNK] tokens of all texts so far.
        doubtful: number of single texts so far for a model that probably reads pairs, or the reverse.

    Raises:
        TrainingError: the model has no task head, an option belongs to another task, or max_seq_length is out of range.
    """

    def __init__(
        self,
        inference_model: InferenceModel,
        *,
        max_seq_length: int | None = None,
        batch_size: int | None = None,
        top_k: int = 5,
        question: str | None = None,
        null_score_diff_threshold: float | None = None,
        threshold: float | None = None,
        words_at: str | None = None,
    ) -> None:
        from beambert.trainers.inference.forward import TextForward

        head = inference_model.head
        if not isinstance(head, FinetuningHead):
            raise TrainingError(
                f"{inference_model.path} is a pretrained model without a task head: fine-tune it first, or use "
                "beambert fill-mask"
            )
        for flag, value, inputs in (
            ("--question", question, Inputs.QUESTION),
            ("--null_score_diff_threshold", null_score_diff_threshold, Inputs.QUESTION),
            ("--words_at", words_at, Inputs.WORDS),
        ):
            if value is not None and head.inputs is not inputs:
                name = next(other.name for other in HEADS.values() if other.inputs is inputs)
                raise TrainingError(
                    f"{flag} is a flag for {name} models, and {inference_model.path} is a {head.name} model: omit it"
                )
        if threshold is not None and not head.several_labels:
            raise TrainingError(
                f"--threshold is a flag for models with several labels per text, and {inference_model.path} has one: "
                "omit it"
            )
        for flag, number in (("--batch_size", batch_size), ("--top_k", top_k)):
            if number is not None and number < 1:
                raise TrainingError(f"invalid {flag} {number}: must be at least 1")
        self.head = head
        self.inference_model, self.batch_size, self.question = inference_model, batch_size, question
        self.max_seq_length = text_length(inference_model, max_seq_length)
        self.limits = AnswerLimits(top_k, THRESHOLD if threshold is None else threshold)
        self.null_score_diff_threshold, self.words_at = null_score_diff_threshold, words_at or WORDS_AT[0]
        self.tokenizer = inference_model.tokenizer()
        self.unknown = UnknownTokens(self.tokenizer)
        self.cut = self.doubtful = 0
        self._forward = TextForward(
            inference_model, row_logits(inference_model.model), self.max_seq_length, self.batch_size
        )

    def answers(self, texts: Sequence[str], locations: Sequence[str]) -> list[Answer]:
        """Return the prediction for each text, in the order of the texts.

        The fields depend on the inputs of the head:

        - text: text, text_pair, and the head's `answer`
        - choices: text, choices, and the head's `answer`
        - question: question, context, answer as in predictions.json of `finetune squad`, start and end (character
          offsets in the context), score, null_score; no answer is "" with start and end -1
        - words: text, entities, and words with start and end (character offsets in the text) and the head's `answer`

        Args:
            texts: N texts, or pairs separated by " ||| "; a text and its choices; or for a question a context, or a
                question and a context where no question was given.
            locations: location of each text, for messages.

        Returns:
            N dictionaries.

        Raises:
            TrainingError: a text lacks a part that the head needs.
        """
        self.check(texts, locations)
        return _ANSWERS[self.head.inputs](self, texts)

    def check(self, texts: Sequence[str], locations: Sequence[str]) -> None:
        """Check that each text has the parts that the head needs, without predicting.

        Args:
            texts, locations: as for `answers`.

        Raises:
            TrainingError: a text lacks a part, or is a pair for a model that was fine-tuned on single texts.
        """
        inputs, path, pairs = self.head.inputs, self.inference_model.path, self.inference_model.text_pairs
        for text, location in zip(texts, locations, strict=True):
            separators = len(split_texts(text)) - 1
            if inputs is Inputs.CHOICES and separators < 2:
                raise TrainingError(f"{location} has fewer than two choices: write 'text ||| choice ||| choice'")
            if inputs is Inputs.QUESTION and self.question is None and not separators:
                raise TrainingError(f"{location} has no question: write 'question ||| context', or use --question")
            if inputs is Inputs.TEXT and pairs is not None and pairs != bool(separators):
                single = "a single text" if text.strip() else "empty"
                raise TrainingError(
                    f"{location} is {single}, and {path} was fine-tuned on pairs: write 'a text{PAIR_SEPARATOR}another'"
                    if pairs
                    else f"{location} is a pair of texts, and {path} was fine-tuned on single texts: write one text, "
                    f"without '{PAIR_SEPARATOR}'"
                )

    def _logits(self, rows: Sequence[np.ndarray], segments: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the logits of each row, float32, with those of padding; each choice is a row, with logits [1]."""
        row_logits: list[np.ndarray] = [np.empty(0)] * len(rows)
        for batch, logits in self._forward.batches(rows, segments):
            for i, values in zip(batch, logits, strict=False):  # A batch may be padded.
                row_logits[i] = values
        return row_logits

    def _logits_of_texts(
        self, firsts: Sequence[str], seconds: Sequence[str | None], text_of_row: Sequence[int] | None = None
    ) -> list[np.ndarray]:
        """Return the logits of texts or pairs, and count the truncated texts.

        Args:
            firsts, seconds: as for `encode_texts`.
            text_of_row: index of the text of each row; None where each row is a text.
        """
        encoded = encode_texts(firsts, seconds, self.tokenizer, self.max_seq_length)
        rows = np.flatnonzero(encoded.truncated)
        self.cut += len(rows if text_of_row is None else np.unique(np.asarray(text_of_row)[rows]))
        self.unknown.add([encoded.ids], [*firsts, *(text for text in seconds if text)])
        return self._logits(*encoded.by_row())

    def _pairs(self, texts: Sequence[str]) -> list[tuple[str, str | None]]:
        """Split texts into single texts or pairs, and count those that the model was probably not fine-tuned on."""
        pairs = [split_pair(text) for text in texts]
        if self.inference_model.likely_pairs:
            self.doubtful += sum(second is None for _, second in pairs)
        return pairs

    def _text(self, texts: Sequence[str]) -> list[Answer]:
        pairs = self._pairs(texts)
        logits = self._logits_of_texts(*_columns(pairs))
        labels = self.inference_model.labels
        return [
            {**_texts(pair), **self.head.answer(values, labels, self.limits)}
            for pair, values in zip(pairs, logits, strict=True)
        ]

    def _choices(self, texts: Sequence[str]) -> list[Answer]:
        split = [split_texts(text) for text in texts]
        pairs = [(context, choice) for context, *choices in split for choice in choices]
        text_of_row = [number for number, (_, *choices) in enumerate(split) for _ in choices]
        logits = np.array(self._logits_of_texts(*_columns(pairs), text_of_row)).ravel()  # [choices of all]
        ends = np.cumsum([len(parts) - 1 for parts in split])
        return [
            {"text": context, "choices": choices, **self.head.answer(values, self.inference_model.labels, self.limits)}
            for (context, *choices), values in zip(split, np.split(logits, ends[:-1]), strict=True)
        ]

    def _question(self, texts: Sequence[str]) -> list[Answer]:
        if self.question is None:
            split = [split_texts(text) for text in texts]
            pairs = [(question, PAIR_SEPARATOR.join(context)) for question, *context in split]
        else:
            pairs = [(self.question, text.rstrip("\r\n")) for text in texts]
        questions, contexts = _columns(pairs)

        def logits(rows: Sequence[np.ndarray], segments: Sequence[np.ndarray]) -> list[np.ndarray]:
            self.unknown.add(rows, [*questions, *contexts])
            return self._logits(rows, segments)

        found, truncated = answer_questions(logits, self.tokenizer, questions, contexts, self.max_seq_length)
        self.cut += truncated
        return [self._answer_span(*pair, answers) for pair, answers in zip(pairs, found, strict=True)]

    def _answer_span(self, question: str, context: str, answers: Answers) -> Answer:
        threshold = math.inf if self.null_score_diff_threshold is None else self.null_score_diff_threshold
        no_answer = answers.chosen(-math.inf)
        # A context without tokens has no answer.
        best, chosen = answers.best or no_answer, answers.chosen(threshold)
        start, end = chosen.span or (-1, -1)
        return {
            "question": question,
            "context": context,
            "answer": chosen.text,
            "start": start,
            "end": end,
            "score": rounded(best.score),
            "null_score": rounded(no_answer.score),
        }

    def _words(self, texts: Sequence[str]) -> list[Answer]:
        texts = [text.rstrip("\r\n") for text in texts]
        ids, splits, offsets = self.tokenizer.encode_batch_with_offsets(texts)
        rows: list[np.ndarray] = []
        windows = []
        vocabulary = self.inference_model.vocabulary
        for first, last in itertools.pairwise(splits.tolist()):
            starts = window_starts(last - first, self.max_seq_length - 2)
            windows.append((len(rows), starts))
            for start in starts.tolist():
                part = ids[first + start : last][: self.max_seq_length - 2]
                rows.append(np.array([vocabulary.cls_id, *part, vocabulary.sep_id], np.int32))
        self.unknown.add([ids], texts)
        logits = self._logits(rows, [np.zeros_like(row) for row in rows])
        answers = []
        for text, (first_row, starts), (first, last) in zip(
            texts, windows, itertools.pairwise(splits.tolist()), strict=True
        ):
            words = self._word_spans(text, ids[first:last], offsets[first:last])
            chosen = best_windows(words[:, 0], starts, self.max_seq_length - 2)
            labeled_words = []
            for (token, start, end), window in zip(words.tolist(), chosen.tolist(), strict=True):
                values = logits[first_row + window][1 + token - starts[window]]  # After [CLS].
                label = self.head.answer(values, self.inference_model.labels, self.limits)
                labeled_words.append({"word": text[start:end], "start": start, "end": end, **label})
            answers.append({"text": text, "entities": self._entities(text, labeled_words), "words": labeled_words})
        return answers

    def _word_spans(self, text: str, ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Return the first token of each word, and the character offsets of the word; int64 [words, 3]."""
        tokens = self.inference_model.vocabulary.tokens
        begins = [not tokens[token].startswith(CONTINUATION) for token in ids.tolist()]
        if self.words_at == "whitespace":
            for i in range(1, len(begins)):
                begins[i] = begins[i] and any(map(is_whitespace, text[offsets[i - 1, 1] : offsets[i, 0]]))
        first = np.flatnonzero(begins)
        if not len(first):
            return np.empty((0, 3), np.int64)
        last = np.append(first[1:], len(ids)) - 1
        return np.stack([first, offsets[first, 0], offsets[last, 1]], axis=1)

    def _entities(self, text: str, words: Sequence[Answer]) -> list[Answer]:
        scheme = scheme_of_labels(self.inference_model.labels)
        if scheme is None:
            return []
        tags = [word["label"] for word in words]
        texts = []
        entities = entities_of(tags, np.array([0, len(tags)]), scheme)
        for first, end, kind in zip(*(values.tolist() for values in entities), strict=True):
            start, stop = words[first]["start"], words[end - 1]["end"]
            texts.append({"type": kind, "text": text[start:stop], "start": start, "end": stop})
        return texts


_ANSWERS: dict[Inputs, Callable[[Predictor, Sequence[str]], list[Answer]]] = {
    Inputs.TEXT: Predictor._text,
    Inputs.CHOICES: Predictor._choices,
    Inputs.QUESTION: Predictor._question,
    Inputs.WORDS: Predictor._words,
}


def window_starts(count: int, room: int) -> np.ndarray:
    """Return the starts of overlapping windows over a row: half a window apart, the last one ending with the row.

    Args:
        count: number of tokens.
        room: tokens per window, at least 2.

    Returns:
        int64 [windows], at least one.
    """
    if count <= room:
        return np.zeros(1, np.int64)
    starts = np.arange(0, count - room, room // 2)
    return np.append(starts, count - room)


def best_windows(tokens: np.ndarray, starts: np.ndarray, room: int) -> np.ndarray:
    """Return the window with the most context for each token: that with the nearest center, the first of equals.

    Args:
        tokens: int [P], positions in the row.
        starts: starts of `window_starts`.
        room: tokens per window.

    Returns:
        int64 [P], indices of `starts`.
    """
    middles = starts + (room - 1) / 2
    return np.searchsorted((middles[1:] + middles[:-1]) / 2, tokens)


def row_logits(model: Any) -> Callable[[dict[str, Any]], Any]:
    """Return the forward pass of a `BertForTask` from features [B, S], where every choice is a row of its own."""

    def logits(features: dict[str, Any]) -> Any:
        if model.head.inputs is Inputs.CHOICES:
            features = {name: values[:, None] for name, values in features.items()}  # [B, 1, S]
        return model(features)

    return logits


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


def _columns(pairs: Sequence[tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    return [first for first, _ in pairs], [second for _, second in pairs]


def _texts(pair: tuple[str, str | None]) -> Answer:
    return {"text": pair[0]} if pair[1] is None else {"text": pair[0], "text_pair": pair[1]}
