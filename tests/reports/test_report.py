"""Reports: metric definitions by hand, intervals that cover, warm-up, overload."""

import math
from dataclasses import replace

import numpy as np
import pytest

from simulator.cost.bill import bill, usd_per_million
from simulator.cost.scenario import Scenario
from simulator.deployment.deployment import deploy
from simulator.deployment.layouts import default_layout
from simulator.errors import InfercastError
from simulator.models.model import load_model
from simulator.reports.batch_means import Statistic, mean_of, statistic, warm_up
from simulator.reports.report import latencies_s, summarize
from simulator.reports.slo import Slo, parse_slo
from simulator.reports.vllm_result import vllm_result
from simulator.roofline.step_model import StepTable
from simulator.scheduler.state import CONTINUOUS, PROMPTS_FIRST, SchedulerLimits
from simulator.simulation.engine_loop import Run, simulate
from simulator.workloads.arrivals import ClosedLoop
from simulator.workloads.lengths import Fixed, Independent
from simulator.workloads.workload import Requests, Workload

# A step takes 10 ms and each token of a prompt 1 ms more: every latency can be worked out by hand.
TABLE = StepTable(np.full(4097, 0.010), np.zeros(257), np.array([0, 0, 0.001, 0, 0]))


def run(arrival_s: list[float], prompts: list[int], outputs: list[int], **changes: int) -> Run:
    values = {"policy": CONTINUOUS, "max_num_seqs": 8, "max_num_batched_tokens": 4096, "num_blocks": 1000}
    values |= {"block_size": 16, "admit_full_prompt": True, "async_scheduling": False, "window": 0}
    values |= {"full_groups": 1, "window_groups": 0, "window_blocks": 0} | changes
    return simulate(
        SchedulerLimits(**values), TABLE, Requests(np.array(arrival_s), np.array(prompts), np.array(outputs))
    )


def test_latencies_by_hand():
    # Request 0: prompt step 10 + 100 ms; three decodes of 10 ms, the first of them with request 1's prompt (+ 50 ms).
    report = summarize(run([0.0, 0.10], [100, 50], [4, 1]), steady=False)
    latencies = report.latencies_s
    assert latencies["ttft"] == pytest.approx([0.110, 0.110 + 0.060 - 0.10])
    assert latencies["e2el"] == pytest.approx([0.110 + 0.060 + 0.020, 0.070])
    assert latencies["tpot"][0] == pytest.approx(0.080 / 3)
    assert math.isnan(latencies["tpot"][1])
    assert latencies["queue"] == pytest.approx([0.0, 0.010])
    assert report.metrics["itl"]["mean"] == pytest.approx(0.080 / 3)
    assert report.metrics["itl"]["median"] == pytest.approx(0.010)
    assert report.metrics["itl"]["p99"] == pytest.approx(0.060)
    assert report.metrics["itl"].count == 3
    assert report.metrics["itl"].std == pytest.approx(0.001 * math.sqrt((60**2 + 10**2 + 10**2) / 3 - (80 / 3) ** 2))
    assert report.duration_s == pytest.approx(0.190)
    assert report.output_tokens_per_s == pytest.approx(5 / 0.190)
    assert report.total_tokens_per_s == pytest.approx(155 / 0.190)
    assert report.prompt_share == pytest.approx((0.110 + 0.050) / 0.190)
    assert report.utilisation == pytest.approx(1.0)


def test_an_answer_of_two_tokens_has_one_gap_and_one_of_one_has_none():
    found = latencies_s(np.zeros(2), np.array([0.5, 0.5]), np.array([1.5, 0.5]), np.array([2, 1]))
    assert found["tpot"] == pytest.approx([1.0, math.nan], nan_ok=True)


def test_the_gap_of_an_answer_of_two_tokens_begins_with_its_first():
    """Not five seconds before, when the last request of another user ended."""
    report = summarize(run([0.0, 5.0], [100, 100], [2, 2]), steady=False)
    itl = report.metrics["itl"]
    assert (itl["mean"], itl["p99"]) == pytest.approx((0.010, 0.010))
    shown_later = summarize(run([0.0, 5.0], [100, 100], [2, 2], stream_s=0.002), steady=False)
    assert shown_later.metrics["ttft"]["mean"] == pytest.approx(0.112)
    assert shown_later.metrics["itl"]["p99"] == pytest.approx(0.010)


