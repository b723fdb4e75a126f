"""The latency and throughput of one batch alone: prefill, then decode, op by op, beside the speed of light."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.deployment import Deployment
from simulator.errors import DoesNotFitError, InfercastError, WorkloadError
from simulator.memory import MemoryPlan, memory_plan, refuse_misfit
from simulator.roofline import Cost, StepModel, mostly_bound
from simulator.work import Array, Counts, pairs


@dataclass(frozen=True, slots=True)
class Batch:
    """`size` requests of one length that start together, in tokens."""

    size: int
    prompt_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        for name in ("size", "prompt_tokens", "output_tokens"):
            if getattr(self, name) < 1:
                given = f"{name.replace('_', ' ')} {getattr(self, name)}"
                raise WorkloadError(given, "a batch has at least one request and one token each way", "Give 1 or more")

    @property
    def cached_tokens(self) -> int:
        """Tokens of one request in the cache at its end: the last token is never fed back."""
        return self.prompt_tokens + self.output_tokens - 1

    @property
    def middle_tokens(self) -> int:
        """Tokens that the decode step in the middle of the generation attends to, per request."""
        return self.prompt_tokens + max(1, self.output_tokens // 2)

    def __str__(self) -> str:
        return f"batch {self.size} x ({self.prompt_tokens:,} in + {self.output_tokens:,} out)"


class OpCost(NamedTuple):
    """An op with its equals in other blocks: how often it runs, what it costs, and what it cannot beat."""

    repeats: int
    cost: Cost
    light_s: float

    def plus(self, other: "OpCost") -> "OpCost":
        """Return both together, under the name of this one."""
        fields = (first + second for first, second in zip(self.cost[1:], other.cost[1:], strict=True))
        return OpCost(self.repeats + other.repeats, Cost(self.cost.name, *fields), self.light_s + other.light_s)

    @property
    def runner_up(self) -> str:
        """The resource, compute, memory or link, that would bind if the binding one took no time; "" for none."""
        others = {name: float(getattr(self.cost, f"{name}_s")) for name in ("compute", "memory", "link")}
        others.pop(self.cost.bound, None)
        name = max(others, key=lambda each: others[each])
        return name if others[name] > 0 else ""

    @property
    def margin(self) -> float | None:
        """How many times the time of the runner-up the binding resource takes; None where it is the only one."""
        if not self.runner_up:
            return None
        return float(getattr(self.cost, f"{self.cost.bound}_s")) / float(getattr(self.cost, f"{self.runner_up}_s"))


def _summed(cost: Cost) -> Cost:
    """Add up the steps of a phase."""
    return Cost(cost.name, *(float(np.sum(field)) for field in cost[1:]))


@dataclass(frozen=True, slots=True)
class Phase:
    """Steps of one kind: their ops in the order of execution."""

    steps: int
    ops: tuple[OpCost, ...]

    @property
    def seconds(self) -> float:
        """Predicted seconds of all steps."""
        return sum(float(op.cost.seconds) for op in self.ops)

    @property
    def light_s(self) -> float:
        """Seconds of these ops at the data sheet's peaks, without overhead."""
        return sum(op.light_s for op in self.ops)

    @property
    def binding(self) -> OpCost:
        """The op that takes longest."""
        return max(self.ops, key=lambda op: float(op.cost.seconds))

    @property
    def mostly(self) -> tuple[str, float]:
        """The resource that binds the ops that take most of the time, and their share."""
        return mostly_bound(op.cost for op in self.ops)

    def share(self, op: OpCost) -> float:
        """Return the part of the phase that an op takes."""
        return float(op.cost.seconds) / self.seconds


class Latency(NamedTuple):
    """Times of a batch alone: its last first token, the mean step after it (None for one token), its end."""

    ttft_s: float
    tpot_s: float | None
    e2el_s: float


