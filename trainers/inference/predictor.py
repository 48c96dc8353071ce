"""A fine-tuned model's predictions of texts, as values that fit JSON; `predict` prints them.

Letters in shapes: N texts, S_i tokens of row i, n labels.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bert_model.checkpoints.variable_names import FEATURE_BASED, PRETRAINING
from tokenizer.normalization import is_whitespace
from tokenizer.tokenizer import Tokenizer
from tokenizer.wordpiece import CONTINUATION
from trainers.data.text_encoding import encode_texts
from trainers.errors import TrainingError
from trainers.finetuning.tasks.tagging.tag_schemes import entities_of, scheme_of_labels
from trainers.inference.model_loading import InferenceModel, text_length
from trainers.inference.tokenization import PAIR_SEPARATOR, batches_by_length, model_inputs, split_pair
from trainers.metrics.task_metrics import sigmoid, softmax

Answer = dict[str, Any]
WORDS_AT = ("punctuation", "whitespace")
# A label of several is given above this probability.
_LIKELY = 0.5


class Predictor:
    """Predict with a fine-tuned model; TensorFlow must have been started.

    Args:
        opened: the model.
        max_seq_length: as of `model_loading.text_length`.
        batch_size: rows computed together.
        top_k: labels of a text, the likeliest, or fewer if there are not as many.
        question: what is asked of every text, for a model of answer spans; None if each brings its own.
        null_score_diff_threshold: there is no answer where null_score - score exceeds it; None if there always is one.
        words_at: where the words of a token classifier end: "punctuation", as the tokenizer splits them, or
            "whitespace" alone, for texts that were split before.

    Attributes:
        cut: texts so far that were too long; answer spans and token classification read on in windows instead.
        doubtful: texts so far that are single where the model seems to be one of pairs, or the reverse.

    Raises:
        TrainingError: the model has no head of a task, an option that is not its task's, or a length that it cannot
            read.
    """

    def __init__(
        self,
        opened: InferenceModel,
        *,
        max_seq_length: int | None = None,
        batch_size: int = 32,
        top_k: int = 5,
        question: str | None = None,
        null_score_diff_threshold: float | None = None,
        words_at: str | None = None,
    ) -> None:
        from trainers.inference.signatures import forward_function

        if opened.task == PRETRAINING:
            raise TrainingError(
                f"{opened.path} is a pretrained model without the head of a task; fine-tune it first, or let it fill "
                "[MASK] with beambert fill-mask"
            )
        for flag, value, tasks in (
            ("--question", question, ("span",)),
            ("--null_score_diff_threshold", null_score_diff_threshold, ("span",)),
            ("--words_at", words_at, ("token_classification", FEATURE_BASED)),
        ):
            if value is not None and opened.task not in tasks:
                raise TrainingError(
                    f"{flag} is for models of {tasks[0]}, {opened.path} is one of {opened.task}; leave it out"
                )
        for flag, number in (("--batch_size", batch_size), ("--top_k", top_k)):
            if number < 1:
                raise TrainingError(f"{flag} is {number}; give 1 or more")
        self.opened, self.batch_size, self.top_k, self.question = opened, batch_size, top_k, question
        self.max_seq_length = text_length(opened, max_seq_length)
        self.null_score_diff_threshold, self.words_at = null_score_diff_threshold, words_at or WORDS_AT[0]
        self.tokenizer = Tokenizer(opened.vocabulary, opened.do_lower_case)
        self.cut = self.doubtful = 0
        self._forward = forward_function(opened)
        self._answers = _ANSWERS[opened.task]

    def answers(self, texts: Sequence[str], places: Sequence[str]) -> list[Answer]:
        """Return the model's answer to each text, in their order.

        classification: text, text_pair, and labels with their probabilities: the likeliest, or with several labels a
        text those above a half. regression: text, text_pair, score. multiple_choice: text, choices, choice (the
        place in them), probabilities. span: question, context, answer, start and end in characters of the context,
        score, null_score; "" from -1 to -1 where there is no answer. token_classification: text, entities and words
        with start and end in characters of the text.

        Args:
            texts: N texts, or pairs around " ||| "; for multiple_choice a text and its choices so; for span a context
                or, where no question was given, a question and its context so.
            places: of each, for messages.

        Raises:
            TrainingError: a text without what the task needs.
        """
        return self._answers(self, texts, places)

    def _logits(self, rows: Sequence[np.ndarray], segments: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the logits of each row, float32: [n], or [] for a score, or [S_i, n]; a choice is a row."""
        row_logits: list[np.ndarray] = [np.empty(0)] * len(rows)
        for batch in batches_by_length([len(row) for row in rows], self.batch_size):
            pad_id = self.opened.vocabulary.pad_id
            inputs = model_inputs([rows[i] for i in batch], [segments[i] for i in batch], pad_id, self.max_seq_length)
            features = dict(zip(("input_ids", "input_mask", "segment_ids"), inputs, strict=True))  # [B, S]
            if self.opened.task == "multiple_choice":
                features = {name: values[:, None] for name, values in features.items()}  # [B, 1, S]
            logits = self._forward(features).numpy()
            for place, i in enumerate(batch):
                row_logits[i] = logits[place]
        return row_logits

    def _logits_of_texts(self, firsts: Sequence[str], seconds: Sequence[str | None]) -> list[np.ndarray]:
        encoded = encode_texts(firsts, seconds, self.tokenizer, self.max_seq_length)
        self.cut += int(encoded.truncated.sum())
        return self._logits(*encoded.by_row())

    def _pairs(self, texts: Sequence[str], places: Sequence[str]) -> list[tuple[str, str | None]]:
        """Return texts or pairs of texts.

        Raises:
            TrainingError: a single text for a model that was fine-tuned on pairs, or the reverse.
        """
        pairs = [split_pair(text) for text in texts]
        known, likely, path = self.opened.text_pairs, self.opened.likely_pairs, self.opened.path
        for (_, second), place in zip(pairs, places, strict=True):
            is_pair = second is not None
            if known is not None and is_pair != known:
                raise TrainingError(
                    f"{place} is one text, and {path} was fine-tuned on pairs; write 'a text{PAIR_SEPARATOR}another'"
                    if known
                    else f"{place} is a pair of texts, and {path} was fine-tuned on single texts; give one text, "
                    f"without '{PAIR_SEPARATOR}'"
                )
            self.doubtful += known is None and likely is not None and is_pair != likely
        return pairs

    def _classification(self, texts: Sequence[str], places: Sequence[str]) -> list[Answer]:
        pairs = self._pairs(texts, places)
        logits = self._logits_of_texts(*_columns(pairs))
        activation = sigmoid if self.opened.multi_label else softmax
        answers = []
        for pair, probabilities in zip(pairs, activation(np.stack(logits)), strict=True):  # [n]
            order = np.argsort(-probabilities, kind="stable").tolist()
            likely = [i for i in order if probabilities[i] > _LIKELY]
            shown = likely if self.opened.multi_label else order[: self.top_k]
            labels = [{"label": self.opened.labels[i], "probability": _rounded(probabilities[i])} for i in shown]
            answers.append({**_texts(pair), "labels": labels})
        return answers

    def _regression(self, texts: Sequence[str], places: Sequence[str]) -> list[Answer]:
        pairs = self._pairs(texts, places)
        logits = self._logits_of_texts(*_columns(pairs))
        return [{**_texts(pair), "score": _rounded(float(value))} for pair, value in zip(pairs, logits, strict=True)]

    def _multiple_choice(self, texts: Sequence[str], places: Sequence[str]) -> list[Answer]:
        split = [text.strip().split(PAIR_SEPARATOR) for text in texts]
        for parts, place in zip(split, places, strict=True):
            if len(parts) < 3:
                raise TrainingError(f"{place} has less than two choices; write 'text ||| choice ||| choice'")
        pairs = [(context, choice) for context, *choices in split for choice in choices]
        logits = np.array(self._logits_of_texts(*_columns(pairs))).ravel()  # [choices of all]
        ends = np.cumsum([len(parts) - 1 for parts in split])
        answers = []
        for (context, *choices), values in zip(split, np.split(logits, ends[:-1]), strict=True):
            probabilities = [_rounded(value) for value in softmax(values[None])[0]]
            answers.append(
                {"text": context, "choices": choices, "choice": int(values.argmax()), "probabilities": probabilities}
            )
        return answers

    def _span(self, texts: Sequence[str], places: Sequence[str]) -> list[Answer]:
        if self.question is None:
            split = [text.strip().partition(PAIR_SEPARATOR) for text in texts]
            pairs = [(question, context) for question, _, context in split]
            for text, place in zip(texts, places, strict=True):
                if PAIR_SEPARATOR not in text.strip():
                    raise TrainingError(f"{place} has no question; write 'question ||| context', or give --question")
        else:
            pairs = [(self.question, text.rstrip("\r\n")) for text in texts]
        answers: list[Answer] = [{}] * len(pairs)
        for batch in batches_by_length([len(context) for _, context in pairs], self.batch_size):
            for i, answer in zip(batch, self._spans([pairs[i] for i in batch]), strict=True):
                answers[i] = answer
        return answers

    def _spans(self, pairs: Sequence[tuple[str, str]]) -> list[Answer]:
        import tensorflow as tf

        from tokenizer.in_graph import InGraphTokenizer
        from trainers.inference.span_signatures import answer_spans

        if not hasattr(self, "_in_graph"):
            self._in_graph = InGraphTokenizer(self.opened.vocabulary, self.opened.do_lower_case)

        def forward(features: dict[str, Any]) -> tuple[Any, Any]:
            # A long context has many windows; no more of them at once than of texts.
            count = len(features["input_ids"])
            parts = [
                self._forward({name: values[start : start + self.batch_size] for name, values in features.items()})
                for start in range(0, count, self.batch_size)
            ]
            return tuple(tf.concat(logits, axis=0) for logits in zip(*parts, strict=True))  # [W, S] each

        questions, contexts = (tf.constant(column) for column in _columns(pairs))
        spans = answer_spans(forward, self._in_graph, self.opened.vocabulary, questions, contexts, self.max_seq_length)
        values = {name: tensor.numpy() for name, tensor in spans.items()}
        return [
            self._answer_span(question, context, {name: column[i] for name, column in values.items()})
            for i, (question, context) in enumerate(pairs)
        ]

    def _answer_span(self, question: str, context: str, span: dict[str, Any]) -> Answer:
        start, end, data = int(span["start"]), int(span["end"]), context.encode()
        score, null_score = float(span["score"]), float(span["null_score"])
        threshold = self.null_score_diff_threshold
        if start < 0 or (threshold is not None and null_score - score > threshold):
            start = end = -1
        else:
            # From bytes to characters.
            start, end = len(data[:start].decode()), len(data[:end].decode())
        return {
            "question": question,
            "context": context,
            "answer": context[start:end] if end >= 0 else "",
            "start": start,
            "end": end,
            "score": _rounded(score),
            "null_score": _rounded(null_score),
        }

    def _token_classification(self, texts: Sequence[str], _places: Sequence[str]) -> list[Answer]:
        texts = [text.rstrip("\r\n") for text in texts]
        ids, splits, offsets = self.tokenizer.encode_batch_with_offsets(texts)
        rows: list[np.ndarray] = []
        windows = []
        vocabulary = self.opened.vocabulary
        for first, last in itertools.pairwise(splits.tolist()):
            starts = window_starts(last - first, self.max_seq_length - 2)
            windows.append((len(rows), starts))
            for start in starts.tolist():
                part = ids[first + start : last][: self.max_seq_length - 2]
                rows.append(np.array([vocabulary.cls_id, *part, vocabulary.sep_id], np.int32))
        logits = self._logits(rows, [np.zeros_like(row) for row in rows])
        answers = []
        for text, (first_row, starts), (first, last) in zip(
            texts, windows, itertools.pairwise(splits.tolist()), strict=True
        ):
            words = self._words(text, ids[first:last], offsets[first:last])
            chosen = best_windows(words[:, 0], starts, self.max_seq_length - 2)
            labeled_words = []
            for (token, start, end), window in zip(words.tolist(), chosen.tolist(), strict=True):
                # After [CLS].
                (probabilities,) = softmax(logits[first_row + window][None, 1 + token - starts[window]])
                best = int(probabilities.argmax())
                label = {"label": self.opened.labels[best], "probability": _rounded(probabilities[best])}
                labeled_words.append({"word": text[start:end], "start": start, "end": end, **label})
            answers.append({"text": text, "entities": self._entities(text, labeled_words), "words": labeled_words})
        return answers

    def _words(self, text: str, ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Return the first token of each word, and the word's start and end in the text; int64 [words, 3]."""
        tokens = self.opened.vocabulary.tokens
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
        scheme = scheme_of_labels(self.opened.labels)
        if scheme is None:
            return []
        tags = [word["label"] for word in words]
        texts = []
        entities = entities_of(tags, np.array([0, len(tags)]), scheme)
        for first, end, kind in zip(*(values.tolist() for values in entities), strict=True):
            start, stop = words[first]["start"], words[end - 1]["end"]
            texts.append({"type": kind, "text": text[start:stop], "start": start, "end": stop})
        return texts


_ANSWERS: dict[str, Callable[[Predictor, Sequence[str], Sequence[str]], list[Answer]]] = {
    "classification": Predictor._classification,
    "regression": Predictor._regression,
    "multiple_choice": Predictor._multiple_choice,
    "span": Predictor._span,
    "token_classification": Predictor._token_classification,
    FEATURE_BASED: Predictor._token_classification,
}


def window_starts(count: int, room: int) -> np.ndarray:
    """Return the starts of windows over a row of tokens: half a window apart, the last ending with the row.

    Args:
        count: tokens.
        room: tokens of a window, at least 2.

    Returns:
        int64 [windows], one at least.
    """
    if count <= room:
        return np.zeros(1, np.int64)
    starts = np.arange(0, count - room, room // 2)
    return np.append(starts, count - room)


def best_windows(tokens: np.ndarray, starts: np.ndarray, room: int) -> np.ndarray:
    """Return the window with the most context for each token: the one with the nearest middle, the first of equals.

    Args:
        tokens: int [P], places in the row.
        starts: of `window_starts`.
        room: tokens of a window.

    Returns:
        int64 [P], places in `starts`.
    """
    middles = starts + (room - 1) / 2
    return np.searchsorted((middles[1:] + middles[:-1]) / 2, tokens)


def _columns(pairs: Sequence[tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    return [first for first, _ in pairs], [second for _, second in pairs]


def _texts(pair: tuple[str, str | None]) -> Answer:
    return {"text": pair[0]} if pair[1] is None else {"text": pair[0], "text_pair": pair[1]}


def _rounded(value: float) -> float:
    return round(float(value), 6)
