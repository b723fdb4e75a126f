"""How sure an answer is: the replicas that it takes where steps are slower or faster than predicted."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

from simulator.cost.bisection import bisect_first
from simulator.cost.capacity import LIGHTEST_SHARE
from simulator.cost.lower_bounds import lower_bounds
from simulator.cost.scenario import Scenario
from simulator.cost.search import Solution, Target
from simulator.reports.report import Report

CASES = (0.1, 0.3, 0.5, 0.7, 0.9)  # quantiles of step times: five equally likely cases


def replicas_needed(
    scenario: Scenario, rate_per_s: float, start: int = 1, known: dict[float, Report] | None = None
) -> int | None:
    """Return the fewest replicas that keep the SLO at a rate in requests/s, looking from `start` on; None for none.

    More replicas are taken never to keep less: as in `Search`, one less than the answer does not keep it. `known`: of
    the same deployment and workload, reports by requests/s of a replica, whatever their SLO; it learns those of `start`
    replicas and of one less, which are looked at for every SLO.
    """
    found = lower_bounds(scenario)
    if found.misses(scenario.slo):
        return None
    least = max(1, math.ceil(rate_per_s / found.most_per_s))

    def keeps(replicas: int) -> bool:
        share_per_s = rate_per_s / replicas
        report = known.get(share_per_s) if known is not None else None
        report = report or scenario.report(scenario.workload.at_rate(share_per_s))
        if known is not None and replicas in (start, start - 1):
            known[share_per_s] = report
        return replace(report, slo=scenario.slo).meets_slo

    low, high, step = least - 1, max(start, least), 1
    while not keeps(high):
        if rate_per_s / high <= LIGHTEST_SHARE * found.most_per_s:
            return None
        low, high, step = high, high + step, 2 * step
    return bisect_first(keeps, low, high)


@dataclass(frozen=True)
class Risk:
    """Replicas that an answer takes in each of CASES, of which the middle one is the prediction."""

    found: Solution
    load: Target

    @cached_property
    def simulated(self) -> dict[float, Report]:
        """The answer's own load, by requests/s of a replica, and what `replicas_needed` adds."""
        return {self.load.rate_per_s / self.found.replicas: self.found.report}

    def is_asked(self, scenario: Scenario, rate_per_s: float) -> bool:
        """Whether a scenario at a rate is what was asked, whatever its SLO: its simulations are `simulated`."""
        own = self.found.scenario
        is_same = scenario.deployment is own.deployment and scenario.workload is own.workload
        return is_same and rate_per_s == self.load.rate_per_s

    @cached_property
    def replicas(self) -> tuple[int | None, ...]:
        """Replicas by case, None where no number keeps the SLO; between two cases that agree none is simulated."""
        known: dict[float, int | None] = {0.5: self.found.replicas}
        for ends in ((0.1, 0.3), (0.9, 0.7)):
            outer, inner = ends
            known[outer] = self.at(outer)
            known[inner] = known[outer] if known[outer] == known[0.5] else self.at(inner)
        return tuple(known[case] for case in CASES)

    def at(self, quantile: float) -> int | None:
        """Return the replicas that steps at a quantile of their times call for; None for none."""
        scenario = self.found.scenario.at_quantile(quantile)
        if quantile > 0.5:
            return self._of_worse(scenario)
        return replicas_needed(scenario, self.load.rate_per_s, self.found.replicas)

    def _of_worse(self, scenario: Scenario) -> int | None:
        """Return the replicas that a worse scenario than the predicted one takes: no fewer than that; None for none.

        The answer rests on the highest rate, too, for which more requests are simulated than were asked.
        """
        needed = replicas_needed(scenario, self.load.rate_per_s, self.found.replicas)
        return needed and max(needed, self.found.replicas)

    @cached_property
    def replicas_with_least_cache(self) -> int | None:
        """Replicas with the KV cache smaller by the error of its plan, where it fits barely, else those predicted.

        None where no number keeps the SLO then.
        """
        smaller = self.found.scenario.with_least_cache
        return self.found.replicas if smaller is None else self._of_worse(smaller)

    @property
    def most(self) -> int | None:
        """Replicas that are enough in all of CASES, and with the smaller cache; None where no number is."""
        slowest, smaller = self.replicas_when_slowest, self.replicas_with_least_cache
        return None if slowest is None or smaller is None else max(slowest, smaller)

    @property
    def more(self) -> list[int]:
        """Replicas in those of CASES that take more than the prediction, fewest first."""
        return sorted(each for each in self.replicas if each is not None and each > self.found.replicas)

    @property
    def never(self) -> int:
        """In how many of CASES no number of replicas keeps the SLO."""
        return self.replicas.count(None)

    @property
    def is_sure(self) -> bool:
        """Whether the predicted replicas are enough in all of CASES."""
        return not (self.more or self.never)

    @property
    def replicas_when_slowest(self) -> int | None:
        """Replicas that the slowest of CASES takes; None where no number does."""
        return self.replicas[-1]
