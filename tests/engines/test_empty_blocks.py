"""Blocks of AITER's decode attention in SGLang behind the ends of sequences (EmptyBlocks)."""

import numpy as np
import pytest

from simulator.deployment.deployment import deploy
from simulator.deployment.settings import Settings
from simulator.engines.engine import load_engine
from simulator.hardware.hardware import load_hardware
from simulator.models.layout import Layout
from simulator.models.operations import Counts, Op
from simulator.roofline.step_model import StepTable
from simulator.simulation.engine_loop import simulate
from simulator.workloads.workload import Requests
from tests.support.queues import ONE_AT_A_TIME

BLOCK_S = 0.476e-9
LIMITS = ONE_AT_A_TIME._replace(max_num_seqs=8, max_num_batched_tokens=64, num_blocks=64)


def read_s(context: int, sequences: float, tokens: float, **layout) -> float:
    """Seconds that decode attention of Llama-3.1-8B reads on an MI300X, without its start."""
    found = deploy("llama-3.1-8b", "mi300x", "sglang-0.5", Layout(**layout), settings=Settings(max_model_len=context))
    reads = Counts(1.0, sequences, sequences, decode_reads=sequences * tokens)
    costs = [each for each in found.step_model().explain(reads) if each.name == "decode attention"]
    return sum(float(each.memory_s) for each in costs)


def test_attention_takes_no_less_than_its_blocks_take_to_be_sent_off():
    """Eight KV heads of 32 layers, 512 parts of 256 tokens in a context of 131,072; four heads with tp 2."""
    assert read_s(131_072, 100.0, 100.0) == pytest.approx(32 * 100 * 8 * 512 * BLOCK_S)
    assert read_s(131_072, 100.0, 100.0, tp=2) == pytest.approx(32 * 100 * 4 * 512 * BLOCK_S)
    assert read_s(8_192, 100.0, 4_000.0) == pytest.approx(read_s(131_072, 100.0, 4_000.0))  # reading takes longer
    assert read_s(8_192, 100.0, 100.0) < read_s(131_072, 100.0, 100.0) / 4


@pytest.mark.parametrize(
    ("model", "device", "engine"),
    [
        ("llama-3.1-8b", "h100-sxm", "sglang-0.5"),
        ("llama-3.1-8b", "mi300x", "vllm-0.19"),
        ("kimi-linear-48b-a3b", "mi300x", "sglang-0.5"),  # latent
        ("gemma-4-31b", "mi300x", "sglang-0.5"),  # Triton's attention
    ],
)
def test_other_kernels_have_no_such_blocks(model: str, device: str, engine: str):
    assert deploy(model, device, engine).step_table().lone_s[2:].tolist() == [0.0, 0.0]


def test_a_step_of_the_event_loop_waits_for_them_too():
    table = deploy("llama-3.1-8b", "mi300x", "sglang-0.5").step_table()
    assert table.lone_s[2] == pytest.approx(32 * 8 * 512 * BLOCK_S)
    alone = StepTable(np.zeros(64), np.zeros(9), np.array([1.0, 0, 0, 0, 0]), lone_s=np.array([0.0, 0.0, 40.0, 0.0]))
    both = Requests(np.zeros(2), np.array([4, 6]), np.array([3, 3]))
    assert simulate(LIMITS, alone, both).finished_s.max() == 2 * 2 * 40.0
    alone.lone_s[2] = 6.5
    assert simulate(LIMITS, alone, both).finished_s.max() == 13.0 + 14.0  # they read 12 and 14 tokens


RULE = load_engine("sglang").kernels_on(load_hardware("mi300x")).rules.empty_blocks
ONE_HEAD = Op("", "decode_attention", heads=1, shared_by=1)


@pytest.mark.parametrize(
    ("device", "op", "holds"),
    [
        ("mi300x", ONE_HEAD, True),
        ("h100-sxm", ONE_HEAD, False),
        ("mi300x", Op("", "decode_attention"), False),  # no head attends
        ("mi300x", Op("", "decode_attention", heads=1, latent_heads=1), False),
    ],
)
def test_it_holds_of_heads_that_are_not_latent_on_its_devices(device: str, op: Op, holds: bool):
    assert RULE.holds(load_hardware(device), op) is holds


def test_sequences_that_read_the_cache_have_blocks_and_prompts_have_none():
    """256 tokens a part: one KV head and a context of 512 tokens launch two blocks a sequence."""

    def blocks(**counts: float) -> float:
        return float(RULE.seconds(ONE_HEAD, Counts(1.0, **counts), 512)) / BLOCK_S

    assert blocks(tokens=110.0, prefill_tokens=100.0, decode_reads=1.0) == pytest.approx(20.0)
    assert blocks(tokens=10.0, decode_reads_windowed=1.0) == pytest.approx(20.0)
    assert blocks(tokens=10.0, decode_reads=5.0, decode_reads_windowed=5.0) == pytest.approx(20.0)
    assert blocks(tokens=10.0) == 0.0
