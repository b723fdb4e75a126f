"""Rules of architectures for reading a config: the kind of each layer, special parts, fields derived from others.

The kind of a layer is a pair of a mixer and a feed-forward block: ("global" | "local" | "linear" | "none", "dense" |
"experts" | "none"); local attention has a window, linear means recurrent. Every rule raises ProfileError for a missing
or malformed field. Source: the configuration files of transformers 5.23.0.
"""

from collections.abc import Callable, Mapping
from typing import Any

from simulator.models.hf_fields import HIDDEN, KV_HEADS, WIDTH, Fields

LayerKind = tuple[str, str]
Derived = tuple[Mapping[str, Any], Mapping[str, Any]]  # fields, and what they change of the architecture
PATTERN = {"M": ("linear", "none"), "*": ("global", "none"), "-": ("none", "dense"), "E": ("none", "experts")}
BLOCKS = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E", "linear_attention": "M", "full_attention": "*"}
GATED_DELTA_NET_FIELDS = ("linear_num_value_heads", "full_attention_interval")
REUSED, WIDE = "-reused", "wide"  # ending of a mixer that reads an earlier one's cache or choice; a wide dense block
NEMOTRON_H_FIELDS = ("hybrid_override_pattern", "mamba_num_heads")


def never(_layer: int, _fields: Fields) -> bool:
    """Return False: no layer has a window."""
    return False


def always(_layer: int, fields: Fields) -> bool:
    """Return whether the config states a window, which every layer then has."""
    return fields.maybe("sliding_window") is not None


def alternate(layer: int, _fields: Fields) -> bool:
    """Return whether a layer has a window: every other one, the first included."""
    return layer % 2 == 0


def but_every_fourth(layer: int, _fields: Fields) -> bool:
    """Tell whether a layer has a window: all but the first and every fourth from there on."""
    return layer % 4 != 0


def by_pattern(layer: int, fields: Fields) -> bool:
    """Return whether a layer has a window: all but the last one of each pattern."""
    return (layer + 1) % fields.count("_sliding_window_pattern", "sliding_window_pattern") != 0


def by_letters(layer: int, fields: Fields) -> bool:
    """Return whether a layer of EXAONE 4 has a window: L, not G, in a pattern as LLLG; or else as `by_pattern`.

    Without `sliding_window` none has. Raises ProfileError for a pattern of other letters.
    """
    pattern = fields.raw.get("sliding_window_pattern")
    if fields.maybe("sliding_window") is None:
        return False
    if not isinstance(pattern, str):
        return by_pattern(layer, fields)
    if not pattern or set(pattern) - set("LG"):
        raise fields.error("sliding_window_pattern", f"{pattern!r} is not made of L and G", "Give a pattern as LLLG")
    return pattern[layer % len(pattern)] == "L"


def late(layer: int, fields: Fields) -> bool:
    """Return whether a layer has a window: from `max_window_layers` on, if windows are switched on."""
    return fields.flag("use_sliding_window") and layer >= fields.count("max_window_layers")


def _stored(fields: Fields, *names: str) -> str:
    """Return the format of a recurrent state: fp32 if the config says so, else the model's own type (vLLM's auto)."""
    stated = next((fields.raw[name] for name in names if fields.raw.get(name)), None)
    return "fp32" if stated == "float32" else "model"


def gated_delta_net(fields: Fields) -> dict[str, Any]:
    """Return the profile of the linear attention of Qwen3-Next and Qwen3.5."""
    return {
        "kind": "gated_delta_net",
        "key_heads": fields.count("linear_num_key_heads"),
        "value_heads": fields.count("linear_num_value_heads"),
        "key_dim": fields.count("linear_key_head_dim"),
        "value_dim": fields.count("linear_value_head_dim"),
        "conv": fields.count("linear_conv_kernel_dim"),
        "state_dtype": _stored(fields, "mamba_ssm_dtype"),
    }


def every_fourth(layer: int, fields: Fields) -> bool:
    """Return whether a layer of Qwen3-Next is recurrent: all but each `full_attention_interval`th."""
    return (layer + 1) % (fields.maybe("full_attention_interval") or 4) != 0


