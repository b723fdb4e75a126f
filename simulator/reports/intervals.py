"""Prediction intervals: how far published measurements lie from predictions of their kind.

A residual is ln(measured / predicted) of a row that the fit had not seen. Rows weigh 1 / size of their (source, device,
model) group, so that a large source counts once. The evidence of a prediction decides which residuals it gets: `fitted`
those of a fit without its device and model together, `family` those of a fit without its device, `guess` those of a fit
without its device or its source. `tools/score.py` makes the residuals, `tools/fit_intervals.py` the table and the
coverage on devices and sources left out of it.

Near saturation an open loop amplifies errors beyond what residuals from elsewhere show: a step 5 % longer may double
the queue. So open loops are simulated again with the shortest and the longest steps that the interval of saturated
throughput allows, and the interval contains both results and is no narrower than that of a closed loop. Runs whose rate
was raised until published latency limits bound (MLPerf's servers: `limited`) are all near saturation: they have
residuals of their own.

Where the KV cache is nearly full, an error of the memory plan becomes a queue: such loads, of any kind, are also
simulated with a smaller and a larger cache, and the interval contains both.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Generic, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from simulator.deployment.deployment import Deployment
from simulator.deployment.memory import CACHE_ERROR
from simulator.profile import read_yaml
from simulator.roofline.roofline import Rates

LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_latency_ms")
SUBSTITUTES = {"itl_ms": "tpot_ms", "e2e_latency_ms": "tpot_ms"}  # metrics whose residuals stand in for rare ones
# (metric, regime) that measure step times, the most reliable first
STEPS = (("throughput_out_tok_s", "offline"), ("tpot_ms", "closed_loop"), ("tpot_ms", "open_loop"))
LEVELS = (0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 0.75, 0.85, 0.9, 0.95, 0.975)
MIN_GROUPS = 6  # a kind with fewer groups takes the residuals of its metric, or of all
SHIPPED_SETUPS = 2.0  # setups of a user that the shipped quantiles are worth
GRID = 40  # values that stand for the shipped quantiles
Quantiles = tuple[float, ...]
Floats = npt.NDArray[np.float64]
Group = tuple[str, str, str]
Found = TypeVar("Found")
EvidenceLevel = Literal["measured", "fitted", "family", "guess"]
BEST_FIRST: tuple[EvidenceLevel, ...] = ("fitted", "family", "guess")


class Residual(NamedTuple):
    """ln(measured / predicted) of one row, its group, and the evidence on which the prediction rests."""

    metric: str
    regime: str
    group: Group
    value: float
    basis: EvidenceLevel = "fitted"
    id: str = ""  # of the row


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


def interval(deployment: Deployment, metric: str, regime: str, level: float = 0.8) -> Interval:
    """Return the interval of one metric (a column of the measurement files) of a deployment in a regime.

    `regime`: single, fixed_batch, closed_loop, open_loop, limited or offline. Dollars per token have the inverse of the
    interval of throughput_out_tok_s. A `PredictionRange` widens that of an open loop by simulations.

    >>> from simulator.deployment.deployment import deploy
    >>> found = interval(deploy("llama-3.1-8b", "h100-sxm"), "tpot_ms", "fixed_batch", 0.8)
    >>> found.low <= 1.0 <= found.high, found.basis
    (True, 'fitted')
    """
    known = "throughput_out_tok_s" if metric == "req_s" else metric
    own = deployment.engine.kernels_on(deployment.hardware).residuals.get(f"{known} {regime}", ())
    basis: EvidenceLevel = "measured" if own else shipped_basis(deployment)
    quantiles = with_own(own, known, regime, shipped_basis(deployment))
    return Interval(*bounds(quantiles, known, regime, level, basis), level, basis)


def step_factors(deployment: Deployment, level: float = 0.8) -> tuple[float, float]:
    """Return the factors on all step times, shortest and longest, between which a share `level` of measurements lies.

    They are those of saturated throughput inverted, or of TPOT under load if a user measured only that.

    >>> from simulator.deployment.deployment import deploy
    >>> short, long = step_factors(deploy("llama-3.1-8b", "h100-sxm"))
    >>> short < 1.0 < long
    True
    """
    own = deployment.engine.kernels_on(deployment.hardware).residuals
    metric, regime = next((kind for kind in STEPS if " ".join(kind) in own), STEPS[0])
    found = interval(deployment, metric, regime, level)
    return (found.of_inverse if metric == STEPS[0][0] else found).around(1.0)


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


def basis_of(deployment: Deployment) -> EvidenceLevel:
    """Return the evidence behind a deployment's step times: `measured` where a user has calibrated it."""
    measured = deployment.engine.kernels_on(deployment.hardware).residuals
    return "measured" if measured else shipped_basis(deployment)


def shipped_basis(deployment: Deployment) -> EvidenceLevel:
    """Return the evidence without own measurements: the weaker of a device's GEMM rates and its engine's fit there."""
    hardware = deployment.hardware
    kernels = deployment.engine.kernels_on(hardware)
    if hardware.family in kernels.fitted_on:
        return "fitted"
    peak = Rates(hardware, kernels).peak(deployment.layout.weight_dtype)[0]
    reached = hardware.achievable.gemm.get(peak)
    return "guess" if reached is None or reached.compute_fraction.source.evidence == "guess" else "family"


