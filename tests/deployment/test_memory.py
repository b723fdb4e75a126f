"""Memory plans: nothing is lost, nothing is accepted that cannot fit, and every remedy works."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.deployment.batches import Batch
from simulator.deployment.cache_blocks import CacheGroups
from simulator.deployment.deployment import Deployment, deploy
from simulator.deployment.estimate import estimate
from simulator.deployment.layouts import default_layout
from simulator.deployment.memory import MemoryPlan, memory_plan
from simulator.deployment.memory_advice import refuse_misfit, remedies_for
from simulator.deployment.offload import Offload
from simulator.deployment.setting_names import configure
from simulator.deployment.settings import Settings
from simulator.deployment.speculation import Speculation
from simulator.engines.engine import load_engine
from simulator.errors import DoesNotFitError, InfercastError, NotModelledError
from simulator.hardware.hardware import KIND as HARDWARE
from simulator.hardware.hardware import load_hardware
from simulator.models.layout import Layout
from simulator.models.model import KIND as MODELS
from simulator.models.model import load_model
from simulator.profile_folders import names
from simulator.simulation.rejection import Rejected, rejections
from simulator.simulation.scheduler_limits import limits
from simulator.units import GIB, MIB
from simulator.workloads.workload import Requests

ENGINES = ("vllm", "tensorrt-llm", "llama.cpp", "static")


def plan(
    model: str, hardware: str, engine: str = "vllm", settings_: Settings = Settings(), **layout: int
) -> MemoryPlan:
    return memory_plan(deploy(model, hardware, engine, default_layout(load_model(model), **layout), settings_))


# --------------------------------------------------------------------------------------------------------- by hand


def test_vllms_convention_by_hand():
    """0.92 of the total; the sampler's 3.5 fp32 copies of 1,024 rows of 128,256 logits peak above the activations."""
    found = plan("llama-3.1-8b", "h100-sxm")
    total, weights = 79.22 * GIB, 2 * 8_030_261_248
    sampler = 1024 * 128_256 * 4 * 3.5
    assert found.sampler_bytes == sampler
    assert found.workspace_bytes == sampler + 0.76 * GIB
    few = plan("llama-3.1-8b", "h100-sxm", settings_=Settings(max_num_seqs=8))
    assert (found.workspace.peak, few.workspace.peak) == ("sampler", "activations")
    assert found.cache_bytes == pytest.approx(0.92 * total - weights - sampler - (0.15 + 0.76) * GIB - 0.25 * GIB)
    assert found.block_bytes == 16 * 131_072
    assert found.num_blocks == int(found.cache_bytes // found.block_bytes) - 1
    assert found.cache_tokens == 16 * found.num_blocks


def test_tensorrt_llms_buffers_for_each_sequence_are_those_of_its_log():
    """docs/source/performance/perf-benchmarking.md of 0.12: 1.14 GB for runtime buffers and 4.35 GB for the decoder.

    The engine has 4,096 sequences of 4,098 tokens, and by its cache (224 KiB a token) it is GPT-J's, of 50,400 words.
    They are allocated before the memory that is free is measured, beside what the execution context has.
    """
    found = plan("gpt-j-6b", "h100-sxm", "tensorrt-llm-0.11", Settings(max_num_seqs=4096, max_num_batched_tokens=8192))
    assert found.sampler_bytes / GIB == pytest.approx(1.14 + 4.35, abs=0.01)
    assert found.workspace_bytes == found.sampler_bytes + found.activation_bytes


@pytest.mark.parametrize(("engine", "slots"), [("vllm", 1), ("sglang", 8)])
@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (4, 1), (1, 2)])
def test_adapters_have_room_whether_they_are_loaded_or_not(engine, slots, tp, pp):
    """q, o: 4,096 both ways; k, v: 1,024 out; gate, up: 14,336 out; down: 14,336 in. Devices share the wide side."""
    plain = deploy("llama-3.1-8b", "h100-sxm", engine, default_layout(load_model("llama-3.1-8b"), tp=tp, pp=pp))
    adapted = replace(plain, **configure(plain.engine, plain.settings, ["enable_lora=true"])._asdict())
    in_full, shared = 4096 * (3 + 1 + 2 + 1), 4096 + 2 * 1024 + 4096 + 3 * 14_336
    bytes_ = 2 * 16 * slots * 32 / pp * (in_full + shared / tp)
    assert plain.adapter_bytes == 0.0
    assert memory_plan(adapted).weight_bytes - memory_plan(plain).weight_bytes == pytest.approx(bytes_)
    wider = configure(adapted.engine, plain.settings, ["max_loras=3", "max_lora_rank=64"]).engine
    assert replace(adapted, engine=wider).adapter_bytes == pytest.approx(bytes_ * 3 * 64 / (16 * slots))


