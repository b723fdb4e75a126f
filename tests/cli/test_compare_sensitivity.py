"""Sentences and tables of `compare --sensitivity`: what moves two answers is given."""

from types import SimpleNamespace

import pytest

from simulator.cli.answers import compare_sensitivity
from simulator.cli.answers.compare_sensitivity import SensitivityTables
from simulator.cost.sensitivity import Knob, KnobEnd, WorthMeasuring

KNOB = Knob("rate", KnobEnd("1/s", 2.0, 0, 2.0), KnobEnd("4/s", None, 1, 9.5), is_known=True)


@pytest.fixture
def tables() -> SensitivityTables:
    made = SensitivityTables([SimpleNamespace(label=label, risk=None) for label in ("l40s", "h100")], None)
    made.knobs = [KNOB]
    return made


def flipping(up: float | None, down: float | None, price: float | None) -> SimpleNamespace:
    def place(found: float | None) -> tuple[float, int] | None:
        return None if found is None else (found, 1)

    return SimpleNamespace(flip_rate_per_s=lambda rises: place(up if rises else down), flip_price=lambda: place(price))


def test_both_ends_of_a_knob_and_what_is_cheaper_there(tables):
    (row,) = tables.rows()
    assert (row["knob"], row["asked"]) == ("rate", True)
    assert (row["low"], row["low_usd_per_hour"], row["low_best"], row["low_best_usd_per_hour"]) == (
        "1/s",
        2.0,
        "l40s",
        2.0,
    )
    assert (row["high_usd_per_hour"], row["high_best"], row["high_best_usd_per_hour"]) == (None, "h100", 9.5)
    assert tables.view().rows == [{"knob": "rate", "low": "1/s: $2.00/h", "high": "4/s: no SLO (h100)"}]
    tables.knobs = [KNOB._replace(low=KnobEnd("1/s", None, None, None))]
    assert tables.view().rows[0]["low"] == "1/s: no SLO"


@pytest.mark.parametrize(
    ("flips", "said"),
    [
        ((12.0, 0.5, 3.0), "l40s flips to h100 above 12/s, h100 below 0.5/s, h100 if a replica costs over $3.00/h."),
        ((None, None, 1.234), "l40s flips to h100 if a replica costs over $1.23/h."),
        ((None, None, None), "No rate from a quarter to four times flips l40s."),
    ],
)
def test_where_the_decision_flips(tables, monkeypatch, flips, said):
    monkeypatch.setattr(compare_sensitivity, "worth_measuring", lambda _: None)
    tables.sensitivity = flipping(*flips)
    assert list(tables.notes()) == [said, "No single measurement of step times would change the decision."]


def test_what_to_measure_first_is_told_by_the_month(tables, monkeypatch):
    """$1.50 an hour are $1,095 in 730 of them."""
    monkeypatch.setattr(compare_sensitivity, "worth_measuring", lambda _: WorthMeasuring(1, 1.5))
    tables.sensitivity = flipping(None, None, None)
    measured = "Measure first: output tokens/s of h100 when saturated (worth $1,095 a month on average)."
    assert list(tables.notes())[-1] == measured
