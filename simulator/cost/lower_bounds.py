"""Bounds that no simulation beats: engine seconds that requests take at least, and latencies of lone requests.

They rest on lower bounds of the step times that the simulation looks up (step_floor.py). A search leaves out what
they exclude (search.py).
"""

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.arrays import Bools, Floats
from simulator.cost.scenario import Scenario
from simulator.deployment.batches import attended
from simulator.models.operations import pairs
from simulator.reports.slo import Slo
from simulator.roofline.step_floor import Least, StepFloor
from simulator.scheduler.state import STATIC, UNCACHED, SchedulerLimits
from simulator.simulation.engine_workload import engine_workload
from simulator.simulation.rejection import Rejected, rejections
from simulator.simulation.scheduler_limits import limits, of_stage, stages
from simulator.simulation.step_seconds import slope
from simulator.workloads.workload import Requests, Workload

_RECENT_REQUESTS: deque[tuple[Workload, Requests]] = deque(maxlen=4)
PATIENCE = np.geomspace(0.01, 100.0, 25)  # multipliers of the bound on TPOT; any of them gives a bound on the rate


class Lines(NamedTuple):
    """Lines a + b T that lie nowhere above the seconds of a step of T tokens, with a, b >= 0; shapes (lines,).

    So `steps` steps of together `tokens` tokens take at least max(a steps + b tokens), however they are shared out.
    """

    start_s: Floats
    token_s: Floats

    def least_s(self, steps: npt.ArrayLike, tokens: npt.ArrayLike) -> Floats:
        """Return the least seconds of steps with so many tokens together, of the shape of both.

        >>> lines_below(Least(np.array([2.0, 3.0, 4.0, 7.0]), np.arange(4.0))).least_s([1, 2], [3, 4])
        array([5., 8.])
        """
        steps, tokens = np.asarray(steps, np.float64)[..., None], np.asarray(tokens, np.float64)[..., None]
        return np.asarray((self.start_s * steps + self.token_s * tokens).max(axis=-1))


def lines_below(least: Least, steepest: float = np.inf) -> Lines:
    """Return the lines below seconds of 0, 1, ... tokens, none steeper than `steepest` seconds per token.

    A line with b >= 0 that passes below the least seconds of a block at its largest size passes below all of it. What
    is left are the edges of the lower convex hull.
    """
    seconds, last = least
    hull: list[int] = []
    for at in range(len(seconds)):
        while len(hull) > 1 and _is_above(last, seconds, hull[-2], hull[-1], at):
            hull.pop()
        hull.append(at)
    slope = np.diff(seconds[hull]) / np.diff(last[hull])
    start = seconds[hull[1:]] - slope * last[hull[1:]]
    kept = (slope >= 0) & (start >= 0) & (slope <= steepest)
    return Lines(np.append(start[kept], max(0.0, float(seconds.min()))), np.append(slope[kept], 0.0))


def _is_above(x: Floats, y: Floats, first: int, middle: int, last: int) -> bool:
    """Whether the middle point lies on or above the line through the other two."""
    rise = (y[last] - y[first]) * (x[middle] - x[first])
    return bool((y[middle] - y[first]) * (x[last] - x[first]) >= rise)


REJECTED = "rejected"


