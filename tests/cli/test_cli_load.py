"""`infercast simulate` and `cost` as a user meets them: forms of output, sweeps, and every kind of bad input."""

import csv
import io
import json
import re

import pytest

from tests.support.commands import infercast, printed, refused

DEPLOYMENT = ["--model", "llama-3.1-8b", "--hardware", "l40s"]
CHAT = [*DEPLOYMENT, "--workload", "chat", "--num-prompts", "500"]
SHORT = [*DEPLOYMENT, "--isl", "256", "--osl", "32", "--num-prompts", "500"]  # a sixth of the steps of a chat
COST = ["cost", *SHORT, "--rate", "1", "--slo", "ttft:500ms,tpot:50ms"]


def test_simulate_prints_the_table_of_vllm():
    text = printed("simulate", *CHAT, "--rate", "1", "--slo", "ttft:500ms", "--details")
    _, _, text = text.partition("All latencies")
    rows = [line.split()[0] for line in text.partition("Held-out")[0].splitlines() if " ms " in line[:10]]
    assert rows == ["TTFT", "TPOT", "ITL", "E2EL", "QUEUE"]
    assert "keep every bound" in text


def test_another_seed_prints_other_bytes():
    command = ["simulate", *CHAT, "--rate", "1", "--format", "json"]
    assert printed(*command) != printed(*command, "--seed", "1")


def test_lists_sweep():
    text = printed("simulate", *CHAT, "--hardware", "l40s,h100-sxm", "--rate", "0.5,1,2", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["hardware"], row["request_rate"]) for row in rows] == [
        (hardware, rate) for hardware in ("l40s", "h100-sxm") for rate in ("0.5", "1.0", "2.0")
    ]


PLAIN = [*DEPLOYMENT, "--osl", "20", "--num-prompts", "40"]


@pytest.mark.parametrize(
    ("options", "columns", "values"),
    [
        (["--isl", "64,quantiles:0=32,1=96", "--rate", "1"], ["input_len"], [["64"], ["quantiles:0.0=32,1.0=96"]]),
        (["--isl", "64", "--max-concurrency", "1,4"], ["max_concurrency"], [["1"], ["4"]]),
        (["--isl", "64", "--rate", "1", "--burstiness", "0.5,2"], ["burstiness"], [["0.5"], ["2.0"]]),
        (["--isl", "64", "--rate", "1", "--max-num-seqs", "8,16"], ["max_num_seqs"], [["8"], ["16"]]),
        (
            ["--isl", "64", "--rate", "1", "--set", "block_size=16,32", "--max-num-batched-tokens", "512,1024"],
            ["max_num_batched_tokens", "settings"],
            [[t, f"block_size={b}"] for t in ("512", "1024") for b in (16, 32)],
        ),
    ],
)
def test_every_listed_option_sweeps(options, columns, values):
    rows = list(csv.DictReader(io.StringIO(printed("simulate", *PLAIN, *options, "--format", "csv"))))
    assert [[row[column] for column in columns] for row in rows] == values


def test_replicas_serve_somebody_in_each_load_of_a_sweep():
    """Two in flight need no third replica; six are two for each of three."""
    options = ["--isl", "64", "--max-concurrency", "2,6", "--replicas", "3", "--format", "csv"]
    rows = list(csv.DictReader(io.StringIO(printed("simulate", *PLAIN, *options))))
    assert [(row["replicas"], row["max_concurrency"]) for row in rows] == [("2", "2"), ("3", "6")]


def test_costs_are_compared_at_several_rates_and_prices_and_the_capacity_is_searched_once():
    command = ["cost", *DEPLOYMENT, "--isl", "256", "--osl", "64", "--num-prompts", "200", "--slo", "ttft:2s"]
    found = json.loads(printed(*command, "--rate", "40,1", "--price", "on-demand,spot", "--format", "json"))["answers"]
    assert [row["asked_rate_per_s"] for row in found] == [1, 1, 40, 40]
    assert {row["price_commitment"] for row in found} == {"on-demand", "spot"}
    assert len({row["capacity_per_s"] for row in found}) == 1
    (alone,) = json.loads(printed(*command, "--rate", "40", "--format", "json"))["answers"]
    assert alone == next(
        row for row in found if row["asked_rate_per_s"] == 40 and row["price_commitment"] == "on-demand"
    )
    assert "Nearest: spot" in refused(*command, "--rate", "1", "--price", "spott")


def test_a_closed_loop_holds_its_concurrency():
    found = json.loads(printed("simulate", *CHAT, "--max-concurrency", "7", "--format", "json"))["simulations"][0]
    assert found["max_concurrent_requests"] == 7
    assert found["request_rate"] == "inf"


