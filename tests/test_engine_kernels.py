"""What kernels of some engines do beside the least work: heads that read alone, every expert, padded reads."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.deployment import default_layout, deploy
from simulator.engine import CROWDED_HEADS, Kernels
from simulator.hardware import load_hardware
from simulator.layers import Attention
from simulator.measurements import Setup
from simulator.model import load_model
from simulator.prediction import _read_tokens, outcome
from simulator.profile import Figure, Source
from simulator.recipes import first_call_s
from simulator.roofline import Rates
from simulator.work import Counts, Layout

MAX_1550 = load_hardware("max-1550")


def figure(value: float) -> Figure:
    return Figure(value, Source(text="by hand", date="", evidence="guess"))


def attention_s(
    kernels: Kernels, sequences: float, *, heads: int = 32, kv_heads: int = 8, context: int = 8192
) -> float:
    """One layer's decode attention over 1,000 cached tokens of each sequence on the MI300X, without its launch."""
    layer = Attention(heads=heads, kv_heads=kv_heads, head_dim=128)
    op = next(op for op in layer.ops(4096, Layout()) if op.rate == "decode_attention")
    rates = Rates(load_hardware("mi300x"), kernels, context_tokens=context)
    cost = rates.cost(op, Counts(1.0, sequences, sequences, 1000.0 * sequences))
    return float(cost.seconds - cost.overhead_s)


PAGED = Kernels(per_head=figure(1.0), per_head_crowded=figure(0.25))


def test_query_heads_that_read_alone_read_a_group_as_often_as_it_has_heads():
    """16 sequences x 32 heads are 512: 32 x 256 numbers of 2 bytes for each of 16,000 tokens, at 5.3 TB/s."""
    assert attention_s(PAGED, 16) == pytest.approx(16_000 * 32 * 256 * 2 / 5.3e12)
    assert attention_s(PAGED, 17) == pytest.approx(17_000 * 32 * 256 * 2 / (0.25 * 5.3e12))  # more than 512
    assert attention_s(PAGED, 17, context=4096) == pytest.approx(attention_s(PAGED, 17) / 2)  # half the row of scores


@pytest.mark.parametrize("rate", ["decode_attention", "prefill_attention"])
def test_a_rank_of_data_parallel_attention_counts_the_heads_of_its_own_sequences(rate):
    """Half of 32 sequences x 32 heads are 512, few enough for the kernel of 16; and half of the scores are written."""
    op = next(op for op in Attention(heads=32, kv_heads=8, head_dim=128).ops(4096, Layout()) if op.rate == rate)
    rates = Rates(load_hardware("mi300x"), PAGED.model_copy(update={"score_bytes": figure(24.0)}))
    halves = Counts(1.0, 16.0, 16.0, 16_000.0, prefill_pairs=1e6)
    wholes = Counts(1.0, 32.0, 32.0, 32_000.0, prefill_pairs=2e6)
    assert rates.cost(op.of_one_rank(2), wholes).seconds == pytest.approx(rates.cost(op, halves).seconds)


def test_experts_compute_whole_tiles():
    """64 tokens reach all 8 experts, 16 each: half a tile of 32 more doubles what they compute."""
    op = next(op for op in load_model("mixtral-8x7b").ops() if op.experts)
    kernels = Kernels(), Kernels(expert_tile=figure(32.0))
    exact, tiled = (Rates(load_hardware("mi300x"), each).cost(op, Counts(1.0, 64.0)).compute_s for each in kernels)
    assert tiled == pytest.approx(2 * exact)


def test_a_package_of_two_devices_is_crowded_at_twice_the_heads():
    mi250 = load_hardware("mi250")
    op = next(op for op in Attention(heads=32, kv_heads=8, head_dim=128).ops(4096, Layout()) if op.cache_format)
    rates = Rates(mi250, PAGED)
    per_token = [rates.cost(op, Counts(1.0, n, n, 1.0)).seconds - rates.cost(op, Counts(1.0)).seconds for n in (32, 33)]
    assert per_token[1] == pytest.approx(4 * per_token[0])


