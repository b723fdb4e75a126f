"""How often the report's 95 % confidence intervals contain the truth: the table in docs/trust.md.

    python -m tools.coverage_of_intervals [--seeds 100] [--write]

A small model, with many sequences at once and with few, and one whose cache is full before are sent three shares of
their highest rate, in runs of the default length and in runs just long enough for intervals (`arrival_load.py`). The
truth is the mean over all runs of the latter. M/M/1 has a truth of its own. About half an hour.
"""

import argparse
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from simulator.arrays import Floats
from simulator.cost.scenario import Scenario
from simulator.deployment.deployment import deploy
from simulator.deployment.settings import Settings
from simulator.reports.arrival_load import ArrivalLoad, RunLength
from simulator.reports.batch_means import QUANTILES, Statistic, statistic, warm_up
from simulator.workloads.arrivals import ClosedLoop, OpenLoop
from simulator.workloads.workload import Workload, load_workload
from tools.trust_page import put, table

LOADS = (0.5, 0.8, 0.95)
DEFAULT_REQUESTS, MARGIN = 10_000, 1.3  # of runs that are just long enough: the load of a run varies
FEWEST = 10  # runs with an interval, of which a share is told
FIRST_SEED = 100_000  # the rules were chosen with others
METRICS, STATS = ("ttft", "tpot", "e2el"), ("mean", "p95", "p99")
CASES = {  # model, most sequences at once
    "smollm2-135m on l4": ("smollm2-135m", 256),
    "the same, 64 at once": ("smollm2-135m", 64),
    "the same, 16 at once": ("smollm2-135m", 16),
    "llama-3.1-8b on l4": ("llama-3.1-8b", 256),
}


class Sample(NamedTuple):
    """What runs of one length at one load said, by metric: a statistic for each run."""

    case: str
    load: float
    requests: int
    found: dict[str, list[Statistic]]


def main() -> None:
    """Print the table, or put it into docs/trust.md."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=100)
    options.add_argument("--write", action="store_true")
    given = options.parse_args()
    rows = list(covered(given.seeds))
    text = table(["load", "queue", "requests", *(f"{m.upper()} {s}" for m in METRICS for s in STATS)], rows)
    if given.write:
        put("coverage", text)
    else:
        print(text)  # noqa: T201


def covered(seeds: int) -> Iterator[list[str]]:
    """Yield the rows: load, case, requests of a run, and for each statistic the intervals that hold the truth."""
    for load in LOADS:
        of_m_m_1 = ArrivalLoad(load, load, load / (1 - load))
        lengths = (round(MARGIN * of_m_m_1.requests_needed), DEFAULT_REQUESTS)
        for case in CASES:
            samples = [engine_runs(case, load, count, seeds) for count in lengths]
            longest = max(samples, key=lambda each: each.requests)
            truth = {
                (metric, stat): float(np.mean([each[stat] for each in found]))
                for metric, found in longest.found.items()
                for stat in STATS
            }
            yield from (row(each, truth) for each in samples)
        exact = {("ttft", name): math.log(load / (1 - share)) / (1 - load) for name, share in QUANTILES.items()}
        exact["ttft", "mean"] = of_m_m_1.wait_s
        yield from (row(m_m_1_runs(of_m_m_1, count, seeds), exact) for count in lengths)


def row(sample: Sample, truth: dict[tuple[str, str], float]) -> list[str]:
    """Return the cells of one sample: how many of the stated intervals hold the truth, and of how many runs.

    Few runs with an interval tell nothing of it but how few they are.
    """
    cells = [f"{sample.load:g}", sample.case, f"{sample.requests:,}"]
    for metric in METRICS:
        for stat in STATS:
            value, found = truth.get((metric, stat)), sample.found.get(metric, [])
            stated = [each for each in found if not math.isnan(each.half_widths[stat])]
            if value is None or not stated:
                cells.append("none" if found else "")
                continue
            if len(stated) < FEWEST:
                cells.append(f"few ({len(stated) / len(found):.0%})")
                continue
            held = np.mean([abs(each[stat] - value) <= each.half_widths[stat] for each in stated])
            few = f" (of {len(stated) / len(found):.0%})" if len(stated) < len(found) else ""
            cells.append(f"{held:.0%}{few}")
    return cells


def engine_runs(case: str, load: float, count: int, seeds: int) -> Sample:
    """Simulate chat at a share of the highest rate, once for each seed."""
    chat, (model, slots) = load_workload("chat"), CASES[case]
    deployment = deploy(model, "l4", settings=Settings(max_num_seqs=slots))
    scenario = Scenario(deployment, Workload(OpenLoop(1.0), chat.lengths, count))
    workload = replace(scenario.workload, arrivals=chat.arrivals(load * highest_per_s(scenario)))
    found: dict[str, list[Statistic]] = {metric: [] for metric in METRICS}
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        report = scenario.report(replace(workload, seed=seed))
        for metric in METRICS:
            found[metric].append(settled(report.metrics[metric]))
    return Sample(case, load, count, found)


def settled(each: Statistic) -> Statistic:
    """Return a statistic with its half-widths, without the run that they came from."""
    return replace(each, find_half_widths=partial(dict, each.half_widths))


def highest_per_s(scenario: Scenario) -> float:
    """Return requests/s of an engine that always has requests waiting: the middle half of its completions."""
    full = replace(scenario.workload, arrivals=ClosedLoop(2 * scenario.deployment.max_num_seqs), request_count=40_000)
    finished_s = np.sort(scenario.report(full).run.finished_s)
    quarter = len(finished_s) // 4
    return 2 * quarter / float(finished_s[3 * quarter] - finished_s[quarter])


def m_m_1_runs(load: ArrivalLoad, count: int, seeds: int) -> Sample:
    """Return waits of M/M/1 with a mean service of 1, under the rule of `Report`: is the run long enough."""
    found = []
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        waits_s = lindley(load.rho, count, seed)
        kept = waits_s[warm_up(waits_s) :]
        found.append(settled(statistic(kept, partial(RunLength, len(kept), load))))
    return Sample("M/M/1", load.rho, count, {"ttft": found})


def lindley(load: float, count: int, seed: int) -> Floats:
    """Return the waits of M/M/1, shape (count,), in mean service times: W' = max(0, W + S - A) (Lindley, 1952)."""
    rng = np.random.default_rng(seed)
    change = rng.exponential(1.0, count) - rng.exponential(1 / load, count)
    walk = np.concatenate([[0.0], np.cumsum(change[:-1])])
    return np.asarray(walk - np.minimum.accumulate(walk))


if __name__ == "__main__":
    main()
