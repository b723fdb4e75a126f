"""What layers are made of: products, attention over a cache, a state per sequence, streams, sums over devices."""

from typing import Annotated, Literal

from pydantic import Field

from simulator.errors import NotModelledError
from simulator.models.number_formats import number_format
from simulator.models.operations import Counts, Layout, Op, Part
from simulator.profile import Figure, Source

PACKED = {"qkv projection": 3, "gate and up projection": 2}  # projections in one (vLLM: packed_modules_mapping)
ADAPTER_TRAFFIC = Figure(1.5, Source(text="of a GEMM's: its result is read, too", date="", evidence="guess"))
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
    """Return the op of a projection (inputs, outputs): 2 FLOPs per weight and token, weights read once per step."""
    inputs, outputs = shape
    activations = (inputs + outputs) * layout.activation_bytes
    stored = layout.format_of(part)
    return Op(
        name=name,
        rate="gemm",
        format=stored,
        flops=Counts(**{per: 2.0 * inputs * outputs}),
        weight_bytes=inputs * outputs * number_format(stored).size_bytes,
        columns=outputs,
        activation_bytes=Counts(**{per: activations}),
    )


def all_reduce(name: str, hidden: int, layout: Layout) -> Ops:
    """Return the sum of partial results over tp devices; nothing for one device."""
    if layout.tp == 1:
        return ()
    size = Counts(tokens=hidden * layout.activation_bytes)
    return (Op(name=name, rate="all_reduce", link_bytes=size, link_devices=layout.tp),)


def whole_experts(experts: int, layout: Layout) -> int:
    """Return the experts on each of ep devices; NotModelledError where they do not divide."""
    if experts % layout.ep:
        given = f"ep {layout.ep}"
        raise NotModelledError(given, f"{experts} experts do not divide by it", f"Give a divisor of {experts}")
    return experts // layout.ep


def to_experts(routed: Ops, width: int, layout: Layout) -> Ops:
    """Return the way of tokens to their experts and back, around these; nothing where every device has all tokens.

    A token's vector goes once to each rank that one of its experts lies on (DeepSeek-V3, arXiv:2412.19437, section
    3.2), both ways in the type of the activations; an fp8 dispatch would halve one of them.
    """
    experts = routed[0].experts
    if layout.dp == 1 or experts is None:
        return routed
    size = Counts(tokens=experts.other_ranks * width * layout.activation_bytes / layout.ep)
    ways = (Op(name, "all_to_all", link_bytes=size, link_devices=layout.ep) for name in ("dispatch", "combine"))
    there, back = ways
    return (there, *routed, back)


def elementwise(name: str, width: int, layout: Layout) -> Op:
    """Return an op that only moves `width` activations per token through memory."""
    return Op(name=name, rate="elementwise", activation_bytes=Counts(tokens=width * layout.activation_bytes))


def attention(
    layout: Layout,
    *,
    flops_per_read: float,
    flops_per_pair: float,
    cache_bytes: float,
    windowed: bool,
    heads: tuple[int, int] = (0, 1),
) -> Ops:
    """Return decode attention, per cached token read, and prefill attention, per causal pair of a query and a key.

    `heads` on one device, of queries and of the cache, where a kernel may read it once for each of the former.
    """
    suffix = "_windowed" if windowed else ""
    reads, pairs = f"decode_reads{suffix}", f"prefill_pairs{suffix}"
    return (
        Op(
            name="decode attention",
            rate="decode_attention",
            format=layout.model_dtype,
            flops=Counts(**{reads: flops_per_read}),
            cache_bytes=Counts(**{reads: cache_bytes}),
            heads=heads[0],
            shared_by=heads[0] / heads[1],
            cache_format=layout.cache_dtype,
        ),
        Op(
            name="prefill attention",
            rate="prefill_attention",
            format=layout.model_dtype,
            flops=Counts(**{pairs: flops_per_pair}),
            heads=heads[0],
        ),
    )


def adapters(ops: Ops) -> Ops:
    """Return the products of low-rank adapters (LoRA) beside those of a layer's weights.

    They take what the product takes and add to what it gives; their own numbers and FLOPs are next to nothing. Each
    has three kernels: a buffer is cleared, the first matrix fills it, the second expands it (recalled of vLLM).
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
    """Numbers of the low-rank adapters of these products, for each of their rank: one per input, one per output.

    vLLM keeps a first matrix for each of the projections that it fuses (`PACKED`). Those of routed experts and of the
    vocabulary are left out.

    >>> adapter_parameters((linear("down projection", (14336, 4096), Layout()),))
    18432
    """
    numbers = 0
    for op in filter(_is_adapted, ops):
        inputs = round(op.weight_bytes / number_format(op.format).size_bytes) // op.columns
        numbers += op.repeats * (PACKED.get(op.name, 1) * inputs + op.columns)
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


def recurrence(layout: Layout, *, state_bytes: float, flops_per_update: float, flops_per_prompt_token: float) -> Ops:
    """Return a state that each sequence reads and writes once per step, and the scan of prompts in chunks.

    A sequence that takes part in a step is counted where it needs a logit (a prompt's chunks before its last are few
    and long: their states are left out). The scan runs at the rate of a GEMM, a guess (`SCAN_RATE`).
    """
    return (
        Op(
            name="state update",
            rate="decode_attention",
            format=layout.model_dtype,
            flops=Counts(logits=flops_per_update),
            cache_bytes=Counts(logits=2 * state_bytes),
        ),
        Op(
            name=SCAN,
            rate="gemm",
            format=layout.model_dtype,
            flops=Counts(prefill_tokens=flops_per_prompt_token),
            launches=0,  # a step without prompts has no scan, and with prompts it is long
        ),
    )
