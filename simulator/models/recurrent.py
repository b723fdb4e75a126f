"""Recurrent layers, with a state of constant size per sequence: linear attention, convolutions, Mamba and Mamba-2.

Each sequence of a step reads and writes its state once; prompts are scanned in chunks. So the memory traffic grows with
the batch and not with the length of the context.
"""

from dataclasses import replace
from typing import Literal

from simulator.models.layout import Layout, Weights
from simulator.models.number_formats import number_format
from simulator.models.op_builders import (
    NORM_SUMS,
    SINGLE,
    Ops,
    PositiveInt,
    all_reduce,
    elementwise,
    linear,
    recurrence,
)
from simulator.profile import Strict

WIDE_BYTES = 2.0  # of a number that is not quantised
CHUNK_TOKENS = 64  # per chunk of a prompt, which a scan computes as GEMMs; flash-linear-attention's default
# Kernels of a scan, as sglang 0.5.9 and vLLM launch those of flash-linear-attention and Mamba (srt/layers/attention/fla
# and mamba/ops, read 2026-11-27). Gates, two norms, sum of decays, K K^T, its inverse in two, W and U, states, outputs:
DELTA_KERNELS = 10
KIMI_KERNELS = 13  # K K^T in two, and two convolutions more: queries, keys and values have one each
MAMBA2_KERNELS = 6  # sum of decays, states of chunks, their passing, C B^T, outputs, states of sequences


class _Recurrent(Strict):
    """Common part of recurrent layers: no cache per token; the state includes the last inputs of a convolution."""

    conv: PositiveInt = 4
    state_dtype: Literal["model", "fp32"] = "model"

    @property
    def window(self) -> None:
        """A recurrent layer has no attention window."""
        return None

    def cache_bytes_per_token(self, _layout: Layout = SINGLE) -> float:
        """Bytes per token: none."""
        return 0.0

    def _state_bytes(self, numbers: int, channels: int, layout: Layout) -> float:
        stored = layout.model_dtype if self.state_dtype == "model" else self.state_dtype
        kept = (self.conv - 1) * channels * layout.activation_bytes
        return numbers * number_format(stored).size_bytes + kept


class GatedDeltaNet(_Recurrent):
    """Gated DeltaNet: linear attention whose state decays by a gate and is corrected by the delta rule.

    Per token and value head, with keys of d_k and values of d_v: read S k, write the correction, read S q, 6 d_k d_v
    FLOPs. In chunks of C tokens 6 d_k d_v + C (6 d_k + 4 d_v). Source: Gated Delta Networks, arXiv:2412.06464, sections
    3.1 and 3.3; weights as in transformers 5.23.0 (qwen3_next, qwen3_5).
    """

    kind: Literal["gated_delta_net"]
    key_heads: PositiveInt
    value_heads: PositiveInt
    key_dim: PositiveInt
    value_dim: PositiveInt

    def _local(self, layout: Layout) -> tuple[int, int, int]:
        """Return value heads, key columns and value columns on one device."""
        heads = layout.share(self.value_heads, "value heads")
        return heads, layout.share(self.key_heads, "key heads") * self.key_dim, heads * self.value_dim

    def weights(self, hidden: int, layout: Layout = SINGLE) -> Weights:
        """Parameters on one device: q, k, v, z and output projections, gates, convolution, decay and norm."""
        heads, keys, values = self._local(layout)
        gates = hidden * 2 * heads + 2 * heads
        other = gates + self.conv * (2 * keys + values) + self.value_dim
        return Weights(mixer=hidden * (2 * keys + 3 * values), other=other)

    def state_bytes(self, layout: Layout = SINGLE) -> float:
        """Bytes per sequence: d_k d_v numbers per value head, and the last inputs of the convolution."""
        heads, keys, values = self._local(layout)
        return self._state_bytes(heads * self.key_dim * self.value_dim, 2 * keys + values, layout)

    def ops(self, hidden: int, layout: Layout) -> Ops:
        """Projections, convolution, recurrence, gated norm, output projection, all-reduce."""
        heads, keys, values = self._local(layout)
        numbers = heads * self.key_dim * self.value_dim
        return (
            linear("qkvz projection", (hidden, 2 * keys + 2 * values), layout, "mixer"),
            linear("gates", (hidden, 2 * heads), layout, "other"),
            elementwise("convolution", 2 * (2 * keys + values), layout, splits=True),
            *recurrence(
                layout,
                state_bytes=self.state_bytes(layout),
                flops_per_update=6.0 * numbers,
                flops_per_prompt_token=6.0 * numbers
                + CHUNK_TOKENS * heads * (6.0 * self.key_dim + 4.0 * self.value_dim),
                kernels=DELTA_KERNELS,
            ),
            elementwise("gated norm", 3 * values, layout),
            linear("output projection", (values, hidden), layout, "mixer"),
            *all_reduce("all-reduce after attention", hidden, layout),
        )


