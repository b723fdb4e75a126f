"""Recurrent layers and sparse attention: states, work and memory by hand, and what tells them from attention."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from simulator.deployment.deployment import deploy
from simulator.deployment.layouts import default_layout
from simulator.deployment.memory import memory_plan
from simulator.deployment.settings import Settings
from simulator.errors import NotModelledError
from simulator.models.compressed import CompressedAttention
from simulator.models.layers import Attention
from simulator.models.layout import Layout
from simulator.models.model import load_model
from simulator.models.operations import Counts, Op, Sequence, Span, count
from simulator.simulation.scheduler_limits import limits
from simulator.workloads.shared_prefixes import Prefixes
from simulator.workloads.workload import Requests

HYBRIDS = (
    *("qwen3-next-80b-a3b", "qwen3.5-27b", "nemotron-3-nano-30b-a3b", "nemotron-h-8b", "jamba-v0.1"),
    *("kimi-linear-48b-a3b", "minimax-text-01", "falcon-mamba-7b"),
)


def named(ops: tuple[Op, ...], name: str) -> Op:
    return next(op for op in ops if op.name == name)


@pytest.mark.parametrize(
    ("name", "state_bytes"),
    [
        # 36 layers of 32 heads with 128 x 128 numbers in bf16, and 3 inputs of 2 x 2,048 + 4,096 channels.
        ("qwen3-next-80b-a3b", 36 * (32 * 128 * 128 * 2 + 3 * 8192 * 2)),
        # 24 layers of 128 heads with 64 x 128 numbers in fp32, and 3 inputs of 8,192 + 2 x 8 x 128 channels.
        ("nemotron-h-8b", 24 * (128 * 64 * 128 * 4 + 3 * 10240 * 2)),
        # 28 layers of 8,192 channels with 16 numbers, and 3 inputs of each.
        ("jamba-v0.1", 28 * (8192 * 16 * 2 + 3 * 8192 * 2)),
        # 20 layers of 32 heads with 128 x 128 numbers in fp32, and 3 inputs of 3 x 4,096 channels.
        ("kimi-linear-48b-a3b", 20 * (32 * 128 * 128 * 4 + 3 * 12288 * 2)),
        # 18 layers: 2 inputs of 2,048 channels.
        ("lfm2-8b-a1b", 18 * 2 * 2048 * 2),
        # 64 layers of 5,120 channels with 16 numbers, and 3 inputs of each.
        ("mamba-2.8b", 64 * (5120 * 16 * 2 + 3 * 5120 * 2)),
        # 70 layers of 64 heads with 128 x 128 numbers in fp32, and no convolution.
        ("minimax-text-01", 70 * 64 * 128 * 128 * 4),
        ("llama-3.1-8b", 0),
    ],
)
def test_states_by_hand(name: str, state_bytes: int) -> None:
    assert load_model(name).state_bytes() == state_bytes


@pytest.mark.parametrize("name", HYBRIDS)
@pytest.mark.parametrize("tp", [2, 4])
def test_devices_share_states_evenly(name: str, tp: int) -> None:
    model = load_model(name)
    assert model.state_bytes(Layout(tp=tp)) * tp == model.state_bytes()


def test_the_delta_rule_by_its_own_loop() -> None:
    # One token, one head: S k, the correction's outer product, S q; each is d_k d_v multiplications and additions.
    model = load_model("qwen3.5-27b")
    keys, values, counted = 128, 128, 0
    state, key, value, query = np.zeros((values, keys)), np.ones(keys), np.ones(values), np.ones(keys)
    for _ in range(3):
        seen = state @ key
        state = 0.9 * state + np.outer(value - seen, key)
        assert (state @ query).shape == (values,)
        counted += 3 * 2 * keys * values
    update = named(model.ops(), "state update")
    assert update.flops.logits * 3 == 48 * counted
    assert update.cache_bytes.logits * update.repeats == 2 * model.state_bytes()


def test_kimi_delta_is_the_delta_rule_with_a_decay_of_every_channel() -> None:
    # Kimi-Linear-48B's config.json: 32 heads of 128 x 128; decay and output gate by projections of rank 128.
    mixer = load_model("kimi-linear-48b-a3b").blocks["linear-experts"].mixer
    assert mixer is not None
    hidden, width, low = 2304, 32 * 128, 2304 * 128 + 128 * 32 * 128
    assert mixer.weights(hidden).mixer == 4 * hidden * width + 2 * low + hidden * 32
    ops = mixer.ops(hidden, Layout())
    assert named(ops, "state update").flops.logits == 6 * 32 * 128 * 128
    assert named(ops, "scan of prompts").flops.prefill_tokens == 32 * (6 * 128 * 128 + 64 * 10 * 128)


def test_lightning_attention_by_its_own_loop() -> None:
    # One token, one head of MiniMax-Text-01: the outer product of value and key, S q; d^2 multiply-adds each.
    mixer = load_model("minimax-text-01").blocks["linear"].mixer
    assert mixer is not None
    heads, size, hidden, counted = 64, 128, 6144, 0
    state, key, value, query = np.zeros((size, size)), np.ones(size), np.ones(size), np.ones(size)
    for token in range(1, 4):
        state = 0.5 * state + np.outer(value, key)
        assert (state @ query)[0] == size * sum(0.5**age for age in range(token))
        counted += 2 * 2 * size * size
    ops = mixer.ops(hidden, Layout())
    assert named(ops, "state update").flops.logits * 3 == heads * counted
    assert named(ops, "scan of prompts").flops.prefill_tokens == heads * (4 * size * size + 4 * 64 * size)
    assert mixer.weights(hidden).total == 5 * hidden * heads * size + heads * size
    assert [op.name for op in mixer.ops(hidden, Layout(tp=2)) if op.rate == "all_reduce"] == [
        *("all-reduce of norms", "all-reduce after attention"),
    ]


def test_a_gate_per_head_is_one_column_per_head() -> None:
    # Step-3.5-Flash's config.json: 96 heads in layers with a window, 64 in the others, 8 KV heads in both.
    blocks = load_model("step-3.5-flash").blocks
    local, full = blocks["local-experts"].mixer, blocks["global-experts"].mixer
    assert local is not None
    assert full is not None
    assert local.weights(4096).mixer == 4096 * (2 * 96 * 128 + 2 * 8 * 128 + 96)
    assert local.weights(4096).mixer - full.weights(4096).mixer == 4096 * 32 * (2 * 128 + 1)
    assert named(local.ops(4096, Layout(tp=8)), "head gate").columns == 12


def test_a_scan_in_chunks_costs_more_flops_and_no_traffic_per_token() -> None:
    scan = named(load_model("nemotron-h-8b").ops(), "scan of prompts")
    # 4 P N of 128 heads, 2 C P of each head in chunks of 64, 2 C N of 8 groups.
    assert scan.flops.prefill_tokens == 4 * 8192 * 128 + 2 * 64 * (8192 + 8 * 128)
    assert scan.flops.tokens == scan.weight_bytes == scan.launches == 0


@given(st.sampled_from(HYBRIDS), st.integers(1, 64), st.integers(1, 100_000))
def test_a_longer_context_costs_a_hybrid_only_its_attention_layers(name: str, batch: int, past: int) -> None:
    ops = load_model(name).ops()
    short = count([Sequence(1, 1)] * batch)
    long = count([Sequence(1, past)] * batch)
    for op in ops:
        more = op.bytes_read(long) - op.bytes_read(short)
        assert more == (op.cache_bytes.decode_reads * batch * (past - 1) if op.name == "decode attention" else 0.0)


@given(st.sampled_from(HYBRIDS), st.integers(1, 64))
def test_states_are_read_and_written_once_per_sequence_and_step(name: str, batch: int) -> None:
    model, counts = load_model(name), count([Sequence(1, 50)] * batch)
    moved = sum(op.repeats * op.bytes_read(counts) for op in model.ops() if op.name == "state update")
    assert moved == 2 * batch * model.state_bytes()


def test_each_more_sequence_costs_the_same_traffic() -> None:
    table = deploy("qwen3.5-27b", "h200-sxm").at_light.step_model().table(64, 64)
    grown = np.diff(table.logit_s[1:])
    assert grown == pytest.approx(grown[0], rel=1e-6)


@pytest.mark.parametrize("name", HYBRIDS)
def test_the_table_of_the_event_loop_equals_the_steps(name: str) -> None:
    hybrid = deploy(name, "h200-sxm", layout=default_layout(load_model(name), tp=2)).step_model()
    table = hybrid.table(512, 32)
    batch = [Sequence(1, 700), Sequence(1, 30), Sequence(200, 0)]
    counts = count(batch)
    slopes = np.array([counts.decode_reads, 0, counts.prefill_tokens, counts.prefill_pairs, 0])
    by_table = table.token_s[202] + table.logit_s[3] + table.slopes @ slopes
    piecewise_s = max(by_table + table.prompts.gaps_s, table.prompts.piecewise_s)  # 202 tokens are in captured graphs
    assert piecewise_s == pytest.approx(float(hybrid.seconds(counts)), rel=1e-9)


# --------------------------------------------------------------------------------------------------- sparse attention


def test_an_index_reads_every_key_and_attention_no_more_than_it_chose() -> None:
    model, dense = load_model("deepseek-v3.2"), load_model("deepseek-v3")
    assert model.span == Span(2048)
    assert model.attention_layers == (61, 0)  # the cache holds every token
    assert model.cache_bytes(100_000) == 100_000 * (dense.cache_bytes(1) + 61 * 132)
    assert model.parameters - dense.parameters == 61 * (1536 * 64 * 128 + 7168 * 128 + 7168 * 64 + 2 * 128)
    counts = count([Sequence(1, 99_999)], model.span)
    read = sum(op.repeats * op.cache_bytes.dot(counts) for op in model.ops())
    assert read == 61 * (100_000 * 132 + 2048 * 576 * 2)


def test_sparse_attention_pays_beyond_what_it_chooses() -> None:
    sparse, dense = load_model("deepseek-v3.2"), load_model("deepseek-v3")

    def attention_bytes(model, past):
        counts = count([Sequence(1, past)], sparse.span)
        return sum(op.repeats * op.cache_bytes.dot(counts) for op in model.ops())

    assert attention_bytes(sparse, 1000) > attention_bytes(dense, 1000)
    assert attention_bytes(sparse, 50_000) < attention_bytes(dense, 50_000) / 4


def test_attention_to_compressed_tokens_reads_the_last_ones_and_rows() -> None:
    flash = load_model("deepseek-v4-flash")
    assert flash.span == Span(512 * 4)  # the tokens of the rows that an index chooses
    assert flash.attention_layers == (41, 0)  # two cache local tokens alone, which are a state
    assert flash.recurrent_layers == 0
    waiting = 4 * (8 * 2 * 2 * (512 + 128) * 21 + 128 * 2 * 512 * 20)  # fp32: rows and their weights, of two rows each
    assert flash.state_bytes() == 43 * 128 * 584 + waiting
    counts = count([Sequence(1, 99_999)], flash.span)
    local, rows, heavy = 43 * 128, 21 * 512, 20 * 100_000 / 128
    read = sum(op.repeats * op.cache_bytes.dot(counts) for op in flash.ops())
    assert read == pytest.approx(584 * (local + rows + heavy) + 21 * 132 * 25_000)
    attention, scores = (
        sum(op.repeats * op.flops.dot(counts) for op in flash.ops() if op.name == name)
        for name in ("decode attention", "indexer scores")
    )
    assert attention == pytest.approx(4 * 64 * 512 * (local + rows + heavy))
    assert scores == pytest.approx(21 * 2 * 64 * 128 * 25_000)


def test_prompts_attend_to_compressed_tokens() -> None:
    flash, tokens = load_model("deepseek-v4-flash"), 16_384
    counts = count([Sequence(tokens, 0)], flash.span)
    pairs = tokens * (tokens + 1) / 2
    chosen = (2048 * 2049 / 2 + (tokens - 2048) * 2048) / 4
    found = sum(op.repeats * op.flops.dot(counts) for op in flash.ops() if op.name == "prefill attention")
    assert found == pytest.approx(4 * 64 * 512 * (43 * 128 * tokens + 21 * chosen + 20 * pairs / 128))


def test_streams_of_hyper_connections_are_mixed_before_and_after_each_part() -> None:
    flash = load_model("deepseek-v4-flash")
    plain = flash.model_copy(update={"hyper_connections": None})
    one = 24 * (4 * 4096 + 1) + 3  # 4 + 4 + 4 x 4 numbers of all streams, and three scales
    assert flash.parameters - plain.parameters == 86 * one + 4 * (4 * 4096 + 1) + 1
    names = {op.name: op for op in flash.ops()}
    assert {op.name for op in flash.ops()} - {op.name for op in plain.ops()} == {
        "mixing of streams",
        "mixture of streams",
        "sums of streams",
    }
    assert names["mixture of streams"].repeats == 86
    moved = sum(names[f"{each} of streams"].activation_bytes.tokens for each in ("mixture", "sums"))
    assert moved == 2 * 3 * 4 * 4096  # without the two sums that the norms are charged for


def test_streams_of_hy4_are_not_mixed_among_themselves() -> None:
    hy4 = load_model("hy4-preview")
    plain = hy4.model_copy(update={"hyper_connections": None})
    assert hy4.parameters - plain.parameters == 156 * (8 * (4 * 6144 + 1) + 2) + 4 * (4 * 6144 + 1) + 1
    assert named(hy4.ops(), "mixing of streams").columns == 8
    shared = [hy4.blocks[name].mixer.indexer.shared for name in hy4.layer_names]
    assert [layer for layer, each in enumerate(shared) if not each] == [0, *range(1, 78, 4)]


def test_a_key_of_a_pooled_index_stands_for_four_tokens() -> None:
    model, counts = load_model("glm-5.3-flash"), count([Sequence(1, 99_999)], Span(2048))
    mixer = model.blocks["global-experts"].mixer
    alone = mixer.model_copy(update={"indexer": mixer.indexer.model_copy(update={"pool": 1})})
    assert mixer.cache_bytes_per_token() == 512 * 2 + 132 / 4
    assert mixer.weights(4096).total - alone.weights(4096).total == 4096 * 128 + 4 * 128
    scores = [named(each.ops(4096, Layout()), "indexer scores") for each in (mixer, alone)]
    pooled, whole = (op.flops.dot(counts) for op in scores)
    assert whole == 4 * pooled == 2 * 32 * 128 * 100_000
    assert model.parameters - model.model_copy(update={"hyper_connections": None}).parameters == 90 * (24 * 16385 + 3)


def test_devices_share_heads_and_groups_of_outputs_not_rows() -> None:
    flash = load_model("deepseek-v4-flash")
    four = default_layout(flash, tp=4)
    assert flash.cache_bytes(1000, four) == flash.cache_bytes(1000)
    mixer = flash.blocks["sparse-experts"].mixer
    whole, share = mixer.weights(4096), mixer.weights(4096, four)
    assert whole.output == 4 * share.output == 64 * 512 * 1024 + 8 * 1024 * 4096
    assert whole.mixer - share.mixer == 0.75 * 1024 * 64 * 512
    assert share.other == whole.other - 48  # sinks
    with pytest.raises(NotModelledError, match="groups of outputs"):
        flash.weights(Layout(tp=16))


def test_blocks_that_an_index_chooses_are_read_and_all_are_cached() -> None:
    model, counts = load_model("minimax-m3"), count([Sequence(1, 99_999)], Span(2048))
    assert model.span == Span(16 * 128)
    assert model.attention_layers == (60, 0)
    layouts = Layout(), Layout(tp=8), Layout(tp=4, cache_dtype="fp8")  # four KV heads, one of them on each of eight
    for layout, heads, size in zip(layouts, (4, 1, 1), (2, 2, 1), strict=True):
        read = sum(op.repeats * op.cache_bytes.dot(counts) for op in model.ops(layout))
        token = 2 * heads * 128 * size
        assert read == 100_000 * (3 * token + 57 * 128 * size) + 57 * 2048 * token
        scores = named(model.ops(layout), "indexer scores")
        assert scores.flops.decode_reads == 2 * heads * 128
        assert model.cache_bytes(5000, layout) == 5000 * (60 * token + 57 * 128 * size)
    with pytest.raises(ValidationError, match="indexer without window"):
        Attention(heads=8, kv_heads=4, head_dim=128, indexer={"heads": 4, "head_dim": 128})


def test_decay_and_gates_of_ling_3_have_full_rank() -> None:
    tiny, hidden, width = load_model("ling-3.0-tiny"), 1536, 16 * 128
    linear, latent = (tiny.blocks[name].mixer for name in ("linear-experts", "global-experts"))
    assert linear.weights(hidden).mixer == hidden * (6 * width + 16)  # q, k, v, decay, gate, output; write strengths
    without = latent.model_copy(update={"head_gate": False})
    assert latent.weights(hidden).mixer - without.weights(hidden).mixer == hidden * 16
    assert {"head gate", "gate"} <= {op.name for op in latent.ops(hidden, Layout())}
    assert not {"head gate", "gate"} & {op.name for op in without.ops(hidden, Layout())}


def test_what_compressed_attention_cannot_be() -> None:
    shape = {"heads": 64, "q_lora": 1024, "head_dim": 512, "rope_dim": 64, "output_groups": 8, "output_lora": 1024}
    index = {"heads": 64, "head_dim": 128, "chosen": 512}
    with pytest.raises(ValidationError, match="indexer without ratio"):
        CompressedAttention(kind="compressed", local=128, indexer=index, **shape)
    with pytest.raises(ValidationError, match="shared indexer"):
        CompressedAttention(kind="compressed", local=128, ratio=4, indexer=index | {"shared": True}, **shape)


# ------------------------------------------------------------------------------------------------------------- memory


def test_last_tokens_are_kept_for_each_sequence() -> None:
    flash = load_model("deepseek-v4-flash")
    plan = memory_plan(deploy(flash.id, "b200-sxm", "vllm", default_layout(flash, tp=4)))
    assert plan.state_bytes == flash.state_bytes()
    assert plan.state_slots == plan.max_num_seqs


def test_states_take_their_share_of_the_memory() -> None:
    free = memory_plan(deploy("qwen3.5-27b", "h200-sxm", "sglang"))
    set_ = memory_plan(deploy("qwen3.5-27b", "h200-sxm", "sglang", settings=Settings(max_num_seqs=16)))
    assert set_.max_num_seqs == 16
    assert free.state_bytes == load_model("qwen3.5-27b").state_bytes()
    assert 1 <= free.max_num_seqs < free.deployment.max_num_seqs
    assert free.max_num_seqs == free.state_slots // 5
    states = free.state_slots * free.state_bytes
    # SGLang's default ratio of states to cache, 0.9, up to one state.
    assert states <= 0.9 / 1.9 * (states + free.cache_bytes) < states + free.state_bytes
    assert limits(free.deployment).max_num_seqs == free.max_num_seqs


@pytest.mark.parametrize("model", ["qwen3.5-27b", "mistral-7b-v0.1"])  # with states; with windows in all layers
def test_prefix_caching_over_states_or_windows_alone_is_refused_by_name(model) -> None:
    times = np.array([0.0, 1.0])
    lengths = np.array([64, 64])
    requests = Requests(times, lengths, lengths, prefixes=Prefixes.of([[1], [1]]))
    caching = deploy(model, "h200-sxm")
    assert caching.engine.prefix_caching
    with pytest.raises(NotModelledError, match="with prefix caching"):
        limits(caching, requests)
    off = replace(caching, engine=caching.engine.model_copy(update={"prefix_caching": False}))
    assert limits(off, requests).prefix_block_tokens == 0


def test_a_prefix_of_compressed_tokens_is_cached() -> None:
    lengths = np.array([64, 64])
    requests = Requests(np.array([0.0, 1.0]), lengths, lengths, prefixes=Prefixes.of([[1], [1]]))
    flash = load_model("deepseek-v4-flash")
    found = deploy(flash.id, "b200-sxm", "vllm", default_layout(flash, tp=4))
    assert limits(found, requests).prefix_block_tokens == memory_plan(found).block_size


def test_models_without_states_run_as_many_as_set() -> None:
    plan = memory_plan(deploy("llama-3.1-8b", "h100-sxm"))
    assert (plan.state_bytes, plan.max_num_seqs) == (0.0, plan.deployment.max_num_seqs)


def test_a_hybrid_runs_more_long_sequences_than_its_cache_alone_would_let_attention() -> None:
    counts = Counts(steps=1.0, tokens=1.0, logits=1.0, decode_reads=100_000.0)
    seconds = {
        name: float(deploy(name, "h200-sxm").at_light.step_model().seconds(counts))
        - float(deploy(name, "h200-sxm").at_light.step_model().seconds(counts._replace(decode_reads=0.0)))
        for name in ("qwen3.5-27b", "qwen3-32b")
    }
    # 16 of 64 layers attend, with 4 heads of 256 for 8 of 128: a quarter.
    assert seconds["qwen3.5-27b"] * 4 == pytest.approx(seconds["qwen3-32b"], rel=1e-9)