@dataclass(frozen=True)
class Estimate:
    """What one batch alone on a deployment comes to.

    With pp > 1 it passes through the stages one after the other, so the others idle: a latency, not a capacity.
    """

    deployment: Deployment
    batch: Batch
    plan: MemoryPlan

    @cached_property
    def models(self) -> tuple[StepModel, StepModel]:
        """What is expected of a step, and its speed of light."""
        return self.deployment.step_model(), self.deployment.step_model(light=True)

    @cached_property
    def prefill(self) -> Phase:
        """All steps that compute the prompts; TTFT is their sum and the engine's time per request."""
        return self._phase(prefill_counts(self.deployment, self.batch))

    @cached_property
    def decode(self) -> Phase:
        """The decode step in the middle of the generation."""
        return self._phase(decode_counts(self.deployment, self.batch, self.batch.middle_tokens))

    def _phase(self, counts: Counts) -> Phase:
        expected, light = (model.explain(counts) for model in self.models)
        model = self.models[0]
        repeats = [*(op.repeats for op in (*model.ops, *model.draft_ops)), 1]  # the engine's host time is the last row
        merged: dict[str, OpCost] = {}
        for times, cost, ideal in zip(repeats, expected, light, strict=True):
            op = OpCost(times, _summed(cost), float(np.sum(ideal.seconds)))
            before = merged.get(cost.name)
            merged[cost.name] = before.plus(op) if before else op
        return Phase(np.size(counts.steps), tuple(op for op in merged.values() if op.cost.seconds))

    @cached_property
    def expected(self) -> Latency:
        """What is predicted."""
        return self._latency(self.models[0], self.prefill.seconds + self.deployment.engine.overheads.request_s)

    @cached_property
    def light(self) -> Latency:
        """At the data sheet's peaks."""
        return self._latency(self.models[1], self.prefill.light_s)

    def _latency(self, model: StepModel, ttft_s: float) -> Latency:
        more = self.batch.output_tokens - 1
        if more == 0:
            return Latency(ttft_s, None, ttft_s)
        attended = self.batch.prompt_tokens + np.arange(1.0, more + 1)
        decode_s = float(np.sum(model.seconds(decode_counts(self.deployment, self.batch, attended))))
        decode_s /= self.deployment.tokens_per_step
        return Latency(ttft_s, decode_s / more, ttft_s + decode_s)

    @property
    def output_tokens_per_s(self) -> float:
        """Output tokens of the whole batch over its whole time, prefill included."""
        return self.batch.size * self.batch.output_tokens / self.expected.e2el_s

    @property
    def tokens_per_s_user(self) -> float | None:
        """Tokens per second that each user sees while decoding, 1 / TPOT."""
        return 1 / self.expected.tpot_s if self.expected.tpot_s else None

    @property
    def speedup(self) -> float | None:
        """Time per output token without drafts over that with them: above 1 where drafting pays; None without any."""
        if not self.deployment.draft_tokens or self.expected.tpot_s is None:
            return None
        plain = replace(self.deployment, settings=replace(self.deployment.settings, speculation=None))
        without = replace(self, deployment=plain).expected.tpot_s
        return None if without is None else without / self.expected.tpot_s

    @property
    def cache_share(self) -> float:
        """Share of the cache that the batch holds at its end."""
        return self.batch.size * self.plan.blocks(self.batch.cached_tokens) / self.plan.num_blocks


def estimate(deployment: Deployment, batch: Batch) -> Estimate:
    """Return the estimate of a batch alone; DoesNotFitError where the deployment cannot hold it at once."""
    plan = memory_plan(deployment)
    refuse_misfit(plan)
    _refuse_too_large(plan, batch)
    return Estimate(deployment, batch, plan)


def _refuse_too_large(plan: MemoryPlan, batch: Batch) -> None:
    deployment, total = plan.deployment, batch.prompt_tokens + batch.output_tokens
    given = f"{batch} on {deployment}"
    if total > plan.context_tokens:
        raise InfercastError(given, f"a sequence has {plan.context_tokens:,} tokens at most", "Give shorter lengths")
    fit = plan.num_blocks // plan.blocks(batch.cached_tokens)
    if batch.size > fit:
        because = (
            f"the cache holds {fit:,} such sequences at most"
            if fit
            else (f"the cache holds one sequence of {plan.max_context_tokens:,} tokens at most")
        )
        remedy = f"Give --batch {fit} or less" if fit else "Give shorter lengths"
        raise DoesNotFitError(given, because, f"{remedy}, or more memory: `infercast memory` shows the plan")
    if batch.size > plan.max_num_seqs:
        because = f"{deployment.engine.id} runs {plan.max_num_seqs} sequences at once at most"
        raise InfercastError(given, because, f"Give --max-num-seqs {batch.size}, or a smaller batch")
    _refuse_too_large_a_step(deployment, batch)


