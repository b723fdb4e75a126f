"""The page of a validation: predictions against measurements, and their errors."""

from collections.abc import Sequence
from pathlib import Path

from simulator.cli.output import Result
from simulator.cli.pages.blocks import below, bullets, repeat_section, table_of, write
from simulator.cli.pages.sections import picture_of
from simulator.html.page import KeyFigure, KeyFigures, PageSection
from simulator.validation.prediction import Prediction
from simulator.validation.scatter import scatter
from simulator.validation.scores import score

MANY = 500  # predictions of a file from which dots are drawn as a picture in the drawing: a page has to stay small


def save_scores_page(path: Path, asked: str, result: Result, kept: Sequence[Prediction]) -> None:
    """Write the page of the predictions that are scored, of what the text screen has in `result`. Raises as `write`."""
    found = score(kept)
    if not found.rows:
        sections = [PageSection("why", "Why", bullets(*result.notes)), repeat_section([])]
        write(path, "Predictions against measurements", asked, " ".join(result.verdict), sections)
        return
    inside = found.interval_coverage
    figures = [
        KeyFigure("Median error", f"{found.median_ape:.0%}", f"over groups; {found.row_median_ape:.0%} by row"),
        KeyFigure("90th percentile", f"{found.p90_ape:.0%}", f"over groups; {found.row_p90_ape:.0%} by row"),
        KeyFigure("Bias", f"{round(found.bias, 2) + 0.0:+.0%}", "above 0: predicted too high"),
        *([KeyFigure("In their interval", f"{inside:.0%}", "of the rows of a group")] if inside == inside else []),  # noqa: PLR0124  NaN
    ]
    said = "Predicted over measured, a panel for each metric; dotted: 25 % off"
    picture = picture_of(scatter(kept, rasterized=found.rows > MANY), "scatter", said, wide=True)
    sections = [
        PageSection("summary", "In figures", [KeyFigures(figures), picture]),
        PageSection("errors", "Errors", [*map(table_of, result.views), *bullets(*result.notes)]),
        repeat_section(below(result)),
    ]
    write(path, "Predictions against measurements", asked, " ".join(result.verdict), sections)
