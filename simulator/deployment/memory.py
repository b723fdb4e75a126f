"""Memory of one device: weights, workspace and KV-cache blocks, under each engine's convention."""

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.deployment.cache_blocks import CacheGroups, block_tokens, bytes_of_block, groups_of, slot_tokens
from simulator.deployment.deployment import Deployment
from simulator.deployment.loaded_weights import loaded_bytes
from simulator.deployment.workspace import Workspace, held_by_graphs, workspace
from simulator.frames import Framed, frame
from simulator.profile import Figure, Source

if TYPE_CHECKING:
    import pandas as pd


CACHE_ERROR = Figure(
    0.05,
    Source(
        text="of a device's memory, by which an engine's KV cache differs from its plan: 0.2 to 8 % in start-up logs",
        date="2026-11-22",
        evidence="guess",
    ),
)
STATE_SHARE = Figure(
    0.9 / 1.9,
    Source(
        text="of the room: SGLang's mamba_full_memory_ratio of states to cache, 0.9, taken for every engine",
        date="2026-11-21",
        evidence="guess",
    ),
)


@dataclass(frozen=True, slots=True, repr=False)
class MemoryPlan(Framed):
    """Bytes of one device by use, and its KV-cache blocks; a negative `cache_bytes` is what the device is short of.

    `block_size`: tokens of a block; where whole contexts are reserved (llama.cpp), a block is the slot of one sequence,
    and in models without attention its states (vLLM 0.33.0, models/config.py: MambaModelConfig).
    Llama-3.1-8B has 8,030,261,248 parameters of 2 bytes (its safetensors index); a block of 16 tokens takes 16 x 2 x 32
    layers x 8 heads x 128 x 2 bytes (its config.json).

    >>> from simulator.deployment.deployment import deploy
    >>> plan = memory_plan(deploy("llama-3.1-8b", "h100-sxm"))
    >>> plan.weight_bytes, plan.block_bytes
    (16060522496.0, 2097152.0)
    """

    deployment: Deployment
    total_bytes: float
    weight_bytes: float
    workspace: Workspace  # of a full step
    context_bytes: float  # of the driver and its libraries
    graph_bytes: float  # of captured CUDA graphs
    unused_bytes: float  # what the engine's memory fraction, or a given number of blocks, leaves
    state_bytes: float  # of recurrent layers, per running sequence; 0 without such layers
    max_num_seqs: int  # as set, or as many as have room for their recurrent states
    state_slots: int  # recurrent states that memory is kept for
    cache_bytes: float
    block_size: int  # tokens
    block_bytes: float
    groups: CacheGroups

    @property
    def workspace_bytes(self) -> float:
        """Bytes that a step needs beside the weights: the peak of its activations, its sampler or its images."""
        return self.workspace.bytes

    @property
    def activation_bytes(self) -> float:
        """Bytes of activations of a full step."""
        return self.workspace.activation_bytes

    @property
    def sampler_bytes(self) -> float:
        """Bytes of logits in the sampler."""
        return self.workspace.sampler_bytes

    @property
    def host_weight_bytes(self) -> float:
        """Bytes of one device's weights that lie in the host's memory."""
        layout, model = self.deployment.layout, self.deployment.model
        layers = layout.weight_bytes(model.weights(layout)) - layout.weight_bytes(
            self.deployment.device_part.weights(layout)
        )
        return layers + self.deployment.settings.offload.weight_bytes

    @property
    def num_blocks(self) -> int:
        """KV-cache blocks that the engine allocates: those of num_gpu_blocks_override, or those that fit.

        An engine that reserves whole contexts allocates no more than one for each sequence that may run.
        """
        override = self.deployment.settings.num_blocks
        if override is not None:
            return override
        fit = self.blocks_that_fit
        return min(fit, self.max_num_seqs) if self.deployment.engine.is_reserved else fit

    @property
    def blocks_that_fit(self) -> int:
        """KV-cache blocks that the memory has room for; vLLM keeps one more as its null block."""
        spare = 0 if self.deployment.engine.is_reserved else 1
        rounding = 1e-9  # of so many blocks: a whole number of them stays one
        return max(0, int(self.cache_bytes / self.block_bytes + rounding) - spare) if self.block_bytes else 0

    @property
    def error_bytes(self) -> float:
        """Bytes by which the KV cache of an engine may differ from the plan, on each device."""
        return CACHE_ERROR * self.total_bytes

    @property
    def fits_barely(self) -> bool:
        """Whether an error of the plan would take half of the KV cache or more, whose size the user does not give."""
        return self.deployment.settings.num_blocks is None and self.cache_bytes < 2 * self.error_bytes

    @property
    def rank_blocks(self) -> int:
        """KV-cache blocks of one rank of data-parallel attention, which holds its sequences whole; else all blocks.

        DeepSeek-V3 over 16 H100, each with 55.8 GiB of weights, and 0.85 of the memory: 8.61 GiB of cache in each hold
        131,504 tokens, fewer than the context of 163,840.

        >>> from simulator import Settings, default_layout, deploy, load_model
        >>> layout = default_layout(load_model("deepseek-v3"), dp=16, ep=16)
        >>> plan = memory_plan(deploy("deepseek-v3", "h100-sxm", "vllm-0.33", layout, Settings(memory_fraction=0.85)))
        >>> plan.rank_blocks, plan.max_context_tokens
        (8219, 131504)
        """
        return self.num_blocks // self.deployment.layout.dp

    @property
    def cache_tokens(self) -> int:
        """Tokens in all blocks, of sequences no longer than the sliding window; longer ones hold more tokens."""
        return self.num_blocks // (self.groups.full + self.groups.limited) * self.block_size

    @property
    def window_blocks(self) -> int:
        """Most blocks of a sequence in a windowed group, ceil(window / block_size) + 1, or in a recurrent one."""
        if self.groups.recurrent:
            return self.deployment.engine.memory.recurrent_blocks
        span = self.deployment.model.span
        return -(-span.tokens // self.block_size) + 1 if span else 0

    def blocks(self, tokens: int) -> int:
        """Return the blocks that a sequence of `tokens` cached tokens holds (docs/serving-rules.md, K)."""
        full = -(-tokens // self.block_size)
        return self.groups.full * full + self.groups.limited * min(full, self.window_blocks)

    @property
    def max_model_len(self) -> int:
        """Most tokens of a sequence that the model, the user or a reserved slot allows, whether they fit or not."""
        limit = self.deployment.max_model_len
        return min(limit, self.block_size) if self.deployment.engine.is_reserved else limit

    @property
    def max_context_tokens(self) -> int:
        """Most tokens of a sequence that is allowed and whose KV cache fits, on its rank, if it runs alone."""
        return bisect_right(range(1, self.max_model_len + 1), self.rank_blocks, key=self.blocks)

    def to_frame(self) -> "pd.DataFrame":
        """Return the parts of one device's memory: column `bytes`, indexed by part; they add up to the total."""
        parts = {
            "weights": self.weight_bytes,
            "workspace": self.workspace_bytes,
            "context": self.context_bytes,
            "graphs": self.graph_bytes,
            "states": self.state_bytes * self.state_slots,
            "cache": self.cache_bytes,
            "unused": self.unused_bytes,
        }
        return frame(({"part": part, "bytes": each} for part, each in parts.items()), "part")

    def host_prefix_blocks(self, prefix_block_tokens: int) -> int:
        """Return how many prefix blocks of `prefix_block_tokens` tokens the host's tier of the cache holds."""
        one = self.deployment.model.cache_bytes(1, self.deployment.layout) * prefix_block_tokens
        return int(self.deployment.settings.offload.cache_bytes // one)

    def concurrency(self, tokens: int) -> float:
        """Return how many sequences of `tokens` fit at once (vLLM: "Maximum concurrency"); 0 beyond a slot."""
        if self.deployment.engine.is_reserved and tokens > self.block_size:
            return 0.0
        return self.num_blocks / self.blocks(tokens)

    def sequences(self, tokens: int) -> int:
        """Return how many sequences of `tokens` cached tokens fit at once, each whole in the cache of a rank."""
        return self.deployment.layout.dp * (self.rank_blocks // self.blocks(tokens))


def memory_plan(deployment: Deployment) -> MemoryPlan:
    """Return how an engine shares out the memory of one device.

    `of_total`: cache = fraction x total - used (vLLM; docs/vllm-rules.md). `of_free`: cache = fraction x (total - used)
    (TensorRT-LLM). `of_rest`: cache = fraction x (total - context) - weights (SGLang), at most total - used. Used are
    weights of all kinds, workspace, the driver's context and CUDA graphs. Recurrent states are taken from the cache.

    Llama 3.1 8B has 8,030,261,248 parameters (its config.json), of two bytes each:

    >>> from simulator.deployment.deployment import deploy
    >>> f"{memory_plan(deploy('llama-3.1-8b', 'h100-sxm')).weight_bytes:,.0f}"
    '16,060,522,496'
    """
    rule, total, weights = deployment.engine.memory, deployment.hardware.memory_bytes, loaded_bytes(deployment)
    needed, graph_bytes = workspace(deployment), rule.graph_bytes + held_by_graphs(deployment)
    used = weights + needed.bytes + rule.context_bytes + graph_bytes
    share, free = deployment.memory_fraction, total - used
    room = {
        "of_total": share * total - used,
        "of_free": min(share * free, free),
        "of_rest": min(share * (total - rule.context_bytes) - weights, free),
    }[rule.convention] + deployment.cache_shift * total
    groups, state = groups_of(deployment), separate_state_bytes(deployment)
    running, slots = _running_and_states(deployment, state, room)
    cache = room - slots * state
    size = slot_tokens(deployment, cache) if deployment.engine.is_reserved else block_tokens(deployment, groups)
    block_bytes = bytes_of_block(deployment, groups, size)
    if deployment.engine.is_reserved and not deployment.settings.max_num_seqs:
        running = slots = max(1, min(running, int(cache // (block_bytes or 1.0))))
        cache = room - slots * state
    if (given := deployment.settings.num_blocks) is not None:
        cache = min(cache, (given + 1) * block_bytes)  # one is vLLM's null block
    return MemoryPlan(
        deployment=deployment,
        total_bytes=total,
        weight_bytes=weights,
        workspace=needed,
        context_bytes=float(rule.context_bytes),
        graph_bytes=float(graph_bytes),
        unused_bytes=total - used - slots * state - cache,
        state_bytes=state,
        max_num_seqs=running,
        state_slots=slots,
        cache_bytes=cache,
        block_size=size,
        block_bytes=block_bytes,
        groups=groups,
    )


def _running_and_states(deployment: Deployment, state_bytes: float, room_bytes: float) -> tuple[int, int]:
    """Return how many sequences may run, and how many recurrent states have room.

    As many as set, or as STATE_SHARE of the room holds. With `state_slots` that share is a pool, of which a sequence
    takes so many states where a prefix cache keeps others; without a prefix cache a set number has as many states
    (SGLang, model_runner_kv_cache_mixin.py: handle_max_mamba_cache, _calculate_mamba_ratio; read 2026-11-23).
    """
    rule, most, cached = deployment.engine.memory, deployment.max_num_seqs, deployment.engine.prefix_caching
    is_set = deployment.settings.max_num_seqs is not None and not (rule.state_slots and cached)
    if not state_bytes or is_set:
        return most, most
    share = max(1, int(STATE_SHARE * room_bytes // state_bytes))
    running = max(1, min(most, share // rule.state_slots if rule.state_slots and cached else share))
    return running, share if rule.state_slots else running


def separate_state_bytes(deployment: Deployment) -> float:
    """Return the bytes of a sequence's recurrent states where they lie beside the cache, not in its blocks; else 0."""
    part = deployment.device_part
    in_blocks = not any(part.attention_layers) or groups_of(deployment).recurrent
    return 0.0 if in_blocks else part.state_bytes(deployment.layout)
