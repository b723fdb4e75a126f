"""What the importers of vision encoders share: their fields, and the parameters of transformer layers."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from simulator.models.hf_fields import Fields

COLOURS = 3
LAYERS = ("num_hidden_layers", "depth", "vt_num_hidden_layers")
HIDDEN_OF_VISION = ("hidden_size", "vt_hidden_size")
WIDTH_OF_VISION = ("intermediate_size", "vt_intermediate_size")


class VisionType(NamedTuple):
    """A kind of vision encoder: its class defaults in transformers 5.24.0, and how its fields become a profile's.

    `encoder` takes the fields of vision_config with these defaults, and those of the whole config; None for one that is
    not modelled. `kind`: model_type of the vision_config, where the model has a choice.
    """

    defaults: Mapping[str, Any]
    encoder: Callable[[Fields, Fields], dict[str, Any] | None]
    kind: str = ""


def layers(vision: Fields, *, biases: bool, gated: bool) -> int:
    """Return the parameters of all layers, with two norms each: 4 h^2 + 2 h i (gated: 3 h i), biases and norms.

    Raises ProfileError for a field that is missing or malformed.

    >>> layers(Fields({"hidden_size": 2, "intermediate_size": 3, "depth": 10}, "c.json"), biases=False, gated=True)
    380
    """
    hidden, width = vision.count(*HIDDEN_OF_VISION), vision.count(*WIDTH_OF_VISION)
    weights = 4 * hidden**2 + (3 if gated else 2) * hidden * width
    others = 5 * hidden + width + 4 * hidden if biases else 2 * hidden
    return vision.count(*LAYERS) * (weights + others)


def encoder(
    vision: Fields, parameters: int, image_tokens: int, patches: int, *, gated: bool, rotary: bool = False
) -> dict[str, Any]:
    """Return the mapping of a `VisionEncoder` with as many parameters, tokens an image and patches a token.

    Raises ProfileError for a field that is missing or malformed.
    """
    frames = vision.maybe("temporal_patch_size") or 1
    return {
        "parameters": {"value": parameters, "source": "config"},
        "hidden": vision.count(*HIDDEN_OF_VISION),
        "intermediate": vision.count(*WIDTH_OF_VISION),
        "image_tokens": image_tokens,
        "patches_per_token": patches,
        "patch_numbers": COLOURS * frames * vision.count("patch_size") ** 2,
        **({"gated": True} if gated else {}),
        **({"rotary": True} if rotary else {}),
    }
