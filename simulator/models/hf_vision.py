"""Import of the vision encoder from the `vision_config` of a multimodal config.json: its parameters, counted."""

from typing import Any

from simulator.models.hf_fields import HIDDEN, Fields
from simulator.models.hf_vision_parts import COLOURS, HIDDEN_OF_VISION, LAYERS, VisionType, encoder, layers
from simulator.models.hf_vision_towers import TOWERS, pixtral, siglip

# Tokens of the largest image where config.json does not say: max_pixels of Qwen's preprocessor_config.json / 32^2 (28^2
# before Qwen3-VL), max_patches and a global tile of Llama 4's, max_soft_tokens of Gemma 4's and in_patch_limit / 2^2 of
# Kimi's image processor (transformers 5.23.0; Kimi's limit of 16,384 patches is recalled)
QWEN_TOKENS, LLAMA_TILES, GEMMA_TOKENS, KIMI_TOKENS = 16_384, 17, 280, 4_096
VISION_PARTS = ("vision_config", "img_processor")


def vision_from_config(fields: Fields, whole: str) -> dict[str, Any] | None:
    """Return the mapping of a `VisionEncoder` for the model_type of the whole; None without one that is modelled.

    Raises ProfileError for a field that is missing or malformed.
    """
    vision = next((part for part in map(fields.part, VISION_PARTS) if part.raw), None)
    if vision is None:
        return None
    kind = vision.raw.get("model_type")
    types = {**TOWERS, **VISION_TYPES}.get(whole, ())
    found = next((each for each in types if not (kind and each.kind) or each.kind == kind), None)
    return found.encoder(Fields({**found.defaults, **vision.raw}, vision.where), fields) if found else None


