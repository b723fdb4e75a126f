"""`infercast check`: predict steps and a load, then run the reference engine, and compare."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from simulator.calibration.comparison import KINDS, step_errors
from simulator.cli.answers.step_errors import (
    drift_note,
    error_row,
    latency_rows,
    latency_view,
    load_step_rows,
    step_view,
)
from simulator.cli.options.deployment_options import OutputFormat, grouped
from simulator.cli.options.reference_options import EngineOptions, status
from simulator.cli.output import Result, Row, emit
from simulator.cli.text_layout import Format
from simulator.hardware.hardware import load_hardware
from simulator.units import significant

if TYPE_CHECKING:
    from simulator.reference.check import Check
    from simulator.reference.timing import Timing


@grouped
def command(
    engine: EngineOptions,
    load: Annotated[float, Option("--load", help="Rate, as a share of what the engine can carry.")] = 0.6,
    requests: Annotated[int, Option("--num-prompts", min=0, help="Requests in real time; 0 for steps alone.")] = 100,
    like: Annotated[str, Option("--like", metavar="NAME", help="Device whose peaks the roofline uses.")] = "",
    log: Annotated[Path | None, Option("--log", metavar="FILE", help="Write the step log of the run as JSON.")] = None,
    plot: Annotated[Path | None, Option("--plot", metavar="FILE", help="Draw predicted over measured steps.")] = None,
    once: Annotated[bool, Option("--once", help="No second process, so no noise floor.")] = False,
    only_cells: Annotated[bool, Option("--only-cells", hidden=True, help="Time the cells alone.")] = False,
    form: OutputFormat = Format.TEXT,
) -> None:
    """Calibrate, predict steps and a Poisson load, then run both on the reference engine and compare.

    The noise floor is what two processes differ by; no claim is made below it.
    """
    base = load_hardware(like) if like else None
    with status("check") as progress:
        checkpoint, build = engine.load(progress)
        from simulator.reference.check import Checker, Plan, second_process

        checker = Checker(checkpoint, build, Plan(load, requests, seed=engine.seed), progress)
        if only_cells:
            sys.stdout.write(json.dumps(checker.measure_held_out()))
            return
        twins: list[Timing] = []
        if not once:
            progress("the same cells in another process")
            twins = second_process(engine.arguments())
        found = checker.check("this-machine", base, twins)
    if log is not None and found.load is not None:
        found.load.log.write(log)
    if plot is not None:
        from simulator.plots.check_plots import plot_check
        from simulator.plots.plot_file import save

        save(plot_check(found.as_dict()), plot)
    emit(_result(found, engine.notes()), form)


def _result(found: "Check", about_threads: list[str]) -> Result:
    cells = _cell_rows(found)
    views = [step_view("Held-out steps: error of the prediction", cells)]
    notes = [f"{found.about['device']}, {found.about['software']}, {found.about['model']} in {found.about['dtype']}."]
    notes += about_threads
    disturbed = [each for each in found.cells if each.measured.contended]
    if disturbed:
        share = len(disturbed) / len(found.cells)
        notes.append(f"Other work used the cores during {share:.0%} of the cells: not a measurement of this machine.")
    notes.append(drift_note(found.drift))
    steps, latencies = list[Row](), list[Row]()
    if found.load is not None:
        steps = load_step_rows(found.load.step_errors)
        latencies = latency_rows(found.load.predicted, found.load.measured)
        views.append(step_view("Steps of the load", steps))
        views.append(latency_view(f"Poisson load, {significant(found.load.rate_per_s)}/s", latencies))
        if found.load.others_cores > 0.1:
            notes.append(f"Others used {found.load.others_cores:.1f} cores during the load.")
    plain = found.as_dict()
    sections = {
        "latencies": latencies,
        "load_steps": steps,
        "calibration": plain["calibration"],
        "pulses": plain["pulses"],
        "cells": [_flat(each) for each in plain["cells"]],
        "steps": cells,
    }
    return Result(sections, views, notes)


def _flat(cell: Row) -> Row:
    """Return a cell with a key for each way of predicting, such as `predicted_op_tables_s`."""
    predicted = {f"predicted_{tier.replace(' ', '_')}_s": seconds for tier, seconds in cell["predicted_s"].items()}
    return {**{key: value for key, value in cell.items() if key != "predicted_s"}, **predicted}


def _cell_rows(found: "Check") -> list[Row]:
    """Return the errors of held-out steps: a row per kind of step and way of predicting, and one for the noise."""
    rows: list[Row] = []
    for kind in KINDS:
        cells = [each for each in found.cells if each.cell.kind == kind]
        if not cells:
            continue
        measured = [each.measured.seconds for each in cells]
        for tier in cells[0].predicted_s:
            rows.append(error_row(kind, tier, step_errors([each.predicted_s[tier] for each in cells], measured)))
        again = [each.again.seconds for each in cells if each.again]
        if again:
            rows.append(error_row(kind, "noise floor", step_errors(again, measured)))
    return rows
