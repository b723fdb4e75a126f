"""Kernels of norms that an engine launches beside those that any decoder layer has."""

from simulator.models.operations import Op
from simulator.profile import Number, Strict


class NormKernels(Strict):
    """How many kernels one of an op's norms (`Op.norms`) adds to those of a step, by what is normed (`Op.normed`).

    Two norms of a layer, with what is added to the residual, are among what the rates of GEMMs were fitted beside, and
    are not counted again. Without a graph the host launches each norm as it launches any kernel, whatever it consists
    of: its time of a kernel was fitted to calls of Python.
    """

    outputs: Number  # of a part's output (Gemma)
    heads: Number  # of queries, of keys, of latent vectors: two of a layer
    values: Number  # of queries, of keys and of values (Gemma 3n and 4): three of a layer
    router: Number  # of a router's inputs, with a choice that scales each expert (Gemma 4)
    heads_by_one_call: bool = False  # the host launches one kernel that norms queries and keys

    def of(self, op: Op) -> float:
        """Return the kernels that the norms of an op add."""
        kernels = {"outputs": self.outputs, "heads": self.heads, "values": self.values, "router": self.router}
        return op.norms * float(kernels[op.normed]) if op.normed else 0.0

    def calls(self, op: Op) -> int:
        """Return how many calls of the host launch the norms of an op: none where they are part of other kernels."""
        if not self.of(op):
            return 0
        return min(op.norms, 1) if op.normed == "heads" and self.heads_by_one_call else op.norms
