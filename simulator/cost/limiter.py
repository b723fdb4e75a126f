"""What limits a deployment under a load, by what its simulation shows."""

import math
from typing import NamedTuple

import numpy as np

from simulator.arrays import Bools, Floats
from simulator.cost.lower_bounds import LowerBounds
from simulator.cost.mean_steps import decode_step, prompt_step
from simulator.deployment.deployment import Deployment
from simulator.hardware.hardware import Hardware
from simulator.models.operations import Op
from simulator.reports.latency_breakdown import Explanation
from simulator.reports.report import Report
from simulator.scheduler.state import blocks
from simulator.units import scaled

MUCH, MOST = 0.25, 0.5  # of requests, of a latency or of the time that requests wait
GAIN = 1.1  # times the highest rate: a limit that costs less is not what limits
TAIL = 0.95  # quantile from which latencies are looked into
WAITS_IN = {"queue": "ttft"}  # the queue time is a part of the TTFT
NAMES = {"compute": "compute", "memory": "bandwidth", "overhead": "overhead"}  # of what binds; links have their own
EXPLAINED = {
    "compute": "the device's arithmetic",
    "bandwidth": "the device's memory bandwidth",
    "link": "the link between devices",
    "network": "the network between nodes",
    "PCIe": "PCIe",
    "overhead": "overhead (starts of kernels, latencies, the host)",
}


class Limiter(NamedTuple):
    """What limits a deployment: a name for a table, and a sentence with the evidence."""

    name: str
    sentence: str


def limiter(bounds: LowerBounds, report: Report) -> Limiter:
    """Return what limits a replica in a run at, or just above, the highest rate that keeps the SLO.

    In this order: a KV cache or slots (max_num_seqs) for which requests wait or are preempted, where steps would be
    fuller without that limit; prompts that are late by themselves; others' prompts in decode steps; else the resource
    that binds most of the time of the steps that the latency, or the queue, consists of.
    """
    worst, seen = WAITS_IN.get(report.worst_bound, report.worst_bound), Explanation(report)
    metric = _larger_part(seen) if worst == "e2el" else worst
    if waiting := _waiting(bounds, seen, metric):
        return waiting
    if metric == "ttft" and (alone := _alone(seen)):
        return alone
    if metric == "tpot" and (share := _interference(seen, worst)):
        told = f"others' prompts are {share:.0%} of the slowest requests' time per token"
        return Limiter("interference", f"prefill interference: {told}")
    return _resource(bounds.scenario.deployment, seen, metric)


def _larger_part(seen: Explanation) -> str:
    """Return ttft or tpot: the latency that makes up more of the slowest requests' E2EL."""
    tail = _tail(seen.report.latencies_s["e2el"])
    first_s, last_s = (
        sum(float(part[tail].mean()) for part in seen.split.of(name).values()) for name in ("ttft", "e2el")
    )
    return "ttft" if first_s >= last_s - first_s else "tpot"


def _tail(latency_s: Floats) -> Bools:
    return np.nan_to_num(latency_s) >= np.nanquantile(latency_s, TAIL)


def _parts(seen: Explanation, metric: str) -> dict[str, float]:
    """Return the mean seconds of each part of the slowest requests' TTFT, or of their time after the first token."""
    parts, tail = seen.split, _tail(seen.report.latencies_s[metric])
    before = {name: float(values[tail].mean()) for name, values in parts.ttft.items()}
    if metric == "ttft":
        return before
    return {name: float(values[tail].mean()) - before[name] for name, values in parts.e2el.items()}


