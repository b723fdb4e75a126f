"""Columns that identify a deployment in a row."""

from typing import Any

from simulator.deployment.deployment import Deployment


def identity(deployment: Deployment) -> dict[str, Any]:
    """Return the columns that identify a deployment: model, device, engine, degrees, number formats, given settings."""
    layout, settings = deployment.layout, deployment.settings
    return {
        "model": deployment.model.id,
        "hardware": deployment.hardware.label,
        "engine": deployment.engine.id,
        "devices": deployment.devices,
        "tp": deployment.tp,
        "pp": layout.pp,
        "ep": layout.ep,
        "dp": layout.dp,
        "weight_dtype": layout.weight_dtype,
        "cache_dtype": layout.cache_dtype,
        "max_num_seqs": settings.max_num_seqs,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "gpu_memory_utilization": settings.memory_fraction,
        "settings": " ".join(settings.changes) or None,
    }
