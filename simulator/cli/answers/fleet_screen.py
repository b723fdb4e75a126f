"""What `infercast fleet` prints: what users see, of which replicas, at which cost."""

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from simulator.cli.answers import load_screen
from simulator.cli.answers.deployment_columns import evidence
from simulator.cli.answers.interval_columns import held_out, interval_notes, intervals_by_metric
from simulator.cli.answers.load_columns import TOTALS
from simulator.cli.answers.technique_notes import technique_notes
from simulator.cli.numbers import count, number, percent
from simulator.cli.output import Column, Result, Row, View
from simulator.cost.packing import packed, replica_size
from simulator.cost.scenario import ENOUGH_REQUESTS, Scenario, draws_for
from simulator.cost.service import ServiceReport
from simulator.hardware.prices import Commitment
from simulator.limits import known
from simulator.questions.asked_columns import asked_columns
from simulator.questions.client_question import ClientQuestion
from simulator.questions.load_notes import rejection_notes
from simulator.questions.load_rows import METRICS, STATS, throughput_intervals
from simulator.questions.price_question import COMMITMENTS, OfferQuestion
from simulator.questions.row_intervals import ENDS, intervals, regime_of
from simulator.questions.words import seconds
from simulator.reports.intervals import PredictionRange
from simulator.reports.vllm_result import vllm_result
from simulator.units import counted, lasting, per_second, scaled, significant
from simulator.workloads.arrivals import OpenLoop
from simulator.workloads.rate_curves import RateCurve
from simulator.workloads.workload import Requests, Workload

SHOWN = 12  # most changes of replicas in the text; json has all
SEEN = ("ttft", "ttfv", "tpot", "itl", "e2el", "queue")  # latencies that the user sees, in the order of the table
OF_ENGINES = (
    "They are those of one engine under a steady load: no measurement of routers, cold starts or failures is in them."
)


@dataclass(frozen=True)
class ServedFleet:
    """One fleet under one load, and what came of it.

    `rate`: requests/s as asked, None in a closed loop and where all come at once.
    """

    workload: Workload
    rate: float | None
    service: ServiceReport
    priced: OfferQuestion

    @cached_property
    def bills(self) -> dict[Commitment, tuple[str, float]]:
        """By commitment, the asked one first: which instances hold all replicas, and US dollars that the run costs.

        With a price of the user's own that one alone. Raises InfercastError as `OfferQuestion.offers` does.
        """
        found: dict[Commitment, tuple[str, float]] = {}
        each, asked = self.service, self.priced.commitment
        deployment = each.service.deployment
        size = replica_size(deployment.hardware, deployment.devices)
        others = [one for one in COMMITMENTS if one not in (asked, "owned") and self.priced.usd_per_hour is None]
        for commitment in (asked, *others):
            counting = tuple(
                offer for offer in replace(self.priced, price=commitment).offers(deployment) if size.held(offer)
            )
            if counting:
                found[commitment] = packed(size, each.run.replicas, counting).describe(), each.usd(counting)
        return found

    @property
    def sent(self) -> Requests:
        """Requests that users meant to send, abandoned ones included; of several draws those of the first."""
        return self.service.sent

    @property
    def endless(self) -> tuple[str, ...]:
        """Names of the latencies that grow with the length of the run, because a queue grows without end."""
        found = self.service.report.overload
        if not (found and found.is_seen and isinstance(self.workload.arrivals, OpenLoop)):
            return ()
        return found.growing


def fleet_result(found: list[ServedFleet], rows: list[Row], behaviour: ClientQuestion, level: float) -> Result:
    """Return verdict, tables and sentences of some fleets, of their rows, with intervals at `level`."""
    each_row = list(zip(found, rows, strict=True))
    views = [view for each, row in each_row for view in _views(each, row, behaviour)]
    verdict = [said for each, row in each_row for said in _verdict(each, row, len(found))]
    notes = [note for each, row in each_row for note in _notes(each, row, behaviour.deadline)]
    deployments = [each.service.service.deployment for each in found]
    notes += [held_out(rows, level), *technique_notes(deployments)]
    changes = [change for each in found for change in each.service.changes]
    sections: dict[str, list[Row]] = {"changes": [*changes], "fleets": rows}
    words = [*interval_notes(rows), OF_ENGINES, *(said for each in found for said in _other_bills(each))]
    return Result(sections, views, list(dict.fromkeys(notes)), evidence(deployments), verdict=verdict, details=words)


