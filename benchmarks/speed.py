"""How fast the simulator simulates: Llama-3.1-8B on an H100 under vLLM's rules, on one core.

    python benchmarks/speed.py        a table, then one line of JSON

The machine may be shared, so every speed is also given against a yardstick measured beside it: how many numbers np.sort
orders in a second. That ratio hardly moves when a neighbour takes half of the core.
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from simulator.deployment.deployment import deploy
from simulator.roofline.step_model import StepTable
from simulator.scheduler.state import PROMPTS_FIRST, STATIC, SchedulerLimits
from simulator.simulation.engine_loop import Run, simulate
from simulator.simulation.fleet import Fleet, Pool, simulate_fleet
from simulator.simulation.routers import Router
from simulator.simulation.scheduler_limits import limits
from simulator.workloads.arrivals import Arrivals, ClosedLoop, OpenLoop
from simulator.workloads.lengths import Fixed, Independent
from simulator.workloads.shared_prefixes import Prefixes
from simulator.workloads.workload import Requests, Workload

REPEATS = 5
REQUESTS, LONG_REQUESTS, PLAIN_REQUESTS, MANY_REQUESTS = 100_000, 20_000, 300, 1_000_000
LOAD = 0.7
FEATURE_REQUESTS = 30_000
AIM_PER_S, AIM_BYTES, AIM_SHARE = 1_000_000, 1e9, 1 / 3


def engine() -> tuple[SchedulerLimits, StepTable]:
    deployment = deploy("llama-3.1-8b", "h100-sxm", "vllm")
    allowed = limits(deployment)
    return allowed, deployment.step_model().table(allowed.max_num_batched_tokens, allowed.max_num_seqs)


def requests_of(arrivals: Arrivals, output_tokens: int, count: int) -> Requests:
    return Workload(arrivals, Independent(Fixed(512), Fixed(output_tokens)), count).requests()


def capacity_per_s(output_tokens: int) -> float:
    """Completions per second of a closed loop that keeps every place taken, without its first and last quarter."""
    allowed, table = engine()
    run = simulate(allowed, table, requests_of(ClosedLoop(allowed.max_num_seqs), output_tokens, 20_000))
    times = np.sort(run.finished_s)[5_000:15_000]
    return float((len(times) - 1) / (times[-1] - times[0]))


def seconds(call: Callable[[], object]) -> float:
    """Time of the processor, so that waiting for a neighbour does not count."""
    start = time.process_time()
    call()
    return time.process_time() - start


def yardstick_per_s() -> float:
    """Numbers that np.sort orders in a second, at this moment."""
    values = np.random.default_rng(0).random(200_000)
    return len(values) / min(seconds(lambda: np.sort(values)) for _ in range(5))


def measure(requests: Requests) -> dict[str, float]:
    """Time `simulate` several times in this process, each beside the yardstick."""
    allowed, table = engine()
    run: Run = simulate(allowed, table, requests)
    taken, relative = [], []
    for _ in range(REPEATS):
        before = yardstick_per_s()
        taken.append(seconds(lambda: simulate(allowed, table, requests)))
        relative.append(2e6 * len(requests) / taken[-1] / (before + yardstick_per_s()))
    return {
        "requests": len(requests),
        "iterations": len(run.steps),
        "best_s": min(taken),
        "median_s": median(taken),
        "requests_per_s": len(requests) / min(taken),
        "requests_per_s_median": len(requests) / median(taken),
        "iterations_per_s": len(run.steps) / min(taken),
        "requests_per_million_sorted": median(relative),
        "preemptions": int(run.preemptions.sum()),
    }


def once(rate_per_s: float, count: int) -> None:
    """In a process of its own: what the first and the second run take, and the most memory it ever held."""
    allowed, table = engine()
    requests = requests_of(OpenLoop(rate_per_s), 128, count)
    few = requests_of(OpenLoop(rate_per_s), 128, 1)
    load_s = seconds(lambda: simulate(allowed, table, few))
    run_s = seconds(lambda: simulate(allowed, table, requests))
    peak_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"load_s": load_s, "run_s": run_s, "peak_bytes": peak_bytes}))


def in_another_process(rate_per_s: float, count: int, **environment: str) -> dict[str, float]:
    command = [sys.executable, __file__, str(rate_per_s), str(count)]
    settings = {**os.environ, **environment, "PYTHONPATH": str(Path(__file__).parents[1])}
    start = time.perf_counter()
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=True)
    return {**json.loads(done.stdout), "wall_s": time.perf_counter() - start}


def features(
    requests: Requests, allowed: SchedulerLimits
) -> dict[str, tuple[Requests, SchedulerLimits, tuple[float, ...]]]:
    """Switch each way of serving on for the same requests: requests, limits, acceptance."""
    rng, count, unit = np.random.default_rng(0), len(requests), 64
    lengths = rng.integers(0, 512 // unit + 1, count)
    groups = rng.integers(0, 200, count)
    shared = [[100 * group + place for place in range(length)] for group, length in zip(groups, lengths, strict=True)]
    cached = replace(requests, prefixes=Prefixes.of(shared, unit))
    urgent = replace(requests, priority=rng.integers(0, 3, count))
    prefilled = replace(requests, prefilled=np.ones(count, np.bool_))
    static = {"policy": STATIC, "async_scheduling": False}
    return {
        "nothing": (requests, allowed, ()),
        "prefix cache": (cached, allowed._replace(prefix_block_tokens=unit), ()),
        "prefix cache, evicting to the host": (
            cached,
            allowed._replace(prefix_block_tokens=unit, num_blocks=allowed.num_blocks // 8, host_prefix_blocks=500),
            (),
        ),
        "3 draft tokens, sampled": (requests, allowed._replace(draft_tokens=3), (0.8, 0.7, 0.6)),
        "3 draft tokens, expected": (
            requests,
            allowed._replace(draft_tokens=3, expected_acceptance=True),
            (0.8, 0.7, 0.6),
        ),
        "priorities": (urgent, allowed._replace(by_priority=True), ()),
        "long prompts": (requests, allowed._replace(long_prefill_tokens=256), ()),
        "whole prompts": (requests, allowed._replace(chunked_prefill=False), ()),
        "prompts first": (requests, allowed._replace(policy=PROMPTS_FIRST, async_scheduling=False), ()),
        "full output": (requests, allowed._replace(admit_full_output=True), ()),
        "prefilled": (prefilled, allowed, ()),
        "dynamic batches": (requests, allowed._replace(**static, batch_size=64, batch_wait_s=0.1), ()),
    }


def measure_features(rate_per_s: float) -> dict[str, dict[str, float]]:
    """Time each feature, alternately with the plain run."""
    allowed, table = engine()
    many = np.arange(4 * len(table.logit_s))  # with 3 draft tokens
    table, found = table._replace(logit_s=np.interp(many, many[: len(table.logit_s)], table.logit_s)), {}
    plain, *others = features(requests_of(OpenLoop(rate_per_s), 128, FEATURE_REQUESTS), allowed).items()
    for name, (requests, limits_of, acceptance) in (plain, *others):
        run = simulate(limits_of, table, requests, acceptance=acceptance)
        ours, theirs = [], []
        for _ in range(REPEATS):
            theirs.append(seconds(lambda: simulate(plain[1][1], table, plain[1][0])))
            ours.append(seconds(lambda: simulate(limits_of, table, requests, acceptance=acceptance)))  # noqa: B023
        found[name] = {
            "requests_per_s": len(requests) / min(ours),
            "iterations": len(run.steps),
            "of_plain": min(theirs) / min(ours),
        }
    return found


def measure_fleets(rate_per_s: float) -> dict[str, dict[str, float]]:
    """Time fleets of 1, 4 and 16 replicas at the same load each, alternately with one engine."""
    allowed, table = engine()
    plain, found = requests_of(OpenLoop(rate_per_s), 128, FEATURE_REQUESTS), {}
    for replicas in (1, 4, 16):
        fleet = Fleet(Pool(allowed, table, replicas), Router("least-outstanding"))
        requests = requests_of(OpenLoop(rate_per_s * replicas), 128, FEATURE_REQUESTS)
        run = simulate_fleet(fleet, requests)
        ours, theirs = [], []
        for _ in range(REPEATS):
            theirs.append(seconds(lambda: simulate(allowed, table, plain)))
            ours.append(seconds(lambda: simulate_fleet(fleet, requests)))  # noqa: B023
        found[f"a fleet of {replicas}"] = {
            "requests_per_s": len(requests) / min(ours),
            "iterations": len(run.steps),
            "of_plain": min(theirs) / min(ours),
        }
    return found


def report() -> dict[str, object]:
    rate, long_rate = LOAD * capacity_per_s(128), LOAD * capacity_per_s(2048)
    everything = engine()[0].max_num_seqs
    workloads = {
        f"512/128, Poisson at {LOAD:.0%} ({rate:.0f}/s)": requests_of(OpenLoop(rate), 128, REQUESTS),
        f"512/2048, Poisson at {LOAD:.0%} ({long_rate:.1f}/s)": requests_of(OpenLoop(long_rate), 2048, LONG_REQUESTS),
        f"512/128, {everything:,} in flight": requests_of(ClosedLoop(everything), 128, REQUESTS),
        "512/128, Poisson at twice the capacity": requests_of(OpenLoop(2 * rate / LOAD), 128, REQUESTS),
    }
    plain = in_another_process(rate, PLAIN_REQUESTS, NUMBA_DISABLE_JIT="1")
    compiled = in_another_process(rate, PLAIN_REQUESTS)
    return {
        "speed": {name: measure(requests) for name, requests in workloads.items()},
        "yardstick_sorted_per_s": yardstick_per_s(),
        "one_process": in_another_process(rate, REQUESTS),
        "many": in_another_process(rate, MANY_REQUESTS),
        "features": measure_features(rate) | measure_fleets(rate),
        "plain_python_times_slower": plain["run_s"] / compiled["run_s"],
    }


def show(result: dict[str, object]) -> None:
    print(f"{'':42}{'requests/s':>12}{'median':>12}{'iterations/s':>14}{'per M sorted':>14}{'iterations':>12}")
    for name, row in result["speed"].items():
        rates = f"{row['requests_per_s']:12,.0f}{row['requests_per_s_median']:12,.0f}{row['iterations_per_s']:14,.0f}"
        print(f"{name:42}{rates}{row['requests_per_million_sorted']:14,.0f}{row['iterations']:12,}")
    for name, row in result["features"].items():
        print(f"{name:42}{row['requests_per_s']:12,.0f} {row['of_plain']:11.0%} of nothing {row['iterations']:15,}")
    slowest = min(row["of_plain"] for row in result["features"].values())
    print(f"aim {AIM_SHARE:.0%} of nothing with any feature: {'met' if slowest > AIM_SHARE else 'NOT met'}")
    alone, many = result["one_process"], result["many"]
    main = next(iter(result["speed"].values()))
    print(f"aim {AIM_PER_S:,} requests/s: {'met' if main['requests_per_s'] > AIM_PER_S else 'NOT met'}")
    shares = {name: alone[name] / alone["wall_s"] for name in ("run_s", "load_s")}
    print(
        f"a process for {REQUESTS:,} requests takes {alone['wall_s']:.2f} s: {shares['run_s']:.0%} simulates, "
        f"{shares['load_s']:.0%} loads machine code, the rest imports and draws"
    )
    print(
        f"{MANY_REQUESTS:,} requests: {many['run_s']:.2f} s, at most {many['peak_bytes'] / 1e6:,.0f} MB "
        f"(aim below {AIM_BYTES / 1e6:,.0f}: {'met' if many['peak_bytes'] < AIM_BYTES else 'NOT met'})"
    )
    print(f"plain Python (NUMBA_DISABLE_JIT=1) is {result['plain_python_times_slower']:,.0f} times slower")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        once(float(sys.argv[1]), int(sys.argv[2]))
    else:
        found = report()
        show(found)
        print(json.dumps(found))
