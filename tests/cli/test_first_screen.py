"""The first screen of a command is the answer in sentences and a table or two; --details has everything."""

import re

import pytest

from simulator.cli.answers.load_screen import verdict
from simulator.cli.numbers import number
from simulator.reports.slo import Slo
from tests.support.commands import answer, printed

PLACE = ("--model", "llama-3.1-8b", "--hardware", "l40s")
CHAT = ("--workload", "chat", "--num-prompts", "200", "--slo", "ttft:1s,tpot:50ms")
SHORT = ("--isl", "128", "--osl", "8", "--num-prompts", "100", "--slo", "ttft:1s,tpot:100ms")
COMMANDS = {
    "Keeps the SLO": ("simulate", *PLACE, *CHAT, "--rate", "1"),
    "1 of 2 keeps the SLO": ("simulate", *PLACE, *CHAT, "--rate", "0.5,8"),
    "2 of 3 keep the SLO": ("simulate", *PLACE, *CHAT, "--rate", "0.5,1,8"),
    "Cheapest at 1 request/s": ("cost", "--model", "llama-3.1-8b", "--hardware", "l4,l40s", *SHORT, "--rate", "1"),
    "The first token after": ("estimate", *PLACE, "--batch", "8"),
    "First token soonest: batch 1": ("estimate", *PLACE, "--batch", "1,8"),
    "Breaks the SLO": ("fleet", *PLACE, *CHAT, "--replicas", "2", "--rate", "20"),
}
SCREEN = 36  # lines: what a window shows without scrolling


