"""How an answer moves with what is asked and what is uncertain: cost at both ends of each, and where another wins."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from simulator.cost.risk import CASES, Risk, replicas_needed
from simulator.cost.scenario import Scenario
from simulator.cost.search import Solution, Target
from simulator.deployment.memory import CACHE_ERROR
from simulator.errors import InfercastError
from simulator.hardware.hardware import scaled_peaks
from simulator.reports.intervals import step_quantile
from simulator.reports.slo import Slo
from simulator.workloads.lengths import Stretched

LESS, MORE = 0.8, 1.25  # times what is asked
FULLEST = 0.7, 1.0  # of the capacity within the SLO: what a cautious planner uses of it, and all
FLIPS = 6  # halvings of the interval, in logarithms, in which another answer begins to win
WIDEST = 4.0  # times the asked rate, up and down
Change = Callable[[Scenario, float], tuple[Scenario, float]]  # of a scenario and its rate in requests/s of all replicas


class KnobEnd(NamedTuple):
    """One end of a knob: its value in words, dollars per hour of the answer, and which answer is the cheapest there."""

    value: str
    own_usd: float | None  # of the answer that is best as asked
    best: int | None  # place of the answer that is best here; None where none keeps the SLO
    best_usd: float | None


class Knob(NamedTuple):
    """Something that may be other than asked or predicted, with what both ends of it cost. `is_known`: by the user."""

    name: str
    low: KnobEnd
    high: KnobEnd
    is_known: bool

    @property
    def swing_usd(self) -> float:
        """Dollars per hour between both ends, of the answer that is best as asked; infinity where one keeps no SLO."""
        ends = [math.inf if each.own_usd is None else each.own_usd for each in (self.low, self.high)]
        return abs(ends[1] - ends[0]) if math.isfinite(min(ends)) else 0.0


@dataclass(frozen=True)
class Sensitivity:
    """Answers of a search under changed loads and constants; only these answers are compared anew."""

    risks: Sequence[Risk]

    @property
    def answers(self) -> list[Solution]:
        """The answers, the cheapest first."""
        return [each.found for each in self.risks]

    @property
    def load(self) -> Target:
        """What was asked of all."""
        return self.risks[0].load

    def knobs(self, run: Callable[..., Iterable[Knob]] = map) -> list[Knob]:
        """Return every knob, the one with the largest swing first. `run` maps as `map` does, on threads perhaps."""
        found = list(run(lambda make: make(), [*self._asked(), *self._uncertain()]))
        return sorted(found, key=lambda knob: -knob.swing_usd)

    def _asked(self) -> list[Callable[[], Knob]]:
        """Return the knobs that a user knows: rate, how full replicas may be, price, lengths, bounds of the SLO."""
        rate = self.load.rate_per_s
        full = [(f"{share:.0%} at most", partial(_at_rate, 1 / share)) for share in FULLEST]
        knobs = [
            self._knob("rate", [(f"{rate * f:.3g}/s", partial(_at_rate, f)) for f in (0.5, 2.0)]),
            self._knob("utilisation", full),
            self._price,
        ]
        for name, prompt, output in (("prompts", 1, 0), ("outputs", 0, 1)):
            ends = [(f"{f:g} x", partial(_longer, f if prompt else 1.0, f if output else 1.0)) for f in (LESS, MORE)]
            knobs.append(self._knob(name, ends))
        for name, bound_s in self.load.slo.bounds_s.items():
            ends = [(f"{bound_s * f * 1e3:,g} ms", partial(_bound, name, f)) for f in (LESS, MORE)]
            knobs.append(self._knob(f"{name.upper()} bound", ends))
        return knobs

    def _uncertain(self) -> list[Callable[[], Knob]]:
        """Return the knobs that a prediction is unsure of: step times, rates of the device, the cache."""
        rates = [("memory bandwidth", _bandwidth), ("arithmetic", _flops)]
        cache = [(f"{share:+.0%} of memory", partial(_cache, share)) for share in (-CACHE_ERROR, CACHE_ERROR)]
        return [
            self._steps,
            *(self._knob(n, [(f"{f:g} x", partial(c, f)) for f in (LESS, MORE)], is_known=False) for n, c in rates),
            self._knob("KV cache", cache, is_known=False),
        ]

    def _knob(self, name: str, ends: Sequence[tuple[str, Change]], *, is_known: bool = True) -> Callable[[], Knob]:
        """Return a function that evaluates a knob. What a user knows changes for all answers, the rest for the best."""

        def make() -> Knob:
            low, high = (self._end(value, change, only_best=not is_known) for value, change in ends)
            return Knob(name, low, high, is_known)

        return make

    def _price(self) -> Knob:
        """Return the knob of the price of the answer that is best as asked; the others cost what they cost."""
        own, *others = [self._usd(each, None) for each in self.risks]
        low, high = (self._cheapest(f"{f:g} x", [own and own * f, *others]) for f in (LESS, MORE))
        return Knob("price", low, high, is_known=True)

    def _steps(self) -> Knob:
        """Return the knob of the step times of the answer that is best as asked: the first and last of its cases."""
        risk = self.risks[0]
        others = [self._usd(each, None) for each in self.risks[1:]]
        built, wanted = risk.found.scenario.deployment, [(CASES[at], risk.replicas[at]) for at in (0, -1)]
        ends = [(step_quantile(built, case), self._price_of(risk.found, replicas)) for case, replicas in wanted]
        low, high = (self._cheapest(f"{factor:.2f} x", [own, *others]) for factor, own in ends)
        return Knob("step times", low, high, is_known=False)

    def _end(self, value: str, change: Change, *, only_best: bool) -> KnobEnd:
        usd = [self._usd(each, change if not (place and only_best) else None) for place, each in enumerate(self.risks)]
        return self._cheapest(value, usd)

    @staticmethod
    def _cheapest(value: str, usd: Sequence[float | None]) -> KnobEnd:
        known = [(cost, place) for place, cost in enumerate(usd) if cost is not None]
        best_usd, best = min(known, default=(None, None))
        return KnobEnd(value, usd[0], best, best_usd)

    def _usd(self, risk: Risk, change: Change | None) -> float | None:
        """Return the dollars per hour of an answer under a change; None where no number of replicas keeps the SLO."""
        found = risk.found
        if change is None:
            return self._price_of(found, found.replicas)
        try:
            scenario, rate_per_s = change(found.scenario, self.load.rate_per_s)
            is_asked = risk.is_asked(scenario, rate_per_s)
            needed = replicas_needed(scenario, rate_per_s, found.replicas, risk.simulated if is_asked else None)
        except InfercastError:  # longer requests than its context or its cache holds
            return None
        return self._price_of(found, needed)

    def _price_of(self, found: Solution, replicas: int | None) -> float | None:
        return None if replicas is None else found.price(self.load, replicas)

    def flip_rate_per_s(self, up: bool) -> tuple[float, int] | None:
        """Return the rate in requests/s from which on another answer costs less, and its place; None up to WIDEST.

        Above the asked rate, or below it.
        """
        near, far = 1.0, WIDEST if up else 1 / WIDEST
        if self._best_at(far) in (0, None):
            return None
        for _ in range(FLIPS):
            middle = math.sqrt(near * far)
            near, far = (middle, far) if self._best_at(middle) == 0 else (near, middle)
        return self.load.rate_per_s * far, self._best_at(far) or 0

    def _best_at(self, factor: float) -> int | None:
        return self._end("", partial(_at_rate, factor), only_best=False).best

    def flip_price(self) -> tuple[float, int] | None:
        """Return the dollars per hour of one replica of the best above which the next is cheaper, and its place."""
        usd = [self._usd(each, None) for each in self.risks]
        others = [(cost, place) for place, cost in enumerate(usd) if place and cost is not None]
        if usd[0] is None or not others:
            return None
        cost, place = min(others)
        return cost / self.answers[0].replicas, place


class WorthMeasuring(NamedTuple):
    """The answer whose step times are worth most to measure, and what that saves in dollars per hour on average."""

    place: int
    usd_per_hour: float


def worth_measuring(risks: Sequence[Risk]) -> WorthMeasuring | None:
    """Return which single measurement of step times would save most; None where none changes the decision.

    Each answer costs c in each of five equally likely cases, without any number of replicas infinitely much. Today the
    least mean cost is taken. Whoever knows the case of one answer takes it where it costs less than the least mean
    cost of the others (expected value of perfect information; Raiffa and Schlaifer, 1961).
    """
    costs = [_costs(each) for each in risks]
    means = [sum(each) / len(each) for each in costs]
    found = []
    for place, cases in enumerate(costs):
        others = min((mean for other, mean in enumerate(means) if other != place), default=math.inf)
        informed = sum(min(cost, others) for cost in cases) / len(cases)
        if math.isfinite(informed) and informed < min(means):
            found.append(WorthMeasuring(place, min(means) - informed))
    return max(found, key=lambda each: each.usd_per_hour, default=None)


def _costs(risk: Risk) -> list[float]:
    usd = [each and risk.found.price(risk.load, each) for each in risk.replicas]
    return [math.inf if each is None else float(each) for each in usd]


def _at_rate(factor: float, scenario: Scenario, rate_per_s: float) -> tuple[Scenario, float]:
    return scenario, rate_per_s * factor


def _longer(prompt: float, output: float, scenario: Scenario, rate_per_s: float) -> tuple[Scenario, float]:
    workload = scenario.workload
    stretched = replace(workload, lengths=Stretched(workload.lengths, prompt, output))
    return replace(scenario, workload=stretched), rate_per_s


def _bound(name: str, factor: float, scenario: Scenario, rate_per_s: float) -> tuple[Scenario, float]:
    bounds_s = {**scenario.slo.bounds_s, name: scenario.slo.bounds_s[name] * factor}
    return replace(scenario, slo=Slo(bounds_s, scenario.slo.share)), rate_per_s


def _bandwidth(factor: float, scenario: Scenario, rate_per_s: float) -> tuple[Scenario, float]:
    hardware = scenario.deployment.hardware
    return _on(scenario, {"memory_bytes_per_s": hardware.memory_bytes_per_s * factor}), rate_per_s


def _flops(factor: float, scenario: Scenario, rate_per_s: float) -> tuple[Scenario, float]:
    return _on(scenario, scaled_peaks(scenario.deployment.hardware, factor)), rate_per_s


def _on(scenario: Scenario, changes: Mapping[str, object]) -> Scenario:
    hardware = scenario.deployment.hardware.model_copy(update=changes)
    return replace(scenario, deployment=replace(scenario.deployment, hardware=hardware))


def _cache(share: float, scenario: Scenario, rate_per_s: float) -> tuple[Scenario, float]:
    return replace(scenario, deployment=replace(scenario.deployment, cache_shift=float(share))), rate_per_s
