"""Columns of what a run was asked, with the keys of `vllm bench serve --save-result`."""

import math
from collections.abc import Iterable, Sequence

from simulator.cli.output import Column, Row, identity
from simulator.cost.scenario import Scenario
from simulator.questions.length_words import in_words
from simulator.reports.report import Report
from simulator.simulation.engine_loop import Run
from simulator.workloads.lengths import Independent

LOADS = (  # columns of a table where they vary
    Column("input_len", "ISL", left=True),
    Column("output_len", "OSL", left=True),
    Column("burstiness", "burstiness", lambda shape: f"{float(shape):g}"),
    Column("max_concurrency", "in flight"),
    Column("request_rate", "rate /s", lambda rate: rate if isinstance(rate, str) else f"{rate:g}", left=True),
)
TOTALS = {"output_throughput": "out tok/s", "request_throughput": "req/s"}


def asked_columns(scenario: Scenario, rate: float | None, report: Report) -> Row:
    """Return what was asked, with the keys of a result file of `vllm bench serve` and those of the deployment.

    `rate` is in requests/s, None where all requests come at once or in a closed loop; `request_rate` is then "inf".
    """
    workload, lengths = scenario.workload, scenario.workload.lengths
    burstiness = getattr(workload.arrivals, "burstiness", None)
    return {
        **identity(scenario.deployment),
        "endpoint_type": "infercast",
        "backend": scenario.deployment.engine.engine,
        "label": workload.name or None,
        "model_id": scenario.deployment.model.id,
        "tokenizer_id": scenario.deployment.model.id,
        "num_prompts": report.sent * scenario.replicas,
        "request_rate": "inf" if rate is None else rate,
        "burstiness": "inf" if burstiness == math.inf else burstiness,
        "max_concurrency": workload.arrivals.concurrency * scenario.replicas or None,
        "replicas": scenario.replicas,
        "input_len": in_words(lengths.prompt) if isinstance(lengths, Independent) else None,
        "output_len": in_words(lengths.output) if isinstance(lengths, Independent) else None,
    }


def loads(rows: Sequence[Row]) -> list[Column]:
    """Return columns for what varies among the loads of some rows; the last one, the rate, where nothing does."""
    return [each for each in LOADS if len({row[each.key] for row in rows}) > 1] or [LOADS[-1]]


def rejection_notes(runs: Iterable[Run]) -> list[str]:
    """Return a line on the requests of a load that engines rejected, and why; none where they took all.

    `runs` are draws of one load.
    """
    rejected = [each for each in runs if len(each.rejected)]
    if not rejected:
        return []
    one = rejected[0]
    count, sent = len(one.rejected), len(one.rejected) + len(one.requests)
    return [
        f"REJECTED: {count:,} of {sent:,} requests ({count / sent:.2%}), as the engine does (vLLM: HTTP 400): "
        f"{one.rejected.in_words()}. They keep no bound of the SLO; latencies and throughputs are those of the others."
    ]
