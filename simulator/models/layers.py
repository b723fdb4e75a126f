"""Attention, feed-forward blocks, and the unions of all layers that are modelled.

A mixer moves information between tokens (attention, a recurrence), a feed-forward block does not. Both have
`weights(hidden, layout)`, parameters on one device, and `ops(hidden, layout)`, the ops of one step on one device, with
`hidden` the model's hidden size. A mixer also has `cache_bytes_per_token(layout)` and `state_bytes(layout)`, the bytes
per sequence that do not depend on its length. A new architecture is one more class (docs/structure.md).
"""

from dataclasses import replace
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from simulator.errors import ProfileError
from simulator.models.compressed import CompressedAttention
from simulator.models.latent import BlockIndexer, LatentAttention
from simulator.models.layout import Layout, Weights
from simulator.models.number_formats import number_format
from simulator.models.op_builders import (
    NORM_SUMS,
    SINGLE,
    Ops,
    PositiveInt,
    all_reduce,
    attention,
    elementwise,
    linear,
    to_experts,
    whole_experts,
)
from simulator.models.operations import Counts, Op
from simulator.models.recurrent import GatedDeltaNet, KimiDelta, LightningAttention, Mamba, Mamba2, ShortConvolution
from simulator.models.routed_experts import Experts
from simulator.profile import Strict

LAST_OF_EXPERTS = "experts down"  # the op of a layer of routed experts that stands for the layer
BESIDE_EXPERTS = "experts' activation and sum"  # the op of elementwise kernels of a layer of routed experts
EXPERT_LAUNCHES = 5  # choose experts, sort tokens, the first of two grouped GEMMs, activation, sum


class HeadColumns(NamedTuple):
    """Columns of an attention layer on one device: queries, what its heads put out, keys, and values."""

    queries: int
    output: int
    keys: int
    values: int


