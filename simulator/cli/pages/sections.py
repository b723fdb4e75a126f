"""Sections that several pages share: latency over load, where the time goes, memory, prices."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import NamedTuple, Self

import numpy as np
from matplotlib.figure import Figure

from simulator.cli.answers.memory_tables import ledger_view, plan_row
from simulator.cli.answers.op_tables import phase_view
from simulator.cli.answers.run_details import split_view
from simulator.cli.numbers import number, percent
from simulator.cli.output import Column, Row, View
from simulator.cli.pages.blocks import table_of
from simulator.cost.capacity import Answer
from simulator.cost.packing import Packing
from simulator.cost.scenario import Scenario
from simulator.deployment.batches import Batch
from simulator.deployment.deployment import Deployment
from simulator.deployment.estimate import estimate
from simulator.deployment.memory import memory_plan
from simulator.hardware.prices import Offer, first_day
from simulator.html.page import Block, Folded, PageSection, Picture, Prose
from simulator.plots.inline_svg import inline_svg
from simulator.plots.panels import (
    distribution_panel,
    latency_panel,
    memory_panel,
    pareto_panel,
    parts_panel,
    phase_panel,
    timeline_panel,
)
from simulator.plots.roofline_plots import plot_roofline
from simulator.plots.sweep_plots import Sweep
from simulator.questions.asked_columns import asked_columns
from simulator.questions.load_rows import load_row
from simulator.questions.split_rows import split_row
from simulator.reports.latency_breakdown import PARTS, Explanation
from simulator.reports.report import Report
from simulator.reports.timeline import timeline_of

LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "e2el": "E2EL"}
LOAD_SHARES = (0.1, 0.3, 0.5, 0.7, 0.85, 1.0, 1.15)  # of the highest rate within the SLO
SHOWN_OFFERS = 5  # of each deployment, the cheapest ones and those that are rented
STACK = {  # parts of a memory plan by their names in the picture
    "weights": "weight_bytes",
    "workspace of a step": "workspace_bytes",
    "other buffers": "context_bytes",
    "captured graphs": "graph_bytes",
    "recurrent states": "state_bytes",
    "KV cache": "cache_bytes",
    "unused": "unused_bytes",
}


def picture_of(figure: Figure, name: str, caption: str, *, wide: bool = False) -> Picture:
    """Return a plot with its caption, which is also what a screen reader says of it."""
    return Picture(caption, inline_svg(figure, name, caption), wide)


def load_curve(scenario: Scenario, capacity_per_s: float, level: float) -> list[Row]:
    """Return a row of figures, as `infercast simulate` has them, for each of LOAD_SHARES of a rate in requests/s."""
    rows: list[Row] = []
    for share in LOAD_SHARES:
        rate_per_s = share * capacity_per_s
        loaded = replace(scenario, workload=scenario.workload.at_rate(rate_per_s))
        report = loaded.simulated()
        rows.append({**asked_columns(loaded, rate_per_s, report), **load_row(loaded, report, level)})
    return rows


def load_section(sweep: Sweep, views: Sequence[View], heading: str) -> PageSection:
    """Return latencies and throughput of one replica over its load."""
    pictures: list[Block] = [
        picture_of(latency_panel(sweep, metric), f"load-{metric}", f"{LATENCIES[metric]} over {sweep.x_label}")
        for metric in LATENCIES
        if any(row[f"p95_{metric}_ms"] is not None for row in sweep.rows)
    ]
    if any(row["tokens_per_s_user"] is not None for row in sweep.rows):
        pareto = f"Output tokens/s of a device over those of a user; labels: {sweep.x_label}"
        pictures.append(picture_of(pareto_panel(sweep), "load-pareto", pareto))
    return PageSection("load", heading, [*pictures, *map(table_of, views)])


def curve_view(sweep: Sweep) -> View:
    """Return the table of a sweep of one deployment's rates: latencies, throughput, what is within the SLO."""
    columns = [
        Column("request_rate", sweep.x_label, number(3)),
        *(
            Column(f"{stat}_{name}_ms", f"{name.upper()} {stat} ms", number(3))
            for name in LATENCIES
            for stat in ("median", "p95")
        ),
        Column("output_throughput", "output tokens/s", number(3)),
        Column("mean_num_requests_running", "at once", number(3)),
        Column("mean_kv_cache_usage", "KV cache", percent),
        Column("slo_attainment", "within the SLO", percent),
    ]
    return View(f"Latency and throughput over {sweep.x_label}", columns, sweep.rows)


@dataclass(frozen=True)
class SimulatedRun:
    """A simulated load: its scenario, its report, its row of figures."""

    scenario: Scenario
    report: Report
    row: Row

    @property
    def batch(self) -> Batch:
        """The mean batch of the run: as many sequences as a step has, of mean lengths."""
        sent, running = self.report.run.requests, max(1, round(self.report.mean_step_running))
        lengths = (max(1, round(float(tokens.mean()))) for tokens in (sent.prompt_tokens, sent.output_tokens))
        return Batch(running, *lengths)


