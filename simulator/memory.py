"""What fits: weights, workspace and cache blocks of one device, under each engine's convention."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from simulator.deployment import Deployment
from simulator.errors import DoesNotFitError, InfercastError
from simulator.hardware import load_hardware
from simulator.units import gibibytes
from simulator.work import Counts


@dataclass(frozen=True, slots=True)
class Groups:
    """Layers that share a page of cache: as many layers per group as the rarer kind has (vLLM's hybrid allocator)."""

    layers: int
    full: int
    windowed: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Where the memory of one device goes, in bytes; `cache_bytes` may be negative for a misfit."""

    deployment: Deployment
    total_bytes: float
    weight_bytes: float
    activation_bytes: float  # of a full step
    sampler_bytes: float  # of the sampler after it; the larger of the two peaks counts
    context_bytes: float
    graph_bytes: float
    unused_bytes: float  # what the engine leaves alone
    cache_bytes: float
    block_bytes: float
    groups: Groups

    @property
    def workspace_bytes(self) -> float:
        """What a step needs beside the weights: its activations or its sampler, whichever peaks."""
        return max(self.activation_bytes, self.sampler_bytes)

    @property
    def num_blocks(self) -> int:
        """Blocks for cached tokens; one block of the pool stays empty, as in vLLM."""
        override = self.deployment.settings.num_blocks
        return override if override is not None else self.blocks_that_fit

    @property
    def blocks_that_fit(self) -> int:
        """Blocks that the memory has room for, whatever number a user asks for."""
        return max(0, int(self.cache_bytes // self.block_bytes) - 1)

    @property
    def cache_tokens(self) -> int:
        """Tokens in all blocks, cached for sequences that are inside their window."""
        return self.num_blocks // (self.groups.full + self.groups.windowed) * int(self.deployment.engine.block_size)

    @property
    def window_blocks(self) -> int:
        """Blocks that a sequence holds at most in a windowed group: its window, not aligned to blocks."""
        window = self.deployment.model.window
        return -(-window // int(self.deployment.engine.block_size)) + 1 if window else 0

    def blocks(self, tokens: int) -> int:
        """Return the blocks that a sequence of `tokens` cached tokens holds."""
        full = -(-tokens // int(self.deployment.engine.block_size))
        return self.groups.full * full + self.groups.windowed * min(full, self.window_blocks)

    @property
    def max_context_tokens(self) -> int:
        """The longest sequence that fits alone, or that the model or the user allows."""
        limit = self.deployment.settings.max_model_len or self.deployment.model.max_context_tokens
        low, high = 0, limit
        while low < high:  # blocks() rises with tokens
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.blocks(middle) <= self.num_blocks else (low, middle - 1)
        return low

    def concurrency(self, tokens: int) -> float:
        """Return how many sequences of `tokens` fit at once."""
        return self.num_blocks / self.blocks(tokens)


def memory_plan(deployment: Deployment) -> MemoryPlan:
    """Share out the memory of one device.

    `of_total`: cache = fraction x total - used (vLLM; docs/vllm-rules.md). `of_free`: cache = fraction x (total - used)
    (TensorRT-LLM). `reserved`: as `of_total`, the fraction being what the driver gives (llama.cpp). Used are weights,
    workspace, the driver's context and graphs.
    """
    rule, total = deployment.engine.memory, deployment.hardware.memory_bytes
    weights = deployment.layout.weight_bytes(deployment.model.weights(deployment.layout))
    activations, sampler = _activation_bytes(deployment), _sampler_bytes(deployment)
    used = weights + max(activations, sampler) + rule.context_bytes + rule.graph_bytes
    share, free = deployment.memory_fraction, total - used
    cache = min(share * free, free) if rule.convention == "of_free" else share * total - used
    groups = _groups(deployment)
    return MemoryPlan(
        deployment=deployment,
        total_bytes=total,
        weight_bytes=weights,
        activation_bytes=activations,
        sampler_bytes=sampler,
        context_bytes=float(rule.context_bytes),
        graph_bytes=float(rule.graph_bytes),
        unused_bytes=total - used - cache,
        cache_bytes=cache,
        block_bytes=_block_bytes(deployment, groups),
        groups=groups,
    )


def _activation_bytes(deployment: Deployment) -> float:
    """Activations alive at once in the widest op of a full step, with the residual beside them."""
    widest = max(float(op.activation_bytes.tokens) for op in deployment.ops)
    residual = 2 * deployment.model.hidden * deployment.layout.activation_bytes
    return deployment.max_num_batched_tokens * (widest + residual)


def _sampler_bytes(deployment: Deployment) -> float:
    return deployment.max_num_seqs * deployment.model.vocab * 4 * deployment.engine.memory.logit_copies


def _groups(deployment: Deployment) -> Groups:
    full, windowed = deployment.model.attention_layers
    if not full or not windowed:
        return Groups(full + windowed, int(full > 0), int(windowed > 0))
    low, high = sorted((full, windowed))
    size = high if high < 1.25 * low else low
    return Groups(size, -(-full // size), -(-windowed // size))


def _block_bytes(deployment: Deployment, groups: Groups) -> float:
    layers = sum(deployment.model.attention_layers)
    per_token = deployment.model.cache_bytes(1, deployment.layout)
    return float(deployment.engine.block_size) * per_token * groups.layers / max(layers, 1)


def refuse_misfit(plan: MemoryPlan) -> None:
    """Raise DoesNotFitError, with what would make it fit, where the cache has no room for what is asked."""
    deployment, settings = plan.deployment, plan.deployment.settings
    if plan.blocks_that_fit < 1:
        raise DoesNotFitError(str(deployment), _shortage(plan), _advice(deployment))
    if plan.num_blocks > plan.blocks_that_fit:
        given, because = f"{deployment} with {plan.num_blocks} cache blocks", f"{plan.blocks_that_fit} fit"
        raise DoesNotFitError(given, because, f"Give --num-gpu-blocks-override {plan.blocks_that_fit} or less")
    slots = deployment.max_num_seqs * plan.blocks(settings.max_model_len or 1)
    if deployment.engine.memory.is_reserved and slots > plan.num_blocks:
        given = f"{deployment} with {deployment.max_num_seqs} slots of {settings.max_model_len or 1:,} tokens"
        because = f"each slot reserves its context, and the cache holds {plan.cache_tokens:,} tokens"
        raise DoesNotFitError(given, because, "Give a smaller --max-num-seqs or --max-model-len")
    if settings.max_model_len is not None and plan.max_context_tokens < settings.max_model_len:
        given = f"{deployment} with max_model_len {settings.max_model_len}"
        because = f"the cache holds one sequence of {plan.max_context_tokens} tokens at most"
        raise DoesNotFitError(given, because, f"Give --max-model-len {plan.max_context_tokens}. {_advice(deployment)}")


def _shortage(plan: MemoryPlan) -> str:
    others = plan.workspace_bytes + plan.context_bytes + plan.graph_bytes
    needed = f"{gibibytes(plan.weight_bytes)} weights + {gibibytes(others)} workspace, context and graphs"
    return f"{needed} leave no cache in {gibibytes(plan.total_bytes - plan.unused_bytes)} usable"


def _advice(deployment: Deployment) -> str:
    remedies = ", or ".join(remedies_for(deployment))
    return f"It fits with {remedies}" if remedies else "No layout, number format or device of the library makes it fit"


LARGER = ("l40s", "a100-sxm-80", "h200-sxm", "b200-sxm", "b300-sxm")
DEGREES = (1, 2, 4, 8, 16)
LAYOUT_FLAGS = {"--tp": "tp", "--ep": "ep", "--weight-dtype": "weight_dtype", "--cache-dtype": "cache_dtype"}
SETTING_FLAGS = {"--max-num-batched-tokens": "max_num_batched_tokens", "--max-num-seqs": "max_num_seqs"}
Flags = dict[str, Any]


def remedies_for(deployment: Deployment) -> Iterator[str]:
    """Say what would make a misfit fit, as flags: more devices, smaller numbers, smaller steps, a larger device.

    Each is tried: it fits, its layout divides the model, and its devices are linked.
    """
    for alternatives in _alternatives(deployment):
        tried = ((flags, _plan_with(deployment, flags)) for flags in alternatives)
        flags, plan = next((each for each in tried if each[1]), ({}, None))
        if plan:
            words = " ".join(f"{flag} {value}" for flag, value in flags.items())
            yield f"{words} ({gibibytes(plan.weight_bytes, 1)} weights, {plan.cache_tokens:,} tokens of cache)"


def _alternatives(deployment: Deployment) -> Iterator[list[Flags]]:
    """Yield what may help, kind by kind, the smallest change of each kind first."""
    layout, seqs = deployment.layout, min(deployment.max_num_seqs, 64)
    degrees: list[Flags] = [{"--tp": tp, **({"--ep": tp} if layout.ep > 1 else {})} for tp in DEGREES if tp > layout.tp]
    larger = [name for name in LARGER if load_hardware(name).memory_bytes > 1.1 * deployment.hardware.memory_bytes]
    yield degrees
    yield [{"--cache-dtype": "fp8"}]
    yield [{"--weight-dtype": dtype, **more} for more in ({}, *degrees) for dtype in ("fp8", "int4")]
    yield [{"--max-num-batched-tokens": tokens, "--max-num-seqs": seqs} for tokens in (2048, 512)]
    yield [{"--hardware": name, **more} for more in ({}, *degrees) for name in larger]


def _plan_with(deployment: Deployment, flags: Flags) -> MemoryPlan | None:
    """Return the plan once some flags are changed, None where that does not fit either."""
    layout = {name: flags[flag] for flag, name in LAYOUT_FLAGS.items() if flag in flags}
    settings = {name: flags[flag] for flag, name in SETTING_FLAGS.items() if flag in flags}
    try:
        changed = replace(
            deployment,
            hardware=load_hardware(flags["--hardware"]) if "--hardware" in flags else deployment.hardware,
            layout=replace(deployment.layout, **layout),
            settings=replace(deployment.settings, **settings),
        )
        changed.step_model(light=True).seconds(Counts(steps=1.0, tokens=1.0))
    except InfercastError:  # a layout that does not divide the model, or devices without a link, are no remedy
        return None
    plan = memory_plan(changed)
    enough = plan.max_context_tokens >= (changed.settings.max_model_len or 1)
    return plan if plan.blocks_that_fit >= max(1, changed.settings.num_blocks or 1) and enough else None
