"""The page of a decision: what to rent for a load, at what price, how sure that is, and why."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from simulator.cli.answers.compare_details import CostDetails
from simulator.cli.answers.compare_screen import QUALITY, Compared, verdict
from simulator.cli.answers.compare_sensitivity import SensitivityTables
from simulator.cli.answers.offer_columns import energy_guesses
from simulator.cli.answers.router_savings import router_savings
from simulator.cli.answers.technique_notes import technique_notes
from simulator.cli.numbers import count, percent
from simulator.cli.output import Column, Row, View
from simulator.cli.pages.blocks import bullets, evidence_section, repeat_section, table_of, write
from simulator.cli.pages.sections import (
    RentedOffers,
    SimulatedRun,
    curve_view,
    load_curve,
    load_section,
    memory_section,
    picture_of,
    prices_section,
    request_section,
    step_section,
)
from simulator.cli.progress import followed
from simulator.cost.risk import CASES
from simulator.deployment.deployment import Deployment
from simulator.deployment.launch_command import launch_command
from simulator.deployment.launch_several_hosts import note_of_hosts
from simulator.errors import NotModelledError
from simulator.html.page import Block, CommandBlock, KeyFigure, KeyFigures, PageSection, Prose
from simulator.plots.cost_plots import plot_costs
from simulator.plots.panels import frontier_panel
from simulator.plots.sweep_plots import Sweep
from simulator.plots.tornado import plot_tornado
from simulator.units import significant


@dataclass(frozen=True)
class Decision:
    """Answers of a search or of a list, the cheapest first, with all that a page says of them.

    `details`: every figure of each. `rows`: of `compared_row`. `moved`: what moves the cheapest. `excluded`: sentences
    on those that are no answer. `surest`: a sentence on what is enough however long steps take.
    """

    details: CostDetails
    rows: Sequence[Row]
    moved: SensitivityTables
    excluded: Sequence[str] = ()
    surest: str = ""

    @property
    def compared(self) -> Sequence[Compared]:
        """The answers."""
        return self.details.compared

    @property
    def best(self) -> Compared:
        """The cheapest answer."""
        return self.compared[0]

    @property
    def deployments(self) -> list[Deployment]:
        """The deployments of all answers."""
        return [each.found.scenario.deployment for each in self.compared]

    @property
    def labels(self) -> list[str]:
        """What tells the answers apart: with their models, where they have several."""
        several = len({each.model.id for each in self.deployments}) > 1
        return [f"{row['model']} {row['deployment']}" if several else row["deployment"] for row in self.rows]

    @cached_property
    def curve(self) -> list[Row]:
        """One replica of the cheapest answer over its load."""
        return load_curve(self.best.found.scenario, self.best.answer.capacity.rate_per_s, self.details.level)

    @cached_property
    def ran(self) -> SimulatedRun:
        """The simulation of the cheapest answer at its share of the asked rate."""
        return SimulatedRun(self.best.found.scenario, self.best.found.report, self.details.rows[0])

    def save(self, path: Path) -> None:
        """Write the page. Raises InfercastError where its file cannot be written."""
        load, found = self.best.load, self.best.found
        title = f"What to rent for {', '.join(dict.fromkeys(each.model.id for each in self.deployments))}"
        asked = f"{found.scenario.workload.at_rate(load.rate_per_s).describe()}. Asked: {load.slo}."
        best = self.best.label
        curve = f"Latency against load, one replica of {best}"
        prices = [RentedOffers.of(each.answer) for each in self.compared], self.details.priced.terms().on
        makes: list[Callable[[], PageSection]] = [  # some simulate for seconds
            self._answer,
            self._alternatives,
            self._risk,
            self._hosted,
            lambda: load_section(self._sweep, [curve_view(self._sweep)], curve),
            lambda: request_section(self.ran),
            lambda: step_section(self.ran),
            lambda: memory_section(self.deployments, self.labels),
            lambda: prices_section(*prices),
            lambda: PageSection("figures", "Every figure", [table_of(view) for view in self.details.views]),
            lambda: evidence_section(self.deployments, [*energy_guesses(), *self.details.priced.guesses()]),
            lambda: repeat_section([QUALITY, *technique_notes(self.deployments)]),
        ]
        sections = followed("sections of the page", (make() for make in makes), len(makes))
        write(path, title, asked, verdict(list(self.compared), list(self.rows), self.surest), sections)

    @property
    def _sweep(self) -> Sweep:
        rates = [float(row["request_rate"]) for row in self.curve]
        slo = self.best.load.slo
        return Sweep("", "requests/s of one replica", rates, [""] * len(rates), self.curve, slo)

    def _answer(self) -> PageSection:
        """Return the key figures of the cheapest answer, what limits it, and how to start it."""
        best, figures = self.best, KeyFigures(self._key_figures())
        why = [f"Limit of {best.label}: {best.limiter.sentence}.", *best.knife_edge, *router_savings(best.answer)]
        return PageSection("summary", "In figures", [figures, *bullets(*why), self._launch()])

    def _launch(self) -> Block:
        found = self.best.found
        try:
            command = launch_command(found.scenario.deployment)
        except NotModelledError as error:
            return Prose([f"{error}"])
        heading = f"Launch each of {found.replicas}" if found.replicas > 1 else "Launch"
        note = note_of_hosts(found.scenario.deployment)
        return CommandBlock(f"{heading}. {note}" if note else heading, command)

    def _key_figures(self) -> list[KeyFigure]:
        row, found, slo = self.rows[0], self.best.found, self.best.load.slo
        low, high = row["replicas_low"], row["replicas_high"]
        usd, per_million = row["usd_per_month"], row["usd_per_million_output_tokens"]
        bounds = {name: f"at most {bound * 1e3:,g} ms asked" for name, bound in slo.bounds_s.items()}
        cost = (
            [KeyFigure("Price a month", f"${usd:,.0f}", f"${significant(row['usd_per_hour'])} an hour")] if usd else []
        )
        if per_million:
            ends = _ends(row, "usd_per_million_output_tokens")
            cost.append(KeyFigure("Per million output tokens", f"${significant(per_million)}", _in_cases(*ends)))
        most = f"of {significant(row['capacity_per_s'])} requests/s a replica"
        return [
            *cost,
            KeyFigure("Replicas", str(found.replicas), _in_cases(str(low or "-"), str(high or "no number"))),
            KeyFigure("TTFT, p95", f"{significant(row['p95_ttft_ms'])} ms", bounds.get("ttft", "no bound asked")),
            KeyFigure("TPOT, p95", f"{significant(row['p95_tpot_ms'])} ms", bounds.get("tpot", "no bound asked")),
            KeyFigure("Load", percent(row["load_of_capacity"]), most),
        ]

    def _alternatives(self) -> PageSection:
        several, costs = len(self.compared) > 1, [each.answer for each in self.compared]
        priced = any(row["usd_per_hour"] is not None for row in self.rows)
        blocks: list[Block] = [table_of(_answers_view(self.rows))]
        if priced:
            said = "What each costs, and what one replica serves within the SLO, with held-out intervals"
            costly = plot_costs(costs, self.details.rows, self.labels)
            costly.suptitle("")  # the page says it
            blocks.append(picture_of(costly, "costs", said, wide=True))
        if priced and several and all(row["p95_tpot_ms"] > 0 for row in self.rows):  # one output token has no TPOT
            said = "Price against speed; the line joins those that no other beats in both"
            blocks.append(picture_of(frontier_panel(self.labels, self.rows), "frontier", said, wide=True))
        return PageSection("options", "The options" if several else "The cost", [*blocks, *bullets(*self.excluded)])

    def _risk(self) -> PageSection:
        """Return the replicas and dollars of each answer in five equally likely cases, and what moves the best."""
        moved, best = self.moved, self.best
        told = "Five equally likely cases: step times at these quantiles of measured errors, and replicas for each."
        cases: list[Block] = [Prose([told]), table_of(_cases_view(self.compared))]
        usd = best.usd(best.found.replicas)
        if usd is None:  # what moves an answer is told in dollars
            return PageSection("risk", "How sure it is", cases)
        said = f"What {best.label} costs at both ends of what may be other than asked or predicted"
        tornado = picture_of(plot_tornado(moved.knobs, usd, ""), "tornado", said, wide=True)
        moving = [tornado, table_of(moved.view()), *bullets(*moved.notes())]
        return PageSection("risk", "How sure it is, and what moves it", [*cases, *moving])

    def _hosted(self) -> PageSection:
        """Return what hosted APIs of the same models cost, where that is asked for."""
        if not self.details.priced.vs_api:
            return PageSection("hosted", "", [])
        api = self.details.hosted
        return PageSection("hosted", "Against hosted APIs", [*map(table_of, api.views), *bullets(*api.notes)])


def _ends(row: Row, key: str) -> tuple[str, str]:
    """Return both ends of an interval in words."""
    low, high = row[f"{key}_low"], row[f"{key}_high"]
    return "-" if low is None else significant(low), "no end" if high is None else significant(high)


def _cases(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _in_cases(low: str, high: str) -> str:
    return "in all cases" if low == high else f"{low} to {high} over the cases"


def _answers_view(rows: Sequence[Row]) -> View:
    """Return the table of the first screen with what 80 columns have no room for."""
    several = len({row["model"] for row in rows}) > 1
    key = "usd_per_million_output_tokens"
    shown = [{**row, "interval": None if row[key] is None else _cases(*_ends(row, key))} for row in rows]
    columns = [
        Column("deployment", "deployment", left=True),
        *([Column("model", "model", left=True)] if several else []),
        Column("replicas", "replicas", count),
        Column("usd_per_hour", "$/h", significant),
        Column("usd_per_month", "$/month", count),
        Column("usd_per_million_output_tokens", "$/M output tokens", significant),
        Column("interval", "over the cases"),
        Column("p95_ttft_ms", "TTFT p95 ms", significant),
        Column("p95_tpot_ms", "TPOT p95 ms", significant),
        Column("load_of_capacity", "load", percent),
        Column("capacity_per_s", "max req/s of a replica", significant),
        Column("limiter", "limited there by", left=True),
    ]
    return View("Answers, the cheapest first", columns, shown)


def _cases_view(compared: Sequence[Compared]) -> View:
    keys = [f"case_{place}" for place in range(len(CASES))]
    rows: list[Row] = []
    for each in compared:
        cases = dict(zip(keys, each.risk.replicas, strict=True))
        cases["cache"] = each.risk.replicas_with_least_cache
        rows.append({"deployment": each.label, **cases, "usd": each.usd(each.risk.most)})
    barely = any(each.found.scenario.memory.fits_barely for each in compared)
    columns = [
        Column("deployment", "deployment", left=True),
        *(Column(key, f"p{100 * case:.0f} steps", count) for key, case in zip(keys, CASES, strict=True)),
        *([Column("cache", "smaller cache", count)] if barely else []),
        Column("usd", "$/h in the worst", significant),
    ]
    return View("Replicas by case: a dash where no number keeps the SLO", columns, rows)
