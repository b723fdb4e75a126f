"""Rules of hybrids that list layers in words of their own: Kimi Linear, LFM2, Granite 4, Falcon-H1, Step, Laguna.

As in hf_rules.py: a layer is a pair of a mixer and a feed-forward block, and every rule raises ProfileError for a
missing or malformed field. Source: the configuration files of transformers 5.23.0.
"""

from collections.abc import Mapping
from typing import Any

from simulator.models.hf_fields import HEADS, HIDDEN, KV_HEADS, Fields
from simulator.models.hf_rules import Derived, LayerKind

LOCAL, LAST = "sliding_attention", "moe_layer_end_index"


def _first_dense(fields: Fields, name: str, layers: int) -> list[str]:
    """Return the feed-forward block of each layer: dense in the first ones, whose number a field states."""
    dense = fields.maybe(name) or 0
    return ["dense" if layer < dense else "experts" for layer in range(layers)]


def kimi_layers(fields: Fields, layers: int) -> list[LayerKind]:
    """Return the kind of each layer of Kimi Linear, whose config counts them from 1.

    Raises ProfileError if its two lists do not name each layer once.
    """
    stated = fields.part("linear_attn_config")
    full, linear = stated.each("full_attn_layers") or [], stated.each("kda_layers") or []
    numbers = range(1, layers + 1)
    if any((number in full) == (number in linear) for number in numbers):
        raise stated.error(
            "kda_layers", f"with full_attn_layers it does not name {layers} layers once", "Name each in one of the two"
        )
    mixers = ("global" if number in full else "linear" for number in numbers)
    return list(zip(mixers, _first_dense(fields, "first_k_dense_replace", layers), strict=True))


def kimi_delta(fields: Fields) -> dict[str, Any]:
    """Return the profile of the linear attention of Kimi Linear and Kimi K3."""
    stated = fields.part("linear_attn_config")
    return {
        "kind": "kimi_delta",
        "heads": stated.count("num_heads"),
        "head_dim": stated.count("head_dim"),
        "conv": stated.count("short_conv_kernel_size"),
        **({"full_gate": True} if stated.flag("use_full_rank_gate") else {}),
    }


def ling_layers(fields: Fields, layers: int) -> list[LayerKind]:
    """Return the kind of each layer of Ling 3: full attention ends each group of `layer_group_size`, and the layers."""
    group = fields.count("layer_group_size")
    whole = layers // group * group  # layers beyond whole groups have full attention, too
    mixers = ("global" if layer % group == group - 1 or layer >= whole else "linear" for layer in range(layers))
    return list(zip(mixers, _first_dense(fields, "first_k_dense_replace", layers), strict=True))


def ling_delta(fields: Fields) -> dict[str, Any]:
    """Return the profile of the linear attention of Ling 3, whose decay and gate have full rank.

    In configs that transformers wrote, `head_dim` is that of the positions of its other layers.
    """
    return {
        "kind": "kimi_delta",
        "heads": fields.count("linear_num_heads", "num_attention_heads"),
        "head_dim": fields.count("linear_head_dim", "head_dim"),
        "conv": fields.count("short_conv_kernel_size", "linear_conv_kernel_dim"),
        "full_gate": True,
        "full_decay": True,
    }


def glm_delta(fields: Fields) -> dict[str, Any]:
    """Return the profile of the linear attention of GLM-5.3-Flash, whose config states it as Kimi's or in words."""
    if fields.part("linear_attn_config").raw:
        return kimi_delta(fields)
    names = {"heads": "linear_num_heads", "head_dim": "linear_head_dim", "conv": "linear_conv_kernel_dim"}
    return {"kind": "kimi_delta", **{name: fields.count(field) for name, field in names.items()}}


def kimi_residuals(fields: Fields) -> Derived:
    """Return two more norms where layers mix outputs of earlier blocks (Kimi K3's attention residuals, one norm each).

    What the mixing itself reads, a vector of each block of layers before, is counted as a norm's traffic.
    """
    return {}, ({"norms": 4} if fields.maybe("attn_res_block_size") else {})


