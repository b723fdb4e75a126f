"""The architecture of a model in words: its layers, their attention or recurrence, their feed-forward blocks."""

from collections.abc import Callable, Mapping
from typing import Any

from simulator.models.blocks import Block
from simulator.models.compressed import CompressedAttention
from simulator.models.latent import LatentAttention
from simulator.models.layers import Attention, Dense, MixtureOfExperts
from simulator.models.model import Model
from simulator.models.recurrent import GatedDeltaNet, KimiDelta, LightningAttention, Mamba, Mamba2, ShortConvolution
from simulator.models.side_paths import AltUp, LowRank


def layers_in_words(model: Model) -> list[tuple[str, str]]:
    """Return (how many layers, what they are) for each kind of layer, in the order of their first appearance.

    Where there are several kinds, their names, as `order_in_words` has them, come first.

    >>> from simulator.models.model import load_model
    >>> layers_in_words(load_model("llama-3.1-8b"))
    [('32', 'attention of 32 heads, 8 key-value heads of 128; dense feed-forward of 14,336, gated')]
    """
    names = model.layer_names
    kinds = list(dict.fromkeys(names))
    words = {name: block_in_words(model.blocks[name]) for name in kinds}
    return [(f"{names.count(name):,}", f"{name}: {words[name]}" if len(kinds) > 1 else words[name]) for name in kinds]


def order_in_words(model: Model) -> str:
    """Return the order of the layers, "" where all are of one kind.

    >>> from simulator.models.model import load_model
    >>> order_in_words(load_model("gpt-oss-20b")), order_in_words(load_model("llama-3.1-8b"))
    ('12 x (local, global)', '')
    """
    if len(set(model.layer_names)) == 1:
        return ""
    runs = [f"{run.repeat} x ({', '.join(run.of)})" if run.repeat > 1 else ", ".join(run.of) for run in model.layers]
    return ", then ".join(runs)


def block_in_words(block: Block) -> str:
    """Return what a layer computes: mixer; feed-forward block."""
    parts = [WORDS[type(part)](part) for part in (block.mixer, block.ffn, *block.beside) if part]
    return "; ".join(parts) + (" (in parallel)" if block.parallel else "")


def _attention(mixer: Attention) -> str:
    local = "chunked attention" if mixer.chunked else "sliding-window attention"
    kind = local if mixer.window and not mixer.indexer else "attention"
    heads = f"{mixer.heads} heads, {mixer.kv_heads} key-value heads of {mixer.head_dim}"
    if mixer.kv_heads == mixer.heads:
        heads = f"{mixer.heads} heads of {mixer.head_dim}, each with keys and values of its own"
    seen = "blocks that an indexer chooses" if mixer.indexer else "chunk" if mixer.chunked else "window"
    more = [f"{seen} of {mixer.window:,} tokens"] if mixer.window else []
    more += [f"values of {mixer.v_dim}"] if mixer.v_dim else []
    more += [f"queries from a vector of {mixer.q_lora:,}"] if mixer.q_lora else []
    more += ["the cache of an earlier layer"] if mixer.reuses_cache else []
    more += ["sinks"] if mixer.sinks else []
    more += ["keys are the values"] if mixer.shared_kv else []
    more += ["gated output"] if mixer.gate or mixer.head_gate else []
    more += ["normed queries and keys"] if mixer.qk_norm != "none" else []
    return ", ".join([f"{kind} of {heads}", *more])


def _latent(mixer: LatentAttention) -> str:
    cached = f"latent vector of {mixer.kv_lora} + {mixer.rope_dim} per token"
    index = f", the {mixer.indexer.chosen:,} tokens that an indexer chooses" if mixer.indexer else ""
    return f"latent attention (MLA) of {mixer.heads} heads, {cached}{index}"


def _compressed(mixer: CompressedAttention) -> str:
    rows = f", rows of {mixer.ratio} older tokens each" if mixer.ratio else ""
    index = f", {mixer.indexer.chosen:,} of them that an indexer chooses" if mixer.indexer else ""
    last = f"vectors of {mixer.head_dim}: the last {mixer.local} tokens"
    return f"attention of {mixer.heads} heads to {last}{rows}{index}"


def _dense(ffn: Dense) -> str:
    return f"dense feed-forward of {ffn.intermediate:,}" + (", gated" if ffn.gated else "")


def _experts(ffn: MixtureOfExperts) -> str:
    shared = f", shared ones of {ffn.shared_intermediate:,}" if ffn.shared_intermediate else ""
    zero = f", {ffn.zero_experts} more that compute nothing" if ffn.zero_experts else ""
    return f"{ffn.experts} experts of {ffn.intermediate:,}, {ffn.chosen} per token{shared}{zero}"


WORDS: Mapping[type, Callable[[Any], str]] = {
    Attention: _attention,
    LatentAttention: _latent,
    CompressedAttention: _compressed,
    Dense: _dense,
    MixtureOfExperts: _experts,
    GatedDeltaNet: lambda mixer: (
        f"gated DeltaNet of {mixer.value_heads} heads with a state of {mixer.key_dim} x {mixer.value_dim}"
    ),
    LowRank: lambda ffn: f"two projections over {ffn.width:,} numbers",
    AltUp: lambda ffn: f"prediction and correction of {ffn.streams} residual streams",
    KimiDelta: lambda mixer: f"Kimi delta attention of {mixer.heads} heads of {mixer.head_dim}",
    LightningAttention: lambda mixer: f"lightning attention of {mixer.heads} heads of {mixer.head_dim}",
    ShortConvolution: lambda mixer: f"convolution over {mixer.conv} tokens of {mixer.channels:,} channels",
    Mamba: lambda mixer: f"Mamba of {mixer.inner:,} channels with a state of {mixer.state}",
    Mamba2: lambda mixer: f"Mamba-2 of {mixer.heads} heads of {mixer.head_dim} with a state of {mixer.state}",
}
