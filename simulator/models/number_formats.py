"""Number formats: bits per weight with their scales, which weights they cover, what multiplies them, their spellings.

The one table of formats: command line, measurement files, result files of benchmarks, checkpoints' names and Hugging
Face configurations read a format with `named_format`. What it does not know is an error, never a default.
"""

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from simulator.errors import ProfileError, nearest
from simulator.profile import Evidence, Figure, Source

Files = Literal["safetensors", "gguf", "mlx", "exl2", "mlc", "bfp"]
NO_UNPACKING = Figure(0.0, Source(text="a type that is multiplied as it is stored", date="", evidence="derived"))


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """How numbers are stored: bits per weight with their scales, which weights it covers, what they are multiplied in.

    `compute`: types of a device that multiply it, the first that there is; what is not its own unpacks it first.
    """

    bits: Figure
    covers: Literal["all", "linear", "feed-forward and output", "feed-forward", "experts"]
    compute: tuple[str, ...]
    unpacking: Figure = NO_UNPACKING  # on a CPU: multiplications that take as long as to unpack a number
    rest: str = ""  # the format of what it does not cover; none: the model's own type
    files: tuple[Files, ...] = ()  # kinds of checkpoints that have it; none: every kind has
    scaled_late: bool = False  # inputs are scaled in blocks as they come: a kernel of its own quantises them

    @property
    def size_bytes(self) -> float:
        """Bytes per stored number."""
        return self.bits / 8

    def unpacked_for(self, peak: str) -> bool:
        """Whether its weights are unpacked before they are multiplied in a type: fp4 is where no fp4 GEMM exists."""
        return self.bits < 16 and peak in ("fp32", "tf32", "bf16", "fp16")


def _of(bits: float, source: Source) -> Figure:
    return Figure(float(bits), source)


def _source(text: str, date: str = "", evidence: Evidence = "derived") -> Source:
    return Source(text=text, date=date, evidence=evidence)


