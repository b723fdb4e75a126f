"""Number formats: bits per weight with their scales, which weights they cover, and what multiplies them."""

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from simulator.errors import ProfileError, nearest
from simulator.profile import Evidence, Figure, Source

NO_UNPACKING = Figure(0.0, Source(text="a type that is multiplied as it is stored", date="", evidence="derived"))


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """How numbers are stored: bits per weight with their scales, which weights it covers, what they are multiplied in.

    `compute`: types of a device that multiply it, the first that there is; what is not its own unpacks it first.
    """

    bits: Figure
    covers: Literal["all", "linear", "feed-forward", "experts"]
    compute: tuple[str, ...]
    unpacking: Figure = NO_UNPACKING  # on a CPU: multiplications that take as long as to unpack a number
    rest: str = ""  # the format of what it does not cover; none: the model's own type
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
    )
    for name, (bits, unpacking) in _BITS_AND_UNPACKING.items()
}
_WIDE, _FP8, _FP4 = ("bf16", "fp16", "fp32"), ("fp8", "bf16", "fp16", "fp32"), ("fp4", "bf16", "fp16", "fp32")
_BLOCKS = _of(8 + 32 / 128**2, _source("an fp32 scale per 128 x 128"))
_INT4 = _of(4 + 20 / 128, _source("AWQ, GPTQ: fp16 scale + 4-bit zero per 128"))
_INT4_EXPERTS = _of(4 + 16 / 32, _source("a bf16 scale per 32: quantization_config of moonshotai/Kimi-K2.5"))
_MX = _of(4 + 8 / 32, _source("OCP MX: an 8-bit scale per 32"))
_MX_MOE = _of(
    4 + 8 / 32, _source("llama.cpp: experts in mxfp4, all else in q8_0 (ggml-org/llama.cpp pull request 25446)")
)
_NV = _of(4 + 8 / 16, _source("an fp8 scale per 16"))
_NV_MLP = _of(4 + 8 / 16, _source("an fp8 scale per 16; ModelOpt: NVFP4_MLP_ONLY_CFG"))
_F16 = _of(16, _source("GGUF's F16: x86 has no fp16 multiplication, and llama.cpp widens to fp32"))
FORMATS: dict[str, NumberFormat] = {
    "fp32": NumberFormat(_of(32, _WIDTH), "all", ("fp32",)),
    "bf16": NumberFormat(_of(16, _WIDTH), "all", _WIDE),
    "fp16": NumberFormat(_of(16, _WIDTH), "all", ("fp16", "bf16", "fp32")),
    "fp8": NumberFormat(_of(8, _WIDTH), "linear", _FP8),
    "fp8-block": NumberFormat(_BLOCKS, "linear", _FP8, scaled_late=True),
    "int8": NumberFormat(_of(8, _WIDTH), "linear", ("int8", *_WIDE)),
    "int4": NumberFormat(_INT4, "linear", _WIDE),
    "int4-experts": NumberFormat(_INT4_EXPERTS, "experts", _WIDE),
    "mxfp4": NumberFormat(_MX, "experts", _FP4),
    "mxfp4_MoE": NumberFormat(_MX_MOE, "experts", _FP4, rest="q8_0"),
    "nvfp4": NumberFormat(_NV, "linear", _FP4),
    "nvfp4-mlp": NumberFormat(_NV_MLP, "feed-forward", _FP4),
    "mlx": NumberFormat(_of(4.5, _source("MLX: an fp16 scale and bias per 64")), "all", ("fp16", "bf16", "fp32")),
    "gguf_f16": NumberFormat(_F16, "all", ("fp16", "fp32")),
    **GGUF,
}
COMMON_NAMES = {  # of formats in checkpoints' names and engines' options, as patterns
    r"fp8([-_](dynamic|block|e4m3))?|float8([-_]e4m3(fn)?)?|w8a8[-_]fp8": "fp8",
    r"w8a8|quantized\.w8a8|int8": "int8",
    r"awq([-_]int4)?|gptq([-_]int4)?|int4[-_](awq|gptq)|w4a16|quantized\.w4a16|int4": "int4",
    r"nvfp4|fp4": "nvfp4",
    r"nvfp4[-_]mlp([-_]only)?": "nvfp4-mlp",
    r"mxfp4": "mxfp4",
    r"bfloat16|bf16": "bf16",
    r"float16|half|fp16|f16": "fp16",
    r"float32|f32": "fp32",
}
MIXED = {*GGUF, "mlx"}  # their files mix types, so that one may have other bits


@cache
def number_format(name: str) -> NumberFormat:
    """Return a format by name; "q4_K_M@4.9" is that of one file with other bits per weight.

    Raises ProfileError for a name that is not known, with the nearest ones, and for bits where a format has its own.

    >>> number_format("q8_0").bits, number_format("q4_K_M@4.9").bits
    (8.5, 4.9)
    """
    base, at, bits = name.partition("@")
    if base not in FORMATS:
        raise ProfileError(f"number format {name!r}", "it is not known", nearest(base, FORMATS))
    if not at:
        return FORMATS[base]
    if base not in MIXED:
        raise ProfileError(f"number format {name!r}", f"{base} has the same bits in every file", f"Give {base}")
    if not re.fullmatch(r"\d+(\.\d+)?", bits) or not 1 <= float(bits) <= 32:
        raise ProfileError(f"number format {name!r}", "a weight has 1 to 32 bits", f"Give, say, {base}@4.9")
    return replace(FORMATS[base], bits=_of(float(bits), _source("given with the name of the format", "", "given")))


def named_format(name: str) -> str:
    """Return the format that a name stands for, in any capitals or as checkpoints and options have it; "" for none.

    >>> named_format("Q4_K_M"), named_format("bfloat16"), named_format("W4A16"), named_format("int3")
    ('q4_K_M', 'bf16', 'int4', '')
    """
    base, at, bits = name.partition("@")
    known = next((each for each in FORMATS if each.lower() == base.lower()), "")
    patterns = (each for pattern, each in COMMON_NAMES.items() if re.fullmatch(pattern, base, re.IGNORECASE))
    return f"{known}{at}{bits}" if known else next(patterns, "")
