"""The load of a run of arrivals, and how many requests its statistics need.

What is in a queue now depends on what was in it for about 1 / (1 - rho)^2 requests, where rho is the load. A run that
is not much longer may miss the rare long queues that make up its mean and its p95, and then shows no sign of it: no
estimate from its own latencies finds their error (docs/trust.md has the coverage of several). But its load is known
well, as it takes only the mean work per request. Source: W. Whitt, Planning queueing simulations, Management Science
35 (1989) 1341-1366: the length of a run for a given relative error grows as 1 / (1 - rho)^2.
"""

import math

import numpy as np

from simulator.simulation.engine_loop import Run

ENOUGH = 500  # times 1 / (1 - load)^2: the shortest runs whose 95 % intervals contain the truth nine times in ten


def arrival_load(run: Run) -> float:
    """Return rho: seconds that the requests take in steps as full as the engine allows, over those in which they came.

    A step of d sequences that decode takes a + b d seconds without its prompts (least squares over the run's steps);
    prompts add what they add. At most `max_num_seqs` sequences decode at once, or as many as the KV cache holds. So

        rho = (seconds of prompts + b x decodes + a x decodes / most at once) / (seconds of arrivals x engines)

    Infinity where all requests came at once.
    """
    span_s = float(run.requests.arrival_s[-1] - run.requests.arrival_s[0])
    if not span_s:
        return math.inf
    steps = run.steps[run.steps.decodes > 0]
    full_s = 0.0
    if len(steps):
        decodes, alone_s = steps.decodes.astype(np.float64), steps.seconds - steps.prompt_s
        around = decodes - decodes.mean()
        each_s = max(0.0, float(around @ alone_s) / (float(around @ around) or 1.0))
        step_s = max(0.0, float(alone_s.mean() - each_s * decodes.mean()))
        held = float((steps.blocks / steps.running).mean()) or 1.0
        most = max(float(decodes.max()), min(run.limits.max_num_seqs, run.limits.num_blocks / held))
        full_s = float(decodes.sum()) * (each_s + step_s / most)
    return (float(run.steps.prompt_s.sum()) + full_s) / span_s / run.engines


def requests_needed(load: float) -> float:
    """Return how many requests a run at a load needs for confidence intervals: ENOUGH / (1 - load)^2.

    >>> round(requests_needed(0.5)), round(requests_needed(0.9)), requests_needed(1.2)
    (2000, 50000, inf)
    """
    return ENOUGH / (1 - load) ** 2 if load < 1 else math.inf
