"""How wide a held-out interval is: factors of a question's metric, regime and traits, learnt from sources left out.

u is ln(measured / predicted) of a time and minus that of a rate: above 0, the engine was slower than predicted. An
interval of a level p holds -f(p) W_faster <= u <= s(p) W_slower, with, for each of the two sides,

    W = width x factor of the metric x factor of the regime x factors of the traits that the question has.

W is the 0.9-quantile regression of u, or of -u, on these (Koenker and Bassett, Regression Quantiles, Econometrica 1978;
both sides' mean pinball loss is a multiple of the interval score of Winkler, JASA 1972). s(p) and f(p) are quantiles of
u / W over sources that the fit of W had not seen: conformal prediction with normalised residuals (Lei et al.,
Distribution-Free Predictive Inference for Regression, JASA 2018, section 5.2), with sources for the exchangeable units.
`tools/fit_intervals.py` makes the table, residuals.yaml. A trait only widens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.arrays import Floats
from simulator.deployment.deployment import Deployment
from simulator.profile_files import read_yaml
from simulator.roofline.roofline import Rates

LIKE = {  # metrics whose errors are those of another
    **{"prefill_ms": "ttft_ms", "itl_ms": "tpot_ms", "decode_tok_s_per_user": "tpot_ms"},
    **dict.fromkeys(("throughput_total_tok_s", "throughput_in_tok_s", "req_s"), "throughput_out_tok_s"),
}
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
TAILS = ("p90", "p95", "p99")  # statistics of the worst requests
SHIPPED_SETUPS = 2.0  # setups of a user that the shipped table is worth
GRID = 40  # values that stand for the shipped table
EvidenceLevel = Literal["measured", "fitted", "family", "guess"]
TRAITS = ("experts", "family", "guess", "tail", "desktop")
PROMPTS = ("ttft_ms", "prefill_ms", "pp_tok_s", "throughput_in_tok_s")  # metrics of computing a prompt, in one batch


def is_rate(metric: str) -> bool:
    """Whether more of a metric (a column of the measurement files) is faster: a rate, and no time.

    >>> is_rate("req_s"), is_rate("tg_tok_s"), is_rate("tpot_ms")
    (True, True, False)
    """
    return "tok_s" in metric or metric == "req_s"


class WidthKey(NamedTuple):
    """What a width depends on: a metric (a column of the measurement files), the regime of its load, and traits."""

    metric: str
    regime: str
    traits: tuple[str, ...] = ()

    @property
    def is_rate(self) -> bool:
        """Whether more is faster."""
        return is_rate(self.metric)

    @property
    def names(self) -> tuple[str, str]:
        """Names of the factors of metric and regime; an open loop has a closed loop's, and is simulated besides."""
        return LIKE.get(self.metric, self.metric), "closed_loop" if self.regime == "open_loop" else self.regime


def width_key(deployment: Deployment, metric: str, regime: str) -> WidthKey:
    """Return what the width of a metric of a deployment depends on; "p99 ttft_ms" is its tail.

    >>> from simulator.deployment.deployment import deploy
    >>> width_key(deploy("gpt-oss-120b", "h100-sxm"), "p99 ttft_ms", "closed_loop")
    WidthKey(metric='ttft_ms', regime='closed_loop', traits=('experts', 'tail'))
    """
    traits = traits_of(deployment, metric, regime, shipped_basis(deployment))
    return WidthKey(metric.rpartition(" ")[2], regime, traits)


def traits_of(deployment: Deployment, metric: str, regime: str, basis: EvidenceLevel) -> tuple[str, ...]:
    """Return what sets a question apart, in the order of TRAITS; `metric` as in `width_key`.

    experts: the model has routed experts. family: the engine was not fitted on the device's family; guess: nor are its
    rates measured. tail: a percentile from the 90th on. desktop: prompts of one batch on a consumer's or an integrated
    GPU, whose kernels change with the build, and whose peaks are less sure than its bandwidth.
    """
    stat, _, name = metric.rpartition(" ")
    batch = name in PROMPTS and regime in ("single", "fixed_batch")
    has = (
        any(op.experts for op in deployment.ops),
        basis in ("family", "guess"),
        basis == "guess",
        stat[:3] in TAILS,
        batch and deployment.hardware.device_class in ("consumer-gpu", "integrated-gpu"),
    )
    return tuple(name for name, holds in zip(TRAITS, has, strict=True) if holds)


def basis_of(deployment: Deployment) -> EvidenceLevel:
    """Return the evidence behind a deployment's step times: `measured` where a user has calibrated it."""
    return "measured" if deployment.kernels.of_engine.residuals else shipped_basis(deployment)


