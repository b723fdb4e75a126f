"""What fits: weights, workspace and cache blocks of one device, under each engine's convention."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from simulator.deployment import Deployment
from simulator.errors import DoesNotFitError, InfercastError
from simulator.hardware import load_hardware
from simulator.offload import NO_OFFLOAD, Offload, host_of
from simulator.units import GIB, gibibytes
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
    state_bytes: float  # that recurrent layers keep for one running sequence, 0 without such layers
    max_num_seqs: int  # as set, or as many as have room for their states
    cache_bytes: float
    block_size: int  # tokens
    block_bytes: float
    groups: Groups

    @property
    def workspace_bytes(self) -> float:
        """What a step needs beside the weights: its activations or its sampler, whichever peaks."""
        return max(self.activation_bytes, self.sampler_bytes)

    @property
    def host_weight_bytes(self) -> float:
        """Weights that lie on the host instead of this device."""
        layout, model = self.deployment.layout, self.deployment.model
        layers = layout.weight_bytes(model.weights(layout)) - layout.weight_bytes(
            self.deployment.device_part.weights(layout)
        )
        return layers + self.deployment.settings.offload.weight_bytes

    @property
    def num_blocks(self) -> int:
        """Blocks for cached tokens; a contiguous reservation sets aside no more than its slots."""
        override = self.deployment.settings.num_blocks
        if override is not None:
            return override
        fit = self.blocks_that_fit
        return min(fit, self.max_num_seqs) if self.deployment.engine.is_reserved else fit

    @property
    def blocks_that_fit(self) -> int:
        """Blocks that the memory has room for, whatever a user asks for; one page of a pool stays empty (vLLM)."""
        spare = 0 if self.deployment.engine.is_reserved else 1
        return max(0, int(self.cache_bytes // self.block_bytes) - spare) if self.block_bytes else 0

    @property
    def cache_tokens(self) -> int:
        """Tokens in all blocks, cached for sequences that are inside their window."""
        return self.num_blocks // (self.groups.full + self.groups.windowed) * self.block_size

    @property
    def window_blocks(self) -> int:
        """Blocks that a sequence holds at most in a windowed group: its window, not aligned to blocks."""
        window = self.deployment.model.window
        return -(-window // self.block_size) + 1 if window else 0

    def blocks(self, tokens: int) -> int:
        """Return the blocks that a sequence of `tokens` cached tokens holds."""
        full = -(-tokens // self.block_size)
        return self.groups.full * full + self.groups.windowed * min(full, self.window_blocks)

    @property
    def context_tokens(self) -> int:
        """The longest sequence that the model, the user or a reserved slot allows."""
        limit = self.deployment.context_tokens
        return min(limit, self.block_size) if self.deployment.engine.is_reserved else limit

    @property
    def max_context_tokens(self) -> int:
        """The longest sequence whose cache fits alone, and that is allowed."""
        low, high = 0, self.context_tokens
        while low < high:  # blocks() rises with tokens
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.blocks(middle) <= self.num_blocks else (low, middle - 1)
        return low

    def host_units(self, unit_tokens: int) -> int:
        """Return how many units of so many tokens of a prefix the host's memory holds for the device's cache."""
        one = self.deployment.model.cache_bytes(1, self.deployment.layout) * unit_tokens
        return int(self.deployment.settings.offload.cache_bytes // one)

    def concurrency(self, tokens: int) -> float:
        """Return how many sequences of `tokens` fit at once; none that is longer than a slot."""
        if self.deployment.engine.is_reserved and tokens > self.block_size:
            return 0.0
        return self.num_blocks / self.blocks(tokens)


def memory_plan(deployment: Deployment) -> MemoryPlan:
    """Share out the memory of one device.

    `of_total`: cache = fraction x total - used (vLLM; docs/vllm-rules.md). `of_free`: cache = fraction x (total - used)
    (TensorRT-LLM). `of_rest`: cache = fraction x (total - context) - weights (SGLang), where the rest has room for all
    else. Used are weights, with adapters and those that draft, workspace, the driver's context and graphs.
    """
    rule, total = deployment.engine.memory, deployment.hardware.memory_bytes
    weights = deployment.layout.weight_bytes(deployment.device_part.weights(deployment.layout))
    weights += deployment.draft.weight_bytes + deployment.adapter_bytes - deployment.settings.offload.weight_bytes
    activations, sampler = _activation_bytes(deployment), _sampler_bytes(deployment)
    used = weights + max(activations, sampler) + rule.context_bytes + rule.graph_bytes
    share, free = deployment.memory_fraction, total - used
    room = {
        "of_total": share * total - used,
        "of_free": min(share * free, free),
        "of_rest": min(share * (total - rule.context_bytes) - weights, free),
    }[rule.convention]
    state = deployment.device_part.state_bytes(deployment.layout)
    places = _places(deployment, state, room)
    cache, groups = room - places * state, _groups(deployment)
    size = _slot_tokens(deployment, cache) if deployment.engine.is_reserved else int(deployment.engine.block_size)
    block_bytes = _block_bytes(deployment, groups, size)
    if deployment.engine.is_reserved and not deployment.settings.max_num_seqs:
        places = max(1, min(places, int(cache // (block_bytes or 1.0))))
        cache = room - places * state
    return MemoryPlan(
        deployment=deployment,
        total_bytes=total,
        weight_bytes=weights,
        activation_bytes=activations,
        sampler_bytes=sampler,
        context_bytes=float(rule.context_bytes),
        graph_bytes=float(rule.graph_bytes),
        unused_bytes=total - used - room,
        state_bytes=state,
        max_num_seqs=places,
        cache_bytes=cache,
        block_size=size,
        block_bytes=block_bytes,
        groups=groups,
    )


STATE_SHARE = 0.9 / 1.9  # of the room: SGLang's mamba_full_memory_ratio of states to cache, 0.9


def _places(deployment: Deployment, state_bytes: float, room_bytes: float) -> int:
    """Return how many sequences may run: as set, or as many as have their states in a share of the room."""
    if not state_bytes or deployment.settings.max_num_seqs:
        return deployment.max_num_seqs
    return max(1, min(deployment.max_num_seqs, int(STATE_SHARE * room_bytes // state_bytes)))


def _activation_bytes(deployment: Deployment) -> float:
    """Activations alive at once in the widest op of a full step, with the residual beside them.

    Engines hold the inputs and outputs of both products of routed experts at once (vLLM: intermediate_cache1 to 3).
    """
    products = [op for op in deployment.ops if op.experts is not None and op.rate == "gemm"]
    routed = sum({op.name: float(op.activation_bytes.tokens) for op in products}.values())
    widest = max(routed, *(float(op.activation_bytes.tokens) for op in deployment.ops))
    residual = 2 * deployment.model.hidden * deployment.layout.activation_bytes / deployment.layout.dp
    tokens = deployment.max_num_batched_tokens
    return min(tokens, deployment.engine.micro_batch_tokens or tokens) * (widest + residual)


def _sampler_bytes(deployment: Deployment) -> float:
    rows = deployment.max_num_seqs // deployment.layout.dp * (1 + deployment.draft_tokens)
    return rows * deployment.model.vocab * 4 * deployment.engine.memory.logit_copies


def _groups(deployment: Deployment) -> Groups:
    full, windowed = deployment.device_part.attention_layers
    if deployment.engine.is_reserved:
        return Groups(full + windowed, 1, 0)
    if not full or not windowed:
        return Groups(full + windowed, int(full > 0), int(windowed > 0))
    low, high = sorted((full, windowed))
    size = high if high < 1.25 * low else low
    return Groups(size, -(-full // size), -(-windowed // size))


def _slot_tokens(deployment: Deployment, cache_bytes: float) -> int:
    """Return the context that each slot reserves: what is asked for, or what fits, up to the model's length."""
    asked = deployment.settings.max_model_len or deployment.engine.context_tokens(deployment.hardware)
    longest = deployment.context_tokens
    if asked is not None:
        return min(asked, longest)
    low, high = 1, longest
    while low < high:  # the bytes of a sequence rise with its tokens
        middle = (low + high + 1) // 2
        fits = deployment.max_num_seqs * _sequence_bytes(deployment, middle) <= cache_bytes
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def _sequence_bytes(deployment: Deployment, tokens: int) -> float:
    own = deployment.device_part.cache_bytes(tokens, deployment.layout)
    return own + tokens * deployment.draft.cache_bytes_per_token


