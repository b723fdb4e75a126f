"""Prefill and decode on pools of their own: what moves between them, and over what. Rules: docs/serving-rules.md, I."""

import math
from dataclasses import dataclass

import numpy as np

from simulator.deployment.deployment import Deployment
from simulator.errors import InfercastError
from simulator.profile import Figure, Source
from simulator.scheduler.state import Floats, Ints

_LINK = Source(text="one 400 Gb/s InfiniBand adapter per replica, and a transfer's set-up", date="", evidence="guess")
LINK_BYTES_PER_S, LINK_LATENCY_S = Figure(50e9, _LINK), Figure(1e-3, _LINK)


@dataclass(frozen=True, slots=True, eq=False)
class Link:
    """What carries prompts' caches away from one prefill replica: one at a time, in the order of finishing.

    `bytes_of` are bytes by request; None is nothing to carry.

    >>> Link(50e9, latency_s=1e-3, bytes_of=np.array([5e9])).seconds(1)
    array([0.101])
    """

    bytes_per_s: float = LINK_BYTES_PER_S
    latency_s: float = LINK_LATENCY_S
    bytes_of: Floats | None = None

    def __post_init__(self) -> None:
        if not self.bytes_per_s > 0 or not 0 <= self.latency_s < math.inf:
            given = f"a link of {self.bytes_per_s:g} bytes/s and {self.latency_s:g} s"
            raise InfercastError(given, "it is no rate above 0 and no time from 0 on", "Give, say, 50 GB/s")

    def seconds(self, count: int) -> Floats:
        """Return the time of each request's transfer: latency + bytes / bytes per second."""
        moved = np.zeros(count) if self.bytes_of is None else self.bytes_of
        return np.asarray(self.latency_s + moved / self.bytes_per_s, np.float64)


def cache_bytes(deployment: Deployment, prompt_tokens: Ints) -> Floats:
    """Return the bytes of the prompts' caches on all devices of a copy.

    Llama-3.1-8B keeps 2 x 32 layers x 8 heads x 128 x 2 bytes = 131,072 bytes per token.

    >>> from simulator.deployment.deployment import deploy
    >>> cache_bytes(deploy("llama-3.1-8b", "h100-sxm"), np.array([1000]))
    array([1.31072e+08])
    """
    lengths, places = np.unique(prompt_tokens, return_inverse=True)
    layout = deployment.layout
    by_length = [layout.devices * deployment.model.cache_bytes(int(tokens), layout) for tokens in lengths]
    return np.array(by_length, np.float64)[places]
