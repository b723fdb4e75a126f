"""Labels and legends: none covers another, none is cut off; colours are told apart by who sees fewer of them."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from simulator.plots.labels import legend_below, spread_labels
from simulator.plots.marks import MARKERS, Curve, whisker
from simulator.plots.palette import RESOURCES, SERIES, plain_ticks
from simulator.plots.panels import MEMORY
from simulator.plots.run_plots import PART_COLOURS
from tests.support.pictures import cut_off, overlaps

LINEAR = {  # linear RGB without one kind of cone: Machado, Oliveira, Fernandes, TVCG 15 (2009), severity 1
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "all cones": np.eye(3).tolist(),
}
XYZ = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]  # of sRGB, D65
TOLD_APART = 15.0  # in CIELAB; about 2 is just noticed side by side


def lab(colour: str, cones: str) -> np.ndarray:
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = np.array(XYZ) @ np.clip(np.array(LINEAR[cones]) @ linear, 0, 1) / [0.9505, 1.0, 1.089]
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("cones", LINEAR)
@pytest.mark.parametrize("colours", [SERIES, RESOURCES.values(), PART_COLOURS.values(), MEMORY.values()])
def test_colours_of_one_plot_are_told_apart_without_red_or_green(colours, cones):
    close = [(a, b) for a, b in combinations(colours, 2) if np.linalg.norm(lab(a, cones) - lab(b, cones)) < TOLD_APART]
    assert not close


def test_no_two_curves_of_a_plot_look_the_same():
    number = len(SERIES) * len(MARKERS)
    assert len({Curve.of(place) for place in range(number)}) == number


def crowd(points: list[tuple[float, float]]) -> Figure:
    figure = Figure(figsize=(5, 4), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(0, 10), ylim=(0, 10))
    for place, at in enumerate(points):
        axes.plot(*at, "o")
        axes.annotate(f"label {place}", at, (5, 4), textcoords="offset points")
    return figure


@pytest.mark.parametrize(
    "points",
    [[(5 + 0.1 * each, 5) for each in range(8)], [(5, 5 + 0.02 * each) for each in range(6)], [(9.9, 9.9), (9.8, 9.7)]],
)
def test_labels_of_a_crowd_are_spread_inside_the_axes(points):
    assert overlaps(crowd(points)) or any(at[0] > 9 for at in points)  # without it they do
    figure = crowd(points)
    spread_labels(figure)
    assert not overlaps(figure)
    (axes,) = figure.axes
    inside = axes.get_window_extent()
    for box in (each.get_window_extent() for each in axes.texts):
        assert inside.x0 <= box.x0 <= box.x1 <= inside.x1
        assert inside.y0 <= box.y0 <= box.y1 <= inside.y1


def test_a_label_of_no_place_is_left_alone():
    figure = crowd([(1, 1), (float("nan"), 1)])
    spread_labels(figure)
    assert figure.axes[0].texts[1].get_position() == (5, 4)


@pytest.mark.parametrize(("letters", "columns"), [(3, 4), (40, 2), (75, 1)])
def test_a_legend_has_as_many_columns_as_fit(letters, columns):
    figure = Figure(figsize=(8, 4), layout="constrained")
    figure.subplots()
    legend = legend_below(figure, [Line2D([], [], label="x" * letters) for _ in range(7)], grows=True)
    FigureCanvasAgg(figure).draw()
    assert legend._ncols == columns
    assert not cut_off(figure)
    assert figure.legends == [legend]
    assert figure.get_figheight() > 4 or columns == 4


def test_an_interval_without_an_upper_end_is_an_arrow_to_the_edge():
    figure = Figure()
    axes = figure.subplots()
    axes.set(xlim=(0, 10))
    whisker(axes, "x", 1.0, (2.0, 3.0))
    whisker(axes, "x", 2.0, (2.0, None))
    whisker(axes, "x", 3.0, (None, None))
    assert [list(line.get_ydata()) for line in axes.lines] == [[1, 1], [2, 2], [2.0]]
    assert axes.lines[1].get_xdata()[1] > 10
    assert axes.lines[2].get_marker() == ">"


def test_an_interval_that_begins_at_0_is_an_arrow_to_the_left_of_a_logarithmic_axis_alone():
    for scale, marks in (("log", ["|", "<"]), ("linear", ["|"])):
        axes = Figure().subplots()
        axes.set(xscale=scale, xlim=(0.1, 10.0))
        whisker(axes, "x", 1.0, (0.0, 3.0))
        assert [each.get_marker() for each in axes.lines] == marks
        if scale == "log":
            assert tuple(axes.lines[1].get_xydata()[0]) == (0.0, 1.0)


def test_ticks_of_a_linear_axis_have_as_many_decimals():
    small, large = ["0.00", "0.05", "0.10", "0.15", "0.20"], ["0", "500", "1,000", "1,500", "2,000"]
    for most, written in ((0.2, small), (2000.0, large)):
        axes = Figure().subplots()
        axes.set_yticks([each * most / 4 for each in range(5)])
        plain_ticks(axes.yaxis)
        assert [each.get_text() for each in axes.get_yticklabels()] == written
