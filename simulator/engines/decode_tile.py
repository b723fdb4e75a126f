"""Decode attention in tiles of query rows: the heads that share a KV head fill some, and all are computed."""

from simulator.engines.conditions import OnDevices
from simulator.hardware.hardware import Hardware
from simulator.models.operations import Op

NARROW_COLUMNS, WIDE_COLUMNS = 96, 256  # of a head: up to which a tile has more rows; beyond which there is no kernel
NARROW_ROWS, ROWS, ONE_GROUP_ROWS = 192, 128, 64
ONE_GROUP_COLUMNS = ((0, 64), (96, 128))  # of heads with tiles of ONE_GROUP_ROWS: above the first, up to the second


class DecodeTile(OnDevices):
    """FlashAttention 3: a decode step multiplies as many rows as a prompt's tile has.

    hopper/tile_size.h of Dao-AILab/flash-attention, sgl-project/sgl-flash-attn and vllm-project/flash-attention:
    192 rows for heads of 96 columns and less, 128 for others. `one_group`: where 64 are enough, one group of warps
    multiplies 64, in 16 bits, heads of up to 64 or of 97 to 128 columns alone (vllm-project/flash-attention pull
    request 63).
    """

    one_group: bool = False

    def rows(self, op: Op, *, narrow: bool) -> int:
        """Return the rows of a tile of an op's decode attention; 0 where it has none. `narrow`: in fp8.

        Latent attention has kernels of its own, and heads of more than 256 columns have none.
        """
        if not op.heads:
            return 0
        columns = max(op.flops) / (4.0 * op.heads)  # two multiply-adds per query head, cached token and column
        if columns > WIDE_COLUMNS:
            return 0
        fits = op.shared_by <= ONE_GROUP_ROWS and any(low < columns <= high for low, high in ONE_GROUP_COLUMNS)
        if self.one_group and fits and not narrow:
            return ONE_GROUP_ROWS
        return NARROW_ROWS if columns <= NARROW_COLUMNS else ROWS

    def padding(self, op: Op, hardware: Hardware) -> float:
        """Return the time in which tiles are computed over that of their FLOPs in the model's type, 1 at least.

        A cache in fp8 is multiplied in fp8 where the device can.

        >>> from simulator.hardware.hardware import load_hardware
        >>> from simulator.models.operations import Counts
        >>> qwen3_32b = Op("", "decode_attention", flops=Counts(decode_reads=4.0 * 64 * 128), heads=64, shared_by=8)
        >>> DecodeTile(families=("hopper",)).padding(qwen3_32b, load_hardware("h20-sxm"))
        16.0
        """
        peaks = hardware.peak_flops_per_s
        narrow = op.cache_format == "fp8" and "fp8" in peaks
        rows = self.rows(op, narrow=narrow) if self.covers(hardware) else 0
        faster = peaks["fp8"] / peaks["bf16"] if narrow and "bf16" in peaks else 1.0
        return max(1.0, rows / op.shared_by / faster)
