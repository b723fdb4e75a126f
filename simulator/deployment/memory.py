"""Memory of one device: weights, workspace and KV-cache blocks, under each engine's convention."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.deployment.deployment import Deployment
from simulator.profile import Figure, Source

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Groups:
    """KV-cache groups of layers whose blocks have one size, as in vLLM's hybrid KV-cache manager.

    `layers`: layers in each group, as many as the rarer kind has. `full`, `windowed`: groups of layers with full
    attention and with a sliding window. Rule K of docs/serving-rules.md. gpt-oss-20b has 12 layers of each kind (its
    config.json).

    >>> from simulator.deployment.deployment import deploy
    >>> memory_plan(deploy("gpt-oss-20b", "h100-sxm")).groups
    Groups(layers=12, full=1, windowed=1)
    """

    layers: int
    full: int
    windowed: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes of one device by use, and its KV-cache blocks; a negative `cache_bytes` is what the device is short of.

    `block_size`: tokens of a block; where whole contexts are reserved (llama.cpp), a block is the slot of one sequence.
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
    activation_bytes: float  # of a full step
    sampler_bytes: float  # after the step; the larger of the two peaks counts
    context_bytes: float  # of the driver and its libraries
    graph_bytes: float  # of captured CUDA graphs
    unused_bytes: float  # what the engine's memory fraction leaves
    state_bytes: float  # of recurrent layers, per running sequence; 0 without such layers
    max_num_seqs: int  # as set, or as many as have room for their recurrent states
    cache_bytes: float
    block_size: int  # tokens
    block_bytes: float
    groups: Groups

    @property
    def workspace_bytes(self) -> float:
        """Bytes that a step needs beside the weights: its activations or its sampler, whichever is more."""
        return max(self.activation_bytes, self.sampler_bytes)

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
        return max(0, int(self.cache_bytes // self.block_bytes) - spare) if self.block_bytes else 0

    @property
    def cache_tokens(self) -> int:
        """Tokens in all blocks, of sequences no longer than the sliding window; longer ones hold more tokens."""
        return self.num_blocks // (self.groups.full + self.groups.windowed) * self.block_size

    @property
    def window_blocks(self) -> int:
        """Most blocks of a sequence in a windowed group: ceil(window / block_size) + 1."""
        window = self.deployment.model.window
        return -(-window // self.block_size) + 1 if window else 0

    def blocks(self, tokens: int) -> int:
        """Return the blocks that a sequence of `tokens` cached tokens holds (docs/serving-rules.md, K)."""
        full = -(-tokens // self.block_size)
        return self.groups.full * full + self.groups.windowed * min(full, self.window_blocks)

    @property
    def context_tokens(self) -> int:
        """Most tokens of a sequence that the model, the user or a reserved slot allows, whether they fit or not."""
        limit = self.deployment.context_tokens
        return min(limit, self.block_size) if self.deployment.engine.is_reserved else limit

    @property
    def max_context_tokens(self) -> int:
        """Most tokens of a sequence that is allowed and whose KV cache fits if it runs alone."""
        low, high = 0, self.context_tokens
        while low < high:  # blocks() rises with tokens
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.blocks(middle) <= self.num_blocks else (low, middle - 1)
        return low

    def to_frame(self) -> "pd.DataFrame":
        """Return the parts of one device's memory: column `bytes`, indexed by part; they add up to the total."""
        import pandas as pd  # noqa: PLC0415  takes half a second

        states = self.state_bytes * self.max_num_seqs
        parts = {
            "weights": self.weight_bytes,
            "workspace": self.workspace_bytes,
            "context": self.context_bytes,
            "graphs": self.graph_bytes,
            "states": states,
            "cache": self.cache_bytes,
            "unused": self.unused_bytes,
        }
        return pd.DataFrame({"bytes": parts}).rename_axis("part")

    def host_prefix_blocks(self, prefix_block_tokens: int) -> int:
        """Return how many prefix blocks of `prefix_block_tokens` tokens the host's tier of the cache holds."""
        one = self.deployment.model.cache_bytes(1, self.deployment.layout) * prefix_block_tokens
        return int(self.deployment.settings.offload.cache_bytes // one)

    def concurrency(self, tokens: int) -> float:
        """Return how many sequences of `tokens` fit at once (vLLM: "Maximum concurrency"); 0 beyond a slot."""
        if self.deployment.engine.is_reserved and tokens > self.block_size:
            return 0.0
        return self.num_blocks / self.blocks(tokens)


def memory_plan(deployment: Deployment) -> MemoryPlan:
    """Return how an engine shares out the memory of one device.

    `of_total`: cache = fraction x total - used (vLLM; docs/vllm-rules.md). `of_free`: cache = fraction x (total - used)
    (TensorRT-LLM). `of_rest`: cache = fraction x (total - context) - weights (SGLang), at most total - used. Used are
    weights (with adapters and a draft model), workspace, the driver's context and CUDA graphs. States of recurrent
    layers come out of the cache.
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
    running = _max_running(deployment, state, room)
    cache, groups = room - running * state, _groups(deployment)
    size = _slot_tokens(deployment, cache) if deployment.engine.is_reserved else int(deployment.engine.block_size)
    block_bytes = _block_bytes(deployment, groups, size)
    if deployment.engine.is_reserved and not deployment.settings.max_num_seqs:
        running = max(1, min(running, int(cache // (block_bytes or 1.0))))
        cache = room - running * state
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
        max_num_seqs=running,
        cache_bytes=cache,
        block_size=size,
        block_bytes=block_bytes,
        groups=groups,
    )


STATE_SHARE = Figure(
    0.9 / 1.9,
    Source(
        text="of the room: SGLang's mamba_full_memory_ratio of states to cache, 0.9, taken for every engine",
        date="2026-11-21",
        evidence="guess",
    ),
)


def _max_running(deployment: Deployment, state_bytes: float, room_bytes: float) -> int:
    """Return how many sequences may run: as set, or as many as STATE_SHARE of the room holds states for."""
    if not state_bytes or deployment.settings.max_num_seqs:
        return deployment.max_num_seqs
    return max(1, min(deployment.max_num_seqs, int(STATE_SHARE * room_bytes // state_bytes)))


def _activation_bytes(deployment: Deployment) -> float:
    """Return the bytes of activations alive at once in the widest op of a full step, with the residual beside them.

    Engines hold the inputs and outputs of both GEMMs of routed experts at once (vLLM: intermediate_cache1 to 3).
    """
    gemms = [op for op in deployment.ops if op.experts is not None and op.rate == "gemm"]
    routed = sum({op.name: float(op.activation_bytes.tokens) for op in gemms}.values())
    widest = max(routed, *(float(op.activation_bytes.tokens) for op in deployment.ops))
    residual = 2 * deployment.model.hidden * deployment.layout.activation_bytes / deployment.layout.dp
    tokens = deployment.max_num_batched_tokens
    return min(tokens, deployment.engine.micro_batch_tokens or tokens) * (widest + residual)


def _sampler_bytes(deployment: Deployment) -> float:
    """Return the bytes of fp32 logits in the sampler: rows x vocabulary x 4 x copies."""
    rows = deployment.max_num_seqs // deployment.layout.dp * (1 + deployment.draft_tokens)
    return rows * deployment.model.vocab * 4 * deployment.engine.memory.logit_copies


def _groups(deployment: Deployment) -> Groups:
    """Return the groups: of the rarer kind's layers each, or of the commoner's where they differ by less than 25 %.

    As vLLM does in _get_kv_cache_groups_uniform_page_size (v1/core/kv_cache_utils.py, read 2026-11-22).
    """
    full, windowed = deployment.device_part.attention_layers
    if deployment.engine.is_reserved:
        return Groups(full + windowed, 1, 0)
    if not full or not windowed:
        return Groups(full + windowed, int(full > 0), int(windowed > 0))
    low, high = sorted((full, windowed))
    size = high if high < 1.25 * low else low
    return Groups(size, -(-full // size), -(-windowed // size))


def _slot_tokens(deployment: Deployment, cache_bytes: float) -> int:
    """Return the tokens that each slot reserves: max_model_len, or as many as fit, up to the model's context."""
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
    """Return the bytes of one block; a draft model's cache lies in the blocks of the full groups."""
    if deployment.engine.is_reserved:
        return _sequence_bytes(deployment, size)
    layers = sum(deployment.device_part.attention_layers)
    per_token = deployment.device_part.cache_bytes(1, deployment.layout) * groups.layers / max(layers, 1)
    return size * (per_token + deployment.draft.cache_bytes_per_token / max(groups.full, 1))
