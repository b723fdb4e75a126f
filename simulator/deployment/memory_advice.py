"""Deployments that do not fit into memory: the error, and flags that would make them fit, each tried."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from simulator.deployment.deployment import Deployment, deployment_of
from simulator.deployment.memory import MemoryPlan, memory_plan
from simulator.deployment.offload import NO_OFFLOAD, Offload, host_of
from simulator.deployment.sharding import scaled_hardware
from simulator.deployment.weight_files import cache_formats, narrower_formats
from simulator.errors import DoesNotFitError, Given, InfercastError, Setting
from simulator.hardware.hardware import Hardware, load_hardware
from simulator.models.layout import Layout
from simulator.models.number_formats import number_format
from simulator.models.operations import Counts
from simulator.units import GIB, gibibytes

LARGER = ("l40s", "a100-sxm-80", "h200-sxm", "b200-sxm", "b300-sxm")
TRIED_DEGREES = (1, 2, 4, 8, 16)  # of parallelism: devices of a replica, where nothing is said
OFFLOADS_GIB = (1, 2, 4, 8, 16, 32)  # of weights, beyond the GiB that the device is short of
USABLE_TOKENS = 2_048  # of a sequence: a remedy has cache for as many, or for a shorter max_model_len
LAYOUT_FLAGS = {"--tp": "tp", "--ep": "ep", "--weight-dtype": "weight_dtype", "--cache-dtype": "cache_dtype"}
SETTING_FLAGS = {
    "--max-num-batched-tokens": "max_num_batched_tokens",
    "--max-num-seqs": "max_num_seqs",
    "--max-model-len": "max_model_len",
    "--gpu-memory-utilization": "memory_fraction",
}
Flags = dict[str, Any]


def refuse_misfit(plan: MemoryPlan) -> None:
    """Raise DoesNotFitError, with flags that would help, where memory has no room for the cache that is asked for."""
    deployment, settings = plan.deployment, plan.deployment.settings
    _refuse_host_misfit(plan)
    if plan.blocks_that_fit < deployment.layout.dp:
        raise DoesNotFitError(str(deployment), _shortage(plan), partial(_advice, deployment))
    if plan.num_blocks > plan.blocks_that_fit:
        asked, fit = plan.num_blocks + 1, plan.blocks_that_fit + 1  # of the flag: one is vLLM's null block
        given: Given = f"{deployment} with {asked:,} cache blocks"
        because = f"{fit:,} fit"
        raise DoesNotFitError(given, because, f"Give --num-gpu-blocks-override {fit} or less")
    if deployment.engine.is_reserved and plan.max_num_seqs > plan.num_blocks:
        given = f"{deployment} with {plan.max_num_seqs} slots of {plan.block_size:,} tokens"
        because = f"each slot reserves its context, and {plan.num_blocks} such slots fit"
        raise DoesNotFitError(given, because, "Give a smaller --max-num-seqs or --max-model-len")
    if settings.max_model_len is not None and plan.max_context_tokens < settings.max_model_len:
        given = f"{deployment} with", Setting("max_model_len", settings.max_model_len)
        because = f"the cache holds one sequence of {plan.max_context_tokens:,} tokens at most"
        shorter = f"Give --max-model-len {plan.max_context_tokens}"
        raise DoesNotFitError(given, because, lambda: f"{shorter}. {_advice(deployment)}")


def _refuse_host_misfit(plan: MemoryPlan) -> None:
    offload = plan.deployment.settings.offload
    if offload == NO_OFFLOAD:
        return
    needed = (plan.host_weight_bytes + offload.cache_bytes) * plan.deployment.layout.devices
    host = host_of(plan.deployment.hardware, offload)
    if needed > host.memory_bytes:
        given = f"{gibibytes(needed)} offloaded to {host.id}"
        because = f"the host has {gibibytes(host.memory_bytes)}"
        raise DoesNotFitError(given, because, "Offload less, or give a profile of a host with more memory")


def _shortage(plan: MemoryPlan) -> str:
    """Say which parts of the memory leave no room for a cache."""
    others = plan.workspace_bytes + plan.context_bytes + plan.graph_bytes
    needed = f"{gibibytes(plan.weight_bytes)} weights + {gibibytes(others)} workspace, context and graphs"
    return f"{needed} leave no cache in {gibibytes(plan.total_bytes - plan.unused_bytes)} usable"


def _advice(deployment: Deployment) -> str:
    remedies = ", or ".join(remedies_for(deployment))
    return f"It fits with {remedies}" if remedies else "No layout, number format or device of the library makes it fit"


def remedies_for(deployment: Deployment) -> Iterator[str]:
    """Yield flags that make a deployment fit: more or larger devices, narrower formats, smaller steps, offloading.

    Each is tried: its layout divides the model, a node has so many linked devices, and its cache holds a sequence. Of
    each kind the smallest change that works is named.
    """
    for alternatives in _alternatives(deployment):
        tried = ((flags, _plan_with(deployment, flags)) for flags in alternatives)
        flags, plan = next((each for each in tried if each[1]), ({}, None))
        if plan:
            words = " ".join(f"{flag} {value}" for flag, value in flags.items())
            yield f"{words} ({gibibytes(plan.weight_bytes, 1)} weights, {_held(plan)})"


def _held(plan: MemoryPlan) -> str:
    """Say what the cache holds: of one sequence, where some layers keep only a part of each."""
    if plan.groups.limited:
        return f"a sequence of {plan.max_context_tokens:,} tokens"
    return f"{plan.cache_tokens:,} tokens of cache"


def _alternatives(deployment: Deployment) -> Iterator[list[Flags]]:
    """Yield lists of flags, one for each kind of change, the smallest change first."""
    layout, seqs = deployment.layout, min(deployment.max_num_seqs, 64)
    degrees: list[Flags] = [{"--tp": tp, **_experts(layout, tp)} for tp in TRIED_DEGREES if tp > deployment.tp]
    one = deployment.hardware.memory_bytes / deployment.devices_each
    larger = [name for name in LARGER if load_hardware(name).memory_bytes > 1.1 * one]
    usual = deployment.usual_memory_fraction
    yield [{"--gpu-memory-utilization": usual}] if deployment.memory_fraction < usual else []
    asked = deployment.settings.max_model_len or 0
    contexts = [asked >> halvings for halvings in range(1, asked.bit_length())] if deployment.engine.is_reserved else []
    yield [{"--max-model-len": each} for each in contexts if each >= USABLE_TOKENS]  # a slot reserves all of it
    yield degrees
    yield [{"--cache-dtype": each} for each in cache_formats(deployment.engine)[:1]]
    bits = number_format(layout.weight_dtype).bits
    narrower = [each for each in narrower_formats(deployment.engine) if number_format(each).bits < bits]
    yield [{"--weight-dtype": dtype, **more} for more in ({}, *degrees) for dtype in narrower]
    yield [{"--max-num-batched-tokens": tokens, "--max-num-seqs": seqs} for tokens in (2048, 512)]
    yield [{"--hardware": name, **more} for more in ({}, *degrees) for name in larger]
    yield _offloads(deployment) if deployment.settings.offload == NO_OFFLOAD else []


def _offloads(deployment: Deployment) -> list[Flags]:
    """Return layers that the CPU computes, in engines that have such kernels; in others weights that are copied."""
    if deployment.engine.is_built_on_ggml:
        return [{"--gpu-layers": kept} for kept in reversed(range(1, len(deployment.model.layer_names)))]
    short = max(0, -int(memory_plan(deployment).cache_bytes // GIB))
    return [{"--cpu-offload-gb": short + more} for more in OFFLOADS_GIB]


def _experts(layout: Layout, tp: int) -> Flags:
    return {"--ep": tp * layout.dp} if layout.ep > 1 else {}


def _asked(deployment: Deployment) -> Layout:
    """Return the layout that was asked for, of all devices (sharding.Sharded)."""
    layout = deployment.layout
    return replace(layout, tp=deployment.tp, ep=deployment.tp * layout.dp if layout.ep > 1 else 1)


def _one_device(deployment: Deployment) -> Hardware:
    return scaled_hardware(deployment.hardware, 1 / deployment.devices_each)


def _plan_with(deployment: Deployment, flags: Flags) -> MemoryPlan | None:
    """Return the memory plan with some flags changed; None where that does not work or fit either."""
    layout = {name: flags[flag] for flag, name in LAYOUT_FLAGS.items() if flag in flags}
    settings = {name: flags[flag] for flag, name in SETTING_FLAGS.items() if flag in flags}
    if "--gpu-layers" in flags:
        settings["offload"] = Offload(gpu_layers=flags["--gpu-layers"])
    if "--cpu-offload-gb" in flags:
        settings["offload"] = Offload(weight_bytes=flags["--cpu-offload-gb"] * GIB)
    try:
        changed = deployment_of(
            deployment.model,
            load_hardware(flags["--hardware"]) if "--hardware" in flags else _one_device(deployment),
            deployment.engine,
            replace(_asked(deployment), **layout),
            replace(deployment.settings, **settings),
        )
        changed.at_light.step_model().seconds(Counts(steps=1.0, tokens=1.0))
        plan = memory_plan(changed)
        _refuse_host_misfit(plan)
    except InfercastError:  # a layout that does not divide the model is no remedy
        return None
    if changed.tp > deployment.tp and changed.hardware.node_devices == 1:
        return None
    needed = changed.settings.max_model_len or min(USABLE_TOKENS, changed.max_model_len)
    enough = plan.max_context_tokens >= needed
    return plan if plan.blocks_that_fit >= max(1, changed.settings.num_blocks or 1) and enough else None
