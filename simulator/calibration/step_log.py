"""What an engine did, step by step: one schema for ours, vLLM and OpenVINO, as a table and as JSON."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from simulator.errors import ProfileError, reason
from simulator.files import parse_json, read_text, write_whole
from simulator.limits import MOST_WHOLE
from simulator.models.operations import Counts, Span, count
from simulator.models.operations import Sequence as Row
from simulator.units import MOST

if TYPE_CHECKING:  # numba, which vLLM on a CPU must not find loaded (reference/vllm_cpu.py)
    from simulator.scheduler.state import State


LIMITS = ("max_num_seqs", "max_num_batched_tokens", "num_blocks", "block_size")  # that every log states


class StepPart(NamedTuple):
    """One sequence of a step: index of its request, new tokens, and tokens that its KV cache already holds."""

    request: int
    new_tokens: int
    past_tokens: int


def parts_of(s: "State") -> tuple[StepPart, ...]:
    """Return the sequences of the step that `schedule` decided, decodes first, in the order of the running list."""
    book, slots = s.book[0], s.slots[: s.book[0].running]
    tick, decoding = int(book.tick), int(book.decoding)
    new = 1 + int(s.limits.draft_tokens)
    parts = [StepPart(int(slot.request), new, int(slot.cached) + tick) for slot in slots[:decoding] if book.decode_now]
    chunks = (StepPart(int(slot.request), int(slot.chunk), int(slot.cached)) for slot in slots[decoding:])
    return (*parts, *(part for part in chunks if part.new_tokens > 0))


def kind_of(parts: Sequence[StepPart]) -> str:
    """Return "prefill", "decode" or "mixed"; one new token after a past is a decode, as in `operations.count`.

    >>> kind_of([StepPart(0, 1, 100), StepPart(1, 512, 0)])
    'mixed'
    """
    decodes = sum(part.new_tokens == 1 and part.past_tokens > 0 for part in parts)
    return "prefill" if not decodes else "decode" if decodes == len(parts) else "mixed"


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """One step: its start and length in seconds, and the sequences that it computed."""

    start_s: float
    seconds: float
    parts: tuple[StepPart, ...]

    @property
    def kind(self) -> str:
        """The kind of step: prefill, decode or mixed."""
        return kind_of(self.parts)

    def counts(self, span: Span | None = None) -> Counts:
        """Return the counts of the step; `span`: of the model's local layers, None for none."""
        return count([Row(part.new_tokens, part.past_tokens) for part in self.parts], span)


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request: its lengths in tokens, its times in seconds since the start of the run."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    first_token_s: float
    finished_s: float


@dataclass(frozen=True, slots=True)
class StepLog:
    """The log of an engine's run; `about` says which engine, on what, when; `limits` are those of its scheduler."""

    about: dict[str, str]
    limits: dict[str, int]
    steps: tuple[LoggedStep, ...]
    requests: tuple[LoggedRequest, ...]

    def write(self, path: Path) -> None:
        """Write the log as JSON; seconds are rounded to microseconds."""
        steps = [[round(s.start_s, 6), round(s.seconds, 6), [list(part) for part in s.parts]] for s in self.steps]
        requests = [[round(value, 6) for value in asdict(each).values()] for each in self.requests]
        body = {"about": self.about, "limits": self.limits, "steps": steps, "requests": requests}
        write_whole(path, json.dumps(body, separators=(",", ":")) + "\n")


def read_log(path: Path) -> StepLog:
    """Return the log in a JSON file. Raises ProfileError for any other file."""
    try:
        body: dict[str, Any] = parse_json(read_text(path))
        steps = tuple(LoggedStep(_time_s(at), _time_s(took), _parts(parts)) for at, took, parts in body["steps"])
        requests = tuple(_request(*each) for each in body["requests"])
        about = {str(key): str(value) for key, value in dict(body["about"]).items()}
        limits = {str(key): _count(value) for key, value in dict(body["limits"]).items()}
        return _sound(StepLog(about, limits, steps, requests))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProfileError(
            str(path), f"it is no step log ({reason(error)})", "Write one with `infercast check`"
        ) from error


def _sound(log: StepLog) -> StepLog:
    """Return a log that can be replayed. Raises ValueError for one that cannot."""
    if missing := [name for name in LIMITS if not log.limits.get(name)]:
        raise ValueError(f"its limits lack {', '.join(missing)}")
    if not (log.requests and log.steps and all(step.seconds and step.parts for step in log.steps)):
        raise ValueError("it has no requests or no steps, or a step without a time or parts")
    if not all(each.prompt_tokens and each.output_tokens for each in log.requests):
        raise ValueError("a request has at least one token each way")
    computed = sum(part.new_tokens for step in log.steps for part in step.parts)
    if sum(each.output_tokens for each in log.requests) > computed + len(log.requests):
        raise ValueError("its requests have more output tokens than its steps computed")
    return log


def _parts(rows: Sequence[Sequence[int]]) -> tuple[StepPart, ...]:
    return tuple(StepPart(*map(_count, row)) for row in rows)


def _request(arrival_s: float, prompt: int, output: int, first_s: float, finished_s: float) -> LoggedRequest:
    return LoggedRequest(_time_s(arrival_s), _count(prompt), _count(output), _time_s(first_s), _time_s(finished_s))


def _time_s(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST["s"]:
        raise ValueError(f"{value!r} is not a time in seconds")
    return float(value)


def _count(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value <= MOST_WHOLE:
        raise ValueError(f"{value!r} is not a whole number")
    return int(value)


def typical_steps(runs: Iterable[Sequence[LoggedStep]], span: Span | None = None) -> list[tuple[Counts, float]]:
    """Return the mean counts and median seconds of steps that are alike: as many sequences and as many new tokens.

    `runs`: the steps of each load; steps of different loads are not mixed. `span`: of the model's local layers.
    """
    alike: dict[tuple[int, int, int], list[LoggedStep]] = defaultdict(list)
    for index, steps in enumerate(runs):
        for step in steps:
            alike[index, len(step.parts), sum(part.new_tokens for part in step.parts)].append(step)
    return [(_mean(steps, span), float(np.median([step.seconds for step in steps]))) for steps in alike.values()]


def _mean(steps: Sequence[LoggedStep], span: Span | None) -> Counts:
    return Counts(*(float(np.mean(column)) for column in zip(*(step.counts(span) for step in steps), strict=True)))
