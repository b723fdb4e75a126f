"""What SGLang's presets say of its defaults, as srt/server_args.py of its releases has them."""

from dataclasses import replace

import pytest

from simulator.deployment.deployment import deploy
from simulator.deployment.host_launches import launches_s
from simulator.deployment.layouts import default_layout
from simulator.deployment.settings import Settings
from simulator.engines.engine import load_engine
from simulator.hardware.hardware import load_hardware
from simulator.models.blocks import NORMS
from simulator.models.layers import BESIDE_EXPERTS
from simulator.models.layout import Layout
from simulator.models.model import load_model
from simulator.models.op_builders import SCAN
from simulator.models.operations import Counts
from simulator.roofline.roofline import Rates
from simulator.simulation.scheduler_limits import limits

RELEASES = "sglang-0.5", "sglang-0.5.10"


@pytest.mark.parametrize(
    ("device", "tokens"),
    [
        ("rtx-4090", 2048),
        ("rtx-5090", 2048),
        ("l40s", 4096),
        ("h100-sxm", 8192),
        ("h200-sxm", 8192),
        ("b200-sxm", 16384),
        ("mi300x", 16384),
    ],
)
@pytest.mark.parametrize("engine", RELEASES)
def test_chunks_of_prompts_grow_with_the_memory(engine: str, device: str, tokens: int):
    hardware = load_hardware(device)
    assert load_engine(engine).default("max_num_batched_tokens", hardware) == tokens
    assert load_engine(engine).default("max_num_seqs", hardware) == 2048


@pytest.mark.parametrize(("device", "tokens"), [("rtx-4080", 2048), ("rtx-5090", 4096), ("l40s", 4096)])
def test_chunks_of_small_devices_are_longer_in_newer_releases(device: str, tokens: int):
    assert load_engine("sglang-0.5.15").default("max_num_batched_tokens", load_hardware(device)) == tokens


@pytest.mark.parametrize("engine", RELEASES)
def test_only_the_gemms_of_experts_start_as_fp8_kernels(engine: str):
    layout = default_layout(load_model("minimax-m2.5"), tp=2, dtypes=("fp8-block", ""))
    found = deploy("minimax-m2.5", "gb300", engine, layout)
    up = next(op for op in found.ops if op.name == "experts up")
    gemms = found.hardware.achievable.gemm
    starts = found.kernels.start_s("fp8", up) / float(found.kernels.fitted.launch)
    assert starts == pytest.approx(gemms["fp8"].launch_s + (up.launches - 1) * gemms["bf16"].launch_s)


@pytest.mark.parametrize("engine", RELEASES)
@pytest.mark.parametrize(("device", "launches"), [("mi300x", [3, 1]), ("mi355x", [3, 1]), ("h100-sxm", [5, 1])])
def test_experts_on_instinct_are_aiters(engine: str, device: str, launches: list[int]):
    """They sort once, activate in the first GEMM and sum in the second, in tiles of 32 rows or more."""
    found = deploy("ernie-4.5-21b-a3b", device, engine)
    gemms = [op for op in found.ops if op.name in ("experts up", "experts down")]
    assert [found.kernels.launches(op) for op in gemms] == launches
    by_aiter = launches == [3, 1]
    assert (found.kernels.k_loop_s(gemms[0]) == 0.0) == by_aiter
    assert (float(found.kernels.padding(gemms[0], 1.0)) == pytest.approx(32.0)) == by_aiter
    starts_s = sum(found.kernels.start_s("bf16", op) for op in gemms)
    aiter_s = (7.4 + 7 + 3 + 3) * 1e-6 * float(found.kernels.fitted.launch)
    assert (starts_s == pytest.approx(aiter_s)) == by_aiter


@pytest.mark.parametrize(
    ("model", "layers", "scan"),
    [("qwen3-next-80b-a3b", 36, 10), ("kimi-linear-48b-a3b", 20, 13), ("nemotron-3-nano-30b-a3b", 23, 6)],
)
def test_the_host_launches_each_kernel_of_a_scan(model: str, layers: int, scan: int):
    found = deploy(model, "h200-sxm", "sglang-0.5")
    every = [replace(op, prompt_launches=0) if op.name == SCAN else op for op in found.ops]
    host_s = [launches_s(found.kernels, found.model, ops).prompts.least_s for ops in (found.ops, every)]
    assert host_s[0] - host_s[1] == pytest.approx(layers * scan * 60e-6)


