"""Attention of prompts that reads K and V again and again, out of few channels of the memory."""

import math

from simulator.hardware.hardware import Hardware
from simulator.models.operations import Op
from simulator.profile import Number, Positive, Strict

CELL_BYTES = 2.0  # of a cached number, in 16 bits


class StridedCache(Strict):
    """Each workgroup reads K and V of one head for `rows` query rows, out of cells in which all KV heads lie in a row.

    Addresses go over the channels of a memory and its caches in turn, `channel_bytes` to each. Cells that lie a power
    of two apart put one head's rows into few of these. `heads`: query heads at work at once; those of other KV heads
    read from other channels.

    Source: ggml-vulkan.cpp, get_fa_tuning_params_coopmat1, and ggml-org/llama.cpp pull request 27703 (2026-08, open),
    which copies a layer's K and V on AMD for this reason; its table has `channels` for one head of 128 numbers.
    """

    rows: Positive
    heads: Number
    channel_bytes: Positive

    def holds(self, hardware: Hardware, op: Op) -> bool:
        """Tell whether prompts read K and V so: all of the context, on a device whose channels are known."""
        return hardware.memory_channels is not None and op.rate == "prefill_attention" and bool(op.flops.prefill_pairs)

    def channels(self, hardware: Hardware, op: Op) -> float:
        """Return the channels that are read at once, all at most.

        Latent vectors, which all heads share, and cells whose length is no whole number of pieces lie in all of them.

        >>> from simulator.engines.engine import load_engine
        >>> from simulator.hardware.hardware import load_hardware
        >>> from simulator.models.operations import Counts
        >>> halo = load_hardware("strix-halo")
        >>> rule = load_engine("llama.cpp-vulkan-b6325").kernels_on(halo).rules.strided_cache
        >>> def wide(columns, heads, kv_heads):
        ...     pairs = Counts(prefill_pairs=4.0 * columns * heads)
        ...     return Op("", "prefill_attention", flops=pairs, heads=heads, shared_by=heads / kv_heads)
        >>> [rule.channels(halo, wide(128, 32, kv_heads)) for kv_heads in (2, 4, 5, 8, 32)]
        [8.0, 4.0, 16.0, 2.0, 3.0]
        >>> [rule.channels(halo, wide(256, 32, kv_heads)) for kv_heads in (2, 4)]
        [8.0, 4.0]
        """
        channels = float(hardware.memory_channels or 1)
        if not op.heads:
            return channels
        pieces = float(CELL_BYTES * op.flops.prefill_pairs / (4.0 * op.heads) / self.channel_bytes)  # of one head's row
        apart = pieces * op.heads / op.shared_by
        if apart % 1:
            return channels
        together = max(1.0, self.heads / op.shared_by)
        found = channels / math.gcd(int(apart), int(channels)) * max(1.0, float(pieces)) * together
        return float(min(channels, found))

    def flops_per_s(self, hardware: Hardware, op: Op) -> float:
        """Return the FLOP/s at which K and V arrive at the bandwidth of the memory; infinite where it does not hold.

        4 FLOPs for each number of K and V, of two bytes, and query row: as many FLOPs a byte as there are rows.
        """
        if not self.holds(hardware, op):
            return math.inf
        share = self.channels(hardware, op) / float(hardware.memory_channels or 1)
        return float(self.rows) * share * float(hardware.memory_bytes_per_s)
