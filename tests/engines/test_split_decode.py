"""Decode attention in Triton: a sequence alone has few blocks of threads, and each reads at its own pace."""

import numpy as np
import pytest

from simulator.deployment.deployment import deploy
from simulator.deployment.settings import Settings
from simulator.engines.engine import load_engine
from simulator.errors import InfercastError, NotModelledError
from simulator.hardware.hardware import load_hardware
from simulator.models.layout import Layout
from simulator.models.operations import Counts, Op
from simulator.roofline.decode_attention import DecodeAttentionRates
from simulator.roofline.step_model import StepTable
from simulator.simulation.engine_loop import simulate
from simulator.workloads.workload import Requests
from tests.support.commands import answer
from tests.support.queues import ONE_AT_A_TIME

TRITON = Settings(changes=("attention_backend=triton",))
BLOCK = 5.2e9  # bytes/s
LLAMA = 32 * 4096.0  # bytes of a cached token, in 16 bits
GLM = 47 * 1152.0
LIMITS = ONE_AT_A_TIME._replace(max_num_seqs=8, max_num_batched_tokens=64, num_blocks=64)


def lone_and_many(model: str, hardware: str, settings: Settings = Settings(), **layout: int) -> tuple[float, float]:
    """Seconds for each token that a lone sequence reads, and of one of many that share the device."""
    table = deploy(model, hardware, "sglang", Layout(**layout) if layout else None, settings).step_table()
    return float(table.lone_s[0]), float(table.slopes[0])


def test_a_lone_sequence_has_eight_parts_for_each_kv_head_and_many_fill_two_blocks_a_multiprocessor():
    lone_s, many_s = lone_and_many("llama-3.1-8b", "h100-sxm", TRITON)
    assert lone_s == pytest.approx(LLAMA / (8 * 8 * BLOCK), rel=1e-3)
    assert many_s == pytest.approx(LLAMA / (132 * 2 * BLOCK), rel=1e-6)
    assert lone_and_many("llama-3.1-8b", "h100-sxm")[0] == 0.0


def test_sixteen_heads_of_latent_attention_are_a_block_and_the_next_ones_read_again():
    """GLM-4.7-Flash has 20 heads on one device, and 10 on each of two."""
    lone_s, many_s = lone_and_many("glm-4.7-flash", "b200-sxm", TRITON)
    assert lone_s == pytest.approx(2 * GLM / (2 * 8 * BLOCK), rel=1e-3)
    assert many_s == pytest.approx(2 * GLM / (148 * 2 * BLOCK), rel=1e-6)
    assert lone_and_many("glm-4.7-flash", "b200-sxm", TRITON, tp=2)[0] == pytest.approx(GLM / (8 * BLOCK), rel=1e-3)


def test_a_rank_reads_its_share_of_the_sequences_as_often_as_one_device_reads_all():
    """Each of two ranks has all 20 heads, two blocks of them, and reads half of the sequences."""
    of_rank, of_one = (lone_and_many("glm-4.7-flash", "b200-sxm", TRITON, **each) for each in ({"dp": 2, "ep": 2}, {}))
    assert of_rank[1] == pytest.approx(of_one[1] / 2, rel=1e-6)


@pytest.mark.parametrize(("hardware", "runs"), [("rtx-4090", True), ("a100-sxm-80", True), ("h100-sxm", False)])
def test_latent_attention_runs_in_it_where_the_engine_has_no_other_kernel(hardware, runs):
    assert (lone_and_many("glm-4.7-flash", hardware)[0] > 0) == runs


@pytest.mark.parametrize(
    ("engine", "hardware", "parts"),
    [
        ("vllm-0.8", "rtx-5090", 4),
        ("vllm-0.14", "a100-sxm-80", 4),
        ("vllm-0.14", "h100-sxm", 0),
        ("vllm", "rtx-5090", 0),
    ],
)
def test_vllm_gave_a_sequence_four_parts_until_it_filled_the_device(engine, hardware, parts):
    """20 heads are two blocks; where there is no such kernel, nothing bounds a lone sequence."""
    lone_s = float(deploy("glm-4.7-flash", hardware, engine).step_table().lone_s[0])
    assert lone_s == pytest.approx(2 * GLM / (2 * parts * BLOCK) if parts else 0.0, rel=1e-3)


