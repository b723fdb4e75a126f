"""Bounds that the search cuts with: no simulation, of any engine, device, layout or load, is below them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simulator import Scenario, Settings, Workload, deploy, load_hardware, load_model, load_workload, parse_slo
from simulator.cost.light_bounds import Demand, LightBounds, light_replicas
from simulator.cost.lower_bounds import least_share, lines_below, lower_bounds
from simulator.deployment.speculation import Speculation
from simulator.errors import InfercastError
from simulator.reports.slo import Slo
from simulator.workloads.arrivals import ClosedLoop, OpenLoop
from simulator.workloads.lengths import Fixed, Independent, LogNormal, Uniform
from tests.support.replicas import CASES, replica
from tests.support.step_blocks import least_of

ROUNDING = 1 + 1e-9
LENGTHS = st.builds(
    Independent,
    st.one_of(
        st.builds(Fixed, st.integers(1, 3000)), st.builds(LogNormal, st.integers(50, 1500), st.just(1.0), st.just(6000))
    ),
    st.builds(Fixed, st.integers(1, 200)),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(map(str, case)))
@settings(max_examples=6)
@given(lengths=LENGTHS, load=st.sampled_from([0.05, 0.8, 3.0]), seed=st.integers(0, 99))
@example(lengths=Independent(Fixed(6), Fixed(3)), load=0.8, seed=0)  # 57 first tokens at once hold each other up
@example(lengths=Independent(Fixed(81), Fixed(2)), load=3.0, seed=0)
def test_no_simulation_is_below_its_bounds(case, lengths, load, seed):
    scenario = Scenario(replica(case, max_model_len=8192), Workload(OpenLoop(1.0), lengths, 60, seed), whole_run=True)
    found = lower_bounds(scenario)
    report = scenario.report(scenario.workload.at_rate(load * found.most_per_s))
    assert found.busy_s <= report.run.busy_s * ROUNDING
    tpot_s = np.nan_to_num(report.latencies_s["tpot"])
    for bound_s in set(np.quantile(tpot_s, [0.5, 0.95, 1.0]).tolist()) - {0.0}:
        kept = Slo({"tpot": bound_s}, min(float((tpot_s <= bound_s).mean()), 1 - 1e-9))
        assert len(tpot_s) * report.run.engines / found.most_within(kept) <= report.run.busy_s * ROUNDING
    for name, least_s in found.latencies_s.items():
        real_s = report.latencies_s[name]
        assert (np.isnan(real_s) | (least_s[report.skipped :] <= real_s * ROUNDING)).all(), name


@pytest.mark.parametrize(
    ("model", "prompt_tokens", "chunk_tokens"),
    [
        ("llama-3.1-8b", 512, None),
        ("llama-3.1-8b", 512, 256),  # in shorter chunks what the host launches counts, which bounds leave out
        ("llama-3.1-8b", 60_000, None),
        ("gemma-3-12b", 60_000, None),
    ],
)
def test_a_request_alone_takes_hardly_more_than_its_bounds(model, prompt_tokens, chunk_tokens):
    """Attention over 60,000 tokens is most of a prompt; of gemma's layers, five of six have a window."""
    load = Workload(ClosedLoop(1), Independent(Fixed(prompt_tokens), Fixed(200)), 3)
    scenario = Scenario(deploy(model, "h100-sxm", settings=Settings(max_num_batched_tokens=chunk_tokens)), load)
    report, found = scenario.report(load), lower_bounds(scenario)
    for name, least_s in found.latencies_s.items():
        assert 1 <= report.latencies_s[name].mean() / least_s.mean() < 1.1, name


@pytest.mark.parametrize(("device", "most_tokens"), [("h100-sxm", 65), ("a100-sxm-80", 129), ("rtx-4090", 97)])
def test_a_static_batch_beyond_the_step_table_is_not_below_its_bounds(device, most_tokens):
    """Its tables end just behind a tile: the last of so many tokens takes longer than one beyond does on average."""
    given = Settings(max_num_seqs=64, max_num_batched_tokens=most_tokens, changes=("batch_size=64",))
    batch = Workload(ClosedLoop(64), Independent(Fixed(600), Fixed(1)), 64)
    scenario = Scenario(deploy("llama-3.2-1b", device, "static-1", settings=given), batch)
    run = scenario.simulated().run
    assert len(run.steps) == 1
    assert lower_bounds(scenario).busy_s <= run.busy_s * ROUNDING


def test_what_attention_reads_by_hand():
    """3,000 tokens of prompt, 199 decodes, a window of 1,024.

    Pairs: 3000 x 3001 / 2, in the window 1024 x 1025 / 2 + 1976 x 1024. Reads: 199 x 3000 + 1 + 2 + .. + 199, and 199 x
    1024.
    """
    load = Workload(OpenLoop(1.0), Independent(Fixed(3000), Fixed(200)), 2)
    found = lower_bounds(Scenario(deploy("gemma-3-12b", "h100-sxm"), load))
    prompt_s, decodes_s = found._attention_s
    slopes = found._floor.slopes
    assert prompt_s == pytest.approx(slopes[2:] @ [3000, 4_501_500, 2_548_224], rel=1e-9)
    assert decodes_s == pytest.approx(slopes[:2] @ [616_900, 203_776], rel=1e-9)


def test_a_tpot_hardly_longer_than_that_of_a_request_alone_allows_hardly_any_load():
    load = Workload(OpenLoop(1.0), Independent(Fixed(512), Fixed(200)), 100)
    found = lower_bounds(Scenario(deploy("llama-3.1-8b", "l40s"), load))
    alone_s = float(found.latencies_s["tpot"].max())
    assert found.most_within(Slo({"tpot": 1.05 * alone_s})) < 0.05 * found.most_per_s
    assert found.most_within(Slo({"tpot": 4 * alone_s})) == pytest.approx(found.most_per_s)


