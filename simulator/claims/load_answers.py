"""Answers from simulated loads and from queueing theory: throughput, latencies, waste of the cache, waits."""

from typing import Any

import numpy as np

from simulator.claims.cases import scenario, simulated
from simulator.questions.load_rows import load_row
from simulator.reports.queueing import m_g_1_wait_s


def simulate(key: str, scale: float = 1.0, **options: Any) -> float:
    """Return a key of the row that `infercast simulate` prints, times `scale` where that is not SI (0.001 for ms)."""
    return scale * float(load_row(*scenario(options), None)[key])


def slowest_tokens_per_s(**options: Any) -> float:
    """Return the tokens/s that 95 % of the requests exceed: 1 / p95 of TPOT."""
    return 1 / simulated(options).metrics["tpot"].values["p95"]


def computed_over_prompt(**options: Any) -> float:
    """Return the tokens that all steps of a load computed in the way of prompts, over the tokens of its prompts."""
    run = simulated(options).run
    return float(run.steps.prompt_tokens.sum() / run.requests.prompt_tokens.sum())


def answered_s(output_tokens: int, hand_over: str, **options: Any) -> float:
    """Return the mean seconds until requests with so many output tokens have their answer.

    `hand_over`: "each" when it is complete, "batch" when the longest of the batch is.
    """
    run = simulated(options).run
    ours = run.requests.output_tokens == output_tokens
    return run.end_s if hand_over == "batch" else float(np.mean(run.finished_s[ours]))


def queue_wait_s(load: float, service_s: float) -> float:
    """Return the mean wait of random arrivals at one server with a constant time per request; `load` is a share."""
    return m_g_1_wait_s(load / service_s, service_s, 0.0)


def overload_wait_s(rate_per_s: float, service_s: float, after_s: float) -> float:
    """Return the wait of a request that arrives `after_s` seconds after an overload began: (rate x service - 1) t.

    Each second brings rate x service seconds of work, of which one is done.

    >>> round(overload_wait_s(110.0, 0.01, 10.0), 9)
    1.0
    """
    return max(0.0, rate_per_s * service_s - 1) * after_s
