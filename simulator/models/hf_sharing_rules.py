"""Rules of architectures that share or skip a part: caches, embeddings, queries, experts, layers for images.

Gemma 3n and the small Gemma 4, Hunyuan-Large, Step-3, MiMo-V2-Flash, LongCat-Flash, Llama 3.2 Vision. As in
hf_rules.py: every rule raises ProfileError for a missing or malformed field. Source: the configuration and modelling
files of transformers 5.24.0; of Step-3, vLLM's (step3_text.py), of Hunyuan-Large its publisher's (arXiv:2411.02265).
"""

from collections.abc import Mapping
from typing import Any

from simulator.models.hf_fields import HEADS, HIDDEN, KV_HEADS, Fields
from simulator.models.hf_layer_rules import LOCAL, expert_layers
from simulator.models.hf_rules import Derived, LayerKind

SPARSE = "sparse"  # layers that attend to chosen blocks


def last_reused(layer: int, fields: Fields) -> bool:
    """Return whether a layer of Gemma reads what an earlier one of its kind cached: the last `num_kv_shared_layers`."""
    return layer >= fields.count("num_hidden_layers") - (fields.maybe("num_kv_shared_layers") or 0)


def between_reused(layer: int, fields: Fields) -> bool:
    """Return whether a layer of Hunyuan-Large caches nothing: all but each `cla_share_factor`th, where that is used."""
    return fields.flag("use_cla") and layer % fields.count("cla_share_factor") != 0


def layer_inputs(fields: Fields) -> dict[str, Any] | None:
    """Return the embeddings of each layer's own of Gemma 3n and Gemma 4, None without them."""
    width = fields.maybe("hidden_size_per_layer_input")
    if not width:
        return None
    streams = fields.maybe("altup_num_inputs") or 1
    return {
        "vocab": fields.count("vocab_size_per_layer_input", "vocab_size"),
        "width": width,
        "layers": fields.count("num_hidden_layers"),
        **({"streams": streams} if streams > 1 else {}),
    }


def beside(fields: Fields) -> list[dict[str, Any]]:
    """Return the small paths of a layer of Gemma 3n, and of Gemma 4 where it has embeddings of its own."""
    ranks = (fields.maybe("laurel_rank"), fields.maybe("hidden_size_per_layer_input"))
    streams = fields.maybe("altup_num_inputs")
    paths: list[dict[str, Any]] = [{"kind": "low_rank", "width": rank} for rank in ranks if rank]
    return [*paths, {"kind": "altup", "streams": streams}] if streams else paths


def block_sparse_layers(fields: Fields, layers: int) -> list[LayerKind]:
    """Return the kind of each layer of MiniMax-M3, by the lists of zeros and ones that its config has."""
    sparse = fields.part("sparse_attention_config").each("sparse_attention_freq") or [0] * layers
    routed = fields.each("moe_layer_freq") or [1] * layers
    if len(sparse) != layers or len(routed) != layers:
        because = f"it and sparse_attention_freq do not name {layers} layers"
        raise fields.error("moe_layer_freq", because, "Write one number for each layer in both")
    return [
        (SPARSE if chooses else "global", "experts" if experts else "dense")
        for chooses, experts in zip(sparse, routed, strict=True)
    ]


def block_sparse_shape(fields: Fields, kind: str) -> Mapping[str, Any]:
    """Return the indexer of MiniMax-M3's sparse layers, and the tokens of the blocks that it chooses."""
    if kind != SPARSE:
        return {}
    stated = fields.part("sparse_attention_config")
    index = {"heads": stated.count("sparse_num_index_heads"), "head_dim": stated.count("sparse_index_dim")}
    chosen = stated.count("sparse_topk_blocks") * stated.count("sparse_block_size")
    return {"window": chosen, "indexer": index}


def gemma3n(fields: Fields) -> Derived:
    """Return the feed-forward width of Gemma 3n, which lists it for each layer.

    Raises NotModelledError if layers differ in it.
    """
    width = fields.raw.get("intermediate_size")
    if isinstance(width, list):
        if not width or any(each != width[0] for each in width):
            raise fields.refusal("intermediate_size", "layers that differ in it are not modelled")
        width = width[0]
    return {"intermediate_size": width}, {"norms": 4 + sum(path["kind"] == "low_rank" for path in beside(fields))}