def test_itl_counts_the_gap_of_a_preemption():
    """Two requests that outgrow the cache together: the second is put back and its gap is seen."""
    tight = run([0.0, 0.0], [16, 16], [20, 20], num_blocks=3)
    assert tight.preemptions.sum() >= 1
    report = summarize(tight, steady=False)
    gaps = (tight.finished_s - tight.first_token_s).sum() / (19 + 19)
    assert report.metrics["itl"]["mean"] == pytest.approx(gaps)


def test_slo_attainment_counts_every_bound():
    report = summarize(
        run([0.0, 0.0, 5.0], [100, 100, 100], [4, 4, 4]), parse_slo("ttft:200ms,tpot:50ms"), steady=False
    )
    assert report.within == pytest.approx({"ttft": 1 / 3, "tpot": 1.0, "all": 1 / 3})
    assert not report.meets_slo


def test_the_worst_bound_is_the_one_that_most_requests_miss():
    """TTFT of 110, 110 and 310 ms, TPOT of 10 ms: whatever a tail is over its bound, what all miss is worse."""
    three = run([0.0, 1.0, 2.0], [100, 100, 300], [4, 4, 4])

    def worst(slo: str) -> str:
        return summarize(three, parse_slo(slo, 0.5), steady=False).worst_bound

    assert worst("ttft:200ms,tpot:9ms") == "tpot"
    assert worst("ttft:200ms,tpot:20ms") == "ttft"
    assert worst("ttft:50ms,tpot:9ms") == "ttft"  # all miss both: 2.2 times its bound, and 1.1 times
    assert worst("ttft:1s,tpot:11ms") == "tpot"  # none misses either: this one is closer to its bound
    assert worst("") == ""


def test_goodput_is_throughput_times_attainment():
    report = summarize(run([0.0, 0.0, 5.0], [100, 100, 100], [4, 4, 4]), Slo({"ttft": 0.2}), steady=False)
    assert vllm_result(report)["request_goodput"] == pytest.approx(1 / report.duration_s)


def test_what_is_rejected_is_no_goodput():
    """Of three requests one is longer than the cache of 16,000 tokens; the two others keep the SLO: 2 in 1.02 s."""
    report = summarize(run([0.0, 0.5, 1.0], [10, 20_000, 10], [1, 1, 1]), Slo({"ttft": 1.0}), steady=False)
    assert report.rejected_share == pytest.approx(1 / 3)
    assert report.within["all"] == pytest.approx(2 / 3)
    assert report.goodput_per_s == pytest.approx(2 / 1.02)


def test_shares_by_hand():
    """Two prompts of 100 and 50 tokens, 25 of them cached; one request at a time, with a second between them."""
    calm = run([0.0, 1.0], [100, 50], [1, 1])
    report = summarize(replace(calm, hit_tokens=np.array([25, 0])), steady=False)
    assert report.prefix_hit_rate == pytest.approx(25 / 150)
    assert report.mean_running == 1.0
    assert bill(report, 1.0, usd_per_hour=1.0).idle_share == pytest.approx(1 - (0.110 + 0.060) / 1.060)


@pytest.mark.parametrize("users", [2, 64])
@pytest.mark.parametrize("pp", [1, 2, 4])
def test_requests_of_a_pipeline_run_in_all_of_its_stages_at_once(pp, users):
    """By Little's law as many run as are served per second times how long each takes, while the load lasts."""
    deployment = deploy("llama-3.1-8b", "h100-sxm", layout=default_layout(load_model("llama-3.1-8b"), pp=pp))
    load = Workload(ClosedLoop(users), Independent(Fixed(500), Fixed(100)), 8 * users)
    report = Scenario(deployment, load).report(load)
    told = vllm_result(report)
    assert told["max_concurrent_requests"] == users
    assert told["mean_num_requests_running"] == pytest.approx(users, rel=0.25)  # they begin and end one by one
    assert report.mean_step_running == pytest.approx(told["mean_num_requests_running"] / min(pp, users), rel=0.05)


