"""json has one shape, of one case and of many, and a schema that says it, which all json of all tests has to meet."""

import contextvars

import pytest
from jsonschema import ValidationError

from simulator.cli import COMMANDS
from simulator.cli.completion import table
from simulator.cli.help import RUNNING
from simulator.cli.output import Result
from simulator.cli.text_layout import Format
from simulator.schema_versions import VERSIONS
from tests.support.commands import answer
from tests.support.json_schema import CHECK

EIGHT_B = ("--model", "llama-3.1-8b", "--hardware")
LOAD = ("--isl", "512", "--osl", "32", "--num-prompts", "40", "--max-concurrency")


def test_the_schema_is_one_and_knows_every_command():
    CHECK.check_schema(CHECK.schema)
    with_rows = [name for name in COMMANDS if "form" in table()["commands"][name]]
    assert CHECK.schema["properties"]["command"]["enum"] == with_rows
    assert CHECK.schema["properties"]["schema_version"]["const"] == VERSIONS["Result"]


def test_one_case_and_many_have_one_shape():
    """Of a fixed batch and of a load; what cannot be is told beside what can."""
    for words, section, more in (
        (("estimate", *EIGHT_B), "estimates", ("--batch", "8")),
        (("simulate", *EIGHT_B), "simulations", (*LOAD, "4")),
    ):
        one = answer(*words, "h100-sxm", *more)
        many = answer(*words, "h100-sxm,l40s,t4", *more)
        assert one.keys() == many.keys()
        assert (len(one[section]), len(many[section]), len(many["refused"])) == (1, 2, 1)
        assert one[section][0] == many[section][0]
        assert one["command"] == words[0]


@pytest.mark.parametrize(
    "words",
    [("memory", *EIGHT_B, "l40s"), ("profiles",), ("profiles", "hardware", "l4"), ("profiles", "prices", "l4")],
    ids=" ".join,
)
def test_commands_print_what_the_schema_says(words):
    """The other commands: tests/cli/test_help.py, their examples."""
    assert answer(*words)["schema_version"] == VERSIONS["Result"]


def test_json_of_another_shape_ends_the_test_that_made_it():
    with pytest.raises(ValidationError, match="'12 GB' is not of type 'number'"):
        contextvars.Context().run(rendered, {"plans": [{"weights_bytes": "12 GB"}]})


def rendered(sections: dict) -> str:
    RUNNING.set("memory")
    return Result(sections, []).render(Format.JSON, 80)


def test_the_schema_finds_another_shape():
    found = answer("memory", *EIGHT_B, "l40s")
    for change in (
        {"schema_version": 2},
        {"plans": {}},
        {"plans": [{"weights_bytes": "12 GB"}]},
        {"estimates": []},
        {"notes": [1]},
        {"refused": [{"given": "x"}]},
    ):
        with pytest.raises(ValidationError):
            CHECK.validate(found | change)
