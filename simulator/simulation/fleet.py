"""Fleets: replicas of one deployment, or of a prefill and a decode pool, behind a router; and their simulation."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from simulator.arrays import Bools, Ints
from simulator.errors import InfercastError, NotModelledError, Setting, WorkloadError
from simulator.roofline.step_model import StepTable
from simulator.scheduler.prefix_cache import warm_cache
from simulator.scheduler.state import NOBODY, SchedulerLimits, Table, engine_state, new_engines
from simulator.simulation.autoscaler import METRICS, Autoscaler, Failure
from simulator.simulation.clients import Clients
from simulator.simulation.disaggregation import CacheLink
from simulator.simulation.engine_loop import BURST, OUTCOMES, Progress, request_table, stuck
from simulator.simulation.fleet_loop import FLEET_STEP, burst
from simulator.simulation.fleet_run import FleetRun
from simulator.simulation.fleet_state import (
    CALL,
    ENGINE_STEP,
    EVENT,
    FAILURE,
    LOOP,
    OFF,
    QUEUE,
    REPLICA,
    RULES,
    SCALER,
    STARTING,
    UP,
    FleetRules,
    FleetState,
    table,
)
from simulator.simulation.rejection import Reasons, Rejected, rejections
from simulator.simulation.routers import ROUTERS, Router
from simulator.simulation.run_size import refuse_oversized
from simulator.simulation.scheduler_limits import of_stage
from simulator.workloads.workload import Requests

EVENTS = 4096  # rows of the table of events, copied after each burst


@dataclass(frozen=True)
class Pool:
    """Identical replicas: what each scheduler may do, how long its steps take, and how many replicas there are.

    With `stages` > 1 each replica is a pipeline of so many stages that keeps one batch per stage in flight.
    `acceptance` are the acceptance probabilities of draft tokens, as in `simulate`. Raises InfercastError for counts
    below 1.
    """

    limits: SchedulerLimits
    table: StepTable
    replicas: int = 1
    stages: int = 1
    acceptance: tuple[float, ...] = ()  # of draft tokens, see `simulate`
    slowest_stage: float = 1.0  # seconds of the stage with most layers, over the mean of all

    def __post_init__(self) -> None:
        for name in ("replicas", "stages"):
            if getattr(self, name) < 1:
                raise InfercastError(Setting(name, getattr(self, name)), "it must be 1 or more", "Give, say, 2")

    @property
    def share(self) -> SchedulerLimits:
        """Limits of each engine of a pipeline: its share of the replica's KV-cache blocks and sequences. Rule V."""
        return of_stage(self.limits, self.stages)


