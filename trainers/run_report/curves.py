"""Draw the curves of `report.html` as inline SVG: a metric by step, for training and validation."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from beambert.pipelines.reporting import axes

MOST_POINTS = 152  # Two SVG units per point.
# Rules of the horizontal lines of levels, for the page.
STYLE = """
#levels td:nth-child(2) { min-width: 12rem; }
.level { stroke: var(--fine); stroke-width: 1.2; stroke-dasharray: 5 3; fill: none; }
svg .level-name { fill: var(--fine); }
"""
_TEXT_HEIGHT = 11


class Point(NamedTuple):
    """A point for consecutive values of a curve: last step, mean, minimum and maximum."""

    step: float
    mean: float
    low: float
    high: float


def thinned(values: Sequence[tuple[int, float]], most: int = MOST_POINTS) -> list[Point]:
    """Return a curve with fewer points: the mean and range of groups of consecutive values.

    Args:
        values: (step, finite value) pairs, ordered by step.
        most: maximum number of points.
    """
    groups = np.array_split(np.array(values, float).reshape(-1, 2), min(most, len(values)) or 1)  # [n, 2] each
    return [Point(g[-1, 0], float(g[:, 1].mean()), g[:, 1].min(), g[:, 1].max()) for g in groups if len(g)]


def curve(
    title: str,
    train: Sequence[tuple[int, float]],
    validation: Sequence[tuple[int, float]],
    shown: Callable[[float], str],
    levels: Mapping[str, float] | None = None,
) -> str:
    """Return a figure as HTML; "" without finite values.

    Args:
        title: label of the metric.
        train, validation: (step, value) pairs. Training is a line, with a range band if it has many points; validation
            is a line with dots.
        shown: function that formats a value, for tooltips.
        levels: finite values of named horizontal lines.
    """
    levels = levels or {}
    series = {
        name: thinned([(step, value) for step, value in values if math.isfinite(value)])
        for name, values in (("train", train), ("validation", validation))
    }
    series = {name: points for name, points in series.items() if points}
    if not series:
        return ""
    all_points = [point for points in series.values() for point in points]
    first, last = min(point.step for point in all_points), max(point.step for point in all_points)
    start = 0.0 if first < last / 4 else first
    x_end = last if last > start else start + 1
    values = [*levels.values(), *(value for point in all_points for value in (point.low, point.high))]
    bottom, top = _range(min(values), max(values))

    def x_of(step: float) -> float:
        return axes.LEFT + axes.PLOT_WIDTH * (step - start) / (x_end - start)

    def y_of(value: float) -> float:
        return axes.TOP + axes.PLOT_HEIGHT * (top - value) / (top - bottom)

    body = [axes.horizontal(y_of(tick), axes.number(tick)) for tick in axes.ticks(top, bottom)]
    body += [axes.vertical(x_of(tick), axes.number(tick)) for tick in _steps(x_end, start)]
    body += _levels(levels, y_of, shown, next(iter(series.values())))
    if "train" in series:
        body += _line(series["train"], x_of, y_of, shown)
    if "validation" in series:
        body += _dots(series["validation"], x_of, y_of, shown)
    names = list(series) if len(series) > 1 else []
    splits = " and ".join(series)
    label = title if "train" in series else f"{title}, validation"
    described = ", ".join(f"{name} {shown(value)}" for name, value in levels.items())
    description = f"{title} of {splits} by step" + (f"; levels: {described}" if described else "")
    return axes.figure(body, "step", label, description, names)


def _levels(
    levels: Mapping[str, float], y_of: Callable[[float], float], shown: Callable[[float], str], points: Sequence[Point]
) -> list[str]:
    """Return horizontal lines with their names above them, or below where the line above is near.

    A name is at the end of the line where the curve is farther away.
    """
    body = []
    above = -math.inf
    for name, value in sorted(levels.items(), key=lambda level: -level[1]):
        y = y_of(value)
        # The name of the line above may be below that line only if this line leaves room for both.
        baseline = y - 3 if y - above > _TEXT_HEIGHT + 3 else y + _TEXT_HEIGHT
        above = max(y, baseline)
        is_left = abs(points[0].mean - value) > abs(points[-1].mean - value)
        x, anchor = (axes.LEFT + 4, "start") if is_left else (axes.WIDTH - axes.RIGHT, "end")
        body.append(
            f'<path class="level" d="M{axes.LEFT},{y:.1f}H{axes.WIDTH - axes.RIGHT}"/>'
            f'<text class="level-name" x="{x}" y="{baseline:.1f}" text-anchor="{anchor}">'
            f"{escape(name)} {escape(shown(value))}</text>"
        )
    return body


def _line(
    points: list[Point], x_of: Callable[[float], float], y_of: Callable[[float], float], shown: Callable[[float], str]
) -> list[str]:
    upper = [f"{x_of(point.step):.1f},{y_of(point.high):.1f}" for point in points]
    lower = [f"{x_of(point.step):.1f},{y_of(point.low):.1f}" for point in reversed(points)]
    is_thinned = any(point.low != point.high for point in points)
    body = [f'<polygon class="band" points="{" ".join(upper + lower)}"/>'] if is_thinned else []
    middle = " ".join(f"{x_of(point.step):.1f},{y_of(point.mean):.1f}" for point in points)
    # A line with a single point would be invisible.
    body.append(
        f'<polyline class="line" points="{middle}"/>'
        if len(points) > 1
        else f'<circle class="bar" cx="{x_of(points[0].step):.1f}" cy="{y_of(points[0].mean):.1f}" r="3"/>'
    )
    # Tooltip areas: full-height strips around each point.
    middles = [(x_of(left.step) + x_of(right.step)) / 2 for left, right in itertools.pairwise(points)]
    edges = [float(axes.LEFT), *middles, float(axes.WIDTH - axes.RIGHT)]
    for point, (left, right) in zip(points, itertools.pairwise(edges), strict=True):
        text = f"step {point.step:,.0f}: {shown(point.mean)}"
        if point.low != point.high:
            text += f" ({shown(point.low)} to {shown(point.high)})"
        body.append(
            f'<rect class="hover" x="{left:.1f}" y="{axes.TOP}" width="{max(right - left, 0):.1f}" '
            f'height="{axes.PLOT_HEIGHT}"><title>{escape(text)}</title></rect>'
        )
    return body


def _dots(
    points: list[Point], x_of: Callable[[float], float], y_of: Callable[[float], float], shown: Callable[[float], str]
) -> list[str]:
    middle = " ".join(f"{x_of(point.step):.1f},{y_of(point.mean):.1f}" for point in points)
    return [
        f'<polyline class="outline" points="{middle}"/>',
        *(
            f'<circle class="dot" cx="{x_of(point.step):.1f}" cy="{y_of(point.mean):.1f}" r="2.5"><title>'
            f"{escape(f'validation, step {point.step:,.0f}: {shown(point.mean)}')}</title></circle>"
            for point in points
        ),
    ]


def _range(low: float, high: float) -> tuple[float, float]:
    """Return the range of the axis: from 0 if the values are near 0, otherwise with a margin."""
    if low >= 0 and low < 0.4 * high:
        return 0.0, high * 1.04
    margin = 0.06 * (high - low) or max(abs(high) * 0.05, 1e-9)
    return low - margin, high + margin


def _steps(end: float, start: float) -> list[float]:
    """Return the integer ticks of the step axis, few enough for labels such as 12.5k."""
    steps = [tick for tick in axes.ticks(end, start) if tick == int(tick)]
    return steps[:: 2 if len(steps) > 6 else 1]
