"""Chat sessions: each turn's prompt contains the whole conversation so far, with thinking time between turns."""

from dataclasses import replace

import numpy as np

from simulator.errors import WorkloadError
from simulator.limits import refuse_beyond_memory
from simulator.simulation.clients import Clients
from simulator.workloads.arrivals import ClosedLoop
from simulator.workloads.shared_prefixes import Prefixes
from simulator.workloads.workload import REQUEST_BYTES, Requests, Workload

PREFIX_BLOCK_TOKENS = 64
PREFIX_BLOCK_BYTES = 100  # of a block in one prompt, while ids are made and sorted
MAX_BLOCKS = 2**32  # prefix blocks of one session, so that ids of two sessions never meet


def sessions(
    workload: Workload, turns: int, think_s: float, clients: Clients | None = None, shared_tokens: int = 0
) -> tuple[Requests, Clients]:
    """Return a workload's requests as sessions of `turns` turns each, and the clients that send them.

    Sessions start at the workload's arrival process slowed down `turns` times, so that requests per second stay the
    same. A turn's prompt is the previous prompt and output, followed by a new prompt of the workload's lengths. All
    sessions begin with the same `shared_tokens` (a system prompt, within the first prompt). `think_s` is in seconds.

    Raises WorkloadError for less than one turn, negative thinking time, or a closed loop.

    >>> from simulator.workloads.lengths import Fixed, Independent
    >>> from simulator.workloads.arrivals import OpenLoop
    >>> asked, who = sessions(Workload(OpenLoop(1.0), Independent(Fixed(100), Fixed(20)), 3), turns=3, think_s=5.0)
    >>> asked.prompt_tokens, who.follows
    (array([100, 220, 340]), array([-1,  0,  1]))
    """
    if turns < 1 or not think_s >= 0:
        given = f"sessions of {turns} turns with {think_s:g} s to think"
        raise WorkloadError(given, "turns must be 1 or more, thinking time 0 s or more", "Give, say, 5 turns and 30 s")
    if isinstance(workload.arrivals, ClosedLoop):
        because = "a closed loop and sessions both say when a request is sent"
        raise WorkloadError("sessions in a closed loop", because, "Give a rate")
    count = -(-workload.request_count // turns)
    refuse_beyond_memory(f"{count * turns:,} turns", float(count * turns) * REQUEST_BYTES, "Give fewer --turns")
    drawn = replace(workload, request_count=count * turns).requests()
    begins = replace(workload, request_count=count)
    rate = getattr(begins.arrivals, "rate_per_s", 1.0)
    arrival_s = np.repeat(begins.at_rate(rate / turns).requests().arrival_s, turns)
    said = (drawn.prompt_tokens + drawn.output_tokens).reshape(count, turns)
    before = np.cumsum(said, axis=1) - said
    prompts = before.ravel() + drawn.prompt_tokens
    rows = np.arange(count * turns)
    follows = np.where(rows % turns > 0, rows - 1, -1)
    tokens = float((prompts + drawn.output_tokens).sum())
    given = f"sessions of {turns:,} turns, whose prompts have {tokens:,.0f} tokens together"
    remedy = "Give fewer or shorter --turns"
    refuse_beyond_memory(given, tokens / PREFIX_BLOCK_TOKENS * PREFIX_BLOCK_BYTES, remedy)
    prefix_blocks = (prompts + drawn.output_tokens) // PREFIX_BLOCK_TOKENS
    place = np.concatenate([np.arange(each) for each in prefix_blocks])
    session = np.repeat(rows // turns + 1, prefix_blocks)
    ids = np.where((place + 1) * PREFIX_BLOCK_TOKENS <= shared_tokens, 0, session) * MAX_BLOCKS + place
    prefixes = Prefixes(ids, np.cumsum(prefix_blocks) - prefix_blocks, prefix_blocks, PREFIX_BLOCK_TOKENS)
    asked = Requests(arrival_s, prompts, drawn.output_tokens, prefixes=prefixes)
    return asked, replace(clients or Clients(), follows=follows, think_s=np.full(len(rows), think_s))
