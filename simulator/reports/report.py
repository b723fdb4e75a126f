"""From a run to numbers: latencies with confidence intervals, throughput, goodput, SLO attainment, what was used."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from simulator.arrays import Floats, Ints
from simulator.frames import Framed, frame
from simulator.reports.arrival_load import RunLength, arrival_loads, rate_per_s
from simulator.reports.batch_means import Statistic, mean_of, statistic, warm_up
from simulator.reports.overload import Overload, overload
from simulator.reports.queue_growth import Queue
from simulator.reports.slo import Slo
from simulator.reports.token_gaps import pooled_gaps
from simulator.simulation.engine_loop import Run

if TYPE_CHECKING:
    import pandas as pd


def latencies_s(arrival_s: Floats, first_s: Floats, last_s: Floats, outputs: Ints) -> dict[str, Floats]:
    """Return TTFT, TPOT = (E2EL - TTFT) / (n - 1) and E2EL of requests; one of a single token has no TPOT: NaN.

    >>> latencies_s(np.array([1.0]), np.array([1.5]), np.array([2.5]), np.array([11]))["tpot"]
    array([0.1])
    """
    gaps = np.where(outputs > 1, outputs - 1, 1)
    tpot = np.where(outputs > 1, (last_s - first_s) / gaps, np.nan)
    return {"ttft": first_s - arrival_s, "tpot": tpot, "e2el": last_s - arrival_s}


@dataclass(frozen=True, repr=False)
class Report(Framed):
    """A run's numbers. The first `skipped` requests are left out of latencies and rates, and this is said.

    `request_s` is the engine's own time outside the steps, for any request or for each, `network_s` the round trip;
    every latency from the sending includes both. `steady`: the users go on like this; a replayed trace has an end.
    """

    run: Run
    slo: Slo
    skipped: int
    request_s: Floats | float
    network_s: float
    steady: bool
    draws: tuple["Report", ...] = ()  # the same load drawn anew: figures are means over this one and them
    replicas: int = 1  # alike, that share the load: throughputs and the queue are of all of them
    is_limited: bool = False  # a run at the highest rate that keeps the SLO
    of_asked: float = 1.0  # the rate over the asked one, where a run under limits takes the highest that keeps them

    @cached_property
    def _kept(self) -> slice:
        return slice(self.skipped, None)

    @property
    def latencies_s(self) -> dict[str, Floats]:
        """One value per request: TTFT, TPOT, E2EL as users see them, queue time."""
        run, kept = self.run, self._kept
        arrival_s, outputs = run.requests.arrival_s[kept], run.requests.output_tokens[kept]
        found = latencies_s(arrival_s, run.first_token_s[kept], run.finished_s[kept], outputs)
        for name in ("ttft", "e2el"):
            found[name] += np.broadcast_to(self.request_s, len(run.requests))[kept] + self.network_s
        return found | {"queue": run.scheduled_s[kept] - arrival_s}

    @cached_property
    def metrics(self) -> dict[str, Statistic]:
        """Statistics of TTFT, TPOT, ITL, E2EL and queue time, in the order of vLLM's table; means over all draws."""
        own = self._own_metrics()
        if not self.draws:
            return own
        return {name: mean_of([own[name], *(each.metrics[name] for each in self.draws)]) for name in own}

    def _own_metrics(self) -> dict[str, Statistic]:
        latencies = self.latencies_s
        tpot = latencies["tpot"]
        found = {"ttft": self._statistic(latencies["ttft"])}
        found["tpot"] = statistic(tpot[~np.isnan(tpot)], partial(getattr, self, "_length_of_tpot"))
        found["itl"] = pooled_gaps(self.run, float(self.run.requests.arrival_s[self.skipped]))
        return found | {name: self._statistic(latencies[name]) for name in ("e2el", "queue")}

    def _statistic(self, values: Floats) -> Statistic:
        return statistic(values, partial(getattr, self, "length"))

    @cached_property
    def length(self) -> RunLength | None:
        """What confidence intervals of the run are worth; None of a closed loop: its queue cannot grow."""
        if self.run.requests.concurrency:
            return None
        return RunLength(self.completed, max(arrival_loads(self.run).values(), key=lambda load: load.rho))

    @property
    def _length_of_tpot(self) -> RunLength | None:
        """The same, of a latency without waits."""
        return self.length and RunLength(self.completed, self.length.load._replace(full_share=0.0, wait_s=0.0))

    @cached_property
    def within(self) -> dict[str, float]:
        """Share of requests that keep each bound, and all of them ("all").

        One-token requests keep any TPOT, rejected ones no bound.
        """
        found = [self._own_within(), *(each.within for each in self.draws)]
        return {name: float(np.mean([each[name] for each in found])) for name in found[0]}

    def _own_within(self) -> dict[str, float]:
        latencies = self.latencies_s
        kept = {name: ~(latencies[name] > bound_s) for name, bound_s in self.slo.bounds_s.items()}
        everyone = np.ones(len(latencies["ttft"]), bool)
        for each in kept.values():
            everyone &= each
        share = len(self.run.requests) / self.sent
        return {name: share * float(each.mean()) for name, each in {**kept, "all": everyone}.items()}

    @property
    def worst_bound(self) -> str:
        """The metric whose bound most requests miss; "" where a queue grows without end, or nothing is bound.

        Of bounds that equally many miss, all or none, the one whose tail is the most times its bound.
        """
        latencies = self.latencies_s
        bounds_s = {name: bound for name, bound in self.slo.bounds_s.items() if not np.isnan(latencies[name]).all()}
        if self.overload or not bounds_s:
            return ""
        times = {name: np.nanquantile(latencies[name], self.slo.share) / bound for name, bound in bounds_s.items()}
        return min(times, key=lambda name: (self.within[name], -times[name]))

    @property
    def meets_slo(self) -> bool:
        """Whether the demanded share of requests keeps every bound and nothing queues for ever, in a longer run too."""
        return self.within["all"] >= self.slo.share and self.overload is None

    @property
    def _came_s(self) -> float:
        """Seconds in which the counted requests came; the last stands for a gap, too. 0 where all came at once."""
        arrival_s = self.run.requests.arrival_s[self._kept]
        gaps = max(1, len(arrival_s) - 1)
        return float(arrival_s[-1] - arrival_s[0]) * len(arrival_s) / gaps

    @property
    def is_as_offered(self) -> bool:
        """Whether throughput is the rate at which the counted requests came: of an open loop that goes on and keeps up.

        So it is where the engines serve that rate: a few arrivals may have a higher one than was asked.
        """
        if not (self.steady and self.is_settled and self.length):
            return False
        return self.length.load.rho * self.completed < rate_per_s(self.run) * self._came_s

    @property
    def duration_s(self) -> float:
        """From the first counted arrival to the end of the last step, or until users have all that it made.

        Of a load that is served as it comes (`is_as_offered`), as long as requests arrive: how long the last of them
        take is not its rate.
        """
        if self.is_as_offered:
            return self._came_s
        return self.run.seen_s - float(self.run.requests.arrival_s[self.skipped])

    @property
    def completed(self) -> int:
        """Requests counted."""
        return len(self.run.requests) - self.skipped

    @property
    def sent(self) -> int:
        """Requests that were sent: those that the engine rejected, and the first ones that are not counted, too."""
        return len(self.run.requests) + len(self.run.rejected)

    @property
    def rejected_share(self) -> float:
        """Share of the requests that the engine rejected, 0 to 1; the mean over all draws."""
        return float(np.mean([len(each.run.rejected) / each.sent for each in (self, *self.draws)]))

    @property
    def goodput_per_s(self) -> float:
        """Requests/s that keep every bound of the SLO, of those sent."""
        return self.requests_per_s / (1 - self.rejected_share) * self.within["all"]

    @property
    def input_tokens(self) -> int:
        """Prompt tokens of the counted requests."""
        return int(self.run.requests.prompt_tokens[self._kept].sum())

    @property
    def output_tokens(self) -> int:
        """Generated tokens of the counted requests."""
        return int(self.run.requests.output_tokens[self._kept].sum())

    def _mean(self, value: Callable[["Report"], float]) -> float:
        return self.replicas * float(np.mean([value(each) for each in (self, *self.draws)]))

    @property
    def requests_per_s(self) -> float:
        """Completed requests over the duration."""
        return self._mean(lambda each: each.completed / each.duration_s)

    @property
    def output_tokens_per_s(self) -> float:
        """Generated tokens over the duration."""
        return self._mean(lambda each: each.output_tokens / each.duration_s)

    @property
    def total_tokens_per_s(self) -> float:
        """Prompt and generated tokens over the duration."""
        return self._mean(lambda each: (each.input_tokens + each.output_tokens) / each.duration_s)

    @property
    def utilisation(self) -> float:
        """Share of the time in which a step ran."""
        return min(1.0, self.run.busy_s / (self.run.end_s * self.run.engines)) if self.run.end_s else 0.0

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
    def cache_waste(self) -> float | None:
        """Share of the held cache, over busy time, without a token in it; None where layers with a window hold less."""
        steps, limits = self.run.steps, self.run.limits
        held = float((steps.blocks * steps.seconds).sum()) * limits.block_size
        if limits.window_groups or not held:
            return None
        return 1 - limits.full_groups * float((steps.cached_tokens * steps.seconds).sum()) / held

    @property
    def prefix_hit_rate(self) -> float:
        """Share of the counted prompts' tokens that were in the prefix cache."""
        return float(self.run.hit_tokens[self._kept].sum()) / self.input_tokens

    @property
    def mean_running(self) -> float:
        """Sequences that run at once in a replica, in all stages of its pipeline, averaged over busy time."""
        return self.run.at_once(self.run.steps.running)[0]

    @property
    def mean_step_running(self) -> float:
        """Sequences in a step, averaged over busy time: of a pipeline those of one of its batches."""
        return float(np.average(self.run.steps.running, weights=self.run.steps.seconds)) if self.run.busy_s else 0.0

    @cached_property
    def queue_growth_per_s(self) -> float:
        """Requests/s by which the queues of all replicas grew over the second half of the arrivals; 0 in a closed loop.

        Of an overload what it grows by without end. Where the arrivals of an overloaded run were drawn at a rate: that
        rate less what is served, since a few draws have another rate.
        """
        found, asked_per_s = self.overload, self.run.requests.asked_per_s
        if found and found.is_seen and found.queueing == "requests" and asked_per_s:
            return max(0.0, self.replicas * asked_per_s * (1 - self.rejected_share) - self.requests_per_s)
        return self.replicas * (found.growth_per_s if found else Queue(self.run).growth_per_s)

    @cached_property
    def overload(self) -> Overload | None:
        """What queues for ever, in this run or in a longer one; None where the engines keep up."""
        return overload([each.run for each in (self, *self.draws)])

    @property
    def overloaded(self) -> bool:
        """Whether a queue grows without end in this run."""
        return self.overload is not None and self.overload.is_seen

    @cached_property
    def is_settled(self) -> bool:
        """Whether requests are served as they come: an open loop that keeps up, half of it served while others came.

        What is left at the end of a shorter run is most of it: its arrivals are no measure of what was served.
        """
        if self.run.requests.concurrency or self.overload:
            return False
        return float(np.median(self.run.finished_s)) <= float(self.run.requests.arrival_s[-1])

    @property
    def endless(self) -> tuple[str, ...]:
        """Names of the latencies that depend on how long one looks: they have no mean and no percentiles."""
        return self.overload.growing if self.overload and self.overload.is_seen and self.steady else ()

    def to_frame(self) -> "pd.DataFrame":
        """Return the latencies in seconds: a row each for TTFT, TPOT, ITL, E2EL and queue time, a column a statistic.

        Beside each statistic stands the half-width of its 95 % interval, NaN where the run is too short for one.
        """
        rows = (
            {"metric": name, **stat.values} | {f"{key}_half_width": each for key, each in stat.half_widths.items()}
            for name, stat in self.metrics.items()
        )
        return frame(rows, "metric")


def summarize(
    run: Run,
    slo: Slo | None = None,
    *,
    steady: bool = True,
    request_s: Floats | float = 0.0,
    network_s: float = 0.0,
) -> Report:
    """Summarise a run; `steady` drops the warm-up of a process that has a steady state.

    A replayed trace has none, nor has a queue that grows, nor a run that is hardly longer than a request: what arrives
    late is served much later, so a rate without the first requests would count the time that others take.
    """
    whole = Report(run, slo or Slo(), 0, request_s, network_s, steady)
    if not steady or not whole.is_settled:
        return whole
    return replace(whole, skipped=warm_up(run.finished_s - run.requests.arrival_s))
