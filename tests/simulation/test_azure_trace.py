"""Ten minutes of the Azure conversation trace of 2023 on four devices: they run, and no request is lost."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from simulator.deployment.deployment import deploy
from simulator.deployment.settings import Settings
from simulator.scheduler.state import blocks
from simulator.simulation.engine_loop import Run, simulate
from simulator.simulation.rejection import Rejected, rejections
from simulator.simulation.scheduler_limits import limits
from simulator.workloads.traces import read_trace
from simulator.workloads.workload import Requests, Workload

DEVICES = ("l4", "l40s", "a100-sxm-80", "h100-sxm")  # from slow to fast
LONGEST_TOKENS = 14_089
SPAN_S = 599.8


@cache
def requests_of(traces: Path) -> Requests:
    return Workload.from_trace(read_trace(traces / "azure_llm_2023_conv.csv.gz")).requests()


@cache
def run_on(traces: Path, device: str) -> Run:
    deployment, requests = deploy("llama-3.1-8b", device), requests_of(traces)
    allowed = limits(deployment)
    return simulate(
        allowed, deployment.step_model().table(allowed.max_num_batched_tokens, allowed.max_num_seqs), requests
    )


def test_the_trace_is_whole(traces):
    requests = requests_of(traces)
    assert len(requests) == 3_196
    assert requests.max_total_tokens == LONGEST_TOKENS
    assert requests.arrival_s[-1] == pytest.approx(SPAN_S, abs=0.05)


@pytest.mark.parametrize("device", DEVICES)
def test_every_request_is_served(traces, device):
    """Even an L4 has room for the longest request (36,000 tokens and more), though it is overloaded five times."""
    run = run_on(traces, device)
    assert not len(run.rejected)
    times = [run.requests.arrival_s, run.scheduled_s, run.first_token_s, run.finished_s]
    assert np.isfinite(times).all()
    assert (np.diff(times, axis=0) >= 0).all()
    assert (run.steps.start_s[1:] >= (run.steps.start_s + run.steps.seconds)[:-1]).all()
    assert run.busy_s <= run.end_s * (1 + 1e-12)  # always busy: two ways of adding up
    assert run.steps.blocks.max() <= run.limits.num_blocks
    assert run.limits.num_blocks >= blocks(run.limits, LONGEST_TOKENS - 1)
    asked = int((run.requests.prompt_tokens + run.requests.output_tokens - 1).sum())
    computed = int(run.steps.prompt_tokens.sum(dtype=np.int64) + run.steps.decodes.sum(dtype=np.int64))
    assert computed >= asked
    assert (computed == asked) == (not run.preemptions.any())


def test_a_faster_device_answers_sooner(traces):
    medians = [np.median(run_on(traces, device).first_token_s - requests_of(traces).arrival_s) for device in DEVICES]
    assert medians == sorted(medians, reverse=True)
    ends_s = [run_on(traces, device).end_s for device in DEVICES]
    assert ends_s == sorted(ends_s, reverse=True)
    assert ends_s[0] > 2 * SPAN_S  # the L4 falls behind the trace by far
    assert max(ends_s[2:]) < SPAN_S + 60  # the two largest keep up


def test_a_request_longer_than_the_cache_is_rejected(traces):
    """880 blocks hold 14,080 tokens, eight too few for the longest request, whose last token is never cached."""
    requests = requests_of(traces)
    allowed = limits(deploy("llama-3.1-8b", "l4", settings=Settings(num_blocks=880)), requests)
    rejected = Rejected.of(rejections(allowed, requests), len(requests))
    assert rejected.rows.tolist() == [int((requests.prompt_tokens + requests.output_tokens).argmax())]
    assert rejected.in_words() == "more than the 14,081 tokens that the KV cache holds (880 blocks)"
