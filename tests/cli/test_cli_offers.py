"""The command line of prices: whole instances, commitments, owned machines, hosted APIs, offline work, refusals."""

import json
import re
from functools import cache
from typing import Any

import pytest

from simulator.cli.answers.cost_screen import barely
from simulator.deployment.deployment import deploy
from simulator.deployment.layouts import default_layout
from simulator.deployment.memory import memory_plan
from simulator.models.model import load_model
from tests.support.commands import printed, refused

CHAT = ("cost", "--model", "llama-3.1-8b", "--isl", "256", "--osl", "32", "--num-prompts", "500")
COST = (*CHAT, "--hardware", "h100-sxm", "--rate", "1", "--slo", "ttft:2s,tpot:100ms")
BATCH = (*CHAT, "--hardware", "l40s", "--batch", "--deadline", "4h")


text_of = cache(printed)  # a command and its answer, computed once for all tests that ask for it


def answers(*words: str) -> dict[str, Any]:
    return json.loads(text_of(*words, "--format", "json"))


def test_a_node_is_paid_whole_and_what_stays_empty_is_said():
    [row] = answers(*COST, "--provider", "azure")["answers"]
    assert (row["paid_devices"], row["empty_devices"], row["usd_per_hour"]) == (8, 7, 88.488)
    assert row["usd_per_month"] == pytest.approx(88.488 * 730)
    assert "7 of 8 devices stay empty" in text_of(*COST, "--provider", "azure")


def test_dollars_per_million_by_hand():
    """Whole instance over all tokens of the asked rate, however few of its devices work."""
    [row] = answers(*COST, "--usd-per-hour", "2", "--instance-devices", "4")["answers"]
    per_s = row["total_output_tokens"] / row["completed"] * 1.0
    assert row["usd_per_hour"] == 8.0
    assert row["usd_per_million_output_tokens"] == pytest.approx(8.0 / 3600 / per_s * 1e6)
    assert row["empty_devices"] == 3


def test_prices_age_from_the_day_that_is_asked():
    for day, stale in (("2026-08-01", False), ("2026-11-23", True)):
        [row] = answers(*COST, "--provider", "aws", "--price-date", day)["answers"]
        assert (row["price_date"], row["price_is_stale"]) == ("2026-07-20", stale)
        assert ("over 90 days old" in text_of(*COST, "--provider", "aws", "--price-date", day)) is stale


@pytest.mark.slow
def test_a_device_without_an_offer_is_ranked_without_a_price():
    words = (*CHAT, "--hardware", "m3-max,l40s", "--rate", "0.01")
    rows = answers(*words)["answers"]
    assert [row["hardware"] for row in rows] == ["l40s", "m3-max"]
    assert rows[1]["usd_per_hour"] is None
    assert rows[1]["replicas"] == 1
    assert "m3-max: no price." in text_of(*words, "--details")


def test_spot_says_what_is_spare_and_what_starts_anew():
    [calm] = answers(*COST, "--price", "spot")["answers"]
    [wild] = answers(*COST, "--price", "spot", "--interrupted-per-month", "0.9", "--replaced-after", "12h")["answers"]
    assert calm["spare_replicas"] == 0 < wild["spare_replicas"]
    assert calm["restarted_share"] < wild["restarted_share"] < 1e-3
    assert wild["usd_per_hour"] > calm["usd_per_hour"]
    assert re.search(r"requests starts? anew", text_of(*COST, "--price", "spot"))
    assert "replaced_after_s" in text_of(*COST, "--price", "spot", "--details")


@pytest.mark.parametrize("commitment", ["reserved", "spot"])
def test_an_own_price_is_of_the_commitment_that_is_asked(commitment):
    own = ("--usd-per-hour", "2", "--interrupted-per-month", "0.9", "--replaced-after", "12h")
    [row] = answers(*COST, *own, "--price", commitment)["answers"]
    assert (row["price_commitment"], (row["spare_replicas"] or 0) > 0) == (commitment, commitment == "spot")


