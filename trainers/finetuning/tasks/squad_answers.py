"""Convert logits of windows to answers: the n best texts of each question, the null odds, and their files.

Follows `write_predictions` and `get_final_text` in google-research/bert, run_squad.py, except where it crashes. There
logits are as long as the longest row, so padding can be among the 20 best; here the 20 best are from the row itself.

Letters in shapes: N rows, Q questions, K the best starts or ends of a row, M candidates, P tokens of all contexts.
"""

import dataclasses
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from beambert.common.local_files import write_atomic
from beambert.common.word_rules import WordRules
from beambert.tokenizer.normalization import split_words
from beambert.trainers.finetuning.finetuning_task import Rows
from beambert.trainers.finetuning.tasks.squad_files import SquadFile
from beambert.trainers.finetuning.tasks.squad_windows import SPACING, Words

# Null odds of a question without any candidate text; the released code crashes.
ONLY_NULL = 1e6
_CHUNK = 2048  # Maximum number of rows searched at a time.
_CHUNK_PAIRS = 8 << 20  # Maximum number of pairs of a start and an end in them, of several questions.
_BLOCK = 32  # Candidates converted to text at a time.


class Candidate(NamedTuple):
    """One of the n best answers.

    Attributes:
        text: the answer; "" for no answer, and "empty", as in the released code, where no candidate remains.
        start_logit, end_logit: logits of the model.
        span: character span of the text in its context, end exclusive; None for no text.
    """

    text: str
    start_logit: float
    end_logit: float
    span: tuple[int, int] | None

    @property
    def score(self) -> float:
        """Return the sum of both logits, the sort key of candidates."""
        return self.start_logit + self.end_logit


@dataclasses.dataclass(frozen=True)
class Answers:
    """The answers to one question.

    Attributes:
        n_best: candidates with distinct texts, best first; with version_2 they include "", if necessary as an extra.
        best: the best candidate with a text, if any.
        null_odds: score of no answer minus the score of the best text; None without version_2.
    """

    n_best: tuple[Candidate, ...]
    best: Candidate | None
    null_odds: float | None

    def chosen(self, threshold: float) -> Candidate:
        """Return the answer: with version_2 "" if the null odds exceed the threshold, else the best text."""
        if self.null_odds is None:
            return self.n_best[0]
        if self.best is None or self.null_odds > threshold:
            return next(candidate for candidate in self.n_best if not candidate.text)
        return self.best

    def probabilities(self) -> list[float]:
        """Return the softmax over the scores of the n best."""
        largest = max(candidate.score for candidate in self.n_best)
        powers = [math.exp(candidate.score - largest) for candidate in self.n_best]
        total = sum(powers)
        return [power / total for power in powers]

    def to_json(self) -> list[dict[str, str | float]]:
        """Return the n best answers as nbest_predictions.json has them."""
        return [
            {"text": each.text, "probability": p, "start_logit": each.start_logit, "end_logit": each.end_logit}
            for each, p in zip(self.n_best, self.probabilities(), strict=True)
        ]


