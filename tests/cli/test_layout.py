"""Text fits the columns of the terminal, or 80; csv and json never change."""

import shlex

from simulator.cli.output import Column, Result, View
from simulator.cli.text_layout import Command, Format, wrapped
from tests.support.commands import infercast, printed
from tests.support.for_each import for_each

LOAD = ("--workload", "chat", "--rate", "2", "--slo", "ttft:1s,tpot:50ms", "--num-prompts", "200")
EIGHT_B = ("--model", "llama-3.1-8b", "--hardware", "l40s,h100-sxm")
COMMANDS = (  # the others: tests/cli/test_help.py, at 80 columns
    ("estimate", *EIGHT_B, "--explain"),
    ("memory", *EIGHT_B, "--context", "1000,2000,4000"),
    ("simulate", *EIGHT_B, *LOAD, "--details"),
    ("cost", *EIGHT_B, "--isl", "128", "--osl", "8", "--rate", "2", "--slo", "ttft:1s", "--details"),
    ("profiles", "hardware", "h100-sxm"),
)


@for_each("columns", (80, 140))
def test_every_line_fits(columns):
    for command in COMMANDS:
        for line in printed(*command, COLUMNS=str(columns)).splitlines():
            assert len(line) <= columns or " " not in line.strip(), (command, line)


def test_piped_text_has_80_columns_and_data_has_none(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    command = ("estimate", *EIGHT_B)
    assert printed(*command, COLUMNS="") == printed(*command, COLUMNS="80")
    for form in ("csv", "json"):
        assert printed(*command, "--format", form, COLUMNS="40") == printed(*command, "--format", form)


def test_a_table_that_is_too_wide_comes_in_parts_that_name_their_rows():
    keys = [f"k{number}" for number in range(12)]
    rows = [{"name": name, **{key: 123_456 + number for number, key in enumerate(keys)}} for name in ("one", "two")]
    columns = (Column("name", "name", left=True), *(Column(key, key) for key in keys))
    text = Result({"rows": rows}, [View("title", columns, rows)]).render(Format.TEXT, width=40)
    assert max(map(len, text.splitlines())) <= 40
    assert text.count("one") == text.count("two") == 3
    for number in range(12):
        assert text.count(str(123_456 + number)) == 2


def test_a_wrapped_command_is_the_same_command():
    command = """vllm serve model --speculative-config '{"method": "ngram", "tokens": 3}' -tp 2 --max-num-seqs 64"""
    for width in (20, 40, 80):
        lines = wrapped(Command(command), width)
        assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(command)
        assert all(line.endswith(" \\") for line in lines[:-1])


def test_the_launch_command_can_be_pasted():
    text = infercast("compare", *EIGHT_B, *LOAD, COLUMNS="80").stdout
    typed = text.partition("vllm serve")[2].partition("\n\n")[0]
    assert "\n" not in typed.replace("\\\n", " ")
