"""Layers split over several devices: how far the chunks of a prompt overlap on them (llama.cpp, -sm layer).

The host launches a chunk's kernels on each device in turn. A device's queue holds `QUEUED` kernels, and the host waits
while it is full; at most `COPIES` chunks are in flight.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from simulator.deployment.deployment import Deployment
from simulator.models.number_formats import number_format
from simulator.profile import Figure, Source

QUEUED = Figure(
    1000.0,
    Source(
        text='launches pending on a device: forums.developer.nvidia.com/t/68937, "about 1000"',
        date="",
        evidence="datasheet",
    ),
)
COPIES = 4  # of a graph's inputs: GGML_SCHED_MAX_COPIES (ggml-org/llama.cpp pull request 20395)
KERNELS = Figure(
    55.0,
    Source(
        text="of a layer over a chunk: 50 counted in builds of 2024 without fused attention, and some more",
        date="2026-11-21",
        evidence="guess",
    ),
)
FUSED_KERNELS = Figure(
    30.0,
    Source(
        text="of a layer over a chunk, with fused attention and GEMMs that unpack weights: 24 counted, and some more",
        date="2026-11-22",
        evidence="guess",
    ),
)
GEMMS = 7  # of a layer, each with a kernel that unpacks its weights, but where they have 16 bits


def constants(deployment: Deployment) -> Iterator[tuple[str, Figure]]:
    """Yield (name, figure) of this module's constants that a deployment's TTFT rests on; none without overlap."""
    if deployment.layout.pp > 1 and deployment.engine.micro_batch_tokens:
        yield "launches in a device's queue", QUEUED
        yield "kernels per layer", FUSED_KERNELS if deployment.engine.flash_attention else KERNELS


def layers_of(layers: int, devices: int) -> list[int]:
    """Return the number of layers on each device: equal shares of the layers and of the output layer, which comes last.

    As llama.cpp's load_tensors does for equal devices (src/llama-model.cpp, read 2026-11-22).

    >>> layers_of(32, 4)
    [9, 8, 8, 7]
    """
    starts = [-(-each * (layers + 1) // devices) for each in range(devices)]
    return [end - start for start, end in pairwise([*starts, layers])]


def kernels_per_layer(deployment: Deployment) -> float:
    """Return how many kernels a layer launches for one chunk of a prompt."""
    if deployment.engine.flash_attention:
        return float(FUSED_KERNELS)
    return KERNELS - GEMMS * (number_format(deployment.layout.weight_dtype).bits >= 16)


def overlapped_s(chunk_s: Sequence[float], layers: int, devices: int, kernels: float = KERNELS) -> float:
    """Return the seconds until the last chunk of a prompt has passed all devices.

    `chunk_s`: seconds of each chunk on all devices together, shape (chunks,). `kernels`: launched per layer and chunk.
    A chunk starts on a device once the host has launched it, the device has finished the chunk before, and the device
    before has finished this one.

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