def test_outputs_of_both_products_of_experts_share_a_buffer():
    """DeepSeek-R1 at tp 8: 8 experts a token, 2 x 256 or 7,168 columns out, 256 between; 16 bits; the residual.

    gpt-oss-20b ran on a card of 16 GB, in vLLM 0.12 with 0.95 of it, steps of 8,192 tokens and 4,096 tokens of cache in
    fp8 (metadata.json of github.com/hholtmann/llm-consumer-gpu-benchmark), although its experts are padded.
    """
    found = plan("deepseek-r1", "b200-sxm", tp=8)
    assert found.activation_bytes == pytest.approx(16_384 * 2 * (8 * (7168 + 256) + 2 * 7168))
    layout = default_layout(load_model("gpt-oss-20b"), dtypes=("", "fp8"))
    chosen = Settings(max_num_seqs=32, max_num_batched_tokens=8192, memory_fraction=0.95)
    small = memory_plan(deploy("gpt-oss-20b", "rtx-5060ti-16gb", "vllm-0.8", layout, chosen))
    assert small.activation_bytes == pytest.approx(8192 * 2 * (4 * (5760 + 2880) + 2 * 2880))
    assert small.max_context_tokens >= 4096
    both = plan("gpt-oss-20b", "h100-sxm", settings_=Settings(max_num_seqs=8, max_num_batched_tokens=8192))
    assert both.activation_bytes == small.activation_bytes  # blocks with a window and without, of the same experts


def test_tensorrt_llms_experts_have_room_for_every_copy_of_every_token_on_each_rank():
    """Qwen3-235B: 8 copies of 4,096 numbers and what a GEMM puts out of them (2 x 1,536 or 4,096), 16 bits each.

    moe_kernels.cu counts in experts_per_token * num_rows, of all ranks; the residual is of a rank's own tokens. gpt-oss
    on Blackwell has kernels that read their inputs where they are: 4 times 2,880 and 2,880 columns, as in vLLM.
    """
    tokens = 8 * 1024
    chosen = Settings(max_num_seqs=64, max_num_batched_tokens=1024)
    found = plan("qwen3-235b-a22b", "h200-sxm", "tensorrt-llm", chosen, dp=8, ep=8)
    assert found.activation_bytes == pytest.approx(tokens * 2 * (8 * (4096 + 4096) + 2 * 4096 / 8))
    gathering = plan("gpt-oss-20b", "b200-sxm", "tensorrt-llm", chosen)
    assert gathering.activation_bytes == pytest.approx(1024 * 2 * (4 * (5760 + 2880) + 2 * 2880))


def test_ranks_of_data_parallel_attention_hold_whole_adapters():
    """Each has all of attention's and of the shared expert's, as one device alone has; experts have none."""
    model = load_model("deepseek-v3")
    alone, ranks = (default_layout(model, dp=each, ep=each) for each in (1, 8))
    engine = load_engine("vllm").model_copy(update={"adapters": True})
    found = [replace(deploy("deepseek-v3", "b200-sxm", layout=each), engine=engine) for each in (alone, ranks)]
    assert found[0].adapter_bytes == found[1].adapter_bytes > 0


