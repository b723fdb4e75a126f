"""What a format's name means in the checkpoints that an engine reads (Hugging Face's, GGUF, MLX), and in its cache."""

import re

from simulator.engines.engine import Engine
from simulator.errors import NotModelledError
from simulator.models.format_names import named_format
from simulator.models.model import Model
from simulator.models.number_formats import (
    DYNAMIC,
    FORMATS,
    GGUF,
    KEPT_EXPERTS,
    LEAST_OF_EXPERTS,
    Files,
    number_format,
    type_name,
)

IN_GGUF = {"fp16": "gguf_f16", "bf16": "gguf_bf16"}  # types of the model, under GGUF's names
READ_BY: dict[Files, str] = {"gguf": "llama.cpp", "mlx": "mlx-lm"}  # an engine for files that another cannot read
NARROWER: dict[Files, tuple[str, str]] = {  # formats of 8 and 4 bits that everybody publishes
    "gguf": ("q8_0", "q4_K_M"),
    "mlx": ("mlx-q8", "mlx-q4"),
}

# Formats of KV caches: --kv-cache-dtype of vLLM and SGLang, --kv_cache_dtype of trtllm-serve, -ctk of llama.cpp and
# --kv-bits of mlx_lm, by the checkpoints that such engines read (read 2026-11-24).
CACHES: dict[Files, tuple[str, ...]] = {
    "safetensors": ("fp8", "nvfp4", "int8", "int4", "bf16", "fp16", "fp32"),
    "gguf": ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_NL", "bf16", "fp16", "fp32"),
    "mlx": ("mlx-q8", "mlx-q4", "mlx-q6", "mlx-q3", "mlx-q2", "bf16", "fp16", "fp32"),
}
# Integers that engines keep no cache in: SGLang's page "Quantized KV cache" has fp8 and fp4, trtllm-serve's
# --kv_cache_dtype auto, fp8 and nvfp4, and TensorRT-LLM's builds of before int8 (read 2026-11-24). vLLM has
# int4_per_token_head.
LACKING_CACHES = {"sglang": ("int8", "int4"), "tensorrt-llm": ("int4",)}


def cache_formats(engine: Engine) -> tuple[str, ...]:
    """Return the formats of KV caches that engines of a kind have, narrower ones first; none where they are not known.

    >>> from simulator.engines.engine import load_engine
    >>> cache_formats(load_engine("llama.cpp"))[0], cache_formats(load_engine("sglang"))[:3]
    ('q8_0', ('fp8', 'nvfp4', 'bf16'))
    """
    known = CACHES.get(engine.reads[0], ()) if engine.reads else ()
    return tuple(each for each in known if each not in LACKING_CACHES.get(engine.engine, ()))


def refuse_cache(stored: str, engine: Engine) -> None:
    """Raise NotModelledError for a format that an engine keeps no KV cache in, as one of weights alone."""
    known = cache_formats(engine)
    if known and re.sub(r"(mlx-q\d)-g\d+", r"\1", stored) not in known:
        because = f"its caches are {', '.join(known)}"
        raise NotModelledError(f"a KV cache in {stored} in {engine.id}", because, f"Give --cache-dtype {known[0]}")


def weight_format(text: str, model: Model, engine: Engine) -> str:
    """Return our name of the format of a model's weights as an engine reads them; "" is the usual one.

    GGUF files of a model whose experts are published in mxfp4 keep them so, whatever all else is stored in (bartowski's
    files of gpt-oss: "All quants keep the feed forward networks at mxfp4"; F16 of unsloth's is 13.8 GB). Unsloth's own
    mixes of types (UD-Q4_K_XL) are those of the routed experts, where a model has any (`_dynamic`). Raises ProfileError
    for a name that is not known, NotModelledError for a format that such checkpoints do not have.

    >>> from simulator.engines.engine import load_engine
    >>> from simulator.models.model import load_model
    >>> weight_format("F16", load_model("gpt-oss-20b"), load_engine("llama.cpp"))
    'mxfp4+gguf_f16'
    """
    given = named_format(text)
    stored = usual_format(model, engine) if not given else _in_files(model.checkpoint_format(given), model, engine)
    refuse_unreadable(stored, engine)
    return stored


def narrower_formats(engine: Engine) -> tuple[str, str]:
    """Return formats of 8 and of 4 bits that checkpoints for an engine have."""
    return NARROWER.get(engine.reads[0], ("fp8", "int4")) if engine.reads else ("fp8", "int4")