def lfm2(fields: Fields) -> Derived:
    """Return the feed-forward width of a dense LFM2, two thirds of what is stated and rounded up; and its tied ends."""
    tied = fields.flag("tie_embedding") if "tie_embedding" in fields.raw else fields.flag("tie_word_embeddings")
    width = fields.count("block_ff_dim", "intermediate_size")
    if fields.flag("block_auto_adjust_ff_dim"):
        multiple = fields.count("block_multiple_of")
        width = -(-(2 * width // 3) // multiple) * multiple
    if fields.raw.get("block_ffn_dim_multiplier") not in (None, 1, 1.0):
        raise fields.refusal("block_ffn_dim_multiplier", "only 1 is modelled")
    return {"tie_word_embeddings": tied, "intermediate_size": width}, {}


def lfm2_layers(fields: Fields, layers: int) -> list[LayerKind]:
    """Return the kind of each layer of LFM2 and LFM3: attention where the config says so, else a short convolution.

    Raises ProfileError if neither list is there.
    """
    listed, chosen = fields.each("layer_types"), fields.each("full_attn_idxs")
    if (listed is None and chosen is None) or (listed is not None and len(listed) != layers):
        raise fields.error("layer_types", f"it does not name {layers} layers", "Add it")
    full = [layer for layer, kind in enumerate(listed) if kind == "full_attention"] if listed else chosen or []
    routed = fields.maybe("num_experts") or 0
    ffns = _first_dense(fields, "num_dense_layers", layers) if routed else ["dense"] * layers
    windowed = [layer for layer, kind in enumerate(listed or ()) if kind == "sliding_attention"]
    kinds = ["global" if layer in full else "local" if layer in windowed else "linear" for layer in range(layers)]
    return list(zip(kinds, ffns, strict=True))


def short_convolution(fields: Fields) -> dict[str, Any]:
    """Return the profile of the short convolution of LFM2."""
    return {"kind": "short_convolution", "channels": fields.count(*HIDDEN), "conv": fields.count("conv_L_cache")}


def granite_layers(fields: Fields, layers: int) -> list[LayerKind]:
    """Return the kind of each layer of Granite 4, whose feed-forward blocks are all alike.

    Raises ProfileError if its list does not name each layer.
    """
    listed = fields.each("layer_types") or []
    known = {"mamba": "linear", "linear_attention": "linear", "attention": "global", "full_attention": "global"}
    if len(listed) != layers or not all(str(kind) in known for kind in listed):
        raise fields.error(
            "layer_types", f"it does not name {layers} layers of mamba and attention", "Name one for each layer"
        )
    ffn = "experts" if fields.maybe("num_local_experts") else "dense"
    return [(known[str(kind)], ffn) for kind in listed]


def granite_mamba2(fields: Fields) -> dict[str, Any]:
    """Return the profile of the Mamba-2 layer of Granite 4."""
    heads = fields.count("mamba_n_heads")
    inner = fields.maybe("mamba_d_ssm") or fields.count("mamba_expand") * fields.count(*HIDDEN)
    stated = None if fields.raw.get("mamba_d_head") == "auto" else fields.maybe("mamba_d_head")
    return {
        "kind": "mamba2",
        "heads": heads,
        "head_dim": stated or inner // heads,
        "state": fields.count("mamba_d_state"),
        "groups": fields.count("mamba_n_groups"),
        "conv": fields.count("mamba_d_conv"),
    }


def falcon_h1_layers(_fields: Fields, layers: int) -> list[LayerKind]:
    """Return two blocks for each layer of Falcon-H1: Mamba-2, then attention and the feed-forward block.

    Both mixers read the same input, and their outputs are added; one after the other they hold, read and compute the
    same, with one norm each.
    """
    return [("linear", "none"), ("global", "dense")] * layers


def falcon_h1_mamba2(fields: Fields) -> dict[str, Any]:
    """Return the profile of the Mamba-2 part of a layer of Falcon-H1, whose inner width is stated."""
    told = {"conv_bias": fields.flag("mamba_conv_bias"), "gated_norm": fields.flag("mamba_rms_norm")}
    return {**granite_mamba2(fields), **told}


def ernie(fields: Fields) -> Derived:
    """Return the first layer with experts of ERNIE 4.5. Raises NotModelledError if later ones have none."""
    layers, last = fields.maybe("num_hidden_layers"), fields.raw.get("moe_layer_end_index")
    if last not in (None, -1, (layers or 0) - 1):
        raise fields.refusal("moe_layer_end_index", "dense layers after those with experts are not modelled")
    step = {"decoder_sparse_step": fields.maybe("moe_layer_interval") or 1}
    return {"first_k_dense_replace": fields.maybe("moe_layer_start_index"), **step}, {}


def ernie_vl(fields: Fields) -> Derived:
    """Return the experts of text of ERNIE 4.5 VL, which lists them before those of images, and count the latter.

    An expert of images has 3 h i parameters, h + 1 of the router. Raises ProfileError for a malformed list.
    """
    first: dict[str, Any] = {}
    second: dict[str, Any] = {}
    for name in ("moe_num_experts", "moe_intermediate_size", "moe_layer_start_index", LAST):
        value = fields.raw.get(name)
        pair = value if isinstance(value, list) and len(value) == 2 else [value, value]
        first[name], second[name] = pair
    images, final = fields.having(second), fields.count("num_hidden_layers") - 1
    ends = [min(each, final) if isinstance(each, int) else final for each in (first[LAST], second[LAST])]
    first[LAST] = ends[0]  # the config's own are beyond the last layer
    routed = (fields.each("mlp_layer_types") or []).count("sparse")
    routed = routed or ends[1] - (images.maybe("moe_layer_start_index") or 0) + 1
    hidden = fields.count(*HIDDEN)
    expert = 3 * hidden * images.count("moe_intermediate_size") + hidden + 1
    count = routed * images.count("moe_num_experts") * expert
    derived, changes = ernie(fields.having(first))
    return {**first, **derived, "experts_of_images": count}, changes


def deepseek(fields: Fields) -> Derived:
    """Return whether a DeepSeek-V2 has latent attention: its small mixtures of experts switch it off."""
    return {}, {"latent": fields.raw.get("use_mla") is not False}


def afmoe(fields: Fields) -> Derived:
    """Return the dense layers of Trinity, which come first, and how often a layer has no window."""
    every = fields.maybe("global_attn_every_n_layers") or 4
    return {"first_k_dense_replace": fields.maybe("num_dense_layers"), "sliding_window_pattern": every}, {}


def expert_layers(fields: Fields) -> set[int]:
    """Return the layers of moe_layers_enum, as '3,4,5' or [3, 4, 5]. Raises ProfileError for anything else."""
    stated = fields.raw.get(name := "moe_layers_enum")
    each = stated.split(",") if isinstance(stated, str) else stated
    if not isinstance(each, list) or not all(str(layer).strip().isdigit() for layer in each):
        raise fields.error(name, f"{stated!r} is not a list of layers, as '3,4,5'", "Write numbers with commas between")
    return {int(layer) for layer in each}


def step_layers(fields: Fields, layers: int) -> list[LayerKind]:
    """Return the kind of each layer of Step 3.5; its list goes on with prediction layers, which are left out.

    Raises ProfileError if a list is too short or malformed.
    """
    listed, experts = fields.each("layer_types") or [], expert_layers(fields)
    if len(listed) < layers:
        raise fields.error("layer_types", f"it names {len(listed)} of {layers} layers", "Name one for each layer")
    return [
        ("local" if kind == LOCAL else "global", "experts" if layer in experts else "dense")
        for layer, kind in enumerate(listed[:layers])
    ]


def step_shape(fields: Fields, kind: str) -> Mapping[str, Any]:
    """Return the gate of Step 3.5's attention, and the heads of its layers with a window."""
    gate = {"head_gate": fields.flag("use_head_wise_attn_gate")}
    other = fields.part("attention_other_setting")
    if kind != "local" or not other.raw:
        return gate
    shape = {"heads": other.count(*HEADS), "kv_heads": other.count(*KV_HEADS), "head_dim": other.maybe("head_dim")}
    return {**gate, **{name: size for name, size in shape.items() if size}}


def laguna_shape(fields: Fields, kind: str) -> Mapping[str, Any]:
    """Return the gate of Laguna's attention, and the heads of one kind of its layers.

    Raises NotModelledError if layers of a kind differ.
    """
    gating = fields.raw.get("gating", True)
    if gating not in (True, False, "per-head", "per-element"):
        raise fields.error("gating", f"{gating!r} is neither per-head nor per-element", "Write one of the two")
    gate = {"head_gate": gating in (True, "per-head"), "gate": gating == "per-element"}
    heads, types = fields.each("num_attention_heads_per_layer"), fields.each("layer_types") or []
    if heads is None:
        return gate
    alike = [count for count, each in zip(heads, types, strict=False) if (each == LOCAL) == (kind == "local")]
    if not alike or any(count != alike[0] for count in alike):
        raise fields.refusal("num_attention_heads_per_layer", "layers of one kind that differ in it are not modelled")
    return {**gate, "heads": Fields({HEADS[0]: alike[0]}, fields.where).count(*HEADS)}
