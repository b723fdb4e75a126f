"""What is enough however long steps take: searched for, or picked of a list."""

import json
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from simulator.cli import build
from simulator.cli.answers.surest import surest_of, surest_words

CHAT = ["--model", "llama-3.1-8b", "--workload", "chat", "--slo", "ttft:500ms,tpot:50ms", "--price-date", "2026-11-23"]


def run(*words: str) -> str:
    done = CliRunner().invoke(build(words), list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def of(label: str, then: int | None, usd_each: float | None) -> SimpleNamespace:
    candidate = SimpleNamespace(model=SimpleNamespace(id="llama-3.1-8b"), devices=1)
    return SimpleNamespace(
        label=label,
        found=SimpleNamespace(candidate=candidate),
        risk=SimpleNamespace(replicas_when_slowest=then),
        usd=lambda replicas: None if usd_each is None else usd_each * replicas,
    )


def test_the_surest_of_a_list_is_what_costs_least_in_the_slowest_case():
    row = surest_of([of("l4", None, 0.1), of("l40s", 5, 1.0), of("h100-sxm", 2, 2.0), of("m4", 1, None)])
    assert (row["deployment"], row["replicas"], row["usd_per_hour"]) == ("h100-sxm", 2, 4.0)
    assert surest_words(row, of_these=True) == "Of these, enough in all 5: 2 replicas of h100-sxm, $2,920 a month."


def test_the_model_is_named_among_several():
    row = surest_of([of("l40s", 2, 1.0)])
    assert surest_words(row, of_these=False, models=2).startswith(
        "Enough in all 5: llama-3.1-8b on 2 replicas of l40s, $"
    )


def test_without_a_price_the_first_that_is_enough_is_named():
    row = surest_of([of("m4", None, None), of("m4-max", 3, None), of("m3-ultra", 2, None)])
    assert surest_words(row, of_these=True) == "Of these, enough in all 5: 3 replicas of m4-max."


def test_nothing_may_be_enough():
    assert surest_of([of("l4", None, 0.4)]) is None
    assert surest_words(None, of_these=False) == "None is enough in all 5."


@pytest.mark.slow
def test_a_narrower_format_at_the_same_price_is_said_where_it_is_enough_in_all_cases():
    """On one RTX 5090 fp8 serves 7 requests/s and nvfp4 19 at the same price: the wider one comes first."""
    asked = ["compare", *CHAT, "--hardware", "rtx-5090", "--rate", "5.4"]
    found = json.loads(run(*asked, "--format", "json"))
    first, (surest,) = found["answers"][0], found["enough_in_all_cases"]
    assert first["replicas_high"] != first["replicas"]
    assert surest["usd_per_hour"] == first["usd_per_hour"]
    assert surest["deployment"] != first["deployment"]
    assert f"Enough in all 5: 1 x {surest['deployment']}, $" in " ".join(run(*asked).split())


@pytest.mark.slow
def test_what_is_sure_is_not_searched_for_again():
    asked = ["compare", *CHAT, "--hardware", "h100-sxm", "--tp", "1", "--weight-dtype", "bf16", "--rate", "3"]
    assert "enough_in_all_cases" not in json.loads(run(*asked, "--format", "json"))
    assert "enough in 5 of 5 cases." in run(*asked)


@pytest.mark.slow
def test_rates_of_a_class_are_said_to_be_guesses():
    asked = ["--weight-dtype", "int8", "--rate", "0.5", "--num-prompts", "100", "--hardware"]
    assert "rtx-3090ti int8 rests on rates of its class, a guess." in run("compare", *CHAT, *asked, "rtx-3090ti")
    assert "a guess" not in run("compare", *CHAT, "--rate", "0.5", "--num-prompts", "100", "--hardware", "h100-sxm")


@pytest.mark.slow
def test_one_deployment_has_one_capacity_in_compare_and_in_cost():
    asked = [*CHAT, "--hardware", "h100-sxm", "--tp", "1", "--weight-dtype", "bf16", "--rate", "3", "--format", "json"]
    compared, priced = (json.loads(run(command, *asked))["answers"][0] for command in ("compare", "cost"))
    assert compared["p95_ttft_ms"] == priced["p95_ttft_ms"]
