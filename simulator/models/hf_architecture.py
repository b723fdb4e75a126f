"""What one Hugging Face model_type implies beyond the fields of its config.json."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from simulator.models.hf_fields import WIDTH, Fields
from simulator.models.hf_rules import Derived, LayerKind, never


@dataclass(frozen=True, slots=True)
class ModelType:
    """The fixed structure that one Hugging Face model_type implies.

    `defaults`: class defaults on which published configs rely; None for KV heads means as many as heads.
    `windowed(layer, fields)`: layers whose window is the field `span`, where the config has no `layer_types`.
    `linear(layer, fields)`: recurrent layers, as built by `recurrent(fields)`. `layers(fields, count)`: both at once,
    with each feed-forward part. `reused(layer, fields)`: layers that read what an earlier one cached, or chose.
    `beside`, `layer_inputs`: small paths of every layer, and embeddings of each layer's own. `shape(fields, kind)`:
    what is special about the attention of one kind of layer; `mixer(fields, kind)`: all of it. A bias is there, is not,
    or depends on the named field. `expert_width`: fields of a routed expert's width, empty for models without experts.
    `refused`: fields that are not modelled if set; `handled`: fields that are, though elsewhere refused.
    """

    defaults: Mapping[str, Any]
    windowed: Callable[[int, Fields], bool] = never
    span: str = "sliding_window"
    linear: Callable[[int, Fields], bool] = never
    recurrent: Callable[[Fields], dict[str, Any]] | None = None
    layers: Callable[[Fields, int], list[LayerKind]] | None = None
    norms: int = 2
    expert_norms: int | None = None
    reused: Callable[[int, Fields], bool] = never
    beside: Callable[[Fields], list[dict[str, Any]]] | None = None
    layer_inputs: Callable[[Fields], dict[str, Any] | None] | None = None
    norm_bias: bool = False
    embedding_norm: bool = False
    learned_positions: Callable[[Fields], int] | None = None
    parallel: bool = False
    gated: bool = True
    qkv_bias: bool | str = False
    output_bias: bool | str = False
    ffn_bias: bool | str = False
    head_bias: bool | str = False
    qk_norm: str | None = None
    v_norm: bool = False
    gate: bool = False
    head_gate: bool = False
    hyper_connections: Mapping[str, bool] | None = None
    sinks: bool = False
    shape: Callable[[Fields, str], Mapping[str, Any]] | None = None
    latent: bool = False
    mixer: Callable[[Fields, str], dict[str, Any]] | None = None
    indexer: Callable[[Fields], dict[str, Any]] | None = None
    router_bias: bool = False
    router_scale: bool = False
    router_dtype: str = ""
    expert_bias: bool = False
    shared_gate: bool = False
    expert_width: tuple[str, ...] = ()
    dense_width: tuple[str, ...] = WIDTH
    shared: str = ""
    refused: tuple[str, ...] = ()
    handled: tuple[str, ...] = ()
    derive: Callable[[Fields], Derived] | None = None
