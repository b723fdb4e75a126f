"""From a published setup to deployments: names mapped to profiles, layouts and settings filled in where not stated."""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

from simulator.deployment import Deployment
from simulator.desktop import gguf_format, mlx_format, with_stated_attention, with_stated_threads
from simulator.engine import Engine, engine_of
from simulator.errors import InfercastError, NotModelledError, ProfileError, nearest
from simulator.formats import FORMATS, named_format, number_format
from simulator.hardware import Hardware, load_hardware
from simulator.layers import MixtureOfExperts
from simulator.measurements import Setup
from simulator.memory import memory_plan
from simulator.mlperf import entry, is_mlperf
from simulator.model import Model, load_model
from simulator.recipes import (
    RETRIED_FRACTION,
    release_of,
    retries,
    rules_of,
    runs_asynchronously,
    settings_of,
)
from simulator.work import Layout

FORMAT_NAMES = {
    **{"int8_sq": "int8", "exl2-5.0-bpw": "q4_1", "exl2-2.5-bpw": "q2_K_S"},
    **{"exl2-4.0-bpw": "int4", "exl2-3.0-bpw": "iq3_XXS", "bfp8/bfp4 mixed": "q5_1", "bfp8": "q8_0"},
}
ROOMY = 0.6  # of the memory: a layout that is not stated leaves the rest to the cache
TIGHT = 0.9  # of the memory: copies stay within a node where they fit at all
ASYNCHRONOUS = "0.14"  # the first vLLM that decides a step while the one before runs
SCALED = 128  # columns of a block with one scale in fp8-block
DEGREES = (1, 2, 4, 8, 16, 32, 64)


class Placed(NamedTuple):
    """A deployment, and how many copies of it share the load."""

    deployment: Deployment
    copies: int


class _Degrees(NamedTuple):
    tp: int
    pp: int
    ep: int
    dp: int


