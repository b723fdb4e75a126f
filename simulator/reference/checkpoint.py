"""Checkpoints: weights by name, from a Hugging Face folder or a seed, with the shapes of a model profile.

Tensor names are those of Hugging Face's Llama. A profile states shapes; what a forward pass needs beyond them
(`Numerics`) comes from the checkpoint.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from simulator.errors import InfercastError, NotModelledError, ProfileError, reason
from simulator.files import parse_json, read_text
from simulator.models.blocks import Block
from simulator.models.hf_importer import model_from_config
from simulator.models.layers import Attention, Dense, MixtureOfExperts
from simulator.models.model import Model
from simulator.reference.tokenizer import Tokenizer, from_folder

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "mixtral")
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Numerics:
    """What a forward pass needs beyond shapes: rotary base and scaling, epsilon of the norms; defaults of Llama 2."""

    rope_theta: float = 10_000.0
    rope_scaling: Mapping[str, Any] | None = None
    norm_epsilon: float = 1e-5
    renormalised: bool = True  # the chosen experts' weights sum to 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model with its weights: `tensor(name)` returns one of `shapes(model)`, KeyError where it has none."""

    model: Model
    numerics: Numerics
    tensor: Callable[[str], torch.Tensor]
    tokenizer: Tokenizer | None = None
    source: str = ""

    def checked(self, name: str) -> torch.Tensor:
        """Return a weight; ProfileError where its shape is not the profile's, or it is missing."""
        wanted = shapes(self.model)[name]
        try:
            found = self.tensor(name)
        except KeyError as error:
            because = f"the profile {self.model.name} has it, {self.source} has not"
            raise ProfileError(f"weight {name!r}", because, "Import the profile from this checkpoint") from error
        if tuple(found.shape) != wanted:
            because = f"{self.source} has {tuple(found.shape)}, the profile {self.model.name} says {wanted}"
            raise ProfileError(f"weight {name!r}", because, "Import the profile from this checkpoint")
        return found


def shapes(model: Model) -> Shapes:
    """Return the shape of every weight of a model by its name in Hugging Face's Llama.

    Raises NotModelledError for what the reference engine does not compute.

    >>> from simulator.models.model import load_model
    >>> shapes(load_model("llama-3.1-8b"))["model.layers.0.self_attn.k_proj.weight"]
    (1024, 4096)
    """
    _refuse(model)
    found: Shapes = {"model.embed_tokens.weight": (model.vocab, model.hidden), "model.norm.weight": (model.hidden,)}
    if not model.tied_embeddings:
        found["lm_head.weight"] = (model.vocab, model.hidden)
    for index, name in enumerate(model.layer_names):
        for part, shape in _block_shapes(model.blocks[name], model.hidden).items():
            found[f"model.layers.{index}.{part}"] = shape
    return found


def random_checkpoint(model: Model, seed: int = 0) -> Checkpoint:
    """Return random weights in the shapes of a profile, float32; each depends on the seed and its place alone."""
    wanted = shapes(model)
    places = {name: place for place, name in enumerate(wanted)}

    def tensor(name: str) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed * 1_000_003 + places[name])
        shape = wanted[name]
        if len(shape) == 1:
            centre = 1.0 if "norm" in name else 0.0
            return centre + 0.1 * torch.randn(shape, generator=generator)
        return torch.randn(shape, generator=generator) / shape[1] ** 0.5

    return Checkpoint(model, Numerics(), tensor, source=f"seed {seed}")


def folder_checkpoint(folder: Path, model: Model | None = None) -> Checkpoint:
    """Return the weights of a Hugging Face folder (config.json, *.safetensors), in their own dtype.

    `model`: its profile, by default made from config.json. Raises InfercastError for a folder that lacks files,
    NotModelledError for a model that the engine does not compute.
    """
    config = _config(folder)
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise InfercastError(str(folder), "it holds no *.safetensors", "Give the folder of a downloaded checkpoint")
    where: dict[str, Path] = {}
    for path in files:
        with safe_open(path, framework="pt") as opened:
            where |= {_canonical(name): path for name in opened.keys()}  # noqa: SIM118  not a mapping
    original = {_canonical(name): name for path in files for name in _names(path)}

    def tensor(name: str) -> torch.Tensor:
        with safe_open(where[name], framework="pt") as opened:
            loaded: torch.Tensor = opened.get_tensor(original[name])
            return loaded

    profile = model or Model.from_mapping(model_from_config(config, folder.name, str(folder)), str(folder))
    return Checkpoint(profile, numerics(config, str(folder)), tensor, from_folder(folder), str(folder))


