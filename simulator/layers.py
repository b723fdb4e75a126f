"""Every architecture: each layer states its weights, its cache and its work on one device of a layout.

A mixer moves information between tokens (attention); a feed-forward block does not. Both answer one protocol,
`weights(hidden, layout)`, `cache_bytes_per_token(layout)` and `ops(hidden, layout)`; a new architecture is one
more class here.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from simulator.errors import ProfileError
from simulator.profile import Strict
from simulator.work import Counts, Experts, Layout, Op, Part, Weights, number_format

SINGLE = Layout()
EXPERT_LAUNCHES = 6  # choose experts, sort tokens, two grouped products with the activation between, sum
Ops = tuple[Op, ...]
Positive = Annotated[int, Field(gt=0)]


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
        activation_bytes=Counts(**{per: activations}),
    )


def all_reduce(name: str, hidden: int, layout: Layout) -> Ops:
    """Return the sum of partial results over tp devices; nothing for one device."""
    if layout.tp == 1:
        return ()
    size = Counts(tokens=hidden * layout.activation_bytes)
    return (Op(name=name, rate="all_reduce", link_bytes=size, link_devices=layout.tp),)


def elementwise(name: str, width: int, layout: Layout) -> Op:
    """Return an op that only moves `width` activations per token through memory."""
    return Op(name=name, rate="stream", activation_bytes=Counts(tokens=width * layout.activation_bytes))


class Attention(Strict):
    """Grouped-query attention; `window` is the number of tokens a query sees, none for all."""

    kind: Literal["attention"] = "attention"
    heads: Positive
    kv_heads: Positive
    head_dim: Positive
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: Literal["none", "head", "full"] = "none"
    sinks: bool = False
    window: Positive | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.heads % self.kv_heads:
            because = f"{self.heads} heads do not share them evenly"
            raise ProfileError(f"kv_heads {self.kv_heads}", because, "Correct one of the two")
        return self

    def _local(self, layout: Layout) -> tuple[int, int]:
        """Query and KV heads on one device; KV heads are replicated when there are fewer than devices."""
        heads = layout.share(self.heads, "attention heads")
        replicated = layout.tp > self.kv_heads and layout.tp % self.kv_heads == 0
        return heads, 1 if replicated else layout.share(self.kv_heads, "KV heads")

    def weights(self, hidden: int, layout: Layout = SINGLE) -> Weights:
        """Numbers on one device: q, k, v, output projections, biases, norms and sinks."""
        heads, kv_heads = self._local(layout)
        width, kv_width = heads * self.head_dim, kv_heads * self.head_dim
        norm = {"none": 0, "head": 2 * self.head_dim, "full": width + kv_width}[self.qk_norm]
        bias = (width + 2 * kv_width) * self.qkv_bias + hidden * self.output_bias
        return Weights(linear=hidden * (2 * width + 2 * kv_width), other=norm + bias + heads * self.sinks)

    def cache_bytes_per_token(self, layout: Layout = SINGLE) -> float:
        """Bytes of keys and values of one token on one device: 2 n_kv d."""
        return 2 * self._local(layout)[1] * self.head_dim * layout.cache_bytes

    def ops(self, hidden: int, layout: Layout) -> Ops:
        """Projections, attention over cached and new tokens, output projection, all-reduce."""
        heads, kv_heads = self._local(layout)
        width, kv_width = heads * self.head_dim, kv_heads * self.head_dim
        return (
            linear("qkv projection", (hidden, width + 2 * kv_width), layout),
            elementwise("rope and cache write", 2 * (width + 2 * kv_width), layout),
            *_attention_ops(
                layout,
                flops_per_read=4.0 * width,
                flops_per_pair=4.0 * width,
                cache_bytes=self.cache_bytes_per_token(layout),
                windowed=self.window is not None,
            ),
            linear("output projection", (width, hidden), layout),
            *all_reduce("all-reduce after attention", hidden, layout),
        )


class LatentAttention(Strict):
    """Multi-head latent attention: one compressed key-value vector per token, shared by all heads.

    Decode works in the compressed space (the up-projection is absorbed into query and output); source: DeepSeek-V2,
    arXiv:2405.04434, section 2.1.
    """

    kind: Literal["latent"]
    heads: Positive
    q_lora: Positive | None = None
    kv_lora: Positive
    rope_dim: Positive
    nope_dim: Positive
    v_dim: Positive
    window: None = None

    def _projections(self, hidden: int, layout: Layout) -> dict[str, tuple[int, int]]:
        heads = layout.share(self.heads, "attention heads")
        q_width = heads * (self.nope_dim + self.rope_dim)
        query = {"query projection": (hidden, q_width)}
        if self.q_lora is not None:
            query = {"query down": (hidden, self.q_lora), "query up": (self.q_lora, q_width)}
        return query | {
            "kv down": (hidden, self.kv_lora + self.rope_dim),
            "kv up": (self.kv_lora, heads * (self.nope_dim + self.v_dim)),
            "output projection": (heads * self.v_dim, hidden),
        }

    def weights(self, hidden: int, layout: Layout = SINGLE) -> Weights:
        """Numbers on one device; the down-projections are replicated over tp."""
        matrices = sum(rows * columns for rows, columns in self._projections(hidden, layout).values())
        return Weights(linear=matrices, other=(self.q_lora or 0) + self.kv_lora)

    def cache_bytes_per_token(self, layout: Layout = SINGLE) -> float:
        """Bytes of one compressed vector with its rotary part; every device of a layout holds all of it."""
        return (self.kv_lora + self.rope_dim) * layout.cache_bytes

    def ops(self, hidden: int, layout: Layout) -> Ops:
        """Down- and up-projections, attention in the latent space, output projection, all-reduce."""
        heads = layout.share(self.heads, "attention heads")
        *before, output = (linear(name, shape, layout) for name, shape in self._projections(hidden, layout).items())
        return (
            *before,
            elementwise("rope and cache write", 2 * heads * (self.nope_dim + self.rope_dim), layout),
            *_attention_ops(
                layout,
                flops_per_read=2.0 * heads * (2 * self.kv_lora + self.rope_dim),
                flops_per_pair=2.0 * heads * (self.nope_dim + self.rope_dim + self.v_dim),
                cache_bytes=self.cache_bytes_per_token(layout),
                windowed=False,
            ),
            output,
            *all_reduce("all-reduce after attention", hidden, layout),
        )


def _attention_ops(
    layout: Layout, *, flops_per_read: float, flops_per_pair: float, cache_bytes: float, windowed: bool
) -> Ops:
    suffix = "_windowed" if windowed else ""
    reads, pairs = f"decode_reads{suffix}", f"prefill_pairs{suffix}"
    return (
        Op(
            name="decode attention",
            rate="decode_attention",
            format=layout.model_dtype,
            flops=Counts(**{reads: flops_per_read}),
            cache_bytes=Counts(**{reads: cache_bytes}),
        ),
        Op(
            name="prefill attention",
            rate="prefill_attention",
            format=layout.model_dtype,
            flops=Counts(**{pairs: flops_per_pair}),
        ),
    )


class Dense(Strict):
    """Feed-forward block of two (plain) or three (gated) projections."""

    kind: Literal["dense"] = "dense"
    intermediate: Positive
    gated: bool = True
    bias: bool = False

    def weights(self, hidden: int, layout: Layout = SINGLE) -> Weights:
        """Numbers on one device: (2 or 3) h i, and the biases."""
        local = layout.share(self.intermediate, "intermediate columns")
        inner = 2 if self.gated else 1
        return Weights(linear=(inner + 1) * hidden * local, other=(inner * local + hidden) * self.bias)

    def ops(self, hidden: int, layout: Layout) -> Ops:
        """Up (and gate), activation, down, all-reduce."""
        local = layout.share(self.intermediate, "intermediate columns")
        inner = 2 if self.gated else 1
        return (
            linear("gate and up projection" if self.gated else "up projection", (hidden, inner * local), layout),
            elementwise("activation", (inner + 1) * local, layout),
            linear("down projection", (local, hidden), layout),
            *all_reduce("all-reduce after feed-forward", hidden, layout),
        )


class MixtureOfExperts(Strict):
    """Routed experts, `chosen` of `experts` per token, beside shared ones that see every token."""

    kind: Literal["experts"]
    experts: Positive
    chosen: Positive
    intermediate: Positive
    shared_intermediate: Annotated[int, Field(ge=0)] = 0
    shared_gate: bool = False
    router_bias: bool = False
    expert_bias: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.chosen > self.experts:
            raise ProfileError(f"chosen {self.chosen}", f"there are {self.experts} experts", "Correct one of the two")
        return self

    def _local(self, layout: Layout) -> tuple[int, int]:
        """Experts on one device and the width of each there."""
        if layout.ep > 1:
            return layout.share(self.experts, "experts"), self.intermediate
        return self.experts, layout.share(self.intermediate, "expert columns")

    @property
    def _shared(self) -> Dense | None:
        return Dense(intermediate=self.shared_intermediate) if self.shared_intermediate else None

    def weights(self, hidden: int, layout: Layout = SINGLE) -> Weights:
        """Numbers on one device: E 3 h m, router E h with its bias, shared experts and their gate."""
        experts, width = self._local(layout)
        shared = self._shared
        router = self.experts * (hidden + self.router_bias) + hidden * self.shared_gate
        bias = experts * (2 * width + hidden) * self.expert_bias
        own = Weights(experts=experts * 3 * hidden * width, other=router + bias)
        return own + (shared.weights(hidden, layout) if shared else Weights())

    def idle_parameters(self, hidden: int) -> int:
        """Numbers of the experts that one token does not reach."""
        expert = 3 * hidden * self.intermediate + (2 * self.intermediate + hidden) * self.expert_bias
        return (self.experts - self.chosen) * expert

    def ops(self, hidden: int, layout: Layout) -> Ops:
        """Router, the experts that the batch touches, shared experts, one all-reduce for both."""
        experts, width = self._local(layout)
        per_token = self.chosen * experts / self.experts
        stored = layout.format_of("experts")
        shared = self._shared
        routed = Op(
            name="routed experts",
            rate="gemm",
            format=stored,
            flops=Counts(tokens=2.0 * per_token * 3 * hidden * width),
            expert_bytes=3 * hidden * width * number_format(stored).size_bytes * experts / self.experts,
            experts=Experts(self.experts, self.chosen),
            activation_bytes=Counts(tokens=per_token * 2 * (hidden + 2 * width) * layout.activation_bytes),
            launches=EXPERT_LAUNCHES,
        )
        router = linear("router", (hidden, self.experts + self.shared_gate), layout, part="other")
        return (
            router,
            routed,
            *(op for op in (shared.ops(hidden, layout) if shared else ()) if op.rate != "all_reduce"),
            *all_reduce("all-reduce after feed-forward", hidden, layout),
        )


Mixer = Annotated[Attention | LatentAttention, Field(discriminator="kind")]
FeedForward = Annotated[Dense | MixtureOfExperts, Field(discriminator="kind")]
