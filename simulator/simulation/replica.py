"""One replica of a deployment under a workload, its pipeline stages included."""

from simulator.deployment.deployment import Deployment
from simulator.roofline.step_model import StepTable
from simulator.simulation.engine_loop import Progress, Run, simulate
from simulator.simulation.fleet import Fleet, Pool, simulate_fleet
from simulator.simulation.scheduler_limits import limits, stages
from simulator.workloads.workload import Requests


def simulate_replica(
    deployment: Deployment,
    table: StepTable,
    requests: Requests,
    progress: Progress | None = None,
    *,
    assume_fits: bool = False,
) -> Run:
    """Simulate requests on one replica; the stages of a pipeline work on batches of their own.

    `assume_fits`: requests longer than the model's context are not rejected.
    """
    allowed = limits(deployment, requests, assume_fits=assume_fits)
    if (batches := stages(deployment, allowed)) > 1:
        return simulate_fleet(Fleet(Pool(allowed, table, stages=batches)), requests, progress=progress)
    return simulate(allowed, table, requests, progress, deployment.acceptance)
