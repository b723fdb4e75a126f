"""How far measurements lie from predictions: quantiles of residuals of each kind, and the interval that they give.

A residual is ln(measured / predicted) of a row that the fit had not seen; rows weigh 1 / size of their (source, device,
model) group, so that a large source counts once. What a prediction rests on decides which residuals it gets: `fitted`
those of a fit without its device and model together, `family` those of a fit without its device, `guess` those of a fit
without its device or its source. `tools/score.py` makes the residuals, `tools/fit_intervals.py` the table and the
coverage on devices and sources left out of it.

Near saturation an open loop makes more of an error than a residual shows that was measured elsewhere: a step 5 % longer
may double the queue. There the load is simulated again with the shortest and the longest steps that the interval of
saturated throughput allows, and the interval holds both outcomes and no less than that of a closed loop. Runs whose
rate was raised until published limits of latency bound (MLPerf's servers: `limited`) are all near it: they have
residuals of their own.
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
from simulator.profile import Figure, read_yaml
from simulator.roofline.roofline import Rates

LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_latency_ms")
LIKE = {"itl_ms": "tpot_ms", "e2e_latency_ms": "tpot_ms"}  # whose residuals stand for those of too few groups
# what tells how long steps are, the surest first
STEPS = (("throughput_out_tok_s", "offline"), ("tpot_ms", "closed_loop"), ("tpot_ms", "open_loop"))
LEVELS = (0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 0.75, 0.85, 0.9, 0.95, 0.975)
ENOUGH = 6  # groups; a rarer kind takes the residuals of its metric, or of all
GENERAL, GRID = 2.0, 40  # setups that the shipped quantiles are worth beside a user's own; points that stand for them
Quantiles = tuple[float, ...]
Floats = npt.NDArray[np.float64]
Group = tuple[str, str, str]
Found = TypeVar("Found")
EvidenceLevel = Literal["measured", "fitted", "family", "guess"]
SURER: tuple[EvidenceLevel, ...] = ("fitted", "family", "guess")


class Residual(NamedTuple):
    """ln(measured / predicted) of one row, and what the prediction rested on."""

    metric: str
    regime: str
    group: Group
    value: float
    basis: EvidenceLevel = "fitted"
    id: str = ""  # of the row


class Interval(NamedTuple):
    """Factors on a prediction between which a share `level` of measurements lies, and what they rest on."""

    low: float
    high: float
    level: float
    basis: EvidenceLevel

    def around(self, value: float) -> tuple[float, float]:
        """Return the interval of a prediction, in its unit.

        >>> Interval(0.8, 1.5, 0.8, "fitted").around(20.0)
        (16.0, 30.0)
        """
        return value * self.low, value * self.high

    @property
    def of_inverse(self) -> "Interval":
        """The interval of 1 / the prediction."""
        return self._replace(low=1 / self.high, high=1 / self.low)

    def holding(self, value: float, others: Iterable[float]) -> "Interval":
        """Return it no narrower than `others`, predictions of the same value; infinity for one without a bound.

        >>> Interval(0.8, 1.5, 0.8, "fitted").holding(20.0, [15.0, 60.0]).around(20.0)
        (15.0, 60.0)
        """
        ratios = [each / value for each in others]
        return self._replace(low=min(self.low, *ratios, 1.0), high=max(self.high, *ratios, 1.0))


def interval(deployment: Deployment, metric: str, regime: str, level: float = 0.8) -> Interval:
    """Return the interval of a metric (of the measurement files) of a deployment in a regime.

    Regimes: single, fixed_batch, closed_loop, open_loop, limited, offline. Dollars per token are the interval of
    throughput_out_tok_s turned round. A `Bracket` makes that of an open loop hold both simulations of other steps.

    >>> from simulator.deployment.deployment import deploy
    >>> found = interval(deploy("llama-3.1-8b", "h100-sxm"), "tpot_ms", "fixed_batch", 0.8)
    >>> found.low <= 1.0 <= found.high, found.basis
    (True, 'fitted')
    """
    basis = basis_of(deployment)
    known = "throughput_out_tok_s" if metric == "req_s" else metric
    own = deployment.engine.kernels_on(deployment.hardware).residuals.get(f"{known} {regime}", ())
    return Interval(*bounds(with_own(own, known, regime), known, regime, level, basis), level, basis)


def step_factors(deployment: Deployment, level: float = 0.8) -> tuple[float, float]:
    """Return the factors on the times of steps between which a share `level` lies.

    They are those of saturated throughput turned round, or of a TPOT under load where a user measured only that.

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
class Bracket(Generic[Found]):
    """What a load on a deployment comes to, and what it would with the shortest and the longest steps.

    `again` returns the latter for a factor on the times of all steps; None where measurements tell all there is.
    """

    deployment: Deployment
    regime: str
    level: float
    found: Found
    again: Callable[[float], Found] | None = None

    @cached_property
    def others(self) -> tuple[Found, ...]:
        """What it comes to at both `step_factors`; nothing but for an open loop."""
        if self.again is None or self.regime != "open_loop":
            return ()
        return tuple(map(self.again, step_factors(self.deployment, self.level)))

    @property
    def basis(self) -> EvidenceLevel:
        """What its intervals rest on."""
        return basis_of(self.deployment)

    def ends(self, metric: str, value: Callable[[Found], float]) -> tuple[float, float]:
        """Return the interval of a value that has the errors of a metric; "1/" before its name: errors turned round."""
        of = interval(self.deployment, metric.removeprefix("1/"), self.regime, self.level)
        of, here = of.of_inverse if metric.startswith("1/") else of, value(self.found)
        return (of.holding(here, map(value, self.others)) if self.others else of).around(here)


