"""What is no command line of ours: one error in three parts, with what to write, also for words of other tools."""

import io
import re
import sys

import pytest

from simulator.cli import COMMANDS as OURS
from simulator.cli import main, progress
from simulator.cli.complaint import complain, unbroken
from simulator.cli.completion import table
from simulator.cli.other_tools_options import COMMANDS, SAME
from tests.support.commands import infercast, refused
from tests.support.paths import ROOT


@pytest.mark.parametrize(
    ("words", "given", "remedy"),
    [
        ("compare --model llama 3.1 8b", "3.1 8b: it belongs to no option", "Put a value with spaces in quotes"),
        ("compare --users 500", "--users 500: infercast compare has no such option", "--request-rate 8.3."),
        ("compare --max-concurrency 60", "--max-concurrency 60", "--request-rate 1."),
        ("cost --budget 1000", "--budget 1000", "Leave it out"),
        ("simulate --gpu H100", "--gpu H100", "Write --hardware H100."),
        ("simulate --dtype=half", "--dtype half", "Write --weight-dtype half."),
        ("simulate --enable-prefix-caching --tp 2", "--enable-prefix-caching:", "--set enable-prefix-caching=true."),
        ("simulate --no-enable-chunked-prefill", "--no-enable-chunked-prefill:", "--set enable-chunked-prefill=false."),
        ("simulate --speculative-config {}", "--speculative-config {}", "--acceptance-rate 0.7"),
        ("estimate -ctk q8_0", "-ctk q8_0", "Write --cache-dtype q8_0."),
        ("estimate -c 8192", "-c 8192", "Write --set c=8192 with --engine llama.cpp."),
        ("estimate --engine llama.cpp -c 8192", "-c 8192", "Write --set c=8192."),
        ("simulate --duration 5", "--duration 5", "It is an option of infercast fleet."),
        ("simulate --swap-space 4", "--swap-space 4", "`infercast simulate --help` lists its options."),
        ("simulate --hardwere l4", "--hardwere l4", "Nearest: --hardware."),
        ("simulate --hardware l4", "no --model: infercast simulate needs it", "--model llama-3.1-8b"),
        ("import-model", "no CONFIG.JSON", "infercast import-model --help"),
        ("simulate --slo", "--slo: its value is missing", "infercast simulate --help"),
        ("simulate --whole-run=3", "--whole-run: it is a switch", "Write --whole-run alone."),
        ("simulate --format xml", "--format 'xml': it has no such value", "Give one of 'text', 'csv', 'json'."),
        ("simluate --model a", "simluate: infercast has no such command", "Nearest: simulate"),
        ("bench", "bench: infercast has no such command", "Nearest: simulate."),
        ("cost --model gpt-4o --hardware l4 --workload chat --rate 1", "--model gpt-4o: its weights", "gpt-oss-120b"),
        ("cost --model phi-4 --hardware l4 --workload chat --rate 90/min", "--request-rate '90/min'", "-rate 1.5."),
        ("estimate --model phi-4 --hardware Apple-M3-16GB-Laptop", "no hardware profile", "Nearest: "),
        ("plan --months 500", "--months 500: it is above 120", "Give 120 or less."),
        ("estimate --replicas 0", "--replicas 0: it is below 1", "Give 1 or more."),
        ("estimate --cpu-offload-gb 10GB", "--cpu-offload-gb 10GB", "Write --cpu-offload-gb 10."),
        ("estimate --model phi-4 --hardware l4 --engine vllm:0.10.2", "--engine vllm:0.10.2", "Give vllm-0.8,"),
        ("cost --model phi-4 --hardware l4 --slo ttft:5sec", "--slo ttft:5sec: there is no unit 'sec'", "Nearest: s"),
        (
            "profiles prices amazon",
            "prices of 'amazon': it is neither a provider nor a device",
            "Providers: aws, azure,",
        ),
        ("cost --model phi-4 --hardware l4 --workload chat --rate 1 --provider Amazon", "--provider Amazon", " AWS, "),
        ("memory --model phi-4 --hardware l4 --engine ollama --set num_ctx=8k", "--set num_ctx=8k", "as num_ctx=8192."),
        (
            "estimate --model qwen3-8b --hardware rtx-4060 --engine ollama --set num_ctx=32768",
            "qwen3-8b (q4_K_M) on rtx-4060",
            "It fits with --max-model-len 16384 (",
        ),
        ("--versoin", "--versoin: infercast has no such option", "Nearest: --version."),
    ],
)
def test_a_mistake_says_what_to_write(words, given, remedy):
    error = refused(*words.split())
    assert error.startswith(f"infercast: error: {given}"), error
    assert remedy in error, error