def test_a_step_that_a_prompt_shares_has_the_blocks_of_its_decodes_alone():
    """Two sequences of 8 parts for each of 8 KV heads, and 500 tokens of a prompt, which another kernel attends to."""
    h100 = load_hardware("h100-sxm")
    triton = load_engine("sglang").kernels_on(h100).rules.split_decode
    read = Op("", "decode_attention", cache_bytes=Counts(decode_reads=4096.0), heads=32, shared_by=4)
    mixed = Counts(steps=1.0, tokens=502.0, logits=3.0, decode_reads=2000.0, prefill_tokens=500.0)
    assert triton.seconds(h100, read, mixed) == pytest.approx(2000 * 4096 / (2 * 8 * 8 * BLOCK))


def test_it_runs_in_attention_alone_and_unasked_in_latent_attention_alone():
    a100 = load_hardware("a100-sxm-80")
    triton = load_engine("sglang").kernels_on(a100).rules.split_decode
    state, one, latent = (Op("", "decode_attention", **heads) for heads in ({}, {"heads": 1.0}, {"latent_heads": 1.0}))
    assert [triton.holds(a100, op) for op in (state, one, latent)] == [False, False, True]
    assert [triton.asked().holds(a100, op) for op in (state, one, latent)] == [False, True, True]


def test_a_device_of_unknown_multiprocessors_is_not_slowed_down():
    assert load_hardware("gtx-1660").multiprocessors is None
    assert lone_and_many("qwen3-4b", "gtx-1660", TRITON)[0] == 0.0


@pytest.mark.parametrize("sequences", [1, 3, 16, 200])
def test_a_step_of_the_event_loop_takes_what_its_ops_take(sequences):
    deployment = deploy("glm-4.7-flash", "b200-sxm", "sglang", settings=TRITON)
    counts = Counts(1.0, sequences, sequences, decode_reads=700.0 * sequences, decode_reads_windowed=700.0 * sequences)
    table = deployment.step_table()
    reads_s = max(table.slopes[0] * counts.decode_reads, table.lone_s[0] * 700.0)
    by_table = table.token_s[sequences] + table.logit_s[sequences] + reads_s
    assert by_table == pytest.approx(float(deployment.step_model().seconds(counts)), rel=1e-3)


def test_a_batch_alone_and_a_closed_loop_of_one_agree():
    asked = ("--model", "llama-3.1-8b", "--hardware", "h100-sxm", "--engine", "sglang", "--isl", "8192", "--osl", "64")
    triton = (*asked, "--set", "attention_backend=triton")
    (alone,) = answer("estimate", *triton)["estimates"]
    (loop,) = answer("simulate", *triton, "--max-concurrency", "1", "--num-prompts", "3")["simulations"]
    assert loop["mean_tpot_ms"] == pytest.approx(1e3 * alone["tpot_s"], rel=0.01)


def test_reads_take_the_longer_of_all_together_and_each_alone():
    """Prompts of 4 and 6 tokens, then two steps that decode both: reads of 12 and 14 tokens, half of it each."""
    table = StepTable(np.zeros(64), np.zeros(9), np.array([1.0, 0, 0, 0, 0]), lone_s=np.array([1.5, 0.0, 0.0, 0.0]))
    alone = simulate(LIMITS, table, Requests(np.zeros(1), np.array([4]), np.array([3])))
    assert alone.finished_s[0] == 1.5 * (5 + 6)
    both = simulate(LIMITS, table, Requests(np.zeros(2), np.array([4, 6]), np.array([3, 3])))
    assert both.finished_s.max() == 1.0 * (12 + 14)


def test_the_longest_sequence_of_a_batch_takes_as_long_as_alone():
    """Its parts are those of the batch (get_num_kv_splits_triton of 0.5.9): shorter ones have fewer of one size."""
    table = StepTable(np.zeros(64), np.zeros(9), np.array([1.0, 0, 0, 0, 0]), lone_s=np.array([1.5, 0.0, 0.0, 0.0]))
    apart = simulate(LIMITS, table, Requests(np.zeros(2), np.array([4, 20]), np.array([3, 3])))
    assert apart.finished_s.max() == 1.5 * (21 + 22)
    later = simulate(LIMITS, table, Requests(np.array([0.0, 1000.0]), np.array([4, 2]), np.array([12, 3])))
    assert later.finished_s.max() == 1000 + 1.5 * (3 + 4)


def test_it_is_known_of_sglang_alone():
    with pytest.raises(NotModelledError, match="SGLang"):
        deploy("llama-3.1-8b", "h100-sxm", "tensorrt-llm", settings=TRITON)
    with pytest.raises(InfercastError, match="rocm_attn"):
        deploy("llama-3.1-8b", "h100-sxm", "vllm", settings=TRITON)