def test_lengths_may_be_spread():
    lengths = ["--isl", "lognormal:500:0.5:4000", "--osl", "uniform:50:150"]
    (row,) = json.loads(
        printed("simulate", *DEPLOYMENT, *lengths, "--num-prompts", "4000", "--rate", "1", "--format", "json")
    )["simulations"]
    assert row["total_input_tokens"] / row["completed"] == pytest.approx(500, rel=0.05)
    assert row["total_output_tokens"] / row["completed"] == pytest.approx(100, rel=0.05)


@pytest.mark.slow
def test_the_tables_of_cost_fit_a_hundred_columns():
    text = printed(*COST, "--hardware", "l40s,h100-sxm", "--details")
    _, first, second, *_ = text.split("\n\n")
    assert max(len(line) for line in [*first.splitlines()[1:], *second.splitlines()[1:]]) <= 100


def test_overload_is_said():
    text = printed("simulate", *DEPLOYMENT, "--workload", "chat", "--num-prompts", "3000", "--rate", "20")
    told = " ".join(text.split())
    assert re.match(r"Overloaded: 20 requests/s come, \d\.\d+ are served; .* `infercast cost` says how many", told)
    assert re.search(r"TTFT, E2EL and queue time grow with the queue, by 1\d\.\d requests/s", told)


@pytest.mark.parametrize("command", ["cost", "report", "compare", "plan"])
def test_who_gives_no_rate_is_told_of_no_option_that_the_command_lacks(command):
    told = refused(command, *DEPLOYMENT, "--workload", "chat", "--slo", "ttft:1s")
    assert told == "infercast: error: no --request-rate: nobody sends anything. Give, say, --request-rate 2.\n"


@pytest.mark.parametrize("command", ["cost", "report", "compare", "plan"])
def test_who_asks_for_a_number_of_replicas_gives_a_rate(command):
    """Of a closed loop, and of requests that come at once, no number of replicas follows."""
    asked = (command, *DEPLOYMENT, "--workload", "chat", "--slo", "ttft:1s")
    assert "requests that all come at once: no number of replicas follows" in refused(*asked, "--rate", "inf")
    assert "--max-concurrency" not in printed(command, "--help")


def test_cost_ranks_and_gives_reasons():
    command = [*COST, "--hardware", "l4,h100-sxm,l40s", "--format", "json"]
    answers = json.loads(printed(*command))["answers"]
    assert [each["hardware"] for each in answers] == ["l40s", "h100-sxm", "l4"]
    assert [each["meets_slo"] for each in answers] == [True, True, False]
    assert answers[0]["usd_per_hour"] < answers[1]["usd_per_hour"]
    assert answers[0]["price_date"]
    assert "miss TPOT <= 50 ms" in answers[2]["why"]
    assert answers[2]["usd_per_million_output_tokens"] is None


def test_a_misfit_in_a_sweep_is_left_out_by_name():
    text = printed(*COST, "--model", "llama-3.1-8b,llama-3.1-70b")
    assert "Left out: llama-3.1-70b (bf16) on l40s" in text


def test_a_price_of_your_own():
    row = json.loads(printed(*COST, "--usd-per-hour", "3.5", "--format", "json"))["answers"][0]
    assert row["usd_per_hour"] == pytest.approx(3.5 * row["replicas"])


TRACES = {
    "missing": ("arrival_s,prompt_tokens\n0,5\n", "known to hold the output tokens"),
    "negative": ("arrival_s,prompt_tokens,output_tokens\n0,5,5\n-1,5,5\n", "row 2"),
    "unsorted": ("arrival_s,prompt_tokens,output_tokens\n5,5,5\n1,5,5\n", "Sort the rows by time"),
    "zero": ("arrival_s,prompt_tokens,output_tokens\n0,0,5\n", "at least one token"),
    "too-long": ("arrival_s,prompt_tokens,output_tokens\n0,500000,5\n", "more than 131,072 tokens (max_model_len)"),
    "empty": ("", "empty"),
    "words": ("arrival_s,prompt_tokens,output_tokens\n0,many,5\n", "'many'"),
}


@pytest.mark.parametrize("name", TRACES)
def test_bad_traces_are_refused(name, tmp_path):
    text, told = TRACES[name]
    path = tmp_path / f"{name}.csv"
    path.write_text(text)
    assert told in refused("simulate", *DEPLOYMENT, "--trace", str(path))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--workload", "chat", "--rate", "0"], "finite rate above 0"),
        (["--workload", "chat", "--rate", "-inf"], "finite rate above 0"),
        (["--workload", "chat", "--rate", "nan"], "not a number"),
        (["--workload", "chat", "--rate", "fast"], "not a number"),
        (["--workload", "chat"], "nobody sends anything"),
        (["--workload", "chat", "--rate", "1", "--max-concurrency", "2"], "Give one of the two"),
        (["--workload", "chat", "--isl", "5", "--osl", "5", "--rate", "1"], "different things"),
        (["--workload", "chatt", "--rate", "1"], "Nearest: chat"),
        (["--workload", "chat", "--rate", "1", "--burstiness", "0"], "burstiness 0"),
        (["--workload", "chat", "--rate", "1", "--num-prompts", "0"], "--num-prompts 0"),
        (["--workload", "chat", "--rate", "1", "--slo", "ttfb:1s"], "Nearest: ttft, tpot"),
        (["--isl", "0", "--osl", "5", "--rate", "1"], "--isl 0"),
        (["--isl", "5", "--rate", "1"], "both --isl and --osl"),
        (["--isl", "five", "--osl", "5", "--rate", "1"], "whole number of tokens"),
        (["--isl", "normal:5:2", "--osl", "5", "--rate", "1"], "names no lengths"),
        (["--isl", "lognormal:500:0.5", "--osl", "5", "--range-ratio", "0.1", "--rate", "1"], "spread of their own"),
    ],
)
def test_bad_loads_are_refused(options, told):
    assert told in refused("simulate", *DEPLOYMENT, *options)