def unwrapped(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("verdict", COMMANDS)
def test_it_begins_with_the_answer_and_fits_a_window(verdict):
    command = COMMANDS[verdict]
    text = printed(*command, COLUMNS="80")
    assert text.startswith(verdict)
    assert len(text.splitlines()) <= SCREEN
    assert "\n--details: " in text


@pytest.mark.slow
@pytest.mark.parametrize("verdict", COMMANDS)
def test_details_add_to_it_and_leave_nothing_out(verdict):
    command = COMMANDS[verdict]
    first, whole = printed(*command), printed(*command, "--details")
    told = answer(*command)["notes"]
    assert told[0].startswith(verdict)
    assert all(unwrapped(each) in unwrapped(whole) for each in told)
    assert not all(unwrapped(each) in unwrapped(first) for each in told)
    tables = [part for part in first.split("\n\n") if "───" in part]
    assert tables
    assert all(part in whole for part in tables)


def test_replicas_that_share_a_batch_are_in_its_title():
    assert "One batch alone on 4 replicas: llama-3.1-8b, l40s" in printed(
        "estimate", *PLACE, "--replicas", "4", "--batch", "8"
    )


TIGHT = ("--model", "llama-3.1-8b", "--hardware", "l40s", "--isl", "2048", "--osl", "64", "--num-prompts", "300")
FEWER = "Behind a router to the least busy 5 are enough: infercast plan sizes such fleets."


@pytest.mark.slow
def test_replicas_that_are_counted_alone_are_said_to_be_and_a_fleet_of_fewer_is_named():
    slo = ("--slo", "ttft:2s,tpot:30ms", "--tp", "1")
    costs = unwrapped(printed("cost", *TIGHT, *slo, "--rate", "4"))
    assert f"10 replicas: each alone, with its share of the requests. {FEWER}" in costs
    assert FEWER in unwrapped(printed("compare", *TIGHT, *slo, "--weight-dtype", "bf16", "--rate", "4"))
    assert "5 replicas" in unwrapped(printed("plan", *TIGHT, *slo, "--rate", "4", "--headroom", "0", "--months", "1"))
    assert "each alone" not in unwrapped(printed("cost", *TIGHT, *slo, "--rate", "0.4"))
    many = unwrapped(printed("cost", *TIGHT, *slo, "--rate", "20"))
    assert "replicas: each alone, with its share of the requests. Behind a router fewer may be enough" in many


def test_without_an_slo_the_latencies_are_the_answer():
    load = ("--isl", "256", "--osl", "32", "--max-concurrency", "2", "--num-prompts", "20")
    text = printed("simulate", *PLACE, *load)
    [row] = answer("simulate", *PLACE, *load)["simulations"]
    ttft_ms, tpot_ms = (number()(row[f"p95_{each}_ms"]) for each in ("ttft", "tpot"))
    assert text.startswith(f"TTFT p95 {ttft_ms} ms, TPOT p95 {tpot_ms} ms; ")


def test_overloaded_loads_are_said_and_have_no_ttft():
    load = ("--isl", "512", "--osl", "64", "--num-prompts", "300")
    text = unwrapped(printed("simulate", *PLACE, *load, "--rate", "1,500,1000"))
    assert "2 of 3 are overloaded: queues grow without end, so their TTFT is '-'." in text
    one = unwrapped(printed("simulate", *PLACE, *load, "--rate", "1,500"))
    assert "1 of 2 is overloaded: its queue grows without end, so its TTFT is '-'." in one
    assert "overloaded" not in printed("simulate", *PLACE, *load, "--rate", "1,2")


def test_a_run_too_short_to_show_its_overload_says_so_first_in_simulate_and_in_a_fleet():
    """The first 200 of requests whose queue grows without end: one place for each of them."""
    load = ("--isl", "10", "--osl", "1000", "--num-prompts", "200", "--slo", "ttft:5s")
    for command in ("simulate", "fleet"):
        options = ("--replicas", "1") if command == "fleet" else ()
        told = unwrapped(printed(command, *PLACE, *load, *options, "--rate", "300"))
        assert told.startswith("Keeps the SLO for these 200 requests alone: 100.0% of requests keep every bound, 95% ")
        assert re.search(r"A longer run is overloaded: 300 requests/s come, full steps serve [\d.]+ at most\.", told)
        assert "overloaded" not in printed(command, *PLACE, *load, *options, "--rate", "0.5")
    several = unwrapped(printed("simulate", *PLACE, *load, "--rate", "0.5,300"))
    assert several.startswith("1 of 2 keeps the SLO")
    assert "1 of 2 would be, if more were sent: requests come faster than they are served." in several
    [row] = answer("simulate", *PLACE, *load, "--rate", "300")["simulations"]
    assert (row["overload"], row["overloaded"], row["meets_slo"]) == ("requests", False, False)
    assert 0 < 300 - row["queue_growth_per_s"] < 50


def test_overloaded_pools_say_first_what_queues():
    load = ("--isl", "4000", "--osl", "50", "--rate", "1", "--num-prompts", "60", "--slo", "ttft:5s")
    links = unwrapped(printed("fleet", *PLACE, *load, "--disaggregate", "1:1", "--link-bandwidth", "300MB/s"))
    assert re.match(
        r"Overloaded: 1 request/s comes, [\d.]+ are served; the queue for the links grows without end", links
    )
    long = ("--isl", "500", "--osl", "1000", "--rate", "8", "--num-prompts", "1000")
    decoding = unwrapped(printed("fleet", *PLACE, *long, "--disaggregate", "2:1"))
    assert re.match(r"Overloaded: 8 requests/s come, [\d.]+ are served; the queue for decoding grows", decoding)


def test_many_rejected_requests_are_said_first():
    load = ("--isl", "uniform:1:200000", "--osl", "8", "--rate", "0.1", "--num-prompts", "30")
    told = unwrapped(printed("simulate", *PLACE, *load))
    [row] = answer("simulate", *PLACE, *load)["simulations"]
    said = f"{row['failed']} of 30 requests are rejected; latencies and throughput are those of the others."
    assert row["failed"] > 0 and told.index(said) < told.index("llama-3.1-8b")


def test_a_fleet_says_first_how_many_gave_up():
    load = ("--workload", "chat", "--num-prompts", "300", "--rate", "50", "--timeout", "2s", "--max-retries", "1")
    text = unwrapped(printed("fleet", *PLACE, *load, "--replicas", "1"))
    [row] = answer("fleet", *PLACE, *load, "--replicas", "1")["fleets"]
    lost = f"{row['failed']} of 300 requests gave up waiting; latencies are those of the others."
    assert text.index(lost) < text.index("1 replica of ")
    patient = ("--workload", "chat", "--num-prompts", "50", "--rate", "1", "--timeout", "1h")
    assert "gave up" not in printed("fleet", *PLACE, *patient, "--replicas", "1")


def test_a_fleet_says_that_one_draw_of_few_requests_carries_its_verdict():
    load = ("--fail", "0@1s:1s", "--isl", "128", "--osl", "8", "--rate", "4", "--slo", "ttft:1s")
    said = "One draw of 300 requests carries this verdict; give 1,000, of which chance decides less."
    assert said in unwrapped(printed("fleet", *PLACE, *load, "--num-prompts", "300"))
    assert "One draw" not in printed("fleet", *PLACE, *load, "--num-prompts", "1000")
    assert "One draw" not in printed("fleet", *PLACE, *load[:-2], "--num-prompts", "300")
    assert "first of 3 draws" in unwrapped(printed("fleet", *PLACE, *load[2:], "--num-prompts", "300"))


def test_a_load_within_the_slo_names_the_rate_that_was_run_and_the_one_asked():
    load = ("--isl", "512", "--osl", "64", "--num-prompts", "300", "--slo", "ttft:1s,tpot:100ms", "--within-slo")
    [row] = answer("simulate", *PLACE, *load, "--rate", "500")["simulations"]
    assert 1 < row["request_rate_within_slo"] < 500 == row["request_rate"]
    told = unwrapped(printed("simulate", *PLACE, *load, "--rate", "500"))
    assert f"Poisson arrivals at {row['request_rate_within_slo']:.3g}/s: prompts" in told
    assert "; 500/s were asked" in told
    assert "run at" in printed("simulate", *PLACE, *load, "--rate", "400,500")


def test_a_bound_inside_the_interval_is_a_doubt():
    [row] = answer("simulate", *PLACE, *CHAT, "--rate", "1")["simulations"]
    low, high = row["p95_ttft_ms_low"], row["p95_ttft_ms_high"]
    load = ("--workload", "chat", "--num-prompts", "200", "--rate", "1")
    sure = printed("simulate", *PLACE, *load, "--slo", f"ttft:{2 * high}")
    doubted = printed("simulate", *PLACE, *load, "--slo", f"ttft:{(low + high) / 2}")
    assert "Not for sure" not in sure
    assert "Not for sure: TTFT p95 may be" in doubted


def test_a_doubt_without_an_upper_end_is_good_english():
    row = {
        "p95_ttft_ms": 300,
        "p95_ttft_ms_low": 185.0,
        "p95_ttft_ms_high": None,
        "slo_attainment": 1.0,
        "overload": None,
    }
    told = verdict(row, Slo({"ttft": 0.5}))
    assert told[1] == "Not for sure: TTFT p95 may be 185 ms or any more (500 allowed)."


def test_a_verdict_is_of_the_quantile_that_the_slo_asks_for_and_rounds_nothing_to_it():
    ends = {"p99_ttft_ms_low": 400.0, "p99_ttft_ms_high": 600.0}
    row = {"p95_ttft_ms": 300, **ends, "slo_attainment": 0.99896, "overload": None}
    assert verdict(row, Slo({"ttft": 0.5}, 0.999)) == [
        "Breaks the SLO: 99.8% of requests keep every bound, 99.9% are asked for.",
        "Not for sure: TTFT p99 may be 400 to 600 ms (500 allowed).",
    ]
    asked = ("--isl", "128", "--osl", "8", "--rate", "4", "--num-prompts", "1000", "--slo", "ttft:1s")
    assert "p99 interval" in printed("simulate", *PLACE, *asked, "--slo-share", "0.99")
    assert "p95 interval" in printed("simulate", *PLACE, *asked)


def test_an_even_share_is_said_to_be_one_of_several():
    load = ("--isl", "128", "--osl", "8", "--rate", "4", "--num-prompts", "400", "--replicas", "4")
    told = unwrapped(printed("simulate", *PLACE, *load))
    assert "one of 4 alike replicas of llama-3.1-8b (bf16) on l40s, vllm-0.33: 100 requests" in told


@pytest.mark.slow
def test_a_plan_of_owned_machines_says_that_electricity_is_in_it_and_what_it_rests_on():
    load = ("--isl", "256", "--osl", "32", "--rate", "2", "--num-prompts", "100", "--slo", "ttft:1s", "--months", "1")
    owned, rented = (unwrapped(printed("plan", *PLACE, *load, *words)) for words in (("--price", "owned"), ()))
    for said in ("hold electricity", "power: idle", "devices_share"):
        assert said in owned
        assert said not in rented


def test_one_output_token_has_no_decode_step_that_anything_binds():
    bound = [line for line in printed("estimate", *PLACE, "--osl", "1").splitlines() if line.startswith("Bound by")]
    assert bound == ["Bound by: prefill compute."]
    assert "Bound by: prefill compute, decode memory." in printed("estimate", *PLACE)


def test_ranks_that_share_one_sequence_are_said_to():
    """A lone prompt lies on one rank of eight: that the others take a share of its attention flatters it."""
    ranks = ("estimate", "--model", "deepseek-v3", "--hardware", "h200-sxm", "--dp", "8", "--ep", "8", "--batch")
    assert "DP above the batch: ranks are taken to share its tokens evenly" in printed(*ranks, "1")
    assert "DP above the batch" not in printed(*ranks, "8")


SEVERAL = ("--model", "llama-3.1-8b", "--hardware", "l40s,a100-sxm-80,h100-sxm")


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("estimate", *SEVERAL, "--batch", "1,64", "--isl", "1024", "--osl", "128"),
        ("simulate", *SEVERAL, *CHAT, "--rate", "0.5,16"),
        ("simulate", *PLACE, "--isl", "1000", "--osl", "200", "--max-concurrency", "1,256", "--num-prompts", "512",
         "--slo", "ttft:1s"),
    ],
)  # fmt: skip
def test_a_sweep_is_one_table_of_80_columns(command):
    text = printed(*command, COLUMNS="80")
    assert sum("───" in line for line in text.splitlines()) == 1
    assert max(map(len, text.splitlines())) <= 80
    whole = printed(*command, "--details", COLUMNS="200")
    assert "tok/s/user" in whole