def test_prompts_run_in_triton_where_it_is_asked_for_and_was_timed():
    """An H200 takes 2.87 ms for 8,192 tokens of 32 heads of 128 (sgl-project/sglang pull request 22350)."""
    found = deploy("llama-3.1-8b", "h200-sxm", "sglang", None, TRITON)
    prompt = Counts(1.0, 8192.0, 1.0, prefill_tokens=8192.0, prefill_pairs=8192 * 8193 / 2)
    attention = next(op for op in found.ops if op.rate == "prefill_attention")
    taken_s = float(found.step_model()._time(attention, prompt).seconds) / 32
    assert taken_s == pytest.approx(2.87e-3, rel=0.01)
    own_s = float(deploy("llama-3.1-8b", "h200-sxm", "sglang").step_model()._time(attention, prompt).seconds) / 32
    assert own_s < taken_s / 2
    cards = [deploy("llama-3.1-8b", "rtx-5090", "sglang", None, each).step_model() for each in (TRITON, Settings())]
    asked_s, usual_s = (float(each._time(attention, prompt).seconds) for each in cards)
    assert asked_s == usual_s


def test_triton_reads_copies_of_queries_and_latent_vectors():
    """Two kernels in a layer of GLM-4.7-Flash, beside what attention takes to start elsewhere."""
    starts_s = []
    for settings in (TRITON, Settings()):
        found = deploy("glm-4.7-flash", "b200-sxm", "sglang", None, settings)
        attention = next(op for op in found.ops if op.rate == "decode_attention")
        starts_s.append(float(found.step_model().once(attention, Counts(1.0, 1.0, 1.0))))
    each_s = float(found.hardware.achievable.elementwise_launch_s) * float(found.kernels.fitted.launch)
    assert starts_s[0] - starts_s[1] == pytest.approx(2 * each_s)


def kernel_of(model: str, hardware: str, engine: str, **layout: int) -> list[str]:
    """Which kernel decode attention of each kind of layer runs in."""
    made = deploy(model, hardware, engine, Layout(**layout) if layout else None)
    triton = made.engine.kernels_on(made.hardware).rules.split_decode
    ops = [op for op in made.ops if op.rate == "decode_attention"]
    return ["triton" if triton.holds(made.hardware, op) else "own" for op in ops]


@pytest.mark.parametrize(("tp", "kernel"), [(1, "own"), (2, "triton"), (8, "own")])
def test_latent_attention_on_instinct_is_aiters_with_16_or_128_heads_a_rank_in_sglang(tp, kernel):
    """sglang srt/server_args.py: `head_num == 128 or head_num == 16`."""
    assert set(kernel_of("deepseek-v3", "mi300x", "sglang", tp=tp)) == {kernel}


@pytest.mark.parametrize("engine", ["sglang-0.5", "sglang-0.5.10", "sglang-0.5.15"])
@pytest.mark.parametrize(("device", "kernel"), [("mi300x", "triton"), ("h200-sxm", "own")])
def test_gemma_4_on_instinct_runs_in_triton_unasked_in_sglang(engine: str, device: str, kernel: str):
    """sglang 0.5.15 srt/arg_groups/overrides.py, _gemma4_overrides; Gemma 3 and others have the usual kernel."""
    for model, expected in (("gemma-4-31b", kernel), ("gemma-3-27b", "own")):
        made = deploy(model, device, engine)
        triton = made.kernels.rules.split_decode
        ops = [op for op in made.ops if op.rate == "decode_attention"]
        assert {"triton" if triton.holds(made.hardware, op) else "own" for op in ops} == {expected}
        assert (triton.prompts(made.hardware) is not None) == (expected == "triton")


def test_many_blocks_on_instinct_read_what_was_measured_together():
    """2.2 TB/s of an MI355X, 2.3 of an MI325X (preset, triton-blocks), within a tenth."""
    read = Op("", "decode_attention", cache_bytes=Counts(decode_reads=1024.0), heads=8, shared_by=1)
    many = Counts(steps=1.0, tokens=512.0, decode_reads=512.0 * 1000.0)
    for device, measured in (("mi355x", 2.2e12), ("mi325x", 2.3e12)):
        triton = load_engine("sglang").kernels_on(load_hardware(device)).rules.split_decode
        taken_s = float(triton.seconds(load_hardware(device), read, many))
        assert 1024.0 * 512_000.0 / taken_s == pytest.approx(measured, rel=0.1)


@pytest.mark.parametrize(
    ("engine", "model", "kernels"),
    [
        ("vllm-0.14", "llama-3.1-8b", {"triton"}),
        ("vllm-0.19", "llama-3.1-8b", {"own"}),
        ("vllm-0.19", "gemma-2-9b", {"triton"}),  # heads of 256
        ("vllm-0.19", "gpt-oss-20b", {"own", "triton"}),  # heads of 64, with a window and without
        ("vllm-0.19", "deepseek-v2-lite", {"triton"}),
    ],
)
def test_vllm_on_instinct_has_a_hip_kernel_since_0_19_for_heads_of_64_and_128_without_a_window(engine, model, kernels):
    assert set(kernel_of(model, "mi300x", engine)) == kernels


