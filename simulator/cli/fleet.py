"""`infercast fleet`: what users see, and what it costs, with several copies behind a router."""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from simulator.cli.fleetoptions import ClientOptions, FleetOptions, seconds
from simulator.cli.options import DeploymentOptions, Format, OutputFormat, grouped
from simulator.cli.output import Column, Result, Row, View, count, emit, evidence, number, percent, sweep
from simulator.cli.simulate import load_row
from simulator.cli.users import SloOptions, WorkloadOptions, progress_bar
from simulator.deployment import Deployment
from simulator.errors import InfercastError
from simulator.plan import Scenario
from simulator.prices import Offer, load_offers
from simulator.report import QUANTILES
from simulator.service import ServiceReport
from simulator.units import scaled
from simulator.workload import Workload

SHOWN = 12  # changes of replicas in the text; json has all
METRICS = ("ttft", "ttfv", "tpot", "e2el", "queue")
Found = tuple[Workload, float | None, ServiceReport]


@grouped
def command(
    asked: DeploymentOptions,
    users: WorkloadOptions,
    accepted: SloOptions,
    copies: FleetOptions,
    behaviour: ClientOptions,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw load and replicas over time (.png, .svg).")
    ] = None,
    form: OutputFormat = Format.TEXT,
) -> None:
    """Simulate copies behind a router: autoscaling, failures, pools for prefill and decode, clients that wait.

    Latencies are what users see: from the first sending, over the network, retries included.
    """
    slo, choices = accepted.value(), asked.choices()  # first: it opens the user's own profiles, of workloads too
    loads = users.workloads()

    def case(choice: Any, rate: float | None, load: Workload) -> Found:
        deployment: Deployment = choice()
        service = copies.service(deployment)
        workload, requests, clients = behaviour.asked(load)
        with progress_bar(str(deployment)) as progress:
            return workload, rate, service.report(requests, clients, slo, progress)

    found, refused = sweep([partial(case, choice, rate, load) for choice in choices for rate, load in loads])
    if plot is not None:
        _draw(found, plot)
    rows = [_row(*each) for each in found]
    views = [view for each in found for view in _views(*each)]
    notes = [note for _, _, each in found for note in _notes(each, behaviour.deadline)]
    sections: dict[str, list[Row]] = {"changes": [each for one in found for each in one[2].changes], "fleets": rows}
    used = evidence(each.service.deployment for _, _, each in found)
    emit(Result(sections, views, list(dict.fromkeys(notes)), used, refused), form)


def _draw(found: list[Found], path: Path) -> None:
    if len(found) > 1:
        raise InfercastError(f"--plot of {len(found)} fleets", "a figure shows one", "Ask for one")
    from simulator.plots import save  # noqa: PLC0415  matplotlib takes half a second
    from simulator.service_plots import over_time  # noqa: PLC0415

    save(over_time(found[0][2]), path)


def _row(workload: Workload, rate: float | None, each: ServiceReport) -> Row:
    service, run = each.service, each.run
    row = dict(load_row(Scenario(service.deployment, workload, each.report.slo), rate, each.report))
    for name in ("ttft", "tpot", "itl", "e2el", "queue", "ttfv"):  # what this user sees of it
        for measure in ("mean", *QUANTILES):
            seen = each.metrics.get(name)
            row[f"{measure}_{name}_ms"] = None if seen is None or np.isnan(seen[measure]) else seen[measure] * 1e3
    return row | {
        "num_prompts": len(run.row) + len(run.abandoned),
        "failed": len(run.abandoned),
        "slo_attainment": each.within_share if each.report.slo.bounds_s else None,
        "replicas": run.replicas,
        "prefill_replicas": service.prefill_replicas,
        "router": service.router.name,
        "retries": int(run.retries.sum()),
        "timeouts": int(run.timeouts.sum()),
        "hit_rate": each.hit_rate,
        "saved_prefill_s": each.saved_prefill_s,
        "busy_share": each.busy_share,
        "replica_hours": each.replica_hours,
        "device_hours": each.replica_hours * service.deployment.layout.devices,
        **{f"usd_{kind}": usd for kind, (_, usd) in _bills(each).items()},
        "cold_start_s": service.autoscaler.cold_start_s if service.autoscaler else None,
    }


def _bills(each: ServiceReport) -> dict[str, tuple[Offer, float]]:
    """Return the cheapest offer of each kind, and the dollars of the run at it."""
    found: dict[str, tuple[Offer, float]] = {}
    for offer in load_offers(each.service.deployment.hardware.id):
        found.setdefault(offer.kind, (offer, each.usd(offer)))
    return found


