"""What asks for more than a machine has is refused before anything is allocated, with the number."""

import resource
import time

import pytest

from simulator.errors import InfercastError
from simulator.limits import SMALL_BYTES, free_bytes, refuse_beyond_memory
from tests.support.commands import refused

BASE = ("--model", "smollm2-135m", "--hardware", "l4")
LENGTHS = ("--isl", "64", "--osl", "8")
OPEN = (*BASE, *LENGTHS, "--request-rate", "2", "--num-prompts", "20")
BILLION = "1000000000"
HUGE = ["--engine", "vllm", "--max-num-seqs", "1000000000", "--max-num-batched-tokens", "1000000000"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("estimate", *BASE, *LENGTHS, "--pp", "1000000"), "pp 1000000: each stage has a layer at least"),
        (("simulate", *OPEN, *HUGE), "a table of steps of up to 1,000,000,000 tokens"),
        (("fleet", *OPEN, "--replicas", "1000000"), "1,000,000 engines: a fleet of up to"),
        (("fleet", *OPEN, "--router", "least-connections", "--router-workers", BILLION), "router workers that count"),
        (("fleet", *OPEN, "--turns", "1000000000"), "1,000,000,000 turns: it would take"),
        (("fleet", *OPEN, "--turns", "500000"), "tokens together"),
        (("simulate", *BASE, *LENGTHS, "--max-concurrency", BILLION), "request_count 10000000000: it"),
        (("simulate", *BASE, *LENGTHS, "--max-concurrency", "4", "--num-dataset-entries", "2000000000"), "repeat"),
        (("simulate", *OPEN, "--prefix-len", BILLION, "--num-prefixes", BILLION), "prefix blocks that 20 requests"),
        (("simulate", *OPEN, "--num-prompts", "100000000"), "100,000,000 requests: it would take"),
        (("estimate", *BASE, "--isl", "64", "--osl", BILLION, "--assume-fits"), "1,000,000,000 output tokens: it"),
    ],
    ids=lambda value: " ".join(value[-2:]) if isinstance(value, tuple) else "",
)
def test_an_option_that_asks_for_too_much_is_refused_at_once(
    words: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simulator.limits.free_bytes", lambda: 4e9)  # on a large machine, too
    began_s, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert told in refused(*words)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kB
    assert time.process_time() - began_s < 60  # a hang, not a slow machine


def test_memory_is_what_is_free_here() -> None:
    assert SMALL_BYTES < free_bytes() < 1e15
    refuse_beyond_memory("a little", SMALL_BYTES / 2, "Ask for less")
    with pytest.raises(InfercastError, match=r"^a lot: it would take .* GiB of memory, where .* GiB is free\. Ask"):
        refuse_beyond_memory("a lot", 1e16, "Ask for less")
