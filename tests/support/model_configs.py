"""Published config.json files of models whose layers differ in kind, shortened to the fields that matter.

Each was looked up (the profile's `sources` say where); profiles are their imports, and transformers, where it is
installed, builds the same configs and counts the same parameters.
"""

from typing import Any

Config = dict[str, Any]


def sized(model_type: str, sizes: str, **more: Any) -> Config:
    """A config from "layers hidden heads kv_heads width vocab context"; 0 leaves a field out."""
    names = "num_hidden_layers hidden_size num_attention_heads num_key_value_heads intermediate_size vocab_size"
    numbers = (int(each) for each in sizes.split())
    shape = dict(zip([*names.split(), "max_position_embeddings"], numbers, strict=True))
    return {"model_type": model_type, **{key: size for key, size in shape.items() if size}, "dtype": "bfloat16", **more}


def qwen35(sizes: str, value_heads: int, **more: Any) -> Config:
    """A hybrid of Qwen3.5: three layers of linear attention, one of full attention."""
    linear = {"linear_num_key_heads": 16, "linear_num_value_heads": value_heads, "linear_key_head_dim": 128}
    linear |= {"linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4}
    kind = "qwen3_5_moe_text" if "num_experts" in more else "qwen3_5_text"
    return sized(kind, sizes, head_dim=256, mamba_ssm_dtype="float32", **linear, **more)


def routed(experts: int, chosen: int, width: int) -> Config:
    return {
        **{"num_experts": experts, "num_experts_per_tok": chosen, "moe_intermediate_size": width},
        "shared_expert_intermediate_size": width,
    }


def latent(q_lora: int | None, sizes: str, **more: Any) -> Config:
    """The fields of latent attention from "kv_lora rope nope v"."""
    names = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    return {"q_lora_rank": q_lora, **dict(zip(names, map(int, sizes.split()), strict=True)), **more}


def deepseek_moe(experts: int, chosen: int, width: int, shared: int, first: int) -> Config:
    return {
        **{"n_routed_experts": experts, "num_experts_per_tok": chosen, "moe_intermediate_size": width},
        **{"n_shared_experts": shared, "first_k_dense_replace": first},
    }


def nemotron(pattern: str, sizes: str, mamba_heads: int, **more: Any) -> Config:
    mamba = {"mamba_num_heads": mamba_heads, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8}
    mamba |= {"conv_kernel": 4, "hybrid_override_pattern": pattern, "head_dim": 128}
    return sized("nemotron_h", f"{len(pattern)} {sizes}", **{**mamba, **more})


def gemma4(sizes: str, global_kv_heads: int, **more: Any) -> Config:
    shape = {"head_dim": 256, "global_head_dim": 512, "num_global_key_value_heads": global_kv_heads}
    shape |= {"attention_k_eq_v": True, "sliding_window": 1024, "hidden_size_per_layer_input": 0}
    return sized("gemma4_text", sizes, tie_word_embeddings=True, num_kv_shared_layers=0, **shape, **more)


def laguna(layers: int, sizes: str, heads: tuple[int, int], **more: Any) -> Config:
    """Laguna: a layer with full attention before each three with a window, with heads of their own."""
    types = ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"]
    each = {
        "layer_types": types * (layers // 4),
        "num_attention_heads_per_layer": [heads[0], *[heads[1]] * 3] * (layers // 4),
    }
    return sized("laguna", f"{layers} {sizes}", head_dim=128, sliding_window=512, gating=True, **each, **more)


def granite(sizes: str, **more: Any) -> Config:
    return sized("granite", sizes, tie_word_embeddings=True, **more)


def qwen3_vl(sizes: str, **more: Any) -> Config:
    kind = "qwen3_vl_moe_text" if "num_experts" in more else "qwen3_vl_text"
    text = sized(kind, f"{sizes} 151936 262144", head_dim=128, **more)
    return {"model_type": kind.removesuffix("_text"), "text_config": text, "vision_config": {"depth": 24}}


def cohere2(sizes: str) -> Config:
    """Command R7B or A: three layers with a window, one with full attention."""
    return sized("cohere2", sizes, head_dim=128, sliding_window=4096, sliding_window_pattern=4, use_qk_norm=False)


def qwen2_vl(kind: str, sizes: str, vision: Config, **more: Any) -> Config:
    """Qwen2-VL or Qwen2.5-VL; `vision` is what its vision_config states beside the class defaults."""
    text = sized(f"{kind}_text", sizes, use_sliding_window=False, sliding_window=32768, **more)
    return {"model_type": kind, "text_config": text, "vision_config": {"model_type": kind, **vision}}


def trinity(sizes: str, experts: int, chosen: int, width: int, **more: Any) -> Config:
    """Trinity: every fourth layer has no window, and the first ones no experts."""
    shape = {"head_dim": 128, "sliding_window": 2048, "num_dense_layers": 2, "num_shared_experts": 1}
    layers = int(sizes.split(maxsplit=1)[0])
    types = {"layer_types": [*["sliding_attention"] * 3, "full_attention"] * (layers // 4)}
    moe = {"num_experts": experts, "num_experts_per_tok": chosen, "moe_intermediate_size": width}
    return sized("afmoe", sizes, **{**shape, **types, **moe, **more})


def granite_hybrid(sizes: str, experts: int, chosen: int, shared: int, heads: int) -> Config:
    """Granite 4.0 H: attention in one of ten layers, Mamba-2 of heads of 64 in the others; no experts are dense."""
    moe = {"num_local_experts": experts, "num_experts_per_tok": chosen, "shared_intermediate_size": shared}
    mamba = {"mamba_n_heads": heads, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1}
    types = [*["mamba"] * 5, "attention", *["mamba"] * 4] * 4
    return sized(
        *("granitemoehybrid", sizes),
        **{"tie_word_embeddings": True, "layer_types": types, "mamba_expand": 2, "mamba_d_conv": 4, **moe, **mamba},
    )


def opt(sizes: str, width: int) -> Config:
    """OPT from "layers hidden heads"."""
    layers, hidden, heads = map(int, sizes.split())
    return {
        **{"model_type": "opt", "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads},
        **{"ffn_dim": width, "vocab_size": 50272, "max_position_embeddings": 2048, "dtype": "float16"},
        "word_embed_proj_dim": hidden,
    }


STATIC_FP8 = {"quantization_config": {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None}}
PIXTRAL: Config = {"model_type": "pixtral", "image_size": 1540, "patch_size": 14}
FULL_OF_LFM2 = (2, 5, 9, 13, 17, 21, 24, 27)  # layers of LFM2 2.6B with attention
NANO_9B = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-"
NANO_12B = "M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M-"
NEMOTRON_H_47B = "M-M-M-M-M-M-M-M-M*-M-M-M-M-M-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-M-M---MM---M-M*-M-M-M-M-M-"
LLAMA4 = {"head_dim": 128, "intermediate_size_mlp": 16384, "num_experts_per_tok": 1, "attention_chunk_size": 8192}
NANO = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
SUPER = "MEMEMEM*" + "EMEMEMEM*" * 2 + "EMEMEMEMEM*" * 4 + "EMEMEMEM*" + "EMEMEMEME"
ULTRA = "MEMEMEM*EMEMEM*" + "EMEMEMEM*EMEMEMEM*EMEMEM*" * 3 + "EMEMEMEM*EMEMEMEME"
NEMOTRON_H_56B = "M-M-M-M*-" + "M-M-M-M-M*-" * 9 + "M-M-M-M-M-"
NEMOTRON_H_8B = "M-M-M-M*-" + "M-M-M-M-M*-" * 3 + "M-M-M-M-M-"

CONFIGS: dict[str, Config] = {
    "qwen3-next-80b-a3b": {
        **qwen35("48 2048 16 2 5120 151936 262144", 32, **routed(512, 10, 512), decoder_sparse_step=1),
        **{"model_type": "qwen3_next", "mamba_ssm_dtype": None},
    },
    "qwen3.5-0.8b": qwen35("24 1024 8 2 3584 248320 262144", 16, tie_word_embeddings=True),
    "qwen3.5-2b": qwen35("24 2048 8 2 6144 248320 262144", 16, tie_word_embeddings=True),
    "qwen3.5-4b": qwen35("32 2560 16 4 9216 248320 262144", 32, tie_word_embeddings=True),
    "qwen3.5-9b": qwen35("32 4096 16 4 12288 248320 262144", 32),
    "qwen3.5-27b": qwen35("64 5120 24 4 17408 248320 262144", 48),
    "qwen3.5-35b-a3b": qwen35("40 2048 16 2 0 248320 262144", 32, **routed(256, 8, 512)),
    "qwen3.5-122b-a10b": qwen35("48 3072 32 2 0 248320 262144", 64, **routed(256, 8, 1024)),
    "qwen3.5-397b-a17b": qwen35("60 4096 32 2 0 248320 262144", 64, **routed(512, 10, 1024)),
    "nemotron-3-nano-30b-a3b": nemotron(
        NANO,
        "2688 32 2 1856 131072 262144",
        64,
        **deepseek_moe(128, 6, 1856, 1, 0),
        moe_shared_expert_intermediate_size=3712,
    ),
    "nemotron-3-super-120b-a12b": nemotron(
        SUPER,
        "4096 32 2 2688 131072 262144",
        128,
        **deepseek_moe(512, 22, 2688, 1, 0),
        moe_shared_expert_intermediate_size=5376,
        moe_latent_size=1024,
    ),
    "nemotron-h-8b": nemotron(NEMOTRON_H_8B, "4096 32 8 21504 131072 8192", 128),
    "jamba-v0.1": sized(
        "jamba",
        "32 4096 32 8 14336 65536 262144",
        **{"mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 256, "num_experts": 16},
        **{"num_experts_per_tok": 2, "attn_layer_period": 8, "attn_layer_offset": 4},
        **{"expert_layer_period": 2, "expert_layer_offset": 1},
    ),
    "deepseek-v3.2": sized(
        "deepseek_v32",
        "61 7168 128 128 18432 129280 163840",
        **latent(1536, "512 64 128 128", index_n_heads=64, index_head_dim=128, index_topk=2048),
        **deepseek_moe(256, 8, 2048, 1, 3),
        quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]},
    ),
    "glm-5": sized(
        "glm_moe_dsa",
        "78 6144 64 64 12288 154880 202752",
        **latent(2048, "512 64 192 256", index_n_heads=32, index_head_dim=128, index_topk=2048),
        **deepseek_moe(256, 8, 2048, 1, 3),
    ),
    "glm-5.2": sized(
        "glm_moe_dsa",
        "78 6144 64 64 12288 154880 1048576",
        **latent(2048, "512 64 192 256", index_n_heads=32, index_head_dim=128, index_topk=2048),
        **deepseek_moe(256, 8, 2048, 1, 3),
        indexer_types=["full"] * 3 + (["shared"] * 3 + ["full"]) * 18 + ["shared"] * 3,
    ),
    "llama-4-scout": sized("llama4_text", "48 5120 40 8 8192 202048 1048576", num_local_experts=16, **LLAMA4),
    "llama-4-maverick": sized(
        "llama4_text",
        "48 5120 40 8 8192 202048 1048576",
        num_local_experts=128,
        interleave_moe_layer_step=2,
        **LLAMA4,
    ),
    "gemma-4-31b": gemma4("60 5376 32 16 21504 262144 262144", 4),
    "gemma-4-26b-a4b": gemma4(
        "30 2816 16 8 2112 262144 262144",
        2,
        **{"enable_moe_block": True, "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704},
    ),
    "glm-4.5-air": sized(
        "glm4_moe",
        "46 4096 96 8 10944 151552 131072",
        head_dim=128,
        attention_bias=True,
        use_qk_norm=False,
        **deepseek_moe(128, 8, 1408, 1, 1),
    ),
    "glm-4.7-flash": sized(
        "glm4_moe_lite",
        "47 2048 20 20 10240 154880 202752",
        **latent(768, "512 64 192 256"),
        **deepseek_moe(64, 4, 1536, 1, 1),
    ),
    "hunyuan-a13b": sized(
        "hunyuan_v1_moe",
        "32 4096 32 8 3072 128167 32768",
        head_dim=128,
        tie_word_embeddings=True,
        num_experts=64,
        **{"moe_topk": [8] * 32, "moe_intermediate_size": [3072] * 32, "num_shared_expert": [1] * 32},
    ),
    "dots.llm1": sized("dots1", "62 4096 32 32 10944 152064 32768", head_dim=128, **deepseek_moe(128, 6, 1408, 2, 1)),
    "ministral-3-14b": sized("ministral3", "40 5120 32 8 16384 131072 262144", head_dim=128, **STATIC_FP8),
    "minicpm3-4b": sized(
        "minicpm3", "62 2560 40 40 6400 73448 32768", tie_word_embeddings=True, **latent(768, "256 32 64 64")
    ),
    "moonlight-16b-a3b": sized(
        "deepseek_v3",
        "27 2048 16 16 11264 163840 8192",
        **latent(None, "512 64 128 128"),
        **deepseek_moe(64, 6, 1408, 2, 1),
    ),
    "qwen1.5-moe-a2.7b": sized(
        "qwen2_moe",
        "24 2048 16 16 5632 151936 8192",
        **{**routed(60, 4, 1408), "shared_expert_intermediate_size": 5632},
    ),
    "bloom-7b1": {
        **{"model_type": "bloom", "n_layer": 30, "hidden_size": 4096, "n_head": 32, "vocab_size": 250880},
        **{"seq_length": 2048, "dtype": "float16"},
    },
    "command-r-v01": sized("cohere", "40 8192 64 64 22528 256000 131072", tie_word_embeddings=True),
    "gpt2-xl": {
        **{"model_type": "gpt2", "n_layer": 48, "n_embd": 1600, "n_head": 25, "vocab_size": 50257},
        **{"n_positions": 1024, "dtype": "float32"},
    },
    "gpt-j-6b": {
        **{"model_type": "gptj", "n_layer": 28, "n_embd": 4096, "n_head": 16, "vocab_size": 50400},
        **{"n_positions": 2048, "dtype": "float16"},
    },
    "mpt-7b": {
        **{"model_type": "mpt", "n_layers": 32, "d_model": 4096, "n_heads": 32, "vocab_size": 50432},
        **{"max_seq_len": 2048, "dtype": "bfloat16"},
    },
    "opt-6.7b": {
        **{"model_type": "opt", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32},
        **{"ffn_dim": 16384, "vocab_size": 50272, "max_position_embeddings": 2048, "dtype": "float16"},
        **{"word_embed_proj_dim": 4096},
    },
    "glm-4.6": sized(
        "glm4_moe",
        "92 5120 96 8 12288 151552 202752",
        head_dim=128,
        attention_bias=True,
        use_qk_norm=True,
        **deepseek_moe(160, 8, 1536, 1, 3),
    ),
    "kimi-k2.5": {
        "model_type": "kimi_k25",
        "vision_config": {"vt_num_hidden_layers": 27},
        "text_config": sized(
            "kimi_k2",
            "61 7168 64 64 18432 163840 262144",
            **latent(1536, "512 64 128 128"),
            **deepseek_moe(384, 8, 2048, 1, 1),
            quantization_config={
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {
                        "targets": ["Linear"],
                        "weights": {"type": "int", "num_bits": 4, "strategy": "group", "group_size": 32},
                    }
                },
                "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"],
            },
        ),
    },
    "kimi-linear-48b-a3b": {
        **sized("kimi_linear", "27 2304 32 32 9216 163840 0", **latent(None, "512 64 128 128"), head_dim=72),
        **{"model_max_length": 1048576, "num_experts": 256, "num_experts_per_token": 8, "num_shared_experts": 1},
        **{"moe_intermediate_size": 1024, "first_k_dense_replace": 1},
        "linear_attn_config": {
            **{"full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "num_heads": 32, "head_dim": 128},
            "kda_layers": [layer for layer in range(1, 27) if layer % 4],
            "short_conv_kernel_size": 4,
        },
    },
    "kimi-k3": {
        "model_type": "kimi_k3",
        "text_config": {
            **sized("kimi_linear", "93 7168 96 96 33792 163840 1048576", **latent(1536, "512 64 128 128")),
            **{"num_experts": 896, "num_experts_per_token": 16, "num_shared_experts": 2, "moe_intermediate_size": 3072},
            **{"first_k_dense_replace": 1, "routed_expert_hidden_size": 3584, "latent_moe_use_norm": True},
            **{"mla_use_output_gate": True, "attn_res_block_size": 12, "hidden_act": "situ"},
            "linear_attn_config": {
                **{"full_attn_layers": [*range(4, 93, 4), 93], "num_heads": 96, "head_dim": 128},
                "kda_layers": [layer for layer in range(1, 93) if layer % 4],
                **{"short_conv_kernel_size": 4, "use_full_rank_gate": True},
            },
            "quantization_config": {
                "quant_method": "compressed-tensors",
                "format": "mxfp4-pack-quantized",
                "config_groups": {
                    "group_0": {
                        "targets": ["Linear"],
                        "weights": {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32},
                    }
                },
                "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*", "lm_head"],
            },
        },
    },
    "ernie-4.5-21b-a3b": sized(
        "ernie4_5_moe",
        "28 2560 20 4 12288 103424 131072",
        tie_word_embeddings=True,
        **{"moe_num_experts": 64, "moe_k": 6, "moe_intermediate_size": 1536, "moe_num_shared_experts": 2},
        **{"moe_layer_start_index": 1, "moe_layer_end_index": -1, "moe_layer_interval": 1},
    ),
    "ernie-4.5-0.3b": sized(
        "ernie4_5", "18 1024 16 2 3072 103424 131072", head_dim=128, tie_word_embeddings=True, use_bias=False
    ),
    "gemma-4-12b": gemma4("48 3840 16 8 15360 262144 262144", 1) | {"model_type": "gemma4_unified_text"},
    "ministral-3-3b": sized(
        "ministral3", "26 3072 32 8 9216 131072 262144", head_dim=128, tie_word_embeddings=True, **STATIC_FP8
    ),
    "ministral-3-8b": sized("ministral3", "34 4096 32 8 14336 131072 262144", head_dim=128, **STATIC_FP8),
    "mistral-small-4": sized(
        "mistral4",
        "36 4096 32 32 12288 131072 1048576",
        **latent(1024, "256 64 64 128"),
        **deepseek_moe(128, 4, 2048, 1, 0),
    ),
    "step-3.5-flash": sized(
        "step3p5",
        "45 4096 64 0 11264 128896 262144",
        **{"num_attention_groups": 8, "head_dim": 128, "sliding_window": 512, "use_head_wise_attn_gate": True},
        **{"moe_num_experts": 288, "moe_top_k": 8, "moe_intermediate_size": 1280, "share_expert_dim": 1280},
        moe_layers_enum=",".join(map(str, range(3, 45))),
        layer_types=["full_attention", *["sliding_attention"] * 3] * 12,
        attention_other_setting={"num_attention_heads": 96, "num_attention_groups": 8, "head_dim": 128},
        num_nextn_predict_layers=3,
    ),
    "laguna-xs.2": laguna(
        40, "2048 48 8 8192 100352 131072", (48, 64), **routed(256, 8, 512), mlp_only_layers=[0], decoder_sparse_step=1
    ),
    "laguna-s-2.1": laguna(
        48,
        "3072 48 8 12288 100352 1048576",
        (48, 72),
        **routed(256, 10, 1024),
        mlp_only_layers=[0],
        decoder_sparse_step=1,
    ),
    "granite-4.1-3b": granite("40 2560 40 8 8192 100352 131072"),
    "granite-4.1-8b": granite("40 4096 32 8 12800 100352 131072"),
    "granite-4.1-30b": granite("64 4096 32 8 32768 100352 131072"),
    "granite-3.1-2b": granite("40 2048 32 8 8192 49155 131072"),
    "granite-3.1-8b": granite("40 4096 32 8 12800 49155 131072"),
    "granite-4.0-h-small": sized(
        "granitemoehybrid",
        "40 4096 32 8 768 100352 1048576",
        tie_word_embeddings=True,
        layer_types=[*["mamba"] * 5, "attention", *["mamba"] * 4] * 4,
        **{"num_local_experts": 72, "num_experts_per_tok": 10, "shared_intermediate_size": 1536},
        **{"mamba_n_heads": 128, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_expand": 2},
        mamba_d_conv=4,
    ),
    "qwen3-vl-2b": qwen3_vl("28 2048 16 8 6144", tie_word_embeddings=True),
    "qwen3-vl-4b": qwen3_vl("36 2560 32 8 9728", tie_word_embeddings=True),
    "qwen3-vl-8b": qwen3_vl("36 4096 32 8 12288"),
    "qwen3-vl-32b": qwen3_vl("64 5120 64 8 25600"),
    "qwen3-vl-30b-a3b": qwen3_vl(
        "48 2048 32 4 6144", num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, decoder_sparse_step=1
    ),
    "qwen3-vl-235b-a22b": qwen3_vl(
        "94 4096 64 4 12288", num_experts=128, num_experts_per_tok=8, moe_intermediate_size=1536, decoder_sparse_step=1
    ),
    "deepseek-r1-distill-qwen-1.5b": sized("qwen2", "28 1536 12 2 8960 151936 131072"),
    "nemotron-h-56b": nemotron(NEMOTRON_H_56B, "8192 64 8 32768 131072 8192", 256) | {"ssm_state_size": 256},
    "nemotron-3-ultra-550b-a55b": nemotron(
        ULTRA,
        "8192 64 2 5120 131072 262144",
        256,
        **deepseek_moe(512, 22, 5120, 1, 0),
        moe_shared_expert_intermediate_size=10240,
        moe_latent_size=2048,
    ),
    "mimo-7b": sized("mimo", "36 4096 32 8 11008 151680 32768", head_dim=128, attention_bias=True),
    "seed-oss-36b": sized(
        "seed_oss", "64 5120 80 8 27648 155136 524288", head_dim=128, attention_bias=True, attention_out_bias=False
    ),
    "smollm3-3b": sized("smollm3", "36 2048 16 4 11008 128256 65536", tie_word_embeddings=True),
    "falcon-h1-7b": sized(
        "falcon_h1",
        "44 3072 12 2 12288 130048 262144",
        **{"head_dim": 128, "mamba_d_ssm": 3072, "mamba_n_heads": 24, "mamba_d_head": 128, "mamba_d_state": 256},
        **{"mamba_n_groups": 1, "mamba_expand": 2, "mamba_d_conv": 4, "mamba_rms_norm": False},
    ),
    "lfm2-350m": sized(
        "lfm2",
        "16 1024 16 8 0 65536 128000",
        **{"block_ff_dim": 6656, "block_auto_adjust_ff_dim": True, "block_multiple_of": 256, "conv_L_cache": 3},
        full_attn_idxs=[2, 5, 8, 10, 12, 14],
    ),
    "lfm2-1.2b": sized(
        "lfm2",
        "16 2048 32 8 8192 65536 128000",
        **{"block_ff_dim": 12288, "block_auto_adjust_ff_dim": True, "block_multiple_of": 256, "conv_L_cache": 3},
        full_attn_idxs=[2, 5, 8, 10, 12, 14],
    ),
    "lfm2-8b-a1b": sized(
        "lfm2_moe",
        "24 2048 32 8 7168 65536 128000",
        **{"num_experts": 32, "num_experts_per_tok": 4, "moe_intermediate_size": 1792, "num_dense_layers": 2},
        layer_types=["full_attention" if layer in (2, 6, 10, 14, 18, 21) else "conv" for layer in range(24)],
    ),
    "falcon3-1b": sized("llama", "18 2048 8 4 8192 131072 4096", head_dim=256),
    "falcon3-3b": sized("llama", "22 3072 12 4 9216 131072 32768", head_dim=256),
    "falcon3-7b": sized("llama", "28 3072 12 4 23040 131072 32768", head_dim=256),
    "falcon3-10b": sized("llama", "40 3072 12 4 23040 131072 32768", head_dim=256),
    "codellama-7b": sized("llama", "32 4096 32 32 11008 32016 16384"),
    "codellama-70b": sized("llama", "80 8192 64 8 28672 32016 16384"),
    "gemma-2b": sized("gemma", "18 2048 8 1 16384 256000 8192", head_dim=256),
    "smollm2-360m": sized("llama", "32 960 15 5 2560 49152 8192", tie_word_embeddings=True),
    "command-r7b": cohere2("32 4096 32 8 14336 256000 132096"),
    "command-a": cohere2("64 12288 96 8 36864 256000 131072"),
    "olmo-3-32b": sized(
        "olmo3",
        "64 5120 40 8 27648 100278 65536",
        sliding_window=4096,
        layer_types=[*["sliding_attention"] * 3, "full_attention"] * 16,
    ),
    "olmoe-1b-7b": sized(
        "olmoe", "16 2048 16 16 1024 50304 4096", num_experts=64, num_experts_per_tok=8, clip_qkv=None
    ),
    "qwen2-vl-2b": qwen2_vl(
        "qwen2_vl", "28 1536 12 2 8960 151936 32768", {"hidden_size": 1536}, tie_word_embeddings=True
    ),
    "qwen2-vl-7b": qwen2_vl("qwen2_vl", "28 3584 28 4 18944 152064 32768", {"hidden_size": 3584}),
    "qwen2.5-vl-3b": qwen2_vl(
        "qwen2_5_vl",
        "36 2048 16 2 11008 151936 128000",
        {"hidden_size": 1280, "out_hidden_size": 2048},
        tie_word_embeddings=True,
    ),
    "qwen2.5-vl-7b": qwen2_vl(
        "qwen2_5_vl", "28 3584 28 4 18944 152064 128000", {"hidden_size": 1280, "out_hidden_size": 3584}
    ),
    "qwen2.5-vl-32b": qwen2_vl(
        "qwen2_5_vl",
        "64 5120 40 8 27648 152064 128000",
        {"hidden_size": 1280, "intermediate_size": 3456, "out_hidden_size": 5120},
    ),
    "qwen2.5-vl-72b": qwen2_vl(
        "qwen2_5_vl",
        "80 8192 64 8 29568 152064 128000",
        {"hidden_size": 1280, "intermediate_size": 3456, "out_hidden_size": 8192},
    ),
    "phi-3.5-moe": sized(
        "phimoe",
        "32 4096 32 8 6400 32064 131072",
        **{"num_local_experts": 16, "num_experts_per_tok": 2, "sliding_window": 131072},
        **{"attention_bias": True, "lm_head_bias": True},
    ),
    "exaone-4.0-32b": sized(
        "exaone4",
        "64 5120 40 8 27392 102400 131072",
        **{"head_dim": 128, "sliding_window": 4096, "sliding_window_pattern": "LLLG"},
        layer_types=[*["sliding_attention"] * 3, "full_attention"] * 16,
    ),
    "nemotron-nano-9b-v2": nemotron(NANO_9B, "4480 40 8 15680 131072 131072", 128, mamba_head_dim=80),
    "nemotron-nano-12b-v2": nemotron(NANO_12B, "5120 40 8 20480 131072 131072", 128, mamba_head_dim=80),
    "nemotron-h-47b": nemotron(NEMOTRON_H_47B, "8192 64 8 30720 131072 8192", 256, ssm_state_size=256),
    "nemotron-h-4b": nemotron(NEMOTRON_H_8B, "3072 32 8 12288 131072 8192", 112),
    "devstral-2-123b": sized("ministral3", "88 12288 96 8 28672 131072 262144", head_dim=128, **STATIC_FP8),
    "devstral-small-2-24b": {
        "model_type": "mistral3",
        "text_config": sized("ministral3", "40 5120 32 8 32768 131072 393216", head_dim=128),
        "vision_config": PIXTRAL,
        **STATIC_FP8,
    },
    "mistral-small-3.1-24b": {
        "model_type": "mistral3",
        "text_config": sized("mistral", "40 5120 32 8 32768 131072 131072", head_dim=128, sliding_window=None),
        "vision_config": PIXTRAL,
    },
    "qwen3-235b-a22b-2507": sized(
        "qwen3_moe",
        "94 4096 64 4 12288 151936 262144",
        **{"head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1536},
    ),
    "mistral-medium-3.5-128b": {
        "model_type": "mistral3",
        "text_config": sized("ministral3", "88 12288 96 8 28672 131072 262144", head_dim=128),
        "vision_config": PIXTRAL
        | {"head_dim": 104, "hidden_size": 1664, "intermediate_size": 8192, "num_hidden_layers": 48},
        **STATIC_FP8,
    },
    "mistral-large-3": sized(
        "mistral4",
        "61 7168 128 128 16384 131072 294912",
        **latent(1536, "512 64 128 128"),
        **deepseek_moe(128, 4, 4096, 1, 3),
        quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]},
    ),
    "glm-4-9b": sized("glm", "40 4096 32 2 13696 151552 131072"),
    "glm-4-9b-0414": sized("glm4", "40 4096 32 2 13696 151552 131072"),
    "glm-4-32b-0414": sized("glm4", "61 6144 48 2 23040 151552 32768"),
    "hy3-preview": sized(
        "hy_v3", "80 4096 64 8 13312 120832 131072", num_experts=192, num_experts_per_tok=8, moe_intermediate_size=1536
    ),
    "solar-open-100b": sized(
        "solar_open",
        "48 4096 64 8 0 196608 131072",
        **{"n_routed_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1280},
    ),
    "internlm3-8b": sized("internlm3", "48 4096 32 2 10240 128512 32768"),
    "internlm2-7b": sized("internlm2", "32 4096 32 8 14336 92544 32768", bias=False),
    "exaone-3.0-7.8b": sized("exaone", "32 4096 32 8 14336 102400 4096"),
    "afm-4.5b": sized("arcee", "36 2560 20 4 18432 128004 65536"),
    "apertus-8b": sized("apertus", "32 4096 32 8 21504 131072 65536"),
    "trinity-nano": trinity("56 1024 8 2 3072 200192 131072", 128, 8, 256),
    "trinity-mini": trinity("32 2048 32 4 6144 200192 131072", 128, 8, 1024),
    "trinity-large": trinity("60 3072 48 8 12288 200192 131072", 256, 4, 3072, num_dense_layers=6, sliding_window=4096),
    "granite-4.0-h-tiny": granite_hybrid("40 1536 12 4 512 100352 131072", 64, 6, 1024, 48),
    "granite-4.0-h-1b": granite_hybrid("40 1536 12 4 4096 100352 131072", 0, 0, 4096, 48),
    "lfm2-2.6b": sized(
        "lfm2",
        "30 2048 32 8 10752 65536 128000",
        **{"tie_embedding": True, "conv_L_cache": 3, "block_auto_adjust_ff_dim": False},
        layer_types=["full_attention" if layer in FULL_OF_LFM2 else "conv" for layer in range(30)],
    ),
    "hunyuan-7b": sized("hunyuan_v1_dense", "32 4096 32 8 14336 128167 262144", head_dim=128, tie_word_embeddings=True),
    "hunyuan-4b": sized("hunyuan_v1_dense", "36 3072 32 8 8192 120818 262144", head_dim=128, tie_word_embeddings=True),
    "falcon-h1-3b": sized(
        "falcon_h1",
        "32 2560 10 2 6144 65536 131072",
        head_dim=128,
        **{"mamba_d_state": 256, "mamba_n_groups": 1, "mamba_n_heads": 32, "mamba_d_head": 128, "mamba_d_ssm": 4096},
    ),
    "command-r-plus": sized("cohere", "64 12288 96 8 33792 256000 131072"),
    "command-r-08-2024": sized("cohere", "40 8192 64 8 24576 256000 131072"),
    "deepseek-v2": sized(
        "deepseek_v2",
        "60 5120 128 128 12288 102400 163840",
        **latent(1536, "512 64 128 128"),
        **deepseek_moe(160, 6, 1536, 2, 1),
    ),
    "qwen2-57b-a14b": sized(
        "qwen2_moe",
        "28 3584 28 4 18944 151936 32768",
        **{**routed(64, 8, 2560), "shared_expert_intermediate_size": 20480},
    ),
    "olmo-3-7b": sized(
        "olmo3",
        "32 4096 32 32 11008 100278 65536",
        sliding_window=4096,
        layer_types=[*["sliding_attention"] * 3, "full_attention"] * 8,
    ),
    "ernie-4.5-300b-a47b": sized(
        "ernie4_5_moe",
        "54 8192 64 8 28672 103424 131072",
        tie_word_embeddings=False,
        **{"moe_num_experts": 64, "moe_k": 8, "moe_intermediate_size": 3584, "moe_num_shared_experts": 0},
        **{"moe_layer_start_index": 3, "moe_layer_end_index": 53, "moe_layer_interval": 1},
    ),
    "deepseek-llm-67b": sized("llama", "95 8192 64 8 22016 102400 4096"),
    "deepseek-llm-7b": sized("llama", "30 4096 32 32 11008 102400 4096"),
    "yi-34b": sized("llama", "60 7168 56 8 20480 64000 4096"),
    "mistral-7b-v0.2": sized("mistral", "32 4096 32 8 14336 32000 32768", sliding_window=None),
    "pythia-12b": sized("gpt_neox", "36 5120 40 0 20480 50688 2048", dtype="float16"),
    "pythia-2.8b": sized("gpt_neox", "32 2560 32 0 10240 50304 2048", dtype="float16"),
    "pythia-1.4b": sized("gpt_neox", "24 2048 16 0 8192 50304 2048", dtype="float16"),
    "pythia-160m": sized("gpt_neox", "12 768 12 0 3072 50304 2048", dtype="float16"),
    "opt-125m": opt("12 768 12", 3072),
    "opt-1.3b": opt("24 2048 32", 8192),
    "opt-13b": opt("40 5120 40", 20480),
    "opt-30b": opt("48 7168 56", 28672),
    "opt-175b": opt("96 12288 96", 49152),
}

LLAMA_SMALL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "num_hidden_layers": 22,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
}
