"""SGLang sets its share of the memory by the device, the tokens of a chunk, the devices and the ranks."""

import pytest

from simulator.deployment.deployment import deploy
from simulator.deployment.memory import memory_plan
from simulator.deployment.settings import Settings
from simulator.models.layout import Layout
from simulator.simulation.scheduler_limits import limits

GIB = 1024.0**3
H100_MIB = 81_121  # as CUDA reports it; SGLang asks nvidia-smi, which says 81,559: 0.001 more of it


def share(device: str, engine: str = "sglang-0.5", given: Settings = Settings(), **degrees: int) -> float:
    layout = Layout(**degrees) if degrees else None
    return deploy("llama-3.2-1b", device, engine, layout, given).memory_fraction


@pytest.mark.parametrize(
    ("device", "expected"),
    [("rtx-4090", 0.847), ("h100-sxm", 0.835), ("h200-sxm", 0.907), ("b200-sxm", 0.857)],
)
def test_the_share_is_that_of_server_args_py(device, expected):
    """(24,564 - 3,760) / 24,564 MiB, (81,559 - 13,440) / 81,559 and so on, of one device and nvidia-smi's memory."""
    assert share(device) == pytest.approx(expected, abs=0.004)


def test_devices_take_128_mib_each_and_ranks_of_data_parallel_attention_more():
    assert share("h100-sxm", tp=8) == round(1 - (13_312 + 8 * 128) / H100_MIB, 3)
    ranks = deploy("qwen3-30b-a3b", "h100-sxm", "sglang-0.5", Layout(dp=4, ep=4)).memory_fraction
    assert ranks == round(1 - (13_312 + 4 * 128 + 4 * 512 * 4.5) / H100_MIB, 3)
    two = deploy("qwen3-30b-a3b", "h100-sxm", "sglang-0.5", Layout(dp=2, ep=2)).memory_fraction
    assert two == round(1 - (13_312 + 2 * 128 + 2 * 512 * 4.5) / H100_MIB, 3)


def test_a_longer_chunk_takes_a_mib_and_a_half_a_token_and_a_short_one_leaves_ten_gib_free():
    given = {tokens: share("h100-sxm", given=Settings(max_num_batched_tokens=tokens)) for tokens in (1_024, 16_384)}
    assert given == {1_024: round(1 - 10_240 / H100_MIB, 3), 16_384: round(1 - (13_440 + 8_192 * 1.5) / H100_MIB, 3)}
    assert share("rtx-4090", given=Settings(max_num_batched_tokens=1_024)) == share("rtx-4090")


def test_piecewise_graphs_take_eight_mib_each():
    assert share("h100-sxm", "sglang-0.5.10") == round(1 - (13_440 + 58 * 8) / H100_MIB, 3)


def test_a_share_that_is_given_counts_and_an_h200_keeps_more_of_its_memory_than_an_h100():
    assert share("h100-sxm", given=Settings(memory_fraction=0.9)) == 0.9
    plans = {name: memory_plan(deploy("llama-3.1-8b", name, "sglang-0.5")) for name in ("h100-sxm", "h200-sxm")}
    for name, plan in plans.items():
        rest = share(name) * (plan.total_bytes - plan.context_bytes) - plan.weight_bytes
        assert plan.cache_bytes == pytest.approx(rest, abs=GIB / 100)


def test_ranks_of_data_parallel_attention_share_a_chunk_and_expect_shorter_outputs():
    """_handle_data_parallelism: 8,192 tokens of an H100 on four ranks are 2,048 each, and 0.7 becomes 0.21."""
    model, four = ("qwen3-30b-a3b", "h100-sxm", "sglang-0.5"), Layout(dp=4, ep=4)
    ranks, one = deploy(*model, four), deploy(*model, Layout(tp=4, ep=4))
    assert ranks.max_num_batched_tokens == one.max_num_batched_tokens == 8_192
    assert ranks.engine.rank_tokens(ranks.hardware, 4) == 2_048
    asked = deploy(
        "qwen3-30b-a3b", "h100-sxm", "sglang-0.5", Layout(dp=4, ep=4), Settings(max_num_batched_tokens=4_096)
    )
    assert asked.max_num_batched_tokens == 16_384
    ratios = [(each.first_ratio, each.least_ratio) for each in map(limits, (one, ranks))]
    assert ratios == [(0.7, 0.098), (pytest.approx(0.21), pytest.approx(0.0294))]
    assert deploy("qwen3-30b-a3b", "h100-sxm", "vllm", four).max_num_batched_tokens == 4 * 8_192