def place(setup: Setup) -> Placed:
    """Return what a setup runs on. InfercastError where a profile is missing or the setup is not modelled."""
    if setup.flaw:
        raise ProfileError("a row that cannot be read", setup.flaw, "Correct the cell")
    hardware, model = with_stated_threads(setup, load_hardware(setup.hardware)), load_model(setup.model)
    engine = _engine(setup, model, hardware)
    layout = Layout(1, 1, 1, *_formats(setup, model, hardware, engine), model.dtype)
    layout = replace(layout, **_degrees(setup, model, hardware, layout)._asdict())
    copies = max(1, setup.devices // layout.devices)
    settings = settings_of(setup, model, hardware, layout)
    if layout.dp == 1:
        hardware, tp = _pooled(hardware, model, layout.tp)
        layout = replace(layout, tp=tp, ep=min(layout.ep, tp))
    deployment = Deployment(model, hardware, engine, layout, settings)
    return Placed(_retried(setup, deployment) if retries(setup) else deployment, copies)


def _retried(setup: Setup, deployment: Deployment) -> Deployment:
    """Return what the runner starts where a request does not fit: the same with an fp8 cache and more memory."""
    narrow = deployment.layout.cache_dtype == "fp8"
    if not narrow and memory_plan(deployment).cache_tokens >= setup.input_tokens + setup.output_tokens:
        return deployment
    layout = replace(deployment.layout, cache_dtype="fp8")
    return replace(deployment, layout=layout, settings=replace(deployment.settings, memory_fraction=RETRIED_FRACTION))


def _engine(setup: Setup, model: Model, hardware: Hardware) -> Engine:
    """Return the preset that a setup leads to, with what it states or its scripts set."""
    submitted, stated = entry(setup, model.id, hardware), (setup.engine or "vllm", release_of(setup))
    engine = with_stated_attention(setup, _preset(*((submitted and submitted.engine) or stated)))
    if runs_asynchronously(setup) and not engine.async_scheduling:
        engine = _preset(engine.engine, ASYNCHRONOUS)
    changed = rules_of(setup, model, hardware, engine)
    return engine.model_copy(update=changed) if changed else engine


@cache
def _preset(name: str, version: str) -> Engine:
    return engine_of(name, version)


def _formats(setup: Setup, model: Model, hardware: Hardware, engine: Engine) -> tuple[str, str]:
    """Weights and cache; weights that are not stated are the checkpoint's, of MLPerf fp8 where the device has it."""
    weights = mlx_format(setup, model) if setup.weight_dtype.startswith("mlx") else _format(setup.weight_dtype)
    if not weights and is_mlperf(setup):
        weights = "fp8" if "fp8" in hardware.peak_flops_per_s else model.weight_dtype
    if weights in ("", "nvfp4") and "fp4" in model.weight_dtype:  # "fp4" is the checkpoint's own kind
        weights = model.weight_dtype
    weights = weights or model.weight_dtype
    if "llama.cpp" in engine.engine:  # reads GGUF files
        weights = gguf_format(weights, setup, model)
    cached = _format(setup.cache_dtype)
    small = number_format(weights).compute[0] in ("fp8", "fp4")
    if not cached and small and _carries_fp8_cache(setup, model, hardware, engine):
        cached = "fp8"
    if "trtllm-bench" in setup.notes and hardware.family == "hopper" and _keeps_wide_cache(model, weights):
        cached = model.dtype
    return weights, cached or model.dtype


def _keeps_wide_cache(model: Model, weights: str) -> bool:
    """Tell whether trtllm-bench leaves the cache of a checkpoint as wide as its activations on Hopper.

    TensorRT-LLM's perf-overview.md v1.2 asks for fp8 with gpt-oss, "Hopper: use auto", and with DeepSeek-R1. For Qwen3
    the checkpoint decides: NVFP4 ones ask for fp8; that the fp8 one does not is a guess, without which H100 would be
    30 to 75 % too fast in both versions of the page.
    """
    return model.weight_dtype == "mxfp4" or (weights == "fp8" and "qwen3-235b" in model.id)


def _carries_fp8_cache(setup: Setup, model: Model, hardware: Hardware, engine: Engine) -> bool:
    """Tell whether a quantised checkpoint runs with an fp8 cache that the source does not state.

    InferenceMAX's scripts (github.com/SemiAnalysisAI/InferenceX benchmarks/, read 2026-11-21) ask for one on Blackwell,
    for MiniMax from vLLM 0.19 on, and elsewhere for checkpoints that were quantised from 16 bits, not for gpt-oss;
    aiconfigurator does everywhere (recalled).
    """
    if setup.is_inferencemax and model.weight_dtype == "mxfp4":
        return hardware.family == "blackwell"
    if engine.fp8_cache or setup.is_generated or is_mlperf(setup):
        return True
    asked = hardware.family == "blackwell" and not setup.engine_version.startswith("0.17")
    return setup.is_inferencemax and ("fp8" not in model.weight_dtype or asked)


def _format(name: str) -> str:
    if not name:
        return ""
    plain = name.partition(" (")[0].lower()  # (a note)
    known = FORMAT_NAMES.get(plain) or named_format(plain)
    if not known:
        raise NotModelledError(f"number format {name!r}", "it is not known", nearest(plain, [*FORMATS, *FORMAT_NAMES]))
    return known


def _degrees(setup: Setup, model: Model, hardware: Hardware, layout: Layout) -> _Degrees:
    """Degrees of the layout; where nothing is stated, the fewest devices that leave a cache.

    Where attention is data-parallel, experts lie on all of its ranks (Layout); ranks of a model without are copies.
    """
    routed = any(op.experts for op in model.ops())
    pp, tp, dp = max(1, setup.pp), setup.tp, setup.dp if routed else 1
    if "attention_dp enabled" in setup.notes and dp <= 1:
        tp, dp = 1, setup.tp  # the column's label is the size of the group
    elif tp and setup.ep > 1 and not setup.dp and tp * setup.ep == setup.devices:
        tp = setup.devices  # tensor and expert degree of one group of devices
    elif not tp and (found := entry(setup, model.id, hardware)) and 0 < found.tp * found.pp <= setup.devices:
        tp, pp, dp = (1, found.pp, found.tp) if found.attention_dp else (found.tp, found.pp, 1)
    elif not tp and dp <= 1:
        tp = _fewest(setup, model, hardware, layout)
    tp = max(1, min(tp, setup.devices))
    dp = max(1, min(dp, setup.devices // (tp * pp)))
    whole = setup.ep > 1 or _cuts_scales(model, layout, tp)
    ep = tp * dp if dp > 1 or (whole and tp > 1) else 1
    return _Degrees(tp, pp, ep, dp)


def _cuts_scales(model: Model, layout: Layout, tp: int) -> bool:
    """Tell whether tp would cut experts within a block of weights that share a scale: whole ones are placed then.

    vLLM refuses it otherwise: "The output_size of gate's and up's weight = 192 is not divisible by weight quantization
    block_n = 128" (vllm-project/vllm pull request 39046, 2026-04).
    """
    blocked = model.weight_dtype == "fp8-block" and layout.weight_dtype.startswith("fp8")
    blocks = (each.ffn for each in model.blocks.values())
    return blocked and any(isinstance(each, MixtureOfExperts) and each.intermediate % (SCALED * tp) for each in blocks)


def _fewest(setup: Setup, model: Model, hardware: Hardware, layout: Layout) -> int:
    """Return the fewest devices that leave a cache; more than a node only where it cannot hold the weights."""
    need = layout.weight_bytes(model.weights(layout))
    node = hardware.link.devices if hardware.link else 1
    fitting = (tp for tp in DEGREES if tp <= setup.devices and need / tp <= ROOMY * hardware.memory_bytes)
    tp = next(fitting, setup.devices)
    return min(tp, int(node)) if need / node <= TIGHT * hardware.memory_bytes else tp


def _pooled(hardware: Hardware, model: Model, tp: int) -> tuple[Hardware, int]:
    """Where heads do not divide by the devices, let fewer, faster devices stand for them, as engines pad heads."""
    fit = next(each for each in (tp, *reversed(DEGREES)) if each <= tp and _divides(model.id, each))
    if fit == tp:
        return hardware, tp
    share = tp / fit
    return hardware.model_copy(
        update={
            "memory_bytes_per_s": hardware.memory_bytes_per_s * share,
            "memory_marketed_bytes": hardware.memory_marketed_bytes * share,
            "memory_reported_bytes": hardware.memory_bytes * share,
            "peak_flops_per_s": {name: peak * share for name, peak in hardware.peak_flops_per_s.items()},
        }
    ), fit


@cache
def _divides(model: str, tp: int) -> bool:
    try:
        load_model(model).ops(Layout(tp))
    except InfercastError:
        return False
    return True
