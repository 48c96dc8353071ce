"""Render tables and a plot of the predictions of a fine-tuned model: confusion matrix, classes, types, regression.

The content comes from a file. A function raises an error if the content is malformed, and the caller omits the section.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from beambert.pipelines.reporting import axes
from beambert.pipelines.reporting.tables import percent, table
from beambert.trainers.metrics.score_warnings import class_warnings
from beambert.trainers.run_report.task_style import SHADES

# A larger matrix is hard to read.
MOST_LABELS = 20
_MOST_ROWS = 20
_LABEL_CHARACTERS = 60
_MATRIX_CHARACTERS = 28


def confusion(content: Mapping[str, Any]) -> str:
    """Return the confusion matrix as HTML, or with many labels the most confused pairs."""
    labels, counts = _confusion(content)
    if len(labels) > MOST_LABELS:
        return _confused_pairs(labels, counts)
    head = "".join(f'<th scope="col">{shown_label(label, _MATRIX_CHARACTERS)}</th>' for label in labels)
    rows = []
    for true, (label, row) in enumerate(zip(labels, counts, strict=True)):
        total = sum(row)
        cells = "".join(_cell(count, total, true == predicted) for predicted, count in enumerate(row))
        rows.append(f'<tr><th scope="row">{shown_label(label, _MATRIX_CHARACTERS)}</th>{cells}<td>{total:,}</td></tr>')
    sums = "".join(f"<td>{sum(column):,}</td>" for column in zip(*counts, strict=True))
    rows.append(f'<tr><th scope="row">all</th>{sums}<td>{sum(map(sum, counts)):,}</td></tr>')
    return (
        '<div class="table" tabindex="0"><table class="confusion"><caption>Rows: true labels; '
        "columns: predicted labels; correct predictions in bold. Shades show the fraction of the "
        "row.</caption><thead><tr><td></td>"
        f'{head}<th scope="col">all</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _confusion(content: Mapping[str, Any]) -> tuple[list[str], list[list[int]]]:
    labels, counts = [str(label) for label in content["labels"]], content["counts"]
    if len(counts) != len(labels) or any(len(row) != len(labels) for row in counts) or not labels:
        raise ValueError("not a square matrix")
    if not all(type(count) is int and count >= 0 for row in counts for count in row):
        raise ValueError("not counts")
    return labels, counts


def _cell(count: int, total: int, is_right: bool) -> str:
    kind, hit = ("right", " hit") if is_right else ("wrong", "")
    fraction = count / total if total else 0.0
    # The square root makes rare confusions visible.
    shade = f" {kind}-{min(SHADES - 1, int(math.sqrt(fraction) * SHADES))}" if count else ""
    title = f' title="{percent(fraction)} of the row"' if count else ""
    return f'<td class="number{hit}{shade}"{title}>{count:,}</td>'


def _confused_pairs(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    pairs = [
        (count, true, predicted)
        for true, row in enumerate(counts)
        for predicted, count in enumerate(row)
        if count and true != predicted
    ]
    right = sum(counts[i][i] for i in range(len(labels)))
    total = sum(map(sum, counts))
    summary = f"{len(labels):,} labels; {right:,} of {total:,} examples are correct."
    if not pairs:
        return f"<p>{summary}</p>"
    pairs.sort(key=lambda pair: (-pair[0], pair[1:]))
    rows = [
        (clipped(labels[true]), clipped(labels[predicted]), f"{count:,}", percent(count / sum(counts[true])))
        for count, true, predicted in pairs[:_MOST_ROWS]
    ]
    more = f" The {len(rows)} most frequent of {len(pairs):,} confused pairs:" if len(pairs) > len(rows) else ""
    header = ("true label", "predicted label", "examples", "fraction of the true label")
    return f"<p>{summary}{more}</p>{table(header, rows)}"


def warnings_of_confusion(split: str, content: Mapping[str, Any]) -> list[str]:
    """Return the warnings of `score_warnings.class_warnings` for a confusion matrix."""
    labels, counts = _confusion(content)
    return class_warnings(split, [clipped(label) for label in labels], np.array(counts, np.int64))


def by_class(content: Mapping[str, Any]) -> str:
    """Return precision, recall and F1 of each class as HTML; of many classes, those with the lowest F1."""
    labels, counts = _confusion(content)
    lines = []
    for i, label in enumerate(labels):
        true, predicted, hits = sum(counts[i]), sum(row[i] for row in counts), counts[i][i]
        precision, recall = _quotient(hits, predicted), _quotient(hits, true)
        lines.append((_quotient(2 * hits, true + predicted), label, precision, recall, true))
    before = ""
    if len(lines) > MOST_LABELS:
        lines = sorted((line for line in lines if line[-1]), key=lambda line: line[0])[:_MOST_ROWS]
        before = f"<p>The {len(lines)} of {len(labels):,} classes with the lowest F1.</p>"
    rows = [
        (clipped(label), percent(precision), percent(recall), percent(f1), f"{true:,}")
        for f1, label, precision, recall, true in lines
    ]
    return before + table(("class", "precision", "recall", "F1", "examples"), rows)


def _quotient(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def by_type(content: Sequence[Mapping[str, Any]]) -> str:
    """Return precision, recall and F1 of each entity type as HTML."""
    rows = [
        (
            clipped(str(line["type"])),
            *(percent(float(line[name])) for name in ("precision", "recall", "f1")),
            f"{int(line['count']):,}",
        )
        for line in content
    ]
    return table(("type", "precision", "recall", "F1", "entities"), rows) if rows else ""


def regression(content: Mapping[str, Any]) -> str:
    """Return a scatter plot of predictions and labels as HTML."""
    points = [(float(label), float(prediction)) for label, prediction in content["points"]]
    points = [point for point in points if all(map(math.isfinite, point))]
    if not points:
        return ""
    x_low, x_high = _range([label for label, _ in points])
    y_low, y_high = _range([prediction for _, prediction in points])

    def x_of(value: float) -> float:
        return axes.LEFT + axes.PLOT_WIDTH * (value - x_low) / (x_high - x_low)

    def y_of(value: float) -> float:
        return axes.TOP + axes.PLOT_HEIGHT * (y_high - value) / (y_high - y_low)

    body = [axes.horizontal(y_of(tick), axes.number(tick)) for tick in axes.ticks(y_high, y_low)]
    body += [axes.vertical(x_of(tick), axes.number(tick)) for tick in axes.ticks(x_high, x_low)]
    first, last = max(x_low, y_low), min(x_high, y_high)
    if first < last:
        body.append(
            f'<path class="diagonal" d="M{x_of(first):.1f},{y_of(first):.1f}L{x_of(last):.1f},{y_of(last):.1f}"/>'
        )
    body += [
        f'<circle class="point" cx="{x_of(label):.1f}" cy="{y_of(prediction):.1f}" r="2.5"><title>label {label:.4g}, '
        f"prediction {prediction:.4g}</title></circle>"
        for label, prediction in points
    ]
    picture = axes.figure(body, "label", "prediction", f"Predictions of {len(points)} examples over their labels")
    return f"<p>{len(points):,} examples; on the dashed line, prediction and label are equal.</p>{picture}"


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = 0.04 * (high - low) or max(abs(high) * 0.05, 0.5)
    return low - margin, high + margin


def shown_label(label: str, most: int = _LABEL_CHARACTERS) -> str:
    """Return a label as HTML, with the full name as a tooltip if it is longer than `most` characters."""
    if len(label) <= most:
        return escape(label)
    return f'<span title="{escape(label)}">{escape(clipped(label, most))}</span>'


def clipped(text: str, most: int = _LABEL_CHARACTERS) -> str:
    """Return a text truncated to `most` characters, with an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"