def find_answers(
    file: SquadFile,
    rows: Rows,
    logits: Sequence[np.ndarray],
    *,
    n_best_size: int = 20,
    max_answer_length: int = 30,
    version_2: bool = False,
) -> list[Answers]:
    """Answer every question of a file.

    Candidates combine the n_best_size best starts of a row with its n_best_size best ends, for spans of at most
    max_answer_length tokens. Both are in the context, and the start has its maximum context in this row.

    Args:
        file: the file that the rows were encoded from.
        rows: rows of `squad_windows.window_rows` for evaluation.
        logits: N arrays float32 [2, S_i].
        n_best_size, max_answer_length: as in run_squad.py.
        version_2: whether a question may have no answer.

    Returns:
        The answers to each question, in the order of the file.
    """
    texts = _Texts(file, rows)
    row_starts = np.searchsorted(rows.extras["examples"], np.arange(len(file.questions) + 1))
    answers: list[Answers] = []
    best = min(n_best_size, int(np.diff(rows.row_splits).max(initial=1)))
    chunk = max(1, min(_CHUNK, _CHUNK_PAIRS // best**2))
    while len(answers) < len(file.questions):
        # Questions with at most `chunk` rows together, and at least one question.
        first = len(answers)
        last = max(first + 1, int(np.searchsorted(row_starts, row_starts[first] + chunk, "right")) - 1)
        spans = _candidates(rows, range(row_starts[first], row_starts[last]), logits, n_best_size, max_answer_length)
        bounds = np.searchsorted(spans.questions, np.arange(first, last + 1)).tolist()
        for question in range(first, last):
            null = None
            if version_2:
                # The minimum over the windows, the first of equals.
                nulls = (logits[row][:, 0].tolist() for row in range(row_starts[question], row_starts[question + 1]))
                start_logit, end_logit = min(nulls, key=sum, default=(0.0, 0.0))
                null = Candidate("", start_logit, end_logit, None)
            span_range = range(bounds[question - first], bounds[question - first + 1])
            answers.append(_answers(texts, spans, span_range, null, n_best_size))
    return answers


def write_answers(
    file: SquadFile, answers: Sequence[Answers], output: Path, threshold: float = 0.0, prefix: str = ""
) -> list[Path]:
    """Write predictions.json, nbest_predictions.json and, with version_2, null_odds.json, as run_squad.py does.

    Args:
        file: the questions.
        answers: answers to all questions.
        output: output directory.
        threshold: threshold of the null odds for `Answers.chosen`.
        prefix: prefix of the file names.

    Returns:
        The paths of the files.
    """
    by_id = {question.id: answer for question, answer in zip(file.questions, answers, strict=True)}
    texts = {i: answer.chosen(threshold).text for i, answer in by_id.items()}
    n_best = {i: answer.to_json() for i, answer in by_id.items()}
    contents = {"predictions.json": json.dumps(texts, indent=4), "nbest_predictions.json": json.dumps(n_best, indent=4)}
    if any(answer.null_odds is not None for answer in answers):
        contents["null_odds.json"] = json.dumps({i: answer.null_odds for i, answer in by_id.items()}, indent=4)
    paths = []
    for name, content in contents.items():
        paths.append(output / f"{prefix}{name}")
        write_atomic(paths[-1], f"{content}\n".encode())
    return paths


class _Candidates(NamedTuple):
    """Candidate token spans, sorted by question, best first.

    Attributes:
        questions: int64 [M], question numbers.
        scores, start_logits, end_logits: float64 [M].
        firsts, lasts: int64 [M], first and last token in the context.
    """

    questions: np.ndarray
    scores: np.ndarray
    start_logits: np.ndarray
    end_logits: np.ndarray
    firsts: np.ndarray
    lasts: np.ndarray


def _candidates(
    rows: Rows, row_range: range, logits: Sequence[np.ndarray], n_best_size: int, max_answer_length: int
) -> _Candidates:
    """Return the candidates of a range of rows; ties go to the earlier window, then to the better start and end."""
    extras, where = rows.extras, slice(row_range.start, row_range.stop)
    lengths = np.diff(rows.row_splits[row_range.start : row_range.stop + 1])  # [n]
    width = int(lengths.max(initial=0))
    inside = np.arange(width) < lengths[:, None]  # [n, S]
    flat = np.concatenate([np.zeros((2, 0), np.float32), *logits[where]], axis=1)  # [2, T]
    matrices = np.full((2, len(lengths), width), -np.inf, np.float32)
    matrices[:, inside] = flat
    is_max_context = np.zeros(inside.shape, bool)
    is_max_context[inside] = extras["max_context"][rows.row_splits[row_range.start] : rows.row_splits[row_range.stop]]
    starts, ends = np.argsort(-matrices, axis=2, kind="stable")[:, :, :n_best_size]  # [n, K] each

    before, end_of_context = extras["befores"][where], lengths - 1
    valid = np.take_along_axis(is_max_context, starts, axis=1)[:, :, None]  # [n, K, K], starts before ends
    valid = valid & ((ends >= before[:, None]) & (ends < end_of_context[:, None]))[:, None, :]
    size = ends[:, None, :] - starts[:, :, None] + 1
    valid &= (size >= 1) & (size <= max_answer_length)
    row, start_rank, end_rank = np.nonzero(valid)  # [M] each
    start, end = starts[row, start_rank], ends[row, end_rank]
    start_logits, end_logits = (
        matrix[row, at].astype(np.float64) for matrix, at in zip(matrices, (start, end), strict=True)
    )
    scores = start_logits + end_logits
    questions = extras["examples"][where][row].astype(np.int64)
    order = np.lexsort((-scores, questions))  # Stable.
    # Token of the context that position 0 of the row would have.
    origin = extras["window_starts"][where][row].astype(np.int64) - before[row]
    return _Candidates(
        *(values[order] for values in (questions, scores, start_logits, end_logits, start + origin, end + origin))
    )


def _answers(
    texts: "_Texts", spans: _Candidates, span_range: range, null: Candidate | None, n_best_size: int
) -> Answers:
    """Return the n best answers to a question."""
    ordered = texts.candidates(spans, span_range)
    if null is not None:
        # After candidates with the same score.
        better = int(np.searchsorted(-spans.scores[span_range.start : span_range.stop], -null.score, "right"))
        ordered = itertools.chain(itertools.islice(ordered, better), [null], ordered)
    seen: set[str] = set()
    n_best: list[Candidate] = []
    for candidate in ordered:
        if candidate.text not in seen:
            seen.add(candidate.text)
            n_best.append(candidate)
            if len(n_best) == n_best_size:
                break
    best = next((candidate for candidate in n_best if candidate.text), None)
    if best is None and span_range:  # n_best_size is 1.
        best = next(texts.candidates(spans, span_range))
    if null is None:
        return Answers(tuple(n_best) or (Candidate("empty", 0.0, 0.0, None),), best, None)
    if null.text not in seen:
        n_best.append(null)
    odds = ONLY_NULL if best is None else null.score - best.start_logit - best.end_logit
    return Answers(tuple(n_best), best, odds)


class _Texts:
    """Convert token spans to texts of the contexts: `get_final_text`, without tokenizing again.

    The released code takes the words, separated by `SPACES`, that contain the tokens. It splits them by the rules of
    the tokenizer, without WordPiece, and searches the text of the tokens in this normalized text. Where words and
    normalized text have the same number of characters without spaces, it returns the corresponding characters of the
    words, else whole words. Spaces between words become one space.
    """

    def __init__(self, file: SquadFile, rows: Rows) -> None:
        extras = rows.extras
        splits = extras["piece_splits"]
        sizes = np.diff(splits)
        self.splits = splits
        self.contexts = np.array([question.context for question in file.questions], np.int64)  # [Q]
        self.words = words = Words.from_contexts(file.contexts)
        # Per token.
        characters = extras["piece_offsets"] + np.repeat(words.context_starts, sizes)[:, None]
        self.word = words.of_character[characters[:, 0]]
        # An added token may have several words.
        self.last_word = words.of_character[characters[:, 1] - 1]
        self.unknown_before = np.concatenate([[0], np.cumsum(extras["unknown"])])
        # Per word.
        self.first_token = np.searchsorted(self.word, np.arange(len(words.starts) + 1))
        # Normalized texts of all contexts, each followed by a newline, and the offsets of the tokens in them.
        rules = WordRules(*extras["word_rules"].tolist())
        normal = [" ".join(split_words(context, rules)) + "\n" for context in file.contexts]
        self.normal = "".join(normal)
        normal_starts = np.cumsum([0, *map(len, normal)])[:-1]
        self.normal_offsets = extras["piece_places"] + np.repeat(normal_starts, sizes)[:, None]  # [P, 2]
        # Non-space characters: their number before each offset, and the offset of each in the contexts.
        normal_characters = np.frombuffer(self.normal.encode("utf-32-le", "surrogatepass"), np.uint32)
        self.normal_before = np.concatenate([[0], np.cumsum(normal_characters != ord(" "))])
        in_word = np.zeros(len(words.text) + 1, np.int64)
        np.add.at(in_word, words.starts, 1)
        np.add.at(in_word, words.ends, -1)
        in_word = np.cumsum(in_word)[:-1]
        self.solid_before = np.concatenate([[0], np.cumsum(in_word)])
        self.solid = np.flatnonzero(in_word)

    def candidates(self, spans: _Candidates, span_range: range) -> Iterator[Candidate]:
        """Yield the candidates of a range of spans."""
        for begin in range(span_range.start, span_range.stop, _BLOCK):
            yield from self._block(spans, slice(begin, min(begin + _BLOCK, span_range.stop)))

    def _block(self, spans: _Candidates, block: slice) -> Iterator[Candidate]:
        context = self.contexts[spans.questions[block]]
        first, last = spans.firsts[block] + self.splits[context], spans.lasts[block] + self.splits[context]
        # The words, and their offsets in the normalized text.
        first_word, last_word = self.word[first], self.last_word[last]
        start, end = self.words.starts[first_word], self.words.ends[last_word]
        begin, stop = (
            self.normal_offsets[self.first_token[first_word], 0],
            self.normal_offsets[self.first_token[last_word + 1] - 1, 1],
        )
        # "[UNK]" does not occur in the text.
        known = self.unknown_before[last + 1] == self.unknown_before[first]
        solid, normal = self.solid_before[start], self.normal_before[begin]
        aligned = known & (self.normal_before[stop] - normal == self.solid_before[end] - solid)
        columns = (
            *(values[block] for values in (spans.start_logits, spans.end_logits)),
            *(self.words.context_starts[context], start, end, aligned, begin, stop),
            *(self.normal_offsets[first, 0], self.normal_offsets[last, 1], solid - normal),
        )
        lists = (column.tolist() for column in columns)
        for start_logit, end_logit, origin, a, b, is_aligned, lowest, highest, token, token_end, shift in zip(
            *lists, strict=True
        ):
            if is_aligned:
                # The match may precede the tokens within the same word.
                at = self.normal.find(self.normal[token:token_end], lowest, highest)
                a = self.solid.item(shift + self.normal_before.item(at))
                b = self.solid.item(shift + self.normal_before.item(at + token_end - token - 1)) + 1
            text = SPACING.sub(" ", self.words.text[a:b])
            yield Candidate(text, start_logit, end_logit, (a - origin, b - origin))
