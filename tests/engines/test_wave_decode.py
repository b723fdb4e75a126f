"""TensorRT-LLM's decode attention on data-center Blackwell: one wave of blocks, by the longest sequence of a batch."""

import numpy as np
import pytest

from simulator.deployment.deployment import deploy
from simulator.engines.engine import load_engine
from simulator.engines.wave_decode import WaveDecode
from simulator.hardware.hardware import load_hardware
from simulator.models.layout import Layout
from simulator.models.operations import Counts, Op
from simulator.roofline.step_model import StepTable
from simulator.simulation.engine_loop import simulate
from simulator.workloads.workload import Requests
from tests.support.queues import ONE_AT_A_TIME

B200 = load_hardware("b200-sxm")
PROCESSORS = 148
KERNEL = WaveDecode(families=("blackwell",))
LIMITS = ONE_AT_A_TIME._replace(max_num_seqs=8, max_num_batched_tokens=64, num_blocks=64)


def op(group: int, kv_heads: int) -> Op:
    return Op("", "decode_attention", heads=group * kv_heads, shared_by=group)


@pytest.mark.parametrize(("sequences", "parts"), [(1, 18), (4, 4), (9, 2), (10, 1), (18, 1)])
def test_a_wave_of_blocks_is_never_exceeded(sequences, parts):
    """Eight KV heads of each sequence, split alike, as often as 148 multiprocessors hold them all."""
    slower = KERNEL.slowdown(B200, op(8, 8), Counts(1.0, float(sequences)))
    assert float(slower) == pytest.approx(PROCESSORS / (sequences * 8 * parts))


@pytest.mark.parametrize(
    ("group", "cost"), [(1, 1.0), (8, 1.0), (12, 1.2), (16, 1.2), (17, 1.48), (64, 1.68), (200, 2.2)]
)
def test_more_query_heads_take_a_wider_tile_that_costs_more(group, cost):
    many = Counts(1.0, 1000.0)
    assert float(KERNEL.slowdown(B200, op(group, 1), many)) == cost
    assert float(KERNEL.slowdown(B200, op(group, 1), Counts(1.0))) == cost  # a slope of a table


@pytest.mark.parametrize(("device", "runs"), [("b200-sxm", True), ("h100-sxm", False), ("rtx-pro-6000-server", False)])
def test_it_runs_on_data_center_blackwell_alone_and_not_for_latent_attention(device, runs):
    hardware = load_hardware(device)
    rules = load_engine("vllm-0.14").kernels_on(hardware).rules
    holds = [rules.wave_decode is not None and rules.wave_decode.holds(hardware, each) for each in (op(8, 1),)]
    assert holds == [runs]
    assert not KERNEL.holds(B200, Op("", "decode_attention", latent_heads=16.0))


@pytest.mark.parametrize("sequences", [1, 3, 18, 40, 200])
def test_a_table_takes_as_long_for_equal_sequences_as_the_ops(sequences):
    """One KV head on a device of eight; what the longest of them takes is what all take together."""
    deployment = deploy("llama-3.1-70b", "b200-sxm", "vllm-0.14", layout=Layout(tp=8))
    model, length = deployment.step_model(), 9000.0
    counts = Counts(1.0, float(sequences), float(sequences), decode_reads=sequences * length)
    attention = next(each for each in model.ops if each.name == "decode attention")
    by_ops = float(model.once(attention, counts)) * attention.repeats
    start_s = float(model.once(attention, Counts(1.0, float(sequences)))) * attention.repeats
    table = deployment.step_table()
    fewer = max(1, PROCESSORS) / max(1, PROCESSORS // sequences)
    by_table = max(table.slopes[0] * counts.decode_reads, table.lone_s[0] * length * fewer)
    assert table.lone_parts == PROCESSORS
    assert by_table == pytest.approx(by_ops - start_s, rel=0.02)


def test_triton_takes_its_place_where_it_is_asked_for():
    sglang = load_engine("sglang-0.5.10")
    assert sglang.kernels_on(B200).rules.wave_decode
    assert not sglang.with_settings({"attention_backend": "triton"}).kernels_on(B200).rules.wave_decode


def test_sequences_share_the_parts_of_one_that_is_alone():
    """Three parts alone and one beside another: each of two steps takes three times the longest sequence's tokens."""
    slopes = np.array([1.0, 0, 0, 0, 0])
    table = StepTable(np.zeros(64), np.zeros(9), slopes, lone_s=np.array([1.5, 0.0, 0.0, 0.0]), lone_parts=3.0)
    alone = simulate(LIMITS, table, Requests(np.zeros(1), np.array([4]), np.array([3])))
    assert alone.finished_s[0] == 1.5 * (5 + 6)
    both = simulate(LIMITS, table, Requests(np.zeros(2), np.array([4, 6]), np.array([3, 3])))
    assert both.finished_s.max() == 3 * 1.5 * (7 + 8)


def test_a_slower_table_has_as_many_parts():
    table = deploy("llama-3.1-70b", "b200-sxm", "vllm-0.14", layout=Layout(tp=8)).step_table()
    assert table.times(2.0).lone_parts == table.lone_parts
    assert table.times(2.0).lone_s[0] == 2.0 * table.lone_s[0]


def test_other_kernels_have_no_parts_to_share():
    assert deploy("llama-3.1-8b", "h100-sxm", "vllm-0.14").step_table().lone_parts == 0.0
    assert np.all(deploy("llama-3.1-8b", "h100-sxm", "vllm-0.14").step_table().lone_s == 0.0)
