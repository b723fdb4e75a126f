"""Hashes of runs of every kind, to be compared to the bit. `python -m tests.support.digests` prints them as JSON, so
that a second process, without the compiler, can be asked for the same ones.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import numpy as np

from simulator.deployment.deployment import Deployment, deploy
from simulator.deployment.settings import Settings
from simulator.scheduler.state import CONTINUOUS, POLICIES, STATIC, UNCACHED, SchedulerLimits
from simulator.simulation.autoscaler import Autoscaler, Failure
from simulator.simulation.clients import Clients
from simulator.simulation.disaggregation import CacheLink
from simulator.simulation.engine_loop import Run, simulate
from simulator.simulation.fleet import Fleet, Pool, simulate_fleet
from simulator.simulation.fleet_run import FleetRun
from simulator.simulation.routers import ROUTERS, Router
from simulator.simulation.scheduler_limits import limits as limits_of
from simulator.workloads.arrivals import ClosedLoop, OpenLoop
from simulator.workloads.lengths import Independent, LogNormal
from simulator.workloads.shared_prefixes import Prefixes
from simulator.workloads.workload import Requests, Workload
from tests.support.hand_made import TABLE


def digest(run: Run) -> str:
    """Hash every byte of a run."""
    return _hashed([run.requests.arrival_s, *_outcomes(run), run.steps])


def _outcomes(run: Run | FleetRun) -> list[np.ndarray]:
    return [run.scheduled_s, run.first_token_s, run.finished_s, run.stalled_s, run.preemptions, run.hit_tokens]


def _hashed(parts: Iterable[np.ndarray]) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


def chat(requests: int = 25, *, rate_per_s: float = 200.0, concurrency: int = 0, seed: int = 0) -> Workload:
    arrivals = ClosedLoop(concurrency) if concurrency else OpenLoop(rate_per_s, 0.7)
    return Workload(arrivals, Independent(LogNormal(300, 1.3, 2000), LogNormal(50, 1.0, 300)), requests, seed)


def simulated(deployment: Deployment, workload: Workload, **changes: int) -> Run:
    return simulated_requests(deployment, workload.requests(), **changes)


def simulated_requests(deployment: Deployment, requests: Requests, **changes: int) -> Run:
    allowed = limits_of(deployment)._replace(**changes)
    drafts = allowed.draft_tokens
    table = deployment.step_model().table(allowed.max_num_batched_tokens, allowed.max_num_seqs * (1 + drafts))
    return simulate(allowed, table, requests, acceptance=(0.7,) * drafts)


def sharing(requests: Requests) -> Requests:
    """Give half of the prompts common beginnings, and all of them priorities."""
    kinds = np.arange(len(requests)) % 4
    prefixes = Prefixes.of([[place + 1000 * kind for place in range(40)] if kind < 2 else [] for kind in kinds])
    return replace(requests, priority=kinds, prefixes=prefixes)


def digests() -> dict[str, str]:
    """One run of each kind, hashed."""
    small = Settings(max_num_seqs=16, max_num_batched_tokens=512)
    llama = deploy("llama-3.1-8b", "l4", settings=replace(small, num_blocks=600))
    gemma = deploy("gemma-3-27b", "h100-sxm", settings=small)
    runs = {
        "continuous": simulated(llama, chat(), async_scheduling=False),
        "preempting": simulated(llama, chat(), async_scheduling=False, num_blocks=160),
        "async": simulated(llama, chat(), async_scheduling=True),
        "closed": simulated(llama, chat(concurrency=5)),
        "prompts first": simulated(llama, chat(), policy=POLICIES["prompts-first"], async_scheduling=False),
        "static": simulated(llama, chat(), policy=STATIC, async_scheduling=False),
        "windowed": simulated(gemma, chat(), num_blocks=3000, window=128, window_blocks=9),
    }
    shared, tight = sharing(chat().requests()), {"num_blocks": 160, "prefix_block_tokens": 16}
    runs |= {
        "prefixes": simulated_requests(llama, shared, **tight),
        "host tier": simulated_requests(llama, shared, **tight, host_prefix_blocks=20),
        "priorities": simulated_requests(llama, shared, **tight, by_priority=True, long_prefill_tokens=64),
        "drafts": simulated(llama, chat(), draft_tokens=2, async_scheduling=False),
        "expected drafts": simulated(llama, chat(), draft_tokens=2, expected_acceptance=True),
        "uncached": simulated(llama, chat(5), policy=UNCACHED, async_scheduling=False),
        "dynamic": simulated(llama, chat(), policy=STATIC, async_scheduling=False, batch_size=8, batch_wait_s=0.5),
    }
    assert runs["prefixes"].hit_tokens.any() and runs["host tier"].steps.loaded_tokens.any()
    assert runs["preempting"].preemptions.any()
    return {name: digest(run) for name, run in runs.items()} | fleet_digests()


def fleet_digests() -> dict[str, str]:
    """Fleets of each router with failures, autoscaling and clients that give up, and one of two pools."""
    limits = SchedulerLimits(
        policy=CONTINUOUS,
        max_num_seqs=4,
        max_num_batched_tokens=32,
        num_blocks=24,
        block_size=4,
        admit_full_prompt=True,
        prefix_block_tokens=4,
    )
    rng = np.random.default_rng(3)
    asked = sharing(Requests(np.sort(0.4 * rng.random(40)), rng.integers(1, 40, 40), rng.integers(1, 30, 40)))
    scaler = Autoscaler(3, 3, interval_s=0.1, cold_start_s=0.05, down_delay_s=0.1)
    failures = (Failure(0.1, 0, 0.1), Failure(0.25, 1, 0.1))
    patience = Clients(timeout_s=0.05, max_retries=2, retry_delay_s=0.01)
    runs = {
        name: simulate_fleet(Fleet(Pool(limits, TABLE, 3), Router(name), scaler, failures), asked, patience)
        for name in ROUTERS
    }
    assert all(run.timeouts.any() and run.retries.any() for run in runs.values())
    two_pools = Fleet(Pool(limits, TABLE, 2), prefill=Pool(limits, TABLE, 2), link=CacheLink(1.0, 0.01))
    runs["two pools"] = simulate_fleet(two_pools, asked)
    return {
        name: _hashed([*_outcomes(run), run.row, run.replica, run.retries, run.timeouts, run.steps, run.events])
        for name, run in runs.items()
    }


@cache
def compiled_digests() -> dict[str, str]:
    return digests()


if __name__ == "__main__":
    print(json.dumps(digests()))
