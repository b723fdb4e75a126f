"""Number format of a quantised checkpoint, from its quantization_config; mixtures of formats are refused by name."""

import re
from collections.abc import Callable

from simulator.errors import NotModelledError, ProfileError
from simulator.models.format_names import named_format
from simulator.models.hf_fields import Fields
from simulator.models.number_formats import KEPT_EXPERTS, number_format

# What stays in the model's own type in any format: heads, embeddings, norms, routers; a vision part is left out.
_UNCONVERTED = re.compile(
    r"(lm_head|embed\w*|norm\w*|gate|router|e_score_correction_bias)$|vis(ion|ual)|projector|modality_projection|merger"
)
_EXCLUSIONS = ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules", "llm_int8_skip_modules")


def weight_dtype(quant: Fields) -> str | None:
    """Return the number format of quantised weights, None for a checkpoint that is not quantised.

    Raises NotModelledError for a method, a group size or a mixture of formats that number_formats.FORMATS does not
    have.

    >>> weight_dtype(Fields({"quant_method": "fp8", "weight_block_size": [128, 128]}, "config.json"))
    'fp8-block'
    """
    if not quant.raw:
        return None
    method = str(quant.raw.get("quant_method"))
    if method not in _METHODS:
        raise quant.refusal("quant_method", f"not modelled; known: {', '.join(_METHODS)}")
    stored = _METHODS[method](quant)
    if number_format(stored).covers == "linear":
        for part in _EXCLUSIONS:
            _refuse_mixed(quant, part)
    return stored


def quantization_notes(quant: Fields) -> list[str]:
    """Return a note on kernels of a method that take longer than what is modelled. Source: bitsandbytes, matmul_4bit.

    >>> quantization_notes(Fields({"quant_method": "fp8"}, "config.json"))
    []
    """
    if quant.raw.get("quant_method") != "bitsandbytes":
        return []
    four = "unpack weights into memory for more than one token"
    eight = "multiply outliers apart, in 16 bits"
    kernels = "Times are lower bounds: kernels of bitsandbytes"
    return [f"{kernels} {four if quant.flag('load_in_4bit') else eight}, which is not modelled."]


def mlx_weight_dtype(quant: Fields) -> str | None:
    """Return the number format of weights that MLX quantised, None for a checkpoint that it did not.

    Raises NotModelledError for another mode than affine, and for layers with bits of their own.

    >>> mlx_weight_dtype(Fields({"bits": 6, "group_size": 32}, "config.json"))
    'mlx-q6-g32'
    """
    if not quant.raw:
        return None
    for name, value in quant.raw.items():
        if name not in ("bits", "group_size", "mode"):
            raise NotModelledError(
                f"{quant.where}: {name} {value!r}", "layers differ: not modelled", "Write it by hand"
            )
    if quant.raw.get("mode", "affine") != "affine":
        raise quant.refusal("mode", "only affine quantisation is modelled")
    stored = f"mlx-q{quant.count('bits')}-g{quant.count('group_size')}"
    try:
        return named_format(stored)
    except ProfileError as error:
        raise NotModelledError(f"{quant.where}: {stored}", error.because, error.remedy) from error


def _refuse_mixed(quant: Fields, part: str) -> None:
    for module in quant.each(part) or ():
        if not _UNCONVERTED.search(str(module).rstrip("$*.")):
            because = f"{module!r} stays in another format than its neighbours: not modelled"
            raise NotModelledError(f"{quant.where}: {part}", because, "Write the profile by hand")


def _fp8(quant: Fields) -> str:
    size = quant.each("weight_block_size")
    if size not in (None, [128, 128]):
        raise quant.refusal("weight_block_size", "only blocks of 128 x 128 are modelled")
    stored, experts = "fp8-block" if size else "fp8", quant.raw.get("expert_dtype")
    if experts not in (None, "fp4", "fp8"):
        raise quant.refusal("expert_dtype", "only fp4 and fp8 are modelled")
    return f"{KEPT_EXPERTS}{stored}" if experts == "fp4" else stored


