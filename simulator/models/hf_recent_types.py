"""The structure that Hugging Face model_types of 2025 and 2026 imply, where it is near that of others (hf_families.py).

Source: the configuration and modelling files of transformers 5.24.0, which counts their parameters alike.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from simulator.models import hf_rules as rules
from simulator.models.hf_architecture import ModelType
from simulator.models.hf_families import (
    DEEPSEEK2,
    DEEPSEEK3,
    GEMMA2,
    GLM4,
    LFM2,
    LLAMA,
    MHA,
    OLMO2,
    PLAIN,
    QWEN3_MOE,
)
from simulator.models.hf_fields import MOE_WIDTH, WIDTH, Fields
from simulator.models.hf_rules import Derived

_APERTUS = replace(LLAMA, gated=False, qk_norm="head")  # without its activation's two numbers a layer
_SARVAM = {"q_lora_rank": None, "n_shared_experts": 1, "first_k_dense_replace": 1}
_GRANITE_SWA = replace(LLAMA, defaults=MHA | {"sliding_window": 128}, windowed=rules.but_every_fourth, sinks=True)


def norms_behind(fields: Fields) -> Derived:
    """Return the norms of a layer of HyperCLOVA X or LFM3: two more behind its parts, unless the config has them off.

    >>> norms_behind(Fields({}, "a config")), norms_behind(Fields({"use_post_norm": False}, "a config"))
    (({}, {'norms': 4}), ({}, {'norms': 2}))
    """
    is_off = any(fields.raw.get(name) is False for name in ("use_post_norm", "use_sandwich_norm"))
    return {}, {"norms": 2 if is_off else 4}


def lfm3_shape(fields: Fields, _kind: str) -> Mapping[str, Any]:
    """Return the gate of each head of LFM3's attention, unless the config has it off."""
    return {"head_gate": fields.raw.get("use_attention_gate") is not False}


RECENT_TYPES: dict[str, ModelType] = {
    "apertus1p5_text": _APERTUS,
    "axk1": replace(
        DEEPSEEK3,
        defaults={"q_lora_rank": 1536, "n_shared_experts": 1, "first_k_dense_replace": 1},
        expert_norms=3,
    ),
    "flex_olmo": replace(OLMO2, expert_width=WIDTH),
    "flint": replace(
        QWEN3_MOE,
        defaults={"head_dim": 128, "sliding_window": 513, "shared_expert_intermediate_size": 1024},
        windowed=rules.always,
        sinks=True,
        router_dtype="fp32",
        refused=(),
    ),
    "granite4_vision_text": LLAMA,
    "granite_docling_text": LLAMA,
    "granite_swa": _GRANITE_SWA,
    "granitemoe_swa": replace(_GRANITE_SWA, expert_width=("intermediate_size",)),
    "helium": replace(LLAMA, defaults=MHA | {"head_dim": 128}),
    "hunyuan_vl_text": ModelType({}, qkv_bias="attention_bias", output_bias="attention_bias", qk_norm="head"),
    "hyperclovax": replace(LLAMA, derive=norms_behind),
    "iquestcoder": replace(
        LLAMA, defaults={"head_dim": 128, "num_key_value_heads": 8}, refused=("use_sliding_window",)
    ),
    "jais2": replace(
        PLAIN,
        defaults=MHA | {"attention_bias": True, "mlp_bias": True},
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        ffn_bias="mlp_bias",
    ),
    "kolibri1": ModelType(
        {"head_dim": 128, "num_key_value_heads": 4, "sliding_window": 513, "shared_expert_intermediate_size": 512},
        windowed=rules.always,
        norms=4,
        qk_norm="head",
        router_bias=True,
        router_dtype="fp32",
        expert_width=MOE_WIDTH,
    ),
    "lfm3": replace(
        LFM2,
        defaults={"conv_L_cache": 7, "head_dim": 128, "sliding_window": 256, "tie_word_embeddings": True},
        shape=lfm3_shape,
        derive=norms_behind,
    ),
    "mellum": replace(QWEN3_MOE, defaults={"head_dim": 128, "sliding_window": 1024}, refused=()),
    "ministral": ModelType({"num_key_value_heads": 8, "sliding_window": 4096}, rules.always),
    "olmo_hybrid": replace(
        OLMO2,
        defaults=MHA | {"linear_conv_kernel_dim": 4},
        linear=rules.every_fourth,
        recurrent=rules.gated_delta_net,
        handled=rules.GATED_DELTA_NET_FIELDS,
    ),
    "sarvam_mla": replace(DEEPSEEK3, defaults=_SARVAM),
    "sarvam_moe": replace(GLM4, defaults={**GLM4.defaults, "num_shared_experts": 1}, output_bias="attention_bias"),
    "vaultgemma": replace(GEMMA2, norms=2),
    "youtu": replace(
        DEEPSEEK2,
        defaults={"q_lora_rank": 1536, "tie_word_embeddings": True},
        expert_width=(),
        derive=None,
    ),
}
