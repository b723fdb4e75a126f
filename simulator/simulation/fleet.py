"""A fleet: replicas of one deployment, or of two pools, behind a router; and the simulation of one under a load."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.errors import InfercastError, NotModelledError, WorkloadError
from simulator.roofline.step_model import StepTable
from simulator.scheduler.prefix_cache import begin_with
from simulator.scheduler.state import NOBODY, Floats, Ints, Limits, Table, engine_state, new_engines
from simulator.simulation.autoscaler import METRICS, Autoscaler, Failure
from simulator.simulation.clients import Clients
from simulator.simulation.disaggregation import Link
from simulator.simulation.engine_loop import BURST, OUTCOMES, Progress, request_table, stuck
from simulator.simulation.fleet_loop import FLEET_STEP, burst
from simulator.simulation.fleet_run import FleetRun
from simulator.simulation.fleet_state import (
    CALL,
    EVENT,
    FAILURE,
    HALL,
    OFF,
    PLACE,
    QUEUE,
    REPLICA,
    RULES,
    STARTING,
    UP,
    Rules,
    World,
    table,
)
from simulator.simulation.routers import ROUTERS, Router
from simulator.simulation.scheduler_limits import refuse_endless
from simulator.workloads.workload import Requests

EVENTS = 4096  # rows between two looks of Python at what happened


@dataclass(frozen=True)
class Pool:
    """Replicas of one deployment; with `stages` > 1 each is a pipeline that keeps so many batches in flight."""

    limits: Limits
    table: StepTable
    replicas: int = 1
    stages: int = 1
    acceptance: tuple[float, ...] = ()  # of draft tokens, see `simulate`

    def __post_init__(self) -> None:
        for name in ("replicas", "stages"):
            if getattr(self, name) < 1:
                raise InfercastError(f"{name} {getattr(self, name)}", "it is at least 1", "Give, say, 2")

    @property
    def share(self) -> Limits:
        """What one of the engines of a pipeline is allowed."""
        if self.stages == 1:
            return self.limits
        seqs, num_blocks = self.limits.max_num_seqs // self.stages, self.limits.num_blocks // self.stages
        return self.limits._replace(max_num_seqs=max(1, seqs), num_blocks=num_blocks)


@dataclass(frozen=True)
class Fleet:
    """Replicas behind a router, with what changes their number; `prefill` is a pool of its own, joined by `link`."""

    pool: Pool
    router: Router = field(default_factory=Router)
    autoscaler: Autoscaler | None = None
    failures: tuple[Failure, ...] = ()
    prefill: Pool | None = None
    link: Link | None = None

    def __post_init__(self) -> None:
        if (self.prefill is None) != (self.link is None):
            given = "a prefill pool and a link, one without the other"
            raise InfercastError(given, "they belong to each other", "Give both or neither")
        if self.prefill is not None and self.autoscaler is not None:
            because = "how the two would scale apart is not modelled"
            raise NotModelledError("autoscaling of a prefill and a decode pool", because, "Leave one out")
        if self.prefill is not None and self.prefill.stages != self.pool.stages:
            given = f"pools of {self.prefill.stages} and {self.pool.stages} stages"
            raise NotModelledError(given, "both pools have the same number", "Use one pp for both")
        for each in self.failures:
            if each.replica >= self.replicas:
                given = f"a failure of replica {each.replica}"
                raise InfercastError(given, f"there are {self.replicas}, counted from 0", "Name one of them")

    @property
    def replicas(self) -> int:
        """How many there are at most, prefill replicas first."""
        if self.autoscaler is not None:
            return self.autoscaler.max_replicas
        return self.pool.replicas + (self.prefill.replicas if self.prefill else 0)


def simulate_fleet(
    fleet: Fleet, requests: Requests, clients: Clients | None = None, progress: Progress | None = None
) -> FleetRun:
    """Run a workload to its end on a fleet; with one replica and patient clients this is `simulate`, to the bit.

    Raises WorkloadError for requests that no engine can hold, and where no replica is ever up again for what is left.
    """
    clients = clients or Clients()
    clients.check(requests)
    if fleet.prefill is not None and requests.given.any():
        because = "the prefill pool makes the caches"
        raise NotModelledError("requests that bring their cache", because, "Leave the prefill pool out")
    refuse_endless(fleet.pool.share, requests, "one engine")
    if fleet.prefill is not None:
        prompts = replace(requests, output_tokens=np.ones_like(requests.output_tokens))
        refuse_endless(fleet.prefill.share, prompts, "one engine of the prefill pool")
    w = _world(fleet, requests, clients)
    hall, steps, events = w.hall, [], []
    tables = ((fleet.prefill or fleet.pool).table, fleet.pool.table)
    while hall.left > 0:
        rows = table(FLEET_STEP, max(BURST, 2 * len(w.places)))
        count = burst(w, tables, rows)
        steps.append(rows if count == len(rows) else rows[:count].copy())
        events.append(w.events[: hall.events].copy())
        hall.events = 0
        if progress is not None:
            progress(len(requests) - int(hall.left), len(requests))
        if hall.stuck and not fleet.failures and fleet.autoscaler is None:
            raise stuck(int(hall.left), requests)
        if hall.stuck:
            because = "no replica is ever up again for them"
            remedy = "Repair what fails, or let an autoscaler start others"
            raise WorkloadError(f"{hall.left} requests of {len(requests)}", because, remedy)
    done = np.delete(np.concatenate(steps), w.lost[: hall.lost])
    return _run(fleet, requests, w, (done.view(np.recarray), np.concatenate(events).view(np.recarray)))


def _world(fleet: Fleet, requests: Requests, clients: Clients) -> World:
    """Return what the loop knows before the first arrival."""
    count, prefill = len(requests), fleet.prefill
    known = np.arange(count) < (requests.concurrency or count)
    if clients.follows is not None:
        known &= clients.follows < 0
    rows = _table(fleet, requests, known)
    places = fleet.replicas * fleet.pool.stages
    kinds = [(fleet.pool.share, fleet.pool.acceptance)] * places
    if prefill is not None:
        first = prefill.replicas * prefill.stages
        kinds[:first] = [(prefill.share, prefill.acceptance)] * first
    w = World(
        rules=_rules(fleet, requests, clients),
        hall=table(HALL, 1)[0],
        engines=new_engines(kinds, rows, requests.prefixes.ids),
        places=table(PLACE, places),
        ends_s=np.full(places, np.inf),
        stages_free_s=np.zeros((fleet.replicas, fleet.pool.stages)),
        replicas=table(REPLICA, fleet.replicas),
        queues=table(QUEUE, 2 + places),
        calls=_calls(fleet, requests, clients),
        order=np.flatnonzero(known),
        heap=np.zeros(count, np.int64),
        heap_s=np.zeros(count),
        timers=np.zeros(count, np.int64),
        failures=_failures(fleet.failures),
        lost=np.zeros(len(fleet.failures) * fleet.pool.stages, np.int64),
        events=table(EVENT, EVENTS + 4 * fleet.replicas + 2 * len(fleet.failures)),
    )
    _open(w, fleet)
    for place in range(places):
        if kinds[place][0].prefix_unit_tokens and w.replicas.state[place // fleet.pool.stages] == UP:
            begin_with(engine_state(w.engines, place), requests.prefixes.ids[requests.prefixes.warm])
    return w


def _table(fleet: Fleet, requests: Requests, known: npt.NDArray[np.bool_]) -> Table:
    """Return the schedulers' table; arrivals that are not known yet lie at infinity."""
    rows = request_table(requests, fleet.pool.limits.prefix_unit_tokens)
    rows.arrival_s[~known] = np.inf
    if fleet.prefill:
        rows.output_tokens = 1
    return rows


