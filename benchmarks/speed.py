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
from pathlib import Path
from statistics import median

import numpy as np

from simulator.deployment import deploy
from simulator.lengths import Fixed, Independent
from simulator.limits import limits
from simulator.roofline import StepTable
from simulator.simulate import Run, simulate
from simulator.state import Limits
from simulator.workload import Arrivals, ClosedLoop, OpenLoop, Requests, Workload

REPEATS = 5
REQUESTS, LONG_REQUESTS, PLAIN_REQUESTS, MANY_REQUESTS = 100_000, 20_000, 300, 1_000_000
LOAD = 0.7
AIM_PER_S, AIM_BYTES = 1_000_000, 1e9


def engine() -> tuple[Limits, StepTable]:
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
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


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
        "plain_python_times_slower": plain["run_s"] / compiled["run_s"],
    }


def show(result: dict[str, object]) -> None:
    print(f"{'':42}{'requests/s':>12}{'median':>12}{'iterations/s':>14}{'per M sorted':>14}{'iterations':>12}")
    for name, row in result["speed"].items():
        rates = f"{row['requests_per_s']:12,.0f}{row['requests_per_s_median']:12,.0f}{row['iterations_per_s']:14,.0f}"
        print(f"{name:42}{rates}{row['requests_per_million_sorted']:14,.0f}{row['iterations']:12,}")
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
