"""Curves of `report.html`: a metric by step, of training and of validation, as inline SVG."""

import itertools
import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from pipelines.reporting import axes

MOST_POINTS = 152  # Two units of the picture each.


class Point(NamedTuple):
    """Neighboring values of a curve as one point: last step, mean, least and largest."""

    step: float
    mean: float
    low: float
    high: float


def thinned(values: Sequence[tuple[int, float]], most: int = MOST_POINTS) -> list[Point]:
    """Return a long curve by fewer points: equal runs of neighbors, each with its mean and range.

    Args:
        values: (step, finite value), by step.
        most: points wanted, at most.
    """
    runs = np.array_split(np.array(values, float).reshape(-1, 2), min(most, len(values)) or 1)  # [n, 2] each
    return [Point(run[-1, 0], float(run[:, 1].mean()), run[:, 1].min(), run[:, 1].max()) for run in runs if len(run)]


def curve(
    title: str,
    train: Sequence[tuple[int, float]],
    validation: Sequence[tuple[int, float]],
    shown: Callable[[float], str],
) -> str:
    """Return a figure; "" if there is nothing to draw.

    Args:
        title: of the metric.
        train, validation: (step, value); a line, with its range where it was thinned, and a line with dots.
        shown: from a value to its words, for the texts under the pointer.
    """
    series = {
        name: thinned([(step, value) for step, value in values if math.isfinite(value)])
        for name, values in (("train", train), ("validation", validation))
    }
    series = {name: points for name, points in series.items() if points}
    if not series:
        return ""
    every = [point for points in series.values() for point in points]
    first, last = min(point.step for point in every), max(point.step for point in every)
    start = 0.0 if first < last / 4 else first
    x_end = last if last > start else start + 1
    bottom, top = _range(min(point.low for point in every), max(point.high for point in every))

    def x_of(step: float) -> float:
        return axes.LEFT + axes.PLOT_WIDTH * (step - start) / (x_end - start)

    def y_of(value: float) -> float:
        return axes.TOP + axes.PLOT_HEIGHT * (top - value) / (top - bottom)

    body = [axes.horizontal(y_of(tick), axes.number(tick)) for tick in axes.ticks(top, bottom)]
    body += [axes.vertical(x_of(tick), axes.number(tick)) for tick in _steps(x_end, start)]
    if "train" in series:
        body += _line(series["train"], x_of, y_of, shown)
    if "validation" in series:
        body += _dots(series["validation"], x_of, y_of, shown)
    names = list(series) if len(series) > 1 else []
    splits = " and ".join(series)
    label = title if "train" in series else f"{title}, validation"
    return axes.figure(body, "step", label, f"{title} of {splits} by step", names)


def _line(
    points: list[Point], x_of: Callable[[float], float], y_of: Callable[[float], float], shown: Callable[[float], str]
) -> list[str]:
    upper = [f"{x_of(point.step):.1f},{y_of(point.high):.1f}" for point in points]
    lower = [f"{x_of(point.step):.1f},{y_of(point.low):.1f}" for point in reversed(points)]
    is_thinned = any(point.low != point.high for point in points)
    body = [f'<polygon class="band" points="{" ".join(upper + lower)}"/>'] if is_thinned else []
    middle = " ".join(f"{x_of(point.step):.1f},{y_of(point.mean):.1f}" for point in points)
    # A line of one point would not be seen.
    body.append(
        f'<polyline class="line" points="{middle}"/>'
        if len(points) > 1
        else f'<circle class="bar" cx="{x_of(points[0].step):.1f}" cy="{y_of(points[0].mean):.1f}" r="3"/>'
    )
    # What the pointer rests on: strips as high as the picture, from half way to a point to half way to the next.
    middles = [(x_of(one.step) + x_of(other.step)) / 2 for one, other in itertools.pairwise(points)]
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
    """Return the range of the axis: from 0 where the values come near it, with some margin otherwise."""
    if low >= 0 and low < 0.4 * high:
        return 0.0, high * 1.04
    air = 0.06 * (high - low) or max(abs(high) * 0.05, 1e-9)
    return low - air, high + air


def _steps(end: float, start: float) -> list[float]:
    """Return the ticks of the axis of steps: whole numbers, few enough for labels such as 12.5k."""
    steps = [tick for tick in axes.ticks(end, start) if tick == int(tick)]
    return steps[:: 2 if len(steps) > 6 else 1]
