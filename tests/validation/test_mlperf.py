"""MLPerf entries: data sets, harness settings, and runs within their limits of latency."""

from dataclasses import replace

import pytest

from simulator.engines.engine import load_engine
from simulator.models.model import load_model
from simulator.simulation.engine_loop import simulate
from simulator.simulation.scheduler_limits import limits
from simulator.validation.setups import place
from simulator.validation.sources.mlperf import DATA_SETS, LIMITS_S
from simulator.validation.sources.mlperf_entries import AMD_ENTRIES, BALANCED_STEPS, ENTRIES, GATHERED_STEPS
from simulator.workloads.arrivals import ClosedLoop, Released
from tests.support.measured import OPEN, answer, engine_gets, question, recipe, setup, users

SERVER = {**OPEN, "client": "mlperf", "scenario": "Server", "tp": 0, "concurrency": 0, "input_tokens": 0.0}
AT_ONCE, INTERACTIVE = {"regime": "offline", "scenario": "Offline"}, {"scenario": "Interactive"}
B200 = {"hardware": "B200 SXM", "engine": "TensorRT 10.11", "engine_version": "", "devices": 8}
MODELS = {"llama-2-70b": "Llama-2-70b", "llama-3.1-8b": "Llama-3.1-8B"}


def test_prompts_wait_for_those_of_other_ranks_and_for_steps_that_are_decided():
    server = setup(**{**SERVER, **B200}, model="DeepSeek-R1")
    assert place(server).deployment.engine.prompt_interval == BALANCED_STEPS
    assert place(replace(server, **AT_ONCE)).deployment.engine.prompt_interval == GATHERED_STEPS
    assert place(replace(server, model="Llama-3.1-8B")).deployment.engine.prompt_interval == 0
    assert recipe(replace(server, model="Llama-3.1-8B")).gathered_steps == 0
    amd = replace(server, model="Llama-2-70b", hardware="AMD MI325X", engine="vLLM 0.6.5.dev964+mlperf50")
    assert place(amd).deployment.engine.num_scheduler_steps == 9


def test_trtllm_serve_captures_the_batch_sizes_of_the_harness():
    deepseek = setup(**{**SERVER, **B200}, model="DeepSeek-R1")
    found = place(deepseek).deployment.engine
    assert found.graph_capture.graph_batch_sizes == (128, 256, 384, 512)
    assert found.graph_capture.graph_padding
    assert not found.chunked_prefill
    rack = place(replace(deepseek, hardware="GB200 NVL72", devices=72)).deployment.engine
    assert rack.graph_capture.graph_batch_sizes[:3] == (1, 2, 4)
    eight = place(replace(deepseek, model="Llama-3.1-8B")).deployment.engine
    assert eight.graph_capture.graph_batch_sizes == tuple(1 << each for each in range(13))
    assert eight.chunked_prefill


@pytest.mark.parametrize(
    ("model", "tp", "replicas", "limits_"),
    [("Llama-2-70b", 2, 4, (160, 320, 0.99)), ("Llama-3.1-8B", 1, 8, (448, 576, 0.9))],
)
def test_cards_of_intels_entries_are_two_devices_each(model, tp, replicas, limits_):
    given = {**SERVER, "hardware": "Intel Arc Pro B60", "devices": 4, "engine": "vLLM 0.9.0, PyTorch 2.7.0"}
    found = place(setup(**given, model=model, weight_dtype="int4"))
    deployment = found.deployment
    assert (deployment.tp, found.replicas, deployment.layout.cache_dtype) == (tp, replicas, "int8")
    assert (deployment.max_num_seqs, deployment.max_num_batched_tokens, deployment.memory_fraction) == limits_
    assert deployment.layout.weight_dtype == "int4-w4a8"


def test_settings_of_amd_entries_are_those_of_their_device_scenario_and_round():
    amd = setup(**{**SERVER, **B200, "engine": "vLLM 0.6.5"}, model="Llama-2-70b")
    found = {
        (name, round_): place(replace(amd, hardware=name, engine=f"vLLM {round_}", **run)).deployment.settings
        for name, round_, run in (
            ("AMD MI300X", "0.4.3+rocm614", AT_ONCE),
            ("AMD MI300X", "0.6.5", {}),
            ("AMD MI325X", "0.6.5", AT_ONCE),
        )
    }
    limits_of = {
        key: (each.max_num_seqs, each.max_num_batched_tokens, each.memory_fraction) for key, each in found.items()
    }
    assert limits_of == {
        ("AMD MI300X", "0.4.3+rocm614"): (2048, 65_536, 0.99),
        ("AMD MI300X", "0.6.5"): (608, 40_960, 1.0),
        ("AMD MI325X", "0.6.5"): (2048, 65_536, 0.98),
    }


