"""Loads of measured setups: what requests share, what a valid run keeps, where it ran."""

from dataclasses import replace

import numpy as np
import pytest

from simulator.deployment.batches import Batch, decode_counts
from simulator.engines.device_kernels import DeviceKernels
from simulator.engines.engine import engine_of
from simulator.errors import NotModelledError
from simulator.hardware.hardware import load_hardware
from simulator.models.layout import Layout
from simulator.models.op_builders import linear
from simulator.models.operations import Counts
from simulator.questions.batch_question import BatchSizes
from simulator.roofline.bandwidth import HIGHEST_MEMORY_FRACTION
from simulator.roofline.roofline import Rates
from simulator.simulation.engine_workload import engine_workload
from simulator.validation.measurements import Setup
from simulator.validation.prediction import ask
from simulator.validation.setups import place
from simulator.validation.sources.recipe import AIPERF_PROMPTS
from simulator.workloads.arrivals import OpenLoop
from tests.support.kernels import kernels_with
from tests.support.measured import OFFLINE, OPEN, answer, asked_on, engine_gets, recipe, setup, users


def prompts_of(given: Setup) -> np.ndarray:
    prefixes = engine_gets(given).prefixes
    return prefixes.first // prefixes.count.max(initial=1)


@pytest.mark.parametrize(("in_flight", "replicas", "busy"), [(1, 2, 1), (1, 8, 1), (8, 8, 8), (64, 8, 8)])
def test_replicas_without_a_request_in_flight_serve_nobody(in_flight, replicas, busy):
    asked = ask(setup(concurrency=in_flight, replicas=replicas, devices=replicas))
    assert asked.question.run.serving(asked.question.users).replicas == busy
    alone = answer(setup(concurrency=max(1, in_flight // replicas))).value("throughput_out_tok_s")
    found = answer(setup(concurrency=in_flight, replicas=replicas, devices=replicas)).value("throughput_out_tok_s")
    assert found == pytest.approx(busy * alone, rel=0.05)


def test_a_closed_loop_of_an_unknown_size_is_no_single_stream():
    with pytest.raises(NotModelledError, match="State concurrency"):
        ask(setup(concurrency=0))


@pytest.mark.parametrize(
    ("hardware", "date", "workers"), [("H200 SXM", "2025-11", 28), ("H200 SXM", "2026-01", 56), ("A100", "2026-01", 1)]
)
def test_deplodock_has_a_balancer_worker_per_cpu_of_hosts_that_are_known(hardware, date, workers):
    given = setup(source="cloudrift-deplodock", hardware=hardware, date=date, replicas=2, devices=2, concurrency=9)
    question = ask(given).question
    assert question.run.router_workers == workers
    assert question.run.router == ("least-connections" if workers > 1 else "")
    assert question.users.max_concurrency == ("9" if workers > 1 else "10")  # an even share is whole
    assert not ask(replace(given, replicas=0, devices=1)).question.run.router


def test_aiperf_sends_its_prompts_in_turn_and_the_cache_keeps_them():
    repeated = setup(client="aiperf")
    prompts = prompts_of(repeated)
    assert len(prompts) == 500
    for turn in np.split(prompts, 500 // AIPERF_PROMPTS):
        assert sorted(turn) == list(range(AIPERF_PROMPTS))
    assert len(prompts_of(setup())) == 0
    cached, fresh = answer(repeated), answer(setup())
    assert cached.value("ttft_ms") < fresh.value("ttft_ms")
    assert cached.value("throughput_out_tok_s") > fresh.value("throughput_out_tok_s")


def test_what_aiconfigurator_deploys_in_vllm_was_warmed_up_with_the_prompts_that_it_draws():
    """bench_run.sh.j2: twice the concurrency to warm up, of 100 prompts: 64 requests draw 100 (1 - .99^64) = 47."""
    deployed = {"engine": "vLLM", "engine_version": "0.12.0", "client": "aiconfigurator", "input_tokens": 2000.0}
    prefixes = engine_gets(setup(**deployed, concurrency=32)).prefixes
    units = prefixes.count[0]
    warm = np.unique(prefixes.warm // units)
    assert len(prefixes.warm) == units * len(warm)
    assert abs(len(warm) - 47) < 10
    asked = np.bincount(prefixes.first // units, minlength=AIPERF_PROMPTS)
    assert asked.max() > asked.min() + 1  # drawn, not in turn
    assert answer(setup(**deployed, concurrency=64)).value("ttft_ms") < 0.5 * fresh_ms(deployed, 64)
    other = {**deployed, "engine": "TensorRT-LLM", "engine_version": "1.2.0"}
    assert not len(engine_gets(setup(**other, concurrency=32)).prefixes.warm)


RENTED = {"hardware": "RTX 5090", "model": "Qwen3-8B", "source": "holtmann-consumer-blackwell", "client": "aiperf"}


def test_five_requests_warm_a_rented_card_up_with_the_first_of_its_prompts():
    """They are over before the run, which goes on with the prompts after them; a prompt's end is evicted first."""
    prefixes = engine_gets(setup(**RENTED, input_tokens=2048.0)).prefixes
    prompts, units = prefixes.first // prefixes.count, prefixes.count[0]
    warm = prefixes.warm.reshape(-1, units)
    assert (np.diff(warm) == -1).all()
    before = warm[:, -1] // units
    assert sorted([*before, *prompts[: AIPERF_PROMPTS - 5]]) == list(range(AIPERF_PROMPTS))


@pytest.mark.parametrize("distinct", [2, 3])
def test_a_warm_cache_begins_with_prompts_in_the_order_of_their_last_use(distinct):
    """Of five in turn, the one that is asked next has waited longest."""
    given = setup(**RENTED, num_dataset_entries=distinct)
    prefixes = engine_gets(given).prefixes
    assert prefixes.warm[0] // prefixes.count[0] == prefixes.first[0] // prefixes.count[0]


def fresh_ms(given: dict[str, object], concurrency: int) -> float:
    asked = ask(setup(**given, concurrency=concurrency))
    engine = asked.deployment.engine.model_copy(update={"prefix_caching": False})
    return asked.on(replace(asked.deployment, engine=engine)).answer().value("ttft_ms")


def test_as_many_distinct_prompts_as_requests_are_no_repetition():
    every = setup(num_dataset_entries=500)
    assert sorted(prompts_of(every)) == list(range(500))
    assert answer(every).value("ttft_ms") == answer(setup()).value("ttft_ms")


def test_distinct_prompts_are_not_the_number_of_requests():
    given = setup(num_dataset_entries=50, num_prompts=0)
    assert users(given).request_count == 320


@pytest.mark.parametrize("changed", [{"engine": "LMDeploy TurboMind"}, {"model": "Qwen3.5-27B"}])
def test_nothing_is_shared_without_a_prefix_cache_or_with_states(changed):
    assert len(prompts_of(setup(client="aiperf", **changed))) == 0


def test_what_aiconfigurator_deploys_mixes_chunks_in_sglang_and_keeps_an_fp8_cache_in_vllm():
    given = {"engine": "SGLang", "engine_version": "0.5.6", "weight_dtype": "fp8", "client": "aiconfigurator"}
    deployed, swept = setup(**given, input_tokens=2000.0), setup(**given)
    assert asked_on(deployed).engine.policy == "continuous"
    assert asked_on(deployed).layout.cache_dtype == "bf16"
    assert asked_on(swept).engine.policy == "prompts-first"
    served = setup(**given | {"engine": "vLLM", "engine_version": "0.12.0"}, input_tokens=2000.0)
    assert asked_on(served).layout.cache_dtype == "fp8"


IMX = {"client": "inferencemax", "num_prompts": 0}


def test_tensorrt_in_inferencemax_gathers_short_prompts_for_twenty_steps_below_eight_devices():
    given = {**IMX, "engine": "TensorRT-LLM", "engine_version": "1.1", "model": "Llama-3.1-70B", "weight_dtype": "fp8"}
    lengths = {"input_tokens": 1024.0, "output_tokens": 1024.0, "concurrency": 4, "tp": 2, "devices": 2}
    waits = answer(setup(**given, **lengths))
    starts_at_once = answer(setup(**given, **{**lengths, "output_tokens": 1000.0}))
    waited_ms = waits.value("ttft_ms") - starts_at_once.value("ttft_ms")
    assert waited_ms == pytest.approx(19 * waits.value("tpot_ms"), rel=0.1)
    assert recipe(setup(**given, **{**lengths, "tp": 8, "devices": 8})).gathered_steps == 0


@pytest.mark.parametrize(
    ("hardware", "version", "model", "weights", "cache"),
    [
        ("H200 SXM", "0.13.0", "gpt-oss-120b", "mxfp4", "bf16"),
        ("B200 SXM", "0.13.0", "gpt-oss-120b", "mxfp4", "fp8"),
        ("B200 SXM", "0.11.0", "gpt-oss-120b", "mxfp4", "bf16"),
        ("B200 SXM", "", "gpt-oss-120b", "mxfp4", "fp8"),
        ("H200 SXM", "0.10.2", "Llama-3.1-70B", "fp8", "fp8"),
    ],
)
def test_inferencemax_caches_as_its_scripts_ask(hardware, version, model, weights, cache):
    stated = {"weight_dtype": "fp8" if weights == "fp8" else "nvfp4", "engine_version": version}
    layout = asked_on(setup(**IMX, hardware=hardware, model=model, **stated, tp=2, devices=2)).layout
    assert (layout.weight_dtype, layout.cache_dtype) == (weights, cache)


@pytest.mark.parametrize(("date", "cache"), [("2025-11-02", "bf16"), ("2025-12-15", "fp8")])
def test_the_cache_of_gpt_oss_is_that_of_the_date_where_no_release_is_stated(date, cache):
    stated = {"hardware": "B200 SXM", "model": "gpt-oss-120b", "weight_dtype": "fp4", "engine_version": ""}
    assert asked_on(setup(**IMX, **stated, date=date)).layout.cache_dtype == cache


def served(rate_per_s: float, client: str = "mlperf") -> Setup:
    return setup(model="Llama-2-70b", devices=8, tp=0, concurrency=0, input_tokens=0.0, output_tokens=290.0,
                 rate_per_s=rate_per_s, client=client, scenario="Server", **OPEN)  # fmt: skip


def test_a_valid_run_keeps_its_limits_whatever_rate_is_asked():
    limits = recipe(served(1.0)).latency_limits_s
    assert limits == (2.0, 0.2)
    found = [answer(served(rate)) for rate in (20.0, 120.0, 160.0)]
    for each in found:
        assert each.value("ttft_ms", "p99") <= 1e3 * limits[0]
        assert each.value("tpot_ms", "p99") <= 1e3 * limits[1]
    rates = [each.value("throughput_out_tok_s", "mean") / 290 for each in found]
    assert rates[0] == pytest.approx(20.0, rel=0.1)
    assert rates[1] < 110  # of 120 asked for, beyond what eight devices serve
    assert rates[2] < 110
    assert recipe(served(1.0, client="")).latency_limits_s is None


def test_a_long_open_loop_serves_what_it_is_sent_and_a_counted_one_has_a_drain():
    rate = {"concurrency": 0, "rate_per_s": 2.0, "output_tokens": 512.0}
    endless = answer(setup(**OPEN, **rate))
    counted = answer(setup(**OPEN | {"num_prompts": 100}, **rate))
    assert endless.value("throughput_out_tok_s") == pytest.approx(2 * 512, rel=0.05)
    assert counted.value("throughput_out_tok_s") < endless.value("throughput_out_tok_s")


def test_gaps_are_as_a_row_states_them_and_else_poisson():
    rate = {"concurrency": 0, "rate_per_s": 8.0, "devices": 2, "replicas": 2}
    assert users(setup(**OPEN, **rate, burstiness=0.5)).arrivals == OpenLoop(4.0, 0.5)
    assert users(setup(**OPEN, **rate)).arrivals == recipe(setup(**OPEN, **rate)).arrivals(4.0, 2) == OpenLoop(4.0)


def test_sharegpt_replays_have_the_spread_of_their_trace():
    given = setup(**OPEN | {"num_prompts": 300}, dataset="llmservingsim", concurrency=0, rate_per_s=10.0)
    requests = users(given).requests()
    assert requests.output_tokens.std() / requests.output_tokens.mean() == pytest.approx(0.15, abs=0.02)


@pytest.mark.parametrize("output", [256.0, 214.0])
def test_outputs_of_a_data_set_differ(output):
    given = setup(dataset="custom", output_tokens=output)
    requests = users(given).requests()
    assert requests.output_tokens.std() > 0.5 * output
    assert requests.prompt_tokens.std() > 500


def test_lengths_of_mlperf_data_sets_fill_in_what_a_run_does_not_say():
    given = setup(**OFFLINE, client="mlperf", output_tokens=0.0, input_tokens=0.0, concurrency=0)
    requests = users(given).requests()
    assert requests.output_tokens.mean() == pytest.approx(128, rel=0.05)


def test_copies_stay_within_a_node_where_they_fit():
    placed = place(setup(model="Llama-3.1-405B", weight_dtype="fp8", devices=16, tp=0))
    assert (placed.deployment.layout.tp, placed.replicas) == (8, 2)


@pytest.mark.parametrize(
    ("version", "preset"), [("b2899", "b1500"), ("2024-05", "b1500"), ("b5922", "b3220"), ("b6918", "b6325")]
)
def test_builds_of_llama_cpp_lead_to_a_generation(version, preset):
    assert engine_of("llama.cpp CUDA", version).version == preset


@pytest.mark.parametrize("share", [0.5, 1.0, 10.0])
def test_no_gemm_reads_weights_faster_than_the_best_that_was_measured(share):
    hardware = load_hardware("h100-sxm")
    kernels = engine_of("vllm", "0.33").kernels_on(hardware).with_fitted(memory=share)
    op = linear("down", (8192, 8192), Layout())
    cost = Rates(kernels).time(op, Counts(steps=1.0, tokens=1.0))
    assert cost.moved_bytes / cost.memory_s <= HIGHEST_MEMORY_FRACTION * hardware.memory_bytes_per_s * (1 + 1e-9)


def test_an_engine_tuned_for_decode_reads_weights_at_the_best_rate_of_any_kernel_of_the_device():
    hardware, op = load_hardware("h200-sxm"), linear("down", (8192, 8192), Layout())
    shares = {}
    for best in (True, False):
        cost = Rates(DeviceKernels(hardware, kernels_with(reads_at_best_rate=best))).time(
            op, Counts(steps=1.0, tokens=1.0)
        )
        shares[best] = cost.moved_bytes / cost.memory_s / hardware.memory_bytes_per_s
    assert shares[True] == pytest.approx(hardware.achievable.copy_memory_fraction) == pytest.approx(4.3 / 4.8, abs=1e-3)
    assert shares[False] == pytest.approx(hardware.achievable.gemm["bf16"].memory_fraction)


@pytest.mark.parametrize(("version", "evicting"), [("0.10.0", True), ("0.11.0", False)])
def test_tensorrt_llm_evicts_where_its_published_command_says_so(version, evicting):
    stated = {"engine": "TensorRT-LLM", "engine_version": version, "hardware": "H100 SXM 80GB", "model": "Llama-3-8B"}
    lengths = {"input_tokens": 128.0, "output_tokens": 2048.0, "devices": 1, "tp": 1, **OFFLINE}
    placed = place(setup(**stated, **lengths, weight_dtype="fp8", client="gptManagerBenchmark"))
    assert placed.deployment.engine.admit_full_output is not evicting
    assert (placed.deployment.max_num_batched_tokens == 2048) is evicting


@pytest.mark.parametrize(("engine", "drift"), [("TensorRT-LLM", 0), ("vLLM", 1)])
def test_equal_requests_drift_apart_by_the_tokens_of_their_engine(engine, drift):
    given = setup(engine=engine, engine_version="", output_tokens=1024.0)
    asked, lengths = (made.requests().output_tokens for made in (users(given), engine_gets(given)))
    assert (asked.min(), asked.max()) == (1024, 1024)
    assert (lengths.min(), lengths.max()) == (1024 - drift, 1024 + drift)


def test_each_draw_of_a_measured_load_repeats_its_prompts_in_an_order_of_its_own():
    given = setup(client="aiperf", num_prompts=0)
    made = users(given)
    one, two = (engine_workload(replace(made, seed=seed), asked_on(given)).prefixes.first for seed in (0, 1))
    assert not np.array_equal(one, two)


def test_a_decode_from_an_empty_context_starts_from_one_token():
    """llama-bench's tg128 as a user would ask it: one token in, 128 out, each step over one token more."""
    desktop = {"hardware": "RTX 4090", "model": "Llama-3-8B", "engine": "llama.cpp", "engine_version": "b6325"}
    given = setup(**desktop, regime="single", input_tokens=0.0, starts_empty=True, output_tokens=128.0, concurrency=0)
    asked = ask(given)
    assert asked.question.sizes == BatchSizes("1", "1", "128")
    attended = 1 + np.arange(1.0, 128.0)
    steps_s = asked.deployment.step_model().seconds(decode_counts(asked.deployment, Batch(1, 1, 128), attended))
    assert asked.answer().value("tg_tok_s") == pytest.approx(1 / np.mean(steps_s))


@pytest.mark.parametrize(("prompt", "output", "words"), [(467.0, 16.0, ("467", "16")), (202.0, 214.0, None)])
def test_tensorrt_llm_online_serving_is_vllms_nightly_benchmark(prompt: float, output: float, words):
    given = setup(**OPEN, source="tensorrt-llm-docs-online-serving", engine="TensorRT-LLM + Triton", dataset="custom")
    asked = ask(replace(given, engine_version="0.14.0", input_tokens=prompt, output_tokens=output))
    lengths = asked.question.users.input_len, asked.question.users.output_len
    assert lengths == words if words else all(each.startswith("lognormal") for each in lengths)
    assert asked.key_of("itl_ms", "mean") == ("mean_itl_ms", 1.0)  # pooled
    assert asked.deployment.stream_s == pytest.approx(51e-6)  # 255 us in each of five instances of postprocessing
