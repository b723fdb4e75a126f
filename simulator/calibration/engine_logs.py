"""Check against an engine that is not ours: logs of small loads calibrate, the log of another load is predicted."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.calibration.comparison import (
    StepErrors,
    errors_by_kind,
    latency_quantiles,
    limits_of,
    logged_latencies,
    replay,
    requests_of,
)
from simulator.calibration.op_tables import fit_step_table, table_seconds
from simulator.calibration.step_log import StepLog, read_log, typical_steps
from simulator.deployment.batches import attended
from simulator.deployment.deployment import Deployment
from simulator.errors import ProfileError
from simulator.frames import Framed, frame
from simulator.models.operations import Span
from simulator.roofline.step_model import StepTable
from simulator.simulation.engine_loop import simulate

if TYPE_CHECKING:
    import pandas as pd

MAX_TOKENS = 4096  # of a step in the tables


@dataclass(frozen=True, slots=True, repr=False)
class LogCheck(Framed):
    """Predictions of a logged load by predictor ("roofline", "calibrated") beside what was measured, in seconds.

    `tables`: the step times of each predictor; `span`: of the model's local layers. `equal_steps`: leading
    steps that our scheduler composes as the engine did.
    """

    log: StepLog
    tables: dict[str, StepTable]
    span: Span | None
    predicted: dict[str, dict[str, float]]
    measured: dict[str, float]
    equal_steps: int

    @property
    def about(self) -> dict[str, str]:
        """Which engine served which model on what."""
        return self.log.about

    @property
    def steps(self) -> int:
        """Steps of the load."""
        return len(self.log.steps)

    @property
    def step_errors(self) -> dict[str, dict[str, StepErrors]]:
        """How far predicted step times are from measured ones, by kind of step and predictor."""
        return errors_by_kind(self.tables, self.log.steps, self.span)

    def to_frame(self) -> "pd.DataFrame":
        """Return p50 and p95 of TTFT, TPOT and E2EL in seconds: a column for what was measured, one a predictor."""
        rows = (
            {"metric": metric, "measured": value} | {name: said[metric] for name, said in self.predicted.items()}
            for metric, value in self.measured.items()
        )
        return frame(rows, "metric")

    def step_frame(self) -> "pd.DataFrame":
        """Return the seconds of each step, measured and by predictor, with its kind, sequences and new tokens."""
        rows = []
        for step in self.log.steps:
            counts = step.counts(self.span)
            seconds = {name: table_seconds(table, counts) for name, table in self.tables.items()}
            size = {"sequences": len(step.parts), "new_tokens": int(counts.tokens), "measured": step.seconds}
            rows.append({"start_s": step.start_s, "kind": step.kind, **size, **seconds})
        return frame(rows)


def check_logs(folder: str | Path, deployment: Deployment) -> LogCheck:
    """Predict the load of `record` (reference/small_loads.py) from the logs of small loads beside it, and compare.

    The calibrated step table has the shape of the deployment's roofline and values fitted to the small loads. Of the
    load's log only the requests are used. Raises ProfileError where the folder lacks a log.

    >>> from simulator.deployment.deployment import deploy
    >>> check_logs("nowhere", deploy("smollm2-135m", "xeon-8480"))
    Traceback (most recent call last):
    ...
    simulator.errors.ProfileError: nowhere: it holds no mini-00a.json and load.json. Record them: docs/reference.md.
    """
    folder = Path(folder)
    small = [read_log(path) for path in sorted(folder.glob("mini-*.json"))]
    if not small or not (folder / "load.json").is_file():
        raise ProfileError(str(folder), "it holds no mini-00a.json and load.json", "Record them: docs/reference.md")
    load = read_log(folder / "load.json")
    longest = max(sum(part.new_tokens for part in step.parts) for log in (*small, load) for step in log.steps)
    if longest > MAX_TOKENS:
        because = f"steps of up to {MAX_TOKENS:,} tokens are compared"
        raise ProfileError(f"{folder}: a step of {longest:,} tokens", because, "Log loads with a lower token budget")
    tiers, span = _tiers(deployment, small), attended(deployment)
    requests, limits = requests_of(load), limits_of(load, span)
    runs = {name: simulate(limits, table, requests) for name, table in tiers.items()}
    again = replay(load)
    return LogCheck(
        log=load,
        tables=tiers,
        span=span,
        predicted={name: latency_quantiles(run) for name, run in runs.items()},
        measured=logged_latencies(load),
        equal_steps=again.equal,
    )


def _tiers(deployment: Deployment, small: Sequence[StepLog]) -> dict[str, StepTable]:
    """Return step tables of the plain roofline and of the roofline fitted to the small loads."""
    most = max(log.limits["max_num_seqs"] for log in small)
    roofline = deployment.at_light.step_model().table(MAX_TOKENS, most)
    steps = typical_steps([log.steps for log in small], attended(deployment))
    return {"roofline": roofline, "calibrated": fit_step_table(roofline, steps)}