def test_ranks_of_data_parallel_attention_hold_whole_sequences():
    """8.61 GiB of cache in each of 16 H100 hold 8,220 blocks of 16 x 576 x 61 numbers of two bytes; one is vLLM's."""
    layout = default_layout(load_model("deepseek-v3"), dp=16, ep=16)
    asked = Settings(memory_fraction=0.85)
    found = memory_plan(deploy("deepseek-v3", "h100-sxm", "vllm-0.33", layout, asked))
    blocks = int(found.cache_bytes // (16 * 576 * 61 * 2))
    assert found.max_context_tokens == (blocks - 1) * 16 == 131_504
    assert (found.sequences(65_536), found.sequences(70_000), found.sequences(163_840)) == (32, 16, 0)
    assert limits(found.deployment).max_model_len == found.max_context_tokens
    with pytest.raises(DoesNotFitError, match="holds 16 such sequences"):
        estimate(found.deployment, Batch(17, 70_000, 100))
    with pytest.raises(DoesNotFitError, match="one sequence of 131,504 tokens"):
        refuse_misfit(memory_plan(replace(found.deployment, settings=replace(asked, max_model_len=163_840))))


def test_tensorrt_llms_convention_by_hand():
    """A step of 8,192 tokens, and beside it what graphs keep: activations and logits, in two types, of 128 rows."""
    found = plan("llama-3.1-8b", "h100-sxm", "tensorrt-llm")
    token = 2 * (3 * 14_336 + 2 * 4096)  # the activation's inputs and outputs, the residual and what is added to it
    free = 79.22 * GIB - 2 * 8_030_261_248 - 1.6 * GIB - (8192 + 128) * token - 128 * 128_256 * (2 + 4)
    assert found.cache_bytes == pytest.approx(0.9 * free)
    assert found.unused_bytes == pytest.approx(0.1 * free)


def test_graphs_keep_a_step_of_their_largest_batch_beside_the_one_that_is_measured():
    layout = default_layout(load_model("qwen3-30b-a3b"), dp=4, ep=4)
    plain = deploy("qwen3-30b-a3b", "h100-sxm", "tensorrt-llm", layout, Settings(max_num_seqs=2048))

    def captured(most: int) -> MemoryPlan:
        given = [f"graph_max_batch_size={most}", "graph_padding=true"]
        return memory_plan(replace(plain, **configure(plain.engine, plain.settings, given)._asdict()))

    few, many = captured(256), captured(512)
    more = 256 * 151_936 * 6 + 4 * 256 * few.activation_bytes / few.deployment.max_num_batched_tokens
    assert many.graph_bytes - few.graph_bytes == pytest.approx(more)
    assert few.workspace == many.workspace
    assert few.sampler_bytes == 0.0
    assert captured(1024).graph_bytes > many.graph_bytes
    assert captured(2048).graph_bytes == plain.engine.memory.graph_bytes  # 4 x 8,192 tokens have 1,024 blocks


def test_sglangs_convention_by_hand():
    """A server of aiconfigurator's: 0.80 of one H100 with Qwen3-32B in 16 bits kept some five requests of 1,280."""
    found = plan("qwen3-32b", "h100-sxm", "sglang", Settings(memory_fraction=0.8))
    assert found.cache_bytes == pytest.approx(0.8 * (79.22 - 0.6) * GIB - found.weight_bytes)
    assert 5 * 1_280 < found.cache_tokens < 6.5 * 1_280
    wide = plan("llama-3.1-8b", "h100-sxm", "sglang", Settings(memory_fraction=1.0))
    assert wide.unused_bytes == pytest.approx(0)  # a step still has its workspace


def test_llama_cpps_convention_by_hand():
    """All that the driver gives is cache; the one slot reserves the model's whole context."""
    found = plan("llama-3.1-8b", "m4-max", "llama.cpp")
    assert found.activation_bytes > found.sampler_bytes
    used = 2 * 8_030_261_248 + found.activation_bytes + 0.5 * GIB
    assert found.cache_bytes == pytest.approx(98_304 * MIB - used)
    assert (found.block_size, found.num_blocks) == (131_072, 1)
    assert found.block_bytes == 131_072 * 131_072
    assert found.unused_bytes == pytest.approx(0)


def test_slots_share_what_fits_or_what_is_asked_for():
    four = plan("llama-3.1-8b", "rtx-4090", "llama.cpp", Settings(max_num_seqs=4))
    assert four.num_blocks == 4
    assert four.block_size == int(four.cache_bytes / 4 // 131_072)  # bytes of a token
    assert (four.concurrency(four.block_size), four.concurrency(four.block_size + 1)) == (4, 0)
    asked = plan("llama-3.1-8b", "rtx-4090", "llama.cpp", Settings(max_num_seqs=4, max_model_len=4096))
    assert (asked.num_blocks, asked.block_size, asked.max_context_tokens) == (4, 4096, 4096)
    paged = load_engine("vllm").model_copy(update={"reservation": "contiguous"})
    many = memory_plan(replace(four.deployment, engine=paged, settings=Settings(max_model_len=1024)))
    assert many.max_num_seqs == many.num_blocks == int(many.cache_bytes // (1024 * 131_072))
    with pytest.raises(DoesNotFitError, match="3 such slots fit"):
        refuse_misfit(plan("llama-3.1-8b", "rtx-4090", "llama.cpp", Settings(max_num_seqs=4, max_model_len=20_000)))


def test_a_slot_of_windowed_layers_holds_their_windows():
    found = plan("gemma-3-27b", "h100-sxm", "llama.cpp", Settings(max_model_len=32_768))
    assert found.block_bytes == load_model("gemma-3-27b").cache_bytes(32_768)


def test_ollama_gives_contexts_by_memory():
    contexts = {
        device: plan("llama-3.1-8b", device, "ollama").block_size for device in ("rtx-4080", "rtx-4090", "l40s")
    }
    assert contexts == {"rtx-4080": 4096, "rtx-4090": 32_768, "l40s": 32_768}  # 48 GB are 44.99 GiB


def test_what_drafts_takes_weights_cache_and_rows_of_the_sampler():
    drafts = Settings(speculation=Speculation("llama-3.2-1b", 3, (0.7,)))
    found, without = plan("llama-3.1-8b", "h100-sxm", "vllm", drafts), plan("llama-3.1-8b", "h100-sxm")
    draft = load_model("llama-3.2-1b")
    assert found.weight_bytes - without.weight_bytes == 2 * draft.parameters
    assert found.block_bytes - without.block_bytes == 16 * draft.cache_bytes(1)
    slot = plan("llama-3.1-8b", "h100-sxm", "llama.cpp", drafts)
    assert slot.block_bytes == slot.block_size * (load_model("llama-3.1-8b").cache_bytes(1) + draft.cache_bytes(1))
    assert found.sampler_bytes == 4 * without.sampler_bytes


def test_what_is_offloaded_makes_room():
    away = 20 * GIB
    found, without = (
        plan("llama-3.1-70b", "h200-sxm", settings_=Settings(offload=Offload(away))),
        plan("llama-3.1-70b", "h200-sxm"),
    )
    assert found.cache_bytes - without.cache_bytes == pytest.approx(away)
    layers = plan("llama-3.1-8b", "rtx-4090", "llama.cpp", Settings(offload=Offload(gpu_layers=8)))
    assert layers.host_weight_bytes == pytest.approx(24 / 32 * 2 * (8_030_261_248 - 2 * 128_256 * 4096 - 4096))
    assert layers.block_bytes == layers.block_size * 131_072 / 4
    with pytest.raises(DoesNotFitError, match="offloaded to xeon-8480"):
        refuse_misfit(plan("deepseek-v3", "h200-sxm", settings_=Settings(offload=Offload(600 * GIB))))
    room = Settings(offload=Offload(cache_bytes=150 * GIB))  # of each device: a host of 256 GB has it for one
    refuse_misfit(plan("llama-3.1-8b", "h200-sxm", settings_=room))
    with pytest.raises(DoesNotFitError, match=r"300\.00 GiB offloaded to xeon-8480"):
        refuse_misfit(plan("llama-3.1-8b", "h200-sxm", settings_=room, tp=2))


def test_a_window_bounds_the_blocks_of_its_layers():
    """Gemma 3 27B: 52 layers see 1,024 tokens, 10 see all, so a group has 10 layers: 1 full and 6 windowed groups."""
    found = plan("gemma-3-27b", "h100-sxm")
    assert found.groups == CacheGroups(layers=10, full=1, windowed=6)
    assert found.block_bytes == 16 * 507_904 * 10 / 62
    assert found.blocks(512) == 7 * 32
    assert found.blocks(16_384) == 1024 + 6 * 65  # ceil(1,024 / 16) + 1: a window need not begin at a block


@pytest.mark.parametrize(("engine", "block_tokens", "share"), [("tensorrt-llm", 32, 1.0), ("sglang", 1, 0.8)])
def test_windowed_layers_keep_a_share_of_the_context(engine, block_tokens, share):
    """gpt-oss 20B: 12 layers with a window of 128 tokens and 12 without, of 8 heads of 64 numbers in 16 bits."""
    found = plan("gpt-oss-20b", "h100-sxm", engine)
    assert found.groups == CacheGroups(layers=12 + share * 12, full=1, windowed=0)
    assert found.block_bytes == pytest.approx(block_tokens * (12 + share * 12) * 2 * 8 * 64 * 2)
    assert found.blocks(16_384) == 16_384 / block_tokens


def test_the_longest_sequence_is_the_longest():
    found = plan("llama-3.1-70b", "h100-sxm", tp=2)
    longest = found.max_context_tokens
    assert longest < 131_072
    assert found.blocks(longest) <= found.num_blocks < found.blocks(longest + 1)
    assert found.concurrency(longest) == pytest.approx(1, abs=0.01)


def test_a_vision_encoder_is_loaded_and_profiled_unless_left_out():
    """SigLIP beside Gemma 3 12B: 421 million numbers in 16 bits; 32 images of 4,096 patches in 8,192 tokens."""
    chosen = Settings(max_num_batched_tokens=8192, max_num_seqs=32)
    found = plan("gemma-3-12b", "rtx-5090", settings_=chosen)
    text = plan("gemma-3-12b", "rtx-5090", settings_=replace(chosen, language_model_only=True))
    assert found.weight_bytes - text.weight_bytes == 2 * 421_290_864
    assert found.workspace_bytes == 32 * 4096 * 2 * (3 * 14 * 14 + 2 * 1152 + 2 * 4304)
    assert found.workspace.peak == "images"
    assert text.workspace_bytes < found.workspace_bytes
    assert plan("gemma-3-12b", "rtx-5090", "llama.cpp").weight_bytes == text.weight_bytes  # its file holds no encoder
    shared = plan("gemma-3-12b", "rtx-5090", settings_=chosen, tp=2)
    assert shared.workspace.image_bytes == 32 * 4096 * 2 * (3 * 14 * 14 + 2 * 1152 + 4304)
    alone, rank = (plan("qwen3-vl-30b-a3b", "h100-sxm", **each).workspace for each in ({}, {"dp": 2, "ep": 2}))
    assert alone.image_bytes == rank.image_bytes > 0  # a rank's encoder has the images of its own tokens


@pytest.mark.parametrize(("engine", "copies"), [("vllm-0.8", 10), ("vllm-0.33", 3.5)])
def test_flashinfers_sampler_holds_no_sorted_vocabulary(engine, copies):
    """Qwen3-8B's 151,936 logits for each of 256 sequences: in 16 bits and, three times, in fp32."""
    own, of_flashinfer = (
        plan("qwen3-8b", "rtx-4090", engine, settings_=Settings(256, flashinfer_sampler=each)) for each in (False, True)
    )
    assert own.sampler_bytes == 256 * 151_936 * 4 * copies
    assert of_flashinfer.sampler_bytes == 256 * 151_936 * (2 + 3 * 4)


@pytest.mark.parametrize(("cache", "tp", "tokens"), [("bf16", 1, 784), ("fp8", 1, 1568), ("bf16", 2, 784)])
def test_states_lie_in_blocks_of_the_cache(cache, tp, tokens):
    """Qwen3.6-27B, 16 attention layers and 48 recurrent ones: vLLM logs blocks of 784 tokens, 1,568 with an fp8 cache.

    A state has 48 x 128 x 128 numbers in fp32 and 3 x 10,240 in 16 bits. 0.69 GiB of cache made 14 blocks, of which one
    request takes 8,624 tokens: 11 blocks, and one of each recurrent group (cloudrift-ai/deplodock, vLLM 0.20).
    """
    model = load_model("qwen3.6-27b")
    layout = default_layout(model, tp=tp, dtypes=("int4", cache))
    found = memory_plan(deploy("qwen3.6-27b", "rtx-4090", "vllm-0.19", layout, Settings(max_num_seqs=16)))
    assert (found.block_size, found.state_bytes) == (tokens, 0)
    assert found.groups == CacheGroups(layers=16, full=1, windowed=0, recurrent=3)
    assert found.block_bytes == tokens * model.cache_bytes(1, layout)
    assert found.blocks(8624) == -(-8624 // tokens) + 3
    assert cache != "bf16" or tp > 1 or int(0.69 * GIB // found.block_bytes) == found.blocks(8624)
    apart = memory_plan(deploy("qwen3.6-27b", "rtx-4090", "sglang", layout, Settings(max_num_seqs=2)))
    assert (apart.groups.recurrent, apart.state_bytes) == (0, model.state_bytes(layout))


@pytest.mark.parametrize(
    ("cached", "max_num_seqs", "each", "release"),
    [
        (True, None, 3, "0.5.10"),
        (True, None, 5, "0.5.15"),
        (True, 4096, 3, "0.5.10"),
        (True, 2, None, "0.5.10"),
        (False, None, 1, "0.5.10"),
        (False, 40, None, "0.5.10"),
    ],
)
def test_sglang_keeps_a_pool_of_states_of_which_a_sequence_takes_several_beside_its_prefix_cache(
    cached, max_num_seqs, each, release
):
    """0.9 of 1.9 parts of the room, or a state for each of --max-running-requests with --disable-radix-cache."""
    chosen = Settings(max_num_seqs=max_num_seqs, changes=(f"disable_radix_cache={not cached}",))
    found = plan("qwen3.5-27b", "h100-sxm", f"sglang-{release}", chosen)
    pool = int(0.9 / 1.9 * (found.cache_bytes + found.state_slots * found.state_bytes) // found.state_bytes)
    assert 40 < pool < 1024
    assert found.state_slots == (pool if cached or max_num_seqs is None else max_num_seqs)
    assert found.max_num_seqs == (pool // each if each else max_num_seqs)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "llama.cpp"])
def test_without_attention_a_block_is_the_states_of_one_sequence_of_any_length(engine: str) -> None:
    """vLLM 0.33.0, models/config.py: MambaModelConfig sets blocks of max_model_len tokens, so each sequence has one."""
    found = plan("mamba-2.8b", "l40s", engine, Settings(max_num_seqs=200))
    number = 4 if engine == "sglang" else 2  # bytes: SGLang keeps states in fp32
    assert found.block_bytes == 64 * (5120 * 16 * number + 3 * 5120 * 2)
    assert (found.state_bytes, found.groups.full, found.groups.limited) == (0, 1, 0)
    assert found.block_size == found.max_context_tokens == 2048
    assert [found.blocks(tokens) for tokens in (1, 16, 2048)] == [1, 1, 1]
    spare = 0 if found.deployment.engine.is_reserved else 1
    assert found.blocks_that_fit == int(found.cache_bytes // found.block_bytes) - spare
    assert found.sequences(2048) == found.sequences(1) == found.num_blocks >= 200


def test_sglang_keeps_states_in_fp32_where_a_model_does_not_say():
    """Qwen3-Next: 36 layers with 32 x 128 x 128 numbers, and 3 x 8,192 inputs of a convolution in 16 bits."""
    kept = {
        each: deploy("qwen3-next-80b-a3b", "b200-sxm", each).device_part.state_bytes() for each in ("sglang", "vllm")
    }
    numbers, inputs = 36 * 32 * 128 * 128, 36 * 3 * 8192
    assert kept == {"sglang": 4 * numbers + 2 * inputs, "vllm": 2 * numbers + 2 * inputs}


def test_experts_in_mxfp4_are_padded_where_kernels_want_it():
    """2,880 columns become 3,072 and 2,944: vLLM loads 65.97 GiB of gpt-oss-120b in Marlin.

    Before 0.33, TensorRT-LLM's kernels on B200 have multiples of 256 both ways there: 360 columns on one of eight are
    512. In TensorRT-LLM itself they have 512 (inputs) and 128 (quantization.py), which makes the same of 2,880; on
    Hopper, in Triton, 128 both ways.
    """
    padded, plain = plan("gpt-oss-120b", "b200-sxm"), plan("gpt-oss-120b", "h100-sxm")
    assert padded.weight_bytes / GIB == pytest.approx(65.97, abs=0.1)
    experts = load_model("gpt-oss-120b").weights().experts
    assert padded.weight_bytes - plain.weight_bytes == pytest.approx(experts * 4.25 / 8 * (3072 * 2944 / 2880**2 - 1))
    assert plan("gpt-oss-120b", "b200-sxm", "tensorrt-llm").weight_bytes == padded.weight_bytes
    in_triton = plan("gpt-oss-120b", "h200-sxm", "tensorrt-llm").weight_bytes - plain.weight_bytes
    assert in_triton == pytest.approx(experts * 4.25 / 8 * (2944 * 2944 / 2880**2 - 1))
    older, of_eight = (plan("gpt-oss-120b", each, "vllm-0.19", tp=8).weight_bytes for each in ("b200-sxm", "h100-sxm"))
    assert older - of_eight == pytest.approx(experts / 8 * 4.25 / 8 * (3072 * 512 / (2880 * 360) - 1))
    for degrees in ({"tp": 2, "ep": 2}, {"pp": 2}):  # whole experts, half of them on each device
        two = [plan("gpt-oss-120b", each, **degrees).weight_bytes for each in ("b200-sxm", "h100-sxm")]
        assert two[0] - two[1] == pytest.approx(experts / 2 * 4.25 / 8 * (3072 * 2944 / 2880**2 - 1))


def test_kernels_read_and_multiply_what_pads_experts():
    """One of eight B200 reads 512 of 360 columns, 3,072 of 2,880, and bytes that light reads are those of the model."""
    of_eight = Layout(8, weight_dtype="mxfp4")
    padded, plain = (deploy("gpt-oss-120b", each, "vllm-0.19", of_eight) for each in ("b200-sxm", "h100-sxm"))
    of_padded, of_plain = (
        next(op for op in each.step_model().ops if op.name == "experts down") for each in (padded, plain)
    )
    growth = 3072 * 512 / (2880 * 360)
    assert of_padded.expert_bytes == pytest.approx(growth * of_plain.expert_bytes)
    assert of_padded.flops.tokens == pytest.approx(growth * of_plain.flops.tokens)
    light = next(op for op in padded.at_light.step_model().ops if op.name == "experts down")
    assert light.expert_bytes == of_plain.expert_bytes
    dense = deploy("llama-3.1-8b", "b200-sxm", "vllm-0.19")
    assert dense.step_model().ops == dense.ops


def test_an_engine_pads_experts_as_the_one_whose_kernels_it_runs():
    made, own = (plan("gpt-oss-120b", "b200-sxm", each) for each in ("tensorrt-pytorch", "tensorrt-llm-1.0"))
    assert made.weight_bytes == own.weight_bytes > plan("gpt-oss-120b", "h200-sxm", "tensorrt-pytorch").weight_bytes


def test_what_vllm_reported_at_its_start():
    """GPU KV cache size: 460,496 tokens of Llama-3.1-8B on one A100 (79.25 GiB), vLLM 0.31, 256 sequences."""
    assert plan("llama-3.1-8b", "a100-sxm-80").cache_tokens == pytest.approx(460_496, rel=0.005)


# ------------------------------------------------------------------------------------------------------------ laws

LAYOUTS = st.fixed_dictionaries({"tp": st.sampled_from([1, 2, 4, 8]), "pp": st.sampled_from([1, 2])})


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(names(MODELS)), st.sampled_from(names(HARDWARE)), st.sampled_from(ENGINES), LAYOUTS,
    st.integers(1, 131_072),
)  # fmt: skip
def test_memory_is_shared_out_to_the_last_byte_and_never_twice(model, hardware, engine, layout, tokens):
    try:
        found = plan(model, hardware, engine, **layout)
    except NotModelledError:  # heads that do not divide, a device on which the engine does not run
        return
    fixed = found.weight_bytes + found.workspace_bytes + found.context_bytes + found.graph_bytes
    fixed += found.state_slots * found.state_bytes
    assert fixed + found.unused_bytes + found.cache_bytes == pytest.approx(found.total_bytes)
    try:
        refuse_misfit(found)
    except DoesNotFitError as error:
        assert found.blocks_that_fit == 0
        assert "leave no cache" in error.because
        return
    assert found.num_blocks >= 1
    spare = 0 if found.deployment.engine.is_reserved else 1
    assert fixed + (found.num_blocks + spare) * found.block_bytes <= found.total_bytes
    assert found.blocks(tokens) <= found.blocks(tokens + 1)
    assert found.blocks(found.max_context_tokens) <= found.num_blocks


def test_more_memory_or_smaller_numbers_never_hold_less():
    for model in ("llama-3.1-8b", "gemma-3-27b", "deepseek-v2-lite"):
        layout = default_layout(load_model(model))
        smaller = replace(layout, weight_dtype="int4"), replace(layout, cache_dtype="fp8"), replace(layout, tp=2)
        base = memory_plan(deploy(model, "h100-sxm", layout=layout))
        for each in smaller:
            assert memory_plan(deploy(model, "h100-sxm", layout=each)).cache_tokens > base.cache_tokens
        assert plan(model, "h200-sxm").cache_tokens > base.cache_tokens


# ------------------------------------------------------------------------------------------------------- misfits


def changed(deployment: Deployment, flags: str) -> Deployment:
    """Apply flags as a user would."""
    words = flags.split()
    given_flags = dict(zip(words[::2], words[1::2], strict=True))
    hardware = load_hardware(given_flags.pop("--hardware", deployment.hardware.id))
    budget = {"max_num_batched_tokens": given_flags.pop("--max-num-batched-tokens", None),
              "max_num_seqs": given_flags.pop("--max-num-seqs", None)}  # fmt: skip
    away = Offload(GIB * int(given_flags.pop("--cpu-offload-gb", 0)))
    layout = {flag.removeprefix("--").replace("-", "_"): value for flag, value in given_flags.items()}
    return replace(
        deployment,
        hardware=hardware,
        settings=replace(
            deployment.settings, offload=away, **{name: int(value) for name, value in budget.items() if value}
        ),
        layout=replace(deployment.layout, **{k: int(v) if v.isdigit() else v for k, v in layout.items()}),
    )


@pytest.mark.parametrize(
    ("model", "hardware"),
    [("llama-3.1-70b", "h100-sxm"), ("llama-3.1-405b", "l4"), ("gemma-3-27b", "rtx-5090"), ("deepseek-v3", "h200-sxm")],
)
def test_every_remedy_makes_it_fit(model, hardware):
    misfit = deploy(model, hardware)
    with pytest.raises(DoesNotFitError, match="weights"):
        refuse_misfit(memory_plan(misfit))
    remedies = list(remedies_for(misfit))
    assert remedies
    for remedy in remedies:
        better = changed(misfit, remedy.partition(" (")[0])
        refuse_misfit(memory_plan(better))
        better.step_model()


@pytest.mark.parametrize(("hardware", "tp"), [("rtx-4090", 4), ("l40s", 3)])
def test_a_remedy_for_devices_that_do_not_divide_the_model_is_planned_as_it_would_be_asked(hardware, tp):
    """Three cards are computed as one that is three times as large; a remedy is of single ones."""
    model = load_model("llama-3.1-70b")
    layouts = {each: default_layout(model, tp=each, dtypes=("q8_0", "")) for each in (3, tp)}
    misfit = deploy(model.id, "rtx-4090", "llama.cpp", layouts[3])
    tokens = memory_plan(deploy(model.id, hardware, "llama.cpp", layouts[tp])).cache_tokens
    assert any(each.endswith(f"{tokens:,} tokens of cache)") for each in remedies_for(misfit))


def test_an_engine_that_computes_layers_on_the_cpu_is_offered_the_most_that_the_device_holds():
    layout = default_layout(load_model("llama-3.1-70b"), dtypes=("q4_k_m", ""))
    misfit = deploy("llama-3.1-70b", "rtx-4090", "llama.cpp", layout)
    found = [each for each in remedies_for(misfit) if "gpu-layers" in each or "offload" in each]
    assert len(found) == 1
    kept = int(found[0].split()[1])
    for layers, fits in ((kept, True), (kept + 1, False)):
        plan = memory_plan(replace(misfit, settings=replace(misfit.settings, offload=Offload(gpu_layers=layers))))
        assert (plan.max_context_tokens >= 2048) is fits


def test_data_parallel_experts_are_offered_more_devices():
    layout = default_layout(load_model("deepseek-v3"), dp=8, ep=8)
    misfit = deploy("deepseek-v3", "h100-sxm", layout=layout)
    assert any(each.startswith("--tp 2 --ep 16 ") for each in remedies_for(misfit))


def test_a_workspace_that_is_too_large_can_be_made_smaller():
    """16 GB of weights fit into 24 GB, but not beside the sampler and graphs of 8,192 sequences."""
    misfit = deploy("llama-3.1-8b", "rtx-4090", settings=Settings(max_num_seqs=8192, max_num_batched_tokens=32_768))
    found = [each for each in remedies_for(misfit) if each.startswith("--max-num-batched-tokens")]
    assert found
    refuse_misfit(memory_plan(changed(misfit, found[0].partition(" (")[0])))


def test_no_remedy_leaves_a_cache_of_a_few_tokens():
    """Beside 13.5 GB of weights in 16 GB, smaller steps make room for 1,712 tokens."""
    misfit = deploy("llama-2-7b", "rtx-4080", settings=Settings(max_num_seqs=8192, max_num_batched_tokens=32_768))
    tokens = [
        int(found[1].replace(",", ""))
        for each in remedies_for(misfit)
        if (found := re.search(r"([\d,]+) tokens of cache", each))
    ]
    assert len(tokens) > 2
    assert min(tokens) >= 2_048


def test_a_context_that_does_not_fit_is_refused_with_the_longest_that_does():
    wanted = plan("llama-3.1-8b", "rtx-4090", settings_=Settings(max_model_len=131_072))
    with pytest.raises(DoesNotFitError, match="--max-model-len") as error:
        refuse_misfit(wanted)
    longest = int(re.search(r"--max-model-len (\d+)", error.value.remedy)[1])
    assert longest == wanted.max_context_tokens
    refuse_misfit(plan("llama-3.1-8b", "rtx-4090", settings_=Settings(max_model_len=longest)))
    with pytest.raises(DoesNotFitError):
        refuse_misfit(plan("llama-3.1-8b", "rtx-4090", settings_=Settings(max_model_len=longest + 16)))


def test_more_blocks_than_fit_are_refused():
    fit = plan("llama-3.1-8b", "l4").num_blocks
    refuse_misfit(plan("llama-3.1-8b", "l4", settings_=Settings(num_blocks=fit)))
    with pytest.raises(DoesNotFitError, match=f"--num-gpu-blocks-override {fit + 1} or less"):
        refuse_misfit(plan("llama-3.1-8b", "l4", settings_=Settings(num_blocks=fit + 1)))


def test_blocks_do_not_save_what_has_no_room():
    with pytest.raises(DoesNotFitError, match="leave no cache"):
        refuse_misfit(plan("llama-3.1-70b", "l4", settings_=Settings(num_blocks=1)))


def test_devices_without_a_link_are_no_remedy():
    assert not [each for each in remedies_for(deploy("llama-3.1-70b", "m2")) if each.startswith("--tp")]


# ------------------------------------------------------------------------------------------- what the scheduler gets


def test_limits_are_those_of_the_plan_and_the_engine():
    one = deploy("gemma-3-27b", "h100-sxm")
    found, ours = limits(one), memory_plan(one)
    assert (found.num_blocks, found.block_size, found.window) == (ours.num_blocks, 16, 1024)
    assert (found.full_groups, found.window_groups, found.window_blocks) == (1, 6, 65)
    assert (found.max_num_seqs, found.max_num_batched_tokens) == (1024, 8192)


def test_a_misfit_has_no_limits():
    with pytest.raises(DoesNotFitError):
        limits(deploy("llama-3.1-70b", "l4"))


def test_requests_that_are_too_long_are_counted():
    one = deploy("llama-3.1-8b", "h100-sxm")
    fine, long = (Requests([0.0, 1.0], [100, 131_000], [100, output]) for output in (72, 73))
    assert not rejections(limits(one, fine), fine)
    rejected = Rejected.of(rejections(limits(one, long), long), 2)
    assert rejected.rows.tolist() == [1]
    assert rejected.in_words() == "more than 131,072 tokens (max_model_len)"
    assert not rejections(limits(one, long, assume_fits=True), long)


def test_a_given_number_of_blocks_leaves_the_rest_unused():
    plan, whole = (
        memory_plan(deploy("llama-3.1-8b", "h100-sxm", settings=Settings(num_blocks=blocks))) for blocks in (2, None)
    )
    assert plan.cache_bytes == 3 * plan.block_bytes  # one is vLLM's null block
    assert plan.unused_bytes + plan.cache_bytes == pytest.approx(whole.unused_bytes + whole.cache_bytes)
    assert not plan.fits_barely


def test_two_values_of_one_setting_are_refused():
    same = Settings(max_num_seqs=4, changes=("max_num_seqs=4",))
    assert deploy("llama-3.1-8b", "h100-sxm", settings=same).max_num_seqs == 4
    with pytest.raises(InfercastError, match="--max-num-seqs 4 with --set max_num_seqs=8: they set the same"):
        deploy("llama-3.1-8b", "h100-sxm", settings=replace(same, changes=("max_num_seqs=8",)))