def request_section(ran: SimulatedRun, at: str = "") -> PageSection:
    """Return where a request's time goes, the spread of latencies, and the run over its time."""
    explained = Explanation(ran.report)
    blocks: list[Block] = [
        picture_of(parts_panel(explained), "parts", "What TTFT and E2EL consist of: mean, and the request at p95"),
        *(
            picture_of(
                distribution_panel(explained, metric, ran.row), f"spread-{metric}", f"{name}: requests within it"
            )
            for metric, name in LATENCIES.items()
            if np.isfinite(ran.report.latencies_s[metric]).any()
        ),
        table_of(split_view({**ran.row, **split_row(ran.report)})),
        Folded("What the parts are", [Prose([f"{part}: {meaning}." for part, meaning in PARTS.items()], listed=True)]),
    ]
    over_time = timeline_of(ran.report.run, ran.scenario.deployment.step_model())
    said = "One replica over the run: requests, KV cache, tokens/s, and the resource that binds"
    blocks.append(picture_of(timeline_panel(over_time), "timeline", said, wide=True))
    return PageSection("request", f"Where a request's time goes{at}", blocks)


def step_section(ran: SimulatedRun) -> PageSection:
    """Return where the time of a mean decode step and of a mean prompt goes, and both under the roofline."""
    batch, deployment = ran.batch, ran.scenario.deployment
    many = estimate(deployment, batch, assume_fits=True)
    one = estimate(deployment, Batch(1, batch.prompt_tokens, batch.output_tokens), assume_fits=True)
    tables = [phase_view(many, "Decode step", many.decode), phase_view(one, "Prefill", one.prefill)]
    decode = f"A decode step of {batch.size} sequences, as many as run at once on average, by op"
    prompt = f"A prompt of {batch.prompt_tokens:,} tokens, the mean, by op"
    blocks: list[Block] = [
        picture_of(phase_panel(many.decode), "decode", decode),
        picture_of(phase_panel(one.prefill), "prefill", prompt),
        picture_of(plot_roofline([one, many] if batch.size > 1 else [one]), "roofline", _ROOFLINE, wide=True),
        Folded("Every op in figures", [table_of(view) for view in tables]),
    ]
    return PageSection("step", "Where a step's time goes", blocks)


_ROOFLINE = "Roofline: what each op attains of one device, under the data sheet's peaks and what kernels achieve"


def memory_section(deployments: Sequence[Deployment], labels: Sequence[str]) -> PageSection:
    """Return where the memory of each device goes, as a picture and in figures; no label: all that names it."""
    ledger = [plan_row(memory_plan(each)) for each in deployments]
    stacks = [{part: row[key] for part, key in STACK.items()} for row in ledger]
    labels = [label or str(each) for label, each in zip(labels, deployments, strict=True)]
    said = "Memory of each device; what is left for the KV cache decides how many sequences run at once"
    picture = picture_of(memory_panel(labels, stacks), "memory", said, wide=True)
    view = ledger_view(ledger, deployments)
    named = [{**row, "name": label} for row, label in zip(ledger, labels, strict=True)]
    return PageSection("memory", "Where the memory goes", [picture, table_of(replace(view, rows=named))])


class RentedOffers(NamedTuple):
    """The offers that count for a deployment, and the instances of them that are rented."""

    offers: tuple[Offer, ...]
    packing: Packing | None

    @classmethod
    def of(cls, found: Answer) -> Self:
        """Return what an answer rents."""
        return cls(found.scenario.offers, found.packing)


def prices_section(rented: Sequence[RentedOffers], on: date) -> PageSection:
    """Return the offers that are rented and the next cheapest ones, with their age on a day, and source."""
    offered = [row for each in rented for row in _offer_rows(each, on)]
    columns = [
        Column("hardware", "device", left=True),
        Column("used", "rented"),
        Column("provider", "provider, region", left=True),
        Column("instance", "instance", left=True),
        Column("devices", "devices"),
        Column("usd_per_hour", "$/h", number(4)),
        Column("usd_per_device_hour", "$/h a device", number(3)),
        Column("date", "priced", left=True),
        Column("age_days", "days old"),
        Column("source", "source", left=True),
    ]
    if not offered:
        return PageSection("prices", "Prices", [Prose(["No price is known of any of these."])])
    stale = sum(bool(row["stale"]) for row in offered if row["used"])
    are = "is" if stale == 1 else "are"
    told = [f"{stale} of the rented offers {are} over 90 days old or undated: ask again."] if stale else []
    seen = list({tuple(row.values()): row for row in offered}.values())
    kinds = ", ".join(dict.fromkeys(row["commitment"] for row in seen))
    view = View(f"Offers that count ({kinds}), rented and next cheapest, on {on}", columns, seen)
    return PageSection("prices", "Prices", [*([Prose(told)] if told else []), table_of(view)])


def _offer_rows(found: RentedOffers, on: date) -> Iterator[Row]:
    rented = dict(found.packing.instances) if found.packing else {}
    cheapest = sorted(found.offers, key=lambda offer: offer.usd_per_device_hour)[:SHOWN_OFFERS]
    for offer in dict.fromkeys([*rented, *cheapest]):
        yield _offer_row(offer, rented.get(offer, 0), on)


def _offer_row(offer: Offer, rented: int, on: date) -> Row:
    since = first_day(offer.date)
    return {
        "hardware": offer.hardware,
        "used": rented or None,
        "provider": f"{offer.provider}, {offer.region}" if offer.region else offer.provider,
        "instance": offer.instance,
        "commitment": offer.commitment,
        "devices": offer.devices,
        "usd_per_hour": float(offer.usd_per_hour),
        "usd_per_device_hour": offer.usd_per_device_hour,
        "date": offer.date or None,
        "age_days": (on - since).days if since else None,
        "stale": offer.is_stale(on),
        "source": offer.usd_per_hour.source.text,
    }
