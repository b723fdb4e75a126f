"""`--sensitivity` of `infercast compare`: a table of what moves the answer, where it flips, what to measure first."""

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path

from simulator.cli.answers.compare_screen import Compared
from simulator.cli.numbers import number
from simulator.cli.output import Column, Row, View
from simulator.cost.bill import HOURS_PER_MONTH
from simulator.cost.sensitivity import Knob, KnobEnd, Sensitivity, worth_measuring
from simulator.executors.executor import in_order
from simulator.executors.threads import Threads
from simulator.units import significant


class SensitivityTables:
    """What moves the best of some answers, and where another of them is cheaper."""

    def __init__(self, compared: Sequence[Compared], threads: Threads) -> None:
        self.compared, self.threads = compared, threads
        self.sensitivity = Sensitivity([each.risk for each in compared])

    @cached_property
    def knobs(self) -> list[Knob]:
        """What may be other than asked or predicted, with the answers at both ends: simulated when first asked for."""
        return self.sensitivity.knobs(partial(in_order, self.threads))

    def rows(self) -> list[Row]:
        """Return a row per knob: both ends in words, what the answer costs there, and which answer is best there."""
        return [
            {"knob": knob.name, "asked": knob.is_known, **self._end("low", knob.low), **self._end("high", knob.high)}
            for knob in self.knobs
        ]

    def _end(self, side: str, end: KnobEnd) -> Row:
        best = None if end.best is None else self.compared[end.best].label
        return {
            side: end.value,
            f"{side}_usd_per_hour": end.own_usd,
            f"{side}_best": best,
            f"{side}_best_usd_per_hour": end.best_usd,
        }

    def view(self) -> View:
        """Return the table: $/h of the best answer at both ends, and the answer that wins there where it is another."""
        own = self.compared[0].label
        lines: list[Row] = []
        for row in self.rows():
            ends = ((row[side], row[f"{side}_usd_per_hour"], row[f"{side}_best"]) for side in ("low", "high"))
            low, high = (_told(value, usd, "" if best == own else best) for value, usd, best in ends)
            lines.append({"knob": row["knob"], "low": low, "high": high})
        columns = [
            Column(key, heading, left=True) for key, heading in (("knob", "if"), ("low", "less"), ("high", "more"))
        ]
        return View(f"What {own} costs (in brackets what is cheaper then)", columns, lines)

    def notes(self) -> Iterator[str]:
        """Yield where the decision flips, and which measurement is worth most."""
        flips = [self._rate_flip(up=True), self._rate_flip(up=False), self._price_flip()]
        told = ", ".join(each for each in flips if each)
        own = self.compared[0].label
        yield f"{own} flips to {told}." if told else f"No rate from a quarter to four times flips {own}."
        best = worth_measuring([each.risk for each in self.compared])
        if best is None:
            yield "No single measurement of step times would change the decision."
        else:
            worth = f"${best.usd_per_hour * HOURS_PER_MONTH:,.0f} a month on average"
            yield f"Measure first: output tokens/s of {self.compared[best.place].label} when saturated (worth {worth})."

    def _rate_flip(self, *, up: bool) -> str:
        found = self.sensitivity.flip_rate_per_s(up)
        return "" if found is None else f"{self.compared[found[1]].label} {'above' if up else 'below'} {found[0]:.2g}/s"

    def _price_flip(self) -> str:
        found = self.sensitivity.flip_price()
        if found is None:
            return ""
        return f"{self.compared[found[1]].label} if a replica costs over ${significant(found[0])}/h"

    def save(self, path: Path) -> None:
        """Draw the tornado plot. Raises InfercastError for a file that cannot be written."""
        from simulator.plots.plot_file import save
        from simulator.plots.tornado import plot_tornado

        best = self.compared[0]
        usd = best.usd(best.found.replicas)
        drawn: list[Knob] = [knob for knob in self.knobs if usd is not None]
        save(plot_tornado(drawn, usd or 0.0, f"{best.found.candidate.model.id} on {best.label}"), path)


def _told(value: str, usd: float | None, other: str | None) -> str:
    price = "no SLO" if usd is None else f"${number(3)(usd)}/h"
    return f"{value}: {price} ({other})" if other else f"{value}: {price}"