def _open(w: World, fleet: Fleet) -> None:
    """Set the clocks, and the replicas that are up at 0."""
    hall = w.hall
    hall.left, hall.ready_s, hall.check = len(w.calls), np.inf, 1
    hall.released = min(w.rules.concurrency, len(w.calls))
    w.queues[0].last = (w.rules.prefill_replicas or w.rules.replicas) - 1
    w.queues[1].last = w.rules.replicas - 1
    up = fleet.autoscaler.min_replicas if fleet.autoscaler else fleet.replicas
    w.replicas.state = np.where(np.arange(fleet.replicas) < up, UP, OFF)
    for index in range(up):
        w.events[2 * index] = (0.0, index, STARTING)
        w.events[2 * index + 1] = (0.0, index, UP)
    hall.events = 2 * up


def _rules(fleet: Fleet, requests: Requests, clients: Clients) -> Any:
    scaler, packed = fleet.autoscaler, table(RULES, 1)
    packed[0] = Rules(
        places=fleet.pool.stages,
        prefill_replicas=fleet.prefill.replicas if fleet.prefill else 0,
        replicas=fleet.replicas,
        concurrency=requests.concurrency,
        router=ROUTERS[fleet.router.name],
        affinity_slack=fleet.router.affinity_slack,
        max_ongoing_requests=fleet.router.max_ongoing_requests,
        metric=METRICS[scaler.metric] if scaler else 0,
        target=float(scaler.target) if scaler else 1.0,
        min_replicas=scaler.min_replicas if scaler else fleet.replicas,
        interval_s=float(scaler.interval_s) if scaler else math.inf,
        down_delay_s=float(scaler.down_delay_s) if scaler else math.inf,
        cold_start_s=float(scaler.cold_start_s) if scaler else 0.0,
        answered_s=float(clients.network_s) + fleet.pool.limits.turnaround_s,
        timeout_s=float(clients.timeout_s),
        max_retries=clients.max_retries,
        retry_delay_s=float(clients.retry_delay_s),
    )
    return packed[0]


