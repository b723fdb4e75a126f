"""Rates that rise and fall: counts against the integral of the rate, and the curves of a file."""

import math

import numpy as np
import pytest

from simulator.errors import WorkloadError
from simulator.workloads.arrivals import OpenLoop
from simulator.workloads.lengths import Fixed, Independent
from simulator.workloads.rate_curves import RateCurve, daily, read_rate_curve
from simulator.workloads.workload import Workload


def test_counts_follow_the_rate():
    """Poisson counts of windows of 10 minutes over 40 rounds: chi-square within 4 sigma of its mean."""
    curve = RateCurve(1.0, np.array([1.0, 0.0, 3.0, 2.0]), 600.0)
    times = curve.times_s(96_000, np.random.default_rng(1))
    counts = np.histogram(times, np.arange(161) * 600.0)[0]
    expected = np.tile([400.0, 0.0, 1200.0, 800.0], 40)  # shape over its mean of 1.5, times 600 s
    assert (counts[expected == 0] == 0).all()
    seen, due = counts[expected > 0], expected[expected > 0]
    chi_square = ((seen - due) ** 2 / due)[:-1].sum()
    assert abs(chi_square - (len(due) - 1)) < 4 * math.sqrt(2 * len(due))


def test_a_flat_curve_is_an_open_loop():
    flat = RateCurve(4.0, np.ones(5), 7.0, burstiness=0.5)
    for seed in range(3):
        one, other = (each.times_s(500, np.random.default_rng(seed)) for each in (flat, OpenLoop(4.0, 0.5)))
        assert one == pytest.approx(other)


def test_rates_share_their_gaps_and_fewer_are_the_first_of_more():
    curve = daily(0.5)
    slow, fast = (curve.at_rate(rate).times_s(100, np.random.default_rng(0)) for rate in (0.001, 0.002))
    assert (np.diff(slow) >= 0).all()
    assert (fast <= slow).all()
    load = Workload(curve, Independent(Fixed(5), Fixed(5)), 50)
    more = Workload(curve, Independent(Fixed(5), Fixed(5)), 60)
    assert np.array_equal(load.requests().arrival_s, more.requests().arrival_s[:50])


def test_servegen(traces):
    """Two days of Alibaba's m-large in windows of ten minutes."""
    path = traces / "for_fits" / "servegen_10min_rates.csv.gz"
    curve = read_rate_curve(path, "m-large", 2.0)
    assert (len(curve.shape), curve.span_s) == (288, 2 * 86_400)
    assert curve.expected(86_400) == pytest.approx(2.0 * 86_400 * curve.shape[:144].mean() / curve.shape.mean())
    assert curve.expected(4 * 86_400) == pytest.approx(2.0 * 4 * 86_400)
    with pytest.raises(WorkloadError, match="Nearest: m-large"):
        read_rate_curve(path, "m-larg")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a,b\n1,2\n", "cannot be read as a rate curve"),
        ("window_start_s,relative_request_rate\n0,1\n10,1\n30,1\n", "must be evenly spaced"),
        ("window_start_s,relative_request_rate\n0,0\n10,0\n", "not all 0"),
    ],
)
def test_files_that_are_no_curves(tmp_path, text, told):
    path = tmp_path / "curve.csv"
    path.write_text(text)
    with pytest.raises(WorkloadError, match=told):
        read_rate_curve(path)