VLLM_KEYS = """duration completed failed total_input_tokens total_output_tokens request_throughput request_goodput
output_throughput total_token_throughput max_concurrent_requests mean_ttft_ms median_ttft_ms std_ttft_ms p99_ttft_ms
mean_tpot_ms median_tpot_ms std_tpot_ms p99_tpot_ms mean_itl_ms median_itl_ms std_itl_ms p99_itl_ms mean_e2el_ms
median_e2el_ms std_e2el_ms p99_e2el_ms"""


def test_json_has_the_keys_of_vllm_bench():
    keys = vllm_result(summarize(run([0.0, 0.1], [10, 10], [5, 5])))
    assert not set(VLLM_KEYS.split()) - keys.keys()


def test_a_frame_has_seconds_and_half_widths():
    report = summarize(run([0.0, 0.10], [100, 50], [4, 1]), steady=False)
    frame = report.to_frame()
    assert frame.index.tolist() == ["ttft", "tpot", "itl", "e2el", "queue"]
    assert frame.loc["ttft", "mean"] == pytest.approx((0.110 + 0.070) / 2)
    assert math.isnan(frame.loc["ttft", "mean_half_width"])


def test_json_has_milliseconds():
    """The requests of `test_latencies_by_hand`, and half-widths of many that meet or miss each other."""
    keys = vllm_result(summarize(run([0.0, 0.10], [100, 50], [4, 1]), steady=False))
    found = {
        name: keys[name] for name in ("mean_ttft_ms", "mean_queue_ms", "mean_tpot_ms", "median_itl_ms", "p99_itl_ms")
    }
    assert found == pytest.approx(dict(zip(found, (90.0, 5.0, 80 / 3, 10.0, 60.0), strict=True)))
    assert keys["tokens_per_s_user"] == pytest.approx(3 / 0.080)
    arrival_s = np.cumsum(np.random.default_rng(3).exponential(0.1, 4000))
    report = summarize(run(arrival_s.tolist(), [20] * 4000, [4] * 4000))
    half_s = report.metrics["ttft"].half_widths["mean"]
    assert 0 < half_s < 0.01
    assert [value for name, value in vllm_result(report).items() if "mean_ttft" in name] == pytest.approx(
        [1e3 * report.metrics["ttft"]["mean"], 1e3 * half_s]
    )


@pytest.mark.slow
def test_intervals_cover_the_truth():
    """95 % intervals of an autocorrelated series (AR(1), 0.9) cover its mean, 50, about 95 times in 100."""
    series = np.random.default_rng(7).normal(size=(200, 20_000)).T.copy()
    for index in range(1, len(series)):
        series[index] += 0.9 * series[index - 1]
    covered = 0
    for found in map(statistic, 50 + series.T):
        covered += abs(found["mean"] - 50) <= found.half_widths["mean"]
    assert 0.90 <= covered / 200 <= 0.99


def test_too_few_values_have_no_interval():
    assert math.isnan(statistic(np.ones(10)).half_widths["mean"])
    assert math.isnan(statistic(np.arange(100.0)).half_widths["p99"])
    assert not math.isnan(statistic(1000 + np.arange(100.0)).half_widths["mean"])
    assert math.isnan(statistic(np.arange(100.0)).half_widths["mean"])  # it only grows: half its mean either way


def test_what_never_changes_has_no_error():
    """Of a queue in which nobody waits."""
    assert statistic(np.zeros(100)).half_widths["mean"] == 0.0
    for unit in (1.0, 1e6):
        mixed = np.random.default_rng(1).random(2000) < 0.49  # so that the median may be either
        rounded = statistic(unit * np.where(mixed, 0.1 + 0.2, 0.3))  # 0.3 and 0.30000000000000004
        assert (rounded.half_widths["mean"], rounded.half_widths["median"]) == (0.0, 0.0)


