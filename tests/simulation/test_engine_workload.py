"""What an engine is sent: equal requests of a closed loop drift apart, repeated prompts share blocks; no more."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.cost.scenario import Scenario
from simulator.deployment.deployment import Deployment, deploy
from simulator.deployment.setting_names import configure
from simulator.engines.engine import load_engine
from simulator.simulation.engine_loop import simulate
from simulator.simulation.engine_workload import BLOCKS_PER_PROMPT, engine_workload
from simulator.simulation.scheduler_limits import limits
from simulator.workloads.arrivals import ClosedLoop, OpenLoop
from simulator.workloads.lengths import Fixed, Independent, LogNormal, Uniform
from simulator.workloads.workload import RepeatedPrompts, SharedPrefix, Workload

EQUAL = Independent(Fixed(1024), Fixed(128))
LOOP = Workload(ClosedLoop(8), EQUAL, 400)
VLLM = deploy("llama-3.1-8b", "h100-sxm", "vllm")
REPEATED = replace(LOOP, repeated=RepeatedPrompts(100))


def with_settings(*given: str, deployment: Deployment = VLLM) -> Deployment:
    return replace(deployment, engine=configure(deployment.engine, deployment.settings, given).engine)


# ------------------------------------------------------------------------------------------------------------- drift


@pytest.mark.parametrize("tokens", [2, 5, 128, 1024])
@pytest.mark.parametrize("drift", [0, 3, 8, 200])
def test_equal_outputs_differ_by_the_drift_each_way_and_keep_their_mean(tokens, drift):
    """No output is shorter than one token, and the spread is even: shorter ones drift by less."""
    asked = replace(LOOP, lengths=Independent(Fixed(1024), Fixed(tokens)), request_count=20_000)
    drawn = engine_workload(asked, with_settings(f"drift_tokens={drift}")).requests()
    most = min(drift, tokens - 1)
    assert (drawn.output_tokens.min(), drawn.output_tokens.max()) == (tokens - most, tokens + most)
    assert drawn.output_tokens.mean() == pytest.approx(tokens, abs=4 * (most + 1) / np.sqrt(20_000))
    assert (drawn.prompt_tokens == 1024).all()


@pytest.mark.parametrize(
    ("asked", "deployment"),
    [
        (replace(LOOP, arrivals=OpenLoop(2.0)), VLLM),
        (replace(LOOP, arrivals=ClosedLoop(400)), VLLM),  # all at once: one wave, which nothing spreads
        (replace(LOOP, arrivals=ClosedLoop(500)), VLLM),
        (replace(LOOP, lengths=Independent(Fixed(1024), Uniform(100, 156))), VLLM),
        (replace(LOOP, lengths=Independent(LogNormal(1024, 0.5), Fixed(128))), VLLM),
        (LOOP, with_settings("drift_tokens=0")),
        (LOOP, deploy("llama-3.1-8b", "h100-sxm", "sglang")),  # prompts first: its waves stay together
        (LOOP, deploy("llama-3.1-8b", "h100-sxm", "vllm-0.5")),
    ],
)
def test_nothing_else_is_changed(asked, deployment):
    assert np.array_equal(engine_workload(asked, deployment).requests().output_tokens, asked.requests().output_tokens)
    found = engine_workload(asked, deployment)
    assert (found.arrivals, found.request_count, found.seed) == (asked.arrivals, asked.request_count, asked.seed)
    assert not len(found.prefixes)


def test_engines_drift_where_a_front_end_answers_one_request_after_the_other():
    """A policy of continuous batches with a drift of its own; a user can set it."""
    names = ("vllm", "vllm-0.8", "vllm-0.5", "sglang", "tensorrt-llm", "lmdeploy", "llama.cpp", "transformers")
    found = {
        name: engine_workload(LOOP, replace(VLLM, engine=load_engine(name))).requests().output_tokens for name in names
    }
    assert {name for name, tokens in found.items() if tokens.std()} == {"vllm", "vllm-0.8"}
    tensorrt = deploy("llama-3.1-8b", "h100-sxm", "tensorrt-llm")
    assert engine_workload(LOOP, with_settings("drift_tokens=4", deployment=tensorrt)).lengths.output == Uniform(
        124, 132
    )


@given(st.integers(0, 50), st.integers(1, 5))
def test_a_user_gets_it_in_simulate_too_and_each_seed_is_another_draw(seed, more):
    one, two, same = (engine_workload(replace(LOOP, seed=each), VLLM).requests() for each in (seed, seed + more, seed))
    assert np.array_equal(one.output_tokens, same.output_tokens)
    assert not np.array_equal(one.output_tokens, two.output_tokens)


def test_a_wave_that_drifts_apart_waits_less_for_its_prompts():
    """Lockstep lets all prompts of a wave wait for one another; apart, each meets few others."""
    together, apart = (
        Scenario(each, replace(LOOP, arrivals=ClosedLoop(32))).simulated().metrics["ttft"]["median"]
        for each in (with_settings("drift_tokens=0"), with_settings("drift_tokens=8"))
    )
    assert apart < 0.6 * together


# -------------------------------------------------------------------------------------------------- repeated prompts


def prompts(found: Workload) -> np.ndarray:
    return found.prefixes.first // found.prefixes.count.max(initial=1)


def test_repeated_prompts_share_blocks_that_lie_before_their_last_token():
    found = engine_workload(REPEATED, VLLM)
    asked, _ = REPEATED.repeated.asked(400, seed=0)
    assert np.array_equal(prompts(found), asked)
    blocks, tokens = found.prefixes.count, found.prefixes.prefix_block_tokens
    assert set(blocks) == {blocks[0]}
    assert BLOCKS_PER_PROMPT <= blocks[0] <= 2 * BLOCKS_PER_PROMPT
    assert tokens % int(VLLM.engine.block_size) == 0
    assert 1024 - int(VLLM.engine.block_size) - tokens < blocks[0] * tokens < 1024
    assert not len(found.prefixes.warm)


def test_prompts_that_warm_an_engine_up_lie_in_its_cache_the_last_used_last():
    found = engine_workload(replace(LOOP, repeated=RepeatedPrompts(100, "random", 64)), VLLM)
    _, warming = RepeatedPrompts(100, "random", 64).asked(400, seed=0)
    blocks = found.prefixes.count[0]
    warm = found.prefixes.warm.reshape(-1, blocks)
    assert (np.diff(warm) == -1).all()  # a prompt's end is evicted first
    in_cache = list(warm[:, -1] // blocks)
    assert sorted(in_cache) == sorted(set(warming))
    assert in_cache[-1] == warming[-1]
    last_use = [len(warming) - 1 - list(warming[::-1]).index(each) for each in in_cache]
    assert last_use == sorted(last_use)


def test_each_draw_repeats_its_prompts_in_an_order_of_its_own():
    one, two = (prompts(engine_workload(replace(REPEATED, seed=each), VLLM)) for each in (0, 1))
    assert not np.array_equal(one, two)
    assert np.array_equal(np.sort(one), np.sort(two))


@pytest.mark.parametrize(
    "deployment",
    [
        with_settings("prefix_caching=false"),
        deploy("llama-3.1-8b", "h100-sxm", "lmdeploy"),
        deploy("qwen3.5-27b", "h100-sxm", "vllm"),  # its layers with states keep no blocks of a prompt
    ],
)
def test_nothing_is_shared_without_a_cache_that_finds_prompts_again(deployment):
    assert not len(engine_workload(REPEATED, deployment).prefixes)


def test_repeated_prompts_are_found_in_the_cache_and_computed_once():
    """400 requests of 8 prompts: 8 whole prompts are computed, of the others what lies after the last shared block."""
    found = engine_workload(replace(LOOP, repeated=RepeatedPrompts(8)), VLLM)
    requests = found.requests()
    run = simulate(limits(VLLM, requests), VLLM.step_table(), requests)
    shared = found.prefixes.count[0] * found.prefixes.prefix_block_tokens
    assert (run.hit_tokens == 0).sum() == 8
    assert set(run.hit_tokens[run.hit_tokens > 0]) == {shared}


# ---------------------------------------------------------------------------------------------------- shared prefixes

SHARED = replace(LOOP, lengths=Independent(LogNormal(500, 0.5), Fixed(32)), shared=SharedPrefix(2048))


def hit_share(workload: Workload, deployment: Deployment) -> float:
    run = Scenario(deployment, workload).report(workload).run
    return float(run.hit_tokens.sum() / run.requests.prompt_tokens.sum())


@pytest.mark.parametrize("count", [1, 4])
def test_each_shared_prefix_is_computed_about_once(count: int) -> None:
    """All but the first requests of each prefix find it: those in flight with the first are computed too."""
    workload = replace(SHARED, shared=SharedPrefix(2048, count))
    prompts = workload.requests().prompt_tokens
    assert (prompts > 2048).all()
    most = 2048 * (len(prompts) - count) / prompts.sum()
    assert 0.97 * most < hit_share(workload, VLLM) <= most


@pytest.mark.parametrize("given", ["prefix_caching=off"])
def test_without_a_prefix_cache_it_is_only_a_longer_prompt(given: str) -> None:
    assert hit_share(SHARED, with_settings(given)) == 0.0
    longer = replace(SHARED, shared=None).requests().prompt_tokens + 2048
    assert np.array_equal(engine_workload(SHARED, with_settings(given)).requests().prompt_tokens, longer)


def test_a_prefix_shorter_than_a_block_is_not_cached() -> None:
    assert hit_share(replace(SHARED, shared=SharedPrefix(15)), VLLM) == 0.0