def _verdict(found: ServedFleet, row: Row, fleets: int) -> list[str]:
    """Return whether a fleet keeps the SLO and how many users gave up, under its name where it is one of several."""
    name = f"{found.service.describe()}: " if fleets > 1 else ""
    told = load_screen.verdict(row, found.service.report.slo)
    is_few = found.workload.is_random and draws_for(len(found.sent)) > 1
    if row["slo_attainment"] is not None and is_few and not found.service.draws:
        few = f"One draw of {counted(len(found.sent), 'request')} carries this verdict"
        told.append(f"{few}; give {ENOUGH_REQUESTS:,}, of which chance decides less.")
    told += [*_left_of_curve(found), *load_screen.rejections(len(found.service.run.rejected), len(found.sent))]
    if lost := len(found.service.run.abandoned):
        told.append(f"{lost:,} of {len(found.sent):,} requests gave up waiting; latencies are those of the others.")
    return [f"{name}{said}" for said in told]


def _left_of_curve(found: ServedFleet) -> list[str]:
    """Say that a run ends before the peak of its rate curve, if it does: the verdict is of lower rates only."""
    curve = found.workload.arrivals
    if not isinstance(curve, RateCurve):
        return []
    span_s = float(found.sent.arrival_s.max())
    reached, peak = curve.peak_per_s(span_s), curve.peak_per_s()
    if math.isclose(reached, peak):
        return []
    seen = f"Only the first {lasting(span_s)} of the rate curve, at {per_second(reached, 'request')} or less"
    whole = f"Give --duration {curve.span_s / 3600:g}h, or ask infercast plan"
    return [f"{seen}: its peak of {significant(peak)} is not simulated. {whole}."]


def load_in_words(found: ServedFleet, behaviour: ClientQuestion) -> str:
    """Return who sends what, in words."""
    thoughts = behaviour.thinking_tokens
    sessions = f", in {behaviour.sessions()}" if behaviour.turns > 1 else ""
    thinking = f", the first {thoughts:,} of each output thoughts" if thoughts else ""
    lasts = f", over {lasting(seconds(behaviour.duration, '--duration'))}" if behaviour.duration else ""
    return found.workload.describe(found.sent) + lasts + sessions + thinking


def fleet_row(found: ServedFleet, level: float) -> Row:
    """Return the figures of a fleet with their intervals at `level`, latencies in milliseconds."""
    row = _figures(found)
    return {**row, **_intervals(found, row, level)}


def _client_latencies(found: ServedFleet) -> dict[str, float | None]:
    """Return the latencies that users see, in milliseconds; None for those that do not exist or grow with the run."""
    row: dict[str, float | None] = {}
    for name in SEEN:
        unknown = name not in found.service.metrics or name in found.endless
        for stat in STATS:
            row[f"{stat}_{name}_ms"] = None if unknown else known(found.service.metrics[name][stat] * 1e3)
    return row


def _figures(found: ServedFleet) -> Row:
    each = found.service
    service, run = each.service, each.run
    scaler = service.autoscaler or service.prefill_autoscaler
    one = Scenario(service.deployment, found.workload, each.report.slo)
    return {
        **asked_columns(one, found.rate, each.report),
        **vllm_result(each.report),
        **_client_latencies(found),
        "num_prompts": len(found.sent),
        "failed": len(run.abandoned) + len(run.rejected),
        "meets_slo": each.meets_slo,
        "slo_attainment": each.within_share if each.report.slo.bounds_s and not found.endless else None,
        "replicas": run.replicas,
        "prefill_replicas": service.prefill_replicas,
        "router": service.router.name,
        "retries": int(run.retries.sum()),
        "timeouts": int(run.timeouts.sum()),
        "hit_rate": each.hit_rate,
        "saved_prefill_s": each.saved_prefill_s,
        "busy_share": each.busy_share,
        "replica_hours": each.replica_hours,
        "device_hours": each.replica_hours * service.deployment.devices,
        **{f"usd_{kind}": usd for kind, (_, usd) in found.bills.items()},
        "cold_start_s": scaler.cold_start_s if scaler else None,
    }


