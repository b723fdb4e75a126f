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
    return sized("nemotron_h", f"{len(pattern)} {sizes}", **mamba, **more)


def gemma4(sizes: str, global_kv_heads: int, **more: Any) -> Config:
    shape = {"head_dim": 256, "global_head_dim": 512, "num_global_key_value_heads": global_kv_heads}
    shape |= {"attention_k_eq_v": True, "sliding_window": 1024, "hidden_size_per_layer_input": 0}
    return sized("gemma4_text", sizes, tie_word_embeddings=True, num_kv_shared_layers=0, **shape, **more)


LLAMA4 = {"head_dim": 128, "intermediate_size_mlp": 16384, "num_experts_per_tok": 1, "attention_chunk_size": 8192}
NANO = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
SUPER = "MEMEMEM*" + "EMEMEMEM*" * 2 + "EMEMEMEMEM*" * 4 + "EMEMEMEM*" + "EMEMEMEME"
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
    "ministral-3-14b": sized("ministral3", "40 5120 32 8 16384 131072 262144", head_dim=128),
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
}