def numerics(config: Mapping[str, Any], where: str) -> Numerics:
    """Return the numerics of a Hugging Face config; NotModelledError for what the engine does not compute."""
    if config.get("model_type") not in FAMILIES:
        raise NotModelledError(
            f"{where}: model_type {config.get('model_type')!r}",
            "the reference engine does not compute it",
            f"It computes {', '.join(FAMILIES)}",
        )
    if config.get("hidden_act", "silu") != "silu":
        raise NotModelledError(f"{where}: {config['hidden_act']}", "the activation is silu here", "Give a Llama-like")
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "llama3"):
        raise NotModelledError(f"{where}: rope_type {kind!r}", "known are default and llama3", "Give another model")
    return Numerics(
        rope_theta=float(rope.get("rope_theta", config.get("rope_theta", 10_000.0))),
        rope_scaling=rope if kind == "llama3" else None,
        norm_epsilon=float(config.get("rms_norm_eps", 1e-6)),
        renormalised=config["model_type"] != "qwen3_moe" or bool(config.get("norm_topk_prob", False)),
    )


def _refuse(model: Model) -> None:
    wrong = [name for name in ("norm_bias", "head_bias", "learned_positions", "layer_inputs") if getattr(model, name)]
    wrong += [] if model.norm_weights else ["norms without weights"]
    for block in model.blocks.values():
        wrong += [] if block.norms == 2 else [f"{block.norms} norms per block"]
        wrong += [] if isinstance(block.mixer, Attention) else ["attention that is not grouped-query"]
        wrong += ["attention sinks"] if getattr(block.mixer, "sinks", False) else []
        wrong += ["gated attention"] if getattr(block.mixer, "gate", False) else []
        wrong += ["values made of keys"] if getattr(block.mixer, "shared_kv", False) else []
        wrong += [name for name in ("v_dim", "q_lora", "reuses_cache", "chunked") if getattr(block.mixer, name, None)]
        wrong += ["a plain feed-forward block"] if isinstance(block.ffn, Dense) and not block.ffn.gated else []
        for name in ("shared_intermediate", "router_bias", "expert_bias"):
            wrong += [name] if getattr(block.ffn, name, False) else []
        wrong += [] if block.ffn is not None else ["a block without a feed-forward part"]
        wrong += ["paths beside its blocks"] if block.beside else []
    if wrong:
        remedy = f"It computes what {', '.join(FAMILIES)} have"
        raise NotModelledError(model.name, f"the reference engine has no {', '.join(dict.fromkeys(wrong))}", remedy)


def _block_shapes(block: Block, hidden: int) -> Shapes:
    mixer, ffn = block.mixer, block.ffn
    if not isinstance(mixer, Attention) or not isinstance(ffn, Dense | MixtureOfExperts):  # refused before
        return {}
    wide, narrow = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
    widths = {"q_proj": wide, "k_proj": narrow, "v_proj": narrow}
    found: Shapes = {f"self_attn.{name}.weight": (width, hidden) for name, width in widths.items()}
    found["self_attn.o_proj.weight"] = (hidden, wide)
    if mixer.qkv_bias:
        found |= {f"self_attn.{name}.bias": (width,) for name, width in widths.items()}
    if mixer.output_bias:
        found["self_attn.o_proj.bias"] = (hidden,)
    if mixer.qk_norm != "none":
        whole = mixer.qk_norm == "full"
        found["self_attn.q_norm.weight"] = (wide if whole else mixer.head_dim,)
        found["self_attn.k_norm.weight"] = (narrow if whole else mixer.head_dim,)
    found |= {"input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,)}
    if isinstance(ffn, Dense):
        return found | _gated("mlp", hidden, ffn.intermediate, bias=ffn.bias)
    found["mlp.gate.weight"] = (ffn.experts, hidden)
    for expert in range(ffn.experts):
        found |= _gated(f"mlp.experts.{expert}", hidden, ffn.intermediate)
    return found


def _gated(where: str, hidden: int, width: int, *, bias: bool = False) -> Shapes:
    ins_and_outs = {"gate_proj": (width, hidden), "up_proj": (width, hidden), "down_proj": (hidden, width)}
    found: Shapes = {f"{where}.{name}.weight": shape for name, shape in ins_and_outs.items()}
    return found | ({f"{where}.{name}.bias": shape[:1] for name, shape in ins_and_outs.items()} if bias else {})


def _names(path: Path) -> list[str]:
    with safe_open(path, framework="pt") as opened:
        return list(opened.keys())


def _config(folder: Path) -> dict[str, Any]:
    try:
        loaded = dict(parse_json(read_text(folder / "config.json", 1.0)))
    except (OSError, ValueError, TypeError) as error:
        raise InfercastError(
            f"{folder}/config.json", f"it cannot be read ({reason(error)})", "Give a checkpoint"
        ) from error
    return loaded


_MIXTRAL = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}


def _canonical(name: str) -> str:
    """Return Mixtral's names of experts as Qwen's.

    >>> _canonical("model.layers.0.block_sparse_moe.experts.3.w1.weight")
    'model.layers.0.mlp.experts.3.gate_proj.weight'
    """
    if "block_sparse_moe" not in name:
        return name
    parts = name.replace("block_sparse_moe", "mlp").split(".")
    return ".".join(_MIXTRAL.get(part, part) for part in parts)