def usual_format(model: Model, engine: Engine) -> str:
    """Return the format of weights where nothing is said: what the engine fetches, or the checkpoint's own."""
    kept = model.weight_dtype == "mxfp4"  # published in four bits: nobody quantises it again
    return _in_files(model.weight_dtype if kept else engine.usual_weights or model.weight_dtype, model, engine)


def file_ending(stored: str) -> str:
    """Return what a publisher's GGUF file of a format ends in; unsloth's own mixes are named by their experts' type.

    >>> file_ending("q4_K_M@4.9"), file_ending("q4_K_XL+q8_0"), file_ending("mxfp4+q6_K"), file_ending("gguf_f16")
    ('Q4_K_M', 'UD-Q4_K_XL', 'Q6_K', 'F16')
    """
    experts, _, rest = stored.partition("+")
    is_mix = rest == "q8_0" and type_name(experts) in GGUF
    named = type_name(experts if is_mix else rest or stored).removeprefix("gguf_")
    return f"UD-{named.upper()}" if is_mix or named.endswith("_XL") else named.upper()


def refuse_unreadable(stored: str, engine: Engine) -> None:
    """Raise NotModelledError for a format that the checkpoints which an engine reads do not have."""
    files = number_format(stored).files
    if engine.reads and files and not set(files) & set(engine.reads):
        because = f"it reads {' and '.join(engine.reads)} files, which have no {stored}"
        readers = [f"--engine {READ_BY[each]}" for each in files if each in READ_BY]
        remedy = ", or ".join([f"Give, say, --weight-dtype {' or '.join(narrower_formats(engine))}", *readers])
        raise NotModelledError(f"{stored} in {engine.id}", because, remedy)


def _in_files(stored: str, model: Model, engine: Engine) -> str:
    """Return what a format is in the checkpoints that an engine reads."""
    base = stored.partition("@")[0]
    if base in DYNAMIC and "+" not in stored and "gguf" in engine.reads:
        stored = _dynamic(stored, model) if model.is_routed else stored.removeprefix("ud-")
        base = base.removeprefix("ud-")
    if not engine.is_built_on_ggml:
        return stored
    if stored in IN_GGUF:
        stored = base = IN_GGUF[stored]
    if stored == "mxfp4":  # ggml-org's files have all else in q8_0; Ollama's library has it as published
        return stored if engine.engine == "ollama" else "mxfp4_MoE"
    if model.weight_dtype != "mxfp4" or base not in (*GGUF, *IN_GGUF.values()):
        return stored
    return "mxfp4_MoE" if base == FORMATS["mxfp4_MoE"].rest else KEPT_EXPERTS + base


def _dynamic(stored: str, model: Model) -> str:
    """Return what unsloth's mix of a mixture of experts is: all but the routed experts in q8_0.

    bits of experts = (bits of the file x parameters - 8.5 x those of all else) / those of the experts, where the file's
    are given; files of 2025 had types of like bits everywhere, seen where experts had fewer than the name's own type.
    Sources: headers of UD-IQ4_XS to UD-Q6_K_XL of Qwen3.8-Flash-Next (Niko1221/Strata, docs/QUANTS.md: routed experts
    differ, everything else is the same), Qwen3.5-35B-A3B-UD-Q6_K_XL (ik_llama.cpp issue 1420: 264 tensors in q8_0, 78
    in q6_K), Llama-4-Scout-UD-Q4_K_XL of 2025 (421 in q4_K, 43 in q5_K, 18 in q6_K); read 2026-11-28.

    >>> from simulator.models.model import load_model
    >>> _dynamic("q5_K_XL@6.022", load_model("qwen3.5-122b-a10b"))  # gate and up in q5_K, down in q6_K: 5.85
    'q5_K_XL@5.891+q8_0'
    >>> _dynamic("q4_K_XL@4.639", load_model("qwen3-30b-a3b"))  # 4.43 in experts: less than q4_K has
    'q4_K_XL@4.639'
    """
    base, at, _ = stored.removeprefix("ud-").partition("@")
    weights, rest = model.weights(), FORMATS["mxfp4_MoE"].rest
    bits = float(number_format(stored).bits)
    if at:  # the file's, of which experts have what all else leaves
        others = weights.total - weights.experts
        bits = (bits * weights.total - float(number_format(rest).bits) * others) / weights.experts
    if bits < LEAST_OF_EXPERTS.get(base, 1.0):
        return stored.removeprefix("ud-")
    return f"{base}@{bits:.3f}+{rest}" if at else f"{base}+{rest}"
