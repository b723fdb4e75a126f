"""Tables of predicted against measured steps and latencies, for `infercast check` and `check-log`.

A tier is a way of predicting: from the data sheet's roofline, or from a calibration.
"""

from collections.abc import Mapping, Sequence

from simulator.calibration.comparison import METRICS, StepErrors, relative_errors
from simulator.cli.numbers import number, percent
from simulator.cli.output import Column, Row, View


def error_row(kind: str, tier: str, errors: StepErrors) -> Row:
    """Return the row of one kind of step (prefill, decode or mixed) under one tier; errors are relative."""
    shares = {name: getattr(errors, name) if errors.count else None for name in ("median", "p90", "largest", "bias")}
    return {"kind": kind, "tier": tier, "count": errors.count, **shares}


def load_step_rows(by_kind: Mapping[str, Mapping[str, StepErrors]]) -> list[Row]:
    """Return a row for each kind of step and each tier; `by_kind[kind][tier]` are its errors."""
    return [error_row(kind, tier, each) for kind, tiers in by_kind.items() for tier, each in tiers.items()]


def latency_rows(predicted: Mapping[str, Mapping[str, float]], measured: Mapping[str, float]) -> list[Row]:
    """Return a row for each latency at p50 and p95: the measured seconds, and the relative error of each tier.

    `predicted[tier]` and `measured` have keys such as "ttft_p50_s".
    """
    errors = {tier: relative_errors(said, measured) for tier, said in predicted.items()}
    return [
        {
            "metric": f"{metric.upper()} {share}",
            "measured_s": measured[f"{metric}_{share}_s"],
            **{tier: each[f"{metric}_{share}_s"] for tier, each in errors.items()},
        }
        for metric in METRICS
        for share in ("p50", "p95")
    ]


def step_view(title: str, rows: Sequence[Row]) -> View:
    """Return a table of step errors."""
    return View(title, STEP_COLUMNS, rows)


def latency_view(title: str, rows: Sequence[Row]) -> View:
    """Return a table of latency errors: one column for each tier."""
    tiers = [key for key in rows[0] if key not in ("metric", "measured_s")]
    columns = [Column("metric", "", left=True), Column("measured_s", "measured ms", number(3, 1e3))]
    return View(title, [*columns, *(Column(tier, tier, lambda value: f"{value:+.1%}") for tier in tiers)], rows)


STEP_COLUMNS = (
    Column("kind", "steps", left=True),
    Column("tier", "predicted from", left=True),
    Column("count", "steps"),
    Column("median", "median error", percent),
    Column("p90", "p90", percent),
    Column("largest", "largest", percent),
    Column("bias", "bias", lambda value: f"x{value:.2f}"),
)


def drift_note(drift: float) -> str:
    """Say by which share the machine's own speed changed while it was measured (slowest / fastest - 1)."""
    return f"The machine's own speed changed by {drift:.0%} meanwhile: no error below that means anything."
