"""A service as one value (replicas, router, autoscaler, failures), and what it does and costs under a workload."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from simulator.arrays import Floats, Ints
from simulator.cost.packing import packed, replica_size
from simulator.cost.scenario import report_of, shared_table
from simulator.deployment.deployment import Deployment
from simulator.errors import InfercastError
from simulator.hardware.prices import Offer
from simulator.reports.batch_means import Statistic, mean_of, statistic
from simulator.reports.latency_breakdown import saved_prefill_s
from simulator.reports.report import Report
from simulator.reports.slo import Slo
from simulator.roofline.step_model import StepTable
from simulator.simulation.autoscaler import Autoscaler, Failure
from simulator.simulation.clients import Clients
from simulator.simulation.disaggregation import LINK_BYTES_PER_S, LINK_LATENCY_S, CacheLink, cache_bytes
from simulator.simulation.engine_loop import Progress
from simulator.simulation.fleet import Fleet, simulate_fleet
from simulator.simulation.fleet_run import FleetRun
from simulator.simulation.fleet_state import DRAINING, FAILED, OFF, STATES, UP
from simulator.simulation.replica import pool_of
from simulator.simulation.routers import Router
from simulator.units import counted
from simulator.workloads.workload import Requests


@dataclass(frozen=True)
class Service:
    """Replicas of a deployment behind a router.

    `prefill_replicas` of the `replicas` only prefill, and send the KV caches to the others over a link each
    (`link_bytes_per_s`, `link_latency_s` per transfer; 0: no disaggregation). With an autoscaler its `min_replicas` and
    `max_replicas` count instead of `replicas`; of two pools each may have its own, up to as many as it has.

    Raises InfercastError unless 0 <= `prefill_replicas` < `replicas`, and for an autoscaler of a pool with other
    replicas.
    """

    deployment: Deployment
    replicas: int = 1
    router: Router = field(default_factory=Router)
    autoscaler: Autoscaler | None = None
    failures: tuple[Failure, ...] = ()
    prefill_replicas: int = 0
    link_bytes_per_s: float = LINK_BYTES_PER_S
    link_latency_s: float = LINK_LATENCY_S
    prefill_autoscaler: Autoscaler | None = None

    def __post_init__(self) -> None:
        if self.prefill_replicas and not 0 < self.prefill_replicas < self.replicas:
            given = f"{self.prefill_replicas} of {self.replicas} replicas for prefill"
            raise InfercastError(given, "each pool needs one", "Give, say, 2 of 4")
        if self.prefill_replicas:
            pools = ((self.prefill_autoscaler, self.prefill_replicas), (self.autoscaler, self.decode_replicas))
            for scaler, most in pools:
                if scaler and scaler.max_replicas != most:
                    given = f"an autoscaler of up to {scaler.max_replicas} replicas for a pool of {most}"
                    raise InfercastError(given, "both say how many there are at most", "Give the same number")

    @property
    def decode_replicas(self) -> int:
        """Replicas, at most, that decode; all of them without disaggregation."""
        return self.replicas - self.prefill_replicas

    @cached_property
    def table(self) -> StepTable:
        """Step times of a replica, in seconds."""
        return shared_table(self.deployment)

    def fleet(self, requests: Requests) -> Fleet:
        """Return the pools, router and link as the event loop takes them; `requests` size blocks and KV caches.

        Raises DoesNotFitError where the model does not fit in memory, NotModelledError for scheduling rules that no
        policy here follows.
        """
        pool = pool_of(self.deployment, self.table, requests, self.decode_replicas)
        if not self.prefill_replicas:
            return Fleet(pool, self.router, self.autoscaler, self.failures, None, None, self.prefill_autoscaler)
        link = CacheLink(
            self.link_bytes_per_s, self.link_latency_s, cache_bytes(self.deployment, requests.prompt_tokens)
        )
        prefill = replace(pool, replicas=self.prefill_replicas)
        return Fleet(pool, self.router, self.autoscaler, self.failures, prefill, link, self.prefill_autoscaler)

    def is_constant(self, clients: Clients) -> bool:
        """Whether the same replicas serve all the time, and all requests: nothing starts or fails, nobody gives up."""
        return not (self.autoscaler or self.prefill_autoscaler or self.failures) and clients.timeout_s == math.inf

    def report(
        self,
        requests: Requests,
        clients: Clients | None = None,
        slo: Slo | None = None,
        progress: Progress | None = None,
    ) -> "ServiceReport":
        """Simulate requests on the service and return what its clients see.

        Without the warm-up and the drain of an open loop of one rate on the same replicas, as `Scenario.report` counts
        it. `progress` is called with (requests finished, all requests). Raises as `fleet` does, and WorkloadError where
        every request is longer than the model's context.
        """
        clients = clients or Clients()
        steady = requests.asked_per_s > 0 and self.is_constant(clients)
        run = simulate_fleet(self.fleet(requests), requests, clients, progress)
        seen = report_of(run, self.deployment, slo, steady=steady, network_s=clients.network_s)
        return ServiceReport(self, requests, run, seen, clients)


@dataclass(frozen=True)
class ServiceReport:
    """Result of simulating a service: latencies as clients see them, replica-hours, dollars, and replicas over time.

    `sent`: the requests that clients meant to send, those that were abandoned included. `draws`: the same load drawn
    anew; latencies, throughputs and shares of requests are means over all draws, hours and dollars are of this one.
    """

    service: Service
    sent: Requests
    run: FleetRun
    report: Report
    clients: Clients
    draws: tuple["ServiceReport", ...] = ()

    def beside(self, draws: Sequence["ServiceReport"]) -> "ServiceReport":
        """Return this report with others of the same load, drawn anew."""
        whole = replace(self.report, draws=tuple(each.report for each in draws))
        return replace(self, report=whole, draws=tuple(draws))

    def rerun(self, step_factor: float) -> "ServiceReport":
        """Return the report of the same requests with every step time multiplied by `step_factor`.

        The same requests are left out as warm-up, so that only the step times differ.
        """
        slower = replace(self.service, deployment=replace(self.service.deployment, step_factor=step_factor))
        after = slower.report(self.sent, self.clients, self.report.slo)
        after = replace(after, report=replace(after.report, skipped=self.report.skipped))
        return after.beside([each.rerun(step_factor) for each in self.draws])

    @property
    def latencies_s(self) -> dict[str, Floats]:
        """Latencies in seconds by metric, each of shape (finished requests,), as clients see them.

        "ttfv" is the time to the first token that is not a thinking token. Without streaming the first token comes with
        the last, so TTFT is E2EL, and there is no TPOT.
        """
        seen, thinking = dict(self.report.latencies_s), self.clients.thinking_tokens
        if not self.clients.streaming:
            seen = {"ttft": seen["e2el"], "e2el": seen["e2el"], "queue": seen["queue"]}
        if thinking is not None:
            unseen_tokens = thinking[self.run.row[self.report.skipped :]]
            tpot_s = np.nan_to_num(seen["tpot"]) if self.clients.streaming else 0.0
            seen["ttfv"] = np.asarray(seen["ttft"] + unseen_tokens * tpot_s)
        return seen

    @cached_property
    def metrics(self) -> dict[str, Statistic]:
        """Statistics of these latencies by metric, in seconds; and of ITL, where clients stream.

        "ttfv" of a request = TTFT + thinking tokens x its TPOT; without streaming it is E2EL.
        """
        found = dict(self.report.metrics)
        if not self.clients.streaming:
            found = {"ttft": found["e2el"], "e2el": found["e2el"], "queue": found["queue"]}
        if self.clients.thinking_tokens is not None:
            own = statistic(self.latencies_s["ttfv"], partial(getattr, self.report, "length"))
            found["ttfv"] = mean_of([own, *(each.metrics["ttfv"] for each in self.draws)]) if self.draws else own
        return found

    @property
    def replica_hours(self) -> float:
        """Paid hours, summed over replicas: each from its start until it is off, or until the run ends."""
        return self.run.paid_s / 3600

    def usd(self, offers: tuple[Offer, ...]) -> float:
        """Return US dollars for the run: the integral over time of what the instances cost that hold the paid replicas.

        At every time the cheapest instances are paid (`packed`), by the second. Raises InfercastError where no offer
        has the devices of a replica.
        """
        deployment = self.service.deployment
        size = replica_size(deployment.hardware, deployment.devices)
        times_s = np.unique([time_s for _, start_s, end_s in self.run.paid_intervals for time_s in (start_s, end_s)])
        counts = self.paid(times_s[:-1])
        usd_per_hour = {count: packed(size, count, offers).usd_per_hour for count in set(counts.tolist()) if count}
        prices = [usd_per_hour.get(count, 0.0) for count in counts.tolist()]
        return float(np.dot(np.diff(times_s), prices)) / 3600

    @property
    def served_share(self) -> float:
        """Share of the requests that finished, 0 to 1; the others were abandoned or rejected."""
        return len(self.run.row) / (len(self.run.row) + len(self.run.abandoned) + len(self.run.rejected))

    @property
    def within_share(self) -> float:
        """Share of all requests, abandoned and rejected ones included, that keep every bound of the SLO, 0 to 1."""
        seen, bounds_s = self.latencies_s, self.report.slo.bounds_s
        kept = [~(seen[name] > bound_s) for name, bound_s in bounds_s.items() if name in seen]
        own = float(np.logical_and.reduce(kept).mean()) * self.served_share if kept else self.served_share
        return float(np.mean([own, *(each.within_share for each in self.draws)]))

    @property
    def meets_slo(self) -> bool:
        """Whether the demanded share of all requests keeps every bound and nothing queues for ever."""
        return self.within_share >= self.report.slo.share and self.report.overload is None

    @property
    def busy_share(self) -> float:
        """Share of the paid time in which steps ran, averaged over pipeline stages, 0 to 1."""
        return self.run.busy_s / (self.run.paid_s * self.run.stages) if self.run.paid_s else 0.0

    def describe(self) -> str:
        """Describe the service in one line: replicas, deployment, engine and router."""
        service = self.service
        replicas = counted(self.run.replicas, "replica")
        if service.prefill_replicas:
            prefilling = _range(service.prefill_autoscaler, service.prefill_replicas)
            replicas = f"{prefilling} prefill and {_range(service.autoscaler, service.decode_replicas)} decode replicas"
        elif service.autoscaler:
            replicas = f"{_range(service.autoscaler, self.run.replicas)} replicas"
        return f"{replicas} of {service.deployment}, {service.deployment.engine.id}, {service.router.describe()}"

    @property
    def hit_rate(self) -> float:
        """Share of the prompt tokens that were in the prefix cache when their request was first admitted, 0 to 1."""
        return float(self.run.hit_tokens.sum() / self.run.requests.prompt_tokens.sum())

    @property
    def saved_prefill_s(self) -> float:
        """Prefill seconds that the prefix cache saved, summed over replicas."""
        return saved_prefill_s(self.run, self.service.table)

    def up(self, times_s: Floats) -> Ints:
        """Return how many replicas are up, not draining, at each time, int64, of the shape of `times_s` (seconds)."""
        return _open_at(times_s, [(start, end) for _, start, end in self.run.intervals(UP, DRAINING, OFF, FAILED)])

    def paid(self, times_s: Floats) -> Ints:
        """Return how many replicas are paid for at each time, int64, of the shape of `times_s` (seconds)."""
        return _open_at(times_s, [(start, end) for _, start, end in self.run.paid_intervals])

    def outstanding(self, times_s: Floats) -> Ints:
        """Return how many requests are in the service at each time, int64, of the shape of `times_s` (seconds).

        Abandoned requests are not counted.
        """
        return _open_at(times_s, np.column_stack([self.run.requests.arrival_s, self.run.finished_s]))

    @property
    def changes(self) -> list[dict[str, Any]]:
        """Changes of the replicas' states in order of time (seconds), without the start of those there at time 0."""
        service, initial = self.service, self.run.replicas
        for scaler in (service.prefill_autoscaler, service.autoscaler):
            initial -= scaler.max_replicas - scaler.min_replicas if scaler else 0
        return [
            {"time_s": float(each.time_s), "replica": int(each.replica), "state": STATES[each.state]}
            for each in self.run.events[2 * initial :]
        ]


def _range(scaler: Autoscaler | None, most: int) -> str:
    return f"{scaler.min_replicas} to {most}" if scaler else str(most)


def _open_at(times_s: Floats, spans_s: Sequence[tuple[float, float]] | Floats) -> Ints:
    """Return how many spans [start, end) contain each time; `spans_s` has shape (spans, 2).

    >>> _open_at(np.array([0.0, 1.0, 2.0]), [(0.0, 2.0), (1.0, 3.0)])
    array([1, 2, 1])
    """
    starts, ends = np.sort(np.asarray(spans_s, np.float64).reshape(-1, 2), axis=0).T
    return np.searchsorted(starts, times_s, "right") - np.searchsorted(ends, times_s, "right")