def mllama(fields: Fields) -> Derived:
    """Return the layers of Llama 3.2 Vision that text runs through: those with cross-attention need an image."""
    cross = fields.each("cross_attention_layers") or []
    return {"num_hidden_layers": fields.count("num_hidden_layers") - len(cross)}, {}


def longcat_layers(_fields: Fields, layers: int) -> list[LayerKind]:
    """Return three blocks for each layer of LongCat-Flash: two of attention and a dense block, one of experts.

    The experts compute beside the second attention, which their result skips; one after the other they hold, read and
    compute the same.
    """
    return [("global", "dense"), ("none", "experts"), ("global", "dense")] * layers


def longcat(fields: Fields) -> Derived:
    """Return the mean number of experts that compute of those that LongCat-Flash chooses.

    Raises NotModelledError if it is not whole.
    """
    experts, zero, chosen = (
        fields.count("n_routed_experts"),
        fields.maybe("zero_expert_num") or 0,
        fields.count("moe_topk"),
    )
    if chosen * experts % (experts + zero):
        raise fields.refusal("zero_expert_num", "a mean number of experts that is not whole is not modelled")
    return {"moe_topk": chosen * experts // (experts + zero)}, {}


def step3_layers(fields: Fields, layers: int) -> list[LayerKind]:
    """Return the kind of each layer of Step-3, whose experts' layers are listed."""
    experts = expert_layers(fields)
    return [("global", "experts" if layer in experts else "dense") for layer in range(layers)]


def step3_shape(fields: Fields, _kind: str) -> Mapping[str, Any]:
    """Return the width of the vector from which Step-3's queries start."""
    return {"q_lora": fields.count("share_q_dim")}


def mimo_layers(fields: Fields, layers: int) -> list[LayerKind]:
    """Return the kind of each layer of MiMo-V2-Flash, from lists of ones and zeros or of names.

    Raises ProfileError if a list does not name each layer.
    """
    windows, routed = fields.each("hybrid_layer_pattern"), fields.raw.get("moe_layer_freq")
    if windows is None:
        windows = [each == LOCAL for each in fields.each("layer_types") or ()]
    if not isinstance(routed, list):
        routed = [each == "sparse" for each in fields.each("mlp_layer_types") or ()]
    if len(windows) != layers or len(routed) != layers:
        because = f"it names {len(windows)} of {layers} layers, moe_layer_freq {len(routed)}"
        raise fields.error("hybrid_layer_pattern", because, "Write one value for each layer in both")
    return [
        ("local" if window else "global", "experts" if expert else "dense")
        for window, expert in zip(windows, routed, strict=True)
    ]


def mimo_shape(fields: Fields, kind: str) -> Mapping[str, Any]:
    """Return the width of MiMo-V2-Flash's values, and the heads and sinks of its layers with a window."""
    if kind != "local":
        return {"v_dim": fields.count("v_head_dim")}
    return {
        "heads": fields.count("swa_num_attention_heads", *HEADS),
        "kv_heads": fields.maybe("swa_num_key_value_heads") or 2 * fields.count(*KV_HEADS),
        "head_dim": fields.count("swa_head_dim", "head_dim"),
        "v_dim": fields.count("swa_v_head_dim", "v_head_dim"),
        "sinks": fields.raw.get("add_swa_attention_sink_bias") is not False,
        "window": fields.count("sliding_window_size", "sliding_window"),
    }


def cross_attention_parameters(fields: Fields) -> int:
    """Return the parameters of the layers of Llama 3.2 Vision that run where there is an image, with their gates."""
    hidden, heads = fields.count(*HIDDEN), fields.count(*HEADS)
    head = hidden // heads
    attention = 2 * hidden**2 + 2 * hidden * fields.count(*KV_HEADS) * head + 2 * head
    layer = attention + 3 * hidden * fields.count("intermediate_size") + 2 * hidden + 2
    return len(fields.each("cross_attention_layers") or ()) * layer