def _gemma3(vision: Fields, whole: Fields) -> dict[str, Any]:
    """SigLIP with Gemma 3's projector, which pools the patches of an image."""
    hidden, patches = vision.count("hidden_size"), (vision.count("image_size") // vision.count("patch_size")) ** 2
    parameters = siglip(vision) + hidden * whole.count(*HIDDEN) + hidden
    tokens = whole.maybe("mm_tokens_per_image") or 256
    return encoder(vision, parameters, tokens, max(1, patches // tokens), gated=False)


def _merged(vision: Fields) -> int:
    """Return the patches that Llama 4 makes one token of: 1 / pixel_shuffle_ratio^2."""
    ratio = vision.raw["pixel_shuffle_ratio"]
    if not isinstance(ratio, int | float) or not 0.01 < ratio <= 1:
        raise vision.error("pixel_shuffle_ratio", f"{ratio!r} is not between 0 and 1", "Write, say, 0.5")
    return round(ratio**-2)


def _llama4(vision: Fields, whole: Fields) -> dict[str, Any]:
    """Llama 4's: an image is LLAMA_TILES tiles, 1 / pixel_shuffle_ratio^2 patches of which become a token."""
    hidden, patch, shared = vision.count("hidden_size"), vision.count("patch_size"), vision.count("projector_input_dim")
    patches, merged = (vision.count("image_size") // patch) ** 2, _merged(vision)
    embedding = COLOURS * patch**2 * hidden + hidden + (patches + 1) * hidden + 4 * hidden
    adapter = vision.count("intermediate_size") * shared + shared * vision.count("projector_output_dim")
    projector = vision.count("vision_output_dim") * whole.count(*HIDDEN)
    parameters = embedding + layers(vision, biases=True, gated=False) + adapter + projector
    return encoder(vision, parameters, LLAMA_TILES * patches // merged, merged, gated=False, rotary=True)


def _mistral3(vision: Fields, whole: Fields) -> dict[str, Any]:
    """Pixtral with Mistral's projector, which merges a square of patches."""
    hidden, patch, text = vision.count("hidden_size"), vision.count("patch_size"), whole.count(*HIDDEN)
    side = whole.maybe("spatial_merge_size") or 2
    projector = hidden + side**2 * hidden**2 + hidden * text + text**2
    tokens = (vision.count("image_size") // (patch * side)) ** 2
    return encoder(vision, pixtral(vision) + projector, tokens, side**2, gated=True)


def _gemma4(vision: Fields, whole: Fields) -> dict[str, Any]:
    """Gemma 4's: four norms a layer, two of a head's width, and a table of positions for either axis."""
    hidden = vision.count("hidden_size")
    norms = vision.count("num_hidden_layers") * 2 * (hidden + vision.count("head_dim"))
    embedding = (
        COLOURS * vision.count("patch_size") ** 2 * hidden + 2 * vision.count("position_embedding_size") * hidden
    )
    parameters = embedding + layers(vision, biases=False, gated=True) + norms + hidden * whole.count(*HIDDEN)
    tokens = whole.maybe("vision_soft_tokens_per_image") or GEMMA_TOKENS
    return encoder(vision, parameters, tokens, vision.count("pooling_kernel_size") ** 2, gated=True)


def _qwen_patch_numbers(vision: Fields) -> int:
    """Return the numbers of one patch, of two frames, of any Qwen VL."""
    return COLOURS * vision.count("temporal_patch_size") * vision.count("patch_size") ** 2


def _qwen_merger(merged: int, text: int) -> int:
    """Return the parameters of the two layers, with biases, after the patches of a token are put side by side."""
    return merged**2 + merged + merged * text + text


def _qwen2(vision: Fields, _whole: Fields) -> dict[str, Any]:
    """Qwen2-VL's, whose vision_config calls its width embed_dim and the language model's hidden_size."""
    hidden, text, side = vision.count("embed_dim"), vision.count("hidden_size"), vision.count("spatial_merge_size")
    width = vision.count("mlp_ratio") * hidden
    own = vision.having({"hidden_size": hidden, "intermediate_size": width})
    merger = 2 * hidden + _qwen_merger(side**2 * hidden, text)
    parameters = _qwen_patch_numbers(vision) * hidden + layers(own, biases=True, gated=False) + merger
    return encoder(own, parameters, QWEN_TOKENS, side**2, gated=False, rotary=True)


def _qwen25(vision: Fields, whole: Fields) -> dict[str, Any]:
    """Qwen2.5-VL's: norms without biases, a gate; most layers attend within windows, which changes no count."""
    hidden, side = vision.count("hidden_size"), vision.count("spatial_merge_size")
    text = vision.maybe("out_hidden_size") or whole.count(*HIDDEN)
    biases = vision.count(*LAYERS) * (5 * hidden + 2 * vision.count("intermediate_size"))
    merger = hidden + _qwen_merger(side**2 * hidden, text)
    blocks = layers(vision, biases=False, gated=True) + biases
    parameters = _qwen_patch_numbers(vision) * hidden + blocks + merger
    return encoder(vision, parameters, QWEN_TOKENS, side**2, gated=True, rotary=True)


def _qwen3(vision: Fields, whole: Fields) -> dict[str, Any]:
    """Qwen3-VL's and Qwen3.5's: a merger at the end, and one for each of deepstack_visual_indexes."""
    hidden, side = vision.count("hidden_size"), vision.count("spatial_merge_size")
    merged, text = side**2 * hidden, vision.maybe("out_hidden_size") or whole.count(*HIDDEN)
    numbers = _qwen_patch_numbers(vision)
    embedding = numbers * hidden + hidden + vision.count("num_position_embeddings") * hidden
    merger = _qwen_merger(merged, text)
    mergers = merger + 2 * hidden + len(vision.each("deepstack_visual_indexes") or []) * (merger + 2 * merged)
    parameters = embedding + layers(vision, biases=True, gated=False) + mergers
    return encoder(vision, parameters, QWEN_TOKENS, side**2, gated=False, rotary=True)


def _kimi(vision: Fields, whole: Fields) -> dict[str, Any]:
    """MoonViT of Kimi K2.5, whose projector merges two by two patches."""
    hidden, text = vision.count(*HIDDEN_OF_VISION), whole.count(*HIDDEN)
    numbers = COLOURS * vision.count("patch_size") ** 2
    positions = vision.count("pos_emb_height", "init_pos_emb_height") * vision.count(
        "pos_emb_width", "init_pos_emb_width"
    )
    merged = 4 * hidden
    projector = 2 * hidden + merged**2 + merged + merged * text + text
    parameters = (numbers + 1 + positions + 2) * hidden + layers(vision, biases=True, gated=False) + projector
    return encoder(vision, parameters, KIMI_TOKENS, 4, gated=False, rotary=True)


SIGLIP = VisionType(
    {
        **{"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12},
        **{"image_size": 224, "patch_size": 16},
    },
    _gemma3,
    "siglip_vision_model",
)
LLAMA4 = VisionType(
    {
        **{"hidden_size": 768, "intermediate_size": 5632, "num_hidden_layers": 34, "image_size": 448, "patch_size": 14},
        **{"pixel_shuffle_ratio": 0.5, "vision_output_dim": 7680},
        **{"projector_input_dim": 4096, "projector_output_dim": 4096},
    },
    _llama4,
)
PIXTRAL = VisionType(
    {
        **{"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24},
        **{"image_size": 1024, "patch_size": 16},
    },
    _mistral3,
    "pixtral",
)
GEMMA4 = VisionType(
    {
        **{"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 16, "head_dim": 64},
        **{"patch_size": 16, "pooling_kernel_size": 3, "position_embedding_size": 10_240},
    },
    _gemma4,
)
QWEN_PATCHES = {"depth": 32, "patch_size": 14, "temporal_patch_size": 2, "spatial_merge_size": 2}
QWEN2 = VisionType({**QWEN_PATCHES, "embed_dim": 1280, "hidden_size": 3584, "mlp_ratio": 4}, _qwen2)
QWEN25 = VisionType({**QWEN_PATCHES, "hidden_size": 3584, "intermediate_size": 3420}, _qwen25)
QWEN3 = VisionType(
    {
        **{"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "patch_size": 16, "temporal_patch_size": 2},
        **{"spatial_merge_size": 2, "num_position_embeddings": 2304},
    },
    _qwen3,
)
QWEN3_VL = VisionType({**QWEN3.defaults, "deepstack_visual_indexes": [8, 16, 24]}, _qwen3)
KIMI = VisionType(
    {
        **{"vt_hidden_size": 1152, "vt_intermediate_size": 4304, "vt_num_hidden_layers": 27, "patch_size": 14},
        **{"init_pos_emb_height": 64, "init_pos_emb_width": 64},
    },
    _kimi,
)
VISION_TYPES: dict[str, tuple[VisionType, ...]] = {  # by the model_type of the whole
    **dict.fromkeys(("gemma3", "shieldgemma2"), (SIGLIP,)),
    "llama4": (LLAMA4,),
    **dict.fromkeys(("mistral3", "lighton_ocr"), (PIXTRAL,)),
    **dict.fromkeys(("gemma4", "gemma4_unified"), (GEMMA4,)),
    "qwen2_vl": (QWEN2,),
    **dict.fromkeys(("qwen2_5_vl", "qwen2_5_omni"), (QWEN25,)),
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe", "qwen3_omni_moe"), (QWEN3_VL,)),
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe"), (QWEN3,)),
    **dict.fromkeys(("kimi_k25", "kimi_vl"), (KIMI,)),
}