@dataclass(frozen=True)
class Fleet:
    """Replicas behind a router, with autoscaling and failures; an optional `prefill` pool is joined by `link`.

    `autoscaler` scales `pool`, `prefill_autoscaler` the prefill pool; a pool with one has up to its `max_replicas`.

    Raises InfercastError for a prefill pool without a link (or the reverse), for an autoscaler of a prefill pool that
    is not there and for a failure of an unknown replica, NotModelledError for pools with different numbers of pipeline
    stages.
    """

    pool: Pool
    router: Router = field(default_factory=Router)
    autoscaler: Autoscaler | None = None
    failures: tuple[Failure, ...] = ()
    prefill: Pool | None = None
    link: CacheLink | None = None
    prefill_autoscaler: Autoscaler | None = None

    def __post_init__(self) -> None:
        if (self.prefill is None) != (self.link is None):
            given = "a prefill pool without a link, or a link without a prefill pool"
            raise InfercastError(given, "the link carries the KV cache of the pool", "Give both or neither")
        if self.prefill is None and self.prefill_autoscaler is not None:
            given = "an autoscaler of a prefill pool without such a pool"
            raise InfercastError(given, "it has nothing to scale", "Give the pool too, or scale the other replicas")
        if self.prefill is not None and self.prefill.stages != self.pool.stages:
            given = f"pools of {self.prefill.stages} and {self.pool.stages} stages"
            raise NotModelledError(given, "both pools must have the same number", "Use one pp for both")
        for each in self.failures:
            if each.replica >= self.replicas:
                given = f"a failure of replica {each.replica}"
                raise InfercastError(given, f"there are {self.replicas}, counted from 0", "Name one of them")

    def serving(self, rows: Ints) -> "Fleet":
        """Return the fleet for some rows of a workload, shape (kept,), int64: the link has only their KV caches."""
        if self.link is None or self.link.bytes_of is None:
            return self
        return replace(self, link=replace(self.link, bytes_of=self.link.bytes_of[rows]))

    @property
    def replicas(self) -> int:
        """Largest number of replicas; prefill replicas are numbered first."""
        return self.prefill_replicas + _most(self.pool, self.autoscaler)

    @property
    def prefill_replicas(self) -> int:
        """Largest number of replicas that only prefill; 0 without a prefill pool."""
        return _most(self.prefill, self.prefill_autoscaler) if self.prefill else 0

    @property
    def scalers(self) -> tuple[Autoscaler | None, Autoscaler | None]:
        """Autoscalers by pool as the event loop numbers them: of the pool that requests come to, and of decode."""
        return (self.prefill_autoscaler, self.autoscaler) if self.prefill else (self.autoscaler, None)

    @property
    def up_at_start(self) -> list[int]:
        """Replicas that are up at 0 s, by number."""
        first, last = self.scalers
        split = self.prefill_replicas or self.replicas
        up = range(first.min_replicas if first else split)
        return [*up, *range(split, split + last.min_replicas if last else self.replicas)]


def _most(pool: Pool, scaler: Autoscaler | None) -> int:
    return scaler.max_replicas if scaler else pool.replicas


def simulate_fleet(
    fleet: Fleet, requests: Requests, clients: Clients | None = None, progress: Progress | None = None
) -> FleetRun:
    """Simulate all requests on a fleet, until each is rejected, finished or abandoned.

    With one replica and clients without timeouts the result equals `simulate` to the last bit. `progress` is called
    with (requests done, all requests) after each burst of steps.

    Raises WorkloadError where all requests are rejected and where some can never be served (no replica comes up
    again), NotModelledError for prefilled requests together with a prefill pool, InfercastError for what exceeds the
    memory.
    """
    clients = clients or Clients()
    clients.check(requests)
    if fleet.prefill is not None and requests.prefilled.any():
        because = "the prefill pool computes their KV cache"
        raise NotModelledError("prefilled requests", because, "Leave the prefill pool out")
    rejected = Rejected.of(_rejections(fleet, requests, clients), len(requests))
    if len(rejected):
        rows = rejected.accepted(len(requests))
        run = simulate_fleet(fleet.serving(rows), requests.only(rows), clients.of(rows), progress)
        return replace(run, row=rows[run.row], abandoned=rows[run.abandoned], rejected=rejected)
    refuse_oversized(fleet.pool.share, requests, fleet.replicas * fleet.pool.stages)
    f = _fleet_state(fleet, requests, clients)
    loop, steps, events = f.loop, [], []
    tables = ((fleet.prefill or fleet.pool).table, fleet.pool.table)
    while loop.left > 0:
        rows = table(FLEET_STEP, max(BURST, 2 * len(f.engine_steps)))
        count = burst(f, tables, rows)
        steps.append(rows if count == len(rows) else rows[:count].copy())
        events.append(f.events[: loop.events].copy())
        loop.events = 0
        if progress is not None:
            progress(len(requests) - int(loop.left), len(requests))
        if loop.stuck and not fleet.failures and not any(fleet.scalers):
            raise stuck(int(loop.left), requests)
        if loop.stuck:
            because = "no replica comes up again to serve them"
            remedy = "Repair what fails, or let an autoscaler start others"
            raise WorkloadError(f"{loop.left} requests of {len(requests)}", because, remedy)
    done = np.concatenate(steps)
    if loop.lost:
        done = np.delete(done, f.lost[: loop.lost])
    return _run(fleet, requests, f, (done.view(np.recarray), np.concatenate(events).view(np.recarray)))