class KimiDelta(_Recurrent):
    """Kimi Delta Attention (KDA): gated DeltaNet whose state decays per channel of the keys, not per head.

    Keys and values have `head_dim` d channels per head; decay and output gate are projections of rank d, or of full
    rank (`full_gate`, Kimi K3; `full_decay`, too, Ling 3). Per token and head 6 d^2 FLOPs, in chunks of C tokens 6 d^2
    + 10 C d, as gated DeltaNet. Source: Kimi Linear, arXiv:2510.26692, section 3; weights as in transformers 5.23.0
    (kimi_linear), fp32 state as in vLLM 0.33 (`kda_state_dtype`).
    """

    kind: Literal["kimi_delta"]
    heads: PositiveInt
    head_dim: PositiveInt
    state_dtype: Literal["model", "fp32"] = "fp32"
    full_gate: bool = False
    full_decay: bool = False

    def _projections(self, hidden: int, layout: Layout) -> dict[str, tuple[int, int]]:
        """Return the shapes (inputs, outputs) of its GEMMs; the down-projections are whole on every device."""
        heads = layout.share(self.heads, "KDA heads")
        width = heads * self.head_dim

        def of_rank(name: str, full: bool) -> dict[str, tuple[int, int]]:
            narrow = {f"{name} down": (hidden, self.head_dim), f"{name} up": (self.head_dim, width)}
            return {name: (hidden, width)} if full else narrow

        return {
            "qkv projection": (hidden, 3 * width),
            **of_rank("decay", self.full_decay),
            **of_rank("gate", self.full_gate),
            "write strength": (hidden, heads),
            "output projection": (width, hidden),
        }

    def weights(self, hidden: int, layout: Layout = SINGLE) -> Weights:
        """Parameters on one device: projections; convolution, decay with its bias, norm."""
        heads = layout.share(self.heads, "KDA heads")
        matrices = sum(inputs * outputs for inputs, outputs in self._projections(hidden, layout).values())
        vectors = (3 * self.conv + 1) * heads * self.head_dim + heads + self.head_dim
        return Weights(mixer=matrices, other=vectors)

    def state_bytes(self, layout: Layout = SINGLE) -> float:
        """Bytes per sequence: d^2 numbers per head, and the last inputs of the convolution."""
        heads = layout.share(self.heads, "KDA heads")
        return self._state_bytes(heads * self.head_dim**2, 3 * heads * self.head_dim, layout)

    def ops(self, hidden: int, layout: Layout) -> Ops:
        """Projections, convolution, recurrence, gated norm, output projection, all-reduce."""
        heads = layout.share(self.heads, "KDA heads")
        width, update = heads * self.head_dim, 6.0 * heads * self.head_dim**2
        shapes = self._projections(hidden, layout).items()
        *before, output = (linear(name, shape, layout, "mixer") for name, shape in shapes)
        leads = "qkv projection", "decay up"  # the GEMMs that others are part of, where nothing is quantised
        whole = number_format(layout.weight_dtype).size_bytes == WIDE_BYTES
        return (
            *(replace(op, at_once="delta") if whole and op.name not in leads else op for op in before),
            elementwise("convolution", 6 * width, layout, splits=True),
            *recurrence(
                layout,
                state_bytes=self.state_bytes(layout),
                flops_per_update=update,
                flops_per_prompt_token=update + CHUNK_TOKENS * 10.0 * width,
                kernels=KIMI_KERNELS,
            ),
            elementwise("gated norm", 3 * width, layout),
            output,
            *all_reduce("all-reduce after attention", hidden, layout),
        )


