"""Export of a run as a trace for ui.perfetto.dev and chrome://tracing: steps, counters and the first requests."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.files import write_whole
from simulator.reports.latency_breakdown import by_engine
from simulator.simulation.engine_loop import Run

MAX_REQUESTS, MAX_STEPS = 1_000, 100_000  # some 25 MB; a viewer takes more, but slowly
STEPS_TRACK = 1
Event = dict[str, Any]


def trace(run: Run, max_requests: int = MAX_REQUESTS, max_steps: int = MAX_STEPS) -> dict[str, Any]:
    """Return a run in Chrome's JSON trace format, with times in microseconds from the start of the run.

    One process per engine: its steps are complete events ("X"), with one track for each batch that a pipeline has in
    flight, its gauges are counters ("C"). The first requests are nestable asynchronous slices ("b", "e") of queue,
    prefill and decode. At most `max_steps` steps per engine are included, until the last of these requests is done;
    `otherData` counts those left out. Source: "Trace Event Format" (Chromium project).
    """
    shown = slice(0, min(max_requests, len(run.requests)))
    until_s = float(run.finished_s[shown].max())
    events: list[Event] = []
    left_out = 0
    for number, (steps, served) in enumerate(by_engine(run)):
        started = steps[steps.start_s < until_s]
        left_out += len(steps) - min(len(started), max_steps)
        events.append({"ph": "M", "name": "process_name", "pid": number, "args": {"name": f"engine {number}"}})
        events += _steps(started[:max_steps], number, run.limits.num_blocks)
        rows = np.arange(len(run.requests))[served]
        events += [event for row in rows[rows < shown.stop] for event in _request(run, int(row), number)]
    other = {"steps_left_out": left_out, "requests_left_out": len(run.requests) - shown.stop}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}


def _micro(seconds: float) -> float:
    return round(float(seconds) * 1e6, 3)


def _steps(steps: npt.NDArray[np.void], engine: int, num_blocks: int) -> list[Event]:
    events: list[Event] = []
    ends: list[float] = []  # of the last step on each track
    for step in steps:
        kind = "mixed" if step["decodes"] and step["prompts"] else "decode" if step["decodes"] else "prefill"
        counts = {name: int(step[name]) for name in ("decodes", "prompts", "prompt_tokens")}
        begin, end = _micro(step["start_s"]), _micro(step["start_s"] + step["seconds"])
        track = next((track for track, last in enumerate(ends) if last <= begin), len(ends))
        at = {"pid": engine, "tid": STEPS_TRACK + track, "ts": begin}
        if track == len(ends):
            ends.append(end)
            events.append({"ph": "M", "name": "thread_name", **at, "args": {"name": "steps"}})
        ends[track] = end
        duration = round(end - begin, 3)  # not the rounded one: a step that laps over the next is drawn inside it
        events.append({"ph": "X", "name": kind, "cat": "step", **at, "dur": duration, "args": counts})
        queue = {"running": int(step["running"]), "waiting": int(step["waiting"])}
        events.append({"ph": "C", "name": "requests", **at, "args": queue})
        usage = round(float(step["blocks"]) / num_blocks, 6)
        events.append({"ph": "C", "name": "KV cache", **at, "args": {"usage": usage}})
    return events


def _request(run: Run, row: int, engine: int) -> list[Event]:
    """Return a request as a slice that contains slices of its three parts."""
    requests = run.requests
    arrival_s, scheduled_s = float(requests.arrival_s[row]), float(run.scheduled_s[row])
    first_s, finished_s = float(run.first_token_s[row]), float(run.finished_s[row])
    about = {
        "prompt_tokens": int(requests.prompt_tokens[row]),
        "output_tokens": int(requests.output_tokens[row]),
        "preemptions": int(run.preemptions[row]),
    }
    slices: tuple[tuple[str, float, float, dict[str, int]], ...] = (
        (f"request {row}", arrival_s, finished_s, about),
        ("queue", arrival_s, scheduled_s, {}),
        ("prefill", scheduled_s, first_s, {}),
        ("decode", first_s, finished_s, {}),
    )
    common = {"cat": "request", "id": row, "pid": engine, "tid": STEPS_TRACK}
    begins = [{"ph": "b", "name": name, "ts": _micro(at), "args": args, **common} for name, at, _, args in slices]
    ends = [{"ph": "e", "name": name, "ts": _micro(at), **common} for name, _, at, _ in slices]
    whole, *parts = zip(begins, ends, strict=True)
    return [whole[0], *(event for part in parts for event in part), whole[1]]


def write_trace(run: Run, path: Path) -> None:
    """Write the trace of a run to a file. Raises InfercastError if that cannot be written."""
    text = json.dumps(trace(run), separators=(",", ":")) + "\n"
    write_whole(path, text, "--trace-out")
