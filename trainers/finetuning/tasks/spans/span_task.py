"""The task `squad`: extractive question answering on SQuAD 1.1 and 2.0 (paper, sections 4.2 and 4.3)."""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from beambert.tokenizer.tokenizer import Tokenizer
from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.finetuning_task import DEV, TEST, TRAIN, Logits, Rows
from beambert.trainers.finetuning.options import BEST, FinetuneOptions
from beambert.trainers.finetuning.tasks.spans.squad_answers import Answers, find_answers, write_answers
from beambert.trainers.finetuning.tasks.spans.squad_files import SquadFile, read_squad
from beambert.trainers.finetuning.tasks.spans.squad_scores import (
    applied_threshold,
    question_scores,
    scores_of_1_1,
    scores_of_2_0,
)
from beambert.trainers.finetuning.tasks.spans.squad_windows import window_rows
from beambert.trainers.metrics.score_warnings import answer_warnings

DEFAULT_MAX_SEQ_LENGTH = 384
# Maximum number of answers in the report, and of wrong answers among them.
SHOWN, SHOWN_WRONG = 30, 20


class SpanTask:
    """Extractive question answering; see `finetuning_task.FinetuningTask`.

    Args:
        files: SQuAD files by split.
        config: options, among them `SquadOptions`.
    """

    name = "squad"
    head = "span"
    labels = None
    multi_label = False
    best_metric = "f1"

    def __init__(self, files: Mapping[str, SquadFile], config: FinetuneOptions) -> None:
        self.files = dict(files)
        self.version_2: bool = config.version_2_with_negative
        self.windows = {"doc_stride": config.doc_stride, "max_query_length": config.max_query_length}
        self.search: dict[str, Any] = {
            "n_best_size": config.n_best_size,
            "max_answer_length": config.max_answer_length,
            "version_2": self.version_2,
        }
        self.threshold: float | str = config.null_score_diff_threshold
        self._found: tuple[str, Logits, list[Answers]] | None = None
        self.splits = tuple(self.files)
        self.predict_splits = tuple(split for split in self.files if split != TRAIN)
        self.eval_splits = tuple(split for split in self.predict_splits if split == DEV)

    def fingerprint(self, split: str) -> str:
        """Return the hex digest of the questions, contexts, answers and window options."""
        content = json.dumps([self.files[split].digest(), split == TRAIN, self.windows], sort_keys=True)
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()

    def rows(self, split: str, tokenizer: Tokenizer, max_seq_length: int) -> Rows:
        """Return one row per window; see `squad_windows.window_rows`."""
        return window_rows(self.files[split], tokenizer, max_seq_length, training=split == TRAIN, **self.windows)

    def truncation(self, split: str, rows: Rows, max_seq_length: int) -> str:  # noqa: ARG002
        """Return the number of truncated questions; contexts are not truncated."""
        questions = len(self.files[split].questions) - rows.skipped
        limit = self.windows["max_query_length"]
        return f"{rows.truncated} of {questions} {split} questions exceed --max_query_length {limit} and were truncated"

    def emptiness(self, split: str, rows: Rows) -> str:
        """Return the number of questions with an empty question or context, and the id of the first."""
        file = self.files[split]
        first = file.where(int(rows.empty[0]))
        return (
            f"{len(rows.empty)} of {len(file.questions)} {split} questions are empty or have an empty context, the "
            f"first is {first}; add the text or remove the questions"
        )

    def texts(self, split: str) -> Iterator[str]:
        """Yield all questions and contexts."""
        file = self.files[split]
        yield from (question.text for question in file.questions)
        yield from file.contexts

    def metrics(self, split: str, rows: Rows, logits: Logits) -> dict[str, float]:
        """Return exact_match and f1, or with --version_2_with_negative the keys of `squad_scores.scores_of_2_0`."""
        answers = self._answers(split, rows, logits)
        threshold = self._used_threshold(split, answers)
        golds = self._gold_answers(split)
        texts = [answer.chosen(threshold).text for answer in answers]
        if not self.version_2:
            return scores_of_1_1(golds, texts)
        return scores_of_2_0(golds, texts, _null_odds(answers))

    def chance_levels(self, split: str, rows: Rows) -> dict[str, float]:  # noqa: ARG002
        """Return the scores of predicting no answer for every question, where some questions have no answer."""
        if not self.version_2:
            return {}
        golds = self._gold_answers(split)
        level = 100 * sum(not answers for answers in golds) / max(len(golds), 1)
        return {"exact_no_answer": level, "f1_no_answer": level}

    def write_predictions(self, split: str, rows: Rows, logits: Logits, output: Path) -> list[Path]:
        """Write predictions.json and the other answer files, with the prefix "test_" where a dev file exists too."""
        answers = self._answers(split, rows, logits)
        prefix = "test_" if split == TEST and DEV in self.files else ""
        return write_answers(self.files[split], answers, output, self._used_threshold(split, answers), prefix)

    def details(self, split: str, rows: Rows, logits: Logits) -> dict[str, Any]:
        """Return a sample of the answers: the most confident wrong answers, then the most confident right answers."""
        file = self.files[split]
        answers = self._answers(split, rows, logits)
        threshold = self._used_threshold(split, answers)
        chosen = [answer.chosen(threshold) for answer in answers]
        scores = question_scores(self._gold_answers(split), [candidate.text for candidate in chosen])
        exact = scores.exact
        probabilities = [
            answer.probabilities()[answer.n_best.index(candidate)] if candidate in answer.n_best else 0.0
            for answer, candidate in zip(answers, chosen, strict=True)
        ]
        order = sorted(range(len(answers)), key=lambda number: -probabilities[number])
        right = [number for number in order if exact[number]]
        wrong = [number for number in order if not exact[number]]
        wrong = wrong[: max(SHOWN_WRONG, SHOWN - len(right))]
        return {
            "warnings": answer_warnings(split, scores.has_answer, exact, [candidate.text for candidate in chosen]),
            "answers": [
                {
                    "location": file.where(number),
                    "question": file.questions[number].text,
                    "context": file.contexts[file.questions[number].context],
                    "answers": _gold_spans(file, number),
                    "prediction": list(span) if (span := chosen[number].span) else None,
                    "text": chosen[number].text,
                    "probability": probabilities[number],
                    "exact": bool(exact[number]),
                }
                for number in [*wrong, *right[: SHOWN - len(wrong)]]
            ],
        }

    def _answers(self, split: str, rows: Rows, logits: Logits) -> list[Answers]:
        # Cached, since metrics, files and details of an evaluation use the same answers.
        if self._found is None or self._found[0] != split or self._found[1] is not logits:
            self._found = split, logits, find_answers(self.files[split], rows, list(logits), **self.search)
        return self._found[2]

    def _gold_answers(self, split: str) -> list[list[str]]:
        return [[answer.text for answer in question.answers] for question in self.files[split].questions]

    def _used_threshold(self, split: str, answers: Sequence[Answers]) -> float:
        """Return the threshold: the value of the flag, or the one with the highest F1."""
        if not isinstance(self.threshold, str):
            return self.threshold
        texts = [answer.best.text if answer.best else "" for answer in answers]
        scores = question_scores(self._gold_answers(split), texts)
        return applied_threshold(scores.f1, scores.has_answer, texts, _null_odds(answers))


