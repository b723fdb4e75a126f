"""Rule J of docs/serving-rules.md (admission by an estimate of how long outputs will become), computed by hand.

Blocks hold one token each, so that free blocks are free tokens.
"""

from dataclasses import replace

import numpy as np
import pytest

from simulator.deployment.deployment import deploy
from simulator.deployment.settings import Settings
from simulator.engines.engine import load_engine
from simulator.scheduler import state
from simulator.scheduler.state import SchedulerLimits
from simulator.simulation import scheduler_limits
from simulator.simulation.engine_loop import begin, end, opening, simulate
from simulator.simulation.step_seconds import step_seconds
from simulator.workloads.workload import Requests
from tests.support.hand_made import TABLE

LATER_S = 1e-9  # within the first step


def limits(**changes: float) -> SchedulerLimits:
    """Prompts first, 100 blocks; the ratio is 1 and stays so."""
    values = {
        "policy": state.PROMPTS_FIRST,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 32,
        "num_blocks": 100,
        "block_size": 1,
        "admit_full_prompt": False,
        "estimated_tokens": 4096,
        "first_ratio": 1.0,
        "least_ratio": 1.0,
    }
    return SchedulerLimits(**(values | changes))


def requests(*rows: tuple[float, int, int]) -> Requests:
    arrival_s, prompts, outputs = zip(*rows, strict=True)
    return Requests(np.array(arrival_s), np.array(prompts), np.array(outputs))


@pytest.mark.parametrize(("ratio", "step"), [(1.0, 40), (0.999, 1)])
def test_a_prompt_waits_for_room_for_what_it_and_the_running_sequence_may_produce(ratio, step):
    """Of 90 free blocks 80 are left beside its prompt, and all are kept: 39 of the other and 1 + 40 of its own."""
    load = requests((0.0, 10, 40), (LATER_S, 10, 40))
    run = simulate(limits(first_ratio=ratio, least_ratio=ratio), TABLE, load)
    assert run.scheduled_s.tolist() == run.steps.start_s[[0, step]].tolist()


@pytest.mark.parametrize(("output", "step"), [(39, 1), (40, 40)])
def test_of_an_output_only_what_is_not_produced_yet_needs_room(output, step):
    """The second brings 10 tokens and has one more: 90 less 11 are free, for 39 of the first and 1 + 38 of its own."""
    load = replace(requests((0.0, 10, 40), (LATER_S, 10, output)), prefilled=np.array([False, True]))
    run = simulate(limits(), TABLE, load)
    assert run.scheduled_s.tolist() == run.steps.start_s[[0, step]].tolist()


def test_a_full_engine_looks_again_only_when_a_request_ends():
    """At the second step the ratio is 0 and there is room, but the first request ends in step 39."""
    load = requests((0.0, 10, 40), (LATER_S, 10, 40))
    run = simulate(limits(least_ratio=0.0, ratio_decay=1.0), TABLE, load)
    assert run.scheduled_s.tolist() == run.steps.start_s[[0, 40]].tolist()


def test_an_engine_on_which_nothing_decodes_yet_looks_again_at_the_next_step():
    """In step 0: 80 free for 1 + 40 of each prompt, one too few; in step 1 the first is expected to produce 39."""
    run = simulate(limits(first_ratio=0.9, least_ratio=0.9), TABLE, requests((0.0, 10, 40), (0.0, 10, 40)))
    assert run.scheduled_s.tolist() == run.steps.start_s[[0, 1]].tolist()


@pytest.mark.parametrize(("tokens", "step"), [(40, 40), (39, 1)])
def test_no_request_is_expected_to_produce_more_than_so_many_tokens(tokens, step):
    run = simulate(limits(estimated_tokens=tokens), TABLE, requests((0.0, 10, 40), (LATER_S, 10, 40)))
    assert run.scheduled_s.tolist() == run.steps.start_s[[0, step]].tolist()


@pytest.mark.parametrize(("output", "step"), [(9, 1), (10, 2)])
def test_prompts_of_one_step_keep_all_of_their_outputs_free(output, step):
    """60 blocks less 24 and 4 leave 32, less 1 + 20 of the prompt that ends in step 1, less 1 + 10."""
    allowed = limits(max_num_batched_tokens=16, num_blocks=60, first_ratio=0.1, least_ratio=0.1)
    run = simulate(allowed, TABLE, requests((0.0, 24, 20), (0.0, 4, output)))
    assert run.scheduled_s.tolist() == run.steps.start_s[[0, step]].tolist()


