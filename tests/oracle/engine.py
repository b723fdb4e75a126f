"""The independent oracle of the scheduler and the event loop: slow, obvious, plain Python objects.

It shares no code with `simulator/`. The rules of the policy "continuous" are those of the vLLM V1 scheduler
(docs/vllm-rules.md says where each was read); what those rules or the task leave open is decided here:

Requests and cache
 1. A request of p prompt and n output tokens (p >= 1, n >= 1) computes p + n - 1 tokens: the last token is never fed
    back. It needs at most ceil((p + n - 1) / block_size) blocks, at one block per `block_size` tokens.
 2. It is rejected before the clock starts if that is more than `num_blocks`, or if p + n > `max_model_len` (if given).
    A rejected request takes no part: it has no times, a closed loop counts the accepted requests only, and so do the
    random numbers of S3. More: Z.
    `num_blocks` are the usable blocks (vLLM: num_gpu_blocks - 1, as one null block is set aside). No prefix caching.
Clock and arrivals
 3. Steps are back to back: while anything is running or waiting, a step starts where the last one ended, to the bit;
    end_s = start_s + seconds(step). Otherwise the clock jumps to the next arrival.
 4. A request is visible to a step if arrival_s <= start_s. Arrivals are queued by (arrival_s, index).
 5. Closed loop (concurrency k > 0): arrival_s is ignored; accepted requests 0..k-1 arrive at 0, one further request, in
    index order, arrives `turnaround_s` after the end of the step for each request that completes there.
 6. Everything that a step produces happens at its end: tokens, completions, freed blocks and places.
Policy "continuous"
 7. First the running requests, in the order of their admission, then the waiting ones in theirs; both while the token
    budget lasts. A request computes all it lacks (p + generated - computed tokens, 1 when decoding), cut to the budget.
    A running request that the budget does not reach keeps its place and its blocks and is not in the step.
 8. Blocks are allocated for computed + new tokens. If a running request finds too few, the last of `running` is
    preempted (blocks freed, computed = 0, generated kept, put at the head of `waiting`) and it tries again; if the last
    is the request itself, it is out too and nothing more of `running` is looked at. In FCFS order a victim can not have
    been scheduled in this step, so no budget is ever given back.
 9. No request is admitted in a step that preempted.
10. A waiting request is admitted if len(running) < max_num_seqs, budget > 0 and the blocks of its chunk are free; with
    `full_prompt_must_fit` all of p + generated tokens must fit into the blocks free at that moment (though it takes
    only those of the chunk). The first that is not admitted ends the admission: no skipping ahead.
11. A token is produced when computed reaches p + generated. scheduled_s is the start of the first step that a request
    is in, first_token_s the end of the step of its first token; a preemption changes neither.
Policy "static"
12. Only when idle: take waiting requests in order while fewer than max_num_seqs and their blocks of rule 1 are free
    (reserved at once, until the batch ends); the first that does not fit ends the batch. It never waits to fill up.
13. One step computes all prompts, whatever the token budget, unpadded: each (prompt, 0). Then every step decodes the
    whole batch until its last request has finished. A finished request stays in as padding that attends to its own
    padding too, (1, p + n - 1), (1, p + n), ... All places and blocks are freed when the batch ends. A finished request
    counts as completed at once (rule 5), though its place is not free yet.
Result
14. blocks_held of a step is what all of `running` holds while it runs (allocations made, completions not yet freed).
The letters Q, L, W, F, O, M, B, J, D, U, G, K, H, P and S are the rules of docs/serving-rules.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.oracle.prefix_cache import OracleCache
from tests.oracle.speculation import expected, sampled


class OracleJob(NamedTuple):
    """A request as it is sent; `ids` name its leading prefix blocks, `prefilled` brings the cache of its prompt."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    priority: int = 0
    ids: tuple[int, ...] = ()
    prefilled: bool = False


