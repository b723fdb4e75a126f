"""Memory of one device: weights, workspace and KV-cache blocks, under each engine's convention."""

from bisect import bisect_right
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from simulator.deployment.deployment import Deployment
from simulator.deployment.loaded_weights import padding_bytes, vision_bytes
from simulator.deployment.workspace import Workspace, workspace
from simulator.frames import Framed, frame
from simulator.profile import Figure, Source

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Groups:
    """KV-cache groups of layers whose blocks have one size, as in vLLM's hybrid KV-cache manager.

    `layers`: layers in each group, as many as the rarer kind has; all in one group where windowed layers keep the
    context whole (TensorRT-LLM) or in a fixed share of it (SGLang; MemoryRule.windowed_share). `full`, `windowed`:
    groups of layers with full attention and with a sliding window; `recurrent`: of layers whose states lie in such
    blocks. Rule K of docs/serving-rules.md. gpt-oss-20b has 12 layers of each kind (its config.json).

    >>> from simulator.deployment.deployment import deploy
    >>> memory_plan(deploy("gpt-oss-20b", "h100-sxm")).groups
    Groups(layers=12, full=1, windowed=1, recurrent=0)
    """

    layers: float
    full: int
    windowed: int
    recurrent: int = 0

    @property
    def limited(self) -> int:
        """Groups in which a sequence holds a limited number of blocks."""
        return self.windowed + self.recurrent


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
    unused_bytes: float  # what the engine's memory fraction leaves
    state_bytes: float  # of recurrent layers, per running sequence; 0 without such layers
    max_num_seqs: int  # as set, or as many as have room for their recurrent states
    state_slots: int  # recurrent states that memory is kept for
    cache_bytes: float
    block_size: int  # tokens
    block_bytes: float
    groups: Groups

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
        return max(0, int(self.cache_bytes // self.block_bytes) - spare) if self.block_bytes else 0

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
        window = self.deployment.model.window
        return -(-window // self.block_size) + 1 if window else 0

    def blocks(self, tokens: int) -> int:
        """Return the blocks that a sequence of `tokens` cached tokens holds (docs/serving-rules.md, K)."""
        full = -(-tokens // self.block_size)
        return self.groups.full * full + self.groups.limited * min(full, self.window_blocks)

    @property
    def context_tokens(self) -> int:
        """Most tokens of a sequence that the model, the user or a reserved slot allows, whether they fit or not."""
        limit = self.deployment.context_tokens
        return min(limit, self.block_size) if self.deployment.engine.is_reserved else limit

    @property
    def max_context_tokens(self) -> int:
        """Most tokens of a sequence that is allowed and whose KV cache fits, on its rank, if it runs alone."""
        return bisect_right(range(1, self.context_tokens + 1), self.rank_blocks, key=self.blocks)

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
    rule, total, part = deployment.engine.memory, deployment.hardware.memory_bytes, deployment.device_part
    weights = deployment.layout.weight_bytes(part.weights(deployment.layout))
    weights += deployment.draft.weight_bytes + deployment.adapter_bytes - deployment.settings.offload.weight_bytes
    weights += padding_bytes(deployment) + vision_bytes(deployment)
    needed = workspace(deployment)
    used = weights + needed.bytes + rule.context_bytes + rule.graph_bytes
    share, free = deployment.memory_fraction, total - used
    room = {
        "of_total": share * total - used,
        "of_free": min(share * free, free),
        "of_rest": min(share * (total - rule.context_bytes) - weights, free),
    }[rule.convention] + deployment.cache_shift * total
    groups, state = _groups(deployment), separate_state_bytes(deployment)
    running, slots = _running_and_states(deployment, state, room)
    cache = room - slots * state
    size = _slot_tokens(deployment, cache) if deployment.engine.is_reserved else _block_tokens(deployment, groups)
    block_bytes = _block_bytes(deployment, groups, size)
    if deployment.engine.is_reserved and not deployment.settings.max_num_seqs:
        running = slots = max(1, min(running, int(cache // (block_bytes or 1.0))))
        cache = room - slots * state
    return MemoryPlan(
        deployment=deployment,
        total_bytes=total,
        weight_bytes=weights,
        workspace=needed,
        context_bytes=float(rule.context_bytes),
        graph_bytes=float(rule.graph_bytes),
        unused_bytes=total - used - room,
        state_bytes=state,
        max_num_seqs=running,
        state_slots=slots,
        cache_bytes=cache,
        block_size=size,
        block_bytes=block_bytes,
        groups=groups,
    )


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
    in_blocks = not any(part.attention_layers) or _groups(deployment).recurrent
    return 0.0 if in_blocks else part.state_bytes(deployment.layout)


def _groups(deployment: Deployment) -> Groups:
    """Return the groups: of the rarest kind's layers each, or of the commonest's where they differ by less than 25 %.

    As vLLM does in _get_kv_cache_groups_uniform_page_size (v1/core/kv_cache_utils.py, read 2026-11-22), for recurrent
    layers too where their states lie in blocks of the cache.
    """
    full, windowed = deployment.device_part.attention_layers
    recurrent = deployment.device_part.recurrent_layers if deployment.engine.memory.recurrent_blocks else 0
    if deployment.engine.is_reserved or not full or (windowed and recurrent):
        recurrent = 0
    share = 1.0 if deployment.engine.is_reserved else deployment.engine.memory.windowed_share
    if share is not None:
        return Groups(full + share * windowed, 1, 0)
    kinds = [each for each in (full, windowed, recurrent) if each]
    if len(kinds) < 2:
        return Groups(full + windowed, int(not windowed), int(windowed > 0))
    low, high = min(kinds), max(kinds)
    size = high if high < 1.25 * low else low
    return Groups(size, -(-full // size), -(-windowed // size), -(-recurrent // size))


def _block_tokens(deployment: Deployment, groups: Groups) -> int:
    """Return the tokens of a block: the engine's, or as many as have room for the largest state of a recurrent layer.

    a ceil(s / (a k)) for states of s bytes, k bytes of keys and values of a token in one layer, and blocks of a
    multiple of a tokens (vLLM 0.33.0, platforms/interface.py: _align_hybrid_block_size). vLLM logs 784 for Qwen3.6-27B
    in 16 bits, 1,568 with an fp8 cache (noonghunna/club-3090 issue 1047).

    >>> from simulator.deployment.deployment import deploy
    >>> memory_plan(deploy("qwen3.5-27b", "h100-sxm")).block_size
    784
    """
    if not any(deployment.device_part.attention_layers):
        return deployment.context_tokens
    size = int(deployment.engine.block_size)
    if not groups.recurrent:
        return size
    model, layout = deployment.device_part, deployment.layout
    mixers = [block.mixer for block in model.blocks.values() if block.mixer is not None]
    state = max(mixer.state_bytes(layout) for mixer in mixers)
    token = max(mixer.cache_bytes_per_token(layout) for mixer in mixers)
    return size * ceil(state / (size * token))


def _slot_tokens(deployment: Deployment, cache_bytes: float) -> int:
    """Return the tokens that each slot reserves: max_model_len, or as many as fit, up to the model's context."""
    asked = deployment.settings.max_model_len or deployment.engine.context_tokens(deployment.hardware)
    longest = deployment.context_tokens
    if asked is not None:
        return min(asked, longest)

    def bytes_of_all(tokens: int) -> float:
        return deployment.max_num_seqs * _sequence_bytes(deployment, tokens)

    return max(1, bisect_right(range(1, longest + 1), cache_bytes, key=bytes_of_all))


def _sequence_bytes(deployment: Deployment, tokens: int) -> float:
    part, layout = deployment.device_part, deployment.layout
    own = part.cache_bytes(tokens, layout) if any(part.attention_layers) else part.state_bytes(layout)
    return own + tokens * deployment.draft.cache_bytes_per_token


def _block_bytes(deployment: Deployment, groups: Groups, size: int) -> float:
    """Return the bytes of one block; a draft model's cache lies in the blocks of the full groups."""
    layers = sum(deployment.device_part.attention_layers)
    if deployment.engine.is_reserved or not layers:
        return _sequence_bytes(deployment, size)
    per_token = deployment.device_part.cache_bytes(1, deployment.layout) * groups.layers / layers
    return size * (per_token + deployment.draft.cache_bytes_per_token / max(groups.full, 1))
