"""Building blocks of layers as ops: GEMMs, attention, recurrent states, elementwise kernels and collectives."""

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from simulator.errors import NotModelledError, Setting
from simulator.models.layout import Layout, Part
from simulator.models.number_formats import number_format
from simulator.models.operations import Counts, Op
from simulator.profile import Figure, Source

PACKED = {"qkv projection": 3, "gate and up projection": 2}  # fused projections (vLLM: packed_modules_mapping)
ADAPTER_TRAFFIC = Figure(1.5, Source(text="of a GEMM's: its result is read, too", date="", evidence="guess"))
NORM_SUMS = 4  # an all-reduce of two fp32 sums of squares (of a norm over all heads) is as large as 4 16-bit numbers
SCAN = "scan of prompts"
SCAN_RATE = Source(text="that of a GEMM; kernels reach less of it", date="2026-11-21", evidence="guess")
SINGLE = Layout()
Ops = tuple[Op, ...]
PositiveInt = Annotated[int, Field(gt=0)]


def linear(
    name: str,
    shape: tuple[int, int],
    layout: Layout,
    part: Part = "linear",
    per: Literal["tokens", "logits"] = "tokens",
) -> Op:
    """Return the op of a linear layer as a GEMM: 2 FLOPs per weight and token, weights read once per step.

    `shape` is (inputs, outputs) on one device; `part` decides the number format of the weights; `per` says whether the
    GEMM runs for every token or only for those that need logits. Activations of inputs + outputs numbers are moved.
    """
    inputs, outputs = shape
    activations = (inputs + outputs) * layout.activation_bytes
    stored = layout.format_of(part)
    return Op(
        name=name,
        rate="gemm",
        format=stored,
        flops=Counts(**{per: 2.0 * inputs * outputs}),
        weight_bytes=inputs * outputs * number_format(stored).size_bytes,
        inputs=inputs,
        columns=outputs,
        activation_bytes=Counts(**{per: activations}),
    )


def all_reduce(name: str, hidden: int, layout: Layout) -> Ops:
    """Return the all-reduce of (tokens, hidden) activations over tp devices; nothing for tp 1."""
    if layout.tp == 1:
        return ()
    size = Counts(tokens=hidden * layout.activation_bytes)
    return (Op(name=name, rate="all_reduce", link_bytes=size, link_devices=layout.tp),)


def whole_experts(experts: int, layout: Layout) -> int:
    """Return the experts on each of ep devices. Raises NotModelledError if ep does not divide them."""
    if experts % layout.ep:
        given = Setting("ep", layout.ep)
        raise NotModelledError(given, f"{experts} experts do not divide by it", f"Give a divisor of {experts}")
    return experts // layout.ep


def to_experts(routed: Ops, width: int, layout: Layout) -> Ops:
    """Return the ops `routed` of experts between their two all-to-alls, dispatch and combine; unchanged if dp is 1.

    A token's vector of `width` numbers is sent once to each rank that has one of its experts, in the activations' type
    both ways; an engine may quantise it to the format of the dispatch, the experts' own, before it leaves
    (KernelRules.sends_quantized). Source: DeepSeek-V3, arXiv:2412.19437, section 3.2.
    """
    experts = routed[0].experts
    if layout.dp == 1 or experts is None:
        return routed
    size = Counts(tokens=experts.other_ranks * width * layout.activation_bytes / layout.ep)
    back = Op("combine", "all_to_all", link_bytes=size, link_devices=layout.ep, choices=experts.chosen)
    return (replace(back, name="dispatch", format=routed[0].format), *routed, back)


def elementwise(name: str, width: int, layout: Layout, *, splits: bool = False) -> Op:
    """Return an elementwise op that moves `width` activations per token through memory, without FLOPs."""
    moved = Counts(tokens=width * layout.activation_bytes)
    return Op(name=name, rate="elementwise", activation_bytes=moved, splits=splits)


