"""What a request takes outside the steps, part by part, and what the host takes to launch its prompt: by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.deployment.batches import Batch
from simulator.deployment.deployment import Deployment, deploy
from simulator.deployment.estimate import Estimate, estimate
from simulator.deployment.settings import Settings
from simulator.profile import Figure
from simulator.simulation.engine_loop import simulate
from simulator.simulation.scheduler_limits import limits
from simulator.workloads.workload import Requests


def deployment(model: str = "llama-3.1-8b", hardware: str = "h100-sxm") -> Deployment:
    return deploy(model, hardware, "vllm-0.33")


def seconds_of(found: Estimate) -> dict[str, float]:
    return {op.time.name: op.time.seconds for op in found.request.ops}


def test_a_lone_request_takes_the_sum_of_its_parts():
    """0.85 ms of HTTP, 128 tokens of 4 us, a hop of 0.4 ms, 5.3 ms of the engine's own, 53 us to send a token."""
    found = estimate(deployment(), Batch(1, 128, 1))
    named = ("HTTP", "tokenisation", "hop to the engine and back", "engine's own", "streaming")
    assert seconds_of(found) == pytest.approx(dict(zip(named, (850e-6, 512e-6, 400e-6, 5.3e-3, 53e-6), strict=True)))
    assert found.expected.ttft_s == pytest.approx(7.115e-3 + found.prefill_s)
    assert 10e-3 < found.expected.ttft_s < 18e-3  # published for prompts so short, at one in flight: 14 ms (p50)


def test_the_first_tokens_of_a_batch_are_sent_one_after_the_other():
    found = estimate(deployment(), Batch(64, 128, 2))
    assert seconds_of(found)["streaming"] == pytest.approx(64 * 53e-6)
    assert seconds_of(found)["HTTP"] == pytest.approx(850e-6)  # each on its own


def test_what_a_client_receives_at_once_is_streamed_at_once():
    """trtllm-serve streams in 56.9 us a message, one of ten tokens in as long as one of one."""
    one = deploy("llama-3.1-8b", "h100-sxm", "tensorrt-llm")
    tenth = deploy("llama-3.1-8b", "h100-sxm", "tensorrt-llm", settings=Settings(changes=("stream_interval=10",)))
    assert (one.stream_s, tenth.stream_s) == pytest.approx((56.9e-6, 5.69e-6))


def test_triton_takes_a_request_of_the_cpp_engine_in_by_http_and_two_python_models():
    """1.15 ms of HTTP, 202 tokens of 2.7 us, 2.3 ms of preprocessing and postprocessing, 255 us to decode a token."""
    found = estimate(deploy("llama-3.1-8b", "h100-sxm", "tensorrt-llm-0.14"), Batch(1, 202, 1))
    assert sum(seconds_of(found).values()) == pytest.approx(1.15e-3 + 202 * 2.7e-6 + 2.3e-3 + 255e-6)


def test_at_the_speed_of_light_nothing_is_outside_the_steps():
    found = estimate(deployment().at_light, Batch(4, 128, 2))
    assert found.request.ops == ()
    assert found.expected.ttft_s == pytest.approx(found.light.ttft_s)


@given(st.integers(1, 40), st.integers(2, 30), st.floats(0.0, 2e-3))
@settings(max_examples=25, deadline=None)
def test_clients_of_a_slow_front_end_see_what_the_event_loop_shows(size, output_tokens, stream_s):
    one = deployment()
    overheads = one.engine.overheads
    changed = overheads.model_copy(update={"stream_s": Figure(stream_s, overheads.stream_s.source)})
    slow = replace(one, engine=one.engine.model_copy(update={"overheads": changed}))
    found = estimate(slow, Batch(size, 100, output_tokens)).expected
    requests = Requests(np.zeros(size), np.full(size, 100), np.full(size, output_tokens))
    run = simulate(limits(slow), slow.step_model().table(slow.max_num_batched_tokens, slow.max_num_seqs), requests)
    tpot_s = (run.finished_s - run.first_token_s) / (output_tokens - 1)
    assert found.tpot_s == pytest.approx(tpot_s.mean(), rel=1e-9)
    assert found.tpot_s >= size * stream_s * (1 - 1e-9)


@pytest.mark.parametrize(("hardware", "slowness"), [("h100-sxm", 1.0), ("gh200-96", 2.46)])
def test_the_host_launches_prompts_kernel_by_kernel_and_works_on_each_layer_of_experts(hardware, slowness):
    """Qwen3-30B-A3B: 48 layers of 14 kernels (7 experts' and router, a norm of heads), two at the ends."""
    one = deployment("qwen3-30b-a3b", hardware)
    fitted, launches = one.kernels.fitted, 48 * 14 + 2
    kernel_s, layer_s = float(fitted.prompt_launch_s or 0.0), float(fitted.experts_launch_s or 0.0)
    assert min(kernel_s, layer_s) > 1e-5
    assert one.step_model().launches.prompts.least_s == pytest.approx(slowness * (launches * kernel_s + 48 * layer_s))
    dense = deployment("llama-3.1-8b", hardware).step_model()
    assert dense.launches.prompts.least_s == pytest.approx(slowness * (32 * 9 + 2) * kernel_s)
