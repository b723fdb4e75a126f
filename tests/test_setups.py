"""Published setups: how layouts are read, what their scripts set, pipelines under load."""

import math

import pytest

from simulator.limits import limits
from simulator.loads import workload_of
from simulator.measurements import Setup
from simulator.prediction import outcome
from simulator.recipes import BENCH_REQUESTS, request_count
from simulator.setups import place
from simulator.simulate import simulate
from simulator.work import Counts

MOE = {"model": "Qwen3-30B-A3B", "weight_dtype": "nvfp4", "hardware": "RTX PRO 6000 Blackwell"}
BENCH = {"engine": "TensorRT-LLM", "engine_version": "1.0", "load": "max throughput (all requests queued)"}
COPIED = "trtllm-bench throughput; MoE run with attention_dp enabled"


def setup(**changed: object) -> Setup:
    stated = {name: 0 if kind in ("int", "float", int, float) else "" for name, kind in Setup.__annotations__.items()}
    stated |= {"hardware": "H100 SXM 80GB", "devices": 1, "model": "Llama-3.1-8B", "engine": "vLLM"}
    stated |= {"engine_version": "0.12.0", "input_tokens": 512.0, "output_tokens": 64.0, "concurrency": 32}
    return Setup(**{**stated, "load": "closed-loop concurrency", **changed})  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------ layouts


@pytest.mark.parametrize(
    ("stated", "degrees", "copies"),
    [
        ({"devices": 8, "tp": 1, "dp": 8, "ep": 8}, (1, 1, 8, 8), 1),
        ({"devices": 4, "tp": 2, "dp": 2, "ep": 4}, (2, 1, 2, 4), 1),
        ({"devices": 8, "tp": 1, "dp": 4, "ep": 1}, (1, 1, 4, 4), 2),  # expert degrees that are no Layout's
        ({"devices": 4, "tp": 1, "dp": 8, "ep": 8}, (1, 1, 4, 4), 1),  # no more ranks than devices
        ({"devices": 4, "tp": 1, "pp": 2, "dp": 2, "ep": 2}, (1, 2, 2, 2), 1),
        ({"devices": 4, "tp": 4, "dp": 1, "notes": COPIED}, (1, 1, 4, 4), 1),
        ({"devices": 8, "tp": 2, "pp": 4, "dp": 1, "notes": COPIED}, (1, 4, 2, 2), 1),
        ({"devices": 1, "tp": 1, "dp": 1, "notes": COPIED}, (1, 1, 1, 1), 1),
        ({"devices": 4, "tp": 4, "ep": 4}, (4, 1, 1, 4), 1),
        ({"devices": 4, "tp": 2, "ep": 2}, (4, 1, 1, 4), 1),  # two degrees of one group
        ({"devices": 8, "tp": 2, "ep": 2, "dp": 1}, (2, 1, 1, 2), 4),
    ],
)
def test_attention_ranks_and_experts_lie_as_stated(stated, degrees, copies):
    placed = place(setup(**MOE, **BENCH, **stated))
    layout = placed.deployment.layout
    assert (layout.tp, layout.pp, layout.dp, layout.ep) == degrees
    assert placed.copies == copies


def test_ranks_of_a_dense_model_are_copies():
    placed = place(setup(devices=8, tp=2, dp=4))
    assert (placed.deployment.layout.tp, placed.deployment.layout.dp, placed.copies) == (2, 1, 4)


def test_nvidias_deepseek_entries_to_mlperf_have_eight_ranks():
    row = {"model": "DeepSeek-R1", "hardware": "GB200 NVL72", "engine": "TensorRT 10.11", "weight_dtype": "fp4"}
    placed = place(setup(**row, devices=72, load="MLPerf Offline", output_tokens=3700.0))
    assert (placed.deployment.layout.dp, placed.deployment.layout.ep, placed.copies) == (8, 8, 9)
    assert placed.deployment.max_num_seqs == 8 * 512


# ------------------------------------------------------------------------------------------------------------ recipes


