"""The best settings of an engine under an SLO: a coordinate search on the same random numbers, within a budget."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from simulator.cost.bisection import bisect_rate, geometric_mean
from simulator.cost.capacity import capacity
from simulator.cost.scenario import Scenario
from simulator.errors import InfercastError
from simulator.reports.report import Report
from simulator.workloads.arrivals import ClosedLoop, OpenLoop, RecordedArrivals

GAIN = 0.01  # a change counts if it gains more: the rates of the search are that close to the true ones
STEP, STEPS = 1.25, 20  # ratio of two rates of the search upwards, and how many at most
HALVINGS = 5  # of a STEP, in logarithms: the rate found is within GAIN
Point = Mapping[str, str]  # a value for each setting; "" for what it is without tuning
Make = Callable[[Point], Scenario]


class Objective(Protocol):
    """What the best settings have most of, per second and of all replicas together."""

    @property
    def unit(self) -> str:
        """What is counted per second."""
        ...

    def beyond(self, scenario: Scenario, least_per_s: float) -> tuple[float, Report] | None:
        """Return the score and the report at it, or None where the score is not more than GAIN above `least_per_s`.

        With 0 there is a score if any load keeps the SLO. Raises InfercastError for an impossible scenario.
        """
        ...


@dataclass
class HighestRate:
    """The highest rate within the SLO, of requests with the same lengths and the same gaps, stretched to each rate."""

    unit: str = "req/s within the SLO"
    request_count: int = 0  # of each simulation, once the first capacity is known

    def beyond(self, scenario: Scenario, least_per_s: float) -> tuple[float, Report] | None:
        """Return the highest rate in requests/s of all replicas, as `Objective` says.

        Most settings are no better, and one simulation just above the best known rate tells so.
        """
        if not least_per_s:
            found = capacity(scenario)
            self.request_count = len(found.report.run.requests) + len(found.report.run.rejected)
            return (found.rate_per_s * scenario.replicas, found.report) if found.rate_per_s else None
        rate_per_s = least_per_s * (1 + GAIN)
        low = rate_per_s, self._report(scenario, rate_per_s)
        if not low[1].meets_slo:
            return None
        for _ in range(STEPS):
            rate_per_s = low[0] * STEP
            high = rate_per_s, self._report(scenario, rate_per_s)
            if not high[1].meets_slo:
                break
            low = high
        else:
            return low
        simulated, keeps = partial(self._report, scenario), lambda report: report.meets_slo
        return bisect_rate(simulated, keeps, (low, high), HALVINGS, geometric_mean)[0]

    def _report(self, scenario: Scenario, rate_per_s: float) -> Report:
        """Return the report at a rate of all replicas."""
        workload = scenario.workload
        if not isinstance(workload.arrivals, RecordedArrivals):
            workload = replace(workload, request_count=self.request_count)
        if isinstance(workload.arrivals, ClosedLoop):
            workload = replace(workload, arrivals=OpenLoop(1.0))
        return scenario.report(workload.at_rate(rate_per_s / scenario.replicas))


@dataclass
class Throughput:
    """Output tokens/s of a closed loop, or of requests that all come at once, while the SLO is kept."""

    unit: str = "output tokens/s"

    def beyond(self, scenario: Scenario, least_per_s: float) -> tuple[float, Report] | None:
        """Return output tokens/s of all replicas, as `Objective` says."""
        report = scenario.simulated()
        kept = report.meets_slo and report.output_tokens_per_s > least_per_s * (1 + GAIN)
        return (report.output_tokens_per_s, report) if kept else None


@dataclass(frozen=True)
class Trial:
    """Settings that were tried, their scenario, score per second, and the report at it."""

    point: Point
    scenario: Scenario
    per_s: float
    report: Report


@dataclass(frozen=True)
class TunedSettings:
    """The result of a search.

    `default` is None where it breaks the SLO at any load. `without`: score per second of the best settings with one of
    them left at its default, 0 where that keeps the SLO at no load. `again`: the scores of default and best on other
    random numbers. `tried`: settings tried, of a `budget`; `is_cut`: others were left; `refused`: errors of impossible
    ones.
    """

    default: Trial | None
    best: Trial | None
    without: Mapping[str, float]
    again: tuple[float, float]
    tried: int
    budget: int
    is_cut: bool
    refused: Sequence[InfercastError] = ()

    @property
    def gain(self) -> float | None:
        """Relative gain of the best over the default, on other random numbers than the search's; None without both."""
        before, after = self.again
        return after / before - 1 if before and after else None


