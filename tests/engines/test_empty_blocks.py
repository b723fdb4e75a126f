"""Blocks of AITER's decode attention in SGLang behind the ends of sequences (EmptyBlocks)."""

import numpy as np
import pytest

from simulator.deployment.deployment import deploy
from simulator.deployment.settings import Settings
from simulator.models.layout import Layout
from simulator.models.operations import Counts
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
