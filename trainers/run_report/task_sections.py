"""Prepare the sections of a fine-tuning report: published scores, confusion matrix, errors.

The content is `evaluation.json`: `{"task": "mrpc", "splits": {"dev": {...}}}`, with the details of each split from a
`FinetuningTask`. A function raises an error for malformed content, and the section is omitted.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jinja2 import TemplateError
from markupsafe import Markup

from beambert.reporting import rendering
from beambert.reporting.numbers import percent
from beambert.reporting.plots import scatter
from beambert.trainers.metrics.score_warnings import class_warnings, without_advice
from beambert.trainers.run_report.published_scores import IN_PERCENT, published

# A larger confusion matrix is hard to read.
MAX_LABELS = 20
_MAX_ROWS = 20
# Numbers of shades of a confusion matrix and of colors of entity types in style.css.
_SHADES, _TYPE_COLORS = 4, 6
_LABEL_CHARACTERS = 60
# Characters of a context that are shown around an answer.
_CONTEXT_AROUND = 200
# Longer words may be truncated.
_WORD = 30
_MALFORMED = (ArithmeticError, AttributeError, LookupError, TemplateError, TypeError, ValueError)
Details = Mapping[str, Any]
Span = tuple[int, int]


class Section(NamedTuple):
    """A section of a page: its id, heading and HTML."""

    id: str
    heading: str
    html: Markup


def sections(evaluation: Details, results: Details) -> list[Section]:
    """Return the sections of all splits.

    Args:
        evaluation: content of evaluation.json; {} without the file.
        results: content of eval_results.json.
    """
    parts = [_section("published", "Published scores", published_table, str(evaluation.get("task")), results)]
    keys = {key for _, _, key, _ in _SECTIONS}
    splits = {split: details for split, details in _splits(evaluation).items() if details.keys() & keys}
    for split, details in splits.items():
        # The name of a split comes from a file and may not be a valid HTML id.
        number, suffix = ("", "") if len(splits) == 1 else (f"-{len(parts)}", f", {split}")
        parts += [
            _section(f"{name}{number}", f"{heading}{suffix}", write, details[key])
            for name, heading, key, write in _SECTIONS
            if key in details
        ]
        if "by_type" not in details and "confusion" in details:
            parts.append(_section(f"classes{number}", f"Classes{suffix}", by_class, details["confusion"]))
    return [section for section in parts if section.html]


def input_warnings(evaluation: Details) -> list[str]:
    """Return the warnings about the examples that were printed before the first step, one line each."""
    return [line for details in _splits(evaluation).values() for line in _lines(details.get("input_warnings"))]


def warnings_of_details(evaluation: Details) -> list[str]:
    """Return warnings about the input and the predictions, one line each.

    Where many tokens are [UNK], only these warnings have a remedy.
    """
    unknown, warnings = [], []
    for split, details in _splits(evaluation).items():
        unknown += _lines([details.get("unknown_tokens")])
        warnings += _lines(details.get("warnings"))
        try:
            labels, counts = _confusion(details.get("confusion"))
            warnings += class_warnings(split, list(map(_clip, labels)), np.array(counts, np.int64))
        except _MALFORMED:
            continue
    return [*unknown, *map(without_advice, warnings)] if unknown else warnings


def _lines(content: Any) -> list[str]:
    return [line for line in content if isinstance(line, str)] if isinstance(content, list) else []


def metric_label(name: str) -> str:
    """Return the label of a task's metric."""
    name = name.removeprefix("eval_")
    if name in _METRICS:
        return _METRICS[name]
    # F1 of an entity type, such as "f1_LOC".
    return f"F1, {name.removeprefix('f1_')}" if name.startswith("f1_") else name.replace("_", " ")


_METRICS = {
    "accuracy": "accuracy",
    "mismatched_accuracy": "accuracy, mismatched",
    "mismatched_loss": "loss, mismatched",
    "f1": "F1",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "matthews": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "exact_match": "exact match",
    "exact": "exact match",
    "HasAns_exact": "exact match, answerable",
    "HasAns_f1": "F1, answerable",
    "NoAns_exact": "exact match, unanswerable",
    "NoAns_f1": "F1, unanswerable",
    "best_exact": "exact match at the best threshold",
    "best_f1": "F1 at the best threshold",
    "best_exact_thresh": "best threshold for exact match",
    "best_f1_thresh": "best threshold for F1",
}


def _section(name: str, heading: str, write: Callable[..., Markup], *content: Any) -> Section:
    """Return a section, without HTML if its content is malformed."""
    try:
        return Section(name, heading, write(*content))
    except _MALFORMED:
        return Section(name, heading, Markup())


def _render(macro: str, **content: Any) -> Markup:
    return rendering.macro("task_sections.html", macro)(**content)


