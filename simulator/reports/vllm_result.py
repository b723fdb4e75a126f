"""A report as the result file that `vllm bench serve --save-result` writes, with keys of our own beside its."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from simulator.reports.report import Report


def vllm_result(report: Report) -> dict[str, Any]:
    """Return a report under the keys of `vllm bench serve --save-result` (milliseconds) and, beside them, our own.

    `overloaded`: a queue grows without end in this run; `overload`: what queues then, or would in a longer run. One
    that it would has no part in `meets_slo`, and `queue_growth_per_s` is what it would grow by.
    """
    told = bool(report.slo.bounds_s) and not report.endless
    return {
        **_mean_of_draws(_counts, report),
        **run_figures(report),
        **_half_widths(report),
        "overload": report.overload and report.overload.queueing,
        "meets_slo": report.meets_slo,
        "slo_attainment": report.within["all"] if told else None,
        **{
            f"slo_attainment_{name}": None if name in report.endless else report.within[name]
            for name in report.slo.bounds_s
        },
    }


def run_figures(report: Report) -> dict[str, float | None]:
    """Return the throughputs and latencies of `vllm_result`: all that has an interval."""
    latencies = _latencies(report)
    tpot_ms = latencies["mean_tpot_ms"]
    return {**_mean_of_draws(_rates, report), **latencies, "tokens_per_s_user": 1e3 / tpot_ms if tpot_ms else None}


def _mean_of_draws(keys_of: Callable[[Report], dict[str, Any]], report: Report) -> dict[str, Any]:
    """Return what is counted in one run, as the mean over the draws."""
    rows = [keys_of(replace(each, draws=())) for each in (report, *report.draws)]
    return {name: _mean_cell([row[name] for row in rows]) for name in rows[0]}


def _rates(report: Report) -> dict[str, float]:
    """Return the throughputs of one run, in sums over the replicas."""
    return {
        "request_throughput": report.requests_per_s,
        "output_throughput": report.output_tokens_per_s,
        "input_throughput": report.total_tokens_per_s - report.output_tokens_per_s,
        "total_token_throughput": report.total_tokens_per_s,
    }


def _counts(report: Report) -> dict[str, Any]:
    """Return what else is counted in one run, in sums over the replicas; warm-up and means are of one."""
    mean_use, peak_use = report.cache_use
    told = bool(report.slo.bounds_s) and not report.endless
    return {
        "duration": report.duration_s,
        "completed": report.completed * report.replicas,
        "failed": len(report.run.rejected) * report.replicas,
        "total_input_tokens": report.input_tokens * report.replicas,
        "total_output_tokens": report.output_tokens * report.replicas,
        "request_goodput": report.goodput_per_s if told else None,
        "max_concurrent_requests": report.replicas
        * report.run.at_once(report.run.steps.running + report.run.steps.waiting)[1],
        "warm_up_requests": report.skipped,
        "overloaded": report.overloaded,
        "queue_growth_per_s": report.queue_growth_per_s,
        "mean_num_requests_running": report.mean_running,
        "mean_kv_cache_usage": mean_use,
        "peak_kv_cache_usage": peak_use,
        "kv_cache_waste": report.cache_waste,
        "prefix_cache_hit_rate": report.prefix_hit_rate,
        "num_preemptions": int(report.run.preemptions.sum()) * report.replicas,
        "utilisation": report.utilisation,
        "prompt_share": report.prompt_share,
    }


def _latencies(report: Report) -> dict[str, float | None]:
    """Return mean, quantiles and standard deviation of each metric; None where it grows with the run."""
    found: dict[str, float | None] = {}
    for name, stat in report.metrics.items():
        unknown = name in report.endless
        for measure, value in {**stat.values, "std": stat.std}.items():
            found[f"{measure}_{name}_ms"] = None if unknown else _number(value * 1e3)
    return found


def _half_widths(report: Report) -> dict[str, float | None]:
    """Return half of the 95 % confidence interval of each mean and quantile, of a run that is long enough to tell."""
    found: dict[str, float | None] = {}
    for name, stat in report.metrics.items():
        unknown = name in report.endless
        for measure, value in stat.half_widths.items():
            found[f"{measure}_{name}_ms_half_width"] = None if unknown else _number(value * 1e3)
    return found


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
