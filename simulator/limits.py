"""What the scheduler of a deployment may do, and which workloads it can take."""

from simulator.deployment import Deployment
from simulator.errors import DoesNotFitError, NotModelledError, WorkloadError
from simulator.memory import MemoryPlan, memory_plan, refuse_misfit
from simulator.state import CONTINUOUS, MAX_DRAFT_TOKENS, POLICIES, STATIC, UNCACHED, Limits
from simulator.workload import Requests


def limits(deployment: Deployment, requests: Requests | None = None) -> Limits:
    """Return what the scheduler may do with a workload; the units of a prefix cache are the workload's.

    Raises DoesNotFitError where a request, or not even one short sequence, fits alone; NotModelledError for an engine
    that schedules in a way that no policy here follows.
    """
    engine, plan = deployment.engine, memory_plan(deployment)
    policy, unit_tokens = POLICIES[engine.policy], _unit_tokens(plan, requests)
    _refuse_rules(deployment)
    refuse_misfit(plan)
    if requests is not None:
        _refuse_larger_than_cache(plan, requests.max_total_tokens)
    return Limits(
        policy=policy,
        max_num_seqs=plan.max_num_seqs,
        max_num_batched_tokens=deployment.max_num_batched_tokens,
        num_blocks=plan.num_blocks,
        block_size=plan.block_size,
        admit_full_prompt=engine.admit_full_prompt,
        async_scheduling=engine.async_scheduling and policy == CONTINUOUS,
        window=deployment.model.window or 0,
        full_groups=plan.groups.full,
        window_groups=plan.groups.windowed,
        window_blocks=plan.window_blocks,
        admit_full_output=engine.admit_full_output,
        long_prefill_tokens=engine.long_prefill_tokens,
        chunked_prefill=engine.chunked_prefill,
        by_priority=engine.by_priority,
        batch_size=int(engine.batch_size),
        batch_wait_s=float(engine.batch_wait_s),
        prefix_unit_tokens=unit_tokens,
        host_units=plan.host_units(unit_tokens) if unit_tokens else 0,
        draft_tokens=deployment.draft_tokens,
        expected_acceptance=deployment.expected_acceptance,
        graph_tokens=engine.graph_tokens,
        turnaround_s=float(engine.overheads.request_s),
    )


def stages(deployment: Deployment, allowed: Limits) -> int:
    """Return how many batches a copy works on at once: one per stage, but no more than there are reserved contexts."""
    pp = deployment.layout.pp
    return min(pp, allowed.num_blocks) if deployment.engine.is_reserved else pp


def _refuse_rules(deployment: Deployment) -> None:
    engine = deployment.engine
    if POLICIES[engine.policy] in (STATIC, UNCACHED) and (engine.long_prefill_tokens or engine.admit_full_output):
        because = f"{engine.policy} batches compute whole prompts and reserve their output"
        raise NotModelledError(f"{engine.id} with limits of other policies", because, "Leave these settings alone")
    if deployment.draft_tokens > MAX_DRAFT_TOKENS:
        because = f"{MAX_DRAFT_TOKENS} per step is the most that is simulated"
        raise NotModelledError(f"{deployment.draft_tokens} draft tokens", because, "Give fewer")


def _refuse_larger_than_cache(plan: MemoryPlan, tokens: int) -> None:
    """Refuse a request that would wait for ever: alone it needs more blocks than there are."""
    if plan.blocks(tokens) > plan.num_blocks:
        because = f"the cache of {plan.deployment} has room for {plan.cache_tokens:,}"
        raise DoesNotFitError(f"a request of {tokens:,} tokens", because, "Shorten it, or choose a device with room")


def _unit_tokens(plan: MemoryPlan, requests: Requests | None) -> int:
    """Return the tokens of a unit of the prefix cache, 0 without one."""
    engine = plan.deployment.engine
    if requests is None or not len(requests.prefixes) or not engine.prefix_caching:
        return 0
    if POLICIES[engine.policy] in (STATIC, UNCACHED):
        return 0
    if plan.state_bytes or not plan.groups.full:
        given = f"{plan.deployment.model.id} with prefix caching"
        lost = "recurrent states at the end" if plan.state_bytes else "windowed blocks"
        raise NotModelledError(given, f"its {lost} of a prefix are not modelled", "Switch prefix_caching off")
    unit_tokens = requests.prefixes.unit_tokens or plan.block_size
    if unit_tokens % plan.block_size:
        given = f"prefixes in units of {unit_tokens} tokens"
        because = f"{engine.id} has blocks of {plan.block_size}, which do not divide them"
        raise NotModelledError(given, because, "Switch prefix_caching off, or choose another block size")
    return unit_tokens


def refuse_too_long(plan: MemoryPlan, requests: Requests) -> None:
    """Refuse a workload with a request longer than the model, the setting, the cache or one step allows."""
    deployment, allowed, drafts = plan.deployment, plan.max_context_tokens, plan.deployment.draft_tokens
    while drafts and allowed and plan.blocks(allowed + drafts) > plan.num_blocks:
        allowed -= 1
    totals = requests.prompt_tokens + requests.output_tokens
    if not deployment.engine.chunked_prefill:  # what was evicted is computed anew, in one step
        outputs = 0 if deployment.engine.admit_full_output else requests.output_tokens - 1
        fits = (requests.prompt_tokens + outputs <= deployment.max_num_batched_tokens).all()
        allowed = allowed if fits else min(allowed, deployment.max_num_batched_tokens)
    if requests.max_total_tokens <= allowed:
        return
    row = int((totals > allowed).argmax())
    given = f"request {row} of {int(totals[row])} tokens"
    because = f"{deployment} takes {allowed} at most; {int((totals > allowed).sum())} of {len(totals)} are longer"
    raise WorkloadError(given, because, "Leave such requests out, or choose a model or a device with room")
