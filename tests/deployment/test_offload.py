"""Offloading: none is none to the bit, what leaves costs what the link or the CPU costs, and speed collapses."""

from dataclasses import replace

import numpy as np
import pytest

from simulator.cli.answers.technique_notes import technique_notes
from simulator.deployment.deployment import Deployment, deploy
from simulator.deployment.layouts import default_layout
from simulator.deployment.memory import memory_plan
from simulator.deployment.offload import COPIED_FROM_TOKENS, Offload, layer_bytes
from simulator.deployment.offload_curve import OffloadPoint, offload_curve
from simulator.deployment.settings import Settings
from simulator.errors import InfercastError, NotModelledError, ProfileError
from simulator.hardware.hardware import load_hardware
from simulator.models.layout import Layout
from simulator.models.model import load_model
from simulator.models.operations import Counts
from simulator.roofline.collectives import PCIE_FRACTION
from simulator.roofline.roofline import Rates
from simulator.units import GIB

DECODE = Counts(1.0, 4.0, 4.0, decode_reads=4 * 500.0)
PROMPT = Counts(1.0, 512.0, 1.0, prefill_tokens=512.0, prefill_pairs=512 * 513 / 2)


def offloaded(
    offload: Offload, model: str = "llama-3.1-8b", hardware: str = "h100-sxm", engine: str = ""
) -> Deployment:
    return deploy(model, hardware, engine, settings=Settings(offload=offload))


@pytest.mark.parametrize("none", [Offload(weight_bytes=0.0), Offload(gpu_layers=32), Offload(gpu_layers=99)])
def test_nothing_offloaded_is_nothing_to_the_bit(none):
    ours, plain = offloaded(none), deploy("llama-3.1-8b", "h100-sxm")
    assert ours.ops == plain.ops
    assert memory_plan(ours).cache_bytes == memory_plan(plain).cache_bytes
    for one, other in zip(ours.step_model().table(512, 32), plain.step_model().table(512, 32), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("counts", [DECODE, PROMPT])
def test_streamed_weights_cost_their_bytes_over_the_link(counts):
    hardware = load_hardware("h100-sxm")
    more = offloaded(Offload(weight_bytes=4 * GIB)).step_model().seconds(counts)
    plain = deploy("llama-3.1-8b", "h100-sxm").step_model().seconds(counts)
    assert more - plain == pytest.approx(4 * GIB / (PCIE_FRACTION * hardware.pcie_bytes_per_s), rel=1e-3)


def test_only_the_experts_that_a_batch_touches_stream():
    model = load_model("mixtral-8x7b")
    half = Offload(weight_bytes=layer_bytes(model, Layout()) / 2)
    copies = [op for op in offloaded(half, "mixtral-8x7b").ops if op.rate == "host_link"]
    read = [sum(float(op.bytes_read(Counts(steps=1.0, tokens=tokens))) for op in copies) for tokens in (1.0, 1e4)]
    assert read[1] == pytest.approx(half.weight_bytes, rel=1e-6)
    assert read[0] / read[1] == pytest.approx(0.25, abs=0.03)  # 2 of 8 experts, and attention


def test_stages_stream_one_after_the_other():
    model = load_model("llama-3.1-70b")
    layout = default_layout(model, pp=4)
    settings = Settings(offload=Offload(weight_bytes=GIB))
    ops = deploy("llama-3.1-70b", "h100-sxm", layout=layout, settings=settings).ops
    assert sum(op.weight_bytes for op in ops if op.rate == "host_link") == pytest.approx(4 * GIB)


def test_a_layer_on_the_cpu_costs_what_the_cpu_takes_until_a_batch_is_worth_copying_it():
    ours = offloaded(Offload(gpu_layers=31, host="epyc-9654"), engine="llama.cpp")
    model, cpu = ours.step_model(), load_hardware("epyc-9654")
    rates = Rates(ours.engine.kernels_on(cpu))
    up = next(op for op in ours.ops if op.name == "CPU: gate and up projection")
    few, many = Counts(1.0, COPIED_FROM_TOKENS - 1.0), Counts(1.0, float(COPIED_FROM_TOKENS))
    rows = {cost.name: cost for cost in model.explain(few)}
    assert float(rows[up.name].seconds) == float(rates.time(up, few).seconds)
    copied = {cost.name: cost for cost in model.explain(many)}[up.name]
    assert float(copied.link_s) == pytest.approx(up.weight_bytes / (PCIE_FRACTION * ours.hardware.pcie_bytes_per_s))


def test_the_table_of_a_split_model_is_the_sum_of_its_ops():
    model = offloaded(Offload(gpu_layers=20), engine="llama.cpp").step_model()
    table = model.table(1024, 8)
    for tokens in (1, 31, 32, 512, 513, 1024):
        whole = float(model.seconds(Counts(1.0, float(tokens), 1.0)))
        assert table.token_s[tokens] + table.logit_s[1] == pytest.approx(whole)


def test_cache_comes_back_at_the_rate_of_the_link():
    ours = offloaded(Offload(cache_bytes=64 * GIB))
    link = PCIE_FRACTION * ours.hardware.pcie_bytes_per_s
    assert ours.step_model().table(16, 4).loaded_s == pytest.approx(131_072 / link)
    assert memory_plan(ours).host_prefix_blocks(512) == 1024  # 64 MiB each
    assert memory_plan(deploy("llama-3.1-8b", "h100-sxm")).host_prefix_blocks(512) == 0


# ---------------------------------------------------------------------------------------------------------- collapse


@pytest.mark.parametrize("how", ["stream", "cpu"])
def test_each_layer_away_costs_as_much_as_the_one_before(how):
    curve = offload_curve(deploy("llama-3.1-8b", "rtx-4090", "llama.cpp"), how).points
    steps = np.diff([each.step_s for each in curve][1:])
    assert curve[0].slowdown == 1
    assert (steps > 0).all()
    assert steps == pytest.approx(np.full(len(steps), steps[0]))
    assert curve[0].step_s == float(deploy("llama-3.1-8b", "rtx-4090", "llama.cpp").step_model().seconds(_one()))


def _one() -> Counts:
    return Counts(1.0, 1.0, 1.0, decode_reads=1024.0, decode_reads_windowed=1024.0)


def away_at(slowdown: float, curve: tuple[OffloadPoint, ...]) -> float:
    """The share of the layers that is away where decoding is so many times slower."""
    return float(np.interp(slowdown, [each.slowdown for each in curve], [each.share for each in curve]))


@pytest.mark.parametrize("hardware", ["rtx-4090", "h100-sxm", "a100-sxm-80"])
def test_5_to_10_times_slower_is_a_tenth_to_a_third_of_the_weights_over_pcie(hardware):
    """Row 13 of claims.md: with all weights on the host it is 25 to 50 times, what they take over the link."""
    wide = default_layout(load_model("llama-3.1-8b"), dtypes=("gguf_bf16", "fp16"))
    deployment, device = deploy("llama-3.1-8b", hardware, "llama.cpp", wide), load_hardware(hardware)
    curve = offload_curve(deployment, "stream").points
    link_s = layer_bytes(deployment.model, deployment.layout) / (PCIE_FRACTION * device.pcie_bytes_per_s)
    assert curve[-1].step_s - curve[0].step_s == pytest.approx(link_s, rel=1e-3)
    assert 25 < curve[-1].slowdown < 50
    assert 0.08 < away_at(5, curve) < 0.16
    assert 0.19 < away_at(10, curve) < 0.35
    assert away_at(10, curve) / away_at(5, curve) == pytest.approx(9 / 4, rel=0.05)  # each layer costs the same


def test_a_70b_on_a_card_of_24_gb_is_5_to_10_times_slower():
    """Row 13 of claims.md, at home: 40 GB of weights, of which the CPU computes what the card lacks room for."""
    layout = default_layout(load_model("llama-3.1-70b"), dtypes=("q4_K_M", ""))
    card = deploy("llama-3.1-70b", "rtx-4090", "llama.cpp", layout=layout)
    assert memory_plan(card).num_blocks == 0
    parts = [replace(card, settings=Settings(offload=Offload(gpu_layers=n))) for n in range(1, 81)]
    away = 80 - max(n for n, each in enumerate(parts, 1) if memory_plan(each).num_blocks > 0)
    assert 30 < away < 45
    curve = offload_curve(card, "cpu").points
    assert 5 < curve[away].slowdown < 10
    assert curve[16].slowdown > 2.5  # a fifth of the layers
    assert curve[1].slowdown > 1.1  # one layer of 80


# ---------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"weight_bytes": -1.0}, "negative"),
        ({"gpu_layers": 0}, "Name the CPU as the device"),
        ({"weight_bytes": 1.0, "gpu_layers": 3}, "Give one of the two"),
    ],
)
def test_an_offload_that_cannot_be_is_refused(given, said):
    with pytest.raises(InfercastError, match=said):
        Offload(**given)


