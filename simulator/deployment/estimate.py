"""Latency and throughput of one batch alone: prefill, then decode, op by op, beside the speed of light."""

from dataclasses import dataclass, replace
from functools import cached_property
from operator import add
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from simulator.arrays import Array, Floats
from simulator.deployment.batches import Batch, decode_counts, prefill_counts
from simulator.deployment.deployment import Deployment
from simulator.deployment.memory import MemoryPlan, memory_plan
from simulator.deployment.memory_advice import refuse_misfit
from simulator.deployment.pipeline_overlap import kernels_per_layer, overlapped_s
from simulator.errors import DoesNotFitError, InfercastError
from simulator.frames import Framed, frame
from simulator.models.operations import Counts
from simulator.roofline.op_time import OpTime, mostly_bound
from simulator.roofline.step_model import StepModel
from simulator.units import counted

if TYPE_CHECKING:
    import pandas as pd


class StepOp(NamedTuple):
    """Ops of one name in all layers: their number in a step, their time, their seconds at the speed of light."""

    repeats: int
    time: OpTime
    light_s: float

    def plus(self, other: "StepOp") -> "StepOp":
        """Return the sum of both, under this one's name."""
        return StepOp(self.repeats + other.repeats, self.time.map(add, other.time), self.light_s + other.light_s)

    @property
    def runner_up(self) -> str:
        """The resource (compute, memory or link) that would bind if the binding one took no time; "" for none."""
        others = {name: float(getattr(self.time, f"{name}_s")) for name in ("compute", "memory", "link")}
        others.pop(self.time.bound, None)
        name = max(others, key=lambda each: others[each])
        return name if others[name] > 0 else ""

    @property
    def margin(self) -> float | None:
        """Time of the binding resource over that of the runner-up; None where there is no runner-up."""
        if not self.runner_up:
            return None
        return float(getattr(self.time, f"{self.time.bound}_s")) / float(getattr(self.time, f"{self.runner_up}_s"))


def _overhead(name: str, seconds: float) -> StepOp:
    """Return a part of the host's time."""
    return StepOp(1, OpTime(name, overhead_s=seconds, seconds=seconds), 0.0)


def _shown(steps_s: Floats, stream_s: float) -> Floats:
    """Return the seconds between the tokens that clients see, of steps after a first token: docs/serving-rules.md, E.

    Steps longer than the front end streams one are seen as they end; it falls behind shorter ones.

    >>> _shown(np.array([3.0, 1.0, 1.0, 5.0]), 2.0).tolist()
    [3.0, 2.0, 2.0, 3.0]
    """
    if not stream_s or np.min(steps_s) >= stream_s:
        return steps_s
    streamed_s = stream_s * np.arange(len(steps_s) + 1)
    ends_s = np.concatenate([[0.0], np.cumsum(steps_s)])
    return np.diff(np.maximum.accumulate(ends_s - streamed_s) + streamed_s)


def _sum_over_steps(time: OpTime) -> OpTime:
    """Return the time of an op with each field summed over the steps of a phase."""
    return time.map(lambda field: float(np.sum(field) if isinstance(field, np.ndarray) else field))


@dataclass(frozen=True, slots=True)
class Phase:
    """Steps of a prefill, or one decode step: ops in the order of execution, each summed over the steps.

    A request's time outside the steps is a phase without steps.
    """

    steps: int
    ops: tuple[StepOp, ...]

    @property
    def seconds(self) -> float:
        """Predicted seconds of all steps."""
        return sum(float(op.time.seconds) for op in self.ops)

    @property
    def light_s(self) -> float:
        """Seconds of all steps at the speed of light: data-sheet peaks, no overhead."""
        return sum(op.light_s for op in self.ops)

    @property
    def binding(self) -> StepOp:
        """The op that takes longest."""
        return max(self.ops, key=lambda op: float(op.time.seconds))

    @property
    def mostly(self) -> tuple[str, float]:
        """The resource that binds most of the time (compute, memory, link or overhead), and its share."""
        return mostly_bound(op.time for op in self.ops)

    def share(self, op: StepOp) -> float:
        """Return an op's share of the phase's time."""
        return float(op.time.seconds) / self.seconds


class Latency(NamedTuple):
    """Seconds of a batch alone: TTFT of its last prompt, mean and median TPOT (None for one output token), E2EL."""

    ttft_s: float
    tpot_s: float | None
    median_tpot_s: float | None
    e2el_s: float


