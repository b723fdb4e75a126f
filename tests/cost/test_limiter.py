"""Ten scenarios and more, each built so that one known resource limits: the sentence names it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from simulator import Scenario, Settings, Workload, default_layout, deploy, load_model, parse_slo
from simulator.cost.limiter import _link, limiter
from simulator.cost.lower_bounds import lower_bounds
from simulator.cost.mean_steps import decode_step
from simulator.questions.length_words import distribution
from simulator.reports.report import summarize
from simulator.roofline.op_time import OpTime, mostly_bound
from simulator.scheduler.state import CONTINUOUS, SchedulerLimits
from simulator.simulation.engine_loop import simulate
from simulator.workloads.arrivals import OpenLoop
from simulator.workloads.lengths import Fixed, Independent, Uniform
from tests.support.hand_made import TABLE, requests_of

SLOW_LINK = {"bus_bytes_per_s": 2e9, "latency_s": 1e-5}


def at(model: str, device: str, lengths: tuple, slo: str, rate: float, **more) -> tuple[str, str]:
    """The limiter's name and sentence at a rate that is near the highest within the SLO."""
    settings, slow_link = more.pop("settings", Settings()), more.pop("slow_link", False)
    deployment = deploy(model, device, layout=default_layout(load_model(model), **more), settings=settings)
    if slow_link:
        hardware = deployment.hardware
        reduce = {n: each.model_copy(update=SLOW_LINK) for n, each in hardware.achievable.all_reduce.items()}
        slow = hardware.achievable.model_copy(update={"all_reduce": reduce, "ring_all_reduce": {}})
        deployment = replace(deployment, hardware=hardware.model_copy(update={"achievable": slow}))
    prompts, outputs = (each if not isinstance(each, int) else Fixed(each) for each in lengths)
    workload = Workload(OpenLoop(rate), Independent(prompts, outputs), 1500)
    scenario = Scenario(deployment, workload, parse_slo(slo))
    return limiter(lower_bounds(scenario), scenario.report(workload))


