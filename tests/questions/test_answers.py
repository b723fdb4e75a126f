"""Answers as rows: what they hold, how replicas share a batch, and where throughputs have intervals."""

from dataclasses import replace

import pytest

from simulator.deployment.batches import Batch
from simulator.deployment.deployment import deploy
from simulator.errors import DoesNotFitError, InfercastError, WorkloadError
from simulator.questions.asked_columns import asked_columns
from simulator.questions.batch_question import BatchSizes
from simulator.questions.batch_rows import batch_row
from simulator.questions.load_notes import load_notes
from simulator.questions.load_question import RunQuestion, SloQuestion
from simulator.questions.load_rows import METRICS, STATS, THROUGHPUTS, load_row
from simulator.questions.row_intervals import ENDS, regime_of
from simulator.questions.workload_question import WorkloadQuestion
from simulator.reports.intervals import interval
from simulator.reports.slo import Slo
from simulator.simulation.routers import Router

LLAMA = deploy("llama-3.1-8b", "l40s")
SHORT = {"input_len": "256", "output_len": "32"}
ONE_RUN = RunQuestion()


def asked(run: RunQuestion = ONE_RUN, slo: str = "", **words: object):
    """Return a scenario of Llama on an L40S and its report."""
    ((_, workload),) = WorkloadQuestion(**{**SHORT, **words}).workloads(run.shares)
    scenario = run.scenario(LLAMA, workload, SloQuestion(slo, 0.99).value())
    return scenario, run.report(scenario)


# ------------------------------------------------------------------------------------------------------------ batches


def test_lists_of_sizes_and_lengths_make_every_combination():
    found = BatchSizes("1,8", "128,1024", "16,32", context_len=7).batches()
    assert len(found) == 8
    assert found[:3] == [Batch(1, 128, 16, 7), Batch(8, 128, 16, 7), Batch(1, 128, 32, 7)]


@pytest.mark.parametrize(("size", "replicas"), [("8", 3), ("5", 2), ("2", 8)])
def test_a_batch_that_replicas_cannot_share_evenly_is_refused(size, replicas):
    with pytest.raises(WorkloadError, match=f"--batch {size} over {replicas} replicas.*multiple of {replicas}"):
        BatchSizes(size, replicas=replicas).batches()


@pytest.mark.parametrize(("size", "replicas", "each"), [("8", 1, 8), ("8", 4, 2), ("9", 3, 3)])
def test_replicas_share_a_batch(size, replicas, each):
    """Throughputs are of all of them."""
    (batch,) = BatchSizes(size, replicas=replicas).batches()
    assert batch.size == each
    words = BatchSizes(str(each))
    one, all_of_them = (batch_row(words.estimate(LLAMA, batch), None, number) for number in (1, replicas))
    for key in ("batch", "output_tokens_per_s", "total_tokens_per_s", "requests_per_s", "decode_tokens_per_s"):
        assert all_of_them[key] == pytest.approx(replicas * one[key]), key
    assert all_of_them["tpot_s"] == one["tpot_s"]


def test_a_batch_that_somebody_has_run_fits():
    words = BatchSizes("4000", "4096", "128")
    with pytest.raises(DoesNotFitError):
        words.estimate(LLAMA, words.batches()[0])
    assert replace(words, assume_fits=True).estimate(LLAMA, words.batches()[0]).expected.ttft_s > 0


def test_one_token_has_no_tpot():
    row = batch_row(BatchSizes("1", "128", "1").estimate(LLAMA, Batch(1, 128, 1)))
    for key in ("tpot_s", "tokens_per_s_user", "decode_tokens_per_s"):
        assert row[key] is row[f"{key}_low"] is row[f"{key}_high"] is None, key


@pytest.mark.parametrize(("size", "regime"), [(1, "single"), (8, "fixed_batch")])
def test_a_batch_has_the_intervals_of_its_kind(size, regime):
    row = batch_row(BatchSizes().estimate(LLAMA, Batch(size, 1024, 128)), 0.5)
    low, high = interval(LLAMA, "tpot_ms", regime, 0.5).around(row["tpot_s"])
    assert (row["tpot_s_low"], row["tpot_s_high"], row["interval"]) == (low, high, 0.5)


def test_no_intervals_where_none_are_asked():
    assert not any(key.endswith(ENDS) for key in batch_row(BatchSizes().estimate(LLAMA, Batch(1, 128, 16)), None))
    assert not any(key.endswith(ENDS) for key in load_row(*asked(max_concurrency="4"), None))


# -------------------------------------------------------------------------------------------------------------- loads


def test_every_statistic_of_every_latency_has_its_interval():
    row = load_row(*asked(max_concurrency="4"))
    for key in (*(f"{stat}_{name}_ms" for name in METRICS for stat in STATS), "tokens_per_s_user", *THROUGHPUTS):
        assert row[f"{key}_low"] <= row[key] <= row[f"{key}_high"], key
    assert row["total_token_throughput"] == pytest.approx(row["input_throughput"] + row["output_throughput"])
    assert row["tokens_per_s_user"] == 1e3 / row["mean_tpot_ms"]


