"""config.json files of models whose layers share a part, or skip one: caches, embeddings, queries, experts, images.

The profiles' `sources` say where each was looked up; where transformers has the architecture, it counts the same.
"""

from collections.abc import Iterable

from tests.support.model_configs import Config, latent, qwen35, sized

WINDOW, FULL = "sliding_attention", "full_attention"
OWN_EMBEDDINGS: Config = {"hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144}


def gemma4_small(sizes: str, types: list[str], shared: int, **more: object) -> Config:
    shape = {"head_dim": 256, "global_head_dim": 512, "sliding_window": 512, "num_kv_shared_layers": shared}
    types = types * (int(sizes.split(maxsplit=1)[0]) // len(types))
    return sized("gemma4_text", sizes, tie_word_embeddings=True, layer_types=types, **shape, **OWN_EMBEDDINGS, **more)


def gemma3n(sizes: str, shared: int) -> Config:
    shape = {"head_dim": 256, "sliding_window": 512, "num_kv_shared_layers": shared}
    types = [*[WINDOW] * 4, FULL] * (int(sizes.split(maxsplit=1)[0]) // 5)
    paths = {"altup_num_inputs": 4, "laurel_rank": 64}
    return sized("gemma3n_text", sizes, tie_word_embeddings=True, layer_types=types, **shape, **OWN_EMBEDDINGS, **paths)


def mimo(model_type: str, sizes: str, full: Iterable[int], experts: int, **more: object) -> Config:
    """MiMo-V2; `full`: layers beside the first that attend to all tokens."""
    layers, _, heads = (int(each) for each in sizes.split()[:3])
    every = {0, *full}
    return sized(
        model_type,
        sizes,
        **{"head_dim": 192, "v_head_dim": 128, "swa_head_dim": 192, "swa_v_head_dim": 128, "sliding_window": 128},
        **{"swa_num_key_value_heads": 8, "swa_num_attention_heads": heads, "add_swa_attention_sink_bias": True},
        hybrid_layer_pattern=[int(layer not in every) for layer in range(layers)],
        moe_layer_freq=[0, *[1] * (layers - 1)],
        **{"n_routed_experts": experts, "num_experts_per_tok": 8, "moe_intermediate_size": 2048},
        quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]},
        **more,
    )


def ling3(sizes: str, group: int, q_lora: int | None, dense: int, experts: int, width: int) -> Config:
    """Ling 3: each `group`-th layer has latent attention, the others Kimi Delta Attention."""
    return sized(
        "bailing_hybrid",
        sizes,
        **{"head_dim": 128, "layer_group_size": group, "short_conv_kernel_size": 4, "num_shared_experts": 1},
        **{"num_experts": experts, "num_experts_per_tok": 8, "moe_intermediate_size": width},
        **latent(q_lora, "512 64 128 128", first_k_dense_replace=dense),
    )


def deepseek4(sizes: str, ratios: list[int], groups: int, chosen: int, **more: object) -> Config:
    """DeepSeek-V4; `ratios`: of each layer's rows, and of the layer of multi-token prediction."""
    return sized(
        "deepseek_v4",
        sizes,
        **{"head_dim": 512, "qk_rope_head_dim": 64, "o_lora_rank": 1024, "o_groups": groups, "sliding_window": 128},
        **{"index_n_heads": 64, "index_head_dim": 128, "index_topk": chosen, "compress_ratios": ratios, "hc_mult": 4},
        **{"n_shared_experts": 1, "num_experts_per_tok": 6, "num_hash_layers": 3, "expert_dtype": "fp4"},
        quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]},
        **more,
    )


