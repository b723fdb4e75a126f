"""A Hugging Face config.json to a model profile; what infercast does not model is refused by name."""

import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from simulator.errors import NotModelledError, ProfileError, nearest
from simulator.model import Model
from simulator.profile import MAX_PROFILE_BYTES

MAX_LAYERS = 1000
_LAYERS = ("num_hidden_layers", "n_layer")
_HIDDEN = ("hidden_size", "n_embd", "n_embed")
_HEADS = ("num_attention_heads", "n_head")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "num_attention_groups")
_WIDTH = ("intermediate_size", "ffn_hidden_size")
_EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
_CHOSEN = ("num_experts_per_tok", "experts_per_token", "top_k_experts", "moe_topk")

# Fields that change what a layer does; each is refused wherever it is set.
_REFUSED = {
    "attention_chunk_size": "chunked attention",
    "index_topk": "sparse attention with an indexer",
    "linear_num_value_heads": "linear attention",
    "full_attention_interval": "linear attention",
    "hybrid_override_pattern": "a Mamba hybrid",
    "mamba_d_state": "Mamba layers",
    "mamba_num_heads": "Mamba layers",
    "ssm_cfg": "state-space layers",
    "num_kv_shared_layers": "layers that share a cache",
    "is_encoder_decoder": "an encoder",
    "use_bidirectional_attention": "bidirectional attention",
    "cross_attention_layers": "cross attention",
    "quantization": "MLX's own quantisation",
}
_EXTRA_HEADS = ("num_nextn_predict_layers", "num_mtp_modules", "num_mtp_layers")
_WINDOWED = {"sliding_attention": True, "full_attention": False}
_DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "bf16"}
# Parts that stay in the model's own type in every format but GGUF's: heads, embeddings, norms, routers, vision.
_UNCONVERTED = re.compile(r"(lm_head|embed\w*|\w*norm\w*|(mlp\.)?(shared_expert_)?(gate|router)|e_score\w*|vis\w+)(\.weight)?$")


class Fields:
    """Checked reading of a config: every error names the file and the field."""

    def __init__(self, raw: Mapping[str, Any], where: str) -> None:
        self.raw, self.where = raw, where

    def maybe(self, *names: str) -> int | None:
        """Return the first of these fields that is neither missing nor null, a whole number from 0 up."""
        for name in names:
            value = self.raw.get(name)
            if value is not None:
                if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                    raise self.error(name, f"{value!r} is no count", "Correct the number")
                return value
        return None

    def count(self, *names: str) -> int:
        """Return the first of these fields that is there, from 1 up; ProfileError when none is."""
        value = self.maybe(*names)
        if value is None:
            others = f" (or {', '.join(names[1:])})" if names[1:] else ""
            raise self.error(names[0], "this field is required and missing", f"Add it{others}")
        if value == 0:
            raise self.error(names[0], "it is 0", "Correct the number")
        return value

    def flag(self, name: str) -> bool:
        """Return a yes-or-no field; missing and null are no."""
        value = self.raw.get(name)
        if value not in (None, True, False):
            raise self.error(name, f"{value!r} is neither true nor false", "Correct it")
        return bool(value)

    def table(self, name: str) -> Mapping[str, Any]:
        """Return a nested object; missing and null are empty."""
        value = self.raw.get(name) or {}
        if not isinstance(value, Mapping):
            raise self.error(name, f"{value!r} is no object", "Correct it")
        return value

    def error(self, name: str, because: str, remedy: str) -> ProfileError:
        """Return a ProfileError about one field."""
        return ProfileError(f"{self.where}: {name}", because, remedy)

    def refuse(self, name: str, because: str) -> NotModelledError:
        """Return a NotModelledError about one field."""
        return NotModelledError(f"{self.where}: {name} {self.raw.get(name)!r}", because, "Write the profile by hand")


@dataclass(frozen=True, slots=True)
class Family:
    """What a model_type implies beyond its config.json.

    `defaults` are the class defaults that published configs rely on; a KV-head default of None means "as many as
    heads". A bias is true, false, or the field that says so. Source: configuration and modelling files of
    transformers 5.23.0; the totals of the shipped profiles check it.
    """

    defaults: Mapping[str, Any]
    windowed: Callable[[int, Fields], bool] = lambda _layer, _fields: False
    norms: int = 2
    norm_bias: bool = False
    gated: bool = True
    qkv_bias: bool | str = False
    output_bias: bool | str = False
    ffn_bias: bool | str = False
    head_bias: bool = False
    qk_norm: str | None = None
    sinks: bool = False
    latent: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    shared_gate: bool = False
    refused: tuple[str, ...] = ()
    adapt: Callable[["Family", Fields], "Family"] = lambda family, _fields: family


