"""Draw the plots of reports as inline SVG: histograms, ranks, waterfalls, curves and points.

A plot is 360 units wide, the width of a phone, and is scaled by the page. The style sheet defines the colors.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from beambert.reporting.numbers import short
from beambert.reporting.rendering import macro

WIDTH, HEIGHT = 360, 200
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 12, 40
PLOT_WIDTH, PLOT_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
MAX_POINTS = 152  # Two SVG units per point.
_MAX_BARS = 44
# Maximum width of a digit, and height of a line of text.
_CHARACTER_WIDTH, _TEXT_HEIGHT = 7, 11
# Multiples of powers of ten for ticks and bins.
_STEPS = (1, 2, 5, 10)
_Ticks = Sequence[tuple[float, str]]


class _Plot:
    """A plot under construction.

    Args:
        x_range, y_range: values at both ends of each axis.
        x_scale, y_scale: function that maps a value to a linear scale, such as its logarithm.
    """

    def __init__(
        self,
        x_range: tuple[float, float],
        y_range: tuple[float, float],
        x_scale: Callable[[float], float] = float,
        y_scale: Callable[[float], float] = float,
    ) -> None:
        self._x_scale, self._y_scale = x_scale, y_scale
        self._left, self._right = map(x_scale, x_range)
        self._bottom, self._top = map(y_scale, y_range)
        self._elements: list[tuple[str, dict[str, str | float | None], str, str]] = []

    def x(self, value: float) -> float:
        return LEFT + PLOT_WIDTH * (self._x_scale(value) - self._left) / (self._right - self._left)

    def y(self, value: float) -> float:
        return TOP + PLOT_HEIGHT * (self._top - self._y_scale(value)) / (self._top - self._bottom)

    def draw(self, tag: str, kind: str | None, text: str = "", title: str = "", **attributes: float | str) -> None:
        """Add an element of a class, with a text or a tooltip; `text_anchor` is the attribute text-anchor."""
        shown: dict[str, str | float | None] = {
            name.replace("_", "-"): f"{value:.1f}" if isinstance(value, float) else value
            for name, value in {"class": kind, **attributes}.items()
        }
        self._elements.append((tag, shown, text, title))

    def draw_line(self, kind: str, points: Sequence[tuple[float, float]], tag: str = "polyline") -> None:
        """Add a line, or a polygon, through points."""
        self.draw(tag, kind, points=" ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points))

    def draw_ticks(self, x_ticks: _Ticks, y_ticks: _Ticks) -> None:
        """Add the grid lines of the y axis and the ticks of the x axis, whose labels are kept inside the plot."""
        for value, label in y_ticks:
            y = self.y(value)
            self.draw("path", "grid", d=f"M{LEFT},{y:.1f}H{WIDTH - RIGHT}")
            self.draw("text", None, label, x=LEFT - 5, y=y + 3.5, text_anchor="end")
        for value, label in x_ticks:
            x = self.x(value)
            self.draw("path", "axis", d=f"M{x:.1f},{HEIGHT - BOTTOM}v4")
            middle = min(x, WIDTH - _CHARACTER_WIDTH * len(label) / 2)
            self.draw("text", None, label, x=middle, y=HEIGHT - BOTTOM + 15, text_anchor="middle")

    def figure(self, x_label: str, y_label: str, description: str, series: Sequence[str] = ()) -> Markup:
        """Return the plot as HTML, with the label of the y axis as its caption, and a legend for two series."""
        self.draw("path", "axis", d=f"M{LEFT},{TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}")
        self.draw("text", "label", x_label, x=LEFT + PLOT_WIDTH / 2, y=HEIGHT - 6, text_anchor="middle")
        legend = list(zip(("bar-mark", "outline-mark"), series, strict=False)) if len(series) > 1 else []
        return macro("elements.html", "figure")(WIDTH, HEIGHT, y_label, legend, description, self._elements)


def find_ticks(end: float, start: float = 0.0) -> list[tuple[float, str]]:
    """Return three to seven round tick values within a range, with their labels."""
    power = 10.0 ** math.floor(math.log10((end - start) / 4))
    step = next(step * power for step in _STEPS if step * power >= (end - start) / 6)
    numbers = range(math.ceil(start / step - 1e-9), math.floor(end / step + 1e-9) + 1)
    values = [float(f"{step * number:.12g}") for number in numbers]
    return [(value, _tick_label(value)) for value in values]


def _tick_label(value: float) -> str:
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:g}{suffix}"
    # Scientific notation, because 0.00015 is wider than the margin.
    return f"{value:.4g}" if value == 0 or abs(value) >= 1e-3 else f"{value:.2g}".replace("e-0", "e-")


def _decades(start: float, end: float) -> list[tuple[float, str]]:
    """Return the powers of ten within a range as ticks, and 2 and 5 times them in a short range."""
    factors = (1,) if end / start > 1000 else (1, 2, 5)
    powers = range(math.floor(math.log10(start)), math.ceil(math.log10(end)) + 1)
    values = [factor * 10**power for power in powers if power >= 0 for factor in factors]
    return [(float(value), _tick_label(value)) for value in values if start <= value <= end]


def _empty_figure(things: str) -> Markup:
    return Markup('<p class="nothing">No {}.</p>').format(things)


# Histograms and ranks.


def histogram(series: Mapping[str, np.ndarray], x_label: str, things: str) -> Markup:
    """Return a histogram over integer values, normalized to shares.

    Args:
        series: up to two series by name: int64 [n], the number of items by value. Empty series are omitted.
        x_label: label of the x axis.
        things: name of the items, in the plural.

    Returns:
        A figure, or a paragraph if all series are empty.
    """
    series = {name: counts for name, counts in series.items() if counts.sum()}
    if not series:
        return _empty_figure(things)
    last = max(int(np.flatnonzero(counts)[-1]) for counts in series.values())
    width = max(1, _round_up((last + 1) / _MAX_BARS)) if last >= _MAX_BARS else 1
    edges = np.arange(last // width + 2) * width
    shares = {
        name: _resized(counts, edges[-1]).reshape(-1, width).sum(axis=1) / counts.sum()
        for name, counts in series.items()
    }
    return _bars(edges, shares, find_ticks(float(edges[-1])), x_label, things, float)


def logarithmic_histogram(series: Mapping[str, np.ndarray], edges: np.ndarray, x_label: str, things: str) -> Markup:
    """Return a histogram with a logarithmic x axis, normalized to shares.

    Args:
        series: as for `histogram`: int64 [n or fewer], the number of items by bin.
        edges: [n + 1], edges of the bins, at least 1.
        x_label: label of the x axis.
        things: name of the items, in the plural.
    """
    series = {name: _resized(counts, len(edges) - 1) for name, counts in series.items() if counts.sum()}
    if not series:
        return _empty_figure(things)
    used = np.flatnonzero(sum(series.values()))
    first, last = int(used[0]), int(used[-1])
    shares = {name: counts[first : last + 1] / counts.sum() for name, counts in series.items()}
    edges = edges[first : last + 2]
    return _bars(edges, shares, _decades(float(edges[0]), float(edges[-1])), x_label, things, math.log10)


def rank_plot(counts: np.ndarray, x_label: str, y_label: str) -> Markup:
    """Return a log-log plot of counts by rank, in which Zipf's law is a descending line."""
    ordered = np.sort(counts[counts > 0])[::-1].astype(float)
    if len(ordered) < 2:
        return _empty_figure("tokens")
    # Ranks that are evenly spaced on the logarithmic axis.
    ranks = np.unique(np.geomspace(1, len(ordered), 120).round().astype(np.int64))
    low, high = ordered[-1], ordered[0]
    # Equal counts are at the bottom.
    plot = _Plot((1.0, float(len(ordered))), (low, max(high, low * (1 + 1e-9))), math.log10, math.log10)
    plot.draw_ticks(_decades(1.0, float(len(ordered))), _decades(low, high))
    plot.draw_line("line", [(rank, ordered[rank - 1]) for rank in ranks])
    return plot.figure(x_label, y_label, f"{y_label} by {x_label}, both axes logarithmic")


