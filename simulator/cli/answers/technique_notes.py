"""What is said of a deployment that drafts, offloads, emulates a format or takes its checkpoint's KV cache."""

from collections.abc import Iterable, Iterator

from simulator.deployment.deployment import Deployment
from simulator.deployment.layouts import usual_cache
from simulator.deployment.offload import NO_OFFLOAD, host_of
from simulator.models.number_formats import number_format
from simulator.roofline.collectives import PCIE_FRACTION
from simulator.roofline.roofline import Rates


def technique_notes(deployments: Iterable[Deployment]) -> list[str]:
    """Return a line each for what drafts, what is offloaded on which guesses, what is emulated, whose cache is fp8."""
    said: dict[str, None] = {}
    for each in deployments:
        drafts, offload = each.settings.speculation, each.settings.offload
        if drafts is not None:
            rates = ", ".join(f"{rate:g}" for rate in drafts.acceptance)
            yields = f"{drafts.tokens_per_step:.2f} tokens per step and sequence"
            said[f"{drafts.draft} drafts {drafts.tokens} tokens, each accepted with {rates}: {yields} (yours)."] = None
        if offload != NO_OFFLOAD:
            host = host_of(each.hardware, offload).id + ("" if offload.host else " (a guess)")
            said[f"Offloaded to {host}; PCIe at {PCIE_FRACTION:g} of its peak, a guess; nothing is prefetched."] = None
        said |= dict.fromkeys(_emulated(each))
        layout = each.layout
        if layout.cache_dtype == usual_cache(layout.weight_dtype, each.engine):
            others = f"for others give --cache-dtype {each.model.dtype}"
            said[f"fp8 KV cache: NVIDIA's checkpoints in {layout.weight_dtype} ask for it; {others}."] = None
    return list(said)


WIDTHS = {"fp4": 4, "fp8": 8, "int8": 8, "bf16": 16}  # bits of types that are stored as they are multiplied


def _emulated(deployment: Deployment) -> Iterator[str]:
    """Say which weights are multiplied in a wider type than their own, because the device or the engine lacks it."""
    rates = Rates(deployment.hardware, deployment.kernels)
    for stored in dict.fromkeys(op.format for op in deployment.ops if op.rate == "gemm" and not op.on_host):
        own, used = number_format(stored).compute[0], rates.peak(stored)[0]
        if used != own and number_format(stored).bits // 1 == WIDTHS.get(own):
            where = f"{deployment.engine.id} on {deployment.hardware.id}"
            yield f"{stored} weights are emulated: {where} has no GEMMs in {own} and multiplies them in {used}."