LONG_FEW = distribution("quantiles:0=100,0.93=200,0.94=5000,1=6000", 0.0, "--isl", Uniform.around)
CASES = {
    "KV cache": ("qwen3-32b", "h100-sxm", (1000, 4000), "ttft:5s,tpot:100ms", 0.065, {}),
    "slots": ("llama-3.1-8b", "h100-sxm", (500, 200), "ttft:2s", 2.44, {"settings": Settings(max_num_seqs=4)}),
    "long prompts": ("llama-3.1-8b", "l40s", (LONG_FEW, 20), "ttft:700ms", 0.05, {}),
    "interference": ("llama-3.1-8b", "h100-sxm", (6000, 200), "tpot:20ms,ttft:10s", 2.1, {}),
    "bandwidth": ("llama-3.1-8b", "l40s", (100, 500), "tpot:26ms", 3.1, {}),
    "compute": ("llama-3.1-8b", "l40s", (3000, 2), "ttft:3s", 4.4, {}),
    "link": ("llama-3.1-70b", "h100-sxm", (1000, 100), "ttft:3s", 1.0, {"tp": 8, "slow_link": True}),
    "network": ("llama-3.1-70b", "h100-sxm", (2000, 10), "ttft:5s", 15.0, {"tp": 16}),
    "PCIe": ("llama-3.1-8b", "rtx-4090", (2000, 10), "ttft:3s", 6.1, {"tp": 4}),
    "overhead": ("qwen3-0.6b", "b200-sxm", (10, 300), "tpot:2ms", 245.0, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_known_resource_is_named(name):
    *case, more = CASES[name]
    found = at(*case, **more)
    assert found.name == name
    words = {"KV cache": "KV-cache capacity", "long prompts": "the longest prompts", "compute": "arithmetic"}
    assert words.get(name, name) in found.sentence


def test_a_collective_within_a_node_is_of_its_link_though_others_leave_it():
    """DeepSeek-V3 over two nodes: attention sums over eight devices of one node, experts are in both."""
    layout = default_layout(load_model("deepseek-v3"), tp=8, dp=2, ep=16)
    deployment = deploy("deepseek-v3", "h100-sxm", layout=layout)
    used = {op.rate: _link(deployment.hardware, op) for op in deployment.ops if op.link_devices > 1}
    assert (used["all_reduce"], used["all_to_all"]) == ("link", "network")


def test_a_bound_that_all_miss_is_explained_and_not_one_that_few_miss_by_far():
    """Of 7 % long prompts each misses its TTFT many times over; but every request misses the TPOT, a little."""
    found = at("llama-3.1-8b", "l4", (LONG_FEW, 20), "ttft:300ms,tpot:50ms", 0.05)
    assert found.name == "bandwidth"
    assert "of a decode step" in found.sentence


def test_a_cache_with_room_for_the_next_prompt_s_window_is_no_limit():
    """Prompts of 640 tokens take 40 blocks and 3 of a window of 32: of 100, one that runs leaves 57 for the next."""
    windows = {"window": 32, "window_groups": 1, "window_blocks": 3}
    limits = SchedulerLimits(CONTINUOUS, 64, 64, 100, 16, admit_full_prompt=False, **windows)
    together = requests_of([(1e-6 * each, 640, 1) for each in range(20)])
    report = summarize(simulate(limits, TABLE, together))
    assert report.run.steps.blocks.max() <= 43 < report.run.steps.waiting.max() + 43
    found = SimpleNamespace(
        gain_without=lambda _limit: 2.0, scenario=SimpleNamespace(deployment=deploy("llama-3.2-1b", "l4"))
    )
    assert limiter(found, report).name != "KV cache"
    narrow = summarize(simulate(limits._replace(num_blocks=60), TABLE, together))
    assert limiter(found, narrow).name == "KV cache"


def test_a_queue_without_end_is_said_and_its_resource_named():
    found = at("llama-3.1-8b", "h100-sxm", (500, 100), "", 90.0)
    assert found.name == "compute"  # the cache is full, too, but a larger one would hardly serve more
    assert "requests pile up" in found.sentence


def test_ops_bound_by_one_resource_count_together():
    """3.5 s by memory, twice 2.5 s by compute: 5 of 8.5."""
    assert set(OpTime("an op without work")[1:]) == {0.0}
    read, multiplied = OpTime("", compute_s=1.0, memory_s=3.0, seconds=3.5), OpTime("", compute_s=2.0, seconds=2.5)
    assert mostly_bound([read, multiplied, multiplied]) == ("compute", 5.0 / 8.5)


def test_a_cache_that_preempts_is_named_where_decode_steps_are_bound_by_memory():
    """Ten replicas for long answers: 35k tokens of cache are the reason, whatever binds a step."""
    deployment = deploy("qwen3-32b", "h100-sxm")
    workload = Workload(OpenLoop(0.065), Independent(Fixed(1000), Fixed(4000)), 1500)
    scenario = Scenario(deployment, workload, parse_slo("ttft:5s,tpot:100ms"))
    report = scenario.report(workload)
    assert mostly_bound(deployment.step_model().explain(decode_step(deployment, report)))[0] == "memory"
    assert report.run.preemptions.sum() > 300
    assert "preemptions" in limiter(lower_bounds(scenario), report).sentence


@pytest.mark.parametrize(("lengths", "of"), [((100, 500), "of a decode step"), ((3000, 2), "before a first token")])
def test_a_bound_on_e2el_is_explained_by_its_larger_part(lengths, of):
    """500 tokens out take far longer than a prompt of 100; two tokens out hardly any time."""
    bound, rate = ("e2el:13s", 3.1) if lengths[1] == 500 else ("e2el:3s", 3.5)
    found = at("llama-3.1-8b", "l40s", lengths, bound, rate)
    assert of in found.sentence


def test_others_prompts_are_named_under_a_bound_on_e2el():
    assert at("llama-3.1-8b", "h100-sxm", (6000, 200), "e2el:4s", 2.1).name == "interference"


def test_slots_and_cache_of_a_pipeline_are_those_of_its_stages_together():
    """Each of two stages works on a batch of its own, with half of the slots and half of the cache."""
    of = {"pp": 2, "settings": Settings(max_num_seqs=4)}
    slots = at("llama-3.1-8b", "h100-sxm", (500, 200), "ttft:2s", 4.5, **of)
    assert "all 4 are taken" in slots.sentence
    assert "try --max-num-seqs 8" in slots.sentence
    whole = deploy("qwen3-32b", "h100-sxm", layout=default_layout(load_model("qwen3-32b"), pp=2))
    cache_tokens = Scenario(whole, Workload(OpenLoop(1.0), Independent(Fixed(1), Fixed(1)))).memory.cache_tokens
    cache = at("qwen3-32b", "h100-sxm", (1000, 4000), "ttft:5s,tpot:100ms", 0.7, pp=2)
    assert cache.name == "KV cache"
    told = int(cache.sentence.split(": ")[1].split(" tokens")[0].replace(",", ""))
    assert cache_tokens - 32 <= told <= cache_tokens


def test_slots_of_ranks_are_advised_by_the_rank():
    """--max-num-seqs is of each data-parallel rank: two ranks of 4 have 8, and twice as many are 8 each."""
    model = load_model("deepseek-v3")
    deployment = deploy("deepseek-v3", "h200-sxm", layout=default_layout(model, tp=4, dp=2, ep=8))
    few = replace(deployment, settings=Settings(max_num_seqs=4))
    scenario = Scenario(few, Workload(OpenLoop(3.0), Independent(Fixed(500), Fixed(200)), 500), parse_slo("ttft:2s"))
    found = limiter(lower_bounds(scenario), scenario.report(scenario.workload))
    assert "all 8 are taken" in found.sentence
    assert found.sentence.endswith("try --max-num-seqs 8")
