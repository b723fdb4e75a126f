"""From which volume on a deployment of one's own costs less than a hosted API."""

import math
from dataclasses import dataclass

from simulator.cost.bill import HOURS_PER_MONTH
from simulator.cost.capacity import Answer
from simulator.cost.packing import Packing, packed

MOST_REPLICAS = 256  # beyond which no break-even is looked for
SECONDS_PER_DAY = 86_400.0


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


def break_even(found: Answer, hosted_usd: float) -> BreakEven | None:
    """Return the lowest volume above which every higher one is cheaper on own instances; None where there is none.

    n replicas carry up to n c requests/s, with c the capacity within the SLO, and cost S(n): at each rate the cheapest
    instances for ceil(rate / c) replicas, with electricity at the power of the asked load. Own instances cost more
    between (n - 1) c and S(n) / (3600 u), with u = `hosted_usd`; the last such rate is the break-even. Replicas are
    tried up to `MOST_REPLICAS`.
    """
    packing, capacity_per_s = found.packing, found.capacity.rate_per_s
    if packing is None or found.at_load is None or hosted_usd <= 0:
        return None
    scenario = found.scenario
    extra = (found.at_load.usd_per_hour - packing.usd_per_hour) / found.replicas  # electricity of a replica

    def instances(replicas: int) -> Packing:
        return packed(scenario.replica_size, replicas, scenario.offers)

    last: BreakEven | None = None
    for replicas in range(1, MOST_REPLICAS + 1):
        each = instances(replicas)
        equal_per_s = (each.usd_per_hour + extra * replicas) / (3600 * hosted_usd)
        if equal_per_s > (replicas - 1) * capacity_per_s:  # dearer at the first rate that needs so many
            rate_per_s = min(equal_per_s, replicas * capacity_per_s)
            last = _break_even(found, rate_per_s, replicas, each)
    return None if last is None or last.rate_per_s >= MOST_REPLICAS * capacity_per_s else last


def _break_even(found: Answer, rate_per_s: float, replicas: int, packing: Packing) -> BreakEven:
    report = found.report
    tokens = (report.input_tokens + report.output_tokens) / report.completed
    share = rate_per_s / (replicas * found.capacity.rate_per_s)
    return BreakEven(rate_per_s, rate_per_s * tokens * SECONDS_PER_DAY, share, packing)


def verdict(found: Answer, hosted_usd: float, provider: str) -> str:
    """Say in a sentence from how many tokens a day on own instances cost less than a hosted API, and at what use."""
    above = break_even(found, hosted_usd)
    where = found.scenario.deployment.hardware.id
    if above is None:
        return f"Self-hosting on {where} pays at no volume: {provider} costs less than full replicas."
    millions, busy = above.tokens_per_day / 1e6, above.utilisation
    at = f"{above.rate_per_s:.3g} requests/s, {busy:.0%} of the capacity of {above.packing.describe()}"
    return f"Self-hosting on {where} pays above {_rounded(millions)} million tokens a day against {provider}: {at}."


def _rounded(value: float) -> str:
    """Return three digits, as 0.0123, 12.3 or 1,230."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"