def mamba2(fields: Fields) -> dict[str, Any]:
    """Return the profile of the Mamba-2 layer of Nemotron-H."""
    return {
        "kind": "mamba2",
        "heads": fields.count("mamba_num_heads"),
        "head_dim": fields.count("mamba_head_dim"),
        "state": fields.count("ssm_state_size"),
        "groups": fields.count("n_groups"),
        "conv": fields.count("conv_kernel"),
        "state_dtype": _stored(fields, "mamba_ssm_cache_dtype"),
    }


def nemotron_h_layers(fields: Fields, layers: int) -> list[LayerKind]:
    """Return the kind of each layer of Nemotron-H from its pattern: M Mamba-2, * attention, - dense, E experts.

    Raises ProfileError if the pattern does not name each layer.
    """
    pattern = fields.raw.get("hybrid_override_pattern")
    if pattern is None:
        pattern = "".join(BLOCKS.get(str(each), "?") for each in fields.each("layers_block_type") or ())
    if not isinstance(pattern, str) or len(pattern) != layers or not set(pattern) <= set(PATTERN):
        because = f"it does not name {layers} layers of {', '.join(PATTERN)}"
        raise fields.error("hybrid_override_pattern", because, "Write one letter for each layer")
    return [PATTERN[each] for each in pattern]


