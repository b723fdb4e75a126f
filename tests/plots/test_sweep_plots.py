"""Plots of sweeps: what they draw is what the rows say, the knee is where the SLO ends, axes show small and large."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from simulator.plots.marks import MARKERS, Curve
from simulator.plots.palette import BOUND, wide_axis
from simulator.plots.sweep_plots import Sweep, plot_cost_curves, plot_sweep
from simulator.plots.tuning_plot import plot_tuned
from simulator.reports.slo import Slo
from tests.support.pictures import cut_off, overlaps


def row(x: float, attained: float, *, overloaded: bool = False, factor: float = 1.0) -> dict:
    """A simulation whose p95 of TTFT is 100 ms x, half of that its median, and whose intervals are a factor of two."""
    kept = not overloaded and attained >= 0.95
    found = {
        "overloaded": overloaded,
        "meets_slo": kept,
        "slo_attainment": attained,
        "interval": 0.8,
        "devices": 2,
        "replicas": 3,
    }
    for name, value in (("ttft", 100.0 * x * factor), ("tpot", 10.0 * x)):
        p95 = None if overloaded and name == "ttft" else value
        found |= {f"p95_{name}_ms": p95, f"median_{name}_ms": p95 and p95 / 2}
        found |= {f"p95_{name}_ms_low": p95 and p95 / 2, f"p95_{name}_ms_high": p95 and 2 * p95}
    user, all_of_it = 100 / x, 600.0 * x
    found |= {"tokens_per_s_user": user, "tokens_per_s_user_low": user / 2, "tokens_per_s_user_high": user * 2}
    return found | {"output_throughput": all_of_it, "output_throughput_low": None, "output_throughput_high": None}


X = [4.0, 1.0, 2.0, 8.0, 16.0]
ROWS = [row(4, 0.96), row(1, 1.0), row(2, 0.98), row(8, 0.5), row(16, 0.97, overloaded=True)]
SWEEP = Sweep("title", "requests/s", X, ["a"] * 5, ROWS, Slo({"ttft": 0.5}))


def test_the_knee_is_the_largest_load_up_to_which_the_slo_is_kept():
    (places,) = SWEEP.curves.values()
    assert [X[place] for place in places] == [1, 2, 4, 8, 16]
    assert [X[place] for place in SWEEP.kept(places)] == [4]  # 16 has a share above 95 %, and a queue that grows
    of_settings = Sweep("", "max seqs", X, ["a"] * 5, [*ROWS[:3], row(8, 0.5), row(16, 0.97)], SWEEP.slo, of_load=False)
    assert [X[place] for place in of_settings.kept(places)] == [1, 2, 4, 16]
    assert Sweep("", "", X, ["a"] * 5, ROWS, Slo()).kept(places) == []


def test_latencies_the_slo_and_the_knee_are_drawn_where_they_are():
    ttft, tpot, pareto = plot_sweep(SWEEP).axes
    p95, median, *_ = ttft.lines
    assert np.array(p95.get_xydata()).tolist() == [[1, 100], [2, 200], [4, 400], [8, 800]]
    assert median.get_ydata().tolist() == [50, 100, 200, 400]
    (bound,) = (line for line in ttft.lines if line.get_color() == BOUND)
    assert set(bound.get_ydata()) == {500}
    assert not [line for line in tpot.lines if line.get_color() == BOUND]
    (ring,) = (line for line in ttft.lines if line.get_markersize() == 12)
    assert (list(ring.get_xdata()), list(ring.get_ydata())) == ([4], [400])
    (cross,) = (line for line in ttft.lines if line.get_marker() == "x")
    assert list(cross.get_xdata()) == [16]
    assert cross.get_window_extent().y0 > ttft.get_window_extent().y1
    assert (ttft.get_xscale(), ttft.get_yscale()) == ("log", "log")
    points = np.array(pareto.lines[0].get_xydata()).tolist()
    assert points == [[100 / x, 100 * x] for x in (1, 2, 4, 8, 16)]  # of six devices
    low, high = ttft.get_ylim()
    assert low < 50
    assert high > 1600  # the upper end of the interval, too
    assert pareto.get_xlim()[0] < 100 / 16 / 2
    assert pareto.get_xlim()[1] > 200


def test_an_interval_far_above_all_loads_does_not_hide_them():
    rows = [{**each, "p95_ttft_ms_high": high} for each, high in zip(ROWS, (None, 200, 400, 80_000, None), strict=True)]
    ttft, *_ = plot_sweep(Sweep("title", "requests/s", X, ["a"] * 5, rows, SWEEP.slo)).axes
    assert 800 < ttft.get_ylim()[1] < 1600


def test_requests_of_one_token_have_no_tpot_and_no_ring_there():
    rows = [{**each, "p95_tpot_ms": None, "median_tpot_ms": None} for each in ROWS]
    ttft, tpot, _ = plot_sweep(Sweep("", "requests/s", X, ["a"] * 5, rows, SWEEP.slo)).axes
    (knee,), (none,) = ([line for line in axes.lines if line.get_markersize() == 12] for axes in (ttft, tpot))
    assert list(knee.get_ydata()) == [400]
    assert np.isnan(none.get_ydata()).all()


def test_one_colour_is_one_deployment_and_words_are_ticks():
    rows = [row(1, 1), row(2, 1), row(3, 1), row(4, 1)]
    sweep = Sweep("", "settings", ["x=on", "x=off"] * 2, ["a", "a", "b", "b"], rows, Slo(), of_load=False)
    figure = plot_sweep(sweep)
    assert [each.get_text() for each in figure.axes[0].get_xticklabels()] == ["x=on", "x=off"]
    marks = [{(line.get_color(), line.get_marker()) for line in axes.lines if line.get_marker() in MARKERS}
             for axes in figure.axes]  # fmt: skip
    assert marks[0] == marks[1] == marks[2] == {tuple(Curve.of(0)), tuple(Curve.of(1))}
    (legend,) = figure.legends
    assert [each.get_text() for each in legend.get_texts()] == ["a", "b", "p95", "median", "held-out 80% interval"]


def test_crosses_of_curves_that_are_overloaded_at_one_load_do_not_cover_each_other():
    rows = [row(x, 0.9, overloaded=x > 2) for x in (1, 2, 4, 8)] * 3
    figure = plot_sweep(Sweep("", "requests/s", [1.0, 2, 4, 8] * 3, [*"aaaabbbbcccc"], rows, Slo()))
    FigureCanvasAgg(figure).draw()
    crosses = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
    heights = sorted(line.get_window_extent().y0 for line in crosses)
    assert [list(line.get_xdata()) for line in crosses] == [[4, 8]] * 3
    assert min(np.diff(heights)) > crosses[0].get_markersize() * figure.dpi / 72
    assert not overlaps(figure)


def test_points_of_one_curve_that_lie_on_each_other_share_a_label():
    """Above its capacity a device serves the same, whatever is asked of it."""
    rows = [row(min(x, 4), 0.9) for x in (1, 2, 4, 8, 16)]
    _, _, pareto = plot_sweep(Sweep("", "requests/s", [1.0, 2, 4, 8, 16], ["a"] * 5, rows, Slo())).axes
    assert [each.get_text() for each in pareto.texts] == ["1", "2", "4 to 16"]


@pytest.mark.slow
def test_labels_of_curves_that_lie_close_do_not_cover_each_other_or_leave_the_figure():
    x, names = [1.0, 2, 4, 8] * 4, [f"{model} on l40s" for model in ("llama-3.1-8b", "mistral-7b", "qwen2.5-7b", "opt")]
    rows = [row(each, 0.9, factor=1.02**place) | {"output_throughput": 600.0 * each * 1.02**place}
            for place in range(4) for each in x[:4]]  # fmt: skip
    figure = plot_sweep(Sweep("title", "requests/s", x, [name for name in names for _ in range(4)], rows, SWEEP.slo))
    assert not overlaps(figure)
    assert not cut_off(figure)
    assert len(figure.axes[2].texts) == 16


def test_a_single_load_has_its_interval():
    rows = [row(1, 1), row(2, 1)]
    ttft, *_ = plot_sweep(Sweep("", "max tokens", [1.0, 2.0], ["a", "b"], rows, Slo(), of_load=False)).axes
    spans = [list(line.get_ydata()) for line in ttft.lines if line.get_marker() == "_"]
    assert spans == [[50, 200], [100, 400]]


def test_cost_is_drawn_over_the_load_with_replicas_and_without_what_keeps_no_slo():
    def bill(rate: float, usd: float, replicas: int) -> dict:
        found = {"asked_rate_per_s": rate, "replicas": replicas, "interval": 0.8}
        for key in ("usd_per_million_output_tokens", "usd_per_hour"):
            found |= {key: usd if replicas else None, f"{key}_low": usd / 2, f"{key}_high": None}
        return found

    rows = [bill(10, 3, 2), bill(1, 9, 1), bill(1, 1, 0)]
    figure = plot_cost_curves(rows, ["a", "a", "b"])
    left, right = figure.axes
    assert np.array(left.lines[0].get_xydata()).tolist() == [[1, 9], [10, 3]]
    assert [each.get_text() for each in right.texts] == ["1", "2"]
    assert left.get_xscale() == "log"
    curves = [line for line in left.lines if line.get_marker() in MARKERS[:2]]
    assert [len(line.get_xdata()) for line in curves] == [2, 0]
    arrows = [line.get_xdata()[0] for line in left.lines if line.get_marker() == "^"]
    assert arrows == [1, 10]  # neither interval has an upper end


@pytest.mark.parametrize(("values", "scale"), [([1, 7], "linear"), ([1, 9], "log"), ([], "linear"), ([0, 5], "linear")])
def test_axes_are_logarithmic_where_linear_ones_would_hide_the_small(values, scale):
    _, axes = plt.subplots()
    wide_axis(axes, "y", values)
    assert axes.get_yscale() == scale
    plt.close("all")


def test_tuned_settings_have_a_bar_each_and_what_keeps_no_slo_is_written():
    bars = [("default", 2.0, 1.0, 3.0), ("best", 3.0, 2.0, 4.0), ("best without --max-num-seqs", 0.0, None, None)]
    (axes,) = plot_tuned(bars, "req/s", "title").axes
    assert [bar.get_width() for bar in axes.patches] == [2.0, 3.0, 0.0]
    assert [list(line.get_xdata()) for line in axes.lines] == [[1.0, 3.0], [2.0, 4.0]]
    assert [text.get_text().strip() for text in axes.texts] == ["2.00", "3.00", "no load keeps the SLO"]
    assert [label.get_text() for label in axes.get_yticklabels()] == [name for name, *_ in bars]
