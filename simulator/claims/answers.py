"""All computations that answer claims, by the name under which claims.yaml asks for them."""

import shlex
from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any

from simulator.claims import cost_answers, latency_answers, load_answers, memory_answers
from simulator.claims.cases import batch_question, deployment, load_question
from simulator.claims.claim import Claim, ClaimedFigure, Options
from simulator.errors import ProfileError, nearest
from simulator.questions.batch_question import BatchQuestion
from simulator.questions.load_question import LoadQuestion
from simulator.reports import provenance

FILES = (latency_answers, memory_answers, load_answers, cost_answers)
ANSWERS: Mapping[str, Callable[..., float]] = {
    name: function
    for file in FILES
    for name, function in vars(file).items()
    if callable(function) and function.__module__ == file.__name__ and not name.startswith("_")
}
QUESTIONS: Mapping[str, Callable[[Options], BatchQuestion | LoadQuestion]] = {  # answers that are a command's key
    "estimate": batch_question,
    "simulate": load_question,
}


def figure(claim: Claim, check: ClaimedFigure) -> float:
    """Return the figure of a check, in SI units: its computation, over the same one with the options of `over`.

    Raises ProfileError for a computation that there is not, InfercastError for options that are impossible.
    """
    answer, options = _answer(check), _options(claim, check)
    value = answer(**options)
    return value / answer(**{**options, **check.over}) if check.over else value


def _answer(check: ClaimedFigure) -> Callable[..., float]:
    if check.answer not in ANSWERS:
        raise ProfileError(f"answer {check.answer!r}", "no computation has that name", nearest(check.answer, ANSWERS))
    return ANSWERS[check.answer]


def _options(claim: Claim, check: ClaimedFigure) -> dict[str, Any]:
    """Return the options of a check: its own, over those of the claim that its computation takes."""
    taken = signature(_answer(check)).parameters
    every = any(each.kind is Parameter.VAR_KEYWORD for each in taken.values())
    return {**{name: value for name, value in claim.given.items() if every or name in taken}, **check.given}


def claim_commands(claim: Claim) -> list[str]:
    """Return the command lines whose JSON has the figures of a claim, each with the key; of a ratio there are two.

    Only for figures that `infercast estimate` and `infercast simulate` print.
    """
    found: dict[str, None] = {}
    for check in claim.checks:
        if check.answer in QUESTIONS:
            options = _options(claim, check)
            for each in (options, {**options, **check.over}):
                asked = {name: value for name, value in each.items() if name not in ("key", "scale")}
                found[f"{shlex.join(QUESTIONS[check.answer](asked).command())}  # {each['key']}"] = None
    return list(found)


def figures_behind_claim(claim: Claim) -> list[provenance.Provenance]:
    """Return the figures of profiles on which the deployments of a claim rest, each once."""
    cases = [_options(claim, each) | over for each in claim.checks for over in ({}, each.over)]
    replicas = [deployment(each) for each in cases if {"model", "hardware"} <= each.keys()]
    return list(dict.fromkeys(used for each in replicas for used in provenance.figures_behind(each)))