def test_settings_that_have_a_column_or_are_the_same_in_all_rows_are_not_told_again():
    changed = ("--set", "block_size=16,32", "--set", "max_num_batched_tokens=512,2048", "--set", "max_num_seqs=64")
    text = printed("estimate", *PLACE, "--batch", "8", *changed)
    heading, _, *lines = text.split("\n\n")[1].splitlines()[-6:]
    assert heading.split()[:4] == ["max", "tokens", "settings", "batch"]
    assert [line.split()[:2] for line in lines] == [
        [tokens, f"block_size={size}"] for size in (16, 32) for tokens in ("512", "2048")
    ]


BARE = (*PLACE, "--isl", "128", "--osl", "8", "--num-prompts", "100", "--slo", "ttft:700,tpot:100")


@pytest.mark.parametrize(
    "command",
    [
        ("cost", *BARE, "--rate", "1"),
        ("compare", *BARE, "--rate", "1"),
        ("simulate", *BARE, "--rate", "1,2"),
        ("tune", *BARE, "--budget", "2"),
        ("plan", *BARE, "--rate", "1", "--months", "1"),
    ],
)
def test_bounds_without_a_unit_are_shown_as_they_were_understood(command):
    assert "TTFT <= 700 ms, TPOT <= 100 ms" in unwrapped(printed(*command))


