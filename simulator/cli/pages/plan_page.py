"""The page of a plan: which fleet keeps the SLO while the load grows, what it costs, and how it was checked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from simulator.cli.answers.deployment_columns import labels_of
from simulator.cli.numbers import count
from simulator.cli.output import Column, Result, View
from simulator.cli.pages.blocks import below, bullets, evidence_section, repeat_section, table_of, write
from simulator.cli.pages.sections import (
    RentedOffers,
    SimulatedRun,
    memory_section,
    picture_of,
    prices_section,
    request_section,
    step_section,
)
from simulator.cost.plan import FleetCheck, FleetPlan
from simulator.html.page import Block, Folded, KeyFigure, KeyFigures, PageSection
from simulator.plots.plan_panels import day_panel, months_panel
from simulator.reports.slo import Slo
from simulator.units import significant

MONTHS = (
    Column("month", "month", str),
    Column("kind", "fleet", left=True),
    Column("mean_per_s", "mean requests/s", significant),
    Column("peak_per_s", "peak requests/s", significant),
    Column("least", "fewest replicas", count),
    Column("most", "most replicas", count),
    Column("replica_hours", "replica-hours", count),
    Column("usd", "$", count),
)
CHECKS = (
    Column("kind", "fleet", left=True),
    Column("month", "month", str),
    Column("replicas", "replicas"),
    Column("within", "within the SLO", lambda share: f"{share:.1%}"),
    Column("within_one_less", "with one less", lambda share: f"{share:.1%}"),
    Column("share", "asked", lambda share: Slo(share=share).asked),
    Column("keeps", "holds", lambda holds: "yes" if holds else "NO"),
)


@dataclass(frozen=True)
class PlanAnswer:
    """A plan's best fleets, a table of their months, the checks by simulation (the last holds, if any), the verdict."""

    best: FleetPlan
    months: View
    checks: Sequence[FleetCheck]
    verdict: Sequence[str]
    on: date

    def save(self, path: Path, result: Result) -> None:
        """Write the page, of what the text screen has in `result`. Raises as `write` does."""
        best, scenario = self.best, self.best.scenario
        most = max(each.most for each in best.months)
        rented = RentedOffers(scenario.offers, best.scenario.packing(most) if scenario.offers else None)
        full = SimulatedRun(scenario, best.rates.known.report, {})
        every = table_of(View("Every fleet of every month", MONTHS, [each._asdict() for each in best.months]))
        folded = Folded("With replica-hours", [every])
        checks = [each._asdict() for each in self.checks]
        months = dict.fromkeys((1, best.busiest))
        days = [picture_of(day_panel(best, month), f"day-{month}", _day(month), wide=True) for month in months]
        by_month: list[Block] = [picture_of(months_panel(best), "months", "Each kind of fleet by the month", wide=True)]
        told = [*self.verdict[2:], *result.notes]
        sections = [
            PageSection("summary", "In figures", [KeyFigures(self._key_figures()), *bullets(*told)]),
            PageSection("months", "By the month", [*by_month, table_of(self.months), folded]),
            PageSection("day", "A day of the fleet", days),
            PageSection("checks", "Checked by simulation", [table_of(View("Where it is busiest", CHECKS, checks))]),
            request_section(full, " at a replica's highest rate"),
            step_section(full),
            memory_section([scenario.deployment], labels_of([scenario.deployment])),
            prices_section([rented], self.on),
            evidence_section([scenario.deployment], result.rests_on),
            repeat_section(below(result)),
        ]
        load = replace(scenario.workload, arrivals=best.demand.in_month(1))
        asked = f"{load.describe()}, growing {best.demand.growth_per_month:.0%} a month for "
        asked += f"{best.demand.months} months. Asked: {scenario.slo}."
        write(path, f"A plan for {scenario.deployment.model.id}", asked, " ".join(self.verdict[:2]), sections)

    def _key_figures(self) -> list[KeyFigure]:
        best, last = self.best, self.checks[-1] if self.checks else None
        kind = last.kind if last else min(best.kinds, key=best.usd)
        months = [each for each in best.months if each.kind == kind]
        usd = best.usd(kind)
        found = [KeyFigure("Fleet", kind, f"of {best.scenario.deployment.hardware.label}")]
        if math.isfinite(usd):
            found.append(KeyFigure("Price of month 1", f"${months[0].usd or 0:,.0f}", f"${usd:,.0f} over all months"))
        least, most = min(each.least for each in months), max(each.most for each in months)
        found.append(KeyFigure("Replicas", f"{least} to {most}" if least < most else str(most), "spares included"))
        slo = best.scenario.slo
        found.append(KeyFigure("One replica serves", f"{significant(best.rates.known.rate_per_s)}/s", slo.within))
        if last:
            less = "" if last.within_one_less is None else f"with one replica less {last.within_one_less:.1%}"
            found.append(KeyFigure("Within the SLO" if slo.bounds_s else "Served", f"{last.within:.1%}", less))
        return found


def _day(month: int) -> str:
    return f"Load and what each fleet can serve over a day of month {month}"
