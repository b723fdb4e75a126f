"""Kernels of norms that an engine launches beside those that any decoder layer has."""

from fnmatch import fnmatchcase

from simulator.engines.conditions import OnDevices
from simulator.hardware.hardware import Hardware
from simulator.models.layout import Layout
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


class FusedNorms(OnDevices):
    """Models whose all-reduce after attention and feed-forward adds the residual and norms, too, on some devices.

    With tensor parallelism, and without data-parallel attention, a layer's norms are no kernels of their own then.
    `models`: patterns of the ids of profiles; `except_devices`: devices of these families on which it is off.
    """

    models: tuple[str, ...] = ("*",)
    except_devices: tuple[str, ...] = ()

    def holds(self, hardware: Hardware, model: str, layout: Layout) -> bool:
        """Tell whether a model's norms are part of its all-reduces.

        >>> from simulator.hardware.hardware import load_hardware
        >>> fused = FusedNorms(families=("hopper",), models=("gpt-oss-*",))
        >>> [fused.holds(load_hardware("h100-sxm"), "gpt-oss-20b", Layout(tp=tp)) for tp in (1, 2)]
        [False, True]
        """
        apart = layout.tp == 1 or layout.dp > 1 or hardware.id in self.except_devices
        return not apart and self.covers(hardware) and any(fnmatchcase(model, each) for each in self.models)
