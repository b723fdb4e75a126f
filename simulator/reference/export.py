"""Write a checkpoint as a Hugging Face folder, for engines that read nothing else."""

import json
import sys
from pathlib import Path

from safetensors.torch import save_file

from simulator.errors import NotModelledError
from simulator.files import write_whole
from simulator.models.layers import Attention, Dense
from simulator.reference.catalogue import load_checkpoint
from simulator.reference.checkpoint import Checkpoint, shapes


def export_folder(checkpoint: Checkpoint, folder: Path) -> Path:
    """Write config.json, model.safetensors (float32) and tokenizer.json, if there is a tokenizer; return the folder.

    Raises NotModelledError for anything but a plain Llama (no sliding window, norms of queries and keys, experts).
    """
    model, numbers = checkpoint.model, checkpoint.numerics
    block = next(iter(model.blocks.values()))
    mixer, ffn = block.mixer, block.ffn
    plain = isinstance(mixer, Attention) and mixer.qk_norm == "none" and mixer.window is None and isinstance(ffn, Dense)
    if len(model.blocks) > 1 or not plain or numbers.rope_scaling:
        raise NotModelledError(model.name, "only plain Llamas are written as a folder", "Give its own folder")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": model.hidden,
        "intermediate_size": ffn.intermediate,  # type: ignore[union-attr]
        "num_hidden_layers": len(model.layer_names),
        "num_attention_heads": mixer.heads,  # type: ignore[union-attr]
        "num_key_value_heads": mixer.kv_heads,  # type: ignore[union-attr]
        "head_dim": mixer.head_dim,  # type: ignore[union-attr]
        "attention_bias": mixer.output_bias,  # type: ignore[union-attr]
        "vocab_size": model.vocab,
        "max_position_embeddings": model.max_context_tokens,
        "rope_theta": numbers.rope_theta,
        "rms_norm_eps": numbers.norm_epsilon,
        "tie_word_embeddings": model.tied_embeddings,
        "torch_dtype": "float32",
    }
    write_whole(folder / "config.json", json.dumps(config, indent=1) + "\n")
    tensors = {name: checkpoint.checked(name).contiguous() for name in shapes(model)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    if checkpoint.tokenizer is not None:
        checkpoint.tokenizer.codec.save(str(folder / "tokenizer.json"))
    return folder


if __name__ == "__main__":
    export_folder(load_checkpoint("smollm2-135m"), Path(sys.argv[1]))
