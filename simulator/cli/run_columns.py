"""The figures of a run under the keys of `vllm bench serve --save-result` and ours, and the intervals beside them."""

from dataclasses import replace

from simulator.cli.intervals import ENDS, intervals, regime_of
from simulator.cli.output import Row, identity
from simulator.cost.capacity import Scenario
from simulator.reports.batch_means import QUANTILES
from simulator.reports.intervals import PredictionRange
from simulator.reports.report import Report

METRICS = {"ttft": "ttft_ms", "tpot": "tpot_ms", "itl": "itl_ms", "e2el": "e2e_latency_ms"}
THROUGHPUTS = {
    **{"output_throughput": "throughput_out_tok_s", "total_token_throughput": "throughput_total_tok_s"},
    "request_throughput": "req_s",
}
STATS = ("mean", *QUANTILES)
TOTALS = {"output_throughput": "out tok/s", "request_throughput": "req/s"}
PREDICTED = {f"{stat}_{name}_ms": metric for name, metric in METRICS.items() for stat in STATS}


def load_row(scenario: Scenario, rate: float | None, report: Report, level: float = 0.8) -> Row:
    """Return the figures of one run and the intervals beside them."""
    row = figures(scenario, rate, report)
    regime = regime_of(scenario.workload.arrivals.concurrency, len(report.run.requests))

    def again(step_factor: float) -> Row:
        return scenario.again(report, step_factor).as_vllm()

    of = PredictionRange(scenario.deployment, regime, level, row, again)
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


def figures(scenario: Scenario, rate: float | None, report: Report) -> Row:
    """Return one run under the keys of a result file of `vllm bench serve` and ours, without intervals."""
    workload = scenario.workload
    return {
        **identity(scenario.deployment),
        "endpoint_type": "infercast",
        "backend": scenario.deployment.engine.engine,
        "label": workload.name or None,
        "model_id": scenario.deployment.model.id,
        "tokenizer_id": scenario.deployment.model.id,
        "num_prompts": len(report.run.requests),
        "request_rate": "inf" if rate is None else rate,
        "burstiness": getattr(workload.arrivals, "burstiness", None),
        "max_concurrency": workload.arrivals.concurrency or None,
        **report.as_vllm(),
    }
