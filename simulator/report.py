"""From a run to numbers: latencies with confidence intervals, throughput, goodput, SLO attainment, what was used."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.simulate import Run
from simulator.slo import Slo

Floats = npt.NDArray[np.float64]
SECTIONS = 10  # consecutive parts of a run whose spread gives the confidence intervals
T_95 = 2.262  # Student's t, 9 degrees of freedom, two-sided 95 %
QUANTILES = {"median": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
MIN_TAIL = 4  # a section needs this many values beyond its quantile


@dataclass(frozen=True, slots=True)
class Statistic:
    """Mean, spread and quantiles of one metric in seconds, with half-widths of 95 % intervals (NaN: too few values)."""

    values: dict[str, float]
    half_widths: dict[str, float]
    std: float
    count: int

    def __getitem__(self, name: str) -> float:
        return self.values[name]


def statistic(values: Floats) -> Statistic:
    """Summarise values in order of arrival; neighbours depend on each other, so intervals come from sections.

    Half-width = t sqrt(s^2 / k) over k consecutive sections (method of batch means; Law, Simulation Modeling and
    Analysis, section 9.5.3).

    >>> statistic(np.arange(1000.0))["median"]
    499.5
    """
    measures: dict[str, Callable[[Floats], float]] = {"mean": lambda part: float(part.mean())}
    for name, share in QUANTILES.items():
        measures[name] = lambda part, share=share: float(np.quantile(part, share))  # type: ignore[misc]
    if not len(values):
        nothing = dict.fromkeys(measures, float("nan"))
        return Statistic(nothing, nothing, float("nan"), 0)
    return Statistic(
        {name: measure(values) for name, measure in measures.items()},
        {name: _half_width(values, measure, QUANTILES.get(name, 0.5)) for name, measure in measures.items()},
        float(values.std()),
        len(values),
    )


def _half_width(values: Floats, measure: Callable[[Floats], float], share: float) -> float:
    if len(values) * (1 - share) < SECTIONS * MIN_TAIL:
        return float("nan")
    parts = [measure(part) for part in np.array_split(values, SECTIONS)]
    spread = float(np.std(parts, ddof=1))
    return T_95 * spread / SECTIONS**0.5 if spread > 1e-9 * abs(parts[0]) else 0.0  # less is rounding


def warm_up(values: Floats) -> int:
    """Return how many values to drop before a steady state: MSER-5 (White, 1997) on the first half.

    The cut minimises the squared standard error of what is left, over means of 5.
    """
    means = values[: len(values) // 5 * 5].reshape(-1, 5).mean(axis=1)
    if len(means) < 4:
        return 0
    left = np.arange(len(means), 0, -1, dtype=np.float64)
    tail_mean = np.cumsum(means[::-1])[::-1] / left
    tail_square = np.cumsum((means**2)[::-1])[::-1] / left
    error = np.maximum(tail_square - tail_mean**2, 0.0) / left
    return 5 * int(np.argmin(error[: len(means) // 2]))


@dataclass(frozen=True)
class Report:
    """A run's numbers. The first `skipped` requests are left out of latencies and rates, and this is said.

    `request_s` is the engine's own time per request outside the steps; every latency from the arrival includes it.
    """

    run: Run
    slo: Slo
    skipped: int
    request_s: float = 0.0

    @cached_property
    def _kept(self) -> slice:
        return slice(self.skipped, None)

    @property
    def latencies_s(self) -> dict[str, Floats]:
        """One value per request: TTFT, TPOT = (E2EL - TTFT) / (n - 1), E2EL, queue time.

        A request of one output token has no TPOT: NaN.
        """
        run, kept = self.run, self._kept
        arrival = run.requests.arrival_s[kept]
        first, last, outputs = run.first_token_s[kept], run.finished_s[kept], run.requests.output_tokens[kept]
        gaps = np.where(outputs > 1, outputs - 1, 1)
        return {
            "ttft": first - arrival + self.request_s,
            "tpot": np.where(outputs > 1, (last - first) / gaps, np.nan),
            "e2el": last - arrival + self.request_s,
            "queue": run.scheduled_s[kept] - arrival,
        }

    @cached_property
    def metrics(self) -> dict[str, Statistic]:
        """Statistics of TTFT, TPOT, ITL, E2EL and queue time, in the order of vLLM's table."""
        latencies = self.latencies_s
        tpot = latencies["tpot"]
        found = {"ttft": statistic(latencies["ttft"]), "tpot": statistic(tpot[~np.isnan(tpot)])}
        found["itl"] = self._gaps()
        return found | {name: statistic(latencies[name]) for name in ("e2el", "queue")}

    def _gaps(self) -> Statistic:
        """Pool the gaps between tokens over requests: a step is one gap for each sequence that decodes in it.

        A gap that a preemption widened is counted at its mean per preempted request.
        """
        steps = self.run.steps[self.run.steps.start_s >= self.run.requests.arrival_s[self.skipped]]
        stalls = self.run.preemptions > 0
        gaps = np.concatenate([steps.seconds, self.run.stalled_s[stalls] / self.run.preemptions[stalls]])
        weights = np.concatenate([steps.decodes, self.run.preemptions[stalls]]).astype(np.float64)
        if not weights.sum():
            return statistic(np.empty(0))
        order = np.argsort(gaps, kind="stable")
        below = np.cumsum(weights[order])
        values = {"mean": float(np.average(gaps, weights=weights))}
        for name, share in QUANTILES.items():
            values[name] = float(gaps[order][np.searchsorted(below, share * below[-1])])
        spread = float(np.sqrt(np.average((gaps - values["mean"]) ** 2, weights=weights)))
        return Statistic(values, dict.fromkeys(values, float("nan")), spread, int(below[-1]))

    @cached_property
    def within(self) -> dict[str, float]:
        """Share of requests that keep each bound, and all of them ("all"); one-token requests keep any TPOT."""
        latencies = self.latencies_s
        kept = {name: ~(latencies[name] > bound_s) for name, bound_s in self.slo.bounds_s.items()}
        everyone = np.ones(len(latencies["ttft"]), bool)
        for each in kept.values():
            everyone &= each
        return {name: float(each.mean()) for name, each in kept.items()} | {"all": float(everyone.mean())}

    @property
    def meets_slo(self) -> bool:
        """Whether the demanded share of requests keeps every bound and no queue grows without end."""
        return self.within["all"] >= self.slo.share and not self.overloaded

    @property
    def duration_s(self) -> float:
        """From the first counted arrival to the end of the last step."""
        return self.run.end_s - float(self.run.requests.arrival_s[self.skipped])

    @property
    def billed_s(self) -> float:
        """The time that the counted requests stand for: of a stable open loop their n mean gaps, else the duration.

        The duration ends with the last answer, so it holds an idle tail that a service around the clock does not have.
        """
        arrival_s = self.run.requests.arrival_s[self._kept]
        span_s = float(arrival_s[-1] - arrival_s[0])
        if self.run.requests.concurrency or self.overloaded or not span_s:
            return self.duration_s
        return span_s * len(arrival_s) / (len(arrival_s) - 1)

    @property
    def completed(self) -> int:
        """Requests counted."""
        return len(self.run.requests) - self.skipped

    @property
    def input_tokens(self) -> int:
        """Prompt tokens of the counted requests."""
        return int(self.run.requests.prompt_tokens[self._kept].sum())

    @property
    def output_tokens(self) -> int:
        """Generated tokens of the counted requests."""
        return int(self.run.requests.output_tokens[self._kept].sum())

    @property
    def requests_per_s(self) -> float:
        """Completed requests over the duration."""
        return self.completed / self.duration_s

    @property
    def output_tokens_per_s(self) -> float:
        """Generated tokens over the duration."""
        return self.output_tokens / self.duration_s

    @property
    def total_tokens_per_s(self) -> float:
        """Prompt and generated tokens over the duration."""
        return (self.input_tokens + self.output_tokens) / self.duration_s

    @property
    def utilisation(self) -> float:
        """Share of the time in which a step ran."""
        return min(1.0, self.run.busy_s / self.run.end_s) if self.run.end_s else 0.0

    @property
    def prompt_share(self) -> float:
        """Share of the busy time that prompts took: what they added to steps of decodes alone."""
        return float(self.run.steps.prompt_s.sum()) / self.run.busy_s if self.run.busy_s else 0.0

    @property
    def cache_use(self) -> tuple[float, float]:
        """Mean (over time) and peak share of the cache blocks that were held."""
        steps = self.run.steps
        mean = float(np.average(steps.blocks, weights=steps.seconds)) if self.run.busy_s else 0.0
        return mean / self.run.limits.num_blocks, float(steps.blocks.max(initial=0)) / self.run.limits.num_blocks

    @property
    def mean_running(self) -> float:
        """Sequences in a step, averaged over busy time."""
        return float(np.average(self.run.steps.running, weights=self.run.steps.seconds)) if self.run.busy_s else 0.0

    @cached_property
    def queue_growth_per_s(self) -> float:
        """Requests per second by which the queue grew over the second half of the arrivals; 0 in a closed loop."""
        arrival_s, steps = self.run.requests.arrival_s, self.run.steps
        ends = arrival_s[[len(arrival_s) // 2, -1]]
        if self.run.requests.concurrency or ends[1] <= ends[0]:
            return 0.0
        at = np.minimum(np.searchsorted(steps.start_s, ends), len(steps) - 1)
        return float(steps.waiting[at[1]] - steps.waiting[at[0]]) / float(ends[1] - ends[0])

    @property
    def overloaded(self) -> bool:
        """Whether the queue grew by more than 2 % of the arrivals in their second half."""
        half = len(self.run.requests) - len(self.run.requests) // 2
        arrival_s = self.run.requests.arrival_s
        window_s = float(arrival_s[-1] - arrival_s[len(arrival_s) // 2])
        return self.queue_growth_per_s * window_s > max(0.02 * half, 10.0)

    def as_vllm(self) -> dict[str, Any]:
        """Return the keys of `vllm bench serve --save-result` (milliseconds) and, beside them, our own."""
        mean_use, peak_use = self.cache_use
        result: dict[str, Any] = {
            "duration": self.duration_s,
            "completed": self.completed,
            "failed": 0,
            "total_input_tokens": self.input_tokens,
            "total_output_tokens": self.output_tokens,
            "request_throughput": self.requests_per_s,
            "request_goodput": self.requests_per_s * self.within["all"] if self.slo.bounds_s else None,
            "output_throughput": self.output_tokens_per_s,
            "total_token_throughput": self.total_tokens_per_s,
            "max_concurrent_requests": int((self.run.steps.running + self.run.steps.waiting).max(initial=0)),
        }
        for name, stat in self.metrics.items():
            for measure, value in stat.values.items():
                result[f"{measure}_{name}_ms"] = _number(value * 1e3)
                result[f"{measure}_{name}_ms_half_width"] = _number(stat.half_widths[measure] * 1e3)
            result[f"std_{name}_ms"] = _number(stat.std * 1e3)
        return result | {
            "slo_attainment": self.within["all"] if self.slo.bounds_s else None,
            **{f"slo_attainment_{name}": self.within[name] for name in self.slo.bounds_s},
            "warm_up_requests": self.skipped,
            "overloaded": self.overloaded,
            "queue_growth_per_s": self.queue_growth_per_s,
            "mean_num_requests_running": self.mean_running,
            "mean_kv_cache_usage": mean_use,
            "peak_kv_cache_usage": peak_use,
            "num_preemptions": int(self.run.preemptions.sum()),
            "utilisation": self.utilisation,
            "prompt_share": self.prompt_share,
        }


def _number(value: float) -> float | None:
    """JSON has no NaN."""
    return None if np.isnan(value) else float(value)


def summarize(run: Run, slo: Slo | None = None, *, steady: bool = True, request_s: float = 0.0) -> Report:
    """Summarise a run; `steady` drops the warm-up of a process that has a steady state (a replayed trace has none)."""
    skipped = warm_up(run.finished_s - run.requests.arrival_s) if steady else 0
    return Report(run, slo or Slo(), skipped, request_s)
