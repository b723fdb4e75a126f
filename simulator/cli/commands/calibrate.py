"""`infercast calibrate`: measure this machine, write its hardware profile and an engine preset."""

from pathlib import Path
from typing import Annotated

from typer import Option

from simulator.calibration.calibrate import Bench, describe, engine_preset, fit_gemms, hardware_profile, write_profiles
from simulator.calibration.op_tables import OpTables
from simulator.cli.numbers import number, percent
from simulator.cli.options.deployment_options import OutputFormat, grouped
from simulator.cli.options.reference_options import EngineOptions, status
from simulator.cli.output import Column, Result, Row, View, emit
from simulator.cli.text_layout import Format
from simulator.hardware.hardware import load_hardware


@grouped
def command(
    engine: EngineOptions,
    name: Annotated[str, Option("--name", help="Name of the profile to write.")] = "this-machine",
    out: Annotated[Path, Option("--out", metavar="DIR", help="Folder of your own profiles.")] = Path("profiles"),
    like: Annotated[
        str, Option("--like", metavar="NAME", help="Device whose data-sheet peaks stand in place of measured ceilings.")
    ] = "",
    form: OutputFormat = Format.TEXT,
) -> None:
    """Measure ceilings, single ops and host overheads of this machine with the engine's kernels; write profiles.

    Takes one to two minutes. Use them with `infercast simulate --profiles DIR --hardware NAME --engine reference`.
    To calibrate to measurements of a serving engine: `infercast calibrate --measured FILE`, which has its own --help.
    """
    base = load_hardware(like) if like else None
    with status("calibrate") as progress:
        checkpoint, build = engine.load(progress)
        from simulator.reference.check import Checker, Plan

        checker = Checker(checkpoint, build, Plan(requests=0), progress)
        bench, tables = checker.calibrate(name, base)
        model = checker.model
        profiles = {
            f"hardware_profiles/{name}": hardware_profile(bench, tables, model, base),
            "engines/reference-0.1": engine_preset(bench, tables, model),
        }
        written = write_profiles(out, bench, tables, profiles)
    row = _row(bench, tables)
    notes = [describe(bench), "Wrote " + ", ".join(str(path) for path in written), *engine.notes()]
    if bench.contended > TOLERATED_SHARE:
        notes.append("Other work used the cores: repeat this on a quiet machine before relying on it.")
    emit(Result({"calibration": [row]}, [View("Calibration", COLUMNS, [row], upright=True)], notes), form)


def _row(bench: Bench, tables: OpTables) -> Row:
    gemms = fit_gemms(bench, tables)
    return {
        "device": bench.device,
        "read_bytes_per_s": bench.read_bytes_per_s,
        **{f"{kind}_flops_per_s": value for kind, value in bench.flops_per_s.items()},
        "gemm_compute_fraction": gemms.compute_fraction,
        "gemm_memory_fraction": gemms.memory_fraction,
        "gemm_median_error": gemms.median_error,
        "step_s": tables.host_s,
        "spread": bench.spread,
        "contended": bench.contended,
    }


TOLERATED_SHARE = 0.1  # of measurements during which other processes used the cores
COLUMNS = (
    Column("device", "", left=True),
    Column("read_bytes_per_s", "reads GB/s", number(3, 1e-9)),
    Column("gemm_compute_fraction", "GEMMs reach of the peak", percent),
    Column("gemm_memory_fraction", "of the bandwidth", percent),
    Column("gemm_median_error", "fit, median error", percent),
    Column("step_s", "host time per step ms", number(3, 1e3)),
    Column("spread", "spread of repeats and processes", percent),
    Column("contended", "measurements that others disturbed", percent),
)
