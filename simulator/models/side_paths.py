"""Small paths beside attention and feed-forward blocks: low-rank ones, streams and layers' embeddings of Gemma 3n.

Engines keep a whole copy of the paths on every device, so that nothing is reduced over them.
"""

from typing import Annotated, Literal

from pydantic import Field

from simulator.models.layout import Layout, Weights
from simulator.models.op_builders import SINGLE, Ops, PositiveInt, elementwise, linear
from simulator.profile import Strict


class LowRank(Strict):
    """Two projections over a narrow vector: hidden to `width` to hidden, an activation or a product between.

    LAuReL's (arXiv:2411.07501, section 2), and the gate and projection of a layer's own embedding in Gemma 3n and
    Gemma 4 (transformers 5.24.0, gemma3n, gemma4).

    >>> LowRank(kind="low_rank", width=256).weights(2048).total
    1048576
    """

    kind: Literal["low_rank"]
    width: PositiveInt

    def weights(self, hidden: int, _layout: Layout = SINGLE) -> Weights:
        """Parameters on one device, each of which has all: 2 h w."""
        return Weights(linear=2 * hidden * self.width)

    def ops(self, hidden: int, layout: Layout) -> Ops:
        """Down projection, what is between, up projection."""
        return (
            linear("low-rank down projection", (hidden, self.width), layout),
            elementwise("low-rank activation", 3 * self.width, layout),
            linear("low-rank up projection", (self.width, hidden), layout),
        )


class AltUp(Strict):
    """Alternating updates: a layer computes one of `streams` residual streams, and predicts and corrects the others.

    Source: arXiv:2301.13310, section 3; weights as in transformers 5.24.0 (Gemma3nTextAltUp): a router of h s numbers
    with a norm of h, s^3 and s^2 coefficients, and a scale of h.

    >>> AltUp(kind="altup", streams=4).weights(2048).total == 2048 * (4 + 2) + 4**3 + 4**2
    True
    """

    kind: Literal["altup"]
    streams: PositiveInt

    def weights(self, hidden: int, _layout: Layout = SINGLE) -> Weights:
        """Parameters on one device, each of which has all."""
        return Weights(other=hidden * (self.streams + 2) + self.streams**3 + self.streams**2)

    def ops(self, hidden: int, layout: Layout) -> Ops:
        """Prediction before a layer and correction after it, each of which reads and writes every stream.

        The router's and the coefficients' FLOPs, 2 h s and less per token, are left out.
        """
        moved = 2 * self.streams * hidden
        return (
            elementwise("prediction of streams", moved, layout),
            elementwise("correction of streams", moved + hidden, layout),
        )


SidePath = Annotated[LowRank | AltUp, Field(discriminator="kind")]


class LayerInputs(Strict):
    """Embeddings that each of `layers` layers has of its own, `width` numbers of each of `vocab` tokens.

    The whole is one table, with a projection of the model's own embedding to as many numbers, and a norm. `streams`:
    residual streams (AltUp), which two matrices each, but for the first, make and merge. Source: transformers 5.24.0,
    Gemma3nTextModel and Gemma4TextModel.
    """

    vocab: PositiveInt
    width: PositiveInt
    layers: PositiveInt
    streams: PositiveInt = 1

    @property
    def row(self) -> int:
        """Numbers of one token in the table."""
        return self.width * self.layers

    def weights(self, hidden: int, layout: Layout = SINGLE) -> Weights:
        """Parameters on one device: its share of the table's rows and of the projection's columns."""
        table = -(-self.vocab // layout.tp) * self.row
        columns = layout.share(self.row, "columns of the layers' embeddings")
        matrices = hidden * columns + 2 * (self.streams - 1) * hidden**2
        return Weights(linear=matrices, other=table + self.width)

    def ops(self, hidden: int, layout: Layout) -> Ops:
        """Projection, sum with the table's rows, and the matrices of the streams at both ends."""
        columns = layout.share(self.row, "columns of the layers' embeddings")
        further = self.streams - 1
        streams = (linear("streams", (hidden, further * hidden), layout),) * 2 if further else ()
        return (
            linear("projection to the layers' embeddings", (hidden, columns), layout),
            elementwise("layers' embeddings", 4 * columns, layout),
            *streams,
        )


class HyperConnections(Strict):
    """Residual `streams` of the hidden size: each part of a layer reads a mixture of them, and all take its output.

    Before a part, one projection of all streams gives the mixture and a matrix that mixes the streams among themselves
    (n + n + n^2 numbers of n streams; `independent` ones have no matrix: Hy4). The output head reads a mixture, too, or
    their `mean` (GLM-5.3-Flash). Every device computes all. Source: mHC (arXiv:2512.24880) as implemented in
    transformers 5.24.0 (deepseek_v4, hy_v4, glm5_next); kernels as vLLM has them: projection, mixture, and one of both
    sums after the part.

    >>> HyperConnections(streams=4).parameters(4096) == 24 * 4 * 4096 + 24 + 3
    True
    """

    streams: PositiveInt
    independent: bool = False
    mean: bool = False

    @property
    def _columns(self) -> int:
        return 2 * self.streams + (0 if self.independent else self.streams**2)

    def parameters(self, hidden: int) -> int:
        """Parameters of one part of a layer: the projection, a bias for each output, a scale for each kind of these."""
        return self._columns * (self.streams * hidden + 1) + (2 if self.independent else 3)

    def last_parameters(self, hidden: int) -> int:
        """Parameters of the mixture that the output head reads: its projection, biases, a scale."""
        return 0 if self.mean else self.streams * (self.streams * hidden + 1) + 1

    def ops(self, hidden: int, layout: Layout) -> Ops:
        """Ops of one part of a layer; a norm that is fused with an addition is counted apart, so two sums less here."""
        wide = self.streams * hidden
        return (
            linear("mixing of streams", (wide, self._columns), layout, "other"),
            elementwise("mixture of streams", wide + hidden, layout),
            elementwise("sums of streams", 2 * wide - hidden, layout),
        )
