"""Decode attention of FlashAttention 3 computes tiles of 128 query rows, of which the heads of a group fill few."""

import pytest

from simulator.deployment.deployment import Deployment, deploy
from simulator.deployment.settings import Settings
from simulator.engines.decode_tile import DecodeTile
from simulator.hardware.hardware import load_hardware
from simulator.models.operations import Counts, Op

TILES, ONE_GROUP = DecodeTile(families=("hopper",)), DecodeTile(families=("hopper",), one_group=True)
H20 = load_hardware("h20-sxm")


def read_s(found: Deployment) -> float:
    """Seconds in which attention of all layers reads one cached token of one of many sequences."""
    return float(found.step_table().slopes[0])


def attention(heads: float, group: float, columns: int, cache_format: str = "bf16") -> Op:
    flops = Counts(decode_reads=4.0 * heads * columns)
    return Op("", "decode_attention", "bf16", flops, heads=heads, shared_by=group, cache_format=cache_format)


def test_an_h20_reads_a_cache_as_fast_as_it_multiplies_128_rows():
    """Qwen3-32B: 64 layers of 8 KV heads of 128 columns; the time of 0.89 of 148 TFLOP/s, four times its memory's."""
    tiles_s = 64 * 8 * 128 * 4 * 128 / (0.89 * 148e12)
    assert read_s(deploy("qwen3-32b", "h20-sxm", "sglang-0.5")) == pytest.approx(tiles_s, rel=1e-6)
    assert tiles_s == pytest.approx(64 * 4096 / 1.03e12, rel=0.01)


def test_one_group_of_warps_multiplies_64_rows():
    tiles_s = 64 * 8 * 64 * 4 * 128 / (0.89 * 148e12)
    for engine in ("sglang-0.5.10", "vllm-0.8", "vllm-0.33"):
        assert read_s(deploy("qwen3-32b", "h20-sxm", engine)) == pytest.approx(tiles_s, rel=1e-6)


def test_an_h100_multiplies_faster_than_it_reads_and_triton_has_no_such_tiles():
    h100 = deploy("qwen3-32b", "h100-sxm", "sglang-0.5")
    read = 64 * 4096 / (0.86 * 3350e9)
    assert read_s(h100) == pytest.approx(read, rel=0.01)
    triton = deploy("qwen3-32b", "h20-sxm", "sglang-0.5", None, Settings(changes=("attention_backend=triton",)))
    assert triton.kernels.rules.decode_tile is None


@pytest.mark.parametrize(
    ("columns", "group", "rows", "one_group"),
    [
        (64, 8, 192, 64),
        (65, 8, 192, 192),
        (96, 1, 192, 192),
        (97, 8, 128, 64),
        (128, 8, 128, 64),
        (128, 64, 128, 64),
        (128, 96, 128, 128),
        (129, 8, 128, 128),
        (192, 8, 128, 128),
        (256, 8, 128, 128),
        (257, 8, 0, 0),
    ],
)
def test_rows_are_those_of_tile_size_h(columns, group, rows, one_group):
    op = attention(96, group, columns)
    assert (TILES.rows(op, narrow=False), ONE_GROUP.rows(op, narrow=False)) == (rows, one_group)
    assert ONE_GROUP.rows(op, narrow=True) == rows


def test_a_cache_in_fp8_is_multiplied_twice_as_fast_in_the_same_rows():
    assert TILES.padding(attention(64, 8, 128), H20) == pytest.approx(16)
    assert TILES.padding(attention(64, 8, 128, "fp8"), H20) == pytest.approx(8)
    assert ONE_GROUP.padding(attention(64, 8, 128, "fp8"), H20) == pytest.approx(8)


def test_latent_attention_and_other_families_compute_what_they_need():
    latent = Op("", "decode_attention", latent_heads=128, shared_by=128)
    assert (TILES.rows(latent, narrow=False), TILES.padding(latent, H20)) == (0, 1.0)
    assert TILES.padding(attention(64, 8, 128), load_hardware("b200-sxm")) == 1.0
    assert TILES.padding(attention(256, 256, 128), H20) == 1.0
