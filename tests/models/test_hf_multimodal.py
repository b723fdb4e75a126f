"""Multimodal configs: the language model within is found under each name, and its encoder is counted with it."""

import json

import pytest

from simulator.errors import NotModelledError
from simulator.models.hf_importer import model_from_config
from simulator.models.model import Model, load_model
from tests.support.model_configs import deepseek_moe, sized
from tests.support.multimodal_configs import MULTIMODAL, TOTALS, VL2_SMALL, Config, flat


def imported(config: Config) -> Model:
    return Model.from_mapping(model_from_config(config, "test", "config.json"), "test.yaml")


@pytest.mark.parametrize("name", MULTIMODAL)
def test_the_import_of_a_config_is_the_shipped_profile(name: str) -> None:
    found, shipped = imported(MULTIMODAL[name]), load_model(name)
    assert found.vision is not None and shipped.vision is not None
    assert found.vision.model_dump(exclude={"parameters"}) == shipped.vision.model_dump(exclude={"parameters"})
    assert found.vision.parameters == shipped.vision.parameters
    assert [found.blocks[each] for each in found.layer_names] == [shipped.blocks[each] for each in shipped.layer_names]
    assert (found.parameters, found.tied_embeddings) == (shipped.parameters, shipped.tied_embeddings)


@pytest.mark.parametrize("name", TOTALS)
def test_text_and_vision_are_the_whole_that_is_shown(name: str) -> None:
    config, shown = TOTALS[name]
    found = imported(config)
    assert found.vision is not None
    total = (found.parameters + found.vision.parameters) / 1e9
    assert f"{total:.{len(shown.partition('.')[2])}f}" == shown


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        *("llava", "llava_next", "llava_onevision", "cohere2_vision", "idefics3", "smolvlm", "glm4v", "lfm2_vl"),
        *("ernie4_5_vl_moe", "paddleocr_vl", "gemma3", "glm46v", "mllama"),
    ],
)
def test_transformers_counts_the_class_defaults_the_same(kind: str) -> None:
    torch = pytest.importorskip("torch", reason="the oracle builds the model with it")
    transformers = pytest.importorskip("transformers", reason="it is the oracle")
    config = transformers.CONFIG_MAPPING[kind]()
    with torch.device("meta"):
        model = transformers.AutoModelForImageTextToText.from_config(config)
    found = imported(json.loads(json.dumps(config.to_dict(), default=str)) | {"dtype": "bfloat16"})
    assert found.vision is not None
    biases = sum(each.numel() for key, each in model.named_buffers() if "correction" in key)
    assert sum(each.numel() for each in model.parameters()) + biases == found.parameters + found.vision.parameters


QWEN3_MOE = sized("", "48 2048 32 4 768 152064 65536", head_dim=128, num_experts=128, num_experts_per_tok=8)
WITHOUT_VISION: dict[str, tuple[Config, str]] = {  # the shipped profile whose layers it has
    "deepseek_ocr": (
        {
            "model_type": "deepseek_vl_v2",
            "language_config": sized(
                "deepseek_v2", "12 1280 10 10 6848 129280 8192", **VL2_SMALL, **deepseek_moe(64, 6, 896, 2, 1)
            ),
            "vision_config": {"model_type": "vision", "width": {"clip-l-14-224": {}, "sam_vit_b": {}}},
        },
        "deepseek-ocr",
    ),
    "molmo2": (
        {
            "model_type": "molmo2",
            "text_config": sized("molmo2_text", "36 4096 32 8 12288 151936 40960", head_dim=128),
            "vision_config": {"model_type": "molmo2_vision"},
        },
        "qwen3-8b",
    ),
    "keye": (
        {**sized("Keye", "36 4096 32 8 12288 151936 40960", head_dim=128), "vision_config": {"hidden_size": 1152}},
        "qwen3-8b",
    ),
    "phi4mm": (
        flat("phi4mm", sized("", "32 3072 24 8 8192 200064 131072", head_dim=128, tie_word_embeddings=True)),
        "phi-4-mini",
    ),
    "ovis": (
        {
            **{"model_type": "ovis", "architectures": ["Ovis"], "visual_tokenizer_config": {"depth": 24}},
            "llm_config": sized("qwen2", "28 3584 28 4 18944 152064 131072", use_sliding_window=False),
        },
        "qwen2.5-7b",
    ),
    "molmo": (
        flat("molmo", sized("", "28 3584 28 4 37888 152064 131072", qkv_bias=True, weight_tying=False)),
        "qwen2.5-7b",
    ),
}


@pytest.mark.parametrize("kind", WITHOUT_VISION)
def test_the_language_model_is_found_where_its_encoder_is_not_modelled(kind: str) -> None:
    config, shipped = WITHOUT_VISION[kind]
    found, like = imported({"torch_dtype": "bfloat16", **config}), load_model(shipped)
    assert found.vision is None
    assert "nothing of its vision part" in found.notes
    assert [found.blocks[each] for each in found.layer_names] == [like.blocks[each] for each in like.layer_names]
    assert found.parameters == like.parameters


def test_the_thinker_of_an_omni_model_is_what_is_served() -> None:
    thinker = {
        **{"model_type": "qwen3_omni_moe_thinker", "audio_config": {"d_model": 1280}, "vision_config": {"depth": 27}},
        "text_config": QWEN3_MOE | {"model_type": "qwen3_omni_moe_text", "moe_intermediate_size": 768},
    }
    found = imported({"model_type": "qwen3_omni_moe", "dtype": "bfloat16", "thinker_config": thinker})
    assert found.parameters == load_model("qwen3-omni-30b-a3b").parameters
    assert found.vision is not None
    assert found.vision.parameters == load_model("qwen3-vl-30b-a3b").vision.parameters
    assert "Nothing of its encoder of sound" in found.notes


def test_the_text_of_glm_ocr_has_the_parameters_of_its_class_defaults() -> None:
    text = sized("glm_ocr_text", "16 1024 16 8 4096 59392 131072")
    assert imported({"model_type": "glm_ocr", "text_config": text}).parameters == 373_359_616  # transformers 5.24.0


def test_a_text_part_without_its_sizes_has_those_of_its_class() -> None:
    text = {"model_type": "llama", "rms_norm_eps": 1e-5}
    found = imported({"model_type": "llava", "torch_dtype": "float16", "text_config": text})
    assert found.parameters == load_model("llama-1-7b").parameters


@pytest.mark.parametrize(
    ("config", "because"),
    [
        ({"model_type": "paligemma", "text_config": {"model_type": "gemma"}}, "in both directions"),
        (flat("minicpmv", sized("", "2 64 4 4 128 100 100"), version="1.0"), "'minicpmv'"),
        (flat("molmo", sized("", "2 64 4 4 128 100 100"), norm_after=True), "norm_after"),
        ({"model_type": "florence2", "text_config": {"model_type": "bart"}}, "'bart'"),
    ],
)
def test_what_is_not_modelled_is_refused_by_name(config: Config, because: str) -> None:
    with pytest.raises(NotModelledError, match=because):
        imported(config)
