"""The answer to a question about a load: a row under the keys of `vllm bench serve --save-result` and ours.

Every predicted value has its interval beside it, as `<key>_low` and `<key>_high`.
"""

from dataclasses import replace

from simulator.cost.scenario import Scenario
from simulator.questions.row_intervals import ENDS, Row, intervals, regime_of
from simulator.reports.batch_means import QUANTILES
from simulator.reports.intervals import PredictionRange
from simulator.reports.report import Report
from simulator.reports.vllm_result import vllm_result

METRICS = {"ttft": "ttft_ms", "tpot": "tpot_ms", "itl": "itl_ms", "e2el": "e2e_latency_ms"}
THROUGHPUTS = {
    **{"output_throughput": "throughput_out_tok_s", "total_token_throughput": "throughput_total_tok_s"},
    **{"request_throughput": "req_s", "input_throughput": "throughput_in_tok_s"},
}
STATS = ("mean", *QUANTILES)
PREDICTED = {f"{stat}_{name}_ms": metric for name, metric in METRICS.items() for stat in STATS} | {
    "tokens_per_s_user": "1/tpot_ms"
}


def load_row(scenario: Scenario, report: Report, level: float | None = 0.8) -> Row:
    """Return the figures of one run, and the intervals that a share `level` of measurements keeps; None for none."""
    row: Row = vllm_result(report)
    if level is None:
        return row
    regime = regime_of(scenario.workload.arrivals.concurrency, len(report.run.requests))

    def again(step_factor: float) -> Row:
        return vllm_result(scenario.rerun(report, step_factor))

    of = PredictionRange(scenario.deployment, "limited" if report.is_limited else regime, level, row, again)
    return {**row, **intervals(of, PREDICTED), **throughput_intervals(of, report)}


def throughput_intervals(of: PredictionRange[Row], report: Report) -> Row:
    """Return the intervals of throughputs; None where what is served is what was offered: given, not predicted."""
    if of.regime != "open_loop":
        return intervals(of, THROUGHPUTS)
    if not report.overloaded:
        return {f"{key}_{end}": None for key in THROUGHPUTS for end in ENDS}
    found = dict(intervals(replace(of, regime="offline"), THROUGHPUTS))
    offered_per_s = len(report.run.requests) / report.run.requests.arrival_s[-1]
    most = max(1.0, offered_per_s / report.requests_per_s)  # no more is served than was offered
    return found | {f"{key}_high": min(found[f"{key}_high"], of.found[key] * most) for key in THROUGHPUTS}
