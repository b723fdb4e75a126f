"""What the scheduler of a deployment may do."""

from math import ceil

from simulator.deployment.batches import attended
from simulator.deployment.deployment import Deployment
from simulator.deployment.given_settings import as_given
from simulator.deployment.memory import MemoryPlan, memory_plan
from simulator.deployment.memory_advice import refuse_misfit
from simulator.errors import NotModelledError
from simulator.scheduler.state import (
    CONTINUOUS,
    MAX_DRAFT_TOKENS,
    POLICIES,
    PROMPTS_FIRST,
    STATIC,
    UNCACHED,
    SchedulerLimits,
)
from simulator.workloads.workload import Requests


def limits(deployment: Deployment, requests: Requests | None = None, *, assume_fits: bool = False) -> SchedulerLimits:
    """Return what the scheduler may do with a workload; the prefix blocks are the workload's.

    `assume_fits`: requests may be longer than the model's context. Raises DoesNotFitError where not even one short
    sequence fits, NotModelledError for an engine that schedules in a way that no policy here follows.
    """
    engine, plan, span = deployment.engine, memory_plan(deployment), attended(deployment)
    policy, prefix_block_tokens = POLICIES[engine.policy], _prefix_block_tokens(plan, requests)
    _refuse(deployment, plan)
    allowed = SchedulerLimits(
        policy=policy,
        max_num_seqs=plan.max_num_seqs,
        max_num_batched_tokens=deployment.max_num_batched_tokens,
        num_blocks=plan.num_blocks,
        block_size=plan.block_size,
        admit_full_prompt=engine.admit_full_prompt,
        async_scheduling=deployment.async_scheduling and policy in (CONTINUOUS, PROMPTS_FIRST),
        launches_ahead=deployment.async_scheduling and engine.launches_ahead and deployment.layout.pp == 1,
        prompts_wait=deployment.kernels.reads_lengths(deployment.ops),
        scheduler_recv_interval=engine.scheduler_recv_interval,
        window=span.tokens if span else 0,
        chunked=span.chunked if span else False,
        full_groups=plan.groups.full,
        window_groups=plan.groups.limited,
        window_blocks=plan.window_blocks,
        admit_full_output=engine.admit_full_output,
        least_waiting=engine.least_waiting,
        prompt_interval=engine.prompt_interval,
        least_free_blocks=ceil(engine.least_free_share * plan.num_blocks),
        watermark_blocks=0 if policy in (STATIC, UNCACHED) else int(engine.watermark * plan.num_blocks),
        long_prefill_tokens=engine.long_prefill_tokens,
        chunked_prefill=engine.chunked_prefill,
        by_priority=engine.by_priority,
        batch_size=int(engine.batch_size),
        batch_wait_s=float(engine.batch_wait_s),
        prefix_block_tokens=prefix_block_tokens,
        host_prefix_blocks=plan.host_prefix_blocks(prefix_block_tokens) if prefix_block_tokens else 0,
        draft_tokens=deployment.draft_tokens or engine.num_scheduler_steps - 1,
        expected_acceptance=deployment.expected_acceptance,
        stream_s=deployment.stream_s,
        turnaround_s=float(deployment.request_s(requests.prompt_tokens.mean() if requests else 0.0)),
        max_model_len=0 if assume_fits else _longest(plan),
        first_call_s=deployment.first_call_s,
        num_scheduler_steps=engine.num_scheduler_steps,
    )
    return _with_estimate(allowed, deployment)


def _longest(plan: MemoryPlan) -> int:
    """Return the most tokens of a request: of the context, or that a data-parallel rank's share of the cache holds."""
    return plan.max_context_tokens if plan.deployment.layout.dp > 1 else plan.max_model_len


def _with_estimate(allowed: SchedulerLimits, deployment: Deployment) -> SchedulerLimits:
    """Return limits with those of rule J, where the engine has it; without a prefix cache also those of J 5."""
    rule = deployment.engine.output_estimate
    if rule is None:
        return allowed
    factor = float(rule.ranks_factor) if deployment.layout.dp > 1 else 1.0
    first, least = factor * rule.first_ratio, factor * rule.least_ratio
    return allowed._replace(
        estimated_tokens=int(rule.tokens),
        first_ratio=first,
        least_ratio=least,
        ratio_decay=(first - least) / rule.decay_steps,
        spare_tokens=int(rule.spare_tokens),
        ignores_eos=deployment.settings.ignore_eos and not deployment.engine.prefix_caching,
    )