def basis_of(deployment: Deployment) -> EvidenceLevel:
    """Return what the times of a deployment rest on, the weakest of what matters most: its products and its engine."""
    hardware = deployment.hardware
    kernels = deployment.engine.kernels_on(hardware)
    if any(each.source.evidence == "measured" for _, each in kernels.fitted if isinstance(each, Figure)):
        return "measured"
    if hardware.family in kernels.fitted_on:
        return "fitted"
    peak = Rates(hardware, kernels).peak(deployment.layout.weight_dtype)[0]
    reached = hardware.achievable.gemm.get(peak)
    return "guess" if reached is None or reached.compute_fraction.source.evidence == "guess" else "family"


def kinds(metric: str, regime: str, basis: EvidenceLevel) -> tuple[str, ...]:
    """Name the kinds that a row belongs to, the narrowest first; a user's own measurements stand beside the fitted."""
    name = "fitted" if basis == "measured" else basis
    return f"{name} {metric} {regime}", f"{name} {metric}", name, "all"


def _known_as(metric: str, regime: str, basis: EvidenceLevel) -> tuple[str, ...]:
    """Name the kinds that stand for a row's errors, the narrowest first: open loops have those of closed loops."""
    under = "closed_loop" if regime == "open_loop" else regime
    own = (kinds(metric, each, basis)[0] for each in (regime, under))
    return *own, *kinds(LIKE.get(metric, metric), under, basis)


def table(residuals: Iterable[Residual]) -> dict[str, Quantiles]:
    """Return the quantiles at LEVELS of every kind that has ENOUGH groups."""
    found: dict[str, list[Residual]] = defaultdict(list)
    for each in residuals:
        if is_simulated(each):
            continue
        for kind in kinds(each.metric, each.regime, each.basis):
            found[kind].append(each)
    return {
        kind: _quantiles(some)
        for kind, some in sorted(found.items())
        if len({each.group for each in some}) >= ENOUGH or kind == "all"
    }


def is_simulated(each: Residual) -> bool:
    """Tell whether a residual is of a latency of an open loop, whose interval is simulated."""
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
    """Return quantiles of values that weigh differently."""
    order = np.argsort(values)
    middle = np.cumsum(weights[order]) - weights[order] / 2
    return np.asarray(np.interp(np.asarray(levels), middle / weights.sum(), values[order]))


def _wider(units: int) -> Floats:
    """Move levels outwards by one in n, as conformal prediction does for a new one: the next device of a source."""
    levels = np.array(LEVELS)
    return np.clip(0.5 + (levels - 0.5) * (1 + 1 / units), 0.0, 1.0)


def bounds(
    quantiles: Mapping[str, Quantiles], metric: str, regime: str, level: float = 0.8, basis: EvidenceLevel = "fitted"
) -> tuple[float, float]:
    """Return the factors on a prediction between which a share `level` of measurements lies; 1 is between them.

    >>> flat = {"all": tuple(level - 0.5 for level in LEVELS)}
    >>> low, high = bounds(flat, "tpot_ms", "closed_loop", 0.8)
    >>> round(low, 3), round(high, 3)
    (0.67, 1.492)
    """
    surer = SURER[: SURER.index(basis) + 1] if basis in SURER else SURER[:1]  # what rests on less is no surer
    ends = [0.0]
    for each in surer:
        known = next(quantiles[kind] for kind in _known_as(metric, regime, each) if kind in quantiles)
        ends += [float(end) for end in np.interp([(1 - level) / 2, (1 + level) / 2], LEVELS, known)]
    return float(np.exp(min(ends))), float(np.exp(max(ends)))


def with_own(residuals: Sequence[float], metric: str, regime: str) -> Mapping[str, Quantiles]:
    """Return the shipped table with a user's own residuals, one a setup held back, in the place of one kind.

    The shipped quantiles count as GENERAL setups beside them: a few narrow the interval by little, many decide it.

    >>> few, many = (bounds(with_own([0.01, -0.02] * n, "tpot_ms", "single"), "tpot_ms", "single") for n in (1, 20))
    >>> many[0] > few[0], many[1] < few[1], many[1] < 1.05
    (True, True, True)
    """
    if not residuals:
        return shipped()
    kind, *_ = names = _known_as(metric, regime, "measured")
    general = next(shipped()[name] for name in names if name in shipped())
    spread = np.interp((np.arange(GRID) + 0.5) / GRID, LEVELS, general)
    values = np.array([*residuals, *spread])
    weights = np.repeat([1.0, GENERAL / GRID], [len(residuals), GRID])
    return {**shipped(), kind: tuple(float(each) for each in _weighted(values, weights, LEVELS))}


@cache
def shipped() -> dict[str, Quantiles]:
    """Return the table that travels with the product."""
    raw = read_yaml(Path(__file__).parent / "residuals.yaml")
    return {kind: tuple(float(each) for each in values) for kind, values in raw["quantiles"].items()}
