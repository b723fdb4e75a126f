"""Fit an engine's time per request, `request_s`, apart from what its steps take.

    python -m tools.fit_requests vllm-0.14 vllm-0.19

A fit of all constants at once puts into `request_s` what prompts take longer than predicted, and a lone request, whose
prompt takes little, then waits for what it does not have. Here each (source, device, model) has a factor of its own on
the time of its steps, and all have one time per request:

    TTFT = factor x steps + request_s + the measured times of a request

by least absolute relative errors. The factors are used for nothing else. Presets get the value by hand.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from simulator.arrays import Floats
from simulator.errors import InfercastError
from simulator.validation.measurements import Measurement, read_measurements
from simulator.validation.scores import GRADES
from tools.curves import ask_all
from tools.fitting import EXCLUDED, TABLES, UNSEEN_KINDS

MOST_IN_FLIGHT = 16  # beyond, the queue is most of TTFT
SETUPS = 12  # of a group, spread over its range
ROUNDS, LEAST = 200, 1e-3  # of reweighted least squares; a relative error that is small enough


class Requests(NamedTuple):
    """Measured TTFT of rows in seconds, their predicted steps and known times per request, and their groups (rows,)."""

    ttft_s: Floats
    steps_s: Floats
    known_s: Floats
    groups: Sequence[tuple[str, str, str]]


def fitted(rows: Requests) -> float:
    """Return the seconds per request, with a factor for each group on the time of its steps.

    >>> steps = np.array([0.02, 0.08, 0.01, 0.03])
    >>> group = [("a", "", "")] * 2 + [("b", "", "")] * 2
    >>> ttft = np.array([0.03, 0.09, 0.03, 0.07])  # 10 ms and the steps once, or twice
    >>> round(fitted(Requests(ttft, steps, np.zeros(4), group)), 6)
    0.01
    """
    names = sorted(set(rows.groups))
    columns = [rows.steps_s * np.array([group == name for group in rows.groups]) for name in names]
    shares = np.stack([np.ones(len(rows.ttft_s)), *columns], axis=1) / rows.ttft_s[:, None]
    wanted = (rows.ttft_s - rows.known_s) / rows.ttft_s
    sizes = np.array([rows.groups.count(group) for group in rows.groups], dtype=np.float64)
    weights: Floats = 1.0 / sizes
    found: Floats = np.zeros(shares.shape[1])
    for _ in range(ROUNDS):
        root = np.sqrt(weights)
        found = np.asarray(np.linalg.lstsq(shares * root[:, None], wanted * root, rcond=None)[0], np.float64)
        weights = 1.0 / sizes / np.maximum(np.abs(wanted - shares @ found), LEAST)
    return float(found[0])


def measured(engines: Sequence[str]) -> Requests:
    """Return the closed loops of a few in flight that some presets ran, with their predictions."""
    rows = [row for table in TABLES for row in read_measurements(table) if _is_wanted(row)]
    asked = ask_all(rows)
    rows = [row for row in rows if row.id in asked and asked[row.id].deployment.engine.id in engines]
    found = []
    for row in _spread(rows):
        deployment, tokens = asked[row.id].deployment, row.setup.input_tokens
        outside_s = float(deployment.request_s(tokens))
        try:
            ttft_s = 1e-3 * asked[row.id].answer().value(row.metric, row.stat)
        except InfercastError:
            continue
        known_s = outside_s - float(deployment.overheads.request_s)
        found.append((1e-3 * row.value, ttft_s - outside_s, known_s, row.group))
    if not found:
        because = "no closed loop of a few requests in flight was measured with them"
        raise InfercastError(f"presets {', '.join(engines)}", because, "Name others of simulator/engines")
    ttft_s, steps_s, known_s = np.array([each[:3] for each in found]).T
    return Requests(ttft_s, steps_s, known_s, [each[3] for each in found])


def _is_wanted(row: Measurement) -> bool:
    setup = row.setup
    known = row.metric == "ttft_ms" and row.quality in (*GRADES, "") and setup.replicas <= 1
    few = setup.regime == "closed_loop" and 0 < setup.concurrency <= MOST_IN_FLIGHT
    return known and few and row.group not in EXCLUDED and not any(of(row) for of in UNSEEN_KINDS)


def _spread(rows: Sequence[Measurement]) -> list[Measurement]:
    """Return some rows of each group, spread over its requests in flight and lengths."""
    groups = defaultdict(list)
    for row in rows:
        groups[row.group].append(row)
    found = []
    for each in groups.values():
        each.sort(key=lambda row: (row.setup.concurrency, row.setup.input_tokens, row.setup.tp, row.id))
        found += [each[at] for at in sorted(set(np.linspace(0, len(each) - 1, SETUPS).round().astype(int).tolist()))]
    return found


def without(rows: Requests, group: tuple[str, str, str]) -> Requests:
    """Return the rows of all groups but one."""
    kept = np.array([each != group for each in rows.groups])
    groups = [each for each in rows.groups if each != group]
    return Requests(rows.ttft_s[kept], rows.steps_s[kept], rows.known_s[kept], groups)


def lines(rows: Requests) -> Iterator[str]:
    """Yield the time per request, and what it is without each group in turn."""
    groups = sorted(set(rows.groups))
    yield f"request_s {1e3 * fitted(rows):.1f} ms: {len(rows.ttft_s)} rows of {len(groups)} groups"
    for group in groups if len(groups) > 1 else ():
        yield f"  {1e3 * fitted(without(rows, group)):5.1f} ms without {', '.join(group)}"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in lines(measured(sys.argv[1:])))
