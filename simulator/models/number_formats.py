"""Number formats: bits per weight with their scales, which weights they cover, and what multiplies them."""

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from simulator.errors import ProfileError, nearest


@dataclass(frozen=True, slots=True)
class Format:
    """How numbers are stored: bits per weight with their scales, which weights it covers, what it computes in."""

    bits: float
    covers: Literal["all", "linear", "feed-forward", "experts"]
    compute: tuple[str, ...]
    source: str
    unpacking: float = 0.0  # on a CPU: products of one number that take as long as to unpack it
    rest: str = ""  # the format of what it does not cover; none: the model's own type
    scaled_late: bool = False  # inputs are scaled in blocks as they come: a kernel of its own quantises them

    @property
    def size_bytes(self) -> float:
        """Bytes per stored number."""
        return self.bits / 8

    def unpacked_for(self, peak: str) -> bool:
        """Whether its weights are unpacked before they are multiplied in a type: fp4 is where no fp4 product exists."""
        return self.bits < 16 and peak in ("fp32", "tf32", "bf16", "fp16")


_BITS = "the type's width"
_MXFP4_MOE = "llama.cpp: experts in mxfp4, all else in q8_0 (ggml-org/llama.cpp pull request 25446)"
_GGUF = (
    "file size over parameters of GGUF files of 7B to 120B models, as their publishers and benchmarks list them, "
    "q2_K, q3_K_M, q3_K_L, iq1, iq2_S and iq3_M as llama.cpp's tools/quantize lists them for Llama-3.1-8B (recalled); "
    "unpacking set by hand to the rates of 2 to 8 threads of an M2 Max (ik_llama.cpp README, 2024-07), and of "
    "those that are not in it (q*_K_M, _L and _XL, q2_K, iq1, iq2_S, iq3_XS, iq3_M) a guess: that of a neighbour"
)
_BITS_AND_UNPACKING = {
    **{"q8_0": (8.5, 0.0), "q8_K_XL": (9.0, 0.0), "q6_K": (6.56, 2.1), "q5_0": (5.5, 2.2), "q5_1": (6.0, 2.6)},
    **{"q5_K_S": (5.52, 1.9), "q5_K_M": (5.67, 1.9), "q5_K_XL": (5.9, 1.9), "q4_0": (4.5, 1.0), "q4_1": (5.0, 1.1)},
    **{"q4_K_S": (4.6, 0.95), "q4_K_M": (4.85, 1.1), "q4_K_XL": (4.75, 1.1), "q3_K_S": (3.5, 2.0)},
    **{"q3_K_XL": (3.55, 1.8), "q2_K_S": (2.75, 1.35), "iq4_NL": (4.54, 1.3), "iq4_XS": (4.3, 1.15)},
    **{"q3_K_M": (4.0, 1.9), "q3_K_L": (4.3, 1.9), "q2_K": (3.16, 1.35), "q2_K_XL": (3.2, 1.35), "iq3_M": (3.76, 6.0)},
    **{"iq3_XS": (3.5, 6.0), "iq2_S": (2.74, 3.5), "iq1_M": (2.15, 3.5), "iq1_S": (2.0, 3.5), "q6_K_XL": (6.9, 2.1)},
    **{"iq3_S": (3.5, 6.6), "iq3_XXS": (3.1, 5.4), "iq2_M": (2.8, 4.8), "iq2_XS": (2.4, 3.2), "iq2_XXS": (2.2, 3.5)},
}
GGUF: dict[str, Format] = {
    name: Format(bits, "all", ("fp16", "bf16", "fp32"), _GGUF, unpacking)
    for name, (bits, unpacking) in _BITS_AND_UNPACKING.items()
}
FORMATS: dict[str, Format] = {
    "fp32": Format(32, "all", ("fp32",), _BITS),
    "bf16": Format(16, "all", ("bf16", "fp16", "fp32"), _BITS),
    "fp16": Format(16, "all", ("fp16", "bf16", "fp32"), _BITS),
    "fp8": Format(8, "linear", ("fp8", "bf16", "fp16", "fp32"), _BITS),
    "fp8-block": Format(
        8 + 32 / 128**2, "linear", ("fp8", "bf16", "fp16", "fp32"), "an fp32 scale per 128 x 128", scaled_late=True
    ),
    "int8": Format(8, "linear", ("int8", "bf16", "fp16", "fp32"), _BITS),
    "int4": Format(4 + 20 / 128, "linear", ("bf16", "fp16", "fp32"), "AWQ, GPTQ: fp16 scale + 4-bit zero per 128"),
    "mxfp4": Format(4 + 8 / 32, "experts", ("fp4", "bf16", "fp16", "fp32"), "OCP MX: an 8-bit scale per 32"),
    "mxfp4_MoE": Format(4 + 8 / 32, "experts", ("fp4", "bf16", "fp16", "fp32"), _MXFP4_MOE, rest="q8_0"),
    "nvfp4": Format(4 + 8 / 16, "linear", ("fp4", "bf16", "fp16", "fp32"), "an fp8 scale per 16"),
    "nvfp4-mlp": Format(
        4 + 8 / 16, "feed-forward", ("fp4", "bf16", "fp16", "fp32"), "an fp8 scale per 16; ModelOpt: NVFP4_MLP_ONLY_CFG"
    ),
    "mlx": Format(4.5, "all", ("fp16", "bf16", "fp32"), "MLX: an fp16 scale and bias per 64"),
    "gguf_f16": Format(
        16, "all", ("fp16", "fp32"), "GGUF's F16: x86 has no fp16 products, and llama.cpp widens to fp32"
    ),
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
def number_format(name: str) -> Format:
    """Return a format by name; "q4_K_M@4.9" is that of one file with other bits. ProfileError with the nearest names.

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
    return replace(FORMATS[base], bits=float(bits))


def named_format(name: str) -> str:
    """Return the format that a name stands for, in any capitals or as checkpoints and options have it; "" for none.

    >>> named_format("Q4_K_M"), named_format("bfloat16"), named_format("W4A16"), named_format("int3")
    ('q4_K_M', 'bf16', 'int4', '')
    """
    base, at, bits = name.partition("@")
    known = next((each for each in FORMATS if each.lower() == base.lower()), "")
    patterns = (each for pattern, each in COMMON_NAMES.items() if re.fullmatch(pattern, base, re.IGNORECASE))
    return f"{known}{at}{bits}" if known else next(patterns, "")
