"""From a published setup to deployments: names mapped to profiles, layouts and settings filled in where not stated."""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

from simulator.deployment import Deployment, Settings
from simulator.engine import Engine, engine_of
from simulator.errors import InfercastError, NotModelledError
from simulator.hardware import Hardware, load_hardware
from simulator.measurements import Setup
from simulator.model import Model, load_model
from simulator.work import FORMATS, Layout, number_format

FORMAT_NAMES = {
    **{name.lower(): name for name in FORMATS},
    **{"f16": "fp16", "fp4": "nvfp4", "int8_sq": "int8", "exl2-5.0-bpw": "q4_1", "exl2-2.5-bpw": "q2_K_S"},
    **{"exl2-4.0-bpw": "int4", "exl2-3.0-bpw": "iq3_XXS", "bfp8/bfp4 mixed": "q5_1", "bfp8": "q8_0"},
    **dict.fromkeys(("int4-awq", "int4-gptq", "int4-awq (w4a16)", "int4 (mlc q4f16)"), "int4"),
}
ROOMY = 0.6  # of the memory: a layout that is not stated leaves the rest to the cache
TIGHT = 0.9  # of the memory: copies stay within a node where they fit at all
DEGREES = (1, 2, 4, 8, 16, 32, 64)


class Placed(NamedTuple):
    """A deployment, how many copies of it share the load, and the pooling that was needed (1 is none)."""

    deployment: Deployment
    copies: int


def place(setup: Setup) -> Placed:
    """Return what a setup runs on. InfercastError where a profile is missing or the setup is not modelled."""
    hardware, model = load_hardware(setup.hardware), load_model(setup.model)
    engine = _engine(setup.engine or "vllm", setup.engine_version or setup.date)
    if setup.is_generated and engine.engine == "sglang":  # `agg enable_mixed_chunk = true` in its sglang.rule
        engine = engine.model_copy(update={"policy": "continuous"})
    if part := setup.noted(r"n_ubatch (\d+)"):
        engine = engine.model_copy(update={"micro_batch_tokens": int(part)})
    layout = Layout(1, 1, 1, *_formats(setup, model, hardware, engine), model.dtype)
    tp, pp = _degrees(setup, model, hardware, layout)
    ep = tp if setup.ep > 1 and tp > 1 else 1
    copies = max(1, setup.devices // (tp * pp))
    hardware, tp = _pooled(hardware, model, tp)
    deployment = Deployment(
        model, hardware, engine, replace(layout, tp=tp, pp=pp, ep=min(ep, tp)), _settings(setup, model, hardware)
    )
    return Placed(deployment, copies)


@cache
def _engine(name: str, version: str) -> Engine:
    return engine_of(name, version)


def _formats(setup: Setup, model: Model, hardware: Hardware, engine: Engine) -> tuple[str, str]:
    """Weights and cache; where not stated, MLPerf runs take fp8 where the device multiplies it."""
    weights = _format(setup.weight_dtype)
    if not weights and setup.load.startswith("MLPerf"):
        weights = "fp8" if "fp8" in hardware.peak_flops_per_s else model.weight_dtype
    if weights in ("", "nvfp4") and "fp4" in model.weight_dtype:  # "fp4" is the checkpoint's own kind
        weights = model.weight_dtype
    weights = weights or model.weight_dtype
    cached = _format(setup.cache_dtype)
    small = number_format(weights).compute[0] in ("fp8", "fp4")
    if not cached and small and _carries_fp8_cache(setup, model, hardware, engine):
        cached = "fp8"
    return weights, cached or model.dtype


def _carries_fp8_cache(setup: Setup, model: Model, hardware: Hardware, engine: Engine) -> bool:
    """Tell whether a quantised checkpoint runs with an fp8 cache that the source does not state.

    InferenceMAX's scripts (github.com/SemiAnalysisAI/InferenceX benchmarks/, read 2026-11-21) ask for one on Blackwell,
    and elsewhere for checkpoints that were quantised from 16 bits, not for gpt-oss; aiconfigurator does everywhere
    (recalled).
    """
    if "IMX workload" in setup.notes and model.weight_dtype == "mxfp4":
        return hardware.family == "blackwell"
    if engine.fp8_cache or setup.is_generated:
        return True
    return "IMX workload" in setup.notes and ("fp8" not in model.weight_dtype or hardware.family == "blackwell")


def _format(name: str) -> str:
    if not name:
        return ""
    known = FORMAT_NAMES.get(name.lower()) or FORMAT_NAMES.get(name.partition(" (")[0].lower())  # (a note)
    if known is None:
        raise NotModelledError(f"number format {name!r}", "it is not known", "Known: " + ", ".join(FORMAT_NAMES))
    return known


def _degrees(setup: Setup, model: Model, hardware: Hardware, layout: Layout) -> tuple[int, int]:
    """Tensor and pipeline degree; with attention copied, or nothing stated, the fewest devices that leave a cache."""
    pp = max(1, setup.pp)
    attention_is_copied = setup.dp > 1 or "attention_dp enabled" in setup.notes
    if setup.tp and not attention_is_copied:
        return min(setup.tp, setup.devices), pp
    need = layout.weight_bytes(model.weights(layout))
    node = hardware.link.devices if hardware.link else 1
    fitting = (tp for tp in DEGREES if tp <= setup.devices and need / tp <= ROOMY * hardware.memory_bytes)
    tp = next(fitting, setup.devices)
    return min(tp, int(node)) if need / node <= TIGHT * hardware.memory_bytes else tp, pp


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


def _settings(setup: Setup, model: Model, hardware: Hardware) -> Settings:
    seqs = setup.noted(r"max_num_seqs (\d+)")
    tokens = setup.noted(r"max_num_batched_tokens (\d+)") or _imx_tokens(setup, model, hardware)
    return Settings(
        max_num_seqs=int(seqs) if seqs else None,
        max_num_batched_tokens=int(max(tokens, seqs or 1)) if tokens else None,
        memory_fraction=setup.noted(r"gpu_mem_util ([\d.]+)"),
    )


def _imx_tokens(setup: Setup, model: Model, hardware: Hardware) -> float | None:
    """Return max_num_tokens of InferenceMAX's scripts (read 2026-11-21) where it is not the engine's default."""
    if "IMX workload" not in setup.notes:
        return None
    dense = "70b" in model.id
    if setup.engine.startswith("TensorRT") and (dense or "gpt-oss" in model.id):
        return setup.input_tokens + setup.output_tokens + 200 if dense else 20_000  # a dense model's longest context
    return 131_072 if dense and hardware.family.startswith("cdna") else None
