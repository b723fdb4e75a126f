"""The independent oracle of the scheduler and the event loop: slow, obvious, plain Python objects.

It shares no code with `simulator/`. The rules of the policy "continuous" are those of the vLLM V1 scheduler
(docs/vllm-rules.md says where each was read); what those rules or the task leave open is decided here:

Requests and cache
 1. A request of p prompt and n output tokens (p >= 1, n >= 1) computes p + n - 1 tokens: the last token is never fed
    back. It needs at most ceil((p + n - 1) / block_size) blocks, at one block per `block_size` tokens.
 2. It is rejected before the clock starts if that is more than `num_blocks`, or if p + n > `max_model_len` (if given).
    A rejected request takes no part: it has no times, and a closed loop counts the accepted requests only.
    `num_blocks` are the usable blocks (vLLM: num_gpu_blocks - 1, as one null block is set aside). No prefix caching.
Clock and arrivals
 3. Steps are back to back: while anything is running or waiting, a step starts where the last one ended, to the bit;
    end_s = start_s + seconds(step). Otherwise the clock jumps to the next arrival.
 4. A request is visible to a step if arrival_s <= start_s. Arrivals are queued by (arrival_s, index).
 5. Closed loop (concurrency k > 0): arrival_s is ignored; accepted requests 0..k-1 arrive at 0, one further request, in
    index order, arrives at the end of the step for each request that completes there; the next step sees it.
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
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Seconds = Callable[[list[tuple[int, int]]], float]


@dataclass(frozen=True)
class OracleLimits:
    max_num_seqs: int
    max_num_batched_tokens: int
    num_blocks: int
    block_size: int = 16
    policy: str = "continuous"
    concurrency: int = 0
    full_prompt_must_fit: bool = True
    max_model_len: int | None = None


@dataclass(frozen=True)
class OracleStep:
    start_s: float
    end_s: float
    scheduled: tuple[tuple[int, int, int], ...]  # (request index, new tokens, past tokens)
    blocks_held: int


@dataclass(eq=False)
class OracleRequest:
    """What became of one request; the times stay None if it was rejected. Identity is equality."""

    index: int
    prompt_tokens: int
    output_tokens: int
    arrival_s: float | None = None
    scheduled_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    preemptions: int = 0
    computed_tokens: int = 0
    generated_tokens: int = 0
    blocks: int = 0

    @property
    def known_tokens(self) -> int:
        return self.prompt_tokens + self.generated_tokens

    @property
    def final_tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens - 1


@dataclass(frozen=True)
class OracleResult:
    steps: list[OracleStep]
    requests: list[OracleRequest]
    rejected: list[int]


@dataclass
class _Engine:
    limits: OracleLimits
    waiting: list[OracleRequest] = field(default_factory=list)
    running: list[OracleRequest] = field(default_factory=list)

    def blocks_for(self, tokens: int) -> int:
        return (tokens + self.limits.block_size - 1) // self.limits.block_size

    def blocks_held(self) -> int:
        return sum(request.blocks for request in self.running)

    def blocks_free(self) -> int:
        return self.limits.num_blocks - self.blocks_held()

    def can_ever_finish(self, request: OracleRequest) -> bool:
        limit = self.limits.max_model_len
        too_long = limit is not None and request.prompt_tokens + request.output_tokens > limit
        return not too_long and self.blocks_for(request.final_tokens) <= self.limits.num_blocks

    def schedule(self) -> list[tuple[OracleRequest, int]]:
        if self.limits.policy == "static":
            return self._schedule_static()
        plan, preempted = self._schedule_running()
        if not preempted:
            self._admit(plan)
        return plan

    def _schedule_running(self) -> tuple[list[tuple[OracleRequest, int]], bool]:
        plan: list[tuple[OracleRequest, int]] = []
        budget = self.limits.max_num_batched_tokens
        preempted = False
        position = 0
        while position < len(self.running) and budget > 0:
            request = self.running[position]
            new = min(request.known_tokens - request.computed_tokens, budget)
            needed = self.blocks_for(request.computed_tokens + new)
            while request in self.running and needed - request.blocks > self.blocks_free():
                self._preempt(self.running[-1])
                preempted = True
            if request not in self.running:
                break
            request.blocks = needed
            plan.append((request, new))
            budget -= new
            position += 1
        return plan, preempted

    def _preempt(self, victim: OracleRequest) -> None:
        self.running.remove(victim)
        victim.blocks = 0
        victim.computed_tokens = 0
        victim.preemptions += 1
        self.waiting.insert(0, victim)

    def _admit(self, plan: list[tuple[OracleRequest, int]]) -> None:
        budget = self.limits.max_num_batched_tokens - sum(new for _, new in plan)
        while self.waiting and budget > 0 and len(self.running) < self.limits.max_num_seqs:
            request = self.waiting[0]
            new = min(request.known_tokens, budget)
            must_fit = request.known_tokens if self.limits.full_prompt_must_fit else new
            if self.blocks_for(must_fit) > self.blocks_free():
                break
            self.waiting.pop(0)
            self.running.append(request)
            request.blocks = self.blocks_for(new)
            plan.append((request, new))
            budget -= new

    def _schedule_static(self) -> list[tuple[OracleRequest, int]]:
        if self.running:
            return [(request, 1) for request in self.running]
        while self.waiting and len(self.running) < self.limits.max_num_seqs:
            needed = self.blocks_for(self.waiting[0].final_tokens)
            if needed > self.blocks_free():
                break
            request = self.waiting.pop(0)
            request.blocks = needed
            self.running.append(request)
        return [(request, request.prompt_tokens) for request in self.running]

    def complete(self, plan: list[tuple[OracleRequest, int]], start_s: float, end_s: float) -> int:
        """Advance the scheduled requests, release what is over, and return how many requests finished."""
        finished = 0
        for request, new in plan:
            if request.scheduled_s is None:
                request.scheduled_s = start_s
            request.computed_tokens += new
            if request.finished_s is not None:
                continue  # padding of a static batch
            if request.computed_tokens < request.known_tokens:
                continue
            request.generated_tokens += 1
            if request.first_token_s is None:
                request.first_token_s = end_s
            if request.generated_tokens == request.output_tokens:
                request.finished_s = end_s
                finished += 1
        batch_goes_on = any(request.finished_s is None for request in self.running)
        for request in list(self.running):
            if request.finished_s is not None and not (self.limits.policy == "static" and batch_goes_on):
                self.running.remove(request)
                request.blocks = 0
        return finished


def run_oracle(requests: Sequence[tuple[float, int, int]], limits: OracleLimits, seconds: Seconds) -> OracleResult:
    """Simulate (arrival_s, prompt_tokens, output_tokens) requests; `seconds` gets a step's (new, past) tokens."""
    if limits.policy not in ("continuous", "static"):
        raise ValueError(f"unknown policy {limits.policy!r}")
    everyone = [OracleRequest(index, prompt, output) for index, (_, prompt, output) in enumerate(requests)]
    if any(request.prompt_tokens < 1 or request.output_tokens < 1 for request in everyone):
        raise ValueError("a request has at least one prompt and one output token")
    engine = _Engine(limits)
    accepted = [request for request in everyone if engine.can_ever_finish(request)]
    rejected = [request.index for request in everyone if request not in accepted]
    coming, unsent = _arrivals(accepted, requests, limits.concurrency)
    steps: list[OracleStep] = []
    clock_s = 0.0
    while coming or engine.waiting or engine.running:
        if not engine.waiting and not engine.running:
            clock_s = max(clock_s, coming[0].arrival_s)
        while coming and coming[0].arrival_s <= clock_s:
            engine.waiting.append(coming.pop(0))
        plan = engine.schedule()
        assert plan, "an engine with work always has a step"
        scheduled = tuple((request.index, new, request.computed_tokens) for request, new in plan)
        end_s = clock_s + seconds([(new, past) for _, new, past in scheduled])
        steps.append(OracleStep(clock_s, end_s, scheduled, engine.blocks_held()))
        for newcomer in unsent[: engine.complete(plan, clock_s, end_s)]:
            newcomer.arrival_s = end_s
            engine.waiting.append(newcomer)
            unsent.remove(newcomer)
        clock_s = end_s
    return OracleResult(steps, everyone, rejected)


def _arrivals(
    accepted: list[OracleRequest], requests: Sequence[tuple[float, int, int]], concurrency: int
) -> tuple[list[OracleRequest], list[OracleRequest]]:
    """Those whose arrival is known, in the order of the queue, and those that wait for a completion to be sent."""
    if concurrency > 0:
        for request in accepted[:concurrency]:
            request.arrival_s = 0.0
        return accepted[:concurrency], accepted[concurrency:]
    for request in accepted:
        request.arrival_s = requests[request.index][0]
    return sorted(accepted, key=lambda request: (request.arrival_s, request.index)), []
