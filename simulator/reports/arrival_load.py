"""The load of a run of arrivals, how often it fills the engine, and how long a run must be to tell its own error.

What is in a queue now depends on what was in it for about 1 / (1 - rho)^2 requests, where rho is the load. A run that
is not much longer may miss the rare long queues that make up its mean and its p95, and then shows no sign of it: no
estimate from its own latencies finds their error (docs/trust.md has the coverage of several). But its load is known
well, as it takes only the mean work per request. Source: W. Whitt, Planning queueing simulations, Management Science
35 (1989) 1341-1366: the length of a run for a given relative error grows as 1 / (1 - rho)^2.
"""

import math
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from simulator.arrays import Floats
from simulator.simulation.engine_loop import Run
from simulator.simulation.fleet_run import FleetRun

ENOUGH = 500  # times 1 / (1 - rho)^2: the shortest runs whose 95 % intervals contain the truth nine times in ten
QUEUES = 30  # of a full engine: so many that their own spread tells their error, nine times in ten
OFTEN = 0.01  # of the steps


class ArrivalLoad(NamedTuple):
    """Load of an engine, 1 saturates it; share of the requests that find it full; their wait, the mean over all.

    `least`: the load at least, by steps that were seen (`_least`).
    In M/M/1 the mean wait of n requests has the relative variance 4 / (n (1 - rho)^2) near saturation (Whitt, 1989), as
    of so many independent queues. Where only a share f of the requests find the engine full, queues are those of M/M/1
    but come f times as often: T = n f (1 - rho)^2 / 4 of them, each as long as it happens to be.
    """

    rho: float
    full_share: float
    wait_s: float
    least: float = 0.0

    @property
    def requests_needed(self) -> float:
        """How many requests a run needs for any confidence interval: ENOUGH / (1 - rho)^2.

        >>> round(ArrivalLoad(0.9, 0.9, 1.0).requests_needed)
        50000
        """
        return ENOUGH * self._span

    @property
    def requests_of_queues(self) -> float:
        """How many requests a run needs to see QUEUES of a full engine; infinity where it is never full.

        >>> round(ArrivalLoad(0.9, 0.1, 1.0).requests_of_queues)
        120000
        """
        return QUEUES * 4 * self._span / self.full_share if self.full_share else math.inf

    @property
    def full_wait_s(self) -> float:
        """Mean wait of a request that finds the engine full; no spread of waits alone is larger."""
        return self.wait_s / self.full_share if self.full_share else 0.0

    def queues(self, requests: float) -> float:
        """Return T, how many independent queues so many requests see, of those that all meet a full engine."""
        return requests / 4 / self._span

    @property
    def _span(self) -> float:
        return (1 - self.rho) ** -2 if self.rho < 1 else math.inf


class RunLength(NamedTuple):
    """A run of so many requests at a load: which confidence intervals it can state."""

    requests: int
    load: ArrivalLoad

    def is_enough(self) -> bool:
        """Tell whether it can state any."""
        return self.requests >= self.load.requests_needed

    def shows_mean(self, half_width_s: float) -> bool:
        """Tell whether it can state a half-width of a mean of which the waits for a full engine make up `wait_s`.

        It sees many queues, or the half-width is no narrower than theory's for few: 2 wait_s sqrt(2 / T).
        """
        queues = self.load.queues(self.requests * self.load.full_share)
        return not queues or queues >= QUEUES or half_width_s >= 2 * self.load.wait_s * math.sqrt(2 / queues)

    def shows_level(self, tail: float, half_width: float) -> bool:
        """Tell whether it can state a half-width of the share `tail` of the requests, those beyond a quantile.

        It cannot if that is below one standard error of the share that waits, or of `tail` if more wait. Twice as much
        would be asked for too often: where it reaches `tail` there is no half-width anyway.
        """
        waits = min(self.load.full_share, tail)
        queues = self.load.queues(self.requests * waits)
        return not queues or half_width >= waits * math.sqrt(2 / queues)


def rate_per_s(run: Run) -> float:
    """Return the requests/s that come and are not rejected: as asked, or those that came, over their time.

    Infinity where all came at once.
    """
    requests, count = run.requests, len(run.requests)
    if requests.asked_per_s:
        return requests.asked_per_s * count / (count + len(run.rejected))
    span_s = float(requests.arrival_s[-1] - requests.arrival_s[0])
    return count / span_s if span_s else math.inf


def arrival_loads(run: Run) -> dict[Literal["requests", "decoding"], ArrivalLoad]:
    """Return the loads of a run, of one engine of each pool, by what waits for it: new requests, or those to decode."""
    if not isinstance(run, FleetRun) or not run.prefill_replicas:
        return {"requests": arrival_load(run)}
    prefills = run.steps.replica < run.prefill_replicas
    first = replace(run, steps=run.steps[prefills], replicas=run.prefill_replicas)
    second = replace(run, steps=run.steps[~prefills], replicas=run.replicas - run.prefill_replicas)
    return {"requests": arrival_load(first), "decoding": arrival_load(second)}


