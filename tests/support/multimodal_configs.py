"""config.json files of models that read images, as their publishers nest them, shortened to the fields that matter.

Shapes are those of the shipped profiles, which say where they are from; how each nests them is how vLLM 0.33.0
(transformers_utils/configs/) or transformers 5.24.0 reads it. What a config leaves out is left out here, too.
"""

from tests.support.model_configs import Config, deepseek_moe, latent, sized

CLIP: Config = {
    **{"model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24},
    **{"image_size": 336, "patch_size": 14},
}
SO400M: Config = {
    **{"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16},
    **{"patch_size": 14},
}
INTERN_VIT: Config = {
    **{"model_type": "intern_vit_6b", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24},
    **{"image_size": 448, "patch_size": 14, "qkv_bias": True, "qk_normalization": False, "norm_type": "layer_norm"},
}
INTERN_VIT_6B: Config = {
    **{"model_type": "intern_vit_6b", "hidden_size": 3200, "intermediate_size": 12800, "num_hidden_layers": 45},
    **{"image_size": 448, "patch_size": 14, "qkv_bias": False, "qk_normalization": True, "norm_type": "rms_norm"},
}
GLM_VISION: Config = {"depth": 24, "hidden_size": 1536, "image_size": 336, "out_hidden_size": 4096}
VL2_SMALL: Config = {
    **{"use_mla": False, "kv_lora_rank": None, "q_lora_rank": None, "qk_rope_head_dim": 0, "qk_nope_head_dim": 0},
    **{"v_head_dim": 0, "architectures": ["DeepseekV2ForCausalLM"]},
}


def internvl(text: Config, vision: Config = INTERN_VIT) -> Config:
    """The layout of OpenGVLab's own repositories: an llm_config beside the vision_config."""
    return {
        **{"model_type": "internvl_chat", "architectures": ["InternVLChatModel"], "downsample_ratio": 0.5},
        **{"llm_config": text, "vision_config": vision, "max_dynamic_patch": 12, "torch_dtype": "bfloat16"},
    }


def flat(model_type: str, text: Config, **more: object) -> Config:
    """The layout that has the fields of the language model beside those of the whole."""
    return {**text, "model_type": model_type, **more}


MULTIMODAL: dict[str, Config] = {  # by the shipped profile that it is
    "llava-1.5-7b": {
        **{"model_type": "llava", "torch_dtype": "float16", "vision_config": CLIP},
        "text_config": {"model_type": "llama", "max_position_embeddings": 4096, "vocab_size": 32064},
    },
    "llava-v1.6-mistral-7b": {
        **{"model_type": "llava_next", "torch_dtype": "float16", "vision_config": CLIP},
        "text_config": {
            **{"model_type": "mistral", "max_position_embeddings": 32768, "vocab_size": 32064},
            **{"intermediate_size": 14336, "num_key_value_heads": 8, "sliding_window": None},
        },
    },
    "pixtral-12b": {
        **{"model_type": "llava", "torch_dtype": "bfloat16"},
        "vision_config": {"model_type": "pixtral", "image_size": 1024, "patch_size": 16, "hidden_size": 1024},
        "text_config": {
            **{"model_type": "mistral", "hidden_size": 5120, "head_dim": 128, "num_hidden_layers": 40},
            **{"intermediate_size": 14336, "num_key_value_heads": 8, "vocab_size": 131072, "sliding_window": None},
        },
    },
    "internvl2.5-8b": internvl(sized("internlm2", "32 4096 32 8 14336 92553 32768", bias=False)),
    "internvl3-38b": internvl(
        sized("qwen2", "64 5120 40 8 27648 151674 32768", use_sliding_window=False), INTERN_VIT_6B
    ),
    "glm-4.1v-9b": {
        **{"model_type": "glm4v", "torch_dtype": "bfloat16", "vision_config": GLM_VISION},
        "text_config": sized("glm4v_text", "40 4096 32 2 13696 151552 65536"),
    },
    "glm-4.5v": {
        **{"model_type": "glm4v_moe", "torch_dtype": "bfloat16"},
        "vision_config": GLM_VISION | {"intermediate_size": 10944},
        "text_config": sized(
            "glm4v_moe_text",
            "46 4096 96 8 10944 151552 65536",
            **{"head_dim": 128, "attention_bias": True, "use_qk_norm": False, **deepseek_moe(128, 8, 1408, 1, 1)},
        ),
    },
    "kimi-vl-a3b": {
        **{"model_type": "kimi_vl", "torch_dtype": "bfloat16"},
        "vision_config": {"model_type": "moonvit", **SO400M, "init_pos_emb_height": 64, "init_pos_emb_width": 64},
        "text_config": sized(
            "deepseek_v3",
            "27 2048 16 16 11264 163840 131072",
            **latent(None, "512 64 128 128"),
            **deepseek_moe(64, 6, 1408, 2, 1),
        ),
    },
    "minicpm-v-2.6": flat(
        *("minicpmv", sized("qwen2", "28 3584 28 4 18944 151666 32768", use_sliding_window=False)),
        **{"version": 2.6, "architectures": ["MiniCPMV"], "query_num": 64},
        vision_config={"model_type": "siglip", "image_size": 980, **SO400M},
    ),
    "minicpm-llama3-v-2.5": flat(
        *("minicpmv", sized("llama", "32 4096 32 8 14336 128256 8192")),
        **{"version": "2.5", "architectures": ["MiniCPMV"], "query_num": 96},
        vision_config={"model_type": "siglip", "image_size": 980, **SO400M},
    ),
    "phi-3.5-vision": flat(
        *("phi3_v", sized("phi3", "32 3072 32 32 8192 32064 131072", sliding_window=None)),
        img_processor={"image_dim_out": 1024, "model_name": "openai/clip-vit-large-patch14-336"},
    ),
}
TOTALS: dict[
    str, tuple[Config, str]
] = {  # billions of parameters, text and vision, as Hugging Face shows them, recalled
    "SmolVLM-256M-Instruct": (
        {
            **{"model_type": "idefics3", "torch_dtype": "bfloat16", "scale_factor": 4, "tie_word_embeddings": False},
            "vision_config": {
                **{"model_type": "idefics3", "hidden_size": 768, "intermediate_size": 3072, "image_size": 512},
                **{"num_attention_heads": 12, "patch_size": 16},
            },
            "text_config": sized("llama", "30 576 9 3 1536 49280 8192", head_dim=64),
        },
        "0.256484928",
    ),
    "Idefics3-8B-Llama3": (
        {
            **{"model_type": "idefics3", "torch_dtype": "bfloat16", "scale_factor": 2},
            "vision_config": {"model_type": "idefics3", "image_size": 364, **SO400M},
            "text_config": sized("llama", "32 4096 32 8 14336 128259 131072"),
        },
        "8.46",
    ),
    "aya-vision-8b": (
        {
            **{"model_type": "aya_vision", "torch_dtype": "bfloat16", "alignment_intermediate_size": 28672},
            "vision_config": {
                **{"model_type": "siglip_vision_model", "image_size": 364, "vision_use_head": False},
                **SO400M,
            },
            "text_config": {
                **{"model_type": "cohere2", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32},
                **{"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "sliding_window": 4096},
            },
        },
        "8.63",
    ),
    "llava-onevision-qwen2-7b-ov-hf": (
        {
            **{"model_type": "llava_onevision", "torch_dtype": "float16", "vision_aspect_ratio": "anyres_max_9"},
            "vision_config": {
                **{"model_type": "siglip_vision_model", "image_size": 384, "vision_use_head": False},
                **{**SO400M, "num_hidden_layers": 26},
            },
            "text_config": sized("qwen2", "28 3584 28 4 18944 152000 32768"),
        },
        "8.03",
    ),
    "deepseek-vl2-tiny": (
        {
            **{"model_type": "deepseek_vl_v2", "torch_dtype": "bfloat16"},
            "vision_config": {
                "layers": 27,
                "mlp_ratio": 3.7362,
                "model_type": "vision",
                "patch_size": 14,
                "width": 1152,
            },
            "language_config": sized(
                *("deepseek_v2", "12 1280 10 10 6848 129280 4096"),
                **{**VL2_SMALL, **deepseek_moe(64, 6, 896, 2, 1)},
            ),
        },
        "3.37",
    ),
    "ERNIE-4.5-VL-28B-A3B-PT": (
        flat(
            *("ernie4_5_moe_vl", sized("", "28 2560 20 4 12288 103424 131072", tie_word_embeddings=True)),
            **{"moe_num_experts": [64, 64], "moe_intermediate_size": [1536, 512], "moe_k": 6},
            **{"moe_num_shared_experts": 2, "moe_layer_start_index": [1, 1], "moe_layer_end_index": [29, 28]},
            vision_config={"model_type": "DFNRope_vision_transformer", "depth": 32, "hidden_size": 1280},
        ),
        "29.4",  # as transformers 5.24.0 counts Ernie4_5_VLMoeConfig()
    ),
}
