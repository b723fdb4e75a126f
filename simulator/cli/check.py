"""`infercast check`: predict, then run the reference engine, and show both."""

import json
import math
import sys
from pathlib import Path
from typing import Annotated

from typer import Option

from simulator.cli.enginerun import EngineOptions, status
from simulator.cli.options import Format, OutputFormat, grouped
from simulator.cli.output import Column, Result, Row, View, emit, number, percent
from simulator.comparison import METRICS, relative_errors, step_errors
from simulator.hardware import load_hardware
from simulator.reference.check import Check, Checker, Plan, second_process
from simulator.reference.guard import Timing

KINDS = ("prefill", "decode", "mixed")


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
    plan = Plan(load, requests, seed=engine.seed)
    with status("check") as progress:
        twins: list[Timing] = []
        if not once and not only_cells:
            progress("the same cells in another process")
            twins = second_process(engine.arguments())
        checker = Checker(*engine.load(), plan, progress)
        if only_cells:
            sys.stdout.write(json.dumps([list(timing) for _, timing in checker.measure_held_out()]))
            return
        found = checker.check("this-machine", base, twins)
    if log is not None and found.load is not None:
        found.load.log.write(log)
    if plot is not None:
        from simulator.check_plot import draw_check  # noqa: PLC0415  matplotlib, only where a figure is asked for
        from simulator.plots import save  # noqa: PLC0415

        save(draw_check(found.as_dict()), plot)
    emit(_result(found), form)


def _result(found: Check) -> Result:
    steps, latencies = _step_rows(found), _latency_rows(found)
    tiers = list(found.cells[0].predicted_s)
    views = [View("Held-out steps: error of the prediction", STEP_COLUMNS, steps)]
    if latencies:
        columns = [Column("metric", "", left=True), Column("measured_s", "measured ms", number(3, 1e3))]
        columns += [Column(tier, tier, lambda value: f"{value:+.0%}") for tier in tiers]
        views.append(View(f"Poisson load, {found.load.rate_per_s:.3g}/s", columns, latencies))  # type: ignore[union-attr]
    disturbed = [each for each in found.cells if each.measured.contended]
    notes = [f"{found.about['device']}, {found.about['software']}, {found.about['model']} in {found.about['dtype']}."]
    if disturbed:
        share = len(disturbed) / len(found.cells)
        notes.append(f"Other work used the cores during {share:.0%} of the cells: not a measurement of this machine.")
    if found.load is not None and found.load.others_cores > 0.1:
        notes.append(f"Others used {found.load.others_cores:.1f} cores during the load.")
    plain = found.as_dict()
    sections = {"latencies": latencies, "calibration": plain["calibration"], "cells": plain["cells"], "steps": steps}
    return Result(sections, views, notes)


def _step_rows(found: Check) -> list[Row]:
    rows: list[Row] = []
    for kind in KINDS:
        cells = [each for each in found.cells if each.cell.kind == kind]
        if not cells:
            continue
        measured = [each.measured.seconds for each in cells]
        for tier in cells[0].predicted_s:
            errors = step_errors([each.predicted_s[tier] for each in cells], measured)
            rows.append({"kind": kind, "tier": tier, **_fields(errors)})
        again = [each.again.seconds for each in cells if each.again]
        if again:
            rows.append({"kind": kind, "tier": "noise floor", **_fields(step_errors(again, measured))})
    return rows


def _fields(errors: object) -> dict[str, float]:
    return {name: getattr(errors, name) for name in ("count", "median", "p90", "largest", "bias")}


def _latency_rows(found: Check) -> list[Row]:
    if found.load is None:
        return []
    errors = {tier: relative_errors(said, found.load.measured) for tier, said in found.load.predicted.items()}
    return [
        {
            "metric": f"{metric.upper()} {share}",
            "measured_s": found.load.measured[f"{metric}_{share}_s"],
            **{tier: each[f"{metric}_{share}_s"] for tier, each in errors.items()},
        }
        for metric in METRICS
        for share in ("p50", "p95")
    ]


def _signed(value: float) -> str:
    return "-" if math.isnan(value) else f"x{value:.2f}"


STEP_COLUMNS = (
    Column("kind", "steps", left=True),
    Column("tier", "predicted from", left=True),
    Column("count", "cells"),
    Column("median", "median error", percent),
    Column("p90", "p90", percent),
    Column("largest", "largest", percent),
    Column("bias", "bias", _signed),
)
