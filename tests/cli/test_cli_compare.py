"""`infercast compare` as users see it: one screen, exclusions by reason, every figure on request, an interrupt."""

import json
import math
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from simulator.cli import build
from simulator.cli.answers.compare_screen import table, ties, verdict
from simulator.cost.search import Search
from simulator.models.layout import Layout
from tests.support.commands import refused

ASKED = ["compare", "--model", "llama-3.1-8b", "--workload", "chat", "--request-rate", "6"]
SLO = ["--slo", "ttft:800ms,tpot:50ms", "--num-prompts", "300", "--price-date", "2026-11-23"]
LOOSE = ["--slo", "ttft:9s", "--slo-share", "0.5", "--price-date", "2026-11-23"]
SOME = ["--hardware", "l4,l40s,h100-sxm,h200-sxm"]


def run(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(build(words), list(words), catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.stdout


@pytest.fixture(scope="module")
def screen() -> list[str]:
    return run(*ASKED, *SLO, *SOME).splitlines()


def test_the_first_screen_is_a_screen(screen):
    assert len(screen) <= 24
    assert max(map(len, screen)) <= 80


def test_prompts_that_the_engine_rejects_are_counted():
    """Llama 3 8B has a context of 8,192 tokens: one prompt of four is longer."""
    lengths = ["--input-len", "quantiles:0=100,0.75=8000,1=14000", "--output-len", "8", "--num-prompts", "100"]
    told = run("compare", "--model", "llama-3-8b", "--hardware", "l40s", *lengths, "--request-rate", "0.5", *LOOSE)
    assert "REJECTED:" in told
    assert "more than 8,192 tokens" in " ".join(told.split())


def test_a_load_too_long_for_the_model_is_refused_with_what_to_do():
    asked = ["compare", "--model", "opt-125m", "--hardware", "l4", "--workload", "chat", "--request-rate", "1"]
    said = refused(*asked, "--slo", "ttft:1s")
    assert "reject too many requests as too long" in said
    assert "Give shorter prompts and outputs" in said


def test_the_verdict_comes_first_with_dollars_and_risk(screen):
    first = " ".join(screen[:2])
    assert "a month" in first
    assert "of 5 cases" in first


def test_the_screen_says_what_limits_why_not_the_others_and_how_to_launch(screen):
    text = " ".join(screen)
    assert "limited by" in text
    assert "Limit of" in text
    assert "miss TPOT even for lone requests" in text  # of an L4 in 16 bits
    assert "vllm serve meta-llama/Llama-3.1-8B-Instruct" in text
    assert "--max-num-seqs" in text


def test_the_limit_is_said_to_be_that_of_the_highest_rate(screen):
    text = " ".join(screen)
    assert "req/s per replica, the most with TTFT <= " in text
    assert "at the highest rate within the SLO" in text[text.index("TTFT, TPOT: p95") :]


def test_json_has_every_figure_and_its_interval():
    found = json.loads(run(*ASKED, *SLO, *SOME, "--top", "2", "--format", "json"))
    assert [row["usd_per_hour"] for row in found["answers"]] == sorted(row["usd_per_hour"] for row in found["answers"])
    for row in found["answers"]:
        assert row["replicas_low"] <= row["replicas"]
        assert row["replicas_high"] is None or row["replicas"] <= row["replicas_high"]
        assert 0 < row["load_of_capacity"] <= 1
        assert row["p95_ttft_ms"] <= 800
        assert row["launch_command"].startswith("vllm serve")
        assert row["p95_ttft_ms_low"] < row["p95_ttft_ms"] < row["p95_ttft_ms_high"]


def test_a_bound_that_may_be_meant_in_seconds_says_so():
    said = refused(*ASKED, "--hardware", "l4,sn40l", "--slo", "ttft:1")
    assert "TTFT <= 1 ms: no deployment keeps the SLO: " in said
    assert "sn40l" not in said  # other devices were looked at, which are too slow
    assert said.endswith(
        "Write ttft:1s if seconds are meant, or loosen the SLO, or give more devices, formats or engines.\n"
    )
    assert ". Loosen the SLO, or give more" in refused(*ASKED, "--hardware", "l4", "--slo", "ttft:12ms")


def test_cases_that_take_more_and_cases_that_nothing_serves_are_told_apart():
    found = SimpleNamespace(replicas=2, candidate=SimpleNamespace(devices=1))
    risk = SimpleNamespace(more=[3, 4], never=1, is_sure=False)
    best = SimpleNamespace(found=found, risk=risk, label="l40s", usd=lambda replicas: replicas and 1.0 * replicas)
    said = verdict([best], [{"model": "llama-3.1-8b", "usd_per_month": 1460.0}])
    assert said.endswith("in 2 of 5 cases it takes 3 to 4 replicas, in 1 of 5 no number of them keeps the SLO.")


def answer_at(label: str, usd: float | None, model: str = "llama-3.1-8b") -> SimpleNamespace:
    found = SimpleNamespace(replicas=1, candidate=SimpleNamespace(model=SimpleNamespace(id=model), engine="vllm"))
    return SimpleNamespace(found=found, label=label, usd=lambda _replicas: usd)


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([answer_at("m4", None), answer_at("l4", 2.0)], []),
        ([answer_at("m4", None), answer_at("l40", 1.005)], ["Same price within 1 %: l40."]),
        ([answer_at("l40s", 1.0, "qwen3-8b")], ["Same price within 1 %: qwen3-8b on l40s."]),
    ],
)
def test_what_costs_the_same_has_a_price_and_a_model(others, said):
    assert list(ties(SimpleNamespace(same_cost={}), [answer_at("l40s", 1.0), *others])) == said