def test_more_than_the_layers_hold_is_refused():
    with pytest.raises(InfercastError, match=r"the layers hold 13\.00 GiB"):
        offloaded(Offload(weight_bytes=14 * GIB))


def test_a_device_that_shares_its_memory_has_no_link_to_its_host():
    with pytest.raises(ProfileError, match="no link to its host"):
        offloaded(Offload(weight_bytes=GIB), hardware="m4-max").step_model().seconds(DECODE)


def test_layers_on_the_cpu_beside_several_devices_are_refused():
    settings = Settings(offload=Offload(gpu_layers=10))
    layout = default_layout(load_model("llama-3.1-8b"), dtypes=("q4_K_M", ""), tp=2)
    with pytest.raises(NotModelledError, match="beside one device"):
        deploy("llama-3.1-8b", "h100-sxm", "llama.cpp", layout=layout, settings=settings)


def test_engines_without_kernels_for_the_cpu_leave_no_layer_to_it():
    for engine in ("vllm", "sglang", "tensorrt-llm", "transformers"):
        with pytest.raises(NotModelledError, match="it computes no layers on the CPU"):
            offloaded(Offload(gpu_layers=10), engine=engine)
    for engine in ("llama.cpp", "ik-llama.cpp", "llama.cpp-vulkan", "ollama"):
        assert offloaded(Offload(gpu_layers=10), hardware="rtx-4090", engine=engine).ops


@pytest.mark.parametrize(
    ("offload", "said"),
    [
        (Offload(weight_bytes=GIB), "Offloaded to xeon-8480 (a guess); "),
        (Offload(cache_bytes=GIB, host="epyc-9654"), "Offloaded to epyc-9654; "),
        (Offload(gpu_layers=500), "Nothing is offloaded: all 32 layers of llama-3.1-8b lie on the device."),
        (Offload(gpu_layers=32), "Nothing is offloaded: all 32 layers"),
        (Offload(host="epyc-9654"), "Nothing is offloaded: --host epyc-9654 alone changes nothing."),
    ],
)
def test_what_is_said_to_be_offloaded_is(offload, said):
    [note] = technique_notes([offloaded(offload)])
    assert note.startswith(said)