class LightningAttention(_Recurrent):
    """Lightning attention of MiniMax-01: linear attention whose state decays at a rate of each head, not of the input.

    Per token and head of d channels: write v k, read S q, 4 d^2 FLOPs; in chunks of C tokens 4 d^2 + 4 C d. There is no
    convolution; the output has a norm over all heads and a gate. Source: MiniMax-01, arXiv:2501.08313, section 2.2;
    weights as in transformers 5.24.0 (minimax). Its state is kept in fp32: recalled of vLLM's kernel.
    """

    kind: Literal["lightning"]
    heads: PositiveInt
    head_dim: PositiveInt
    state_dtype: Literal["model", "fp32"] = "fp32"

    def _width(self, layout: Layout) -> int:
        return layout.share(self.heads, "attention heads") * self.head_dim

    def weights(self, hidden: int, layout: Layout = SINGLE) -> Weights:
        """Parameters on one device: q, k, v, gate and output projections; norm."""
        return Weights(mixer=5 * hidden * self._width(layout), other=self._width(layout))

    def state_bytes(self, layout: Layout = SINGLE) -> float:
        """Bytes per sequence: d^2 numbers per head."""
        return self._state_bytes(self._width(layout) * self.head_dim, 0, layout)

    def ops(self, hidden: int, layout: Layout) -> Ops:
        """QKV projection, recurrence, norm and gate, output projection, all-reduce."""
        width = self._width(layout)
        update = 4.0 * width * self.head_dim
        return (
            linear("qkv projection", (hidden, 3 * width), layout, "mixer"),
            *recurrence(
                layout,
                state_bytes=self.state_bytes(layout),
                flops_per_update=update,
                flops_per_prompt_token=update + 4.0 * CHUNK_TOKENS * width,
            ),
            *all_reduce("all-reduce of norms", NORM_SUMS, layout),
            linear("output gate", (hidden, width), layout, "mixer"),
            elementwise("gated norm", 3 * width, layout),
            linear("output projection", (width, hidden), layout, "mixer"),
            *all_reduce("all-reduce after attention", hidden, layout),
        )


class ShortConvolution(_Recurrent):
    """Gated short convolution of LFM2: each channel mixes its last `conv` inputs, and is gated before and after.

    Its state is these inputs alone, which are few: their traffic counts as activations. Source: LFM2, arXiv:2511.23404,
    section 2; weights as in transformers 5.23.0 (lfm2).
    """

    kind: Literal["short_convolution"]
    channels: PositiveInt

    def weights(self, hidden: int, layout: Layout = SINGLE) -> Weights:
        """Parameters on one device: input projection to channels and two gates, output projection; convolution."""
        channels = layout.share(self.channels, "convolution channels")
        return Weights(mixer=4 * hidden * channels, other=self.conv * channels)

    def state_bytes(self, layout: Layout = SINGLE) -> float:
        """Bytes per sequence: the last inputs of the convolution."""
        return self._state_bytes(0, layout.share(self.channels, "convolution channels"), layout)

    def ops(self, hidden: int, layout: Layout) -> Ops:
        """Input projection, gated convolution, output projection, all-reduce."""
        channels = layout.share(self.channels, "convolution channels")
        return (
            linear("input projection", (hidden, 3 * channels), layout, "mixer"),
            elementwise("gated convolution", (4 + self.conv - 1) * channels, layout, splits=True),
            linear("output projection", (channels, hidden), layout, "mixer"),
            *all_reduce("all-reduce after convolution", hidden, layout),
        )


