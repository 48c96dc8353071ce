"""The results of an evaluation: as JSON, as text for the terminal, and as an HTML page."""

import functools
import math
import textwrap
from dataclasses import asdict, dataclass
from typing import Any

from beambert.common.terminal import printable, without_middle
from beambert.common.word_rules import WordRules, without_released_rules
from beambert.reporting.rendering import render
from beambert.trainers.evaluation.pair_scores import Accuracy, PairScores, PublishedAccuracy, published_accuracies
from beambert.trainers.evaluation.text_scores import MaskedLmScores, MeanScore

FORMAT, FORMAT_VERSION = "beambert-evaluation", 1
# Columns of an accuracy, its standard error and a number of pairs.
_NUMBERS = "{:>8}{:>7}{:>9}"
_NUMBERS_WIDTH = 24
_LEAST_NAME, _MOST_NAME = 16, 54
# Columns from which on notes and sources are shown.
_WIDE = 100
_TIE_RULE = "A pair is correct if the good sentence has the strictly higher score; a tie is wrong."
_wrap = functools.partial(textwrap.wrap, break_long_words=False, break_on_hyphens=False)


@dataclass(frozen=True)
class TextResults:
    """The results on text.

    Attributes:
        windows: number of windows.
        tokens: number of scored tokens, without [CLS] and [SEP].
        all_tokens: number of tokens of the files; more than `tokens` with --max_tokens.
        unknown_tokens: number of [UNK] among the scored tokens.
        masked_lm: loss and accuracy with 15 % of the tokens masked.
        negative_log_likelihood: of the tokens, each masked in turn; its exponential is the pseudo-perplexity.
    """

    windows: int
    tokens: int
    all_tokens: int
    unknown_tokens: int
    masked_lm: MaskedLmScores
    negative_log_likelihood: MeanScore

    @property
    def pseudo_perplexity(self) -> MeanScore:
        """Return exp(mean negative log-likelihood), with its standard error to first order."""
        loss = self.negative_log_likelihood
        value = math.exp(min(loss.mean, 700.0))  # Without overflow.
        error = None if loss.standard_error is None else value * loss.standard_error
        return MeanScore(value, error, loss.tokens)


@dataclass(frozen=True)
class PairResults:
    """The results on minimal pairs.

    Attributes:
        all_pairs: number of pairs in the files; more than were scored with --max_pairs.
        equal_tokens: number of pairs whose sentences have the same tokens, which are ties.
        unknown: number of pairs with [UNK].
        scores: the accuracies.
    """

    all_pairs: int
    equal_tokens: int
    unknown: int
    scores: PairScores


