"""Chat sessions: each turn's prompt contains the whole conversation so far, with thinking time between turns."""

from dataclasses import dataclass, replace

import numpy as np

from simulator.arrays import Ints
from simulator.errors import WorkloadError
from simulator.limits import refuse_beyond_memory
from simulator.simulation.clients import Clients
from simulator.workloads.arrivals import ClosedLoop
from simulator.workloads.shared_prefixes import Prefixes
from simulator.workloads.workload import REQUEST_BYTES, Requests, Workload

PREFIX_BLOCK_TOKENS = 64
PREFIX_BLOCK_BYTES = 100  # of a block in one prompt, while ids are made and sorted


@dataclass(frozen=True)
class Sessions:
    """Sessions of `turns` requests, each with the whole conversation in its prompt; `think_s` seconds between two.

    `holds_history`: the lengths of prompts hold what was said before, as those of a trace of chats do; otherwise they
    are of the new message alone, and the history comes on top. Raises WorkloadError for less than one turn and for
    negative thinking time.
    """

    turns: int = 1
    think_s: float = 0.0
    holds_history: bool = False

    def __post_init__(self) -> None:
        if self.turns < 1 or not self.think_s >= 0:
            given = f"sessions of {self.turns} turns with {self.think_s:g} s to think"
            because = "turns must be 1 or more, thinking time 0 s or more"
            raise WorkloadError(given, because, "Give, say, 5 turns and 30 s")

    def __str__(self) -> str:
        if self.turns == 1:
            return "single requests"
        where = "within" if self.holds_history else "on top of"
        return f"sessions of {self.turns} turns, {self.think_s:g} s apart, their history {where} the given lengths"

    def requests(self, workload: Workload, clients: Clients | None = None) -> tuple[Requests, Clients]:
        """Return a workload's requests as sessions, and the clients that send them.

        Sessions start at the workload's arrival process slowed down `turns` times, so that requests per second stay the
        same. A turn's prompt is the previous prompt and output, followed by a new prompt of the workload's lengths; or,
        with `holds_history`, as long as drawn, the shortest first. A shared prefix comes before all of it.

        Raises WorkloadError for a closed loop of more than one turn.

        >>> from simulator.workloads.lengths import Fixed, Independent
        >>> from simulator.workloads.arrivals import OpenLoop
        >>> load = Workload(OpenLoop(1.0), Independent(Fixed(100), Fixed(20)), 3)
        >>> asked, who = Sessions(turns=3, think_s=5.0).requests(load)
        >>> asked.prompt_tokens, who.follows
        (array([100, 220, 340]), array([-1,  0,  1]))
        """
        clients = clients or Clients()
        if self.turns == 1:
            return workload.requests(), clients
        if isinstance(workload.arrivals, ClosedLoop):
            because = "a closed loop and sessions both say when a request is sent"
            raise WorkloadError("sessions in a closed loop", because, "Give a rate")
        begins = replace(workload, request_count=-(-workload.request_count // self.turns))
        turns = begins.request_count * self.turns
        refuse_beyond_memory(f"{turns:,} turns", float(turns) * REQUEST_BYTES, "Give fewer --turns")
        rate = getattr(begins.arrivals, "rate_per_s", 1.0)
        arrival_s = np.repeat(begins.at_rate(rate / self.turns).requests().arrival_s, self.turns)
        prompts, outputs = self._tokens(workload, begins.request_count)
        rows = np.arange(len(prompts))
        follows = np.where(rows % self.turns > 0, rows - 1, -1)
        prefixes = self._prefixes(workload, prompts + outputs)
        asked = Requests(arrival_s, prompts, outputs, prefixes=prefixes, seed=workload.seed)
        return asked, replace(clients, follows=follows, think_s=np.full(len(rows), self.think_s))

    def _tokens(self, workload: Workload, count: int) -> tuple[Ints, Ints]:
        """Return the prompt and the output tokens of every turn, session after session."""
        own = replace(workload, request_count=count * self.turns, shared=None, prefixes=Prefixes.of([]))
        drawn = own.requests()
        prompts, outputs = (each.reshape(count, -1) for each in (drawn.prompt_tokens, drawn.output_tokens))
        if self.holds_history:
            order = np.argsort(prompts, axis=1, kind="stable")
            prompts, outputs = (np.take_along_axis(each, order, axis=1) for each in (prompts, outputs))
        else:
            prompts = np.cumsum(prompts + outputs, axis=1) - outputs
        shared = workload.shared.tokens if workload.shared else 0
        return prompts.ravel() + shared, outputs.ravel()

    def _prefixes(self, workload: Workload, tokens: Ints) -> Prefixes:
        """Return the prefix blocks of all that is said: those of a session are its own, after what sessions share."""
        shared, blocks = workload.shared, tokens // PREFIX_BLOCK_TOKENS
        given = f"sessions of {self.turns:,} turns of {float(tokens.sum()):,.0f} tokens together, histories included"
        refuse_beyond_memory(given, float(blocks.sum()) * PREFIX_BLOCK_BYTES, "Give fewer or shorter --turns")
        place = np.arange(blocks.sum()) - np.repeat(np.cumsum(blocks) - blocks, blocks)
        session = np.repeat(np.arange(len(tokens)) // self.turns, blocks)
        owner = session + (shared.count if shared else 0)
        if shared:
            drawn = shared.asked(len(tokens) // self.turns, workload.seed)
            owner = np.where((place + 1) * PREFIX_BLOCK_TOKENS <= shared.tokens, drawn[session], owner)
        ids = owner * int(blocks.max()) + place  # dense: they are looked for by hash
        return Prefixes(ids, np.cumsum(blocks) - blocks, blocks, PREFIX_BLOCK_TOKENS)
