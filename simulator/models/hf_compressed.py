"""Rules of DeepSeek-V4: attention to local and compressed tokens, and experts that a table of tokens chooses.

As in hf_rules.py: every rule raises ProfileError for a missing or malformed field. Source: the configuration and
modelling files of transformers 5.24.0 (deepseek_v4).
"""

from typing import Any

from simulator.models.hf_fields import HEADS, Fields
from simulator.models.hf_rules import Derived, LayerKind

HASHED = "hashed"  # experts that a table chooses for each token: their router has no bias
LOCAL, SPARSE, HEAVY = "local", "sparse", "compressed"
BY_NAME = {"sliding_attention": LOCAL, "compressed_sparse_attention": SPARSE, "heavily_compressed_attention": HEAVY}
BY_RATIO = {0: LOCAL, 4: SPARSE, 128: HEAVY}
NAMES = {kind: name for name, kind in BY_NAME.items()}
RATIOS = {kind: ratio for ratio, kind in BY_RATIO.items()}
FFNS = {"hash_moe": HASHED, "moe": "experts"}


def compressed_layers(fields: Fields, layers: int) -> list[LayerKind]:
    """Return the kind of each layer, by the names in `layer_types` or the ratios in `compress_ratios`.

    Ratios beyond the last layer are those of layers of multi-token prediction, which are left out.
    """
    named = fields.each("layer_types")
    stated, known = (named, BY_NAME) if named is not None else (fields.each("compress_ratios") or [], BY_RATIO)
    mixers = [_known(fields, "layer_types" if named is not None else "compress_ratios", each, known) for each in stated]
    if len(mixers) < layers:
        raise fields.error("compress_ratios", f"it names {len(mixers)} of {layers} layers", "Name one for each layer")
    listed = fields.each("mlp_layer_types")
    hashed = fields.maybe("num_hash_layers") or 0
    if listed is None:
        return [(mixers[layer], HASHED if layer < hashed else "experts") for layer in range(layers)]
    ffns = [_known(fields, "mlp_layer_types", each, FFNS) for each in listed]
    return list(zip(mixers[:layers], ffns, strict=True))


def _known(fields: Fields, name: str, stated: object, known: dict[Any, str]) -> str:
    if not isinstance(stated, str | int) or stated not in known:
        raise fields.refusal(name, f"layers of kind {stated!r} are not modelled")
    return known[stated]


def compressed_attention(fields: Fields, kind: str) -> dict[str, Any]:
    """Return the profile of the attention of one kind of layer."""
    shape = {
        "kind": "compressed",
        "heads": fields.count(*HEADS),
        "q_lora": fields.count("q_lora_rank"),
        "head_dim": fields.count("head_dim"),
        "rope_dim": fields.count("qk_rope_head_dim"),
        "output_groups": fields.count("o_groups"),
        "output_lora": fields.count("o_lora_rank"),
        "local": fields.count("sliding_window"),
    }
    if kind == LOCAL:
        return shape
    rates = fields.part("compress_rates")
    shape["ratio"] = rates.count(NAMES[kind]) if rates.raw else RATIOS[kind]
    if kind == HEAVY:
        return shape
    index = {"heads": "index_n_heads", "head_dim": "index_head_dim", "chosen": "index_topk"}
    return {**shape, "indexer": {name: fields.count(field) for name, field in index.items()}}


def expert_format(fields: Fields) -> Derived:
    """Return the format of routed experts where the config states it beside that of all else, as V4.1's states it."""
    quant, stated = fields.raw.get("quantization_config"), fields.raw.get("expert_dtype")
    if not quant or not stated:
        return {}, {}
    return {"quantization_config": {"expert_dtype": stated, **quant}}, {}