def test_layouts_at_the_same_price_have_all_their_degrees():
    layouts = (Layout(tp=4, pp=2), "vllm"), (Layout(tp=1, ep=8, dp=8), "vllm"), (Layout(tp=8), "sglang")
    alike = [SimpleNamespace(layout=layout, engine=engine) for layout, engine in layouts]
    told = list(ties(SimpleNamespace(same_cost={0: alike}), [answer_at("8 x l40s", 1.0)]))
    assert told == ["At its price there may also be: bf16 tp4 pp2, bf16 tp1 ep8 dp8, bf16 tp8 sglang."]


@pytest.mark.slow
def test_details_are_one_option_away():
    text = run(*ASKED, *SLO, "--hardware", "l40s,h100-sxm", "--weight-dtype", "bf16", "--tp", "1", "--details")
    assert "What users get" in text
    assert "Held-out 80% intervals" in text
    assert "Rests on guesses" in text


@pytest.mark.slow
def test_hosted_prices_stand_below_the_answers():
    words = (*ASKED, *SLO, "--hardware", "l40s,h100-sxm", "--tp", "1", "--weight-dtype", "bf16", "--vs-api")
    text = run(*words)
    pays = text.index("Self-hosting on h100-sxm pays")
    assert text.index("a month") < text.index("Hosted APIs, cheapest 8 of ") < pays
    assert max(map(len, text.splitlines())) <= 80
    found = json.loads(run(*words, "--format", "json"))
    assert found["api"][0]["usd_per_month"] == min(row["usd_per_month"] for row in found["api"])
    assert {row["deployment"] for row in found["answers"]} == {"l40s", "h100-sxm"}


@pytest.mark.slow
def test_hosted_prices_of_two_models_are_two_tables_and_the_verdict_names_the_model():
    models = ("--model", "llama-3.1-8b,llama-3.3-70b", "--hardware", "h200-sxm", "--tp", "1", "--vs-api")
    text = run("compare", *models, *ASKED[3:-1], "2", "--slo", "ttft:2s,tpot:100ms", "--num-prompts", "200")
    assert text.startswith("llama-3.1-8b: 1 x h200-sxm, $")
    assert all(f"Hosted APIs of {model}, cheapest 4 of " in text for model in models[1].split(","))
    assert all(f"\n{model}: Self-hosting on h200-sxm pays" in text for model in models[1].split(","))
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.slow
def test_sensitivity_says_what_moves_the_answer_and_what_to_measure():
    words = [*ASKED, *SLO, "--hardware", "l40s,h100-sxm", "--tp", "1", "--pp", "1", "--sensitivity"]
    text = run(*words)
    for knob in (
        "rate",
        "utilisation",
        "price",
        "prompts",
        "outputs",
        "TTFT bound",
        "TPOT bound",
        "step times",
        "memory bandwidth",
        "KV cache",
    ):
        assert f"\n{knob} " in text
    assert "flips" in text
    assert "easure" in text
    assert max(map(len, text.splitlines())) <= 110


