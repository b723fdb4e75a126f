"""Vision encoders of multimodal configs: their parameters as transformers counts them, and as profiles hold them."""

from typing import Any

import pytest

from simulator.errors import ProfileError
from simulator.models.hf_fields import Fields
from simulator.models.hf_importer import model_from_config
from simulator.models.hf_vision import vision_from_config
from simulator.models.model import Model, load_model
from tests.support.model_configs import CONFIGS

Config = dict[str, Any]
SIGLIP: Config = {
    **{"model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27},
    **{"image_size": 896, "patch_size": 14, "num_attention_heads": 16, "vision_use_head": False},
}
LLAMA4: Config = {
    **{"model_type": "llama4_vision_model", "hidden_size": 1408, "intermediate_size": 5632, "num_hidden_layers": 34},
    **{"image_size": 336, "patch_size": 14, "pixel_shuffle_ratio": 0.5, "vision_output_dim": 4096},
}
PIXTRAL: Config = {"model_type": "pixtral", "image_size": 1540, "patch_size": 14}
GEMMA4: Config = {
    **{"model_type": "gemma4_vision", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27},
    **{"num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 72},
}
SMALL_QWEN: Config = {
    **{"model_type": "qwen3_vl_vision", "depth": 24, "hidden_size": 1024, "intermediate_size": 4096},
    **{"deepstack_visual_indexes": [5, 11, 17]},
}
KIMI: Config = {"model_type": "kimi_k25_vision"}
ENCODERS = {  # shipped profile -> class of the whole model, vision_config
    **{"gemma-3-12b": ("gemma3", SIGLIP), "llama-4-scout": ("llama4", LLAMA4), "llama-4-maverick": ("llama4", LLAMA4)},
    **{
        "ministral-3-3b": ("mistral3", PIXTRAL),
        "gemma-4-31b": ("gemma4", GEMMA4),
        "qwen3-vl-2b": ("qwen3_vl", SMALL_QWEN),
    },
    **{"qwen3-vl-8b": ("qwen3_vl", {"model_type": "qwen3_vl_vision"}), "kimi-k2.5": ("kimi_k25", KIMI)},
    "qwen3.5-27b": ("qwen3_5", {"model_type": "qwen3_5_vision"}),
    "qwen2-vl-7b": ("qwen2_vl", {"model_type": "qwen2_vl"}),
    "qwen2.5-vl-7b": ("qwen2_5_vl", {"model_type": "qwen2_5_vl", "hidden_size": 1280}),
    "qwen2.5-vl-72b": ("qwen2_5_vl", {"model_type": "qwen2_5_vl", "hidden_size": 1280, "intermediate_size": 3456}),
}


def encoder(kind: str, vision: Config, hidden: int) -> Config | None:
    return vision_from_config(Fields({"hidden_size": hidden, "vision_config": vision}, "c.json"), kind)


@pytest.mark.parametrize("name", ENCODERS)
def test_a_shipped_encoder_is_what_its_config_says(name: str) -> None:
    shipped = load_model(name)
    found = encoder(*ENCODERS[name], shipped.hidden)
    assert found is not None and shipped.vision is not None
    assert found.pop("parameters")["value"] == shipped.vision.parameters
    assert found == shipped.vision.model_dump(include=set(found))


@pytest.mark.slow
@pytest.mark.parametrize("name", ENCODERS)
def test_transformers_counts_the_same_parameters(name: str) -> None:
    torch = pytest.importorskip("torch", reason="the oracle builds the model with it")
    transformers = pytest.importorskip("transformers", reason="it is the oracle")
    kind, vision = ENCODERS[name]
    hidden = load_model(name).hidden
    stated = vision | ({"out_hidden_size": hidden} if kind.startswith("qwen") and kind != "qwen2_vl" else {})
    config = transformers.CONFIG_MAPPING[kind](vision_config=stated, text_config={"hidden_size": hidden})
    text = config.text_config
    text.num_hidden_layers = 1
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[-1:]
    with torch.device("meta"):
        model = transformers.AutoModelForImageTextToText.from_config(config)
    parts = [(key, each.numel()) for key, each in model.named_parameters()]
    found = sum(count for key, count in parts if "language_model" not in key and not key.startswith("lm_head"))
    assert found == encoder(kind, vision, hidden)["parameters"]["value"]


@pytest.mark.parametrize(
    ("name", "checkpoint"),  # parameters of the checkpoint on Hugging Face
    [
        *[("llama-4-scout", 108_641_793_536), ("gemma-3-12b", 12_187_325_040), ("qwen3-vl-8b", 8_767_123_696)],
        *[("qwen2-vl-7b", 8_291_375_616), ("qwen2.5-vl-7b", 8_292_166_656), ("qwen2.5-vl-32b", 33_452_718_336)],
    ],
)
def test_text_and_vision_are_the_whole_checkpoint(name: str, checkpoint: int) -> None:
    model = load_model(name)
    entries = 64 * model.hidden if name == "gemma-3-12b" else 0  # of the vocabulary, which the text part lacks
    assert model.parameters + model.vision.parameters + entries == checkpoint


@pytest.mark.parametrize(
    ("name", "numbers"),  # of one patch: its pixels, then what its widest layer has at once
    [("gemma-3-12b", 588 + 2 * 1152 + 2 * 4304), ("qwen3.5-27b", 1536 + 15 * 1152), ("kimi-k2.5", 588 + 15 * 1152)],
)
def test_rotary_encoders_peak_in_attention(name: str, numbers: int) -> None:
    vision = load_model(name).vision
    patches = vision.image_tokens * vision.patches_per_token
    assert vision.peak_bytes(1, 1) == patches * numbers * 2
    assert vision.rotary is (name != "gemma-3-12b")


def test_a_rotary_encoder_shares_its_attention_among_devices() -> None:
    vision = load_model("qwen3.5-27b").vision
    assert vision.peak_bytes(1, 4) == 65_536 * (1536 + 2 * 1152 + 13 * 1152 / 4) * 2


def test_an_imported_config_has_its_encoder() -> None:
    text = {
        **{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32},
        **{"num_hidden_layers": 2, "num_key_value_heads": 8, "vocab_size": 1000, "max_position_embeddings": 100},
    }
    whole = {"model_type": "mistral3", "text_config": text, "vision_config": PIXTRAL, "dtype": "bfloat16"}
    found = Model.from_mapping(model_from_config(whole, "a", "config.json"), "a.yaml")
    assert found.vision.image_tokens == 3025  # 55 x 55: 1,540 pixels in patches of 14, two by two
    assert "vision encoder" in found.notes
    other = model_from_config(whole | {"vision_config": {"model_type": "other_vision"}}, "a", "config.json")
    assert "vision" not in other
    assert "not modelled" in other["notes"]


def test_a_flat_config_of_qwen_has_its_encoder_too() -> None:
    # config.json of Qwen/Qwen2.5-VL-7B-Instruct states its text part beside vision_config, not in a text_config.
    nested = CONFIGS["qwen2.5-vl-7b"]
    vision = {key: value for key, value in nested["vision_config"].items() if key != "model_type"}
    flat = nested["text_config"] | {"model_type": "qwen2_5_vl", "vision_config": vision}
    assert model_from_config(flat, "a", "config.json") == model_from_config(nested, "a", "config.json")


@pytest.mark.parametrize("ratio", [0, "0.5", None, 10**400, float("nan"), []])
def test_a_ratio_that_is_none_is_named(ratio: Any) -> None:
    with pytest.raises(ProfileError, match="vision_config: pixel_shuffle_ratio"):
        encoder("llama4", LLAMA4 | {"pixel_shuffle_ratio": ratio}, 5120)


def test_a_malformed_field_is_named() -> None:
    with pytest.raises(ProfileError, match="vision_config: patch_size"):
        encoder("mistral3", PIXTRAL | {"patch_size": "14"}, 4096)
