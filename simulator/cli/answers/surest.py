"""What is enough however long steps take: a row, and a sentence behind the verdict."""

import math
from collections.abc import Sequence

from simulator.cli.answers.compare_screen import Compared, counted_replicas
from simulator.cli.output import Row
from simulator.cost.bill import HOURS_PER_MONTH


def surest_of(compared: Sequence[Compared]) -> Row | None:
    """Return which answer is the cheapest in the slowest of the cases, and so enough in all; None where none is."""
    enough = [each for each in compared if each.risk.replicas_when_slowest is not None]
    if not enough:
        return None
    best = min(enough, key=lambda each: _or_last(each.usd(each.risk.replicas_when_slowest)))
    return surest_row(best, best.risk.replicas_when_slowest or 0)


def _or_last(usd: float | None) -> float:
    return math.inf if usd is None else usd


def surest_row(each: Compared, replicas: int) -> Row:
    """Return so many replicas of an answer, which are enough however long steps take."""
    usd = each.usd(replicas)
    return {
        "model": each.found.candidate.model.id,
        "deployment": each.label,
        "devices": each.found.candidate.devices,
        "replicas": replicas,
        "usd_per_hour": usd,
        "usd_per_month": usd and usd * HOURS_PER_MONTH,
    }


def surest_words(row: Row | None, *, of_these: bool, models: int = 1) -> str:
    """Say what is enough in all cases: the cheapest of all that were searched, or of those that are shown.

    Its model is named where there are several.

    >>> row = {"deployment": "l40s", "devices": 1, "replicas": 2, "usd_per_month": 1241.0}
    >>> surest_words(row, of_these=False), surest_words(None, of_these=True)
    ('Enough in all 5: 2 replicas of l40s, $1,241 a month.', 'None of these is enough in all 5.')
    """
    if row is None:
        return f"None{' of these' if of_these else ''} is enough in all 5."
    price = f", ${row['usd_per_month']:,.0f} a month" if row["usd_per_month"] else ""
    named = counted_replicas(row["deployment"], row["devices"], row["replicas"])
    named = f"{row['model']} on {named}" if models > 1 else named
    return f"{'Of these, enough' if of_these else 'Enough'} in all 5: {named}{price}."
