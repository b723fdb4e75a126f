"""Replicas under a load as a value: deployment, workload, SLO and offers; and their simulation."""

from collections import deque
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from simulator.arrays import Floats
from simulator.cost.packing import Packing, ReplicaSize, replica_size
from simulator.cost.spot import Interruptions, is_spot, rented
from simulator.deployment.deployment import Deployment
from simulator.deployment.memory import CACHE_ERROR, MemoryPlan, memory_plan
from simulator.deployment.memory_advice import refuse_misfit
from simulator.errors import InfercastError
from simulator.hardware.prices import Offer
from simulator.reports.intervals import step_quantile
from simulator.reports.report import Report, summarize
from simulator.reports.slo import Slo
from simulator.roofline.step_model import StepTable
from simulator.simulation.autoscaler import LOAD_BYTES_PER_S, cold_start_s
from simulator.simulation.engine_loop import Progress, Run
from simulator.simulation.engine_workload import engine_workload
from simulator.simulation.fleet import Fleet, simulate_fleet
from simulator.simulation.fleet_run import FleetRun
from simulator.simulation.replica import pool_of, simulate_replica
from simulator.simulation.routers import Router
from simulator.workloads.arrivals import OpenLoop, RecordedArrivals, Released
from simulator.workloads.workload import Requests, Workload

ENOUGH_REQUESTS, MOST_DRAWS = 1_000, 5  # a load of fewer requests is drawn up to 5 times: one small draw is noisy
NEARLY_FULL = 0.8  # of the KV cache: beyond it, a smaller one would make requests wait
_RECENT_TABLES: deque[tuple[Deployment, StepTable]] = deque(maxlen=64)


def simulate(scenario: "Scenario", progress: Progress | None = None) -> Report:
    """Simulate a scenario's workload, as `infercast simulate` does.

    `progress` is called with (requests finished, all requests).

    Requests too long for the context, the KV cache or, without chunked prefill, a step are rejected as engines do, and
    counted. Raises DoesNotFitError where the model does not fit in memory, WorkloadError where all are rejected.

    >>> from simulator.deployment.deployment import deploy
    >>> from simulator.workloads.arrivals import OpenLoop
    >>> from simulator.workloads.lengths import Fixed, Independent
    >>> load = Workload(OpenLoop(rate_per_s=2.0), Independent(Fixed(512), Fixed(128)))
    >>> report = simulate(Scenario(deploy("llama-3.1-8b", "h100-sxm"), load))
    >>> sorted(report.metrics), report.overloaded
    (['e2el', 'itl', 'queue', 'tpot', 'ttft'], False)
    """
    if not isinstance(scenario, Scenario):
        given = f"simulate({type(scenario).__name__})"
        raise InfercastError(given, "a Scenario is a deployment and its load", "Give Scenario(deployment, workload)")
    return scenario.simulated(progress)


def draws_for(requests: int) -> int:
    """Return how many times a random load of so many requests is drawn, so that together they are about enough.

    >>> [draws_for(each) for each in (20, 300, 1_000)]
    [5, 3, 1]
    """
    return max(1, min(MOST_DRAWS, round(ENOUGH_REQUESTS / requests)))


def draws_of(workload: Workload, deployment: Deployment) -> list[Workload]:
    """Return a workload with each seed that it is simulated with: one where another seed makes the same requests."""
    draws = draws_for(workload.request_count)
    if draws > 1 and not engine_workload(workload, deployment).is_random:
        draws = 1
    return [replace(workload, seed=workload.seed + each) for each in range(draws)]


def shared_table(deployment: Deployment) -> StepTable:
    """Return the step times of a deployment in seconds, those of an equal one where it was looked at lately."""
    stepping = replace(deployment, cache_shift=0.0) if deployment.cache_shift else deployment  # makes no other steps
    for known, table in reversed(list(_RECENT_TABLES)):  # a copy: other threads add to it
        if known == stepping:
            return table
    _RECENT_TABLES.append((stepping, stepping.step_table()))
    return _RECENT_TABLES[-1][1]