@given(st.integers(1, 300), st.sampled_from([1, 2, 4, 8]))
def test_reading_alone_is_never_faster_and_shares_nothing_where_there_are_no_groups(sequences, group):
    shared = attention_s(Kernels(), sequences, kv_heads=32 // group)
    assert attention_s(PAGED, sequences, kv_heads=32 // group) >= shared * (1 - 1e-12)
    if group == 1 and sequences * 32 <= CROWDED_HEADS:
        assert attention_s(PAGED, sequences, kv_heads=32) == pytest.approx(shared)


def test_an_fp8_cache_is_converted_where_the_device_has_no_fp8():
    """Llama-3-8B: 2 x 8 x 128 x 32 numbers a token, for each of 4 query heads, 70 of 19.5 TFLOP/s: 0.94 us.

    Argonne's A100: 1.34 to 1.53 us in vLLM, 0.63 us more than an int8 cache in TensorRT-LLM.
    """
    found = {}
    for device, cache in (("a100-sxm-40", "fp8"), ("a100-sxm-40", "int8"), ("h100-sxm", "fp8")):
        layout = default_layout(load_model("llama-3-8b"), dtypes=("fp16", cache))
        ops = [op for op in load_model("llama-3-8b").ops(layout) if op.rate == "decode_attention"]
        rates = Rates(load_hardware(device))
        found[device, cache] = sum(rates.cost(op, Counts(decode_reads=1.0)).seconds for op in ops)
    assert found["a100-sxm-40", "fp8"] - found["a100-sxm-40", "int8"] == pytest.approx(0.94e-6, rel=0.15)
    assert found["h100-sxm", "fp8"] < 0.1e-6


def test_optimum_habana_computes_every_expert():
    """Mixtral on Gaudi 2: 93.4 GB of weights at 2.46 TB/s are 38 ms a token."""
    deployment = deploy("mixtral-8x7b", "gaudi2", "optimum-habana")
    light, shipped = deployment.step_model(light=True), deployment.step_model()
    routed, all_of_them = (next(op for op in each.ops if op.experts) for each in (light, shipped))
    assert shipped.seconds(Counts(1.0, 1.0, 1.0, 60.0)) > 93.0e9 / 2.46e12
    assert all_of_them.flops.tokens == pytest.approx(4 * routed.flops.tokens)  # 8 experts instead of 2
    assert all_of_them.bytes_read(Counts(1.0, 1.0)) > 3.9 * routed.bytes_read(Counts(1.0, 1.0))
    assert all_of_them.with_every_expert() == all_of_them


def test_a_compiled_graph_reads_the_cache_up_to_a_power_of_two():
    """8,192 positions: the median token of 128 + 8,064 reads as much as every one of 4,096 + 4,096.

    AWS measured 15.22 and 15.31 ms for them (Llama-3-8B, 8 sequences on inf2.48xlarge).
    """
    neuronx = deploy("llama-3-8b", "inferentia2", "transformers-neuronx").engine
    long, short = (_read_tokens(neuronx, prompt, 8192 - prompt, light=False) for prompt in (128, 4096))
    assert np.median(long) == 8192 == short.min() == short.max()
    assert set(long) == {256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0}
    assert set(_read_tokens(neuronx, 128, 1024, light=False)) == {256.0, 512.0, 1024.0, 1152.0}
    exact = _read_tokens(neuronx, 128, 1024, light=True)
    assert exact.min() == 129 and exact.max() == 1152


def test_argonnes_runs_on_the_max_1550_time_the_compilation_of_the_first_call():
    """19.3 s for 1 x (128 + 128) tokens and 47.7 s for 2,048 + 2,048: 18 s and 14 ms a token."""
    cells = ("argonne", "2024-09", "Intel Max 1550", "", 1, 1, 1, 0, 0, "Llama-3-8B", "fp16", "", "vLLM", "0.5")
    cold = Setup(*cells, 128, 128, 1, 0, 0.0, "fixed-batch", "value = batch*(in+out)/latency incl. prefill")
    assert first_call_s(cold, MAX_1550) == 18.0
    assert first_call_s(cold, load_hardware("mi300x")) == first_call_s(replace(cold, notes=""), MAX_1550) == 0.0
    seconds = [outcome(replace(cold, notes=notes)).e2el_s["mean"] for notes in (cold.notes, "")]
    assert seconds[0] - seconds[1] == pytest.approx(18.0)
    assert outcome(cold, light=True).e2el_s["mean"] < 18.0
