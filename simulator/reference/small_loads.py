"""Small workloads that any engine runs through its own scheduler: the steps that calibrate its predictions."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from simulator.arrivals import ClosedLoop, OpenLoop
from simulator.lengths import Independent, Uniform
from simulator.reference.timing import Pulse, drift
from simulator.steplog import StepLog
from simulator.workload import Requests, Workload

Serve = Callable[[Requests, list[list[int]]], StepLog]
LENGTHS = Independent(Uniform(32, 300), Uniform(8, 64))
SATURATING = 60  # requests at once: what the engine carries when it never waits for users
OUTPUT_TOKENS = 8
SMALL = (*((count, prompt) for prompt in (16, 110, 256) for count in (1, 2, 4, 8, 16)), (4, 700), (2, 1000))


def small_loads(max_tokens: int) -> list[Requests]:
    """Return loads of equal requests that all arrive at once, without those longer than the engine takes."""
    return [
        Requests(np.zeros(count), np.full(count, prompt), np.full(count, OUTPUT_TOKENS))
        for count, prompt in SMALL
        if prompt + OUTPUT_TOKENS <= max_tokens
    ]


def record(serve: Serve, folder: Path, load: float, count: int, max_tokens: int = 2048) -> None:
    """Write the logs of an engine: the small loads, twice, then Poisson requests at a share of what it can carry.

    A first load, not kept, warms up: engines compile and allocate on first use. Between the two turns of the small
    loads it is seen what the engine can carry. How much the machine's own speed changed meanwhile is said in load.json.
    """
    folder.mkdir(parents=True, exist_ok=True)
    small = small_loads(max_tokens)
    serve(small[0], random_tokens(small[0]))
    pulses = [Pulse.elsewhere()]
    _write(serve, small, folder, "a")
    full = Workload(ClosedLoop(SATURATING), LENGTHS, SATURATING).requests()
    last = serve(full, random_tokens(full)).steps[-1]
    _write(serve, small, folder, "b")
    pulses.append(Pulse.elsewhere())
    rate_per_s = load * SATURATING / (last.start_s + last.seconds)
    requests = Workload(OpenLoop(rate_per_s), LENGTHS, count).requests()
    log = serve(requests, random_tokens(requests))
    pulses.append(Pulse.elsewhere())
    replace(log, about=log.about | {"drift": f"{drift(pulses):.2f}"}).write(folder / "load.json")


def _write(serve: Serve, loads: list[Requests], folder: Path, turn: str) -> None:
    for index, requests in enumerate(loads):
        serve(requests, random_tokens(requests)).write(folder / f"mini-{index:02}{turn}.json")


def random_tokens(requests: Requests, vocab: int = 96) -> list[list[int]]:
    """Return seeded random prompts of the requests' lengths."""
    rng = np.random.default_rng(0)
    return [rng.integers(0, vocab, int(length)).tolist() for length in requests.prompt_tokens]
