"""A load as one value: draws of few requests, what counts of a run, replicas, the speed of light, other steps."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from simulator.cli.pages.sections import LOAD_SHARES, load_curve
from simulator.cost.bill import bill
from simulator.cost.capacity import capacity
from simulator.cost.scenario import ENOUGH_REQUESTS, MOST_DRAWS, Scenario, simulate
from simulator.cost.slo_rate import within_slo
from simulator.deployment.deployment import deploy
from simulator.deployment.layouts import default_layout
from simulator.deployment.memory import CACHE_ERROR, memory_plan
from simulator.deployment.settings import Settings
from simulator.errors import DoesNotFitError, InfercastError, WorkloadError
from simulator.models.model import load_model
from simulator.questions.load_rows import load_row
from simulator.reports.report import Report
from simulator.reports.slo import Slo
from simulator.reports.vllm_result import vllm_result
from simulator.simulation.replica import pool_of, simulate_replica
from simulator.simulation.routers import Router
from simulator.workloads.arrivals import ClosedLoop, OpenLoop, Released
from simulator.workloads.lengths import Fixed, Independent, LogNormal, Uniform
from simulator.workloads.traces import Trace
from simulator.workloads.workload import Workload

LLAMA = deploy("llama-3.1-8b", "l40s")
UNEVEN = Independent(LogNormal(500, 0.8, 4000), LogNormal(100, 0.8, 1000))
EQUAL = Independent(Fixed(500), Fixed(100))
OPEN = Scenario(LLAMA, Workload(OpenLoop(2.0), UNEVEN, 200), Slo({"ttft": 0.3}))
LOOP = replace(OPEN, workload=replace(OPEN.workload, arrivals=ClosedLoop(8)))


# ------------------------------------------------------------------------------------------------------------- draws


@pytest.mark.parametrize(("count", "draws"), [(20, 5), (200, 5), (300, 3), (600, 2), (700, 1), (1_000, 1), (2_500, 1)])
def test_few_requests_are_drawn_several_times(count, draws):
    """As many draws as make a thousand requests, rounded, and five at most."""
    assert draws == max(1, min(MOST_DRAWS, round(ENOUGH_REQUESTS / count)))
    found = replace(LOOP, workload=replace(LOOP.workload, request_count=count)).simulated()
    assert 1 + len(found.draws) == draws


@pytest.mark.parametrize("scenario", [OPEN, LOOP], ids=["open", "closed"])
def test_figures_are_means_over_draws_with_seeds_of_their_own(scenario):
    told = vllm_result(simulate(scenario))
    singles = [vllm_result(scenario.report(replace(scenario.workload, seed=seed))) for seed in range(5)]
    assert len({each["output_throughput"] for each in singles}) == 5
    kinds = ("mean_ttft_ms", "p99_ttft_ms", "median_itl_ms", "output_throughput", "slo_attainment", "kv_cache_waste")
    for key in kinds:
        assert told[key] == pytest.approx(np.mean([each[key] for each in singles])), key


def test_the_load_curve_of_a_page_has_the_figures_of_simulate():
    told = load_curve(OPEN, 4.0, 0.8)[0]
    simulated = replace(OPEN, workload=OPEN.workload.at_rate(4.0 * LOAD_SHARES[0])).simulated()
    assert len(simulated.draws) == 4
    for key, value in vllm_result(simulated).items():
        assert told[key] == value, key


@pytest.mark.parametrize("seed", range(3))
def test_a_queue_grows_by_the_asked_rate_less_the_served_one(seed):
    """Six hundred drawn arrivals come at another rate than the asked one; the growth was theirs."""
    load = replace(OPEN.workload, arrivals=OpenLoop(60.0), request_count=600, seed=seed)
    report = OPEN.report(load)
    assert report.overloaded
    assert report.queue_growth_per_s == pytest.approx(60.0 - report.requests_per_s)
    assert OPEN.rerun(report, 1.5).queue_growth_per_s > report.queue_growth_per_s


def test_another_seed_draws_the_next_ones():
    first, second = (replace(LOOP, workload=replace(LOOP.workload, seed=seed)).simulated() for seed in (0, 1))
    assert (
        vllm_result(first.draws[0])["output_throughput"] == vllm_result(replace(second, draws=()))["output_throughput"]
    )


def test_a_trace_is_replayed_once_as_it_was():
    rng = np.random.default_rng(0)
    trace = Trace("three", np.cumsum(rng.exponential(0.5, 60)), np.full(60, 300), np.full(60, 20))
    found = replace(OPEN, workload=Workload.from_trace(trace)).simulated()
    assert (found.draws, found.skipped) == ((), 0)


# ---------------------------------------------------------------------------------------------------- what is counted


def test_an_open_loop_goes_on_and_its_rate_is_that_of_its_arrivals():
    """Requests of 30 s each: a counted run of 100 lasts as long as the last ones take, users who go on see no drain."""
    lengths = Independent(Fixed(100), Fixed(1_200))
    load = Scenario(LLAMA, Workload(OpenLoop(2.0, float("inf")), lengths, 200))
    steady, whole = load.report(load.workload), replace(load, whole_run=True).report(load.workload)
    assert steady.requests_per_s == pytest.approx(2.0)
    assert whole.skipped == 0
    assert whole.duration_s == pytest.approx(whole.run.end_s, rel=0.01)
    assert whole.requests_per_s < 0.85 * steady.requests_per_s


def test_the_warm_up_of_an_open_loop_is_dropped_unless_the_whole_counts():
    """A queue that fills for a while: the first requests meet an empty engine."""
    load = replace(OPEN, workload=replace(OPEN.workload, arrivals=OpenLoop(5.0), request_count=2_000))
    steady, whole = load.simulated(), replace(load, whole_run=True).simulated()
    assert steady.skipped > 0 == whole.skipped
    assert steady.metrics["tpot"]["mean"] > whole.metrics["tpot"]["mean"]


def test_a_closed_loop_is_counted_whole():
    assert vllm_result(LOOP.simulated())["warm_up_requests"] == 0
    assert replace(LOOP, whole_run=True).simulated().requests_per_s == LOOP.simulated().requests_per_s


# ----------------------------------------------------------------------------------------------- replicas, light, steps


def test_replicas_multiply_throughput_and_leave_latencies():
    one, four = vllm_result(LOOP.simulated()), vllm_result(replace(LOOP, replicas=4).simulated())
    throughputs = "request_throughput", "output_throughput", "input_throughput", "total_token_throughput"
    for key in (*throughputs, "completed", "max_concurrent_requests"):
        assert four[key] == pytest.approx(4 * one[key]), key
    for key in ("mean_ttft_ms", "p99_tpot_ms", "duration"):
        assert four[key] == one[key], key


def test_nothing_is_faster_than_light_and_light_knows_no_front_end():
    light = replace(LOOP, deployment=LLAMA.at_light)
    assert light.table.token_s[100] < LOOP.table.token_s[100]
    assert (light.deployment.stream_s, float(light.deployment.request_s(1000))) == (0.0, 0.0)
    told, ideal = (each.simulated().metrics for each in (LOOP, light))
    for name in ("ttft", "tpot", "e2el"):
        assert ideal[name]["mean"] < told[name]["mean"]


def test_the_same_requests_meet_longer_steps():
    report = LOOP.simulated()
    slower, same = LOOP.rerun(report, 1.5), LOOP.rerun(report, 1.0)
    assert vllm_result(same) == vllm_result(report)
    requests = [each.run.requests for each in (report, *report.draws)]
    for each, known in zip((slower, *slower.draws), requests, strict=True):
        assert np.array_equal(each.run.requests.prompt_tokens, known.prompt_tokens)
    ratio = slower.metrics["tpot"]["mean"] / report.metrics["tpot"]["mean"]
    assert 1.3 < ratio <= 1.5 * (1 + 1e-5)  # the front end streams as fast as before


def test_a_nearly_full_cache_decides_and_is_simulated_at_both_ends():
    """128 requests of 1,500 tokens fill the cache of an L40S with Llama-3.1-8B; 8 leave it nearly empty."""
    lengths = Independent(Fixed(1000), Fixed(500))
    full = Scenario(LLAMA, Workload(ClosedLoop(256), lengths, 600))
    report = full.simulated()
    assert full.cache_decides(report)
    assert not LOOP.cache_decides(LOOP.simulated())
    stated = replace(full, deployment=replace(LLAMA, settings=Settings(num_blocks=full.memory.num_blocks)))
    assert not stated.cache_decides(report)
    ttft = [full.rerun_with_cache(report, share).metrics["ttft"]["mean"] for share in (-0.1, 0.0, 0.1)]
    assert ttft[0] > ttft[1] > ttft[2]
    assert vllm_result(full.rerun_with_cache(report, 0.0)) == vllm_result(report)
    row = load_row(full, report)
    ends = [full.rerun_with_cache(report, share).metrics["ttft"]["mean"] * 1e3 for share in (-CACHE_ERROR, CACHE_ERROR)]
    assert row["mean_ttft_ms_low"] <= min(ends) * (1 + 1e-9)
    assert row["mean_ttft_ms_high"] >= max(ends) * (1 - 1e-9)


def test_a_smaller_cache_still_holds_the_longest_request():
    lengths = Independent(Fixed(30_000), Fixed(10))
    tight = Scenario(deploy("llama-3.1-8b", "rtx-4090"), Workload(ClosedLoop(4), lengths, 20))
    report = tight.simulated()
    assert tight.cache_decides(report)
    assert tight.rerun_with_cache(report, -0.5).completed == 20


RANKS = default_layout(load_model("deepseek-v3"), dp=16, ep=16)


@pytest.mark.parametrize(
    ("placed", "prompt_tokens"),
    [
        (deploy("llama-3.1-8b", "rtx-4090"), 1_000),
        (deploy("deepseek-v3", "h100-sxm", "vllm-0.33", RANKS, Settings(memory_fraction=0.85)), 30_000),
    ],
)
def test_a_smaller_cache_still_holds_a_sequence_of_the_set_context(placed, prompt_tokens):
    """vLLM does not start without room for one of `max_model_len`, on each rank: what just fits is answered."""
    longest = memory_plan(placed).max_context_tokens - 64
    given = replace(placed, settings=replace(placed.settings, max_model_len=longest))
    full = Scenario(given, Workload(ClosedLoop(64), Independent(Fixed(prompt_tokens), Fixed(500)), 120))
    report = full.simulated()
    assert full.cache_decides(report)
    assert load_row(full, report)["mean_ttft_ms_high"] > report.metrics["ttft"]["mean"] * 1e3


def test_what_counts_of_a_run_counts_with_other_steps_too():
    """The same requests are left out, whatever the warm-up of the slower run would be."""
    load = replace(OPEN, workload=replace(OPEN.workload, arrivals=OpenLoop(5.0), request_count=2_000))
    report = load.simulated()
    assert load.rerun(report, 0.8).skipped == report.skipped > 0


def test_steps_that_an_engine_gathers_prompts_for_are_waited_for():
    """Each of 5 steps more before a prompt is computed: five mean steps of the run."""

    def ttft_s(steps: int) -> tuple[Report, float]:
        engine = LLAMA.engine.model_copy(update={"gathered_steps": steps})
        found = replace(LOOP, deployment=replace(LLAMA, engine=engine)).report(LOOP.workload)
        return found, found.metrics["ttft"]["mean"]

    (plain, at_once_s), (_, gathered_s) = ttft_s(0), ttft_s(5)
    assert gathered_s - at_once_s == pytest.approx(5 * plain.metrics["tpot"]["mean"])
    ideal = replace(LLAMA, engine=LLAMA.engine.model_copy(update={"gathered_steps": 5}), light=True)
    light = LLAMA.at_light
    found = [replace(LOOP, deployment=each).report(LOOP.workload).metrics["ttft"]["mean"] for each in (ideal, light)]
    assert found[0] == found[1]


# ----------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("scenario", [OPEN, LOOP], ids=["open", "closed"])
def test_one_replica_behind_a_router_is_one_replica(scenario):
    assert vllm_result(replace(scenario, router=Router()).simulated()) == vllm_result(scenario.simulated())


def test_a_router_is_sent_the_whole_load_and_all_replicas_count():
    """Four replicas behind a fair router serve as much as four that share the load; behind 500 workers they wait."""
    many = Workload(ClosedLoop(64), EQUAL, 640)
    share = Workload(ClosedLoop(16), EQUAL, 160)
    even = replace(LOOP, workload=share, replicas=4).simulated()
    fair, unfair = (
        replace(LOOP, workload=many, replicas=4, router=Router("least-connections", workers=workers)).simulated()
        for workers in (1, 500)
    )
    assert (fair.replicas, fair.run.engines, fair.completed) == (1, 4, 640)
    assert fair.output_tokens_per_s == pytest.approx(even.output_tokens_per_s, rel=0.05)
    assert unfair.output_tokens_per_s < 0.9 * fair.output_tokens_per_s
    assert unfair.metrics["ttft"]["mean"] > 1.2 * fair.metrics["ttft"]["mean"]
    assert unfair.metrics["tpot"]["mean"] > 1.2 * fair.metrics["tpot"]["mean"]


def test_the_router_of_another_draw_draws_anew_and_a_rerun_does_not():
    router = Router("least-connections", workers=8)
    scenario = replace(LOOP, workload=Workload(ClosedLoop(16), EQUAL, 160), replicas=4, router=router)
    first, second = (scenario.report(replace(scenario.workload, seed=seed)) for seed in (0, 1))
    assert first.run.replica.tolist() != second.run.replica.tolist()
    again = scenario.rerun(second, 1.0)
    assert again.run.replica.tolist() == second.run.replica.tolist()
    assert again.run.finished_s.tolist() == second.run.finished_s.tolist()


def test_a_rate_within_an_slo_is_that_of_all_replicas():
    """Four replicas behind a router serve four times what one does within the SLO, and more: waits are shared."""
    slo = Slo({"ttft": 1.0, "tpot": 0.05}, 0.95)
    one = replace(OPEN, workload=replace(OPEN.workload, arrivals=OpenLoop(20.0), request_count=1_000), slo=slo)
    four = replace(one, workload=replace(one.workload, arrivals=OpenLoop(80.0), request_count=4_000))
    four = replace(four, replicas=4, router=Router("least-outstanding"))
    ratio = within_slo(four).requests_per_s / within_slo(one).requests_per_s
    assert 4 <= ratio < 8


def test_a_batcher_s_wait_is_part_of_the_latencies_and_of_no_step():
    workload = Workload(Released(2.0, period_s=4.0, dealt_over=2), EQUAL, 400)
    scenario = replace(OPEN, workload=workload, slo=Slo())
    found = scenario.report(workload)
    sent = simulate_replica(pool_of(LLAMA, scenario.table, workload.requests(), 1), workload.requests())
    assert np.array_equal(found.run.first_token_s, sent.first_token_s)
    held = found.latencies_s["ttft"] - (sent.first_token_s - sent.requests.arrival_s)
    assert np.mean(held) == pytest.approx(1.0 + float(LLAMA.request_s(500)), rel=1e-3)  # and other tokens of its step
    assert np.ptp(held) < 2.0


@pytest.mark.parametrize("replicas", [2, 4, 8])
def test_a_balanced_share_waits_as_a_fleet_behind_least_connections_does(replicas):
    """One share's TTFT is that of the fleet simulated whole within 15 %; without the balancer it is too short.

    Its steps are those of the same gaps: what comes early in a step is in the next one all the same.
    """
    gaps = OpenLoop(12.0, float(replicas))
    share = replace(OPEN, workload=Workload(replace(gaps, balanced_over=replicas), UNEVEN, 3_000), slo=Slo())
    alone = replace(share, workload=replace(share.workload, arrivals=gaps))
    sent = replace(share.workload, arrivals=OpenLoop(12.0 * replicas), request_count=3_000 * replicas)
    fleet = replace(share, workload=sent, replicas=replicas, router=Router("least-connections"))
    found, other, whole = (each.report(each.workload) for each in (share, alone, fleet))
    assert found.run.steps.tolist() == other.run.steps.tolist()
    ttft, without, expected = (each.metrics["ttft"]["mean"] for each in (found, other, whole))
    assert without < ttft
    assert abs(math.log(ttft / expected)) < min(0.15, abs(math.log(without / expected)))
    again = share.rerun(found, 1.0)
    assert again.latencies_s["ttft"].tolist() == found.latencies_s["ttft"].tolist()


def test_requests_beyond_the_context_are_rejected_unless_somebody_has_run_them():
    long = replace(OPEN, workload=Workload(OpenLoop(1.0), Independent(Fixed(140_000), Fixed(10)), 5))
    with pytest.raises(WorkloadError, match=r"all 5 requests rejected: more than 131,072 tokens \(max_model_len\)"):
        long.simulated()
    small = deploy("llama-2-7b", "h100-sxm")
    beyond = Scenario(small, Workload(OpenLoop(1.0), Independent(Fixed(5_000), Fixed(10)), 5))
    with pytest.raises(WorkloadError, match="more than 4,096 tokens"):
        beyond.simulated()
    assert replace(beyond, assume_fits=True).simulated().completed == 5


def test_rejected_requests_miss_the_slo_and_the_others_are_as_if_they_had_never_been_sent():
    """Prompts of 1 to 4,000 tokens with answers of 100, of which a context of 3,000 takes those up to 2,900."""
    settings = Settings(max_model_len=3_000)
    load = Workload(OpenLoop(1.0), Independent(Uniform(1, 4_000), Fixed(100)), 4_000)
    slo = Slo({"ttft": 10.0}, 0.9)
    found = Scenario(replace(LLAMA, settings=settings), load, slo, whole_run=True).simulated()
    requests = load.requests()
    kept = np.flatnonzero(requests.prompt_tokens <= 2_900)
    assert (found.sent, found.completed) == (4_000, len(kept))
    assert len(found.run.rejected) == pytest.approx(0.275 * 4_000, rel=0.1)
    assert found.within == {"ttft": len(kept) / 4_000, "all": len(kept) / 4_000}
    assert not found.meets_slo
    assert found.goodput_per_s == pytest.approx(found.requests_per_s)
    row = vllm_result(found)
    assert (row["failed"], row["completed"]) == (4_000 - len(kept), len(kept))
    alone = simulate_replica(pool_of(LLAMA, LLAMA.step_table(), requests, 1), requests.only(kept))
    assert found.run.finished_s.tolist() == alone.finished_s.tolist()
    assert bill(found, 1.0, 3.6).usd_per_hour == 3.6
    assert bill(found, 1.0, 3.6).usd_per_million_output_tokens == pytest.approx(1000 / (100 * len(kept) / 4_000))


def test_a_capacity_that_rejections_rule_out_says_so():
    load = Workload(OpenLoop(1.0), Independent(Uniform(1, 4_000), Fixed(100)), 500)
    short = replace(LLAMA, settings=Settings(max_model_len=3_000))
    found = capacity(Scenario(short, load, Slo({"ttft": 10.0}, 0.9)))
    assert found.rate_per_s == 0
    assert re.search(r"2\d\.\d% are rejected: more than 3,000 tokens", found.breaks)


def test_weights_without_room_are_refused_whatever_is_assumed():
    large = Scenario(deploy("llama-3.1-70b", "l40s"), OPEN.workload)
    with pytest.raises(DoesNotFitError):
        large.simulated()


def test_a_deployment_without_a_load_is_refused():
    with pytest.raises(InfercastError, match=r"simulate\(Deployment\): a Scenario is a deployment and its load"):
        simulate(deploy("llama-3.1-8b", "h100-sxm"))