class Attention(Strict):
    """Grouped-query attention; `window` is the number of tokens that a query attends to, None for all.

    `chunked`: they are those of its own chunk of as many tokens (Llama 4; operations.Span).
    `indexer`: they are those of blocks that it chooses among all, which are cached (MiniMax-M3).

    `gate`: a second projection as wide as the output gates it; `head_gate`: one of a number per head does (transformers
    5.23.0, step3p7, laguna). `shared_kv`: values are the keys before their norm. `v_dim`: width of a value's head where
    it is not a key's (MiMo-V2-Flash). `q_lora`: queries start from a latent vector of that width, which every device
    computes (Step-3, arXiv:2507.19427, multi-matrix factorization attention). `reuses_cache`: keys and values are those
    that an earlier layer cached; this one has and caches none (cross-layer attention, arXiv:2405.12981). `qk_norm` over
    all heads ("full") needs an all-reduce over tp devices (vllm-project/vllm pull request 31493). `v_norm`: values are
    normed, too, without weights (Gemma 3n and 4; transformers 5.23.0). Source: Ainslie and
    others, GQA, arXiv:2305.13245. Raises ProfileError if KV heads do not divide the query heads.
    """

    kind: Literal["attention"] = "attention"
    heads: PositiveInt
    kv_heads: PositiveInt
    head_dim: PositiveInt
    v_dim: PositiveInt | None = None
    q_lora: PositiveInt | None = None
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: Literal["none", "head", "full"] = "none"
    v_norm: bool = False
    sinks: bool = False
    gate: bool = False
    head_gate: bool = False
    shared_kv: bool = False
    reuses_cache: bool = False
    window: PositiveInt | None = None
    chunked: bool = False
    indexer: BlockIndexer | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.heads % self.kv_heads:
            because = f"{self.heads} heads do not share them evenly"
            raise ProfileError(f"kv_heads {self.kv_heads}", because, f"Give a divisor of {self.heads}")
        if self.indexer and not self.window:
            raise ProfileError("indexer without window", "it chooses that many tokens", "Give window")
        return self

    def _local(self, layout: Layout) -> tuple[int, int]:
        """Return query heads and KV heads on one device; KV heads are replicated if devices outnumber them."""
        heads = layout.share(self.heads, "attention heads")
        replicated = layout.tp > self.kv_heads and layout.tp % self.kv_heads == 0
        return heads, 1 if replicated else layout.share(self.kv_heads, "KV heads")

    def _widths(self, layout: Layout) -> HeadColumns:
        heads, kv_heads = self._local(layout)
        v_dim = self.v_dim or self.head_dim
        return HeadColumns(heads * self.head_dim, heads * v_dim, kv_heads * self.head_dim, kv_heads * v_dim)

    def _projected(self, widths: HeadColumns) -> int:
        """Return the columns on one device of the GEMM of queries, keys, values and gates."""
        own = 0 if self.reuses_cache else widths.keys + (0 if self.shared_kv else widths.values)
        return (self.q_lora or widths.queries) + self.gate * widths.output + own

    def _indexed(self, layout: Layout) -> int:
        return self.indexer.columns(layout) if self.indexer else 0

    def weights(self, hidden: int, layout: Layout = SINGLE) -> Weights:
        """Parameters on one device: q, k, v and output projections, biases, norms and attention sinks."""
        widths, heads = self._widths(layout), self._local(layout)[0]
        projected, keys = self._projected(widths), not self.reuses_cache
        per_head, full = (1 + keys) * self.head_dim, widths.queries + keys * widths.keys
        norm = {"none": 0, "head": per_head, "full": full}[self.qk_norm] + (self.q_lora or 0)
        bias = projected * self.qkv_bias + hidden * self.output_bias
        before = projected + self._indexed(layout) + widths.output
        matrices = hidden * (before + heads * self.head_gate) + (self.q_lora or 0) * widths.queries
        indexed = self.indexer.norm_parameters if self.indexer else 0
        return Weights(mixer=matrices, other=norm + bias + heads * self.sinks + indexed)

    def _read_bytes(self, layout: Layout) -> float:
        """Bytes of one token's keys and values on one device, in whichever layer they are cached."""
        widths = self._widths(layout)
        return (widths.keys + widths.values) * layout.cache_bytes

    def cache_bytes_per_token(self, layout: Layout = SINGLE) -> float:
        """KV-cache bytes per token on one device: n_kv (d_k + d_v) numbers; none that another layer caches."""
        index = self.indexer.cache_bytes_per_token(layout) if self.indexer else 0.0
        return 0.0 if self.reuses_cache else self._read_bytes(layout) + index

    def state_bytes(self, _layout: Layout = SINGLE) -> float:
        """Bytes per sequence whatever its length: none."""
        return 0.0

    def _before(self, hidden: int, layout: Layout) -> Ops:
        """QKV projection, norms over devices, rotary positions and what the cache is written."""
        widths = self._widths(layout)
        shape = (hidden, self._projected(widths) + self._indexed(layout))
        moved = widths.queries + (0 if self.reuses_cache else widths.keys + widths.values)
        up = (linear("query up", (self.q_lora, widths.queries), layout, "mixer"),) if self.q_lora else ()
        return (
            linear("query projection" if self.reuses_cache else "qkv projection", shape, layout, "mixer"),
            *up,
            *(all_reduce("all-reduce of norms", NORM_SUMS, layout) if self.qk_norm == "full" else ()),
            self._normed(elementwise("rope and cache write", 2 * moved, layout, splits=True)),
        )

    def _normed(self, op: Op) -> Op:
        """Return the op with the norms of queries, keys and values; a layer that caches none has those of queries."""
        if self.qk_norm == "none":
            return op
        every = 1 if self.reuses_cache else 2 + self.v_norm
        return replace(op, normed="values" if self.v_norm else "heads", norms=every)

    def ops(self, hidden: int, layout: Layout) -> Ops:
        """QKV projection, attention, output projection, all-reduce."""
        widths, heads = self._widths(layout), self._local(layout)
        flops = 2.0 * (widths.queries + widths.output)
        decodes, prompts = attention(
            layout,
            flops_per_read=flops,
            flops_per_pair=flops,
            cache_bytes=self._read_bytes(layout),
            windowed=self.window is not None,
            heads=heads,
        )
        return (
            *self._before(hidden, layout),
            *(self.indexer.ops(layout) if self.indexer else ()),
            replace(decodes, chunk_tokens=(self.window or 0) * self.chunked),
            prompts,
            *((linear("head gate", (hidden, heads[0]), layout, "mixer"),) if self.head_gate else ()),
            *((elementwise("output gate", 3 * widths.output, layout),) if self.gate or self.head_gate else ()),
            linear("output projection", (widths.output, hidden), layout, "mixer"),
            *all_reduce("all-reduce after attention", hidden, layout),
        )


