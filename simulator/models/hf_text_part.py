"""The language model within a multimodal config.json: where it lies, whose layers it has, and what it leaves out.

Source: the configuration files of transformers 5.24.0; of other repositories, those that vLLM 0.33.0 reads
(transformers_utils/configs/, model_executor/models/).
"""

from collections.abc import Mapping
from typing import Any

from simulator.models.hf_fields import Fields

# How names of classes that write text end: transformers', and those of repositories with code of their own.
WRITERS = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
OWN_WRITERS = ("InternVLChatModel", "MiniCPMV", "MiniCPMO", "Ovis", "Ovis2_5", "OmniModel")
TEXT_PARTS = ("text_config", "llm_config", "language_config")
SAME = {  # whose layers a language model has, where that goes by another name; a whole where its config is flat
    "Keye": "qwen3",
    "KeyeVL1_5": "qwen3",
    "dots_ocr": "qwen2",
    "glm46v_text": "glm4",
    "glm4v": "glm4",
    "glm4v_moe": "glm4_moe",
    "glm4v_moe_text": "glm4_moe",
    "glm4v_text": "glm4",
    "llava_llama": "llama",
    "llava_mistral": "mistral",
    "llava_qwen": "qwen2",
    "molmo2_text": "qwen3",
    "paddleocr_vl": "ernie4_5",
    "paddleocr_vl_text": "ernie4_5",
    "phi3_v": "phi3",
    "phi4_multimodal": "phi3",
    "phi4mm": "phi3",
    "qwen2_5_omni_text": "qwen2",
    "qwen3_omni_moe_text": "qwen3_moe",
    "video_llama_3": "qwen2",
}
OF_WHOLE = {"minimax_m3_vl": "minimax_m3_vl_text"}  # layers of a text part, whatever that calls itself
# Of these the rest, encoders or tables, is named in no part that is read.
WITH_MORE = {"llava_llama", "llava_mistral", "llava_qwen", "minicpmo", "molmo", "ovis", "ovis2_5", "phi4_multimodal"}
WITH_MORE |= {"phi4mm"}
MINICPM = {"2.5": "llama", "2.6": "qwen2", "4.0": "llama", "4.5": "qwen3"}  # by its version
# Class defaults that a text_config leaves out: configs are saved without them.
SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
LEFT_OUT: dict[str, dict[str, int]] = {
    kind: dict(zip((*SIZES, "max_position_embeddings"), sizes, strict=True))
    for kind, sizes in {
        "cohere2": (8192, 22528, 40, 64, 256000, 8192),
        "llama": (4096, 11008, 32, 32, 32000, 2048),
        "mistral": (4096, 14336, 32, 32, 32000, 131072),
        "qwen2": (4096, 22016, 32, 32, 151936, 32768),
        "qwen3": (4096, 22016, 32, 32, 151936, 32768),
    }.items()
}


def text_part(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the fields of a config with those of its language model above them, under the model_type of its layers.

    Raises ProfileError for a malformed part.

    >>> text_part({"model_type": "glm4v", "text_config": {"model_type": "glm4v_text"}}, "config.json")["model_type"]
    'glm4'
    """
    whole = Fields(config, where)
    if thinker := whole.part("thinker_config").raw:  # of Qwen's Omni models, beside a talker
        return text_part({**config, **thinker, "thinker_config": None}, where)
    nested = next((part.raw for part in map(whole.part, TEXT_PARTS) if part.raw), {})
    raw = {**config, **nested}
    kind = str(raw.get("model_type"))
    if kind in ("minicpmv", "minicpmo"):
        raw["model_type"] = MINICPM.get(str(raw.get("version")), kind)
    else:
        raw["model_type"] = OF_WHOLE.get(str(config.get("model_type")), SAME.get(kind, raw.get("model_type")))
    defaults = LEFT_OUT.get(kind, {}) if nested else {}
    return {**defaults, **raw}
