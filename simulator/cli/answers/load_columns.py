"""Columns of tables for what varies among loads, and headings of throughputs."""

from collections.abc import Sequence

from simulator.cli.output import Column, Row

LOADS = (  # columns of a table where they vary
    Column("input_len", "ISL", left=True),
    Column("output_len", "OSL", left=True),
    Column("burstiness", "burstiness", lambda shape: f"{float(shape):g}"),
    Column("max_concurrency", "in flight"),
    Column("request_rate", "rate /s", lambda rate: rate if isinstance(rate, str) else f"{rate:g}", left=True),
)
TOTALS = {"output_throughput": "out tok/s", "request_throughput": "req/s"}


def varying_loads(rows: Sequence[Row]) -> list[Column]:
    """Return columns for what varies among the loads of some rows; the last one, the rate, where nothing does."""
    return [each for each in LOADS if len({row[each.key] for row in rows}) > 1] or [LOADS[-1]]