@pytest.mark.parametrize(
    ("words", "run", "regime"),
    [
        ({"max_concurrency": "4"}, RunQuestion(), "closed_loop"),
        ({"request_rate": "inf", "num_prompts": 50}, RunQuestion(), "offline"),
        ({"max_concurrency": "50", "num_prompts": 50}, RunQuestion(), "offline"),
        ({"request_rate": "40", "num_prompts": 500}, RunQuestion(within_slo=True), "limited"),
    ],
)
def test_a_load_has_the_intervals_of_its_kind(words, run, regime):
    row = load_row(*asked(run, "ttft:1s,tpot:60ms" if run.within_slo else "", **words))
    for key, metric in (("mean_tpot_ms", "tpot_ms"), ("output_throughput", "throughput_out_tok_s")):
        low, high = interval(LLAMA, metric, regime, 0.8).around(row[key])
        assert (row[f"{key}_low"], row[f"{key}_high"]) == (low, high), key


def test_what_is_offered_is_served_and_has_no_interval():
    row = load_row(*asked(request_rate="2", num_prompts=2000))
    assert row["request_throughput"] == pytest.approx(2, rel=0.1)
    assert {row[f"{key}_{end}"] for key in THROUGHPUTS for end in ENDS} == {None}


def test_a_run_within_an_slo_keeps_it_and_says_what_is_served_of_the_asked_rate():
    scenario, report = asked(RunQuestion(within_slo=True), "ttft:1s,tpot:40ms", request_rate="4", num_prompts=2000)
    assert scenario.slo == Slo({"ttft": 1.0, "tpot": 0.04}, 0.99)
    assert report.within["all"] >= 0.98
    assert report.of_asked > 1  # a capacity beyond what is asked is one that nobody uses
    row = load_row(scenario, report)
    assert row["request_throughput_of_asked"] == pytest.approx(4, rel=0.1)
    assert row["request_throughput"] == pytest.approx(4 * report.of_asked, rel=0.1)
    with pytest.raises(InfercastError, match="needs bounds"):
        asked(RunQuestion(within_slo=True), request_rate="4")


def test_a_load_is_run_as_asked():
    run = RunQuestion(replicas=3, whole_run=True, assume_fits=True)
    scenario, report = asked(run, max_concurrency="6")
    assert (scenario.replicas, scenario.whole_run, scenario.assume_fits) == (3, True, True)
    assert scenario.workload.arrivals.concurrency == 2
    assert (report.replicas, report.is_limited) == (3, False)


def test_figures_of_an_overloaded_load_are_of_all_replicas():
    """Eight times the load on eight replicas: counts, intervals and sentences are eight times those of one."""
    one, eight = (asked(RunQuestion(replicas=n), request_rate=str(60 * n), num_prompts=1500 * n) for n in (1, 8))
    assert one[1].overloaded
    alone, together = load_row(*one), load_row(*eight)
    counted = ("max_concurrent_requests", "queue_growth_per_s", "num_preemptions", "total_output_tokens")
    for key in (*counted, *THROUGHPUTS, *(f"{key}_{end}" for key in THROUGHPUTS for end in ENDS)):
        assert together[key] == pytest.approx(8 * alone[key]), key
    for key in THROUGHPUTS:
        assert together[f"{key}_low"] <= together[key] <= together[f"{key}_high"]
    assert f"grow with the queue, by {8 * one[1].queue_growth_per_s:.3g} requests" in load_notes(*eight)[0]


def test_a_load_behind_a_router_is_of_all_replicas():
    run = RunQuestion(replicas=3, router="least-connections", router_workers=2)
    assert run.serving(WorkloadQuestion(max_concurrency="2")) == run  # who is idle is the router's choice
    scenario, report = asked(run, max_concurrency="2", num_prompts=12)
    assert (scenario.replicas, scenario.router) == (3, Router("least-connections", workers=2))
    assert scenario.describe() == f"3 replicas of {LLAMA}, {LLAMA.engine.id}, least-connections of 2 workers"
    columns = asked_columns(scenario, None, report)
    assert (columns["num_prompts"], columns["max_concurrency"], columns["replicas"]) == (12, 2, 3)
    assert set(report.run.replica) == {0, 1, 2}


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"router_workers": 4}, "--router-workers 4 without --router: it would change nothing"),
        ({"router": "round-robin", "router_workers": 4}, "only least-connections has workers"),
        ({"router": "least-connections", "router_workers": 0}, "router_workers 0: somebody must route"),
        ({"router": "least-conn"}, "Nearest: least-connections"),
    ],
)
def test_a_router_that_is_none_is_refused(changes, refused):
    with pytest.raises(InfercastError, match=refused):
        _ = RunQuestion(replicas=2, **changes).routing


@pytest.mark.parametrize(
    ("concurrency", "requests", "regime"),
    [(0, 10, "open_loop"), (4, 10, "closed_loop"), (10, 10, "offline"), (20, 10, "offline")],
)
def test_all_at_once_is_offline(concurrency, requests, regime):
    assert regime_of(concurrency, requests) == regime
