"""Kernels that an engine has for some models alone, by their architectures."""

from typing import Annotated

from pydantic import Field

from simulator.engines.conditions import FormatName, OnDevices
from simulator.engines.norm_kernels import NormKernels
from simulator.hardware.hardware import Hardware
from simulator.models.architecture import Architecture
from simulator.models.layers import MixtureOfExperts
from simulator.models.layout import Layout
from simulator.models.model import Model
from simulator.models.op_builders import PositiveInt
from simulator.profile import Strict


class OfModels(OnDevices):
    """Models of some architectures, on some devices: none is all; `except_devices`: but on these.

    A model whose architecture is not known is of none.
    """

    architectures: tuple[Architecture, ...] = ()
    except_devices: tuple[str, ...] = ()

    def holds_of(self, hardware: Hardware, model: Model) -> bool:
        """Tell whether a model on a device is among these."""
        named = not self.architectures or model.architecture in self.architectures
        return named and self.covers(hardware) and hardware.id not in self.except_devices


class FusedNorms(OfModels):
    """Models whose all-reduce after attention and feed-forward adds the residual and norms, too.

    With tensor parallelism, and without data-parallel attention, a layer's norms are no kernels of their own then.
    `above_hidden`: architectures whose all-reduces do so only where a token has more numbers than this.
    """

    above_hidden: dict[Architecture, PositiveInt] = {}

    def holds(self, hardware: Hardware, model: Model, layout: Layout) -> bool:
        """Tell whether a model's norms are part of its all-reduces.

        >>> from simulator.hardware.hardware import load_hardware
        >>> from simulator.models.model import load_model
        >>> fused = FusedNorms(families=("hopper",), architectures=("GptOssForCausalLM",))
        >>> device, model = load_hardware("h100-sxm"), load_model("gpt-oss-20b")
        >>> [fused.holds(device, model, Layout(tp=tp)) for tp in (1, 2)]
        [False, True]
        """
        is_wide = model.hidden > self.above_hidden.get(model.architecture or "", 0)
        return is_wide and layout.tp > 1 and layout.dp == 1 and self.holds_of(hardware, model)


class QuantisedInputs(Strict):
    """Formats of dense GEMMs whose inputs the kernel before quantises, by that kernel.

    `sums`: an all-reduce with norms in it (FusedNorms); `activations`; `attention`. Elsewhere a kernel of its own does.
    """

    sums: tuple[FormatName, ...]
    activations: tuple[FormatName, ...]
    attention: tuple[FormatName, ...]


class ModelNorms(OfModels):
    """Models whose norms are other kernels than those of most (`NormKernels`)."""

    kernels: NormKernels


class RouterKernels(OfModels):
    """Models whose routers choose, and whose experts are scaled and summed, in `kernels` more kernels than others'.

    `experts`: only of layers with as many routed experts; none is any. `chosen_above`: only where a token chooses more.
    """

    kernels: PositiveInt
    experts: tuple[PositiveInt, ...] = ()
    chosen_above: Annotated[int, Field(ge=0)] = 0

    def holds(self, hardware: Hardware, model: Model) -> bool:
        """Tell whether routers of a model on a device choose so."""
        routed = (block.ffn for block in model.blocks.values() if isinstance(block.ffn, MixtureOfExperts))
        of_size = any(
            each.chosen > self.chosen_above and each.experts in (self.experts or (each.experts,)) for each in routed
        )
        return of_size and self.holds_of(hardware, model)
