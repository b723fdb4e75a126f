"""Rules of dense GEMMs of some number formats: their tiles, Marlin, and what a library does before it launches one."""

from simulator.engines.conditions import OfFormats
from simulator.profile import Positive, Seconds


class GemmTiles(OfFormats):
    """Dense GEMMs of some formats whose smallest tile, of `rows` rows and 128 columns, is multiplied whole (tile_s)."""

    rows: Positive


class DenseMarlin(OfFormats):
    """Dense weights of four bits that no other kernel than Marlin multiplies on some families (marlin_tiles.py).

    `compute`: share of the device's compute fraction, in place of `unpacked`; weights are read as all others.
    """

    compute: Positive
    unpack_rows: Positive  # as ExpertKernels.unpack_rows


class GemmCall(OfFormats):
    """Dense GEMMs of some formats, on some families, for which a library chooses a kernel at each call, in Python.

    `host_s`: seconds of the host for that, where no graph holds the GEMM, beside the launch
    (FittedMultipliers.prompt_launch_s), on a current x86 server. FlashInfer makes its runners anew and asks its tuner
    for one; vLLM's own kernels and torch.mm choose nothing.
    """

    host_s: Seconds
