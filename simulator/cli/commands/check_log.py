"""`infercast check-log`: predict the load that another engine has logged, from its own small loads."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from simulator.calibration.engine_logs import LogCheck, check_logs
from simulator.cli.answers.step_errors import drift_note, latency_rows, latency_view, load_step_rows, step_view
from simulator.cli.options.deployment_options import OutputFormat
from simulator.cli.output import Result, emit
from simulator.cli.text_layout import Format
from simulator.deployment.deployment import Deployment
from simulator.deployment.layouts import default_layout
from simulator.engines.engine import load_engine
from simulator.hardware.hardware import load_hardware
from simulator.models.model import load_model


def command(
    folder: Annotated[Path, Argument(metavar="FOLDER", help="Holds mini-00a.json, ... and load.json.")],
    model: Annotated[str, Option("--model", metavar="NAME", help="Model that the engine served.")],
    hardware: Annotated[str, Option("--hardware", metavar="NAME", help="Device whose roofline shapes the steps.")],
    dtype: Annotated[
        str, Option("--dtype", metavar="NAME", help="fp32 or bf16: weights, activations, cache.")
    ] = "fp32",
    form: OutputFormat = Format.TEXT,
) -> None:
    """Predict the load that another engine has logged, from its own small loads, and compare.

    docs/reference.md says how to record vLLM and OpenVINO on a CPU.
    """
    profile = load_model(model)
    layout = default_layout(profile, dtypes=(dtype, dtype))
    found = check_logs(folder, Deployment(profile, load_hardware(hardware), load_engine("vllm"), layout))
    emit(_result(found), form)


def _result(found: LogCheck) -> Result:
    steps, latencies = load_step_rows(found.step_errors), latency_rows(found.predicted, found.measured)
    about = dict(found.about)
    drift = about.pop("drift", None)
    engine = " ".join(about.values())
    views = [step_view(f"{engine}: steps of the load", steps), latency_view("Requests of the load", latencies)]
    notes = [
        f"Our scheduler, given its step times, takes the same first {found.equal_steps} of its {found.steps} steps.",
        "calibrated: the roofline fitted to the steps of the small loads, none of which is in the load.",
    ]
    if drift is not None:
        notes.append(drift_note(float(drift)))
    return Result({"latencies": latencies, "load_steps": steps}, views, notes)