def open_task(config: FinetuneOptions, wanted: Collection[str], labels: tuple[str, ...] | None) -> SpanTask:  # noqa: ARG001
    """Read and validate the files.

    With the test split, the predict file is read too. A test file is optional, since that of SQuAD is not public. A
    predict file without answers is the test split.

    Args:
        config: the flags of `add_arguments`, and data_dir, max_train_samples, max_eval_samples, max_predict_samples.
        wanted: subset of "train", "dev" and "test".
        labels: unused.

    Raises:
        TaskDataError: a file is missing or invalid, or --null_score_diff_threshold best is set without answers.
    """
    if config.null_score_diff_threshold != 0.0 and not config.version_2_with_negative:
        raise TaskDataError(
            "--null_score_diff_threshold applies to questions without answers only: add --version_2_with_negative"
        )
    version_2 = config.version_2_with_negative
    files: dict[str, SquadFile] = {}
    if TRAIN in wanted:
        path = _path(config, "train_file", TRAIN)
        files[TRAIN] = read_squad(path, version_2=version_2, training=True).first(config.max_train_samples)
    test = _existing_paths(config, TEST) if TEST in wanted and not config.predict_file else None
    if DEV in wanted or (TEST in wanted and (config.predict_file or _existing_paths(config, DEV) or not test)):
        file = read_squad(_path(config, "predict_file", DEV), version_2=version_2)
        if file.labeled:
            files[DEV] = file.first(config.max_eval_samples)
        elif config.do_eval:
            raise TaskDataError(
                f"{file.path} has no answers, which --do_eval requires: omit --do_eval or use another file"
            )
        else:
            files[TEST] = file.first(config.max_predict_samples)
    if test and TEST not in files:
        files[TEST] = read_squad(test, version_2=version_2).first(config.max_predict_samples)
    if config.null_score_diff_threshold == BEST and TEST in files:
        raise TaskDataError(
            f"--null_score_diff_threshold {BEST} needs answers, which {files[TEST].path} does not have: use a number, "
            "such as best_f1_thresh of an evaluation"
        )
    return SpanTask(files, config)


def _names(config: FinetuneOptions, split: str) -> tuple[str, str]:
    return f"{split}-v{'2.0' if config.version_2_with_negative else '1.1'}.json", f"{split}.json"


def _existing_paths(config: FinetuneOptions, split: str) -> Path | None:
    if config.data_dir is None:
        return None
    paths = [Path(config.data_dir, name) for name in _names(config, split)]
    return next((path for path in paths if path.is_file()), None)


def _path(config: FinetuneOptions, flag: str, split: str) -> Path:
    value = getattr(config, flag)
    if value:
        return Path(value)
    path = _existing_paths(config, split)
    if path is None:
        names = " or ".join(_names(config, split))
        if config.data_dir is None:
            raise TaskDataError(f"--data_dir or --{flag} is missing: give a directory with {names}, or the file")
        raise TaskDataError(f"{config.data_dir} does not contain {names}: add the file, or give --{flag}")
    return path


def _null_odds(answers: Sequence[Answers]) -> list[float]:
    return [answer.null_odds or 0.0 for answer in answers]


def _gold_spans(file: SquadFile, number: int) -> list[list[int]]:
    """Return the character spans of a question's answers in its context, without answers that are not in it."""
    question = file.questions[number]
    context = file.contexts[question.context]
    spans = []
    for text, start in question.answers:
        if start is None or context[start : start + len(text)] != text:
            start = context.find(text)
        if start >= 0 and text and [start, start + len(text)] not in spans:
            spans.append([start, start + len(text)])
    return spans