def test_limits_of_trtllm_bench_by_hand():
    """Llama-3.1-8B in fp8 keeps 65,536 bytes a token: 0.9 of what 8 GB of weights leave, over 2,000 tokens each."""
    given = setup(**BENCH | {"notes": "trtllm-bench"}, weight_dtype="fp8", input_tokens=1000.0, output_tokens=1000.0)
    deployment = place(given).deployment
    weights = deployment.layout.weight_bytes(deployment.model.weights())
    fitting = 0.9 * (deployment.hardware.memory_bytes - weights) / (65_536 * 2_000)
    assert 256 < fitting < 1024
    assert deployment.max_num_seqs == 128 * math.ceil(fitting / 128)
    assert deployment.max_num_batched_tokens == 2048
    short = place(
        setup(**BENCH | {"notes": "trtllm-bench"}, weight_dtype="fp8", input_tokens=128.0, output_tokens=128.0)
    )
    assert short.deployment.max_num_seqs == 4096
    assert short.deployment.max_num_batched_tokens == 8192
    long = place(setup(**BENCH | {"notes": "trtllm-bench"}, weight_dtype="fp8", input_tokens=20e3, output_tokens=2e3))
    assert long.deployment.max_num_seqs == 64
    assert long.deployment.max_num_batched_tokens == 20_064  # without chunks a step takes a whole prompt


def test_limits_that_a_setup_states_come_before_those_of_scripts():
    stated = "trtllm-bench; max_num_seqs 100; max_num_batched_tokens 5000"
    deployment = place(setup(**BENCH, notes=stated)).deployment
    assert (deployment.max_num_seqs, deployment.max_num_batched_tokens) == (100, 5000)


def test_the_number_of_requests_follows_the_lengths():
    given = {**BENCH, "input_tokens": 128.0, "output_tokens": 128.0, "concurrency": 0}
    assert request_count(setup(**given)) == BENCH_REQUESTS[128, 128] == 30_000
    assert request_count(setup(**{**given, "notes": "2000 requests fixed ISL/OSL"})) == 2_000
    assert request_count(setup(**{**given, "engine": "vLLM"})) is None
    assert request_count(setup(**{**given, "input_tokens": 129.0})) is None


def test_the_cache_of_gpt_oss_is_as_wide_as_its_activations_on_hopper():
    given = {**BENCH, "notes": "trtllm-bench", "model": "gpt-oss-20b", "weight_dtype": "mxfp4", "cache_dtype": "fp8"}
    assert place(setup(**given)).deployment.layout.cache_dtype == "bf16"
    assert place(setup(**{**given, "hardware": "GB200 NVL72"})).deployment.layout.cache_dtype == "fp8"


# ---------------------------------------------------------------------------------------------------------- pipelines


def test_stages_work_on_batches_of_their_own():
    """One batch after the other would leave three of four stages idle; four batches fill them, but for the weights."""
    given = setup(devices=4, tp=1, pp=4, concurrency=256)
    deployment = place(given).deployment
    requests = workload_of(given, deployment, 1).requests()
    alone = simulate(limits(deployment, requests), deployment.step_table(), requests)
    alone_per_s = float(requests.output_tokens.sum() / alone.end_s)
    assert 1.8 < outcome(given).output_tokens_per_s / alone_per_s < 4.0


# -------------------------------------------------------------------------------------------------------- host of ranks


def test_each_rank_handles_its_own_sequences():
    given = {**MOE, **BENCH, "devices": 4, "tp": 1, "ep": 4}
    ranks, alone = place(setup(**given, dp=4)).deployment, place(setup(**given, dp=1)).deployment
    batch = Counts(1.0, 256.0, 256.0)
    host_s = [float(each.step_model().explain(batch)[-1].seconds) for each in (ranks, alone)]
    overheads = alone.engine.overheads
    assert host_s[1] == pytest.approx(overheads.step_s + 256 * overheads.sequence_s)
    assert host_s[0] == pytest.approx(overheads.step_s + 64 * overheads.sequence_s)