def _bars(
    edges: np.ndarray,
    shares: Mapping[str, np.ndarray],
    ticks: _Ticks,
    x_label: str,
    things: str,
    scale: Callable[[float], float],
) -> Markup:
    highest = max(float(values.max()) for values in shares.values())
    y_ticks = [(value / 100, f"{label}%") for value, label in find_ticks(highest * 100)]
    plot = _Plot((float(edges[0]), float(edges[-1])), (0.0, max(y_ticks[-1][0], highest)), scale)
    plot.draw_ticks([tick for tick in ticks if edges[0] <= tick[0] <= edges[-1]], y_ticks)
    lefts, bottom = [plot.x(float(edge)) for edge in edges], plot.y(0.0)
    names = list(shares)
    for i, bar_share in enumerate(shares[names[0]]):
        if bar_share:
            low, high = int(edges[i]), int(edges[i + 1]) - 1
            span = f"{low:,}" if high <= low else f"{low:,} to {high:,}"
            width, y = lefts[i + 1] - lefts[i], plot.y(bar_share)
            width -= min(1.0, width / 4)
            title = f"{span}: {bar_share:.2%}"
            plot.draw("rect", "bar", title=title, x=lefts[i], y=y, width=width, height=bottom - y)
    for name in names[1:]:
        # The second series is an outline over the bars of the first.
        steps = "".join(
            f"V{plot.y(share):.1f}H{right:.1f}" for share, right in zip(shares[name], lefts[1:], strict=True)
        )
        plot.draw("path", "outline", title=name, d=f"M{lefts[0]:.1f},{bottom:.1f}{steps}V{bottom:.1f}")
    return plot.figure(x_label, f"share of {things}", f"Share of {things} by {x_label}", names)


