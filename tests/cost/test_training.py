"""Training against inference: FLOPs and device hours of published runs, and the tokens that cost as much."""

import pytest

from simulator import load_hardware, load_model, training_of
from simulator.cost.training import MFU, PUBLISHED_TIMES, Training, equal_cost_tokens
from simulator.errors import InfercastError
from simulator.hardware.sites import load_site
from tests.support.commands import answer, printed, refused

H100 = "h100-sxm"
PUBLISHED = {  # model, device, training tokens, device hours
    "llama-1-65b": ("a100-sxm-80", 1.4e12, 1_022_362),  # arXiv:2302.13971, table 15
    "llama-3.1-8b": (H100, 15e12, 1.46e6),  # model card of Llama 3.1 on Hugging Face, "15T+" tokens
    "llama-3.1-70b": (H100, 15e12, 7.0e6),
    "llama-3.1-405b": (H100, 15.6e12, 30.84e6),
    "deepseek-v3": ("h800-sxm", 14.8e12, 2.664e6),  # pre-training in fp8: arXiv:2412.19437, table 1
}
TIMES = {"llama-1-65b": 0.84, "llama-3.1-8b": 2.88, "llama-3.1-70b": 1.57, "llama-3.1-405b": 1.16, "deepseek-v3": 1.15}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_device_hours(name):
    device, tokens, hours = PUBLISHED[name]
    training = training_of(load_model(name), load_hardware(device), tokens)
    assert hours / training.device_hours == pytest.approx(TIMES[name], rel=0.02)


def test_the_range_is_that_of_the_published_runs():
    assert (round(min(TIMES.values()), 1), round(max(TIMES.values()), 1)) == PUBLISHED_TIMES


def test_the_cost_has_the_range_of_published_runs_unless_the_utilisation_is_given():
    asked = ["training", "--model", "llama-3.1-8b", "--hardware", H100, "--usd-per-million-tokens", "0.1"]
    (row,) = answer(*asked)["training"]
    assert row["training_usd_low"] == pytest.approx(0.8 * row["training_usd"])
    assert row["training_usd_high"] == pytest.approx(2.9 * row["training_usd"])
    (given,) = answer(*asked, "--mfu", "0.4")["training"]
    assert (given["training_usd_low"], given["training_usd_high"]) == (None, None)
    assert "to $" in printed(*asked).partition("\n\n")[0]


def test_the_flops_of_gpt_3():
    """Brown et al. 2020 (arXiv:2005.14165), table D.1: 174,600M parameters, 300e9 tokens, 3.14e23 FLOPs."""
    assert Training(174.6e9, 300e9, 312e12).flops == pytest.approx(3.14e23, rel=0.005)


def test_a_mixture_of_experts_trains_its_active_parameters():
    model = load_model("mixtral-8x7b")
    assert training_of(model, load_hardware(H100)).parameters == model.active_parameters < 0.3 * model.parameters


def test_twice_the_utilisation_is_half_the_cost():
    slow, fast = (training_of(load_model("llama-3.1-8b"), load_hardware(H100), 1e12, mfu) for mfu in (0.2, 0.4))
    assert slow.usd(2.0) == pytest.approx(2 * fast.usd(2.0))
    assert fast.usd(2.0) == pytest.approx(6 * 8_030_261_248 * 1e12 / (989e12 * 0.4) / 3600 * 2.0)


@pytest.mark.parametrize("wrong", [{"mfu": 1.1}, {"mfu": 0.0}, {"tokens": -1.0}, {"parameters": float("nan")}])
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(InfercastError):
        Training(**{"parameters": 1e9, "tokens": 1e9, "peak_flops_per_s": 1e15, **wrong})
    with pytest.raises(InfercastError):
        equal_cost_tokens(1.0, 0.0)


ASKED = ("training", "--model", "llama-3.1-8b", "--hardware", H100, "--training-tokens", "15e12")


def test_the_command_is_the_model_and_the_bill():
    """Tokens that cost as much x their price = the cost of training; both from prices per hour, device by device."""
    (row,) = answer(*ASKED, "--requests-per-day", "1e6")["training"]
    assert row["training_usd"] == pytest.approx(row["training_device_hours"] * row["usd_per_device_hour"])
    assert row["mfu"] == float(MFU)
    assert row["equal_cost_tokens"] * row["usd_per_million_total_tokens"] / 1e6 == pytest.approx(row["training_usd"])
    assert row["equal_cost_tokens_low"] < row["equal_cost_tokens"] < row["equal_cost_tokens_high"]
    assert row["equal_cost_days"] == pytest.approx(row["equal_cost_tokens"] / row["tokens_per_request"] / 1e6)
    load = ("--workload", "chat", "--request-rate", "inf")
    throughput = answer("simulate", *ASKED[1:5], *load)["simulations"][0]["total_token_throughput"]
    per_million = row["usd_per_device_hour"] / 3600 / throughput * 1e6
    assert row["usd_per_million_total_tokens"] == pytest.approx(per_million)


