"""What fits: weights, workspace and cache blocks of one device, under each engine's convention."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from simulator.deployment import Deployment
from simulator.errors import DoesNotFitError, InfercastError
from simulator.hardware import load_hardware
from simulator.units import gibibytes
from simulator.work import Layout


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
    workspace_bytes: float
    graph_bytes: float
    unused_bytes: float  # what the engine leaves alone
    cache_bytes: float
    block_bytes: float
    groups: Groups

    @property
    def num_blocks(self) -> int:
        """Blocks for cached tokens; one block of the pool stays empty, as in vLLM."""
        override = self.deployment.settings.num_blocks
        return override if override is not None else max(0, int(self.cache_bytes // self.block_bytes) - 1)

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

    `of_total`: cache = fraction x total - weights - workspace - graphs (vLLM; docs/vllm-rules.md). `of_free`: cache =
    fraction x (total - weights - workspace - graphs) (TensorRT-LLM). `reserved`: all that is left (llama.cpp).
    """
    rule, total = deployment.engine.memory, deployment.hardware.memory_bytes
    weights = deployment.layout.weight_bytes(deployment.model.weights(deployment.layout))
    workspace = rule.context_bytes + max(_forward_bytes(deployment), _sampler_bytes(deployment))
    graphs = float(rule.graph_bytes)
    used = weights + workspace + graphs
    share = deployment.memory_fraction
    cache = share * (total - used) if rule.convention == "of_free" else share * total - used
    groups = _groups(deployment)
    return MemoryPlan(
        deployment,
        total,
        weights,
        workspace,
        graphs,
        total - used - cache,
        cache,
        _block_bytes(deployment, groups),
        groups,
    )


def _forward_bytes(deployment: Deployment) -> float:
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
    """Raise DoesNotFitError, with what would make it fit, where no cache is left."""
    if plan.num_blocks >= 1 and plan.cache_bytes > 0:
        return
    fixed = plan.weight_bytes + plan.workspace_bytes + plan.graph_bytes
    usable = plan.total_bytes - plan.unused_bytes
    because = (
        f"{gibibytes(plan.weight_bytes)} weights + {gibibytes(fixed - plan.weight_bytes)} workspace leave no cache in "
        f"{gibibytes(usable)} usable"
    )
    remedies = list(remedies_for(plan.deployment))
    raise DoesNotFitError(f"{plan.deployment}", because, f"It fits with {', or '.join(remedies)}" if remedies else
                          "No layout, format or device of the library makes it fit")  # fmt: skip


LARGER = ("l40s", "a100-sxm-80", "h100-sxm", "h200-sxm", "mi300x", "b200-sxm")


def remedies_for(deployment: Deployment) -> Iterator[str]:
    """Say what would make a misfit fit: more devices, smaller numbers, a larger device."""
    for tp in (2, 4, 8, 16):
        if tp > deployment.layout.tp and (plan := _alternative(deployment, tp=tp)):
            yield f"--tp {tp} ({gibibytes(plan.weight_bytes, 1)} weights each)"
            break
    for dtype in ("fp8", "int4"):
        if plan := _alternative(deployment, weight_dtype=dtype):
            yield f"--weight-dtype {dtype} ({gibibytes(plan.weight_bytes, 1)} weights)"
            break
    for name in LARGER:
        larger = load_hardware(name)
        if larger.memory_bytes > deployment.hardware.memory_bytes and _fits(replace(deployment, hardware=larger)):
            yield f"--hardware {name} ({gibibytes(larger.memory_bytes, 0)})"
            break


def _alternative(deployment: Deployment, **changes: int | str) -> MemoryPlan | None:
    layout: Layout = replace(deployment.layout, ep=1, **changes)  # type: ignore[arg-type]
    try:
        return _fits(replace(deployment, layout=layout))
    except InfercastError:  # a layout that does not divide the model is no remedy
        return None


def _fits(deployment: Deployment) -> MemoryPlan | None:
    plan = memory_plan(deployment)
    return plan if plan.cache_bytes > 0 and plan.num_blocks >= 1 else None