def _mxfp4(_quant: Fields) -> str:
    return "mxfp4"


def _grouped(quant: Fields) -> str:
    """Return the number format of AWQ, GPTQ and AutoRound."""
    bits, size = quant.count("bits"), quant.raw.get("group_size")
    known = _OF_GROUPS.get(bits)
    if known is None:
        raise quant.refusal("bits", "only 4 and 8 bits are modelled for this method")
    if size not in list(known):
        raise quant.refusal("group_size", f"only groups of {' and '.join(map(str, known))} are modelled")
    return known[size]


def _bitsandbytes(quant: Fields) -> str:
    """Return the number format of bitsandbytes: int8 of LLM.int8(), or nf4 and fp4, which take the same bits."""
    if quant.flag("load_in_8bit"):
        return "int8"
    if not quant.flag("load_in_4bit"):
        raise quant.error("load_in_4bit", "neither it nor load_in_8bit is true", "Set one of the two")
    return "bnb-nf4-double" if quant.flag("bnb_4bit_use_double_quant") else "bnb-nf4"


def _modelopt(quant: Fields) -> str:
    algorithms = {"FP8": "fp8", "NVFP4": "nvfp4"}
    stated = quant.part("quantization") if quant.raw.get("quantization") else quant
    algorithm = str(stated.raw.get("quant_algo"))
    if algorithm not in algorithms:
        raise stated.refusal("quant_algo", f"not modelled; known: {', '.join(algorithms)}")
    for part in _EXCLUSIONS:
        _refuse_mixed(stated, part)
    return algorithms[algorithm]


def _compressed_tensors(quant: Fields) -> str:
    groups = quant.part("config_groups")
    found = {_group(groups.part(name)) for name in groups.raw}
    if len(found) != 1:
        raise quant.refusal("config_groups", f"{len(found)} formats in one checkpoint: not modelled")
    stored = found.pop()
    of_experts = any("self_attn" in str(each) for each in quant.each("ignore") or ())
    if stored == "mxfp4" and not of_experts:
        return "mxfp4-w4a4"
    return "int4-experts" if stored == "int4-g32" and of_experts else stored


def _group(group: Fields) -> str:
    """Return the number format of one group of compressed-tensors."""
    if group.each("targets") not in (None, ["Linear"]):
        raise group.refusal("targets", "only all linear layers at once are modelled")
    weights = group.part("weights")
    size = "block_structure" if weights.raw.get("block_structure") else "group_size"
    given = " ".join(str(weights.raw.get(each)) for each in ("type", "num_bits", "strategy", size))
    if given not in _GROUPS:
        raise NotModelledError(f"{weights.where}: {given}", "not modelled", f"Known: {', '.join(_GROUPS)}")
    stored = _GROUPS[given]
    return stored if group.raw.get("input_activations") else _OF_WEIGHTS_ALONE.get(stored, stored)


_OF_GROUPS: dict[int, dict[int, str]] = {4: {128: "int4", 32: "int4-g32"}, 8: {128: "int8-g128"}}
_GROUPS = {
    "float 8 tensor None": "fp8",
    "float 8 channel None": "fp8",
    "float 8 block [128, 128]": "fp8-block",
    "int 8 channel None": "int8",
    "int 4 group 128": "int4",
    "int 4 group 32": "int4-g32",
    "float 4 tensor_group 16": "nvfp4",
    "float 4 group 32": "mxfp4",
}
_OF_WEIGHTS_ALONE = {"int8": "int8-w8a16", "nvfp4": "nvfp4a16"}  # inputs stay in 16 bits
_METHODS: dict[str, Callable[[Fields], str]] = {
    "auto-round": _grouped,
    "awq": _grouped,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "fp8": _fp8,
    "gptq": _grouped,
    "modelopt": _modelopt,
    "mxfp4": _mxfp4,
}
