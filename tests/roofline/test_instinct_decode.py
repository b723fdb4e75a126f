"""Decode attention on AMD Instinct beside times of the kernels alone."""

import pytest

from simulator.engines.engine import load_engine
from simulator.hardware.hardware import load_hardware
from simulator.models.operations import Counts, Op
from simulator.roofline.decode_attention import DecodeAttentionRates

KV_BYTES = 8 * 128 * 2 * 2.0  # of a token: 8 KV heads of 128 columns, keys and values, in 16 bits
LATENT_BYTES = 576 * 2.0


def seconds(hardware: str, engine: str, op: Op, sequences: int, context: int) -> float:
    """Seconds of decode attention of one layer, of as many sequences with as long a context each."""
    device = load_hardware(hardware)
    rates = DecodeAttentionRates(load_engine(engine).kernels_on(device), context)
    counts = Counts(steps=1.0, tokens=sequences, logits=sequences, decode_reads=float(sequences * context))
    found = rates.seconds(op, counts, 1e18)
    return float(found.memory_s) + found.launch_s


@pytest.mark.parametrize(
    ("sequences", "context", "us"),
    [(256, 1024, 325.3), (32, 8192, 391.4), (64, 8192, 815.6), (256, 8192, 3189.5), (16, 32768, 744.3)],
)
def test_aiter_reads_a_cache_on_mi355x_at_a_third_of_its_bandwidth(sequences, context, us):
    """facebookexperimental/triton pull request 2040, AITER's column; 64 query heads."""
    read = Op("", "decode_attention", cache_bytes=Counts(decode_reads=KV_BYTES), heads=64, shared_by=8)
    assert 1e6 * seconds("mi355x", "sglang", read, sequences, context) == pytest.approx(us, rel=0.25)


@pytest.mark.parametrize(("context", "us"), [(2048, 401.9), (8192, 1590.6), (32768, 6358.5)])
def test_a_block_of_triton_reads_latent_vectors_on_mi350x_as_fast_as_on_an_h100(context, us):
    """lightseekorg/tokenspeed pull request 664: 8 heads of one sequence, in one part; vLLM gives it four."""
    read = Op("", "decode_attention", cache_bytes=Counts(decode_reads=LATENT_BYTES), latent_heads=8, shared_by=8)
    assert 4e6 * seconds("mi350x", "vllm-0.19", read, 1, context) == pytest.approx(us, rel=0.3)


@pytest.mark.parametrize(("sequences", "context", "us"), [(64, 16384, 230.7), (128, 16384, 428.8), (64, 65536, 844.9)])
def test_latent_attention_of_aiter_on_mi355x(sequences, context, us):
    """ROCm/aiter pull request 5456, 32 heads in bf16: a little faster than the assembly that engines run."""
    read = Op("", "decode_attention", cache_bytes=Counts(decode_reads=LATENT_BYTES), latent_heads=16, shared_by=16)
    assert 1e6 * seconds("mi355x", "sglang", read, sequences, context) == pytest.approx(us, rel=0.1)