def _block_bytes(deployment: Deployment, groups: Groups, size: int) -> float:
    """Return the bytes of a block; the cache of a draft lies in the blocks of the full layers."""
    if deployment.engine.is_reserved:
        return _sequence_bytes(deployment, size)
    layers = sum(deployment.device_part.attention_layers)
    per_token = deployment.device_part.cache_bytes(1, deployment.layout) * groups.layers / max(layers, 1)
    return size * (per_token + deployment.draft.cache_bytes_per_token / max(groups.full, 1))


def refuse_misfit(plan: MemoryPlan) -> None:
    """Raise DoesNotFitError, with what would make it fit, where the cache has no room for what is asked."""
    deployment, settings = plan.deployment, plan.deployment.settings
    _refuse_host_misfit(plan)
    if plan.blocks_that_fit < 1:
        raise DoesNotFitError(str(deployment), _shortage(plan), _advice(deployment))
    if plan.num_blocks > plan.blocks_that_fit:
        given, because = f"{deployment} with {plan.num_blocks} cache blocks", f"{plan.blocks_that_fit} fit"
        raise DoesNotFitError(given, because, f"Give --num-gpu-blocks-override {plan.blocks_that_fit} or less")
    if deployment.engine.is_reserved and plan.max_num_seqs > plan.num_blocks:
        given = f"{deployment} with {plan.max_num_seqs} slots of {plan.block_size:,} tokens"
        because = f"each slot reserves its context, and {plan.num_blocks} such slots fit"
        raise DoesNotFitError(given, because, "Give a smaller --max-num-seqs or --max-model-len")
    if settings.max_model_len is not None and plan.max_context_tokens < settings.max_model_len:
        given = f"{deployment} with max_model_len {settings.max_model_len}"
        because = f"the cache holds one sequence of {plan.max_context_tokens} tokens at most"
        raise DoesNotFitError(given, because, f"Give --max-model-len {plan.max_context_tokens}. {_advice(deployment)}")


