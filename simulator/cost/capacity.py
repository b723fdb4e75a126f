"""The whole question as one value, and its answers: how fast at this load, how much load, at what price, on what."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from simulator.cost.bill import Bill, bill
from simulator.cost.scenario import Scenario
from simulator.deployment.deployment import Deployment
from simulator.errors import InfercastError, WorkloadError
from simulator.models.operations import Counts
from simulator.reports.report import Report
from simulator.roofline.roofline import mostly_bound
from simulator.workloads.arrivals import ClosedLoop, OpenLoop, RecordedArrivals
from simulator.workloads.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

SEARCH_STEPS = 10  # halvings of the rate: 0.1 % of the saturated rate
PROBE_REQUESTS = 2_000  # at least, and ten times what runs at once
LIGHTEST = 0.01  # of the saturated rate: a load at which requests hardly meet


@dataclass(frozen=True, slots=True)
class Capacity:
    """The highest rate of one replica within the SLO, the report there, and what breaks just above."""

    rate_per_s: float
    report: Report
    breaks: str


@dataclass(frozen=True)
class Answer:
    """What a scenario comes to: replicas needed for the asked rate, latencies, bills, and the reason."""

    scenario: Scenario
    rate_per_s: float
    capacity: Capacity
    replicas: int
    report: Report

    @cached_property
    def at_load(self) -> Bill | None:
        """The bill at the asked rate, None without a price or where no number of replicas keeps the SLO."""
        if not self.capacity.rate_per_s:
            return None
        return self._bill(self.report, self.rate_per_s / self.replicas, self.replicas)

    @cached_property
    def at_capacity(self) -> Bill | None:
        """The bill of one replica at its highest rate."""
        rate_per_s = self.capacity.rate_per_s
        return self._bill(self.capacity.report, rate_per_s, 1) if rate_per_s else None

    def _bill(self, report: Report, rate_per_s: float, replicas: int) -> Bill | None:
        offer = self.scenario.offer
        devices = self.scenario.deployment.devices
        return bill(report, rate_per_s, offer.usd_per_device_hour * devices, replicas) if offer else None

    @property
    def why(self) -> str:
        """Say in one sentence what decides the place of this answer among others."""
        where = binding(self.scenario.deployment, self.report)
        if self.capacity.rate_per_s == 0:
            return f"cannot keep the SLO at any load, even with requests almost alone: {self.capacity.breaks}; {where}"
        most = f"at most {self.capacity.rate_per_s:.3g} req/s per replica within the SLO"
        return f"{most}, above that {self.capacity.breaks}; {where}; idle {1 - self.report.utilisation:.0%} of the time"


def binding(deployment: Deployment, report: Report) -> str:
    """Name the resource that takes most of the time of the mean decode step, and its share."""
    requests = report.run.requests
    context = float((requests.prompt_tokens + requests.output_tokens / 2).mean())
    window = float(deployment.model.window or context)
    running = max(1.0, report.mean_running)
    counts = Counts(
        steps=1.0,
        tokens=running,
        logits=running,
        decode_reads=running * context,
        decode_reads_windowed=running * min(context, window),
    )
    resource, share = mostly_bound(deployment.step_model().explain(counts))
    return f"decoding, {running:.0f} at once, is {share:.0%} {resource}-bound"


def capacity(scenario: Scenario) -> Capacity:
    """Search the highest open-loop rate at which one replica keeps the SLO, by bisection on the same random numbers.

    The saturated rate (a closed loop that keeps the engine full) bounds it from above.
    """
    saturated, running = _saturated_rate(scenario)
    probe = replace(scenario.workload, request_count=max(PROBE_REQUESTS, 10 * running))
    if isinstance(probe.arrivals, ClosedLoop):
        probe = replace(probe, arrivals=OpenLoop(saturated))
    if isinstance(probe.arrivals, RecordedArrivals):
        probe = replace(probe, request_count=scenario.workload.request_count)

    def at(rate_per_s: float) -> Report:
        return scenario.report(probe.at_rate(rate_per_s))

    low, high = LIGHTEST * saturated, saturated
    best, failed = at(low), at(high)
    if not best.meets_slo:
        return Capacity(0.0, best, _breaks(best))
    for _ in range(SEARCH_STEPS):  # an SLO that full engines keep, or a workload too short to build a queue
        if not failed.meets_slo:
            break
        low, best, high = high, failed, 2 * high
        failed = at(high)
    else:
        return Capacity(low, best, "nothing breaks in so short a workload")
    for _ in range(SEARCH_STEPS):
        middle = (low + high) / 2
        report = at(middle)
        if report.meets_slo:
            low, best = middle, report
        else:
            high, failed = middle, report
    return Capacity(low, best, _breaks(failed))


def _saturated_rate(scenario: Scenario) -> tuple[float, int]:
    """Return requests per second, and requests at once, of an engine that never waits for users."""
    seqs = scenario.deployment.max_num_seqs
    count = min(max(PROBE_REQUESTS, 4 * seqs), _available(scenario.workload))
    report = scenario.report(replace(scenario.workload, arrivals=ClosedLoop(2 * seqs), request_count=count))
    finished_s = np.sort(report.run.finished_s)
    middle_s = finished_s[3 * count // 4] - finished_s[count // 4]  # neither filling nor draining
    if not middle_s:
        remedy = "Give more requests, or a trace whose times differ"
        raise WorkloadError(f"a workload of {count:,} requests", "half of them finish at the same moment", remedy)
    return count / 2 / float(middle_s), int(report.run.steps.running.max())


def _available(workload: Workload) -> int:
    """Return how many requests a workload can draw: a trace has only so many."""
    return workload.request_count if isinstance(workload.arrivals, RecordedArrivals) else 2**31


def _breaks(report: Report) -> str:
    if report.overloaded:
        return "the queue grows without end"
    bounds = {name: share for name, share in report.within.items() if name != "all"}
    metric = min(bounds, key=lambda name: bounds[name])
    missed = f"{1 - bounds[metric]:.1%} miss {metric.upper()} <= {report.slo.bounds_s[metric] * 1e3:.0f} ms"
    kept = math.floor(1e3 * report.within["all"]) / 1e3  # so that 94.96 % does not look like the 95 % that were asked
    return f"only {kept:.1%} keep every bound ({missed})"


def answer(scenario: Scenario, rate_per_s: float) -> Answer:
    """Find how many replicas serve a rate within the SLO, and simulate one of them at its share of it.

    Where no load keeps the SLO, the report is the one of the lightest load: what a request sees almost alone.
    """
    found = capacity(scenario)
    if found.rate_per_s == 0:
        return Answer(scenario, rate_per_s, found, 0, found.report)
    replicas = int(-(-rate_per_s // found.rate_per_s))
    return Answer(
        scenario, rate_per_s, found, replicas, scenario.report(scenario.workload.at_rate(rate_per_s / replicas))
    )


class Comparison(NamedTuple):
    """Answers, the cheapest at the asked load first, and the reasons of what cannot be."""

    answers: list[Answer]
    refused: list[InfercastError]

    def to_frame(self) -> "pd.DataFrame":
        """Return a row for each answer, in their order: what runs, how many replicas, its capacity and its bills."""
        import pandas as pd  # noqa: PLC0415  takes half a second

        return pd.DataFrame([_row(each) for each in self.answers])


def _row(found: Answer) -> dict[str, object]:
    deployment, full = found.scenario.deployment, found.at_capacity
    return {
        "model": deployment.model.id,
        "hardware": deployment.hardware.id,
        "engine": deployment.engine.id,
        "tp": deployment.layout.tp,
        "weight_dtype": deployment.layout.weight_dtype,
        "replicas": found.replicas,
        "capacity_per_s": found.capacity.rate_per_s,
        "usd_per_hour": found.at_load.usd_per_hour if found.at_load else None,
        "usd_per_m_output": found.at_load.usd_per_million_output_tokens if found.at_load else None,
        "usd_per_m_output_full": full.usd_per_million_output_tokens if full else None,
        "why": found.why,
    }


def compare(scenarios: Iterable[Scenario], rate_per_s: float) -> Comparison:
    """Answer each scenario; cheapest at the asked load first, those that cannot keep the SLO last.

    What does not fit is returned with its reason, never dropped.
    """
    answers, refused = [], []
    for scenario in scenarios:
        try:
            answers.append(answer(scenario, rate_per_s))
        except InfercastError as error:
            refused.append(error)
    return Comparison(ranked(answers), refused)


def ranked(answers: Iterable[Answer]) -> list[Answer]:
    """Sort answers: the cheapest at the asked load first, those that cannot keep the SLO last."""
    return sorted(answers, key=_rank)


def _rank(found: Answer) -> tuple[bool, float, float]:
    price = found.at_load.usd_per_hour if found.at_load else float("inf")
    return found.capacity.rate_per_s == 0, price, -found.capacity.rate_per_s
