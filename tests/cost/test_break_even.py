"""Hosted APIs: prices of one day and model, and the break-even against a search over volumes."""

import math
import re
from dataclasses import replace
from datetime import date
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import Scenario, Workload, deploy, load_workload, own_offer, parse_slo
from simulator.cli.answers.api_columns import usd_per_request
from simulator.cost.api_prices import ApiPrice, api_prices, edition, model_key
from simulator.cost.break_even import SelfHosting, hosted_usd_per_month
from simulator.cost.capacity import Answer, answer
from simulator.cost.packing import packed

DAY = date(2026, 11, 23)
CHAT = load_workload("chat")


@pytest.fixture(scope="module")
def found() -> Answer:
    workload = Workload(CHAT.arrivals(2.0), CHAT.lengths, 500)
    offers = (own_offer("h100-sxm", 3.0), own_offer("h100-sxm", 16.0, devices=8))
    return answer(Scenario(deploy("llama-3.1-8b", "h100-sxm"), workload, parse_slo("ttft:2s"), offers), 2.0)


@pytest.fixture(scope="module")
def own(found) -> SelfHosting:
    return SelfHosting(found)


def usd_per_hour(found: Answer, replicas: int) -> float:
    return packed(found.scenario.replica_size, replicas, found.scenario.offers).usd_per_hour


# of the capacity of a replica; also just above each whole one, where the next replica begins to be paid
RATES = np.union1d(np.linspace(0.003, 12, 1500), np.arange(12) + 1e-9)


@given(st.floats(0.6, 20.0))
def test_above_the_break_even_own_instances_always_cost_less(found, own, times):
    """Against every rate of a fine grid up to 12 replicas; a full replica costs $2 an hour at best."""
    capacity = found.capacity.rate_per_s
    hosted_usd = times * 2.0 / 3600 / capacity
    above = own.break_even(hosted_usd)
    paid = [usd_per_hour(found, replicas) for replicas in range(14)]
    most = 3600 * hosted_usd * (1 + 1e-9)
    dearer = [rate * capacity for rate in RATES if paid[math.ceil(rate)] > most * rate * capacity]
    if above is None:
        assert times <= 1.0 or max(dearer) > 11 * capacity
    elif above.rate_per_s < 11 * capacity:
        assert above.rate_per_s == pytest.approx(max(dearer), abs=0.009 * capacity)
        assert 0 < above.utilisation <= 1


def test_cheap_apis_are_never_beaten(found, own):
    hosted_usd = 1.9 / 3600 / found.capacity.rate_per_s  # a full replica costs 2
    assert own.break_even(hosted_usd) is None
    assert "pays at no volume" in own.verdict(hosted_usd, "Acme")


def test_the_sentence_says_from_which_volume_on(found, own):
    """One H100 for $3 against $0.001 a request: 0.833 requests/s, of tokens as the load has them."""
    above = own.break_even(0.001)
    assert above.rate_per_s == pytest.approx(3 / 3.6)
    report = found.report
    tokens = (report.input_tokens + report.output_tokens) / report.completed
    assert above.tokens_per_day == pytest.approx(3 / 3.6 * tokens * 86_400)
    assert f"pays above {above.tokens_per_day / 1e6:.1f}" in own.verdict(0.001, "Acme").replace(",", "")


def test_electricity_is_paid_for_each_replica():
    """$3 an hour and $1 of electricity, 1 request/s each, against $7.20 an hour of 1 request/s at $0.002.

    One replica is dearer below 4 / 7.2 = 0.56/s, two from 1/s to 8 / 7.2 = 1.11/s, three never: 12 / 7.2 is below 2.
    """

    def packing(replicas: int) -> SimpleNamespace:
        return SimpleNamespace(usd_per_hour=3.0 * replicas)

    report = SimpleNamespace(input_tokens=900, output_tokens=100, completed=10, rejected_share=0.0)
    scenario, one = SimpleNamespace(packing=packing), SimpleNamespace(rate_per_s=1.0)
    asked = SimpleNamespace(packing=packing(2), at_load=SimpleNamespace(usd_per_hour=8.0), replicas=2)
    above = SelfHosting(SimpleNamespace(**vars(asked), scenario=scenario, capacity=one, report=report)).break_even(
        0.002
    )
    assert (above.rate_per_s, above.utilisation) == pytest.approx((8 / 7.2, 4 / 7.2))
    assert above.tokens_per_day == pytest.approx(8 / 7.2 * 100 * 86_400)


def test_without_an_offer_there_is_none(found):
    unpriced = replace(found, scenario=replace(found.scenario, offers=()))
    assert SelfHosting(unpriced).break_even(0.001) is None


def test_a_month_of_requests():
    assert hosted_usd_per_month(0.001, 1.0) == pytest.approx(3.6 * 730)


def test_prices_are_of_one_day():
    """Novita's price of Llama 3.3 70B changed on 2026-10-18."""
    before, after = (
        next(each for each in api_prices(["llama-3.3-70b"], day) if each.provider == "Novita")
        for day in (date(2026, 10, 1), DAY)
    )
    assert before.input_usd_per_million == 0.39
    assert after.input_usd_per_million == 0.135
    assert edition(DAY).startswith("genai-prices ")


def test_a_day_before_all_that_the_prices_name_is_left_out():
    assert "checked" in edition(DAY)
    assert re.fullmatch(r"genai-prices [\d.]+", edition(date(2020, 1, 1)))


def test_batches_and_caches_have_prices_of_their_own():
    groq = next(each for each in api_prices(["gpt-oss-120b"], DAY) if each.provider == "Groq")
    assert (groq.cached_usd_per_million, groq.batch.input_usd_per_million) == (0.075, 0.075)
    assert groq.usd(1e6, 0, cached_share=1.0) == pytest.approx(0.075)
    assert ApiPrice("A", "a", 1.0, 1.0).batch is None


def test_tokens_of_the_own_prefix_cache_are_read_from_the_providers():
    """A million tokens in and a tenth out a request, half of the prompts cached: 0.5 x $1 + 0.5 x $0.1 + 0.1 x $2."""
    report = SimpleNamespace(input_tokens=4e6, output_tokens=4e5, completed=4, prefix_hit_rate=0.5)
    assert usd_per_request(SimpleNamespace(report=report), ApiPrice("A", "a", 1.0, 2.0, 0.1)) == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ("llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct", True),
        ("llama-3.1-8b", "us.meta.llama3-1-8b-instruct-v1:0", False),
        ("llama-3.1-8b", "meta.llama3-1-8b-instruct-v1:0", True),
        ("qwen3-32b", "Qwen/Qwen3-32B", True),
        ("qwen3-32b", "Qwen/Qwen3-VL-32B", False),
        ("llama-3.1-70b", "deepseek-ai/DeepSeek-R1-Distill-Llama-70B", False),
    ],
)
def test_names_of_one_model(ours, theirs, same):
    assert (model_key(ours) == model_key(theirs)) is same
