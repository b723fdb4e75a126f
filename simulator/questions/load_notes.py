"""What is said about a simulated load, in sentences."""

import math
from collections.abc import Iterable

from simulator.cost.limiter import limiter
from simulator.cost.lower_bounds import lower_bounds
from simulator.cost.scenario import Scenario
from simulator.reports.arrival_load import RunLength
from simulator.reports.latency_breakdown import saved_prefill_s
from simulator.reports.report import Report
from simulator.simulation.engine_loop import Run
from simulator.units import counted, per_second, significant
from simulator.workloads.arrivals import ClosedLoop


def load_notes(scenario: Scenario, report: Report) -> list[str]:
    """Return sentences about one simulated load: throughput, what limits it, what was rejected, what grows."""
    rejected = rejection_notes(each.run for each in (report, *report.draws))
    if report.endless:
        grows = f"grow with the queue, by {per_second(report.queue_growth_per_s, 'request')}"
        return [f"TTFT, E2EL and queue time {grows}: a p95 of them does not exist.", *rejected]
    return [
        f"{significant(report.output_tokens_per_s)} output and {per_second(report.total_tokens_per_s, 'total token')}, "
        f"{per_second(report.requests_per_s, 'request')}; {limiter(lower_bounds(scenario), report).sentence}.",
        *rejected,
        *_computed_anew(scenario),
        *_never_together(scenario),
    ]


def _computed_anew(scenario: Scenario) -> list[str]:
    """Say where prompts share tokens that no prefix cache holds (engine_workload.py)."""
    model, workload = scenario.deployment.model, scenario.workload
    if (workload.shared is None and workload.repeated is None) or not model.recurrent_layers:
        return []
    return [f"Shared tokens are computed for each prompt: no cache of {model.id}'s recurrent states is modelled."]


def _never_together(scenario: Scenario) -> list[str]:
    """Say where a closed loop has fewer requests than it would keep in flight."""
    sent, asked = scenario.workload.request_count, scenario.workload.arrivals.concurrency
    if sent >= asked:
        return []
    return [f"At most {sent:,} of {asked:,} are in flight: no more requests are sent (--num-prompts)."]


def load_remarks(scenario: Scenario, report: Report) -> list[str]:
    """Return more sentences about one simulated load: how busy it is, its cache, goodput, what was left out."""
    if report.endless:
        return []
    mean_use, peak_use = report.cache_use
    preempted = counted(int(report.run.preemptions.sum()) * report.replicas, "preemption")
    said = [
        f"{report.duration_s:,.0f} s; busy {report.utilisation:.0%} of the "
        f"time, where full steps would take {_used(scenario, report):.0%}, prompts {report.prompt_share:.0%} of that; "
        f"cache {mean_use:.0%} full, {peak_use:.0%} at its peak"
        f"{_cache_in_words(scenario, report)}; {preempted}."
    ]
    if report.slo.bounds_s:
        kept = f"{report.within['all']:.1%} keep every bound"
        said.append(f"{kept}: goodput {per_second(report.goodput_per_s, 'request')}.")
    if (length := report.length) and not length.is_enough():
        said.append(_too_short(length))
    elif length and math.isnan(report.metrics["ttft"].half_widths["mean"]):
        said += _rarely_full(length)
    if report.skipped:
        said.append(f"the first {report.skipped} requests are left out as warm-up (MSER-5).")
    if isinstance(scenario.workload.arrivals, ClosedLoop):
        said.append("a closed loop; its rate is an outcome.")
    return said


def rejection_notes(runs: Iterable[Run]) -> list[str]:
    """Return a line on the requests of a load that engines rejected, and why; none where they took all.

    `runs` are draws of one load.
    """
    rejected = [each for each in runs if len(each.rejected)]
    if not rejected:
        return []
    one = rejected[0]
    count, sent = len(one.rejected), len(one.rejected) + len(one.requests)
    return [
        f"REJECTED: {count:,} of {sent:,} requests ({count / sent:.2%}), as the engine does (vLLM: HTTP 400): "
        f"{one.rejected.in_words()}. They keep no bound of the SLO; latencies and throughputs are those of the others."
    ]


def _cache_in_words(scenario: Scenario, report: Report) -> str:
    waste, hits = report.cache_waste, report.prefix_hit_rate
    empty = f", {waste:.1%} of the held blocks wasted" if waste is not None else ""
    if not hits:
        return empty
    saved_s = saved_prefill_s(report.run, scenario.table)
    return f"{empty}, {hits:.0%} of the prompts' tokens cached before, which saved {saved_s:,.3g} s of prefill"


def _too_short(length: RunLength) -> str:
    """Return why a run states no half-widths, and what would."""
    needed = length.load.requests_needed
    if needed == math.inf:
        return "no ±: the requests come as fast as full steps would serve them, or faster."
    return f"no ±: at this load it takes {_rounded_up(needed)} requests to tell how far a run is off (--num-prompts)."


def _rarely_full(length: RunLength) -> list[str]:
    """Return why a run that is long enough for its load states no half-width of the mean TTFT, and what would."""
    needed = length.load.requests_of_queues
    if not length.requests < needed < math.inf:
        return []
    return [
        f"no ± of the mean TTFT: {length.load.full_share:.2%} of the requests find the engine full, and it takes "
        f"{_rounded_up(needed)} to see enough of such waits (--num-prompts)."
    ]


def _rounded_up(requests: float) -> str:
    last = 10 ** math.floor(math.log10(requests) - 1)
    return f"{math.ceil(requests / last) * last:,}"


def _used(scenario: Scenario, report: Report) -> float:
    """Return the share of a replica's capacity that a load uses: seconds that it takes at least, in full steps."""
    counted = report.completed / len(report.run.requests)
    return min(1.0, lower_bounds(scenario).busy_s * counted / report.duration_s / report.run.engines)
