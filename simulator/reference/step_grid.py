"""The grid of steps on which predictions are checked, and their timing on the real engine."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from simulator.calibration.step_log import StepPart, kind_of
from simulator.models.operations import Counts, Span, count
from simulator.models.operations import Sequence as Row
from simulator.reference.cores import Guard
from simulator.reference.engine import Executor
from simulator.reference.timing import Timing, timing_of


class Cell(NamedTuple):
    """One step: `decodes` sequences of `context` cached tokens, and a prompt chunk of `new` tokens after `past`."""

    decodes: int = 0
    context: int = 0
    new: int = 0
    past: int = 0

    @property
    def kind(self) -> str:
        """prefill, decode or mixed."""
        return kind_of(self.parts())

    @property
    def cached_tokens(self) -> int:
        """Tokens in the cache after the step."""
        return self.decodes * (self.context + 1) + self.new + self.past

    def parts(self) -> list[StepPart]:
        """Return the sequences of the step."""
        rows = [StepPart(index, 1, self.context) for index in range(self.decodes)]
        return [*rows, StepPart(self.decodes, self.new, self.past)] if self.new else rows

    def counts(self, span: Span | None = None) -> Counts:
        """Return the counts by which the simulator prices the step; `span`: of the model's local layers."""
        return count([Row(part.new_tokens, part.past_tokens) for part in self.parts()], span)


HELD_OUT = (
    *(Cell(new=each) for each in (24, 48, 100, 180, 400, 700)),
    Cell(new=90, past=300),
    *(Cell(each, context) for each in (1, 3, 6, 12, 24) for context in (40, 150, 380)),
    Cell(2, 900),
    Cell(6, 800),
    Cell(decodes=3, context=100, new=50),
    Cell(decodes=5, context=300, new=200),
    Cell(decodes=12, context=150, new=116),
    Cell(decodes=20, context=80, new=30),
    Cell(decodes=7, context=350, new=64, past=256),
    Cell(decodes=14, context=90, new=240),
)


def fitting(cells: Iterable[Cell], executor: Executor) -> list[Cell]:
    """Return the cells that fit into half of the cache blocks and the model's context."""
    build, model = executor.transformer.build, executor.transformer.model
    room = build.num_blocks * build.block_size // 2  # the last block of each sequence is part empty
    return [
        cell
        for cell in cells
        if cell.cached_tokens <= room and max(cell.context + 1, cell.new + cell.past) <= model.max_context_tokens
    ]


def measure_cells(executor: Executor, cells: Sequence[Cell], rounds: int) -> list[Timing]:
    """Return the timing of each cell over some rounds, in random order each round: in serving, too, steps differ."""
    rng, found = np.random.default_rng(0), np.zeros((len(cells), rounds, 2))
    for turn in range(rounds):
        for index in rng.permutation(len(cells)).tolist():
            found[index, turn] = _step(executor, cells[index])
    return [timing_of(seconds, others_s) for seconds, others_s in found.transpose(0, 2, 1)]


def _step(executor: Executor, cell: Cell) -> tuple[float, float]:
    """Run one step, the choice of the next tokens included; return its seconds and the CPU seconds of others."""
    parts, vocab = cell.parts(), executor.transformer.model.vocab
    lengths = [part.past_tokens + part.new_tokens for part in parts]
    executor.known = [
        [(17 * place + 31 * row) % vocab for place in range(length)] for row, length in enumerate(lengths)
    ]
    for row in sorted(range(len(parts)), key=lambda row: (7 * row) % len(parts)):
        executor.pool.grow(row, lengths[row])
    executor.transformer.build.device.synchronize()
    guard = Guard()
    executor.execute(parts)
    seconds, others_s = guard.elapsed_s, guard.others_s
    executor.pool.keep(set())
    return seconds, others_s
