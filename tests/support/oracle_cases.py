"""Random workloads under random rules, drawn by hypothesis, and one run of each under the oracle and under ours.

Each example is run twice: by `simulate`, for times, blocks and hits, and step by step, for what each step is made of.
"""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from simulator.calibration.step_log import parts_of
from simulator.errors import WorkloadError
from simulator.models import operations
from simulator.roofline.graphs import HostLaunch
from simulator.roofline.step_model import StepTable
from simulator.scheduler.state import POLICIES, SchedulerLimits
from simulator.simulation.engine_loop import Run, begin, end, opening, simulate
from simulator.simulation.fleet_run import FleetRun
from simulator.simulation.step_seconds import step_seconds
from simulator.workloads.shared_prefixes import Prefixes
from simulator.workloads.workload import Requests
from tests.oracle.engine import (
    OracleBatch,
    OracleEngine,
    OracleEstimate,
    OracleJob,
    OracleLimits,
    OracleRequest,
    OracleResult,
    OracleStep,
    run_oracle,
)

# Multiples of a power of two: every sum is exact, so the order of adding cannot blur a comparison to the bit.
UNIT_S = 2.0**-20
TABLE = StepTable(
    token_s=(1000 + 11 * np.arange(4096)) * UNIT_S,
    logit_s=(100 + 2 * np.arange(129)) * UNIT_S,
    slopes=np.array([3, 19, 7, 5, 23]) * UNIT_S,
    draft_s=13 * np.arange(65) * UNIT_S,
    loaded_s=17 * UNIT_S,
    least_s=1500 * UNIT_S,
    prompts=HostLaunch(least_s=1900 * UNIT_S, piecewise_s=1700 * UNIT_S, gaps_s=29 * UNIT_S),
    host_s=np.array([37, 41, 2, 43]) * UNIT_S,
    decode_launch_s=np.repeat([0, 1600, 0, 1800], [4, 3, 3, 7]) * UNIT_S,
    decode_graph_s=np.repeat([0, 31, 57, 0], [4, 3, 3, 7]) * UNIT_S,
    graph_tokens=12,
)
BLOCK_SIZES = st.sampled_from([1, 2, 3, 16])


def seconds(batch: OracleBatch) -> float:
    """The table's formula (S6): the drafts of a decode are tokens and logits; it reads what it sees once."""
    if batch.at_once > 1 and all(batch.decodes):
        return _seconds_at_once(batch)
    decodes = [part for part, decode in zip(batch, batch.decodes, strict=True) if decode]
    prompts = [part for part, decode in zip(batch, batch.decodes, strict=True) if not decode]
    logits = sum(new for new, _ in decodes) + len(prompts)
    drafting = len(decodes) if any(new > 1 for new, _ in decodes) else 0
    windowed_s = 0.0
    if batch.window:  # K
        seen = [_seen(batch, past) + new - 1 for new, past in decodes]
        pairs = [_seen(batch, position) for new, past in prompts for position in range(past, past + new)]
        windowed_s = TABLE.slopes[1] * sum(seen) + TABLE.slopes[4] * sum(pairs)
    worked_s = float(
        TABLE.token_s[sum(new for new, _ in batch)]
        + TABLE.logit_s[logits]
        + TABLE.draft_s[drafting]
        + TABLE.slopes[0] * sum(new + past for new, past in decodes)
        + TABLE.slopes[2] * sum(new for new, _ in prompts)
        + TABLE.slopes[3] * sum(operations.pairs(new, past) for new, past in prompts)
        + TABLE.loaded_s * batch.loaded_tokens
        + windowed_s
    )
    return _launched(batch, worked_s, sum(new for new, _ in batch), logits if prompts else 0)


def _seen(batch: OracleBatch, position: int) -> int:
    """K: to how many tokens the query at a position (from 0) attends in a local layer."""
    start = position // batch.window * batch.window if batch.chunked else max(0, position + 1 - batch.window)
    return position + 1 - start


