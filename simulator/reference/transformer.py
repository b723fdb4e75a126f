"""A Llama-family transformer in plain torch, with the shapes of the simulator's model profile."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from simulator.models.blocks import Block
from simulator.models.layers import Attention, Dense, MixtureOfExperts
from simulator.reference.attention import attend
from simulator.reference.batch import StepBatch
from simulator.reference.cache import CacheShape, LayerCache
from simulator.reference.checkpoint import Checkpoint, shapes
from simulator.reference.device import CPU, Device
from simulator.reference.linear import Linear, make_linear
from simulator.reference.rotary import rotary_table, rotate

Weight = Callable[[str], Tensor]
FeedForward = Callable[[Tensor], Tensor]
MakeLinear = Callable[[Tensor, Tensor | None], Linear]


@dataclass(frozen=True, slots=True)
class Build:
    """How a transformer is built.

    `packed`: weights in oneDNN's order on a CPU, where it has one. Cache: blocks, and tokens per block.
    """

    device: Device = CPU
    packed: bool = True
    num_blocks: int = 1024
    block_size: int = 16


class Transformer:
    """Weights and KV cache of a model on a device, all in the device's dtype.

    Raises DoesNotFitError where the memory is too small, ProfileError where a weight's shape is not the profile's.
    """

    def __init__(self, checkpoint: Checkpoint, build: Build) -> None:
        self.model, self.build = checkpoint.model, build
        device = build.device
        self.parameters = 0
        self.weight_bytes = 0
        _require_room(checkpoint, build)

        def weight(name: str) -> Tensor:
            loaded = checkpoint.checked(name).to(device.dtype).to(device.kind).contiguous()
            self.parameters += loaded.numel()
            self.weight_bytes += loaded.nbytes
            return loaded

        self._epsilon = checkpoint.numerics.norm_epsilon
        self.embedding = weight("model.embed_tokens.weight")
        self.norm = weight("model.norm.weight")
        head = self.embedding if self.model.tied_embeddings else weight("lm_head.weight")
        self.head: Linear = self.linear(head)
        widths = {block.mixer.head_dim for block in self.model.blocks.values() if isinstance(block.mixer, Attention)}
        tables = {width: rotary_table(checkpoint.numerics, width, self.model.max_context_tokens) for width in widths}
        self.rotary = {width: tuple(each.to(device.kind) for each in table) for width, table in tables.items()}
        self.layers = [
            _Layer(self, self.model.blocks[name], lambda part, index=index: weight(f"model.layers.{index}.{part}"))  # type: ignore[misc]
            for index, name in enumerate(self.model.layer_names)
        ]
        self.renormalised = checkpoint.numerics.renormalised

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Linear:
        """Return a projection of a weight [outputs, inputs]."""
        return make_linear(weight, bias, packed=self.build.packed and self.build.device.kind == "cpu")

    def attend(self, queries: Tensor, cache: LayerCache, batch: StepBatch, window: int) -> Tensor:
        """Return the attention output [T, heads x head_dim] of a layer for queries [T, heads, head_dim]."""
        return attend(queries, cache, batch, window)

    @property
    def windows(self) -> tuple[int, ...]:
        """Sliding windows of the layers in tokens, 0 for none."""
        return tuple(sorted({layer.window for layer in self.layers}))

    @torch.inference_mode()
    def forward(self, batch: StepBatch) -> Tensor:
        """Return the logits of each sequence's last token, [sequences, vocabulary]; fills the cache."""
        x = functional.embedding(batch.tokens, self.embedding)
        for layer in self.layers:
            x = layer.forward(x, batch)
        return self.head(self.normalised(x.index_select(0, batch.last_rows), self.norm))

    def normalised(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return the RMS norm x / sqrt(mean(x^2) + epsilon) w over the last dimension, of x's shape."""
        return functional.rms_norm(x, (x.shape[-1],), weight, self._epsilon)


class _Layer:
    """One decoder block."""

    def __init__(self, parent: Transformer, block: Block, weight: Weight) -> None:
        mixer, ffn = block.mixer, block.ffn
        if not isinstance(mixer, Attention) or not isinstance(ffn, Dense | MixtureOfExperts):  # refused with the shapes
            raise TypeError(block)
        self.parent, self.mixer, self.window = parent, mixer, mixer.window or 0
        names = ("q_proj", "k_proj", "v_proj")
        bias = torch.cat([weight(f"self_attn.{name}.bias") for name in names]) if mixer.qkv_bias else None
        self.qkv = parent.linear(torch.cat([weight(f"self_attn.{name}.weight") for name in names]), bias)
        output_bias = weight("self_attn.o_proj.bias") if mixer.output_bias else None
        self.output = parent.linear(weight("self_attn.o_proj.weight"), output_bias)
        normed = mixer.qk_norm != "none"
        self.query_norm = weight("self_attn.q_norm.weight") if normed else None
        self.key_norm = weight("self_attn.k_norm.weight") if normed else None
        self.before = weight("input_layernorm.weight")
        self.between = weight("post_attention_layernorm.weight")
        self.ffn: FeedForward = (
            _gated(parent.linear, weight, "mlp", bias=ffn.bias)
            if isinstance(ffn, Dense)
            else _Experts(parent, ffn, weight)
        )
        shape = CacheShape(parent.build.num_blocks, parent.build.block_size, mixer.kv_heads, mixer.head_dim)
        self.cache = LayerCache(shape, parent.build.device)

    def forward(self, x: Tensor, batch: StepBatch) -> Tensor:
        """Return x + attention(x), then + feed-forward of that; x is [T, hidden]."""
        x = x + self.output(self._attention(self.parent.normalised(x, self.before), batch))
        return x + self.ffn(self.parent.normalised(x, self.between))

    def _attention(self, x: Tensor, batch: StepBatch) -> Tensor:
        mixer = self.mixer
        wide, narrow = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
        queries, keys, values = self.qkv(x).split((wide, narrow, narrow), dim=-1)
        queries, keys = self._normed(queries, self.query_norm), self._normed(keys, self.key_norm)
        cosine, sine = (table.index_select(0, batch.positions)[:, None] for table in self.parent.rotary[mixer.head_dim])
        queries = rotate(queries.view(-1, mixer.heads, mixer.head_dim), cosine, sine)
        keys = rotate(keys.view(-1, mixer.kv_heads, mixer.head_dim), cosine, sine)
        self.cache.write(batch.places, keys, values.view(-1, mixer.kv_heads, mixer.head_dim))
        return self.parent.attend(queries, self.cache, batch, self.window)

    def _normed(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """Normalise queries or keys as a whole or head by head: the weight's length says which."""
        if weight is None:
            return x.contiguous()
        return self.parent.normalised(x.reshape(-1, len(weight)), weight).view(x.shape)


def _gated(linear: MakeLinear, weight: Weight, where: str, *, bias: bool = False) -> FeedForward:
    """Return x -> down(silu(gate x) * up x), with gate and up in one GEMM."""

    def stacked(kind: str) -> Tensor:
        return torch.cat([weight(f"{where}.gate_proj.{kind}"), weight(f"{where}.up_proj.{kind}")])

    inner = linear(stacked("weight"), stacked("bias") if bias else None)
    down = linear(weight(f"{where}.down_proj.weight"), weight(f"{where}.down_proj.bias") if bias else None)

    def forward(x: Tensor) -> Tensor:
        gate, up = inner(x).chunk(2, dim=-1)
        return down(functional.silu(gate) * up)

    return forward


class _Experts:
    """Routed experts: softmax over all, the `chosen` likeliest per token, each over the tokens that chose it."""

    def __init__(self, parent: Transformer, ffn: MixtureOfExperts, weight: Weight) -> None:
        self.parent, self.chosen = parent, ffn.chosen
        self.router = parent.linear(weight("mlp.gate.weight"))
        self.experts = [_gated(parent.linear, weight, f"mlp.experts.{index}") for index in range(ffn.experts)]

    def __call__(self, x: Tensor) -> Tensor:
        share, chosen = functional.softmax(self.router(x), dim=-1, dtype=torch.float32).topk(self.chosen, dim=-1)
        if self.parent.renormalised:
            share = share / share.sum(-1, keepdim=True)
        result = torch.zeros_like(x)
        for index in chosen.unique().tolist():
            rows, place = (chosen == index).nonzero(as_tuple=True)
            found = self.experts[index](x.index_select(0, rows))
            result.index_add_(0, rows, (found * share[rows, place][:, None].to(x.dtype)).to(x.dtype))
        return result


def _require_room(checkpoint: Checkpoint, build: Build) -> None:
    """Raise DoesNotFitError before anything is loaded; a tied embedding is there twice where the head is packed."""
    numbers = sum(torch.Size(shape).numel() for shape in shapes(checkpoint.model).values())
    size = torch.empty(0, dtype=build.device.dtype).element_size()
    per_token = checkpoint.model.cache_bytes(1) / 2  # numbers; a profile counts two bytes each
    cache_bytes = per_token * build.block_size * build.num_blocks * size
    copies = 2 if checkpoint.model.tied_embeddings and build.packed else 1
    embedding_bytes = (copies - 1) * checkpoint.model.vocab * checkpoint.model.hidden * size
    build.device.require(numbers * size + cache_bytes + embedding_bytes, f"{checkpoint.model.name} with its cache")
