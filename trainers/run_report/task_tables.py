"""Tables and a plot of a fine-tuned model's answers: confusion, classes, types, predictions over labels.

Their content comes from a file: a function raises where it has not the form that it must have, and its caller leaves
the section out.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from pipelines.reporting import axes
from pipelines.reporting.tables import percent, table
from trainers.metrics.score_warnings import class_warnings
from trainers.run_report.task_style import SHADES

# A matrix of more labels is no longer read at a glance.
MOST_LABELS = 20
_MOST_ROWS = 20
_LABEL_CHARACTERS = 60
_MATRIX_CHARACTERS = 28


def confusion(content: Mapping[str, Any]) -> str:
    """Return true classes by row, predicted ones by column; of many labels the most confused pairs."""
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
        '<div class="table" tabindex="0"><table class="confusion"><caption>Rows: true; columns: predicted; right '
        "answers in bold. The stronger the shade, the larger the share of the row.</caption><thead><tr><td></td>"
        f'{head}<th scope="col">all</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _confusion(content: Mapping[str, Any]) -> tuple[list[str], list[list[int]]]:
    labels, counts = [str(label) for label in content["labels"]], content["counts"]
    if len(counts) != len(labels) or any(len(row) != len(labels) for row in counts) or not labels:
        raise ValueError("no square matrix")
    if not all(type(count) is int and count >= 0 for row in counts for count in row):
        raise ValueError("no counts")
    return labels, counts


def _cell(count: int, total: int, is_right: bool) -> str:
    kind, hit = ("right", " hit") if is_right else ("wrong", "")
    share = count / total if total else 0.0
    # By the root, so that a pair that is confused now and then differs from one that never is.
    shade = f" {kind}-{min(SHADES - 1, int(math.sqrt(share) * SHADES))}" if count else ""
    title = f' title="{percent(share)} of the row"' if count else ""
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
    words = f"{len(labels):,} labels; {right:,} of {total:,} examples have the right one."
    if not pairs:
        return f"<p>{words}</p>"
    pairs.sort(key=lambda pair: (-pair[0], pair[1:]))
    rows = [
        (clipped(labels[true]), clipped(labels[predicted]), f"{count:,}", percent(count / sum(counts[true])))
        for count, true, predicted in pairs[:_MOST_ROWS]
    ]
    more = (
        f" Of {len(pairs):,} pairs that are confused, the {len(rows)} most frequent:" if len(pairs) > len(rows) else ""
    )
    header = ("true label", "predicted", "examples", "of the true label's")
    return f"<p>{words}{more}</p>{table(header, rows)}"


def warnings_of_confusion(split: str, content: Mapping[str, Any]) -> list[str]:
    """Return the warnings of `score_warnings.class_warnings`."""
    labels, counts = _confusion(content)
    return class_warnings(split, [clipped(label) for label in labels], np.array(counts, np.int64))


def by_class(content: Mapping[str, Any]) -> str:
    """Return precision, recall and F1 of each class; of many, those with the lowest F1."""
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
    """Return precision, recall and F1 of each type."""
    rows = [
        (
            clipped(str(line["type"])),
            *(percent(float(line[name])) for name in ("precision", "recall", "f1")),
            f"{int(line['count']):,}",
        )
        for line in content
    ]
    return table(("type", "precision", "recall", "F1", "in the data"), rows) if rows else ""


def regression(content: Mapping[str, Any]) -> str:
    """Return a plot of predictions over labels, a dot each."""
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
    return f"<p>{len(points):,} examples; on the dashed line a prediction is its label.</p>{picture}"


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    air = 0.04 * (high - low) or max(abs(high) * 0.05, 0.5)
    return low - air, high + air


def shown_label(label: str, most: int = _LABEL_CHARACTERS) -> str:
    """Return a label as HTML, with its whole name under the pointer where it is longer than `most` characters."""
    if len(label) <= most:
        return escape(label)
    return f'<span title="{escape(label)}">{escape(clipped(label, most))}</span>'


def clipped(text: str, most: int = _LABEL_CHARACTERS) -> str:
    """Return a text of at most N characters, ending in an ellipsis if it is longer."""
    return text if len(text) <= most else text[: most - 1] + "…"
