"""Draw axes, ticks and captions of plots as inline SVG without scripts, for the reports of data and of training.

A plot is 360 units wide, the width of a phone, and is scaled by the page. The style sheet defines the colors. The
module depends on neither Beam nor TensorFlow.
"""

import math
from collections.abc import Iterable
from html import escape

WIDTH, HEIGHT = 360, 200
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 12, 40
PLOT_WIDTH, PLOT_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
# Maximum width of a digit.
_CHARACTER_WIDTH = 7
# Multiples of powers of ten for ticks and bins.
STEPS = (1, 2, 5, 10)


def figure(body: list[str], x_label: str, y_label: str, description: str, series: Iterable[str] = ()) -> str:
    """Return a plot with its caption, and with a legend for two series.

    Args:
        body: SVG elements of the plot.
        x_label: label of the x axis.
        y_label: label of the y axis, shown as the caption.
        description: text alternative for screen readers.
        series: names of the first series, a line or bars, and of the second, an outline.
    """
    axis = f'<path class="axis" d="M{LEFT},{TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>'
    label = f'<text class="label" x="{LEFT + PLOT_WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle">'
    legend, names = "", list(series)
    if len(names) > 1:
        marks = zip(("bar-mark", "outline-mark"), names, strict=False)
        legend = " ".join(f'<span class="legend"><i class="{mark}"></i>{escape(name)}</span>' for mark, name in marks)
    return (
        f'<figure><figcaption>{escape(y_label)} {legend}</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(description)}">{"".join(body)}{axis}{label}{escape(x_label)}</text></svg></figure>'
    )


def horizontal(y: float, label: str) -> str:
    """Return a horizontal grid line with its tick label."""
    return (
        f'<path class="grid" d="M{LEFT},{y:.1f}H{WIDTH - RIGHT}"/>'
        f'<text x="{LEFT - 5}" y="{y + 3.5:.1f}" text-anchor="end">{label}</text>'
    )


def vertical(x: float, label: str) -> str:
    """Return a tick of the x axis with its label, which is kept inside the plot."""
    y = HEIGHT - BOTTOM
    middle = min(x, WIDTH - _CHARACTER_WIDTH * len(label) / 2)
    text = f'<text x="{middle:.1f}" y="{y + 15}" text-anchor="middle">{label}</text>'
    return f'<path class="axis" d="M{x:.1f},{y}v4"/>{text}'


def ticks(end: float, start: float = 0.0) -> list[float]:
    """Return three to seven round tick values within a range."""
    power = 10.0 ** math.floor(math.log10((end - start) / 4))
    step = next(step * power for step in STEPS if step * power >= (end - start) / 6)
    numbers = range(math.ceil(start / step - 1e-9), math.floor(end / step + 1e-9) + 1)
    return [float(f"{step * number:.12g}") for number in numbers]


def number(value: float) -> str:
    """Return a compact tick label."""
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:g}{suffix}"
    # Scientific notation, because 0.00015 is wider than the margin.
    return f"{value:.4g}" if value == 0 or abs(value) >= 1e-3 else f"{value:.2g}".replace("e-0", "e-")
