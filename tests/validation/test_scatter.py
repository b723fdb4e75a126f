"""The picture of predicted over measured: every measurement is drawn, every panel names its unit, words are apart."""

from typing import get_args

import numpy as np
import pytest

from simulator.validation.measurements import METRICS, Regime
from simulator.validation.scatter import NAMES, REGIMES, Dot, draw_dots
from tests.support.pictures import cut_off, overlaps


def test_every_metric_has_a_name_and_every_regime_a_mark():
    assert set(NAMES) == METRICS
    assert set(REGIMES) == {*get_args(Regime), ""}
    assert len(set(REGIMES.values())) == len(REGIMES)


@pytest.mark.slow
def test_all_are_drawn_under_names_that_do_not_cover_each_other():
    """From 10 ms to 16 minutes: labels of ticks are long."""
    draw = np.random.default_rng(1)
    dots = [
        Dot(metric, regime, float(value), float(value * draw.uniform(0.5, 2)))
        for metric in ("ttft_ms", "tpot_ms", "e2e_latency_ms", "throughput_out_tok_s")
        for regime in REGIMES
        for value in 10 ** draw.uniform(1, 6 if metric != "tpot_ms" else 2, 20)
    ]
    figure = draw_dots(dots)
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == ["E2EL [ms]", "output [tokens/s]", "TPOT [ms]", "TTFT [ms]"]
    for axes in panels:
        assert [len(line.get_xdata()) for line in axes.lines[: len(REGIMES)]] == [20] * len(REGIMES)
        assert "closed loop: 20" in [text.get_text() for text in axes.get_legend().get_texts()]
    assert not overlaps(figure)
    assert not cut_off(figure)


def test_a_row_of_few_panels_has_its_titles_whole():
    for metrics in (["ttft_ms"], ["ttft_ms", "tpot_ms"], ["ttft_ms", "tpot_ms", "itl_ms"]):
        assert not cut_off(draw_dots([Dot(each, "closed_loop", 10.0, 9.0) for each in metrics]))