def _intervals(found: ServedFleet, row: Row, level: float) -> Row:
    """Return the intervals of latencies, throughputs, and of duration and cost where the service decides these.

    The residuals are those of engines, so the network's part of a latency is taken off and added again.
    """
    each, whole = found.service, "e2e_latency_ms"
    metrics = METRICS | {"ttfv": whole} | ({} if each.clients.streaming else {"ttft": whole})
    names = {f"{stat}_{name}_ms": (stat, name) for name in metrics for stat in STATS}
    away_ms = each.clients.network_s * 1e3
    network_ms = {key: 0.0 if name in ("tpot", "itl") else away_ms for key, (_, name) in names.items()}
    regime, deployment = regime_of(found.sent.concurrency, len(found.sent)), each.service.deployment

    def without_network(seen: Row) -> Row:
        return {key: None if seen[key] is None else seen[key] - network_ms[key] for key in names}

    def rerun(step_factor: float) -> Row:
        return without_network(_client_latencies(replace(found, service=each.rerun(step_factor))))

    prediction = PredictionRange(deployment, regime, level, row)
    latencies = replace(prediction, found=without_network(row), again=rerun)
    ends = dict(intervals(latencies, {key: f"{stat} {metrics[name]}" for key, (stat, name) in names.items()}))
    for name in (f"{key}_{end}" for key in names for end in ENDS):
        ends[name] = None if ends[name] is None else ends[name] + network_ms[name.rpartition("_")[0]]
    ends |= throughput_intervals(prediction, each.report)
    spent = ["duration", "replica_hours", "device_hours", *(key for key in row if key.startswith("usd_"))]
    scaled = each.service.autoscaler or each.service.prefill_autoscaler
    if regime == "open_loop" or scaled:  # arrivals decide the duration, or the autoscaler the hours
        return ends | {f"{key}_{end}": None for key in spent for end in ENDS}
    return ends | dict(intervals(prediction, dict.fromkeys(spent, "1/throughput_out_tok_s")))


def _views(found: ServedFleet, row: Row, behaviour: ClientQuestion) -> list[View]:
    each, title = found.service, f"{found.service.describe()}: {load_in_words(found, behaviour)}"
    names = [name for name in SEEN if name in each.metrics]
    with_interval = [name for name in names if row.get(f"mean_{name}_ms_low") is not None]
    within = intervals_by_metric(with_interval, STATS, TOTALS | {"duration": "duration s"}, row, row["interval"])
    views = [load_screen.latency_view(title, row, names, each.report.slo), within, _replicas_view(each)]
    if not each.changes:
        return views
    changes = [{**change, "what": f"{change['replica']} {change['state']}"} for change in each.changes[:SHOWN]]
    more = f", the first {SHOWN} of {len(each.changes)}" if len(each.changes) > SHOWN else ""
    columns = [Column("time_s", "at s", lambda at_s: f"{at_s:,.1f}"), Column("what", "replica", left=True)]
    return [*views, View(f"Changes of replicas{more}", columns, changes, is_detail=True)]


def _replicas_view(each: ServiceReport) -> View:
    run = each.run
    served, paid_s = Counter(run.replica.tolist()), np.zeros(run.replicas)
    for replica, start_s, end_s in run.paid_intervals:
        paid_s[replica] += end_s - start_s
    work_s, prompts = (
        np.bincount(run.steps.replica, run.steps[name], minlength=run.replicas) for name in ("work_s", "prompt_tokens")
    )
    rows = [
        {
            "replica": replica,
            "requests": served[replica] if replica >= each.service.prefill_replicas else None,
            "prompt_tokens": prompts[replica],
            "hours": paid_s[replica] / 3600,
            "busy": work_s[replica] / run.stages / paid_s[replica] if paid_s[replica] else None,
        }
        for replica in range(run.replicas)
    ]
    columns = [
        Column("replica", "replica", str),
        Column("requests", "requests", count),
        Column("prompt_tokens", "prompt tokens computed", count),
        Column("hours", "hours paid", number(3)),
        Column("busy", "busy", percent),
    ]
    return View("Replicas", columns, rows, is_detail=True)


