"""Measured setups for a test: the question that each is turned into, what users and engines get, and the answer."""

from dataclasses import replace
from functools import cache

from simulator.deployment.deployment import Deployment
from simulator.hardware.hardware import load_hardware
from simulator.models.model import checkpoint
from simulator.questions.load_question import LoadQuestion
from simulator.simulation.engine_workload import engine_workload
from simulator.validation.measurements import Measurement, Setup, read_published
from simulator.validation.prediction import Answered, ask
from simulator.validation.setups import place
from simulator.validation.sources import Recipe, recipe_of
from simulator.workloads.workload import Workload

CLOSED, OPEN, OFFLINE = ({"regime": each, "num_prompts": 0} for each in ("closed_loop", "open_loop", "offline"))
LLAMA_ON_H100 = {
    **{"hardware": "H100 SXM 80GB", "devices": 1, "tp": 1, "model": "Llama-3.1-8B", "engine": "vLLM"},
    **{"engine_version": "0.12.0", "input_tokens": 1024.0, "output_tokens": 64.0, "concurrency": 32},
}


@cache
def published() -> tuple[Measurement, ...]:
    """Return the published measurements that are part of infercast, read once."""
    return tuple(read_published())


def setup(**changed: object) -> Setup:
    """Return a closed loop of 32 equal requests in flight, 500 in all, with some columns changed."""
    return Setup(**{**LLAMA_ON_H100, **CLOSED, "num_prompts": 500, **changed})  # type: ignore[arg-type]


@cache
def recipe(given: Setup) -> Recipe:
    """Return what the source of a setup is known to set."""
    return recipe_of(given, checkpoint(given.model)[0], load_hardware(given.hardware))


def asked_on(given: Setup) -> Deployment:
    """Return the deployment that a setup is asked on."""
    return place(given).deployment


def question(given: Setup) -> LoadQuestion:
    """Return the question about a load."""
    found = ask(given).question
    assert isinstance(found, LoadQuestion)
    return found


def users(given: Setup) -> Workload:
    """Return what the users of one replica send, or of all behind a router."""
    asked = question(given)
    ((_, workload),) = asked.users.workloads(asked.run.shares)
    return workload


def engine_gets(given: Setup) -> Workload:
    """Return what reaches the engine of one replica: drifted apart, with repeated prompts in its cache."""
    return engine_workload(users(given), asked_on(given))


def answer(given: Setup, *, light: bool = False, level: float | None = None) -> Answered:
    """Return the answer, at the speed of light if that is asked, with intervals of a level."""
    asked = ask(given)
    return (asked.on(replace(asked.deployment, light=True)) if light else asked).answer(level)
