"""Layers split over several devices: how far the chunks of a prompt overlap on them (llama.cpp, -sm layer).

The host enqueues a chunk on each device in turn. A device's queue holds `QUEUED` kernels, and the host waits where it
is full; at most `COPIES` chunks are on their way.
"""

from collections.abc import Sequence
from itertools import pairwise

from simulator.deployment.deployment import Deployment
from simulator.models.number_formats import number_format

QUEUED = 1000  # launches pending on a device (forums.developer.nvidia.com/t/68937: "about 1000")
COPIES = 4  # of a graph's inputs: GGML_SCHED_MAX_COPIES (ggml-org/llama.cpp pull request 20395)
KERNELS = 55  # of a layer over a chunk, a guess: 50 counted in builds of 2024 without fused attention, and some more
FUSED_KERNELS = 30  # the same with it and with products that unpack what they multiply, a guess: 24 counted
PRODUCTS = 7  # of a layer, each with a kernel that unpacks its weights, but where they have 16 bits


def layers_of(layers: int, devices: int) -> list[int]:
    """Return the layers on each device: even shares of them and the output layer, which stands last.

    >>> layers_of(32, 4)
    [9, 8, 8, 7]
    """
    starts = [-(-each * (layers + 1) // devices) for each in range(devices)]
    return [end - start for start, end in pairwise([*starts, layers])]


def kernels_per_layer(deployment: Deployment) -> int:
    """Return how many kernels a layer launches for a chunk of a prompt."""
    if deployment.engine.flash_attention:
        return FUSED_KERNELS
    return KERNELS - PRODUCTS * (number_format(deployment.layout.weight_dtype).bits >= 16)


def overlapped_s(chunk_s: Sequence[float], layers: int, devices: int, kernels: int = KERNELS) -> float:
    """Return the seconds until the last chunk has passed all devices; `chunk_s` is what each takes, the devices added.

    >>> overlapped_s([1.0], 80, 4), round(overlapped_s([1.0] * 8, 80, 4), 2), round(overlapped_s([1.0] * 8, 32, 4), 2)
    (1.0, 6.41, 3.02)
    """
    shares = layers_of(layers, devices)
    starts: list[list[float]] = []  # by chunk and device
    ends: list[list[float]] = []
    host_s = 0.0
    for chunk, whole_s in enumerate(chunk_s):
        starts.append([])
        ends.append([])
        for device, share in enumerate(shares):
            if chunk >= COPIES:
                host_s = max(host_s, ends[chunk - COPIES][device])
            before_s = ends[chunk - 1][device] if chunk else 0.0
            starts[chunk].append(max(host_s, before_s, ends[chunk][-1] if device else 0.0))
            ends[chunk].append(starts[chunk][-1] + whole_s * share / layers)
            if (done := (chunk + 1) * share * kernels - QUEUED) > 0:  # kernels that must end before the last is queued
                at, rest = divmod(done / (share * kernels), 1.0)
                running_s = ends[int(at)][device] - starts[int(at)][device]
                host_s = max(host_s, starts[int(at)][device] + rest * running_s)
    return ends[-1][-1]