def test_an_owned_machine_takes_electricity_where_it_stands():
    owned = (*COST, "--price", "owned", "--purchase-usd", "200000", "--instance-devices", "8", "--colocation", "0")
    [row] = answers(*owned, "--usd-per-kwh", "0.5", "--pue", "1.5", "--lifetime-years", "4")["answers"]
    kilowatts = row["watts"] / 1.5 / 1000
    assert row["usd_per_hour"] == pytest.approx(200_000 / (4 * 8760) + kilowatts * 1.5 * 0.5)


@pytest.mark.parametrize(("command", "key"), [("cost", "usd_per_hour"), ("compare", "usd_per_million_output_tokens")])
def test_the_interval_of_what_an_owned_machine_costs_has_its_electricity_too(command, key):
    """One replica in every case: no end differs."""
    [row] = answers(command, *COST[1:], "--price", "owned")["answers"]
    assert row["replicas_low"] == row["replicas_high"] == 1
    assert row[f"{key}_low"] == pytest.approx(row[key]) == row[f"{key}_high"]


def test_the_grid_decides_grams_not_joules():
    [here], [there] = (answers(*COST, "--site", site)["answers"] for site in ("us", "france"))
    assert here["watts"] == there["watts"]
    ratio = here["grams_per_million_output_tokens"] / there["grams_per_million_output_tokens"]
    assert ratio == pytest.approx(384.4 / 41.44)
    assert "an estimate" in text_of(*COST, "--details")


@pytest.mark.slow
def test_hosted_apis_are_compared_at_the_asked_load():
    found = answers(*COST, "--vs-api")
    [row], hosted = found["answers"], found["api"]
    assert {"Groq", "Novita"} <= {each["provider"] for each in hosted}
    for each in hosted:
        tokens = row["total_input_tokens"], row["total_output_tokens"]
        usd = (
            sum(n * each[f"{kind}_usd_per_million"] for n, kind in zip(tokens, ("input", "output"), strict=True)) / 1e6
        )
        assert each["usd_per_month"] == pytest.approx(usd / row["completed"] * 3600 * 730)
    assert any("million tokens a day" in note or "at no volume" in note for note in found["notes"])


def test_a_model_that_nobody_hosts_is_said_so():
    words = ("cost", "--model", "falcon-7b", "--hardware", "l4", "--isl", "128", "--osl", "16", "--rate", "0.1")
    assert "No hosted API of falcon-7b" in text_of(*words, "--num-prompts", "200", "--vs-api")


def test_offline_work_is_done_by_its_deadline():
    [row] = answers(*BATCH, "--usd-per-hour", "0.88")["answers"]
    assert row["hours"] <= 4
    assert row["usd"] == pytest.approx(0.88 * row["hours"] * row["replicas"])
    text = text_of(*BATCH, "--idle-replicas", "2", "--vs-api")
    assert "2 idle replicas of llama-3.1-8b (bf16) on l40s do it in" in text
    assert "Hosted, at once: $" in text
    assert max(map(len, text.split("\n\n")[1].splitlines()[1:])) <= 100


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((*COST, "--instance-devices", "8"), "Give --usd-per-hour or --purchase-usd"),
        ((*COST, "--purchase-usd", "9"), "Give --price owned"),
        ((*COST, "--price", "owned", "--usd-per-hour", "1"), "an hour of an owned machine is computed"),
        ((*COST, "--price", "owned", "--site", "france"), "Give --usd-per-kwh"),
        ((*COST, "--price-date", "soon"), "Give it as 2026-11-23"),
        ((*COST, "--site", "mars"), "no site profile"),
        ((*COST, "--region", "eu"), "no price list has such a region. Give 'eu*', for Europe, eu-north1."),
        ((*COST, "--provider", "amazone"), "no price list has such a provider. "),
        ((*COST, "--usd-per-hour", "-1"), "--usd-per-hour -1: a price is finite and not negative. Give, say, 2.5."),
        ((*COST, "--tp", "8", "--provider", "lambda"), "the largest that is offered has 2"),
        ((*COST, "--interrupted-per-month", "200%"), "a share below 1"),
        ((*COST, "--replaced-after", "soon"), "--replaced-after"),
        ((*COST, "--deadline", "4h"), "Give --batch"),
        ((*BATCH, "--slo", "ttft:1s"), "Leave --slo out"),
        ((*BATCH, "--rate", "1"), "all requests are there at once"),
        (tuple(word for word in BATCH if word not in ("--num-prompts", "500")), "nobody said how much there is to do"),
        ((*BATCH, "--deadline", "20s"), "later --deadline"),
    ],
)
def test_what_cannot_be_is_refused(words, told):
    assert told in refused(*words)


