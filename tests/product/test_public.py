"""The gate of the public functions refuses what their annotations do not allow, and lets through what they do."""

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import simulator
from simulator.errors import InfercastError
from simulator.executors.executor import TaskExecutor
from simulator.executors.threads import Threads
from simulator.public import checked


def made(
    name: str,
    *numbers: int,
    share: float = 1.0,
    path: str | Path | None = None,
    kind: Literal["a", "b"] = "a",
    many: Iterable[float] = (),
    pair: tuple[str, str] = ("", ""),
    executor: TaskExecutor | str = "",
    unknown=None,
) -> tuple:
    return name, numbers, share, path, kind, many, pair, executor, unknown


@pytest.mark.parametrize(
    ("positional", "named"),
    [
        (("x", 1, np.int64(2)), {"share": np.float32(0.5), "path": Path("a"), "many": np.arange(3.0)}),
        (("x",), {"share": 1, "path": "a", "kind": "b", "many": (each for each in (1, 2)), "unknown": object()}),
        (("x",), {"path": None, "many": [1, 2.5], "pair": ["fp8", ""], "executor": Threads(1)}),
    ],
)
def test_what_annotations_allow_passes(positional, named):
    assert checked(made)(*positional, **named)[0] == "x"


@pytest.mark.parametrize(
    ("positional", "named", "said"),
    [
        ((None,), {}, "name None: made takes no NoneType for it. Give a text."),
        (("x", 1, "2"), {}, "numbers '2': made takes no str for it. Give a whole number."),
        (("x", 1.5), {}, "numbers 1.5: made takes no float for it. Give a whole number."),
        (("x",), {"share": "0.5"}, "share '0.5': made takes no str for it. Give a number."),
        (("x",), {"path": 3}, "path 3: made takes no int for it. Give a text or a Path or None."),
        (("x",), {"kind": "c"}, "kind 'c': made takes no str for it. Give 'a' or 'b'."),
        (("x",), {"many": "12"}, "many '12': made takes no str for it. Give a list, each a number."),
        (("x",), {"many": [1, "2"]}, "many [1, '2']: made takes no list for it. Give a list, each a number."),
        ((), {}, "made(..): missing a required argument: 'name'. It takes name, numbers, share,"),
        (("x",), {"tp": 2}, "made(..): got an unexpected keyword argument 'tp'. It takes name,"),
    ],
)
def test_what_they_do_not_is_refused_in_three_parts(positional, named, said):
    with pytest.raises(InfercastError) as refused:
        checked(made)(*positional, **named)
    assert str(refused.value).startswith(said)


def test_all_public_functions_have_the_gate():
    for wrong in (lambda: simulator.deploy("llama-3.1-8b", ["h100-sxm"]), lambda: simulator.load_model(None)):
        with pytest.raises(InfercastError, match="Give a text"):
            wrong()
    with pytest.raises(InfercastError, match="each a Scenario"):
        simulator.compare(["llama-3.1-8b"], rate_per_s=1.0)
    with pytest.raises(InfercastError, match="no scenario to answer"):
        simulator.compare([], rate_per_s=1.0)
    with pytest.raises(InfercastError, match="rate_per_s '5'"):
        simulator.OpenLoop("5")


def test_a_public_function_goes_to_other_processes():
    assert pickle.loads(pickle.dumps(simulator.deploy)) is simulator.deploy