def _waiting(bounds: LowerBounds, seen: Explanation, metric: str) -> Limiter | None:
    """Return KV cache or slots, where requests wait for them or are preempted, and more of them would serve more."""
    run = seen.report.run
    steps, limits, requests = run.steps, run.limits, run.requests
    parts = _parts(seen, metric) if metric else {"queue": 1.0}
    if parts["queue"] + parts.get("redo", 0.0) < MOST * sum(parts.values()):
        return None
    groups = limits.full_groups + limits.window_groups
    needed = blocks(limits, math.ceil(requests.prompt_tokens.mean()))
    full, short = steps.running >= limits.max_num_seqs, limits.num_blocks - steps.blocks < needed
    waited_s = steps.waiting * steps.seconds
    total_s = float(waited_s.sum()) or 1.0
    by_slots, by_cache = (float(waited_s[each].sum()) / total_s for each in (full, short & ~full))
    preempted = int(run.preemptions.sum())
    if (by_cache > MOST or preempted > MUCH * len(requests)) and bounds.gain_without("cache") > GAIN:
        tokens = run.stages * (limits.num_blocks // groups) * limits.block_size
        told = f"{tokens:,} tokens, {preempted:,} preemptions, {by_cache:.0%} of all waiting is for blocks"
        return Limiter("KV cache", f"KV-cache capacity: {told}")
    if by_slots > MOST and bounds.gain_without("slots") > GAIN:
        slots = run.stages * limits.max_num_seqs
        taken = f"all {slots:,} are" if slots > 1 else "the only one is"
        told = f"{taken} taken in {by_slots:.0%} of the time that requests wait; try --max-num-seqs"
        return Limiter("slots", f"slots: {told} {2 * slots // bounds.scenario.deployment.layout.dp}")
    return None


def _alone(seen: Explanation) -> Limiter | None:
    """Return the prompts that are late by themselves: without the others they are over, or close to, the bound."""
    report, parts = seen.report, _parts(seen, "ttft")
    if parts["prefill"] < MOST * sum(parts.values()):
        return None
    bound_s = min(bound for name, bound in report.slo.bounds_s.items() if name != "tpot")
    prompts = report.run.requests.prompt_tokens
    kept = prompts[report.skipped :]
    tokens = int(np.quantile(kept[_tail(report.latencies_s["ttft"])], MUCH))
    share = float((prompts >= tokens).mean())
    own = parts["prefill"] / sum(parts.values())
    told = f"{share:.1%} have {tokens:,} tokens or more, which alone take {own:.0%} of their TTFT"
    return Limiter("long prompts", f"the longest prompts: {told} ({scaled(bound_s, 's')} allowed)")


def _interference(seen: Explanation, worst: str) -> float:
    """Return the share of others' prompts in the slowest requests' decoding, where `worst` would be in time without."""
    report, parts = seen.report, _parts(seen, "tpot")
    share = parts["interference"] / (sum(parts.values()) or 1.0)
    late_s = float(np.nanquantile(report.latencies_s[worst], TAIL))
    added_s = late_s * share if worst == "tpot" else parts["interference"]
    return share if share > MUCH and late_s - added_s < report.slo.bounds_s[worst] else 0.0


def _prompt_share(seen: Explanation, metric: str) -> float:
    """Return the share of prompts in the time that decides: of a TTFT or of all steps; none in a TPOT."""
    report = seen.report
    if metric != "ttft":
        return 0.0 if metric == "tpot" else report.prompt_share
    parts = _parts(seen, "ttft")
    prompts = parts["prefill"] + parts["interference"] + parts["queue"] * report.prompt_share
    decodes = parts["decode"] + parts["queue"] * (1 - report.prompt_share)
    return prompts / (prompts + decodes) if prompts + decodes else 0.0


def _resource(deployment: Deployment, seen: Explanation, metric: str) -> Limiter:
    """Return the resource that binds most of the time of the steps that a metric consists of, by the ops' seconds."""
    model, share, report = deployment.step_model(), _prompt_share(seen, metric), seen.report
    seconds: dict[str, float] = {}
    for counts, weight in ((decode_step(deployment, report), 1 - share), (prompt_step(deployment, report), share)):
        costs = model.explain(counts)
        total = sum(float(cost.seconds) for cost in costs)
        ops: list[Op | None] = [*model.ops, *model.draft_ops, None]
        for op, cost in zip(ops, costs, strict=True):
            name = _link(deployment.hardware, op) if op is not None and cost.bound == "link" else NAMES[cost.bound]
            seconds[name] = seconds.get(name, 0.0) + weight * float(cost.seconds) / total
    name = max(seconds, key=lambda each: seconds[each])
    of = {"tpot": "of a decode step", "ttft": "of the time before a first token"}.get(metric, "of the time in steps")
    most = "" if seconds[name] > MOST else ", more than anything else"
    piles = f"; requests pile up, by {report.queue_growth_per_s:.2g}/s" if report.overloaded else ""
    return Limiter(name, f"{EXPLAINED[name]} takes {seconds[name]:.0%} {of}{most}{piles}")


def _link(hardware: Hardware, op: Op) -> str:
    """Return which link an op uses: between nodes, PCIe where the devices have none of their own, or that link."""
    if op.rate != "host_link" and hardware.nodes(op.link_devices) > 1:
        return "network"
    return "link" if hardware.link and op.rate != "host_link" else "PCIe"