@dataclass(frozen=True)
class LowerBounds:
    """Least times of a workload's requests on one replica, in any simulation with its step table, at any rate.

    **Proof.** A step of T new tokens and n logits takes token_s[T] + logit_s[n] + slopes . (what attention reads), or
    more (`step_seconds`). Over a run, the sums of T, n and the reads are at least those that its requests need, each
    computed once: a preemption adds to them. Attention is linear in its sums. What depends on T lies above the lines
    of `lines_below`, so S steps of X tokens take at least max over lines of (a S + b X), with a, b >= 0 rising in S and
    X. S is no less than (1) decoded tokens over the most that a step decodes, (2) the cache blocks that these hold,
    summed over the steps that they are in, over all blocks, (3) X over the most tokens of a step. A prompt alone takes
    ceil(p / C) steps or more before its first token, and a decode step of one sequence is a step of one token or more.

    Hence `busy_s` per request is work that arrives with each request: a rate above `most_per_s` brings more than one
    second of it per second and stage, and has no steady state, whatever a short simulation shows. Requests that find
    some of their prompt in a prefix cache are counted without it; drafts are counted as if all were accepted.
    """

    scenario: Scenario
    requests: Requests

    @cached_property
    def allowed(self) -> SchedulerLimits:
        """Limits of one engine of the replica. Raises as `limits` does, where a request cannot be served at all."""
        return of_stage(self._whole, self._stages)

    @cached_property
    def _whole(self) -> SchedulerLimits:
        return limits(self.scenario.deployment, self.requests, assume_fits=self.scenario.assume_fits)

    @cached_property
    def _stages(self) -> int:
        return stages(self.scenario.deployment, self._whole)

    @cached_property
    def _served(self) -> Bools:
        """Which requests the engine does not reject; those that it does take no step."""
        served = np.ones(len(self.requests), bool)
        served[Rejected.of(rejections(self.allowed, self.requests), len(self.requests)).rows] = False
        return served

    @cached_property
    def _prompts(self) -> Floats:
        """Prompt tokens that each request computes at least."""
        tokens = np.asarray(self.requests.prompt_tokens * self._served, np.float64)
        prefixes = self.requests.prefixes
        if not self.allowed.prefix_block_tokens:
            return tokens
        found = prefixes.count * float(self.allowed.prefix_block_tokens)
        return np.asarray(np.maximum(1.0 * self._served, tokens - found), np.float64)

    @cached_property
    def _decodes(self) -> Floats:
        """Decode steps of each request at least."""
        decodes = np.ceil((self.requests.output_tokens - 1) / (1.0 + self.allowed.draft_tokens))
        return np.asarray(decodes * self._served, np.float64)

    @cached_property
    def _reads(self) -> Floats:
        """Cached tokens that the decode steps of each request read at least: all have its prompt behind them."""
        cached = self.allowed.policy != UNCACHED
        return cached * self._decodes * (self.requests.prompt_tokens + (self._decodes + 1) / 2)

    @cached_property
    def _floor(self) -> StepFloor:
        return self.scenario.deployment.step_floor()

    @cached_property
    def _least(self) -> Least:
        """Least seconds of steps by their tokens, counted from 1, without what their logits take."""
        tokens, logits = self._floor.tokens, self._floor.logits
        return tokens._replace(seconds=np.maximum(tokens.seconds, self._floor.least_s - float(logits.seconds[-1])))

    @cached_property
    def _lines(self) -> Lines:
        return lines_below(self._least, self._slope_beyond("token_s"))

    def _slope_beyond(self, column: str) -> float:
        """Return the slope beyond a column of the step table; static batches go there, all others never do."""
        return slope(getattr(self.scenario.table, column)) if self.allowed.policy == STATIC else np.inf

    @cached_property
    def _logit_lines(self) -> Lines:
        return lines_below(self._floor.logits, self._slope_beyond("logit_s"))

    @property
    def _steps_s(self) -> Floats:
        """Least seconds of a step in each block of tokens."""
        return self._least.seconds + float(self._logit_lines.least_s(1.0, 0.0))

    @cached_property
    def _attention_s(self) -> tuple[Floats, Floats]:
        """Return the least seconds of attention of each request, shape (requests,): of its prompt, of its decoding.

        Drafts that are accepted may skip the end of any chunk.
        """
        slopes, span, prompts = self._floor.slopes, attended(self.scenario.deployment), self._prompts
        skips = span is not None and span.chunked and self.allowed.draft_tokens > 0
        local = 0.0 if skips else pairs(self._decodes, self.requests.prompt_tokens.astype(np.float64), span)
        of_prompt = slopes[2] * prompts + slopes[3] * pairs(prompts) + slopes[4] * pairs(prompts, 0, span)
        return of_prompt, slopes[0] * self._reads + slopes[1] * local

    @cached_property
    def _held_up_s(self) -> float:
        """Seconds at most by which tokens of others hold up a first token more than a last one, in the front end.

        **Proof.** It streams the k tokens of a step in k s. Let no step, over the stages, be shorter than that. Then
        what steps bring that begin in a time is streamed in it: no more waits than of one largest step per stage, which
        began before. A last token takes s. Where a step may be shorter, there is no bound.
        """
        allowed, stream_s = self.allowed, self.allowed.stream_s
        if not stream_s:
            return 0.0
        most = min(allowed.max_num_seqs, allowed.max_num_batched_tokens, len(self.requests))
        keeps_up = (self._steps_s >= self._stages * stream_s * np.minimum(self._least.last + 1, most)).all()
        return stream_s * (self._stages * most - 1) if keeps_up else np.inf

    @cached_property
    def _least_steps(self) -> dict[str, float]:
        """Least number of steps for all requests, by what limits the work of one: slots, the cache or its tokens."""
        allowed, decodes = self.allowed, float(self._decodes.sum())
        held = allowed.full_groups * float(self._reads.sum()) / allowed.block_size if not self._shares_blocks else 0.0
        whole = allowed.policy in (STATIC, UNCACHED)
        return {
            "slots": decodes / min(allowed.max_num_seqs, allowed.max_num_batched_tokens),
            "cache": held / allowed.num_blocks,
            "tokens": 0.0 if whole else self._tokens / allowed.max_num_batched_tokens,
        }

    def _busy_s(self, steps: float) -> float:
        """Return the seconds that all requests together take at least, in no fewer than so many steps."""
        return float(self._lines.least_s(steps, self._tokens - steps)) + self._beside_tokens_s(steps)

    def _beside_tokens_s(self, steps: float) -> float:
        """Return the least seconds of logits and attention of all requests, in no fewer than so many steps."""
        logits = (float(self._decodes.sum()) + int(self._served.sum())) / (1.0 + self.allowed.draft_tokens)
        return float(self._logit_lines.least_s(steps, logits) + sum(map(np.sum, self._attention_s)))

    @property
    def _tokens(self) -> float:
        """New tokens of all requests together, at least."""
        return float(self._decodes.sum() + self._prompts.sum())

    @cached_property
    def busy_s(self) -> float:
        """Seconds of steps that all requests together take at least."""
        return self._busy_s(max(self._least_steps.values()))

    def gain_without(self, limit: str) -> float:
        """Return by which factor `most_per_s` rises without a limit of the steps: "slots", "cache" or "tokens"."""
        return self.busy_s / self._busy_s(max(steps for name, steps in self._least_steps.items() if name != limit))

    @property
    def _shares_blocks(self) -> bool:
        """Whether a block may count for several requests, or for more tokens than it has."""
        return bool(self.allowed.prefix_block_tokens) or self.scenario.deployment.engine.is_reserved

    @property
    def most_per_s(self) -> float:
        """Highest rate of one replica that has a steady state, in requests/s: no more than this."""
        return len(self.requests) * self._stages / self.busy_s

    def most_within(self, slo: Slo) -> float:
        """Return the highest rate of one replica with a steady state that keeps the SLO, in requests/s: no more.

        **Proof.** Let f(T) be the least seconds of a step of T tokens, x_T the number of such steps. They have X tokens
        or more, so that for any a with a T <= f(T), sum x_T f(T) >= a X + sum x_T r_T with r_T = f(T) - a T >= 0.
        A step decodes min(T, s) sequences at most, of D, and reads min(T l, C) cached tokens at most, of R, in s slots
        and a cache of C tokens, by requests of l tokens or fewer. So sum x_T r_T is no less than D min r_T / min(T, s)
        and than R min r_T / min(T l, C). The N who keep a bound t on TPOT are in G decode steps or more, which last
        t' G = t G + N h at most, where a first token is held up by h: of each such step, for any m >= 0,
        r_T / min(T, s) + m (f(T) - t') sums up to no more than r_T, so that G times its least over T bounds it too. G
        is of those with the fewest decodes.
        """
        if self.allowed.policy in (STATIC, UNCACHED):
            return self.most_per_s
        seconds, tokens = self._least.seconds, self._least.last + 1
        paid = self._lines.token_s[:, None]  # a, of each line
        left = np.maximum(seconds - paid * tokens, 0.0)
        by_decode = left / np.minimum(tokens, min(self.allowed.max_num_seqs, self.allowed.max_num_batched_tokens))
        rest = float(self._decodes.sum()) * by_decode.min(axis=1)
        if self._least_steps["cache"]:
            held = self.allowed.num_blocks * self.allowed.block_size / self.allowed.full_groups
            reads = np.minimum(tokens * float(self.requests.max_total_tokens), held)
            rest = np.maximum(rest, float(self._reads.sum()) * (left / reads).min(axis=1))
        decodes = self._fewest_decodes(slo.share)
        if (bound_s := slo.bounds_s.get("tpot")) is not None and len(decodes) and np.isfinite(self._held_up_s):
            most_s = bound_s * (1 + self.allowed.draft_tokens) + self._held_up_s / decodes.mean()
            late_s = self._steps_s - most_s
            each_s = (by_decode + PATIENCE[:, None, None] * late_s).min(axis=2).max(axis=0)
            rest = np.maximum(rest, float(decodes.sum()) * each_s)
        token_s = float((paid[:, 0] * self._tokens + rest).max())
        busy_s = max(self.busy_s, token_s + self._beside_tokens_s(max(self._least_steps.values())))
        return len(self.requests) * self._stages / busy_s

    def _fewest_decodes(self, share: float) -> Floats:
        """Return the decode steps, one or more, of those in a share of all requests that have the fewest."""
        fewest = np.sort(self._decodes)[: int(share * len(self.requests))]
        return fewest[fewest > 0]

    @cached_property
    def latencies_s(self) -> dict[str, Floats]:
        """Least TTFT, TPOT and E2EL of each request in seconds, shape (requests,); one of one token has no TPOT: 0."""
        prompts, deployment = self._prompts, self.scenario.deployment
        of_prompt, of_decodes = self._attention_s
        steps = np.ceil(prompts / self.allowed.max_num_batched_tokens)
        if self.allowed.policy == STATIC:
            steps = np.ones_like(prompts)
        outside_s = deployment.request_s(self.requests.prompt_tokens)
        ttft = self._lines.least_s(steps, prompts - steps) + of_prompt
        one_s = self._decodes * self._lines.least_s(1.0, 0.0) + of_decodes
        seen_s = np.maximum(one_s - self._held_up_s, self.allowed.stream_s * self._decodes)
        gaps = np.maximum(self.requests.output_tokens - 1, 1)
        return {"ttft": ttft + outside_s, "tpot": seen_s / gaps, "e2el": ttft + one_s + outside_s}

    def misses(self, slo: Slo) -> str:
        """Return the metric that too many requests miss at any rate, REJECTED where too many are; "" for neither.

        Too many: more than 1 - share of all, or of those counted, whatever of the first half is left out as warm-up.
        """
        if self._served.mean() < slo.share:
            return REJECTED
        for name, bound_s in slo.bounds_s.items():
            late = self.latencies_s[name] > bound_s if name in self.latencies_s else np.zeros(len(self.requests), bool)
            if least_share(late) > 1 - slo.share:
                return name
        return ""


def least_share(late: Bools) -> float:
    """Return the least share of late requests among all but the first k, for any k up to half of them.

    >>> float(least_share(np.array([True, True, False, True])))
    0.5
    """
    left = np.cumsum(late[::-1])[::-1] / np.arange(len(late), 0, -1)
    return float(left[: len(late) // 2 + 1].min())


def lower_bounds(scenario: Scenario) -> LowerBounds:
    """Return the bounds of a scenario's workload on one replica.

    Raises DoesNotFitError and WorkloadError as a simulation does.
    """
    return LowerBounds(scenario, _drawn(engine_workload(scenario.workload, scenario.deployment)))


def _drawn(workload: Workload) -> Requests:
    """Return a workload's requests, drawn once for all candidates of a search, which share the object."""
    for known, requests in list(_RECENT_REQUESTS):  # a copy: other threads add to it
        if known is workload:
            return requests
    drawn = workload.requests()
    _RECENT_REQUESTS.append((workload, drawn))
    return drawn
