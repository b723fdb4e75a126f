"""What `infercast validate` prints: how far off predictions are, by metric and by what else varies."""

from collections.abc import Sequence
from dataclasses import replace

from simulator.cli.answers.interval_columns import BASIS, IntervalColumn
from simulator.cli.numbers import count, number, percent
from simulator.cli.output import Column, Result, Row, View
from simulator.errors import InterruptedSweepError
from simulator.units import counted
from simulator.validation.parallel import INTERRUPTED
from simulator.validation.prediction import Prediction
from simulator.validation.scores import KEYS, Score, beating_light, by, not_covered, row_coverage, scored, sections

SHOWN = 12  # most rows of a long table without --all
FEW = 100  # up to so many measurements are listed one by one: a sweep of GuideLLM has some eighty
SCORES = (
    Column("rows", "rows", count),
    Column("groups", "groups", count),
    Column("median_ape", "median", percent),
    Column("p90_ape", "p90", percent),
    Column("bias", "bias", percent),
    Column("row_median_ape", "row median", percent),
    Column("row_p90_ape", "row p90", percent),
    Column("row_bias", "row bias", percent),
    Column("interval_coverage", "in interval", percent),
)


def scores_result(predictions: Sequence[Prediction], grades: list[str], *, every: bool) -> Result:
    """Return verdict, tables and sentences of the predictions for rows of some grades; `every`: long tables in full."""
    kept = scored(predictions, grades)
    predicted = sum(each.value is not None for each in kept)
    others = (key for key in KEYS if key not in ("metric", "regime") and len(by(kept, key)) > 1)
    views = [_measurements_view(kept)] if len(kept) <= FEW else []
    views.append(_errors_view(kept, ("metric", "regime"), every=True))
    views += [replace(_errors_view(kept, ("metric", key), every), is_detail=True) for key in others]
    graded = f"{', '.join(grades)} or not at all"
    notes = [
        f"{predicted:,} of {len(kept):,} rows graded {graded} are predicted; {len(predictions):,} in all.",
        "Errors are shares of the measured value: the mean |error| of each (source, device, model), then over groups.",
        *(f"Not covered, {counted(rows, 'row')}: {reason}" for reason, rows in not_covered(kept).items()),
        *(
            f"Beats the speed of light: {each.measurement.id} {each.measurement.metric} {each.measurement.value:g}, "
            f"light {each.light:g}"
            for each in beating_light(kept)
        ),
    ]
    left, shown = _left(predictions), views if predicted else []
    return Result(sections(predictions, grades), shown, notes, refused=left, verdict=[_verdict(kept)])


def _verdict(kept: Sequence[Prediction]) -> str:
    """Return the error over all metrics, and the share of measurements inside their interval.

    Of rows where they are of one source, as a user's own are; of groups where there are several sources.
    """
    if all(each.value is None for each in kept):
        return f"None of {counted(len(kept), 'row')} is predicted."
    [found] = by(kept).values()
    rows = f"{counted(found.rows, 'row')} predicted"
    if len(by(kept, "source")) == 1:
        inside = f"; {share:.0%} lie inside their interval" if (share := row_coverage(kept)) >= 0 else ""
        return f"{rows}, {found.row_median_ape:.0%} off in the median{inside}."
    inside = f", and {found.interval_coverage:.0%} lie inside their interval" if found.interval_coverage >= 0 else ""
    over = f"over {found.groups:,} groups (source, device, model)"
    return f"{rows}; {over} they are {found.median_ape:.0%} off in the median{inside}."


def _left(predictions: Sequence[Prediction]) -> list[InterruptedSweepError]:
    """Return what an interrupt has left."""
    left = sum(each.reason == INTERRUPTED for each in predictions)
    remedy = "Let it run on, or ask for these rows alone"
    return [InterruptedSweepError.of(left, len(predictions), remedy)] if left else []


ROW = (
    *(Column(name, name, left=True) for name in ("measurement", "metric", "stat")),
    Column("measured", "measured", number()),
    Column("predicted", "predicted", number()),
    Column("error", "error", percent),
    IntervalColumn("interval", "interval", number()),
    BASIS,
)


def _measurements_view(kept: Sequence[Prediction]) -> View:
    """Return a table of each measurement beside its prediction."""
    rows = [
        {
            **{"measurement": each.measurement.id, "metric": each.measurement.metric, "stat": each.measurement.stat},
            **{"measured": each.measurement.value, "predicted": each.value, "error": each.error},
            **{"interval_low": each.low, "interval_high": each.high, "interval_basis": each.basis or None},
        }
        for each in kept
        if each.value is not None
    ]
    return View("Measurements, each in the unit that its metric ends in", ROW, rows)


def _errors_view(kept: Sequence[Prediction], keys: tuple[str, ...], every: bool) -> View:
    """Return a table of errors by some keys, its first rows or `every` one."""
    found = by(kept, *keys)
    shown = list(found.items())[: None if every else SHOWN]
    heads = tuple(Column(key, key, left=True) for key in keys)
    left_out = f", the first {SHOWN} of {len(found)}" if len(shown) < len(found) else ""
    return View(f"Errors by {' and '.join(keys)}{left_out}", (*heads, *SCORES), [_row(keys, *each) for each in shown])


def _row(keys: tuple[str, ...], values: tuple[str, ...], found: Score) -> Row:
    return {**dict(zip(keys, values, strict=True)), **found.figures()}