@dataclass(frozen=True, repr=False)
class Estimate(Framed):
    """Predicted latency and throughput of one batch that has a deployment to itself.

    With pp > 1 the batch passes through the stages one after the other while the others idle: a latency, no capacity.
    """

    deployment: Deployment
    batch: Batch
    plan: MemoryPlan

    @cached_property
    def models(self) -> tuple[StepModel, StepModel]:
        """The step model of the prediction, and the one at the speed of light."""
        return self.deployment.step_model(), self.deployment.at_light.step_model()

    @cached_property
    def request(self) -> Phase:
        """What a request of the batch takes outside the steps, part by part: those of no time are left out.

        The tokens of the batch's sequences are streamed one after the other, so the last prompt's waits for the others.
        """
        own = self.deployment.overheads.request_parts(self.batch.prompt_tokens)
        parts = {**own, "streaming": np.asarray(self.stream_s + self.deployment.message_s * self.batch.size)}
        return Phase(0, tuple(_overhead(name, float(each)) for name, each in parts.items() if each))

    @property
    def stream_s(self) -> float:
        """Seconds of the front end to stream a token of each sequence of the batch."""
        return self.deployment.stream_s * self.batch.size

    @cached_property
    def prefill(self) -> Phase:
        """The steps that compute the prompts."""
        return self._phase(*(self._prefill_counts(model, self._chunk_tokens) for model in self.models))

    def _prefill_counts(self, model: StepModel, budget: int) -> Counts:
        return prefill_counts(self._at(model), self.batch, past=self.batch.context_tokens, budget=budget)

    def _at(self, model: StepModel) -> Deployment:
        return self.deployment.at_light if model.light else self.deployment

    @property
    def _chunk_tokens(self) -> int:
        """Tokens of a prompt's chunks that overlap on devices with different layers (llama.cpp); 0: no overlap."""
        return self.deployment.engine.micro_batch_tokens if self.deployment.layout.pp > 1 else 0

    def _prefill_s(self, model: StepModel, phase_s: float) -> float:
        """Return the prefill's seconds: `phase_s`, the sum of its steps, or less where chunks overlap on devices."""
        stages, chunk = self.deployment.layout.pp, self._chunk_tokens
        if not chunk:
            return phase_s
        if model.light:
            return phase_s / stages
        counts = self._prefill_counts(model, chunk)
        steps_s = np.broadcast_to(model.seconds(counts), np.shape(counts.steps)).tolist()
        return overlapped_s(steps_s, len(self.deployment.model.layer_names), stages, kernels_per_layer(self.deployment))

    @cached_property
    def decode(self) -> Phase:
        """The decode step in the middle of the generation."""
        return self._phase(*(self._decode_counts(model, self.batch.middle_tokens) for model in self.models))

    def _decode_counts(self, model: StepModel, attended_tokens: Array) -> Counts:
        return decode_counts(self._at(model), self.batch, attended_tokens)

    def _phase(self, counts: Counts, light_counts: Counts) -> Phase:
        model, light_model = self.models
        light_s: dict[str, float] = {}  # kernels that quantise or sort are no ops at the speed of light
        for ideal in light_model.explain(light_counts):
            light_s[ideal.name] = light_s.get(ideal.name, 0.0) + float(np.sum(ideal.seconds))
        repeats = [*(op.repeats for op in (*model.ops, *model.draft_ops)), 1]  # the engine's host time is the last row
        merged: dict[str, StepOp] = {}
        for times, time in zip(repeats, model.explain(counts), strict=True):
            before = merged.get(time.name)
            op = StepOp(times, _sum_over_steps(time), light_s.pop(time.name, 0.0))
            merged[time.name] = before.plus(op) if before else op
        return Phase(np.size(counts.steps), tuple(op for op in merged.values() if op.time.seconds))

    @cached_property
    def expected(self) -> Latency:
        """The predicted latencies."""
        return self._latency(self.models[0], self.prefill_s + self.request.seconds + self.deployment.first_call_s)

    @cached_property
    def prefill_s(self) -> float:
        """Predicted seconds of the prefill: TTFT without the engine's time outside of steps."""
        return self._prefill_s(self.models[0], self.prefill.seconds)

    @cached_property
    def light(self) -> Latency:
        """The latencies at the speed of light: data-sheet peaks, no overhead."""
        return self._latency(self.models[1], self._prefill_s(self.models[1], self.prefill.light_s))

    def _latency(self, model: StepModel, ttft_s: float) -> Latency:
        """Return the latencies: TPOT is the mean over decode steps of seconds / expected tokens per step."""
        more = self.batch.output_tokens - 1
        if more == 0:
            return Latency(ttft_s, None, None, ttft_s)
        attended = self.batch.context_tokens + self.batch.prompt_tokens + np.arange(1.0, more + 1)
        each_s = np.broadcast_to(model.seconds(self._decode_counts(model, attended)), attended.shape)
        tokens, stream_s = self.deployment.tokens_per_step, 0.0 if model.light else self.stream_s
        steps_s = _shown(each_s / tokens, stream_s / tokens)
        decode_s = float(np.sum(steps_s))
        return Latency(ttft_s, decode_s / more, float(np.median(steps_s)), ttft_s + decode_s)

    def to_frame(self) -> "pd.DataFrame":
        """Return a table indexed by phase and op: runs, flops, bytes, seconds, light_s, share of the phase, bound."""
        rows = [
            {"phase": name, "op": op.time.name, "runs": op.repeats}
            | {"flops": op.time.flops, "bytes": op.time.moved_bytes, "seconds": op.time.seconds}
            | {"light_s": op.light_s, "share": phase.share(op), "bound": op.time.bound}
            for name, phase in (("request", self.request), ("prefill", self.prefill), ("decode", self.decode))
            for op in phase.ops
        ]
        return frame(rows, "phase", "op")

    @property
    def output_tokens_per_s(self) -> float:
        """Output tokens/s of the whole batch over its E2EL, prefill included."""
        return self.batch.size * self.batch.output_tokens / self.expected.e2el_s

    @property
    def tokens_per_s_user(self) -> float | None:
        """Output tokens/s of each sequence while it decodes, 1 / TPOT; None for one output token."""
        return 1 / self.expected.tpot_s if self.expected.tpot_s else None

    @property
    def speedup(self) -> float | None:
        """TPOT without speculation over TPOT with it: above 1 where drafting pays; None without TPOT or draft."""
        if not self.deployment.draft_tokens or self.expected.tpot_s is None:
            return None
        plain = replace(self.deployment, settings=replace(self.deployment.settings, speculation=None))
        without = replace(self, deployment=plain).expected.tpot_s
        return None if without is None else without / self.expected.tpot_s

    @property
    def cache_share(self) -> float | None:
        """Share of the KV-cache blocks that the batch holds at its end; None where the memory plan has no blocks."""
        if not self.plan.num_blocks:
            return None
        return self.batch.size * self.plan.blocks(self.batch.cached_tokens) / self.plan.num_blocks


