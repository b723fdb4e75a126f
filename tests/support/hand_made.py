"""Step tables, requests and figures made by hand."""

import numpy as np

from simulator.roofline.step_model import StepTable
from simulator.workloads.workload import Requests

# Multiples of a power of two: every sum is exact, so the order of adding cannot blur a comparison to the bit. A key
# costs the same for a decode and for a prompt, because the oracle's (new, past) does not tell the two apart.
UNIT_S = 2.0**-20
TABLE = StepTable(
    token_s=(1000 + 11 * np.arange(4096)) * UNIT_S,
    logit_s=(100 + np.arange(65)) * UNIT_S,
    slopes=np.array([3, 1, 0, 3, 1]) * UNIT_S,
)

# One request at a time, a second per prompt token and per further token.
SECONDS = StepTable(token_s=np.arange(4096.0), logit_s=np.zeros(65), slopes=np.zeros(5))


def requests_of(rows: list[tuple[float, int, int]], concurrency: int = 0) -> Requests:
    arrival_s, prompts, outputs = zip(*rows, strict=True)
    return Requests(np.array(arrival_s), np.array(prompts), np.array(outputs), concurrency)
