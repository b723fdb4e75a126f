"""The structure that each Hugging Face model_type implies beyond its config.json.

Source: the configuration and modelling files of transformers 5.23.0. The parameter totals of the shipped profiles,
which are published figures, check it.
"""

from dataclasses import replace
from typing import Any

from simulator.models import hf_layer_rules as hybrids
from simulator.models import hf_rules as rules
from simulator.models.hf_architecture import ModelType
from simulator.models.hf_fields import MOE_WIDTH, WIDTH
from simulator.models.hf_rules import always

_MHA: dict[str, Any] = {"num_key_value_heads": None}
_PLAIN = ModelType({}, norm_bias=True, gated=False)
_QWEN2 = ModelType({}, rules.late, qkv_bias=True)
_QWEN3 = ModelType(
    {"head_dim": 128}, rules.late, qkv_bias="attention_bias", output_bias="attention_bias", qk_norm="head"
)
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
_GEMMA2 = replace(_GEMMA1, defaults=_GEMMA | {"sliding_window": 4096}, windowed=rules.alternate, norms=4)
_GEMMA3 = replace(_GEMMA2, defaults=_GEMMA3_DEFAULTS, windowed=rules.by_pattern, qk_norm="head")
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
_DEEPSEEK32 = replace(
    _DEEPSEEK3,
    defaults={**_DEEPSEEK3.defaults, "index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048},
    indexer=rules.indexer,
    handled=("index_topk",),
)
_QWEN35 = ModelType(
    {"head_dim": 256, "linear_conv_kernel_dim": 4},
    linear=rules.every_fourth,
    recurrent=rules.gated_delta_net,
    qkv_bias="attention_bias",
    output_bias="attention_bias",
    qk_norm="head",
    gate=True,
    handled=rules.GATED_DELTA_NET_FIELDS,
)
_QWEN35_MOE = replace(
    _QWEN35,
    defaults={**_QWEN35.defaults, "shared_expert_intermediate_size": 512},
    shared_gate=True,
    expert_width=MOE_WIDTH,
)
_GEMMA4 = replace(
    _GEMMA1,
    defaults=_GEMMA | {"sliding_window": 512, "sliding_window_pattern": 6, "vocab_size": 262144},
    windowed=rules.by_pattern,
    norms=4,
    expert_norms=7,
    qk_norm="head",
    shape=rules.gemma4_shape,
    router_bias=True,
    router_scale=True,
    expert_width=MOE_WIDTH,
    handled=("use_bidirectional_attention",),
    derive=rules.gemma4,
)
_LLAMA4 = ModelType(
    {"attention_chunk_size": 8192, "num_key_value_heads": 8, "head_dim": 128, "interleave_moe_layer_step": 1},
    rules.chunked,
    span="attention_chunk_size",
    qkv_bias="attention_bias",
    output_bias="attention_bias",
    expert_width=("intermediate_size",),
    dense_width=("intermediate_size_mlp",),
    shared="intermediate_size",
    handled=("attention_chunk_size",),
)
_GLM4 = ModelType(
    _MHA | {"first_k_dense_replace": 1, "n_shared_experts": 1},
    qkv_bias="attention_bias",
    qk_norm="head",
    router_bias=True,
    router_dtype="fp32",
    expert_width=MOE_WIDTH,
)
_LLAMA = ModelType(_MHA, qkv_bias="attention_bias", output_bias="attention_bias", ffn_bias="mlp_bias")
_QWEN3_MOE = replace(_QWEN3, defaults={}, expert_width=MOE_WIDTH, refused=("use_sliding_window",))
_LFM2 = ModelType(
    {"tie_word_embeddings": True, "conv_L_cache": 3, "max_position_embeddings": 128000},
    layers=hybrids.lfm2_layers,
    recurrent=hybrids.short_convolution,
    qk_norm="head",
    refused=("conv_bias",),
    derive=hybrids.lfm2,
)
_COHERE = ModelType(
    _MHA | {"tie_word_embeddings": True},
    norms=1,
    qkv_bias="attention_bias",
    output_bias="attention_bias",
    refused=("use_qk_norm",),
)
_OLMO2 = ModelType(_MHA, qkv_bias="attention_bias", output_bias="attention_bias", qk_norm="full")
_OLD = replace(_PLAIN, qkv_bias=True, output_bias=True, ffn_bias=True, derive=rules.four_fold)
_FALCON: dict[str, Any] = {
    "tie_word_embeddings": True,
    "multi_query": True,
    "parallel_attn": True,
    "max_position_embeddings": 2048,
}

MODEL_TYPES: dict[str, ModelType] = {
    "bloom": replace(_OLD, defaults=_MHA | {"tie_word_embeddings": True}, embedding_norm=True),
    "cohere": _COHERE,
    "cohere2": replace(
        _COHERE,
        defaults={**_COHERE.defaults, "sliding_window": 4096, "sliding_window_pattern": 4},
        windowed=rules.by_pattern,
    ),
    "deepseek_v2": _DEEPSEEK2,
    "deepseek_v3": _DEEPSEEK3,
    "deepseek_v32": _DEEPSEEK32,
    "dots1": ModelType(
        {"first_k_dense_replace": 0, "n_shared_experts": 0},
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        qk_norm="head",
        router_bias=True,
        expert_width=MOE_WIDTH,
    ),
    "ernie4_5": ModelType({"tie_word_embeddings": True, "head_dim": 128}, qkv_bias="use_bias", output_bias="use_bias"),
    "ernie4_5_moe": ModelType(
        {"tie_word_embeddings": True, "moe_layer_start_index": 1},
        qkv_bias="use_bias",
        output_bias="use_bias",
        router_bias=True,
        expert_width=MOE_WIDTH,
        derive=hybrids.ernie,
    ),
    "exaone4": ModelType(
        {"sliding_window": 4096, "sliding_window_pattern": 4}, windowed=rules.by_letters, qk_norm="head"
    ),
    "falcon": replace(
        _PLAIN, defaults=_FALCON, qkv_bias="bias", output_bias="bias", ffn_bias="bias", derive=rules.falcon
    ),
    "falcon_h1": ModelType(
        _MHA | {"mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_conv_bias": True},
        layers=hybrids.falcon_h1_layers,
        recurrent=hybrids.falcon_h1_mamba2,
        norms=1,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        ffn_bias="mlp_bias",
        refused=("mamba_proj_bias", "projectors_bias"),
        handled=("mamba_d_state",),
    ),
    "gemma": _GEMMA1,
    "gemma2": _GEMMA2,
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "gemma4": _GEMMA4,
    "gemma4_text": _GEMMA4,
    "gemma4_unified": _GEMMA4,
    "gemma4_unified_text": _GEMMA4,
    "glm4_moe": replace(_GLM4, defaults={**_GLM4.defaults, "use_qk_norm": False}),
    "glm4_moe_lite": replace(_DEEPSEEK3, defaults={"n_shared_experts": 1, "first_k_dense_replace": 1}),
    "glm_moe_dsa": replace(_DEEPSEEK32, defaults={**_DEEPSEEK32.defaults, "index_n_heads": 32}),
    "granite": _LLAMA,
    "granitemoehybrid": ModelType(
        _MHA | {"mamba_n_groups": 1, "mamba_d_conv": 4},
        layers=hybrids.granite_layers,
        recurrent=hybrids.granite_mamba2,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        expert_width=("intermediate_size",),
        dense_width=("shared_intermediate_size",),
        refused=("mamba_proj_bias",),
        handled=("mamba_d_state",),
    ),
    "gpt2": replace(_OLD, defaults=_MHA | {"tie_word_embeddings": True}, learned_positions=rules.positions()),
    "gptj": replace(
        _PLAIN, defaults=_MHA, norms=1, parallel=True, ffn_bias=True, head_bias=True, derive=rules.four_fold
    ),
    "gpt_neox": replace(
        _PLAIN,
        defaults=_MHA | {"attention_bias": True, "use_parallel_residual": True},
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        ffn_bias=True,
        derive=rules.parallel_residual,
    ),
    "gpt_oss": ModelType(
        {"head_dim": 64, "attention_bias": True},
        rules.alternate,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        sinks=True,
        router_bias=True,
        expert_bias=True,
        expert_width=WIDTH,
    ),
    "hunyuan_v1_moe": ModelType({}, qk_norm="head", expert_width=MOE_WIDTH, derive=rules.hunyuan),
    "jamba": ModelType(
        {
            **{"num_experts": 16, "attn_layer_period": 8, "attn_layer_offset": 4, "num_experts_per_tok": 2},
            **{"expert_layer_period": 2, "expert_layer_offset": 1, "mamba_expand": 2, "mamba_dt_rank": "auto"},
        },
        layers=rules.jamba_layers,
        recurrent=rules.mamba,
        expert_width=WIDTH,
        refused=("mamba_proj_bias",),
        handled=("mamba_d_state",),
    ),
    "kimi_k2": _DEEPSEEK3,
    "kimi_linear": replace(
        _DEEPSEEK3,
        defaults={"q_lora_rank": None, "first_k_dense_replace": 1},
        layers=hybrids.kimi_layers,
        recurrent=hybrids.kimi_delta,
        refused=(*_DEEPSEEK3.refused, "mla_use_output_gate", "routed_expert_hidden_size"),
        handled=("linear_attn_config",),
    ),
    "laguna": ModelType(
        {"head_dim": 128, "sliding_window": 512},
        qk_norm="head",
        shape=hybrids.laguna_shape,
        router_bias=True,
        expert_width=MOE_WIDTH,
        refused=("attention_bias", "qkv_bias"),
    ),
    "lfm2": _LFM2,
    "lfm2_moe": replace(_LFM2, router_bias=True, expert_width=MOE_WIDTH),
    "llama": _LLAMA,
    "llama4": _LLAMA4,
    "llama4_text": _LLAMA4,
    "mimo": _QWEN2,
    "minicpm3": ModelType({"tie_word_embeddings": True}, latent=True, refused=("attention_bias", "mlp_bias")),
    "ministral3": ModelType({"head_dim": 128, "num_key_value_heads": 8}, always),
    "minimax_m2": ModelType(
        {"head_dim": 128}, qk_norm="full", router_bias=True, router_dtype="fp32", expert_width=WIDTH
    ),
    "mistral": ModelType({"num_key_value_heads": 8, "sliding_window": 4096}, always),
    "mistral4": replace(_DEEPSEEK3, defaults={"n_shared_experts": 1, "first_k_dense_replace": 0}, router_bias=False),
    "mixtral": ModelType({"num_key_value_heads": 8}, always, expert_width=WIDTH),
    "mpt": ModelType(_MHA | {"tie_word_embeddings": True}, gated=False, derive=rules.four_fold),
    "nemotron_h": ModelType(
        {"n_groups": 8, "conv_kernel": 4, "ssm_state_size": 128, "mamba_ssm_cache_dtype": "float32"},
        layers=rules.nemotron_h_layers,
        recurrent=rules.mamba2,
        norms=1,
        gated=False,
        router_bias=True,
        router_dtype="fp32",
        expert_width=MOE_WIDTH,
        shared="moe_shared_expert_intermediate_size",
        refused=("attention_bias", "mlp_bias", "use_bias", "mamba_proj_bias"),
        handled=rules.NEMOTRON_H_FIELDS,
    ),
    "olmo2": _OLMO2,
    "olmo3": replace(
        _OLMO2, defaults=_MHA | {"sliding_window": 4096, "sliding_window_pattern": 4}, windowed=rules.by_pattern
    ),
    "olmoe": replace(_OLMO2, expert_width=WIDTH),
    "opt": replace(
        _OLD,
        defaults=_MHA | {"tie_word_embeddings": True},
        learned_positions=rules.positions(2),
        refused=("_remove_final_layer_norm",),
        derive=rules.opt,
    ),
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
    "phi3": ModelType(_MHA, always),
    "phimoe": ModelType(
        {"num_key_value_heads": 8},
        always,
        norm_bias=True,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        head_bias="lm_head_bias",
        expert_width=WIDTH,
    ),
    "qwen2": _QWEN2,
    "qwen2_5_vl": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen2_moe": replace(
        _QWEN2,
        defaults={"shared_expert_intermediate_size": 5632},
        shared_gate=True,
        expert_width=MOE_WIDTH,
        refused=("use_sliding_window",),
    ),
    "qwen2_vl": _QWEN2,
    "qwen2_vl_text": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_5": _QWEN35,
    "qwen3_5_moe": _QWEN35_MOE,
    "qwen3_5_moe_text": _QWEN35_MOE,
    "qwen3_5_text": _QWEN35,
    "qwen3_next": _QWEN35_MOE,
    "qwen3_vl": _QWEN3,
    "qwen3_vl_moe": _QWEN3_MOE,
    "qwen3_vl_moe_text": _QWEN3_MOE,
    "qwen3_vl_text": _QWEN3,
    "seed_oss": ModelType({"attention_bias": True}, qkv_bias="attention_bias", output_bias="attention_out_bias"),
    "smollm3": replace(_LLAMA, defaults={"tie_word_embeddings": True}, refused=("use_sliding_window",)),
    "starcoder2": replace(
        _PLAIN,
        defaults={"tie_word_embeddings": True, "use_bias": True},
        windowed=always,
        qkv_bias="use_bias",
        output_bias="use_bias",
        ffn_bias="use_bias",
    ),
    "step3p5": ModelType(
        {"head_dim": 128, "num_attention_groups": 8},
        layers=hybrids.step_layers,
        qk_norm="head",
        shape=hybrids.step_shape,
        router_bias=True,
        router_dtype="fp32",
        expert_width=MOE_WIDTH,
        shared="share_expert_dim",
    ),
}