def _refuse_too_large_a_step(deployment: Deployment, batch: Batch) -> None:
    """Refuse what does not fit into the token budget of a step where it cannot be split."""
    policy, budget = deployment.engine.policy, deployment.max_num_batched_tokens
    needed, because = 0, ""
    if policy == "static":
        needed, because = batch.size * batch.prompt_tokens, "static batching computes all prompts in one step"
    elif policy == "uncached":
        needed, because = batch.cached_tokens, "without a cache every step computes all tokens of a sequence"
    elif not deployment.engine.chunked_prefill:
        needed, because = batch.prompt_tokens, "without chunked prefill a step computes whole prompts"
    if needed > budget:
        remedy = f"Give --max-num-batched-tokens {needed}, or a smaller batch"
        raise InfercastError(f"{batch} on {deployment}", f"{because}, of {budget:,} tokens", remedy)
    verified = batch.size * (1 + deployment.draft_tokens)
    if deployment.draft_tokens and verified > budget:
        because = f"a step verifies {verified:,} tokens, and takes {budget:,}"
        raise InfercastError(f"{batch} on {deployment}", because, f"Give --max-num-batched-tokens {verified}")


def decode_counts(deployment: Deployment, batch: Batch, attended_tokens: Array) -> Counts:
    """Count a decode step in which each request attends to so many tokens, its new one included; arrays are steps.

    With speculation a request computes its drafts too; without a cache it computes all its tokens anew.
    """
    window, each = deployment.model.window, 1 + deployment.draft_tokens
    if deployment.engine.policy == "uncached":
        return _uncached_counts(batch, np.asarray(attended_tokens), window)
    read = attended_tokens + deployment.draft_tokens
    seen = np.minimum(attended_tokens, window) + deployment.draft_tokens if window else read
    return Counts(
        steps=np.ones_like(attended_tokens, dtype=np.float64),
        tokens=float(batch.size * each),
        logits=float(batch.size * each),
        decode_reads=batch.size * read,
        decode_reads_windowed=batch.size * seen,
    )


def _uncached_counts(batch: Batch, tokens: npt.NDArray[np.float64], window: int | None) -> Counts:
    seen = np.minimum(tokens, window or tokens)
    return Counts(
        steps=np.ones_like(tokens, dtype=np.float64),
        tokens=batch.size * tokens,
        logits=float(batch.size),
        prefill_tokens=batch.size * tokens,
        prefill_pairs=batch.size * tokens * (tokens + 1) / 2,
        prefill_pairs_windowed=batch.size * (seen * (seen + 1) / 2 + (tokens - seen) * seen),
    )


def prefill_counts(deployment: Deployment, batch: Batch) -> Counts:
    """Count the steps that compute the prompts one after the other, each step full but the last.

    A static batch computes them in one step; without chunked prefill no prompt is cut.
    """
    prompts = batch.size * batch.prompt_tokens
    budget = prompts if deployment.engine.policy == "static" else deployment.max_num_batched_tokens
    if not deployment.engine.chunked_prefill and budget < prompts:
        budget = budget // batch.prompt_tokens * batch.prompt_tokens
    ends = [*range(budget, prompts, budget), prompts]
    bounds, each = [0, *ends], batch.prompt_tokens
    past = [_pairs_before(bound, each, None) for bound in bounds]
    windowed = [_pairs_before(bound, each, deployment.model.window) for bound in bounds]
    tokens = np.diff(bounds).astype(np.float64)
    sequences = [-(-end // each) - start // each for start, end in pairwise(bounds)]
    return Counts(
        steps=np.ones_like(tokens),
        tokens=tokens,
        logits=np.array(sequences, dtype=np.float64),
        prefill_tokens=tokens,
        prefill_pairs=np.diff(past).astype(np.float64),
        prefill_pairs_windowed=np.diff(windowed).astype(np.float64),
    )


def _pairs_before(token: int, prompt_tokens: int, window: int | None) -> int:
    """Count the query-key pairs of the first so many tokens of prompts laid end to end."""
    whole, rest = divmod(token, prompt_tokens)
    return whole * pairs(prompt_tokens, 0, window) + pairs(rest, 0, window)