def test_bounds_of_one_run_stand_beside_its_latencies():
    assert "100.0% <= 700\n" in printed("simulate", *BARE, "--rate", "1")


def test_a_duration_without_a_unit_is_shown_in_seconds():
    lengths = (*PLACE, "--isl", "128", "--osl", "8", "--rate", "4")
    assert "tokens, over 20 s" in unwrapped(printed("fleet", *lengths, "--duration", "20"))


def test_a_format_of_llama_cpp_in_another_engine_says_so():
    asked = ("estimate", "--model", "llama-3.1-8b", "--hardware", "rtx-3060", "--weight-dtype", "q4_k_m")
    said = "q4_K_M is a format of llama.cpp and Ollama (--engine llama.cpp); this answer is of vllm-"
    assert said in unwrapped(printed(*asked))
    assert "a format of llama.cpp" not in unwrapped(printed(*asked, "--engine", "ollama"))


def test_a_search_without_an_slo_says_how_long_users_wait():
    asked = ("compare", *PLACE, "--isl", "128", "--osl", "8", "--num-prompts", "100", "--rate", "1")
    told = unwrapped(printed(*asked))
    assert "No SLO was given: 5% of users wait " in told
    assert "the most without a queue that grows" in told
    assert "No SLO was given" not in unwrapped(printed(*asked, "--slo", "ttft:1s"))
