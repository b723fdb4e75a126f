"""Latency of one replica over its load: simulated around the highest rate within the SLO."""

from dataclasses import replace

from simulator.cli.output import Row
from simulator.cost.scenario import Scenario
from simulator.questions.asked_columns import asked_columns
from simulator.questions.load_rows import load_row

SHARES = (0.1, 0.3, 0.5, 0.7, 0.85, 1.0, 1.15)  # of the highest rate within the SLO


def load_curve(scenario: Scenario, capacity_per_s: float, level: float) -> list[Row]:
    """Return a row of figures, as `infercast simulate` has them, for each of SHARES of a rate in requests/s."""
    rows: list[Row] = []
    for share in SHARES:
        rate_per_s = share * capacity_per_s
        loaded = replace(scenario, workload=scenario.workload.at_rate(rate_per_s))
        report = loaded.simulated()
        rows.append({**asked_columns(loaded, rate_per_s, report), **load_row(loaded, report, level)})
    return rows