@pytest.mark.parametrize(
    ("options", "given"),
    [
        ("estimate --tp 3", "--tp 3"),
        ("estimate --pp 40 --engine vllm", "--pp 40"),
        ("estimate --max-model-len 200000", "--max-model-len 200000"),
        ("estimate --gpu-memory-utilization 1.50", "--gpu-memory-utilization 1.50"),
        (
            "estimate --max-num-seqs 512 --max-num-batched-tokens 64",
            "--max-num-seqs 512 with --max-num-batched-tokens 64",
        ),
        ("estimate --cpu-offload-gb 99", "--cpu-offload-gb 99"),
        ("estimate --cpu-offload-gb 1 --gpu-layers 4", "--cpu-offload-gb 1 with --gpu-layers 4"),
        ("simulate --isl 8 --osl 8 --request-rate -1", "--request-rate -1"),
        ("simulate --isl 8 --osl 8 --request-rate 2,-1", "--request-rate -1"),
        ("simulate --isl 8 --osl 8 --request-rate 2 --burstiness 0", "--burstiness 0"),
        ("simulate --isl 8 --osl 8 --request-rate 2 --num-prompts 0", "--num-prompts 0"),
        ("simulate --isl lognormal:0:1 --osl 8 --request-rate 2", "--isl lognormal:0:1"),
        ("simulate --isl 8 --osl 0 --request-rate 2", "--osl 0"),
        ("simulate --isl 8 --osl 8 --request-rate 2 --random-range-ratio 2", "--random-range-ratio 2"),
        ("simulate --isl 8 --osl 8 --request-rate 2 --slo ttft:1s --slo-share 95", "--slo-share 95"),
        ("simulate --isl 8 --osl 8 --request-rate 2 --slo ttft:0", "--slo ttft:0"),
        ("simulate --isl 8 --osl 8 --request-rate 2 --replicas 2 --router foo", "--router foo"),
        ("fleet --isl 8 --osl 8 --request-rate 2 --replicas 2 --autoscale foo:3", "--autoscale foo:3"),
        ("fleet --isl 8 --osl 8 --request-rate 2 --replicas 2 --timeout 0min", "--timeout 0min"),
        ("simulate --trace none.csv", "--trace none.csv"),
        ("cost --isl 8 --osl 8 --request-rate 2 --price spot --availability 1", "--availability 1"),
        ("plan --isl 8 --osl 8 --request-rate 2 --growth -200% --months 9", "--months 9 with --growth -200%"),
        ("training --training-tokens 1e12 --mfu 40", "--mfu 40"),
    ],
)
def test_an_error_begins_with_what_was_typed(options, given):
    command, *words = options.split()
    told = refused(command, "--model", "llama-3.1-8b", "--hardware", "h100-sxm", *words)
    assert told.startswith(f"infercast: error: {given}: "), told


def test_a_case_that_a_sweep_leaves_out_is_named_as_it_was_typed():
    done = infercast("memory", "--model", "llama-3.1-8b", "--hardware", "h100-sxm", "--tp", "1,3")
    assert "Left out: --tp 3: 32 attention heads do not divide by it." in done.stdout


def test_no_remedy_is_to_correct_it():
    """What to do is what to write: a range, an example, where to look it up."""
    vague = re.compile(r'"Correct (it|them|one of the two|the (number|value)s?)\b')
    assert [str(path) for path in (ROOT / "simulator").rglob("*.py") if vague.search(path.read_text())] == []


def test_what_is_offered_for_words_of_other_tools_exists():
    flags = {
        flag for each in table()["commands"].values() for option in each.values() for flag in option.get("flags", [])
    }
    others = [each for text in SAME.values() for each in text.split()]
    assert set(SAME) <= flags
    assert len(set(others)) == len(others)
    assert set(COMMANDS.values()) <= set(OURS)
    assert not set(COMMANDS) & set(OURS)


def test_what_takes_long_is_followed(monkeypatch, capsys):
    monkeypatch.setattr(progress, "FIRST_LINE_S", 0.0)
    assert progress.followed("answers", (each for each in "ab"), 2) == ["a", "b"]
    assert capsys.readouterr().err.startswith("infercast: answers: 0 of 2\n")


def test_help_is_no_mistake():
    assert infercast("simulate", "--help").returncode == 0
    assert "Usage: infercast" in infercast().stdout + infercast().stderr


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def test_an_error_is_wrapped_on_a_terminal_and_one_line_elsewhere(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    error = "error: tp 3: 32 attention heads do not divide by it and so no device has a whole one of them. Give --tp 4."
    for stream, lines in ((Terminal(), 2), (io.StringIO(), 1)):
        monkeypatch.setattr(sys, "stderr", stream)
        complain(error)
        assert stream.getvalue().count("\n") == lines
        assert " ".join(stream.getvalue().split()) == f"infercast: {error}"


def test_an_error_without_stderr_has_its_exit_code(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    complain("error: unheard")
    monkeypatch.setattr(sys, "argv", ["infercast", "nonsense"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2


@pytest.mark.parametrize(
    "held",
    ["`infercast profiles hardware`", "--hardware h200-sxm", "'a file of mine.csv'", '"two words"', "-ngl 20"],
)
def test_what_is_copied_is_not_broken(held):
    for before in range(1, 40):
        lines = unbroken(f"{'x' * before} the engine's own: {held}, or so.", 40)
        assert any(held in line for line in lines)
        assert all(len(line) <= 40 for line in lines)
