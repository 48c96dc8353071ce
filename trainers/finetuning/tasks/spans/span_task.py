"""Fine-tuning on questions whose answer is a span of a text: SQuAD 1.1 and 2.0 (paper, sections 4.2 and 4.3)."""

import argparse
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from beambert_common.command_line.flags import boolean, number, sequence_length, shortened
from beambert_common.command_line.path_flags import LOCAL_PATH
from tokenizer.tokenizer import Tokenizer
from trainers.config.finetune_config import FinetuneConfig, SquadConfig
from trainers.errors import TaskDataError
from trainers.finetuning.finetuning_task import DEV, TEST, TRAIN, Logits, Rows
from trainers.finetuning.tasks.spans.squad_answers import Answers, find_answers, write_answers
from trainers.finetuning.tasks.spans.squad_files import SquadFile, read_squad
from trainers.finetuning.tasks.spans.squad_scores import best_threshold, question_scores, scores_of_1_1, scores_of_2_0
from trainers.finetuning.tasks.spans.squad_windows import window_rows
from trainers.metrics.score_warnings import answer_warnings

DEFAULT_MAX_SEQ_LENGTH = 384
# In place of a number for --null_score_diff_threshold.
BEST = "best"
# Answers that the report shows, and how many of them may be wrong.
SHOWN, SHOWN_WRONG = 30, 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this task, by the names that run_squad.py has for them."""
    group = parser.add_argument_group("squad")
    group.add_argument(
        "--train_file",
        type=LOCAL_PATH,
        metavar="FILE",
        help="questions to train on (default: train-v1.1.json in --data_dir, train-v2.0.json with "
        "--version_2_with_negative, or train.json)",
    )
    group.add_argument(
        "--predict_file",
        type=LOCAL_PATH,
        metavar="FILE",
        help="questions to evaluate on and to predict for, with or without answers (default: dev-v1.1.json, "
        "dev-v2.0.json or dev.json, and for predictions a test file by such a name too)",
    )
    group.add_argument(
        "--version_2_with_negative",
        type=boolean,
        nargs="?",
        const=True,
        default=SquadConfig.version_2_with_negative,
        metavar="true|false",
        help="questions may have no answer, as in SQuAD 2.0",
    )
    group.add_argument(
        "--doc_stride",
        type=sequence_length,
        default=SquadConfig.doc_stride,
        metavar="N",
        help="pieces between the starts of two windows over a long text (default: %(default)s)",
    )
    group.add_argument(
        "--max_query_length",
        type=sequence_length,
        default=SquadConfig.max_query_length,
        metavar="N",
        help="pieces of a question that are read (default: %(default)s)",
    )
    group.add_argument(
        "--n_best_size",
        type=sequence_length,
        default=SquadConfig.n_best_size,
        metavar="N",
        help="answers a question in nbest_predictions.json, and starts and ends tried a window (default: %(default)s)",
    )
    group.add_argument(
        "--max_answer_length",
        type=sequence_length,
        default=SquadConfig.max_answer_length,
        metavar="N",
        help="pieces of the longest answer (default: %(default)s)",
    )
    group.add_argument(
        "--null_score_diff_threshold",
        type=_threshold,
        default=SquadConfig.null_score_diff_threshold,
        metavar="NUMBER|best",
        help="say that a question has no answer where null_odds.json has more than this for it; best: what is best "
        "for the f1 of the questions evaluated on (default: %(default)s)",
    )


def _threshold(text: str) -> float | str:
    if text == BEST:
        return text
    try:
        return number()(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{shortened(text)} is neither a number nor {BEST}") from None


class SpanTask:
    """Answer questions by spans; see `finetuning_task.FinetuningTask`.

    Args:
        files: by split.
        config: the flags of `add_arguments`.
    """

    name = "squad"
    head = "span"
    labels = None
    multi_label = False
    best_metric = "f1"

    def __init__(self, files: Mapping[str, SquadFile], config: FinetuneConfig) -> None:
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
        """Return the hex digest of questions, contexts, answers and the options of the windows."""
        content = json.dumps([self.files[split].digest(), split == TRAIN, self.windows], sort_keys=True)
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()

    def rows(self, split: str, tokenizer: Tokenizer, max_seq_length: int) -> Rows:
        """Return a row a window; see `squad_windows.window_rows`."""
        return window_rows(self.files[split], tokenizer, max_seq_length, training=split == TRAIN, **self.windows)

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
        """Return the scores of answering no question, which counts where some have no answer."""
        if not self.version_2:
            return {}
        golds = self._gold_answers(split)
        level = 100 * sum(not answers for answers in golds) / max(len(golds), 1)
        return {"exact_no_answer": level, "f1_no_answer": level}

    def write_predictions(self, split: str, rows: Rows, logits: Logits, output: Path) -> list[Path]:
        """Write predictions.json and so on; with the prefix "test_" for a test file beside a dev file."""
        answers = self._answers(split, rows, logits)
        prefix = "test_" if split == TEST and DEV in self.files else ""
        return write_answers(self.files[split], answers, output, self._used_threshold(split, answers), prefix)

    def details(self, split: str, rows: Rows, logits: Logits) -> dict[str, Any]:
        """Return a sample of the answers: the most confident wrong ones first, then the most confident right ones."""
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
        # Scores, files and details of one evaluation ask for the same.
        if self._found is None or self._found[0] != split or self._found[1] is not logits:
            self._found = split, logits, find_answers(self.files[split], rows, list(logits), **self.search)
        return self._found[2]

    def _gold_answers(self, split: str) -> list[list[str]]:
        return [[answer.text for answer in question.answers] for question in self.files[split].questions]

    def _used_threshold(self, split: str, answers: Sequence[Answers]) -> float:
        """Return the threshold as a number: the flag's, or the best one for f1."""
        if not isinstance(self.threshold, str):
            return self.threshold
        texts = [answer.best.text if answer.best else "" for answer in answers]
        scores = question_scores(self._gold_answers(split), texts)
        return best_threshold(scores.f1, scores.has_answer, texts, _null_odds(answers))[1]


