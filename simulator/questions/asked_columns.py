"""What was asked, as columns of a row: the deployment, and the load with the keys of `vllm bench serve`."""

import math

from simulator.cost.scenario import Scenario
from simulator.frames import Row
from simulator.questions.identity import identity
from simulator.questions.length_words import in_words
from simulator.reports.report import Report
from simulator.workloads.lengths import Independent


def asked_columns(scenario: Scenario, rate: float | None, report: Report) -> Row:
    """Return what was asked, with the keys of a result file of `vllm bench serve` and those of the deployment.

    `rate` is in requests/s, None where all requests come at once or in a closed loop; `request_rate` is then "inf".
    `request_rate_within_slo`: at which a load with --within-slo was run; its figures are of that rate.
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
        "num_prompts": report.sent * scenario.shares,
        "request_rate": "inf" if rate is None else rate,
        **({"request_rate_within_slo": rate * report.of_asked} if report.is_limited and rate else {}),
        "burstiness": "inf" if burstiness == math.inf else burstiness,
        "max_concurrency": workload.arrivals.concurrency * scenario.shares or None,
        "replicas": scenario.replicas,
        "input_len": in_words(lengths.prompt) if isinstance(lengths, Independent) else None,
        "output_len": in_words(lengths.output) if isinstance(lengths, Independent) else None,
    }
