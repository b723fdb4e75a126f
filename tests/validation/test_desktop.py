"""llama.cpp and MLX on one's own machine: layers split over cards, attention in memory, CPU threads, files."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.deployment.deployment import deploy
from simulator.deployment.pipeline_overlap import COPIES, kernels_per_layer, layers_of, overlapped_s
from simulator.deployment.setting_names import configure
from simulator.deployment.settings import Settings
from simulator.engines.engine import engine_of, load_engine
from simulator.errors import NotModelledError, ProfileError
from simulator.hardware.hardware import load_hardware
from simulator.models.layout import Layout
from simulator.models.model import load_model
from simulator.models.number_formats import number_format
from simulator.models.operations import Counts, Sequence, count
from simulator.models.routed_experts import Experts
from simulator.roofline.roofline import Rates
from simulator.validation.desktop import mlx_format, sized_format, stated_rules
from simulator.validation.measurements import measurement_of
from simulator.validation.setups import place
from tests.support.measured import answer


def setup(**cells):
    row = {"hardware": "RTX 4090", "model": "Llama-3-8B", "engine": "llama.cpp", "engine_version": "2024-05"}
    row |= {"weight_dtype": "Q4_K_M", "regime": "single", "metric": "tg_tok_s", "value": "1", **cells}
    return measurement_of(row, "row").setup


@given(
    st.lists(st.floats(0.1, 10), min_size=1, max_size=12), st.integers(8, 96), st.integers(1, 8), st.integers(0, 200)
)
def test_overlap_is_between_one_device_and_all_of_them(chunks, layers, devices, kernels):
    seconds = overlapped_s(chunks, layers, devices, kernels)
    assert max(chunks) * (1 - 1e-9) <= seconds <= sum(chunks) * (1 + 1e-9)
    assert seconds >= sum(chunks) * max(layers_of(layers, devices)) / layers * (1 - 1e-9)
    assert overlapped_s(chunks, layers, devices, 0) <= seconds * (1 + 1e-9)


@given(st.integers(1, 12), st.integers(2, COPIES))
def test_a_free_host_fills_the_pipeline(chunks, devices):
    layers = 10_000 * devices - 1  # the output layer is the last device's
    ideal = (chunks + devices - 1) / devices
    assert overlapped_s([1.0] * chunks, layers, devices, 0) == pytest.approx(ideal, rel=1e-3)


def test_four_chunks_are_in_flight():
    """15 layers on 8 devices are 2 each and one: the sixth chunk waits for the end of the first, 7 x 2 + 1 s."""
    assert overlapped_s([15.0] * 5, 15, 8, 0) == 4 * 2 + 15
    assert overlapped_s([15.0] * 6, 15, 8, 0) == 15 + 15


def test_weights_of_16_bits_have_no_kernels_that_unpack_them():
    """Seven GEMMs of a layer, without fused attention; with it, kernels that unpack are part of a GEMM."""
    names = (("q4_K_M", "llama.cpp-b1500"), ("fp16", "llama.cpp-b1500"), ("q4_K_M", "llama.cpp"), ("fp16", "llama.cpp"))
    found = [
        kernels_per_layer(deploy("llama-3.1-8b", "rtx-4090", engine, Layout(pp=2, weight_dtype=weights)))
        for weights, engine in names
    ]
    assert found[0] - found[1] == 7
    assert found[0] > found[2] == found[3]


def test_layers_are_all_somewhere():
    assert [sum(layers_of(80, devices)) for devices in range(1, 9)] == [80] * 8


def test_large_models_do_not_overlap_on_few_cards():
    """4 x RTX 4090, pp512 and pp4096 (XJD-00155, 157, 171, 173): 8B gains 1.85 times, 70B 1.01."""
    eight, seventy = (overlapped_s([1.0] * 8, layers, 4) for layers in (32, 80))
    assert 8 / eight > 2.3
    assert 8 / seventy < 1.35


@pytest.mark.parametrize(
    ("card", "short", "long"),
    [
        ("rtx-4090", 7138.99, 4039.68),
        ("rtx-4080", 5389.74, 2882.03),
        ("rtx-4000-ada", 2451.93, 1337.15),
        ("rtx-3070", 2402.51, 1419.97),
        ("rtx-a6000", 3780.55, 2292.61),
        ("a100-pcie-80", 5981.04, 4083.37),
    ],
)
def test_scores_in_memory_cost_what_is_measured(card, short, long):
    """Llama-3-8B Q4_K_M, tokens/s at 512 and 8,192 (XJD): cards of 360 to 1,935 GB/s, nothing fitted to the length."""
    measured_s = (1 / long - 1 / short) / ((8192 - 512) / 2)
    model = deploy("llama-3-8b", card, "llama.cpp-b1500", Layout(1, 1, 1, "q4_K_M", "fp16", "fp16")).step_model()
    pair_s = (model.seconds(Counts(prefill_pairs=1e9)) - model.seconds(Counts())) / 1e9
    assert pair_s == pytest.approx(measured_s, rel=0.2)


def test_fused_attention_writes_no_scores():
    old, card = load_engine("llama.cpp-b1500"), load_hardware("rtx-4090")
    ruled = [old.model_copy(update=stated_rules(setup(engine_settings=each), old)) for each in ("flash-attn=1", "")]
    assert [each.kernels_on(card).rules.score_bytes for each in ruled] == [None, 24]
    assert not stated_rules(setup(engine_settings="flash-attn=1"), load_engine("vllm"))


def test_a_stated_micro_batch_is_the_engines():
    assert place(setup(engine_settings="ubatch-size=256")).deployment.engine.micro_batch_tokens == 256
    assert place(setup()).deployment.engine.micro_batch_tokens == 512


def test_threads_scale_what_is_computed():
    """Unpacking iq3_S goes with the threads (2.96 and 10.32 tokens/s on 2 and 8: IKL), reading fp16 does not."""
    cpu = {"hardware": "CPU Apple M2 Max (8 P-cores, NEON)", "model": "Llama-2-7b", "engine": "llama.cpp b3441 CPU"}
    gains = {}
    for stored in ("iq3_S", "q4_0", "fp16"):
        runs = [setup(**cpu, weight_dtype=stored, output_len="128", threads=each, batch="1") for each in ("2", "8")]
        two, eight = (answer(each).value("tg_tok_s") for each in runs)
        gains[stored] = eight / two
    assert 1 <= gains["fp16"] < gains["q4_0"] < gains["iq3_S"] <= 4


def test_threads_beyond_the_cores_change_nothing():
    cpu = load_hardware("ryzen-7950x")
    every, unsaid, half = (place(setup(hardware=cpu.id, threads=each)) for each in ("32", "", "8"))
    assert every.deployment.hardware == unsaid.deployment.hardware == cpu
    assert every.question.changes is None
    assert half.deployment.hardware.peak_flops_per_s["fp32"] == cpu.peak_flops_per_s["fp32"] / 2
    assert half.deployment.hardware.memory_bytes_per_s == cpu.memory_bytes_per_s


@pytest.mark.parametrize("device", ["m1", "m2-ultra", "m4-max"])
def test_fused_attention_by_default_is_no_slower_than_the_kernels_before_it(device):
    """An M2 Ultra reads 8,192 tokens of Llama-3-8B Q4_K_M at 914 tokens/s unfused (GPU-Benchmarks-on-LLM-Inference)."""
    layout = Layout(1, 1, 1, "q4_K_M", "fp16", "fp16")
    prompt = count([Sequence(8192, 0)])
    before_s, after_s = (
        deploy("llama-3-8b", device, f"llama.cpp-{build}", layout).step_model().seconds(prompt)
        for build in ("b1500", "b6325")
    )
    assert after_s <= before_s
    if device == "m2-ultra":
        assert 8192 / after_s == pytest.approx(914, rel=0.1)


def test_llama_cpp_multiplies_in_a_xeons_vector_unit_but_in_builds_with_amx():
    xeon = load_hardware("xeon-8480")
    amx = configure(load_engine("llama.cpp"), Settings(), ["amx=true"]).engine
    plain, tiled = (Rates(each.kernels_on(xeon)) for each in (load_engine("llama.cpp"), amx))
    for stored in ("q4_K_M", "q4_K_M@4.9", "q8_0"):
        assert plain.peak(stored) == ("bf16", xeon.vector_flops_per_s["bf16"])
        assert tiled.peak(stored) == ("bf16", xeon.peak_flops_per_s["bf16"])
    for stored in ("gguf_bf16", "iq2_XS"):  # ggml-cpu/amx/common.h has no kernels for these
        assert plain.peak(stored) == tiled.peak(stored) == ("bf16", xeon.vector_flops_per_s["bf16"])
    assert Rates(load_engine("vllm").kernels_on(xeon)).peak("bf16")[1] == xeon.peak_flops_per_s["bf16"]
    half = deploy("llama-3.1-8b", "xeon-8480", "llama.cpp", settings=Settings(threads=28)).hardware
    assert half.vector_flops_per_s["bf16"] == xeon.vector_flops_per_s["bf16"] / 2


def test_bf16_over_vulkan_is_widened_to_fp32():
    """Gemma-4-31B in BF16 on Strix Halo reads 512 tokens over ROCm 3.1 times as fast as over Vulkan (kyuz0)."""
    halo = load_hardware("strix-halo")
    vulkan, hip = (Rates(load_engine(each).kernels_on(halo)) for each in ("llama.cpp-vulkan", "llama.cpp"))
    assert (vulkan.peak("gguf_bf16")[0], hip.peak("gguf_bf16")[0]) == ("fp32", "bf16")
    assert vulkan.peak("gguf_f16") == hip.peak("gguf_f16")
    layout = Layout(1, 1, 1, "gguf_bf16", "fp16", "bf16")
    seconds = [
        deploy("gemma-4-31b", "strix-halo", engine, layout).step_model().seconds(count([Sequence(512, 0)]))
        for engine in ("llama.cpp-vulkan", "llama.cpp")
    ]
    assert seconds[0] / seconds[1] == pytest.approx(3.1, rel=0.3)  # each within its own fit; as fast without widening


def test_unpacking_is_shared_by_the_tokens_of_a_tile():
    """(1 + u / n) with u of iq3_S 6.6: a token alone pays all of it in ik_llama.cpp, eight share it."""
    rates = Rates(load_engine("ik-llama.cpp").kernels_on(load_hardware("m2-max-cpu")))
    layout = Layout(1, 1, 1, "iq3_S", "fp16", "fp16")
    op = next(each for each in load_model("llama-2-7b").ops(layout) if each.rate == "gemm")
    one, eight = (rates.time(op, Counts(steps=1.0, tokens=n)).compute_s for n in (1.0, 8.0))
    assert eight / one == pytest.approx(8 * (1 + 6.6 / 8) / (1 + 6.6))
    routed = replace(op, experts=Experts(8, 2))  # two tokens reach 3.5 of them, so that each has 4 / 3.5 rows
    one, two, many = (rates.time(routed, Counts(steps=1.0, tokens=n)).compute_s for n in (1.0, 2.0, 64.0))
    assert two / one == pytest.approx(2 * (1 + 6.6 * 3.5 / 4) / (1 + 6.6))
    assert many / one == pytest.approx(64 * (1 + 6.6 / 8) / (1 + 6.6))


def test_gpt_oss_in_llama_cpp_is_as_large_as_its_file():
    """gpt-oss-20b MXFP4 MoE: 11.27 GiB (ggml-org/llama.cpp benches/dgx-spark)."""
    model = load_model("gpt-oss-20b")
    layout = Layout(1, 1, 1, "mxfp4_MoE", "bf16", "bf16")
    assert layout.weight_bytes(model.weights(layout)) == pytest.approx(11.27 * 2**30, rel=0.02)


def test_files_state_their_bits():
    model = load_model("llama-2-7b")
    bits = 8 * 3.59e9 / model.parameters
    assert sized_format("q4_K_XL", setup(weights_bytes="3.59e9"), model) == f"q4_K_XL@{bits:.3f}"
    for size in ("30e9", ""):
        assert sized_format("q4_K_XL", setup(weights_bytes=size), model) == "q4_K_XL"
    assert number_format("q4_K_XL@5.5").bits == 5.5
    routed = load_model("qwen3-30b-a3b")
    for date, parts in (("2025-08-08", 2), ("2026-05-16", 1), ("", 1)):  # how many parts the file's name tells apart
        dated = replace(setup(weights_bytes="17.7e9"), date=date)
        assert sized_format("q4_K_XL", dated, routed) == "+".join(["q4_K_XL@4.638"] * parts)
    four = replace(setup(), model="Gemma3-4B-QAT-4bit")
    assert mlx_format(four, model) == "mlx-q4"
    assert mlx_format(setup(weights_bytes="14e9"), model) == model.dtype
    with pytest.raises(NotModelledError, match="how many bits"):
        mlx_format(setup(), model)


@pytest.mark.parametrize("name", ["q8_0@", "q8_0@x", "q8_0@-4", "q8_0@nan", "q8_0@0", "q8_0@40", "bf16@8", "q8_1@8"])
def test_bits_that_no_file_has_are_refused(name):
    with pytest.raises(ProfileError, match=name):
        number_format(name)


def test_vulkan_is_its_own_engine():
    assert engine_of("llama.cpp Vulkan", "b9187").id == "llama.cpp-vulkan-b6325"
    names = {("llama.cpp vulkan_radv", "b6111"), ("llama.cpp vulkan", "b5863")}
    assert {engine_of(*each).id for each in names} == {"llama.cpp-vulkan-b1500"}
    assert engine_of("llama.cpp hip", "b5863").id == "llama.cpp-b3220"


@pytest.mark.parametrize(
    ("source", "engine", "context", "tokens"),
    [
        ("kyuz0-strix-halo-toolboxes", "llama.cpp ROCm", "32768", 2048),
        ("kyuz0-strix-halo-toolboxes", "llama.cpp ROCm", "", 512),
        ("kyuz0-strix-halo-toolboxes", "llama.cpp Vulkan", "32768", 512),
        ("llama.cpp-benches-dgx-spark", "llama.cpp CUDA", "", 2048),
        ("another", "llama.cpp ROCm", "32768", 512),
    ],
)
def test_micro_batches_are_those_of_a_sources_scripts(source, engine, context, tokens):
    """Its run_benchmarks.sh: `-ub 2048` with `-d 32768`, but over Vulkan; batched-bench printed n_ubatch = 2048."""
    placed = place(setup(source=source, engine=engine, engine_version="b9187", context_len=context))
    assert placed.deployment.engine.micro_batch_tokens == tokens
