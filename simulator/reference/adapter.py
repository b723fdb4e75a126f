"""Serve a workload on another engine in real time and record it as a StepLog."""

import time
from collections.abc import Collection, Sequence
from typing import Protocol

from simulator.calibration.step_log import LoggedRequest, LoggedStep, StepLog, StepPart
from simulator.workloads.workload import Requests


class Adapter(Protocol):
    """One engine behind a common interface: takes requests, and computes one step at a time.

    `about`: engine, version, dtype. `limits`: the integer fields of a StepLog's limits (max_num_seqs, num_blocks, ...).
    """

    about: dict[str, str]
    limits: dict[str, int]

    def send(self, request: int, prompt: list[int], output_tokens: int) -> None:
        """Queue a request: its number, its prompt's token ids, and the number of tokens to generate."""
        ...

    def step(self) -> tuple[Sequence[StepPart], Collection[int]]:
        """Compute one step; return the sequences it computed, and the numbers of the requests that got a token."""
        ...


def step_log_of(engine: Adapter, requests: Requests, prompts: Sequence[list[int]]) -> StepLog:
    """Send each request at its arrival time (seconds), step until all are done, and return the log."""
    first_s, last_s = [0.0] * len(requests), [0.0] * len(requests)
    left: dict[int, int] = {}
    steps, sent, origin_s = list[LoggedStep](), 0, time.perf_counter()
    while sent < len(requests) or left:
        now_s = time.perf_counter() - origin_s
        while sent < len(requests) and requests.arrival_s[sent] <= now_s:
            left[sent] = int(requests.output_tokens[sent])
            engine.send(sent, prompts[sent], left[sent])
            sent += 1
        if not left:
            time.sleep(max(0.0, float(requests.arrival_s[sent]) - now_s))
            continue
        parts, came = engine.step()
        end_s = time.perf_counter() - origin_s
        if parts:
            steps.append(LoggedStep(now_s, end_s - now_s, tuple(parts)))
        for request in came:
            first_s[request] = first_s[request] or end_s
            last_s[request] = end_s
            left[request] -= 1
            if left[request] == 0:
                del left[request]
    columns = (requests.arrival_s, requests.prompt_tokens, requests.output_tokens)
    rows = zip(*(each.tolist() for each in columns), first_s, last_s, strict=True)
    return StepLog(engine.about, engine.limits, tuple(steps), tuple(LoggedRequest(*row) for row in rows))
