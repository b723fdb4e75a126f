"""TensorRT-LLM's PyTorch engine: kernels of norms, and what starts beside others, as read in its source."""

from dataclasses import replace

import pytest

from simulator.deployment.deployment import deploy
from simulator.deployment.host_launches import launches_s
from simulator.deployment.layouts import default_layout
from simulator.deployment.settings import Settings
from simulator.models.model import load_model
from simulator.models.operations import Counts
from simulator.roofline.graphs import NO_LAUNCHES
from simulator.roofline.roofline import Rates

ENGINES = ("tensorrt-llm-1.0", "tensorrt-llm-1.2", "tensorrt-pytorch-1")
IN_ONE_KERNEL = (*ENGINES, "vllm-0.8", "vllm-0.33")  # vLLM's by Inductor: pull request 26682


@pytest.mark.parametrize("engine", IN_ONE_KERNEL)
@pytest.mark.parametrize(
    ("model", "norms"),
    [("llama-3.1-8b", 0), ("qwen3-8b", 36), ("deepseek-v3", 61)],  # queries and keys, or latent vectors, at once
)
def test_norms_of_heads_are_one_kernel_of_a_layer(engine: str, model: str, norms: int):
    layout = default_layout(load_model(model), tp=8)
    found = deploy(model, "b200-sxm", engine, layout)
    without = found.kernels.with_rules(norm_kernels=None)
    one = Counts(1.0, 1.0, 1.0)
    more, less = (
        sum(float(Rates(kernels).time(op, one).seconds) for op in found.ops) for kernels in (found.kernels, without)
    )
    start_s = float(found.hardware.achievable.elementwise_launch_s or 0.0) * float(found.kernels.fitted.launch)
    assert more - less == pytest.approx(norms * start_s, abs=1e-9)


@pytest.mark.parametrize(("engine", "calls"), [("tensorrt-llm-1.2", 36), ("vllm-0.33", 36), ("sglang-0.5", 72)])
def test_the_host_launches_them_by_one_call(engine: str, calls: int):
    found = deploy("qwen3-8b", "h100-sxm", engine)
    without = found.kernels.with_rules(norm_kernels=None)
    more, less = (launches_s(each, found.model, found.ops) for each in (found.kernels, without))
    each_s = float(found.kernels.fitted.prompt_launch_s or 0.0)
    assert more.prompts.least_s - less.prompts.least_s == pytest.approx(calls * each_s)


@pytest.mark.parametrize("engine", ENGINES)
def test_shared_experts_and_the_projection_of_keys_start_with_others(engine: str):
    layout = default_layout(load_model("deepseek-v3"), tp=8)
    found = deploy("deepseek-v3", "b200-sxm", engine, layout)
    beside = [op for op in found.ops if op.at_once]
    assert {op.at_once for op in beside} == {"shared", "latent"}
    assert all(found.kernels.start_s("fp8", op) == 0.0 for op in beside)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_host_reads_tokens_while_the_device_computes_the_next_step(engine: str):
    """A step takes the longer of the two: on Grace the host's time for 2,048 sequences of a small model."""
    found = deploy("llama-3.2-1b", "gb200", engine)
    decodes = Counts(1.0, 2048.0, 2048.0)
    each_s = float(found.engine.overheads.sequence_s)
    read_s = 2048 * each_s * float(found.hardware.host_slowness or 0.0)
    launch_s = found.step_model().launches.decodes.least_s if found.graphs.batch_sizes else 0.0  # no graph has so many
    device = replace(found.step_model(), launches=NO_LAUNCHES)
    assert found.step_model().seconds(decodes) == pytest.approx(launch_s + read_s)
    assert device.seconds(decodes) < read_s
    alone = deploy("llama-3.2-1b", "gb200", engine, settings=Settings(changes=("async_scheduling=false",)))
    assert alone.step_model().overheads.sequence_s == each_s
    assert alone.step_model().launches.sequence_s == 0.0


def test_it_launches_prompts_and_reads_tokens_one_after_the_other():
    found = deploy("llama-3.2-1b", "gb200", "tensorrt-llm-1.2")
    step, launches = found.step_model(), found.step_model().launches
    mixed = Counts(1.0, 1127.0, 1028.0, prefill_tokens=100.0)
    assert step.seconds(mixed) == pytest.approx(launches.prompts.least_s + 1028 * launches.sequence_s)
    assert step.table(2048, 2048).host_s[3] == launches.sequence_s > 0


def test_tritons_experts_on_hopper_are_whole_blocks_of_128_columns():
    found = deploy("gpt-oss-120b", "h200-sxm", "tensorrt-llm-1.2", default_layout(load_model("gpt-oss-120b"), tp=8))
    op = next(op for op in found.ops if op.experts is not None and op.expert_bytes)
    padded = found.kernels.padded(op)
    assert padded.expert_bytes / op.expert_bytes == pytest.approx(2944 / 2880 * 384 / 360)


def test_the_host_takes_longer_for_experts_in_triton_and_for_no_others():
    for device, more_s in (("h200-sxm", 500e-6), ("b200-sxm", 0.0)):
        found = deploy("gpt-oss-20b", device, "tensorrt-llm-1.2")
        bare = tuple(each.model_copy(update={"host_s": None}) for each in found.kernels.rules.expert_kernels)
        without = found.kernels.with_rules(expert_kernels=bare)
        more, less = (launches_s(each, found.model, found.ops) for each in (found.kernels, without))
        assert more.prompts.least_s - less.prompts.least_s == pytest.approx(24 * more_s, abs=1e-9)