COUNTED: dict[str, Config] = {
    "deepseek-v4-flash": deepseek4(
        "43 4096 64 1 0 129280 1048576",
        [0, 0, *[4, 128] * 20, 4, 0],
        8,
        512,
        **{"q_lora_rank": 1024, "n_routed_experts": 256, "moe_intermediate_size": 2048},
    ),
    "deepseek-v4-pro": deepseek4(
        "61 7168 128 1 0 129280 1048576",
        [128, 128, *[4, 128] * 29, 4, 0],
        16,
        1024,
        **{"q_lora_rank": 1536, "n_routed_experts": 384, "moe_intermediate_size": 3072},
    ),
    "gemma-4-e2b": gemma4_small("35 1536 8 1 6144 262144 131072", [*[WINDOW] * 4, FULL], 20, use_double_wide_mlp=True),
    "gemma-4-e4b": gemma4_small("42 2560 8 2 10240 262144 131072", [*[WINDOW] * 5, FULL], 18),
    "gemma-3n-e4b": gemma3n("35 2048 8 2 16384 262400 32768", 15),
    "gemma-3n-e2b": gemma3n("30 2048 8 2 8192 262400 32768", 10),
    "minimax-m3": sized(
        "minimax_m3_vl_text",
        "60 6144 64 4 3072 200064 1048576",
        **{"head_dim": 128, "dense_intermediate_size": 12288, "shared_intermediate_size": 3072, "n_shared_experts": 1},
        **{"num_local_experts": 128, "num_experts_per_tok": 4, "moe_layer_freq": [0] * 3 + [1] * 57},
        sparse_attention_config={
            **{"sparse_index_dim": 128, "sparse_num_index_heads": 4, "sparse_topk_blocks": 16},
            **{"sparse_block_size": 128, "sparse_attention_freq": [0] * 3 + [1] * 57},
        },
    ),
    "glm-5.3-flash": sized(
        "glm5_next_text",
        "45 4096 64 64 12288 154880 1048576",
        **latent(1536, "512 0 256 256", index_n_heads=32, index_head_dim=128, index_topk=2048, index_kpool=4),
        **{"n_routed_experts": 288, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_shared_experts": 1},
        **{"linear_num_heads": 64, "linear_head_dim": 128, "linear_conv_kernel_dim": 4, "hc_mult": 4},
    ),
    "hy4-preview": sized(
        "hy_v4",
        "78 6144 64 64 18432 120832 1048576",
        **latent(2048, "512 64 192 256", index_n_heads=32, index_head_dim=128, index_topk=2048),
        **{"n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_shared_experts": 1},
        hc_mult=4,
    ),
    "ling-3.0-flash": ling3("42 2560 32 32 6144 157184 262144", 6, None, 2, 512, 768),
    "ling-3.0-tiny": ling3("24 1536 16 16 4608 157184 131072", 4, 256, 1, 128, 512),
    "qwen3.8-2.4t-a95b": qwen35(
        "92 8192 64 4 0 248320 262144",
        128,
        **{"num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 2048},
        shared_expert_intermediate_size=2048,
    ),
    "command-a-plus": sized(
        "cohere2_moe",
        "32 4096 128 8 4096 262144 200000",
        **{"head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "num_shared_experts": 4},
        **{"sliding_window": 4096, "layer_types": [*[WINDOW] * 3, FULL] * 8, "expert_selection_fn": "sigmoid"},
    ),
    "muse-glimmer-30b": sized(
        "muse_glimmer_text",
        "52 6656 32 2 19968 202048 131072",
        **{"head_dim": 128, "sliding_window": 2048, "layer_types": [*[WINDOW] * 3, FULL] * 13},
    ),
    "mimo-v2-flash": mimo("mimo_v2_flash", "48 4096 64 4 16384 152576 262144", range(5, 48, 6), 256),
}
OTHERS: dict[str, Config] = {  # that transformers lacks, or, of LongCat-Flash, with matrices of experts that have none
    "mimo-v2.5": mimo("mimo_v2", "48 4096 64 4 16384 152576 1048576", range(5, 48, 6), 256, attention_chunk_size=128),
    "mimo-v2.5-pro": mimo(
        "mimo_v2",
        "70 6144 128 8 16384 152576 1048576",
        [7, 15, 23, 31, 39, 47, 55, 62, 69],
        384,
        attention_chunk_size=128,
    ),
    "longcat-flash": {
        **{"model_type": "longcat_flash", "num_layers": 28, "hidden_size": 6144, "num_attention_heads": 64},
        **{"vocab_size": 131072, "max_position_embeddings": 131072, "dtype": "bfloat16"},
        **{"ffn_hidden_size": 12288, "expert_ffn_hidden_size": 2048, "moe_topk": 12, "n_routed_experts": 512},
        **{"zero_expert_num": 256, "zero_expert_type": "identity", **latent(1536, "512 64 128 128")},
    },
    "step-3": {
        **{"model_type": "step3_text", "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61},
        **{"num_attention_heads": 64, "num_attention_groups": 1, "head_dim": 256, "share_q_dim": 2048},
        **{"vocab_size": 128815, "max_position_embedding": 65536, "dtype": "bfloat16", "share_expert_dim": 5120},
        **{"moe_num_experts": 48, "moe_top_k": 3, "moe_intermediate_size": 5120},
        "moe_layers_enum": ",".join(str(layer) for layer in range(4, 60)),
    },
    "hunyuan-large": sized(
        "hunyuan",
        "64 6400 80 8 18304 129024 131072",
        **{"tie_word_embeddings": True, "use_cla": True, "cla_share_factor": 2, "use_qk_norm": True},
        **{"num_experts": 16, "moe_topk": 1, "num_shared_expert": 1},
    ),
    "llama-3.2-11b-vision": sized(
        "mllama_text_model",
        "40 4096 32 8 14336 128256 131072",
        cross_attention_layers=[3, 8, 13, 18, 23, 28, 33, 38],
    ),
}