# Tokens, microseconds of 32 of DeepSeek-V3's 256 experts on a B200: flashinfer-ai/flashinfer pull request 5301 (nvfp4)
NVFP4 = [(1, 25.7), (16, 77.4), (64, 140.1), (256, 154.1), (512, 166.0), (4096, 312.0), (16384, 622.6)]


@pytest.mark.parametrize(("tokens", "us"), NVFP4)
def test_experts_in_nvfp4_are_tensorrt_llms_on_blackwell(tokens: int, us: float):
    layout = default_layout(load_model("deepseek-v3"), tp=8, ep=8, dtypes=("nvfp4", ""))
    found = deploy("deepseek-v3", "b200", "sglang", layout)
    counts = Counts(steps=1.0, tokens=float(tokens), logits=float(tokens))
    rates, seconds = Rates(found.kernels), 0.0
    for op in found.ops:
        if op.experts is not None and op.name.startswith("experts"):
            alike = replace(op, experts=op.experts._replace(uneven=False, ranks=1))
            seconds += float(rates.time(alike, counts).seconds) / op.repeats
    assert seconds * 1e6 == pytest.approx(us, rel=0.16)


@pytest.mark.parametrize(
    ("engine", "device", "tp", "factor"),
    [
        ("sglang-0.5", "b200-sxm", 8, 8.0),
        ("sglang-0.5", "h200-sxm", 8, 4.0),
        ("sglang-0.5", "h200-sxm", 1, 1.0),
        ("sglang-0.5.10", "b200-sxm", 8, 1.0),
        ("sglang-0.5.10", "h200-sxm", 8, 4.0),
        ("sglang-0.5", "mi355x", 8, 1.0),
    ],
)
def test_sparse_attention_of_prompts_computes_whole_tiles_of_heads(engine: str, device: str, tp: int, factor: float):
    """DeepSeek-V3.2 has 128 heads, of which a rank of eight has 16: its other ops and a dense model have no pad."""
    for model in ("deepseek-v3.2", "deepseek-v3"):
        found = deploy(model, device, engine, default_layout(load_model(model), tp=tp, dtypes=("fp8-block", "")))
        pads = {op.name: found.kernels.head_padding(op) for op in found.ops}
        assert pads.pop("prefill attention") == (factor if model == "deepseek-v3.2" else 1.0)
        assert set(pads.values()) == {1.0}


def test_attention_to_compressed_tokens_has_the_pad_of_sparse_attention():
    layout = default_layout(load_model("deepseek-v4-flash"), tp=4)
    found = deploy("deepseek-v4-flash", "h200-sxm", "sglang", layout)
    pads = [found.kernels.head_padding(op) for op in found.ops if op.name == "prefill attention"]
    assert pads == [64 / 16] * 4  # of every kind of layer


def test_a_pad_of_heads_takes_the_time_of_heads():
    layout = default_layout(load_model("deepseek-v3.2"), tp=8, dtypes=("fp8-block", ""))
    found = deploy("deepseek-v3.2", "b200-sxm", "sglang-0.5", layout)
    op = next(each for each in found.ops if each.name == "prefill attention")
    counts = Counts(steps=1.0, tokens=8192.0, prefill_tokens=8192.0, prefill_pairs_windowed=8192.0 * 1792)
    padded = Rates(found.kernels).time(op, counts)
    plain = Rates(found.kernels.with_rules(sparse_heads={})).time(op, counts)
    assert padded.compute_s == pytest.approx(8 * plain.compute_s)
    assert padded.flops == plain.flops


