"""The serving loop: the simulator's scheduler decides the batch of each step, a real forward pass computes it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from simulator.calibration.step_log import LoggedRequest, LoggedStep, StepLog, StepPart, parts_of
from simulator.errors import WorkloadError
from simulator.reference.batch import BatchLayout, make_batch
from simulator.reference.cache import BlockPool
from simulator.reference.clock import Clock
from simulator.reference.graphs import DecodeGraphs
from simulator.reference.transformer import Transformer
from simulator.scheduler.state import CONTINUOUS, SchedulerLimits, State, Table
from simulator.simulation.engine_loop import STEP, Run, begin, closing, end, note, opening
from simulator.simulation.rejection import REMEDY, Rejected, rejections
from simulator.workloads.workload import Requests

Tokens = list[int]  # token ids


@dataclass(frozen=True, slots=True)
class Served:
    """A served workload: the tables that a simulation has too, the sequences of each step, and the generated tokens."""

    run: Run
    steps: tuple[LoggedStep, ...]
    outputs: tuple[Tokens, ...]

    def log(self, about: dict[str, str]) -> StepLog:
        """Return the run as a StepLog; `about`: engine, version, dtype and the like."""
        run = self.run
        columns = (run.requests.arrival_s, run.requests.prompt_tokens, run.requests.output_tokens)
        rows = zip(*(each.tolist() for each in (*columns, run.first_token_s, run.finished_s)), strict=True)
        chosen = ("max_num_seqs", "max_num_batched_tokens", "num_blocks", "block_size", "admit_full_prompt")
        limits = {name: int(getattr(run.limits, name)) for name in chosen}
        return StepLog(about, limits, self.steps, tuple(LoggedRequest(*row) for row in rows))


class Executor:
    """Computes scheduled sequences: holds their token ids (`known`, by request) and their cache blocks.

    `shuffled`: the blocks of a sequence lie apart. `graphs`: on CUDA, replay decode steps as CUDA graphs.
    """

    def __init__(self, transformer: Transformer, *, shuffled: bool = True, graphs: bool = True) -> None:
        build = transformer.build
        self.transformer = transformer
        self.pool = BlockPool(build.num_blocks, build.block_size, shuffled=shuffled)
        device = build.device
        padded = BatchLayout(build.block_size, transformer.windows, device.kind)
        self.layout = padded._replace(ragged=device.fuses_attention)
        self._graphs = DecodeGraphs(transformer, padded) if graphs and device.kind == "cuda" else None
        self.known: list[Tokens] = []

    def warm_up(self, max_sequences: int) -> None:
        """Capture the graphs of steps of up to so many decodes, as engines do before they serve."""
        if self._graphs is not None:
            self._graphs.capture_all(max_sequences)

    def logits(self, parts: Sequence[StepPart]) -> torch.Tensor:
        """Compute a step; return the logits of each sequence's last new token, [sequences, vocabulary]."""
        tables = [self.pool.grow(part.request, part.past_tokens + part.new_tokens) for part in parts]
        tokens = [token for request, new, past in parts for token in self.known[request][past : past + new]]
        if self._graphs is not None and self._graphs.takes(parts):
            return self._graphs.forward(parts, tokens, tables)
        return self.transformer.forward(make_batch(parts, tokens, tables, self.layout))

    def execute(self, parts: Sequence[StepPart]) -> None:
        """Compute a step; append the likeliest next token to each sequence whose known tokens are all computed."""
        best: list[int] = self.logits(parts).argmax(-1).tolist()  # waits for the device
        for (request, new, past), token in zip(parts, best, strict=True):
            if past + new == len(self.known[request]):
                self.known[request].append(token)


def engine_limits(transformer: Transformer, max_num_seqs: int, max_num_batched_tokens: int) -> SchedulerLimits:
    """Return the scheduler limits of the engine: vLLM's rules. Layers with a sliding window cache every token, too."""
    build = transformer.build
    return SchedulerLimits(
        policy=CONTINUOUS,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        num_blocks=build.num_blocks,
        block_size=build.block_size,
        admit_full_prompt=True,
        window=transformer.model.span.tokens if transformer.model.span else 0,
    )


def serve(
    executor: Executor,
    limits: SchedulerLimits,
    requests: Requests,
    prompts: Sequence[Tokens],
    clock: Clock,
) -> Served:
    """Serve a workload to its end; the executor computes each step, `clock` says how long it takes.

    `prompts`: the token ids of each request. Raises WorkloadError for a request that the model or the cache is too
    short for.
    """
    _refuse(executor, limits, requests)
    executor.known = [list(prompt) for prompt in prompts]
    state = opening(limits, requests)
    clock_s, rows, steps = np.zeros(2), list[Table](), list[LoggedStep]()
    while begin(state, clock_s):
        parts = parts_of(state)
        start_s = float(clock_s[0])
        seconds = clock(state, start_s, _work(executor, state, parts))
        rows.append(_row(state, start_s, seconds))
        steps.append(LoggedStep(start_s, seconds, parts))
        end(state, clock_s, seconds)
    executor.pool.keep(set())
    run = closing(state, requests, np.concatenate(rows))
    outputs = (known[len(prompt) :] for known, prompt in zip(executor.known, prompts, strict=True))
    return Served(run, tuple(steps), tuple(outputs))


def random_prompts(requests: Requests, vocab: int, seed: int = 0) -> list[Tokens]:
    """Return random token ids below `vocab` for each request, as many as its prompt has."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, vocab, int(count)).tolist() for count in requests.prompt_tokens]


def _work(executor: Executor, s: State, parts: Sequence[StepPart]) -> Callable[[], None]:
    def work() -> None:
        executor.pool.keep({int(slot.request) for slot in s.slots[: s.book[0].running]})
        executor.execute(parts)

    return work


def _row(s: State, start_s: float, seconds: float) -> Table:
    row = np.zeros(1, STEP).view(np.recarray)
    note(s, row, 0, start_s, seconds, 0.0)
    return row


def _refuse(executor: Executor, limits: SchedulerLimits, requests: Requests) -> None:
    """Raise WorkloadError for a request longer than the model's context or the cache."""
    allowed = limits._replace(max_model_len=executor.transformer.model.max_context_tokens)
    if len(rejected := Rejected.of(rejections(allowed, requests), len(requests))):
        raise WorkloadError(f"{len(rejected):,} of {len(requests):,} requests", rejected.in_words(), REMEDY)