def stages(deployment: Deployment, allowed: SchedulerLimits) -> int:
    """Return how many batches a replica works on at once: one per stage, at most one per reserved context."""
    pp = deployment.layout.pp
    return min(pp, allowed.num_blocks) if deployment.engine.is_reserved else pp


def slowest_stage(deployment: Deployment, batches: int) -> float:
    """Return the layers of the pipeline stage that has most over the mean of all; 1 without stages.

    Layers that do not divide go to some of the stages, one to each (vLLM: get_pp_indices of distributed/utils.py, to
    those before the last, which has the output head; 46 over 4: 11, 12, 12 and 11). Rule V.
    """
    layers = len(deployment.model.layer_names)
    return -(-layers // batches) * batches / layers


def of_stage(allowed: SchedulerLimits, batches: int) -> SchedulerLimits:
    """Return the limits of each engine of a pipeline: its share of the KV-cache blocks and sequences. Rule V."""
    if batches == 1:
        return allowed
    blocks = ("num_blocks", "watermark_blocks", "least_free_blocks")
    shares = {name: getattr(allowed, name) // batches for name in blocks}
    return allowed._replace(max_num_seqs=max(1, allowed.max_num_seqs // batches), **shares)


OF_OTHER_POLICIES = (  # settings of engines that compute parts of prompts, or wait for room
    "long_prefill_tokens",
    "admit_full_output",
    "output_estimate",
    "least_free_share",
    "watermark",
    "least_waiting",
    "prompt_interval",
)


def _refuse(deployment: Deployment, plan: MemoryPlan) -> None:
    engine = deployment.engine
    others = {name: getattr(engine, name) for name in OF_OTHER_POLICIES}
    others["scheduler_recv_interval"] = engine.scheduler_recv_interval > 1 and engine.scheduler_recv_interval
    written = {name: as_given(name, value, deployment) for name, value in others.items() if value}
    typed = next((each for each in written.values() if each.startswith("--set ")), "")
    if POLICIES[engine.policy] in (STATIC, UNCACHED) and (typed or {*written} - {"watermark"}):
        because = "its batches compute whole prompts and reserve their output, under no limits of other policies"
        remedy = "Leave it out" if typed else "Leave the policy alone"
        raise NotModelledError(f"{typed or f'policy {engine.policy}'} with {engine.id}", because, remedy)
    if deployment.draft_tokens > MAX_DRAFT_TOKENS:
        because = f"{MAX_DRAFT_TOKENS} per step is the most that is simulated"
        raise NotModelledError(f"{deployment.draft_tokens} draft tokens", because, "Give fewer")
    refuse_misfit(plan)


def _prefix_block_tokens(plan: MemoryPlan, requests: Requests | None) -> int:
    """Return the tokens of a prefix block, 0 without one."""
    engine = plan.deployment.engine
    if requests is None or not len(requests.prefixes) or not engine.prefix_caching:
        return 0
    if POLICIES[engine.policy] in (STATIC, UNCACHED):
        return 0
    states = plan.deployment.model.recurrent_layers
    if states or not plan.groups.full:
        given = f"{plan.deployment.model.id} with prefix caching"
        lost = "recurrent states at the end" if states else "windowed blocks"
        raise NotModelledError(given, f"its {lost} of a prefix are not modelled", "Switch prefix_caching off")
    prefix_block_tokens = requests.prefixes.prefix_block_tokens or plan.block_size
    if prefix_block_tokens % plan.block_size:
        given = f"prefix blocks of {prefix_block_tokens} tokens"
        because = f"{engine.id} has blocks of {plan.block_size}, which do not divide them"
        raise NotModelledError(given, because, "Switch prefix_caching off, or choose another block size")
    return prefix_block_tokens
