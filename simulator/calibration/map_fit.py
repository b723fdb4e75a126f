"""MAP fit (maximum a posteriori) of six parameters of an engine on a device to a few measurements.

The prior is normal around the shipped values, as wide as they vary over the shipped presets; the logarithm of a
measurement has noise NOISE. So a few rows move the parameters little.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt

from simulator.deployment.deployment import Deployment
from simulator.engines.engine import KIND, Engine
from simulator.engines.fitted_multipliers import UNITY
from simulator.hardware.hardware import Hardware
from simulator.profile import Figure, Source, find, names
from simulator.roofline.roofline import Rates
from simulator.validation.measurements import Measurement, Setup
from simulator.validation.prediction import Answered, Asked

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
SHARES = ("compute", "memory", "cache", "attention")
TIMES = ("step_s", "request_s")
PARAMETERS = (*SHARES, *TIMES)
NOISE = 0.15  # guess: of ln(measured / predicted); two people who measure the same differ by 4 to 10 %
OUTLIER = 2.0  # in units of NOISE; rows that are off by more weigh less (Huber)
KNOWN = 0.3  # guess: factor on a share's spread where the shipped value was fitted on the device's family
TAILS = ("p90", "p95", "p99")  # statistics that are scored and not fitted: they tell little about rates
WORTH = 2.0  # rows that all rows of one setup count as, say a prefill and a decode
PROBE = 0.3  # step of the numerical derivatives, in spreads
ROUNDS = 2  # of Gauss-Newton: log predictions are almost linear in the logarithms of shares


@cache
def spreads() -> Mapping[str, float]:
    """Return the standard deviation of each parameter over the shipped presets: of a share's logarithm, of a time in s.

    >>> {name: spreads()[name] > 0 for name in ("compute", "request_s")}
    {'compute': True, 'request_s': True}
    """
    presets = [Engine.from_yaml(find(KIND, name)) for name in names(KIND)]
    fitted = [kernels.fitted for preset in presets for kernels in preset.kernels]
    found = {
        name: [math.log(getattr(each, name)) for each in fitted if getattr(each, name) is not UNITY] for name in SHARES
    }
    found |= {name: [float(getattr(preset.overheads, name)) for preset in presets] for name in TIMES}
    return {name: float(np.std(values)) for name, values in found.items()}


def adjusted(engine: Engine, hardware: Hardware, values: Mapping[str, float], source: Source) -> Engine:
    """Return an engine with kernels of its own for a device and other host times; `values` by name in PARAMETERS."""
    shares, host = ({name: Figure(values[name], source) for name in part} for part in (SHARES, TIMES))
    rule = engine.kernels_on(hardware).with_fitted(**shares)
    rule = rule.model_copy(update={"families": (), "devices": (hardware.id,)})
    others = tuple(each for each in engine.kernels if each.devices != (hardware.id,))
    overheads = engine.overheads.model_copy(update=host)
    return engine.model_copy(update={"kernels": (rule, *others), "overheads": overheads})


def _achieved(deployment: Deployment) -> dict[str, float]:
    """Return the fractions of its peaks that the device's profile states, by the share that multiplies them."""
    hardware = deployment.hardware
    gemm = hardware.achievable.gemm[Rates(hardware).peak(deployment.layout.weight_dtype)[0]]
    decode, prefill = hardware.achievable.decode_attention, hardware.achievable.prefill_attention
    return {
        "compute": gemm.compute_fraction,
        "memory": gemm.memory_fraction,
        "cache": decode.memory_fraction if decode else 1.0,
        "attention": prefill.compute_fraction if prefill else 1.0,
    }


