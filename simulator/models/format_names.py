"""Spellings of number formats, by checkpoints, files, options and tables.

The one reader of formats: command line, measurement files, result files of benchmarks, checkpoints' names and Hugging
Face configurations read a format with `named_format`. What it does not know is an error, never a default.
"""

import re
from functools import cache

from simulator.errors import ProfileError, nearest
from simulator.models.number_formats import (
    EXAMPLES,
    FORMATS,
    MLX_BITS,
    MLX_GROUP,
    UNSTATED,
    number_format,
)

SPELLINGS = {  # of formats, as patterns that fit the whole name in small letters, joined by hyphens; by our name
    r"(fp8|float8)(-(dynamic|static|quark|inc|kv|per-(tensor|channel|token-head)|w8a8))*": "fp8",
    r"fp8-?(row|channel|tensor)-?wise": "fp8",
    r"(fp8-?w8a8|w8a8-?fp8)(-(dynamic|static))?|fp8-?(kv|dq|pc-pt)": "fp8",
    r"((fp8|float8)-)?(e4m3(fn(uz)?)?|e5m2)|(fbgemm|ptpc|modelopt)-fp8": "fp8",
    r"fp8-block(wise|-scal(ed|es?|ing))?|block(wise)?-?fp8|fp8-pb-wo": "fp8-block",  # the last two by ModelOpt
    r"int8-(kv|per-token-head)|(int8-)?w8a8(-int8)?|quantized\.w8a8|int8-sq|(int8-)?smooth-?quant(-int8)?": "int8",
    r"(bnb|bitsandbytes)-(int8|8-?bit)|(int8|8-?bit)-(bnb|bitsandbytes)|llm\.int8(\(\))?|load-in-8-?bit": "int8",
    r"w8a16|quantized\.w8a16|int8-?(weight-only|woq?)": "int8-w8a16",
    r"u?int4(-(awq|gptq|auto-?round|w4a16|g128|per-token-head|a?sym))*|4-?bit-(awq|gptq)|autoawq": "int4",
    r"int4-?(weight-only|woq?)(-128)?|a?sym-int4": "int4",
    r"(quantized\.)?w4a16(-(g128|a?sym|awq|gptq|woq))*": "int4",
    r"(awq|gptq|auto-?round)(-(gptq|int4|4-?b(it)?|w4a16|marlin|g128|128g|a?sym))*": "int4",
    r"(int4|awq|gptq|w4a16)-?(g|group-?)32|(awq|gptq)-4-?bit-32g(-actorder)?": "int4-g32",
    r"w4a8-?int8|int4-w4a8(-int8)?|(w4a8-)?qqq": "int4-w4a8",  # W4A8 alone may have inputs in fp8
    r"gptq-(int8|8-?bit)|int8-gptq|int8-?(g|group-?)128": "int8-g128",
    r"((bitsandbytes|bnb)-)?nf4(-(bitsandbytes|bnb))?|bitsandbytes|bnb|load-in-4-?bit": "bnb-nf4",
    r"bnb-fp4": "bnb-nf4",  # the same bits
    r"(unsloth-)?bnb-4-?bit": "bnb-nf4-double",  # unsloth's; those it signs leave some layers in 16 bits
    r"(int4-)?(mlc-)?q4f16(-\d)?": "mlc-q4f16",
    r"(nv-?)?fp4(-(w4a4|kv|e2m1|modelopt))?|(modelopt|petit)-(nv)?fp4|w4a4-nvfp4": "nvfp4",
    r"nvfp4-w4a16|w4a16-nvfp4": "nvfp4a16",
    r"nvfp4-mlp(-only)?": "nvfp4-mlp",
    r"w-mxfp4-a-mxfp4|w4a4-mxfp4|(ocp-)?mx(-?fp)?4-w4a4": "mxfp4-w4a4",  # AMD's Quark: all linear layers, and inputs
    r"w-mxfp4-a-fp8|(ocp-)?mx-?fp4(-(quark|a?sym))?": "mxfp4",  # AMD's: activations in fp8
    r"(ocp-)?mx-?fp8": "mxfp8",
    r"(q4-0|int4)-unquantized": "bf16",  # Google's: trained for four bits, stored in sixteen
    r"mxfp4-q([468])": r"mxfp4+mlx-q\1",  # mlx-community's gpt-oss: all but the experts in so many bits
    r"(mlx-)?(bfloat16|bf16)|(bf16/fp16|fp16/bf16)": "bf16",
    r"(mlx-)?(float16|half|fp16|f16)|q0f16": "fp16",
    r"float(32)?|f32|fp32": "fp32",
    r"bfp8/bfp4-mixed": "bfp8-bfp4",
    r"iq3-s-mix": "iq3_M",  # llama.cpp's name of the file type, which has tensors of more bits
    r"q2-k-medium": "q2_K",
    r"q([345])-k-small": r"q\1_K_S",
    r"q([345])-k(-medium)?": r"q\1_K_M",  # llama-quantize: Q4_K is another name of Q4_K_M
    r"q3-k-large": "q3_K_L",
    r"q([345])-?k-?m": r"q\1_K_M",
    r"q([345])-?k-?s": r"q\1_K_S",
    r"q4-0-(4-4|4-8|8-8)": "q4_0",  # the same numbers, in the order that Arm's kernels read them
    r"q2-k-l": "q2_K",  # bartowski's: embeddings and output in q8_0, of which decoding reads the output
    r"q([45])-k-l": r"q\1_K_M",  # likewise
    r"q6(-k-l)?": "q6_K",  # likewise
    r"q8": "q8_0",
    r"ud-tq1-0": "iq1_S",  # unsloth's smallest: types of 1 to 2 bits, and none ternary
    r"exl2-(\d+(?:\.\d+)?)-?bpw|(\d+(?:\.\d+)?)-?bpw(?:-h\d)?-exl2": r"exl2@\1\2",
}
# What stands around a name and tells who made the file, not how its numbers are stored: choices of types by unsloth
# (but for names in number_formats.UD) and mradermacher, distillation for MLX, bits per weight as llama.cpp prints them,
# releases of NVIDIA's and AMD's files, the matrix of importance that a quantiser saw, rows that ik_llama.cpp
# interleaves.
AROUND = (
    r"(?:gguf-|ud-|i1-|qat-|mostly-|all-|smol-)*(?P<name>.+?)"
    r"(?:-dwq|-v\d|-preview|-gguf|-imat(?:rix)?|-qat|-mlx|-mlc|-r(?:4|8|16)|(?<!exl2)-[\d.]+-?bpw)*"
)
UNCHANGED = ("auto", "none", "native", "default", "original", "unquantized", "n/a", "-")  # as the checkpoint has it
QUANTISES_WEIGHTS = re.compile(r"awq|gptq|auto-?round|smoothquant|marlin|w\d+a\d+", re.IGNORECASE)
MLX_NAME = r"(?:mlx-q?(?P<bits>\d)(?:-?bit)?|(?P<named>\d)-?bit)(?:-gs?(?P<group>\d+))?"  # mlx-q6-g32


