"""What the scheduler of a deployment may do, and which workloads it can take."""

from simulator.deployment import Deployment
from simulator.errors import NotModelledError, WorkloadError
from simulator.memory import MemoryPlan, memory_plan, refuse_misfit
from simulator.state import CONTINUOUS, POLICIES, Limits
from simulator.workload import Requests


def limits(deployment: Deployment) -> Limits:
    """Return what the scheduler may do.

    Raises DoesNotFitError where not even one short sequence fits, NotModelledError for an engine that schedules in a
    way that no policy here follows.
    """
    engine = deployment.engine
    if engine.scheduler_not_modelled:
        because = f"its scheduler is not modelled: {engine.scheduler_not_modelled}"
        raise NotModelledError(f"{engine.id} under load", because, "Ask `infercast estimate` or `memory`, or use vllm")
    plan = memory_plan(deployment)
    refuse_misfit(plan)
    return Limits(
        policy=POLICIES[engine.policy],
        max_num_seqs=deployment.max_num_seqs,
        max_num_batched_tokens=deployment.max_num_batched_tokens,
        num_blocks=plan.num_blocks,
        block_size=int(engine.block_size),
        admit_full_prompt=engine.admit_full_prompt,
        async_scheduling=engine.async_scheduling and POLICIES[engine.policy] == CONTINUOUS,
        window=deployment.model.window or 0,
        full_groups=plan.groups.full,
        window_groups=plan.groups.windowed,
        window_blocks=plan.window_blocks,
        admit_full_output=engine.admit_full_output,
    )


def refuse_too_long(plan: MemoryPlan, requests: Requests) -> None:
    """Refuse a workload with a request longer than the model, the setting or the cache allows."""
    longest, allowed = requests.max_total_tokens, plan.max_context_tokens
    if longest <= allowed:
        return
    totals = requests.prompt_tokens + requests.output_tokens
    row = int((totals > allowed).argmax())
    given = f"request {row} of {int(totals[row])} tokens"
    because = f"{plan.deployment} takes {allowed} at most; {int((totals > allowed).sum())} of {len(totals)} are longer"
    raise WorkloadError(given, because, "Leave such requests out, or choose a model or a device with room")