_WIDTH = _source("the type's width")
_GGUF_BITS = _source(
    "file size over parameters of GGUF files of 7B to 120B models, as their publishers and benchmarks list them",
    "2026-11-21",
)
_GGUF_RECALLED = _source("as llama.cpp's tools/quantize lists it for Llama-3.1-8B, recalled", "", "guess")
_UNPACKING = _source(
    "set by hand to the rates of 2 to 8 threads of an M2 Max (ik_llama.cpp README)", "2024-07", "fitted"
)
_UNPACKING_GUESSED = _source("that of a neighbour: ik_llama.cpp's README (2024-07) does not have it", "", "guess")
RECALLED_BITS = {"q2_K", "q3_K_M", "q3_K_L", "iq1_M", "iq1_S", "iq2_S", "iq3_M"}
GUESSED_UNPACKING = {
    *("q5_K_M", "q4_K_M", "q3_K_M", "q3_K_L", "q8_K_XL", "q6_K_XL", "q5_K_XL", "q4_K_XL", "q3_K_XL", "q2_K_XL"),
    *("q2_K", "iq1_M", "iq1_S", "iq2_S", "iq3_XS", "iq3_M"),
}
_BITS_AND_UNPACKING = {
    **{"q8_0": (8.5, 0.0), "q8_K_XL": (9.0, 0.0), "q6_K": (6.56, 2.1), "q5_0": (5.5, 2.2), "q5_1": (6.0, 2.6)},
    **{"q5_K_S": (5.52, 1.9), "q5_K_M": (5.67, 1.9), "q5_K_XL": (5.9, 1.9), "q4_0": (4.5, 1.0), "q4_1": (5.0, 1.1)},
    **{"q4_K_S": (4.6, 0.95), "q4_K_M": (4.85, 1.1), "q4_K_XL": (4.75, 1.1), "q3_K_S": (3.5, 2.0)},
    **{"q3_K_XL": (3.55, 1.8), "q2_K_S": (2.75, 1.35), "iq4_NL": (4.54, 1.3), "iq4_XS": (4.3, 1.15)},
    **{"q3_K_M": (4.0, 1.9), "q3_K_L": (4.3, 1.9), "q2_K": (3.16, 1.35), "q2_K_XL": (3.2, 1.35), "iq3_M": (3.76, 6.0)},
    **{"iq3_XS": (3.5, 6.0), "iq2_S": (2.74, 3.5), "iq1_M": (2.15, 3.5), "iq1_S": (2.0, 3.5), "q6_K_XL": (6.9, 2.1)},
    **{"iq3_S": (3.5, 6.6), "iq3_XXS": (3.1, 5.4), "iq2_M": (2.8, 4.8), "iq2_XS": (2.4, 3.2), "iq2_XXS": (2.2, 3.5)},
}
GGUF: dict[str, NumberFormat] = {
    name: NumberFormat(
        _of(bits, _GGUF_RECALLED if name in RECALLED_BITS else _GGUF_BITS),
        "all",
        ("fp16", "bf16", "fp32"),
        _of(unpacking, _UNPACKING_GUESSED if name in GUESSED_UNPACKING else _UNPACKING),
        files=("gguf",),
    )
    for name, (bits, unpacking) in _BITS_AND_UNPACKING.items()
}
_WIDE, _FP8, _FP4 = ("bf16", "fp16", "fp32"), ("fp8", "bf16", "fp16", "fp32"), ("fp4", "bf16", "fp16", "fp32")
_BLOCKS = _of(8 + 32 / 128**2, _source("an fp32 scale per 128 x 128"))
_INT4 = _of(4 + 20 / 128, _source("AWQ, GPTQ: fp16 scale + 4-bit zero per 128"))
_INT4_G32 = _of(4 + 20 / 32, _source("the same per 32, as llm-compressor's AWQ has it"))
_INT4_EXPERTS = _of(4 + 16 / 32, _source("a bf16 scale per 32: quantization_config of moonshotai/Kimi-K2.5"))
_INT8_G128 = _of(8 + 24 / 128, _source("GPTQ of 8 bits: fp16 scale + 8-bit zero per 128; multiplied in 16 bits"))
_BNB = _of(4 + 32 / 64, _source("bitsandbytes, functional.quantize_4bit: an fp32 scale per 64, for nf4 as for fp4"))
_BNB_DOUBLE = _of(
    4 + 8 / 64 + 32 / (64 * 256),
    _source("the same with scales in 8 bits, and an fp32 per 256 of them (QLoRA, arXiv:2305.14314, section 3)"),
)
_MX = _of(4 + 8 / 32, _source("OCP MX: an 8-bit scale per 32"))
_MX_MOE = _of(
    4 + 8 / 32, _source("llama.cpp: experts in mxfp4, all else in q8_0 (ggml-org/llama.cpp pull request 25446)")
)
_MX8 = _of(8 + 8 / 32, _source("OCP MX: an 8-bit scale per 32"))
_NV = _of(4 + 8 / 16, _source("an fp8 scale per 16"))
_NV_MLP = _of(4 + 8 / 16, _source("an fp8 scale per 16; ModelOpt: NVFP4_MLP_ONLY_CFG"))
_NV_WO = _of(4 + 8 / 16, _source("an fp8 scale per 16; cards of NVIDIA's NVFP4-v2: with the wo module of attention"))
_F16 = _of(16, _source("GGUF's F16: x86 has no fp16 multiplication, and llama.cpp widens to fp32"))
_BF16 = _of(16, _source("GGUF's BF16: kernels without bf16 multiply it in fp32 (llama.cpp pull request 12554)"))
_MLX = _source("MLX, mlx.core.quantize, mode affine: bits + (16 + 16) / group, an fp16 scale and bias for each group")
_EXL2 = _source("ExLlamaV2: a mean over linear layers, stated with the file")
_BFP8 = _of(8 + 8 / 16, _source("Tenstorrent's block floating point: 16 numbers share an exponent of 8 bits"))
_BFP4 = _of(
    0.54 * (4 + 8 / 16) + 0.46 * (8 + 8 / 16),
    _source(
        "tt-metal LlamaOptimizations.performance: FF1 and FF3 in bfp4 (54 % of the linear weights of Llama-3.1-8B), all"
        " else in bfp8"
    ),
)
_Q4F16 = _of(
    4 + 16 / 32,
    _source("MLC's q4f16_1: an fp16 scale per 32, of embeddings too (mlc-ai/mlc-llm quantization/quantization.py)"),
)
_HF: tuple[Files, ...] = ("safetensors",)
_HALF = ("fp16", "bf16", "fp32")
MLX_BITS, MLX_GROUPS, MLX_GROUP = (2, 3, 4, 5, 6, 8), (32, 64, 128), 64  # mlx.core.quantize; the last is its default
EXAMPLES = {"mlx": "mlx-q4", "exl2": "exl2@4.0"}
FORMATS: dict[str, NumberFormat] = {
    "fp32": NumberFormat(_of(32, _WIDTH), "all", ("fp32",)),
    "bf16": NumberFormat(_of(16, _WIDTH), "all", _WIDE),
    "fp16": NumberFormat(_of(16, _WIDTH), "all", ("fp16", "bf16", "fp32")),
    "fp8": NumberFormat(_of(8, _WIDTH), "linear", _FP8, files=_HF),
    "fp8-experts": NumberFormat(_of(8, _WIDTH), "experts", _FP8, files=_HF),
    "fp8-block": NumberFormat(_BLOCKS, "linear", _FP8, files=_HF, scaled_late=True),
    "int8": NumberFormat(_of(8, _WIDTH), "linear", ("int8", *_WIDE), files=_HF),
    "int8-w8a16": NumberFormat(_of(8, _WIDTH), "linear", _WIDE, files=_HF),
    "int4": NumberFormat(_INT4, "linear", _WIDE, files=_HF),
    "int4-g32": NumberFormat(_INT4_G32, "linear", _WIDE, files=_HF),
    "int4-experts": NumberFormat(_INT4_EXPERTS, "experts", _WIDE, files=_HF),
    "int8-g128": NumberFormat(_INT8_G128, "linear", _WIDE, files=_HF),
    "bnb-nf4": NumberFormat(_BNB, "linear", _WIDE, files=_HF),
    "bnb-nf4-double": NumberFormat(_BNB_DOUBLE, "linear", _WIDE, files=_HF),
    "mxfp4": NumberFormat(_MX, "experts", _FP4, files=("safetensors", "gguf", "mlx")),
    "mxfp4_MoE": NumberFormat(_MX_MOE, "experts", _FP4, rest="q8_0", files=("gguf",)),
    "mxfp4-w4a4": NumberFormat(_MX, "linear", _FP4, files=_HF),
    "mxfp8": NumberFormat(_MX8, "linear", _FP8, files=_HF, scaled_late=True),
    "nvfp4": NumberFormat(_NV, "linear", _FP4, files=("safetensors", "mlx")),
    "nvfp4a16": NumberFormat(_NV, "linear", _WIDE, files=_HF),
    "nvfp4-mlp": NumberFormat(_NV_MLP, "feed-forward", _FP4, files=_HF),
    "nvfp4-mlp-wo": NumberFormat(_NV_WO, "feed-forward and output", _FP4, files=_HF),
    "mlc-q4f16": NumberFormat(_Q4F16, "all", _HALF, files=("mlc",)),
    "bfp8": NumberFormat(_BFP8, "all", _WIDE, files=("bfp",)),
    "bfp8-bfp4": NumberFormat(_BFP4, "all", _WIDE, files=("bfp",)),
    "gguf_f16": NumberFormat(_F16, "all", ("fp16", "fp32"), files=("gguf",)),
    "gguf_bf16": NumberFormat(_BF16, "all", ("bf16", "fp32"), files=("gguf",)),
    **GGUF,
}
UNSTATED = {  # formats whose bits are in the rest of their names
    "mlx": NumberFormat(_of(4.5, _MLX), "all", _HALF, files=("mlx",)),
    "exl2": NumberFormat(_of(4, _EXL2), "linear", _HALF, files=("exl2",)),
}
SPELLINGS = {  # of formats, as patterns that fit the whole name in small letters, joined by hyphens; by our name
    r"(fp8|float8)(-(dynamic|static|quark|inc|kv|per-(tensor|channel|token-head)|w8a8))?|fp8-?w8a8|w8a8-?fp8": "fp8",
    r"((fp8|float8)-)?(e4m3(fn(uz)?)?|e5m2)|(fbgemm|ptpc|modelopt)-fp8": "fp8",
    r"fp8-block(wise)?|block(wise)?-?fp8": "fp8-block",
    r"int8-(kv|per-token-head)|(int8-)?w8a8(-int8)?|quantized\.w8a8|int8-sq|smoothquant": "int8",
    r"w8a16|quantized\.w8a16|int8-weight-only": "int8-w8a16",
    r"u?int4(-(awq|gptq|auto-?round|w4a16|g128|per-token-head|a?sym))*|4-?bit-(awq|gptq)|autoawq": "int4",
    r"(quantized\.)?w4a16(-g128|-asym)?": "int4",
    r"(awq|gptq|auto-?round)(-(gptq|int4|4-?b(it)?|w4a16|marlin|g128|128g|a?sym))*": "int4",
    r"(int4|awq|gptq|w4a16)-?(g|group-?)32|(awq|gptq)-4-?bit-32g(-actorder)?": "int4-g32",
    r"gptq-(int8|8-?bit)|int8-gptq|int8-?(g|group-?)128": "int8-g128",
    r"(bitsandbytes-)?nf4|bnb-fp4": "bnb-nf4",  # of fp4's bits, too
    r"(unsloth-)?bnb-4-?bit": "bnb-nf4-double",  # unsloth's; those it signs leave some layers in 16 bits
    r"(int4-)?(mlc-)?q4f16(-\d)?": "mlc-q4f16",
    r"(nv-?)?fp4(-(w4a4|kv|e2m1))?|(modelopt|petit)-(nv)?fp4|w4a4-nvfp4": "nvfp4",
    r"nvfp4-mlp(-only)?": "nvfp4-mlp",
    r"w-mxfp4-a-fp8": "mxfp4",  # AMD's: activations in fp8
    r"w-mxfp4-a-mxfp4|w4a4-mxfp4|(ocp-)?mx(fp)?4-w4a4": "mxfp4-w4a4",  # AMD's Quark: all linear layers, and inputs
    r"(q4-0|int4)-unquantized": "bf16",  # Google's: trained for four bits, stored in sixteen
    r"mxfp4-q([468])": r"mxfp4+mlx-q\1",  # mlx-community's gpt-oss: all but the experts in so many bits
    r"(mlx-)?(bfloat16|bf16)": "bf16",
    r"(mlx-)?(float16|half|fp16|f16)": "fp16",
    r"float(32)?|f32|fp32": "fp32",
    r"bfp8/bfp4-mixed": "bfp8-bfp4",
    r"iq3-s-mix": "iq3_M",  # llama.cpp's name of the file type, which has tensors of more bits
    r"q2-k-medium": "q2_K",
    r"q([345])-k-small": r"q\1_K_S",
    r"q([345])-k(-medium)?": r"q\1_K_M",  # llama-quantize: Q4_K is another name of Q4_K_M
    r"q3-k-large": "q3_K_L",
    r"exl2-(\d+(?:\.\d+)?)-?bpw|(\d+(?:\.\d+)?)-?bpw(?:-h\d)?-exl2": r"exl2@\1\2",
}
# What stands around a name and tells who made the file, not how its numbers are stored: choices of types by unsloth and
# mradermacher, distillation for MLX, bits per weight as llama.cpp prints them, releases of NVIDIA's and AMD's files.
AROUND = r"(?:gguf-|ud-|i1-)*(?P<name>.+?)(?:-dwq|-v\d|-preview|(?<!exl2)-[\d.]+-bpw)?"
QUANTISES_WEIGHTS = re.compile(r"awq|gptq|auto-?round|smoothquant|marlin|w\d+a\d+", re.IGNORECASE)
MLX_NAME = r"(?:mlx-q?(?P<bits>\d)(?:-?bit)?|(?P<named>\d)-?bit)(?:-gs?(?P<group>\d+))?"  # mlx-q6-g32
MIXED = {*GGUF, *UNSTATED}  # their files mix types, so that one may have other bits
KEPT_EXPERTS = "mxfp4+"  # before the format of all else, in files whose routed experts stay in mxfp4


