"""Replicas of a deployment under a workload, their pipeline stages included: one by itself, or all behind a router."""

from dataclasses import replace

from simulator.deployment.deployment import Deployment
from simulator.roofline.step_model import StepTable
from simulator.simulation.engine_loop import Progress, Run, simulate
from simulator.simulation.fleet import Fleet, Pool, simulate_fleet
from simulator.simulation.scheduler_limits import limits, slowest_stage, stages
from simulator.workloads.workload import Requests


def pool_of(
    deployment: Deployment, table: StepTable, requests: Requests, replicas: int, *, assume_fits: bool = False
) -> Pool:
    """Return replicas of a deployment; `requests` size blocks of prefixes, the stages work on batches of their own.

    `assume_fits`: requests longer than the model's context are not rejected. Raises as `limits` does.
    """
    allowed = limits(deployment, requests, assume_fits=assume_fits)
    batches = stages(deployment, allowed)
    return Pool(allowed, table, replicas, batches, deployment.acceptance, slowest_stage(deployment, batches))


def simulate_replica(pool: Pool, requests: Requests, progress: Progress | None = None) -> Run:
    """Simulate requests on one replica of a pool."""
    if pool.stages > 1:
        return simulate_fleet(Fleet(replace(pool, replicas=1)), requests, progress=progress)
    return simulate(pool.limits, pool.table, requests, progress, pool.acceptance)
