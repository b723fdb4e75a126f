"""What `infercast simulate` can add to its answer: the breakdown of latencies, and files about one run."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from simulator.cli.numbers import number, percent
from simulator.cli.output import Column, Row, View, as_csv
from simulator.cost.scenario import Scenario
from simulator.errors import InfercastError
from simulator.files import write_whole
from simulator.plots.sweep_plots import Sweep
from simulator.questions.split_rows import METRICS
from simulator.reports.latency_breakdown import PARTS, Explanation
from simulator.reports.report import Report
from simulator.reports.slo import Slo

SELF_TOLD = ("model", "hardware", "engine")
X_LABELS = {
    "request_rate": "requests/s",
    "max_concurrency": "requests in flight",
    "input_len": "prompt tokens",
    "output_len": "output tokens",
}


@dataclass(frozen=True)
class ExplainOptions:
    """Options for where the time went: a breakdown of TTFT and E2EL, and files (timeline, trace, plot)."""

    explain: Annotated[
        bool, typer.Option("--explain", help="Split TTFT and E2EL into queue, prefill, interference, decode.")
    ] = False
    timeline: Annotated[
        Path | None, typer.Option("--timeline", metavar="FILE", help="Write vLLM's metrics over time (.csv, .json).")
    ] = None
    trace_out: Annotated[
        Path | None, typer.Option("--trace-out", metavar="FILE", help="Write the steps for ui.perfetto.dev (.json).")
    ] = None
    save_result: Annotated[
        Path | None,
        typer.Option("--save-result", metavar="FILE", help="Write a result file of vllm bench serve (.json)."),
    ] = None
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw the run over time, or the curves of a sweep (.png, .svg)."),
    ] = None

    @property
    def needs_run(self) -> bool:
        """Whether a file is asked for that shows the requests and steps of one simulation."""
        return any(each is not None for each in (self.timeline, self.trace_out, self.plot))

    def write(self, scenario: Scenario, report: Report) -> None:
        """Write the files that were asked for. Raises InfercastError where one cannot be written."""
        model = scenario.deployment.step_model()
        if self.timeline is not None:
            from simulator.reports.timeline import timeline_of

            _write_rows(timeline_of(report.run, model).rows(), self.timeline)
        if self.trace_out is not None:
            from simulator.reports.perfetto import write_trace

            write_trace(report.run, self.trace_out)

    def save(self, row: Row) -> None:
        """Write the only simulation as a result file, if asked for. Raises InfercastError if it cannot be written."""
        if self.save_result is None:
            return
        now = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")  # as vLLM writes it
        text = json.dumps({"date": now, **row}, indent=2, allow_nan=False, ensure_ascii=False)
        write_whole(self.save_result, f"{text}\n", "--save-result")

    def draw(self, scenario: Scenario, report: Report, row: Row) -> None:
        """Draw the run of the only simulation. Raises InfercastError where the file cannot be written."""
        if self.plot is None:
            return
        from simulator.plots.plot_file import save
        from simulator.plots.run_plots import plot_run
        from simulator.reports.timeline import timeline_of

        over_time = timeline_of(report.run, scenario.deployment.step_model())
        grows = "\nOVERLOADED: waits grow with the length of the run" if report.endless else ""
        title = f"{scenario.describe()}\n{scenario.workload.describe()}{grows}"
        save(plot_run(title, over_time, Explanation(report), row), self.plot)

    def draw_sweep(self, rows: list[Row], varying: list[Column], title: str, slo: Slo) -> None:
        """Draw several simulations as `sweep_of` orders them. Raises InfercastError if the file cannot be written."""
        if self.plot is None:
            return
        from simulator.plots.plot_file import save
        from simulator.plots.sweep_plots import plot_sweep

        found = sweep_of(rows, varying, title, slo)
        if found is None:
            raise InfercastError(f"--plot {self.plot}", "nothing that could be an axis varies", "Vary a rate, say")
        save(plot_sweep(found), self.plot)

    def check(self, cases: int) -> None:
        """Check the files before anything is computed; `cases` is the number of simulations asked for.

        Raises InfercastError for a file with several simulations, and for a timeline that is not .csv or .json.
        """
        files = {"--timeline": self.timeline, "--trace-out": self.trace_out, "--save-result": self.save_result}
        asked = {option: path for option, path in files.items() if path is not None}
        if cases > 1 and asked:
            because = f"{cases} simulations were asked for, and a file holds one"
            raise InfercastError(", ".join(asked), because, "Give one value of each option")
        if self.timeline is not None and self.timeline.suffix.lower() not in (".csv", ".json"):
            raise InfercastError(f"--timeline {self.timeline}", "its ending names no format", "Use .csv or .json")


def sweep_of(rows: Sequence[Row], varying: Sequence[Column], title: str, slo: Slo) -> Sweep | None:
    """Return several simulations over the rate if it varies, else requests in flight, else the first number.

    `varying` are columns that may vary; None where none does.
    """
    varying = [each for each in varying if len({row[each.key] for row in rows}) > 1]
    if not varying:
        return None
    over = min(varying, key=lambda column: _preference(column, rows))
    others = [each for each in varying if each is not over]
    series = [" ".join(_said(each, row) for each in others) for row in rows]
    x, label = [_value(over, row) for row in rows], X_LABELS.get(over.key, over.heading)
    return Sweep(title, label, x, series, rows, slo, over.key in ("request_rate", "max_concurrency"))


def _said(column: Column, row: Row) -> str:
    """Return a value with its heading, or without where it names itself."""
    return column.cell(row) if column.key in SELF_TOLD else f"{column.heading} {column.cell(row)}"


def _preference(column: Column, rows: Sequence[Row]) -> tuple[bool, bool, bool]:
    """Return what makes a column a better x the smaller it is: a load, then numbers."""
    words = any(isinstance(_value(column, row), str) for row in rows)
    return words, column.key != "request_rate", column.key != "max_concurrency"


def _value(column: Column, row: Row) -> float | str:
    """Return the value of a column; of settings those that its cell tells."""
    return _number(column.cell(row) if column.key == "settings" else row[column.key])


def _number(value: Any) -> float | str:
    """Return a value of a row as a number where it is one, in words where not.

    >>> _number("512"), _number("uniform:1:9"), _number(None)
    (512.0, 'uniform:1:9', '-')
    """
    if value is None:
        return "-"
    text = str(value)
    last = text.rpartition("=")[2]
    return float(last) if last.replace(".", "", 1).isdecimal() else text


def _write_rows(rows: list[dict[str, float | str]], path: Path) -> None:
    is_json = path.suffix.lower() == ".json"
    write_whole(path, json.dumps(rows, indent=1) + "\n" if is_json else as_csv(rows), "--timeline")


def split_view(row: Row) -> View:
    """Return a table of the latency breakdown of a row: a line per part; for each metric its mean and that at p95."""
    columns, sums = [Column("part", "part", left=True)], {}
    for metric in METRICS:
        for of, prefix in (("mean", f"mean_{metric}"), ("p95", f"p95_request_{metric}")):
            parts_ms = {part: row[f"{prefix}_{part}_ms"] for part in PARTS}
            sums[f"{of}_{metric}"] = {**parts_ms, "sum": sum(parts_ms.values())}
            columns += [
                Column(f"{of}_{metric}", f"{metric.upper()} {of} ms", number(3)),
                Column(f"{of}_{metric}_share", ""),
            ]
    rows = [
        {"part": part}
        | {key: parts[part] for key, parts in sums.items()}
        | {f"{key}_share": percent(parts[part] / parts["sum"]) for key, parts in sums.items()}
        for part in (*PARTS, "sum")
    ]
    at = " and ".join(f"no. {row[f'p95_request_{metric}']:,} ({metric.upper()})" for metric in METRICS)
    grows = "; the queue grows: more requests would wait longer" if row.get("mean_ttft_ms", 0.0) is None else ""
    return View(f"Where the time went, on average and of the requests at p95, {at}{grows}", columns, rows)