def test_a_plot_that_cannot_be_written_leaves_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    done = infercast(*COST, "--plot", str(tmp_path / "file" / "cost.png"))
    assert done.returncode == 2
    assert done.stdout == ""


@pytest.mark.slow
def test_sweeps_and_single_runs_are_drawn(tmp_path):
    for options in (["--rate", "1,2"], ["--rate", "1"], ["--max-concurrency", "2", "--max-num-seqs", "1,2"]):
        printed("simulate", *PLAIN, "--isl", "64", *options, "--slo", "ttft:1s", "--plot", str(tmp_path / "one.png"))
        assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
        (tmp_path / "one.png").unlink()
    printed(*COST[:-4], "--rate", "1,2", *COST[-2:], "--plot", str(tmp_path / "costs.svg"))
    assert (tmp_path / "costs.svg").exists()


def test_a_plot_is_written(tmp_path):
    printed(*COST, "--plot", str(tmp_path / "cost.png"))
    assert (tmp_path / "cost.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_tune_says_what_to_set_and_by_how_much_it_is_better():
    options = ["--isl", "256", "--osl", "32", "--slo", "ttft:1s,tpot:60ms", "--max-num-seqs", "4,64"]
    fixed = ["--cache-dtype", "bf16", "--gpu-memory-utilization", "0.92", "--max-num-batched-tokens", "2048"]
    text = printed("tune", *DEPLOYMENT, *options, *fixed)
    assert text.splitlines()[0].startswith("llama-3.1-8b (bf16) on l40s: ")
    assert "req/s within the SLO instead of" in text.splitlines()[0]
    assert re.search(r"with the defaults .*; on other random numbers than the search's \+\d+%\.", text)
    found = json.loads(printed("tune", *DEPLOYMENT, *options, *fixed, "--format", "json"))
    default, best = found["tuned"]
    assert (default["which"], default["flags"], best["flags"].split()[:2]) == ("default", "", ["--max-num-seqs", "64"])
    assert best["per_s_low"] <= best["per_s"] <= best["per_s_high"]
    assert best["per_s_other_seed"] > 2 * default["per_s_other_seed"]
    (bill,) = json.loads(
        printed("cost", *DEPLOYMENT, *options[:6], *fixed, *best["flags"].split(), "--rate", "1", "--format", "json")
    )["answers"]
    assert bill["capacity_per_s"] == pytest.approx(best["per_s"], rel=0.03)


def test_tune_claims_nothing_of_what_it_did_not_try_and_calls_no_given_setting_a_default():
    options = ("--isl", "64", "--osl", "8", "--max-concurrency", "2", "--num-prompts", "10", "--cache-dtype", "bf16")
    text = " ".join(printed("tune", *DEPLOYMENT, *options, "--max-num-seqs", "64", "--budget", "1").split())
    assert "the defaults and --max-num-seqs 64 --cache-dtype bf16 are best" in text
    ended = "1 of at most 1 settings tried; the budget ended the search through --max-num-batched-tokens, "
    assert ended in text
    assert "No single change is better" not in text


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--workload", "chat"], "Give, say, --slo ttft:1s,tpot:50ms"),
        (["--workload", "chat", "--slo", "ttft:1s", "--rate", "3"], "Leave it out, or give inf"),
        (["--workload", "chat", "--slo", "ttft:1s", "--draft", "eagle"], "--draft eagle:0.6"),
        (
            ["--workload", "chat", "--slo", "ttft:1s", "--draft", "eagle:2"],
            "eagle:2: it is not a probability. Give, say, --draft eagle:0.7.",
        ),
        (["--isl", "64", "--osl", "8", "--slo", "ttft:1s", "--tp", "2", "--devices", "3"], "no whole number of them"),
        (["--workload", "chat", "--slo", "ttft:1s", "--max-num-seqs", "many"], "not a whole number"),
    ],
)
def test_what_cannot_be_tuned_is_refused(options, told):
    assert told in refused("tune", *DEPLOYMENT, *options)