@cache
def number_format(name: str) -> NumberFormat:
    """Return a format by our name; "q4_K_M@4.9" is that of one file with other bits per weight.

    "mlx-q6-g32" has 6 bits and, for each group of 32, a scale and a bias of 16 bits; "mxfp4+q8_0" has routed experts in
    mxfp4 and all else in q8_0. Raises ProfileError for a name that is not known, with the nearest ones, and for bits
    where a format has its own.

    >>> number_format("q8_0").bits, number_format("q4_K_M@4.9").bits, number_format("mlx-q6-g32").bits
    (8.5, 4.9, 7.0)
    """
    if name.startswith(KEPT_EXPERTS):
        rest = name.removeprefix(KEPT_EXPERTS)
        files = number_format(rest).files or FORMATS["mxfp4"].files
        return replace(FORMATS["mxfp4"], rest=rest, files=files)
    if found := re.fullmatch(r"mlx-q(\d)(?:-g(\d+))?", name):
        return _affine(name, int(found[1]), int(found[2] or MLX_GROUP))
    base, at, bits = name.partition("@")
    if base not in FORMATS and base not in UNSTATED:
        raise ProfileError(f"number format {name!r}", "it is not known", nearest(base, FORMATS))
    if not at and base in UNSTATED:
        raise ProfileError(f"number format {name!r}", "it does not say how many bits", f"Give {EXAMPLES[base]}")
    if not at:
        return FORMATS[base]
    if base not in MIXED:
        raise ProfileError(f"number format {name!r}", f"{base} has the same bits in every file", f"Give {base}")
    if not re.fullmatch(r"\d+(\.\d+)?", bits) or not 1 <= float(bits) <= 32:
        raise ProfileError(f"number format {name!r}", "a weight has 1 to 32 bits", f"Give, say, {base}@4.9")
    stored = UNSTATED.get(base) or FORMATS[base]
    return replace(stored, bits=_of(float(bits), _source("given with the name of the format", "", "given")))