def kinds(metric: str, regime: str, basis: EvidenceLevel) -> tuple[str, ...]:
    """Return the kinds of residuals to which a row belongs, narrowest first; `measured` counts as fitted."""
    name = "fitted" if basis == "measured" else basis
    return f"{name} {metric} {regime}", f"{name} {metric}", name, "all"


def _known_as(metric: str, regime: str, basis: EvidenceLevel) -> tuple[str, ...]:
    """Return the kinds whose residuals stand for a row's, narrowest first; open loops fall back on closed loops."""
    under = "closed_loop" if regime == "open_loop" else regime
    own = (kinds(metric, each, basis)[0] for each in (regime, under))
    return *own, *kinds(SUBSTITUTES.get(metric, metric), under, basis)


def table(residuals: Iterable[Residual]) -> dict[str, Quantiles]:
    """Return the quantiles at LEVELS of the residuals of every kind with MIN_GROUPS groups."""
    found: dict[str, list[Residual]] = defaultdict(list)
    for each in residuals:
        if is_simulated(each):
            continue
        for kind in kinds(each.metric, each.regime, each.basis):
            found[kind].append(each)
    return {
        kind: _quantiles(some)
        for kind, some in sorted(found.items())
        if len({each.group for each in some}) >= MIN_GROUPS or kind == "all"
    }


def is_simulated(each: Residual) -> bool:
    """Return whether a residual is of a latency of an open loop, whose interval is simulated instead."""
    return each.regime == "open_loop" and each.metric in LATENCIES


def _quantiles(some: list[Residual]) -> Quantiles:
    sizes: dict[Group, int] = defaultdict(int)
    for each in some:
        sizes[each.group] += 1
    values = np.array([each.value for each in some])
    weights = np.array([1 / sizes[each.group] for each in some])
    at = _weighted(values, weights, _wider(len({group[:2] for group in sizes})))
    return tuple(round(float(each), 4) for each in at)


def _weighted(values: Floats, weights: Floats, levels: npt.ArrayLike) -> Floats:
    """Return the weighted quantiles of `values`, shape (residuals,), at `levels`."""
    order = np.argsort(values)
    middle = np.cumsum(weights[order]) - weights[order] / 2
    return np.asarray(np.interp(np.asarray(levels), middle / weights.sum(), values[order]))


def _wider(devices: int) -> Floats:
    """Return LEVELS moved outwards by one in n, as conformal prediction does for a new device of a source."""
    levels = np.array(LEVELS)
    return np.clip(0.5 + (levels - 0.5) * (1 + 1 / devices), 0.0, 1.0)


def bounds(
    quantiles: Mapping[str, Quantiles], metric: str, regime: str, level: float = 0.8, basis: EvidenceLevel = "fitted"
) -> tuple[float, float]:
    """Return the factors on a prediction between which a share `level` of measurements lies; 1 is between them.

    `quantiles`: residuals at LEVELS by kind, one of which is "all".

    >>> flat = {"all": tuple(level - 0.5 for level in LEVELS)}
    >>> low, high = bounds(flat, "tpot_ms", "closed_loop", 0.8)
    >>> round(low, 3), round(high, 3)
    (0.67, 1.492)
    """
    # weaker evidence never gives a narrower interval
    surer = BEST_FIRST[: BEST_FIRST.index(basis) + 1] if basis in BEST_FIRST else BEST_FIRST[:1]
    ends = [0.0]
    for each in surer:
        known = next(quantiles[kind] for kind in _known_as(metric, regime, each) if kind in quantiles)
        ends += [float(end) for end in np.interp([(1 - level) / 2, (1 + level) / 2], LEVELS, known)]
    return float(np.exp(min(ends))), float(np.exp(max(ends)))


def with_own(
    residuals: Sequence[float], metric: str, regime: str, basis: EvidenceLevel = "fitted"
) -> Mapping[str, Quantiles]:
    """Return the shipped table with a user's own residuals, one per held-out setup, mixed into one kind.

    The shipped quantiles, those of what the deployment rests on without them (`basis`), count as SHIPPED_SETUPS
    setups: a few own residuals change little, many decide.

    >>> few, many = (bounds(with_own([0.01, -0.02] * n, "tpot_ms", "single"), "tpot_ms", "single") for n in (1, 20))
    >>> many[0] > few[0], many[1] < few[1], many[1] < 1.05
    (True, True, True)
    """
    if not residuals:
        return shipped()
    kind, *_ = _known_as(metric, regime, "measured")
    general = next(shipped()[name] for name in _known_as(metric, regime, basis) if name in shipped())
    spread = np.interp((np.arange(GRID) + 0.5) / GRID, LEVELS, general)
    values = np.array([*residuals, *spread])
    weights = np.repeat([1.0, SHIPPED_SETUPS / GRID], [len(residuals), GRID])
    return {**shipped(), kind: tuple(float(each) for each in _weighted(values, weights, LEVELS))}


@cache
def shipped() -> dict[str, Quantiles]:
    """Return the table of residuals' quantiles that is shipped with the package (reports/residuals.yaml)."""
    raw = read_yaml(Path(__file__).parent / "residuals.yaml")
    return {kind: tuple(float(each) for each in values) for kind, values in raw["quantiles"].items()}