def _refuse_host_misfit(plan: MemoryPlan) -> None:
    offload = plan.deployment.settings.offload
    needed = (plan.host_weight_bytes + offload.cache_bytes) * plan.deployment.layout.devices
    host = host_of(plan.deployment.hardware, offload)
    if needed > host.memory_bytes:
        given = f"{gibibytes(needed)} offloaded to {host.id}"
        because = f"the host has {gibibytes(host.memory_bytes)}"
        raise DoesNotFitError(given, because, "Offload less, or give a profile of a host with more memory")


def _shortage(plan: MemoryPlan) -> str:
    others = plan.workspace_bytes + plan.context_bytes + plan.graph_bytes
    needed = f"{gibibytes(plan.weight_bytes)} weights + {gibibytes(others)} workspace, context and graphs"
    return f"{needed} leave no cache in {gibibytes(plan.total_bytes - plan.unused_bytes)} usable"


def _advice(deployment: Deployment) -> str:
    remedies = ", or ".join(remedies_for(deployment))
    return f"It fits with {remedies}" if remedies else "No layout, number format or device of the library makes it fit"


LARGER = ("l40s", "a100-sxm-80", "h200-sxm", "b200-sxm", "b300-sxm")
DEGREES = (1, 2, 4, 8, 16)
OFFLOADS_GIB = (1, 2, 4, 8, 16, 32)  # beyond what is short
USABLE_TOKENS = 2_048  # of cache: what has room for less is no remedy, unless a shorter max_model_len is asked for
LAYOUT_FLAGS = {"--tp": "tp", "--ep": "ep", "--weight-dtype": "weight_dtype", "--cache-dtype": "cache_dtype"}
SETTING_FLAGS = {"--max-num-batched-tokens": "max_num_batched_tokens", "--max-num-seqs": "max_num_seqs"}
Flags = dict[str, Any]


def remedies_for(deployment: Deployment) -> Iterator[str]:
    """Say what would make a misfit fit, as flags: more devices, smaller numbers, smaller steps, a larger device.

    Each is tried: it holds a request, its layout divides the model, and its devices are linked.
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
    if deployment.settings.offload == NO_OFFLOAD:
        short = max(0, -int(memory_plan(deployment).cache_bytes // GIB))
        yield [{"--cpu-offload-gb": short + more} for more in OFFLOADS_GIB]


def _plan_with(deployment: Deployment, flags: Flags) -> MemoryPlan | None:
    """Return the plan once some flags are changed, None where that does not fit either."""
    layout = {name: flags[flag] for flag, name in LAYOUT_FLAGS.items() if flag in flags}
    settings = {name: flags[flag] for flag, name in SETTING_FLAGS.items() if flag in flags}
    if "--cpu-offload-gb" in flags:
        settings["offload"] = Offload(weight_bytes=flags["--cpu-offload-gb"] * GIB)
    try:
        changed = replace(
            deployment,
            hardware=load_hardware(flags["--hardware"]) if "--hardware" in flags else deployment.hardware,
            layout=replace(deployment.layout, **layout),
            settings=replace(deployment.settings, **settings),
        )
        changed.step_model(light=True).seconds(Counts(steps=1.0, tokens=1.0))
        plan = memory_plan(changed)
        _refuse_host_misfit(plan)
    except InfercastError:  # a layout that does not divide the model, or devices without a link, are no remedy
        return None
    needed = changed.settings.max_model_len or min(USABLE_TOKENS, changed.context_tokens)
    enough = plan.max_context_tokens >= needed
    return plan if plan.blocks_that_fit >= max(1, changed.settings.num_blocks or 1) and enough else None