def report_of(
    run: Run | FleetRun,
    deployment: Deployment,
    slo: Slo | None = None,
    *,
    steady: bool,
    network_s: float = 0.0,
    early_s: Floats | float = 0.0,
) -> Report:
    """Return the numbers of a run of a deployment, with what its requests take outside of the steps.

    `steady` and `network_s` as `summarize` takes them; `early_s`: by which each request came before it was drawn. Those
    of a closed loop that come together are taken in together, and a first token waits for all messages of its step.
    Where prompts are gathered (`Engine.gathered_steps`), one waits for others during some decode steps, each as long as
    the run's mean TPOT.
    """
    request_s = deployment.request_s(run.requests.prompt_tokens) + early_s
    request_s = request_s + _intake_s(run, deployment) + _messages_s(run, deployment)
    report = summarize(run, slo, steady=steady, request_s=request_s, network_s=network_s)
    if not (steps := 0 if deployment.light else deployment.engine.gathered_steps):
        return report
    return replace(report, request_s=request_s + steps * report.metrics["tpot"].values["mean"])


def _intake_s(run: Run | FleetRun, deployment: Deployment) -> Floats | float:
    """Return the seconds that requests of a closed loop wait for others that the API server takes in with them. Rule N.

    Those that one step's ends let clients send reach their replica at the same moment, to the bit. Shape (requests,).
    """
    requests, engine = run.requests, deployment.engine
    if not requests.concurrency or deployment.light:
        return 0.0
    moments = np.stack([requests.arrival_s, _replicas(run)])
    _, which, together = np.unique(moments, axis=1, return_inverse=True, return_counts=True)
    others = -(-together // engine.api_server_count) - 1
    return np.asarray(float(deployment.overheads.intake_s) * others[which.ravel()], np.float64)


def _messages_s(run: Run | FleetRun, deployment: Deployment) -> Floats:
    """Return the seconds that first tokens wait for the messages of others in their step. Rule E. Shape (requests,)."""
    replicas, steps, found_s = _replicas(run), run.steps, np.zeros(len(run.requests))
    if not deployment.message_s:
        return found_s
    of_steps = steps.replica if isinstance(run, FleetRun) else np.zeros(len(steps))
    ends_s, sequences = steps.start_s + steps.seconds, steps.decodes + steps.prompts
    for replica in np.unique(replicas):
        own, mine = np.flatnonzero(of_steps == replica), replicas == replica
        own = own[np.argsort(ends_s[own], kind="stable")]
        ended = np.searchsorted(ends_s[own], run.first_token_s[mine], "right")
        last = own[np.maximum(ended - 1, 0)]  # none: its first token was made elsewhere
        found_s[mine] = deployment.message_s * sequences[last]
    return found_s


def _replicas(run: Run | FleetRun) -> Floats:
    """Return the replica of each request, shape (requests,)."""
    return np.asarray(run.replica if isinstance(run, FleetRun) else np.zeros(len(run.requests)), np.float64)


@dataclass(frozen=True)
class Scenario:
    """A deployment, the workload sent to it, the SLO and the offers of its device that count.

    `workload` is what one of `replicas` identical replicas is sent; only one is simulated, and throughputs are those of
    all. With a `router` all are simulated, and `workload` is what they are sent together. `whole_run`: count an open
    loop as load generators do, from the first request to the last token; without it warm-up and drain are left out.
    `assume_fits`: requests longer than the model's context are not rejected, because a measurement shows that they run.
    `interruptions`: of spot offers.

    >>> from simulator.deployment.deployment import deploy
    >>> from simulator.workloads.arrivals import ClosedLoop
    >>> from simulator.workloads.lengths import Fixed, Independent
    >>> load = Workload(ClosedLoop(4), Independent(Fixed(512), Fixed(32)), request_count=8)
    >>> Scenario(deploy("llama-3.1-8b", "h100-sxm"), load).simulated().completed
    8
    """

    deployment: Deployment
    workload: Workload
    slo: Slo = Slo()
    offers: tuple[Offer, ...] = ()
    replicas: int = 1
    whole_run: bool = False
    assume_fits: bool = False
    interruptions: Interruptions = Interruptions()
    router: Router | None = None

    @property
    def shares(self) -> int:
        """Equal parts of the whole load, of which `workload` is one."""
        return 1 if self.router else self.replicas

    def describe(self) -> str:
        """Describe who serves `workload`: deployment and engine; of how many replicas; with a router, behind which."""
        served = f"{self.deployment}, {self.deployment.engine.id}"
        if self.router:
            return f"{self.replicas} replicas of {served}, {self.router.describe()}"
        return served if self.replicas == 1 else f"one of {self.replicas} alike replicas of {served}"

    @cached_property
    def memory(self) -> MemoryPlan:
        """Memory plan of a replica. Raises DoesNotFitError where weights and KV cache do not fit."""
        plan = memory_plan(self.deployment)
        refuse_misfit(plan)
        return plan

    def __getstate__(self) -> dict[str, object]:
        """Return the fields alone: what was computed from them is larger, and is computed anew where it is needed."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def replica_size(self) -> ReplicaSize:
        """Devices of a replica, and whether it may span instances."""
        return replica_size(self.deployment.hardware, self.deployment.devices)

    def packing(self, replicas: int) -> Packing:
        """Return the cheapest instances that hold so many replicas; of spot offers as many as keep them up.

        Raises InfercastError as `rented` does.
        """
        start_s = self.start_s if is_spot(self.offers) else 0.0
        return rented(self.replica_size, replicas, self.offers, self.interruptions, start_s)

    @property
    def start_s(self) -> float:
        """Cold start of a replica in seconds: a guess (`autoscaler.LOAD_BYTES_PER_S`, `START_S`)."""
        return cold_start_s(self.memory.weight_bytes, LOAD_BYTES_PER_S)

    @cached_property
    def table(self) -> StepTable:
        """Step times in seconds."""
        return shared_table(self.deployment)

    def simulated(self, progress: Progress | None = None) -> Report:
        """Simulate the scenario's workload; its metrics are means over several seeds where it has few requests.

        Seeds: `ENOUGH_REQUESTS` / requests, from 1 to `MOST_DRAWS`; 1 where another seed makes the same requests (a
        trace, a closed loop of equal requests). Raises as `simulate` does.
        """
        draws = [self.report(each, progress) for each in draws_of(self.workload, self.deployment)]
        return replace(draws[0], draws=tuple(draws[1:]))

    def report(self, workload: Workload, progress: Progress | None = None) -> Report:
        """Simulate a workload once, without the warm-up of an open loop unless `whole_run` is set.

        The warm-up is found by MSER-5 (White, Simulation, 1997). A replayed trace has no steady state, and benchmarks
        count all requests of a closed loop, so neither loses its warm-up. Raises as `simulate` does.
        """
        is_drawn_at_a_rate = not (workload.arrivals.concurrency or isinstance(workload.arrivals, RecordedArrivals))
        steady = is_drawn_at_a_rate and not self.whole_run
        return self._simulate(engine_workload(workload, self.deployment).requests(), progress, steady=steady)

    def rerun(self, report: Report, step_factor: float) -> Report:
        """Return the report of the same requests with every step time multiplied by `step_factor`.

        The same requests are left out as warm-up, so that only the step times differ.
        """
        return self.with_steps(step_factor)._rerun(report)

    def cache_decides(self, report: Report) -> bool:
        """Tell whether an error of the memory plan would change a load: its KV cache is nearly full at some time.

        Or requests wait while another of the longest would not fit. Not so where the user states the cache, where
        whole contexts are reserved, or where all requests come at once: such loads always fill the cache, and what was
        measured of them has that in its errors.
        """
        at_once = report.run.requests.concurrency >= len(report.run.requests)
        if at_once or self.deployment.settings.num_blocks is not None or self.deployment.engine.is_reserved:
            return False
        steps, (_, peak) = report.run.steps, report.cache_use
        one_more = self.memory.blocks(int(report.run.requests.max_total_tokens)) / self.memory.num_blocks
        return peak > NEARLY_FULL or (bool(steps.waiting.any()) and peak + one_more > 1.0)

    def rerun_with_cache(self, report: Report, share: float) -> Report:
        """Return the report of the same requests in the scenario `with_cache`; the same are left out as warm-up."""
        return self.with_cache(share, int(report.run.requests.max_total_tokens))._rerun(report)

    def with_cache(self, share: float, longest_tokens: int) -> "Scenario":
        """Return the same scenario with a KV cache that is larger by a share of the device's memory.

        It stays large enough for the longest request, for a sequence of a set `max_model_len`, without which an engine
        does not start, and for one block.
        """
        longest = max(longest_tokens, self.deployment.settings.max_model_len or 0)
        layout = self.deployment.layout
        needed = (self.memory.blocks(longest) + 1) * layout.pp * layout.dp  # a rank holds its sequences whole
        least = min(0.0, (needed - self.memory.num_blocks) * self.memory.block_bytes / self.memory.total_bytes)
        return replace(self, deployment=replace(self.deployment, cache_shift=max(share, least)))

    def _rerun(self, report: Report) -> Report:
        def rerun_one(before: Report) -> Report:
            after = self._simulate(before.run.requests, steady=before.steady)
            return replace(after, skipped=before.skipped, is_limited=before.is_limited, of_asked=before.of_asked)

        return replace(rerun_one(report), draws=tuple(map(rerun_one, report.draws)))

    @property
    def with_least_cache(self) -> "Scenario | None":
        """The scenario with a KV cache smaller by the error of its plan, where it fits barely; None where it has room.

        Barely: the error would take half of the cache or all of it (`MemoryPlan.fits_barely`).
        """
        if not self.memory.fits_barely:
            return None
        return self.with_cache(-CACHE_ERROR, int(self.workload.requests().max_total_tokens))

    def with_steps(self, factor: float) -> "Scenario":
        """Return the same scenario with every step time multiplied by `factor`; itself where they are already."""
        if factor == self.deployment.step_factor:
            return self
        return replace(self, deployment=replace(self.deployment, step_factor=factor))

    def at_quantile(self, quantile: float) -> "Scenario":
        """Return the same scenario with step times that a share `quantile` of measurements lies below; 0.5: itself."""
        return self.with_steps(step_quantile(self.deployment, quantile))

    def _simulate(self, requests: Requests, progress: Progress | None = None, *, steady: bool) -> Report:
        pool = pool_of(self.deployment, self.table, requests, self.replicas, assume_fits=self.assume_fits)
        if self.router is None:
            run = simulate_replica(pool, requests, progress)
        else:
            run = simulate_fleet(Fleet(pool, self.router), requests, progress=progress)
        report = report_of(run, self.deployment, self.slo, steady=steady, early_s=self._early_s(run))
        return replace(report, replicas=self.shares)

    def _early_s(self, run: Run | FleetRun) -> Floats:
        """Return the seconds by which requests came before they reach the engine, in their order, float64.

        Within the step under way, where a balancer shares them out (OpenLoop), or while a batcher held them (Released).
        No step sees them sooner; so only their latencies grow, by what a breakdown has beside steps.
        """
        arrivals, at_s = self.workload.arrivals, run.requests.arrival_s
        if isinstance(arrivals, Released) and not run.requests.concurrency:
            return arrivals.waited_s(at_s)
        if run.requests.concurrency or not isinstance(arrivals, OpenLoop) or arrivals.balanced_over == 1:
            return np.zeros(len(at_s))
        order = np.argsort(run.steps.start_s, kind="stable")
        last = order[np.maximum(0, np.searchsorted(run.steps.start_s[order], at_s, "right") - 1)]
        since_s = at_s - run.steps.start_s[last]
        under_way = (since_s >= 0) & (since_s < run.steps.seconds[last])
        return arrivals.early_share * np.where(under_way, since_s, 0.0)
