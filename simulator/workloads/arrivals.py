"""When requests arrive: around a mean rate, released in batches, in a closed loop, or as a trace has them."""

import math
from dataclasses import dataclass, replace
from numbers import Real
from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.random import Generator

from simulator.arrays import Floats
from simulator.errors import Setting, WorkloadError
from simulator.limits import is_whole
from simulator.workloads.lengths import require_recorded

MIN_RATE_PER_S, MIN_BURSTINESS = 1e-9, 1e-3  # one request in 30 years; gaps with a coefficient of variation of 32


class Arrivals(Protocol):
    """An arrival process: when requests arrive."""

    @property
    def concurrency(self) -> int:
        """Requests in flight in a closed loop; 0 for an open loop."""
        ...

    def times_s(self, count: int, rng: Generator) -> Floats:
        """Return `count` arrival times in seconds, in order, shape (count,), float64.

        The first n times do not depend on `count`.
        """
        ...

    def at_rate(self, rate_per_s: float) -> Self:
        """Return the same arrivals at another mean rate in requests/s: the same gaps, stretched."""
        ...

    def describe(self) -> str:
        """Return the process and its rate in a few words."""
        ...


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Independent gaps around a mean rate: `burstiness` 1 is Poisson, below 1 bursty, infinity evenly spaced.

    gap ~ gamma(shape=burstiness, scale=1/(rate burstiness)), so the gaps' coefficient of variation is
    1/sqrt(burstiness); vLLM's `--request-rate` and `--burstiness`. The first request arrives at 0. Gaps are drawn for
    rate 1 and divided by the rate, so that two rates of one seed are compared on the same arrivals.

    `balanced_over`: this is what one of so many replicas is sent by a balancer that picks the one with the fewest
    requests in flight. It comes early in a step, for then the replica has just finished some (`early_share`).

    Raises WorkloadError for a rate or burstiness that is 0, negative or NaN, and for an infinite rate.

    >>> OpenLoop(4, burstiness=math.inf).times_s(3, np.random.default_rng(0))
    array([0.  , 0.25, 0.5 ])
    """

    rate_per_s: float
    burstiness: float = 1.0
    balanced_over: int = 1
    concurrency: ClassVar[int] = 0

    def __post_init__(self) -> None:
        _check_rate(self.rate_per_s)
        if not self.burstiness >= MIN_BURSTINESS:
            because = f"it is not a number from {MIN_BURSTINESS} on"
            raise WorkloadError(Setting("burstiness", self.burstiness), because, "Give 1 for Poisson, 0.5 for bursts")

    def times_s(self, count: int, rng: Generator) -> Floats:
        """Return `count` arrival times in seconds, shape (count,), float64; the first is 0."""
        times = np.zeros(count)
        regular = math.isinf(self.burstiness)
        gaps = np.ones(count - 1) if regular else rng.standard_gamma(self.burstiness, count - 1) / self.burstiness
        np.cumsum(gaps, out=times[1:])
        return times / self.rate_per_s

    def at_rate(self, rate_per_s: float) -> Self:
        """Return the same process at another mean rate in requests/s."""
        return replace(self, rate_per_s=rate_per_s)

    @property
    def early_share(self) -> float:
        """Share of the time since the step under way began by which a request came earlier than it is drawn.

        Replicas end their steps at random; until n of them have evened out, the arrivals of all go to few of them for
        some 1/sqrt(n) of a step. Fleets of 2 to 16 replicas simulated whole agree within 0.04 (tests/cost).

        >>> OpenLoop(2.0, balanced_over=4).early_share
        0.5
        """
        return 1.0 - 1.0 / math.sqrt(self.balanced_over)

    def expected(self, span_s: float) -> float:
        """Return the mean number of arrivals in `span_s` seconds.

        >>> OpenLoop(2.0).expected(3600.0)
        7200.0
        """
        return self.rate_per_s * span_s

    def describe(self) -> str:
        """Return the name of the process and its rate."""
        names = {1.0: "Poisson arrivals", math.inf: "evenly spaced"}
        name = names.get(self.burstiness, f"gamma arrivals of burstiness {self.burstiness:g}")
        shared = f", balanced over {self.balanced_over} replicas" if self.balanced_over > 1 else ""
        return f"{name} at {self.rate_per_s:g}/s{shared}"


@dataclass(frozen=True, slots=True)
class Released:
    """Poisson arrivals that a batcher in front of the engine holds and releases together at the end of each period.

    t = ceil(t_Poisson / period_s) x period_s; the first request is released at 0. Where the batcher deals what it holds
    to `dealt_over` replicas in turn, these are the arrivals at one of them, whose period is as many times the
    batcher's. Raises WorkloadError for a rate or period that is 0, negative, infinite or NaN.

    >>> Released(4.0, period_s=1.0).times_s(4, np.random.default_rng(0))
    array([0., 1., 1., 1.])
    """

    rate_per_s: float
    period_s: float
    dealt_over: int = 1
    concurrency: ClassVar[int] = 0

    def __post_init__(self) -> None:
        _check_rate(self.rate_per_s)
        if not 0 < self.period_s < math.inf:
            raise WorkloadError(
                Setting("period_s", self.period_s), "it is not a finite time above 0", "Give seconds, say 0.3"
            )

    def times_s(self, count: int, rng: Generator) -> Floats:
        """Return `count` times of release in seconds, shape (count,), float64."""
        arrived: Floats = OpenLoop(self.rate_per_s).times_s(count, rng)
        return np.ceil(arrived / self.period_s) * self.period_s

    @property
    def held_s(self) -> float:
        """Seconds within which the batcher gathers what it releases together."""
        return self.period_s / self.dealt_over

    def waited_s(self, released_s: Floats) -> Floats:
        """Return the seconds that the batcher held requests by their times of release, in order, float64, same shape.

        Poisson arrivals are uniform over a period whose number is known: evenly spread here.

        >>> Released(4.0, period_s=8.0, dealt_over=4).waited_s(np.array([0.0, 8.0, 8.0]))
        array([1. , 1.5, 0.5])
        """
        _, batch, sizes = np.unique(released_s, return_inverse=True, return_counts=True)
        before = np.arange(len(batch)) - (np.cumsum(sizes) - sizes)[batch]
        return self.held_s * (1.0 - (before + 0.5) / sizes[batch])

    def at_rate(self, rate_per_s: float) -> Self:
        """Return the same process at another mean rate in requests/s; the period stays."""
        return replace(self, rate_per_s=rate_per_s)

    def describe(self) -> str:
        """Return the name of the process, its rate and its period."""
        return f"Poisson arrivals at {self.rate_per_s:g}/s, released every {self.period_s:g} s"


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """A fixed number of requests in flight; each completion sends the next (vLLM's `--max-concurrency`).

    Raises WorkloadError unless `concurrency` is a whole number above 0.

    >>> ClosedLoop(16).describe()
    '16 in flight'
    """

    concurrency: int

    def __post_init__(self) -> None:
        if not is_whole(self.concurrency) or self.concurrency < 1:
            because = "it is not a whole number above 0"
            raise WorkloadError(Setting("concurrency", self.concurrency), because, "Give, say, 16")

    def times_s(self, count: int, _rng: Generator) -> Floats:
        """Return zeros, shape (count,), float64: the event loop decides when each request is sent."""
        return np.zeros(count)

    def at_rate(self, rate_per_s: float) -> Self:
        """Raise WorkloadError: the rate of a closed loop is an outcome."""
        given = f"rate {rate_per_s:g}/s for {self.describe()}"
        raise WorkloadError(given, "the rate of a closed loop is an outcome", "Give a rate or a concurrency, not both")

    def describe(self) -> str:
        """Return the number of requests in flight as text."""
        return f"{self.concurrency:,} in flight"


@dataclass(frozen=True, slots=True, eq=False)
class RecordedArrivals:
    """Arrival times of a trace, `arrival_s` in seconds, shape (recorded,), float64, replayed `speed` times as fast.

    Raises WorkloadError for a speed that is 0, negative, infinite or NaN.

    >>> RecordedArrivals("a trace", np.array([0.0, 2.0, 6.0]), speed=2.0).times_s(3, np.random.default_rng(0))
    array([0., 1., 3.])
    """

    name: str
    arrival_s: Floats
    speed: float = 1.0
    concurrency: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if not MIN_RATE_PER_S <= self.speed < math.inf:
            because = f"it is not a finite number from {MIN_RATE_PER_S} on"
            raise WorkloadError(f"trace speed {self.speed}", because, "Give 2 for twice as fast")

    @property
    def rate_per_s(self) -> float:
        """Mean rate of the whole trace at its speed, in requests/s: (n - 1) gaps over their sum.

        Infinite if all requests arrive at once.
        """
        span_s = float(self.arrival_s[-1] - self.arrival_s[0])
        return (len(self.arrival_s) - 1) / span_s * self.speed if span_s else math.inf

    def times_s(self, count: int, _rng: Generator) -> Floats:
        """Return the first `count` times in seconds, shape (count,), float64.

        Raises WorkloadError if the trace has fewer.
        """
        require_recorded(count, len(self.arrival_s))
        return self.arrival_s[:count] / self.speed

    def at_rate(self, rate_per_s: float) -> Self:
        """Return the trace at the speed that gives its whole length this mean rate in requests/s.

        Raises WorkloadError for a trace whose requests all arrive at once, and for a rate that is not above 0.
        """
        if math.isinf(self.rate_per_s):
            raise WorkloadError(self.name, "its requests all arrive at once, at no rate", "Give other arrivals")
        _check_rate(rate_per_s)
        return replace(self, speed=self.speed * rate_per_s / self.rate_per_s)

    def describe(self) -> str:
        """Return the name of the trace, its rate and its speed."""
        speed = "" if self.speed == 1 else f" ({self.speed:.3g} times its own speed)"
        at = "all at once" if math.isinf(self.rate_per_s) else f"at {self.rate_per_s:.3g}/s"
        return f"arrivals of {self.name} {at}{speed}"


def _check_rate(rate_per_s: float) -> None:
    if not isinstance(rate_per_s, Real) or not MIN_RATE_PER_S <= rate_per_s < math.inf:
        because = f"requests come at a finite rate above 0 ({MIN_RATE_PER_S} at least)"
        remedy = "Give requests per second, say 2, or a concurrency to keep the engine busy"
        raise WorkloadError(Setting("rate_per_s", rate_per_s), because, remedy)
