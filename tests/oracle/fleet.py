"""The independent oracle of several engines: replicas, routers, autoscaling, failures, clients, pools, pipelines.

Written from docs/serving-rules.md, "Several engines" (R, T, X, A, C, I, V), on the engine of `oracle.py`; it shares no
code with `simulator/`. Every moment at which anything may happen is looked at, with the four rounds of rule R.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tests.oracle.engine import (
    Jobs,
    OracleBatch,
    OracleEngine,
    OracleJob,
    OracleLimits,
    OracleRequest,
    OracleStep,
    Plan,
    begin_step,
)
from tests.oracle.speculation import uniform

UP, STARTING, DRAINING, OFF, FAILED = "up", "starting", "draining", "off", "failed"


@dataclass(frozen=True)
class OraclePool:
    limits: OracleLimits  # of a whole copy: V shares it out
    seconds: Callable[[OracleBatch], float]
    replicas: int = 1
    stages: int = 1
    slowest_stage: float = 1.0  # V: over the mean of all


@dataclass(frozen=True)
class OracleRouter:
    name: str = "round-robin"
    affinity_slack: int = 8
    max_ongoing_requests: int = 0
    workers: int = 1
    seed: int = 0  # of the requests


@dataclass(frozen=True)
class OracleAutoscaler:
    target: float
    max_replicas: int
    min_replicas: int = 1
    metric: str = "concurrency"
    interval_s: float = 1.0
    down_delay_s: float = 0.0
    cold_start_s: float = 0.0


@dataclass(frozen=True)
class OracleFailure:
    at_s: float
    replica: int
    repair_s: float


@dataclass(frozen=True)
class OracleLink:
    bytes_per_s: float
    latency_s: float
    bytes_of: tuple[float, ...]  # per request


@dataclass(frozen=True)
class OracleClients:
    network_s: float = 0.0
    timeout_s: float = math.inf
    max_retries: int = 0
    retry_delay_s: float = 0.0
    follows: tuple[int, ...] = ()  # per request: the turn before it, or -1
    think_s: tuple[float, ...] = ()


@dataclass(frozen=True)
class OracleFleet:
    pool: OraclePool
    router: OracleRouter = OracleRouter()
    autoscaler: OracleAutoscaler | None = None
    failures: tuple[OracleFailure, ...] = ()
    prefill: OraclePool | None = None
    link: OracleLink | None = None
    prefill_autoscaler: OracleAutoscaler | None = None


@dataclass
class _Scaling:
    """A: a pool's autoscaler, what it scales, and what it remembers."""

    rules: OracleAutoscaler
    copies: list[_Copy]
    queue: list[OracleRequest]  # of the pool's router
    check: int = 1
    low_since: int | None = None
    most: int = 0

    def count(self, *statuses: str) -> int:
        return sum(copy.status in statuses for copy in self.copies)


@dataclass
class _Worker:
    """T, least-connections: what one process of the router knows."""

    has: dict[int, list[int]] = field(default_factory=dict)  # by copy: the requests that it sent there
    owed: dict[int, int] = field(default_factory=dict)  # by copy: turns that it has yet to get among equals

    def choose(self, copies: list[_Copy]) -> _Copy:
        fewest = min(len(self.has.get(copy.number, [])) for copy in copies)
        equals = [copy for copy in copies if len(self.has.get(copy.number, [])) == fewest]
        for copy in equals:
            self.owed[copy.number] = self.owed.get(copy.number, 0) + 1
        chosen = max(equals, key=lambda copy: (self.owed[copy.number], -copy.number))
        self.owed[chosen.number] -= len(equals)
        return chosen


@dataclass
class _UnderWay:
    plan: Plan
    step: OracleStep