class Dense(Strict):
    """Dense feed-forward block of two projections, or three with a gate (SwiGLU: Shazeer, arXiv:2002.05202)."""

    kind: Literal["dense"] = "dense"
    intermediate: PositiveInt
    gated: bool = True
    bias: bool = False

    def weights(self, hidden: int, layout: Layout = SINGLE) -> Weights:
        """Parameters on one device: (2 or 3) h i, and biases."""
        local = layout.share(self.intermediate, "intermediate columns")
        inner = 2 if self.gated else 1
        return Weights(linear=(inner + 1) * hidden * local, other=(inner * local + hidden) * self.bias)

    def ops(self, hidden: int, layout: Layout) -> Ops:
        """Up (and gate) projection, activation, down projection, all-reduce."""
        local = layout.share(self.intermediate, "intermediate columns")
        inner = 2 if self.gated else 1
        return (
            linear("gate and up projection" if self.gated else "up projection", (hidden, inner * local), layout),
            elementwise("activation", (inner + 1) * local, layout),
            linear("down projection", (local, hidden), layout),
            *all_reduce("all-reduce after feed-forward", hidden, layout),
        )


# From so many on, routers prefer some: the variance of an expert's popularity is 1.4 and 2.1 squared means in
# Qwen3-30B-A3B (normalised entropies of 0.889 in mixed text and 0.846 in Python, mcp-tool-shop.org gpu-container), 0.52
# among 16 of DeepSeek-V3 (counts in sgl-project/sglang pull request 5524); taken as 1. Few are chosen alike: Mixtral's
# shares of tokens lie near 1/8 (arXiv:2401.04088, recalled).
UNEVEN_EXPERTS = 32


