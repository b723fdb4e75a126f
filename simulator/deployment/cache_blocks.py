"""KV-cache blocks: which layers share them, how many tokens one has, its bytes."""

from bisect import bisect_right
from dataclasses import dataclass
from math import ceil

from simulator.deployment.deployment import Deployment


@dataclass(frozen=True, slots=True)
class CacheGroups:
    """KV-cache groups of layers whose blocks have one size, as in vLLM's hybrid KV-cache manager.

    `layers`: layers in each group, as many as the rarer kind has; all in one group where windowed layers keep the
    context whole (TensorRT-LLM) or in a fixed share of it (SGLang; MemoryRule.windowed_share). `full`, `windowed`:
    groups of layers with full attention and with a sliding window; `recurrent`: of layers whose states lie in such
    blocks. Rule K of docs/serving-rules.md. gpt-oss-20b has 12 layers of each kind (its config.json).

    >>> from simulator.deployment.deployment import deploy
    >>> groups_of(deploy("gpt-oss-20b", "h100-sxm"))
    CacheGroups(layers=12, full=1, windowed=1, recurrent=0)
    """

    layers: float
    full: int
    windowed: int
    recurrent: int = 0

    @property
    def limited(self) -> int:
        """Groups in which a sequence holds a limited number of blocks."""
        return self.windowed + self.recurrent


def groups_of(deployment: Deployment) -> CacheGroups:
    """Return the groups: of the rarest kind's layers each, or of the commonest's where they differ by less than 25 %.

    As vLLM does in _get_kv_cache_groups_uniform_page_size (v1/core/kv_cache_utils.py, read 2026-11-22), for recurrent
    layers too where their states lie in blocks of the cache.
    """
    full, windowed = deployment.device_part.attention_layers
    recurrent = deployment.device_part.recurrent_layers if deployment.engine.memory.recurrent_blocks else 0
    if deployment.engine.is_reserved or not full or (windowed and recurrent):
        recurrent = 0
    whole = deployment.engine.is_reserved or _keeps_chunks(deployment)
    share = 1.0 if whole else deployment.engine.memory.windowed_share
    if share is not None:
        return CacheGroups(full + share * windowed, 1, 0)
    kinds = [each for each in (full, windowed, recurrent) if each]
    if len(kinds) < 2:
        return CacheGroups(full + windowed, int(not windowed), int(windowed > 0))
    low, high = min(kinds), max(kinds)
    size = high if high < 1.25 * low else low
    return CacheGroups(size, -(-full // size), -(-windowed // size), -(-recurrent // size))


def _keeps_chunks(deployment: Deployment) -> bool:
    span = deployment.model.span
    return deployment.engine.memory.keeps_chunks and span is not None and span.chunked


def block_tokens(deployment: Deployment, groups: CacheGroups) -> int:
    """Return the tokens of a block: the engine's, or as many as have room for the largest state of a recurrent layer.

    a ceil(s / (a k)) for states of s bytes, k bytes of keys and values of a token in one layer, and blocks of a
    multiple of a tokens (vLLM 0.33.0, platforms/interface.py: _align_hybrid_block_size). vLLM logs 784 for Qwen3.6-27B
    in 16 bits, 1,568 with an fp8 cache (noonghunna/club-3090 issue 1047).

    >>> from simulator.deployment.deployment import deploy
    >>> qwen = deploy("qwen3.5-27b", "h100-sxm")
    >>> block_tokens(qwen, groups_of(qwen))
    784
    """
    if not any(deployment.device_part.attention_layers):
        return deployment.max_model_len
    size = int(deployment.engine.block_size)
    if not groups.recurrent:
        return size
    model, layout = deployment.device_part, deployment.layout
    mixers = [block.mixer for block in model.blocks.values() if block.mixer is not None]
    state = max(mixer.state_bytes(layout) for mixer in mixers)
    token = max(mixer.cache_bytes_per_token(layout) for mixer in mixers)
    return size * ceil(state / (size * token))


def slot_tokens(deployment: Deployment, cache_bytes: float) -> int:
    """Return the tokens that each slot reserves: max_model_len, or as many as fit, up to the model's context."""
    asked = deployment.settings.max_model_len or deployment.engine.context_tokens(deployment.hardware)
    longest = deployment.max_model_len
    if asked is not None:
        return min(asked, longest)

    def bytes_of_all(tokens: int) -> float:
        return deployment.max_num_seqs * _sequence_bytes(deployment, tokens)

    return max(1, bisect_right(range(1, longest + 1), cache_bytes, key=bytes_of_all))


def _sequence_bytes(deployment: Deployment, tokens: int) -> float:
    part, layout = deployment.device_part, deployment.layout
    if _keeps_chunks(deployment):
        own = tokens * part.cache_bytes(1, layout)
    else:
        own = part.cache_bytes(tokens, layout) if any(part.attention_layers) else part.state_bytes(layout)
    return own + tokens * deployment.draft.cache_bytes_per_token


def bytes_of_block(deployment: Deployment, groups: CacheGroups, size: int) -> float:
    """Return the bytes of one block; a draft model's cache lies in the blocks of the full groups."""
    layers = sum(deployment.device_part.attention_layers)
    if deployment.engine.is_reserved or not layers:
        return _sequence_bytes(deployment, size)
    per_token = deployment.device_part.cache_bytes(1, deployment.layout) * groups.layers / layers
    return size * (per_token + deployment.draft.cache_bytes_per_token / max(groups.full, 1))
