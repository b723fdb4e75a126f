"""Published setups: how layouts are read, what their scripts set, pipelines under load."""

import math
from dataclasses import replace

import pytest

from simulator.deployment.layouts import default_layout
from simulator.deployment.memory import memory_plan
from simulator.deployment.setting_names import OURS
from simulator.errors import InfercastError, WorkloadError
from simulator.models.operations import Counts
from simulator.profile import Figure
from simulator.questions.batch_question import BatchQuestion
from simulator.roofline.step_model import NO_LAUNCHES
from simulator.simulation.engine_loop import simulate
from simulator.simulation.rejection import rejections
from simulator.simulation.scheduler_limits import limits
from simulator.validation.measurements import Setup
from simulator.validation.prediction import ask
from simulator.validation.setups import place
from simulator.validation.sources import RECIPES
from simulator.validation.sources.trtllm_docs import BENCH_REQUESTS
from simulator.workloads.workload import Requests
from tests.support.measured import answer, engine_gets, published, recipe

MOE = {"model": "Qwen3-30B-A3B", "weight_dtype": "nvfp4", "hardware": "RTX PRO 6000 Blackwell"}
BENCH = {"engine": "TensorRT-LLM", "engine_version": "1.0", "regime": "offline"}
MI300X = {"hardware": "AMD MI300X"}
COPIED = {"client": "trtllm-bench", "engine_settings": (("enable_attention_dp", "true"),)}


def setup(**changed: object) -> Setup:
    stated = {"hardware": "H100 SXM 80GB", "devices": 1, "model": "Llama-3.1-8B", "engine": "vLLM"}
    stated |= {"engine_version": "0.12.0", "input_tokens": 512.0, "output_tokens": 64.0, "concurrency": 32}
    return Setup(**{**stated, "regime": "closed_loop", **changed})  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------ layouts


@pytest.mark.parametrize(
    ("stated", "degrees", "copies"),
    [
        ({"devices": 8, "tp": 1, "dp": 8, "ep": 8}, (1, 1, 8, 8), 1),
        ({"devices": 4, "tp": 2, "dp": 2, "ep": 4}, (2, 1, 2, 4), 1),
        ({"devices": 8, "tp": 1, "dp": 4, "ep": 1}, (1, 1, 4, 4), 2),  # expert degrees that are no Layout's
        ({"devices": 4, "tp": 1, "dp": 8, "ep": 8}, (1, 1, 4, 4), 1),  # no more ranks than devices
        ({"devices": 4, "tp": 1, "pp": 2, "dp": 2, "ep": 2}, (1, 2, 2, 2), 1),
        ({"devices": 4, "tp": 4, "dp": 1, **COPIED}, (1, 1, 4, 4), 1),
        ({"devices": 8, "tp": 2, "pp": 4, "dp": 1, **COPIED}, (1, 4, 2, 2), 1),
        ({"devices": 1, "tp": 1, "dp": 1, **COPIED}, (1, 1, 1, 1), 1),
        ({"devices": 8, "tp": 8, "dp": 8, "ep": 8}, (1, 1, 8, 8), 1),  # SGLang's attention ranks lie among tp
        ({"devices": 8, "tp": 8, "dp": 4}, (2, 1, 4, 8), 1),
        ({"devices": 16, "tp": 8, "dp": 8}, (1, 1, 8, 8), 2),
        ({"devices": 4, "tp": 4, "ep": 4}, (4, 1, 1, 4), 1),
        ({"devices": 4, "tp": 2, "ep": 2}, (4, 1, 1, 4), 1),  # two degrees of one group
        ({"devices": 8, "tp": 2, "ep": 2, "dp": 1}, (2, 1, 1, 2), 4),
    ],
)
def test_attention_ranks_and_experts_lie_as_stated(stated, degrees, copies):
    placed = place(setup(**MOE, **BENCH, **stated))
    layout = placed.deployment.layout
    assert (layout.tp, layout.pp, layout.dp, layout.ep) == degrees
    assert placed.replicas == copies


def test_ranks_of_a_dense_model_are_copies():
    placed = place(setup(devices=8, tp=2, dp=4))
    assert (placed.deployment.layout.tp, placed.deployment.layout.dp, placed.replicas) == (2, 1, 4)


def test_nvidias_deepseek_entries_to_mlperf_have_eight_ranks():
    row = {"model": "DeepSeek-R1", "hardware": "GB200 NVL72", "engine": "TensorRT 10.11", "weight_dtype": "fp4"}
    placed = place(
        setup(**row, devices=72, regime="offline", client="mlperf", scenario="Offline", output_tokens=3700.0)
    )
    assert (placed.deployment.layout.dp, placed.deployment.layout.ep, placed.replicas) == (8, 8, 9)
    assert placed.deployment.max_num_seqs == 8 * 512


# ------------------------------------------------------------------------------------------------------------ recipes


def test_limits_of_trtllm_bench_by_hand():
    """Llama-3.1-8B in fp8 keeps 65,536 bytes a token: 0.95 of what 8 GB of weights leave, over 2,000 tokens each."""
    given = setup(**BENCH | {"client": "trtllm-bench"}, weight_dtype="fp8", input_tokens=1000.0, output_tokens=1000.0)
    deployment = place(given).deployment
    weights = deployment.layout.weight_bytes(deployment.model.weights())
    fitting = 0.95 * (deployment.hardware.memory_bytes - weights) / (65_536 * 2_000)
    assert 256 < fitting < 1024
    assert deployment.max_num_seqs == 128 * math.ceil(fitting / 128)
    assert deployment.max_num_batched_tokens == 2048
    short = place(
        setup(**BENCH | {"client": "trtllm-bench"}, weight_dtype="fp8", input_tokens=128.0, output_tokens=128.0)
    )
    assert short.deployment.max_model_len == 256  # throughput.py: max_seq_len is metadata.max_sequence_length
    assert short.deployment.max_num_seqs == 4096
    assert short.deployment.max_num_batched_tokens == 8192
    long = place(setup(**BENCH | {"client": "trtllm-bench"}, weight_dtype="fp8", input_tokens=20e3, output_tokens=2e3))
    assert long.deployment.max_num_seqs == 64
    assert long.deployment.max_num_batched_tokens == 20_064  # without chunks a step takes a whole prompt