class OracleBatch(list[tuple[int, int]]):
    """(new, past) of each sequence of a step; which of them decode, the host's tokens, the window or chunk."""

    decodes: tuple[bool, ...] = ()
    loaded_tokens: int = 0
    window: int = 0
    chunked: bool = False
    at_once: int = 1  # Y
    ahead_s: float = 0.0  # N: by which the host launches it before it begins
    launch_s: float = 0.0  # N: what launches it; set by `Seconds`


Jobs = Sequence[tuple[float, int, int] | OracleJob]
Seconds = Callable[[OracleBatch], float]


class OracleEstimate(NamedTuple):
    """J: the most that a request may still produce, the ratio's bounds and fall, tokens to spare, ignored EOS."""

    tokens: int
    first_ratio: float
    least_ratio: float
    decay: float
    spare_tokens: int
    ignores_eos: bool = False


@dataclass(frozen=True)
class OracleLimits:
    max_num_seqs: int
    max_num_batched_tokens: int
    num_blocks: int
    block_size: int = 16
    policy: str = "continuous"  # "static", "prompts-first", "uncached"
    concurrency: int = 0
    turnaround_s: float = 0.0
    stream_s: float = 0.0  # E
    first_call_s: float = 0.0  # E
    full_prompt_must_fit: bool = True
    max_model_len: int | None = None
    by_priority: bool = False
    long_prefill_tokens: int = 0
    chunked_prefill: bool = True
    admit_full_output: bool = False
    least_free_blocks: int = 0
    watermark_blocks: int = 0
    estimate: OracleEstimate | None = None  # J
    least_waiting: int = 0  # M
    prompt_interval: int = 0
    batch_size: int = 1
    batch_wait_s: float = 0.0
    prefix_block_tokens: int = 0
    host_prefix_blocks: int = 0
    warm: tuple[int, ...] = ()  # prefix blocks that the cache begins with, least recent first
    draft_tokens: int = 0
    acceptance: tuple[float, ...] = ()
    expected_acceptance: bool = False
    num_scheduler_steps: int = 1  # Y
    async_scheduling: bool = False
    launches_ahead: bool = False  # N
    prompts_wait: bool = False  # N
    scheduler_recv_interval: int = 1
    window: int = 0
    chunked: bool = False
    full_groups: int = 1
    window_groups: int = 0


@dataclass(frozen=True)
class OracleStep:
    start_s: float
    end_s: float
    seconds: float
    scheduled: tuple[tuple[int, int, int], ...]  # (request index, new tokens, past tokens)
    blocks_held: int
    decodes: tuple[bool, ...] = ()  # which of `scheduled` decode
    loaded_tokens: int = 0
    cached_tokens: int = 0


@dataclass(eq=False)
class OracleRequest:
    """What became of one request; the times stay None if it was rejected. Identity is equality."""

    index: int
    prompt_tokens: int
    output_tokens: int
    priority: int = 0
    ids: tuple[int, ...] = ()
    prefilled: bool = False  # until its first admission
    arrival_s: float | None = None
    scheduled_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    preemptions: int = 0
    hit_tokens: int | None = None
    computed_tokens: int = 0
    generated_tokens: int = 0
    blocks: int = 0
    decodes: bool = False
    decode_steps: int = 0  # since it joined the decodes
    number: int = 0  # among the accepted requests

    @property
    def known_tokens(self) -> int:
        return self.prompt_tokens + self.generated_tokens

    @property
    def final_tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens - 1

    @property
    def urgency(self) -> tuple[int, float, int]:
        assert self.arrival_s is not None
        return (self.priority, self.arrival_s, self.index)


@dataclass(frozen=True)
class OracleResult:
    steps: list[OracleStep]
    requests: list[OracleRequest]
    rejected: list[int]


Plan = list[tuple[OracleRequest, int]]


