"""The kind of each layer of a config: by the lists that it states, or else by the rules of its architecture."""

from collections.abc import Mapping
from typing import TypeVar

from simulator.errors import NotModelledError
from simulator.models.hf_architecture import ModelType
from simulator.models.hf_fields import CONTEXT, EXPERTS, LAYERS, Fields
from simulator.models.hf_rules import REUSED, WIDE, LayerKind

MAX_LAYERS = 1000
T = TypeVar("T")


def layer_kinds(fields: Fields, model_type: ModelType) -> list[LayerKind]:
    """Return the kind of each layer's parts; a layer whose window covers the whole context counts as global.

    Raises ProfileError for a field that is missing or malformed, NotModelledError for a kind that is not modelled.
    """
    layers = fields.maybe(*LAYERS) or len(fields.each("layers_block_type") or ()) or fields.count(*LAYERS)
    if layers > MAX_LAYERS:
        raise fields.error(LAYERS[0], f"{layers} layers are more than {MAX_LAYERS}", f"Write {MAX_LAYERS} at most")
    if model_type.layers:
        return model_type.layers(fields, layers)
    ffns = ["experts" if routed else "dense" for routed in _sparse(fields, model_type, layers)]
    mixers = _mixer_kinds(fields, model_type, layers)
    reused = [model_type.reused(layer, fields) for layer in range(layers)]
    wide = fields.flag("use_double_wide_mlp")  # of Gemma 4 E2B, in layers that cache nothing
    return [
        (f"{mixer}{REUSED}" if borrows else mixer, WIDE if borrows and wide and ffn == "dense" else ffn)
        for mixer, ffn, borrows in zip(mixers, ffns, reused, strict=True)
    ]


def _mixer_kinds(fields: Fields, model_type: ModelType, layers: int) -> list[str]:
    local = "chunked_attention" if model_type.span == "attention_chunk_size" else "sliding_attention"
    known = {local: "local", "full_attention": "global"}
    known |= {"linear_attention": "linear"} if model_type.recurrent else {}
    known |= {"indexed_attention": "global"} if model_type.indexer else {}
    kinds = _per_layer(fields, "layer_types", known, layers)
    if any(kind != 1 for kind in fields.each("attn_type_list") or ()):
        raise fields.refusal("attn_type_list", "linear attention: not modelled")
    if kinds is None:
        kinds = [_mixer_kind(layer, fields, model_type) for layer in range(layers)]
    if "local" in kinds and fields.count(model_type.span) >= fields.count(*CONTEXT):
        kinds = ["global" if kind == "local" else kind for kind in kinds]
    return kinds


def _mixer_kind(layer: int, fields: Fields, model_type: ModelType) -> str:
    if model_type.linear(layer, fields):
        return "linear"
    return "local" if model_type.windowed(layer, fields) else "global"


def _sparse(fields: Fields, model_type: ModelType, layers: int) -> list[bool]:
    """Return whether each layer has routed experts; with null or 0 experts none has."""
    stated = next((name for name in EXPERTS if name in fields.raw), None)
    if stated and fields.maybe(*EXPERTS) and not model_type.expert_width:
        raise fields.refusal(stated, "experts are not modelled in this architecture")
    if not model_type.expert_width or (stated and not fields.maybe(*EXPERTS)):
        return [False] * layers
    listed = _per_layer(fields, "mlp_layer_types", {"sparse": True, "dense": False}, layers)
    if fields.each("moe_layers") is not None:
        return [layer in (fields.each("moe_layers") or ()) for layer in range(layers)]
    if listed is not None:
        return listed
    first, only = fields.maybe("first_k_dense_replace") or 0, fields.each("mlp_only_layers") or ()
    step = fields.maybe("decoder_sparse_step", "interleave_moe_layer_step") or 1
    every = fields.maybe("moe_layer_freq") or 1
    return [
        layer >= first and layer not in only and (layer + 1) % step == 0 and layer % every == 0
        for layer in range(layers)
    ]


def _per_layer(fields: Fields, name: str, known: Mapping[str, T], layers: int) -> list[T] | None:
    kinds = fields.each(name)
    if kinds is None:
        return None
    unknown = [kind for kind in kinds if str(kind) not in known]
    if unknown:
        raise NotModelledError(f"{fields.where}: {name} {unknown[0]!r}", "not modelled", f"Known: {', '.join(known)}")
    if len(kinds) != layers:
        raise fields.error(name, f"it names {len(kinds)} of {layers} layers", "Name one for each layer")
    return [known[kind] for kind in kinds]