def _launched(batch: OracleBatch, worked_s: float, tokens: int, logits: int = 0, passes: int = 1) -> float:
    """N: no less than what launches it takes: one graph, piecewise graphs, or the host, kernel by kernel.

    `logits`: of a step with prompts, which the host reads.
    """
    place = min(tokens, len(TABLE.decode_launch_s) - 1)
    graph_s, batch.launch_s = float(TABLE.decode_graph_s[place]), float(TABLE.decode_launch_s[place]) * passes
    if logits:
        piecewise = tokens <= TABLE.graph_tokens
        graph_s = TABLE.prompts.gaps_s if piecewise else 0.0
        launch_s = TABLE.prompts.piecewise_s if piecewise else TABLE.prompts.least_s
        batch.launch_s = launch_s + TABLE.host_s[3] * logits
    return max(worked_s + graph_s * passes, TABLE.least_s * passes, batch.launch_s - batch.ahead_s)


def _seconds_at_once(batch: OracleBatch) -> float:
    """Y: decode steps one after the other, whose host time comes once; windows overlap as drafts' do (S6)."""
    count, worked_s = len(batch), 0.0
    for step in range(batch.at_once):
        reads = sum(past + 1 + step for _, past in batch)
        seen = sum(_seen(batch, past) + step for _, past in batch) if batch.window else 0
        worked_s += TABLE.token_s[count] + TABLE.logit_s[count] + TABLE.slopes[0] * reads + TABLE.slopes[1] * seen
        if step:
            reads = sum(past + 1 for _, past in batch) + count * (batch.at_once - 1) / 2
            worked_s -= TABLE.host_s[0] + TABLE.host_s[1] * count + TABLE.host_s[2] * reads
    return _launched(batch, float(worked_s), count, passes=batch.at_once)


def requests_of(jobs: list[OracleJob], concurrency: int, warm: tuple[int, ...] = ()) -> Requests:
    arrival_s, prompts, outputs, priority, ids, prefilled = zip(*jobs, strict=True)
    prefixes = Prefixes.of([list(each) for each in ids]) if any(ids) else Prefixes.of([])
    places = [list(itertools.chain(*ids)).index(block) for block in warm]
    return Requests(
        np.array(arrival_s),
        np.array(prompts),
        np.array(outputs),
        concurrency,
        priority=np.array(priority),
        prefilled=np.array(prefilled),
        prefixes=replace(prefixes, warm=np.array(places, np.int64)),
    )


def estimate_of(rules: OracleLimits) -> dict[str, Any]:
    names = ("estimated_tokens", "first_ratio", "least_ratio", "ratio_decay", "spare_tokens", "ignores_eos")
    return dict(zip(names, rules.estimate, strict=True)) if rules.estimate else {}