def test_rejected_requests_take_no_step():
    """Half of them are longer than the context."""
    lengths = Independent(Uniform(100, 3900), Fixed(10))
    scenario = Scenario(replica(CASES[0], max_model_len=2000), Workload(OpenLoop(1.0), lengths, 200), whole_run=True)
    report = scenario.report(scenario.workload)
    assert 60 < len(report.run.rejected) < 140
    assert lower_bounds(scenario)._served.sum() == len(report.run.requests)


def test_requests_that_somebody_has_run_are_served_in_the_bounds_too():
    """5,000 tokens in a model of 4,096."""
    workload = Workload(OpenLoop(1.0), Independent(Fixed(5_000), Fixed(10)), 5)
    beyond = Scenario(deploy("llama-2-7b", "h100-sxm"), workload, assume_fits=True)
    assert lower_bounds(beyond).busy_s > 0
    with pytest.raises(InfercastError, match="more than 4,096 tokens"):
        lower_bounds(replace(beyond, assume_fits=False)).busy_s  # noqa: B018


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(map(str, case)))
def test_the_data_sheet_is_below_the_steps(case):
    deployment, lengths = replica(case, max_model_len=8192), Independent(Fixed(700), Fixed(60))
    scenario = Scenario(deployment, Workload(OpenLoop(1.0), lengths, 60), parse_slo("ttft:1s"))
    exact, asked = lower_bounds(scenario), Demand(scenario.workload.requests(), scenario.slo)
    layout, hardware = deployment.layout, load_hardware(case[1])
    light = LightBounds(load_model(case[0]), (layout.weight_dtype, layout.cache_dtype), asked)
    assert light.device_s(hardware) * exact.most_per_s <= deployment.devices * ROUNDING
    group = deployment.tp * layout.dp
    assert light.ttft_s(hardware, group) <= exact.latencies_s["ttft"].max() * ROUNDING
    assert light.tpot_s(hardware, group) <= exact.latencies_s["tpot"].max() * ROUNDING


def test_drafts_may_all_be_accepted():
    drafts = Speculation("ngram", 4, (1.0,))
    scenario = Scenario(
        replica(CASES[0], speculation=drafts), Workload(OpenLoop(2.0), Independent(Fixed(300), Fixed(101)), 200)
    )
    found, report = lower_bounds(scenario), scenario.report(scenario.workload)
    assert found.busy_s <= report.run.busy_s * ROUNDING
    assert (found.latencies_s["tpot"][report.skipped :] <= report.latencies_s["tpot"] * ROUNDING).all()


@given(seconds=st.lists(st.floats(0.0, 10.0), min_size=3, max_size=80))
def test_lines_lie_below_every_split_of_tokens_into_steps(seconds):
    table = np.array(seconds)
    lines, rng = lines_below(least_of(table)), np.random.default_rng(0)
    for _ in range(10):
        steps = rng.integers(0, len(table), rng.integers(1, 9))
        assert lines.least_s(len(steps), steps.sum()) <= table[steps].sum() * ROUNDING + 1e-12


def test_lines_are_the_table_where_it_is_convex():
    table = 3.0 + 2.0 * np.arange(50)
    assert 0.9 * 86.0 <= lines_below(least_of(table)).least_s(2, 40) <= 86.0


@given(late=st.lists(st.booleans(), min_size=1, max_size=60))
def test_whatever_is_left_out_as_warm_up_leaves_the_least_share(late):
    flags = np.array(late)
    shares = [flags[skipped:].mean() for skipped in range(len(flags) // 2 + 1)]
    assert least_share(flags) == pytest.approx(min(shares))


def test_what_cannot_keep_the_slo_alone_is_known_without_a_simulation():
    chat = load_workload("chat")
    load = Workload(chat.arrivals(1.0), chat.lengths, 500)
    slow = Scenario(deploy("llama-3.1-8b", "l4"), load, parse_slo("ttft:5s,tpot:40ms"))
    assert lower_bounds(slow).misses(slow.slo) == "tpot"
    assert not slow.report(load.at_rate(1e-4)).meets_slo
    asked = Demand(load.requests(), slow.slo)
    light = LightBounds(load_model("llama-3.1-8b"), ("bf16", "bf16"), asked)
    assert light.misses(load_hardware("l4"), 1, 0) == "tpot"
    assert light.misses(load_hardware("h100-sxm"), 1, 0) == ""


def test_too_many_rejected_requests_are_known_without_a_simulation():
    """A context of 2,048 tokens: one request of ten is longer."""
    lengths = Independent(Uniform(1, 2_200), Fixed(8))
    scenario = Scenario(deploy("opt-125m", "l4"), Workload(OpenLoop(1.0), lengths, 2_000), parse_slo("ttft:9s"))
    report = scenario.simulated()
    assert report.rejected_share == pytest.approx(1 - lower_bounds(scenario)._served.mean())
    assert lower_bounds(scenario).misses(scenario.slo) == "rejected"
    assert lower_bounds(scenario).misses(replace(scenario.slo, share=0.9)) == ""
    assert not report.meets_slo


def test_the_data_sheet_bounds_replicas():
    assert light_replicas(0.5, devices=4, rate_per_s=8.0) == 1
    assert light_replicas(0.5, devices=4, rate_per_s=8.1) == 2


def test_what_does_not_fit_is_refused_as_in_a_simulation():
    load = Workload(OpenLoop(1.0), Independent(Fixed(100), Fixed(10)), 20)
    with pytest.raises(InfercastError, match="leave no cache"):
        _ = lower_bounds(Scenario(deploy("llama-3.1-70b", "l40s"), load)).busy_s
