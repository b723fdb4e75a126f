"""Structures that several Hugging Face model_types share; hf_model_types.py says which, and what each changes.

Source: the configuration and modelling files of transformers 5.23.0.
"""

from dataclasses import replace
from typing import Any

from simulator.models import hf_layer_rules as hybrids
from simulator.models import hf_rules as rules
from simulator.models import hf_sharing_rules as sharing
from simulator.models.hf_architecture import ModelType
from simulator.models.hf_compressed import compressed_attention, compressed_layers, expert_format
from simulator.models.hf_fields import MOE_WIDTH, WIDTH

MHA: dict[str, Any] = {"num_key_value_heads": None}
PLAIN = ModelType({}, norm_bias=True, gated=False)
QWEN2 = ModelType({}, rules.late, qkv_bias=True)
QWEN3 = ModelType(
    {"head_dim": 128}, rules.late, qkv_bias="attention_bias", output_bias="attention_bias", qk_norm="head"
)
GEMMA: dict[str, Any] = {"head_dim": 256, "tie_word_embeddings": True}
GEMMA3_DEFAULTS: dict[str, Any] = GEMMA | {
    "vocab_size": 262208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131072,
    "sliding_window": 4096,
    "sliding_window_pattern": 6,
}
GEMMA1 = ModelType(GEMMA, qkv_bias="attention_bias", output_bias="attention_bias")
GEMMA2 = replace(GEMMA1, defaults=GEMMA | {"sliding_window": 4096}, windowed=rules.alternate, norms=4)
GEMMA3 = replace(GEMMA2, defaults=GEMMA3_DEFAULTS, windowed=rules.by_pattern, qk_norm="head")
DEEPSEEK2 = ModelType(
    {"q_lora_rank": 1536, "n_shared_experts": 2, "first_k_dense_replace": 0},
    latent=True,
    expert_width=MOE_WIDTH,
    refused=("attention_bias", "mlp_bias"),
    derive=hybrids.deepseek,
)
DEEPSEEK3 = replace(
    DEEPSEEK2,
    defaults={"q_lora_rank": 1536, "n_shared_experts": 1, "first_k_dense_replace": 3},
    router_bias=True,
    derive=None,
)
ERNIE_MOE = ModelType(
    {"tie_word_embeddings": True, "moe_layer_start_index": 1},
    qkv_bias="use_bias",
    output_bias="use_bias",
    router_bias=True,
    expert_width=MOE_WIDTH,
    derive=hybrids.ernie,
)
DEEPSEEK32 = replace(
    DEEPSEEK3,
    defaults={**DEEPSEEK3.defaults, "index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048},
    indexer=rules.indexer,
    reused=rules.shares_index,
    handled=("index_topk",),
)
DEEPSEEK4 = ModelType(
    {"sliding_window": 128, "qk_rope_head_dim": 64, "index_n_heads": 64, "index_head_dim": 128, "n_shared_experts": 1},
    layers=compressed_layers,
    mixer=compressed_attention,
    router_bias=True,
    expert_width=MOE_WIDTH,
    derive=expert_format,
    refused=("attention_bias", "mlp_bias"),
    handled=("index_topk", "compress_ratios", "hc_mult"),
)
GLM5_NEXT = replace(
    DEEPSEEK32,
    defaults={**DEEPSEEK3.defaults, "index_topk": 2048, "linear_conv_kernel_dim": 4},
    linear=rules.every_fourth,
    recurrent=hybrids.glm_delta,
    hyper_connections={"mean": True},
    handled=("index_topk", "hc_mult", "linear_attn_config"),
)
HY4 = replace(
    DEEPSEEK32,
    defaults={**DEEPSEEK3.defaults, "first_k_dense_replace": 1, "index_topk": 2048},
    reused=rules.shares_index_of_four,
    gate=True,
    sinks=True,
    hyper_connections={"independent": True},
    router_dtype="fp32",
    handled=("index_topk", "hc_mult"),
)
QWEN35 = ModelType(
    {"head_dim": 256, "linear_conv_kernel_dim": 4},
    linear=rules.every_fourth,
    recurrent=rules.gated_delta_net,
    qkv_bias="attention_bias",
    output_bias="attention_bias",
    qk_norm="head",
    gate=True,
    handled=rules.GATED_DELTA_NET_FIELDS,
)
QWEN35_MOE = replace(
    QWEN35,
    defaults={**QWEN35.defaults, "shared_expert_intermediate_size": 512},
    shared_gate=True,
    expert_width=MOE_WIDTH,
)
GEMMA4 = replace(
    GEMMA1,
    defaults=GEMMA | {"sliding_window": 512, "sliding_window_pattern": 6, "vocab_size": 262144},
    windowed=rules.by_pattern,
    norms=4,
    expert_norms=7,
    qk_norm="head",
    v_norm=True,
    shape=rules.gemma4_shape,
    router_bias=True,
    router_scale=True,
    expert_width=MOE_WIDTH,
    handled=("use_bidirectional_attention", "num_kv_shared_layers"),
    reused=sharing.last_reused,
    beside=sharing.beside,
    layer_inputs=sharing.layer_inputs,
    derive=rules.gemma4,
)
GEMMA3N = replace(
    GEMMA1,
    defaults=GEMMA
    | {"sliding_window": 512, "sliding_window_pattern": 5, "laurel_rank": 64, "altup_num_inputs": 4}
    | {"hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144, "num_kv_shared_layers": 15},
    windowed=rules.by_pattern,
    qk_norm="head",
    v_norm=True,
    handled=("num_kv_shared_layers",),
    reused=sharing.last_reused,
    beside=sharing.beside,
    layer_inputs=sharing.layer_inputs,
    derive=sharing.gemma3n,
)
LONGCAT = replace(
    DEEPSEEK3,
    defaults={"q_lora_rank": 1536, "n_shared_experts": 0},
    layers=sharing.longcat_layers,
    expert_norms=0,
    expert_width=("expert_ffn_hidden_size",),
    router_dtype="fp32",
    derive=sharing.longcat,
)
MIMO2 = ModelType(
    {"head_dim": 192, "v_head_dim": 128, "n_shared_experts": 0},
    layers=sharing.mimo_layers,
    shape=sharing.mimo_shape,
    router_bias=True,
    router_dtype="fp32",
    expert_width=MOE_WIDTH,
    refused=("attention_bias", "add_full_attention_sink_bias"),
    handled=("attention_chunk_size",),  # the window, once more
)
MINIMAX3 = ModelType(
    {"head_dim": 128},
    layers=sharing.block_sparse_layers,
    shape=sharing.block_sparse_shape,
    qk_norm="head",
    router_bias=True,
    router_dtype="fp32",
    expert_width=WIDTH,
    dense_width=("dense_intermediate_size",),
    handled=("sparse_attention_config",),
)
MUSE = ModelType(  # its norms of queries, keys and embeddings have no weights
    {"head_dim": 128, "sliding_window": 2048, "sliding_window_pattern": 4},
    windowed=rules.by_pattern,
    norms=4,
    gate=True,
    refused=("attention_bias",),
)
STEP3 = ModelType(
    {},
    layers=sharing.step3_layers,
    shape=sharing.step3_shape,
    expert_width=MOE_WIDTH,
    shared="share_expert_dim",
)
LLAMA4 = ModelType(
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
GLM4 = ModelType(
    MHA | {"first_k_dense_replace": 1, "n_shared_experts": 1},
    qkv_bias="attention_bias",
    qk_norm="head",
    router_bias=True,
    router_dtype="fp32",
    expert_width=MOE_WIDTH,
)
GLM = ModelType({"head_dim": 128, "attention_bias": True, "num_key_value_heads": 2}, qkv_bias="attention_bias")
LLAMA = ModelType(MHA, qkv_bias="attention_bias", output_bias="attention_bias", ffn_bias="mlp_bias")
QWEN3_MOE = replace(QWEN3, defaults={}, expert_width=MOE_WIDTH, refused=("use_sliding_window",))
LFM2 = ModelType(
    {"tie_word_embeddings": True, "conv_L_cache": 3, "max_position_embeddings": 128000},
    layers=hybrids.lfm2_layers,
    recurrent=hybrids.short_convolution,
    qk_norm="head",
    refused=("conv_bias",),
    derive=hybrids.lfm2,
)
COHERE = ModelType(
    MHA | {"tie_word_embeddings": True},
    norms=1,
    qkv_bias="attention_bias",
    output_bias="attention_bias",
    refused=("use_qk_norm",),
)
COHERE2 = replace(
    COHERE,
    defaults={**COHERE.defaults, "sliding_window": 4096, "sliding_window_pattern": 4},
    windowed=rules.by_pattern,
)
COHERE2_MOE = replace(
    COHERE2,
    defaults={**COHERE2.defaults, "num_shared_experts": 0},
    expert_width=WIDTH,
    dense_width=("prefix_dense_intermediate_size", *WIDTH),
)
LING3 = replace(
    DEEPSEEK3,
    defaults={"q_lora_rank": None, "num_shared_experts": 1, "first_k_dense_replace": 2},
    layers=hybrids.ling_layers,
    recurrent=hybrids.ling_delta,
    head_gate=True,
    router_dtype="fp32",
)
OLMO2 = ModelType(MHA, qkv_bias="attention_bias", output_bias="attention_bias", qk_norm="full")
OLD = replace(PLAIN, qkv_bias=True, output_bias=True, ffn_bias=True, derive=rules.four_fold)
FALCON: dict[str, Any] = {
    "tie_word_embeddings": True,
    "multi_query": True,
    "parallel_attn": True,
    "max_position_embeddings": 2048,
}
