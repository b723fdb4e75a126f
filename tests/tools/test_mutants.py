"""Mutants: what is changed, what is left alone, and that a change reaches whoever has imported the function."""

import ast
import sys
from types import ModuleType

import pytest
import yaml

from tools.adopt import adopt
from tools.mutants import mutants
from tools.mutate import REASONS, ROOT

SOURCE = '''
"""A number: 1."""
from dataclasses import dataclass
MOST = 3

@dataclass(frozen=True)
class Box:
    """Holds 2."""
    size: int = 4

    @property
    def twice(self) -> float:
        if self.size > MOST and not self.size == 7:
            return self.size * 2
        raise ValueError(f"{5}")
'''


def test_each_mutant_changes_one_thing_and_no_text():
    found = mutants(SOURCE, 99, "any")
    changes = {(each.before, each.after) for each in found}
    assert len(found) == len({each.source for each in found}) == 12
    assert all(ast.parse(each.source) for each in found)
    assert all('"""A number: 1."""' in each.source and "Holds 2." in each.source for each in found)
    assert sum("{5}" not in each.source for each in found) == 1  # without the whole statement
    assert ("size: int = 4", "size: int = 5") in changes
    assert ("return self.size * 2", "return None") in changes
    assert {each.function for each in found} == {"module", "Box", "Box.twice"}


def test_the_same_seed_draws_the_same_mutants():
    once, again, other = ([each.source for each in mutants(SOURCE, 5, seed)] for seed in "aab")
    assert once == again != other


def test_a_change_reaches_what_was_made_before(monkeypatch):
    """A property of an object that exists; a default; a constant, also where it was imported by its name."""
    live, other = ModuleType("simulator.made_up"), ModuleType("simulator.other")
    for each in (live, other):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    exec(SOURCE, vars(live))
    box, other.MOST = live.Box(), live.MOST
    adopt(live, SOURCE.replace("* 2", "* 3").replace("= 4", "= 5"))
    assert (box.size, box.twice, live.Box().size) == (4, 12, 5)
    adopt(live, SOURCE.replace("MOST = 3", "MOST = 9"))
    assert (live.MOST, other.MOST) == (9, 9)
    with pytest.raises(ValueError, match="5"):
        box.twice  # noqa: B018


def test_a_change_reaches_the_fields_of_named_tuples(monkeypatch):
    """The default of a field, and a constant of the class, which stays of the class that it was of."""
    source = "from typing import NamedTuple\nclass Pair(NamedTuple):\n    a: int\n    b: int = 4\nONE = Pair(1, 2)\n"
    live = ModuleType("simulator.made_up")
    monkeypatch.setitem(sys.modules, live.__name__, live)
    exec(source, vars(live))
    adopt(live, source.replace("= 4", "= 5").replace("(1, 2)", "(1, 3)"))
    assert (live.Pair(1).b, live.ONE) == (5, (1, 3))
    assert isinstance(live.ONE, live.Pair)


def test_survivors_with_a_reason_are_mutants_of_code_that_is_there():
    """tools/survivors.yaml names a mutant, or a function for all of its mutants."""
    for module, reasons in yaml.safe_load(REASONS.read_text()).items():
        found = {each.name for each in mutants((ROOT / "simulator" / module).read_text(), 10**6, "all")}
        assert reasons.keys() <= found | {name.partition(":")[0] for name in found}, module
