"""The page of a validation: predictions against measurements, and their errors."""

from collections.abc import Sequence
from pathlib import Path

from simulator.cli.output import Result
from simulator.cli.pages.blocks import listed, repeat_section, table_of, write
from simulator.cli.pages.sections import drawn
from simulator.html.page import KeyFigure, KeyFigures, PageSection
from simulator.validation.prediction import Prediction
from simulator.validation.scatter import scatter
from simulator.validation.scores import score

MANY = 500  # predictions of a file from which dots are drawn as a picture in the drawing: a page has to stay small


def save_scores_page(path: Path, asked: str, result: Result, kept: Sequence[Prediction]) -> None:
    """Write the page of the predictions that are scored, of what the text screen has in `result`. Raises as `write`."""
    found = score(kept)
    if not found.rows:
        answer = f"None of {len(kept):,} measurements is predicted."
        sections = [PageSection("why", "Why", listed(*result.notes)), repeat_section([])]
        write(path, "Predictions against measurements", asked, answer, sections)
        return
    inside = found.interval_coverage
    median, p90, of = found.median_ape, found.p90_ape, f" of {found.groups:,} groups (source, device, model)"
    if found.groups == 1:
        median, p90, of = found.row_median_ape, found.row_p90_ape, ""
    errors = f"with an error of {median:.0%} in the median and {p90:.0%} at the 90th percentile{of}"
    answer = f"{found.rows:,} of {len(kept):,} measurements are predicted, {errors}."
    figures = [
        KeyFigure("Median error", f"{found.median_ape:.0%}", f"{found.row_median_ape:.0%} by row"),
        KeyFigure("90th percentile", f"{found.p90_ape:.0%}", f"{found.row_p90_ape:.0%} by row"),
        KeyFigure("Bias", f"{round(found.bias, 2) + 0.0:+.0%}", "above 0: predicted too high"),
        *([KeyFigure("In their interval", f"{inside:.0%}", "of the measurements")] if inside == inside else []),  # noqa: PLR0124  NaN
    ]
    said = "Predicted over measured, a panel for each metric; dotted: 25 % off"
    picture = drawn(scatter(kept, rasterized=found.rows > MANY), "scatter", said, wide=True)
    sections = [
        PageSection("summary", "In figures", [KeyFigures(figures), picture]),
        PageSection("errors", "Errors", [table_of(view) for view in result.views]),
        repeat_section(result.notes),
    ]
    write(path, "Predictions against measurements", asked, answer, sections)
