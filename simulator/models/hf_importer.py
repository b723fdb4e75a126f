"""Import of a model from its Hugging Face config.json as a profile; what is not modelled is refused by name."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from simulator.day import today
from simulator.errors import NotModelledError, ProfileError, nearest, reason
from simulator.files import parse_json, read_text
from simulator.models.hf_architecture import ModelType
from simulator.models.hf_compressed import HASHED
from simulator.models.hf_fields import CONTEXT, EXPERTS, HEADS, HIDDEN, KV_HEADS, Fields
from simulator.models.hf_layer_kinds import layer_kinds
from simulator.models.hf_layer_runs import block_names, runs
from simulator.models.hf_model_types import MODEL_TYPES
from simulator.models.hf_quantization import mlx_weight_dtype, quantization_notes, weight_dtype
from simulator.models.hf_rules import REUSED, WIDE, LayerKind
from simulator.models.hf_text_part import OWN_WRITERS, WITH_MORE, WRITERS, text_part
from simulator.models.hf_vision import VISION_PARTS, vision_from_config
from simulator.models.model import KIND, Model
from simulator.profile_files import MAX_PROFILE_BYTES, refuse_name, write_yaml
from simulator.schema_versions import VERSIONS

CONFIG = "Give the path of a model's config.json: nothing is downloaded"
CHOSEN = (
    "num_experts_per_tok",
    "experts_per_token",
    "num_experts_per_token",
    "top_k_experts",
    "moe_topk",
    "moe_top_k",
    "moe_k",
)
SHARED = ("shared_expert_intermediate_size", "shared_intermediate_size")
SHARED_EXPERTS = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
PREDICTION_LAYERS = ("num_nextn_predict_layers", "num_mtp_modules", "num_mtp_layers")

# Fields that change what layers do or hold; each is refused wherever it is set and its model_type does not handle it.
REFUSED = {
    "attention_chunk_size": "chunked attention",
    "index_topk": "sparse attention with an indexer",
    "linear_num_value_heads": "linear attention",
    "full_attention_interval": "linear attention",
    "linear_attn_config": "linear attention",
    "hybrid_override_pattern": "Mamba layers",
    "mamba_d_state": "Mamba layers",
    "mamba_num_heads": "Mamba layers",
    "ssm_cfg": "state-space layers",
    "num_kv_shared_layers": "layers that share a cache",
    "cross_attention_layers": "cross attention",
    "use_bidirectional_attention": "bidirectional attention",
    "is_encoder_decoder": "an encoder",
    "compress_ratios": "attention to compressed tokens",
    "hc_mult": "hyper-connections",
    "sparse_attention_config": "block-sparse attention",
}
# Architectures that no blocks here express, by the model_type of the whole and of its text part, and why.
UNMODELLED = {"paligemma": "its prompts attend in both directions"}
DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "bf16"}


def model_from_config(config: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    """Return the mapping of a model profile for a config; `where` names the file in every error.

    The total parameters and the KV-cache bytes are not in a config, so `published_` figures are missing.

    Raises NotModelledError for what infercast does not model, ProfileError for a field that is missing or malformed.
    """
    fields, model_type = _resolved(config, where)
    kinds = layer_kinds(fields, model_type)
    names = block_names(kinds)
    blocks = {name: _block(fields, model_type, kind) for name, kind in dict(zip(names, kinds, strict=True)).items()}
    dtype, notes = _dtype(fields)
    quant = fields.part("quantization_config")
    made = today().isoformat()
    whole = str(config.get("model_type"))
    vision = vision_from_config(fields, whole)
    return _given(
        schema_version=VERSIONS[Model.__name__],
        name=name,
        architecture=next(iter(Fields(config, where).each("architectures") or ()), None),
        notes=" ".join([*notes, *quantization_notes(quant), *_left_out(fields, vision, whole)]),
        sources={"config": {"text": where, "date": made, "evidence": "datasheet"}},
        hidden=fields.count(*HIDDEN),
        vocab=fields.count("vocab_size"),
        max_context_tokens=fields.count(*CONTEXT),
        tied_embeddings=fields.flag("tie_word_embeddings"),
        learned_positions=model_type.learned_positions(fields) if model_type.learned_positions else 0,
        layer_inputs=model_type.layer_inputs(fields) if model_type.layer_inputs else None,
        hyper_connections=_connections(fields, model_type),
        embedding_norm=model_type.embedding_norm,
        norm_bias=model_type.norm_bias,
        head_bias=_bias(fields, model_type.head_bias),
        dtype=dtype,
        weight_dtype=mlx_weight_dtype(fields.part("quantization")) or weight_dtype(quant) or dtype,
        blocks=blocks,
        layers=runs(names),
        vision=vision,
    )


def write_profile(config_json_path: Path, target_folder: Path, name: str, force: bool = False) -> Path:
    """Write `name`.yaml into a folder for a config.json and return its path; an unsound profile is not written at all.

    Quantisation is also read from hf_quant_config.json beside it. Raises ProfileError if the profile exists and `force`
    is not given, for an unsuitable name and for an unreadable file, NotModelledError for what infercast does not model.
    """
    refuse_name(name)
    target = target_folder / f"{name}.yaml"
    if target.exists() and not force:
        raise ProfileError(str(target), "this profile exists already", "Choose another name, or give --force")
    where = str(config_json_path)
    config = _read_json(config_json_path)
    separate = config_json_path.with_name("hf_quant_config.json")
    if "quantization_config" not in config and separate.is_file():
        config["quantization_config"] = {"quant_method": "modelopt", **_read_json(separate)}
    profile = model_from_config(config, name, where)
    Model.from_mapping(profile, where)
    return write_yaml(target, KIND, profile)


def usual_name(config_json_path: Path) -> str:
    """Return the name of a profile that is given none: that of the folder, as checkpoints have it, or of the file.

    >>> usual_name(Path("Llama-3.1-8B/config.json")), usual_name(Path("configs/my-model.json"))
    ('llama-3.1-8b', 'my-model')
    """
    named = config_json_path.resolve().parent if config_json_path.stem == "config" else config_json_path.with_suffix("")
    return named.name.lower()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = parse_json(read_text(path, MAX_PROFILE_BYTES / 1e6))
    except (OSError, ValueError) as error:
        raise ProfileError(str(path), f"it is not readable JSON ({reason(error)})", CONFIG) from error
    if not isinstance(value, dict):
        raise ProfileError(str(path), "it holds no object", CONFIG)
    return value


def _resolved(config: Mapping[str, Any], where: str) -> tuple[Fields, ModelType]:
    """Return the text part of a config with its class defaults, and the structure that its model_type implies."""
    raw = text_part(config, where)
    fields = Fields(raw, where)
    model_type = MODEL_TYPES.get(str(raw.get("model_type")))
    for given in (str(config.get("model_type")), str(raw.get("model_type"))):
        if because := UNMODELLED.get(given):
            raise NotModelledError(f"{where}: model_type {given!r}", because, "Take another model")
    for name, what in REFUSED.items():
        if raw.get(name) and not (model_type and name in model_type.handled):
            raise fields.refusal(name, f"{what}: not modelled")
    if "peft_type" in raw:
        remedy = "Import its base model; --set enable_lora=true counts adapters beside it"
        raise NotModelledError(f"{where}: peft_type {raw['peft_type']!r}", "an adapter is no model", remedy)
    if raw.get("model_type") is None:
        raise fields.error("model_type", "this field is required and missing", "Add it")
    if model_type is None:
        given = str(raw["model_type"])
        because = "this architecture is not modelled"
        raise NotModelledError(f"{where}: model_type {given!r}", because, nearest(given, MODEL_TYPES))
    architectures = fields.each("architectures")
    if architectures and not any(str(each).endswith(WRITERS + OWN_WRITERS) for each in architectures):
        raise fields.refusal("architectures", "only models that generate text are modelled")
    for name in model_type.refused:
        if raw.get(name):
            raise fields.refusal(name, "not modelled in this architecture")
    fields = Fields({**model_type.defaults, **raw}, where)
    if model_type.derive is not None:
        derived, changes = model_type.derive(fields)
        fields, model_type = fields.having(derived), replace(model_type, **changes)
    return fields, model_type


def _given(**parts: Any) -> dict[str, Any]:
    """Return the entries of a profile that are not None, false or empty."""
    return {name: part for name, part in parts.items() if part}


def _connections(fields: Fields, model_type: ModelType) -> dict[str, Any] | None:
    streams = fields.maybe("hc_mult")
    return {"streams": streams, **(model_type.hyper_connections or {})} if streams else None


def _bias(fields: Fields, rule: bool | str) -> bool:
    return fields.flag(rule) if isinstance(rule, str) else rule


def _block(fields: Fields, model_type: ModelType, kind: LayerKind) -> dict[str, Any]:
    mixer, ffn = kind
    norms = model_type.norms if ffn != "experts" or model_type.expert_norms is None else model_type.expert_norms
    beside = tuple(model_type.beside(fields)) if model_type.beside else ()
    return {
        **({} if mixer == "none" else {"mixer": _mixer(fields, model_type, mixer)}),
        **({} if ffn == "none" else {"ffn": _ffn(fields, model_type, ffn)}),
        **({} if norms == 2 else {"norms": norms}),
        **_given(parallel=model_type.parallel, beside=beside),
    }


def _mixer(fields: Fields, model_type: ModelType, stated_kind: str) -> dict[str, Any]:
    kind = stated_kind.removesuffix(REUSED)
    if kind == "linear" and model_type.recurrent:
        return model_type.recurrent(fields)
    if model_type.mixer:
        return model_type.mixer(fields, kind)
    heads = fields.count(*HEADS)
    if model_type.latent:
        return _given(
            kind="latent",
            heads=heads,
            q_lora=fields.maybe("q_lora_rank"),
            kv_lora=fields.count("kv_lora_rank"),
            rope_dim=fields.maybe("qk_rope_head_dim") or 0,
            nope_dim=fields.count("qk_nope_head_dim"),
            v_dim=fields.count("v_head_dim"),
            gate=model_type.gate or fields.flag("mla_use_output_gate"),
            head_gate=model_type.head_gate,
            sinks=model_type.sinks,
            indexer=_given(**model_type.indexer(fields), shared=kind != stated_kind) if model_type.indexer else None,
        )
    as_many_as_heads = any(name in fields.raw for name in KV_HEADS) and fields.maybe(*KV_HEADS) is None
    special = model_type.shape(fields, kind) if model_type.shape else {}
    stated = {
        "kind": "attention",
        "heads": heads,
        "kv_heads": heads if as_many_as_heads else fields.count(*KV_HEADS),
        "head_dim": _head_dim(fields, heads),
        "qkv_bias": _bias(fields, model_type.qkv_bias),
        "output_bias": _bias(fields, model_type.output_bias),
        "qk_norm": None if fields.raw.get("use_qk_norm") is False else model_type.qk_norm,
        "v_norm": model_type.v_norm,
        "sinks": model_type.sinks,
        "gate": model_type.gate and fields.raw.get("attn_output_gate") is not False,
        "reuses_cache": kind != stated_kind,
        "window": fields.count(model_type.span) if kind == "local" else None,
        "chunked": kind == "local" and model_type.span == "attention_chunk_size",
    }
    return _given(**{**stated, **special})


def _head_dim(fields: Fields, heads: int) -> int:
    hidden, stated = fields.count(*HIDDEN), fields.maybe("head_dim")
    if not stated and hidden % heads:
        raise fields.error("head_dim", f"it is missing, and {heads} heads do not divide {hidden}", "Add it")
    return stated or hidden // heads


def _ffn(fields: Fields, model_type: ModelType, kind: str) -> dict[str, Any]:
    plain = {} if model_type.gated else {"gated": False}
    if kind not in ("experts", HASHED):
        width = fields.count(*model_type.dense_width) * (2 if kind == WIDE else 1)
        return {**_given(kind="dense", intermediate=width, bias=_bias(fields, model_type.ffn_bias)), **plain}
    width = fields.count(*model_type.expert_width)
    shared = fields.maybe(model_type.shared or SHARED[0], *SHARED) or (fields.maybe(*SHARED_EXPERTS) or 0) * width
    block = _given(
        kind="experts",
        experts=fields.count(*EXPERTS),
        chosen=fields.count(*CHOSEN),
        intermediate=width,
        shared_intermediate=shared,
        shared_gate=bool(shared) and model_type.shared_gate,
        latent=fields.maybe("moe_latent_size", "routed_expert_hidden_size"),
        router_bias=model_type.router_bias and kind != HASHED,
        router_scale=model_type.router_scale,
        router_dtype=model_type.router_dtype,
        expert_bias=model_type.expert_bias,
        zero_experts=fields.maybe("zero_expert_num"),
    )
    return {**block, **plain}


def _dtype(fields: Fields) -> tuple[str, list[str]]:
    """Return the number format of unquantised weights, and notes on what the config does not state about it."""
    stated = fields.raw.get("torch_dtype") or fields.raw.get("dtype")
    if stated is None:
        return "bf16", ["config.json states no dtype; bf16 is a guess."]
    if str(stated) not in DTYPES:
        raise NotModelledError(f"{fields.where}: torch_dtype {stated!r}", "not modelled", f"Known: {', '.join(DTYPES)}")
    note = "config.json states float32; engines serve it in 16 bits (vLLM's dtype auto)."
    return DTYPES[stated], [note] if stated == "float32" else []


def _left_out(fields: Fields, vision: Mapping[str, Any] | None, whole: str) -> list[str]:
    """Return notes on parts of the checkpoint that do not belong to the served text model."""
    left_out = [f"{name} {fields.maybe(name)}" for name in PREDICTION_LAYERS if fields.maybe(name)]
    notes = []
    if left_out:
        what = f"The multi-token-prediction layers ({', '.join(left_out)})"
        notes.append(f"{what} are left out: they serve speculative decoding only.")
    if vision or whole in WITH_MORE or any(fields.raw.get(part) for part in VISION_PARTS):
        kept = "the bytes of its vision encoder" if vision else "nothing of its vision part, which is not modelled"
        notes.append(f"Text part, and {kept}.")
    if fields.raw.get("audio_config"):
        notes.append("Nothing of its encoder of sound, which is not modelled.")
    return notes
