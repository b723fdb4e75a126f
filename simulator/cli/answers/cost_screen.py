"""What `infercast cost` prints: the cheapest in a sentence, one table, and the tables of all figures."""

from dataclasses import replace

from simulator.cli.answers.deployment_columns import common
from simulator.cli.answers.interval_columns import IntervalColumn, RangedColumn, intervals_view
from simulator.cli.answers.load_columns import LOADS
from simulator.cli.answers.offer_columns import energy_view
from simulator.cli.numbers import count, number, percent
from simulator.cli.output import Column, Row, View
from simulator.deployment.deployment import Deployment
from simulator.deployment.memory import MemoryPlan
from simulator.questions.price_question import PriceQuestion
from simulator.reports.slo import Slo
from simulator.units import gibibytes, lasting

NOTES = (
    "Always on: idle hours and empty devices cost what busy ones cost. $/M out, in and all divide the whole bill by "
    "one kind of token.",
    "max req/s: of one replica, within the SLO if there is one; full: $/M at that rate; replicas: as many as the asked "
    "rate needs.",
)


def table(rows: list[Row], load: str) -> View:
    """Return the one table of the first screen; intervals stand in brackets."""
    columns = [
        *varying(rows),
        Column("replicas", "n", lambda replicas: count(replicas) if replicas else "-"),
        Column("usd_per_hour", "$/h", number(3)),
        RangedColumn("usd_per_million_output_tokens", "$/M out"),
        Column("p95_ttft_ms", "TTFT p95 ms", number(3)),
        Column("p95_tpot_ms", "TPOT p95 ms", number(3)),
        RangedColumn("capacity_per_s", "max req/s"),
    ]
    return View(f"{common(rows)[0]}: {load}", columns, rows)


def details(rows: list[Row], priced: PriceQuestion, title: str, level: float) -> list[View]:
    """Return the tables of all figures of some answers; the last says why."""
    energy = energy_view(varying(rows), rows, priced.place())
    views = [_bills_view(rows, title), _latency_view(rows), energy, _intervals_view(rows, level), _reasons_view(rows)]
    return [replace(each, is_detail=True) for each in views]


def _bills_view(rows: list[Row], load: str) -> View:
    title = common(rows)[0]
    dollars = number(3)
    columns = [
        *varying(rows),
        Column("replicas", "replicas", lambda replicas: count(replicas) if replicas else "-"),
        Column("usd_per_hour", "$/h", dollars),
        Column("usd_per_month", "$/month", count),
        Column("usd_per_million_output_tokens", "$/M out", dollars),
        Column("usd_per_million_input_tokens", "$/M in", dollars),
        Column("usd_per_million_total_tokens", "$/M all", dollars),
        Column("at_capacity_usd_per_million_output_tokens", "full: out", dollars),
        Column("at_capacity_usd_per_million_total_tokens", "all", dollars),
    ]
    return View(f"{title}: {load}", columns, rows)


def _latency_view(rows: list[Row]) -> View:
    columns = [
        *varying(rows),
        Column("p95_ttft_ms", "TTFT p95 ms", number(3)),
        Column("p95_tpot_ms", "TPOT p95 ms", number(3)),
        Column("capacity_per_s", "max req/s", number(3)),
        Column("load_of_capacity", "load", percent),
    ]
    return View("What users get", columns, rows)


def _intervals_view(rows: list[Row], level: float) -> View:
    dollars = number(3)
    shown = [
        IntervalColumn("replicas", "replicas", count),
        IntervalColumn("usd_per_million_output_tokens", "$/M out", dollars),
        IntervalColumn("at_capacity_usd_per_million_output_tokens", "full: $/M out", dollars),
        IntervalColumn("p95_ttft_ms", "TTFT p95 ms", number(3)),
        IntervalColumn("p95_tpot_ms", "TPOT p95 ms", number(3)),
        IntervalColumn("capacity_per_s", "max req/s", number(3)),
    ]
    return intervals_view([*varying(rows), *shown], rows, level)


ASKED = (
    *LOADS[:-2],
    Column("asked_rate_per_s", "rate /s", lambda rate: f"{rate:g}"),
    Column("price_commitment", "price", left=True),
)


def varying(rows: list[Row]) -> list[Column]:
    """Return columns for what varies among deployments, loads and prices; the device where nothing does."""
    asked = (each for each in ASKED if len({row[each.key] for row in rows} - {None}) > 1)  # None: nothing is rented
    varying = [*common(rows)[1], *asked]
    return varying or [Column("hardware", "hardware", left=True)]


def _reasons_view(rows: list[Row]) -> View:
    return View("Why", [*varying(rows), Column("why", "", left=True)], rows)


def first_of_each_rate(rows: list[Row]) -> list[int]:
    """Return the place of the cheapest answer at each rate: the first of its rows."""
    first = {row["asked_rate_per_s"]: place for place, row in reversed([*enumerate(rows)])}
    return [first[rate] for rate in sorted(first)]


def headline(best: Row, deployment: Deployment) -> str:
    """Return the cheapest in a sentence, and how many replicas it may take."""
    if not best["replicas"]:
        return "None of these keeps the SLO."
    if best["usd_per_hour"] is None:
        counts = "none of them has a price that counts (--price, --provider, --region)"
        return f"They serve the load, but {counts}; --usd-per-hour takes your own."
    replicas = f"{best['replicas']} replicas of " if best["replicas"] > 1 else ""
    per_million = f"${number(3)(best['usd_per_million_output_tokens'])} per million output tokens"
    price = f"${best['usd_per_month']:,.0f} a month, {per_million}"
    rate = best["asked_rate_per_s"]
    at = f"{rate:g} request{'' if rate == 1 else 's'}/s"
    return f"Cheapest at {at}: {replicas}{deployment}, {price}. {_doubt(best)}".rstrip()


def unbounded(slo: Slo, best: Row) -> list[str]:
    """Say how long users wait where nothing was asked of latencies: the cheapest may be full to the brim."""
    if slo.bounds_s:
        return []
    wait = lasting(best["p95_ttft_ms"] / 1e3)
    return [f"No SLO was given: 5% of users wait {wait} or more for a first token. Give, say, --slo ttft:1s,tpot:50ms."]


def barely(plan: MemoryPlan, then: str = "") -> list[str]:
    """Say of the cheapest that an error of its memory plan would take half of its KV cache or all of it.

    `then`: words for what it takes with so much less, after a comma or in brackets.
    """
    if not plan.fits_barely:
        return []
    cache, off = gibibytes(plan.cache_bytes), gibibytes(plan.error_bytes)
    return [f"It fits barely: the plan of its KV cache of {cache} may be off by {off}{then}; start the engine to see."]


def _doubt(best: Row) -> str:
    """Return how many replicas it may take where the interval of the highest rate holds more than one answer."""
    low, high = best["replicas_low"], best["replicas_high"]
    if low == high or low is None:
        return ""
    return f"It may take {low} to {high} replicas." if high else "It may be that no number of replicas keeps the SLO."
