"""What --help prints: options in groups, and examples that run."""

import json
import re
import shlex
import shutil

import pytest
from typer.main import get_command

from simulator.cli import COMMANDS, build
from simulator.cli.help import GROUPS, OWN
from tests.support.commands import infercast, printed, refused
from tests.support.for_each import for_each
from tests.support.model_configs import LLAMA_SMALL
from tests.support.paths import ROOT

ENGINE = {"reference", "calibrate", "check"}  # they run the torch engine on fetched weights for minutes
MEASURED = """hardware,model,weight_dtype,engine,engine_version,tp,input_len,output_len,batch,metric,value
h100-sxm,llama-3.1-8b,bf16,vllm,0.33.0,1,512,128,8,tpot_ms,7.1
"""
FIXTURES = ROOT / "tests" / "fixtures"
BENCH = FIXTURES / "bench"


def examples(command: str) -> list[list[str]]:
    """The words of each example that a command's help prints."""
    text = printed(command, "--help").partition("\nExamples:\n")[2].replace("\\\n", " ")
    return [shlex.split(line)[1:] for line in text.splitlines()]


def parsed(words: list[str]) -> None:
    """Parse the options of a command, without running it. Raises where one is unknown or has no such value."""
    with get_command(build(words)).commands[words[0]].make_context(words[0], words[1:]):
        pass


@for_each("command", COMMANDS)
def test_help_has_two_examples_that_fit_and_parse(command):
    text = printed(command, "--help")
    assert max(map(len, text.splitlines())) <= 80
    found = examples(command)
    assert len(found) == 2
    for words in found:
        assert words[0] == command
        parsed(words)


def test_options_stand_under_headings():
    text = printed("cost", "--help")
    assert re.findall(r"^([A-Z][^\n]*):$", text, re.MULTILINE) == [
        *(each for each in GROUPS if each != "Clients"),
        "Examples",
    ]
    prices = text.partition("\nPrices:\n")[2].partition("\n\n")[0]
    assert "--provider" in prices
    assert "--max-num-seqs" not in prices


def test_every_option_is_in_one_group():
    flags = [flag for each in GROUPS.values() for flag in each.split()]
    assert len(flags) == len(set(flags))
    assert not GROUPS[OWN]
    for command in COMMANDS:
        _, options = re.split(r"^\S.*:\n", printed(command, "--help"), maxsplit=1, flags=re.MULTILINE)
        shown = re.findall(r"^  -.", options, re.MULTILINE)
        ours = [each for each in get_command(build([command])).commands[command].params if not each.hidden]
        assert len(shown) == len([each for each in ours if each.param_type_name == "option"]) + 1, command  # --help


@pytest.mark.slow
def test_the_examples_run(tmp_path):
    """In the order of the list, in a folder with the files that they name: the first as text, the second as json."""
    shutil.copy(BENCH / "invented_vllm_serve.json", tmp_path / "results.json")
    shutil.copytree(FIXTURES / "vllm-cpu-0.32", tmp_path / "LOGS")
    (tmp_path / "measured.csv").write_text(MEASURED)
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_SMALL))
    for command in COMMANDS:
        for words, form in zip(examples(command), ("text", "json"), strict=True):
            if command in ENGINE and "--measured" not in words:
                continue
            plain = "--commands" in words or command in ("launch", "report")
            asked = words if plain else [*words, "--format", form]  # of two formats the last counts
            done = infercast(*asked, folder=tmp_path, COLUMNS="80")
            assert done.returncode == 0, (words, done.stderr)
            if form == "text":
                assert [line for line in done.stdout.splitlines() if len(line) > 80 and " " in line] == [], words
            elif not plain:
                assert json.loads(done.stdout)["command"] == command


@pytest.mark.parametrize(
    ("words", "name", "text"),
    [
        ("training --model llama-3.1-8b --hardware l4 --training-tokens 15T", "--training-tokens", "15T"),
        ("simulate --model llama-3.1-8b --hardware l4 --num-prompts 5k", "--num-prompts", "5k"),
        ("plan --model llama-3.1-8b --hardware l4 --months 0", "--months", "0"),
        ("claims abc", "claims", "abc"),
    ],
)
def test_a_value_that_is_no_number_is_refused_as_all_others_are(words, name, text):
    error = refused(*words.split())
    assert error.startswith(f"infercast: error: {name}")
    assert text in error
    assert "Input" not in error
