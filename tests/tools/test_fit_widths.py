"""The fit of interval widths, on made residuals whose spread is known."""

import numpy as np
import pytest

from simulator.reports.interval_widths import LEVELS, WidthKey, shipped
from tools.fit_intervals import Summary, held
from tools.fit_widths import Residual, Residuals

Z90 = 1.2816  # 0.9-quantile of the standard normal distribution


def made(sigma: float = 0.2, sources: int = 30, rows: int = 60, **changed: float) -> list[Residual]:
    """Return residuals of some sources: normal, with a sigma of their own for experts, of TPOT and of throughput."""
    draw = np.random.default_rng(1)
    found = []
    for source in range(sources):
        for at in range(rows):
            experts = at % 2 == 0
            metric = "tpot_ms" if at % 4 < 2 else "req_s"
            spread = changed.get("experts", sigma) if experts else sigma
            key = WidthKey(metric, "closed_loop", ("experts",) if experts else ())
            found.append(Residual(key, (f"s{source}", "h", "m"), float(draw.normal(0, spread))))
    return found


def test_widths_are_those_that_made_the_residuals_and_hold_their_share():
    table = Residuals(made(0.2)).tables[""]
    low, high = table.ends(WidthKey("tpot_ms", "closed_loop"), 0.8)
    assert (float(-low), float(high)) == pytest.approx((0.2 * Z90, 0.2 * Z90), rel=0.1)
    assert Summary.of(held(Residuals(made(0.2)))).inside == pytest.approx(0.8, abs=0.03)


def test_a_trait_that_doubles_errors_widens_nearly_as_much():
    """Nearly: what no measurement demands is shrunk."""
    known = Residuals(made(0.2, experts=0.4))
    ends = [known.tables[""].ends(WidthKey("tpot_ms", "closed_loop", each), 0.8)[1] for each in ((), ("experts",))]
    assert 1.6 < ends[1] / ends[0] < 2.0
    found = held(known)
    for experts in (True, False):
        some = [each for each in found if bool(each.residual.key.traits) == experts]
        assert 0.75 < Summary.of(some).inside < 0.88


@pytest.mark.slow
def test_a_trait_that_tells_nothing_widens_nothing_and_none_narrows():
    for experts in (0.2, 0.05):
        sides = Residuals(made(0.2, experts=experts)).tables[""]
        assert all(1.0 <= side.traits["experts"] < 1.1 for side in (sides.slower, sides.faster))


def test_slowness_is_that_of_times_and_of_rates():
    """Engines that are slower than predicted: longer times, lower rates."""
    slower = [each._replace(value=-abs(each.value) if each.key.is_rate else abs(each.value)) for each in made(0.3)]
    table = Residuals(slower).tables[""]
    low, high = table.ends(WidthKey("tpot_ms", "closed_loop"), 0.8)
    assert -low < 0.05
    assert high > 0.3
    low, high = table.ends(WidthKey("req_s", "closed_loop"), 0.8)
    assert low < -0.3
    assert high < 0.05


@pytest.mark.slow
def test_what_few_sources_measured_is_wider():
    """The same residuals, of 4 sources and of 24: (1 + 1 / 4) over (1 + 1 / 24), each for the metric and the regime."""
    ends = []
    for number in (4, 24):
        named = [each._replace(group=(f"s{at % number}", "h", "m")) for at, each in enumerate(made(0.2))]
        few = [each._replace(key=WidthKey("pp_tok_s", "single")) for each in named]
        usual = [each._replace(group=(f"t{at % 24}", "h", "m")) for at, each in enumerate(made(0.2))]
        table = Residuals([*few, *usual]).tables[""]
        of = [
            float(table.ends(WidthKey(*kind), 0.8)[1]) for kind in (("pp_tok_s", "single"), ("tpot_ms", "closed_loop"))
        ]
        ends.append(of[0] / of[1])
    assert ends[0] > 1.2 * ends[1]


def test_large_sources_do_not_decide():
    big = [Residual(WidthKey("tpot_ms", "single"), ("big", "h", "m"), 0.01)] * 2000
    others = [Residual(WidthKey("tpot_ms", "single"), (f"s{at}", "h", "m"), 1.0) for at in range(20)]
    assert float(Residuals([*big, *others]).tables[""].ends(WidthKey("tpot_ms", "single"), 0.8)[1]) > 0.5


def test_the_shipped_table_is_ordered():
    for side in (shipped().slower, shipped().faster):
        assert list(side.shape) == sorted(side.shape)
        assert len(side.shape) == len(LEVELS)
        assert min(side.traits.values()) >= 1
