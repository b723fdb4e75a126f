"""The simulator as a single server of queueing theory, and runs held against what theory says."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from simulator.arrays import Floats
from simulator.reports.batch_means import statistic
from simulator.roofline.step_model import StepTable
from simulator.scheduler.state import CONTINUOUS, SchedulerLimits
from simulator.simulation.engine_loop import Run

TICK_S = 2.0**-20  # 1 us; a power of two, so that a service of k ticks takes exactly k of them
SERVICE_TICKS = 4096
SERVICE_S = SERVICE_TICKS * TICK_S
# A server: a step of T prompt tokens takes T ticks, a decode step one tick, nothing else costs anything.
TABLE = StepTable(token_s=np.arange(1 << 17) * TICK_S, logit_s=np.zeros(20), slopes=np.zeros(5))
ONE_AT_A_TIME = SchedulerLimits(
    policy=CONTINUOUS,
    max_num_seqs=1,
    max_num_batched_tokens=(1 << 17) - 1,
    num_blocks=1 << 18,
    block_size=16,
    admit_full_prompt=True,
)


class Theory(NamedTuple):
    """What a statistic of the report should be."""

    name: str
    value: float


def check(samples: Iterable[Floats], *theories: Theory) -> None:
    """Independent runs against theory: the mean over runs, and how often a run's own 95 % interval misses.

    The first tenth of a run is warm-up, as the queue starts empty. The runs of one load are the same every time.
    """
    found = [statistic(values[len(values) // 10 :]) for values in samples]
    for name, value in theories:
        estimates = np.array([each[name] for each in found])
        error = estimates.std(ddof=1) / math.sqrt(len(found))
        assert abs(estimates.mean() - value) < 3.3 * error < 0.15 * value
        missed = np.mean([abs(each[name] - value) > each.half_widths[name] for each in found])  # NaN: says nothing
        assert missed <= 0.2, (name, missed)  # see also test_queueing_theory.py


def waits(run: Run) -> Floats:
    return run.scheduled_s - run.requests.arrival_s