def _resized(counts: np.ndarray, length: int) -> np.ndarray:
    """Return counts padded with 0, or truncated, to a length."""
    return np.pad(counts[:length], (0, max(0, length - len(counts))))


def _round_up(value: float) -> int:
    """Return the smallest of 1, 2, 5, 10, 20, ... that is at least `value`."""
    power = 10 ** math.floor(math.log10(max(value, 1)))
    return int(next(step * power for step in _STEPS if step * power >= value))


# Waterfalls.

_ROW, _NAME_WIDTH, _NUMBER_WIDTH = 17, 118, 84
_MAX_LOSSES = 10
_MAX_NAME = 18


def waterfall(whole: int, losses: Mapping[str, int], things: str) -> Markup:
    """Return a figure of what is read, what each rule removes of it, the largest loss first, and what is kept.

    Args:
        whole: number read.
        losses: number removed by rule; those without are omitted.
        things: what is counted, in the plural.

    Returns:
        A figure, or a paragraph if nothing is read.
    """
    if not whole:
        return _empty_figure(things)
    ordered = sorted(((name, loss) for name, loss in losses.items() if loss), key=lambda pair: (-pair[1], pair[0]))
    if others := ordered[_MAX_LOSSES:]:
        ordered = [*ordered[:_MAX_LOSSES], (f"{len(others)} more", sum(loss for _, loss in others))]
    rows, left = [("read", 0, whole)], whole
    for name, loss in ordered:
        left -= loss
        rows.append((name, left, loss))
    rows.append(("kept", 0, left))
    elements: list[tuple[str, dict[str, str], str, str]] = []
    scale = (WIDTH - _NAME_WIDTH - _NUMBER_WIDTH) / whole
    for number, (name, start, size) in enumerate(rows):
        y = number * _ROW
        is_total = number in (0, len(rows) - 1)
        place = {"x": f"{_NAME_WIDTH + start * scale:.1f}", "y": str(y + 2)}
        shape = {"width": f"{max(0.5, size * scale):.1f}", "height": str(_ROW - 4)}
        shown = name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"
        texts = ((shown, _NAME_WIDTH - 6), (f"{'' if is_total else '−'}{short(size)}", WIDTH - 2))
        elements += [
            ("text", {"class": "label", "x": str(x), "y": str(y + 12), "text-anchor": "end"}, text, "")
            for text, x in texts
        ]
        title = f"{name}: {size:,} ({size / whole:.1%})"
        elements.append(("rect", {"class": "bar" if is_total else "loss", **place, **shape}, "", title))
    height = len(rows) * _ROW + 4
    return macro("elements.html", "figure")(WIDTH, height, things, [], f"{things}, from read to kept", elements)


# Curves and points.


class Point(NamedTuple):
    """A point for consecutive values of a curve: last step, mean, minimum and maximum."""

    step: float
    mean: float
    low: float
    high: float


def thin(values: Sequence[tuple[int, float]], max_points: int = MAX_POINTS) -> list[Point]:
    """Return a curve with fewer points: the mean and range of groups of consecutive values.

    Args:
        values: (step, finite value) pairs, ordered by step.
        max_points: maximum number of points.
    """
    groups = np.array_split(np.array(values, float).reshape(-1, 2), min(max_points, len(values)) or 1)  # [n, 2] each
    return [Point(g[-1, 0], float(g[:, 1].mean()), g[:, 1].min(), g[:, 1].max()) for g in groups if len(g)]


def curve(
    title: str,
    train: Sequence[tuple[int, float]],
    validation: Sequence[tuple[int, float]],
    shown: Callable[[float], str],
    levels: Mapping[str, float] | None = None,
) -> Markup | None:
    """Return a metric by step as a figure; None without finite values.

    Args:
        title: label of the metric.
        train, validation: (step, value) pairs. Training is a line, with a range band if it has many points; validation
            is a line with dots.
        shown: function that formats a value, for tooltips.
        levels: finite values of named horizontal lines.
    """
    levels = levels or {}
    series = {
        name: points
        for name, values in (("train", train), ("validation", validation))
        if (points := thin([(step, value) for step, value in values if math.isfinite(value)]))
    }
    if not series:
        return None
    all_points = [point for points in series.values() for point in points]
    first, last = min(point.step for point in all_points), max(point.step for point in all_points)
    start = 0.0 if first < last / 4 else first
    end = last if last > start else start + 1
    bottom, top = _value_range(
        [*levels.values(), *(value for point in all_points for value in (point.low, point.high))]
    )
    plot = _Plot((start, end), (bottom, top))
    # Integer ticks, few enough for labels such as 12.5k.
    steps = [tick for tick in find_ticks(end, start) if tick[0] == int(tick[0])]
    plot.draw_ticks(steps[:: 2 if len(steps) > 6 else 1], find_ticks(top, bottom))
    _draw_levels(plot, levels, shown, next(iter(series.values())))
    _draw_training(plot, series.get("train", []), shown)
    if validation_points := series.get("validation"):
        plot.draw_line("outline", [(point.step, point.mean) for point in validation_points])
        for point in validation_points:
            words = f"validation, step {point.step:,.0f}: {shown(point.mean)}"
            plot.draw("circle", "dot", title=words, cx=plot.x(point.step), cy=plot.y(point.mean), r=2.5)
    described = ", ".join(f"{name} {shown(value)}" for name, value in levels.items())
    return plot.figure(
        "step",
        title if "train" in series else f"{title}, validation",
        f"{title} of {' and '.join(series)} by step" + (f"; levels: {described}" if described else ""),
        list(series),
    )


