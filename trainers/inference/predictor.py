"""Predict texts with a fine-tuned model, as JSON-serializable values; `predict` prints them.

Letters in shapes: N texts, S_i tokens of row i, n labels.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from beambert.bert_model.checkpoints.variable_names import FEATURE_BASED, PRETRAINING
from beambert.tokenizer.normalization import is_whitespace
from beambert.tokenizer.wordpiece import CONTINUATION
from beambert.trainers.data.text_encoding import UnknownTokens, encode_texts
from beambert.trainers.errors import TrainingError
from beambert.trainers.finetuning.tasks.spans.squad_answers import Answers
from beambert.trainers.finetuning.tasks.tagging.tag_schemes import entities_of, scheme_of_labels
from beambert.trainers.inference.model_loading import InferenceModel, text_length
from beambert.trainers.inference.spans import answer_questions
from beambert.trainers.inference.tokenization import PAIR_SEPARATOR, split_pair, split_texts
from beambert.trainers.metrics.task_metrics import sigmoid, softmax

Answer = dict[str, Any]
WORDS_AT = ("punctuation", "whitespace")
# Threshold of the labels of a multi-label model.
THRESHOLD = 0.5


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

        if inference_model.task == PRETRAINING:
            raise TrainingError(
                f"{inference_model.path} is a pretrained model without a task head: fine-tune it first, or use "
                "beambert fill-mask"
            )
        for flag, value, tasks in (
            ("--question", question, ("span",)),
            ("--null_score_diff_threshold", null_score_diff_threshold, ("span",)),
            ("--words_at", words_at, ("token_classification", FEATURE_BASED)),
        ):
            if value is not None and inference_model.task not in tasks:
                raise TrainingError(
                    f"{flag} is a flag for {tasks[0]} models, and {inference_model.path} is a "
                    f"{inference_model.task} model: omit it"
                )
        if threshold is not None and not inference_model.multi_label:
            raise TrainingError(
                f"--threshold is a flag for models with several labels per text, and {inference_model.path} has one: "
                "omit it"
            )
        for flag, number in (("--batch_size", batch_size), ("--top_k", top_k)):
            if number is not None and number < 1:
                raise TrainingError(f"invalid {flag} {number}: must be at least 1")
        self.inference_model, self.batch_size, self.top_k, self.question = inference_model, batch_size, top_k, question
        self.max_seq_length = text_length(inference_model, max_seq_length)
        self.threshold = THRESHOLD if threshold is None else threshold
        self.null_score_diff_threshold, self.words_at = null_score_diff_threshold, words_at or WORDS_AT[0]
        self.tokenizer = inference_model.tokenizer()
        self.unknown = UnknownTokens(self.tokenizer)
        self.cut = self.doubtful = 0
        self._forward = TextForward(
            inference_model, task_logits(inference_model.model), self.max_seq_length, self.batch_size
        )
        self._answers = _ANSWERS[inference_model.task]

    def answers(self, texts: Sequence[str], locations: Sequence[str]) -> list[Answer]:
        """Return the prediction for each text, in the order of the texts.

        The fields depend on the task:

        - classification: text, text_pair, and the most probable labels with probabilities; for multi-label models the
          labels with a probability of at least the threshold, and the probabilities of all
        - regression: text, text_pair, score
        - multiple_choice: text, choices, choice (index), probabilities
        - span: question, context, answer as in predictions.json of `finetune squad`, start and end (character offsets
          in the context), score, null_score; no answer is "" with start and end -1
        - token_classification: text, entities and words with start and end (character offsets in the text)

        Args:
            texts: N texts, or pairs separated by " ||| "; for multiple_choice a text and its choices; for span a
                context, or a question and a context where no question was given.
            locations: location of each text, for messages.

        Returns:
            N dictionaries with the fields of the task.

        Raises:
            TrainingError: a text lacks a part that the task needs.
        """
        self.check(texts, locations)
        return self._answers(self, texts)

    def check(self, texts: Sequence[str], locations: Sequence[str]) -> None:
        """Check that each text has the parts that the task needs, without predicting.

        Args:
            texts, locations: as for `answers`.

        Raises:
            TrainingError: a text lacks a part, or is a pair for a model that was fine-tuned on single texts.
        """
        task, path, pairs = self.inference_model.task, self.inference_model.path, self.inference_model.text_pairs
        for text, location in zip(texts, locations, strict=True):
            separators = len(split_texts(text)) - 1
            if task == "multiple_choice" and separators < 2:
                raise TrainingError(f"{location} has fewer than two choices: write 'text ||| choice ||| choice'")
            if task == "span" and self.question is None and not separators:
                raise TrainingError(f"{location} has no question: write 'question ||| context', or use --question")
            if task in ("classification", "regression") and pairs is not None and pairs != bool(separators):
                single = "a single text" if text.strip() else "empty"
                raise TrainingError(
                    f"{location} is {single}, and {path} was fine-tuned on pairs: write 'a text{PAIR_SEPARATOR}another'"
                    if pairs
                    else f"{location} is a pair of texts, and {path} was fine-tuned on single texts: write one text, "
                    f"without '{PAIR_SEPARATOR}'"
                )

    def _logits(self, rows: Sequence[np.ndarray], segments: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the logits of each row, float32; each choice is a row.

        Shapes: [n], [] for regression, [1] for multiple_choice, [S, n] for token classification and [2, S] for span,
        where S is at least S_i.
        """
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
        if self.inference_model.text_pairs is None and self.inference_model.likely_pairs:
            self.doubtful += sum(second is None for _, second in pairs)
        return pairs

    def _classification(self, texts: Sequence[str]) -> list[Answer]:
        pairs = self._pairs(texts)
        logits = self._logits_of_texts(*_columns(pairs))
        activation = sigmoid if self.inference_model.multi_label else softmax
        answers = []
        for pair, probabilities in zip(pairs, activation(np.stack(logits)), strict=True):  # [n]
            order = np.argsort(-probabilities, kind="stable").tolist()
            likely = [i for i in order if probabilities[i] >= self.threshold]
            shown = likely if self.inference_model.multi_label else order[: self.top_k]
            labels = [
                {"label": self.inference_model.labels[i], "probability": _rounded(probabilities[i])} for i in shown
            ]
            answer = {**_texts(pair), "labels": labels}
            if self.inference_model.multi_label:
                names = self.inference_model.labels
                answer["probabilities"] = dict(zip(names, map(_rounded, probabilities), strict=True))
            answers.append(answer)
        return answers

    def _regression(self, texts: Sequence[str]) -> list[Answer]:
        pairs = self._pairs(texts)
        logits = self._logits_of_texts(*_columns(pairs))
        return [{**_texts(pair), "score": _rounded(float(value))} for pair, value in zip(pairs, logits, strict=True)]

    def _multiple_choice(self, texts: Sequence[str]) -> list[Answer]:
        split = [split_texts(text) for text in texts]
        pairs = [(context, choice) for context, *choices in split for choice in choices]
        text_of_row = [number for number, (_, *choices) in enumerate(split) for _ in choices]
        logits = np.array(self._logits_of_texts(*_columns(pairs), text_of_row)).ravel()  # [choices of all]
        ends = np.cumsum([len(parts) - 1 for parts in split])
        answers = []
        for (context, *choices), values in zip(split, np.split(logits, ends[:-1]), strict=True):
            probabilities = [_rounded(value) for value in softmax(values[None])[0]]
            answers.append(
                {"text": context, "choices": choices, "choice": int(values.argmax()), "probabilities": probabilities}
            )
        return answers

    def _span(self, texts: Sequence[str]) -> list[Answer]:
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
            "score": _rounded(best.score),
            "null_score": _rounded(no_answer.score),
        }

    def _token_classification(self, texts: Sequence[str]) -> list[Answer]:
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
            words = self._words(text, ids[first:last], offsets[first:last])
            chosen = best_windows(words[:, 0], starts, self.max_seq_length - 2)
            labeled_words = []
            for (token, start, end), window in zip(words.tolist(), chosen.tolist(), strict=True):
                # After [CLS].
                (probabilities,) = softmax(logits[first_row + window][None, 1 + token - starts[window]])
                best = int(probabilities.argmax())
                label = {"label": self.inference_model.labels[best], "probability": _rounded(probabilities[best])}
                labeled_words.append({"word": text[start:end], "start": start, "end": end, **label})
            answers.append({"text": text, "entities": self._entities(text, labeled_words), "words": labeled_words})
        return answers

    def _words(self, text: str, ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
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


_ANSWERS: dict[str, Callable[[Predictor, Sequence[str]], list[Answer]]] = {
    "classification": Predictor._classification,
    "regression": Predictor._regression,
    "multiple_choice": Predictor._multiple_choice,
    "span": Predictor._span,
    "token_classification": Predictor._token_classification,
    FEATURE_BASED: Predictor._token_classification,
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


def task_logits(model: Any) -> Callable[[dict[str, Any]], Any]:
    """Return the forward pass of a `BertForTask` as a function to one tensor, from features [B, S].

    The start and end logits of a span model are stacked to [B, 2, S]; every choice is an example of its own.
    """
    from keras import ops

    def logits(features: dict[str, Any]) -> Any:
        if model.task == "multiple_choice":
            features = {name: values[:, None] for name, values in features.items()}  # [B, 1, S]
        outputs = model(features)
        return ops.stack(outputs, axis=1) if model.task == "span" else outputs

    return logits


def _columns(pairs: Sequence[tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    return [first for first, _ in pairs], [second for _, second in pairs]


def _texts(pair: tuple[str, str | None]) -> Answer:
    return {"text": pair[0]} if pair[1] is None else {"text": pair[0], "text_pair": pair[1]}


def _rounded(value: float) -> float:
    return round(float(value), 6)