@dataclass
class _Copy:
    """One replica: as many engines as it has stages, of the pool that it belongs to."""

    number: int
    pool: OraclePool
    last_pool: bool  # it decodes: what finishes here is finished
    status: str
    engines: list[OracleEngine] = field(default_factory=list)
    under_way: list[_UnderWay | None] = field(default_factory=list)
    stage_free_s: list[float] = field(default_factory=list)
    link_free_s: float = 0.0
    ready_s: float = math.inf  # when it will be up, if starting or failed

    def __post_init__(self) -> None:
        self.forget(self.pool.limits.warm if self.status == UP else ())

    def forget(self, warm: tuple[int, ...] = ()) -> None:
        """Empty engines, empty caches but for what they begin with (P11), free stages."""
        whole, stages = self.pool.limits, self.pool.stages
        share = replace(
            whole,
            num_blocks=whole.num_blocks // stages,
            watermark_blocks=whole.watermark_blocks // stages,
            least_free_blocks=whole.least_free_blocks // stages,
            max_num_seqs=max(1, whole.max_num_seqs // stages),
            concurrency=0,
            warm=warm,
        )
        self.engines = [OracleEngine(share) for _ in range(stages)]
        self.under_way = [None] * stages
        self.stage_free_s = [0.0] * stages

    def waiting(self) -> int:
        return sum(len(engine.requests_waiting()) for engine in self.engines)

    def outstanding(self) -> int:
        return self.waiting() + sum(len(engine.running) for engine in self.engines)

    def cache_load(self) -> int:
        """T, least-cache."""
        held = sum(engine.blocks_held() for engine in self.engines)
        prompts = [each.prompt_tokens for engine in self.engines for each in engine.requests_waiting()]
        return held + sum(self.engines[0].blocks_for(tokens) for tokens in prompts)

    def leading_prefix_blocks(self, request: OracleRequest) -> int:
        """T, prefix-affinity: the hit of P3 and P9."""
        return max(each.cache.leading(each.prefix_blocks(request, request.prompt_tokens - 1)) for each in self.engines)


@dataclass(frozen=True)
class OracleFleetStep:
    replica: int
    step: OracleStep


@dataclass
class OracleFleetResult:
    steps: list[OracleFleetStep]  # in the order of beginning; without those that a failure cut off
    requests: list[OracleRequest]
    replica: dict[int, int]  # request -> the replica that it went to last
    retries: list[int]
    timeouts: list[int]
    abandoned: list[int]
    events: list[tuple[float, int, str]]  # (time, replica, new status)
    blocks_left: int  # held when everything is over
    accepted: list[int] = field(default_factory=list)  # rows of the jobs; all that is above counts these alone


@dataclass(eq=False)
class _Fleet:
    asked: OracleFleet
    clients: OracleClients
    jobs: list[OracleJob]
    concurrency: int

    def __post_init__(self) -> None:
        asked = self.asked
        self.now_s = 0.0
        self.copies = []
        self.queues: dict[bool, list[OracleRequest]] = {False: [], True: []}  # of the first router, of the second
        self.scalings: dict[bool, _Scaling] = {}  # by the router's queue, in the order of the pools
        if asked.prefill is not None:
            self._add_pool(asked.prefill, asked.prefill_autoscaler, last_pool=False, queue=False)
        self._add_pool(asked.pool, asked.autoscaler, last_pool=True, queue=asked.prefill is not None)
        self.requests = [
            OracleRequest(i, job.prompt_tokens, job.output_tokens, job.priority, job.ids, number=i)
            for i, job in enumerate(self.jobs)
        ]
        count = len(self.jobs)
        self.retries, self.timeouts, self.routed = [0] * count, [0] * count, [0] * count
        self.abandoned: set[int] = set()
        self.late: set[int] = set()  # cancelled at the end of the step under way
        self.replica: dict[int, int] = {}
        self.coming: list[tuple[float, int, bool]] = []  # (time, request, whether to the pool that decodes)
        self.deadlines: list[tuple[float, int]] = []
        self.last_chosen = {False: -1, True: -1}
        self.workers = [_Worker() for _ in range(asked.router.workers)]
        self.connections = 0
        self.worker: dict[int, _Worker] = {}  # by request: of its connection
        self.failures = sorted(asked.failures, key=lambda each: (each.at_s, each.replica, each.repair_s))
        self.steps: list[OracleFleetStep] = []
        self.events: list[tuple[float, int, str]] = []
        self.unsent: list[int] = []
        self._first_arrivals()

    def _add_pool(self, pool: OraclePool, scaler: OracleAutoscaler | None, last_pool: bool, queue: bool) -> None:
        count = scaler.max_replicas if scaler else pool.replicas
        up = scaler.min_replicas if scaler else count
        here = [_Copy(len(self.copies) + place, pool, last_pool, UP if place < up else OFF) for place in range(count)]
        self.copies += here
        if scaler:
            self.scalings[queue] = _Scaling(scaler, here, self.queues[queue])

    def _first_arrivals(self) -> None:
        follows = self.clients.follows or (-1,) * len(self.jobs)
        firsts = [index for index, before in enumerate(follows) if before < 0]
        if self.concurrency:
            firsts, self.unsent = firsts[: self.concurrency], firsts[self.concurrency :]
        for index in firsts:
            self.worker[index] = self._accept()
            self._send(index, 0.0 if self.concurrency else self.jobs[index].arrival_s)

    def _accept(self) -> _Worker:
        """T: the worker that the next connection reaches."""
        drawn = uniform(self.connections, self.asked.router.seed, 2)
        self.connections += 1
        return self.workers[math.floor(len(self.workers) * drawn)]

    def _leaves(self, index: int) -> None:
        """T: a request is at no copy any more."""
        for requests in self.worker[index].has.values():
            if index in requests:
                requests.remove(index)

    # ------------------------------------------------------------ the clock

    def run(self) -> OracleFleetResult:
        while any(each.finished_s is None and each.index not in self.abandoned for each in self.requests):
            self.now_s = self._next_moment()
            assert self.now_s < math.inf, "requests are left, and nothing is to come"
            self._end_steps()
            self._time_out()
            self._fail()
            self._come_up()
            for each in self.scalings.values():
                self._autoscale(each)
            self._route()
            self._begin_steps()
        return OracleFleetResult(
            self.steps,
            self.requests,
            self.replica,
            self.retries,
            self.timeouts,
            sorted(self.abandoned),
            self.events,
            sum(engine.blocks_held() for copy in self.copies for engine in copy.engines),
        )

    def _next_moment(self) -> float:
        moments = [at_s for at_s, _, _ in self.coming] + [at_s for at_s, _ in self.deadlines]
        moments += [failure.at_s for failure in self.failures]
        moments += [copy.ready_s for copy in self.copies if copy.status in (STARTING, FAILED)]
        for copy in self.copies:
            moments += [each.step.end_s for each in copy.under_way if each is not None]
            moments += [
                engine.starts_batch_s()
                for engine, each in zip(copy.engines, copy.under_way, strict=True)
                if each is None and engine.waiting
            ]
        moments += [each.check * each.rules.interval_s for each in self.scalings.values()]
        return min(moments, default=math.inf)

    # ------------------------------------------------------------ R1: ends of steps

    def _end_steps(self) -> None:
        for copy in self.copies:
            for position, engine in enumerate(copy.engines):
                done = copy.under_way[position]
                if done is None or done.step.end_s > self.now_s:
                    continue
                copy.under_way[position] = None
                for request in engine.complete(done.plan, done.step.start_s, done.step.end_s):
                    self._finish(request, copy, engine.shown_s)
                for request in list(engine.running):
                    if request.index in self.late:
                        self.late.remove(request.index)
                        if request.first_token_s is None:
                            engine.release(request)
                            self._cancel(request)
            self._maybe_off(copy)

    def _finish(self, request: OracleRequest, copy: _Copy, shown_s: float) -> None:
        self.late.discard(request.index)
        self._leaves(request.index)
        output_tokens = self.jobs[request.index].output_tokens
        if copy.last_pool or output_tokens == 1:
            self._conclude(request, shown_s)
            return
        link = self.asked.link
        assert link is not None
        start_s = max(self.now_s, copy.link_free_s)
        copy.link_free_s = start_s + (link.latency_s + link.bytes_of[request.index] / link.bytes_per_s)
        request.finished_s, request.output_tokens, request.prefilled = None, output_tokens, True
        self.coming.append((copy.link_free_s, request.index, True))

    def _conclude(self, request: OracleRequest, at_s: float) -> None:
        """C: what the end of a request, finished or abandoned, brings about."""
        follows = self.clients.follows or (-1,) * len(self.jobs)
        answered_s = self.clients.network_s + self.asked.pool.limits.turnaround_s
        for index, before in enumerate(follows):
            if before != request.index:
                continue
            if request.index in self.abandoned:
                self.abandoned.add(index)
                self._conclude(self.requests[index], at_s)
            else:
                self.worker[index] = self.worker[request.index]
                self._send(index, at_s + (self.clients.think_s[index] + answered_s))
        if self.unsent:
            following = self.unsent.pop(0)
            self.worker[following] = self.worker[request.index]
            self._send(following, at_s + answered_s)

    def _send(self, index: int, at_s: float) -> None:
        request = self.requests[index]
        if request.arrival_s is None:
            request.arrival_s = at_s
        self.coming.append((at_s, index, False))
        if self.clients.timeout_s < math.inf:
            self.deadlines.append((at_s + self.clients.timeout_s, index))

    # ------------------------------------------------------------ R2: control

    def _time_out(self) -> None:
        due = sorted(each for each in self.deadlines if each[0] <= self.now_s)
        self.deadlines = [each for each in self.deadlines if each[0] > self.now_s]
        for _, index in due:
            request = self.requests[index]
            if request.first_token_s is not None:
                continue
            for queue in self.queues.values():
                if request in queue:
                    queue.remove(request)
                    self._cancel(request)
            for engine in [engine for copy in self.copies for engine in copy.engines]:
                if request in engine.requests_waiting():
                    engine.forget(request)
                    self._cancel(request)
            for copy in self.copies:
                for engine, under_way in zip(copy.engines, copy.under_way, strict=True):
                    if request in engine.running and under_way is not None:
                        self.late.add(index)
                    elif request in engine.running:
                        engine.release(request)
                        self._cancel(request)
                self._maybe_off(copy)

    def _anew(self, request: OracleRequest) -> None:
        self._leaves(request.index)
        request.generated_tokens = request.computed_tokens = request.blocks = request.decode_steps = 0
        request.scheduled_s = request.first_token_s = request.hit_tokens = None
        request.decodes = request.prefilled = False

    def _cancel(self, request: OracleRequest) -> None:
        """C: the client gives up waiting; it sends again, or gives up for good."""
        self._anew(request)
        self.timeouts[request.index] += 1
        if self.timeouts[request.index] <= self.clients.max_retries:
            self._send(request.index, self.now_s + self.clients.retry_delay_s)
        else:
            self.abandoned.add(request.index)
            self._conclude(request, self.now_s)

    def _fail(self) -> None:
        while self.failures and self.failures[0].at_s <= self.now_s:
            failure = self.failures.pop(0)
            copy = self.copies[failure.replica]
            if copy.status in (OFF, FAILED):
                continue
            lost = [each.step for each in copy.under_way if each is not None]
            self.steps = [each for each in self.steps if not any(each.step is step for step in lost)]
            for engine in copy.engines:
                for request in [*engine.running, *engine.requests_waiting()]:
                    if request.finished_s is not None:
                        continue  # padding of a static batch
                    if request.index in self.late:
                        self.late.remove(request.index)
                        self._cancel(request)
                        continue
                    self._anew(request)
                    self.retries[request.index] += 1
                    self.queues[False].append(request)
            copy.forget()
            if copy.status == DRAINING:
                self._set(copy, OFF)
            else:
                self._set(copy, FAILED)
                copy.ready_s = failure.at_s + failure.repair_s

    def _come_up(self) -> None:
        for status in (FAILED, STARTING):
            for copy in self.copies:
                if copy.status == status and copy.ready_s <= self.now_s:
                    self._set(copy, UP)

    def _set(self, copy: _Copy, status: str) -> None:
        copy.status = status
        self.events.append((self.now_s, copy.number, status))

    def _maybe_off(self, copy: _Copy) -> None:
        if copy.status == DRAINING and copy.outstanding() == 0:
            copy.forget()
            self._set(copy, OFF)

    def _start_lowest(self, pool: _Scaling) -> None:
        for copy in pool.copies:
            if copy.status == OFF:
                self._set(copy, STARTING)
                copy.ready_s = self.now_s + pool.rules.cold_start_s
                return

    def _autoscale(self, pool: _Scaling) -> None:
        rules = pool.rules
        if pool.check * rules.interval_s > self.now_s:
            return
        number, pool.check = pool.check, pool.check + 1
        metric = len(pool.queue)
        metric += sum(c.outstanding() if rules.metric == "concurrency" else c.waiting() for c in pool.copies)
        wanted = min(max(math.ceil(metric / rules.target), rules.min_replicas), rules.max_replicas)
        present = pool.count(UP, STARTING)
        if wanted >= present:
            pool.low_since = None
            for _ in range(wanted - present):
                self._start_lowest(pool)
            return
        if pool.low_since is None:
            pool.low_since, pool.most = number, 0
        pool.most = max(pool.most, wanted)
        if (number - pool.low_since) * rules.interval_s >= rules.down_delay_s:
            pool.low_since = None
            up = [copy for copy in pool.copies if copy.status == UP]
            for copy in up[::-1][: max(0, present - pool.most)]:
                self._set(copy, DRAINING)
                self._maybe_off(copy)

    # ------------------------------------------------------------ R3: arrivals, routed

    def _route(self) -> None:
        due = sorted(each for each in self.coming if each[0] <= self.now_s)
        self.coming = [each for each in self.coming if each[0] > self.now_s]
        for _, index, decodes in due:
            request = self.requests[index]
            if decodes:
                request.generated_tokens = 1
            self.queues[decodes].append(request)
        for decodes, queue in self.queues.items():
            while queue:
                copy = self._choose(queue[0], decodes)
                if copy is None:
                    pool = self.scalings.get(decodes)
                    if pool is not None and pool.rules.min_replicas == 0 and not pool.count(UP, STARTING):
                        self._start_lowest(pool)
                    break
                self._assign(queue.pop(0), copy)

    def _choose(self, request: OracleRequest, decodes: bool) -> _Copy | None:
        router = self.asked.router
        second = decodes or self.asked.prefill is None
        most = router.max_ongoing_requests or math.inf
        up = [c for c in self.copies if c.last_pool == second and c.status == UP and c.outstanding() < most]
        if not up:
            return None
        if router.name == "round-robin":
            behind = [copy for copy in up if copy.number > self.last_chosen[decodes]]
            return (behind or up)[0]
        if router.name in ("least-outstanding", "least-cache"):
            cached = router.name == "least-cache"
            return min(up, key=lambda copy: (cached and copy.cache_load(), copy.outstanding(), copy.number))
        if router.name == "power-of-two":
            return self._of_two(request, up)
        if router.name == "least-connections":
            return self.worker[request.index].choose(up)
        assert router.name == "prefix-affinity"
        least = min(copy.outstanding() for copy in up)
        near = [copy for copy in up if copy.outstanding() <= least + router.affinity_slack]
        return min(near, key=lambda copy: (-copy.leading_prefix_blocks(request), copy.outstanding(), copy.number))

    def _of_two(self, request: OracleRequest, up: list[_Copy]) -> _Copy:
        if len(up) == 1:
            return up[0]
        sendings = self.routed[request.index]
        first = math.floor(len(up) * uniform(request.index, sendings, 0))
        second = math.floor((len(up) - 1) * uniform(request.index, sendings, 1))
        second += second >= first
        return min(up[first], up[second], key=lambda copy: (copy.outstanding(), copy.number))

    def _assign(self, request: OracleRequest, copy: _Copy) -> None:
        self.last_chosen[copy.last_pool and self.asked.prefill is not None] = copy.number
        self.routed[request.index] += 1
        self.replica[request.index] = copy.number
        self.worker[request.index].has.setdefault(copy.number, []).append(request.index)
        request.output_tokens = self.jobs[request.index].output_tokens if copy.last_pool else 1
        engine = min(copy.engines, key=lambda each: len(each.requests_waiting()) + len(each.running))
        engine.enqueue(request, self.now_s)

    # ------------------------------------------------------------ R4: beginnings of steps

    def _begin_steps(self) -> None:
        for copy in self.copies:
            for position, engine in enumerate(copy.engines):
                if copy.under_way[position] is not None:
                    continue
                plan = engine.schedule(self.now_s, more_to_come=bool(self.coming))
                if not plan:
                    continue
                step = begin_step(engine, plan, self.now_s, copy.pool.seconds)
                if copy.pool.stages > 1:
                    step = replace(step, end_s=self._through_stages(copy, step.seconds))
                copy.under_way[position] = _UnderWay(plan, step)
                self.steps.append(OracleFleetStep(copy.number, step))

    def _through_stages(self, copy: _Copy, seconds: float) -> float:
        """V: when a step that begins now leaves the last stage."""
        at_s, each_s = self.now_s, seconds / copy.pool.stages
        for stage, free_s in enumerate(copy.stage_free_s):
            entered_s = max(at_s, free_s)
            copy.stage_free_s[stage] = entered_s + copy.pool.slowest_stage * each_s
            at_s = entered_s + each_s
        return at_s


def run_fleet_oracle(
    jobs: Jobs, fleet: OracleFleet, clients: OracleClients | None = None, concurrency: int = 0
) -> OracleFleetResult:
    """Simulate requests on a fleet; Z: rejected ones never reach it, and the others are numbered without them."""
    sent, clients = [OracleJob(*job) for job in jobs], clients or OracleClients()
    follows = clients.follows or (-1,) * len(sent)
    accepted = list[int]()
    for index, job in enumerate(sent):
        if _is_taken(fleet, job) and (follows[index] < 0 or follows[index] in accepted):
            accepted.append(index)
    bytes_of = fleet.link.bytes_of if fleet.link else ()
    link = fleet.link and replace(fleet.link, bytes_of=tuple(bytes_of[index] for index in accepted))
    if clients.follows:
        before = tuple(accepted.index(follows[index]) if follows[index] >= 0 else -1 for index in accepted)
        clients = replace(clients, follows=before, think_s=tuple(clients.think_s[index] for index in accepted))
    found = _Fleet(replace(fleet, link=link), clients, [sent[index] for index in accepted], concurrency).run()
    return replace(found, accepted=accepted)


def _is_taken(fleet: OracleFleet, job: OracleJob) -> bool:
    """Z: one engine of each pool that a request comes to could finish it alone, a prefill replica its prompt."""
    pools = [(fleet.pool, job.output_tokens)] + ([(fleet.prefill, 1)] if fleet.prefill else [])
    return all(
        _Copy(0, pool, True, OFF).engines[0].can_ever_finish(OracleRequest(0, job.prompt_tokens, output_tokens))
        for pool, output_tokens in pools
    )