@dataclass
class OracleEngine:
    """One engine: `enqueue` requests, `schedule` a step, `complete` it."""

    limits: OracleLimits
    waiting: list[OracleRequest] = field(default_factory=list)
    running: list[OracleRequest] = field(default_factory=list)
    unseen: list[tuple[float, OracleRequest]] = field(default_factory=list)  # (came at, who), not in `waiting` yet (H)
    began_s: float = 0.0  # the step that was scheduled last
    decoded_alone: bool = False  # whether that step had decodes and no prompts
    loaded_tokens: int = 0  # of that step
    shown_s: float = 0.0  # E: of the last step that ended
    decode_steps: int = 0  # so far
    admitted_at: int = 0  # of these
    looked: bool = False  # M: whether the last step was open to new requests
    received_at: int = 0  # of these (H2)
    ratio: float = 0.0  # J
    full: bool = False  # J
    preempted: bool = False  # whether the present step did
    ahead_s: float = 0.0  # N: by which the host may launch the next step before it begins

    def __post_init__(self) -> None:
        limits = self.limits
        blocks_per_prefix_block = limits.full_groups * (limits.prefix_block_tokens // limits.block_size)
        self.cache = OracleCache(blocks_per_prefix_block, limits.host_prefix_blocks)
        for block in limits.warm:
            self.cache.idle = [*(each for each in self.cache.idle if each != block), block]
        self.cache.evict(limits.num_blocks)
        self.ratio = limits.estimate.first_ratio if limits.estimate else 0.0

    # ------------------------------------------------------------ blocks and prefix blocks

    def blocks_for(self, tokens: int) -> int:
        """K: the blocks of so many tokens in every group; a windowed one never needs more than its window can touch."""
        limits = self.limits
        whole = math.ceil(tokens / limits.block_size)
        in_window = min(whole, math.ceil(limits.window / limits.block_size) + 1)
        return limits.full_groups * whole + limits.window_groups * in_window

    def blocks_held(self) -> int:
        """What all of `running` holds; a prefix block counts once, however many hold it (P)."""
        own = 0
        for request in self.running:
            prefix_blocks = sum(request.index in holders for holders in self.cache.holders.values())
            own += request.blocks - prefix_blocks * self.cache.blocks_per_prefix_block
        return own + self.cache.held_blocks()

    def blocks_free(self) -> int:
        return self.limits.num_blocks - self.blocks_held()

    def most_blocks(self, request: OracleRequest) -> int:
        """Rule 1; S1: with the drafts of the last decode."""
        return self.blocks_for(request.final_tokens + self.limits.draft_tokens)

    def can_ever_finish(self, request: OracleRequest) -> bool:
        limit = self.limits.max_model_len
        if limit is not None and request.prompt_tokens + request.output_tokens > limit:
            return False
        if self.limits.policy == "uncached":
            return True
        whole = not self.limits.chunked_prefill and self.limits.policy != "static"
        if whole and request.prompt_tokens > self.limits.max_num_batched_tokens:
            return False
        return self.most_blocks(request) <= self.limits.num_blocks

    def prefix_blocks(self, request: OracleRequest, tokens: int) -> list[int]:
        """P1: the ids of the prefix blocks that lie within so many leading tokens."""
        prefix_block_tokens = self.limits.prefix_block_tokens
        if prefix_block_tokens == 0:
            return []
        return list(request.ids[: min(tokens, request.final_tokens) // prefix_block_tokens])

    def _register(self, request: OracleRequest, before: int, after: int) -> None:
        """P5: the prefix blocks that the scheduled tokens of a prompt complete."""
        for block in self.prefix_blocks(request, after)[len(self.prefix_blocks(request, before)) :]:
            self.cache.hold(block, request.index)

    def _take(self, request: OracleRequest, tokens: int) -> None:
        """Hold the blocks of so many tokens, or more if drafts were rejected (S1); evict what they displace (P7)."""
        request.blocks = max(request.blocks, self.blocks_for(tokens))
        self.cache.evict(self.blocks_free())

    def release(self, request: OracleRequest) -> None:
        """Leave `running`, and give up everything (P6)."""
        self.cache.leave(
            request.index,
            self.prefix_blocks(request, request.known_tokens),
            len(self.prefix_blocks(request, request.computed_tokens)),
        )
        self.running.remove(request)
        request.blocks = request.computed_tokens = request.decode_steps = 0
        request.decodes = False

    # ------------------------------------------------------------ the queue

    def enqueue(self, request: OracleRequest, now_s: float) -> None:
        self.unseen.append((now_s, request))

    def requests_waiting(self) -> list[OracleRequest]:
        """Seen or not."""
        return [*self.waiting, *(request for _, request in self.unseen)]

    def forget(self, request: OracleRequest) -> None:
        """Let go of a request that waits."""
        self.waiting = [each for each in self.waiting if each is not request]
        self.unseen = [each for each in self.unseen if each[1] is not request]

    def _see_arrivals(self, now_s: float) -> None:
        """H: this step was decided when the last one began; if nothing was to do then, now. H2: not every step."""
        unheard = self.decode_steps - self.received_at
        if not self.decoded_alone or unheard >= self.limits.scheduler_recv_interval:
            self.received_at = self.decode_steps
            self._see_until(self.began_s if self.limits.async_scheduling else now_s)
        self.decoded_alone = False  # until a step ends
        if not self.running and not self.waiting:
            self._see_until(now_s)
            self.ahead_s = 0.0

    def _see_until(self, until_s: float) -> None:
        self.waiting += [request for came_s, request in self.unseen if came_s <= until_s]
        self.unseen = [each for each in self.unseen if each[0] > until_s]
        if self.limits.by_priority:
            self.waiting.sort(key=lambda each: each.urgency)

    def _preempt(self, victim: OracleRequest) -> None:
        self.release(victim)
        victim.preemptions += 1
        self.preempted = True
        self.waiting.insert(0, victim)
        if self.limits.by_priority:
            self.waiting.sort(key=lambda each: each.urgency)

    def _victim(self) -> OracleRequest:
        if self.limits.by_priority:
            return max(self.running, key=lambda each: each.urgency)
        return self.running[-1]

    # ------------------------------------------------------------ a step

    def schedule(self, now_s: float, more_to_come: bool) -> Plan:
        """What the step that starts now computes; nothing if the engine is idle or waits for its batch to fill (D)."""
        self._see_arrivals(now_s)
        self.loaded_tokens, self.began_s, self.preempted = 0, now_s, False
        if self.limits.policy == "static":
            return self._schedule_static(now_s, more_to_come)
        if self.limits.policy == "uncached":
            return self._schedule_uncached()
        plan: Plan = []
        if self.limits.policy == "continuous":
            preempted = self._schedule_running(plan, list(self.running))
        else:
            preempted = self._schedule_running(plan, [each for each in self.running if not each.decodes])
        if not preempted:
            self._admit(plan)
        if self.limits.policy == "prompts-first" and not plan:
            self._schedule_running(plan, [each for each in self.running if each.decodes])
        self._set_ratio(plan)
        return plan

    def _set_ratio(self, plan: Plan) -> None:
        """J: what this step says about how long outputs become."""
        rule = self.limits.estimate
        if rule is None:
            return
        decoding = [each for each in self.running if each.decodes]
        if self.preempted:
            self.full = False
            produced = sum(each.generated_tokens + rule.spare_tokens for each in decoding)
            self.ratio = min(1.0, produced / (1 + sum(each.output_tokens for each in decoding)))
        elif plan and all(each.decodes for each, _ in plan):
            self.ratio = max(rule.least_ratio, self.ratio - rule.decay)

    def _leaves_room(self, request: OracleRequest, blocks: int) -> bool:
        """J: whether the blocks of a prompt leave room for what it and all others are expected to produce."""
        rule, page = self.limits.estimate, self.limits.block_size
        if rule is None or not self.running:
            return True
        decoding = [each for each in self.running if each.decodes]
        expected = sum(min(each.output_tokens - each.generated_tokens, rule.tokens) for each in decoding)
        charged = sum(page + min(each.output_tokens, rule.tokens) for each in self.running if not each.decodes)
        left, groups = (self.blocks_free() - blocks) * page, self.limits.full_groups
        if rule.ignores_eos:
            room = left >= groups * (self.ratio * expected + charged) and self._fits_until_each_ends(request, left)
        else:
            charged += page + min(request.output_tokens - request.generated_tokens, rule.tokens)
            room = left > groups * (self.ratio * expected + charged)
        if room:
            return True
        self.full = bool(decoding)
        return False

    def _fits_until_each_ends(self, request: OracleRequest, left: int) -> bool:
        """J: whether the free tokens suffice at each moment at which a request ends, the shortest first."""
        if self.limits.window:
            return True
        ends = sorted(
            (each.output_tokens - each.generated_tokens, each.known_tokens) for each in [*self.running, request]
        )
        freed = 0
        for position, (to_come, held) in enumerate(ends):
            going_on = len(ends) - position
            if left + self.limits.full_groups * (freed - to_come * going_on) <= self.limits.full_groups * going_on:
                return False
            freed += held
        return True

    def _left(self, plan: Plan) -> int:
        at_once = self.limits.num_scheduler_steps  # Y: one after the other, a token of each sequence
        return self.limits.max_num_batched_tokens - sum(new // at_once if each.decodes else new for each, new in plan)

    def _new_tokens(self, request: OracleRequest, computed: int, left: int) -> int:
        """Rule 7, L, S1: what a request computes next."""
        if request.decodes:
            return 1 + self.limits.draft_tokens
        lacking = request.known_tokens - computed
        cap = self.limits.long_prefill_tokens
        alone = len(self.running) + len(self.waiting) == 1
        if self.limits.chunked_prefill and cap > 0 and not alone:
            lacking = min(lacking, cap)
        return min(lacking, left)

    def _schedule_running(self, plan: Plan, candidates: list[OracleRequest]) -> bool:
        """Rules 7 and 8 for some of the running, in the order of admission. Return whether anybody was preempted."""
        preempted = False
        for request in candidates:
            if request not in self.running:
                continue  # a victim of one before it
            if self._left(plan) <= 0:
                break
            new = self._new_tokens(request, request.computed_tokens, self._left(plan))
            assert new <= self._left(plan), "drafts always fit into the budget"
            needed = self.blocks_for(request.computed_tokens + new)
            while request in self.running and needed - request.blocks > self.blocks_free():
                victim = self._victim()
                self._preempt(victim)
                plan[:] = [(each, tokens) for each, tokens in plan if each is not victim]
                preempted = True
            if request in self.running:
                self._schedule_one(plan, request, new, request.computed_tokens)
        return preempted

    def _schedule_one(self, plan: Plan, request: OracleRequest, new: int, registered: int) -> None:
        """Give blocks, and to a prompt the prefix blocks that it completes beyond those that are registered (P5)."""
        self._take(request, request.computed_tokens + new)
        if not request.decodes:
            self._register(request, registered, request.computed_tokens + new)
        plan.append((request, new))

    def _places(self) -> int:
        """S1: with drafts no more than the budget reaches."""
        drafts = self.limits.draft_tokens if self.limits.num_scheduler_steps == 1 else 0
        most = self.limits.max_num_batched_tokens // (1 + drafts) if drafts else self.limits.max_num_seqs
        return min(self.limits.max_num_seqs, most)

    def _admit(self, plan: Plan) -> None:
        """Rule 10, with M, B, W, O, G and P."""
        closed = self.blocks_free() < self.limits.least_free_blocks
        closed = closed or self.decode_steps - self.admitted_at < self.limits.prompt_interval
        if least := self.limits.least_waiting:
            few = self.looked and len(self.waiting) < least
            closed = closed or few or len(self.running) >= self._places()
        self.looked = not (closed and self.running)
        if closed and self.running:
            return
        while self.waiting and self._left(plan) > 0 and len(self.running) < self._places():
            request = self.waiting[0]
            cached, hit = 0, []
            if request.prefilled:
                cached = request.prompt_tokens
            elif self.limits.prefix_block_tokens:
                hit = self.prefix_blocks(request, request.known_tokens - 1)
                hit = hit[: self.cache.leading(hit)]
                cached = len(hit) * self.limits.prefix_block_tokens
            shared = sum(block in self.cache.holders for block in hit) * self.cache.blocks_per_prefix_block
            if self.full or not self._leaves_room(request, self.blocks_for(request.known_tokens) - shared):
                break
            new = self._new_tokens(request, cached, self._left(plan))
            if not self.limits.chunked_prefill and new < request.known_tokens - cached:
                break
            promised = sum(self.most_blocks(each) for each in [*self.running, request])
            if self.limits.admit_full_output and promised > self.limits.num_blocks:
                break
            must_fit = request.known_tokens if self.limits.full_prompt_must_fit else cached + new
            left_free = self.blocks_free() - self.blocks_for(must_fit) + shared
            if left_free < (self.limits.watermark_blocks if self.running else 0):
                break
            self.waiting.pop(0)
            self.admitted_at = self.decode_steps
            self._start(request, hit, cached)
            self._schedule_one(plan, request, new, 0 if request.prefilled else cached)  # P10
            request.prefilled = False

    def _start(self, request: OracleRequest, hit: list[int], cached: int) -> None:
        """P3, P9: an admitted request holds the blocks of what is cached already."""
        self.running.append(request)
        request.computed_tokens = cached
        request.blocks = len(hit) * self.cache.blocks_per_prefix_block
        if request.hit_tokens is None:
            request.hit_tokens = len(hit) * self.limits.prefix_block_tokens
        for block in hit:
            if self.cache.hold(block, request.index):
                self.loaded_tokens += self.limits.prefix_block_tokens

    def starts_batch_s(self) -> float:
        """D: when the head of the queue has waited long enough."""
        return self.waiting[0].arrival_s + self.limits.batch_wait_s

    def _schedule_static(self, now_s: float, more_to_come: bool) -> Plan:
        if self.running:
            return [(request, 1) for request in self.running]
        enough = len(self.waiting) >= min(self.limits.batch_size, self.limits.max_num_seqs)
        if not self.waiting or (more_to_come and not enough and now_s < self.starts_batch_s()):
            return []
        while self.waiting and len(self.running) < self.limits.max_num_seqs:
            needed = self.blocks_for(self.waiting[0].final_tokens)
            if needed > self.blocks_free():
                break
            request = self.waiting.pop(0)
            request.blocks = needed
            self.running.append(request)
        return [(request, request.prompt_tokens) for request in self.running]

    def _schedule_uncached(self) -> Plan:
        if not self.running and self.waiting:
            self.running.append(self.waiting.pop(0))
        return [(request, request.known_tokens) for request in self.running]

    def cached_tokens(self, plan: Plan) -> int:
        """The tokens in the cache when the step that was scheduled is over; no drafts, each block once."""
        if self.limits.policy == "uncached":
            return 0
        new_tokens = {request.index: 1 if request.decodes else new for request, new in plan}
        tokens = 0
        for request in self.running:
            grown = request.computed_tokens + new_tokens.get(request.index, 0)
            tokens += grown if request.finished_s is None else request.final_tokens
        again = sum(len(holders) - 1 for holders in self.cache.holders.values())
        return tokens - again * self.limits.prefix_block_tokens

    # ------------------------------------------------------------ its end

    def complete(self, plan: Plan, start_s: float, end_s: float) -> list[OracleRequest]:
        """Advance the scheduled requests, release what is over, and return those that finished."""
        self.decode_steps += any(request.decodes for request, _ in plan)
        self.decoded_alone = all(request.decodes for request, _ in plan)
        self.shown_s = max(self.shown_s, end_s) + self.limits.stream_s * len(plan)
        finished = []
        for request, new in plan:
            if request.scheduled_s is None:
                request.scheduled_s = start_s
            if request.finished_s is not None:
                request.computed_tokens += new
                continue  # padding of a static batch
            produced = self._advance(request, new)
            request.generated_tokens += produced
            if produced and request.first_token_s is None:
                request.first_token_s = self.shown_s
            if request.generated_tokens == request.output_tokens:
                request.finished_s = self.shown_s
                finished.append(request)
        self.running.sort(key=lambda each: not each.decodes)  # those that decode stand before the prompts (L)
        batch_goes_on = self.limits.policy == "static" and any(each.finished_s is None for each in self.running)
        for request in list(self.running):
            if request.finished_s is not None and not batch_goes_on:
                self.release(request)
        self.full = self.full and not finished
        if self.limits.estimate and not self.running and not self.waiting:
            self.full, self.ratio = False, self.limits.estimate.first_ratio
        return finished

    def _advance(self, request: OracleRequest, new: int) -> int:
        """Move the computed tokens on; return how many tokens were produced (rule 11, U, S2 to S4)."""
        if self.limits.policy == "uncached":
            return 1
        if not request.decodes:
            request.computed_tokens += new
            request.decodes = request.computed_tokens == request.known_tokens
            return int(request.decodes)
        request.decode_steps += 1
        if self.limits.num_scheduler_steps > 1:
            produced = self.limits.num_scheduler_steps
        elif self.limits.expected_acceptance:
            produced = expected(self.limits.acceptance, request.decode_steps)
        else:
            produced = sampled(self.limits.acceptance, request.number, request.computed_tokens)
        produced = min(produced, request.output_tokens - request.generated_tokens)
        request.computed_tokens += produced
        return produced


def run_oracle(jobs: Jobs, limits: OracleLimits, seconds: Seconds) -> OracleResult:
    """Simulate (arrival_s, prompt_tokens, output_tokens, ...) requests; `seconds` gets a step's (new, past) tokens."""
    everyone = [_new_request(index, OracleJob(*job)) for index, job in enumerate(jobs)]
    engine = _checked_engine(limits, everyone)
    accepted = [request for request in everyone if engine.can_ever_finish(request)]
    rejected = [request.index for request in everyone if request not in accepted]
    for number, request in enumerate(accepted):
        request.number = number
    coming, unsent = _arrivals(accepted, jobs, limits.concurrency)
    steps: list[OracleStep] = []
    clock_s = 0.0
    while coming or engine.requests_waiting() or engine.running:
        while coming and coming[0].arrival_s <= clock_s:
            engine.enqueue(coming[0], coming.pop(0).arrival_s)
        plan = engine.schedule(clock_s, more_to_come=bool(coming))
        if not plan:
            moments = [engine.starts_batch_s()] if engine.waiting else []
            clock_s = min(moments + [request.arrival_s for request in coming[:1]])
            continue
        step = begin_step(engine, plan, clock_s, seconds)
        steps.append(step)
        for newcomer in unsent[: len(engine.complete(plan, clock_s, step.end_s))]:
            _arrive(newcomer, engine.shown_s + limits.turnaround_s)
            coming.append(newcomer)
            unsent.remove(newcomer)
        clock_s = step.end_s
    return OracleResult(steps, everyone, rejected)


def begin_step(engine: OracleEngine, plan: Plan, start_s: float, seconds: Seconds) -> OracleStep:
    """The row of a step that was scheduled."""
    uncached = engine.limits.policy == "uncached"
    scheduled = tuple((request.index, new, 0 if uncached else request.computed_tokens) for request, new in plan)
    batch = OracleBatch((new, past) for _, new, past in scheduled)
    batch.decodes = tuple(request.decodes for request, _ in plan)
    batch.loaded_tokens = engine.loaded_tokens
    batch.window, batch.chunked = engine.limits.window, engine.limits.chunked
    if engine.limits.prompts_wait and not all(batch.decodes):
        engine.ahead_s = 0.0
    batch.at_once, batch.ahead_s = engine.limits.num_scheduler_steps, engine.ahead_s
    takes_s = seconds(batch)
    if engine.limits.launches_ahead:
        engine.ahead_s = min(takes_s, takes_s + engine.ahead_s - batch.launch_s)
    takes_s += 0.0 if engine.shown_s else engine.limits.first_call_s
    return OracleStep(
        start_s,
        start_s + takes_s,
        takes_s,
        scheduled,
        engine.blocks_held(),
        batch.decodes,
        batch.loaded_tokens,
        engine.cached_tokens(plan),
    )


def _new_request(index: int, job: OracleJob) -> OracleRequest:
    if job.prompt_tokens < 1 or job.output_tokens < 1:
        raise ValueError("a request has at least one prompt and one output token")
    return OracleRequest(index, job.prompt_tokens, job.output_tokens, job.priority, job.ids, job.prefilled)


def _checked_engine(limits: OracleLimits, requests: list[OracleRequest]) -> OracleEngine:
    """Refuse what is not defined together (docs/serving-rules.md, the head of "One engine")."""
    if limits.policy not in ("continuous", "static", "prompts-first", "uncached"):
        raise ValueError(f"unknown policy {limits.policy!r}")
    prefilled = any(request.prefilled for request in requests)
    more = limits.long_prefill_tokens or not limits.chunked_prefill or limits.admit_full_output
    more = more or limits.least_free_blocks or limits.watermark_blocks or limits.least_waiting or limits.prompt_interval
    more = more or limits.estimate or prefilled
    if limits.policy in ("static", "uncached") and (more or limits.prefix_block_tokens or limits.draft_tokens):
        raise ValueError(f"{limits.policy!r} goes with none of P, S, G, L, W, O, M, B, J")
    if limits.policy in ("static", "uncached") and (limits.async_scheduling or limits.scheduler_recv_interval > 1):
        raise ValueError(f"{limits.policy!r} goes with neither H nor V")
    if limits.window_groups and not limits.window:
        raise ValueError("windowed groups have a window")
    if limits.num_scheduler_steps > 1:
        if limits.policy != "prompts-first" or limits.chunked_prefill or limits.acceptance:
            raise ValueError("Y goes with whole prompts before decodes, and not with S")
        if limits.draft_tokens != limits.num_scheduler_steps - 1:
            raise ValueError("Y: a decode produces one token more than draft_tokens says")
    elif len(limits.acceptance) != limits.draft_tokens:
        raise ValueError("acceptance says one probability per draft token")
    if limits.prefix_block_tokens % limits.block_size:
        raise ValueError("a prefix block is whole blocks")
    return OracleEngine(limits)


def _arrive(request: OracleRequest, now_s: float) -> None:
    """G: the first token of a prefilled request was produced elsewhere."""
    request.arrival_s = now_s
    if request.prefilled:
        request.generated_tokens, request.first_token_s = 1, now_s


def _arrivals(
    accepted: list[OracleRequest], jobs: Jobs, concurrency: int
) -> tuple[list[OracleRequest], list[OracleRequest]]:
    """Those whose arrival is known, in the order of the queue, and those that wait for a completion to be sent."""
    if concurrency > 0:
        for request in accepted[:concurrency]:
            _arrive(request, 0.0)
        return accepted[:concurrency], accepted[concurrency:]
    for request in accepted:
        _arrive(request, jobs[request.index][0])
    return sorted(accepted, key=lambda request: (request.arrival_s, request.index)), []
