"""`infercast calibrate --measured`: fit an engine's preset to a user's own measurements, for the user's own folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from typer import Option

from simulator.calibration.calibrate import write_profile
from simulator.calibration.map_fit import SHARES, TIMES
from simulator.calibration.user_calibration import Overlay, calibrated, preset
from simulator.cli.measured_options import StatedOptions
from simulator.cli.options import Format, OutputFormat, Profiles, grouped, use_profiles
from simulator.cli.output import Column, Result, Row, View, count, emit, percent
from simulator.cli.workload_options import progress_bar
from simulator.engines.engine import KIND
from simulator.errors import InfercastError
from simulator.hardware.hardware import load_hardware
from simulator.reports.provenance import readable
from simulator.validation.benchfiles import read_results
from simulator.validation.measurements import Measurement
from simulator.validation.prediction import predict
from simulator.validation.scores import beating_light

SHOWN = 6  # most names of devices in an error
DEFINITIONS = (
    "Errors are medians of |predicted / measured - 1|: as shipped, and held back, each row predicted by a fit that has "
    "not seen its setup. The preset is fitted to all rows. Its host times hold for every device of its folder."
)


@grouped
def command(
    stated: StatedOptions,
    measured: Annotated[Path, Option("--measured", metavar="FILE", help="Measurements or results of --hardware.")],
    out: Annotated[Path, Option("--out", metavar="DIR", help="Folder of your own profiles.")] = Path("profiles"),
    profiles: Profiles = None,
    form: OutputFormat = Format.TEXT,
) -> None:
    """Calibrate an engine on a device to a few measurements; show the error on rows held back; write the preset.

    FILE as for `infercast validate`; options state what it does not. Six physical parameters move, few rows move them
    little. Use it with `infercast simulate --profiles DIR`.
    """
    use_profiles(profiles)
    said = stated.value()
    rows = read_results(measured, said)
    hardware = load_hardware(said.hardware or _only_device(rows))
    with progress_bar("calibrate") as progress:
        found = calibrated(rows, hardware, stated.engine, progress)
    notes = [DEFINITIONS, *(f"Left out, {number:,} rows: {reason}" for reason, number in found.left_out.items())]
    if found.helps:
        path = write_profile(out / KIND / f"{found.engine.id}.yaml", preset(found))
        asked = f"--profiles {out} --hardware {found.hardware.id} --engine {found.engine.id}"
        notes.append(f"Wrote {path}: use it with {asked}.")
    else:
        notes.append("No better on rows held back than as shipped: nothing is written.")
    if faster := len(beating_light(predict(list(found.measurements), light=True))):
        what = "check the device, the parallelism and the number formats that were stated"
        notes.append(f"{faster:,} rows beat the device's speed of light: {what}.")
    title = f"{found.engine.id} on {found.hardware.id}"
    scores, moved = [_score(found, metric) for metric in (*found.metrics, "")], _parameter_rows(found)
    shown = [{**row, **{key: _with_unit(row, key) for key in ("shipped", "calibrated")}} for row in moved]
    views = [View(f"{title}: errors", SCORES, scores), View("What moved", PARAMETERS, shown)]
    emit(Result({"parameters": moved, "calibration": scores}, views, notes), form)


def _only_device(rows: Sequence[Measurement]) -> str:
    """Return the device of all rows. Raises InfercastError where they name none or several."""
    devices = sorted({row.setup.hardware for row in rows} - {""})
    if len(devices) != 1:
        because = f"the rows are of {len(devices)}: {', '.join(devices[:SHOWN])}" if devices else "no row names one"
        raise InfercastError("calibrate --measured without a device", because, "Give --hardware NAME")
    return devices[0]


def _score(found: Overlay, metric: str) -> Row:
    return {"metric": metric or "all", **found.score(metric)._asdict()}


def _parameter_rows(found: Overlay) -> list[Row]:
    """Return a row for each fitted parameter: its shipped value, the calibrated one, and the evidence of the first."""
    before, after = found.shipped.kernels_on(found.hardware), found.engine.kernels_on(found.hardware)
    pairs = {f"kernels.{name}": (getattr(before.fitted, name), getattr(after.fitted, name)) for name in SHARES}
    hosts = (found.shipped.overheads, found.engine.overheads)
    pairs |= {f"overheads.{name}": (getattr(hosts[0], name), getattr(hosts[1], name)) for name in TIMES}
    return [
        {"parameter": name, "shipped": float(old), "calibrated": float(new), "shipped_as": old.source.evidence}
        for name, (old, new) in pairs.items()
    ]


def _with_unit(row: Row, key: str) -> str:
    return readable(row["parameter"], float(f"{row[key]:.3g}"))


SCORES = (
    Column("metric", "metric", left=True),
    Column("rows", "rows", count),
    Column("setups", "setups", count),
    Column("before", "as shipped", percent),
    Column("after", "held back", percent),
)
PARAMETERS = (
    Column("parameter", "", left=True),
    Column("shipped", "shipped"),
    Column("calibrated", "calibrated"),
    Column("shipped_as", "shipped as", left=True),
)
