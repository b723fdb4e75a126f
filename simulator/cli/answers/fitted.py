"""`--fitted`: a table under the answer of the fitted multipliers that it used."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated

from typer import Option

from simulator.cli.output import Column, Result, Row, View
from simulator.deployment.deployment import Deployment
from simulator.reports.provenance import fitted_multipliers, readable

FittedOption = Annotated[
    bool, Option("--fitted", help="List the fitted multipliers that the answer used; csv has them alone.")
]
TITLE = "Fitted multipliers of the device's own kernel tables, and fitted host times"
TOOL = "tools/fit_efficiency.py, "  # made the shipped fits; dropped from the table, which has little room
NAMES = (Column("engine", "engine", left=True), Column("device", "on", left=True))
COLUMNS = (
    Column("multiplier", "multiplier", left=True),
    Column("shown", "value"),
    Column("multiplies", "multiplies, or seconds of", left=True),
    Column("evidence", "evidence", left=True),
    Column("source", "fit", left=True),
)


def with_fitted(result: Result, deployments: Iterable[Deployment]) -> Result:
    """Return a result with one more section and table: the multipliers and host times fitted into its step times."""
    rows = _rows(deployments)
    sections = {**result.sections, "fitted_multipliers": rows}
    return replace(result, sections=sections, views=[*result.views, _view(rows)])


def fitted_view(deployments: Iterable[Deployment]) -> View:
    """Return the table of the multipliers and host times fitted into the step times of some deployments."""
    return _view(_rows(deployments))


def _view(rows: list[Row]) -> View:
    shown = [{**row, "shown": _value(row), "source": row["source"].removeprefix(TOOL)} for row in rows]
    varying = [each for each in NAMES if len({row[each.key] for row in rows}) > 1]
    return View(TITLE, (*varying, *COLUMNS), shown)


def _value(row: Row) -> str:
    return readable(row["multiplier"], float(f"{row['value']:.3g}"))


def _rows(deployments: Iterable[Deployment]) -> list[Row]:
    """Return one row for each multiplier that any of the deployments uses."""
    used = dict.fromkeys(each for deployment in deployments for each in fitted_multipliers(deployment))
    return [
        {
            "engine": each.engine,
            "device": each.device,
            "multiplier": each.name,
            "value": each.value,
            "multiplies": each.multiplies,
            "evidence": each.source.evidence,
            "source": each.source.text,
            "date": each.source.date,
        }
        for each in used
    ]