@pytest.mark.parametrize(("blocks", "step"), [(101, 1), (100, 40)])
@pytest.mark.parametrize("output", [40, 90])
def test_ignored_ends_admit_what_fits_until_each_has_ended(blocks, step, output):
    """Two take 40 tokens each until the first ends, which leaves its 50 to the second: 51 more of that."""
    allowed = limits(num_blocks=blocks, ignores_eos=True, estimated_tokens=40)
    load = requests((0.0, 10, 40), (LATER_S, 10, output))
    run = simulate(allowed, TABLE, load)
    assert run.scheduled_s.tolist() == run.steps.start_s[[0, step]].tolist()


@pytest.mark.parametrize(("blocks", "step"), [(90, 1), (89, 6)])
def test_ignored_ends_need_room_for_what_others_are_expected_to_produce_too(blocks, step):
    """5 and 60 tokens to come, beside 25 that are held; that one more needs but two is of no account."""
    load = requests((0.0, 10, 6), (0.0, 10, 61), (LATER_S, 5, 1))
    run = simulate(limits(num_blocks=blocks, ignores_eos=True), TABLE, load)
    assert run.scheduled_s.tolist() == run.steps.start_s[[0, 0, step]].tolist()


def test_a_lone_request_is_admitted_however_little_it_leaves():
    run = simulate(limits(num_blocks=19), TABLE, requests((0.0, 10, 10)))
    assert run.scheduled_s.tolist() == [0.0]


def ratios(allowed: SchedulerLimits, load: Requests) -> list[float]:
    """The ratio after each step was scheduled, and after the last one ended."""
    each, clock, found = opening(allowed, load), np.zeros(2), []
    while begin(each, clock) > 0:
        found.append(each.book[0].ratio)
        end(each, clock, step_seconds(each, TABLE)[0])
    return [*found, each.book[0].ratio]


def test_steps_of_decodes_lower_the_ratio_and_an_idle_engine_begins_anew():
    allowed = limits(first_ratio=0.75, least_ratio=0.25, ratio_decay=0.25)
    assert ratios(allowed, requests((0.0, 4, 5), (1.0, 4, 2))) == [0.75, 0.5, 0.25, 0.25, 0.25, 0.75, 0.5, 0.75]


def test_a_step_with_prompts_beside_decodes_leaves_the_ratio():
    """Of five steps the second computes the second prompt, too."""
    allowed = limits(policy=state.CONTINUOUS, first_ratio=0.75, least_ratio=0.25, ratio_decay=0.25)
    assert ratios(allowed, requests((0.0, 4, 5), (LATER_S, 4, 2))) == [0.75, 0.75, 0.5, 0.25, 0.25, 0.75]


@pytest.mark.parametrize(("spare", "ratio"), [(3, 0.6), (30, 1.0)])
def test_a_preemption_sets_the_ratio_from_what_is_left(spare, ratio):
    """Five decodes of two fill 20 blocks; the first has then produced 6 of 14: (6 + 3) / (14 + 1), at most 1."""
    allowed = limits(num_blocks=20, estimated_tokens=1, first_ratio=0.5, least_ratio=0.5, spare_tokens=spare)
    found = ratios(allowed, requests((0.0, 5, 14), (0.0, 5, 14)))
    assert found[:7] == [0.5] * 6 + [ratio]


@pytest.mark.parametrize("cached", [True, False])
def test_sglang_looks_for_ignored_ends_without_a_prefix_cache_alone(cached):
    chosen = Settings(changes=("ignore_eos=true", f"disable_radix_cache={not cached}"))
    found = scheduler_limits.limits(deploy("llama-3.1-8b", "h100-sxm", "sglang", settings=chosen))
    assert found.ignores_eos is not cached
    plain = Settings(changes=(f"disable_radix_cache={not cached}",))
    assert not scheduler_limits.limits(deploy("llama-3.1-8b", "h100-sxm", "sglang", settings=plain)).ignores_eos


def test_the_presets_of_sglang_have_the_rule_and_others_have_not():
    rule = scheduler_limits.limits(deploy("llama-3.1-8b", "h100-sxm", "sglang"))
    assert (rule.estimated_tokens, rule.first_ratio, rule.least_ratio, rule.spare_tokens) == (4096, 0.7, 0.098, 20)
    assert rule.ratio_decay * 600 == pytest.approx(0.602)
    assert load_engine("vllm").output_estimate is None