class Mamba2(_Recurrent):
    """Mamba-2: per head a state of head_dim x state numbers; B and C are shared by the heads of a group.

    Per token and head of P channels with N states: write dt B x, read C h, 4 P N FLOPs. In chunks of C tokens 4 P N + 2
    C P, and 2 C N per group. Source: Transformers are SSMs, arXiv:2405.21060, section 6; weights as in transformers
    5.23.0 (nemotron_h, falcon_h1).
    """

    kind: Literal["mamba2"]
    heads: PositiveInt
    head_dim: PositiveInt
    state: PositiveInt
    groups: PositiveInt = 1
    conv_bias: bool = True
    gated_norm: bool = True

    def _local(self, layout: Layout) -> tuple[int, int, int]:
        """Return heads, inner columns and columns of B (or C) on one device; a single group is replicated."""
        heads = layout.share(self.heads, "Mamba heads")
        groups = 1 if self.groups == 1 else layout.share(self.groups, "Mamba groups")
        return heads, heads * self.head_dim, groups * self.state

    def weights(self, hidden: int, layout: Layout = SINGLE) -> Weights:
        """Parameters on one device: input and output projections, convolution, norm; decay, skip and step per head."""
        heads, inner, shared = self._local(layout)
        convolution = (self.conv + self.conv_bias) * (inner + 2 * shared)
        other = convolution + 3 * heads + inner * self.gated_norm
        return Weights(mixer=hidden * (2 * inner + 2 * shared + heads) + inner * hidden, other=other)

    def state_bytes(self, layout: Layout = SINGLE) -> float:
        """Bytes per sequence: P N numbers per head, and the last inputs of the convolution."""
        _heads, inner, shared = self._local(layout)
        return self._state_bytes(inner * self.state, inner + 2 * shared, layout)

    def ops(self, hidden: int, layout: Layout) -> Ops:
        """Input projection, convolution, recurrence, gated norm, output projection, all-reduce."""
        heads, inner, shared = self._local(layout)
        return (
            linear("input projection", (hidden, 2 * inner + 2 * shared + heads), layout, "mixer"),
            elementwise("convolution", 2 * (inner + 2 * shared), layout, splits=True),
            *recurrence(
                layout,
                state_bytes=self.state_bytes(layout),
                flops_per_update=4.0 * inner * self.state,
                flops_per_prompt_token=4.0 * inner * self.state + 2.0 * CHUNK_TOKENS * (inner + shared),
                kernels=MAMBA2_KERNELS,
            ),
            elementwise("gated norm", 3 * inner, layout),
            linear("output projection", (inner, hidden), layout, "mixer"),
            *all_reduce("all-reduce after attention", hidden, layout),
        )


class Mamba(_Recurrent):
    """Mamba: a selective state space with `state` numbers per channel; step, B and C come from a narrow projection.

    Per token and channel: decay, write and read of N states, 6 N FLOPs. It cannot be written as GEMMs, so decoding and
    scanning cost the same per token. Source: Mamba, arXiv:2312.00752, section 3; weights and norms as in transformers
    5.23.0 (jamba).
    """

    kind: Literal["mamba"]
    inner: PositiveInt
    state: PositiveInt
    step_rank: PositiveInt
    conv_bias: bool = True
    inner_norms: bool = True

    def weights(self, hidden: int, layout: Layout = SINGLE) -> Weights:
        """Parameters on one device: the four projections, convolution, decay, skip, bias of the step, three norms."""
        inner = layout.share(self.inner, "Mamba channels")
        narrow = self.step_rank + 2 * self.state
        matrices = hidden * 3 * inner + inner * (narrow + self.step_rank)
        other = inner * (self.conv + self.conv_bias + self.state + 2) + narrow * self.inner_norms
        return Weights(mixer=matrices, other=other)

    def state_bytes(self, layout: Layout = SINGLE) -> float:
        """Bytes per sequence: N numbers per channel, and the last inputs of the convolution."""
        inner = layout.share(self.inner, "Mamba channels")
        return self._state_bytes(inner * self.state, inner, layout)

    def ops(self, hidden: int, layout: Layout) -> Ops:
        """Input projection, convolution, narrow projection and its all-reduce, scan, output projection, all-reduce."""
        inner = layout.share(self.inner, "Mamba channels")
        narrow, flops = self.step_rank + 2 * self.state, 6.0 * inner * self.state
        return (
            linear("input projection", (hidden, 2 * inner), layout, "mixer"),
            elementwise("convolution", 2 * inner, layout, splits=True),
            linear("step, B and C", (inner, narrow), layout, "mixer"),
            *all_reduce("all-reduce of step, B and C", narrow, layout),
            linear("step projection", (self.step_rank, inner), layout, "mixer"),
            *recurrence(
                layout, state_bytes=self.state_bytes(layout), flops_per_update=flops, flops_per_prompt_token=flops
            ),
            elementwise("gate", 3 * inner, layout),
            linear("output projection", (inner, hidden), layout, "mixer"),
            *all_reduce("all-reduce after attention", hidden, layout),
        )
