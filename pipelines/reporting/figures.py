"""Draw the plots of `report.html` as inline SVG, with the axes of `axes.py`."""

import math
from collections.abc import Callable
from html import escape

import numpy as np

from beambert.pipelines.reporting import axes

_MAX_BARS = 44


def histogram(series: dict[str, np.ndarray], x_label: str, things: str) -> str:
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
    bins = last // width + 1
    edges = np.arange(bins + 1) * width
    shares = {}
    for name, counts in series.items():
        padded = np.zeros(bins * width, np.int64)
        padded[: min(len(counts), bins * width)] = counts[: bins * width]
        shares[name] = padded.reshape(bins, width).sum(axis=1) / counts.sum()
    ticks = axes.ticks(float(edges[-1]))
    return _bars(
        edges.astype(float), shares, [(tick, axes.number(tick)) for tick in ticks], x_label, things, lambda x: x
    )


def logarithmic_histogram(series: dict[str, np.ndarray], edges: np.ndarray, x_label: str, things: str) -> str:
    """Return a histogram with a logarithmic x axis, normalized to shares.

    Args:
        series: as for `histogram`: int64 [n or fewer], the number of items by bin.
        edges: [n + 1], edges of the bins, at least 1.
        x_label: label of the x axis.
        things: name of the items, in the plural.
    """
    series = {name: counts for name, counts in series.items() if counts.sum()}
    if not series:
        return _empty_figure(things)
    used = np.flatnonzero(sum(np.pad(counts, (0, len(edges) - 1 - len(counts))) for counts in series.values()))
    first, last = int(used[0]), int(used[-1])
    shares = {
        name: np.pad(counts, (0, len(edges) - 1 - len(counts)))[first : last + 1] / counts.sum()
        for name, counts in series.items()
    }
    shown_edges = edges[first : last + 2].astype(float)
    return _bars(shown_edges, shares, _decades(shown_edges[0], shown_edges[-1]), x_label, things, math.log10)


def rank_plot(counts: np.ndarray, x_label: str, y_label: str) -> str:
    """Return a log-log plot of counts by rank, in which Zipf's law is a descending line."""
    ordered = np.sort(counts[counts > 0])[::-1]
    if len(ordered) < 2:
        return _empty_figure("tokens")
    # Ranks that are evenly spaced on the logarithmic axis.
    ranks = np.unique(np.geomspace(1, len(ordered), 120).round().astype(np.int64))
    x_end, y_start, y_end = math.log10(len(ordered)), math.log10(ordered[-1]), math.log10(ordered[0])
    y_span = max(y_end - y_start, 1e-9)

    def x_of(rank: float) -> float:
        return axes.LEFT + axes.PLOT_WIDTH * math.log10(rank) / x_end

    def y_of(count: float) -> float:
        return axes.TOP + axes.PLOT_HEIGHT * (1 - (math.log10(count) - y_start) / y_span)

    points = " ".join(f"{x_of(rank):.1f},{y_of(ordered[rank - 1]):.1f}" for rank in ranks)
    body = [axes.horizontal(y_of(value), label) for value, label in _decades(float(ordered[-1]), float(ordered[0]))]
    body += [axes.vertical(x_of(value), label) for value, label in _decades(1.0, float(len(ordered)))]
    body.append(f'<polyline class="line" points="{points}"/>')
    return axes.figure(body, x_label, y_label, f"{y_label} by {x_label}, both axes logarithmic", {})


def _bars(
    edges: np.ndarray,
    shares: dict[str, np.ndarray],
    ticks: list[tuple[float, str]],
    x_label: str,
    things: str,
    scale: Callable[[float], float],
) -> str:
    start, end = scale(edges[0]), scale(edges[-1])
    highest = max(float(values.max()) for values in shares.values())
    y_ticks = axes.ticks(highest * 100)
    top = max(y_ticks[-1] / 100, highest)

    def x_of(value: float) -> float:
        return axes.LEFT + axes.PLOT_WIDTH * (scale(value) - start) / (end - start)

    def y_of(share: float) -> float:
        return axes.TOP + axes.PLOT_HEIGHT * (1 - share / top)

    body = [axes.horizontal(y_of(tick / 100), f"{axes.number(tick)}%") for tick in y_ticks]
    body += [axes.vertical(x_of(value), label) for value, label in ticks if edges[0] <= value <= edges[-1]]
    lefts = [x_of(edge) for edge in edges]
    for number, (name, values) in enumerate(shares.items()):
        if number:
            # The second series is an outline over the bars of the first.
            steps = [f"M{lefts[0]:.1f},{y_of(0):.1f}"]
            for i, share in enumerate(values):
                steps.append(f"V{y_of(share):.1f}H{lefts[i + 1]:.1f}")
            body.append(
                f'<path class="outline" d="{"".join(steps)}V{y_of(0):.1f}"><title>{escape(name)}</title></path>'
            )
            continue
        for i, share in enumerate(values):
            if not share:
                continue
            low, high = int(edges[i]), int(edges[i + 1]) - 1
            span = f"{low:,}" if high <= low else f"{low:,} to {high:,}"
            gap = min(1.0, (lefts[i + 1] - lefts[i]) / 4)
            width, height = lefts[i + 1] - lefts[i] - gap, y_of(0) - y_of(share)
            body.append(
                f'<rect class="bar" x="{lefts[i]:.1f}" y="{y_of(share):.1f}" width="{width:.1f}" height="{height:.1f}">'
                f"<title>{span}: {share:.2%}</title></rect>"
            )
    return axes.figure(body, x_label, f"share of {things}", f"Share of {things} by {x_label}", shares)


def _empty_figure(things: str) -> str:
    return f'<p class="nothing">No {escape(things)}.</p>'


def _round_up(value: float) -> int:
    """Return the smallest of 1, 2, 5, 10, 20, ... that is at least `value`."""
    power = 10 ** math.floor(math.log10(max(value, 1)))
    return int(next(step * power for step in axes.STEPS if step * power >= value))


def _decades(start: float, end: float) -> list[tuple[float, str]]:
    """Return (value, label) of the powers of ten within a range, and of 2 and 5 times them in a short range."""
    factors = (1,) if end / start > 1000 else (1, 2, 5)
    powers = range(math.floor(math.log10(start)), math.ceil(math.log10(end)) + 1)
    values = [factor * 10**power for power in powers if power >= 0 for factor in factors]
    return [(float(value), axes.number(value)) for value in values if start <= value <= end]


def figures(plots: list[str]) -> str:
    """Return a row of plots."""
    return f'<div class="figures">{"".join(plots)}</div>'