def arrival_load(run: Run) -> ArrivalLoad:
    """Return the load of a run, of one of its engines.

    A step of d sequences that decode takes a + b d seconds without its prompts (least squares over the run's steps);
    prompts add what they add. A full engine decodes `_most_at_once` sequences. So n sequences are served at a rate of

        mu(n) = 1 / (seconds of prompts + decodes x (b + a / min(n, most)))        each per request

    and rho = rate of arrivals / mu(most). n is a birth-death process (Kleinrock, Queueing Systems, volume 1, section
    3.2): Erlang's formula C for servers that slow each other down. All is infinite where all requests came at once.

    Steps of more sequences than a short run had may grow by less than that line does: those of a mixture of experts
    read no expert twice. So `least` takes a full step to last no longer than the fullest that was seen.
    """
    count, come_per_s = len(run.requests), rate_per_s(run)
    if not math.isfinite(come_per_s):
        return ArrivalLoad(math.inf, 1.0, math.inf)
    prompt_s = float(run.steps.prompt_s.sum()) / count
    request_s, seen_s = np.full(1, prompt_s), 0.0
    steps = run.steps[run.steps.decodes > 0]
    if len(steps):
        decodes, alone_s = steps.decodes.astype(np.float64), steps.seconds - steps.prompt_s
        around = decodes - decodes.mean()
        each_s = max(0.0, _product(around, alone_s) / (_product(around, around) or 1.0))
        step_s = max(0.0, float(alone_s.mean() - each_s * decodes.mean()))
        most = _most_at_once(run)
        at_once = np.append(np.arange(1.0, math.ceil(most)), most)
        request_s = request_s + float(decodes.sum()) / count * (each_s + step_s / at_once)
        seen_s = float(decodes.sum()) / count * (each_s * min(most, decodes.max()) + step_s) / most
    engine_per_s = come_per_s / run.engines
    rho, least = engine_per_s * float(request_s[-1]), engine_per_s * _least_s(run, prompt_s, seen_s)
    if rho >= 1:
        return ArrivalLoad(rho, 1.0, math.inf, least)
    logs = np.cumsum(np.log(np.append(1.0, engine_per_s * request_s)))
    spread = max(1.0, _variance(run) / _birth_death(logs, rho).variance)
    found = _birth_death(logs / spread, rho ** (1 / spread))
    return ArrivalLoad(rho, found.full_share, found.waiting / engine_per_s, least)


def _least_s(run: Run, prompt_s: float, decode_s: float) -> float:
    """Return the mean seconds of prompt and decodes per request, less two standard errors; NaN of a single one.

    A request has its share of both by its tokens.
    """
    prompts, outputs = run.requests.prompt_tokens, run.requests.output_tokens
    each_s = prompt_s * prompts / prompts.mean() + decode_s * outputs / outputs.mean()
    return float(each_s.mean() - 2 * each_s.std(ddof=1) / math.sqrt(len(each_s))) if len(each_s) > 1 else math.nan


def _most_at_once(run: Run) -> float:
    """Return how many sequences decode in a step of a full engine, on average.

    It is full where requests wait and none can begin; in an engine that hardly ever is, only prompts of unusual length
    wait so. Else at most `max_num_seqs` decode, or as many as the KV cache holds.
    """
    steps = run.steps[run.steps.decodes > 0]
    full = steps.decodes[(steps.waiting > 0) & (steps.prompts == 0)]
    if len(full) >= OFTEN * len(steps):
        return float(full.mean())
    held = float((steps.blocks / steps.running).mean()) or 1.0
    return max(1.0, min(run.limits.max_num_seqs, run.limits.num_blocks / held))


def _variance(run: Run) -> float:
    """Return the variance over time of the sequences in an engine, those that wait included."""
    inside = (run.steps.running + run.steps.waiting).astype(np.float64)
    share = run.steps.seconds / run.end_s / run.engines
    return _product(inside**2, share) - _product(inside, share) ** 2


def _product(one: Floats, other: Floats) -> float:
    """Return the dot product of two columns of steps.

    Without BLAS, whose threads take longer to meet than to add, and whose last bit depends on their number.
    """
    return float((one * other).sum())


class _Number(NamedTuple):
    """Sequences in an engine: the chance that it is full, the mean of those beyond, the variance of all."""

    full_share: float
    waiting: float
    variance: float


def _birth_death(logs: Floats, ratio: float) -> _Number:
    """Return what the chances of 0 to most say, logarithms up to a constant; beyond, each is `ratio` of the one before.

    Where arrivals or work vary more than in M/M/n, in heavy traffic P(n)^(1 / z) takes the place of P(n), z being the
    ratio of the variances (diffusion approximation; Gelenbe, Journal of the ACM 22, 1975): logs / z, ratio^(1 / z).
    """
    weights, inside, most = np.exp(logs - logs.max()), np.arange(len(logs)), len(logs) - 1
    full, below = float(weights[-1]) / (1 - ratio), weights[:-1]
    beyond = full * ratio / (1 - ratio)
    total = float(below.sum()) + full
    mean = (float(below @ inside[:-1]) + most * full + beyond) / total
    beyond_square = most**2 * full + 2 * most * beyond + beyond * (1 + ratio) / (1 - ratio)
    square = (float(below @ inside[:-1] ** 2) + beyond_square) / total
    return _Number(full / total, beyond / total, square - mean**2)
