"""Ops of a step with the kernels that an engine has for some models and formats (engines/model_kernels.py)."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from simulator.engines.device_kernels import DeviceKernels
from simulator.engines.engine import Engine
from simulator.engines.kernel_rules import KernelRules
from simulator.engines.model_kernels import QuantisedInputs
from simulator.models.blocks import NORMS
from simulator.models.layers import BESIDE_EXPERTS
from simulator.models.layout import Layout
from simulator.models.model import Model
from simulator.models.number_formats import number_format
from simulator.models.operations import NOTHING, Counts, Op

ACTIVATION, OUTPUT = "activation", "output projection"
QUANTISING = "quantisation of inputs"
QUANTISED = ("fp8", "int8")  # formats with a scale for each tensor, row or column, whose inputs a kernel quantises


def ops_of_model(ops: Iterable[Op], kernels: DeviceKernels, model: Model, layout: Layout) -> tuple[Op, ...]:
    """Return the ops, norms that are part of all-reduces without a start, routers with all kernels that choose.

    Kernels that quantise inputs of GEMMs stand before these, or are part of what is before (`quantised`).
    """
    fused = kernels.rules.fuses_norms
    norms = 0 if fused and fused.holds(kernels.hardware, model, layout) else None
    more = next((each.kernels for each in kernels.rules.router_kernels if each.holds(kernels.hardware, model)), 0)

    def launches(op: Op) -> int:
        if op.name == NORMS and norms is not None:
            return norms
        return op.launches + more * (op.name == BESIDE_EXPERTS)

    launched = (replace(op, launches=launches(op)) for op in ops)
    return quantised(launched, kernels.rules, layout, in_sums=norms == 0)


def fused_experts(ops: Iterable[Op], kernels: DeviceKernels, layout: Layout) -> Iterator[Op]:
    """Yield the ops with what routed experts move where their GEMMs activate and sum (ExpertKernels.activates, sums).

    Of w numbers of each of a token's experts the first GEMM then writes w, not 2 w with a gate, and the kernels beside
    it read and write neither these nor the h that are summed; with plain fp8 one reads w in 16 bits and writes w bytes.
    """
    less_bytes = 0.0
    for op in ops:
        own, moved = kernels.own_experts(op) if op.rate == "gemm" else None, float(op.activation_bytes.tokens)
        if own and op.experts and op.shared_inputs != NOTHING:
            width, wide = op.experts.width, layout.activation_bytes
            choices = moved / ((op.inputs + op.columns) * wide)
            between = (op.columns + width) * wide - (op.format in QUANTISED) * width * (wide + 1)
            less_bytes = choices * (own.activates * between + own.sums * op.inputs * wide)
            moved -= own.activates * choices * (op.columns - width) * wide
        elif op.name == BESIDE_EXPERTS:
            moved, less_bytes = moved - less_bytes, 0.0
        yield op if moved == op.activation_bytes.tokens else replace(op, activation_bytes=Counts(tokens=moved))


def quantised(ops: Iterable[Op], rules: KernelRules, layout: Layout, *, in_sums: bool) -> tuple[Op, ...]:
    """Return the ops with what quantises the inputs of dense GEMMs (KernelRules.quantised_inputs).

    A kernel of its own reads numbers in the type of activations and writes them in the format's; where the kernel
    before quantises, it writes the latter. In prompts it takes the host no time beside the GEMM's, in whose call it is
    launched. `in_sums`: norms are part of all-reduces. Shared experts are left out, whose kernels run beside others.
    """
    if (by := rules.quantised_inputs) is None:
        return tuple(ops)
    found: list[Op] = []
    for op in ops:
        is_plain = op.rate == "gemm" and op.experts is None and op.at_once != "shared"
        if is_plain and op.format in rules.fuses and op.columns:
            numbers = op.flops.tokens / (2 * op.columns)  # a rank's share of them, with data-parallel attention
            wide, narrow = layout.activation_bytes, number_format(op.format).size_bytes
            if op.format not in _quantised_before(op, found, by, in_sums=in_sums):
                moved = Counts(tokens=numbers * (wide + narrow))
                found.append(
                    Op(QUANTISING, "elementwise", activation_bytes=moved, repeats=op.repeats, prompt_launches=-1)
                )
            elif (at := _written_by(op, found)) is not None:
                less = found[at].activation_bytes.tokens - numbers * (wide - narrow)
                found[at] = replace(found[at], activation_bytes=Counts(tokens=less))
        found.append(op)
    return tuple(found)


def _quantised_before(op: Op, before: list[Op], by: QuantisedInputs, *, in_sums: bool) -> tuple[str, ...]:
    """Return the formats that the kernel before a dense GEMM quantises its inputs to."""
    if op.name == OUTPUT:
        return by.attention
    if before and before[-1].name == ACTIVATION:
        return by.activations
    return by.sums if in_sums else ()


def _written_by(op: Op, before: list[Op]) -> int | None:
    """Return which elementwise op before a dense GEMM writes its inputs; None: attention does."""
    if op.name == OUTPUT or not before:
        return None
    if before[-1].name == ACTIVATION:
        return len(before) - 1
    return next((at for at in range(len(before) - 1, -1, -1) if before[at].name == NORMS), None)


def absorbed(ops: tuple[Op, ...], engine: Engine, kernels: DeviceKernels) -> Iterator[Op]:
    """Yield the ops, latent attention of prompts with the FLOPs per pair that decoding has per cached token.

    The up-projections of keys and values are multiplied with queries and outputs instead: heads are as wide as a latent
    vector. Attention to tokens that an indexer chose is so already. All prompts of an engine, or those behind a cached
    prefix (KernelRules.split_decode): templates of chats and what tokenisers put first are one, so all are where
    prefixes are cached. Of states of a recurrence so short a prefix is not kept.
    """
    cached = engine.prefix_caching and not any(op.updates_states for op in ops)
    of_token, heads = 0.0, 0.0
    for op in ops:
        if op.latent_heads and (engine.absorbs_prompts or (cached and kernels.absorbs_prompts(op))):
            of_token, heads = float(op.flops.decode_reads), op.latent_heads
        if op.rate == "prefill_attention" and of_token and op.flops.prefill_pairs:
            yield replace(op, flops=Counts(prefill_pairs=of_token), latent_heads=heads)
            of_token = 0.0
        else:
            yield op
