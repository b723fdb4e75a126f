"""A report as the result file that `vllm bench serve --save-result` writes, with keys of our own beside its."""

from dataclasses import replace
from typing import Any

import numpy as np

from simulator.reports.report import Report

GROWING = ("ttft", "e2el", "queue")  # with the queue; TPOT and ITL of a full engine settle


def vllm_result(report: Report) -> dict[str, Any]:
    """Return a report under the keys of `vllm bench serve --save-result` (milliseconds) and, beside them, our own."""
    rows = [_one_draw(each) for each in (report, *report.draws)]
    found = {name: _mean_cell([row[name] for row in rows]) for name in rows[0]}
    told = bool(report.slo.bounds_s) and not report.endless
    return {
        **found,
        **(latencies := _latency_keys(report)),
        "tokens_per_s_user": 1e3 / tpot_ms if (tpot_ms := latencies["mean_tpot_ms"]) else None,
        "slo_attainment": report.within["all"] if told else None,
        **{f"slo_attainment_{name}": report.within[name] if told else None for name in report.slo.bounds_s},
    }


def _one_draw(report: Report) -> dict[str, Any]:
    """Return what is counted in one run, those of its draws left out, in sums over the replicas."""
    own, (mean_use, peak_use) = replace(report, draws=()), report.cache_use
    told = bool(report.slo.bounds_s) and not report.endless
    return {
        "duration": own.duration_s,
        "completed": own.completed * report.replicas,
        "failed": len(own.run.rejected) * report.replicas,
        "total_input_tokens": own.input_tokens * report.replicas,
        "total_output_tokens": own.output_tokens * report.replicas,
        "request_throughput": own.requests_per_s,
        "request_goodput": own.goodput_per_s if told else None,
        "output_throughput": own.output_tokens_per_s,
        "input_throughput": own.total_tokens_per_s - own.output_tokens_per_s,
        "total_token_throughput": own.total_tokens_per_s,
        "max_concurrent_requests": int((own.run.steps.running + own.run.steps.waiting).max(initial=0)),
        "warm_up_requests": own.skipped,
        "overloaded": own.overloaded,
        "queue_growth_per_s": own.queue_growth_per_s,
        "mean_num_requests_running": own.mean_running,
        "mean_kv_cache_usage": mean_use,
        "peak_kv_cache_usage": peak_use,
        "kv_cache_waste": own.cache_waste,
        "prefix_cache_hit_rate": own.prefix_hit_rate,
        "num_preemptions": int(own.run.preemptions.sum()),
        "utilisation": own.utilisation,
        "prompt_share": own.prompt_share,
    }


def _latency_keys(report: Report) -> dict[str, float | None]:
    result: dict[str, float | None] = {}
    for name, stat in report.metrics.items():
        unknown = report.endless and name in GROWING
        for measure, value in stat.values.items():
            half_width = stat.half_widths[measure]
            result[f"{measure}_{name}_ms"] = None if unknown else _number(value * 1e3)
            result[f"{measure}_{name}_ms_half_width"] = None if unknown else _number(half_width * 1e3)
        result[f"std_{name}_ms"] = None if unknown else _number(stat.std * 1e3)
    return result


def _mean_cell(values: list[Any]) -> Any:
    """Return the mean over draws: a whole number of whole ones, none where one has none, a flag if any is set."""
    if any(value is None for value in values):
        return None
    if isinstance(values[0], bool):
        return any(values)
    mean = float(np.mean(values))
    return round(mean) if isinstance(values[0], int) else mean


def _number(value: float) -> float | None:
    """JSON has no NaN."""
    return None if np.isnan(value) else float(value)
