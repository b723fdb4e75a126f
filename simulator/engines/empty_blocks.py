"""Blocks of threads that decode attention launches behind the ends of its sequences, and that end at once."""

import numpy as np

from simulator.arrays import Array
from simulator.engines.conditions import OnDevices
from simulator.hardware.hardware import Hardware
from simulator.models.operations import Counts, Op
from simulator.profile import Positive, Seconds


class EmptyBlocks(OnDevices):
    """Decode attention in parts of `tokens` of the longest context that is allowed, whatever the cache holds.

    A captured graph has as many blocks as the longest context needs, for each sequence and KV head; a device sends one
    off in `block_s`, and reads meanwhile. AITER's paged_attention_ragged in SGLang: aiter_backend.py,
    `max_num_partitions`.
    """

    tokens: Positive
    block_s: Seconds

    def holds(self, hardware: Hardware, op: Op) -> bool:
        """Tell whether decode attention runs in it on a device: not the latent one."""
        return self.covers(hardware) and op.attending_heads > 0 and not op.latent_heads

    def sequence_s(self, op: Op, context_tokens: int) -> float:
        """Return the seconds in which the blocks of a sequence are sent off: h ceil(C / tokens) block_s of h KV heads.

        >>> from simulator.engines.engine import load_engine
        >>> from simulator.hardware.hardware import load_hardware
        >>> blocks = load_engine("sglang").kernels_on(load_hardware("mi300x")).rules.empty_blocks
        >>> f"{blocks.sequence_s(Op('', 'decode_attention', heads=32, shared_by=4), 131_072) * 1e6:.2f} us"
        '1.95 us'
        """
        parts = -(-context_tokens // round(self.tokens))
        return op.attending_heads / op.shared_by * parts * self.block_s

    def seconds(self, op: Op, counts: Counts, context_tokens: int) -> Array:
        """Return the same of all sequences that read the cache; 0 where none does (a slope, or tokens of StepTable).

        Shape of the counts.
        """
        sequences = counts.tokens - counts.prefill_tokens
        read = np.asarray(counts.decode_reads) + counts.decode_reads_windowed
        return np.where(read > 0, self.sequence_s(op, context_tokens) * sequences, 0.0)
