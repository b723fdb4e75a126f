"""Kernels that an engine has for some models alone, by the names of these."""

from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import Field

from simulator.engines.conditions import OnDevices
from simulator.engines.norm_kernels import NormKernels
from simulator.hardware.hardware import Hardware
from simulator.models.layout import Layout


class OfModels(OnDevices):
    """Some models, on some devices: `models` are patterns of the ids of profiles; `except_devices`: but on these."""

    models: tuple[str, ...] = ("*",)
    except_devices: tuple[str, ...] = ()

    def holds_of(self, hardware: Hardware, model: str) -> bool:
        """Tell whether a model on a device is among these."""
        named = any(fnmatchcase(model, each) for each in self.models)
        return named and self.covers(hardware) and hardware.id not in self.except_devices


class FusedNorms(OfModels):
    """Models whose all-reduce after attention and feed-forward adds the residual and norms, too.

    With tensor parallelism, and without data-parallel attention, a layer's norms are no kernels of their own then.
    """

    def holds(self, hardware: Hardware, model: str, layout: Layout) -> bool:
        """Tell whether a model's norms are part of its all-reduces.

        >>> from simulator.hardware.hardware import load_hardware
        >>> fused = FusedNorms(families=("hopper",), models=("gpt-oss-*",))
        >>> [fused.holds(load_hardware("h100-sxm"), "gpt-oss-20b", Layout(tp=tp)) for tp in (1, 2)]
        [False, True]
        """
        return layout.tp > 1 and layout.dp == 1 and self.holds_of(hardware, model)


class ModelNorms(OfModels):
    """Models whose norms are other kernels than those of most (`NormKernels`)."""

    kernels: NormKernels


class RouterKernels(OfModels):
    """Models whose routers choose in `kernels` more kernels than one, which others have."""

    kernels: Annotated[int, Field(ge=1)]