def _known(name: str) -> str:
    number_format(name)
    return name


def _affine(name: str, bits: int, group: int) -> NumberFormat:
    """Return MLX's affine quantisation: bits + (16 + 16) / group (`mlx.core.quantize`: mode affine)."""
    if bits not in MLX_BITS or group not in MLX_GROUPS:
        because = f"MLX has {', '.join(map(str, MLX_BITS))} bits in groups of {', '.join(map(str, MLX_GROUPS))}"
        raise ProfileError(f"number format {name!r}", because, "Give mlx-q4 or, say, mlx-q6-g32")
    return replace(UNSTATED["mlx"], bits=_of(bits + 32 / group, _MLX))


def named_format(text: str) -> str:
    """Return our name of a format, in any capitals or as checkpoints, sources and options have it; "" for no text.

    A question mark behind it, with which sources doubt, and a note in brackets that names no format are left out.
    ProfileError for a name that is not known, with the nearest ones, and for a note that names another format.

    >>> named_format("Q4_K_M"), named_format("bfloat16"), named_format("W4A16"), named_format("mlx-q6 g32")
    ('q4_K_M', 'bf16', 'int4', 'mlx-q6-g32')
    """
    plain = text.strip().rstrip("?")
    found = _noted(*plain.split("(", 1)) if "(" in plain else _spelt(plain)
    if plain and plain != "auto" and not found:
        raise ProfileError(f"number format {text!r}", "it is not known", nearest(plain, [*FORMATS, *EXAMPLES.values()]))
    return found if found in ("", *UNSTATED) else _known(found)


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
    if plain.lower().startswith(KEPT_EXPERTS):
        rest = _spelt(plain[len(KEPT_EXPERTS) :])
        return f"{KEPT_EXPERTS}{rest}" if rest else ""
    base, at, bits = plain.partition("@")
    around = re.fullmatch(AROUND, _joined(base))
    for each in (_joined(base), around["name"] if around else ""):
        if each in OURS:
            return f"{OURS[each]}{at}{bits}"
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
    (('Qwen3-8B', 'q5_K_M'), ('Qwen3-8B', 'q4_K_M'), ('Qwen3-8B', 'q8_0'))
    """
    name = re.sub(r"\.gguf$", "", name, flags=re.IGNORECASE)
    if repository := re.fullmatch(r"(.+?)(?:[-.]i1)?[-_]GGUF(?::(.+))?", name, re.IGNORECASE):
        rest, inner = (repository[1], "") if repository[2] else ending(repository[1])
        stored = inner or _spelt(repository[2] or "Q4_K_M")
        return (rest, stored) if stored else (name, "")
    if (noted := re.fullmatch(r"(.+?)\s*\((.+)\)", name)) and (stored := _spelt(noted[2])):
        return noted[1], stored
    for found in re.finditer(r"[-_.\s](?=\w)", name):
        if stored := _spelt(name[found.end() :]):
            return name[: found.start()], stored
    return name, ""
