"""The importer against the shipped profiles, one of each family, and against what it must refuse."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import InfercastError, NotModelledError, ProfileError
from simulator.models.hf_importer import model_from_config, write_profile
from simulator.models.hf_layer_runs import runs
from simulator.models.hf_model_types import MODEL_TYPES
from simulator.models.hf_recent_types import RECENT_TYPES
from simulator.models.layout import Layout
from simulator.models.model import KIND, Model, load_model
from simulator.profile_folders import folders
from tests.support.for_each import for_each
from tests.support.model_configs import CONFIGS, Config, sized
from tests.support.multimodal_configs import MULTIMODAL
from tests.support.older_configs import COUNTED_OLDER, OTHER_OLDER
from tests.support.sharing_configs import COUNTED, OTHERS

LLAMA: Config = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
DEEPSEEK: Config = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "num_hidden_layers": 61,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "num_nextn_predict_layers": 1,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
}
# Gemma 3 as it is published: the text part leans on the class defaults; the vocabulary is the profile's.
GEMMA3: Config = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "head_dim": 128,
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_attention_heads": 32,
        "num_hidden_layers": 62,
        "num_key_value_heads": 16,
        "sliding_window": 1024,
        "vocab_size": 262144,
    },
    "torch_dtype": "bfloat16",
    "vision_config": {
        **{"model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304},
        **{"num_hidden_layers": 27, "image_size": 896, "patch_size": 14, "vision_use_head": False},
    },
}
GPT_OSS: Config = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "head_dim": 64,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "num_hidden_layers": 36,
    "vocab_size": 201088,
    "max_position_embeddings": 131072,
    "num_local_experts": 128,
    "experts_per_token": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "sliding_window": 128,
    "attention_bias": True,
    "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]},
}


MOE = {"num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": []}
SHIPPED: dict[str, Config] = {
    "llama-3.1-8b": LLAMA,
    "llama-3.2-1b": sized("llama", "16 2048 32 8 8192 128256 131072", head_dim=64, tie_word_embeddings=True),
    "mistral-7b-v0.1": sized("mistral", "32 4096 32 8 14336 32000 32768", sliding_window=4096),
    "mistral-7b-v0.3": sized("mistral", "32 4096 32 8 14336 32768 32768", sliding_window=None),
    "mistral-nemo": sized("mistral", "40 5120 32 8 14336 131072 128000", head_dim=128, sliding_window=None),
    "mixtral-8x7b": sized("mixtral", "32 4096 32 8 14336 32000 32768", num_local_experts=8, num_experts_per_tok=2),
    "qwen2.5-7b": sized(
        "qwen2",
        "28 3584 28 4 18944 152064 131072",
        use_sliding_window=False,
        sliding_window=131072,
        max_window_layers=28,
    ),
    "qwen3-0.6b": sized("qwen3", "28 1024 16 8 3072 151936 40960", head_dim=128, tie_word_embeddings=True),
    "qwen3-30b-a3b": sized(
        "qwen3_moe", "48 2048 32 4 6144 151936 40960", head_dim=128, moe_intermediate_size=768, **MOE
    ),
    "gemma-2-9b": sized("gemma2", "42 3584 16 8 14336 256000 8192", head_dim=256, sliding_window=4096),
    "gemma-3-27b": GEMMA3,
    "phi-2": sized("phi", "32 2560 32 32 10240 51200 2048", torch_dtype="float16", qk_layernorm=False),
    "phi-3-mini-4k": sized("phi3", "32 3072 32 32 8192 32064 4096", sliding_window=2047),
    "phi-3.5-mini": sized("phi3", "32 3072 32 32 8192 32064 131072", sliding_window=262144),
    "pythia-6.9b": {
        key: value
        for key, value in sized("gpt_neox", "32 4096 32 0 16384 50432 2048", torch_dtype="float16").items()
        if key != "num_key_value_heads"
    },
    "falcon-7b": {
        "model_type": "falcon",
        "n_layer": 32,
        "hidden_size": 4544,
        "n_head": 71,
        "vocab_size": 65024,
        "multi_query": True,
        "new_decoder_architecture": False,
        "parallel_attn": True,
        "bias": False,
        "dtype": "bfloat16",
    },
    "falcon-40b": {
        "model_type": "falcon",
        "num_hidden_layers": 60,
        "hidden_size": 8192,
        "num_attention_heads": 128,
        "num_kv_heads": 8,
        "vocab_size": 65024,
        "new_decoder_architecture": True,
        "parallel_attn": True,
        "bias": False,
        "torch_dtype": "bfloat16",
    },
    "starcoder2-7b": sized("starcoder2", "32 4608 36 4 18432 49152 16384", sliding_window=4096, use_bias=True),
    "olmo-2-13b": sized("olmo2", "40 5120 40 40 13824 100352 4096", torch_dtype="float32"),
    "deepseek-v2-lite": sized(
        "deepseek_v2",
        "27 2048 16 16 10944 102400 163840",
        q_lora_rank=None,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
        n_routed_experts=64,
        num_experts_per_tok=6,
        moe_intermediate_size=1408,
        n_shared_experts=2,
        first_k_dense_replace=1,
    ),
    "deepseek-moe-16b": sized(
        "deepseek",
        "28 2048 16 16 10944 102400 4096",
        **{"n_routed_experts": 64, "num_experts_per_tok": 6, "moe_intermediate_size": 1408, "n_shared_experts": 2},
        **{"first_k_dense_replace": 1, "moe_layer_freq": 1},
    ),
    "deepseek-v3": DEEPSEEK,
    "deepseek-r1": DEEPSEEK,
    "kimi-k2": DEEPSEEK
    | {
        "model_type": "kimi_k2",
        "num_attention_heads": 64,
        "vocab_size": 163840,
        "max_position_embeddings": 131072,
        "n_routed_experts": 384,
        "first_k_dense_replace": 1,
    },
    "gpt-oss-120b": GPT_OSS,
    "minimax-m2.5": {
        "model_type": "minimax_m2",
        "hidden_size": 3072,
        "intermediate_size": 1536,
        "head_dim": 128,
        "num_attention_heads": 48,
        "num_key_value_heads": 8,
        "num_hidden_layers": 62,
        "vocab_size": 200064,
        "max_position_embeddings": 196608,
        "num_local_experts": 256,
        "num_experts_per_tok": 8,
        "attn_type_list": [1] * 62,
        "num_mtp_modules": 3,
        "quantization_config": {
            "quant_method": "fp8",
            "weight_block_size": [128, 128],
            "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"],
        },
    },
}

LING = {"num_experts": 256, "num_experts_per_tok": 8, "num_shared_experts": 1, "first_k_dense_replace": 1}
SHIPPED |= {  # of an architecture that transformers does not have
    "ling-mini-2.0": sized("bailing_moe_v2", "20 2048 16 4 5120 157184 32768", **LING, moe_intermediate_size=512),
    "ling-flash-2.0": sized("bailing_moe_v2", "32 4096 32 4 9216 157184 32768", **LING, moe_intermediate_size=1024),
    "ling-1t": sized(
        "bailing_moe_v2",
        "80 8192 64 8 18432 157184 32768",
        **{**LING, "first_k_dense_replace": 4, "moe_intermediate_size": 2048},
    ),
}
SHIPPED |= {name: config for name, config in CONFIGS.items() if name != "gpt2-xl"}  # measured in its own fp32
SHIPPED |= COUNTED | OTHERS | COUNTED_OLDER | OTHER_OLDER


def imported(config: Config) -> Model:
    return Model.from_mapping(model_from_config(config, "test", "config.json"), "config.json")


def structure(model: Model) -> dict[str, Any]:
    told = {"name", "aliases", "notes", "sources", "published_parameters", "published_cache_bytes_per_token", "vision"}
    told |= {"fp8_dtype", "fp4_dtype", "int4_dtype"}  # of another checkpoint
    told |= {"architecture"}  # which few configs here state: test_architecture_is_the_first_of_the_whole
    return model.model_dump(exclude=told | {"blocks", "layers"}) | {
        "blocks": [(name, model.blocks[name]) for name in model.layer_names]
    }


@for_each("name", SHIPPED)
def test_importing_the_config_of_a_shipped_model_gives_its_profile(name: str) -> None:
    model, shipped = imported(SHIPPED[name]), load_model(name)
    assert structure(model) == structure(shipped)
    assert model.layers == shipped.layers
    assert model.parameters == shipped.published_parameters


OLMO3 = sized("olmo3", "32 4096 32 32 11008 50304 2048", sliding_window=1024)


def test_every_model_type_is_imported_somewhere_here() -> None:
    outer = {"gemma3", "gemma3n", "gemma4", "gemma4_unified", "llama4", "qwen2_vl", "qwen2_5_vl", "qwen3_vl"}
    outer |= {"qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"}  # by another name the same
    outer |= {
        "granitemoeshared",
        "ernie4_5_moe_vl",
        "ernie4_5_vl_moe_text",
        "glm_ocr_text",
        "molmo",
    }  # test_hf_multimodal.py
    outer |= set(RECENT_TYPES)  # test_transformers_counts.py
    configs = [*SHIPPED.values(), CONFIGS["gpt2-xl"], OLMO3]
    tested = {config.get("text_config", config)["model_type"] for config in configs}
    assert tested | outer == set(MODEL_TYPES)


def test_architecture_is_the_first_of_the_whole() -> None:
    stated = {"architectures": ["KimiK25ForConditionalGeneration", "Other"]}
    text = {**CONFIGS["kimi-k2.5"]["text_config"], "architectures": ["DeepseekV3ForCausalLM"]}
    assert imported(CONFIGS["kimi-k2.5"] | stated | {"text_config": text}).architecture == stated["architectures"][0]
    assert imported(CONFIGS["kimi-k2.5"] | {"text_config": text}).architecture is None
    for name, config in SHIPPED.items():
        if "architectures" in config:
            assert imported(config).architecture == load_model(name).architecture
    with pytest.raises(ProfileError, match="'LlamaForCausalLM' must be a list"):
        imported(LLAMA | {"architectures": "LlamaForCausalLM"})


def test_types_without_a_shipped_profile() -> None:
    # A recalled checkpoint total: google/gemma-7b.
    gemma = sized("gemma", "28 3072 16 16 24576 256000 8192", head_dim=256)
    assert imported(gemma).parameters == 8_537_680_896
    # The class defaults of transformers 5.23.0, as it counts them; three of four layers have a window.
    assert imported(OLMO3).parameters == 6_888_624_128
    assert imported(OLMO3).attention_layers == (8, 24)
    assert imported(CONFIGS["gpt2-xl"]).parameters == load_model("gpt2-xl").published_parameters


@pytest.mark.parametrize(
    ("name", "published", "cache_bytes_per_token"),
    [
        ("command-r7b", 8_028_033_024, 32 * 2 * 8 * 128 * 2),  # Hugging Face's count of aya-expanse-8b, its shape
        ("command-a", 111e9, 64 * 2 * 8 * 128 * 2),  # its model card
        ("exaone-4.0-32b", 30.95e9 + 2 * 102400 * 5120, 64 * 2 * 8 * 128 * 2),  # its model card, without embeddings
        ("olmo-3-32b", 32_234_279_936 - 2 * 74 * 5120, 64 * 2 * 8 * 128 * 2),  # OLMo 2 32B's, but for the vocabulary
        ("olmoe-1b-7b", 6_919_161_856, 16 * 2 * 16 * 128 * 2),  # Hugging Face's count of allenai/OLMoE-1B-7B-0924
        ("falcon-h1-7b", 7.59e9, 44 * 2 * 2 * 128 * 2),  # Hugging Face shows 7.59 billion
        # text and vision: model.safetensors.index.json and lists of Hugging Face's counts in public repositories
        ("qwen2-vl-2b", 2_208_985_600, 28 * 2 * 2 * 128 * 2),
        ("qwen2-vl-7b", 8_291_375_616, 28 * 2 * 4 * 128 * 2),
        ("qwen2.5-vl-3b", 3_754_622_976, 36 * 2 * 2 * 128 * 2),
        ("qwen2.5-vl-7b", 8_292_166_656, 28 * 2 * 4 * 128 * 2),
        ("qwen2.5-vl-32b", 33_452_718_336, 64 * 2 * 8 * 128 * 2),
        ("qwen2.5-vl-72b", 73.4e9, 80 * 2 * 8 * 128 * 2),
        ("phi-3.5-moe", 41.9e9, 32 * 2 * 8 * 128 * 2),  # 16 x 3.8 billion in its model card; 41.9 on Hugging Face
    ],
)
def test_parameters_as_published_and_cache_by_hand(name: str, published: float, cache_bytes_per_token: int) -> None:
    model = imported(CONFIGS[name])
    encoder = model.vision.parameters if model.vision else 0
    assert model.parameters + encoder == pytest.approx(published, rel=0.01)
    assert model.cache_bytes(1) == cache_bytes_per_token


def test_layer_types_say_the_same_as_the_pattern() -> None:
    kinds = ["full_attention" if (layer + 1) % 6 == 0 else "sliding_attention" for layer in range(62)]
    stated = {**GEMMA3, "text_config": GEMMA3["text_config"] | {"layer_types": kinds}}
    assert structure(imported(stated)) == structure(load_model("gemma-3-27b"))
    other = {**GEMMA3, "text_config": GEMMA3["text_config"] | {"sliding_window_pattern": 2}}
    assert imported(other).attention_layers == (31, 31)


def test_a_layer_of_falcon_h1_is_two_blocks_that_hold_what_it_holds() -> None:
    config = CONFIGS["falcon-h1-7b"]
    model = imported(config)
    assert model.layer_names == ("linear", "global-dense") * 44
    assert (model.attention_layers, model.recurrent_layers) == ((44, 0), 44)
    # States of 24 heads x 128 x 256 numbers, and 3 inputs of a convolution of 3,072 + 2 x 256 channels, in bf16.
    assert model.state_bytes() == 44 * (24 * 128 * 256 + 3 * (3072 + 2 * 256)) * 2
    normed = imported(config | {"mamba_rms_norm": True, "mamba_conv_bias": False})
    assert normed.parameters - model.parameters == 44 * (3072 - 3072 - 2 * 256)
    with pytest.raises(NotModelledError, match="projectors_bias"):
        imported(config | {"projectors_bias": True})


@pytest.mark.parametrize("name", ["qwen3-vl-8b", "qwen3-vl-30b-a3b"])
def test_a_text_part_without_model_type_is_that_of_the_whole(name: str) -> None:
    text = {key: value for key, value in CONFIGS[name]["text_config"].items() if key != "model_type"}
    assert structure(imported(CONFIGS[name] | {"text_config": text})) == structure(load_model(name))


def test_layers_of_exaone_4_by_letters_by_number_and_without_windows() -> None:
    listed = CONFIGS["exaone-4.0-32b"]
    config = {key: value for key, value in listed.items() if key != "layer_types"}
    assert structure(imported(config)) == structure(load_model("exaone-4.0-32b"))
    assert imported(config | {"sliding_window_pattern": 4}).attention_layers == (16, 48)
    assert imported(config | {"sliding_window_pattern": "LG"}).attention_layers == (32, 32)
    # LGAI-EXAONE/EXAONE-4.0-1.2B: a pattern without a window; its model card: 1.07 billion without embeddings.
    small = sized("exaone4", "30 2048 32 8 4096 102400 65536", tie_word_embeddings=True, sliding_window=None)
    model = imported(small | {"sliding_window_pattern": "LLLG"})
    assert model.attention_layers == (30, 0)
    assert (model.parameters - 102400 * 2048) / 1e9 == pytest.approx(1.07, rel=0.01)
    with pytest.raises(ProfileError, match="'LLX' is not made of L and G"):
        imported(config | {"sliding_window_pattern": "LLX"})


def test_hybrids_by_list_and_by_rule() -> None:
    listed = ["linear_attention"] * 3 + ["full_attention"]
    qwen = {key: value for key, value in CONFIGS["qwen3.5-4b"].items() if key != "full_attention_interval"}
    assert structure(imported(qwen | {"layer_types": listed * 8})) == structure(load_model("qwen3.5-4b"))
    with pytest.raises(ProfileError, match="hybrid_override_pattern"):
        imported(CONFIGS["nemotron-h-8b"] | {"hybrid_override_pattern": "M?" * 26})
    blocks = ["mamba", "moe", "attention", "mlp"]
    nemotron = CONFIGS["nemotron-3-nano-30b-a3b"] | {"hybrid_override_pattern": None, "layers_block_type": blocks}
    assert imported(nemotron | {"num_hidden_layers": None}).layer_names == ("linear", "experts", "global", "dense")
    scout = CONFIGS["llama-4-scout"] | {"no_rope_layers": [1, 0] * 24}
    assert imported(scout).attention_layers == (24, 24)
    routed = CONFIGS["llama-4-scout"] | {"moe_layers": [1], "no_rope_layers": [0] * 48}
    assert imported(routed).layer_names[:3] == ("dense", "experts", "dense")


def test_windows_that_start_late_and_experts_on_every_other_layer() -> None:
    qwen = SHIPPED["qwen2.5-7b"] | {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 20}
    assert imported(qwen).layer_names == ("global",) * 20 + ("local",) * 8
    moe = SHIPPED["qwen3-30b-a3b"] | {"decoder_sparse_step": 2, "mlp_only_layers": [1]}
    assert imported(moe).layer_names[:6] == ("dense", "dense", "dense", "experts", "dense", "experts")
    listed = SHIPPED["qwen3-30b-a3b"] | {"mlp_layer_types": ["dense", "sparse"] * 24}
    assert imported(listed).layer_names[:4] == ("dense", "experts", "dense", "experts")


def test_what_is_left_to_convention_is_said_in_the_notes() -> None:
    assert "num_nextn_predict_layers 1" in imported(DEEPSEEK).notes
    assert "vision encoder" in imported(GEMMA3).notes
    assert "float32" in imported(SHIPPED["olmo-2-13b"]).notes
    assert "no dtype" in imported(GPT_OSS).notes
    assert imported(LLAMA).notes == ""


FORMATS: list[tuple[Config, str]] = [
    ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8"),
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block"),
    ({"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": None}, "int4"),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}, "int4"),
    ({"quant_method": "awq", "bits": 4, "group_size": 32}, "int4-g32"),
    ({"quant_method": "gptq", "bits": 8, "group_size": 128, "desc_act": False}, "int8-g128"),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_threshold": 6.0}, "int8"),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "fp4"}, "bnb-nf4"),
    (
        {
            **{"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False},
            **{"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
            "llm_int8_skip_modules": ["lm_head", "multi_modal_projector", "merger", "modality_projection"],
        },
        "bnb-nf4-double",
    ),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, "nvfp4"),
    ({"quant_method": "modelopt", "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}, "fp8"),
    (
        {
            "quant_method": "compressed-tensors",
            "ignore": ["re:.*lm_head", "re:.*mlp.gate$", "model.layers.0.input_layernorm", "re:visual.*"],
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": {"type": "float", "num_bits": 8, "strategy": "channel", "group_size": None},
                }
            },
        },
        "fp8",
    ),
    (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"a": {"weights": {"type": "int", "num_bits": 4, "strategy": "group", "group_size": 128}}},
        },
        "int4",
    ),
    (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"a": {"weights": {"type": "int", "num_bits": 4, "strategy": "group", "group_size": 32}}},
        },
        "int4-g32",
    ),
]


@pytest.mark.parametrize(("quantization", "stored"), FORMATS)
def test_quantization_config_becomes_a_weight_format(quantization: Config, stored: str) -> None:
    assert imported(LLAMA | {"quantization_config": quantization}).weight_dtype == stored


def test_weights_of_bitsandbytes_are_as_large_as_their_file() -> None:
    """unsloth/llama-3-8b-bnb-4bit, of the same shape, is a download of 5.70 GB; times are said to be lower bounds."""
    quantization = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}
    found = imported(LLAMA | {"quantization_config": quantization})
    layout = Layout(weight_dtype=found.weight_dtype)
    assert layout.weight_bytes(found.weights(layout)) == pytest.approx(5.70e9, rel=0.01)
    assert "lower bounds: kernels of bitsandbytes unpack weights" in found.notes
    eight = imported(LLAMA | {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}})
    assert "outliers apart" in eight.notes
    with pytest.raises(ProfileError, match="neither it nor load_in_8bit is true"):
        imported(LLAMA | {"quantization_config": {"quant_method": "bitsandbytes"}})


def test_quantization_of_mlx_becomes_a_weight_format() -> None:
    quantization = {"group_size": 64, "bits": 4}
    found = imported(LLAMA | {"quantization": quantization, "quantization_config": quantization})
    assert found.weight_dtype == "mlx-q4"


REFUSED: list[tuple[Config, str]] = [
    ({"hc_mult": 4}, "hyper-connections"),
    ({"sparse_attention_config": {"sparse_topk_blocks": 16}}, "block-sparse"),
    ({"compress_ratios": [0, 4]}, "compressed tokens"),
    ({"attention_chunk_size": 8192}, "chunked attention"),
    ({"index_topk": 2048}, "indexer"),
    ({"full_attention_interval": 4}, "linear attention"),
    ({"hybrid_override_pattern": "M-M*"}, "Mamba"),
    ({"model_type": "gemma4_text", "use_bidirectional_attention": "all"}, "bidirectional"),
    ({"num_kv_shared_layers": 20}, "share a cache"),
    ({"cross_attention_layers": [3, 8, 13]}, "cross attention"),
    ({"model_type": "gemma3n_text", "intermediate_size": [8192, 16384]}, "intermediate_size"),
    (
        {"model_type": "longcat_flash", "n_routed_experts": 512, "zero_expert_num": 256, "moe_topk": 11},
        "zero_expert_num",
    ),
    ({"model_type": "hunyuan_v1_moe", "moe_topk": [8, 4]}, "moe_topk"),
    ({"model_type": "opt", "word_embed_proj_dim": 512}, "word_embed_proj_dim"),
    ({"model_type": "deepseek_v41"}, "'deepseek_v41'"),
    ({"model_type": "rwkv"}, "'rwkv'"),
    ({"model_type": "mamba", "use_bias": True}, "use_bias"),
    ({"model_type": "stablelm", "qk_layernorm": True}, "qk_layernorm"),
    ({"layer_types": ["linear_attention"] * 32}, "'linear_attention'"),
    ({"layer_types": ["chunked_attention"] * 32}, "'chunked_attention'"),
    ({"attn_type_list": [0] * 32}, "linear attention"),
    ({"architectures": ["LlamaForSequenceClassification"]}, "architectures"),
    ({"architectures": ["ChatGLMModel"], "model_type": "chatglm"}, "'chatglm': this architecture is not modelled"),
    ({"peft_type": "LORA"}, "an adapter is no model.*base model"),
    ({"is_encoder_decoder": True}, "an encoder"),
    ({"num_local_experts": 8, "num_experts_per_tok": 2}, "num_local_experts"),
    ({"torch_dtype": "float8_e4m3fn"}, "torch_dtype"),
    ({"quantization": {"group_size": 64, "bits": 4, "lm_head": {"bits": 8}}}, "lm_head"),
    ({"quantization": {"group_size": 32, "bits": 4, "mode": "mxfp4"}}, "mode"),
    ({"quantization": {"group_size": 48, "bits": 4}}, "mlx-q4-g48"),
]
REFUSED_FORMATS: list[tuple[Config, str]] = [
    ({"quant_method": "hqq", "bits": 4}, "quant_method"),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True, "llm_int8_skip_modules": ["model.layers.1.mlp"]}, "1.mlp"),
    ({"quant_method": "fp8", "weight_block_size": [128, 128], "expert_dtype": "fp6"}, "expert_dtype"),
    ({"quant_method": "gptq", "bits": 4, "group_size": 64}, "group_size"),
    ({"quant_method": "gptq", "bits": 4, "group_size": [128]}, "group_size"),
    ({"quant_method": "gptq", "bits": 8, "group_size": 32}, "group_size"),
    ({"quant_method": "gptq", "bits": 3, "group_size": 128}, "bits"),
    ({"quant_method": "fp8", "weight_block_size": [1, 128]}, "weight_block_size"),
    ({"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.mlp.gate_proj"]}, "gate_proj"),
    ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "quant_algo"),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["self_attn*"]}, "self_attn"),
    ({"quant_method": "modelopt", "quantization": {"quant_algo": "FP8", "exclude_modules": ["q_proj"]}}, "q_proj"),
    ({"quant_method": "compressed-tensors", "config_groups": {}}, "config_groups"),
    ({"quant_method": "compressed-tensors", "config_groups": {"a": {"targets": ["re:.*experts.*"]}}}, "targets"),
    ({"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 3}}}}, "None 3 None"),
]


@pytest.mark.parametrize(
    ("patch", "named"), [*REFUSED, *(({"quantization_config": each}, named) for each, named in REFUSED_FORMATS)]
)
def test_what_is_not_modelled_is_refused_by_name(patch: Config, named: str) -> None:
    with pytest.raises(NotModelledError, match=named) as caught:
        model_from_config(LLAMA | patch, "test", "some/config.json")
    assert caught.value.given.startswith("some/config.json")
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("name", "patch"),
    [
        ("glm-5", {"indexer_types": ["full", "pooled"] * 39}),
        ("deepseek-v4-flash", {"compress_ratios": [0, 0, *[2] * 41]}),
        ("deepseek-v4-flash", {"layer_types": ["full_attention"] * 43}),
        ("deepseek-v4-flash", {"mlp_layer_types": ["dense"] * 43}),
        ("laguna-xs.2", {"num_attention_heads_per_layer": [48, 64, 64, 96] * 10}),
        ("ernie-4.5-21b-a3b", {"moe_layer_end_index": 20}),
        ("lfm2-1.2b", {"block_ffn_dim_multiplier": 1.5}),
    ],
)
def test_what_hybrids_have_in_a_form_that_is_not_modelled(name: str, patch: Config) -> None:
    with pytest.raises(NotModelledError, match=next(iter(patch))):
        imported(SHIPPED[name] | patch)


def test_the_text_part_of_minimax_m3_is_its_own_whatever_it_calls_itself() -> None:
    text = SHIPPED["minimax-m3"] | {"model_type": "minimax_m2"}
    whole = {"model_type": "minimax_m3_vl", "text_config": text, "vision_config": {"model_type": "clip"}}
    assert structure(imported(whole)) == structure(imported(SHIPPED["minimax-m3"]))
    with pytest.raises(ProfileError, match="moe_layer_freq"):
        imported(SHIPPED["minimax-m3"] | {"moe_layer_freq": [0, 1]})


def test_layers_of_hy4_share_indexes_as_listed_or_by_fours() -> None:
    hy4 = SHIPPED["hy4-preview"]
    listed = ["full", "full", *["shared", "shared", "shared", "full"] * 19]
    assert structure(imported(hy4 | {"indexer_types": listed})) == structure(imported(hy4))
    every = imported(hy4 | {"indexer_types": ["full"] * 78})
    assert not any(block.mixer.indexer.shared for block in every.blocks.values())


def test_linear_attention_of_glm_5_3_flash_is_stated_as_kimi_states_it_too() -> None:
    flash = {key: value for key, value in SHIPPED["glm-5.3-flash"].items() if not key.startswith("linear_")}
    stated = {"num_heads": 64, "head_dim": 128, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0}
    assert structure(imported(flash | {"linear_attn_config": stated})) == structure(imported(SHIPPED["glm-5.3-flash"]))


def test_layers_of_ling_3_beyond_its_groups_have_full_attention() -> None:
    model = imported(SHIPPED["ling-3.0-tiny"] | {"num_hidden_layers": 22})
    assert [name for name in model.layer_names if name.startswith("global")] == ["global-experts"] * 7
    assert model.layer_names[19:] == ("global-experts",) * 3


def test_layers_of_deepseek_v4_by_name_are_those_by_ratio() -> None:
    flash = SHIPPED["deepseek-v4-flash"]
    kinds = ["compressed_sparse_attention", "heavily_compressed_attention"]
    named = {
        "layer_types": ["sliding_attention"] * 2 + kinds * 20 + kinds[:1],
        "mlp_layer_types": ["hash_moe"] * 3 + ["moe"] * 40,
        "compress_rates": dict(zip(kinds, (4, 128), strict=True)),
        "expert_dtype": None,
        "quantization_config": flash["quantization_config"] | {"expert_dtype": "fp4"},
    }
    left_out = ("compress_ratios", "num_hash_layers")
    stated = {key: value for key, value in flash.items() if key not in left_out}
    assert structure(imported(stated | named)) == structure(imported(flash))
    with pytest.raises(ProfileError, match="compress_ratios"):
        imported(flash | {"compress_ratios": [0, 4, 128]})


@pytest.mark.parametrize(
    ("name", "patch"),
    [
        ("kimi-linear-48b-a3b", {"linear_attn_config": {"full_attn_layers": [4], "kda_layers": [1, 2]}}),
        ("step-3.5-flash", {"moe_layers_enum": "3,four"}),
        ("step-3.5-flash", {"layer_types": ["full_attention"]}),
        ("granite-4.0-h-small", {"layer_types": ["mamba"] * 39 + ["conv"]}),
        ("lfm2-1.2b", {"full_attn_idxs": None}),
        ("laguna-xs.2", {"gating": "per-token"}),
    ],
)
def test_a_malformed_list_of_layers_is_an_error(name: str, patch: Config) -> None:
    with pytest.raises(ProfileError, match=r"does not name|is not a list|it names|neither per-head"):
        imported(SHIPPED[name] | patch)


def test_groups_of_32_are_of_routed_experts_where_attention_keeps_its_type() -> None:
    text = dict(CONFIGS["kimi-k2.5"]["text_config"])
    assert imported(text).weight_dtype == "int4-experts"
    text["quantization_config"] = text["quantization_config"] | {"ignore": ["lm_head"]}
    assert imported(text).weight_dtype == "int4-g32"


@pytest.mark.parametrize(
    ("name", "field"),
    [("deepseek-v3", "attention_bias"), ("phi-2", "qk_layernorm"), ("qwen3-30b-a3b", "use_sliding_window")],
)
def test_what_is_not_modelled_in_one_architecture(name: str, field: str) -> None:
    with pytest.raises(NotModelledError, match=field):
        imported(SHIPPED[name] | {field: True})


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("llama-3.1-8b", "model_type"),
        ("llama-3.1-8b", "num_hidden_layers"),
        ("llama-3.1-8b", "hidden_size"),
        ("llama-3.1-8b", "num_attention_heads"),
        ("llama-3.1-8b", "intermediate_size"),
        ("llama-3.1-8b", "vocab_size"),
        ("llama-3.1-8b", "max_position_embeddings"),
        ("deepseek-v3", "kv_lora_rank"),
        ("deepseek-v3", "v_head_dim"),
        ("mixtral-8x7b", "num_experts_per_tok"),
        ("mixtral-8x7b", "num_local_experts"),
        ("qwen3-30b-a3b", "moe_intermediate_size"),
        ("qwen2.5-7b", "num_key_value_heads"),
        ("gpt-oss-120b", "sliding_window"),
        ("qwen3.5-27b", "linear_num_value_heads"),
        ("nemotron-3-nano-30b-a3b", "mamba_num_heads"),
        ("jamba-v0.1", "mamba_d_state"),
        ("llama-4-maverick", "intermediate_size_mlp"),
    ],
)
def test_a_missing_field_is_named(name: str, field: str) -> None:
    config = {key: value for key, value in SHIPPED[name].items() if key != field}
    with pytest.raises(ProfileError, match=f"config.json: {field}: this field is required and missing. Add it"):
        imported(config)


@pytest.mark.parametrize(
    "patch",
    [
        {"hidden_size": "4096"},
        {"hidden_size": 4096.0},
        {"num_attention_heads": True},
        {"vocab_size": -1},
        {"vocab_size": 0},
        {"num_hidden_layers": 10**12},
        {"num_attention_heads": 33},
        {"num_key_value_heads": 7},
        {"attention_bias": "yes"},
        {"layer_types": "full_attention"},
        {"layer_types": ["full_attention"] * 31},
        {"text_config": [1]},
        {"quantization_config": "fp8"},
        {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 8},
    ],
)
def test_a_malformed_field_is_an_error_in_three_parts(patch: Config) -> None:
    with pytest.raises(ProfileError) as caught:
        imported(LLAMA | patch)
    assert caught.value.given
    assert caught.value.because
    assert caught.value.remedy


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=10)
@given(st.sampled_from([*SHIPPED.values(), *MULTIMODAL.values()]), st.data())
def test_no_config_breaks_the_importer(config: Config, data: st.DataObject) -> None:
    part = data.draw(st.sampled_from(sorted(key for key, value in config.items() if isinstance(value, dict)) or [""]))
    if part:
        inner = data.draw(st.dictionaries(st.sampled_from(list(config[part]) or ["a"]), JUNK, max_size=2))
        config = {**config, part: {**config[part], **inner}}
    more = ["text_config", "layer_types", "head_dim", "quantization_config", "mlp_only_layers", "architectures"]
    keys = st.sampled_from([*config, *more])
    patch = data.draw(st.dictionaries(keys, JUNK, max_size=3))
    try:
        assert imported({**config, **patch}).parameters > 0
    except InfercastError as error:
        assert error.remedy


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=60))
def test_runs_unroll_to_the_layers(names: list[str]) -> None:
    assert [name for run in runs(names) for _ in range(run["repeat"]) for name in run["of"]] == names


def stored(folder: Path, config: Config) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


def test_write_profile_writes_what_loads(tmp_path: Path) -> None:
    path = write_profile(stored(tmp_path, DEEPSEEK), tmp_path / "models", "my-model")
    assert path == tmp_path / "models" / "my-model.yaml"
    assert [each.name for each in path.parent.iterdir()] == ["my-model.yaml"]
    first, second, third, *_ = path.read_text().splitlines()
    schema = path.parent / first.removeprefix("# yaml-language-server: $schema=")
    assert schema.resolve() == (folders(KIND)[-1] / "schema.json").resolve()
    assert (second, third) == ("schema_version: 1", "name: my-model")
    model = load_model(str(path))
    assert structure(model) == structure(load_model("deepseek-v3"))
    assert model.sources["config"].text == str(tmp_path / "config.json")


def test_write_profile_overwrites_only_by_force(tmp_path: Path) -> None:
    config = stored(tmp_path, LLAMA)
    path = write_profile(config, tmp_path, "mine")
    path.write_text("mine")
    with pytest.raises(ProfileError, match="exists already"):
        write_profile(config, tmp_path, "mine")
    assert path.read_text() == "mine"
    write_profile(config, tmp_path, "mine", force=True)
    assert load_model(str(path)).parameters == 8_030_261_248


@pytest.mark.parametrize("name", ["../evil", "a/b", "", "Capital", ".hidden"])
def test_write_profile_refuses_names_that_are_no_file_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProfileError, match="profile name"):
        write_profile(stored(tmp_path, LLAMA), tmp_path, name)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "[" * 100_000, '{"model_type": "llama"}', '{"a": 1'])
def test_write_profile_writes_nothing_for_a_bad_config(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ProfileError):
        write_profile(path, tmp_path / "models", "mine")
    with pytest.raises(ProfileError, match="not readable JSON"):
        write_profile(tmp_path / "missing.json", tmp_path / "models", "mine")
    assert not (tmp_path / "models").exists()


def test_write_profile_writes_nothing_that_would_not_load(tmp_path: Path) -> None:
    config = SHIPPED["mixtral-8x7b"] | {"num_experts_per_tok": 9}
    with pytest.raises(ProfileError, match="chosen 9"):
        write_profile(stored(tmp_path, config), tmp_path / "models", "mine")
    assert not (tmp_path / "models").exists()


def test_write_profile_leaves_nothing_behind_when_it_cannot_write(tmp_path: Path) -> None:
    config = stored(tmp_path, LLAMA)
    (tmp_path / "mine.yaml").mkdir()
    with pytest.raises(InfercastError, match="it cannot be written"):
        write_profile(config, tmp_path, "mine", force=True)
    with pytest.raises(InfercastError, match="it cannot be written"):
        write_profile(config, config, "mine")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["config.json", "mine.yaml"]


def test_write_profile_reads_the_separate_file_of_modelopt(tmp_path: Path) -> None:
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "FP8"}}))
    path = write_profile(stored(tmp_path, LLAMA), tmp_path, "mine")
    assert load_model(str(path)).weight_dtype == "fp8"


def test_lfm3_has_windows_where_lfm2_has_none_and_gates_of_heads_and_norms_behind_its_parts():
    kinds = ["conv", "sliding_attention", "full_attention", "conv"]
    config = sized("lfm3", "4 1024 8 2 2048 32000 32768", layer_types=kinds, use_attention_gate=False)
    found = model_from_config(config, "mine", "mine")
    mixers = {name: block["mixer"] for name, block in found["blocks"].items()}
    assert [mixers[name]["kind"] for part in found["layers"] for name in part["of"] * part["repeat"]] == [
        *("short_convolution", "attention", "attention", "short_convolution")
    ]
    assert [mixers["local"]["window"], mixers["global"].get("window")] == [256, None]
    assert "head_gate" not in mixers["global"]
    gated = model_from_config({**config, "use_attention_gate": True}, "mine", "mine")
    assert gated["blocks"]["global"]["mixer"]["head_gate"] is True
    wide, narrow = (
        Model.from_mapping(model_from_config({**config, "use_sandwich_norm": on}, "m", "m"), "m").parameters
        for on in (True, False)
    )
    assert wide - narrow == 2 * 4 * 1024
