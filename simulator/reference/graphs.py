"""CUDA graphs of decode steps, one per power of two of sequences and of cache blocks: one launch per step."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from simulator.calibration.step_log import StepPart
from simulator.models.layers import MixtureOfExperts
from simulator.reference.batch import BatchLayout, Reads, StepBatch, make_batch
from simulator.reference.cache import NULL_BLOCK
from simulator.reference.transformer import Transformer

PADDING = StepPart(-1, 1, 1)  # one token after another in the null block
MAX_ROWS = 1024
Result = TypeVar("Result")


def capture(work: Callable[[], Result]) -> tuple[Callable[[], None], Result]:
    """Capture the kernels of `work` in a CUDA graph; return what replays them, and the result that a replay fills."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):  # lets libraries choose their kernels before the capture
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()
    return graph.replay, result


class DecodeGraphs:
    """Pads a batch of decodes to powers of two and replays its CUDA graph, captured on first use.

    On another device it computes the padded batch without a graph, so that the padding can be tested.
    """

    def __init__(self, transformer: Transformer, layout: BatchLayout) -> None:
        self._transformer, self._layout = transformer, layout
        self._captured: dict[tuple[int, ...], tuple[Callable[[], None], StepBatch, Tensor]] = {}
        # Which experts a batch touches is only known on the host, so their loop can not be captured.
        blocks = transformer.model.blocks.values()
        self._possible = not any(isinstance(block.ffn, MixtureOfExperts) for block in blocks)

    def takes(self, parts: Sequence[StepPart]) -> bool:
        """Tell whether a step has decodes alone, at most 1,024, in a model without experts."""
        decodes = all(part.new_tokens == 1 and part.past_tokens > 0 for part in parts)
        return self._possible and decodes and len(parts) <= MAX_ROWS

    def forward(self, parts: Sequence[StepPart], tokens: Sequence[int], tables: Sequence[list[int]]) -> Tensor:
        """Return the logits of the decodes, [sequences, vocabulary]; arguments as of `make_batch`."""
        batch = padded_batch(parts, tokens, tables, self._layout)
        if self._layout.device != "cuda":
            return self._transformer.forward(batch)[: len(parts)]
        key = (len(batch.tokens), *(len(reads.blocks) for reads in batch.reads.values()))
        if key not in self._captured:
            replay, logits = capture(lambda: self._transformer.forward(batch))
            self._captured[key] = replay, batch, logits
        replay, static, logits = self._captured[key]
        for ours, theirs in zip(_tensors(static), _tensors(batch), strict=True):
            ours.copy_(theirs)
        replay()
        return logits[: len(parts)]

    def capture_all(self, max_sequences: int) -> None:
        """Capture the graphs of up to `max_sequences` sequences of equal lengths, up to the whole cache, beforehand.

        Sequences of unequal lengths find theirs among them, but in models with several sliding windows.
        """
        blocks, size = self._transformer.build.num_blocks, self._layout.block_size
        longest = min(blocks * size, self._transformer.model.max_context_tokens)
        for rows in _powers_of_two(_power_of_two(max_sequences)):
            for each in _powers_of_two(min(blocks // rows, longest // size)):
                parts = [StepPart(row, 1, each * size - 1) for row in range(rows)]
                if self.takes(parts):
                    self.forward(parts, [0] * rows, [[NULL_BLOCK] * each] * rows)


def padded_batch(
    parts: Sequence[StepPart], tokens: Sequence[int], tables: Sequence[list[int]], layout: BatchLayout
) -> StepBatch:
    """Return a batch of decodes, with sequences and blocks padded to powers of two: the added rows come last."""
    extra = _power_of_two(len(parts)) - len(parts)
    batch = make_batch(
        [*parts, *[PADDING] * extra], [*tokens, *[0] * extra], [*tables, *[[NULL_BLOCK]] * extra], layout
    )
    reads = {window: _padded_reads(each) for window, each in batch.reads.items()}
    return StepBatch(batch.tokens, batch.positions, batch.places, batch.last_rows, batch.decodes, reads, ())


def _padded_reads(reads: Reads) -> Reads:
    """Add null blocks whose tokens are all masked."""
    extra = _power_of_two(len(reads.blocks)) - len(reads.blocks)
    nothing = reads.blocks.new_zeros(extra)
    hidden = reads.mask.new_full((extra, *reads.mask.shape[1:]), -np.inf)
    return Reads(
        torch.cat((reads.blocks, nothing)), torch.cat((reads.owners, nothing)), torch.cat((reads.mask, hidden))
    )


def _power_of_two(number: int) -> int:
    """Return the least power of two that is not below a number."""
    return 1 << (number - 1).bit_length()


def _powers_of_two(most: int) -> list[int]:
    return [1 << power for power in range(most.bit_length())]


def _tensors(batch: StepBatch) -> list[Tensor]:
    reads = [tensor for each in batch.reads.values() for tensor in (each.blocks, each.owners, each.mask)]
    return [batch.tokens, batch.positions, *batch.places, batch.last_rows, *reads]
