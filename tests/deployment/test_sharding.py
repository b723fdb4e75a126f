"""What engines make of degrees that do not divide a model: rows pooled, heads padded, or refused; threads of a CPU."""

import shutil
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.deployment.batches import Batch
from simulator.deployment.deployment import Deployment, deploy, deployment_of
from simulator.deployment.estimate import estimate
from simulator.deployment.layouts import default_layout
from simulator.deployment.settings import Settings
from simulator.deployment.sharding import TP_DEGREES, Sharded, sharded
from simulator.engines.engine import load_engine
from simulator.errors import NotModelledError
from simulator.hardware.hardware import load_hardware
from simulator.models.layout import Layout
from simulator.models.model import load_model
from tests.support.commands import answer
from tests.support.paths import ROOT

LLAMA, H100, NEURON = load_model("llama-3-8b"), load_hardware("h100-sxm"), load_hardware("inferentia2")
ROWS, HEADS, PADS = (load_engine(each) for each in ("llama.cpp", "vllm", "transformers-neuronx"))


def on(engine: str, hardware: str = "gb200", model: str = "llama-3-8b", **degrees: int) -> Deployment:
    known = load_model(model)
    return deploy(model, hardware, engine, default_layout(known, **degrees))


# -------------------------------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize(("tp", "degree"), [(3, 2), (6, 4), (12, 8), (36, 32), (5, 4), (7, 4)])
def test_an_engine_that_splits_rows_pools_devices_where_heads_do_not_divide(tp, degree):
    """Fewer, faster devices stand for them: the same bandwidth, memory and peaks in all. 32 heads."""
    device = load_hardware("gb200")
    found = sharded(LLAMA, device, ROWS, Layout(tp))
    assert (found.model, found.layout.tp) == (LLAMA, degree)
    for name in ("memory_bytes_per_s", "memory_bytes"):
        assert getattr(found.hardware, name) * degree == pytest.approx(getattr(device, name) * tp)
    for name, peak in found.hardware.peak_flops_per_s.items():
        assert peak * degree == pytest.approx(device.peak_flops_per_s[name] * tp)
    deployment = on("llama.cpp", tp=tp)
    assert (deployment.layout.devices, deployment.devices, deployment.tp) == (degree, tp, tp)
    assert str(deployment).endswith(f"on {tp} x gb200")


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "lmdeploy"])
def test_others_refuse_what_heads_do_not_divide(engine):
    with pytest.raises(NotModelledError, match="tp 12: 32 attention heads do not divide by it"):
        on(engine, tp=12)


@pytest.mark.parametrize("engine", [ROWS, HEADS])
@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_what_divides_stays_as_it_is(engine, tp):
    layout = Layout(tp)
    assert sharded(LLAMA, H100, engine, layout) == Sharded(LLAMA, H100, layout)


def test_a_group_beyond_a_node_is_refused_however_it_is_pooled():
    with pytest.raises(
        NotModelledError, match=r"llama\.cpp-b7500 with tp 12: it splits rows of matrices within a node"
    ):
        on("llama.cpp", "h100-sxm", tp=12)


def test_every_device_is_told_and_paid_for():
    words = (
        "cost",
        "--model",
        "llama-3-8b",
        "--hardware",
        "l40s",
        "--engine",
        "llama.cpp",
        "--isl",
        "128",
        "--osl",
        "16",
    )
    words += ("--osl", "16", "--rate", "0.1", "--usd-per-hour", "2", "--num-prompts", "200")
    for tp in (2, 3):
        row = answer(*words, "--tp", str(tp))["answers"][0]
        assert (row["devices"], row["tp"], row["usd_per_hour"]) == (tp, tp, 2.0 * tp)


@given(st.integers(1, 64))
def test_pooled_devices_are_together_as_fast_as_those_that_are_asked_for(tp):
    found = sharded(LLAMA, H100, ROWS, Layout(tp))
    assert found.layout.tp in TP_DEGREES
    assert found.layout.tp <= tp
    pooled = found.hardware.memory_bytes_per_s * found.layout.tp
    assert pooled == pytest.approx(H100.memory_bytes_per_s * tp)


def test_a_model_of_ones_own_is_split_as_a_shipped_one(tmp_path):
    """It has no name under which profiles could be found again."""
    own = tmp_path / "mine.yaml"
    shutil.copy(ROOT / "model_profiles" / "llama-3-8b.yaml", own)
    words = ("estimate", "--hardware", "rtx-4090", "--engine", "llama.cpp", "--weight-dtype", "q4_K_M", "--batch", "1")
    for tp in ("1", "2", "3"):
        mine, shipped = (
            answer(*words, "--tp", tp, "--model", each)["estimates"][0] for each in (str(own), "llama-3-8b")
        )
        assert mine["tpot_s"] == shipped["tpot_s"]


# ------------------------------------------------------------------------------------------------------------- heads


@pytest.mark.parametrize(
    ("tp", "model", "heads"),
    [
        (12, "llama-2-7b", (48, 48)),
        (12, "llama-3-70b", (72, 24)),
        (12, "mixtral-8x7b", (48, 24)),
        (4, "llama-3-8b", (32, 8)),
    ],
)
def test_an_engine_that_pads_adds_heads_for_every_core(tp, model, heads):
    """Two NeuronCores of a device: heads, cached heads and widths divide by all of them, and grow by less than one."""
    plain = load_model(model)
    found = sharded(plain, NEURON, PADS, Layout(tp))
    (block,), (before,) = found.model.blocks.values(), plain.blocks.values()
    cores = 2 * tp
    assert (block.mixer.heads, block.mixer.kv_heads) == heads
    assert 0 <= block.ffn.intermediate - before.ffn.intermediate < cores
    assert block.ffn.intermediate % cores == block.mixer.heads % cores == block.mixer.kv_heads % cores == 0
    assert (found.hardware, found.layout) == (NEURON, Layout(tp))