def norms_us(model: str, device: str, engine: str = "sglang-0.5") -> float:
    """Microseconds that norms add to a step of one token."""
    found = deploy(model, device, engine)
    one = Counts(1.0, 1.0, 1.0)
    all_s, without_s = (
        sum(float(Rates(kernels).time(op, one).seconds) for op in found.ops)
        for kernels in (found.kernels, found.kernels.with_rules(norm_kernels=None))
    )
    start_s = float(found.hardware.achievable.elementwise_launch_s or 0.0) * float(found.kernels.fitted.launch)
    assert (all_s - without_s) / start_s == pytest.approx(round((all_s - without_s) / start_s))
    return round((all_s - without_s) / start_s)


@pytest.mark.parametrize(
    ("model", "device", "kernels"),
    [
        ("llama-3.1-8b", "h100-sxm", 0),
        ("qwen3-8b", "h100-sxm", 36),  # queries and keys at once
        ("qwen3-8b", "mi300x", 72),
        ("glm-4.7-flash", "b200-sxm", 47),
        ("gemma-4-31b", "h200-sxm", 60 * (2 + 3)),
        ("gemma-4-31b", "mi300x", 60 * (2 + 27)),
        ("gemma-4-26b-a4b", "h200-sxm", 30 * (5 + 3 + 5)),
        ("gemma-4-26b-a4b", "mi300x", 30 * (5 + 27 + 14)),
    ],
)
def test_norms_beside_those_of_any_layer_are_kernels_of_their_own(model: str, device: str, kernels: int):
    assert norms_us(model, device) == kernels


@pytest.mark.parametrize(
    ("device", "engine", "kernels"),
    [
        ("h200-sxm", "sglang-0.5.10", 62 * (2 * 10 + 2 * 5)),
        ("h200-sxm", "sglang-0.5.15", 62 * (2 + 2 * 5)),
        ("mi300x", "sglang-0.5.15", 62 * (2 * 20 + 2 * 10)),
        ("h200-sxm", "vllm", 62),  # queries and keys at once (Inductor)
    ],
)
def test_norms_of_gemma_3_run_in_pytorch(device: str, engine: str, kernels: int):
    """Four of a layer and those of queries and keys; from 0.5.17 on the latter alone on CUDA."""
    assert norms_us("gemma-3-27b", device, engine) == kernels


def test_other_engines_fuse_norms_or_are_not_known_to_launch_them():
    assert norms_us("gemma-4-31b", "h200-sxm", "transformers") == 0


def test_the_host_launches_each_norm_of_a_prompt():
    """Gemma 4: queries, keys, values, and the outputs of both parts, whatever kernels a norm is."""
    for device in ("h200-sxm", "mi300x"):
        found = deploy("gemma-4-31b", device, "sglang-0.5")
        without = found.kernels.with_rules(norm_kernels=None)
        more, less = (launches_s(each, found.model, found.ops) for each in (found.kernels, without))
        assert more.prompts.least_s - less.prompts.least_s == pytest.approx(60 * 5 * 60e-6)
        assert more.prompts.piecewise_s == less.prompts.piecewise_s


@pytest.mark.parametrize("engine", ["sglang-0.5", "vllm-0.33"])
def test_states_are_updated_by_one_kernel(engine: str):
    """Triton's takes 5.92 us for one sequence with 32 heads of 128 x 128 on a B200: flashinfer pull request 2370."""
    found = deploy("qwen3-next-80b-a3b", "b200-sxm", engine)
    update = next(op for op in found.ops if op.name == "state update")
    launch = float(found.kernels.fitted.launch)
    taken_s = found.step_model().once(update, Counts(1.0, 1.0, 1.0)) - (launch - 1) * 5.3e-6
    assert taken_s == pytest.approx(5.92e-6, rel=0.08)
    assert deploy("qwen3-next-80b-a3b", "mi300x", engine).kernels.rules.state_start_s is None


def starts_s(model: str, device: str, names: tuple[str, ...], **layout: object) -> dict[str, float]:
    """Seconds before each of some ops of a step of one token computes anything, of one layer."""
    layout = default_layout(load_model(model), **layout) if layout else None
    found = deploy(model, device, "sglang-0.5", layout)
    costs = zip(found.ops, found.step_model().explain(Counts(1.0, 1.0, 1.0)), strict=False)
    return {op.name: float(cost.overhead_s) / op.repeats for op, cost in costs if op.name in names and op.repeats > 3}