def named_format(text: str) -> str:
    """Return our name of a format, in any capitals or as checkpoints, sources and options have it; "" for no text.

    A question mark behind it, with which sources doubt, and a note in brackets that names no format are left out.
    ProfileError for a name that is not known, with the nearest ones, and for a note that names another format.

    >>> named_format("Q4_K_M"), named_format("bfloat16"), named_format("W4A16"), named_format("mlx-q6 g32")
    ('q4_K_M', 'bf16', 'int4', 'mlx-q6-g32')
    """
    plain = text.strip().rstrip("?")
    found = _noted(*plain.split("(", 1)) if "(" in plain else _spelt(plain)
    if plain.lower() in UNCHANGED:
        return ""
    if plain and not found:
        raise ProfileError(f"number format {text!r}", "it is not known", nearest(plain, [*FORMATS, *EXAMPLES.values()]))
    return found if found in ("", *UNSTATED) else _known(found)


def _known(name: str) -> str:
    number_format(name)
    return name


def cache_format(text: str) -> str:
    """Return our name of a KV cache's format, as `named_format` does; ProfileError for a way to quantise weights, too.

    >>> cache_format("fp8_e4m3"), cache_format("")
    ('fp8', '')
    """
    if QUANTISES_WEIGHTS.search(text):
        remedy = "Give the type of its numbers, as fp8 or int8, or leave it out"
        raise ProfileError(f"a KV cache in {text!r}", "that is a way to quantise weights", remedy)
    return named_format(text)


