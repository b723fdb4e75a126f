"""What was set on a deployment: all that differs from what its engine does there by itself."""

from typing import Any

from simulator.deployment.deployment import Deployment
from simulator.deployment.layouts import running_layout
from simulator.deployment.setting_names import OF_ENGINE, option_of_setting, our_words
from simulator.deployment.speculation import Speculation
from simulator.engines.engine import Engine
from simulator.units import GIB

SET_BY = {"cache_tokens": "num_blocks", "num_gpu_blocks_override": "num_blocks", "total_context": "max_model_len"}


def given_settings(deployment: Deployment) -> dict[str, Any]:
    """Return the settings that are not the engine's defaults, by our names: degrees, limits, offload, drafts, rules.

    Sizes of offloads are in GiB, as their options are. Left out is what no engine is started with: the formats of
    weights, which are a checkpoint's, what requests ask for, and the profile of the host.

    >>> from simulator.deployment.deployment import deploy
    >>> from simulator.deployment.settings import Settings
    >>> given_settings(deploy("llama-3.1-8b", "h100-sxm", settings=Settings(256, changes=("prefix_caching=false",))))
    {'max_num_seqs': 256, 'prefix_caching': False}
    """
    layout, settings, offload = deployment.layout, deployment.settings, deployment.settings.offload
    degrees = {"tp": deployment.tp, "pp": layout.pp, "ep": layout.ep, "dp": layout.dp}
    others = {
        "cache_dtype": layout.cache_dtype if layout.cache_dtype != _usual_cache(deployment) else None,
        "num_blocks": settings.num_blocks,
        "speculation": settings.speculation,
        "cpu_offload_gb": offload.weight_bytes / GIB or None,
        "gpu_layers": offload.gpu_layers,
        "kv_offloading_size": offload.cache_bytes / GIB or None,
        "threads": settings.threads,
        "language_model_only": settings.language_model_only or None,
        "flashinfer_sampler": settings.flashinfer_sampler or None,
    }
    found = {name: degree for name, degree in degrees.items() if degree > 1} | _limits(deployment)
    return found | {name: value for name, value in others.items() if value is not None} | _rules(deployment)


def as_given(name: str, value: Any, deployment: Deployment) -> str:
    """Return a setting as the user wrote it, where that was --set, else as the option that sets it."""
    for text in deployment.settings.changes:
        if SET_BY.get(own := our_words(deployment.engine, text)[0], own) == name:
            return f"--set {text}"
    if name == "num_blocks":
        value += 1  # one is vLLM's null block
    text = value.draft if isinstance(value, Speculation) else value
    return f"{option_of_setting(name)} {text}"


def _usual_cache(deployment: Deployment) -> str:
    """Return the format of the KV cache where none is asked for."""
    dtypes = (deployment.layout.weight_dtype, "")
    return running_layout(deployment.model, deployment.hardware, deployment.engine, dtypes=dtypes).cache_dtype


def _limits(deployment: Deployment) -> dict[str, Any]:
    """Return the limits of a step, of a sequence and of the memory that are not the engine's defaults."""
    engine, settings, hardware = deployment.engine, deployment.settings, deployment.hardware
    usual = {
        "max_num_seqs": engine.default("max_num_seqs", hardware),
        "max_num_batched_tokens": engine.rank_tokens(hardware, deployment.layout.dp),
        "max_model_len": engine.context_tokens(hardware),
        "memory_fraction": deployment.usual_memory_fraction,
    }
    given = {name: getattr(settings, name) for name in usual}
    return {name: value for name, value in given.items() if value not in (None, usual[name])}


def _rules(deployment: Deployment) -> dict[str, Any]:
    """Return the engine's rules and switches that are not its preset's."""
    preset = Engine.from_yaml(deployment.engine.path)
    values = {name: deployment.engine.setting(name) for name in OF_ENGINE}
    return {name: value for name, value in values.items() if value != preset.setting(name)}
