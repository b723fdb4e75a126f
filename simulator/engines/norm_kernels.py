"""Kernels of norms, and of a router's choice, that an engine launches beside those that any decoder layer has."""

from simulator.models.operations import Op
from simulator.profile import Number, Strict


class NormKernels(Strict):
    """How many kernels an op's norms add to a layer where an engine does not fuse them, by what is normed (`Op.normed`).

    Two norms of a layer, with what is added to the residual, are among what the rates of GEMMs were fitted beside, and
    are not counted again. The host's time of a kernel was fitted without these, too, and does not count them.
    """

    outputs: Number  # for each norm of a part's output (Gemma)
    heads: Number  # of a layer's queries and keys, or of its latent vectors
    values: Number  # of a layer's queries, keys and values (Gemma 3n and 4)
    router: Number  # of a router's inputs, and of a choice that scales each expert (Gemma 4)

    def of(self, op: Op) -> float:
        """Return the kernels that the norms of an op add."""
        kernels = {"outputs": self.outputs, "heads": self.heads, "values": self.values, "router": self.router}
        return op.norms * float(kernels[op.normed]) if op.normed else 0.0
