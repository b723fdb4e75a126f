"""What a library's Python does for a dense GEMM before it launches it, where no graph holds it."""

from simulator.engines.conditions import OfFormats
from simulator.profile import Seconds


class GemmCall(OfFormats):
    """Dense GEMMs of some formats, on some families, that a library chooses a kernel for at each call, in Python.

    `host_s`: what the host takes for it beside the launch (FittedMultipliers.prompt_launch_s), on a current x86 server.
    FlashInfer makes its runners anew and asks its tuner for one; vLLM's own kernels, and torch.mm, are an operator that
    launches.
    """

    host_s: Seconds
