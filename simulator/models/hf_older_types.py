"""The structure that further Hugging Face model_types imply: state spaces alone, and families with newer successors.

Source: the configuration and modelling files of transformers 5.24.0; of Baichuan, InternLM and Qwen's first models,
those in their repositories, as vLLM 0.33.0 has them.
"""

from dataclasses import replace
from typing import Any

from simulator.models import hf_layer_rules as hybrids
from simulator.models import hf_rules as rules
from simulator.models.hf_architecture import ModelType
from simulator.models.hf_families import LLAMA, MHA, OLD, PLAIN
from simulator.models.hf_fields import HIDDEN, MOE_WIDTH, Fields
from simulator.models.hf_rules import Derived, LayerKind

TRAINED = 2_048  # tokens that the state spaces of arXiv:2312.00752 were trained on; their configs state no context


def recurrent_layers(_fields: Fields, layers: int) -> list[LayerKind]:
    """Return the kind of each layer of a model that is a recurrence alone."""
    return [("linear", "none")] * layers


def selective(fields: Fields) -> dict[str, Any]:
    """Return the profile of a Mamba layer. Raises ProfileError for a malformed field."""
    hidden, rank = fields.count(*HIDDEN), fields.raw.get("time_step_rank")
    return {
        "kind": "mamba",
        "inner": fields.maybe("intermediate_size") or (fields.maybe("expand") or 2) * hidden,
        "state": fields.count("state_size"),
        "step_rank": -(-hidden // 16) if rank == "auto" else fields.count("time_step_rank"),
        "conv": fields.count("conv_kernel"),
        "conv_bias": fields.raw.get("use_conv_bias") is not False,
        "inner_norms": False,
    }


def dual(fields: Fields) -> dict[str, Any]:
    """Return the profile of a Mamba-2 layer. Raises ProfileError for a malformed field."""
    return {
        "kind": "mamba2",
        "heads": fields.count("num_heads"),
        "head_dim": fields.count("head_dim"),
        "state": fields.count("state_size"),
        "groups": fields.count("n_groups"),
        "conv": fields.count("conv_kernel"),
    }


def bamba_layers(fields: Fields, layers: int) -> list[LayerKind]:
    """Return the kind of each layer of Bamba: attention where the config says so, else Mamba-2."""
    full = fields.each("attn_layer_indices") or []
    return [("global" if layer in full else "linear", "dense") for layer in range(layers)]


def bigcode(fields: Fields) -> Derived:
    """Return the one KV head of StarCoder, and the width of its feed-forward blocks."""
    derived, _ = rules.four_fold(fields)
    return {**derived, "num_key_value_heads": 1 if fields.flag("multi_query") else None}, {}


def stablelm(fields: Fields) -> Derived:
    """Return whether attention and feed-forward block of StableLM read the same input, with one norm for both."""
    parallel = fields.flag("use_parallel_residual")
    return {}, {"parallel": parallel, "norms": 1 if parallel else 2}


_MAMBA = ModelType(
    {"max_position_embeddings": TRAINED, "tie_word_embeddings": True, "conv_kernel": 4, "time_step_rank": "auto"}
    | {"state_size": 16},
    layers=recurrent_layers,
    recurrent=selective,
    norms=1,
    refused=("use_bias",),
)
_GRANITE_MOE = replace(LLAMA, expert_width=("intermediate_size",))
OLDER_TYPES: dict[str, ModelType] = {
    "baichuan": LLAMA,
    "bamba": ModelType(
        MHA | {"mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_conv_bias": True},
        layers=bamba_layers,
        recurrent=hybrids.granite_mamba2,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        ffn_bias="mlp_bias",
        refused=("mamba_proj_bias",),
        handled=("mamba_d_state",),
    ),
    "cwm": replace(LLAMA, defaults=MHA | {"sliding_window": 8192}),
    "exaone_moe": ModelType(
        {"sliding_window": 4096, "sliding_window_pattern": 4, "num_shared_experts": 1, "first_k_dense_replace": 1},
        windowed=rules.by_letters,
        qk_norm="head",
        router_bias=True,
        expert_width=MOE_WIDTH,
    ),
    "falcon_mamba": _MAMBA,
    "gpt_bigcode": replace(
        OLD,
        defaults={"tie_word_embeddings": True, "multi_query": True},
        learned_positions=rules.positions(),
        derive=bigcode,
    ),
    "granitemoe": _GRANITE_MOE,
    "granitemoeshared": _GRANITE_MOE,
    "internlm": replace(LLAMA, defaults=MHA | {"bias": True}, qkv_bias="bias", output_bias="bias"),
    "mamba": _MAMBA,
    "mamba2": replace(
        _MAMBA,
        defaults={"max_position_embeddings": TRAINED, "n_groups": 8, "conv_kernel": 4, "state_size": 128},
        recurrent=dual,
    ),
    "nemotron": replace(
        PLAIN, defaults=MHA, qkv_bias="attention_bias", output_bias="attention_bias", ffn_bias="mlp_bias"
    ),
    "qwen": ModelType(MHA, qkv_bias=True, derive=rules.halved),
    "stablelm": ModelType(MHA, norm_bias=True, qkv_bias="use_qkv_bias", refused=("qk_layernorm",), derive=stablelm),
}