def mamba(fields: Fields) -> dict[str, Any]:
    """Return the profile of the Mamba layer of Jamba."""
    hidden, rank = fields.count(*HIDDEN), fields.raw.get("mamba_dt_rank")
    return {
        "kind": "mamba",
        "inner": fields.count("mamba_expand") * hidden,
        "state": fields.count("mamba_d_state"),
        "step_rank": -(-hidden // 16) if rank == "auto" else fields.count("mamba_dt_rank"),
        "conv": fields.count("mamba_d_conv"),
    }


def jamba_layers(fields: Fields, layers: int) -> list[LayerKind]:
    """Return the kind of each layer of Jamba, from the periods and offsets of attention and experts."""
    attention = fields.count("attn_layer_period"), fields.maybe("attn_layer_offset") or 0
    experts = fields.count("expert_layer_period"), fields.maybe("expert_layer_offset") or 0
    routed = fields.count("num_experts") > 1
    return [
        (
            "global" if layer % attention[0] == attention[1] else "linear",
            "experts" if routed and layer % experts[0] == experts[1] else "dense",
        )
        for layer in range(layers)
    ]


def chunked(layer: int, fields: Fields) -> bool:
    """Return whether a layer of Llama 4 has chunked attention: those with rotary positions, three of four."""
    stated = fields.each("no_rope_layers")
    return bool(stated[layer]) if stated and layer < len(stated) else (layer + 1) % 4 != 0


def indexer(fields: Fields) -> dict[str, Any]:
    """Return the profile of the indexer of DeepSeek-V3.2's sparse attention."""
    return {
        "heads": fields.count("index_n_heads"),
        "head_dim": fields.count("index_head_dim"),
        "chosen": fields.count("index_topk"),
        **({"pool": fields.count("index_kpool")} if fields.maybe("index_kpool") else {}),
    }


def shares_index(layer: int, fields: Fields) -> bool:
    """Return whether a layer of GLM-5.2 uses the tokens that an earlier layer's indexer chose, as indexer_types say."""
    stated = fields.each("indexer_types") or ()
    unknown = set(map(str, stated)) - {"full", "shared"}
    if unknown:
        raise fields.refusal("indexer_types", f"layers of type {sorted(unknown)[0]!r} are not modelled")
    return layer < len(stated) and stated[layer] == "shared"


def shares_index_of_four(layer: int, fields: Fields) -> bool:
    """Return the same for Hy4, of which each fourth layer after the first has an indexer where none is listed."""
    return shares_index(layer, fields) if fields.each("indexer_types") else layer > 0 and (layer - 1) % 4 > 0


def gemma4_shape(fields: Fields, kind: str) -> Mapping[str, Any]:
    """Return how the global attention layers of Gemma 4 differ: larger heads, fewer KV heads, values made of keys."""
    if kind != "global":
        return {}
    shared = fields.flag("attention_k_eq_v")
    heads = fields.maybe("num_global_key_value_heads") if shared else None
    return {
        "head_dim": fields.maybe("global_head_dim") or 512,
        **({"kv_heads": heads} if heads else {}),
        **({"shared_kv": True} if shared else {}),
    }


def falcon(fields: Fields) -> Derived:
    """Return KV heads, width and norms of Falcon: early models have one KV head, later ones groups and two norms."""
    grouped, parallel = fields.flag("new_decoder_architecture"), fields.flag("parallel_attn")
    kv_heads = fields.maybe(*KV_HEADS) if grouped else 1 if fields.flag("multi_query") else None
    width = fields.maybe(*WIDTH) or 4 * fields.count(*HIDDEN)
    norms = (fields.maybe("num_ln_in_parallel_attn") or (2 if grouped else 1)) if parallel else 2
    return {"num_key_value_heads": kv_heads, "intermediate_size": width}, {"norms": norms, "parallel": parallel}


def four_fold(fields: Fields) -> Derived:
    """Return the feed-forward width where a config leaves it out: `expansion_ratio` (4) times the hidden size."""
    times = fields.maybe("expansion_ratio") or 4
    return {"intermediate_size": fields.maybe(*WIDTH) or times * fields.count(*HIDDEN)}, {}


def parallel_residual(fields: Fields) -> Derived:
    """Return whether attention and feed-forward block read the same input."""
    return {}, {"parallel": fields.flag("use_parallel_residual")}


def hunyuan(fields: Fields) -> Derived:
    """Return the fields that Hunyuan lists per layer, and the width of its shared expert.

    Raises NotModelledError if layers differ in them.
    """
    found: dict[str, Any] = {}
    for name in ("moe_intermediate_size", "moe_topk", "num_shared_expert"):
        value = fields.raw.get(name)
        if isinstance(value, list) and len({str(each) for each in value}) != 1:
            raise fields.refusal(name, "layers that differ in it are not modelled")
        found[name] = value[0] if isinstance(value, list) else value
    stated = Fields(found, fields.where)
    width = stated.maybe("moe_intermediate_size") or fields.count(*WIDTH)
    shared = {"shared_expert_intermediate_size": (stated.maybe("num_shared_expert") or 0) * width}
    return {**found, **shared, "moe_intermediate_size": width}, {}


def gemma4(fields: Fields) -> Derived:
    """Return the fields of Gemma 4's experts, if it has any.

    Raises NotModelledError for bidirectional attention.
    """
    if fields.raw.get("use_bidirectional_attention") == "all":
        raise fields.refusal("use_bidirectional_attention", "bidirectional attention: not modelled")
    if not fields.flag("enable_moe_block"):
        return {"num_experts": 0}, {"norms": 5} if fields.maybe("hidden_size_per_layer_input") else {}
    return {"shared_intermediate_size": fields.count(*WIDTH)}, {}


def halved(fields: Fields) -> Derived:
    """Return the feed-forward width where the config states that of gate and up projection together."""
    return {"intermediate_size": fields.count("intermediate_size") // 2}, {}


def molmo(fields: Fields) -> Derived:
    """Return the feed-forward width of Molmo, `halved`, and whether its ends are tied."""
    width, _ = halved(fields)
    return {**width, "tie_word_embeddings": fields.flag("weight_tying")}, {}


def opt(fields: Fields) -> Derived:
    """Return nothing, but raise NotModelledError for the OPT size whose embeddings are narrower than its layers."""
    if fields.maybe("word_embed_proj_dim") not in (None, fields.count(*HIDDEN)):
        raise fields.refusal("word_embed_proj_dim", "embeddings of another width are not modelled")
    return {}, {}


def positions(extra: int = 0) -> Callable[[Fields], int]:
    """Return a function that counts the learned positions of a config: its context and `extra` more."""
    return lambda fields: fields.count("max_position_embeddings", "n_positions") + extra
