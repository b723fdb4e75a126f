"""From a published setup to deployments: names mapped to profiles, layouts and settings filled in where not stated."""

import math
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from simulator.deployment.deployment import Deployment
from simulator.deployment.memory import memory_plan
from simulator.engines.engine import Engine, engine_of
from simulator.errors import InfercastError, NotModelledError, ProfileError, nearest
from simulator.hardware.hardware import Hardware, load_hardware
from simulator.models.layers import Attention, Dense, MixtureOfExperts
from simulator.models.model import Model, load_model
from simulator.models.number_formats import FORMATS, named_format
from simulator.models.operations import Layout
from simulator.validation.desktop import gguf_format, mlx_format, stated_rules, with_stated_threads
from simulator.validation.measurements import Setup
from simulator.validation.sources import Recipe, recipe_of

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
    """What a source sets for a setup, the deployment that this leads to, and how many copies of it share the load."""

    recipe: Recipe
    deployment: Deployment
    copies: int

    @property
    def setup(self) -> Setup:
        """The setup as published, with the devices of one replica."""
        return self.recipe.setup


def place(setup: Setup) -> Placed:
    """Return what a setup runs on. InfercastError where a profile is missing or the setup is not modelled."""
    if setup.flaw:
        raise ProfileError("a row that cannot be read", setup.flaw, "Correct the cell")
    hardware, model = with_stated_threads(setup, load_hardware(setup.hardware)), load_model(setup.model)
    replicas = max(1, setup.replicas)
    own = replace(setup, devices=max(1, setup.devices // replicas))
    recipe = recipe_of(own, model, hardware)
    engine = _engine(recipe)
    layout = _laid_out(recipe, Layout(1, 1, 1, *_formats(recipe, engine), model.dtype))
    copies = replicas * max(1, own.devices // layout.devices)
    settings = recipe.settings(layout)
    if hardware.seen_as > 1 and layout.devices == layout.tp and "llama.cpp" not in engine.engine:  # it splits layers
        hardware, layout = _seen(hardware, layout)
    if setup.tp > setup.devices and layout.dp == 1 and (padded := _padded(model, setup.tp)):
        model = padded
    elif layout.dp == 1:
        hardware, tp = _pooled(hardware, model, layout.tp)
        layout = replace(layout, tp=tp, ep=min(layout.ep, tp))
    deployment = _with_cache(setup, Deployment(model, hardware, engine, layout, settings))
    return Placed(recipe, _that_fits(recipe, deployment), copies)


def _with_cache(setup: Setup, deployment: Deployment) -> Deployment:
    """Return a deployment with as many blocks as fit the bytes of cache that a setup states for each device."""
    stated = setup.engine_setting("kv-cache-memory-bytes")
    if not stated:
        return deployment
    plan = memory_plan(deployment)
    blocks = min(plan.blocks_that_fit, int(float(stated) // plan.block_bytes))
    return replace(deployment, settings=replace(deployment.settings, num_blocks=blocks))


def _that_fits(recipe: Recipe, deployment: Deployment) -> Deployment:
    """Return what a script starts where the longest sequence does not fit: an fp8 cache and more memory.

    vLLM counts windowed layers as if a whole step lay in their window (SlidingWindowSpec.max_memory_usage_bytes), which
    in these scripts is about as long.
    """
    fraction, longest = recipe.retried_fraction, recipe.max_model_len
    if not fraction:
        return deployment
    narrow = deployment.layout.cache_dtype == "fp8"
    if not narrow and memory_plan(deployment).cache_tokens >= longest:
        return deployment
    layout = replace(deployment.layout, cache_dtype="fp8")
    return replace(deployment, layout=layout, settings=replace(deployment.settings, memory_fraction=fraction))


def _engine(recipe: Recipe) -> Engine:
    """Return the preset that a setup leads to, with what it states or its scripts set.

    Where they let vLLM decide steps ahead, the whole preset of 0.14 is taken: its host times are those of such steps.
    """
    engine = _preset(*recipe.preset)
    if recipe.decides_ahead and not engine.async_scheduling:
        engine = _preset(engine.engine, ASYNCHRONOUS)
    cached = {"prefix_caching": recipe.setup.prefix_caching == "on"} if recipe.setup.prefix_caching else {}
    changed = {**recipe.rules, **stated_rules(recipe.setup, engine), **cached}
    return engine.model_copy(update=changed) if changed else engine


@cache
def _preset(name: str, version: str) -> Engine:
    return engine_of(name, version)


def _formats(recipe: Recipe, engine: Engine) -> tuple[str, str]:
    """Weights and cache; weights that neither the row nor its source states are the checkpoint's."""
    setup, model = recipe.setup, recipe.model
    weights = mlx_format(setup, model) if setup.weight_dtype.startswith("mlx") else _format(setup.weight_dtype)
    weights = weights or recipe.weights
    if weights in ("", "nvfp4") and "fp4" in model.weight_dtype:  # "fp4" is the checkpoint's own kind
        weights = model.weight_dtype
    weights = weights or model.weight_dtype
    weights = {"fp8": recipe.fp8_dtype, "nvfp4": model.fp4_dtype}.get(weights, weights)
    if "llama.cpp" in engine.engine:  # reads GGUF files
        weights = gguf_format(weights, setup, model)
    return weights, recipe.cache_dtype(_format(setup.cache_dtype), weights, engine)


def _format(name: str) -> str:
    if not name:
        return ""
    plain = name.partition(" (")[0].lower()  # (a note)
    known = FORMAT_NAMES.get(plain) or named_format(plain)
    if not known:
        raise NotModelledError(f"number format {name!r}", "it is not known", nearest(plain, [*FORMATS, *FORMAT_NAMES]))
    return known


def _laid_out(recipe: Recipe, layout: Layout) -> Layout:
    """Return the layout with its degrees; where nothing is stated, the fewest devices that leave a cache.

    Where attention is data-parallel, experts lie on all of its ranks (Layout); ranks of a model without are copies.
    """
    setup, model = recipe.setup, recipe.model
    routed = any(op.experts for op in model.ops())
    pp, tp, dp = max(1, setup.pp), setup.tp, setup.dp if routed else 1
    if setup.engine_setting("enable_attention_dp") == "true" and dp <= 1:
        tp, dp = 1, setup.tp  # the column's label is the size of the group
    elif tp and setup.ep > 1 and not setup.dp and tp * setup.ep == setup.devices:
        tp = setup.devices  # tensor and expert degree of one group of devices
    elif not tp and (known := recipe.degrees):
        tp, pp, dp = known
    elif not tp and dp <= 1:
        tp = setup.devices // pp if setup.replicas else _fewest(recipe, layout)
    tp = max(1, min(tp, setup.devices))
    dp = max(1, min(dp, setup.devices // (tp * pp)))
    whole = setup.ep > 1 or _cuts_scales(model, layout, tp)
    ep = tp * dp if dp > 1 or (whole and tp > 1) else 1
    return replace(layout, tp=tp, pp=pp, ep=ep, dp=dp)


def _cuts_scales(model: Model, layout: Layout, tp: int) -> bool:
    """Tell whether tp would cut experts within a block of weights that share a scale: whole ones are placed then.

    vLLM refuses it otherwise: "The output_size of gate's and up's weight = 192 is not divisible by weight quantization
    block_n = 128" (vllm-project/vllm pull request 39046, 2026-04).
    """
    blocked = model.weight_dtype == "fp8-block" and layout.weight_dtype.startswith("fp8")
    blocks = (each.ffn for each in model.blocks.values())
    return blocked and any(isinstance(each, MixtureOfExperts) and each.intermediate % (SCALED * tp) for each in blocks)


def _fewest(recipe: Recipe, layout: Layout) -> int:
    """Return the fewest devices that leave a cache; more than a node only where it cannot hold the weights."""
    hardware, devices = recipe.hardware, recipe.setup.devices
    need = layout.weight_bytes(recipe.model.weights(layout))
    node = hardware.link.devices if hardware.link else 1
    fitting = (tp for tp in DEGREES if tp <= devices and need / tp <= ROOMY * hardware.memory_bytes)
    tp = next(fitting, devices)
    return min(tp, int(node)) if need / node <= TIGHT * hardware.memory_bytes else tp


def _pooled(hardware: Hardware, model: Model, tp: int) -> tuple[Hardware, int]:
    """Where heads do not divide by the devices, let fewer, faster devices stand for them, as engines pad heads."""
    fit = next(each for each in (tp, *reversed(DEGREES)) if each <= tp and _divides(model.id, each))
    return (hardware, tp) if fit == tp else (_times(hardware, tp / fit), fit)


def _seen(hardware: Hardware, layout: Layout) -> tuple[Hardware, Layout]:
    """Return the devices that software sees in the packages that a source counts, and tp over all of them.

    Argonne's script for MI250 has tp 4 and 8 (vLLM/MI250/run-throughput-bench.sh), where its table has 2 and 4.
    """
    dies = hardware.seen_as
    die = _times(hardware, 1 / dies).model_copy(update={"seen_as": 1})
    return die, replace(layout, tp=layout.tp * dies, ep=layout.ep * dies if layout.ep > 1 else 1)


def _times(hardware: Hardware, share: float) -> Hardware:
    return hardware.model_copy(
        update={
            "memory_bytes_per_s": hardware.memory_bytes_per_s * share,
            "memory_marketed_bytes": hardware.memory_marketed_bytes * share,
            "memory_reported_bytes": hardware.memory_bytes * share,
            "peak_flops_per_s": {name: peak * share for name, peak in hardware.peak_flops_per_s.items()},
        }
    )


def _padded(model: Model, parts: int) -> Model | None:
    """Return a model whose heads and widths divide by the parts of devices that a source counts in tp.

    Transformers-NeuronX adds heads of zeros and copies those of the cache until each NeuronCore has as many
    (get_qkv_padding and round_up_to_divisor in its utils.py, read 2026-11-22). None where a block has other parts than
    plain attention and layers that are cut by their width.
    """
    blocks = {}
    for name, block in model.blocks.items():
        if not isinstance(block.mixer, Attention) or not isinstance(block.ffn, Dense | MixtureOfExperts):
            return None
        heads, kv_heads = _multiple(block.mixer.heads, parts), _multiple(block.mixer.kv_heads, parts)
        mixer = block.mixer.model_copy(update={"heads": heads, "kv_heads": kv_heads})
        ffn = block.ffn.model_copy(update={"intermediate": _multiple(block.ffn.intermediate, parts)})
        blocks[name] = block.model_copy(update={"mixer": mixer, "ffn": ffn})
    return model.model_copy(update={"blocks": blocks})


def _multiple(number: int, of: int) -> int:
    return math.ceil(number / of) * of


@cache
def _divides(model: str, tp: int) -> bool:
    try:
        load_model(model).ops(Layout(tp))
    except InfercastError:
        return False
    return True
