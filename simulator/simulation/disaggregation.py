"""Disaggregated prefill and decode: bytes of KV cache sent between the pools, and the link that carries them.

Rules: docs/serving-rules.md, I.
"""

import math
from dataclasses import dataclass

import numpy as np

from simulator.arrays import Floats, Ints
from simulator.deployment.deployment import Deployment
from simulator.errors import InfercastError
from simulator.profile import Figure, Source

_LINK = Source(text="one 400 Gb/s InfiniBand adapter per replica, and a transfer's set-up", date="", evidence="guess")
LINK_BYTES_PER_S, LINK_LATENCY_S = Figure(50e9, _LINK), Figure(1e-3, _LINK)


@dataclass(frozen=True, slots=True, eq=False)
class CacheLink:
    """Network link of one prefill replica, over which it sends KV caches one at a time, in order of completion.

    `bytes_per_s` and `latency_s` (seconds per transfer) describe the link. `bytes_of`, shape (requests,), float64, is
    the size of each request's KV cache in bytes; None sends nothing. Raises InfercastError for a rate that is not
    positive or a latency that is negative or infinite. Rule I.

    >>> CacheLink(50e9, latency_s=1e-3, bytes_of=np.array([5e9])).seconds(1)
    array([0.101])
    """

    bytes_per_s: float = LINK_BYTES_PER_S
    latency_s: float = LINK_LATENCY_S
    bytes_of: Floats | None = None

    def __post_init__(self) -> None:
        if not self.bytes_per_s > 0 or not 0 <= self.latency_s < math.inf:
            given = f"a link of {self.bytes_per_s:g} bytes/s and {self.latency_s:g} s"
            raise InfercastError(given, "its rate must be above 0, its latency 0 s or more", "Give, say, 50 GB/s")

    def seconds(self, count: int) -> Floats:
        """Return each request's transfer time in seconds, shape (count,): latency_s + bytes / bytes_per_s."""
        moved = np.zeros(count) if self.bytes_of is None else self.bytes_of
        return np.asarray(self.latency_s + moved / self.bytes_per_s, np.float64)


def cache_bytes(deployment: Deployment, prompt_tokens: Ints) -> Floats:
    """Return the KV-cache bytes of each prompt, shape (requests,), float64, summed over the devices of a replica.

    `prompt_tokens` has shape (requests,). Llama-3.1-8B keeps 2 x 32 layers x 8 heads x 128 x 2 bytes = 131,072 bytes
    per token (its config.json: keys and values, layers, KV heads, head size, bf16).

    >>> from simulator.deployment.deployment import deploy
    >>> cache_bytes(deploy("llama-3.1-8b", "h100-sxm"), np.array([1000]))
    array([1.31072e+08])
    """
    lengths, places = np.unique(prompt_tokens, return_inverse=True)
    layout = deployment.layout
    by_length = [layout.devices * deployment.model.cache_bytes(int(tokens), layout) for tokens in lengths]
    return np.array(by_length, np.float64)[places]
