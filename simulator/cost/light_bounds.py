"""Bounds by the data sheet alone, before any deployment is built: seconds per request, TTFT and TPOT of a lone one."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulator.cost.bisection import bisect_first
from simulator.cost.lower_bounds import least_share
from simulator.hardware.hardware import Hardware
from simulator.models.layout import Layout
from simulator.models.model import Model
from simulator.models.number_formats import number_format
from simulator.models.operations import Counts, Op, Span, pairs
from simulator.reports.slo import Slo
from simulator.workloads.workload import Requests

ONE = Counts(steps=1.0, tokens=1.0)


@dataclass(frozen=True)
class Demand:
    """Requests and an SLO, as bounds need them: the mean request, and the prompt that too many exceed.

    Requests that share a prefix are counted without their prompts. `span`: of the model's local layers.
    """

    requests: Requests
    slo: Slo

    def mean(self, span: Span | None) -> Counts:
        """Return what a mean request makes engines compute, in tokens and pairs, without a share of any weights."""
        prompts = self.requests.prompt_tokens.astype(np.float64) * (not len(self.requests.prefixes))
        decodes = self.requests.output_tokens.astype(np.float64) - 1.0
        return Counts(
            tokens=float((prompts + decodes).mean()),
            logits=float(self.requests.output_tokens.mean()),
            decode_reads=float((decodes * (prompts + decodes / 2)).mean()),
            decode_reads_windowed=float(np.mean(pairs(decodes, prompts, span))),
            prefill_tokens=float(prompts.mean()),
            prefill_pairs=float(np.mean(pairs(prompts))),
            prefill_pairs_windowed=float(np.mean(pairs(prompts, 0, span))),
        )

    @cached_property
    def prompt_tokens(self) -> int:
        """Longest prompt with so many others at least as long that the SLO is broken where all of these are late.

        1 where requests share a prefix.
        """
        prompts, allowed = self.requests.prompt_tokens, 1 - self.slo.share
        lengths = np.unique(prompts)
        few = bisect_first(lambda at: least_share(prompts >= lengths[at]) <= allowed, 0, len(lengths))
        return 1 if len(self.requests.prefixes) else int(lengths[few - 1])

    @cached_property
    def decodes(self) -> bool:
        """Whether the SLO is broken where all requests that have a second token miss the bound on TPOT."""
        return least_share(self.requests.output_tokens > 1) > 1 - self.slo.share


@dataclass(frozen=True)
class LightBounds:
    """Least times of a model in some formats on devices at the peaks of their data sheets, whatever the layout.

    A layout of D devices divides FLOPs and bytes of an op by D at most: heads or embeddings that lie on each of them
    only add; pipeline stages come one after the other, so that a lone request gains nothing by them. `dtypes` of
    weights and KV cache.
    """

    model: Model
    dtypes: tuple[str, str]
    asked: Demand

    @cached_property
    def _layout(self) -> Layout:
        return Layout(weight_dtype=self.dtypes[0], cache_dtype=self.dtypes[1], model_dtype=self.model.dtype)

    @cached_property
    def _ops(self) -> list[tuple[Op, tuple[str, ...], float, float]]:
        """Ops with the types that multiply them, and FLOPs and cache bytes of a mean request."""
        mean = self.asked.mean(self.model.span)
        ops = self.model.ops(self._layout)
        return [
            (op, number_format(op.format).compute, float(mean.dot(op.flops)), float(mean.dot(op.cache_bytes)))
            for op in ops
        ]

    @cached_property
    def weight_bytes(self) -> float:
        """Bytes of all weights."""
        return float(self._layout.weight_bytes(self.model.weights(self._layout)))

    @property
    def has_experts(self) -> bool:
        """Whether tokens are routed to some of many experts."""
        return self.model.is_routed

    def device_s(self, hardware: Hardware) -> float:
        """Return the seconds of one device per request: of each op the longer of its FLOPs and its cache's bytes.

        Weights are left out, since batches share them.
        """
        return sum(
            op.repeats * max(flops / _peak(hardware, types), cache / float(hardware.memory_bytes_per_s))
            for op, types, flops, cache in self._ops
        )

    def ttft_s(self, hardware: Hardware, group: int) -> float:
        """Return the least TTFT in seconds on tp x dp = `group` devices: of each op the longer of FLOPs and weights."""
        tokens = float(self.asked.prompt_tokens)
        counts = Counts(
            steps=1.0,
            tokens=tokens,
            logits=1.0,
            prefill_tokens=tokens,
            prefill_pairs=pairs(tokens),
            prefill_pairs_windowed=pairs(tokens, 0, self.model.span),
        )
        return self._alone_s(hardware, counts) / group

    def tpot_s(self, hardware: Hardware, group: int) -> float:
        """Return the least TPOT in seconds on tp x dp = `group` devices without drafts: a step of one token."""
        return self._alone_s(hardware, ONE) / group

    def _alone_s(self, hardware: Hardware, counts: Counts) -> float:
        seconds = 0.0
        for op, types, _, _ in self._ops:
            weights = op.weight_bytes + (op.expert_bytes * float(op.experts.touched(1.0)) if op.experts else 0.0)
            compute_s = float(counts.dot(op.flops)) / _peak(hardware, types)
            seconds += op.repeats * max(compute_s, weights / float(hardware.memory_bytes_per_s))
        return seconds

    def misses(self, hardware: Hardware, group: int, draft_tokens: int) -> str:
        """Return the metric that too many requests miss at any rate; "" where they might keep the SLO."""
        slo, asked = self.asked.slo.bounds_s, self.asked
        if self.ttft_s(hardware, group) > min(slo.get("ttft", np.inf), slo.get("e2el", np.inf)):
            return "ttft"
        late = self.tpot_s(hardware, group) / (1 + draft_tokens) > slo.get("tpot", np.inf)
        return "tpot" if late and asked.decodes else ""


def _peak(hardware: Hardware, types: tuple[str, ...]) -> float:
    """Return the highest peak in FLOP/s of any type, infinity where the device has none of them."""
    peaks = {**hardware.vector_flops_per_s, **hardware.peak_flops_per_s}
    return max((float(peaks[each]) for each in types if each in peaks), default=np.inf)


def light_replicas(device_s: float, devices: int, rate_per_s: float) -> int:
    """Return how many replicas of so many devices a rate in requests/s needs at least, at `LightBounds.device_s`.

    >>> light_replicas(0.5, devices=2, rate_per_s=10.0)
    3
    """
    return max(1, int(np.ceil(rate_per_s * device_s / devices - 1e-9)))