def _splits(evaluation: Details) -> dict[str, Details]:
    splits = evaluation.get("splits")
    if not isinstance(splits, dict):
        return {}
    return {name: details for name, details in splits.items() if isinstance(details, dict)}


def published_table(task: str, results: Details) -> Markup:
    """Return a table of this run's scores and of published scores; "" without published scores."""
    ours = {name: value for name, value in results.items() if isinstance(value, int | float)}
    lines = published(task, ours)
    if not lines:
        return Markup()
    names = [name for name in ours if any(name in line.scores for line in lines)]

    def shown(scores: Mapping[str, float]) -> list[str]:
        # As in papers: metrics in percent, and a correlation times 100.
        scale = {name: 1 if name in IN_PERCENT else 100 for name in names}
        return [f"{scale[name] * scores[name]:.1f}" if name in scores else "" for name in names]

    rows = [("this run", "dev", *shown(ours), "")]
    rows += [(line.model, line.split, *shown(line.scores), line.source) for line in lines]
    on_test = any(line.split.startswith("test") for line in lines)
    return _render("published", metrics=list(map(metric_label, names)), rows=rows, on_test=on_test)


# Tables of predictions.


def confusion(content: Details) -> Markup:
    """Return the confusion matrix, or with many labels the most confused pairs."""
    labels, counts = _confusion(content)
    if len(labels) <= MAX_LABELS:
        return _render("confusion", labels=labels, counts=counts, shades=_SHADES)
    pairs = [
        (-count, true, predicted)
        for true, row in enumerate(counts)
        for predicted, count in enumerate(row)
        if count and true != predicted
    ]
    rows = [
        (_clip(labels[true]), _clip(labels[predicted]), -count, percent(-count / sum(counts[true])))
        for count, true, predicted in sorted(pairs)[:_MAX_ROWS]
    ]
    right, total = sum(counts[i][i] for i in range(len(labels))), sum(map(sum, counts))
    return _render("confused_pairs", labels=len(labels), right=right, total=total, pairs=len(pairs), rows=rows)


def _confusion(content: Any) -> tuple[list[str], list[list[int]]]:
    labels, counts = [str(label) for label in content["labels"]], content["counts"]
    if len(counts) != len(labels) or any(len(row) != len(labels) for row in counts) or not labels:
        raise ValueError("not a square matrix")
    if not all(type(count) is int and count >= 0 for row in counts for count in row):
        raise ValueError("not counts")
    return labels, counts


def by_class(content: Details) -> Markup:
    """Return precision, recall and F1 of each class; of many classes, those with the lowest F1."""
    labels, counts = _confusion(content)
    lines = []
    for i, label in enumerate(labels):
        true, predicted, hits = sum(counts[i]), sum(row[i] for row in counts), counts[i][i]
        scores = (hits / (predicted or 1), hits / (true or 1), 2 * hits / (true + predicted or 1))
        lines.append((_clip(label), *scores, true))
    if len(lines) > MAX_LABELS:
        lines = sorted((line for line in lines if line[-1]), key=lambda line: line[3])[:_MAX_ROWS]
    rows = [(label, *map(percent, scores), true) for label, *scores, true in lines]
    return _render("classes", rows=rows, total=len(labels) if len(labels) > MAX_LABELS else 0)


def by_type(content: Sequence[Details]) -> Markup:
    """Return precision, recall and F1 of each entity type."""
    scores = ("precision", "recall", "f1")
    rows = [
        (_clip(str(line["type"])), *(percent(float(line[name])) for name in scores), int(line["count"]))
        for line in content
    ]
    return _render("types", rows=rows)


def regression(content: Details) -> Markup:
    """Return a scatter plot of predictions and labels."""
    points = [(float(label), float(prediction)) for label, prediction in content["points"]]
    points = [point for point in points if all(map(math.isfinite, point))]
    if not points:
        return Markup()
    plot = scatter(points, "label", "prediction", f"Predictions of {len(points)} examples over their labels")
    return _render("regression", count=len(points), plot=plot)


def _clip(text: str) -> str:
    """Return a text truncated to the length of a label, with an ellipsis."""
    return text if len(text) <= _LABEL_CHARACTERS else text[: _LABEL_CHARACTERS - 1] + "…"


# Examples with their predictions.


def errors(content: Sequence[Details]) -> Markup:
    """Return incorrectly predicted texts, most confident first."""
    has_probability = any(error.get("probability") is not None for error in content)
    return _render("errors", examples=content, has_probability=has_probability) if content else Markup()


def choices(content: Sequence[Details]) -> Markup:
    """Return incorrect choices, most confident first."""
    return _render("choices", examples=content) if content else Markup()


