"""Vision encoders of which several models have one, CLIP, SigLIP and InternViT, and the projectors that follow them.

A projector is what a model puts between its encoder and its layers. Source: the modelling files of transformers 5.24.0,
and of OpenGVLab/InternVL for internvl_chat. h is the encoder's width, t the model's, f^2 the patches of a token.
"""

from collections.abc import Callable, Mapping
from typing import Any

from simulator.models.hf_fields import HIDDEN, Fields
from simulator.models.hf_sharing_rules import cross_attention_parameters
from simulator.models.hf_vision_parts import COLOURS, LAYERS, VisionType, encoder, layers

# Tiles of the largest image, one of the whole among them: LLaVA-NeXT's grids have four, OneVision's anyres_max_9 nine,
# as DeepSeek-VL2 (arXiv:2412.10302, section 2); max_patches of Aya's and Cohere's image processors is 12, max_tiles of
# LFM2-VL's 10 (transformers 5.24.0), max_dynamic_patch of InternVL's config.json 12. The longest edge of Idefics 3 and
# SmolVLM is four tiles, Phi 3 Vision has 16 crops and MiniCPM-V nine slices: these three are recalled.
LLAVA_TILES, ONEVISION_TILES, PHI_TILES, TILES, IDEFICS_TILES, LFM2_TILES, MINICPM_SLICES = 5, 10, 17, 13, 17, 11, 10
# Tokens of the largest image where size or max_pixels of the image processor (transformers 5.24.0) bounds it: / 28^2
GLM_TOKENS, ERNIE_TOKENS, PADDLE_TOKENS, LFM2_TOKENS = 6_144, 6_177, 3_009, 256
IMAGE_ENTRIES = 8  # of the vocabulary's embeddings of Llama 3.2 Vision, which its output head lacks
SO400M_WIDTH = 4_304  # of SigLIP, which DeepSeek-VL2 states as a mlp_ratio of 3.7362

Encoder = Callable[[Fields, Fields], dict[str, Any]]


def _side(stated: Fields, name: str) -> int:
    """Return the number of pixels of a square, which some configs state once for each axis."""
    sides = stated.raw.get(name)
    if isinstance(sides, list) and sides and all(side == sides[0] for side in sides):
        return Fields({name: sides[0]}, stated.where).count(name)
    return stated.count(name)