def open_task(config: FinetuneConfig, wanted: Collection[str], labels: tuple[str, ...] | None) -> SpanTask:  # noqa: ARG001
    """Read and check the files.

    Where the test split is wanted, the predict file is read too, and a test file only if there is one: SQuAD's own is
    not public. A predict file without answers is the test split.

    Args:
        config: the flags of `add_arguments`, and data_dir, max_train_samples, max_eval_samples, max_predict_samples.
        wanted: of "train", "dev", "test".
        labels: of no use here.

    Raises:
        TaskDataError: a file is missing or cannot be used, or the threshold is to be the best one without answers to
            find it from.
    """
    if config.null_score_diff_threshold != 0.0 and not config.version_2_with_negative:
        raise TaskDataError(
            "--null_score_diff_threshold is for questions without answers; add --version_2_with_negative"
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
            raise TaskDataError(f"{file.path} has no answers to evaluate on; leave --do_eval out or give another file")
        else:
            files[TEST] = file.first(config.max_predict_samples)
    if test and TEST not in files:
        files[TEST] = read_squad(test, version_2=version_2).first(config.max_predict_samples)
    if config.null_score_diff_threshold == BEST and TEST in files:
        raise TaskDataError(
            f"{files[TEST].path} is predicted for with the threshold found on other questions; give "
            f"--null_score_diff_threshold as a number, such as best_f1_thresh of an evaluation, not as {BEST!r}"
        )
    return SpanTask(files, config)


def _names(config: FinetuneConfig, split: str) -> tuple[str, str]:
    return f"{split}-v{'2.0' if config.version_2_with_negative else '1.1'}.json", f"{split}.json"


def _existing_paths(config: FinetuneConfig, split: str) -> Path | None:
    if config.data_dir is None:
        return None
    paths = [Path(config.data_dir, name) for name in _names(config, split)]
    return next((path for path in paths if path.is_file()), None)


def _path(config: FinetuneConfig, flag: str, split: str) -> Path:
    value = getattr(config, flag)
    if value:
        return Path(value)
    path = _existing_paths(config, split)
    if path is None:
        where = f"{config.data_dir} has no" if config.data_dir is not None else "there is no --data_dir with a"
        raise TaskDataError(f"{where} {' or '.join(_names(config, split))}; put it there or give --{flag}")
    return path


def _null_odds(answers: Sequence[Answers]) -> list[float]:
    return [answer.null_odds or 0.0 for answer in answers]


def _gold_spans(file: SquadFile, number: int) -> list[list[int]]:
    """Return where the answers of a question are in its context; those found nowhere are left out."""
    question = file.questions[number]
    context = file.contexts[question.context]
    spans = []
    for text, start in question.answers:
        if start is None or context[start : start + len(text)] != text:
            start = context.find(text)
        if start >= 0 and text and [start, start + len(text)] not in spans:
            spans.append([start, start + len(text)])
    return spans
