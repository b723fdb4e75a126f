"""From which volume on a deployment of one's own costs less than a hosted API."""

import math
from dataclasses import dataclass
from functools import cached_property

from simulator.cost.bill import HOURS_PER_MONTH, tokens_per_s
from simulator.cost.capacity import Answer
from simulator.cost.packing import Packing
from simulator.units import DAY_S

MOST_REPLICAS = 256  # beyond which no break-even is looked for
ROUNDING = 1e-9  # of rates that are equal


@dataclass(frozen=True)
class BreakEven:
    """The volume above which own instances always cost less than a hosted API that takes `hosted_usd` per request.

    `rate_per_s` in requests/s; `tokens_per_day` with prompts; `utilisation`: share of the replicas' capacity within the
    SLO that it uses, 0 to 1. `packing`: what is rented there.
    """

    rate_per_s: float
    tokens_per_day: float
    utilisation: float
    packing: Packing


def hosted_usd_per_month(hosted_usd: float, rate_per_s: float) -> float:
    """Return what requests at `hosted_usd` each cost in a month of `HOURS_PER_MONTH`.

    >>> round(hosted_usd_per_month(0.001, 2.0), 1)
    5256.0
    """
    return hosted_usd * rate_per_s * 3600 * HOURS_PER_MONTH


@dataclass(frozen=True)
class SelfHosting:
    """What an answer's deployment costs at every volume, against hosted APIs."""

    found: Answer

    @cached_property
    def packings(self) -> list[Packing]:
        """Cheapest instances for 1, 2, ... `MOST_REPLICAS` replicas; empty without an offer or a rate."""
        counts = range(1, MOST_REPLICAS + 1) if self.found.packing else ()
        return [self.found.scenario.packing(replicas) for replicas in counts]

    def break_even(self, hosted_usd: float) -> BreakEven | None:
        """Return the lowest volume above which every higher one is cheaper on own instances; None where there is none.

        `hosted_usd`: u, of a request. n replicas carry up to n c requests/s, with c the capacity within the SLO, and
        cost S(n): the cheapest instances, with electricity at the power of the asked load. Own instances cost more
        between (n - 1) c and S(n) / (3600 u); the last such rate is the break-even.
        """
        found, last = self.found, None
        if found.packing is None or found.at_load is None or hosted_usd <= 0:
            return None
        extra = (found.at_load.usd_per_hour - found.packing.usd_per_hour) / found.replicas  # electricity of a replica
        for replicas, packing in enumerate(self.packings, start=1):
            full_per_s = replicas * found.capacity.rate_per_s
            equal_per_s = (packing.usd_per_hour + extra * replicas) / (3600 * hosted_usd)
            first_per_s = full_per_s - found.capacity.rate_per_s  # above it so many are needed
            if equal_per_s > first_per_s * (1 + ROUNDING):
                last = min(equal_per_s, full_per_s), full_per_s, packing
        if last is None or last[1] == MOST_REPLICAS * found.capacity.rate_per_s:
            return None
        rate_per_s, full_per_s, packing = last
        return BreakEven(rate_per_s, self.tokens_per_day(rate_per_s), rate_per_s / full_per_s, packing)

    def tokens_per_day(self, rate_per_s: float) -> float:
        """Return the tokens of a day at a rate in requests/s, with prompts."""
        return sum(tokens_per_s(self.found.report, rate_per_s)) * DAY_S

    def verdict(self, hosted_usd: float, provider: str) -> str:
        """Say from how many tokens a day on own instances cost less than a hosted API, and at what use."""
        above, where = self.break_even(hosted_usd), self.found.scenario.deployment.hardware.id
        if above is None:
            return f"Self-hosting on {where} pays at no volume: {provider} costs less than full replicas."
        volume = f"{_rounded(above.tokens_per_day / 1e6)} million tokens a day against {provider}"
        at = f"{above.rate_per_s:.3g} requests/s, {above.utilisation:.0%} of the capacity of {above.packing.describe()}"
        asked = f"asked are {_rounded(self.tokens_per_day(self.found.rate_per_s) / 1e6)} million"
        return f"Self-hosting on {where} pays above {volume} ({asked}): {at}."


def _rounded(value: float) -> str:
    """Return three digits, as 0.0123, 12.3 or 1,230."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"
