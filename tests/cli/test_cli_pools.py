"""Prefill and decode pools on the command line: `fleet` scales each, `plan` says whether they pay."""

import json

import pytest
from typer.testing import CliRunner

from simulator.cli import build
from simulator.errors import InfercastError

LOAD = ("--model", "llama-3.1-8b", "--hardware", "l40s", "--isl", "2048", "--osl", "64")
POOLS = ("fleet", *LOAD, "--request-rate", "10", "--num-prompts", "400", "--disaggregate", "3:2")
PLAN = ("plan", *LOAD, "--request-rate", "2", "--slo", "ttft:2s,tpot:30ms", "--growth", "5%", "--disaggregate")


def printed(*arguments: str) -> str:
    return CliRunner().invoke(build(arguments), list(arguments), catch_exceptions=False).stdout


def test_each_pool_scales_up_to_its_own_number():
    scaling = ("--prefill-autoscale", "queue:1", "--cold-start", "1s", "--sync-period", "2s")
    found = json.loads(printed(*POOLS, *scaling, "--format", "json"))
    assert {each["replica"] for each in found["changes"]} == {1, 2}  # of 3 that prefill; both that decode stay up
    both = printed(*POOLS, *scaling, "--autoscale", "concurrency:900")
    assert "\n1 to 3 prefill and 1 to 2 decode replicas" in both
    with pytest.raises(InfercastError, match="--prefill-autoscale without --disaggregate"):
        printed("fleet", *LOAD, "--request-rate", "10", *scaling)


@pytest.mark.slow
def test_long_prompts_that_break_the_tpot_of_short_ones_get_a_fleet_of_their_own():
    load = ("--model", "llama-3.1-8b", "--hardware", "l40s", "--isl", "quantiles:0=100,0.95=300,0.96=7000,1=9000")
    asked = ("plan", *load, "--osl", "100", "--request-rate", "8", "--slo", "ttft:6s,tpot:27ms", "--months", "1")
    text = printed(*asked, "--split-prompts", "1000")
    assert text.startswith("Two fleets, prompts split at 1,000 tokens: 1 replica and ")
    assert "for one fleet." in text
    assert "(prompts above 1,000 tokens; always" in " ".join(text.split())
    assert all(len(line) <= 80 for line in text.splitlines() if not line.startswith("Rests on"))
    with pytest.raises(InfercastError, match=r"prompts have 100 to 8,999 tokens, 100\.0% of them up to that"):
        printed(*asked, "--split-prompts", "10000")


@pytest.mark.slow
def test_a_plan_of_sessions_says_where_their_history_is():
    load = ("--model", "llama-3.1-8b", "--hardware", "h100-sxm", "--isl", "1000", "--osl", "50", "--request-rate", "3")
    asked = ("plan", *load, "--slo", "ttft:1s,tpot:50ms", "--months", "1", "--turns", "4", "--think-time", "5s")
    added, included = (" ".join(printed(*asked, *more).split()) for more in ((), ("--history", "included")))
    assert "sessions of 4 turns, 5 s apart, their history on top of the given lengths" in added
    assert "their history within the given lengths" in included
    least = [float(text.split("A replica serves ")[1].split("/s")[0]) for text in (added, included)]
    assert least[0] < least[1]
    with pytest.raises(InfercastError, match="the lengths either hold it or not"):
        printed(*asked, "--history", "maybe")
    with pytest.raises(InfercastError, match="--history without --turns"):
        printed(*asked[:-4], "--history", "included")


@pytest.mark.slow
def test_a_plan_says_first_what_to_do_and_whether_pools_pay():
    text = printed(*PLAN)
    assert text.startswith("Static fleet (always on")
    assert "Disaggregated: yes; " in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert len(text.splitlines()) <= 24
    assert "Months between: --format json, csv." in text
    assert "scale by load" not in text  # the rate is the same all day


@pytest.mark.slow
def test_a_plan_says_that_pools_which_scale_by_load_are_not_compared():
    told = " ".join(printed(*PLAN, "--rate-curve", "sine:0.8", "--months", "1").split())
    assert "Pools that scale by load are not compared: infercast fleet --disaggregate " in told


def test_a_fleet_says_that_it_has_not_seen_the_peak_of_its_day():
    """10,000 requests of a mean of 40/s, of which the default is as many, end before the first hour of a night."""
    day = ("fleet", "--model", "llama-3.1-8b", "--hardware", "h100-sxm", "--isl", "64", "--osl", "8")
    night = " ".join(printed(*day, "--rate", "40", "--rate-curve", "sine:0.9", "--num-prompts", "500").split())
    assert "at 4.01 requests/s or less: its peak of 76.0 is not simulated. Give --duration 24h, or ask" in night
    whole = printed(*day, "--rate", "0.02", "--rate-curve", "sine:0.9", "--duration", "24h")
    assert "is not simulated" not in whole
