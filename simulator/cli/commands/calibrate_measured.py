"""`infercast calibrate --measured`: fit an engine's constants to own measurements, for the user's own folder."""

import math
import os
import shlex
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Option

from simulator.calibration.own_preset import write_preset
from simulator.calibration.rows_by_preset import rows_by_preset
from simulator.calibration.user_calibration import Calibration, MovedConstant, calibrated
from simulator.cli.numbers import count, number, percent
from simulator.cli.options.deployment_options import OutputFormat, Profiles, grouped, use_profiles
from simulator.cli.options.measured_options import StatedOptions, told_of_columns
from simulator.cli.output import Column, Result, Row, View, emit
from simulator.cli.progress import progress_bar
from simulator.cli.text_layout import Command, Format
from simulator.engines.engine import load_engine, usual_engine
from simulator.errors import InfercastError
from simulator.hardware.hardware import Hardware, load_hardware
from simulator.limits import known
from simulator.reports.intervals import Interval
from simulator.reports.provenance import readable
from simulator.units import counted
from simulator.validation.benchfiles import read_results
from simulator.validation.measurements import Measurement
from simulator.validation.prediction import ask

SHOWN = 6  # most names of devices in an error
LISTED = 12  # most measurements that are listed one by one
SLOW = 10.0  # guess: times slower than predicted, beyond which a unit is more likely wrong than a machine slow
LITTLE = 0.1  # prior standard deviations: what moved less is left to json
DEFINITIONS = (
    "Errors are medians of |predicted / measured - 1|; held back: each setup predicted by a fit that has not seen it. "
    "80 % range: what your rows leave open. docs/measurements.md explains the fit, and what other models get of it."
)


@grouped
def command(
    stated: StatedOptions,
    measured: Annotated[
        list[Path], Option("--measured", metavar="FILE", help="Measurements or results; may be given again.")
    ],
    out: Annotated[
        Path | None, Option("--out", metavar="DIR", help="Folder to write to.", show_default="--profiles, or profiles")
    ] = None,
    profiles: Profiles = None,
    form: OutputFormat = Format.TEXT,
) -> None:
    """Calibrate an engine on a device to your own measurements; one result file is enough for a first correction.

    FILE as for `infercast validate`; options state what it does not. What your rows depend on moves as far as they
    say; written to your folder are the presets that the rows' versions lead to, and the one that `infercast estimate`
    uses. With --engine it is that one alone.
    """
    folder = out or profiles or Path("profiles")
    is_searched = str(folder) == os.environ.get("INFERCAST_PROFILES")
    use_profiles(profiles)
    said = stated.value()
    rows = [row for file in measured for row in read_results(file, said)]
    hardware = load_hardware(said.hardware or _only_device(rows))
    (found, *others), left = _calibrated(rows, hardware, stated.engine)
    path, *also = (write_preset(each, folder) for each in (found, *others))
    scores, moved, each = _scores(found), _moved_rows(found), _measured_rows(found)
    views = [View(_verdict(found), MEASURED, each)] if len(each) <= LISTED else [View(_verdict(found), SCORES, scores)]
    views += [View("What moved", MOVED, some)] if (some := [row for row in moved if abs(row["by"]) > LITTLE]) else []
    sure = [_interval_row(*kind) for kind in found.intervals]
    views.append(View("80 % intervals, as factors on a prediction", INTERVALS, sure))
    used_by = Command(_usage(found, folder, is_searched=is_searched))
    notes = [f"Wrote {path}. It is used by:", used_by, *map(_also, others, also), *left, *_remarks(found)]
    notes += [*(told for file in measured for told in told_of_columns(file)), DEFINITIONS]
    sections = {"moved": moved, "intervals": sure, "measured": each, "calibration": scores}
    sections["also_calibrated"] = [row for other in others for row in _scores(other)]
    emit(Result(sections, views, notes), form)


