"""What a scheduler knows: limits, one book, a table of requests and the running list, as arrays for compiled code."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.compiled import compiled

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

CONTINUOUS, STATIC, PROMPTS_FIRST = 0, 1, 2
POLICIES = {"continuous": CONTINUOUS, "static": STATIC, "prompts-first": PROMPTS_FIRST}
NEVER = 2**62

BOOK = np.dtype(
    [
        (name, np.int64)
        for name in (
            "tick",  # decode steps so far
            "running",  # sequences in the running list
            "decoding",  # of these, the first so many decode
            "free_blocks",
            "arrived",  # requests 0 .. arrived-1 have arrived
            "fresh",  # requests 0 .. fresh-1 have been admitted at least once
            "preempted",  # size of the stack of preempted requests; they go first
            "next_event_tick",  # no decoding sequence ends or outgrows its window before it
            "base_sum",  # of `cached` over decoding sequences
            "open_base_sum",  # the same over those still inside their window
            "open_reads",  # number of those
            "unfinished",  # decoding sequences that have tokens to produce (static batches pad the others)
            "finished",  # requests finished so far
            "released",  # closed loop: requests 0 .. released-1 have been sent
            "decode_now",  # this step: decoding sequences advance
            "prompt_tokens",  # this step: tokens of prompts
            "prompt_pairs",
            "prompt_pairs_windowed",
            "scheduled",  # this step: sequences
            "promised",  # blocks that running requests hold at their end, where only such are admitted as fit to it
        )
    ]
)


class Limits(NamedTuple):
    """What an engine is allowed; blocks(t) = full_groups ceil(t/b) + window_groups min(ceil(t/b), window_blocks)."""

    policy: int
    max_num_seqs: int
    max_num_batched_tokens: int
    num_blocks: int
    block_size: int
    admit_full_prompt: bool
    async_scheduling: bool  # a step is decided while the one before runs, so it misses the arrivals in between
    window: int  # 0: no layer has one
    full_groups: int
    window_groups: int
    window_blocks: int
    admit_full_output: bool = False  # a request waits until all that it will ever hold is sure to fit


REQUEST = np.dtype(
    [
        ("prompt_tokens", np.int64),
        ("output_tokens", np.int64),
        ("emitted", np.int64),  # tokens produced before the last preemption
        ("preemptions", np.int64),
        ("scheduled_s", np.float64),
        ("first_token_s", np.float64),
        ("finished_s", np.float64),
        ("stalled_s", np.float64),  # time between preemptions and the next tokens
    ]
)

SLOT = np.dtype(
    [
        ("request", np.int64),
        ("cached", np.int64),  # tokens in the cache; minus `tick` while decoding
        ("last_tick", np.int64),  # tick at which a decoding sequence has produced everything
        ("chunk", np.int64),  # tokens of its prompt that this step computes
        ("open_reads", np.int64),  # 1 while a decoding sequence is shorter than the window
        ("open_blocks", np.int64),  # 1 while its windowed blocks still grow
    ]
)
Table = np.recarray[Any, Any]  # rows are records: row.field reads and writes


class State(NamedTuple):
    """Everything a scheduler knows."""

    limits: Limits
    book: Table  # one row
    requests: Table
    slots: Table  # the running list, in order of admission
    preempted: Ints  # a stack of requests
    growth: Ints  # blocks that decoding sequences need when -tick is this modulo the block size


def new_state(limits: Limits, prompt_tokens: Ints, output_tokens: Ints) -> State:
    """Return the state before the first request arrives."""
    book = np.zeros(1, BOOK).view(np.recarray)
    book[0].free_blocks = limits.num_blocks
    book[0].next_event_tick = NEVER
    requests = np.zeros(len(prompt_tokens), REQUEST).view(np.recarray)
    requests.prompt_tokens, requests.output_tokens = prompt_tokens, output_tokens
    for name in ("scheduled_s", "first_token_s", "finished_s"):
        requests[name] = np.nan
    slots = np.zeros(limits.max_num_seqs, SLOT).view(np.recarray)
    return State(
        limits, book, requests, slots, np.zeros(limits.max_num_seqs, np.int64), np.zeros(limits.block_size, np.int64)
    )


@compiled
def blocks(limits: Limits, tokens: int) -> int:
    """Return the cache blocks that a sequence of so many cached tokens holds."""
    full = -(-tokens // limits.block_size)
    return limits.full_groups * full + limits.window_groups * min(full, limits.window_blocks)


@compiled
def pairs(new: int, past: int, window: int) -> int:
    """Count causal query-key pairs of `new` tokens after `past`; a window of 0 is none (see work.pairs)."""
    growing = new if window == 0 else max(0, min(new, window - past))
    return growing * past + growing * (growing + 1) // 2 + (new - growing) * window


@compiled
def waiting(s: State) -> int:
    """Count requests that have arrived and are neither running nor finished."""
    book = s.book[0]
    return book.preempted + book.arrived - book.fresh