def _draw_levels(
    plot: _Plot, levels: Mapping[str, float], shown: Callable[[float], str], points: Sequence[Point]
) -> None:
    """Draw horizontal lines with their names above them, or below where the line above is near.

    A name is at the end of the line where the curve is farther away.
    """
    above = -math.inf
    for name, value in sorted(levels.items(), key=lambda level: -level[1]):
        y = plot.y(value)
        # The name of the line above may be below that line only if this line leaves room for both.
        baseline = y - 3 if y - above > _TEXT_HEIGHT + 3 else y + _TEXT_HEIGHT
        above = max(y, baseline)
        is_left = abs(points[0].mean - value) > abs(points[-1].mean - value)
        x, anchor = (LEFT + 4, "start") if is_left else (WIDTH - RIGHT, "end")
        plot.draw("path", "level", d=f"M{LEFT},{y:.1f}H{WIDTH - RIGHT}")
        plot.draw("text", "level-name", f"{name} {shown(value)}", x=x, y=baseline, text_anchor=anchor)


def _draw_training(plot: _Plot, points: Sequence[Point], shown: Callable[[float], str]) -> None:
    if any(point.low != point.high for point in points):
        upper = [(point.step, point.high) for point in points]
        plot.draw_line("band", [*upper, *((point.step, point.low) for point in reversed(points))], "polygon")
    if len(points) == 1:  # A line would be invisible.
        plot.draw("circle", "bar", cx=plot.x(points[0].step), cy=plot.y(points[0].mean), r=3)
    elif points:
        plot.draw_line("line", [(point.step, point.mean) for point in points])
    # Tooltip areas: full-height strips around each point.
    middles = [(plot.x(left.step) + plot.x(right.step)) / 2 for left, right in itertools.pairwise(points)]
    edges = [float(LEFT), *middles, float(WIDTH - RIGHT)]
    for point, (left, right) in zip(points, itertools.pairwise(edges), strict=False):
        text = f"step {point.step:,.0f}: {shown(point.mean)}"
        if point.low != point.high:
            text += f" ({shown(point.low)} to {shown(point.high)})"
        plot.draw("rect", "hover", title=text, x=left, y=TOP, width=max(right - left, 0.0), height=PLOT_HEIGHT)


def _value_range(values: Sequence[float]) -> tuple[float, float]:
    """Return the range of the axis: from 0 if the values are near 0, otherwise with a margin."""
    low, high = min(values), max(values)
    if low >= 0 and low < 0.4 * high:
        return 0.0, high * 1.04
    margin = 0.06 * (high - low) or max(abs(high) * 0.05, 1e-9)
    return low - margin, high + margin


def scatter(points: Sequence[tuple[float, float]], x_label: str, y_label: str, description: str) -> Markup:
    """Return a plot of (x, y) points with the diagonal on which both are equal."""
    x_range, y_range = (_padded_range(values) for values in zip(*points, strict=True))
    plot = _Plot(x_range, y_range)
    plot.draw_ticks(find_ticks(x_range[1], x_range[0]), find_ticks(y_range[1], y_range[0]))
    first, last = max(x_range[0], y_range[0]), min(x_range[1], y_range[1])
    if first < last:
        ends = (f"{plot.x(value):.1f},{plot.y(value):.1f}" for value in (first, last))
        plot.draw("path", "diagonal", d=f"M{'L'.join(ends)}")
    for x, y in points:
        title = f"{x_label} {x:.4g}, {y_label} {y:.4g}"
        plot.draw("circle", "point", title=title, cx=plot.x(x), cy=plot.y(y), r=2.5)
    return plot.figure(x_label, y_label, description)


def _padded_range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = 0.04 * (high - low) or max(abs(high) * 0.05, 0.5)
    return low - margin, high + margin