@dataclass
class _Search:
    make: Make
    objective: Objective
    budget: int
    seen: set[tuple[str, ...]] = field(default_factory=set)
    refused: dict[str, InfercastError] = field(default_factory=dict)
    impossible: int = 0
    is_cut: bool = False

    def beyond(self, point: Point, least_per_s: float) -> Trial | None:
        """Try a point; None where it is no better, was tried before, is impossible, or the budget is spent."""
        key = tuple(point.values())
        if key in self.seen:
            return None
        if len(self.seen) >= self.budget:
            self.is_cut = True
            return None
        self.seen.add(key)
        return self.score(point, least_per_s)

    def score(self, point: Point, least_per_s: float, seed: int = 0) -> Trial | None:
        try:
            scenario = self.make(point)
            scenario = replace(scenario, workload=replace(scenario.workload, seed=scenario.workload.seed + seed))
            found = self.objective.beyond(scenario, least_per_s)
        except InfercastError as error:
            self.refused.setdefault(str(error), error)
            self.impossible += 1
            return None
        return Trial(point, scenario, *found) if found else None

    def climb(self, best: Trial | None, point: Point, coordinates: Mapping[str, Sequence[str]]) -> Trial | None:
        """Change one setting at a time to its best value, until no change of any gains or the budget is spent."""
        improved = True
        while improved:
            improved = False
            for name, values in coordinates.items():
                here = best.point if best else point
                for value in values:
                    found = self.beyond({**here, name: value}, best.per_s if best else 0.0)
                    best, improved = found or best, improved or found is not None
        return best

    def pruned(self, best: Trial) -> tuple[Trial, dict[str, float]]:
        """Put back every change that does not gain, and return what the best settings score without each other one."""
        without: dict[str, float] = {}
        for name in [name for name, value in best.point.items() if value]:
            found = self.score({**best.point, name: ""}, 0.0)
            if found and found.per_s * (1 + GAIN) >= best.per_s:
                best = found
            else:
                without[name] = found.per_s if found else 0.0
        return best, without


def tune(
    make: Make, coordinates: Mapping[str, Sequence[str]], objective: Objective, budget: int = 100
) -> TunedSettings:
    """Return the settings with the highest score, by coordinate search from the default ("" for every setting).

    `make` builds the scenario of all settings; `coordinates` are the values that each may have, "" its default. All are
    simulated on the same random numbers, so they differ by their settings alone; the gain is then measured on others,
    since the best of many is lucky, too. At most `budget` settings are tried. A change that gains no more than GAIN is
    put back. It is a local optimum: no single change is better, two at once might be.

    Raises the InfercastError of the default where it is impossible and so is everything else that was tried.
    """
    start = dict.fromkeys(coordinates, "")
    search = _Search(make, objective, budget)
    default = search.beyond(start, 0.0)
    best = search.climb(default, start, coordinates)
    if best is None and search.impossible == len(search.seen):
        raise next(iter(search.refused.values()))
    without: dict[str, float] = {}
    if best is not None and best is not default:
        best, without = search.pruned(best)
    again = [search.score(each.point, 0.0, seed=1) if each else None for each in (default, best)]
    before, after = (each.per_s if each else 0.0 for each in again)
    refused = tuple(search.refused.values())
    return TunedSettings(default, best, without, (before, after), len(search.seen), budget, search.is_cut, refused)