def test_shared_experts_start_with_routed_ones_and_latents_of_queries_with_those_of_keys():
    """On CUDA; AMD runs shared experts behind the others. Gemma 4's dense block is none of them."""
    names = ("gate and up projection", "activation", "down projection", "query down", "kv down")
    cuda = starts_s("deepseek-v3", "h200-sxm", names, tp=8, dtypes=("fp8-block", ""))
    assert {name for name, start_s in cuda.items() if not start_s} == {*names} - {"query down"}
    amd = starts_s("deepseek-v3", "mi300x", names, tp=8, dtypes=("fp8-block", ""))
    assert all(amd.values())
    assert all(starts_s("gemma-4-26b-a4b", "h200-sxm", names[:3]).values())
    assert all(starts_s("deepseek-v2-lite", "h200-sxm", ("kv down",)).values())  # has no latent of queries


def test_the_host_launches_shared_experts_but_one_gemm_of_latents():
    layout = default_layout(load_model("deepseek-v3"), tp=8, dtypes=("fp8-block", ""))
    found = deploy("deepseek-v3", "h200-sxm", "sglang-0.5", layout)
    launched = {op.name: found.kernels.launches(op) for op in found.ops}
    assert (launched["kv down"], launched["query down"], launched["down projection"]) == (0, 1, 1)


@pytest.mark.parametrize(
    ("model", "engine", "given", "ahead"),
    [
        ("qwen3.5-9b", "sglang-0.5.10", (), False),
        ("nemotron-3-nano-30b-a3b", "sglang-0.5", (), False),
        ("qwen3.5-9b", "sglang-0.5.15", (), True),
        ("lfm2-8b-a1b", "sglang-0.5.15", (), False),
        ("qwen3.5-9b", "sglang-0.5.10", ("disable_radix_cache=true",), True),
        ("kimi-linear-48b-a3b", "sglang-0.5.10", (), True),  # has no radix cache there
        ("qwen3-32b", "sglang-0.5.10", (), True),
        ("qwen3.5-9b", "vllm-0.33", (), True),
    ],
)
def test_states_in_a_radix_cache_switch_the_overlap_schedule_off(model, engine, given, ahead):
    found = deploy(model, "h200-sxm", engine, settings=Settings(changes=given))
    forced = deploy(model, "h200-sxm", engine, settings=Settings(changes=(*given, "async_scheduling=false")))
    steps_s = [float(each.step_model().overheads.step_s) for each in (found, forced)]
    assert found.async_scheduling is ahead
    assert limits(found).async_scheduling == ahead
    later_s = float(load_engine(engine).overheads.serial_step_s)
    assert steps_s[1] - steps_s[0] == pytest.approx(later_s if ahead else 0.0)


@pytest.mark.parametrize(
    ("model", "device", "engine", "tp", "fused"),
    [
        ("gpt-oss-120b", "h100-sxm", "sglang-0.5.10", 4, True),
        ("gpt-oss-120b", "h100-sxm", "sglang-0.5.10", 1, False),
        ("qwen3-235b-a22b", "b200-sxm", "sglang-0.5.10", 8, True),
        ("qwen3-235b-a22b", "b200-sxm", "sglang-0.5", 8, False),
        ("qwen3-235b-a22b", "h20-141", "sglang-0.5.10", 8, False),
        ("qwen3-235b-a22b", "mi300x", "sglang-0.5.10", 8, False),
        ("llama-3.1-70b", "h100-sxm", "sglang-0.5.10", 4, False),
        ("qwen3-235b-a22b", "h20-141", "sglang-0.5.15", 8, True),
        ("nemotron-3-super-120b-a12b", "h200-sxm", "sglang-0.5.10", 4, False),
        ("nemotron-3-super-120b-a12b", "h200-sxm", "sglang-0.5.15", 4, True),
        ("llama-3.1-70b", "h100-sxm", "tensorrt-llm-1.2", 4, True),
    ],
)
def test_norms_of_some_models_are_part_of_their_all_reduces(model, device, engine, tp, fused):
    found = deploy(model, device, engine, default_layout(load_model(model), tp=tp))
    norms = [op.launches for op in found.step_model().ops if op.name == NORMS]
    assert any(norms) != fused