def _calibrated(rows: Sequence[Measurement], hardware: Hardware, engine: str) -> tuple[list[Calibration], list[str]]:
    """Return the calibrations of the presets that rows lead to, that of most rows first, and why others have none.

    Raises what the first raises.
    """
    found: list[Calibration] = []
    left: list[str] = []
    with progress_bar("calibrate") as progress:
        for name, some in rows_by_preset(rows, hardware, engine).items():
            try:
                found.append(calibrated(some, hardware, name, progress))
            except InfercastError as error:
                if not found:
                    raise
                left.append(f"Not calibrated, {name} ({counted(len(some), 'row')}): {error}")
    return found, left


def _also(other: Calibration, path: Path) -> str:
    """Return what was written beside the preset of most rows."""
    score = other.score()
    said = f"{percent(score.before)} off as shipped, {percent(score.after)} now" if other.helps else "nothing moved"
    usual = load_engine(usual_engine(other.hardware)).id == other.shipped.id
    return f"Wrote {path}, too{', for questions without --engine' * usual}: {said}."


def _only_device(rows: Sequence[Measurement]) -> str:
    """Return the device of all rows. Raises InfercastError where they name none or several."""
    devices = sorted({row.setup.hardware for row in rows} - {""})
    if len(devices) != 1:
        because = f"the rows are of {len(devices)}: {', '.join(devices[:SHOWN])}" if devices else "no row names one"
        raise InfercastError("calibrate --measured without a device", because, "Give --hardware NAME")
    return devices[0]


def _verdict(found: Calibration) -> str:
    """Return what came out in a few plain sentences."""
    score, name = found.score(), f"{found.shipped.id} on {found.hardware.id}"
    of = f"your {counted(score.rows, 'measurement')} of {counted(score.setups, 'setup')}"
    was = f"The shipped preset was {percent(score.before)} off {of}"
    if not found.helps:
        said = f"{name}: nothing moved. {was}, and constants fitted to some of them predict the others no better. "
        said += "The intervals rest on your rows too now."
    elif score.setups == 1:
        said = f"{name}: a first correction. {was}; calibrated it is {percent(score.after)} off. One setup cannot tell "
        said += "how well others are met: measure another length or load to know."
    else:
        said = f"{name}: calibrated. {was}; now it is {percent(score.after)} off. On setups that the fit had not seen "
        said += f"it is {percent(score.held_back)} off{_worst(found)}: expect that of new lengths and loads."
    return f"{said}\n"


def _worst(found: Calibration) -> str:
    """Return the metric that is furthest off on setups held back, where there are several."""
    if len(found.metrics) == 1:
        return ""
    worst = max(found.metrics, key=lambda each: found.score(each).held_back)
    return f" ({worst} {percent(found.score(worst).held_back)})"


def _usage(found: Calibration, folder: Path, *, is_searched: bool) -> str:
    """Return the command that asks the first row again, now with the calibrated preset.

    `is_searched`: commands look into the folder without being told.
    """
    row = found.measurements[0]
    question, preset = ask(row.setup).question_about(row.metric), found.shipped.id
    engine = "" if load_engine(usual_engine(found.hardware)).id == preset else preset
    asked = replace(question, deployment=replace(question.deployment, engine=engine))
    return shlex.join([*asked.command(), *([] if is_searched else ["--profiles", str(folder)])])


def _remarks(found: Calibration) -> list[str]:
    """Return what the user should know of the rows: far too slow, of other versions, left out."""
    notes = [
        f"Left out, {counted(number, 'row')}: {reason.rstrip('.')}."
        for reason, number in found.problem.left_out.items()
    ]
    signs = [1 if row.metric.endswith("_ms") else -1 for row in found.measurements]
    slower = math.exp(statistics.median(sign * error for sign, error in zip(signs, found.before, strict=True)))
    if slower > SLOW:
        notes.insert(0, f"Your rows are {slower:,.0f} times slower than predicted: give what the metric's name says.")
    if found.other_versions:
        versions = ", ".join(found.other_versions)
        notes.insert(0, f"Rows of {versions} calibrate {found.shipped.id}; --engine NAME calibrates another preset.")
    return notes


def _scores(found: Calibration) -> list[Row]:
    """Return a row of errors for each metric and one for all."""
    return [
        {"preset": found.shipped.id, "metric": metric or "all", **_without_nan(found.score(metric)._asdict())}
        for metric in (*found.metrics, "")
    ]


