"""Degrees of parallelism with the number formats that an engine runs on a device: a Layout from what a user gives."""

from dataclasses import replace

from simulator.deployment.weight_files import refuse_cache, weight_format
from simulator.engines.engine import Engine
from simulator.errors import InfercastError, NotModelledError, Setting
from simulator.hardware.hardware import Hardware
from simulator.models.format_names import cache_format, named_format
from simulator.models.layout import Layout
from simulator.models.model import Model

# vLLM's kernels for a KV cache in nvfp4 are Blackwell's (CacheDType in vllm/config/cache.py; read 2026-11-24)
NVFP4_CACHE_FAMILIES = ("blackwell", "blackwell-geforce", "blackwell-rtx")


def running_layout(
    model: Model, hardware: Hardware, engine: Engine, *, dtypes: tuple[str, str] = ("", ""), **degrees: int
) -> Layout:
    """Return a layout as `default_layout` does, in the formats that an engine reads and runs on a device.

    Where no 16-bit type is asked for and the device has none of the checkpoint's, it is cast (Platform.casts). Raises
    NotModelledError for a format that the engine does not read, or keeps no cache in.
    """
    weights = weight_format(dtypes[0], model, engine)
    layout = default_layout(model, dtypes=(weights, dtypes[1] or usual_cache(weights, engine)), **degrees)
    refuse_cache(layout.cache_dtype, engine)
    if engine.engine == "vllm" and layout.cache_dtype == "nvfp4" and hardware.family not in NVFP4_CACHE_FAMILIES:
        given = f"a KV cache in nvfp4 in {engine.id} on {hardware.id}"
        raise NotModelledError(given, "its kernels for that are Blackwell's", "Give --cache-dtype fp8")
    platform = engine.platform(hardware)
    casts = platform.casts if platform else {}
    weights, cached = (
        stored if asked else casts.get(stored, stored)
        for asked, stored in zip(dtypes, (layout.weight_dtype, layout.cache_dtype), strict=True)
    )
    model_dtype = casts.get(layout.model_dtype, layout.model_dtype)
    return replace(layout, weight_dtype=weights, cache_dtype=cached, model_dtype=model_dtype)


def usual_cache(weight_dtype: str, engine: Engine) -> str:
    """Return "fp8" where checkpoints in a format ask for such a KV cache and the engine heeds it, else "".

    >>> from simulator.engines.engine import load_engine
    >>> usual_cache("nvfp4", load_engine("vllm")), usual_cache("fp8", load_engine("vllm"))
    ('fp8', '')
    """
    return "fp8" if weight_dtype in engine.fp8_cache else ""


def default_layout(
    model: Model, *, tp: int = 1, pp: int = 1, ep: int = 1, dp: int = 1, dtypes: tuple[str, str] = ("", "")
) -> Layout:
    """Return a layout; `dtypes` names the number formats of weights and KV cache, "" for the checkpoint's own.

    Weights in "fp4" get the checkpoint's kind of it (`Model.fp4_dtype`). Raises InfercastError for `dtypes` that are
    not two, ProfileError for an unknown format, NotModelledError as `refuse_degrees_of_experts` and `Layout` do.

    >>> from simulator.models.model import load_model
    >>> layout = default_layout(load_model("llama-3.1-8b"), tp=2, dtypes=("fp8", ""))
    >>> layout.weight_dtype, layout.cache_dtype
    ('fp8', 'bf16')
    """
    if isinstance(dtypes, str) or len(dtypes) != 2:
        because = "they are two formats, of the weights and of the KV cache"
        raise InfercastError(Setting("dtypes", dtypes), because, 'Give, say, ("fp8", ""): "" is the checkpoint\'s own')
    refuse_degrees_of_experts(model, ep, dp)
    weights, cached = model.checkpoint_format(named_format(dtypes[0])), cache_format(dtypes[1])
    return Layout(tp, pp, ep, weights or model.weight_dtype, cached or model.dtype, model.dtype, dp)


def refuse_degrees_of_experts(model: Model, ep: int, dp: int) -> None:
    """Raise NotModelledError where experts of a model that has none would be spread, or its attention be copied."""
    if model.is_routed:
        return
    if dp > 1:
        given = Setting("dp", dp), f"for {model.id}"
        because = "ranks of a model without experts are replicas"
        raise NotModelledError(given, because, f"Leave dp out; `infercast fleet --replicas {dp}` simulates them")
    if ep > 1:
        given = Setting("ep", ep), f"for {model.id}"
        raise NotModelledError(given, "the model has no experts to spread", "Leave ep out")
