"""The answer to a question about a load: a row with the keys of `vllm bench serve --save-result`, and some of our own.

Every predicted value has its interval beside it, as `<key>_low` and `<key>_high`, in the same unit.
"""

from dataclasses import replace

from simulator.cost.scenario import Scenario
from simulator.frames import Row
from simulator.questions.row_intervals import ENDS, intervals, regime_of
from simulator.reports.arrival_load import rate_per_s
from simulator.reports.batch_means import QUANTILES
from simulator.reports.intervals import PredictionRange
from simulator.reports.report import Report
from simulator.reports.vllm_result import run_figures, vllm_result

METRICS = {"ttft": "ttft_ms", "tpot": "tpot_ms", "itl": "itl_ms", "e2el": "e2e_latency_ms"}
THROUGHPUTS = {
    **{"output_throughput": "throughput_out_tok_s", "total_token_throughput": "throughput_total_tok_s"},
    **{"request_throughput": "req_s", "input_throughput": "throughput_in_tok_s"},
}
OF_ASKED = "_of_asked"  # after the key of a throughput: of no more than the asked rate
STATS = ("mean", *QUANTILES)
PREDICTED = {f"{stat}_{name}_ms": f"{stat} {metric}" for name, metric in METRICS.items() for stat in STATS} | {
    "tokens_per_s_user": "1/tpot_ms"
}


def load_row(scenario: Scenario, report: Report, level: float | None = 0.8, *, with_details: bool = True) -> Row:
    """Return the figures of one simulated load as a row: latencies in milliseconds (`*_ms`), throughputs per second.

    An interval contains a share `level` of published measurements; `level` None leaves intervals out. `with_details`
    adds what is counted, and confidence intervals of the simulation. Source of the keys: the result file of `vllm bench
    serve --save-result` (reports/vllm_result.py).
    """
    row: Row = vllm_result(report) if with_details else run_figures(report)
    if level is None:
        return {**row, **_of_asked(row, report)}
    regime = regime_of(scenario.workload.arrivals.concurrency, len(report.run.requests))

    def rerun(step_factor: float) -> Row:
        return run_figures(scenario.rerun(report, step_factor))

    def with_cache(share: float) -> Row:
        return run_figures(scenario.rerun_with_cache(report, share))

    prediction = PredictionRange(
        deployment=scenario.deployment,
        regime="limited" if report.is_limited else regime,
        level=level,
        found=row,
        again=rerun,
        with_cache=with_cache if scenario.cache_decides(report) else None,
    )
    row = {**row, **intervals(prediction, PREDICTED), **throughput_intervals(prediction, report)}
    return {**row, **_of_asked(row, report)}


def _of_asked(row: Row, report: Report) -> Row:
    """Return the throughputs of a run at the highest rate within the SLO, of no more than the asked rate.

    Whoever asked for less than that has no use for more. Empty for all other runs.
    """
    if not report.is_limited:
        return {}
    ends = ("", *(f"_{end}" for end in ENDS if f"{next(iter(THROUGHPUTS))}_{end}" in row))
    beyond = max(1.0, report.of_asked)
    return {f"{key}{OF_ASKED}{end}": row[f"{key}{end}"] / beyond for key in THROUGHPUTS for end in ends}


def throughput_intervals(prediction: PredictionRange[Row], report: Report) -> Row:
    """Return the intervals of the throughputs, in tokens/s and requests/s.

    In an open loop that keeps up they are None: throughput is the offered rate, which is given, not predicted. Another
    one has those of an offline run, and no upper end above the offered rate.
    """
    if prediction.regime != "open_loop":
        return intervals(prediction, THROUGHPUTS)
    is_offered = report.is_as_offered if report.steady else not report.overloaded
    if is_offered:
        return {f"{key}_{end}": None for key in THROUGHPUTS for end in ENDS}
    found = dict(intervals(replace(prediction, regime="offline"), THROUGHPUTS))
    most = max(1.0, report.replicas * rate_per_s(report.run) / report.requests_per_s)
    return found | {f"{key}_high": min(found[f"{key}_high"], prediction.found[key] * most) for key in THROUGHPUTS}
