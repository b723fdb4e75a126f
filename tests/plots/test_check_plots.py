"""The plot of a check: equal axes, ticks that can be read, each kind of step with a mark of its own."""

import numpy as np
import pytest

from simulator.plots.check_plots import MARKS, plot_check
from tests.support.pictures import cut_off, overlaps

TIERS = ("roofline", "profile", "op tables", "calibrated")


@pytest.mark.slow
@pytest.mark.parametrize("decades", [0.5, 1.4, 3.3])
def test_words_do_not_cover_each_other_and_axes_are_equal(decades):
    draw = np.random.default_rng(0)
    cells = [
        {"measured_s": s, "kind": kind, "others_cores": 0.2 * (s > 0.01), "predicted_s": dict.fromkeys(TIERS, 0.8 * s)}
        for kind in MARKS
        for s in (10 ** draw.uniform(-3, decades - 3, 15)).tolist()
    ]
    figure = plot_check({"cells": cells, "about": {"model": "llama-3.2-1b", "dtype": "bf16", "device": "cpu"}})
    assert not overlaps(figure)
    assert not cut_off(figure)
    for axes, tier in zip(figure.axes, TIERS, strict=True):
        assert axes.get_title() == f"{tier}: 20% off (median)"
        assert axes.get_xlim() == axes.get_ylim()
        assert sum(len(each.get_offsets()) for each in axes.collections) == len(cells)