def test_a_lone_sequence_of_wide_heads_on_instinct_has_one_block_for_each_kv_head():
    lone_s = float(deploy("gemma-2-9b", "mi300x", "vllm-0.19").step_table().lone_s[0])
    assert lone_s == pytest.approx(21 * 2 * 2 * 256 / BLOCK, rel=1e-3)  # 21 layers without a window, each head alone


def test_latent_attention_has_parts_and_a_share_of_the_bandwidth_of_its_own():
    """Four parts in TRITON_MLA, where other attention has 16; 0.7 of the bandwidth in AITER's kernels."""
    mi300x = load_hardware("mi300x")
    triton = load_engine("vllm-0.14").kernels_on(mi300x).rules.split_decode
    read = Op("", "decode_attention", cache_bytes=Counts(decode_reads=1152.0), latent_heads=16, shared_by=16)
    lone = Counts(steps=1.0, tokens=1.0, decode_reads=1.0)
    assert triton.seconds(mi300x, read, lone) == pytest.approx(1152 / (4 * BLOCK))
    own = DecodeAttentionRates(load_engine("sglang").kernels_on(mi300x), 4096)
    assert own.seconds(read, lone, 1e15).memory_s == pytest.approx(1152 / (0.7 * 5.3e12))


def test_who_asks_for_the_hip_kernel_of_vllm_has_it_before_0_19_and_latent_attention_stays_in_triton():
    asked = Settings(changes=("attention_backend=rocm_attn",))
    assert deploy("llama-3.1-8b", "mi300x", "vllm-0.14").step_table().lone_s[0] > 0
    assert deploy("llama-3.1-8b", "mi300x", "vllm-0.14", settings=asked).step_table().lone_s[0] == 0
    assert deploy("deepseek-v2-lite", "mi300x", "vllm-0.14", settings=asked).step_table().lone_s[0] > 0


def prompts_of(model: str, hardware: str, *changes: str) -> tuple[float, float]:
    """FLOPs of a causal pair in all layers' attention of prompts, and its seconds for 8,192 tokens."""
    made = deploy(model, hardware, "sglang", None, Settings(changes=changes))
    prompt = Counts(1.0, 8192.0, 1.0, prefill_tokens=8192.0, prefill_pairs=8192 * 8193 / 2)
    model_of = made.step_model()
    attention = next(op for op in model_of.ops if op.rate == "prefill_attention")
    return float(attention.flops.prefill_pairs), float(model_of.once(attention, prompt))


def test_prompts_behind_a_cached_prefix_attend_to_latent_vectors_in_triton():
    """GLM-4.7-Flash: 20 heads, keys and values of 256 each, latent vectors of 512 and 64 (handle_attention_triton)."""
    of_keys, of_latents = 2.0 * 20 * (256 + 256), 2.0 * 20 * (2 * 512 + 64)
    triton = "attention_backend=triton"
    assert prompts_of("glm-4.7-flash", "b200-sxm", triton)[0] == of_latents
    assert prompts_of("glm-4.7-flash", "a100-sxm-80")[0] == of_latents
    for hardware, changes in (("b200-sxm", (triton, "prefix_caching=false")), ("h100-sxm", ())):
        assert prompts_of("glm-4.7-flash", hardware, *changes)[0] == of_keys


def test_a_tile_of_32_queries_loads_latent_vectors_at_19_gb_s_a_multiprocessor():
    """Pairs x 2 FLOPs a number x 1,088 numbers x 20 heads over 148 multiprocessors x 32 rows x 19 GB/s."""
    of_pair, taken_s = prompts_of("glm-4.7-flash", "b200-sxm", "attention_backend=triton")
    loaded_s = of_pair * 8192 * 8193 / 2 / (148 * 32 * 19e9)
    assert taken_s == pytest.approx(loaded_s, rel=0.03)  # and what short prompts lack
    assert taken_s > loaded_s


def test_states_of_a_recurrence_are_not_kept_for_so_short_a_prefix():
    """Kimi-Linear on Instinct has 8 heads a rank, whose latent attention is Triton's."""
    made = deploy("kimi-linear-48b-a3b", "mi300x", "sglang", Layout(tp=4))
    latent = [op for op in made.step_model().ops if op.rate == "prefill_attention" and op.flops.prefill_pairs]
    assert latent and not any(op.latent_heads for op in latent)