def limits_of(rules: OracleLimits) -> SchedulerLimits:
    return SchedulerLimits(
        policy=POLICIES[rules.policy],
        max_num_seqs=rules.max_num_seqs,
        max_num_batched_tokens=rules.max_num_batched_tokens,
        num_blocks=rules.num_blocks,
        block_size=rules.block_size,
        admit_full_prompt=rules.full_prompt_must_fit,
        admit_full_output=rules.admit_full_output,
        least_free_blocks=rules.least_free_blocks,
        watermark_blocks=rules.watermark_blocks,
        **estimate_of(rules),
        least_waiting=rules.least_waiting,
        prompt_interval=rules.prompt_interval,
        long_prefill_tokens=rules.long_prefill_tokens,
        chunked_prefill=rules.chunked_prefill,
        by_priority=rules.by_priority,
        batch_size=rules.batch_size,
        batch_wait_s=rules.batch_wait_s,
        prefix_block_tokens=rules.prefix_block_tokens,
        host_prefix_blocks=rules.host_prefix_blocks,
        draft_tokens=rules.draft_tokens,
        expected_acceptance=rules.expected_acceptance,
        num_scheduler_steps=rules.num_scheduler_steps,
        async_scheduling=rules.async_scheduling,
        launches_ahead=rules.launches_ahead,
        prompts_wait=rules.prompts_wait,
        scheduler_recv_interval=rules.scheduler_recv_interval,
        turnaround_s=rules.turnaround_s,
        stream_s=rules.stream_s,
        first_call_s=rules.first_call_s,
        window=rules.window,
        chunked=rules.chunked,
        full_groups=rules.full_groups,
        window_groups=rules.window_groups,
        window_blocks=-(-rules.window // rules.block_size) + 1 if rules.window else 0,
        max_model_len=rules.max_model_len or 0,
    )


def compare(jobs: list[OracleJob], rules: OracleLimits) -> OracleResult:
    """Run the same under both, and refuse any difference."""
    if rules.concurrency:
        jobs = [job._replace(arrival_s=0.0) for job in jobs]
    oracle = run_oracle(jobs, rules, seconds)
    requests = requests_of(jobs, rules.concurrency, rules.warm)
    if len(oracle.rejected) == len(jobs):
        with pytest.raises(WorkloadError, match="rejected"):
            simulate(limits_of(rules), TABLE, requests)
        return oracle
    run = simulate(limits_of(rules), TABLE, requests, acceptance=rules.acceptance)
    assert run.rejected.rows.tolist() == oracle.rejected
    assert sum(run.rejected.reasons.values()) == len(oracle.rejected)
    compare_steps(rules, requests.only(run.rejected.accepted(len(jobs))), oracle)
    compare_counts(run, oracle.steps)
    assert run.steps.start_s.tolist() == [step.start_s for step in oracle.steps]
    assert (run.steps.start_s + run.steps.seconds).tolist() == [step.end_s for step in oracle.steps]
    compare_requests(run, [each for each in oracle.requests if each.index not in oracle.rejected])
    return oracle


def compare_counts(run: Run | FleetRun, steps: list[OracleStep]) -> None:
    """Sequences, blocks and tokens of each step, column by column."""
    ours = run.steps
    assert ours.decodes.tolist() == [sum(step.decodes) for step in steps]
    assert (ours.decodes + ours.prompts).tolist() == [len(step.scheduled) for step in steps]
    assert ours.prompt_tokens.tolist() == [
        sum(new for (_, new, _), decode in zip(step.scheduled, step.decodes, strict=True) if not decode)
        for step in steps
    ]
    assert ours.blocks.tolist() == [step.blocks_held for step in steps]
    assert ours.loaded_tokens.tolist() == [step.loaded_tokens for step in steps]
    assert ours.cached_tokens.tolist() == [step.cached_tokens for step in steps]


def compare_steps(rules: OracleLimits, requests: Requests, oracle: OracleResult) -> None:
    """Which requests each step computes, and how many tokens of each behind how many."""
    state, clock = opening(limits_of(rules), requests, rules.acceptance), np.zeros(2)
    number = {each.index: each.number for each in oracle.requests}
    for step in oracle.steps:
        assert begin(state, clock) > 0
        assert clock[0] == step.start_s
        assert sorted(parts_of(state)) == sorted((number[index], *parts) for index, *parts in step.scheduled)
        end(state, clock, step_seconds(state, TABLE)[0])
    assert begin(state, clock) == 0


def compare_requests(run: Run | FleetRun, requests: list[OracleRequest]) -> None:
    assert run.requests.arrival_s.tolist() == [each.arrival_s for each in requests]
    assert run.scheduled_s.tolist() == [each.scheduled_s for each in requests]
    assert run.first_token_s.tolist() == [each.first_token_s for each in requests]
    assert run.finished_s.tolist() == [each.finished_s for each in requests]
    assert run.preemptions.tolist() == [each.preemptions for each in requests]
    assert run.hit_tokens.tolist() == [each.hit_tokens or 0 for each in requests]


@st.composite
def workloads(draw: st.DrawFn, prefix_block_tokens: int = 0, prefilled: bool = False) -> list[OracleJob]:
    """Requests close together; with prefix blocks, prompts that share branches of a tree."""
    jobs = []
    branches: dict[tuple[int, ...], int] = {}
    for _ in range(draw(st.integers(1, 16))):
        at_s, prompt, output = draw(st.tuples(st.floats(0, 0.15), st.integers(1, 40), st.integers(1, 20)))
        ids: tuple[int, ...] = ()
        if prefix_block_tokens:
            path = draw(st.lists(st.sampled_from([0, 0, 0, 1]), max_size=2 + (prompt + output) // prefix_block_tokens))
            leading = [tuple(path[: depth + 1]) for depth in range(len(path))]
            ids = tuple(branches.setdefault(branch, len(branches)) for branch in leading)
        comes = prefilled and draw(st.booleans())
        jobs.append(OracleJob(at_s, prompt, output + comes, draw(st.integers(0, 2)), ids, comes))
    return sorted(jobs)


@st.composite
def cases(
    draw: st.DrawFn, blocks_per_prefix: int = 0, prefilled: bool = False, warm: bool = False, **fixed: Any
) -> tuple[list[OracleJob], OracleLimits]:
    """Limits in which each request fits alone, tight enough to preempt; `fixed` may hold strategies."""
    rules = {name: draw(value) if isinstance(value, st.SearchStrategy) else value for name, value in fixed.items()}
    block_size = draw(BLOCK_SIZES)
    if blocks_per_prefix:
        rules["prefix_block_tokens"] = block_size * draw(st.integers(1, blocks_per_prefix))
    groups = rules.pop("groups", (0, 1, 0, False))
    rules["window"], rules["full_groups"], rules["window_groups"], rules["chunked"] = groups
    drafts = len(rules.get("acceptance", ())) or rules.get("num_scheduler_steps", 1) - 1
    rules["draft_tokens"] = drafts
    jobs = draw(workloads(rules.get("prefix_block_tokens", 0), prefilled))
    known = sorted({block for job in jobs for block in job.ids})
    if warm and known:
        rules["warm"] = tuple(draw(st.lists(st.sampled_from(known), max_size=12)))
    seqs = draw(st.integers(1, 6))
    longest = max(job.prompt_tokens + job.output_tokens - 1 for job in jobs)
    budget = (1 + drafts) * (draw(st.integers(1, seqs)) if drafts else seqs) + draw(st.integers(0, 40))
    limits = OracleLimits(
        max_num_seqs=seqs,
        max_num_batched_tokens=budget if rules.get("chunked_prefill", True) else max(budget, longest),
        num_blocks=0,
        block_size=block_size,
        full_prompt_must_fit=draw(st.booleans()),
        concurrency=draw(st.sampled_from([0, 0, 1, 3])),
        turnaround_s=draw(st.sampled_from([0.0, 0.003, 0.03])),
        stream_s=draw(st.sampled_from([0.0, 0.0, 0.0002, 0.002])),
        first_call_s=draw(st.sampled_from([0.0, 0.0, 0.05])),
        launches_ahead=rules.get("async_scheduling", False) and draw(st.booleans()),
        prompts_wait=draw(st.booleans()),
        **rules,
    )
    alone = OracleEngine(limits).blocks_for(longest + drafts)
    spare = draw(st.integers(0, 30)) * (limits.full_groups + limits.window_groups)
    return jobs, replace(limits, num_blocks=alone + spare)


@st.composite
def too_long(draw: st.DrawFn, **fixed: Any) -> tuple[list[OracleJob], OracleLimits]:
    """Cases some of whose requests are more than the context, the cache or a step holds: rule Z."""
    jobs, limits = draw(cases(**fixed))
    least = min(limits.max_num_batched_tokens, (1 + limits.draft_tokens) * limits.max_num_seqs)
    smaller = {
        "max_model_len": draw(st.sampled_from([None, 10, 30, 60])),
        "num_blocks": max(1, draw(st.integers(limits.num_blocks // 3, limits.num_blocks))),
        "max_num_batched_tokens": max(least, limits.max_num_batched_tokens - draw(st.integers(0, 30))),
    }
    return jobs, replace(limits, **smaller)


MIXING = st.sampled_from(["continuous", "prompts-first"])
WINDOWS = st.sampled_from([1, 2, 5, 16, 33])
GROUPS = st.one_of(
    st.tuples(st.just(0), st.integers(1, 3), st.just(0), st.just(False)),  # no window
    st.tuples(WINDOWS, st.integers(1, 2), st.integers(0, 3), st.booleans()),
)
WINDOWED = st.one_of(GROUPS, st.tuples(WINDOWS, st.just(0), st.integers(1, 2), st.booleans()))  # in every layer, too
RATIOS = st.tuples(st.floats(0.3, 1.0), st.floats(0.0, 1.0), st.integers(1, 40))
ESTIMATES = st.builds(
    lambda tokens, ratios, spare, ignores_eos: OracleEstimate(
        tokens, ratios[0], ratios[0] * ratios[1], ratios[0] * (1.0 - ratios[1]) / ratios[2], spare, ignores_eos
    ),
    st.integers(5, 25),
    RATIOS,
    st.integers(0, 20),
    st.booleans(),
)
IGNORED_EOS = ESTIMATES.map(lambda each: each._replace(ignores_eos=True))
BATCHES = {"batch_size": st.integers(1, 8), "batch_wait_s": st.floats(0, 0.05)}
