"""One batch alone: against the event loop, against counts of single sequences, by hand; what cannot be is refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.deployment.batches import Batch, decode_counts, prefill_counts
from simulator.deployment.deployment import Deployment, deploy
from simulator.deployment.estimate import estimate
from simulator.deployment.layouts import default_layout
from simulator.deployment.memory import memory_plan
from simulator.deployment.setting_names import configure
from simulator.deployment.settings import Settings
from simulator.errors import DoesNotFitError, InfercastError, WorkloadError
from simulator.models.model import load_model
from simulator.models.operations import Counts, Sequence, count
from simulator.reports.provenance import figures_behind, memory_basis, readable, rests_on
from simulator.simulation.engine_loop import simulate
from simulator.simulation.scheduler_limits import limits
from simulator.workloads.workload import Requests
from tests.support.kernels import kernels_with


def deployment(model: str = "llama-3.1-8b", hardware: str = "h100-sxm", engine: str = "", **layout: int) -> Deployment:
    return deploy(model, hardware, engine, default_layout(load_model(model), **layout))


@pytest.mark.parametrize(("engine", "times"), [("vllm-0.8", 4), ("tensorrt-llm-0.15", 1)])
def test_each_stage_of_vllm_prepares_a_step_by_itself(engine, times):
    """Once for each stage, after what the one before sends; sequences get their tokens in the last one alone."""
    stages, one = (deployment(engine=engine, pp=pp).step_model() for pp in (4, 1))
    assert stages.overheads.step_s == pytest.approx(times * one.overheads.step_s)
    assert one.overheads.step_s > 0
    assert stages.overheads.sequence_s == one.overheads.sequence_s


# ------------------------------------------------------------------------------------------- against the event loop


@pytest.mark.parametrize(
    ("model", "hardware", "engine", "batch"),
    [
        ("llama-3.1-8b", "h100-sxm", "vllm", Batch(1, 900, 200)),
        ("llama-3.1-8b", "h100-sxm", "vllm", Batch(8, 1000, 50)),
        ("gemma-3-27b", "h100-sxm", "vllm", Batch(4, 1020, 30)),  # decodes across the end of the window
        ("qwen3-30b-a3b", "h200-sxm", "vllm", Batch(16, 100, 20)),
        ("llama-3.1-8b", "h100-sxm", "static", Batch(16, 1024, 20)),
    ],
)
def test_a_batch_whose_prompts_fit_one_step_takes_the_time_of_the_event_loop(model, hardware, engine, batch):
    one = deployment(model, hardware, engine)
    found = estimate(one, batch)
    requests = Requests(
        np.zeros(batch.size), np.full(batch.size, batch.prompt_tokens), np.full(batch.size, batch.output_tokens)
    )
    table = one.step_model().table(max(one.max_num_batched_tokens, 1), one.max_num_seqs)
    run = simulate(limits(one), table, requests)
    request_s = float(one.engine.overheads.outside_steps_s(batch.prompt_tokens)) + batch.size * one.message_s
    assert found.expected.ttft_s == pytest.approx(request_s + run.first_token_s.max(), rel=1e-9)
    assert found.expected.e2el_s == pytest.approx(request_s + run.finished_s.max(), rel=1e-9)
    tpot_s = (run.finished_s - run.first_token_s) / (batch.output_tokens - 1)
    assert found.expected.tpot_s == pytest.approx(tpot_s.mean(), rel=1e-9)


# --------------------------------------------------------------------------------- against counts of single sequences


def cut(batch: Batch, budget: int) -> list[list[Sequence]]:
    """Fill steps of so many tokens with prompts laid end to end, sequence by sequence."""
    steps, step, room = [], [], budget
    for _ in range(batch.size):
        past = 0
        while past < batch.prompt_tokens:
            take = min(room, batch.prompt_tokens - past)
            step.append(Sequence(take, past))
            past, room = past + take, room - take
            if room == 0:
                steps.append(step)
                step, room = [], budget
    return [*steps, *([step] if step else [])]


def as_prompts(step: list[Sequence], window: int | None) -> Counts:
    """`count` takes one token with a past for a decode; here each is the rest of a prompt."""
    counted = count(step, window)
    return counted._replace(
        decode_reads=0.0,
        decode_reads_windowed=0.0,
        prefill_tokens=counted.tokens,
        prefill_pairs=counted.prefill_pairs + counted.decode_reads,
        prefill_pairs_windowed=counted.prefill_pairs_windowed + counted.decode_reads_windowed,
    )


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(1, 700), st.integers(256, 1500), st.sampled_from(["llama-3.1-8b", "gemma-3-27b"]))
def test_prompts_are_counted_as_their_chunks_are(size, prompt_tokens, budget, model):
    one = replace(deployment(model), settings=Settings(max_num_seqs=64, max_num_batched_tokens=budget))
    batch = Batch(size, prompt_tokens, 1)
    ours = prefill_counts(one, batch)
    theirs = [as_prompts(each, one.model.span) for each in cut(batch, budget)]
    assert np.size(ours.steps) == len(theirs)
    for name in Counts._fields:
        expected = [getattr(step, name) for step in theirs]
        assert np.broadcast_to(getattr(ours, name), len(theirs)) == pytest.approx(expected), name


@given(st.integers(1, 50), st.integers(1, 3000), st.integers(2, 40))
@settings(max_examples=25, deadline=None)
def test_decode_steps_are_counted_as_single_sequences_are(size, prompt_tokens, output_tokens):
    one = deployment("gemma-3-27b")
    batch = Batch(size, prompt_tokens, output_tokens)
    attended = prompt_tokens + np.arange(1.0, output_tokens)
    ours = decode_counts(one, batch, attended)
    for index in range(output_tokens - 1):
        theirs = count([Sequence(1, prompt_tokens + index)] * size, one.model.span)
        for name in Counts._fields:
            assert np.broadcast_to(getattr(ours, name), len(attended))[index] == getattr(theirs, name), name


@given(st.integers(1, 9), st.integers(1, 700), st.integers(1, 900), st.integers(1, 3000))
@settings(max_examples=25, deadline=None)
def test_prompts_after_a_cached_past_are_counted_as_their_chunks_are(size, prompt_tokens, budget, past):
    one, batch = deployment("gemma-3-27b"), Batch(size, prompt_tokens, 1)
    ours = prefill_counts(one, batch, past=past, budget=budget)
    chunks = [[each._replace(past_tokens=each.past_tokens + past) for each in step] for step in cut(batch, budget)]
    theirs = [as_prompts(each, one.model.span) for each in chunks]
    for name in Counts._fields:
        expected = [getattr(step, name) for step in theirs]
        assert np.broadcast_to(getattr(ours, name), len(theirs)) == pytest.approx(expected), name


@pytest.mark.parametrize(("prompt_tokens", "steps"), [(300, [900, 600]), (1000, [1000] * 5), (1500, [1500] * 5)])
def test_without_chunked_prefill_a_step_has_whole_prompts(prompt_tokens, steps):
    """Of five prompts, three fit 1,000 tokens, or one does; one that is longer than a step still is one."""
    one = replace(deployment(), settings=Settings(max_num_seqs=64, max_num_batched_tokens=1000))
    whole = replace(one, engine=one.engine.model_copy(update={"chunked_prefill": False}))
    counts = prefill_counts(whole, Batch(5, prompt_tokens, 1))
    assert list(counts.tokens) == steps
    assert list(counts.logits) == [tokens // prompt_tokens for tokens in steps]


@given(st.integers(1, 50), st.integers(1, 3000))
@settings(max_examples=25, deadline=None)
def test_without_a_cache_a_step_computes_every_token_anew(size, tokens):
    one = deployment("gemma-3-27b", engine="uncached")
    ours = decode_counts(one, Batch(size, 1, 1), np.array([float(tokens)]))
    theirs = as_prompts([Sequence(tokens, 0)] * size, one.model.span)
    for name in Counts._fields:
        assert np.broadcast_to(getattr(ours, name), 1)[0] == getattr(theirs, name), name


def test_latency_adds_up_every_step():
    one, batch = deployment("gpt-oss-20b"), Batch(3, 100, 9)
    found = estimate(one, batch)
    model = one.step_model()
    steps_s = [float(model.seconds(count([Sequence(1, 100 + index)] * 3, one.model.span))) for index in range(8)]
    assert found.expected.e2el_s - found.expected.ttft_s == pytest.approx(sum(steps_s))
    assert found.expected.tpot_s == pytest.approx(sum(steps_s) / 8)
    assert found.tokens_per_s_user == pytest.approx(8 / sum(steps_s))
    assert found.output_tokens_per_s == pytest.approx(27 / found.expected.e2el_s)
    assert found.decode.seconds == pytest.approx(float(model.seconds(count([Sequence(1, 103)] * 3, one.model.span))))


# --------------------------------------------------------------------------------------------------- by hand, and laws


def test_decode_of_llama_at_the_speed_of_light_by_hand():
    """All weights but the input embedding, in bf16, and 1,088 cached tokens of 131,072 bytes, at 3,350 GB/s."""
    found = estimate(deployment(), Batch(1, 1024, 128))
    weights_bytes = 2 * (8_030_261_248 - 128_256 * 4096 - 65 * 4096)
    floor_s = (weights_bytes + 1088 * 131_072) / 3350e9
    assert floor_s <= found.decode.light_s <= 1.001 * floor_s  # activations are the rest
    assert found.decode.binding.time.bound == "memory"
    assert found.decode.mostly[0] == "memory"


def test_prefill_of_llama_at_the_speed_of_light_by_hand():
    """Two FLOPs per weight and token, the head once per sequence; causal pairs at 4 x 4,096 x 32 FLOPs."""
    found = estimate(deployment(), Batch(1, 8192, 2))
    in_layers = 8_030_261_248 - 2 * 128_256 * 4096 - 65 * 4096
    flops = 2 * in_layers * 8192 + 4 * 4096 * 32 * 8192 * 8193 / 2
    products_s = sum(op.light_s for op in found.prefill.ops if op.time.flops)
    assert flops / 989e12 <= products_s <= 1.01 * flops / 989e12  # the head reads all its weights for one row
    assert sum(float(op.time.flops) for op in found.prefill.ops) == pytest.approx(flops + 2 * 128_256 * 4096)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gemma-3-27b", "deepseek-v2-lite", "gpt-oss-20b"])
@pytest.mark.parametrize(
    ("hardware", "engine"),
    [("h100-sxm", "vllm"), ("mi300x", "vllm"), ("m2-ultra", "static"), ("b200-sxm", "vllm"), ("mi300x", "sglang")],
)
def test_nothing_beats_light(model, hardware, engine):
    found = estimate(deployment(model, hardware, engine), Batch(4, 300, 40))
    for phase in (found.prefill, found.decode):
        assert phase.seconds >= phase.light_s
        for op in phase.ops:
            assert float(op.time.seconds) >= op.light_s * (1 - 1e-12), op.time.name
        assert phase.seconds == pytest.approx(sum(float(op.time.seconds) for op in phase.ops))
        assert 0 < phase.mostly[1] <= 1


@pytest.mark.parametrize(
    ("engine", "device", "weights", "added"),
    [("tensorrt-llm-1.2", "b200-sxm", "nvfp4", "quantisation of inputs"), ("vllm-0.8", "h100-sxm", "bf16", "sampling")],
)
def test_kernels_that_light_has_not_take_no_time_there(engine, device, weights, added):
    """What quantises inputs of GEMMs, and what sorts for the sampler; all others have their own seconds of light."""
    layout, batch = default_layout(load_model("llama-3.1-8b"), dtypes=(weights, "")), Batch(8, 512, 32)
    made = deploy("llama-3.1-8b", device, engine, layout, settings=Settings(sorted_sampling=True))
    found = estimate(made, batch).prefill
    assert {op.time.name: op for op in found.ops}[added].light_s == 0.0
    light = made.at_light.step_model().seconds(prefill_counts(made.at_light, batch))
    assert found.light_s == pytest.approx(float(np.sum(light)))


def test_ops_of_different_blocks_are_one_row():
    phase = estimate(deployment("gemma-3-27b"), Batch(1, 100, 2)).decode
    runs = {op.time.name: op.repeats for op in phase.ops}
    assert len(runs) == len(phase.ops)
    assert (runs["qkv projection"], runs["decode attention"], runs["output head"]) == (62, 62, 1)


def test_the_margin_is_over_the_next_resource_that_works_beside_it():
    phase = estimate(deployment(), Batch(1, 1024, 128)).decode
    op = next(op for op in phase.ops if op.time.name == "gate and up projection")
    assert op.runner_up == "compute"
    assert op.margin == pytest.approx(float(op.time.memory_s) / float(op.time.compute_s))
    alone = next(op for op in phase.ops if op.time.name == "engine host time")
    assert (alone.runner_up, alone.margin) == ("", None)


def test_one_token_has_no_step_after_it():
    found = estimate(deployment(), Batch(2, 100, 1))
    assert found.expected.tpot_s is None
    assert found.tokens_per_s_user is None
    assert found.expected.e2el_s == found.expected.ttft_s


def test_each_stage_has_room_for_its_share_of_the_sequences():
    """A step of a stage computes a token of each of its sequences: half of 2,048 in 1,024 tokens, of 2,050 no more."""
    layout = default_layout(load_model("llama-3.1-8b"), pp=2)
    asked = [Settings(max_num_seqs=seqs, max_num_batched_tokens=1024) for seqs in (2048, 2050)]
    assert deploy("llama-3.1-8b", "h100-sxm", "tensorrt-llm", layout, asked[0]).max_num_batched_tokens == 1024
    with pytest.raises(InfercastError, match="max_num_seqs 2050 with max_num_batched_tokens 1024"):
        deploy("llama-3.1-8b", "h100-sxm", "tensorrt-llm", layout, asked[1])


def test_stages_lengthen_the_latency_of_one_batch():
    one, two = (estimate(deployment(pp=pp), Batch(1, 512, 16)) for pp in (1, 2))
    assert two.expected.ttft_s > one.expected.ttft_s
    sends = [op for op in two.decode.ops if op.time.name == "send to next stage"]
    assert two.decode.seconds == pytest.approx(one.decode.seconds + float(sends[0].time.seconds))


# ------------------------------------------------------------------------------------------------- what cannot be


def test_the_largest_batch_is_named_and_fits():
    one = deployment("llama-3.1-8b", "l4")
    with pytest.raises(DoesNotFitError, match="holds") as error:
        estimate(one, Batch(64, 8192, 128))
    largest = memory_plan(one).num_blocks // memory_plan(one).blocks(8192 + 127)
    assert f"Give --batch {largest} or less" in error.value.remedy
    assert estimate(one, Batch(largest, 8192, 128)).cache_share <= 1
    with pytest.raises(DoesNotFitError):
        estimate(one, Batch(largest + 1, 8192, 128))


def test_a_sequence_that_alone_is_too_long_is_refused_with_the_longest():
    one = deployment("llama-3.1-8b", "l4")
    longest = memory_plan(one).max_context_tokens
    with pytest.raises(DoesNotFitError, match=f"one sequence of {longest:,} tokens"):
        estimate(one, Batch(1, longest, 128))


@pytest.mark.parametrize(
    ("given_settings", "batch", "message"),
    [
        (Settings(max_num_seqs=4), Batch(5, 10, 10), "Give --max-num-seqs 5"),
        (Settings(max_model_len=1000), Batch(1, 990, 11), "1,000 tokens at most"),
        (Settings(), Batch(1, 131_072, 1), "131,072 tokens at most"),
    ],
)
def test_limits_of_the_engine_and_the_model_are_refused(given_settings, batch, message):
    with pytest.raises(InfercastError, match=message):
        estimate(replace(deployment(), settings=given_settings), batch)


def test_a_static_batch_needs_its_prompts_in_one_step():
    with pytest.raises(InfercastError, match="--max-num-batched-tokens 65536"):
        estimate(deployment(engine="static"), Batch(8, 8192, 10))


@pytest.mark.parametrize("sizes", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_empty_batches_are_refused(sizes):
    with pytest.raises(WorkloadError):
        Batch(*sizes)


# ------------------------------------------------------------------------------------------------------- evidence


def test_the_figures_that_are_used_are_listed_and_no_others():
    used = {each.figure for each in figures_behind(deployment())}
    assert {"memory_bytes_per_s", "peak_flops_per_s.bf16", "achievable.gemm.bf16.launch_s"} <= used
    assert {"achievable.decode_attention.launch_s", "memory.graph_bytes", "max_num_seqs", "overheads.step_s"} <= used
    assert not {each for each in used if "fp8" in each or "all_reduce" in each or "link" in each}
    assert "memory_marketed_bytes" not in used  # the driver's figure is known


def test_more_devices_rest_on_their_link_and_fp8_on_its_peak():
    layout = default_layout(load_model("llama-3.1-8b"), tp=2, dtypes=("fp8", ""))
    used = {each.figure for each in figures_behind(deploy("llama-3.1-8b", "h100-sxm", layout=layout))}
    assert {"achievable.all_reduce.2.latency_s", "link.bytes_per_s", "peak_flops_per_s.fp8"} <= used


@pytest.mark.parametrize(("engine", "rests"), [("vllm", True), ("transformers", False)])
def test_products_that_stream_rest_on_the_best_rate_of_the_device(engine, rests):
    used = [each.figure for each in figures_behind(deploy("llama-3.1-8b", "h200-sxm", engine))]
    assert ("achievable.copy_memory_fraction" in used) is rests
    assert len(used) == len(set(used))


def test_what_the_user_gives_is_no_figure_of_a_profile():
    ours = replace(deployment(), settings=Settings(memory_fraction=0.8, max_num_seqs=8))
    used = {each.figure for each in memory_basis(ours)}
    assert not used & {"memory.fraction", "max_num_seqs"}
    assert "max_num_batched_tokens" in used


def test_guesses_and_figures_of_relatives_are_named():
    used = figures_behind(deployment("llama-3.1-8b", "m4-max", "llama.cpp"))
    assert "m4-max: gemm.fp16, decode_attention" in rests_on(used, "guess")
    assert "logit_copies" in rests_on(used, "guess")
    assert rests_on(figures_behind(deployment("llama-3.1-8b", "l4")), "family").startswith("l4: gemm.bf16")
    assert rests_on([], "guess") == ""


def test_scheduling_rules_that_are_recalled_are_guesses():
    older, newer = (
        rests_on(figures_behind(deployment("llama-3.1-8b", "h100-sxm", each)), "guess")
        for each in ("vllm-0.8", "vllm-0.33")
    )
    assert "vllm-0.8: scheduling rules" in older
    assert "scheduling rules" not in newer


@pytest.mark.parametrize(
    ("path", "value", "shown"),
    [
        ("memory_bytes_per_s", 3350e9, "3.35 TB/s"),
        ("overheads.step_s", 0.0, "0 s"),
        ("achievable.gemm.bf16.launch_s", 5.8e-6, "5.8 µs"),
        ("achievable.prefill_attention.half_length_tokens", 1349.0, "1,349 tokens"),
        ("tdp_w", 700.0, "700 W"),
        ("published_parameters", 8030261248.0, "8,030,261,248"),
        ("max_num_seqs.0.value", 1024.0, "1,024"),
        ("memory.fraction", 0.92, "0.92"),
        ("offers.0.usd_per_hour", 2.69, "2.69 USD/h"),
    ],
)
def test_figures_are_shown_in_their_unit(path, value, shown):
    assert readable(path, value) == shown


def test_every_evidence_has_its_source():
    for name in ("h100-sxm", "rtx-4090", "m4-max", "ryzen-7950x"):
        for each in figures_behind(deployment("llama-3.2-1b", name)):
            assert each.source.text, each.figure


@pytest.mark.parametrize(
    ("model", "hardware", "weights", "tp", "used"),
    [
        ("llama-3.1-8b", "h100-sxm", "bf16", 1, set()),
        ("llama-3.1-8b", "h100-sxm", "fp8", 2, {"quantized", "reduced_bits"}),
        ("llama-3.1-8b", "h100-sxm", "fp8-block", 1, set()),
        ("llama-3.1-8b", "b200-sxm", "fp8", 1, {"quantized"}),
        ("gpt-oss-20b", "h100-sxm", "mxfp4", 1, {"expert_tile"}),
        ("gpt-oss-20b", "b200-sxm", "mxfp4", 1, {"expert_tile", "quantized"}),
    ],
)
def test_kernels_that_no_product_runs_are_no_basis(model, hardware, weights, tp, used):
    every = ("quantized", "reduced_bits", "expert_tile")
    plain = deploy(model, hardware, layout=default_layout(load_model(model), tp=tp, dtypes=(weights, "")))
    rule = kernels_with(**dict.fromkeys(every, 2.0))
    changed = plain.engine.model_copy(update={"kernels": (rule,), "adapters": True})
    named = {each.figure for each in figures_behind(replace(plain, engine=changed))}
    assert {each for each in every if {f"kernels.rules.{each}", f"kernels.fitted.{each}"} & named} == used
    assert "traffic of adapters" in named - {each.figure for each in figures_behind(plain)}


def test_adapters_are_part_of_what_light_has_to_do():
    plain = deploy("llama-3.1-8b", "h100-sxm")
    adapted = replace(plain, engine=plain.engine.model_copy(update={"adapters": True}))
    batch = Batch(8, 512, 64)
    with_them, without = estimate(adapted, batch), estimate(plain, batch)
    assert with_them.expected.tpot_s > without.expected.tpot_s
    assert with_them.light.tpot_s > without.light.tpot_s


def test_the_rank_of_adapters_is_a_guess_until_it_is_given():
    plain = deploy("llama-3.1-8b", "h100-sxm", "sglang")
    for given_settings, guessed in (
        ([], False),
        (["enable_lora=true"], True),
        (["enable_lora=on", "max_lora_rank=8"], False),
    ):
        adapted = replace(plain, **configure(plain.engine, plain.settings, given_settings)._asdict())
        assert ("max_lora_rank" in rests_on(memory_basis(adapted), "guess")) == guessed