class MixtureOfExperts(Strict):
    """Mixture of experts: `chosen` of `experts` routed experts per token, and optional shared experts for every token.

    `router_dtype`: type of the router's weights and GEMM, if it is not the model's. `latent`: routed experts work on
    vectors of that width, between a down- and an up-projection of all tokens (Nemotron 3, NVIDIA, 2025, as implemented
    in transformers 5.23.0). `zero_experts`: further choices of the router that compute nothing and return their input;
    `chosen` is then the mean number of the others (LongCat-Flash, arXiv:2509.01322, section 2.1). Raises ProfileError
    if more experts are chosen than there are.
    """

    kind: Literal["experts"]
    experts: PositiveInt
    chosen: PositiveInt
    intermediate: PositiveInt
    shared_intermediate: Annotated[int, Field(ge=0)] = 0
    shared_gate: bool = False
    gated: bool = True
    latent: PositiveInt | None = None
    router_bias: bool = False
    router_scale: bool = False
    router_dtype: str = ""
    expert_bias: bool = False
    zero_experts: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.chosen > self.experts:
            raise ProfileError(
                f"chosen {self.chosen}", f"there are {self.experts} experts", f"Give {self.experts} at most"
            )
        return self

    def _local(self, layout: Layout) -> tuple[int, int]:
        """Return the experts on one device and the intermediate width of each there."""
        if layout.ep > 1:
            return whole_experts(self.experts, layout), self.intermediate
        return self.experts, layout.share(self.intermediate, "expert columns")

    @property
    def _shared(self) -> Dense | None:
        return Dense(intermediate=self.shared_intermediate, gated=self.gated) if self.shared_intermediate else None

    def _expert(self, hidden: int, width: int) -> int:
        """Parameters of one expert: (2 or 3) h m."""
        return (3 if self.gated else 2) * (self.latent or hidden) * width

    def weights(self, hidden: int, layout: Layout = SINGLE) -> Weights:
        """Parameters on one device: E (2 or 3) h m of the experts, E h of the router, biases, shared experts."""
        experts, width = self._local(layout)
        shared = self._shared
        choices = self.experts + self.zero_experts
        router = choices * (hidden + self.router_bias) + hidden * (self.shared_gate + self.router_scale)
        bias = experts * (2 * width + hidden) * self.expert_bias
        latent = 2 * hidden * (self.latent or 0)
        own = Weights(linear=latent, experts=experts * self._expert(hidden, width), other=router + bias)
        return own + (shared.weights(hidden, layout) if shared else Weights())

    def idle_parameters(self, hidden: int) -> int:
        """Parameters of the routed experts that one token does not use."""
        bias = (2 * self.intermediate + hidden) * self.expert_bias
        expert = self._expert(hidden, self.intermediate) + bias
        return (self.experts - self.chosen) * expert

    def _routed(self, hidden: int, layout: Layout) -> Ops:
        """Return the two grouped GEMMs of the routed experts, and the elementwise kernels between and after them.

        The activation reads what the first GEMM wrote, w numbers per token and expert, or 2 w with a gate, and writes
        w; the sum over experts reads h. What a GEMM reads and writes moves while it computes. Sorting inputs, and
        quantising those with block scales, belongs to the GEMM (Rates); other quantisation is left out: some engines do
        it in the activation kernel, others (vLLM's Triton experts) with one more kernel per input.
        """
        experts, width = self._local(layout)
        inner = 2 if self.gated else 1
        per_token = self.chosen * experts / self.experts
        routed = Experts(self.experts, self.chosen, layout.ep, self.experts >= UNEVEN_EXPERTS, width)
        stored = layout.format_of("experts")

        def gemm(name: str, inputs: int, outputs: int, launches: int) -> Op:
            return Op(
                name=name,
                rate="gemm",
                format=stored,
                flops=Counts(tokens=2.0 * per_token * inputs * outputs),
                columns=outputs,
                inputs=inputs,
                expert_bytes=inputs * outputs * number_format(stored).size_bytes * experts / self.experts,
                experts=routed,
                activation_bytes=Counts(tokens=per_token * (inputs + outputs) * layout.activation_bytes),
                launches=launches,
            )

        moved = Counts(tokens=per_token * ((inner + 1) * width + hidden) * layout.activation_bytes)
        shared = Counts(tokens=hidden / layout.dp)
        between = Op(BESIDE_EXPERTS, "elementwise", activation_bytes=moved, experts=routed, launches=0)
        return (
            replace(gemm("experts up", hidden, inner * width, EXPERT_LAUNCHES), shared_inputs=shared),
            replace(between, normed="router", norms=1) if self.router_scale else between,
            gemm(LAST_OF_EXPERTS, width, hidden, 1),
        )

    def _router(self, hidden: int, layout: Layout) -> Ops:
        """Return the router's GEMM; in a wider type than the model's its inputs are cast first, and it is two kernels.

        Source: vllm-project/vllm pull request 38445 (2026-03): MiniMax-M2's in fp32 is a cast and a GEMM split over K.
        The one kernel that vLLM 0.19 has for a few tokens is not modelled.
        """
        shape = (hidden, self.experts + self.zero_experts + self.shared_gate)
        if not self.router_dtype:
            return (linear("router", shape, layout, part="other"),)
        router = linear("router", shape, replace(layout, weight_dtype=self.router_dtype), part="other")
        moved = hidden * (layout.activation_bytes + number_format(self.router_dtype).size_bytes)
        cast = Op("router's inputs, cast", "elementwise", activation_bytes=Counts(tokens=moved))
        return cast, replace(router, launches=2)

    @property
    def _at_once(self) -> Literal["", "shared"]:
        """Whether shared experts read what routed ones do; the dense block of Gemma 4 has a norm of its own."""
        return "" if self.router_scale else "shared"

    def ops(self, hidden: int, layout: Layout) -> Ops:
        """Router, the experts that the batch touches, shared experts, one all-reduce for both."""
        narrow, beside = self.latent or hidden, self._shared.ops(hidden, layout) if self._shared else ()
        return (
            *self._router(hidden, layout),
            *((linear("down to experts", (hidden, narrow), layout),) if self.latent else ()),
            *to_experts(self._routed(narrow, layout), narrow, layout),
            *((linear("up from experts", (narrow, hidden), layout),) if self.latent else ()),
            *(replace(op, at_once=self._at_once) for op in beside if op.rate != "all_reduce"),
            *all_reduce("all-reduce after feed-forward", hidden, layout),
        )


Recurrent = GatedDeltaNet | KimiDelta | LightningAttention | ShortConvolution | Mamba | Mamba2
Mixer = Annotated[Attention | LatentAttention | CompressedAttention | Recurrent, Field(discriminator="kind")]
FeedForward = Annotated[Dense | MixtureOfExperts, Field(discriminator="kind")]