def _without_nan(row: Row) -> Row:
    """Return a row with None for what is not known."""
    return {key: known(each) if isinstance(each, float) else each for key, each in row.items()}


def _measured_rows(found: Calibration) -> list[Row]:
    """Return a row per measurement: measured, predicted as shipped, calibrated and held back, in the metric's unit."""
    errors = zip(found.measurements, found.before, found.after, found.held_back, strict=True)
    return [
        _without_nan(
            {"setup": _setup(row), "metric": row.metric, "stat": row.stat, "measured": row.value}
            | {"named": row.metric if row.stat == "mean" else f"{row.stat} {row.metric}"}
            | {name: row.value * float(factor) for name, factor in zip(PREDICTED, _factors(ends), strict=True)}
        )
        for row, *ends in errors
    ]


def _factors(errors: Sequence[float]) -> list[float]:
    """Return predicted / measured of errors ln(measured / predicted)."""
    return [math.exp(-error) for error in errors]


def _setup(row: Measurement) -> str:
    """Return the load of a setup and its prompt and output tokens.

    >>> from simulator.validation.measurements import Setup
    >>> _setup(Measurement("", Setup(batch=8, input_tokens=512, output_tokens=128), "tpot_ms", "mean", 9.0, ""))
    'batch 8, 512/128'
    """
    setup = row.setup
    load = f"batch {setup.batch}" if setup.batch else str(setup.regime or "").replace("_", " ")
    if setup.concurrency:
        load = f"{setup.concurrency} in flight"
    elif setup.rate_per_s:
        load = f"{setup.rate_per_s:g} requests/s"
    return f"{load}, {setup.input_tokens:.0f}/{setup.output_tokens:.0f}"


def _moved_rows(found: Calibration) -> list[Row]:
    """Return a row for each constant that moved, furthest first; none where the fit does not help."""
    return [_moved_row(each) for each in found.moved] if found.helps else []


def _moved_row(each: MovedConstant) -> Row:
    return {
        "constant": each.constant.path,
        "what": each.constant.what,
        **{"shipped": each.shipped, "calibrated": each.calibrated, "low": each.low, "high": each.high},
        **{"shipped_as": each.shipped_as, "by": each.by},
        **{f"{key}_text": _text(each, getattr(each, key), 3) for key in ENDS},
        "range_text": " to ".join(_text(each, end, 2) for end in (each.low, each.high)),
    }


def _text(each: MovedConstant, value: float, digits: int) -> str:
    """Return a value with its unit; a share of the device's own figure as a factor."""
    text = readable(each.constant.name, float(f"{value:.{digits}g}"))
    return text if each.constant.name.endswith("_s") else f"{text} x"


def _interval_row(kind: str, shipped: Interval, own: Interval) -> Row:
    return {"kind": kind, "basis": own.basis} | {
        f"{name}_{end}": getattr(each, end)
        for name, each in (("shipped", shipped), ("calibrated", own))
        for end in ("low", "high")
    }


ENDS = ("shipped", "calibrated")
PREDICTED = ("before", "after", "held_back")
SCORES = (
    Column("metric", "metric", left=True),
    Column("rows", "rows", count),
    Column("setups", "setups", count),
    Column("before", "error as shipped", percent),
    Column("after", "calibrated", percent),
    Column("held_back", "held back", percent),
)
MEASURED = (
    Column("setup", "load, ISL/OSL", left=True),
    Column("named", "metric", left=True),
    Column("measured", "measured", number()),
    Column("before", "shipped", number()),
    Column("after", "calibrated", number()),
    Column("held_back", "held back", number()),
)
INTERVALS = (
    Column("kind", "metric, load", left=True),
    Column("shipped_low", "shipped from", number()),
    Column("shipped_high", "to", number()),
    Column("calibrated_low", "now from", number()),
    Column("calibrated_high", "to", number()),
)
MOVED = (
    Column("what", "constant", left=True),
    Column("shipped_text", "shipped"),
    Column("calibrated_text", "calibrated"),
    Column("range_text", "80 % range"),
)
