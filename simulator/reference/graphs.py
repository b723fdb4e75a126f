"""CUDA graphs of decode steps, one per power of two of sequences and of cache blocks: one launch per step."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from simulator.calibration.step_log import Part
from simulator.models.layers import MixtureOfExperts
from simulator.reference.batch import BatchLayout, Reads, StepBatch, make_batch
from simulator.reference.cache import NULL_BLOCK
from simulator.reference.transformer import Transformer

PADDING = Part(-1, 1, 1)  # one token after another in the null block
MAX_ROWS = 256


class DecodeGraphs:
    """Pads a batch of decodes to powers of two and replays its CUDA graph, captured on first use.

    On another device it computes the padded batch without a graph, so that the padding can be tested.
    """

    def __init__(self, transformer: Transformer, layout: BatchLayout) -> None:
        self._transformer, self._layout = transformer, layout
        self._captured: dict[tuple[int, ...], tuple[torch.cuda.CUDAGraph, StepBatch, Tensor]] = {}
        # Which experts a batch touches is only known on the host, so their loop can not be captured.
        blocks = transformer.model.blocks.values()
        self._possible = not any(isinstance(block.ffn, MixtureOfExperts) for block in blocks)

    def takes(self, parts: Sequence[Part]) -> bool:
        """Tell whether a step has decodes alone, at most 256, in a model without experts."""
        decodes = all(part.new_tokens == 1 and part.past_tokens > 0 for part in parts)
        return self._possible and decodes and len(parts) <= MAX_ROWS

    def forward(self, parts: Sequence[Part], tokens: Sequence[int], tables: Sequence[list[int]]) -> Tensor:
        """Return the logits of the decodes, [sequences, vocabulary]; arguments as of `make_batch`."""
        batch = padded_batch(parts, tokens, tables, self._layout)
        if self._layout.device != "cuda":
            return self._transformer.forward(batch)[: len(parts)]
        key = (len(batch.tokens), *(len(reads.blocks) for reads in batch.reads.values()))
        if key not in self._captured:
            self._captured[key] = self._capture(batch)
        graph, static, logits = self._captured[key]
        for ours, theirs in zip(_tensors(static), _tensors(batch), strict=True):
            ours.copy_(theirs)
        graph.replay()
        return logits[: len(parts)]

    def _capture(self, batch: StepBatch) -> tuple[torch.cuda.CUDAGraph, StepBatch, Tensor]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):  # lets libraries choose their kernels before the capture
                self._transformer.forward(batch)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = self._transformer.forward(batch)
        return graph, batch, logits


def padded_batch(
    parts: Sequence[Part], tokens: Sequence[int], tables: Sequence[list[int]], layout: BatchLayout
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
    return 1 << (number - 1).bit_length()


def _tensors(batch: StepBatch) -> list[Tensor]:
    reads = [tensor for each in batch.reads.values() for tensor in (each.blocks, each.owners, each.mask)]
    return [batch.tokens, batch.positions, *batch.places, batch.last_rows, *reads]