@dataclass(frozen=True)
class EvaluationResults:
    """The results of `beambert evaluate`.

    Attributes:
        model: path of the model.
        vocabulary_sha256: hash of the vocabulary.
        word_rules: rules that split text into words.
        max_seq_length: maximum length of a sentence or window in tokens, including [CLS] and [SEP].
        precision: precision of matrix products.
        whole_word: whether the later tokens of the same word were masked too.
        text: results on text; None without text.
        pairs: results on minimal pairs; None without pairs.
    """

    model: str
    vocabulary_sha256: str
    word_rules: WordRules
    max_seq_length: int
    precision: str
    whole_word: bool
    text: TextResults | None
    pairs: PairResults | None

    def to_json(self) -> dict[str, Any]:
        """Return the content of the output file: fractions for accuracies, nats for losses, null where undefined."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "model": self.model,
            "vocabulary_sha256": self.vocabulary_sha256,
            **without_released_rules(asdict(self.word_rules)),
            "max_seq_length": self.max_seq_length,
            "precision": self.precision,
            "whole_word": self.whole_word,
            "text": None if self.text is None else _text_json(self.text),
            "pairs": None if self.pairs is None else _pairs_json(self.pairs),
        }


def _text_json(text: TextResults) -> dict[str, Any]:
    return {
        "windows": text.windows,
        "tokens": text.tokens,
        "all_tokens": text.all_tokens,
        "unknown_tokens": text.unknown_tokens,
        "masked_lm_loss": text.masked_lm.loss._asdict(),
        "masked_lm_accuracy": text.masked_lm.accuracy._asdict(),
        "pseudo_perplexity": text.pseudo_perplexity._asdict(),
        "negative_log_likelihood": text.negative_log_likelihood._asdict(),
    }


def _pairs_json(results: PairResults) -> dict[str, Any]:
    scores = results.scores
    benchmark, published = published_accuracies(scores.fields, len(scores.paradigms))
    return {
        "pairs": scores.mean_of_paradigms.pairs,
        "all_pairs": results.all_pairs,
        "ties": scores.ties,
        "equal_tokens": results.equal_tokens,
        "pairs_with_unknown_tokens": results.unknown,
        "mean_of_paradigms": scores.mean_of_paradigms._asdict(),
        "mean_of_fields": None if scores.mean_of_fields is None else scores.mean_of_fields._asdict(),
        "error_between_paradigms": scores.error_between_paradigms,
        "fields": {name: score._asdict() for name, score in scores.fields.items()},
        "paradigms": [
            {"paradigm": paradigm.name, "field": paradigm.field, **paradigm.score._asdict()}
            for paradigm in scores.paradigms
        ],
        "benchmark": benchmark,
        "published_percent": [line._asdict() for line in published],
    }


def results_lines(results: EvaluationResults, width: int) -> list[str]:
    """Return the results as lines for a terminal with a number of columns."""
    lines: list[str] = []
    if results.text is not None:
        lines += _text_lines(results.text, results, width)
    if results.pairs is not None:
        lines += [*([""] if lines else []), *_pair_lines(results.pairs, width)]
    return [line[:width].rstrip() for line in lines]


def _text_lines(text: TextResults, results: EvaluationResults, width: int) -> list[str]:
    wide = width >= _WIDE
    rows = [(name, value, of) if wide else (name, value) for name, value, of in _text_rows(text)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    heading = f"Text: {_text_summary(text, results)}"
    cells = ["  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)) for row in rows]
    return [*_wrap(heading, width), *(f"  {line}" for line in cells)]


def _text_summary(text: TextResults, results: EvaluationResults) -> str:
    part = "" if text.tokens == text.all_tokens else f" of {text.all_tokens:,} (--max_tokens)"
    return (
        f"{text.tokens:,} tokens{part}, {text.unknown_tokens:,} of them [UNK], in "
        f"{text.windows:,} windows of at most {results.max_seq_length} tokens"
    )


def _text_rows(text: TextResults) -> list[tuple[str, str, str]]:
    masked = f"15% of the tokens: {text.masked_lm.loss.tokens:,}"
    return [
        ("masked_lm_loss", _mean(text.masked_lm.loss, 3), masked),
        ("masked_lm_accuracy", _mean(text.masked_lm.accuracy, 4), masked),
        ("pseudo_perplexity", _mean(text.pseudo_perplexity, 2), f"each token in turn: {text.tokens:,}"),
    ]


def _mean(score: MeanScore, decimals: int) -> str:
    error = "" if score.standard_error is None else f" ± {score.standard_error:,.{decimals}f}"
    return f"{score.mean:,.{decimals}f}{error}"


def _pair_lines(results: PairResults, width: int) -> list[str]:
    scores = results.scores
    shown = _pair_rows(results)
    name_width = min(max(_LEAST_NAME, *(len(name) for name, _ in shown)), _MOST_NAME, width - _NUMBERS_WIDTH)
    lines = [
        *_wrap(f"Minimal pairs: {_pair_summary(results)}", width),
        *_wrap(_TIE_RULE, width),
        "",
        "paradigm".ljust(name_width) + _NUMBERS.format("accuracy", "±", "pairs"),
    ]
    lines += [without_middle(printable(name), name_width).ljust(name_width) + numbers for name, numbers in shown]
    benchmark, published = published_accuracies(scores.fields, len(scores.paradigms))
    if published:
        lines += ["", f"published, {benchmark}".ljust(name_width) + f"{'accuracy':>8}  mean of"]
        lines += [_published_line(line, name_width, width) for line in published]
    return lines


def _published_line(line: PublishedAccuracy, name_width: int, width: int) -> str:
    name = without_middle(line.model, name_width).ljust(name_width)
    source = f" ({line.source})" if width >= _WIDE else ""
    return f"{name}{line.accuracy:>8.1f}  {line.mean_of}{source}"


def _pair_summary(results: PairResults) -> str:
    scores = results.scores
    pairs = scores.mean_of_paradigms.pairs
    part = "" if pairs == results.all_pairs else f" of {results.all_pairs:,} (--max_pairs)"
    return (
        f"{pairs:,} pairs{part} of {len(scores.paradigms)} paradigms; ties: {scores.ties:,}, pairs with [UNK]: "
        f"{results.unknown:,}"
    )


def _pair_rows(results: PairResults) -> list[tuple[str, str]]:
    """Return names and numbers of fields, each followed by its paradigms, and of the means."""
    scores = results.scores
    rows = []
    field = None
    for paradigm in scores.paradigms:
        if scores.fields and paradigm.field != field:
            field = paradigm.field
            rows.append((field, _numbers(scores.fields[field])))
        rows.append((f"  {paradigm.name}" if scores.fields else paradigm.name, _numbers(paradigm.score)))
    rows += [(name, _numbers(score)) for name, score in _means(results)]
    if scores.error_between_paradigms is not None:
        rows.append(
            ("standard error between paradigms", _NUMBERS.format("", _points(scores.error_between_paradigms), ""))
        )
    return rows


def _means(results: PairResults) -> list[tuple[str, Accuracy]]:
    scores = results.scores
    rows = [(f"mean of {len(scores.paradigms)} paradigms", scores.mean_of_paradigms)]
    if scores.mean_of_fields is not None:
        rows.append((f"mean of {len(scores.fields)} fields", scores.mean_of_fields))
    return rows


def _numbers(score: Accuracy) -> str:
    return _NUMBERS.format(_points(score.accuracy), _points(score.standard_error), f"{score.pairs:,}")


def _points(fraction: float) -> str:
    return f"{100 * fraction:.1f}"


def results_page(results: EvaluationResults) -> str:
    """Return the results as an HTML page without scripts."""
    tiles: list[tuple[str, str]] = []
    text = pairs = None
    if results.text is not None:
        rows = _text_rows(results.text)
        tiles += [(name.replace("_", " "), value) for name, value, _ in rows]
        text = {"summary": _text_summary(results.text, results), "rows": rows}
    if results.pairs is not None:
        scores, means = results.pairs.scores, _means(results.pairs)
        tiles += [(name, f"{score.accuracy:.1%}") for name, score in means]
        benchmark, published = published_accuracies(scores.fields, len(scores.paradigms))
        error = scores.error_between_paradigms
        pairs = {
            "summary": _pair_summary(results.pairs),
            "tie_rule": _TIE_RULE,
            "means": [(name, *_cells(score)) for name, score in means],
            "error": None if error is None else _points(error),
            "benchmark": benchmark,
            "published": [(line.model, f"{line.accuracy:.1f}", line.mean_of, line.source) for line in published],
            "fields": [(name, *_cells(score)) for name, score in scores.fields.items()],
            "paradigms": [(line.name, line.field, *_cells(line.score)) for line in scores.paradigms],
        }
    return render("evaluation.html", title="Evaluation", results=results, tiles_shown=tiles, text=text, pairs=pairs)


def _cells(score: Accuracy) -> tuple[str, str, int]:
    return _points(score.accuracy), _points(score.standard_error), score.pairs
