"""The small loads that every engine serves: their steps calibrate the predictions of its other loads."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from simulator.calibration.step_log import StepLog
from simulator.reference.timing import Pulse, drift
from simulator.workloads.arrivals import ClosedLoop, OpenLoop
from simulator.workloads.lengths import Independent, Uniform
from simulator.workloads.workload import Requests, Workload

Serve = Callable[[Requests, list[list[int]]], StepLog]
VOCABULARY = 96  # token ids that every tokenizer has
LENGTHS = Independent(Uniform(32, 300), Uniform(8, 64))
SATURATING = 60  # requests at once: what the engine carries when it never waits for users
OUTPUT_TOKENS = 8
SMALL = (*((count, prompt) for prompt in (16, 110, 256) for count in (1, 2, 4, 8, 16)), (4, 700), (2, 1000))


def small_loads(max_tokens: int) -> list[Requests]:
    """Return loads of equal requests that arrive at once: 1 to 16 prompts of 16 to 1,000 tokens, 8 output tokens each.

    Without those of more than `max_tokens` tokens per request.
    """
    return [
        Requests(np.zeros(count), np.full(count, prompt), np.full(count, OUTPUT_TOKENS))
        for count, prompt in SMALL
        if prompt + OUTPUT_TOKENS <= max_tokens
    ]


def record(serve: Serve, folder: Path, load: float, count: int, max_tokens: int = 2048) -> None:
    """Write the step logs of an engine into a folder: the small loads, twice, and `count` Poisson requests.

    `load`: their rate, as a share of the rate at which the engine serves 60 requests at once, measured between the two
    turns of the small loads. A first load, not kept, warms up: engines compile and allocate on first use. load.json
    says how much the machine's own speed changed meanwhile.
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


def random_tokens(requests: Requests) -> list[list[int]]:
    """Return random token ids below VOCABULARY for each request, as many as its prompt has; always the same."""
    rng = np.random.default_rng(0)
    return [rng.integers(0, VOCABULARY, int(length)).tolist() for length in requests.prompt_tokens]


def _write(serve: Serve, loads: list[Requests], folder: Path, turn: str) -> None:
    for index, requests in enumerate(loads):
        serve(requests, random_tokens(requests)).write(folder / f"mini-{index:02}{turn}.json")
