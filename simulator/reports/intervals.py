"""Prediction intervals: how far published measurements lie from predictions like this one.

Widths are those of `interval_widths.py`: they follow from the metric, the regime of the load, and how far the question
lies from what was fitted, and were learnt from rows of sources that no fit had seen; a user's run is a new source, too.
A user's own residuals (`infercast calibrate`) are mixed in.

Near saturation an open loop amplifies errors beyond what residuals from elsewhere show: a step 5 % longer may double
the queue. So open loops are simulated again with the shortest and the longest steps that the interval of saturated
throughput allows, and the interval contains both results and is no narrower than that of a closed loop. Runs whose rate
was raised until published latency limits bound (MLPerf's servers: `limited`) are all near saturation: they are a regime
of their own.

Where the KV cache is nearly full, an error of the memory plan becomes a queue: such loads, of any kind, are also
simulated with a smaller and a larger cache, and the interval contains both.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from simulator.deployment.deployment import Deployment
from simulator.deployment.memory import CACHE_ERROR
from simulator.errors import InfercastError, Setting
from simulator.reports.interval_widths import LEVELS, EvidenceLevel, basis_of, shipped, shipped_basis, width_key

# (metric, regime) that measure step times, the most reliable first
STEPS = (("throughput_out_tok_s", "offline"), ("tpot_ms", "closed_loop"), ("tpot_ms", "open_loop"))
Found = TypeVar("Found")


class Interval(NamedTuple):
    """Factors on a prediction between which a share `level` of measurements lies, and the evidence behind it."""

    low: float
    high: float
    level: float
    basis: EvidenceLevel

    def around(self, value: float) -> tuple[float, float]:
        """Return the lower and upper end around a predicted value, in its unit.

        >>> Interval(0.8, 1.5, 0.8, "fitted").around(20.0)
        (16.0, 30.0)
        """
        return value * self.low, value * self.high

    @property
    def of_inverse(self) -> "Interval":
        """The interval of 1 / the prediction."""
        return self._replace(low=1 / self.high, high=1 / self.low)

    def holding(self, value: float, others: Iterable[float]) -> "Interval":
        """Return this interval around `value`, widened to contain `others`; infinity for one without a bound.

        >>> Interval(0.8, 1.5, 0.8, "fitted").holding(20.0, [15.0, 60.0]).around(20.0)
        (15.0, 60.0)
        """
        ratios = [each / value for each in others]
        return self._replace(low=min(self.low, *ratios, 1.0), high=max(self.high, *ratios, 1.0))


def refuse_level(level: float) -> None:
    """Raise InfercastError for a share of measurements that intervals cannot hold: widths were learnt up to 95 %.

    >>> refuse_level(0.8)
    """
    if not 0 < level <= LEVELS[-1]:
        given, because = Setting("level", level), f"intervals hold a share of measurements, up to {LEVELS[-1]}"
        raise InfercastError(given, because, "Give, say, 0.8")


def interval(deployment: Deployment, metric: str, regime: str, level: float = 0.8) -> Interval:
    """Return the interval of one metric (a column of the measurement files) of a deployment in a regime.

    `metric`: "p99 ttft_ms" is its tail. `regime`: single, fixed_batch, closed_loop, open_loop, limited or offline.
    Dollars per token have the inverse of the interval of throughput_out_tok_s. A `PredictionRange` widens that of an
    open loop by simulations.

    >>> from simulator.deployment.deployment import deploy
    >>> found = interval(deploy("llama-3.1-8b", "h100-sxm"), "tpot_ms", "fixed_batch", 0.8)
    >>> found.low <= 1.0 <= found.high, found.basis
    (True, 'fitted')
    """
    key = width_key(deployment, metric, regime)
    known = "throughput_out_tok_s" if key.metric == "req_s" else key.metric
    own = deployment.kernels.of_engine.residuals.get(f"{known} {regime}", ())
    low, high = np.exp(shipped().with_own(own, key, level))
    basis: EvidenceLevel = "measured" if own else shipped_basis(deployment)
    return Interval(float(low), float(high), level, basis)


def step_factors(deployment: Deployment, level: float = 0.8) -> tuple[float, float]:
    """Return the factors on all step times, shortest and longest, between which a share `level` of measurements lies.

    They are those of saturated throughput inverted, or of TPOT under load if a user measured only that.

    >>> from simulator.deployment.deployment import deploy
    >>> short, long = step_factors(deploy("llama-3.1-8b", "h100-sxm"))
    >>> short < 1.0 < long
    True
    """
    own = deployment.kernels.of_engine.residuals
    metric, regime = next((kind for kind in STEPS if " ".join(kind) in own), STEPS[0])
    found = interval(deployment, metric, regime, level)
    return (found.of_inverse if metric == STEPS[0][0] else found).around(1.0)


def step_quantile(deployment: Deployment, quantile: float) -> float:
    """Return the factor on all step times that a share `quantile` of measurements lies below; 1 for the prediction.

    >>> from simulator.deployment.deployment import deploy
    >>> found = deploy("llama-3.1-8b", "h100-sxm")
    >>> step_quantile(found, 0.1) < step_quantile(found, 0.5) == 1.0 < step_quantile(found, 0.9)
    True
    """
    if quantile == 0.5:
        return 1.0
    low, high = step_factors(deployment, abs(2 * quantile - 1))
    return low if quantile < 0.5 else high


@dataclass(frozen=True)
class PredictionRange(Generic[Found]):
    """A prediction and, for open loops, the same prediction with shorter and longer steps, to derive intervals.

    `found` is the prediction in a form of the caller's. `again(factor)` predicts it anew with all step times
    multiplied; None if residuals alone suffice. `with_cache(share)` predicts it anew with a KV cache larger by a share
    of the device's memory; None where the cache is not nearly full. `level`: share of measurements that the interval
    should contain.
    """

    deployment: Deployment
    regime: str
    level: float
    found: Found
    again: Callable[[float], Found] | None = None
    with_cache: Callable[[float], Found] | None = None

    @cached_property
    def others(self) -> tuple[Found, ...]:
        """Predictions with both `step_factors` in open loops, and with both ends of the cache where it matters."""
        found: list[Found] = []
        if self.again is not None and self.regime == "open_loop":
            found += map(self.again, step_factors(self.deployment, self.level))
        if self.with_cache is not None:
            found += map(self.with_cache, (-CACHE_ERROR, +CACHE_ERROR))
        return tuple(found)

    @property
    def basis(self) -> EvidenceLevel:
        """Evidence on which the intervals rest."""
        return basis_of(self.deployment)

    def ends(self, metric: str, value: Callable[[Found], float]) -> tuple[float, float]:
        """Return the interval of a value, in its unit, with the residuals of `metric` (of "1/metric": inverted)."""
        of = interval(self.deployment, metric.removeprefix("1/"), self.regime, self.level)
        of, here = of.of_inverse if metric.startswith("1/") else of, value(self.found)
        return (of.holding(here, map(value, self.others)) if self.others else of).around(here)
