"""TensorRT-LLM's PyTorch engine: kernels of norms, and what starts beside others, as read in its source."""

import pytest

from simulator.deployment.deployment import deploy
from simulator.deployment.host_launches import launches_s
from simulator.deployment.layouts import default_layout
from simulator.models.model import load_model
from simulator.models.operations import Counts
from simulator.roofline.roofline import Rates

ENGINES = ("tensorrt-llm-1.0", "tensorrt-llm-1.2", "tensorrt-pytorch-1")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("model", "norms"),
    [("llama-3.1-8b", 0), ("qwen3-8b", 36), ("deepseek-v3", 61)],  # queries and keys, or latent vectors, at once
)
def test_norms_of_heads_are_one_kernel_of_a_layer(engine: str, model: str, norms: int):
    layout = default_layout(load_model(model), tp=8)
    found = deploy(model, "b200-sxm", engine, layout)
    without = found.kernels.model_copy(update={"rules": found.kernels.rules.model_copy(update={"norm_kernels": None})})
    one = Counts(1.0, 1.0, 1.0)
    more, less = (
        sum(float(Rates(found.hardware, kernels).cost(op, one).seconds) for op in found.ops)
        for kernels in (found.kernels, without)
    )
    start_s = float(found.hardware.achievable.elementwise_launch_s or 0.0) * float(found.kernels.fitted.launch)
    assert more - less == pytest.approx(norms * start_s, abs=1e-9)


@pytest.mark.parametrize(("engine", "calls"), [("tensorrt-llm-1.2", 36), ("sglang-0.5", 72)])
def test_the_host_launches_them_by_one_call(engine: str, calls: int):
    found = deploy("qwen3-8b", "h100-sxm", engine)
    without = found.kernels.model_copy(update={"rules": found.kernels.rules.model_copy(update={"norm_kernels": None})})
    more, less = (launches_s(each, found.hardware, found.model, found.ops) for each in (found.kernels, without))
    each_s = float(found.kernels.fitted.prompt_launch_s or 0.0)
    assert more.prompts.least_s - less.prompts.least_s == pytest.approx(calls * each_s)


@pytest.mark.parametrize("engine", ENGINES)
def test_shared_experts_and_the_projection_of_keys_start_with_others(engine: str):
    layout = default_layout(load_model("deepseek-v3"), tp=8)
    found = deploy("deepseek-v3", "b200-sxm", engine, layout)
    beside = [op for op in found.ops if op.at_once]
    assert {op.at_once for op in beside} == {"shared", "latent"}
    assert all(found.kernels.start_s(found.hardware, "fp8", op) == 0.0 for op in beside)