def _noted(plain: str, bracket: str) -> str:
    """Return our name of a format with a note in brackets: of both, as W8A8 (FP8), else the same without the note."""
    name, note = plain.strip().rstrip("?"), bracket.strip(" )?")
    found, other = _spelt(name), "" if re.fullmatch(r"\d[- ]?bits?", note) else _spelt(note)
    return _spelt(f"{name}-{note}") or (found if other in ("", found) else "")


def _joined(text: str) -> str:
    """Return a name in small letters, its words joined by hyphens.

    >>> _joined("Q4_K - Medium"), _joined("fp8_e4m3")
    ('q4-k-medium', 'fp8-e4m3')
    """
    return re.sub(r"[\s_-]+", "-", text.strip().lower())


OURS = {_joined(name): name for name in (*FORMATS, *UNSTATED)}


@cache
def _spelt(plain: str) -> str:
    """Return our name of a format, "" for one that is not known."""
    if "+" in plain:
        experts, rest = map(_spelt, plain.split("+", 1))
        return f"{experts}+{rest}" if experts and rest else ""
    base, at, bits = plain.partition("@")
    around = re.fullmatch(AROUND, _joined(base))
    for each in (_joined(base), around["name"] if around else ""):
        if each in OURS:
            return f"{OURS[each]}{at}{bits.strip()}"
        for pattern, name in SPELLINGS.items():
            if not at and (found := re.fullmatch(pattern, each)):
                return found.expand(name)
        if not at and (mlx := mlx_name(each)):
            return mlx
    return ""


def mlx_name(text: str) -> str:
    """Return our name of an MLX format as checkpoints' names have it, "" for none.

    >>> mlx_name("4bit"), mlx_name("mlx-q8"), mlx_name("mlx-6bit g32"), mlx_name("q8_0")
    ('mlx-q4', 'mlx-q8', 'mlx-q6-g32', '')
    """
    found = re.fullmatch(MLX_NAME, _joined(text))
    bits = int(found["bits"] or found["named"]) if found else 0
    if not found or bits not in MLX_BITS:
        return ""
    return f"mlx-q{bits}" + (f"-g{found['group']}" if found["group"] and int(found["group"]) != MLX_GROUP else "")


def ending(name: str) -> tuple[str, str]:
    """Split what a checkpoint's or a file's name ends in off it: (the rest, our name of its format or "").

    >>> ending("Qwen2.5-7B-Instruct-Q4_K_M"), ending("gemma-3-4b-it-4bit"), ending("Llama 3.1 8B (FP8)")
    (('Qwen2.5-7B-Instruct', 'q4_K_M'), ('gemma-3-4b-it', 'mlx-q4'), ('Llama 3.1 8B', 'fp8'))

    A repository of GGUF files is read as `llama-server -hf` reads it: Q4_K_M, unless it says another file, or its name
    says what all of its files are.

    >>> ending("Qwen3-8B-GGUF:UD-Q5_K_M"), ending("Qwen3-8B-GGUF"), ending("Qwen3-8B-Q8_0.gguf")
    (('Qwen3-8B', 'ud-q5_K_M'), ('Qwen3-8B', 'q4_K_M'), ('Qwen3-8B', 'q8_0'))
    """
    name = re.sub(r"\.gguf$", "", name, flags=re.IGNORECASE)
    if repository := re.fullmatch(r"(.+?)(?:[-.]i1)?[-_]GGUF(?::(.+))?", name, re.IGNORECASE):
        rest, inner = (repository[1], "") if repository[2] else ending(repository[1])
        stored = inner or _spelt(repository[2] or "Q4_K_M")
        return (rest, stored) if stored else (name, "")
    if (noted := re.fullmatch(r"(.+?)\s*\((.+)\)", name)) and (stored := _spelt(noted[2])):
        return noted[1], stored
    for found in re.finditer(r"[-_.:\s](?=\w)", name):
        if stored := _spelt(name[found.end() :]):
            return name[: found.start()], stored
    return name, ""