def attention(
    layout: Layout,
    *,
    flops_per_read: float,
    flops_per_pair: float,
    cache_bytes: float,
    windowed: bool,
    heads: tuple[int, int],
) -> Ops:
    """Return the ops of attention: decode, per cached token read, and prefill, per causal query-key pair.

    `flops_per_read` and `flops_per_pair` are FLOPs, `cache_bytes` bytes per cached token read, all on one device.
    `windowed`: counted in the windowed counts. `heads`: (query heads, KV heads) on one device, because some kernels
    read the KV cache once per query head and read one latent vector together where there are no KV heads.
    """
    suffix = "_windowed" if windowed else ""
    reads, pairs = f"decode_reads{suffix}", f"prefill_pairs{suffix}"
    return (
        Op(
            name="decode attention",
            rate="decode_attention",
            splits=True,
            format=layout.model_dtype,
            flops=Counts(**{reads: flops_per_read}),
            cache_bytes=Counts(**{reads: cache_bytes}),
            heads=heads[0] * (heads[1] > 0),
            shared_by=heads[0] / max(heads[1], 1),
            latent_heads=heads[0] * (heads[1] == 0),
            cache_format=layout.cache_dtype,
        ),
        Op(
            name="prefill attention",
            rate="prefill_attention",
            splits=True,
            format=layout.model_dtype,
            flops=Counts(**{pairs: flops_per_pair}),
            heads=heads[0] * (heads[1] > 0),
            shared_by=heads[0] / max(heads[1], 1) if windowed or heads[1] else 1.0,
        ),
    )


def adapters(ops: Ops) -> Ops:
    """Return the elementwise ops of low-rank adapters (LoRA) beside the GEMMs of a layer.

    An adapter reads the GEMM's input and adds to its output; its own weights and FLOPs are negligible. Each has three
    kernels: clear a buffer, shrink with the first matrix, expand with the second (vLLM's Triton kernels, as recalled).
    """
    return tuple(
        Op(
            name=f"adapters of {op.name}",
            rate="elementwise",
            activation_bytes=Counts(tokens=op.activation_bytes.tokens * ADAPTER_TRAFFIC),
            repeats=op.repeats,
            launches=3,
        )
        for op in ops
        if _is_adapted(op)
    )


def adapter_parameters(ops: Ops) -> int:
    """Return the parameters of low-rank adapters (LoRA) per unit of rank: inputs + outputs of each adapted GEMM.

    vLLM keeps a first matrix for each of the projections that it fuses (`PACKED`). Routed experts and the output head
    have no adapters here.

    >>> adapter_parameters((linear("down projection", (14336, 4096), Layout()),))
    18432
    """
    numbers = 0
    for op in filter(_is_adapted, ops):
        numbers += op.repeats * (PACKED.get(op.name, 1) * op.inputs + op.columns)
    return numbers


def _is_adapted(op: Op) -> bool:
    return op.rate == "gemm" and bool(op.weight_bytes) and bool(op.flops.tokens) and not op.on_host


# Moved per logit where PyTorch sorts a vocabulary (aten/src/ATen/native/cuda/SortStable.cu, read 2026-11-22): indices
# are written (8), fp32 keys counted (4) and moved with them in four passes of a radix sort (96) and one by sequence
# (24), and the sorted put in place (24). What is then done to them is left out: it stays near.
SORTED_BYTES = 156.0


def sorting(vocab: int) -> Op:
    """Return the sampler's sort of the vocabulary, all of which every device has: `SORTED_BYTES` per logit."""
    return Op(name="sampling", rate="elementwise", activation_bytes=Counts(logits=SORTED_BYTES * vocab))


def recurrence(
    layout: Layout, *, state_bytes: float, flops_per_update: float, flops_per_prompt_token: float, kernels: int = 1
) -> Ops:
    """Return the ops of a recurrent state: its update, once per sequence and step, and the scan of prompts in chunks.

    `state_bytes` per sequence, `flops_per_update` per sequence and step, `flops_per_prompt_token`, all on one device.
    Sequences are counted by the logits that they need (a prompt's chunks before its last are few and long, and their
    states are left out). The scan runs at the rate of GEMMs, a guess (`SCAN_RATE`); `kernels`: how many launch it.
    """
    return (
        Op(
            name="state update",
            rate="decode_attention",
            splits=True,
            format=layout.model_dtype,
            flops=Counts(logits=flops_per_update),
            cache_bytes=Counts(logits=2 * state_bytes),
        ),
        Op(
            name=SCAN,
            rate="gemm",
            format=layout.model_dtype,
            flops=Counts(prefill_tokens=flops_per_prompt_token),
            splits=True,
            launches=0,  # a step without prompts has no scan, and with prompts it is long
            prompt_launches=kernels,
        ),
    )
