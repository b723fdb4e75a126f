"""Capacity of a replica within an SLO, replicas and dollars for an asked rate, and deployments compared by price."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from simulator.cost.bill import Bill, bill
from simulator.cost.bisection import bisect_rate
from simulator.cost.energy import idle_watts, instance_watts, power_w
from simulator.cost.limiter import limiter
from simulator.cost.lower_bounds import lower_bounds
from simulator.cost.packing import Packing, full_usd_per_hour
from simulator.cost.scenario import Scenario
from simulator.errors import InfercastError, WorkloadError
from simulator.frames import Framed, frame
from simulator.reports.report import Report
from simulator.units import significant
from simulator.workloads.arrivals import ClosedLoop, OpenLoop, RecordedArrivals
from simulator.workloads.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

SEARCH_STEPS = 10  # halvings of the interval of rates: the result is within 0.1 % of the saturated rate
MOST_MORE = 10  # replicas, where the asked requests are fewer than those of the search, and harder
PROBE_REQUESTS = 2_000  # least requests of a simulation of the search; at least ten times the sequences running at once
LIGHTEST_SHARE = 0.01  # of the highest rate with a steady state: the lightest load tried, of requests almost alone


@dataclass(frozen=True, slots=True, repr=False)
class Capacity(Framed):
    """Highest rate of one replica within the SLO, in requests/s, the report at it, and what breaks the SLO just above.

    `rate_per_s` is 0 where even the lightest load breaks the SLO; `report` is then the one of that load.
    """

    rate_per_s: float
    report: Report
    breaks: str

    def to_frame(self) -> "pd.DataFrame":
        """Return one row: the rate in requests/s, the latencies at it in seconds (p95), and what breaks above it."""
        p95 = {f"p95_{name}_s": self.report.metrics[name]["p95"] for name in ("ttft", "tpot", "e2el")}
        return frame([{"rate_per_s": self.rate_per_s, **p95, "breaks": self.breaks}])


@dataclass(frozen=True, repr=False)
class Answer(Framed):
    """Replicas that serve an asked rate within the SLO, their latencies and bills, and the reason.

    `rate_per_s`: asked of all replicas together, in requests/s. `report`: one replica under its share of it. `replicas`
    is 0 where no number of them keeps the SLO; the report is then that of the lightest load that was tried.
    """

    scenario: Scenario
    rate_per_s: float
    capacity: Capacity
    replicas: int
    report: Report

    def to_frame(self) -> "pd.DataFrame":
        """Return one row, with the columns of `Comparison.to_frame`."""
        return frame([_row(self)])

    @cached_property
    def packing(self) -> Packing | None:
        """Cheapest instances that hold the replicas; None without an offer or where no number keeps the SLO."""
        return self.scenario.packing(self.replicas) if self.replicas and self.scenario.offers else None

    @cached_property
    def at_load(self) -> Bill | None:
        """Bill of all instances at the asked rate; None without an offer or where no number keeps the SLO."""
        if not self.packing:
            return None
        return bill(self.report, self.rate_per_s, self.packing.usd_per_hour_at(self.watts))

    @cached_property
    def at_capacity(self) -> Bill | None:
        """Bill of a replica at its highest rate within the SLO, on full instances; None without an offer or a rate."""
        if not (self.packing and self.capacity.rate_per_s):
            return None
        usd_per_hour = full_usd_per_hour(self.scenario.replica_size, self.scenario.offers)
        full_w = power_w(self.scenario.deployment, self.capacity.report)
        electricity = self.scenario.offers[0].electricity_usd_per_hour(full_w)
        return bill(self.capacity.report, self.capacity.rate_per_s, usd_per_hour + electricity)

    def usd_per_hour(self, replicas: int) -> float:
        """Return the dollars an hour of so many replicas under the same load: other devices take idle power alone.

        Raises InfercastError as `Scenario.packing` does, and where there is no offer.
        """
        packing = self.scenario.packing(replicas)
        more = packing.devices - (self.packing.devices if self.packing else 0)
        idle_w = idle_watts(self.scenario.deployment.hardware) or 0.0
        return packing.usd_per_hour_at(self.watts and self.watts + more * idle_w)

    @cached_property
    def watts(self) -> float | None:
        """Mean power of all replicas, of devices without work and of hosts, an estimate (`energy.power_w`).

        Without what the data centre adds; None without a TDP, and where no number of replicas keeps the SLO.
        """
        if not self.replicas:
            return None
        devices = self.packing.devices if self.packing else None
        return instance_watts(self.scenario.deployment, self.report, self.replicas, devices)

    @property
    def why(self) -> str:
        """One sentence: highest rate, what breaks above it, what limits it there, and how much of it is asked."""
        where = limiter(lower_bounds(self.scenario), self.capacity.report).sentence
        if self.capacity.rate_per_s == 0:
            return f"cannot keep the SLO at any load, even with requests almost alone: {self.capacity.breaks}; {where}"
        if not self.replicas:
            tried = f"{_fewest(self.rate_per_s, self.capacity) + MOST_MORE} replicas"
            return f"no number up to {tried} keeps the SLO: {what_breaks(self.report)}; {where}"
        within = " within the SLO" if self.scenario.slo.bounds_s else ", without an SLO"
        most = f"at most {significant(self.capacity.rate_per_s)} req/s per replica{within}"
        asked = self.rate_per_s / self.replicas / self.capacity.rate_per_s
        return f"{most}, of which {asked:.0%} are asked; above it {self.capacity.breaks}; {where}"


def capacity(scenario: Scenario) -> Capacity:
    """Return the highest open-loop rate at which one replica keeps the SLO, found by bisection.

    The bracket is 1 % to 100 % of the saturated rate: that of a closed loop that keeps the engine full. All simulations
    draw the same requests, so only the rate differs. A closed-loop workload is searched with Poisson arrivals, a trace
    by stretching its arrival times.

    Raises DoesNotFitError where the model does not fit in memory, WorkloadError where a request does not fit in the
    context or the KV cache, or where the workload is too short to measure the saturated rate.

    >>> from simulator.deployment.deployment import deploy
    >>> from simulator.reports.slo import parse_slo
    >>> from simulator.workloads.lengths import Fixed, Independent
    >>> load = Workload(OpenLoop(1.0), Independent(Fixed(512), Fixed(32)))
    >>> found = capacity(Scenario(deploy("llama-3.2-1b", "l4"), load, parse_slo("ttft:1s")))
    >>> found.rate_per_s > 0, found.report.meets_slo
    (True, True)
    """
    saturated, running = _saturated_rate(scenario)
    probe = replace(scenario.workload, request_count=max(PROBE_REQUESTS, 10 * running))
    if isinstance(probe.arrivals, ClosedLoop):
        probe = replace(probe, arrivals=OpenLoop(saturated))
    if isinstance(probe.arrivals, RecordedArrivals):
        probe = replace(probe, request_count=scenario.workload.request_count)

    def report_at(rate_per_s: float) -> Report:
        return scenario.report(probe.at_rate(rate_per_s))

    low, high = LIGHTEST_SHARE * saturated, saturated
    best, failed = report_at(low), report_at(high)
    if not best.meets_slo:
        return Capacity(0.0, best, what_breaks(best))
    for _ in range(SEARCH_STEPS):  # the SLO holds even when saturated, or the workload is too short to build a queue
        if not failed.meets_slo:
            break
        low, best, high = high, failed, 2 * high
        failed = report_at(high)
    else:
        return Capacity(low, best, "nothing breaks in so short a workload")
    bracket = (low, best), (high, failed)
    (low, best), (_, failed) = bisect_rate(report_at, lambda report: report.meets_slo, bracket, SEARCH_STEPS)
    return Capacity(low, best, what_breaks(failed))


def _saturated_rate(scenario: Scenario) -> tuple[float, int]:
    """Return the requests/s, and the most sequences running at once, of a replica that always has requests waiting.

    The rate is that of the middle half of the completions, when the engine neither fills up nor drains.
    """
    seqs = scenario.deployment.max_num_seqs
    count = min(max(PROBE_REQUESTS, 4 * seqs), _most_requests(scenario.workload))
    report = scenario.report(replace(scenario.workload, arrivals=ClosedLoop(2 * seqs), request_count=count))
    finished_s = np.sort(report.run.finished_s)
    taken = len(finished_s)
    middle_s = finished_s[3 * taken // 4] - finished_s[taken // 4]
    if not middle_s:
        remedy = "Give more requests, or a trace whose times differ"
        raise WorkloadError(f"a workload of {count:,} requests", "half of them finish at the same moment", remedy)
    return taken / 2 / float(middle_s), report.run.at_once(report.run.steps.running)[1]


def _most_requests(workload: Workload) -> int:
    """Return how many requests a workload can draw: a trace is finite."""
    return workload.request_count if isinstance(workload.arrivals, RecordedArrivals) else 2**31


def what_breaks(report: Report) -> str:
    """Say which bound of the SLO a run breaks most (`Report.worst_bound`), and in how many requests."""
    if report.rejected_share > 1 - report.slo.share:
        return f"{report.rejected_share:.1%} are rejected: {report.run.rejected.in_words()}"
    if report.overload:
        return report.overload.because
    metric = report.worst_bound
    missed = f"{1 - report.within[metric]:.1%} miss {metric.upper()} <= {report.slo.bounds_s[metric] * 1e3:g} ms"
    kept = math.floor(1e3 * report.within["all"]) / 1e3  # rounded down: 94.96 % must not print as the 95 % asked for
    return f"only {kept:.1%} keep every bound ({missed})"


def answer(scenario: Scenario, rate_per_s: float, known: Capacity | None = None) -> Answer:
    """Return how many replicas serve `rate_per_s` requests/s within the SLO, with one of them simulated at its share.

    replicas = ceil(rate / capacity of one replica), or up to `MOST_MORE` more until that one keeps the SLO. Where none
    of these does, or no load keeps it, there are 0 replicas, and the report is that of the lightest load that was
    tried. `known`: the capacity, where it was searched before; it depends neither on the asked rate nor on the offer.

    Raises DoesNotFitError and WorkloadError as `capacity` does, WorkloadError for a rate that is not finite and above
    0, and InfercastError where there are offers, but none with the devices of a replica.

    >>> from simulator.deployment.deployment import deploy
    >>> from simulator.workloads.lengths import Fixed, Independent
    >>> scenario = Scenario(deploy("llama-3.2-1b", "l4"), Workload(OpenLoop(1.0), Independent(Fixed(512), Fixed(32))))
    >>> answer(scenario, 5.0, Capacity(2.0, scenario.simulated(), "searched before")).replicas
    3
    """
    OpenLoop(rate_per_s)  # refuses what is no rate, before anything is simulated
    if scenario.offers:
        scenario.packing(1)  # refuses, too
    found = known or capacity(scenario)
    if found.rate_per_s == 0:
        return Answer(scenario, rate_per_s, found, 0, found.report)
    fewest = _fewest(rate_per_s, found)
    for replicas in range(fewest, fewest + MOST_MORE + 1):
        report = scenario.report(scenario.workload.at_rate(rate_per_s / replicas))
        if report.meets_slo:
            return Answer(scenario, rate_per_s, found, replicas, report)
    return Answer(scenario, rate_per_s, found, 0, report)


def _fewest(rate_per_s: float, found: Capacity) -> int:
    """Return the replicas that have the capacity for a rate."""
    return int(-(-rate_per_s // found.rate_per_s))


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Framed):
    """Answers, the cheapest at the asked rate first, and an error for each deployment that cannot run."""

    answers: list[Answer]
    refused: list[InfercastError]

    def to_frame(self) -> "pd.DataFrame":
        """Return one row per answer, in their order: deployment, replicas, capacity, bills and reason.

        `capacity_per_s` is in requests/s of one replica, `usd_per_hour` of all replicas; `usd_per_m_output` and
        `usd_per_m_output_full` are dollars per million output tokens at the asked rate and at capacity.
        """
        return frame(map(_row, self.answers))


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
        "instances": found.packing.describe() if found.packing else None,
        "usd_per_hour": found.at_load.usd_per_hour if found.at_load else None,
        "usd_per_month": found.at_load.usd_per_month if found.at_load else None,
        "usd_per_m_output": found.at_load.usd_per_million_output_tokens if found.at_load else None,
        "usd_per_m_output_full": full.usd_per_million_output_tokens if full else None,
        "why": found.why,
    }


def compare(scenarios: Iterable[Scenario], rate_per_s: float) -> Comparison:
    """Return the answer of each scenario to the same rate in requests/s, cheapest first.

    Those that cannot keep the SLO come last. A deployment that raises InfercastError (it does not fit, say) is in
    `refused` with that error. Raises WorkloadError for a rate that is not finite and above 0, InfercastError for none.

    >>> from simulator.deployment.deployment import deploy
    >>> from simulator.workloads.lengths import Fixed, Independent
    >>> load = Workload(OpenLoop(1.0), Independent(Fixed(512), Fixed(32)))
    >>> [type(each).__name__ for each in compare([Scenario(deploy("llama-3.1-70b", "l4"), load)], 1.0).refused]
    ['DoesNotFitError']
    """
    OpenLoop(rate_per_s)  # refuses what is no rate of any of them
    answers, refused = [], []
    for scenario in scenarios:
        try:
            answers.append(answer(scenario, rate_per_s))
        except InfercastError as error:
            refused.append(error)
    if not answers and not refused:
        raise InfercastError("compare([], ..)", "there is no scenario to answer", "Give one at least")
    return Comparison(ranked(answers), refused)


def ranked(answers: Iterable[Answer]) -> list[Answer]:
    """Return the answers by dollars per hour at the asked rate, lowest first; those that cannot keep the SLO last.

    At equal price the higher capacity comes first.
    """
    return sorted(answers, key=_rank)


def _rank(found: Answer) -> tuple[bool, float, float]:
    usd_per_hour = found.at_load.usd_per_hour if found.at_load else None
    return cost_rank(found.replicas, usd_per_hour, found.capacity.rate_per_s)


def cost_rank(replicas: int, usd_per_hour: float | None, capacity_per_s: float) -> tuple[bool, float, float]:
    """Return what answers are ordered by in `ranked`; 0 replicas keep no SLO, None is no price.

    >>> cost_rank(2, 1.5, 8.0) < cost_rank(2, 1.5, 4.0) < cost_rank(1, None, 9.0) < cost_rank(0, None, 0.0)
    True
    """
    return not replicas, math.inf if usd_per_hour is None else usd_per_hour, -capacity_per_s
