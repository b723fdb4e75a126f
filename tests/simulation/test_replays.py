"""Two recorded vLLM runs against the simulator: given arrivals and lengths, with no number fitted to them.

docs/log.md (2026-11-21) names what is left of the error, cause by cause.
"""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

from simulator.arrays import Floats
from simulator.deployment.deployment import Deployment, deploy
from simulator.deployment.memory import memory_plan
from simulator.deployment.settings import Settings
from simulator.simulation.engine_loop import simulate
from simulator.simulation.scheduler_limits import limits
from simulator.workloads.workload import Requests
from tests.support.paths import FIXTURES

# casys-kaist/LLMServingSim bench/bench.sh says how each run was started.
STARTED = {
    "RTX4090/Llama-3.1-8B": Settings(max_num_seqs=256, max_num_batched_tokens=2048, max_model_len=32768),
    "RTXPRO6000/Llama-3.1-8B": Settings(max_num_seqs=128, max_num_batched_tokens=2048),
}


@dataclass(frozen=True)
class Case:
    """A replay, a profile for its device, and how far mean and p99 of each latency may be off."""

    run: str
    hardware: str
    tolerance: float


# What issue 2 asks for.
CASES = (
    Case("RTX4090/Llama-3.1-8B", "rtx-4090", 0.05),
    Case("RTXPRO6000/Llama-3.1-8B", "rtx-pro-6000-server", 0.12),
)


@cache
def recorded(run: str) -> pd.DataFrame:
    rows = pd.read_csv(FIXTURES / "replays.csv.gz")
    return rows[rows.run == run].sort_values("arrival_s", kind="stable").reset_index(drop=True)


def deployment(case: Case) -> Deployment:
    return deploy("llama-3.1-8b", case.hardware, "vllm-0.19", settings=STARTED[case.run])


def latencies(arrival_s: Floats, first_s: Floats, last_s: Floats, outputs: Floats) -> dict[str, float]:
    """Mean and p99 of TTFT, TPOT and E2EL, as `vllm bench serve` defines them."""
    several = outputs > 1
    values = {
        "ttft": first_s - arrival_s,
        "tpot": ((last_s - first_s) / np.maximum(outputs - 1, 1))[several],
        "e2el": last_s - arrival_s,
    }
    means = {f"mean {name}": float(value.mean()) for name, value in values.items()}
    return means | {f"p99 {name}": float(np.percentile(value, 99)) for name, value in values.items()}


def errors(rows: pd.DataFrame, case: Case) -> dict[str, float]:
    """Relative error of each prediction."""
    allowed = limits(deployment(case))
    table = deployment(case).step_model().table(allowed.max_num_batched_tokens, allowed.max_num_seqs)
    arrival_s, outputs = rows.arrival_s.to_numpy(), rows.output_toks.to_numpy()
    run = simulate(allowed, table, Requests(arrival_s, rows.input_toks.to_numpy(), outputs))
    ours = latencies(arrival_s, run.first_token_s, run.finished_s, outputs)
    real = latencies(arrival_s, rows.first_token_s.to_numpy(), rows.last_token_s.to_numpy(), outputs)
    return {name: ours[name] / real[name] - 1 for name in real}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.run}-{case.hardware}")
def test_latencies_of_a_recorded_run(case):
    off = errors(recorded(case.run), case)
    said = ", ".join(f"{name} {error:+.1%}" for name, error in off.items())
    assert max(map(abs, off.values())) <= case.tolerance, said


def test_the_plan_has_the_blocks_that_the_recorded_run_shows():
    """After 4.16 s all 41 admitted prompts are done, yet request 41 (468 tokens) waits until one of them finishes.

    So the blocks that the 41 hold (one token more per step since their first) leave less than 30 = ceil(468 / 16) free:
    the usable blocks lie between what they hold in the step that ends at 4.336 s and 30 more.
    """
    rows = recorded(CASES[0].run)
    step_ends = np.unique(rows.first_token_s[:41])
    steps = np.searchsorted(step_ends, step_ends[-1]) - np.searchsorted(step_ends, rows.first_token_s[:41])
    held = int(np.ceil((rows.input_toks[:41] + steps) / 16).sum())
    assert rows.queued_s[41] < step_ends[-1] < rows.last_token_s.min() < rows.scheduled_s[41]
    assert held == 2552
    assert memory_plan(deployment(CASES[0])).num_blocks == pytest.approx(held + 15, rel=0.015)


def test_the_plan_has_the_blocks_that_vllm_028_reported():
    """LLMServingSim's metadata of a later run on the same card: 35,913 blocks at 0.92 of the memory, graphs inside."""
    plan = memory_plan(replace(deployment(CASES[1]), settings=replace(STARTED[CASES[1].run], memory_fraction=0.92)))
    assert plan.num_blocks == pytest.approx(35_913, rel=0.025)


def test_the_recorded_runs_fill_what_they_were_given():
    """The settings of the start scripts show: no more than 128 sequences at once, and just as many when queueing."""
    rows = recorded("RTXPRO6000/Llama-3.1-8B")
    changes = pd.concat([pd.Series(1, rows.scheduled_s), pd.Series(-1, rows.last_token_s)]).sort_index(kind="stable")
    assert changes.cumsum().max() == 128
