"""Number formats: bits per weight with their scales, which weights they cover, what multiplies them.

How others spell them: format_names.py.
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
_IK_BITS = _source(
    "ik_llama.cpp, llama_model_ftype_name of src/llama.cpp (read 2026-11-28); most tensors of a file", "2026-11"
)
_IK = {  # bits, and the format whose unpacking stands for theirs
    **{"iq6_K": (6.6, "q6_K"), "iq5_K": (5.5, "iq4_NL"), "iq5_KS": (5.25, "iq4_NL"), "iq4_K": (4.5, "iq4_NL")},
    **{"iq4_KS": (4.25, "iq4_XS"), "iq4_KSS": (4.0, "iq4_XS"), "iq3_K": (3.4325, "iq3_S"), "iq3_KS": (3.1875, "iq3_S")},
    **{"iq2_KL": (2.6875, "iq2_M"), "iq2_K": (2.375, "iq2_XS"), "iq2_KS": (2.1875, "iq2_XXS")},
}
GGUF |= {
    name: replace(GGUF[like], bits=_of(bits, _IK_BITS), unpacking=_of(GGUF[like].unpacking, _UNPACKING_GUESSED))
    for name, (bits, like) in _IK.items()
}
_WIDE, _FP8, _FP4 = ("bf16", "fp16", "fp32"), ("fp8", "bf16", "fp16", "fp32"), ("fp4", "bf16", "fp16", "fp32")
_BLOCKS = _of(8 + 32 / 128**2, _source("an fp32 scale per 128 x 128"))
_INT4 = _of(4 + 20 / 128, _source("AWQ, GPTQ: fp16 scale + 4-bit zero per 128"))
_INT4_G32 = _of(4 + 20 / 32, _source("the same per 32, as llm-compressor's AWQ has it"))
_INT4_ROWS = _of(4, _source("four bits and a scale a row (QQQ, arXiv:2406.09904; Intel's MLPerf scripts: group -1)"))
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
UD = {f"ud-{name}": stored for name, stored in GGUF.items() if not name.endswith("_XL")}  # unsloth's of these names
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
    "int4-w4a8": NumberFormat(_INT4_ROWS, "linear", ("int8", *_WIDE), files=_HF),
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
    **UD,
}
UNSTATED = {  # formats whose bits are in the rest of their names
    "mlx": NumberFormat(_of(4.5, _MLX), "all", _HALF, files=("mlx",)),
    "exl2": NumberFormat(_of(4, _EXL2), "linear", _HALF, files=("exl2",)),
}
MIXED = {*GGUF, *UD, *UNSTATED}  # their files mix types, so that one may have other bits
KEPT_EXPERTS = "mxfp4+"  # before the format of all else, in files whose routed experts stay in mxfp4
LEAST_OF_EXPERTS = {  # bits of the type that gave unsloth's mixes their name, which experts have since 2026, or more
    name: _of(bits, _source("ggml-common.h: bytes of a block of 256 numbers"))
    for name, bits in {"q2_K_XL": 2.625, "q3_K_XL": 3.4375, "q4_K_XL": 4.5, "q5_K_XL": 5.5, "q6_K_XL": 6.5625}.items()
}
DYNAMIC = {*LEAST_OF_EXPERTS, *UD}


@cache
def number_format(name: str) -> NumberFormat:
    """Return a format by our name; "q4_K_M@4.9" is that of one file with other bits per weight.

    "mlx-q6-g32" has 6 bits and, for each group of 32, a scale and a bias of 16 bits; "mxfp4+q8_0" has routed experts in
    mxfp4 and all else in q8_0, as "q4_K_XL@5.1+q8_0" has them in 5.1 bits. Raises ProfileError for a name that is not
    known, with the nearest ones, and for bits where a format has its own.

    >>> number_format("q8_0").bits, number_format("q4_K_M@4.9").bits, number_format("mlx-q6-g32").bits
    (8.5, 4.9, 7.0)
    """
    experts, plus, rest = name.partition("+")
    if plus:
        return _with_rest(name, experts, rest)
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


def _with_rest(name: str, experts: str, rest: str) -> NumberFormat:
    """Return the format of experts that have one of their own: mxfp4, or one of GGUF where all else is, too."""
    files = () if "+" in rest else number_format(rest).files
    in_gguf = type_name(experts) in GGUF and "gguf" in files
    if "+" in rest or not (f"{experts}+" == KEPT_EXPERTS or in_gguf):
        because = "experts of their own format are in mxfp4, or they and all else in one of GGUF"
        raise ProfileError(f"number format {name!r}", because, "Give, say, mxfp4+q8_0 or q4_K_XL+q8_0")
    stored = number_format(experts)
    return replace(stored, covers="experts", rest=rest, files=files or stored.files)


def type_name(name: str) -> str:
    """Return the name of a format without the bits of one file, and of experts alone where all else has another.

    >>> type_name("q4_K_M@4.9"), type_name("mxfp4+q8_0"), type_name("q4_K_XL@5.1+q8_0"), type_name("fp8")
    ('q4_K_M', 'mxfp4', 'q4_K_XL', 'fp8')
    """
    return re.split(r"[@+]", name, maxsplit=1)[0]


def _affine(name: str, bits: int, group: int) -> NumberFormat:
    """Return MLX's affine quantisation: bits + (16 + 16) / group (`mlx.core.quantize`: mode affine)."""
    if bits not in MLX_BITS or group not in MLX_GROUPS:
        because = f"MLX has {', '.join(map(str, MLX_BITS))} bits in groups of {', '.join(map(str, MLX_GROUPS))}"
        raise ProfileError(f"number format {name!r}", because, "Give mlx-q4 or, say, mlx-q6-g32")
    return replace(UNSTATED["mlx"], bits=_of(bits + 32 / group, _MLX))
