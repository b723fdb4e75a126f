"""What a model_type of Hugging Face implies beyond its config.json, and checked reading of that file.

Source: the configuration and modelling files of transformers 5.23.0. The parameter totals of the shipped profiles,
which are published figures, check it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from simulator.errors import NotModelledError, ProfileError

HIDDEN = ("hidden_size", "n_embd", "n_embed")
HEADS = ("num_attention_heads", "n_head")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "num_attention_groups")
WIDTH = ("intermediate_size", "ffn_hidden_size")
MOE_WIDTH = ("moe_intermediate_size",)


class Fields:
    """A config whose every reading is checked; errors name the file and the field."""

    def __init__(self, raw: Mapping[str, Any], where: str) -> None:
        self.raw, self.where = raw, where

    def maybe(self, *names: str) -> int | None:
        """Return the first of these fields that is neither missing nor null: a whole number from 0 up."""
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
        if value is not None and not isinstance(value, bool):
            raise self.error(name, f"{value!r} is neither true nor false", "Correct it")
        return bool(value)

    def each(self, name: str) -> list[Any] | None:
        """Return a list field; None when it is missing or null."""
        value = self.raw.get(name)
        if value is not None and not isinstance(value, list):
            raise self.error(name, f"{value!r} is no list", "Correct it")
        return value

    def part(self, name: str) -> "Fields":
        """Return a nested object; missing and null are empty."""
        value = self.raw.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise self.error(name, f"{value!r} is no object", "Correct it")
        return Fields(value or {}, f"{self.where}: {name}")

    def error(self, name: str, because: str, remedy: str) -> ProfileError:
        """Return a ProfileError about one field."""
        return ProfileError(f"{self.where}: {name}", because, remedy)

    def refusal(self, name: str, because: str) -> NotModelledError:
        """Return a NotModelledError about one field."""
        return NotModelledError(f"{self.where}: {name} {self.raw.get(name)!r}", because, "Write the profile by hand")


def _never(_layer: int, _fields: Fields) -> bool:
    return False


def _always(_layer: int, fields: Fields) -> bool:
    return fields.maybe("sliding_window") is not None


def _alternate(layer: int, _fields: Fields) -> bool:
    return layer % 2 == 0


def _pattern(layer: int, fields: Fields) -> bool:
    return (layer + 1) % fields.count("_sliding_window_pattern", "sliding_window_pattern") != 0


def _late(layer: int, fields: Fields) -> bool:
    return fields.flag("use_sliding_window") and layer >= fields.count("max_window_layers")


@dataclass(frozen=True, slots=True)
class ModelType:
    """The fixed structure of one model_type.

    `defaults` are those class defaults that published configs rely on; None for KV heads means as many as heads.
    `windowed` says which layers have the sliding window where the config has no `layer_types`. A bias is there, is
    not, or depends on the field that is named. `expert_width` names the field of a routed expert's width, nothing
    where there are no experts. Any of the `refused` fields, if set, is not modelled.
    """

    defaults: Mapping[str, Any]
    windowed: Callable[[int, Fields], bool] = _never
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
    expert_width: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    derive: Callable[[Fields], tuple[Mapping[str, Any], int]] | None = None


def _falcon(fields: Fields) -> tuple[Mapping[str, Any], int]:
    """Derive KV heads, width and norms: the first Falcons share one KV head, the later have groups and two norms."""
    grouped = fields.flag("new_decoder_architecture")
    kv_heads = fields.maybe(*KV_HEADS) if grouped else 1 if fields.flag("multi_query") else None
    width = fields.maybe(*WIDTH) or 4 * fields.count(*HIDDEN)
    parallel_norms = fields.maybe("num_ln_in_parallel_attn") or (2 if grouped else 1)
    norms = parallel_norms if fields.flag("parallel_attn") else 2
    return {"num_key_value_heads": kv_heads, "intermediate_size": width}, norms


_MHA: dict[str, Any] = {"num_key_value_heads": None}
_PLAIN = ModelType({}, norm_bias=True, gated=False)
_QWEN2 = ModelType({}, _late, qkv_bias=True)
_QWEN3 = ModelType({"head_dim": 128}, _late, qkv_bias="attention_bias", output_bias="attention_bias", qk_norm="head")
_GEMMA: dict[str, Any] = {"head_dim": 256, "tie_word_embeddings": True}
_GEMMA3_DEFAULTS: dict[str, Any] = _GEMMA | {
    "vocab_size": 262208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131072,
    "sliding_window": 4096,
    "sliding_window_pattern": 6,
}
_GEMMA1 = ModelType(_GEMMA, qkv_bias="attention_bias", output_bias="attention_bias")
_GEMMA2 = replace(_GEMMA1, defaults=_GEMMA | {"sliding_window": 4096}, windowed=_alternate, norms=4)
_GEMMA3 = replace(_GEMMA2, defaults=_GEMMA3_DEFAULTS, windowed=_pattern, qk_norm="head")
_DEEPSEEK2 = ModelType(
    {"q_lora_rank": 1536, "n_shared_experts": 2, "first_k_dense_replace": 0},
    latent=True,
    expert_width=MOE_WIDTH,
    refused=("attention_bias", "mlp_bias"),
)
_DEEPSEEK3 = replace(
    _DEEPSEEK2,
    defaults={"q_lora_rank": 1536, "n_shared_experts": 1, "first_k_dense_replace": 3},
    router_bias=True,
)
_FALCON: dict[str, Any] = {
    "tie_word_embeddings": True,
    "multi_query": True,
    "parallel_attn": True,
    "max_position_embeddings": 2048,
}

MODEL_TYPES: dict[str, ModelType] = {
    "deepseek_v2": _DEEPSEEK2,
    "deepseek_v3": _DEEPSEEK3,
    "falcon": replace(_PLAIN, defaults=_FALCON, qkv_bias="bias", output_bias="bias", ffn_bias="bias", derive=_falcon),
    "gemma": _GEMMA1,
    "gemma2": _GEMMA2,
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "gpt_neox": replace(
        _PLAIN,
        defaults=_MHA | {"attention_bias": True},
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        ffn_bias=True,
    ),
    "gpt_oss": ModelType(
        {"head_dim": 64, "attention_bias": True},
        _alternate,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        sinks=True,
        router_bias=True,
        expert_bias=True,
        expert_width=WIDTH,
    ),
    "kimi_k2": _DEEPSEEK3,
    "llama": ModelType(_MHA, qkv_bias="attention_bias", output_bias="attention_bias", ffn_bias="mlp_bias"),
    "minimax_m2": ModelType({"head_dim": 128}, qk_norm="full", router_bias=True, expert_width=WIDTH),
    "mistral": ModelType({"num_key_value_heads": 8, "sliding_window": 4096}, _always),
    "mixtral": ModelType({"num_key_value_heads": 8}, _always, expert_width=WIDTH),
    "olmo2": ModelType(_MHA, qkv_bias="attention_bias", output_bias="attention_bias", qk_norm="full"),
    "phi": replace(
        _PLAIN,
        defaults=_MHA,
        norms=1,
        qkv_bias=True,
        output_bias=True,
        ffn_bias=True,
        head_bias=True,
        refused=("qk_layernorm",),
    ),
    "phi3": ModelType(_MHA, _always),
    "qwen2": _QWEN2,
    "qwen2_moe": replace(
        _QWEN2,
        defaults={"shared_expert_intermediate_size": 5632},
        shared_gate=True,
        expert_width=MOE_WIDTH,
        refused=("use_sliding_window",),
    ),
    "qwen3": _QWEN3,
    "qwen3_moe": replace(_QWEN3, defaults={}, expert_width=MOE_WIDTH, refused=("use_sliding_window",)),
    "starcoder2": replace(
        _PLAIN,
        defaults={"tie_word_embeddings": True, "use_bias": True},
        windowed=_always,
        qkv_bias="use_bias",
        output_bias="use_bias",
        ffn_bias="use_bias",
    ),
}