def test_serving_is_priced_as_cost_prices_full_instances():
    """Two H100 of a replica lie on one instance: none of the cheapest, which have one, holds it."""
    words = ("--model", "llama-3.3-70b", "--hardware", H100, "--tp", "2", "--workload", "chat", "--num-prompts", "100")
    (row,) = answer("training", *words, "--request-rate", "inf")["training"]
    (full,) = answer("cost", *words, "--request-rate", "1")["answers"]
    assert row["usd_per_replica_hour"] == pytest.approx(full["at_capacity_usd_per_hour"])
    assert row["usd_per_replica_hour"] > 2 * row["usd_per_device_hour"]


def test_a_price_of_tokens_needs_no_simulation():
    found = answer(*ASKED, "--usd-per-million-tokens", "2", "--usd-per-hour", "2")
    (row,) = found["training"]
    assert row["equal_cost_tokens"] == pytest.approx(row["training_usd"] / 2e-6)
    assert row["equal_cost_tokens_low"] is None
    assert found["rests_on"] == []


def test_a_price_of_tokens_and_requests_give_days():
    """Without a simulation a request has the tokens that the load asks for: 1,000 + 100."""
    load = ("--isl", "1000", "--osl", "100", "--requests-per-day", "1e6")
    (row,) = answer(*ASKED, "--usd-per-million-tokens", "2", *load)["training"]
    assert row["equal_cost_days"] == pytest.approx(row["equal_cost_tokens"] / 1100 / 1e6)


@pytest.mark.parametrize("option", ["--requests-per-day", "--usd-per-million-tokens"])
@pytest.mark.parametrize("value", ["0", "-1"])
def test_requests_and_prices_that_are_none_are_refused(option, value):
    assert f"{option} {value}: " in refused(*ASKED, option, value)


def test_several_rates_are_refused():
    assert "several rates" in refused(*ASKED, "--workload", "chat", "--request-rate", "1,2")


def test_the_headline_says_which_tokens_are_assumed():
    given = (*ASKED, "--usd-per-million-tokens", "2")
    assert printed(*given).startswith("Training costs $")
    assumed = printed(*given[:-4], *given[-2:])
    assert " ".join(assumed.split()).startswith("Training on 161 G tokens (assumed: 20 per active parameter) costs $")
    assert "Served:" not in assumed
    two = printed("training", "--model", "mixtral-8x7b,llama-3.1-8b", *given[3:5], *given[-2:])
    assert " ".join(two.split()).startswith("Training llama-3.1-8b on 161 G tokens (assumed: 20 per active parameter)")


def test_it_says_under_which_load_serving_was_simulated():
    """Prompts of a chat are cheaper per token than outputs: what a token costs depends on the load."""
    chats = " ".join(printed(*ASKED).split())
    assert "Served: 3,000 chat requests, 3,000 in flight: prompts mean " in chats
    given = " ".join(printed(*ASKED, "--isl", "512", "--osl", "32", "--num-prompts", "50").split())
    assert "Served: 50 requests, 50 in flight: prompts mean 512 (p95 512), outputs mean 32 (p95 32) tokens." in given


def test_training_takes_the_prices_that_cost_takes():
    def one(*arguments):
        return answer(*arguments)["training"][0]

    words = (*ASKED, "--usd-per-million-tokens", "2")
    reserved = one(*words, "--price", "reserved", "--price-date", "2026-11-23")
    plain = one(*words, "--price-date", "2026-11-23")
    assert 0 < reserved["usd_per_device_hour"] != plain["usd_per_device_hour"]
    cheap, dear = (one(*words, "--price", "owned", "--usd-per-kwh", usd) for usd in ("0.1", "0.2"))
    power_kw = (0.86 * 700 + 150) / 1000 * load_site("us").pue
    assert dear["usd_per_device_hour"] - cheap["usd_per_device_hour"] == pytest.approx(0.1 * power_kw)
    spot = refused(*words, "--price", "spot")
    assert "not modelled. Give another --price, or --usd-per-hour without --price." in spot
