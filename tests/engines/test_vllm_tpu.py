"""vLLM on TPUs: its share of the memory and tokens of a step, as its source and its logs have them."""

import pytest

from simulator.deployment.memory import memory_plan
from simulator.engines.engine import load_engine
from simulator.hardware.hardware import load_hardware
from simulator.questions.deployment_question import DeploymentQuestion


@pytest.mark.parametrize(("device", "share", "gib"), [("tpu-v5e", "0.92", 14.49), ("tpu-v6e", "0.92", 28.74)])
def test_a_cache_is_what_weights_leave_of_the_share(device, share, gib):
    """total_hbm_limit_cap_gb less total_hbm_used_gb, of weights alone, as logs of tpu_worker.py print them."""
    asked = DeploymentQuestion(model="qwen3-4b", hardware=device, gpu_memory_utilization=share)
    plan = memory_plan(asked.deployment())
    assert (plan.cache_bytes + plan.weight_bytes) / 2**30 == pytest.approx(gib, abs=0.02)


@pytest.mark.parametrize(
    ("device", "tokens"), [("tpu-v5e", 512), ("tpu-v6e", 1024), ("tpu-v5p", 256), ("tpu-v4", 2048), ("tpu7x", 2048)]
)
def test_tokens_of_a_step_go_by_the_chip(device, tokens):
    assert load_engine("vllm-tpu").default("max_num_batched_tokens", load_hardware(device)) == tokens