@pytest.mark.parametrize(
    ("stated", "limits_of_a_rank"),
    [
        # 94 layers x 2 x 128 numbers of a byte for each of 8 devices, though Qwen3 has 4 KV heads: 192,512 a token,
        # of which 0.95 of 8 x 140.4 GiB less 235 GB hold 2,380 times 2,000
        ({"model": "Qwen3-235B-A22B", "weight_dtype": "fp8", "tp": 8, "dp": 8, "ep": 8, "devices": 8}, (2560, 5120)),
        ({"model": "gpt-oss-120b", "weight_dtype": "mxfp4"}, (2048, 8192)),  # not tuned: BuildConfig's defaults
    ],
)
def test_trtllm_bench_counts_a_kv_head_for_each_device_and_tunes_no_mxfp4(stated, limits_of_a_rank):
    given = {**BENCH, "client": "trtllm-bench", "input_tokens": 1000.0, "output_tokens": 1000.0, **stated}
    placed = place(setup(**given, hardware="H200 SXM")).deployment
    ranks = placed.layout.dp
    assert (placed.max_num_seqs // ranks, placed.max_num_batched_tokens // ranks) == limits_of_a_rank


@pytest.mark.parametrize(
    ("stated", "limits_of_a_step", "share"),
    [
        ({"model": "Llama-3-70B", "tp": 8, "devices": 8}, (8192, 16_384), 0.99),
        ({"model": "Llama-2-70b", "tp": 8, "devices": 8}, (1024, 16_384), 0.99),
        ({"model": "Llama-3-8B", "hardware": "GH200"}, (2048, 8192), 0.95),
        ({"model": "Llama-3.1-70B", "tp": 4, "devices": 4, "engine_version": "0.14.0"}, (2048, 2048), 0.9),
        ({"model": "Llama-3.1-70B", "tp": 2, "devices": 2, "engine_version": "0.14.0"}, (256, 1024), 0.9),
    ],
)
def test_tensorrt_llms_own_tables_list_limits_by_model_and_devices(stated, limits_of_a_step, share):
    """Where a step has fewer tokens than sequences (1,024 beside 2,048), each sequence has one all the same."""
    given = {
        **BENCH,
        "engine_version": "0.11.0",
        "source": "tensorrt-llm-docs-ifb",
        "num_prompts": 2000,
        "weight_dtype": "fp8",
    }
    row = setup(**{**given, **stated, "input_tokens": 128.0, "output_tokens": 2048.0, "concurrency": 0})
    deployment = place(row).deployment
    assert (deployment.max_num_seqs, deployment.max_num_batched_tokens) == limits_of_a_step
    assert deployment.memory_fraction == share
    assert recipe(row).request_count == 3_000


def test_tensorrt_llms_first_tables_are_of_static_batches_which_never_wait_for_cache():
    """Llama-2-7B on H100 in fp8: 120 sequences of 2,176 tokens fill 68 of 80 GB, and were measured as one batch."""
    stated = {"source": "tensorrt-llm-docs-static", "engine": "TensorRT-LLM", "engine_version": "0.9.0"}
    lengths = {"batch": 120, "input_tokens": 128.0, "output_tokens": 2048.0, "regime": "fixed_batch"}
    found = ask(setup(**stated, **lengths, model="Llama-2-7b", hardware="H100 SXM 80GB", weight_dtype="fp8"))
    assert found.deployment.engine.policy == "static"
    assert found.deployment.settings.identical_prompts  # gptSessionBenchmark's are of padding
    assert isinstance(found.question, BatchQuestion)
    assert found.question.sizes.batch == "120"


def test_limits_that_a_setup_states_come_before_those_of_scripts():
    stated = {"client": "trtllm-bench", "max_num_seqs": 100, "max_num_batched_tokens": 5000}
    deployment = place(setup(**BENCH, **stated)).deployment
    assert (deployment.max_num_seqs, deployment.max_num_batched_tokens) == (100, 5000)


@pytest.mark.parametrize(
    ("stated", "tokens"),
    [
        ({"client": "aiconfigurator", "input_tokens": 1024.0}, 32 + 1024 + 1000),
        ({"client": "aiconfigurator", "input_tokens": 4000.0, "output_tokens": 2000.0}, 32 + 4000 + 1500),
        ({"client": "inferencemax", "model": "Llama-3.x-70B", "devices": 8, "tp": 8}, 16_384),
        ({"client": "inferencemax", "model": "gpt-oss-120b"}, 20_000),
    ],
)
def test_tensorrt_llm_computes_whole_prompts_where_its_scripts_leave_chunks_off(stated, tokens):
    deployment = place(setup(engine="TensorRT-LLM", engine_version="1.2", **stated)).deployment
    assert (deployment.engine.chunked_prefill, deployment.max_num_batched_tokens) == (False, tokens)
    assert place(setup(**stated | {"engine": "SGLang", "engine_version": "0.5.6"})).deployment.engine.chunked_prefill


@pytest.mark.parametrize(
    ("engine", "version", "prompt", "share"),
    [("TensorRT-LLM", "1.0", 1024.0, 0.8), ("TensorRT-LLM", "1.0", 4000.0, 0.9), ("SGLang", "0.5.6", 1024.0, 0.8)],
)
def test_aiconfigurators_sweeps_leave_a_fifth_of_the_memory(engine, version, prompt, share):
    found = place(setup(engine=engine, engine_version=version, client="aiconfigurator", input_tokens=prompt)).deployment
    assert found.memory_fraction == pytest.approx(share)


def test_what_aiconfigurator_calls_fp8_is_mxfp4_of_gpt_oss():
    """openai/gpt-oss-120b in the names of its files; of other models it is the publisher's checkpoint."""
    given = {"engine": "TensorRT-LLM", "engine_version": "1.2", "client": "aiconfigurator", "hardware": "H100 SXM 80GB"}
    models = ("gpt-oss-120b", "qwen3-32b")
    found = [place(setup(**given, model=model, weight_dtype="fp8", tp=4)).deployment.layout for model in models]
    assert [each.weight_dtype for each in found] == ["mxfp4", "fp8-block"]


@pytest.mark.parametrize(
    ("model", "hardware", "backend"),
    [
        ("gpt-oss-120b", "B200 SXM", "cutlass"),
        ("gpt-oss-120b", "H200 SXM", "auto"),
        ("qwen3-30b-a3b", "B200 SXM", "auto"),
    ],
)
def test_tables_of_tensorrt_llm_ask_for_cutlass_where_gpt_oss_runs_on_blackwell(model, hardware, backend):
    given = setup(engine="TensorRT-LLM", engine_version="1.2", client="trtllm-bench", model=model, hardware=hardware)
    assert place(given).deployment.engine.moe_backend == backend


@pytest.mark.parametrize(("prompt", "drift"), [(1024.0, 8), (4000.0, 0)])
def test_waves_stay_together_where_dynamo_is_in_front(prompt, drift):
    assert place(setup(client="aiconfigurator", input_tokens=prompt)).deployment.engine.drift_tokens == drift


@pytest.mark.parametrize("name", ["request_s", "http_s", "hop_s", "prompt_token_s"])
def test_no_time_outside_the_steps_is_in_the_speed_of_light(name):
    asked = ask(setup(engine="vLLM", engine_version="0.19", input_tokens=1024.0))
    engine = asked.deployment.engine
    overheads = engine.overheads.model_copy(update={name: Figure(0.1, engine.overheads.request_s.source)})
    slow = replace(asked.deployment, engine=engine.model_copy(update={"overheads": overheads}))
    both = [asked.on(each) for each in (asked.deployment, slow)]
    assert both[1].answer().value("ttft_ms") > both[0].answer().value("ttft_ms")
    light = [each.on(replace(each.deployment, light=True)).answer() for each in both]
    for metric in ("e2e_latency_ms", "throughput_out_tok_s"):
        assert light[0].value(metric) == light[1].value(metric)


def test_a_front_end_bounds_the_rate_but_not_the_speed_of_light():
    asked = ask(setup(engine="SGLang", engine_version="0.5.6"))
    engine = asked.deployment.engine
    assert limits(asked.deployment).stream_s == engine.overheads.stream_s > 0
    overheads = engine.overheads.model_copy(update={"stream_s": Figure(0.01, engine.overheads.stream_s.source)})
    slow = replace(asked.deployment, engine=engine.model_copy(update={"overheads": overheads}))
    both = (asked.deployment, slow)
    tpot_ms = [asked.on(each).answer().value("tpot_ms") for each in both]
    assert tpot_ms[0] < 0.9 * 32 * 10 < tpot_ms[1]  # of 32 streams
    light = [asked.on(replace(each, light=True)).answer().value("e2e_latency_ms") for each in both]
    assert light[0] == light[1]


@pytest.mark.parametrize(
    ("model", "client", "scaled"),
    [("MiniMax-M2.5", "", "fp8-block"), ("Qwen3-32B", "", "fp8-block"), ("Qwen3-32B", "trtllm-bench", "fp8")],
)
def test_fp8_is_the_kind_of_the_checkpoint(model, client, scaled):
    given = setup(model=model, weight_dtype="fp8", hardware="H200 SXM", devices=8, tp=4, client=client)
    assert place(given).deployment.layout.weight_dtype == scaled


def test_a_checkpoint_tells_which_model_ran_where_a_profile_has_its_name():
    """Argonne's Mistral-7B is v0.1, with a window; MLPerf's "gptj" is no name of a profile."""
    run = Setup(hardware="h100-sxm", model="Mistral-7B", checkpoint="Mistral-7B-v0.1", engine="vLLM", batch=1)
    assert place(run).deployment.model.id == "mistral-7b-v0.1"
    assert place(replace(run, checkpoint="")).deployment.model.id == "mistral-7b-v0.3"
    assert place(replace(run, checkpoint="gptj", model="GPT-J-6B")).deployment.model.id == "gpt-j-6b"


def test_an_answer_is_followed_by_the_next_request_after_the_engines_time_per_request():
    given = setup(engine="vLLM", engine_version="0.19", input_tokens=1024.0, concurrency=1)
    deployment, requests = place(given).deployment, engine_gets(given).requests()
    run = simulate(limits(deployment, requests), deployment.step_table(), requests)
    overheads = deployment.engine.overheads
    answer_s = overheads.request_s + overheads.http_s + overheads.hop_s + 1024 * overheads.prompt_token_s
    assert answer_s > overheads.request_s
    assert run.requests.arrival_s[1:] - run.finished_s[:-1] == pytest.approx(answer_s)


def test_a_prompt_as_long_as_a_step_may_have_an_answer_where_nothing_is_evicted():
    given = {"engine": "TensorRT-LLM", "engine_version": "1.2", "client": "aiconfigurator", "input_tokens": 1024.0}
    deployment = place(setup(**given)).deployment
    budget = deployment.max_num_batched_tokens
    requests = Requests([0.0, 1.0, 2.0], [budget, budget + 1, 9], [budget, 1, 9])
    (refused,) = rejections(limits(deployment, requests), requests).values()
    assert refused.tolist() == [False, True, False]


def test_a_load_some_of_whose_requests_would_be_rejected_is_not_predicted():
    """What was measured ran; without the requests that our memory plan has no room for it would be another load."""
    given = {"engine": "vLLM", "engine_version": "0.19", "gpu_memory_utilization": 0.23, "concurrency": 8}
    with pytest.raises(WorkloadError, match=r"1 of 80 requests rejected: more than the 5,233 tokens"):
        answer(setup(**given, input_tokens=1_500.0, dataset="sharegpt"))


def test_the_number_of_requests_follows_the_lengths():
    given = {**BENCH, "input_tokens": 128.0, "output_tokens": 128.0, "concurrency": 0}
    assert recipe(setup(**given)).request_count == BENCH_REQUESTS[128, 128] == 30_000
    assert recipe(setup(**{**given, "num_prompts": 2000})).request_count == 2_000
    assert recipe(setup(**{**given, "engine": "vLLM"})).request_count is None
    assert recipe(setup(**{**given, "input_tokens": 129.0})).request_count is None


@pytest.mark.parametrize(("stated", "most"), [({}, 400), ({"max_model_len": 8192}, 256), ({"max_num_seqs": 64}, 64)])
def test_a_server_some_of_whose_flags_are_stated_has_defaults_for_the_others(stated, most):
    given = setup(hardware="RTX 5090", regime="closed_loop", concurrency=400, **stated)
    assert place(given).deployment.max_num_seqs == most


def test_a_setup_is_of_one_source():
    """Offline runs of TensorRT-LLM have a class for all, before which the tables of its releases are asked."""
    for setup in {row.setup for row in published()}:
        found = [kind for kind, is_of in RECIPES if is_of(setup)]
        assert all(issubclass(found[0], each) for each in found), setup


@pytest.mark.slow
def test_sources_set_rules_that_the_command_line_takes():
    """Each is a name of `--set`: of an engine's rule, or of what clients ask."""
    for setup in {row.setup for row in published()}:
        try:
            rules = recipe(setup).rules
        except InfercastError:  # a device or a model that is not shipped, or not modelled
            continue
        assert rules.keys() <= set(OURS), setup


def test_deepseeks_fp4_checkpoint_in_trtllm_bench_quantises_the_output_projection_too():
    given = {**BENCH, "model": "DeepSeek-R1-0528", "weight_dtype": "nvfp4", "hardware": "GB200 NVL72", "devices": 4}
    found = [place(setup(**given, client=client)).deployment.layout for client in ("trtllm-bench", "")]
    assert [each.weight_dtype for each in found] == ["nvfp4-mlp-wo", "nvfp4-mlp"]


def test_the_cache_of_gpt_oss_alone_is_as_wide_as_its_activations_on_hopper():
    given = {**BENCH, "client": "trtllm-bench", "model": "gpt-oss-20b", "weight_dtype": "mxfp4", "cache_dtype": "fp8"}
    assert place(setup(**given)).deployment.layout.cache_dtype == "bf16"
    assert place(setup(**{**given, "hardware": "GB200 NVL72"})).deployment.layout.cache_dtype == "fp8"
    scaled_whole = {**BENCH, "client": "trtllm-bench", "model": "Qwen3-235B-A22B", "weight_dtype": "fp8", "devices": 8}
    assert place(setup(**scaled_whole, tp=8)).deployment.layout.cache_dtype == "fp8"


# ---------------------------------------------------------------------------------------------------------- pipelines


def test_stages_work_on_batches_of_their_own():
    """One batch after the other would leave three of four stages idle; four batches fill them, but for the weights."""
    given = setup(devices=4, tp=1, pp=4, concurrency=256)
    deployment, requests = place(given).deployment, engine_gets(given).requests()
    alone = simulate(limits(deployment, requests), deployment.step_table(), requests)
    alone_per_s = float(requests.output_tokens.sum() / alone.end_s)
    assert 1.8 < answer(given).value("throughput_out_tok_s") / alone_per_s < 4.0


# -------------------------------------------------------------------------------------------------------- host of ranks


def test_each_rank_handles_its_own_sequences():
    given = {**MOE, **BENCH, "devices": 4, "tp": 1, "ep": 4}
    ranks, alone = place(setup(**given, dp=4)).deployment, place(setup(**given, dp=1)).deployment
    batch = Counts(1.0, 256.0, 256.0)
    slow = [replace(each, engine=each.engine.model_copy(update={"hides_sequences": False})) for each in (ranks, alone)]
    models = [replace(each.step_model(), launches=NO_LAUNCHES) for each in slow]
    host_s = [float(each.explain(batch)[-1].seconds) for each in models]
    overheads = alone.engine.overheads
    assert host_s[1] == pytest.approx(overheads.step_s + 256 * overheads.sequence_s)
    assert host_s[0] == pytest.approx(overheads.step_s + 64 * overheads.sequence_s)
    hidden_s = [each.step_model().launches.sequence_s for each in (ranks, alone)]
    assert hidden_s == pytest.approx([overheads.sequence_s / 4, overheads.sequence_s])


# ------------------------------------------------------------------------------------------------ AMD's images of vLLM


@pytest.mark.parametrize(
    ("image", "engine", "steps"),
    [
        ("vLLM ROCm docker aiter 2025-01-30", "vllm-rocm-0.6", 10),
        ("vLLM ROCm docker 2025-05", "vllm-rocm-0.6", 10),
        ("vLLM 0.9.0.1 ROCm 6.4.1 (2025-06-10)", "vllm-rocm-0.6", 10),
        ("vLLM 0.9.1 (docker 2025-06-24)", "vllm-0.8", 1),
    ],
)
def test_images_of_amd_run_the_first_engine_until_their_changelog_says_otherwise(image, engine, steps):
    given = {"hardware": "AMD MI300X", "model": "Llama-3.1-70B", "engine": "vLLM", "tp": 8, "devices": 8}
    given |= {"engine_version": image, "date": "2025-07-07", "source": "rocm-vllm-dev-docker", "weight_dtype": "fp8"}
    lengths = {"input_tokens": 128.0, "output_tokens": 2048.0, "max_num_seqs": 3200}
    found = place(setup(**given, **lengths, regime="offline")).deployment
    assert (found.engine.id, found.engine.num_scheduler_steps, found.max_num_batched_tokens) == (engine, steps, 131_072)
    latency = place(setup(**given, **lengths, regime="fixed_batch", batch=8)).deployment
    assert (latency.engine.id, latency.engine.num_scheduler_steps) == (engine, 1)


# --------------------------------------------------------------------------------------- Google's recipes for Trillium

TRILLIUM = {
    "hardware": "Google TPU v6e (Trillium)",
    "model": "Llama-3.3-70B",
    "engine": "vLLM TPU",
    "devices": 8,
    "tp": 8,
}
TRILLIUM |= {"engine_version": "", "date": "2026-08", "source": "google-tpu-recipes", "weight_dtype": "bf16"}


@pytest.mark.parametrize(("lengths", "tokens"), [((1000.0, 1000.0), 512), ((1800.0, 128.0), 2048)])
def test_googles_recipe_sets_the_tokens_of_a_step_by_the_kind_of_load(lengths, tokens):
    stated = dict(zip(("input_tokens", "output_tokens"), lengths, strict=True))
    found = place(setup(**TRILLIUM, **stated)).deployment
    assert (found.max_num_seqs, found.max_num_batched_tokens, found.memory_fraction) == (256, tokens, 0.98)
    assert found.engine.async_scheduling
    assert not found.engine.prefix_caching
    small = place(setup(**TRILLIUM | {"model": "Llama-3.1-8B"}, **stated)).deployment
    assert (small.max_num_seqs, small.max_num_batched_tokens, small.memory_fraction) == (128, 1024, 0.98)


def test_googles_recipe_for_ironwood_sends_all_requests_at_once_to_its_own_server():
    stated = {"hardware": "Google TPU7x (Ironwood)", "model": "Qwen3-32B", "devices": 1, "tp": 2, "concurrency": 320}
    ironwood = setup(**TRILLIUM | stated | {"weight_dtype": "fp8"}, input_tokens=1024.0, output_tokens=8192.0)
    placed = place(ironwood)
    found = placed.deployment
    assert (found.max_num_seqs, found.max_num_batched_tokens, found.memory_fraction) == (135, 4096, 0.98)
    assert (found.layout.cache_dtype, found.hardware.id, found.layout.tp) == ("fp8", "tpu7x-core", 2)  # of one chip
    requests = engine_gets(ironwood).requests()
    assert len(requests) == 320
    assert 0.8 * 8192 <= requests.output_tokens.min() < requests.output_tokens.max() <= 8192


def test_vllms_own_benchmark_pools_the_gaps_of_all_requests():
    """Steps with prompts are few and long: they raise the mean of every request, and not the median of all gaps."""
    given = {**TRILLIUM, "client": "vllm bench serve", "output_tokens": 200.0, "concurrency": 8}
    found = answer(setup(**given, input_tokens=1000.0))
    assert found.value("itl_ms", "p50") < 0.99 * found.value("tpot_ms", "p50")


# ------------------------------------------------------------------------------- GeForce cards of arXiv:2601.09527

RENTED = {"hardware": "RTX 5090", "model": "Qwen3-8B", "weight_dtype": "nvfp4", "cache_dtype": "bf16"}
RENTED |= {"source": "holtmann-consumer-blackwell", "max_num_batched_tokens": 8192, "output_tokens": 389.1}
RENTED |= {"gpu_memory_utilization": 0.9}
ADAPTED = RENTED | {"engine_settings": (("enable-lora", "true"),)}


def test_the_scripts_of_the_rented_cards_cap_sequences_and_answers():
    rented = setup(**RENTED)
    placed = place(rented)
    assert placed.deployment.max_num_seqs == rented.concurrency
    requests = engine_gets(rented).requests()
    assert requests.output_tokens.max() == 512
    short = setup(**RENTED | {"output_tokens": 256.0})
    assert engine_gets(short).requests().output_tokens.max() == 256


def test_answers_of_databasemart_end_before_their_limit():
    """The page: "output length 600"; its own counts make 443.4 tokens of each of 50 answers."""
    given = {**BENCH, "source": "databasemart-a40", "hardware": "A40", "engine": "vLLM", "output_tokens": 443.4}
    tokens = engine_gets(setup(**given, input_tokens=100.0)).requests().output_tokens
    assert tokens.max() == 600 and tokens.min() < 443
    assert tokens.mean() == pytest.approx(443.4, rel=0.05)


def test_a_cache_that_a_table_infers_is_that_of_the_checkpoint():
    given = {"source": "cloudrift-deplodock", "hardware": "B200 SXM", "model": "Kimi-K2.5", "tp": 4, "engine": "SGLang"}
    inferred = setup(**given, engine_version="0.5.9", weight_dtype="nvfp4", cache_dtype="bf16")
    assert place(inferred).deployment.layout.cache_dtype == "fp8"
    assert place(replace(inferred, weight_dtype="int4")).deployment.layout.cache_dtype == "bf16"


@pytest.mark.parametrize(("model", "weights"), [("GLM-4.5-Air", "int4-g32"), ("Qwen3-Coder-480B-A35B", "int4")])
def test_deplodocks_checkpoints_of_cyankiwi_have_groups_of_32(model, weights):
    given = setup(source="cloudrift-deplodock", hardware="B200 SXM", model=model, weight_dtype="int4", tp=4, devices=4)
    assert place(given).deployment.layout.weight_dtype == weights


@pytest.mark.parametrize(("version", "is_sorted"), [("0.11.0", False), ("latest (2025-11)", True)])
def test_deplodocks_servers_sort_the_vocabulary_from_vllm_0_11_1_on(version, is_sorted):
    given = {"source": "cloudrift-deplodock", "hardware": "RTX 4090", "model": "Qwen3-Coder-30B-A3B-Instruct"}
    deployment = place(setup(**given, weight_dtype="int4", engine_version=version, date="2025-11")).deployment
    assert deployment.settings.flashinfer_sampler != is_sorted
    sampler = memory_plan(deployment).sampler_bytes
    assert sampler == deployment.max_num_seqs * 151_936 * 4 * (10 if is_sorted else 3.5)


def test_servers_of_adapters_have_room_for_three():
    adapted = place(setup(**ADAPTED)).deployment
    assert (adapted.engine.adapters, adapted.engine.max_loras) == (True, 3)
    assert adapted.adapter_bytes > 0 == place(setup(**RENTED)).deployment.adapter_bytes


@pytest.mark.parametrize(("model", "vocab"), [("Qwen3-8B", 151_936), ("gpt-oss-20b", 0)])
def test_every_card_sorts_the_whole_vocabulary_where_checkpoints_ask_for_top_p(model, vocab):
    given = RENTED | {"model": model, "weight_dtype": ""}
    for tp in (1, 2):
        step = place(setup(**given, tp=tp, devices=tp)).deployment.step_model()
        (sorting,) = [op for op in step.ops if op.name == "sampling"] or [None]
        assert (sorting.activation_bytes.logits if sorting else 0) == 156 * vocab
        table = step.table(64, 64)
        without = replace(step, ops=tuple(op for op in step.ops if op is not sorting)).table(64, 64)
        more_s = (table.logit_s - without.logit_s)[64]
        assert more_s == pytest.approx(64 * 156 * vocab / (0.7 * 1792e9), rel=0.05)
        light = place(setup(**given, tp=tp, devices=tp)).deployment.at_light.step_model()
        assert "sampling" not in [op.name for op in light.ops]  # nobody needs to sort


def test_flashinfers_sampler_sorts_nothing():
    deployment = place(setup(**RENTED | {"model": "Qwen3-8B", "weight_dtype": ""})).deployment
    settings = replace(deployment.settings, flashinfer_sampler=True)
    assert "sampling" in [op.name for op in deployment.step_model().ops]
    assert "sampling" not in [op.name for op in replace(deployment, settings=settings).step_model().ops]


def test_graphs_are_captured_for_twice_the_sequences_at_most():
    assert [place(setup(**RENTED, concurrency=each)).deployment.graphs.tokens for each in (8, 400)] == [16, 512]


def test_inferencemax_lets_vllm_run_what_is_in_flight_and_no_more():
    assert place(setup(client="inferencemax", concurrency=4)).deployment.max_num_seqs == 4
    assert place(setup(concurrency=4)).deployment.max_num_seqs == 1024


@pytest.mark.parametrize(
    ("hardware", "dtype", "tokens", "polls"),
    [("B300 SXM", "bf16", 32_768, 30), ("B300 SXM", "fp8", 16_384, 10), ("H200 SXM", "fp8", 16_384, 1)],
)
def test_inferencemax_runs_qwen_in_sglang_without_a_radix_cache(hardware, dtype, tokens, polls):
    stated = {"model": "Qwen3.5-397B-A17B", "engine": "SGLang", "engine_version": "0.5.9", "devices": 8, "tp": 8}
    given = setup(client="inferencemax", hardware=hardware, weight_dtype=dtype, concurrency=32, **stated)
    found = place(given).deployment
    assert (found.async_scheduling, found.max_num_batched_tokens) == (True, tokens)
    assert found.engine.scheduler_recv_interval == polls


def test_adapters_pass_what_a_product_takes_and_gives_twice_through_memory():
    plain, adapted = (place(setup(**each)).deployment for each in (RENTED, ADAPTED))
    prompt = Counts(steps=1.0, tokens=2048.0, prefill_tokens=2048.0, prefill_pairs=2048 * 1024.0, logits=1.0)
    more = adapted.step_model().seconds(prompt) - plain.step_model().seconds(prompt)
    width = 4096 + 6144 + 4096 + 4096 + 4096 + 24_576 + 12_288 + 4096  # of the four products of a layer, both sides
    launches = 36 * 4 * 3 * 2.2e-6 * adapted.engine.kernels_on(adapted.hardware).fitted.launch
    assert more == pytest.approx(36 * 1.5 * 2 * width * 2048 / (0.7 * 1792e9) + launches)


@pytest.mark.parametrize(
    ("changed", "preset", "graph_tokens"),
    [
        ({"engine_version": "0.11.0", "client": "inferencemax"}, "vllm-0.14", 512),
        ({"engine_version": "0.18.0"}, "vllm-0.14", 512),
        ({"engine_version": "0.12.0"}, "vllm-0.8", 512),
        ({"engine_version": "0.13.0", "client": "inferencemax", "model": "gpt-oss-120b"}, "vllm-0.14", 2048),
        ({"engine_version": "0.13.0", "client": "inferencemax", "model": "gpt-oss-120b", **MI300X}, "vllm-0.14", 512),
    ],
)
def test_inferencemax_lets_vllm_schedule_ahead_before_that_is_the_default(changed, preset, graph_tokens):
    engine = place(setup(**changed)).deployment.engine
    assert (engine.id, engine.graph_capture.graph_tokens) == (preset, graph_tokens)
    assert engine.async_scheduling == (preset == "vllm-0.14")


@pytest.mark.parametrize(
    ("model", "hardware", "version", "experts", "fused"),
    [
        ("gpt-oss-120b", "H200 SXM", "0.18.0", "marlin", True),
        ("gpt-oss-120b", "H100 SXM 80GB", "0.13.0", "marlin", None),
        ("gpt-oss-120b", "H100 SXM 80GB", "0.11.2", "auto", None),
        ("gpt-oss-120b", "B200 SXM", "0.15.1", "auto", True),
        ("gpt-oss-120b", "AMD MI300X", "0.18.0", "auto", None),
        ("Llama-3.x-70B", "B200 SXM", "", "auto", True),
        ("Llama-3.x-70B", "H200 SXM", "", "auto", None),
        ("MiniMax-M2.5", "H200 SXM", "0.16.0", "auto", None),
        ("MiniMax-M2.5", "H200 SXM", "0.18.0", "auto", True),
    ],
)
def test_inferencemax_asks_vllm_for_marlin_and_norms_in_all_reduces(model, hardware, version, experts, fused):
    """gptoss_fp4_h{100,200}.sh and the scripts for B200; by default in all from 0.17.1 on, on NVIDIA."""
    changed = {"client": "inferencemax", "model": model, "hardware": hardware, "engine_version": version, "tp": 8}
    engine = place(setup(**changed, date="2025-10-29")).deployment.engine
    assert (engine.moe_backend, engine.fuse_allreduce_rms) == (experts, fused)


@pytest.mark.parametrize(
    ("model", "hardware", "version", "quick", "share"),
    [
        ("Llama-3.x-70B", "AMD MI300X", "0.10.2", True, 0.94),
        ("Llama-3.x-70B", "AMD MI325X", "0.10.2", False, 0.94),
        ("gpt-oss-120b", "AMD MI300X", "0.14.0", True, 0.95),
        ("gpt-oss-120b", "AMD MI325X", "0.14.0", False, 0.95),
        ("gpt-oss-120b", "AMD MI325X", "0.17.0", True, 0.95),
        ("gpt-oss-120b", "AMD MI325X", "rocm7.0.0_vllm_0.11.1_20", False, 0.95),
        ("Llama-3.x-70B", "H100 SXM 80GB", "0.10.2", False, 0.9),
    ],
)
def test_inferencemax_asks_for_quick_sums_on_mi300x_and_for_more_memory_on_amds(model, hardware, version, quick, share):
    stated = {
        "model": model,
        "hardware": hardware,
        "engine_version": version,
        "weight_dtype": "",
        "devices": 8,
        "tp": 8,
    }
    found = place(setup(**stated, client="inferencemax")).deployment
    assert found.memory_fraction == pytest.approx(share)
    assert (found.engine.kernels_on(found.hardware).rules.reduced_bits == 4.5) == quick
    assert (found.max_num_batched_tokens == 131_072) == (share == 0.94)


@pytest.mark.parametrize(("model", "tokens"), [("Llama-3.x-70B", 10), ("DeepSeek-R1", 10), ("gpt-oss-120b", 20)])
def test_inferencemax_lets_tensorrt_llm_stream_some_tokens_at_once(model, tokens):
    stated = {"model": model, "hardware": "B200 SXM", "devices": 8, "tp": 8, "client": "inferencemax"}
    found = place(setup(**stated, engine="TensorRT-LLM", engine_version="1.2")).deployment
    assert found.engine.stream_interval == tokens
    assert place(setup(**stated)).deployment.engine.stream_interval == 1


def test_trtllm_bench_has_no_front_end_and_trtllm_serve_has_one():
    assert place(setup(**BENCH, client="trtllm-bench")).deployment.stream_s == 0.0
    served = place(setup(engine="TensorRT-LLM", engine_version="1.0", client="aiconfigurator")).deployment
    assert served.stream_s == pytest.approx(56.9e-6)


@pytest.mark.parametrize(
    ("changed", "first_call_s"),
    [({}, 9.0), ({"concurrency": 1}, 0.0), ({"hardware": "H100 SXM 80GB"}, 0.0), ({"model": "Qwen3-8B"}, 0.0)],
)
def test_deplodocks_servers_tune_kernels_of_hybrids_in_their_first_prompts(changed, first_call_s):
    stated = {"source": "cloudrift-deplodock", "hardware": "RTX PRO 6000 Blackwell", "model": "Qwen3-Coder-Next"}
    hybrid = setup(**{**stated, "weight_dtype": "fp8", "concurrency": 12, "num_prompts": 80, **changed})
    assert place(hybrid).deployment.first_call_s == first_call_s


@pytest.mark.parametrize(("model", "cached"), [("Qwen3-Coder-Next", False), ("Qwen3-Coder-30B-A3B-Instruct", True)])
def test_deplodock_lets_sglang_run_what_is_in_flight_and_ignore_eos(model, cached):
    stated = {"source": "cloudrift-deplodock", "model": model, "hardware": "B200 SXM", "concurrency": 12}
    found = place(setup(**stated, engine="SGLang", engine_version="0.5.9")).deployment
    assert (found.max_num_seqs, found.settings.ignore_eos, found.engine.prefix_caching) == (12, True, cached)
    assert limits(found).ignores_eos is not cached
    assert found.engine.attention_backend == ("auto" if cached else "triton")
    assert not place(setup(**stated)).deployment.settings.ignore_eos


def test_inferencemax_captures_no_prompts_of_dense_models_on_blackwell():
    found = place(setup(model="Llama-3.x-70B", hardware="B200 SXM", weight_dtype="fp8", client="inferencemax"))
    assert (found.deployment.graphs.tokens, found.deployment.max_num_seqs) == (0, 512)


@pytest.mark.parametrize(("tp", "weights", "ep"), [(4, "fp8", 1), (8, "fp8", 8), (8, "nvfp4", 1)])
def test_experts_stay_whole_where_devices_would_cut_a_block_of_scales(tp, weights, ep):
    """1,536 columns over eight devices are 192, one and a half blocks of 128."""
    stated = {"model": "MiniMax-M2.5", "hardware": "B200 SXM", "weight_dtype": weights, "devices": tp, "tp": tp}
    assert place(setup(**stated)).deployment.layout.ep == ep


@pytest.mark.parametrize(("model", "kind"), [("DeepSeek-R1", "nvfp4-mlp"), ("Qwen3-235B-A22B", "nvfp4")])
def test_fp4_is_that_of_the_published_checkpoint(model, kind):
    """NVIDIA's of DeepSeek-R1 leaves attention in 16 bits."""
    stated = {"model": model, "hardware": "B200 SXM", "devices": 8, "tp": 8}
    found = [place(setup(**stated, weight_dtype=each)).deployment for each in ("fp4", "nvfp4")]
    assert {each.layout.weight_dtype for each in found} == {kind}
    assert default_layout(found[0].model, dtypes=("NVFP4", "")).weight_dtype == kind


@pytest.mark.parametrize(
    ("hardware", "version", "weights", "cache", "graph_tokens", "limits"),
    [
        ("B200 SXM", "0.17.0", "fp8", "bf16", 512, (1024, 8192, 0.95)),
        ("B200 SXM", "nightly-5b8c30d62b754b57", "nvfp4", "fp8", 16, (8, 8192, 0.9)),
        ("B200 SXM", "0.19.0", "fp8", "fp8", 2048, (1024, 2048, 0.9)),
        ("B200 SXM", "0.19.0", "nvfp4", "fp8", 2048, (1024, 2048, 0.9)),
        ("H100 SXM 80GB", "0.18.0", "fp8", "bf16", 512, (256, 8192, 0.9)),
        ("H200 SXM", "0.18.0", "fp8", "bf16", 512, (1024, 8192, 0.95)),
    ],
)
def test_inferencemax_serves_minimax_as_the_script_of_its_date_says(
    hardware, version, weights, cache, graph_tokens, limits
):
    stated = {"model": "MiniMax-M2.5", "hardware": hardware, "weight_dtype": weights, "devices": 4, "tp": 4}
    lengths = {"input_tokens": 1024.0, "output_tokens": 1024.0, "concurrency": 8, "date": "2026-04-03"}
    found = place(setup(**stated, **lengths, engine_version=version, client="inferencemax")).deployment
    assert (found.layout.cache_dtype, found.graphs.tokens) == (cache, graph_tokens)
    assert (found.max_num_seqs, found.max_num_batched_tokens, found.memory_fraction) == limits


def test_a_papers_number_beside_a_date_is_no_release():
    stated = {"source": "splitwise-sim", "engine": "vLLM", "engine_version": "2023", "hardware": "A100 SXM 80GB"}
    assert place(setup(**stated, date="2023-11 (paper arXiv:2311.18677)")).deployment.engine.id == "vllm-0.2"


def test_intels_entries_to_mlperf_are_a_server_of_sglang_in_each_numa_node():
    row = {"hardware": "CPU INTEL XEON 6980P", "model": "Llama-3.1-8B", "weight_dtype": "int8", "engine": "PyTorch"}
    load = {"client": "mlperf", "regime": "offline", "scenario": "Offline"}
    placed = place(setup(**row, devices=2, **load))
    assert (placed.question.hardware, placed.deployment.engine.engine) == ("xeon-6980p-numa", "sglang")
    assert placed.replicas == 2 * 3  # dies of two sockets
    assert (placed.deployment.max_num_seqs, placed.deployment.max_num_batched_tokens) == (64, 8192)


@pytest.mark.parametrize(
    ("stated", "tokens", "share"),
    [
        ({}, "2048", ""),  # vLLM's default step of 32,768 tokens leaves no cache
        ({"max_model_len": 8192}, "", ""),  # a server whose flags are stated has defaults for all others
        ({"devices": 4, "tp": 4}, "", ""),  # it fits
    ],
)
def test_a_measured_run_fitted_where_no_flag_is_stated(stated, tokens, share):
    setup = Setup(
        **{"hardware": "RTX 3090", "model": "Qwen2.5-72B-Instruct", "weight_dtype": "int4", "engine": "vLLM"},
        **{
            "engine_version": "0.6.3",
            "input_tokens": 512,
            "output_tokens": 256,
            "concurrency": 8,
            "regime": "closed_loop",
        },
        **({"devices": 2, "tp": 2} | stated),
    )
    asked = place(setup).question
    assert (asked.max_num_batched_tokens, asked.gpu_memory_utilization) == (tokens, share)


@pytest.mark.parametrize(
    ("model", "checkpoint", "stated", "weights"),
    [
        ("Laguna-S-2.1-NVFP4", "", "bf16", "nvfp4"),  # the type that it computes in
        ("Llama-3.1-8B", "RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8", "", "fp8"),
        ("Llama-3.1-8B", "RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8", "int4", "int4"),
        ("gpt-oss-20b-BF16", "", "mxfp4", "mxfp4"),
        ("Llama-2-70b", "", "mxfp4", "mxfp4-w4a4"),
    ],
)
def test_the_format_in_a_checkpoints_name_counts_where_a_row_has_none_or_16_bits(model, checkpoint, stated, weights):
    setup = Setup(hardware="MI355X", devices=8, tp=8, model=model, checkpoint=checkpoint, weight_dtype=stated)
    assert place(setup).deployment.layout.weight_dtype == weights


@pytest.mark.parametrize(
    ("engine", "device", "stored"),
    [("Ollama", "RTX 3090", "q4_K_M"), ("llama.cpp", "RTX 3090", "q4_K_M"), ("mlx-lm", "M2 Ultra", "bf16")],
)
def test_weights_that_nobody_states_are_what_the_engine_fetches(engine, device, stored):
    row = {"hardware": device, "model": "Llama-3.1-8B", "engine": engine, "weight_dtype": "", "regime": "single"}
    assert place(setup(**row)).deployment.layout.weight_dtype == stored


def test_vllm_on_a_tpu_is_its_port():
    row = {"hardware": "TPU v6e", "model": "Llama-3.1-8B", "engine": "vLLM", "engine_version": "0.9.2"}
    assert place(setup(**row, devices=1)).deployment.engine.engine == "vllm-tpu"