def _patches(vision: Fields) -> int:
    """Return the patches of one image or tile: (pixels / pixels of a patch)^2."""
    return (_side(vision, "image_size") // _side(vision, "patch_size")) ** 2


def _embedding(vision: Fields) -> int:
    """Return the parameters of patches and positions, without biases: (3 p^2 + patches) h."""
    return (COLOURS * _side(vision, "patch_size") ** 2 + _patches(vision)) * vision.count("hidden_size")


def _clip(vision: Fields) -> int:
    """CLIP: one more position, that of its class, and norms before and after the layers."""
    return _embedding(vision) + 6 * vision.count("hidden_size") + layers(vision, biases=True, gated=False)


def siglip(vision: Fields, *, pools: bool = True) -> int:
    """Return the parameters of SigLIP, with its pooling head unless vision_use_head is false.

    `pools`: the model has that head. SigLIP 2 of any aspect ratio states num_patches. Raises ProfileError for a field
    that is missing or malformed.
    """
    hidden = vision.count("hidden_size")
    positions = vision.maybe("num_patches")
    numbers = COLOURS * _side(vision, "patch_size") ** 2
    embedding = (numbers + positions) * hidden if positions else _embedding(vision)
    has_head = pools and vision.raw.get("vision_use_head") is not False
    head = _one_layer(vision) - hidden if has_head else 0
    return embedding + 3 * hidden + layers(vision, biases=True, gated=False) + head


def _one_layer(vision: Fields) -> int:
    return layers(vision.having({LAYERS[0]: 1}), biases=True, gated=False)


def _intern_vit(vision: Fields) -> int:
    """InternViT: biases of q, k and v, their norms and biases of other norms as stated; two scales a layer."""
    hidden, width = vision.count("hidden_size"), vision.count("intermediate_size")
    biased = vision.flag("qkv_bias") or vision.flag("attention_bias")
    normed = vision.flag("qk_normalization") or vision.flag("use_qk_norm")
    norms = 2 * hidden * (1 if vision.raw.get("norm_type") == "rms_norm" else 2)
    others = norms + (3 * biased + 2 * normed + 4) * hidden + width
    layer = 4 * hidden**2 + 2 * hidden * width + others
    return _embedding(vision) + 3 * hidden + vision.count(*LAYERS) * layer


def _two(inputs: int, between: int, outputs: int) -> int:
    """Return the parameters of two linear layers with biases."""
    return (inputs + 1) * between + (between + 1) * outputs


def pixtral(vision: Fields) -> int:
    """Return the parameters of Pixtral: rotary positions, one norm before the layers, gates and no biases.

    Raises ProfileError for a field that is missing or malformed.
    """
    patch = COLOURS * vision.count("patch_size") ** 2
    return (patch + 1) * vision.count("hidden_size") + layers(vision, biases=False, gated=True)


def _llava(tower: Callable[[Fields], int], tiles: int, *, gated: bool = False) -> Encoder:
    """LLaVA's projector: (h, t), (t, t), of one or more layers' outputs; several tiles have a vector for rows' ends."""

    def found(vision: Fields, whole: Fields) -> dict[str, Any]:
        chosen, text = whole.raw.get("vision_feature_layer"), whole.count(*HIDDEN)
        inputs = (len(chosen) if isinstance(chosen, list) else 1) * vision.count("hidden_size")
        parameters = tower(vision) + _two(inputs, text, text) + (tiles > 1) * text
        return encoder(vision, parameters, tiles * _patches(vision), 1, gated=gated)

    return found


def _cohere(*, norm: bool) -> Encoder:
    """Aya Vision's, whose patches are normed first, and Command A Vision's: two layers with a gate between."""

    def found(vision: Fields, whole: Fields) -> dict[str, Any]:
        merged = (whole.maybe("downsample_factor") or 2) ** 2
        inputs, text = merged * vision.count("hidden_size"), whole.count(*HIDDEN)
        between = whole.maybe("alignment_intermediate_size") or (text if norm else 36_864)
        projector = 2 * inputs * norm + (inputs + 1) * between + (between // 2 + 1) * text
        tokens = TILES * _patches(vision) // merged
        return encoder(vision, siglip(vision) + projector, tokens, merged, gated=False)

    return found


def _idefics3(vision: Fields, whole: Fields) -> dict[str, Any]:
    """Idefics 3 and SmolVLM: SigLIP without a head, f^2 patches side by side into one linear layer."""
    merged = (whole.maybe("scale_factor") or 2) ** 2
    parameters = siglip(vision, pools=False) + merged * vision.count("hidden_size") * whole.count(*HIDDEN)
    return encoder(vision, parameters, IDEFICS_TILES * _patches(vision) // merged, merged, gated=False)


def _internvl(vision: Fields, whole: Fields) -> dict[str, Any]:
    """InternVL: f^2 patches side by side, a norm and two layers; its tiles have 1 / f^2 as many tokens."""
    own = vision.having({"patch_size": _side(vision, "patch_size")})
    text, inputs = whole.count(*HIDDEN), 4 * own.count("hidden_size")
    parameters = _intern_vit(own) + 2 * inputs + _two(inputs, text, text)
    return encoder(own, parameters, TILES * _patches(own) // 4, 4, gated=False)


def _glm4v(vision: Fields, _whole: Fields) -> dict[str, Any]:
    """GLM-4.1V's and 4.5V's, whose feed-forward blocks have out_hidden_size; a merger has intermediate_size."""
    hidden, text, side = (
        vision.count("hidden_size"),
        vision.count("out_hidden_size"),
        vision.count("spatial_merge_size"),
    )
    own = vision.having({"intermediate_size": text})
    numbers = COLOURS * vision.count("temporal_patch_size") * vision.count("patch_size") ** 2
    embedding = (numbers + 1 + _patches(vision) + 2) * hidden
    downsample = side**2 * hidden * text + text
    merger = text**2 + 2 * text + 3 * text * vision.count("intermediate_size")
    parameters = embedding + layers(own, biases=False, gated=True) + downsample + merger
    return encoder(own, parameters, GLM_TOKENS, side**2, gated=True, rotary=True)


def _ernie(vision: Fields, whole: Fields) -> dict[str, Any]:
    """ERNIE 4.5 VL's with its resampler, and the experts that images alone choose, which text leaves idle."""
    hidden, text = vision.count("hidden_size"), whole.count(*HIDDEN)
    inputs = vision.count("spatial_merge_size") ** 2 * hidden
    numbers = COLOURS * vision.count("patch_size") ** 2
    tower = (numbers + 2) * hidden + layers(vision, biases=True, gated=False)
    frames = whole.maybe("temporal_conv_size") or vision.maybe("temporal_merge_size") or 2
    resampler = _two(inputs, inputs, inputs) + _two(frames * inputs, inputs, inputs) + 4 * inputs
    projector = (inputs + 1) * text + text
    experts = whole.maybe("experts_of_images") or 0
    return encoder(vision, tower + resampler + projector + experts, ERNIE_TOKENS, 4, gated=False, rotary=True)


def _lfm2(vision: Fields, whole: Fields) -> dict[str, Any]:
    """LFM2-VL: f^2 patches side by side, a norm if stated, and two layers."""
    merged = (whole.maybe("downsample_factor") or 2) ** 2
    inputs, between = merged * vision.count("hidden_size"), whole.maybe("projector_hidden_size") or 2560
    norm = 0 if whole.raw.get("projector_use_layernorm") is False else 2 * inputs
    parameters = siglip(vision) + norm + _two(inputs, between, whole.count(*HIDDEN))
    return encoder(vision, parameters, LFM2_TILES * LFM2_TOKENS, merged, gated=False)


def _paddle(vision: Fields, whole: Fields) -> dict[str, Any]:
    """PaddleOCR-VL: SigLIP without a head, a norm, f^2 patches side by side and two layers."""
    hidden = vision.count("hidden_size")
    inputs = vision.count("spatial_merge_size") ** 2 * hidden
    parameters = siglip(vision, pools=False) + 2 * hidden + _two(inputs, inputs, whole.count(*HIDDEN))
    return encoder(vision, parameters, PADDLE_TOKENS, inputs // hidden, gated=False)


def _minicpm(vision: Fields, whole: Fields) -> dict[str, Any]:
    """MiniCPM-V: SigLIP without a head, and a resampler that attends from query_num vectors to 1,024 patches."""
    text, queries = whole.count(*HIDDEN), whole.maybe("query_num") or 64
    resampler = (vision.count("hidden_size") + queries + 10) * text + 5 * text**2
    parameters = siglip(vision, pools=False) + resampler
    return encoder(vision, parameters, MINICPM_SLICES * queries, -(-1024 // queries), gated=False)


def _phi3(vision: Fields, whole: Fields) -> dict[str, Any]:
    """Phi 3 Vision: CLIP, four patches side by side, two layers, and two vectors for the ends of rows and crops."""
    inputs, text = 4 * vision.count("hidden_size"), whole.count(*HIDDEN)
    parameters = _clip(vision) + _two(inputs, text, text) + 2 * inputs
    return encoder(vision, parameters, PHI_TILES * _patches(vision) // 4, 4, gated=False)


def _deepseek_vl2(vision: Fields, whole: Fields) -> dict[str, Any] | None:
    """DeepSeek-VL2: SigLIP in words of its own, four patches side by side, two layers, and two vectors for the ends.

    None for DeepSeek-OCR's, which is two encoders.
    """
    if isinstance(vision.raw.get("width"), Mapping):
        return None
    hidden, text = vision.count("width"), whole.count(*HIDDEN)
    shape = {"hidden_size": hidden, LAYERS[0]: vision.count("layers")}
    own = vision.having({**shape, "intermediate_size": SO400M_WIDTH})
    tile = -(-(own.count("image_size") // own.count("patch_size")) // 2)
    parameters = siglip(own) + _two(4 * hidden, text, text) + 2 * text
    return encoder(own, parameters, ONEVISION_TILES * tile**2, 4, gated=False)


def _mllama(vision: Fields, whole: Fields) -> dict[str, Any]:
    """Llama 3.2 Vision's: two encoders with tables of tiles, and the layers of the language model that read images."""
    hidden, width, text = vision.count("hidden_size"), vision.count("intermediate_size"), whole.count(*HIDDEN)
    tiles, ratios = vision.count("max_num_tiles"), len(vision.each("supported_aspect_ratios") or _RATIOS) + 1
    positions = (_patches(vision) + 1) * hidden
    embedding = hidden + COLOURS * vision.count("patch_size") ** 2 * hidden + positions + 4 * hidden
    tables = ratios * tiles * (positions + 2 * hidden) + 3
    deep, further = vision.count(LAYERS[0]), vision.count("num_global_layers")
    blocks = (deep + further) * (4 * hidden**2 + 2 * hidden * width + width + 5 * hidden) + 2 * further
    projector = (vision.count("vision_output_dim") + 1) * text
    own = embedding + tables + blocks + projector + IMAGE_ENTRIES * text
    tokens = tiles * (_patches(vision) + 1)
    return encoder(vision, own + cross_attention_parameters(whole), tokens, 1, gated=False)


_RATIOS = range(8)
_MLLAMA = {
    **{"hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_global_layers": 8},
    **{"image_size": 448, "patch_size": 14, "max_num_tiles": 4, "vision_output_dim": 7680},
}
_L14 = {
    **{"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24},
    **{"image_size": 336, "patch_size": 14},
}
_BASE = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "image_size": 224, "patch_size": 16}
_SO400M = {
    **{"hidden_size": 1152, "intermediate_size": SO400M_WIDTH, "num_hidden_layers": 27},
    **{"image_size": 384, "patch_size": 14},
}
_GLM = {
    **{"depth": 24, "hidden_size": 1536, "image_size": 336, "patch_size": 14, "out_hidden_size": 4096},
    **{"intermediate_size": 13696, "spatial_merge_size": 2, "temporal_patch_size": 2},
}
_ERNIE = {
    **{"depth": 32, "hidden_size": 1280, "intermediate_size": 5120, "patch_size": 14},
    **{"spatial_merge_size": 2, "temporal_merge_size": 2},
}
_PIXTRAL = {**_L14, "image_size": 1024, "patch_size": 16}
_INTERN = {**_L14, "image_size": 448}
CLIP, SIGLIP, PIXTRAL = "clip_vision_model", "siglip_vision_model", "pixtral"
_GLM4V = (VisionType(_GLM, _glm4v),)
_IDEFICS3 = (VisionType({**_BASE, "hidden_size": 1152, "patch_size": 32}, _idefics3),)
_INTERNVL, _ERNIE_VL = (VisionType(_INTERN, _internvl),), (VisionType(_ERNIE, _ernie),)
_LFM2_VL = (VisionType({**_BASE, "num_patches": 256}, _lfm2),)
_VL2 = {"image_size": 384, "patch_size": 14, "width": 1152, "layers": 27}
TOWERS: dict[str, tuple[VisionType, ...]] = {  # by the model_type of the whole; the first where none is stated
    "aya_vision": (VisionType(_BASE, _cohere(norm=True), SIGLIP),),
    "cohere2_vision": (VisionType(_BASE, _cohere(norm=False), SIGLIP),),
    "deepseek_vl_v2": (VisionType(_VL2, _deepseek_vl2),),
    "ernie4_5_moe_vl": _ERNIE_VL,
    "ernie4_5_vl_moe": _ERNIE_VL,
    "glm46v": _GLM4V,
    "glm4v": _GLM4V,
    "glm4v_moe": _GLM4V,
    "idefics3": _IDEFICS3,
    "internvl": _INTERNVL,
    "internvl_chat": _INTERNVL,
    "lfm2-vl": _LFM2_VL,
    "lfm2_vl": _LFM2_VL,
    "llava": (
        VisionType(_L14, _llava(_clip, 1), CLIP),
        VisionType(_BASE, _llava(siglip, 1), SIGLIP),
        VisionType(_PIXTRAL, _llava(pixtral, 1, gated=True), PIXTRAL),
    ),
    "llava_next": (
        VisionType(_L14, _llava(_clip, LLAVA_TILES), CLIP),
        VisionType(_BASE, _llava(siglip, ONEVISION_TILES), SIGLIP),
    ),
    "llava_onevision": (VisionType(_BASE, _llava(siglip, ONEVISION_TILES), SIGLIP),),
    "minicpmv": (VisionType({**_SO400M, "image_size": 980}, _minicpm),),
    "mllama": (VisionType(_MLLAMA, _mllama),),
    "paddleocr_vl": (VisionType({**_SO400M, "spatial_merge_size": 2}, _paddle),),
    "phi3_v": (VisionType(_L14, _phi3),),
    "smolvlm": _IDEFICS3,
}