def _always(_layer: int, fields: Fields) -> bool:
    return fields.maybe("sliding_window") is not None


def _alternate(layer: int, _fields: Fields) -> bool:
    return layer % 2 == 0


def _pattern(layer: int, fields: Fields) -> bool:
    return (layer + 1) % fields.count("sliding_window_pattern", "_sliding_window_pattern") != 0


def _late(layer: int, fields: Fields) -> bool:
    return fields.flag("use_sliding_window") and layer >= fields.count("max_window_layers")


def _falcon(family: Family, fields: Fields) -> Family:
    """Falcon's older models share one KV head; the newer ones have groups, and two norms beside each other."""
    new = fields.flag("new_decoder_architecture")
    kv_heads = fields.maybe(*_KV_HEADS) if new else 1 if fields.flag("multi_query") else None
    parallel_norms = fields.maybe("num_ln_in_parallel_attn") or (2 if new else 1)
    derived = {
        "num_key_value_heads": kv_heads,
        "intermediate_size": fields.maybe(*_WIDTH) or 4 * fields.count(*_HIDDEN),
    }
    norms = parallel_norms if fields.flag("parallel_attn") else 2
    return replace(family, defaults={**fields.raw, **derived}, norms=norms)


_MHA: Mapping[str, Any] = {"num_key_value_heads": None}
_LLAMA = Family(_MHA, qkv_bias="attention_bias", output_bias="attention_bias", ffn_bias="mlp_bias")
_QWEN = Family({}, _late, qkv_bias=True)
_QWEN3 = Family({"head_dim": 128}, _late, qkv_bias="attention_bias", output_bias="attention_bias", qk_norm="head")
_GEMMA = Family(
    {"head_dim": 256, "tie_word_embeddings": True}, norms=2, qkv_bias="attention_bias", output_bias="attention_bias"
)
_GEMMA3 = replace(
    _GEMMA,
    defaults={
        **_GEMMA.defaults,
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "max_position_embeddings": 131072,
        "sliding_window_pattern": 6,
        "sliding_window": 4096,
    },
    windowed=_pattern,
    norms=4,
    qk_norm="head",
)
_DEEPSEEK = Family({"first_k_dense_replace": 0, "moe_layer_freq": 1}, latent=True, refused=("attention_bias",))
FAMILIES: dict[str, Family] = {
    "llama": _LLAMA,
    "mistral": Family({"num_key_value_heads": 8, "sliding_window": 4096}, _always),
    "mixtral": Family({"num_key_value_heads": 8}, _always),
    "qwen2": _QWEN,
    "qwen2_moe": replace(_QWEN, shared_gate=True, refused=("use_sliding_window",)),
    "qwen3": _QWEN3,
    "qwen3_moe": replace(_QWEN3, defaults={}, refused=("use_sliding_window",)),
    "gemma": _GEMMA,
    "gemma2": replace(_GEMMA, defaults={**_GEMMA.defaults, "sliding_window": 4096}, windowed=_alternate, norms=4),
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "phi": Family(
        _MHA,
        norms=1,
        norm_bias=True,
        gated=False,
        qkv_bias=True,
        output_bias=True,
        ffn_bias=True,
        head_bias=True,
        refused=("qk_layernorm",),
    ),
    "phi3": Family(_MHA, _always),
    "falcon": Family(
        {"tie_word_embeddings": True, "multi_query": True, "parallel_attn": True, "max_position_embeddings": 2048},
        norm_bias=True,
        gated=False,
        qkv_bias="bias",
        output_bias="bias",
        ffn_bias="bias",
        adapt=_falcon,
    ),
    "gpt_neox": Family(
        {"num_key_value_heads": None, "attention_bias": True},
        norm_bias=True,
        gated=False,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        ffn_bias=True,
    ),
    "starcoder2": Family(
        {"tie_word_embeddings": True, "use_bias": True},
        _always,
        norm_bias=True,
        gated=False,
        qkv_bias="use_bias",
        output_bias="use_bias",
        ffn_bias="use_bias",
    ),
    "olmo2": Family(_MHA, qkv_bias="attention_bias", output_bias="attention_bias", qk_norm="full"),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": replace(_DEEPSEEK, router_bias=True),
    "kimi_k2": replace(_DEEPSEEK, router_bias=True),
    "gpt_oss": Family(
        {"head_dim": 64, "attention_bias": True},
        _alternate,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        sinks=True,
        router_bias=True,
        expert_bias=True,
    ),
    "minimax_m2": Family({"head_dim": 128, "use_qk_norm": True}, qk_norm="full", router_bias=True),
}