def _calls(fleet: Fleet, requests: Requests, clients: Clients) -> Table:
    calls = table(CALL, len(requests))
    calls.queue = calls.place = NOBODY
    calls.follower, calls.think_s = clients.followers(len(requests)), clients.thinks_s(len(requests))
    calls.output_tokens = requests.output_tokens
    if fleet.link is not None:
        calls.transfer_s = fleet.link.seconds(len(requests))
    return calls


def _failures(failures: tuple[Failure, ...]) -> Table:
    rows = table(FAILURE, len(failures))
    for index, each in enumerate(sorted(failures)):
        rows[index] = (each.at_s, each.replica, each.repair_s)
    return rows


def _run(fleet: Fleet, requests: Requests, w: World, found: tuple[Table, Table]) -> FleetRun:
    """Put the run together: requests that finished, in the order of arrival."""
    rows, calls = w.engines.requests, w.calls
    given_up = np.flatnonzero(calls.abandoned)
    kept = np.flatnonzero(calls.abandoned == 0)
    if not len(kept):
        because = "its first token came for none of them in time"
        raise WorkloadError(
            f"all {len(requests)} requests abandoned", because, "Give more replicas or a longer timeout"
        )
    kept = kept[np.argsort(rows.arrival_s[kept], kind="stable")]
    return FleetRun(
        limits=fleet.pool.share,
        requests=_finished(requests, kept, rows.arrival_s[kept]),
        **{name: rows[name][kept] for name in OUTCOMES},
        steps=found[0],
        row=kept,
        replica=calls.place[kept] // fleet.pool.stages,
        retries=calls.retries[kept],
        timeouts=calls.timeouts[kept],
        abandoned=given_up,
        abandoned_s=rows.arrival_s[given_up],
        events=found[1],
        replicas=fleet.replicas,
        stages=fleet.pool.stages,
        closed_s=float(w.hall.clock_s),
    )


def _finished(requests: Requests, kept: Ints, arrival_s: Floats) -> Requests:
    """Return some of the requests, at the times at which they were sent."""
    prefixes = requests.prefixes
    if len(prefixes):
        prefixes = replace(prefixes, first=prefixes.first[kept], count=prefixes.count[kept])
    prompts, outputs = requests.prompt_tokens[kept], requests.output_tokens[kept]
    more = (requests.concurrency, requests.priority[kept], requests.given[kept], prefixes)
    return Requests(arrival_s, prompts, outputs, *more)