@pytest.mark.slow
def test_the_picture_of_the_answers_has_their_intervals(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("simulator.plots.plot_file.save", lambda figure, _: drawn.append(figure))
    run(*ASKED, *SLO, "--hardware", "l40s,h100-sxm", "--tp", "1", "--pp", "1", "--plot", str(tmp_path / "answers.png"))
    (figure,) = drawn
    for axes in figure.axes:
        assert [line for line in axes.lines if line.get_marker() == "|"]


@pytest.mark.slow
def test_a_tornado_can_be_drawn(tmp_path):
    words = [*ASKED, *SLO, "--hardware", "l40s", "--tp", "1", "--pp", "1", "--sensitivity", "--plot"]
    run(*words, str(tmp_path / "tornado.png"))
    assert (tmp_path / "tornado.png").stat().st_size > 10_000


def test_owned_devices_whose_power_is_not_known_have_no_price():
    words = [*ASKED, *SLO, "--hardware", "h200-sxm,gh200-144,m4-max", "--tp", "1", "--weight-dtype", "bf16"]
    told = " ".join(run(*words, "--price", "owned").split())
    assert told.startswith("1 x h200-sxm, $")
    assert "no price" in told


def test_an_interrupt_prints_what_is_known(monkeypatch):
    whole = Search.run

    def stopped(self, progress):
        def until_found(decided, every):
            progress(decided, every)
            if self.found:
                raise KeyboardInterrupt

        whole(self, until_found)

    monkeypatch.setattr(Search, "run", stopped)
    text = run(*ASKED, *SLO, *SOME, code=130)
    assert "an interrupt came before they were decided" in text
    assert "none costs less than $" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--hardware", "zz*"], "no device fits it"),
        (["--hardware", "h10"], "Nearest"),
        (["--hardware", "toys"], "no class has that name. Classes: cloud, desktop, accelerator, consumer-gpu"),
        (["--hardware", "mac"], "Give its chip, say m4-pro; `compare` takes apple, for all"),
        (["--hardware", "consumer"], "Nearest: consumer-gpu"),
        (["--slo", "ttft:1ms"], "no deployment keeps the SLO: "),
        (["--hardware", "l4", "--tp", "1", "--engine", "mlx-lm"], "no deployment is possible; mlx-lm-0.20 on l4"),
        (
            ["--hardware", "l4", "--tp", "1", "--pp", "1", "--model", "llama-3.1-70b", "--weight-dtype", "bf16"],
            "no deployment keeps the SLO: 1 has too little memory (l4). Loosen",
        ),
        (["--tp", "0"], "it is not a whole number above 0"),
        (["--price", "owned", "--usd-per-hour", "2"], "an hour of an owned machine is computed"),
    ],
)
def test_mistakes_are_told_in_three_parts(words, said):
    assert said in refused(*ASKED, *SLO, "--hardware", "l4,l40s", *words)


@pytest.mark.slow
def test_own_prices_and_devices_without_one():
    own = run(*ASKED, *SLO, "--hardware", "rtx-4080", "--usd-per-hour", "0.3", "--weight-dtype", "fp8", "--tp", "1")
    assert "$219 a month" in own or "a month" in own
    none = json.loads(run(*ASKED, *SLO, "--hardware", "m2-ultra,gb10", "--request-rate", "0.02", "--format", "json"))
    assert all(row["usd_per_hour"] is None or math.isfinite(row["usd_per_hour"]) for row in none["answers"])


def test_dollars_without_an_upper_end_go_up_from_the_lower_one():
    figures = {"replicas": 1, "usd_per_hour": 0.8, "p95_ttft_ms": 1.0, "p95_tpot_ms": 1.0, "load_of_capacity": 0.5}
    row = {"model": "a", "deployment": "1 x l40s", "limiter": "compute", **figures}
    dollars = zip(("", "_low", "_high"), (2.46, 1.5, None), strict=True)
    shown = table([row | {f"usd_per_million_output_tokens{end}": each for end, each in dollars}])
    assert [each.cell(shown.rows[0]) for each in shown.columns if each.heading == "$/M out"] == ["2.46 (1.5 up)"]