def test_offline_work_says_how_many_requests_are_rejected():
    long = ("--isl", "uniform:100:1200", "--osl", "16", "--num-prompts", "200", "--max-model-len", "1000")
    text = text_of("cost", "--model", "llama-3.1-8b", "--hardware", "l40s", "--batch", *long, "--usd-per-hour", "1")
    assert "REJECTED: " in text


@pytest.mark.parametrize(
    ("command", "metavar"), [("cost", "COMMITMENT,.. "), ("plan", "COMMITMENT "), ("compare", "COMMITMENT ")]
)
def test_a_list_of_commitments_is_offered_where_it_is_taken(command, metavar):
    assert f"--price {metavar}" in printed(command, "--help", COLUMNS="120")


def test_a_headline_writes_dollars_out():
    """One request in 1,000 s leaves a device idle: thousands of dollars a million tokens, 2.89e+03 before."""
    words = ("cost", "--model", "llama-3.1-8b", "--hardware", "h100-sxm", "--slo", "ttft:1s,tpot:50ms")
    load = ("--isl", "512", "--osl", "200", "--rate", "0.001", "--num-prompts", "200", "--usd-per-hour", "2")
    per_million = 2 / (0.001 * 200 * 3600) * 1e6
    text = " ".join(printed(*words, *load).split())
    found = float(re.search(r"\$([\d,]+) per million output tokens", text)[1].replace(",", ""))
    assert found == pytest.approx(per_million, rel=0.3)


def test_a_fleet_is_paid_at_the_prices_that_are_asked():
    """An own price alone counts; a commitment that is asked comes first; owned machines are refused by name."""
    fleet = ("fleet", *CHAT[1:], "--hardware", "l40s", "--request-rate", "1")
    [own] = answers(*fleet, "--usd-per-hour", "3")["fleets"]
    bills = {name for name in own if name.startswith("usd_") and not name.endswith(("_low", "_high"))}
    assert bills == {"usd_on-demand"}
    assert own["usd_on-demand"] == pytest.approx(3.0 * own["replica_hours"])
    on_spot = " ".join(text_of(*fleet, "--price", "spot", "--details").split())
    assert re.search(r"This run costs \$[\d.]+ spot", on_spot)
    on_aws = " ".join(text_of(*fleet, "--price", "spot", "--provider", "aws", "--details").split())
    assert re.search(r"No spot price counts for l40s. This run costs \$[\d.]+ on-demand \(2 x g6e.xlarge", on_aws)
    assert "electricity" in refused(*fleet, "--price", "owned")


def test_what_fits_barely_is_not_sold_as_sure():
    large, small = (
        barely(memory_plan(deploy(model, "h100-sxm", layout=default_layout(load_model(model), tp=tp))))
        for model, tp in (("llama-3.1-70b", 2), ("llama-3.1-8b", 1))
    )
    assert re.fullmatch(r"It fits barely: the plan of its KV cache of 4.\d+ GiB may be off by 3.96 GiB; .*", large[0])
    assert small == []