def _prefix_cache_note(found: ServedFleet) -> str:
    each = found.service
    share = each.saved_prefill_s / each.run.paid_s
    paid = next((f", worth ${usd * share:,.3g} {kind}" for kind, (_, usd) in found.bills.items()), "")
    there = f"{each.hit_rate:.0%} of the prompts' tokens were there"
    return f"Prefix cache: {there}, which saved {lasting(each.saved_prefill_s)} of prefill{paid}."


def _notes(found: ServedFleet, row: Row, deadline: str) -> list[str]:
    each = found.service
    run, report = each.run, each.report
    counted = {
        "preemptions": int(run.preemptions.sum()),
        "restarts after failures": int(run.retries.sum()),
        "timeouts of those served": int(run.timeouts.sum()),
        "given up": len(run.abandoned),
        "rejected": len(run.rejected),
    }
    mean_replicas = each.replica_hours / (run.closed_s / 3600)
    while_they_came = " while requests came" if report.is_as_offered else ""
    said = [
        f"{len(run.row):,} of {len(found.sent):,} requests served in {lasting(run.closed_s)}{_draws(each)}, "
        f"{per_second(report.output_tokens_per_s, 'output token')}{while_they_came}; "
        f"{significant(each.replica_hours)} replica-hours ({significant(mean_replicas)} on average), "
        f"busy {each.busy_share:.0%} of them{''.join(f'; {n:,} {what}' for what, n in counted.items() if n)}."
    ]
    said += rejection_notes([run])
    if run.hit_tokens.any():
        said.append(_prefix_cache_note(found))
    said += _overload_notes(found)
    if deadline:
        said.append(_deadline_note(run.end_s, seconds(deadline, "--deadline"), row, len(run.abandoned)))
    said += _bill_note(found)
    if row["cold_start_s"] is not None:
        said.append(f"A replica starts in {lasting(row['cold_start_s'])}.")
    if each.service.prefill_replicas:
        said.append(f"Caches move at {scaled(each.service.link_bytes_per_s, 'B/s')} per prefill replica.")
    return said


def _draws(each: ServiceReport) -> str:
    return f" (the first of {1 + len(each.draws)} draws, of which rates and latencies are means)" if each.draws else ""


def _bill(kind: Commitment, rental: tuple[str, float]) -> str:
    rented, usd = rental
    return f"${usd:,.4g} {kind} ({rented})"


def _bill_note(found: ServedFleet) -> list[str]:
    """Say what the run costs as asked or, where no such offer counts, at the first other price."""
    bills, asked = found.bills, found.priced.commitment
    missing = [] if asked in bills else [f"No {asked} price counts for {found.service.service.deployment.hardware.id}."]
    return [*missing, *(f"This run costs {_bill(*bill)}." for bill in list(bills.items())[:1])]


def _other_bills(found: ServedFleet) -> list[str]:
    """Say what the run costs at other prices than that of the first screen."""
    others = "; ".join(_bill(*bill) for bill in list(found.bills.items())[1:])
    return [f"The run's share of other prices, of machines that are used beyond it: {others}."] if others else []


def _overload_notes(found: ServedFleet) -> list[str]:
    """Say which latencies grow with a queue, if it grows without end."""
    report = found.service.report
    if not (report.overload and found.endless):
        return []
    names = ", ".join(name.upper() for name in found.endless if name in found.service.metrics)
    grow = f"{names} grow with {report.overload.queue}, by {per_second(report.queue_growth_per_s, 'request')}"
    return [f"{grow}: a p95 of them does not exist."]


def _deadline_note(end_s: float, limit_s: float, row: Row, abandoned: int) -> str:
    verdict = "kept" if end_s <= limit_s and not abandoned else "MISSED"
    ends_s = [row[f"duration_{end}"] for end in ENDS]
    within = "" if None in ends_s else f" ({' to '.join(map(lasting, ends_s))})"
    if within and not abandoned and ends_s[0] <= limit_s < ends_s[1]:
        verdict += ", not for sure"
    return f"Deadline of {lasting(limit_s)}: {verdict}; the last token comes at {lasting(end_s)}{within}."