def shipped_basis(deployment: Deployment, fitted_on: Sequence[str] | None = None) -> EvidenceLevel:
    """Return the evidence without own measurements: the weaker of a device's GEMM rates and its engine's fit there.

    `fitted_on`: families of devices that the engine was fitted on, where that is not what its preset says.
    """
    hardware, kernels = deployment.hardware, deployment.kernels
    if hardware.family in (kernels.of_engine.fitted_on if fitted_on is None else fitted_on):
        return "fitted"
    peak = Rates(kernels).peak(deployment.layout.weight_dtype)[0]
    reached = hardware.achievable.gemm.get(peak)
    return "guess" if reached is None or reached.compute_fraction.source.evidence == "guess" else "family"


@dataclass(frozen=True)
class Side:
    """Widths on one side of a prediction, in ln(measured / predicted), and their multiples at LEVELS (`shape`)."""

    width: float
    metric: Mapping[str, float]
    regime: Mapping[str, float]
    traits: Mapping[str, float]
    shape: tuple[float, ...]

    def scale(self, key: WidthKey) -> float:
        """Return W of a key; a metric or regime without measurements has the factor 1.

        >>> side = Side(0.2, {"ttft_ms": 1.5}, {}, {"experts": 2.0}, (1.0,) * 6)
        >>> round(side.scale(WidthKey("prefill_ms", "single", ("experts",))), 3)
        0.6
        """
        metric, regime = key.names
        factors = (self.traits.get(each, 1.0) for each in key.traits)
        return float(self.width * self.metric.get(metric, 1.0) * self.regime.get(regime, 1.0) * np.prod(list(factors)))

    def end(self, key: WidthKey, level: npt.ArrayLike) -> Floats:
        """Return how far from the prediction an interval of a level ends, in ln; 0 at level 0."""
        shape = np.interp(np.asarray(level, float), (0.0, *LEVELS), (0.0, *self.shape))
        return np.asarray(shape * self.scale(key))


@dataclass(frozen=True)
class Widths:
    """The table of widths."""

    slower: Side
    faster: Side

    def ends(self, key: WidthKey, level: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Return both ends of an interval in ln(measured / predicted), of the shape of `level`: at most 0, at least 0.

        >>> one = Widths(*(Side(width, {}, {}, {}, (1.0,) * 6) for width in (0.3, 0.1)))
        >>> [float(end) for end in one.ends(WidthKey("tpot_ms", "single"), 0.8)]
        [-0.1, 0.3]
        >>> [float(end) for end in one.ends(WidthKey("req_s", "single"), 0.8)]
        [-0.3, 0.1]
        """
        sides = (self.slower, self.faster) if key.is_rate else (self.faster, self.slower)
        low, high = (side.end(key, level) for side in sides)
        return -low, high

    def with_own(self, residuals: Sequence[float], key: WidthKey, level: float) -> tuple[float, float]:
        """Return `ends` with a user's own residuals, one per held-out setup, mixed in.

        The table counts as SHIPPED_SETUPS setups: a few own residuals change little, many decide.

        >>> few, many = (shipped().with_own([0.01, -0.02] * n, WidthKey("tpot_ms", "single"), 0.8) for n in (1, 20))
        >>> many[0] > few[0], many[1] < few[1], many[1] < 0.05
        (True, True, True)
        """
        if not residuals:
            low, high = self.ends(key, level)
            return float(low), float(high)
        places = 2 * (np.arange(GRID) + 0.5) / GRID - 1  # the share of an interval that ends there, and on which side
        lows, highs = self.ends(key, np.abs(places))
        values = np.array([*residuals, *np.where(places < 0, lows, highs)])
        weights = np.repeat([1.0, SHIPPED_SETUPS / GRID], [len(residuals), GRID])
        low, high = weighted_quantiles(values, weights, [(1 - level) / 2, (1 + level) / 2])
        return min(0.0, float(low)), max(0.0, float(high))


def weighted_quantiles(values: Floats, weights: Floats, levels: npt.ArrayLike) -> Floats:
    """Return the weighted quantiles of `values`, shape (residuals,), at `levels`."""
    order = np.argsort(values)
    middle = np.cumsum(weights[order]) - weights[order] / 2
    return np.asarray(np.interp(np.asarray(levels), middle / weights.sum(), values[order]))


@cache
def shipped() -> Widths:
    """Return the table that is shipped with the package (reports/residuals.yaml)."""
    raw = read_yaml(Path(__file__).parent / "residuals.yaml")
    return Widths(_side(raw["slower"]), _side(raw["faster"]))


def _side(raw: Mapping[str, Any]) -> Side:
    keys = ("metric", "regime", "traits")
    metric, regime, traits = ({name: float(each) for name, each in raw[key].items()} for key in keys)
    return Side(float(raw["width"]), metric, regime, traits, tuple(float(each) for each in raw["shape"]))
