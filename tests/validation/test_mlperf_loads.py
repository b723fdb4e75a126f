"""Loads of MLPerf: lengths of data sets, requests of a run, and what balancers send."""

from dataclasses import replace

import numpy as np
import pytest

from simulator.errors import NotModelledError
from simulator.validation.sources.mlperf import DATA_SETS, LONG_RUN, NVIDIA_S, SERVER_S
from simulator.workloads.arrivals import OpenLoop, Released
from tests.support.measured import OPEN, question, recipe, setup, users

SERVER = {**OPEN, "client": "mlperf", "scenario": "Server", "tp": 0, "concurrency": 0, "input_tokens": 0.0}
AT_ONCE, INTERACTIVE = {"regime": "offline", "scenario": "Offline"}, {"scenario": "Interactive"}
B200 = {"hardware": "B200 SXM", "engine": "TensorRT 10.11", "engine_version": "", "devices": 8}


@pytest.mark.parametrize(
    ("model", "mean"),
    [("llama-2-70b", 223), ("llama-3.1-8b", 952), ("mixtral-8x7b", 414), ("llama-3.1-405b", 9_370)],
)
def test_prompts_have_the_mean_of_their_data_set(model, mean):
    drawn = DATA_SETS[model].prompts.draw(200_000, np.random.default_rng(0))
    assert drawn.mean() == pytest.approx(mean, rel=0.01)


def test_outputs_are_as_a_run_states_them_and_no_longer_than_the_rules_allow():
    stated = setup(**SERVER, output_tokens=273.0, model="Llama-2-70b")
    drawn = recipe(stated).load()
    outputs = drawn.output.draw(20_000, np.random.default_rng(0))
    assert (drawn.output_tokens, outputs.max()) == (273.0, 1024)
    assert outputs.mean() == pytest.approx(273, rel=0.04)
    assert recipe(replace(stated, output_tokens=0.0, model="Llama-3.1-8B")).load().output_tokens == 128
    assert recipe(replace(stated, model="OPT-66B")).load() is None
    for given in (stated, replace(stated, input_tokens=900.0)):
        with pytest.raises(NotModelledError, match="4 beams"):
            recipe(replace(given, model="GPT-J-6B")).load()


def test_outputs_whose_lengths_are_counted_keep_their_shape_at_the_mean_of_a_run():
    """A quarter of the 405B's are RULER's short lists (211 and 418 tokens), the others lie about 800."""
    stated = setup(**SERVER, output_tokens=650.0, model="Llama-3.1-405B")
    outputs = recipe(stated).load().output.draw(20_000, np.random.default_rng(0))
    assert outputs.mean() == pytest.approx(650, rel=0.02)
    assert outputs.std() / outputs.mean() == pytest.approx(0.36, abs=0.03)
    assert outputs.max() < 1_400


def test_prompts_that_a_run_states_are_its_own_and_differ_like_those_of_any_data_set():
    stated = setup(**{**SERVER, "input_tokens": 900.0, "output_tokens": 300.0}, model="Llama-2-70b", rate_per_s=1.0)
    assert recipe(stated).load() is None
    assert users(stated).requests().prompt_tokens.std() > 450
    assert users(replace(stated, client="")).requests().prompt_tokens.std() == 0


def test_replicas_share_the_requests_of_a_run():
    server, offline = setup(**SERVER, rate_per_s=50.0), setup(**SERVER | AT_ONCE)
    assert recipe(server).requests_of_replica(4) == SERVER_S * 50 / 4
    long = replace(server, model="Llama-2-70b")
    assert recipe(long).requests_of_replica(4) == NVIDIA_S["llama-2-70b"][0] * 50 / 4
    assert recipe(replace(long, **INTERACTIVE)).requests_of_replica(4) == NVIDIA_S["llama-2-70b"][1] * 50 / 4
    assert recipe(replace(long, hardware="AMD MI300X")).requests_of_replica(4) == SERVER_S * 50 / 4
    assert recipe(offline).requests_of_replica(4) == LONG_RUN
    data = DATA_SETS["deepseek-r1"]
    for run in (server, offline):
        deepseek = replace(run, model="DeepSeek-R1")
        assert recipe(deepseek).requests_of_replica(2) == data.queries // 2
        assert recipe(replace(deepseek, devices=72)).requests_of_replica(9) == data.rack_queries // 9


@pytest.mark.parametrize(
    ("run", "router"),
    [
        ({}, ""),
        ({"hardware": "AMD MI300X", "engine": "vLLM 0.9.0"}, "least-connections"),
        ({"hardware": "AMD MI325X", "engine": "vLLM 0.9.0", "rate_per_s": 0.0}, "least-connections"),
        ({"hardware": "AMD MI300X", "engine": "vLLM 0.4.3+rocm614"}, ""),
        ({"hardware": "AMD MI300X", "engine": "vLLM 0.9.0", **AT_ONCE}, ""),
        ({"hardware": "AMD MI300X", "engine": "vLLM 0.9.0", "devices": 1}, ""),
    ],
)
def test_servers_are_simulated_whole_behind_their_balancer(run, router):
    given = setup(**{**SERVER, **B200, "model": "Llama-2-70b", "rate_per_s": 50.0, **run})
    asked = question(given)
    assert asked.run.router == router
    if router and given.rate_per_s:
        seconds = SERVER_S if "AMD" in given.hardware else NVIDIA_S["llama-2-70b"][0]
        assert (users(given).arrivals, asked.users.num_prompts) == (OpenLoop(50.0), 50 * seconds)
    elif router:
        assert asked.users.num_prompts == 8 * LONG_RUN


def test_requests_are_dealt_to_the_replicas():
    """Of Poisson arrivals dealt in turn, each copy gets those with gamma gaps: none of its own, the same mean."""
    server = setup(**{**SERVER, **B200}, model="Llama-3.1-8B", rate_per_s=50.0)
    sent = users(server).arrivals
    assert sent == OpenLoop(50.0 / 8, 8.0, balanced_over=8)
    every = OpenLoop(50.0).times_s(80_000, np.random.default_rng(0))
    dealt, drawn = np.diff(every[::8]), np.diff(sent.times_s(10_000, np.random.default_rng(1)))
    assert np.std(drawn) == pytest.approx(np.std(dealt), rel=0.03)
    assert np.mean(drawn) == pytest.approx(np.mean(dealt), rel=0.02)


def test_requests_of_the_first_amd_round_come_in_batches():
    """One batcher sends what came in 0.3 s, and one more, to one of eight devices: a batch every 2.5 s."""
    given = setup(**{**SERVER, **B200, "hardware": "AMD MI300X", "engine": "vLLM 0.4.3+rocm614"}, model="Llama-2-70b")
    given = replace(given, rate_per_s=80.0)
    sent = users(given).arrivals
    assert isinstance(sent, Released) and (sent.rate_per_s, sent.period_s) == pytest.approx((10.0, 2.5))
    times = sent.times_s(20_000, np.random.default_rng(0))
    _, sizes = np.unique(times, return_counts=True)
    assert np.mean(sizes) == pytest.approx(25, rel=0.03)
    assert np.var(sizes) == pytest.approx(25, rel=0.15)
    assert np.allclose(times / 2.5, np.round(times / 2.5))
    assert np.mean(sent.waited_s(times)) == pytest.approx(0.5 * 2.5 / 8)
