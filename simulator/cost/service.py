"""A service as one value: a deployment, its replicas and what is around them; what it does and costs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from simulator.deployment.deployment import Deployment
from simulator.deployment.memory import memory_plan
from simulator.errors import InfercastError
from simulator.hardware.prices import Offer
from simulator.reports.batch_means import Statistic, statistic
from simulator.reports.latency_breakdown import saved_prefill_s
from simulator.reports.report import Report, summarize
from simulator.reports.slo import Slo
from simulator.roofline.step_model import StepTable
from simulator.scheduler.state import Floats, Ints
from simulator.simulation.autoscaler import Autoscaler, Failure, cold_start_s
from simulator.simulation.clients import Clients
from simulator.simulation.disaggregation import LINK_BYTES_PER_S, LINK_LATENCY_S, CacheLink, cache_bytes
from simulator.simulation.engine_loop import Progress
from simulator.simulation.fleet import Fleet, Pool, simulate_fleet
from simulator.simulation.fleet_run import FleetRun
from simulator.simulation.fleet_state import DRAINING, FAILED, OFF, STATES, UP
from simulator.simulation.routers import Router
from simulator.simulation.scheduler_limits import limits, refuse_too_long, stages
from simulator.workloads.workload import Requests


@dataclass(frozen=True)
class Service:
    """Replicas of a deployment behind a router.

    `prefill_replicas` > 0 of them prefill for the others over a link of `link_bytes_per_s` each. An autoscaler brings
    its own number of replicas.
    """

    deployment: Deployment
    replicas: int = 1
    router: Router = field(default_factory=Router)
    autoscaler: Autoscaler | None = None
    failures: tuple[Failure, ...] = ()
    prefill_replicas: int = 0
    link_bytes_per_s: float = LINK_BYTES_PER_S
    link_latency_s: float = LINK_LATENCY_S

    def __post_init__(self) -> None:
        if self.prefill_replicas and not 0 < self.prefill_replicas < self.replicas:
            given = f"{self.prefill_replicas} of {self.replicas} replicas for prefill"
            raise InfercastError(given, "each pool needs one", "Give, say, 2 of 4")

    @cached_property
    def table(self) -> StepTable:
        """The seconds of every step of a replica."""
        return self.deployment.step_table()

    def fleet(self, requests: Requests) -> Fleet:
        """Return it as the event loop takes it."""
        deployment, table = self.deployment, self.table
        allowed = limits(deployment, requests)
        more = stages(deployment, allowed), deployment.acceptance
        pool = Pool(allowed, table, self.replicas - self.prefill_replicas, *more)
        if not self.prefill_replicas:
            return Fleet(pool, self.router, self.autoscaler, self.failures)
        link = CacheLink(self.link_bytes_per_s, self.link_latency_s, cache_bytes(deployment, requests.prompt_tokens))
        prefill = Pool(allowed, table, self.prefill_replicas, *more)
        return Fleet(pool, self.router, self.autoscaler, self.failures, prefill, link)

    def report(
        self,
        requests: Requests,
        clients: Clients | None = None,
        slo: Slo | None = None,
        progress: Progress | None = None,
    ) -> "ServiceReport":
        """Simulate a workload on it."""
        clients = clients or Clients()
        refuse_too_long(memory_plan(self.deployment), requests)
        run = simulate_fleet(self.fleet(requests), requests, clients, progress)
        request_s = self.deployment.request_s(run.requests.prompt_tokens)
        seen = summarize(run, slo, steady=False, request_s=request_s, network_s=clients.network_s)
        return ServiceReport(self, run, seen, clients)


def start_seconds(deployment: Deployment, load_bytes_per_s: float) -> float:
    """Return how long a replica takes to start: each device loads its share of the weights, all at once."""
    return cold_start_s(memory_plan(deployment).weight_bytes, load_bytes_per_s)


@dataclass(frozen=True)
class ServiceReport:
    """What a service did: latencies as its users see them, hours, dollars, and how its replicas came and went."""

    service: Service
    run: FleetRun
    report: Report
    clients: Clients

    @property
    def latencies_s(self) -> dict[str, Floats]:
        """One value per request, as users see them: without streaming the first token comes with the last."""
        seen, thinking = dict(self.report.latencies_s), self.clients.thinking_tokens
        if not self.clients.streaming:
            seen = {"ttft": seen["e2el"], "e2el": seen["e2el"], "queue": seen["queue"]}
        if thinking is not None:
            kept = thinking[self.run.row[self.report.skipped :]]
            pace = np.nan_to_num(seen["tpot"]) if self.clients.streaming else 0.0
            seen["ttfv"] = np.asarray(seen["ttft"] + kept * pace)
        return seen

    @cached_property
    def metrics(self) -> dict[str, Statistic]:
        """Statistics by metric; those of "ttfv" are of the first token that is no thought.

        It comes at TTFT + thinking tokens x TPOT, at each request's mean pace. Without streaming no pace is seen.
        """
        found = dict(self.report.metrics)
        if not self.clients.streaming:
            found = {"ttft": found["e2el"], "e2el": found["e2el"], "queue": found["queue"]}
        if self.clients.thinking_tokens is not None:
            found["ttfv"] = statistic(self.latencies_s["ttfv"])
        return found

    @property
    def replica_hours(self) -> float:
        """Hours paid for, over all replicas: from each start to each stop, or to the end of the run."""
        return self.run.paid_s / 3600

    def usd(self, offer: Offer) -> float:
        """Dollars for the run at an offer: replica-hours x devices of a replica x dollars per device-hour."""
        return self.replica_hours * self.service.deployment.devices * offer.usd_per_device_hour

    @property
    def served_share(self) -> float:
        """Share of the requests that finished; the others were abandoned."""
        return len(self.run.row) / (len(self.run.row) + len(self.run.abandoned))

    @property
    def within_share(self) -> float:
        """Share of all requests, the abandoned ones too, that keep every bound of the SLO."""
        seen, bounds_s = self.latencies_s, self.report.slo.bounds_s
        kept = [~(seen[name] > bound_s) for name, bound_s in bounds_s.items() if name in seen]
        return float(np.logical_and.reduce(kept).mean()) * self.served_share if kept else self.served_share

    @property
    def busy_share(self) -> float:
        """Share of the paid time in which steps ran, over all stages."""
        return self.run.busy_s / (self.run.paid_s * self.run.stages) if self.run.paid_s else 0.0

    @cached_property
    def decode_queue_growth_per_s(self) -> float:
        """Requests per second by which the queue of a decode pool grew while the second half came; 0 where it empties.

        The slope of those that wait over time, as far as it is more than 1 % of all requests; a queue before the first
        token is `report.queue_growth_per_s`.
        """
        run, arrival_s = self.run, self.run.requests.arrival_s
        half_s, last_s = arrival_s[len(arrival_s) // 2], arrival_s[-1]
        steps = run.steps[(run.steps.start_s >= half_s) & (run.steps.start_s <= last_s)]
        steps = steps[steps.replica >= self.service.prefill_replicas]
        if not self.service.prefill_replicas or len(steps) < 2 or not steps.waiting.all():
            return 0.0
        slope = np.polyfit(steps.start_s - half_s, steps.waiting, 1)[0] * (run.replicas - self.service.prefill_replicas)
        return float(slope) if slope * (last_s - half_s) > max(0.01 * len(arrival_s), 10.0) else 0.0

    def describe(self) -> str:
        """Say in a few words what served."""
        service = self.service
        replicas = "1 replica" if self.run.replicas == 1 else f"{self.run.replicas} replicas"
        if service.prefill_replicas:
            decoding = self.run.replicas - service.prefill_replicas
            replicas = f"{service.prefill_replicas} prefill and {decoding} decode replicas"
        elif service.autoscaler:
            replicas = f"{service.autoscaler.min_replicas} to {self.run.replicas} replicas"
        return f"{replicas} of {service.deployment}, {service.deployment.engine.id}, {service.router.name}"

    @property
    def hit_rate(self) -> float:
        """Share of the prompts' tokens that the prefix cache held at the first admission."""
        return float(self.run.hit_tokens.sum() / self.run.requests.prompt_tokens.sum())

    @property
    def saved_prefill_s(self) -> float:
        """Seconds of prefill, over all replicas, that the prefix cache saved."""
        return saved_prefill_s(self.run, self.service.table)

    def up(self, times_s: Floats) -> Ints:
        """Count the replicas that are up at some times."""
        return _present(times_s, [(start, end) for _, start, end in self.run.intervals(UP, DRAINING, OFF, FAILED)])

    def paid(self, times_s: Floats) -> Ints:
        """Count the replicas that are paid for at some times."""
        return _present(times_s, [(start, end) for _, start, end in self.run.paid_intervals])

    def outstanding(self, times_s: Floats) -> Ints:
        """Count the requests in the service at some times; those that were abandoned are left out."""
        return _present(times_s, np.column_stack([self.run.requests.arrival_s, self.run.finished_s]))

    @property
    def changes(self) -> list[dict[str, Any]]:
        """Every change of a replica's state, in order, beyond the start and being up of those that are there at 0."""
        scaler = self.service.autoscaler
        there = scaler.min_replicas if scaler else self.run.replicas
        return [
            {"time_s": float(each.time_s), "replica": int(each.replica), "state": STATES[each.state]}
            for each in self.run.events[2 * there :]
        ]


def _present(times_s: Floats, spans_s: Sequence[tuple[float, float]] | Floats) -> Ints:
    """Count the half-open spans that hold each time."""
    starts, ends = np.sort(np.asarray(spans_s, np.float64).reshape(-1, 2), axis=0).T
    return np.searchsorted(starts, times_s, "right") - np.searchsorted(ends, times_s, "right")
