"""Blocks of layers: a mixer and a feed-forward block with their norms, and how often a sequence of them is repeated."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from simulator.models.layers import FeedForward, Mixer
from simulator.models.layout import Layout, Weights
from simulator.models.op_builders import Ops, elementwise
from simulator.models.side_paths import SidePath
from simulator.profile import Strict

NORMS = "norms and residual"
NORM_TRAFFIC = 4  # a fused add and norm reads and writes both residual and input: 4 numbers per hidden channel
ALONE_TRAFFIC = 2  # a norm alone, as of a part's output, reads and writes its input


class Block(Strict):
    """One decoder block: an optional mixer and an optional feed-forward block, with `norms` norms of the hidden size.

    `parallel`: both parts read the same input, and engines add their outputs before one all-reduce. Each part's output
    is added to the residual before one norm; further norms, such as Gemma's of the outputs themselves, move half as
    much. `beside`: small paths of the same layer.
    """

    mixer: Mixer | None = None
    ffn: FeedForward | None = None
    norms: Annotated[int, Field(ge=0)] = 2
    parallel: bool = False
    beside: tuple[SidePath, ...] = ()

    def weights(self, hidden: int, norm_parameters: int, layout: Layout) -> Weights:
        """Parameters of the block on one device; a norm has `norm_parameters`, `hidden` is the model's hidden size."""
        parts = [part.weights(hidden, layout) for part in (self.mixer, self.ffn, *self.beside) if part]
        return sum(parts, Weights(other=self.norms * norm_parameters))

    def ops(self, hidden: int, layout: Layout) -> Ops:
        """Ops of the norms and of both parts; `hidden` is the model's hidden size."""
        parts = 1 if self.parallel else sum(part is not None for part in (self.mixer, self.ffn))
        added = min(self.norms, parts)  # norms that are fused with an addition
        traffic = NORM_TRAFFIC * added + ALONE_TRAFFIC * (self.norms - added)
        norm = replace(elementwise(NORMS, traffic * hidden, layout), normed="outputs", norms=self.norms - added)
        mixed = self.mixer.ops(hidden, layout) if self.mixer else ()
        if self.parallel and self.ffn:
            mixed = tuple(op for op in mixed if op.rate != "all_reduce")
        beside = (op for part in self.beside for op in part.ops(hidden, layout))
        return (norm, *mixed, *(self.ffn.ops(hidden, layout) if self.ffn else ()), *beside)


class Repeat(Strict):
    """A sequence of block names that is repeated `repeat` times."""

    repeat: Annotated[int, Field(gt=0, le=1_000)] = 1
    of: Annotated[tuple[str, ...], Field(min_length=1)]
