"""MLPerf entries: data sets, harness settings, and runs at the edge of their limits."""

from dataclasses import replace

import numpy as np
import pytest

from simulator.errors import NotModelledError
from simulator.hardware import load_hardware
from simulator.lengths import Fixed, Independent, LogNormal
from simulator.limits import limits
from simulator.mlperf import (
    BALANCED_STEPS,
    DATA_SETS,
    ENTRIES,
    LIMITS_S,
    LONG_RUN,
    SERVER_S,
    entry,
    lengths,
    requests_of_copy,
    waited_steps,
)
from simulator.model import load_model
from simulator.prediction import outcome
from simulator.report import Report, summarize
from simulator.setups import place
from simulator.simulate import simulate
from simulator.validity import LIKELY, TRIES, _steady_per_s, edge
from simulator.workload import ClosedLoop, OpenLoop, Workload
from tests.test_loads import setup

SERVER = {"load": "MLPerf Server (Poisson arrivals at target_qps)", "tp": 0, "concurrency": 0, "input_tokens": 0.0}
B200 = {"hardware": "B200 SXM", "engine": "TensorRT 10.11", "engine_version": "", "devices": 8}
MODELS = {"llama-2-70b": "Llama-2-70b", "llama-3.1-8b": "Llama-3.1-8B"}


@pytest.mark.parametrize(("model", "mean"), [("llama-2-70b", 307), ("llama-3.1-8b", 952), ("mixtral-8x7b", 600)])
def test_prompts_have_the_mean_of_their_data_set(model, mean):
    drawn = DATA_SETS[model].prompts.draw(20_000, np.random.default_rng(0))
    assert drawn.mean() == pytest.approx(mean, rel=0.04)


def test_outputs_are_as_a_run_states_them_and_no_longer_than_the_rules_allow():
    stated = setup(**SERVER, output_tokens=273.0)
    drawn, mean = lengths(stated, "llama-2-70b")
    outputs = drawn.draw(20_000, *map(np.random.default_rng, (0, 1)))[1]
    assert (mean, outputs.max()) == (273.0, 1024)
    assert outputs.mean() == pytest.approx(273, rel=0.04)
    assert lengths(replace(stated, output_tokens=0.0), "llama-3.1-8b")[1] == 128
    assert lengths(stated, "opt-66b") is None
    for given in (stated, replace(stated, input_tokens=900.0)):
        with pytest.raises(NotModelledError, match="4 beams"):
            lengths(given, "gpt-j-6b")


def test_prompts_that_a_run_states_are_its_own():
    assert lengths(setup(**{**SERVER, "input_tokens": 900.0}), "llama-2-70b") is None


def test_copies_share_the_requests_of_a_run():
    server, offline = setup(**SERVER, rate_per_s=50.0), setup(**{**SERVER, "load": "MLPerf Offline"})
    assert requests_of_copy(server, "llama-2-70b", 4) == SERVER_S * 50 / 4
    assert requests_of_copy(offline, "llama-2-70b", 4) == LONG_RUN
    whole = DATA_SETS["deepseek-r1"].queries
    for run in (server, offline):
        assert requests_of_copy(run, "deepseek-r1", 9) == whole // 9


def test_prompts_wait_for_those_of_other_ranks_where_requests_come_one_by_one():
    b200, server = load_hardware("b200-sxm"), setup(**{**SERVER, **B200})
    assert waited_steps(server, "deepseek-r1", b200) == BALANCED_STEPS
    assert waited_steps(server, "llama-3.1-8b", b200) == 0
    assert waited_steps(replace(server, load="MLPerf Offline"), "deepseek-r1", b200) == 0


def test_every_entry_is_of_a_known_model_with_limits():
    for name in {each[0] for each in ENTRIES}:
        assert load_model(name)
        assert name in DATA_SETS
        server, interactive = LIMITS_S[name]
        assert interactive <= server