@pytest.mark.parametrize(
    ("model", "engine", "kernels"),
    [
        ("glm-4.7-flash", "sglang-0.5", 4),
        ("glm-4.7-flash", "sglang-0.5.15", 0),
        ("qwen3-30b-a3b", "sglang-0.5", 0),
    ],
)
def test_routers_of_glm_choose_in_several_kernels(model: str, engine: str, kernels: int):
    found = deploy(model, "b200", engine)
    assert {op.launches for op in found.step_model().ops if op.name == BESIDE_EXPERTS} == {kernels}


@pytest.mark.parametrize("engine", ["sglang-0.5", "sglang-0.5.10", "sglang-0.5.15"])
@pytest.mark.parametrize(("device", "kernels"), [("mi300x", 6), ("h200", 4), ("b200", 0)])
def test_routers_of_llama_4_choose_in_kernels_of_pytorch(engine: str, device: str, kernels: int):
    found = deploy("llama-4-scout", device, engine, default_layout(load_model("llama-4-scout"), tp=4))
    beside = {op.launches for op in found.step_model().ops if op.name == BESIDE_EXPERTS}
    assert beside == {kernels}


@pytest.mark.parametrize("device", ["h200-sxm", "mi300x"])
@pytest.mark.parametrize(
    ("engine", "weights", "gemms"),
    [
        ("sglang-0.5", "bf16", 6),
        ("sglang-0.5.10", "bf16", 2),
        ("sglang-0.5.10", "fp8", 6),
        ("sglang-0.5.15", "bf16", 2),
    ],
)
def test_projections_of_kimi_delta_attention_are_two_gemms_in_16_bits(device, engine, weights, gemms):
    """fused_qkvbfg_a_proj and fused_fg_b_proj of kimi_linear.py, where quant_config is None."""
    found = deploy("kimi-linear-48b-a3b", device, engine, Layout(weight_dtype=weights))
    names = ("qkv projection", "decay down", "decay up", "gate down", "gate up", "write strength")
    last = {op.name: found.kernels.launches(op) for op in found.ops if op.repeats == 19}
    assert sum(last[name] for name in names) == gemms


@pytest.mark.parametrize(
    ("model", "kernels"),
    [
        ("glm-4.7-flash", 47 * 3),
        ("kimi-linear-48b-a3b", 7 * 3 + 20 * 8),
        ("nemotron-3-nano-30b-a3b", 23 * 2),
        ("qwen3-32b", 0),
    ],
)
def test_the_host_launches_what_mixers_have_for_prompts_beside_their_ops(model: str, kernels: int):
    found = deploy(model, "b200", "sglang-0.5")
    without = found.kernels.with_rules(prompt_kernels={})
    more, less = (launches_s(each, found.model, found.ops) for each in (found.kernels, without))
    assert more.prompts.least_s - less.prompts.least_s == pytest.approx(kernels * 60e-6)
    assert (more.decodes, more.prompts.piecewise_s) == (less.decodes, less.prompts.piecewise_s)


@pytest.mark.parametrize("engine", ["sglang-0.5", "sglang-0.5.10", "sglang-0.5.15"])
@pytest.mark.parametrize("ahead", [True, False])
def test_tokens_of_a_step_are_taken_in_while_the_next_one_runs(engine: str, ahead: bool):
    """But where nothing overlaps, Python's 3 us a sequence add to the step."""
    found = deploy("llama-3.1-8b", "h100-sxm", engine)
    found = replace(found, engine=found.engine.model_copy(update={"async_scheduling": ahead}))
    model = found.step_model()
    few, many = (float(model.explain(Counts(steps=1.0, tokens=n, logits=n))[-1].seconds) for n in (1.0, 101.0))
    assert many - few == pytest.approx(0.0 if ahead else 300e-6, abs=1e-12)
    assert model.launches.sequence_s == (pytest.approx(3e-6) if ahead else 0.0)