def _rejections(fleet: Fleet, requests: Requests, clients: Clients) -> Reasons:
    """Return which requests an engine of either pool rejects, for each reason, and the turns that would follow them."""
    found = rejections(fleet.pool.share, requests)
    if fleet.prefill is not None:
        prompts = replace(requests, output_tokens=np.ones_like(requests.output_tokens))
        for because, refused in rejections(fleet.prefill.share, prompts).items():
            found[f"{because} of a prefill replica"] = refused
    if found and clients.follows is not None:
        ended = np.logical_or.reduce(list(found.values()))
        for turn in np.flatnonzero(clients.follows >= 0):
            ended[turn] |= ended[clients.follows[turn]]
        found["a session that a rejected turn ended"] = ended
    return found


def _fleet_state(fleet: Fleet, requests: Requests, clients: Clients) -> FleetState:
    """Return the state of the fleet before the first arrival."""
    count, prefill = len(requests), fleet.prefill
    known = np.arange(count) < (requests.concurrency or count)
    if clients.follows is not None:
        known &= clients.follows < 0
    rows, calls = _table(fleet, requests, known), _calls(fleet, requests, clients)
    calls.worker[known] = fleet.router.workers_of(int(known.sum()), requests.seed)
    engine_count = fleet.replicas * fleet.pool.stages
    kinds = [(fleet.pool.share, fleet.pool.acceptance)] * engine_count
    if prefill is not None:
        first = fleet.prefill_replicas * prefill.stages
        kinds[:first] = [(prefill.share, prefill.acceptance)] * first
    f = FleetState(
        rules=_rules(fleet, requests, clients),
        loop=table(LOOP, 1)[0],
        scalers=_scalers(fleet),
        engines=new_engines(kinds, rows, requests.prefixes.ids),
        engine_steps=table(ENGINE_STEP, engine_count),
        ends_s=np.full(engine_count, np.inf),
        stages_free_s=np.zeros((fleet.replicas, fleet.pool.stages)),
        replicas=table(REPLICA, fleet.replicas),
        connections=fleet.router.counters(fleet.replicas),
        turns=fleet.router.counters(fleet.replicas),
        queues=table(QUEUE, 2 + engine_count),
        calls=calls,
        order=np.flatnonzero(known),
        heap=np.zeros(count, np.int64),
        heap_s=np.zeros(count),
        timers=np.zeros(count, np.int64),
        failures=_failures(fleet.failures),
        lost=np.zeros(len(fleet.failures) * fleet.pool.stages, np.int64),
        events=table(EVENT, EVENTS + 4 * fleet.replicas + 2 * len(fleet.failures)),
    )
    _open(f, fleet)
    for engine in range(engine_count):
        if kinds[engine][0].prefix_block_tokens and f.replicas.state[engine // fleet.pool.stages] == UP:
            warm_cache(engine_state(f.engines, engine), requests.prefixes.ids[requests.prefixes.warm])
    return f


def _table(fleet: Fleet, requests: Requests, known: Bools) -> Table:
    """Return the scheduler's table of requests; arrival times that are not known yet are infinite."""
    rows = request_table(requests, fleet.pool.limits.prefix_block_tokens)
    rows.arrival_s[~known] = np.inf
    if fleet.prefill:
        rows.output_tokens = 1
    return rows


def _open(f: FleetState, fleet: Fleet) -> None:
    """Set the counters and clocks to their first values, and switch on the replicas that are up at 0 s."""
    loop = f.loop
    loop.left, loop.ready_s = len(f.calls), np.inf
    loop.released = min(f.rules.concurrency, len(f.calls))
    f.queues[0].last = (f.rules.prefill_replicas or f.rules.replicas) - 1
    f.queues[1].last = f.rules.replicas - 1
    up = fleet.up_at_start
    f.replicas.state = np.where(np.isin(np.arange(fleet.replicas), up), UP, OFF)
    for index, replica in enumerate(up):
        f.events[2 * index] = (0.0, replica, STARTING)
        f.events[2 * index + 1] = (0.0, replica, UP)
    loop.events = 2 * len(up)


def _scalers(fleet: Fleet) -> Table:
    """Return the autoscalers of both pools, with a metric of 0 for a pool without one."""
    rows = table(SCALER, 2)
    for row, scaler in zip(rows, fleet.scalers, strict=True):
        if scaler:
            row.metric, row.target, row.check = METRICS[scaler.metric], scaler.target, 1
            row.min_replicas, row.interval_s = scaler.min_replicas, scaler.interval_s
            row.down_delay_s, row.cold_start_s = scaler.down_delay_s, scaler.cold_start_s
    return rows


def _rules(fleet: Fleet, requests: Requests, clients: Clients) -> Any:
    """Return the settings of fleet, workload and clients as one numba record."""
    packed = table(RULES, 1)
    packed[0] = FleetRules(
        engines_per_replica=fleet.pool.stages,
        slowest_stage=fleet.pool.slowest_stage,
        prefill_replicas=fleet.prefill_replicas,
        autoscaled=int(any(fleet.scalers)),
        replicas=fleet.replicas,
        concurrency=requests.concurrency,
        router=ROUTERS[fleet.router.name],
        affinity_slack=fleet.router.affinity_slack,
        max_ongoing_requests=fleet.router.max_ongoing_requests,
        answered_s=float(clients.network_s) + fleet.pool.limits.turnaround_s,
        timeout_s=float(clients.timeout_s),
        max_retries=clients.max_retries,
        retry_delay_s=float(clients.retry_delay_s),
    )
    return packed[0]


def _calls(fleet: Fleet, requests: Requests, clients: Clients) -> Table:
    """Return the table of what routers and clients note about each request."""
    calls = table(CALL, len(requests))
    calls.queue = calls.engine = NOBODY
    calls.follower, calls.think_s = clients.followers(len(requests)), clients.thinks_s(len(requests))
    calls.output_tokens = requests.output_tokens
    if fleet.link is not None:
        calls.transfer_s = fleet.link.seconds(len(requests))
    return calls


def _failures(failures: tuple[Failure, ...]) -> Table:
    """Return the failures as a table in order of time."""
    rows = table(FAILURE, len(failures))
    for index, each in enumerate(sorted(failures)):
        rows[index] = (each.at_s, each.replica, each.repair_s)
    return rows


def _run(fleet: Fleet, requests: Requests, f: FleetState, found: tuple[Table, Table]) -> FleetRun:
    """Return the run: the finished requests in order of arrival, and all steps and events."""
    rows, calls = f.engines.requests, f.calls
    given_up = np.flatnonzero(calls.abandoned)
    kept = np.flatnonzero(calls.abandoned == 0)
    if not len(kept):
        because = "none of them had its first token in time"
        raise WorkloadError(
            f"all {len(requests)} requests abandoned", because, "Give more replicas or a longer timeout"
        )
    kept = kept[np.argsort(rows.arrival_s[kept], kind="stable")]
    outcomes: dict[str, Any] = {name: rows[name][kept] for name in OUTCOMES}
    return FleetRun(
        limits=fleet.pool.share,
        requests=requests.only(kept, rows.arrival_s[kept]),
        **outcomes,
        steps=found[0],
        row=kept,
        replica=calls.engine[kept] // fleet.pool.stages,
        retries=calls.retries[kept],
        timeouts=calls.timeouts[kept],
        transfer_s=calls.transfer_s[kept] * (calls.output_tokens[kept] > 1),
        abandoned=given_up,
        abandoned_s=rows.arrival_s[given_up],
        events=found[1],
        replicas=fleet.replicas,
        prefill_replicas=fleet.prefill_replicas,
        stages=fleet.pool.stages,
        closed_s=max(float(f.loop.clock_s), float(np.nanmax(rows.finished_s[kept]))),
    )