def estimate(deployment: Deployment, batch: Batch, *, assume_fits: bool = False) -> Estimate:
    """Return the estimate of a batch that has a deployment to itself.

    Raises DoesNotFitError where the KV cache cannot hold the batch at once, InfercastError where it exceeds the limits
    of sequences, tokens or context. `assume_fits` checks nothing: the run was measured, whatever the memory plan says.

    >>> from simulator.deployment.deployment import deploy
    >>> found = estimate(deploy("llama-3.1-8b", "h100-sxm"), Batch(1, 1024, 128))
    >>> found.light.tpot_s < found.expected.tpot_s, found.decode.binding.runner_up
    (True, 'compute')
    """
    plan = memory_plan(deployment)
    if not assume_fits:
        refuse_misfit(plan)
        _refuse_too_large(plan, batch)
    return Estimate(deployment, batch, plan)


def _refuse_too_large(plan: MemoryPlan, batch: Batch) -> None:
    deployment, total = plan.deployment, batch.cached_tokens + 1
    given = f"{batch} on {deployment}"
    if total > plan.max_model_len:
        longer = f", or --max-model-len {total}" if total <= deployment.model.max_context_tokens else ""
        because = f"a sequence has {plan.max_model_len:,} tokens at most"
        raise InfercastError(given, because, f"Give shorter lengths{longer}")
    slots = deployment.engine.is_reserved and batch.size > plan.max_num_seqs  # as few as it was told to have
    fit = plan.sequences(batch.cached_tokens)
    if batch.size > fit and not slots:
        because = (
            f"the cache holds {fit:,} such sequences at most"
            if fit
            else (f"the cache holds one sequence of {plan.max_context_tokens:,} tokens at most")
        )
        remedy = f"Give --batch {fit} or less" if fit else "Give shorter lengths"
        raise DoesNotFitError(given, because, f"{remedy}, or more memory: `infercast memory` shows the plan")
    if batch.size > plan.max_num_seqs:
        because = f"{deployment.engine.id} runs {counted(plan.max_num_seqs, 'sequence')} at once at most"
        raise InfercastError(given, because, f"Give --max-num-seqs {batch.size}, or a smaller batch")
    _refuse_too_large_a_step(deployment, batch)


def _refuse_too_large_a_step(deployment: Deployment, batch: Batch) -> None:
    """Raise InfercastError where a step that cannot be split exceeds the token budget."""
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