def test_settings_of_an_entry_are_those_of_its_scenario():
    server = setup(**{**SERVER, **B200}, model="Llama-2-70b")
    placed = place(server)
    assert (placed.deployment.layout.tp, placed.copies) == (1, 8)
    assert (placed.deployment.max_num_seqs, placed.deployment.max_num_batched_tokens) == (2048, 3584)
    assert not placed.deployment.engine.admit_full_output
    interactive = place(replace(server, load="MLPerf Interactive")).deployment
    assert (interactive.max_num_seqs, interactive.max_num_batched_tokens) == (768, 768)
    offline = place(replace(server, load="MLPerf Offline", model="Llama-3.1-405B")).deployment
    assert (offline.layout.tp, offline.layout.pp, offline.max_num_seqs) == (2, 2, 256)
    assert entry(replace(server, load="offline"), "llama-2-70b", load_hardware("b200-sxm")) is None
    assert entry(server, "opt-66b", load_hardware("b200-sxm")) is None
    narrow = place(replace(server, load="MLPerf Interactive", hardware="H200 SXM")).deployment
    assert (narrow.max_num_seqs, narrow.max_num_batched_tokens) == (256, 256)  # of 512 sequences, as tokens allow
    unsaid = place(replace(server, load="MLPerf", model="Llama-3.1-405B")).deployment
    assert (unsaid.layout.tp, unsaid.layout.pp) == (4, 1)
    few = replace(server, load="MLPerf Offline", model="Llama-3.1-405B", devices=2)
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


@pytest.fixture(scope="module")
def server():
    """One B200 that serves Llama-2-70b with short outputs, and what it reports under a load."""
    deployment = place(setup(**{**SERVER, **B200, "devices": 1}, model="Llama-2-70b")).deployment
    table = deployment.step_table()

    def under(workload: Workload) -> Report:
        requests = workload.requests()
        return summarize(simulate(limits(deployment, requests), table, requests), steady=False)

    return Workload(OpenLoop(10.0), Independent(Fixed(300), Fixed(100)), 4_000), under


def p99(report: Report, name: str) -> float:
    return float(np.nanquantile(report.latencies_s[name], 0.99))


def test_the_edge_keeps_both_limits_and_tighter_ones_are_slower(server):
    workload, under = server
    workload = workload.at_rate(60.0)
    found = [edge(workload, (2.0, tpot_s), under) for tpot_s in (0.05, 0.08, 0.15)]
    for each, tpot_s in zip(found, (0.05, 0.08, 0.15), strict=True):
        assert p99(each.report, "ttft") <= 2.0
        assert p99(each.report, "tpot") <= tpot_s
    assert found[0].of_asked < found[1].of_asked <= found[2].of_asked


def test_the_edge_does_not_depend_on_the_rate_that_is_asked_for_where_it_is_near(server):
    workload, under = server
    near = [edge(workload.at_rate(rate), (2.0, 0.08), under) for rate in (60.0, 63.0)]
    assert p99(near[0].report, "tpot") == pytest.approx(p99(near[1].report, "tpot"), rel=0.15)
    slow = edge(workload, (2.0, 0.08), under)
    assert slow.of_asked == pytest.approx(LIKELY)
    assert p99(slow.report, "tpot") < 0.06


def test_the_capacity_of_a_run_leaves_out_its_first_wave_and_its_drain(server):
    """Where outputs differ few sequences are left at the end, which weighs less in a run ten times as long."""
    workload, under = server
    spread = replace(workload, lengths=Independent(Fixed(300), LogNormal(100.0, 0.8, 1024)))
    found = []
    for count in (4_000, 40_000):
        report = under(replace(spread, request_count=count, arrivals=ClosedLoop(count)))
        found.append((count / report.duration_s, _steady_per_s(report)))
    (short_per_s, steady_per_s), (long_per_s, _) = found
    assert short_per_s < 0.95 * steady_per_s
    assert long_per_s == pytest.approx(steady_per_s, rel=0.03)


def test_limits_that_no_rate_keeps_leave_the_slowest_run_that_was_tried(server):
    workload, under = server
    workload = replace(workload, request_count=200)
    assert edge(workload, (1e-6, 1e-6), under).of_asked == pytest.approx(LIKELY / 2 ** (TRIES - 1))


def test_the_edge_of_an_unstated_rate_is_a_share_of_what_is_served_at_once(server):
    workload, under = server
    found = edge(replace(workload, arrivals=ClosedLoop(1)), (2.0, 0.08), under)
    assert 0 < found.of_asked <= 1
    assert p99(found.report, "tpot") <= 0.08


def test_a_server_of_unstated_rate_serves_less_than_an_offline_run():
    given = setup(**{**SERVER, **B200}, model="Llama-2-70b", output_tokens=273.0)
    loads = ("MLPerf Interactive", "MLPerf Server", "MLPerf Offline")
    tight, server, offline = (outcome(replace(given, load=load)).output_tokens_per_s for load in loads)
    assert tight < server < offline