@dataclass(frozen=True)
class Problem:
    """The measurements of a fit, and the predictions for them at any vector of parameters.

    Vectors have shape (6,), in the order of PARAMETERS and in units of `spreads`; 0 is the shipped value.
    """

    rows: list[Measurement]
    asked: dict[Setup, Asked]
    engine: Engine
    hardware: Hardware
    left_out: dict[str, int]

    @cached_property
    def peaks(self) -> Mapping[str, float]:
        """The shares at which a device reaches its own peaks: 1 / its achievable fraction."""
        achieved = [_achieved(at.deployment) for at in self.asked.values()]
        return {name: 1 / min(each[name] for each in achieved) for name in SHARES}

    @cached_property
    def shipped(self) -> Mapping[str, float]:
        """The shipped parameters; shares are cut at `peaks`, above which they change nothing."""
        rule = self.engine.kernels_on(self.hardware)
        shares = {name: min(getattr(rule.fitted, name), self.peaks[name]) for name in SHARES}
        return shares | {name: float(getattr(self.engine.overheads, name)) for name in TIMES}

    @cached_property
    def spreads(self) -> Mapping[str, float]:
        """Prior standard deviation of each parameter; KNOWN times that of shares fitted on such devices."""
        rule = self.engine.kernels_on(self.hardware)
        known = bool(rule.devices) or self.hardware.family in rule.fitted_on
        return {name: spread * (KNOWN if known and name in SHARES else 1.0) for name, spread in spreads().items()}

    def values(self, moved: Floats) -> dict[str, float]:
        """Return the parameters at a vector, by name.

        Shares: shipped x exp(spread x moved). Times: shipped + spread x moved, at least 0 s.
        """
        steps = {name: self.spreads[name] * float(each) for name, each in zip(PARAMETERS, moved, strict=True)}
        shares = {name: self.shipped[name] * math.exp(steps[name]) for name in SHARES}
        return shares | {name: max(0.0, self.shipped[name] + steps[name]) for name in TIMES}

    @cached_property
    def measured(self) -> Floats:
        """Logarithms of the measured values, shape (rows,)."""
        return np.log([row.value for row in self.rows])

    def rows_of(self, setups: Iterable[Setup]) -> Indices:
        """Return the indices of the rows of some setups, int64."""
        chosen = set(setups)
        return np.array([index for index, row in enumerate(self.rows) if row.setup in chosen])

    def log_predictions(self, moved: Floats, chosen: Indices) -> Floats:
        """Return the logarithms of the predictions for the rows with indices `chosen`, shape (chosen,)."""
        engine = adjusted(self.engine, self.hardware, self.values(moved), UNITY.source)
        known: dict[Setup, Answered] = {}
        found = []
        for row in (self.rows[index] for index in chosen):
            if row.setup not in known:
                at = self.asked[row.setup]
                known[row.setup] = at.on(replace(at.deployment, engine=engine)).answer()
            found.append(math.log(known[row.setup].value(row.metric, row.stat)))
        return np.array(found)

    def slopes(self) -> Floats:
        """Return the derivatives of all log predictions by each parameter at the shipped values, shape (rows, 6)."""
        every, still = np.arange(len(self.rows)), np.zeros(len(PARAMETERS))
        base = self.log_predictions(still, every)
        probes = np.diag([-PROBE] * len(SHARES) + [PROBE] * len(TIMES))  # away from a peak and from no time at all
        changes = [(self.log_predictions(probe, every) - base) / probe.sum() for probe in probes]
        return np.stack(changes, axis=1)

    def fit(self, seen: Indices, slopes: Floats) -> Floats:
        """Return the vector of highest posterior probability given the rows `seen`.

        Minimises sum(w (off / NOISE)^2) + |moved|^2 by Gauss-Newton, with `slopes` at the shipped values; w limits what
        the rows of one setup and outliers count (Huber, OUTLIER).
        """
        seen = seen[[not any(tail in self.rows[index].stat for tail in TAILS) for index in seen]]
        many = Counter(self.rows[index].setup for index in seen)
        weights = np.array([min(1.0, WORTH / many[self.rows[index].setup]) for index in seen])
        least = [-self.shipped[name] / self.spreads[name] for name in TIMES]  # a time of 0
        most = [math.log(self.peaks[name] / self.shipped[name]) / self.spreads[name] for name in SHARES]
        lowest, highest = np.array([-math.inf] * len(SHARES) + least), np.array(most + [math.inf] * len(TIMES))
        moved, slope = np.zeros(len(PARAMETERS)), slopes[seen]
        for _ in range(ROUNDS):
            off = (self.measured[seen] - self.log_predictions(moved, seen)) / NOISE
            weighed = weights * np.minimum(1.0, OUTLIER / np.maximum(np.abs(off), 1e-9))
            curvature = (slope.T * weighed) @ slope / NOISE**2 + np.eye(len(PARAMETERS))
            step = np.linalg.solve(curvature, slope.T @ (weighed * off) / NOISE - moved)
            moved = np.clip(moved + step, lowest, highest)
        return moved