def test_prompts_of_an_amd_run_wait_for_room():
    """31 % of the cache: what runs then grows into it, and nothing is computed twice, nor with V0's watermark."""
    amd = {**SERVER, **B200, "hardware": "AMD MI300X", "engine": "vLLM 0.4.3+rocm614", **AT_ONCE}
    given = setup(**amd, model="Llama-2-70b", output_tokens=294.0)
    deployment = place(given).deployment
    assert deployment.engine.least_free_share == 0.31
    requests = replace(engine_gets(given), request_count=6_000, arrivals=ClosedLoop(6_000)).requests()
    allowed, table = limits(deployment, requests), deployment.step_table()
    marked, bare = allowed._replace(least_free_blocks=0), allowed._replace(least_free_blocks=0, watermark_blocks=0)
    with_room, little, without = (simulate(each, table, requests) for each in (allowed, marked, bare))
    assert allowed.least_free_blocks == -(-31 * allowed.num_blocks // 100)
    assert with_room.steps.prompt_tokens.sum() == requests.prompt_tokens.sum()
    assert marked.watermark_blocks == allowed.num_blocks // 100
    assert little.steps.prompt_tokens.sum() < 1.05 * requests.prompt_tokens.sum()
    assert without.steps.prompt_tokens.sum() > 1.5 * requests.prompt_tokens.sum()
    server = place(setup(**{**amd, "regime": "open_loop", "scenario": "Server"}, model="Llama-2-70b"))
    assert server.deployment.engine.least_free_share == 0.0
    other = place(setup(**{**amd, "hardware": "AMD MI355X", "engine": "vLLM 0.9"}, model="Mixtral-8x7B"))
    assert other.deployment.engine.least_free_share == 0.3


@pytest.mark.parametrize("hardware", ["B200 SXM", "GB200 NVL72"])
def test_ranks_of_attention_exchange_objects_in_each_step(hardware):
    """On top of what a step takes beside its kernels, whatever the host: it works while the device does."""
    ranks = place(setup(**{**SERVER, **B200, "hardware": hardware}, model="DeepSeek-R1")).deployment
    times, alone = ranks.engine.overheads, replace(ranks, layout=replace(ranks.layout, tp=8, dp=1))
    assert alone.step_model().overheads.step_s == times.step_s
    assert ranks.step_model().overheads.step_s == alone.step_model().overheads.step_s + times.ranks_s > times.step_s


def test_every_entry_is_of_a_known_model_with_limits():
    for name in {each[0] for each in (*ENTRIES, *AMD_ENTRIES)}:
        assert load_model(name)
        assert name in DATA_SETS
        server, interactive = LIMITS_S[name]
        assert interactive <= server


def test_settings_of_an_entry_are_those_of_its_scenario():
    server = setup(**{**SERVER, **B200}, model="Llama-2-70b")
    placed = place(server)
    assert (placed.deployment.layout.tp, placed.replicas) == (1, 8)
    assert (placed.deployment.max_num_seqs, placed.deployment.max_num_batched_tokens) == (2048, 3584)
    assert not placed.deployment.engine.admit_full_output
    interactive = place(replace(server, **INTERACTIVE)).deployment
    assert (interactive.max_num_seqs, interactive.max_num_batched_tokens) == (768, 768)
    offline = place(replace(server, **AT_ONCE, model="Llama-3.1-405B")).deployment
    assert (offline.layout.tp, offline.layout.pp, offline.max_num_seqs) == (2, 2, 256)
    assert recipe(replace(server, model="OPT-66B")).degrees is None
    narrow = place(replace(server, **INTERACTIVE, hardware="H200 SXM")).deployment
    assert (narrow.max_num_seqs, narrow.max_num_batched_tokens) == (256, 256)  # of 512 sequences, as tokens allow
    older = place(replace(server, hardware="H200 SXM", engine="TensorRT 10.2.0, CUDA 12.4")).deployment
    newer = place(replace(server, hardware="H200 SXM", engine="TensorRT 10.11, CUDA 12.9")).deployment
    assert (older.max_num_seqs, newer.max_num_seqs) == (896, 1536)
    assert (older.engine.chunked_prefill, newer.engine.chunked_prefill) == (False, True)
    assert (older.max_num_batched_tokens, older.memory_fraction) == (16_384, 0.9)
    rounds = "TensorRT 9.3.0, CUDA 12.2", "TensorRT 10.8, CUDA 12.8"
    layouts = [place(replace(server, hardware="H100 SXM 80GB", engine=each)).deployment.layout for each in rounds]
    assert [(each.tp, each.pp) for each in layouts] == [(2, 1), (1, 2)]
    unsaid = place(replace(server, scenario="", model="Llama-3.1-405B")).deployment
    assert (unsaid.layout.tp, unsaid.layout.pp) == (4, 1)
    few = replace(server, **AT_ONCE, model="Llama-3.1-405B", devices=2)
    assert place(few).deployment.layout.devices == 2


def test_engines_of_entries():
    ours = {**SERVER, **B200}
    assert place(setup(**ours, model="Llama-2-70b")).deployment.engine.id == "tensorrt-10.8"
    assert place(setup(**ours, model="Llama-3.1-8B")).deployment.engine.id == "tensorrt-pytorch-1"
    amd = {"hardware": "AMD MI300X", "engine": "vLLM 0.4.3+rocm614, PyTorch 2.3.0", "engine_version": ""}
    found = place(setup(**SERVER, **amd, model="Llama-2-70b")).deployment
    assert (found.engine.id, found.engine.policy, found.layout.cache_dtype) == (
        "vllm-mlperf-0.6",
        "prompts-first",
        "fp8",
    )


@pytest.mark.parametrize(
    ("hardware", "engine", "devices", "expected"),
    [  # (device, preset, format of weights, tp, most sequences), from the files that mlperf_entries names
        ("B200 SXM", "TensorRT 10.1.0, CUDA 12.7", 1, ("b200-sxm", "tensorrt-9", "nvfp4", 1, 2048)),
        ("GH200", "TensorRT 10.2.0, CUDA 12.4", 1, ("gh200-144", "tensorrt-9", "fp8", 1, 806)),
        ("H100 PCIe 80GB", "TensorRT 10.2.0, CUDA 12.4", 8, ("h100-pcie", "tensorrt-9", "fp8", 2, 896)),
        ("L40S", "TensorRT 10.2, CUDA 12.4", 8, ("l40s", "tensorrt-9", "fp8", 4, 1024)),
        ("L40S", "CUDA 12.2", 4, ("l40s", "vllm-0.5", "fp8", 2, 256)),
    ],
)
def test_entries_of_version_4_1(hardware, engine, devices, expected):
    given = {**SERVER, "hardware": hardware, "engine": engine, "engine_version": "", "devices": devices}
    found = place(setup(**given, model="Llama-2-70b")).deployment
    layout = found.layout
    shown = (found.hardware.id, found.engine.id, layout.weight_dtype, layout.tp, found.max_num_seqs)
    assert shown == expected
    assert not found.engine.chunked_prefill


@pytest.mark.parametrize(
    ("submitter", "run", "expected"),
    [  # (preset, most tokens of a step, share of the memory)
        ("HPE", {}, ("tensorrt-pytorch-1", 12_000, 0.99)),
        ("Quanta_Cloud_Technology", {}, ("tensorrt-10.8", 1536, 0.9)),
        ("Cisco", AT_ONCE, ("tensorrt-10.8", 1536, 0.9)),
        ("", {}, ("tensorrt-10.8", 1536, 0.9)),
    ],
)
def test_a_submitter_may_have_settings_of_its_own(submitter, run, expected):
    given = setup(**{**SERVER, **B200, "hardware": "H200 SXM", **run}, model="Llama-3.1-8B", submitter=submitter)
    found = place(given).deployment
    assert (found.engine.id, found.max_num_batched_tokens, found.memory_fraction) == expected


def test_settings_on_rtx_pro_6000_are_those_of_their_scenario():
    server = setup(**{**SERVER, **B200, "hardware": "RTX PRO 6000 Blackwell"}, model="Mixtral-8x7B")
    found = [place(replace(server, **run)).deployment for run in ({}, AT_ONCE)]
    assert [(each.max_num_batched_tokens, each.engine.chunked_prefill) for each in found] == [
        (8192, False),
        (9216, True),
    ]


@pytest.mark.parametrize(
    ("hardware", "submitter", "expected"),
    [
        ("H100 NVL", "ASUSTeK", "h100-nvl-unbridged"),
        ("H100 NVL", "HPE", "h100-nvl"),
        ("H100 PCIe 80GB", "ASUSTeK", "h100-pcie-unbridged"),
    ],
)
def test_cards_without_a_bridge_are_named(hardware, submitter, expected):
    """Two cards then reduce over PCIe, as four do."""
    given = {**SERVER, **B200, "hardware": hardware, "engine": "TensorRT 10.2.0, CUDA 12.4", "devices": 4}
    found = place(setup(**given, model="Llama-2-70b", submitter=submitter)).deployment
    assert (found.hardware.id, found.layout.tp) == (expected, 2)
    reduced = {n: each.bus_bytes_per_s for n, each in found.hardware.achievable.all_reduce.items()}
    assert (reduced[2] > 2 * reduced[4]) == (found.hardware.link is not None)
    newer = place(setup(**{**given, "engine": "TensorRT 10.8"}, model="Llama-2-70b", submitter=submitter))
    assert not newer.deployment.hardware.id.endswith("unbridged")


@pytest.mark.parametrize(
    ("ours", "parent"), [("tensorrt-9", "tensorrt-llm-0.11"), ("tensorrt-10.8", "tensorrt-llm-0.15")]
)
def test_the_harness_takes_no_time_of_a_step_beside_its_engine(ours, parent):
    """It calls the C++ executor, whose loop has no Python."""
    harness, engine = (load_engine(each).overheads for each in (ours, parent))
    assert (harness.step_s, harness.sequence_s) == (engine.step_s, engine.sequence_s)
    assert harness.request_s == engine.request_s == 0


def test_four_devices_on_one_board_have_six_links_a_pair():
    """A pair of theirs reduces at less than half the rate that NVSwitches give; all four together as fast."""
    given = {**SERVER, **B200, "hardware": "H100 SXM 80GB", "engine": "TensorRT 9.3.0, CUDA 12.2"}
    on = {n: place(setup(**given | {"devices": n}, model="Llama-2-70b")).deployment.hardware for n in (4, 8)}
    assert {n: each.id for n, each in on.items()} == {4: "h100-sxm-4gpu", 8: "h100-sxm"}
    four, eight = (each.achievable.all_reduce for each in on.values())
    assert 2 * four[2].bus_bytes_per_s < eight[2].bus_bytes_per_s
    assert four[4].bus_bytes_per_s == eight[4].bus_bytes_per_s


def test_the_tokens_of_a_step_are_those_of_a_stage():
    """Cisco's H100 have 1,024 sequences and 1,024 tokens in each of two stages: no step is longer."""
    given = {**SERVER, **B200, "hardware": "H100 SXM 80GB", "engine": "TensorRT 10.8", "devices": 2}
    found = place(setup(**given | AT_ONCE, model="Llama-2-70b", submitter="Cisco")).deployment
    assert (found.layout.pp, found.max_num_seqs, found.max_num_batched_tokens) == (2, 2048, 1024)


@pytest.mark.parametrize(
    ("hardware", "model", "submitter", "expected"),
    [  # most sequences and share of the memory of a server of v4.1
        ("GH200", "Mixtral-8x7B", "NVIDIA", (3072, 0.9)),
        ("H100 NVL", "Llama-2-70b", "HPE", (1024, 0.95)),
        ("H100 NVL", "Llama-2-70b", "Lenovo", (640, 0.9)),
        ("H100 SXM 80GB", "Llama-2-70b", "HPE", (1024, 0.97)),
        ("H100 PCIe 80GB", "Llama-2-70b", "ASUSTeK", (896, 0.95)),
    ],
)
def test_submitters_of_version_4_1_have_their_settings(hardware, model, submitter, expected):
    given = {**SERVER, **B200, "hardware": hardware, "engine": "TensorRT 10.2.0, CUDA 12.4"}
    found = place(setup(**given, model=model, submitter=submitter)).deployment
    assert (found.max_num_seqs, found.settings.memory_fraction) == expected


def test_a_front_end_shows_no_more_than_it_can_and_only_what_is_streamed():
    """Of 8 x B200 one process streams DeepSeek-R1's tokens, and offline none."""
    given = {**SERVER, **B200, "weight_dtype": "fp4", "output_tokens": 3_700.0}
    served = setup(**given, model="DeepSeek-R1")
    shown_per_s = 1 / float(place(served).deployment.engine.overheads.stream_s)
    served_per_s = answer(served).value("throughput_out_tok_s")
    offline_per_s = answer(setup(**given | AT_ONCE, model="DeepSeek-R1")).value("throughput_out_tok_s")
    assert 0.7 * shown_per_s < served_per_s < shown_per_s < offline_per_s


def test_each_replica_of_a_server_is_sent_its_share_of_the_batches():
    given = setup(**{**SERVER, **B200, "hardware": "AMD MI300X", "engine": "vLLM 0.4.3+rocm614"}, model="Llama-2-70b")
    given = replace(given, rate_per_s=80.0)
    assert users(given).arrivals == Released(10.0, period_s=2.5, dealt_over=8)
    assert question(given).users.request_rate == "80.0"  # of all eight


def test_a_server_of_unstated_rate_serves_less_than_an_offline_run():
    given = setup(**{**SERVER, **B200}, model="Llama-2-70b", output_tokens=273.0)
    runs = (INTERACTIVE, {}, AT_ONCE)
    tight, server, offline = (answer(replace(given, **run)).value("throughput_out_tok_s") for run in runs)
    assert tight < server < offline
