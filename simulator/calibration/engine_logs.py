"""Check against an engine that is not ours: logs of small loads calibrate, the log of another load is predicted."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simulator.calibration.comparison import (
    StepErrors,
    errors_by_kind,
    latencies,
    limits_of,
    logged_latencies,
    replay,
    requests_of,
)
from simulator.calibration.op_tables import fit_step_table
from simulator.calibration.step_log import StepLog, read_log, typical_steps
from simulator.deployment.deployment import Deployment
from simulator.errors import ProfileError
from simulator.roofline.step_model import StepTable
from simulator.simulation.engine_loop import simulate

MAX_TOKENS = 4096  # of a step in the tables


@dataclass(frozen=True, slots=True)
class LogCheck:
    """Predictions of a logged load by predictor ("roofline", "calibrated") beside what was measured, in seconds.

    `equal_steps`: leading steps that our scheduler composes as the engine did.
    """

    about: dict[str, str]
    step_errors: dict[str, dict[str, StepErrors]]
    predicted: dict[str, dict[str, float]]
    measured: dict[str, float]
    steps: int
    equal_steps: int


def check_logs(folder: Path, deployment: Deployment) -> LogCheck:
    """Predict the load of `record` (reference/small_loads.py) from the logs of small loads beside it, and compare.

    The calibrated step table has the shape of the deployment's roofline and values fitted to the small loads. Of the
    load's log only the requests are used. Raises ProfileError where the folder lacks a log.
    """
    small = [read_log(path) for path in sorted(folder.glob("mini-*.json"))]
    if not small or not (folder / "load.json").is_file():
        raise ProfileError(str(folder), "it holds no mini-00a.json and load.json", "Record them: docs/reference.md")
    load = read_log(folder / "load.json")
    longest = max(sum(part.new_tokens for part in step.parts) for log in (*small, load) for step in log.steps)
    if longest > MAX_TOKENS:
        because = f"steps of up to {MAX_TOKENS:,} tokens are compared"
        raise ProfileError(f"{folder}: a step of {longest:,} tokens", because, "Log loads with a lower token budget")
    tiers, window = _tiers(deployment, small), deployment.model.window
    requests, limits = requests_of(load), limits_of(load, window or 0)
    runs = {name: simulate(limits, table, requests) for name, table in tiers.items()}
    again = replay(load)
    return LogCheck(
        about=load.about,
        step_errors=errors_by_kind(tiers, load.steps, window),
        predicted={name: latencies(run) for name, run in runs.items()},
        measured=logged_latencies(load),
        steps=len(load.steps),
        equal_steps=again.equal,
    )


def _tiers(deployment: Deployment, small: Sequence[StepLog]) -> dict[str, StepTable]:
    """Return step tables of the plain roofline and of the roofline fitted to the small loads."""
    most = max(log.limits["max_num_seqs"] for log in small)
    roofline = deployment.step_model(light=True).table(MAX_TOKENS, most)
    steps = typical_steps([log.steps for log in small], deployment.model.window)
    return {"roofline": roofline, "calibrated": fit_step_table(roofline, steps)}