def test_errors_of_independent_runs_add_up_in_squares():
    """Means of 1 and 3, known to 3 and 4: their mean is 2, known to 5 / 2."""
    draws = [
        Statistic({"mean": mean}, 0.0, 1, lambda half=half: {"mean": half}) for mean, half in ((1.0, 3.0), (3.0, 4.0))
    ]
    assert (mean_of(draws)["mean"], mean_of(draws).half_widths["mean"]) == pytest.approx((2.0, 2.5))


@pytest.mark.parametrize(("count", "stated"), [(80, True), (79, False)])
def test_the_interval_of_a_mean_by_hand(count, stated):
    """Ten batches of 10.1 and 9.9 in turn: 2.262 sqrt(0.1 / 9 / 10) = 0.0754; as a factor 10 (exp(0.00754) - 1)."""
    found = statistic(np.repeat([10.1, 9.9] * 5, 8)[:count])
    assert found.half_widths["mean"] == pytest.approx(0.07568 if stated else math.nan, rel=1e-3, nan_ok=True)


def test_the_interval_of_a_quantile_of_independent_values():
    """1.96 sqrt(p (1-p) / n) = 0.0021 of the p95 of 40,000 numbers between 10 and 11; five of 500 have no p99."""
    numbers = np.random.default_rng(3).uniform(10, 11, 40_000)
    assert statistic(numbers).half_widths["p95"] == pytest.approx(0.0021, rel=0.6)
    assert math.isnan(statistic(numbers[:500]).half_widths["p99"])


def test_an_interval_reaches_to_its_farther_end():
    """Of 4,000 values 4.5 % are 12 and the rest 10: the p95 is 10, and may be 12 (1.96 x 0.34 % beyond 95 %).

    As a factor, 10 exp(2 / 10) = 12.21.
    """
    numbers = np.full(4000, 10.0)
    numbers[np.random.default_rng(5).choice(4000, 180, replace=False)] = 12.0
    found = statistic(numbers)
    assert found["p95"] == 10.0
    assert found.half_widths["p95"] == pytest.approx(2.214, rel=1e-3)


def test_a_tail_that_came_all_at_once_has_no_interval():
    """The 600 longest of 10,000 are the last: the p95 rests on one event."""
    noise = np.random.default_rng(4).normal(1.0, 0.01, 10_000)
    noise[-600:] += 4
    assert math.isnan(statistic(noise).half_widths["p95"])
    assert not math.isnan(statistic(noise).half_widths["mean"])


def test_warm_up_finds_a_transient_and_leaves_noise_alone():
    rng = np.random.default_rng(1)
    noise = rng.normal(10, 1, 5000)
    transient = noise + np.concatenate([np.linspace(-10, 0, 500), np.zeros(4500)])
    assert 300 <= warm_up(transient) <= 1000
    assert warm_up(noise) < 1000
    assert 300 <= warm_up(transient[:4998]) <= 1000  # the last three make no whole batch of five
    few = np.repeat([9.0, 0.0], [5, 15])
    assert (warm_up(few), warm_up(few[:19])) == (5, 0)  # of four batches the first; three are too few


def test_a_half_width_of_the_median_takes_80_values():
    values = np.random.default_rng(0).normal(10.0, 1.0, 80)
    assert statistic(values).half_widths["median"] > 0
    assert math.isnan(statistic(values[1:]).half_widths["median"])


def test_one_token_has_no_gap():
    itl = summarize(run([0.0, 1.0], [100, 100], [1, 1]), steady=False).metrics["itl"]
    assert itl.count == 0 and math.isnan(itl["mean"])


def test_the_rate_of_a_steady_load_is_that_of_its_arrivals():
    """One every 0.2 s, for ever: the last stands for a gap, too."""
    report = summarize(run([0.2 * n for n in range(50)], [10] * 50, [1] * 50))
    assert report.requests_per_s == pytest.approx(5.0)


def test_the_held_cache_without_a_token_by_hand():
    """100 tokens of prompt in 7 blocks of 16 for 110 ms; then 101 and 102 for 10 ms each."""
    report = summarize(run([0.0], [100], [3]), steady=False)
    assert report.cache_waste == pytest.approx(1 - (100 * 0.110 + (101 + 102) * 0.010) / (7 * 16 * 0.130))


