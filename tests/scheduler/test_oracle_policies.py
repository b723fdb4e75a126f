"""The compiled scheduler against the oracle, one test per rule of docs/serving-rules.md: to the last bit."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.oracle.engine import OracleJob, OracleLimits
from tests.support.oracle_cases import (
    BATCHES,
    ESTIMATES,
    GROUPS,
    IGNORED_EOS,
    MIXING,
    WINDOWED,
    cases,
    compare,
    too_long,
)

HOST_BLOCKS = st.sampled_from([0, 4])  # prefix blocks of the host's tier
CHANCES = [(0.0, 0.0), (1.0, 1.0, 1.0), (0.7, 0.5, 0.9), (0.6,)]
EVERYTHING = {
    "policy": MIXING,
    "by_priority": st.booleans(),
    "long_prefill_tokens": st.sampled_from([0, 0, 3, 10]),
    "chunked_prefill": st.booleans(),
    "admit_full_output": st.booleans(),
    "least_free_blocks": st.sampled_from([0, 0, 5]),
    "watermark_blocks": st.sampled_from([0, 0, 3]),
    "least_waiting": st.sampled_from([0, 0, 3]),
    "prompt_interval": st.sampled_from([0, 0, 3]),
    "estimate": st.one_of(st.none(), ESTIMATES),
    "acceptance": st.sampled_from([(), *CHANCES]),
    "expected_acceptance": st.booleans(),
    "host_prefix_blocks": st.sampled_from([0, 2, 9]),
    "groups": GROUPS,
    "async_scheduling": st.booleans(),
    "scheduler_recv_interval": st.sampled_from([1, 1, 4]),
}
WHOLE = {
    "policy": "prompts-first",
    "chunked_prefill": False,
    "least_free_blocks": st.sampled_from([0, 0, 5]),
    "watermark_blocks": st.sampled_from([0, 0, 3]),
    "least_waiting": st.sampled_from([0, 0, 3]),
}
RULES = {
    "Q: priorities": cases(policy=MIXING, by_priority=True),
    "L: long prompts": cases(policy=MIXING, long_prefill_tokens=st.integers(1, 12)),
    "W: whole prompts": cases(policy=MIXING, chunked_prefill=False),
    "F: prompts first": cases(policy="prompts-first"),
    "O: full output": cases(policy=MIXING, admit_full_output=True),
    "M: margin": cases(policy=MIXING, least_free_blocks=st.integers(1, 20)),
    "M: watermark": cases(policy=MIXING, watermark_blocks=st.integers(1, 20)),
    "M: waiting": cases(policy=MIXING, least_waiting=st.integers(1, 6), least_free_blocks=st.sampled_from([0, 0, 5])),
    "B: balanced prompts": cases(policy=MIXING, prompt_interval=st.integers(1, 8)),
    "J: outputs expected": cases(policy=MIXING, estimate=ESTIMATES),
    "J: prefix cache": cases(policy=MIXING, estimate=ESTIMATES, blocks_per_prefix=3, by_priority=st.booleans()),
    "J: ignored EOS": cases(policy=MIXING, estimate=IGNORED_EOS),
    "J: ignored EOS, lag": cases(policy="prompts-first", estimate=IGNORED_EOS, async_scheduling=True),
    "J: lag": cases(policy="prompts-first", estimate=ESTIMATES, async_scheduling=True, groups=GROUPS),
    "D: dynamic batches": cases(policy="static", by_priority=st.booleans(), **BATCHES),
    "U: uncached": cases(policy="uncached", by_priority=st.booleans()),
    "G: prefilled": cases(policy=MIXING, prefilled=True),
    "P: prefix cache": cases(policy=MIXING, blocks_per_prefix=3),
    "P9: host": cases(policy=MIXING, blocks_per_prefix=3, host_prefix_blocks=st.integers(1, 9)),
    "P10: prefilled": cases(policy=MIXING, blocks_per_prefix=3, host_prefix_blocks=HOST_BLOCKS, prefilled=True),
    "P11: warm": cases(policy=MIXING, blocks_per_prefix=3, host_prefix_blocks=HOST_BLOCKS, warm=True),
    "S: speculation": cases(policy=MIXING, acceptance=st.sampled_from(CHANCES), expected_acceptance=st.booleans()),
    "Y: yoked decodes": cases(policy="prompts-first", chunked_prefill=False, num_scheduler_steps=st.integers(2, 9)),
    "Y: everything": cases(
        blocks_per_prefix=3, groups=GROUPS, by_priority=st.booleans(), num_scheduler_steps=st.integers(2, 9), **WHOLE
    ),
    "K: groups and windows": cases(policy=MIXING, groups=WINDOWED),
    "K: static": cases(policy="static", groups=WINDOWED, **BATCHES),
    "K: uncached": cases(policy="uncached", groups=WINDOWED),
    "K: drafts": cases(policy=MIXING, groups=WINDOWED, acceptance=st.sampled_from(CHANCES)),
    "K: prefix cache": cases(policy=MIXING, groups=GROUPS, blocks_per_prefix=3, host_prefix_blocks=HOST_BLOCKS),
    "H: one-step lag": cases(policy=MIXING, async_scheduling=True, by_priority=st.booleans()),
    "H2: receiving": cases(policy=MIXING, scheduler_recv_interval=st.integers(2, 9), async_scheduling=st.booleans()),
    "Z: rejected": too_long(policy=MIXING, blocks_per_prefix=3, warm=True, acceptance=st.sampled_from([(), *CHANCES])),
    "Z: windows": too_long(policy=MIXING, groups=GROUPS, prefilled=True),
    "Z: whole prompts": too_long(policy=MIXING, chunked_prefill=False, admit_full_output=True),
    "Z: no steps of prompts": too_long(policy=st.sampled_from(["static", "uncached"]), groups=GROUPS, **BATCHES),
    "everything": cases(blocks_per_prefix=3, prefilled=True, warm=True, **EVERYTHING),
}


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_equals_the_oracle(rule, data):
    compare(*data.draw(RULES[rule]))


def test_a_prompt_that_is_put_back_in_its_own_step_gives_that_steps_blocks_back():
    """Each computes a block in a step; in the fourth there is one for two, and the last two tokens are urgent."""
    limits = OracleLimits(4, 8, 7, 4, full_prompt_must_fit=False, by_priority=True, long_prefill_tokens=4)
    found = compare([OracleJob(0.0, 24, 1, priority=2), OracleJob(0.001, 10, 1, priority=0)], limits)
    assert found.requests[0].preemptions > 0 == found.requests[1].preemptions


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_equals_the_oracle_again_and_again(rule, data):
    compare(*data.draw(RULES[rule]))
