"""The cases that claims are about, in the words of the command line: one batch alone, or one load on a replica.

Options are those of `infercast estimate` and `infercast simulate` with underscores: model, hardware, input_len and so
on. Equal cases are computed once.
"""

import os
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from simulator.claims.claim import Options
from simulator.cost.scenario import Scenario
from simulator.deployment.deployment import Deployment
from simulator.deployment.estimate import Estimate
from simulator.errors import ProfileError, nearest
from simulator.questions.batch_question import BatchQuestion, BatchSizes
from simulator.questions.deployment_question import DeploymentQuestion
from simulator.questions.load_question import LoadQuestion, RunQuestion, SloQuestion
from simulator.questions.workload_question import WorkloadQuestion
from simulator.reports.report import Report

OWN = "INFERCAST_PROFILES"  # another folder of own profiles is another case
Frozen = tuple[tuple[str, Any], ...]


def batch_question(options: Options) -> BatchQuestion:
    """Return the question of `infercast estimate`. Raises ProfileError for an option that it does not have.

    >>> " ".join(batch_question({"model": "llama-2-7b", "hardware": "a10", "input_len": "500"}).command())
    'infercast estimate --model llama-2-7b --hardware a10 --input-len 500'
    """
    parts = _split(options, DeploymentQuestion, BatchSizes)
    return BatchQuestion(DeploymentQuestion(**parts[0]), BatchSizes(**parts[1]))


def load_question(options: Options) -> LoadQuestion:
    """Return the question of `infercast simulate`. Raises ProfileError for an option that it does not have."""
    deployment, users, accepted, run = _split(options, DeploymentQuestion, WorkloadQuestion, SloQuestion, RunQuestion)
    return LoadQuestion(
        DeploymentQuestion(**deployment), WorkloadQuestion(**users), SloQuestion(**accepted), RunQuestion(**run)
    )


def _split(options: Options, *kinds: Any) -> list[dict[str, Any]]:
    """Return the options of each kind of question; what several have, such as input_len, goes to the first of them."""
    rest, parts = dict(options), []
    for kind in kinds:
        kinds_of = {each.name: each.type for each in fields(kind)}  # numbers where a list may stand are text
        own = {name: rest.pop(name) for name in list(rest) if name in kinds_of}
        parts.append({name: str(value) if kinds_of[name] is str else value for name, value in own.items()})
    if rest:
        known = {each.name for kind in kinds for each in fields(kind)}
        name = next(iter(rest))
        raise ProfileError(f"option {name!r} of a claim", "no question has it", nearest(name, known))
    return parts


def deployment(options: Options) -> Deployment:
    """Return the only deployment that a case names, whatever else it says. Raises InfercastError where it cannot be."""
    known = {each.name for each in fields(DeploymentQuestion)}
    [own] = _split({name: value for name, value in options.items() if name in known}, DeploymentQuestion)
    return DeploymentQuestion(**own).deployment()


def estimated(options: Options) -> Estimate:
    """Return the estimate of one batch alone. Raises InfercastError where it is impossible."""
    return _estimated(_frozen(options), os.environ.get(OWN))


def simulated(options: Options) -> Report:
    """Return the report of one load on one replica. Raises InfercastError where it is impossible."""
    return scenario(options)[1]


def scenario(options: Options) -> tuple[Scenario, Report]:
    """Return a load as a scenario, with its report."""
    return _simulated(_frozen(options), os.environ.get(OWN))


@cache
def _estimated(options: Frozen, _own: str | None) -> Estimate:
    return batch_question(dict(options)).estimate()


@cache
def _simulated(options: Frozen, _own: str | None) -> tuple[Scenario, Report]:
    asked = load_question(dict(options))
    [(_, load)] = asked.users.workloads()
    found = asked.run.scenario(asked.deployment.deployment(), load, asked.accepted.value())
    return found, asked.run.report(found)


def _frozen(options: Mapping[str, Any]) -> Frozen:
    return tuple(sorted(options.items()))