def test_overload_is_seen_and_load_is_not():
    arrivals = np.arange(2000) * 0.05
    busy = run(list(arrivals), [90] * 2000, [1] * 2000, max_num_seqs=1)  # 100 ms each, every 50 ms
    calm = run(list(arrivals * 4), [90] * 2000, [1] * 2000, max_num_seqs=1)
    assert summarize(busy).overloaded
    assert summarize(busy).queue_growth_per_s == pytest.approx(10, rel=0.05)
    assert not summarize(calm).overloaded


def test_an_overloaded_engine_serves_as_much_however_much_it_is_sent():
    """It serves 10 requests a second: none is left out, as those that come last wait behind the first."""
    for gap_s in (0.05, 0.01):
        busy = summarize(run([gap_s * n for n in range(2000)], [90] * 2000, [1] * 2000, max_num_seqs=1))
        assert busy.skipped == 0
        assert busy.requests_per_s == pytest.approx(10.0, rel=0.01)


def test_bill_by_hand():
    # Two requests at 10 per second stand for 0.20 s of a stable load, whenever they came and the last answer ends.
    report = summarize(run([0.0, 0.10], [100, 50], [4, 1]), steady=False)
    cost = bill(report, 10.0, usd_per_hour=3.6)
    assert (cost.usd_per_hour, cost.usd_per_month) == (3.6, 3.6 * 730)
    assert cost.usd_per_million_output_tokens == pytest.approx(3.6 / 3600 * 0.20 / 5 * 1e6)
    assert cost.usd_per_million_input_tokens == pytest.approx(3.6 / 3600 * 0.20 / 150 * 1e6)
    both = 150 * cost.split_usd_per_million_input_tokens + 5 * cost.split_usd_per_million_output_tokens
    assert both == pytest.approx(155 * cost.usd_per_million_total_tokens)


def test_a_metric_with_two_bounds_is_said_to_have_two():
    with pytest.raises(InfercastError, match="TTFT has two bounds"):
        parse_slo("ttft:1s,TTFT:2s")


def test_what_is_rejected_makes_no_tokens_to_share_the_bill():
    """$7.2 an hour for three requests a second, of which two are answered: 10 tokens in, one out."""
    report = summarize(run([0.0, 0.5, 1.0], [10, 20_000, 10], [1, 1, 1]), steady=False)
    cost = bill(report, 3.0, usd_per_hour=7.2)
    assert cost.usd_per_million_output_tokens == pytest.approx(0.002 / 2 * 1e6)
    assert cost.usd_per_million_input_tokens == pytest.approx(0.002 / 20 * 1e6)


def test_a_million_tokens_of_claim_23():
    assert usd_per_million(1.19, 4000) == pytest.approx(0.0826, rel=1e-3)
    assert usd_per_million(1.99, 10_000) == pytest.approx(0.0553, rel=1e-3)


@pytest.mark.parametrize("text", ["ttft", "ttfft:1s", "ttft:-5ms", "ttft:0ms", "ttft:5 parsecs", "ttft:1s,ttft:2s"])
def test_bad_slos_are_refused_in_three_parts(text):
    with pytest.raises(InfercastError) as caught:
        parse_slo(text)
    assert caught.value.given
    assert caught.value.because
    assert caught.value.remedy


def test_itl_waits_through_steps_of_prompts():
    """Prompts first: request 0 makes no token while request 1's prompt is computed; each has its own gaps."""
    found = run([0.0, 0.115], [100, 50], [4, 3], policy=PROMPTS_FIRST)
    assert (found.steps.decodes == 0).sum() == 2  # two prompts, each in a step of its own
    report = summarize(found, steady=False)
    gaps = (found.finished_s - found.first_token_s).sum() / (3 + 2)
    assert report.metrics["itl"]["mean"] == pytest.approx(gaps)
    assert report.metrics["itl"]["p99"] == pytest.approx(0.010 + 0.060 + 0.010 - 0.010)


def test_throughput_lasts_until_users_have_all_tokens():
    shown = run([0.0] * 4, [100] * 4, [8] * 4, stream_s=0.05)
    assert shown.finished_s.max() > shown.end_s
    assert summarize(shown, steady=False).duration_s == pytest.approx(shown.finished_s.max())
