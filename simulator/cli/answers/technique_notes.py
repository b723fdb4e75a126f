"""What is said of a deployment that drafts, offloads, emulates a format, takes its checkpoint's KV cache or GGUF."""

from collections.abc import Iterable, Iterator

from simulator.deployment.deployment import Deployment
from simulator.deployment.layouts import usual_cache
from simulator.deployment.offload import NO_OFFLOAD, host_layers, host_of
from simulator.deployment.speculation import MTP
from simulator.models.number_formats import number_format
from simulator.roofline.collectives import PCIE_FRACTION
from simulator.roofline.roofline import Rates


def technique_notes(deployments: Iterable[Deployment]) -> list[str]:
    """Return a line for each thing that a user may not expect of a deployment: drafts, offloading, formats, caches."""
    said: dict[str, None] = {}
    for each in deployments:
        said |= dict.fromkeys((*_drafted(each), *_offloaded(each), *_emulated(each), *_usual(each)))
        layout = each.layout
        if layout.cache_dtype == usual_cache(layout.weight_dtype, each.engine):
            others = f"for others give --cache-dtype {each.model.dtype}"
            said[f"fp8 KV cache: NVIDIA's checkpoints in {layout.weight_dtype} ask for it; {others}."] = None
    return list(said)


def _drafted(deployment: Deployment) -> Iterator[str]:
    """Say what drafts, how many tokens a step yields, and that an MTP layer is taken for granted."""
    drafts = deployment.settings.speculation
    if drafts is None:
        return
    rates, many = ", ".join(f"{rate:g}" for rate in drafts.acceptance), drafts.tokens
    tokens = "1 token, accepted" if many == 1 else f"{many} tokens, each accepted"
    yields = f"{drafts.tokens_per_step:.2f} tokens per step and sequence"
    yield f"{drafts.draft} drafts {tokens} with {rates}: {yields} (yours)."
    if drafts.draft == MTP:
        yield f"mtp is a guess: no profile says who has such a layer, and {deployment.model.id} may have none."


def _offloaded(deployment: Deployment) -> Iterator[str]:
    """Say where what is offloaded lies and on which guesses it is reached, or that nothing is."""
    offload = deployment.settings.offload
    if offload == NO_OFFLOAD:
        return
    if offload.weight_bytes or offload.cache_bytes or host_layers(deployment.model, offload):
        host = host_of(deployment.hardware, offload).id + ("" if offload.host else " (a guess)")
        yield f"Offloaded to {host}; PCIe at {PCIE_FRACTION:g} of its peak, a guess; nothing is prefetched."
    elif offload.gpu_layers is None:
        yield f"Nothing is offloaded: --host {offload.host} alone changes nothing."
    else:
        layers = len(deployment.model.layer_names)
        yield f"Nothing is offloaded: all {layers} layers of {deployment.model.id} lie on the device."


def _usual(deployment: Deployment) -> Iterator[str]:
    """Say what runs GGUF files elsewhere, where their engine is another one: the device's usual engine, say."""
    stored, engine = deployment.layout.weight_dtype, deployment.engine
    if number_format(stored).files == ("gguf",) and not engine.is_built_on_ggml:
        yield f"{stored} is a format of llama.cpp and Ollama (--engine llama.cpp); this answer is of {engine.id}."


WIDTHS = {"fp4": 4, "fp8": 8, "int8": 8, "bf16": 16}  # bits of types that are stored as they are multiplied


def _emulated(deployment: Deployment) -> Iterator[str]:
    """Say which weights are multiplied in a wider type than their own, because the device or the engine lacks it."""
    rates = Rates(deployment.kernels)
    for stored in dict.fromkeys(op.format for op in deployment.ops if op.rate == "gemm" and not op.on_host):
        own, used = number_format(stored).compute[0], rates.peak(stored)[0]
        if used != own and number_format(stored).bits // 1 == WIDTHS.get(own):
            where = f"{deployment.engine.id} on {deployment.hardware.id}"
            yield f"{stored} weights are emulated: {where} has no GEMMs in {own} and multiplies them in {used}."
