"""Every predicted number of the command line has an interval: in json and csv, and in a table of its own."""

import json
import math
from functools import cache

import pytest
from typer.testing import CliRunner

from simulator.cli import build
from tests.support.commands import infercast

PLACE = ("--model", "llama-3.1-8b", "--hardware", "l40s")
SHORT = ("--isl", "128", "--osl", "16", "--num-prompts", "100")
RUNS = {
    "estimate": ("estimate", *PLACE, "--batch", "4"),
    "closed": ("simulate", *PLACE, *SHORT, "--max-concurrency", "4"),
    "open": ("simulate", *PLACE, *SHORT, "--rate", "1"),
    "cost": ("cost", *PLACE, *SHORT, "--rate", "40", "--slo", "ttft:2s"),
    "fleet": ("fleet", *PLACE, *SHORT, "--rate", "4", "--network", "1s", "--thinking-tokens", "8"),
    "batch": ("fleet", *PLACE, *SHORT, "--rate", "inf", "--deadline", "1h"),
}
KEYS = {
    "estimate": ("ttft_s", "tpot_s", "e2el_s", "tokens_per_s_user", "output_tokens_per_s", "prefill_s", "decode_s"),
    "closed": (
        "mean_ttft_ms",
        "p99_tpot_ms",
        "median_itl_ms",
        "p95_e2el_ms",
        "output_throughput",
        "request_throughput",
    ),
    "open": ("mean_ttft_ms", "p99_tpot_ms", "median_itl_ms", "p95_e2el_ms"),
    "fleet": ("mean_ttft_ms", "p95_ttfv_ms", "p99_tpot_ms", "median_itl_ms", "p95_e2el_ms"),
    "batch": ("mean_ttft_ms", "output_throughput", "duration", "replica_hours", "usd_on-demand"),
    "cost": ("replicas", "usd_per_million_output_tokens", "capacity_per_s", "at_capacity_usd_per_million_total_tokens"),
}


def row(name: str, *more: str):
    arguments = [*RUNS[name], *more, "--format", "json"]
    result = CliRunner().invoke(build(arguments), arguments, catch_exceptions=False)
    found = json.loads(result.stdout)
    sections = {"estimate": "estimates", "fleet": "fleets", "batch": "fleets", "cost": "answers"}
    return found[sections.get(name, "simulations")]


def first(name: str, *more: str):
    return row(name, *more)[0]


@pytest.mark.parametrize("name", RUNS)
def test_values_lie_in_their_intervals_and_wider_ones_hold_more(name):
    usual, wide = first(name), first(name, "--interval", "0.95")
    assert (usual["interval"], wide["interval"]) == (0.8, 0.95)
    assert usual["interval_basis"] in ("measured", "fitted", "family", "guess")
    for key in KEYS[name]:
        low, high, most = usual[f"{key}_low"], _end(usual[f"{key}_high"]), _end(wide[f"{key}_high"])
        assert low <= usual[key] <= high, key
        assert wide[f"{key}_low"] <= low <= high <= most, key


def _end(high: float | None) -> float:
    return math.inf if high is None else high


def test_a_rate_that_was_offered_has_no_interval():
    found = first("open")
    assert found["output_throughput"] > 0
    assert found["output_throughput_low"] is None is found["request_throughput_high"]


def at_rate(rate: float) -> tuple[str, ...]:
    return "simulate", *PLACE, "--isl", "128", "--osl", "16", "--num-prompts", "3000", "--rate", f"{rate:g}"


def simulated(rate: float):
    run = at_rate(rate)
    found = CliRunner().invoke(build(run), [*run, "--format", "json"], catch_exceptions=False).stdout
    return json.loads(found)["simulations"][0]


@cache
def saturated_per_s() -> float:
    return simulated(math.inf)["request_throughput"]


def test_near_saturation_a_latency_has_no_upper_end_and_it_is_said():
    run, found = at_rate(0.9 * saturated_per_s()), simulated(0.9 * saturated_per_s())
    assert not found["overloaded"]
    assert found["mean_ttft_ms_low"] < found["mean_ttft_ms"]
    assert found["mean_ttft_ms_high"] is None
    assert found["mean_tpot_ms_high"] > found["mean_tpot_ms"]
    run = (*run, "--details")
    text = CliRunner().invoke(build(run), list(run), catch_exceptions=False).stdout
    assert " up " in text
    assert '"up": with the longest steps the queue grows without end, or' in " ".join(text.split())
    assert '\n"up" (null in json): with' in text


def test_no_more_is_served_than_was_offered():
    offered = 1.05 * saturated_per_s()
    found = simulated(offered)
    assert found["overloaded"]
    served, most = found["request_throughput"], found["request_throughput_high"]
    assert found["request_throughput_low"] < served < most <= 1.1 * offered  # of that draw of arrivals


def test_the_time_of_the_network_is_given_and_a_fleet_at_a_rate_takes_as_long_as_its_users():
    found = first("fleet")
    own, low = (found[key] - 1000 for key in ("mean_ttft_ms", "mean_ttft_ms_low"))
    near = first("fleet", "--network", "0s")
    assert own == pytest.approx(near["mean_ttft_ms"])
    assert low == pytest.approx(near["mean_ttft_ms_low"])
    assert found["duration_low"] is None is found["usd_on-demand_high"]


def test_the_bill_at_a_load_moves_with_whole_replicas():
    found = first("cost", "--interval", "0.6")
    assert isinstance(found["replicas_low"], int)
    price = found["usd_per_million_output_tokens"] / found["replicas"]
    assert found["usd_per_million_output_tokens_high"] == pytest.approx(price * found["replicas_high"])


@pytest.mark.parametrize("name", RUNS)
def test_people_see_them_within_100_columns(name):
    arguments = (*RUNS[name], "--details")
    text = CliRunner().invoke(build(arguments), list(arguments), catch_exceptions=False).stdout
    _, _, rest = text.partition("Held-out 80% intervals\n")
    table = rest.partition("\n\n")[0].splitlines()
    assert len(table) > 2
    assert max(map(len, table)) <= 100


def test_a_level_out_of_bounds_is_refused():
    assert infercast(*RUNS["estimate"], "--interval", "0.4").returncode == 2