def answers(content: Sequence[Details]) -> Markup:
    """Return questions, with true and predicted spans marked in their contexts."""
    examples = []
    for answer in content:
        context = str(answer["context"])
        true = [_span(span, context) for span in answer["answers"]]
        predicted = [] if answer["prediction"] is None else [_span(answer["prediction"], context)]
        true_texts = list(dict.fromkeys(context[start:end] for start, end in true))
        examples.append({**answer, "true_texts": true_texts, "fragments": mark_spans(context, true, predicted)})
    return _render("answers", examples=examples) if examples else Markup()


def _span(span: Sequence[int], context: str) -> Span:
    start, end = (int(offset) for offset in span)
    if not 0 <= start < end <= len(context):
        raise ValueError(f"not a span of the context: {start} to {end}")
    return start, end


def mark_spans(context: str, true: Sequence[Span], predicted: Sequence[Span]) -> list[tuple[str, list[str]]]:
    """Split a context at its spans; return (text, kinds of the spans over it, "true" and "predicted") in order.

    Text far from all spans is replaced by an ellipsis.

    Args:
        context: text of the context.
        true, predicted: start and end of each span in characters; spans may overlap.
    """
    groups = {"true": true, "predicted": predicted}
    spans = [*true, *predicted]
    shown = _near(spans, context) if spans else [(0, _end_of_word(context, 2 * _CONTEXT_AROUND))]
    fragments: list[tuple[str, list[str]]] = []
    end = 0
    for first, last in itertools.pairwise(sorted({offset for span in (*spans, *shown) for offset in span})):
        if not _is_within(first, last, shown):
            continue
        if first > end:
            fragments.append(("… " if end == 0 else " … ", []))
        end = last
        kinds = [name for name, group in groups.items() if _is_within(first, last, group)]
        fragments.append((context[first:last], kinds))
    return [*fragments, (" …", [])] if end < len(context) else fragments


def _is_within(first: int, last: int, spans: Sequence[Span]) -> bool:
    return any(start <= first and last <= end for start, end in spans)


def _near(spans: Sequence[Span], context: str) -> list[Span]:
    """Return the disjoint parts of a context near a span, in order; they start and end between words."""
    parts: list[Span] = []
    for start, end in sorted(spans):
        start, end = _start_of_word(context, start - _CONTEXT_AROUND), _end_of_word(context, end + _CONTEXT_AROUND)
        if parts and start <= parts[-1][1]:
            parts[-1] = (parts[-1][0], max(end, parts[-1][1]))
        else:
            parts.append((start, end))
    return parts


def _start_of_word(context: str, offset: int) -> int:
    """Return the start of the next word from an offset on, or the offset if no word starts nearby."""
    return max(0, offset) if offset <= 0 else context.find(" ", offset - 1, offset + _WORD) + 1 or offset


def _end_of_word(context: str, offset: int) -> int:
    """Return the end of the last word before an offset, or the offset if no word ends nearby."""
    if offset >= len(context):
        return len(context)
    end = context.rfind(" ", offset - _WORD, offset + 1)
    return offset if end < 0 else end


def entities(content: Sequence[Details]) -> Markup:
    """Return sentences with true and predicted entities, with a color for each type."""
    types = sorted({str(entity[2]) for line in content for key in ("labels", "predictions") for entity in line[key]})
    examples = []
    for line in content:
        words = [str(word) for word in line["words"]]
        true, predicted = (_mark_entities(words, line[name]) for name in ("labels", "predictions"))
        lines = [("both", true)] if true == predicted else [("true", true), ("predicted", predicted)]
        examples.append({"location": line["location"], "lines": lines})
    colors = {kind: number % _TYPE_COLORS for number, kind in enumerate(types)}
    return _render("entities", examples=examples, colors=colors) if examples else Markup()


def _mark_entities(words: Sequence[str], spans: Sequence[Sequence[Any]]) -> list[tuple[str, str | None]]:
    """Return the words and entities of a sentence, each with the type of the entity or None."""
    fragments: list[tuple[str, str | None]] = []
    position = 0
    for first, end, kind in sorted((int(first), int(end), str(kind)) for first, end, kind in spans):
        if not position <= first < end <= len(words):
            raise ValueError(f"not an entity of the sentence: {first} to {end}")
        fragments += [(word, None) for word in words[position:first]]
        fragments.append((" ".join(words[first:end]), kind))
        position = end
    return [*fragments, *((word, None) for word in words[position:])]


_SECTIONS: tuple[tuple[str, str, str, Callable[[Any], Markup]], ...] = (
    ("confusion", "Confusion matrix", "confusion", confusion),
    ("types", "Entity types", "by_type", by_type),
    ("regression", "Predictions and labels", "regression", regression),
    ("errors", "Errors", "errors", errors),
    ("choices", "Errors", "choices", choices),
    ("answers", "Answers", "answers", answers),
    ("entities", "Entities", "entities", entities),
)