def _views(workload: Workload, _rate: float | None, each: ServiceReport) -> list[View]:
    run = each.run
    latencies = [
        {"metric": f"{name.upper()} ms", **{key: each.metrics[name][key] * 1e3 for key in ("mean", *QUANTILES)}}
        for name in METRICS
        if name in each.metrics
    ]
    columns = [Column("metric", "", left=True), *(Column(key, key, number(3)) for key in ("mean", *QUANTILES))]
    title = f"{each.describe()}: {workload.describe()}"
    served = Counter(run.replica.tolist())
    paid = dict.fromkeys(range(run.replicas), 0.0)
    for replica, start_s, end_s in run.paid_intervals:
        paid[replica] += end_s - start_s
    work_s = np.bincount(run.steps.replica, run.steps.work_s, minlength=run.replicas) / run.stages
    replicas = [
        {
            "replica": replica,
            "requests": served[replica],
            "hours": paid[replica] / 3600,
            "busy": work_s[replica] / paid[replica] if paid[replica] else 0.0,
        }
        for replica in range(run.replicas)
    ]
    by_replica = [
        Column("replica", "replica", str),
        Column("requests", "requests", count),
        Column("hours", "hours paid", number(3)),
        Column("busy", "busy", percent),
    ]
    views = [View(title, columns, latencies), View("Replicas", by_replica, replicas)]
    if each.changes:
        changes = [
            {"time_s": change["time_s"], "what": f"{change['replica']} {change['state']}"}
            for change in each.changes[:SHOWN]
        ]
        more = f", the first {SHOWN} of {len(each.changes)}" if len(each.changes) > SHOWN else ""
        columns = [Column("time_s", "at", lambda at: scaled(at, "s", 5)), Column("what", "replica", left=True)]
        views.append(View(f"Changes of replicas{more}", columns, changes))
    return views


def _cached(each: ServiceReport) -> str:
    share = each.saved_prefill_s / each.run.paid_s
    worth = [f"${usd * share:,.3g} {kind}" for kind, (_, usd) in _bills(each).items()]
    paid = f", worth {', '.join(worth)}" if worth else ""
    there = f"{each.hit_rate:.0%} of the prompts' tokens were there"
    return f"Prefix cache: {there}, which saved {scaled(each.saved_prefill_s, 's')} of prefill{paid}."


def _notes(each: ServiceReport, deadline: str) -> list[str]:
    run, report = each.run, each.report
    hours = f"{each.replica_hours:.3g} replica-hours ({each.replica_hours / (run.closed_s / 3600):.3g} on average)"
    said = [
        f"{len(run.row):,} of {len(run.row) + len(run.abandoned):,} requests served, "
        f"{report.output_tokens_per_s:,.0f} output tokens/s over {scaled(run.closed_s, 's')}; {hours}, "
        f"busy {each.busy_share:.0%} of them; {int(run.preemptions.sum())} preemptions, {int(run.retries.sum())} "
        f"starts anew after failures, {int(run.timeouts.sum())} timeouts of served ones."
    ]
    if run.hit_tokens.any():
        said.append(_cached(each))
    if report.slo.bounds_s:
        said.append(f"{each.within_share:.1%} of all requests keep every bound of the SLO ({report.slo}).")
    if report.overloaded:
        said.append(f"OVERLOADED: the queue grows by {report.queue_growth_per_s:.3g} requests per second.")
    if deadline:
        limit_s = seconds(deadline)
        verdict = "kept" if run.end_s <= limit_s and not len(run.abandoned) else "MISSED"
        said.append(f"Deadline of {scaled(limit_s, 's')}: {verdict}; the last token comes at {scaled(run.end_s, 's')}.")
    bills = [f"${usd:,.4g} {kind} ({offer.provider}, {offer.date})" for kind, (offer, usd) in _bills(each).items()]
    if bills:
        said.append(f"For this run, at the cheapest offer of each kind: {', '.join(bills)}.")
    if each.service.autoscaler is not None:
        start = scaled(each.service.autoscaler.cold_start_s, "s")
        said.append(f"A copy starts in {start}: unless given, its weights over --load-rate, and 30 s (both guesses).")
    if each.service.prefill_replicas:
        said.append(
            f"Caches move at {scaled(each.service.link_bytes_per_s, 'B/s')} per prefill copy (unless given, a guess)."
        )
    return said