def test_padded_heads_are_computed_and_cached():
    padded = on("transformers-neuronx", "inferentia2", "llama-2-7b", tp=12)
    assert padded.model.cache_bytes(1, padded.layout) > padded.model.cache_bytes(1, replace(padded.layout, tp=16))
    assert padded.layout.tp * padded.model.cache_bytes(1, padded.layout) == pytest.approx(
        48 / 32 * load_model("llama-2-7b").cache_bytes(1, Layout(1, cache_dtype=padded.layout.cache_dtype))
    )


def test_a_block_of_other_kinds_of_layers_is_not_padded():
    latent = load_model("deepseek-v2-lite")
    assert sharded(latent, NEURON, PADS, Layout(8)).model is latent
    with pytest.raises(NotModelledError, match="tp 12: 16 attention heads do not divide by it"):
        on("transformers-neuronx", "inferentia2", "deepseek-v2-lite", tp=12)


@pytest.mark.parametrize("engine", [ROWS, PADS])
def test_whole_heads_of_data_parallel_attention_are_neither_padded_nor_pooled(engine):
    model, layout = load_model("qwen3-235b-a22b"), Layout(1, 1, 8, dp=8)
    assert sharded(model, H100, engine, layout) == Sharded(model, H100, layout)


# ----------------------------------------------------------------------------------------------------------- threads


@pytest.mark.parametrize(("threads", "share"), [(1, 1 / 16), (8, 0.5), (16, 1.0), (32, 1.0), (None, 1.0)])
def test_threads_scale_the_peaks_of_a_cpu_and_not_its_bandwidth(threads, share):
    """A few cores draw most of it."""
    cpu = load_hardware("ryzen-7950x")
    found = sharded(LLAMA, cpu, ROWS, Layout(1), threads).hardware
    assert found.peak_flops_per_s == pytest.approx({name: share * peak for name, peak in cpu.peak_flops_per_s.items()})
    assert found.memory_bytes_per_s == cpu.memory_bytes_per_s


def test_threads_of_a_gpu_are_nobodys():
    assert sharded(LLAMA, H100, ROWS, Layout(1), 4).hardware == H100


def test_fewer_threads_are_never_faster():
    layout = Layout(1, weight_dtype="q4_K_M", cache_dtype="fp16", model_dtype="fp16")
    cpu, times_s = load_hardware("ryzen-7950x"), []
    for threads in (2, 4, 8, 16):
        deployment = deployment_of(LLAMA, cpu, ROWS, layout, Settings(threads=threads))
        times_s.append(estimate(deployment, Batch(1, 512, 128)).expected)
    assert [each.ttft_s for each in times_s] == sorted((each.ttft_s for each in times_s), reverse=True)
    assert [each.tpot_s for each in times_s] == sorted((each.tpot_s for each in times_s), reverse=True)
    assert times_s[0].ttft_s > 2 * times_s[-1].ttft_s


# ------------------------------------------------------------------------------------------------- what software sees


def test_a_package_of_two_dies_is_twice_as_many_devices_of_half_of_it():
    """What `--hardware mi250-gcd` has is half of the package that measurements count."""
    package, die = load_hardware("mi250"), load_hardware("mi250-gcd")
    assert (package.seen_as, die.seen_as) == (2, 1)
    assert 2 * die.memory_bytes_per_s == package.memory_bytes_per_s
    assert 2 * die.memory_marketed_bytes == package.memory_marketed_bytes
    assert {name: 2 * peak for name, peak in die.peak_flops_per_s.items()} == package.peak_flops_per_s


@pytest.mark.parametrize(("name", "parts"), [("xeon-6787p", 2), ("xeon-6980p", 3)])
def test_a_numa_node_is_its_part_of_a_socket(name, parts):
    """What `--hardware xeon-6787p-numa` has is half of the socket, with half of its memory channels."""
    socket, node = load_hardware(name), load_hardware(f"{name}-numa")
    assert parts * node.memory_bytes_per_s == pytest.approx(socket.memory_bytes_per_s)
    assert parts * node.memory_marketed_bytes == socket.memory_marketed_bytes
    for peak, flops_per_s in socket.peak_flops_per_s.items():
        assert parts * node.peak_flops_per_s[peak] == pytest.approx(flops_per_s, rel=1e-3)
    assert parts * node.cores <= socket.cores < parts * (node.cores + 1)


def test_lightning_attention_has_fp32_states_where_an_engine_keeps_all_in_fp32():
    model = load_model("minimax-text-01")
    linear = model.blocks["linear"]
    narrow = linear.model_copy(update={"mixer": linear.mixer.model_copy(update={"state_dtype": "model"})})
    model = model.model_copy(update={"blocks": {**model.blocks, "linear": narrow}})
    kept = [sharded(model, H100, load_engine(each), Layout()).model.state_bytes() for each in ("sglang", "vllm")]
    assert kept == [70 * 64 * 128 * 128 * each for each in (4, 2)]
