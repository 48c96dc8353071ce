"""Test the plots of reports: complete for few and many values, within their frame, and readable."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert.pipelines.examples.statistics import document_bin_start
from beambert.reporting import plots
from beambert.reporting.plots import curve, histogram, logarithmic_histogram, rank_plot, thin
from tests.pages import parsed


def test_plots_of_few_values_are_complete():
    one, none = np.array([0, 0, 7]), np.zeros(0, np.int64)
    edges = document_bin_start(np.arange(8))
    for plot in (
        histogram({"a": one, "b": none}, "x", "things"),
        histogram({"a": none}, "x", "things"),
        histogram({"a": np.eye(1, 100_000, 99_999, dtype=np.int64)[0]}, "x", "things"),
        histogram({"a": np.array([9]), "b": one}, "x", "things"),
        logarithmic_histogram({"a": one}, edges, "x", "things"),
        logarithmic_histogram({"a": np.array([3]), "b": one}, edges, "x", "things"),
        logarithmic_histogram({"a": none}, edges, "x", "things"),
        rank_plot(np.array([5]), "x", "y"),
        rank_plot(np.array([5, 5, 0]), "x", "y"),
        rank_plot(np.arange(100_000), "x", "y"),
    ):
        parsed(plot)
        assert not re.search(r"nan|inf", plot)
        for number in re.findall(r' (?:x|y|width|height)="([^"%]+)"', plot):
            assert 0 <= float(number) <= 360


@pytest.mark.parametrize(("length", "most"), [(44, 44), (129, 44), (513, 44), (100_001, 44)])
def test_bars_hold_every_value_and_are_few(length, most):
    counts = np.random.default_rng(length).integers(0, 9, length)
    counts[-1] = 1
    bars = re.findall(r"<title>([\d,]+)(?: to ([\d,]+))?: ([\d.]+)%</title>", histogram({"a": counts}, "x", "things"))
    assert len(bars) <= most
    for first, last, share in bars:
        low, high = int(first.replace(",", "")), int((last or first).replace(",", ""))
        assert float(share) == pytest.approx(100 * counts[low : high + 1].sum() / counts.sum(), abs=0.006)
    assert sum(float(share) for _, _, share in bars) == pytest.approx(100, abs=0.3)


@given(st.lists(st.floats(-1e6, 1e6), max_size=2000), st.integers(1, 200))
def test_thinning_keeps_ends_mean_and_range(values, most):
    points = thin(list(enumerate(values)), most)
    assert len(points) == min(len(values), most)
    if values:
        assert points[-1].step == len(values) - 1
        assert min(point.low for point in points) == min(values)
        assert max(point.high for point in points) == max(values)
        assert all(point.low - 1e-6 <= point.mean <= point.high + 1e-6 for point in points)
        assert [point.step for point in points] == sorted({point.step for point in points})


@given(
    st.lists(st.floats(-1e9, 1e9) | st.just(float("nan")) | st.just(float("inf")), max_size=12),
    st.lists(st.floats(-1e9, 1e9), max_size=3),
    st.integers(1, 10**6),
)
def test_any_values_give_a_picture_within_its_frame(train, validation, stride):
    series = [[(stride * (i + 1), value) for i, value in enumerate(values)] for values in (train, validation)]
    picture = curve("loss", *series, str)
    if not any(np.isfinite(train)) and not validation:
        assert picture is None
        return
    parsed(picture)
    assert not re.search(r'="[^"]*(nan|inf)', picture)
    for pair in re.findall(r"(-?[\d.]+),(-?[\d.]+)", " ".join(re.findall(r'points="([^"]*)"', picture))):
        x, y = map(float, pair)
        assert plots.LEFT - 0.1 <= x <= plots.WIDTH - plots.RIGHT + 0.1
        assert plots.TOP - 0.1 <= y <= plots.HEIGHT - plots.BOTTOM + 0.1


@given(
    st.lists(st.floats(0, 12), min_size=1, max_size=12),
    st.dictionaries(st.sampled_from(["unigram", "<b>", "bigram"]), st.floats(0, 12), min_size=1),
)
def test_levels_are_lines_within_the_frame_with_readable_names(values, levels):
    picture = curve("loss", list(enumerate(values, 1)), [], "{:.3f}".format, levels)
    parsed(picture)
    lines = [float(y) for y in re.findall(r'class="level" d="M\d+,([\d.]+)H\d+"', picture)]
    assert len(lines) == len(levels)
    assert all(plots.TOP - 0.1 <= y <= plots.HEIGHT - plots.BOTTOM + 0.1 for y in lines)
    names = re.findall(r'class="level-name" x="\d+" y="([\d.]+)"[^>]*>([^<]*)</text>', picture)
    assert {text for _, text in names} == {
        f"{name} {level:.3f}".replace("<b>", "&lt;b&gt;") for name, level in levels.items()
    }
    assert all(0 < float(y) < plots.HEIGHT for y, _ in names)


def test_a_long_run_is_a_small_picture():
    picture = curve("loss", [(step, 1 / step) for step in range(1, 20_001)], [], str)
    assert len(picture) < 40_000
    assert picture.count("<rect") == plots.MAX_POINTS
    assert 'class="band"' in picture


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e6))
def test_ticks_are_a_few_round_numbers_within_the_range(start, span):
    ticks = [value for value, _ in plots.find_ticks(start + span, start)]
    assert 2 <= len(ticks) <= 8
    assert all(start - 1e-6 * span <= tick <= start + span * (1 + 1e-6) for tick in ticks)


@given(st.dictionaries(st.text(max_size=30), st.integers(0, 50), max_size=20), st.integers(0, 100))
def test_a_waterfall_falls_from_all_to_what_is_left(losses, kept):
    whole = kept + sum(losses.values())
    figure = plots.waterfall(whole, losses, "documents")
    if not whole:
        assert "No documents" in figure
        return
    bars = [
        (kind, float(x), float(width))
        for kind, x, width in re.findall(r'<rect class="(\w+)" x="([\d.]+)" y="\d+" width="([\d.]+)"', figure)
    ]
    left = bars[0][1]
    scale = bars[0][2] / whole
    assert [kind for kind, _, _ in bars[1:-1]] == ["loss"] * min(11, sum(1 for loss in losses.values() if loss))
    assert bars[-1][1] == left
    assert bars[-1][2] == pytest.approx(max(0.5, kept * scale), abs=0.1)
    end = left + bars[0][2]
    for _, start, width in bars[1:-1]:
        assert start + width == pytest.approx(max(end, start + 0.5), abs=0.2)
        end = start
    assert end == pytest.approx(left + kept * scale, abs=0.1)
