"""All-reduces over several nodes, as NCCL's own model times them: rings and trees of hops over the network."""

import math
from typing import NamedTuple

import numpy as np

from simulator.errors import NotModelledError
from simulator.hardware.hardware import Hardware, Network
from simulator.models.operations import Array
from simulator.profile import Figure, Source

NETWORK_FRACTION = Figure(
    0.9,
    Source(
        text="45 to 46 of 50 GB/s, as all-to-alls over 2 and 4 nodes of 8 H100 reach with a ConnectX-7 each: 90 and 61 "
        "GB/s of which a half and a quarter stay in the node (deepseek-ai/DeepEP README); all-reduces like them",
        date="2026-11-22",
        evidence="guess",
    ),
)


def _more(microseconds: float) -> Figure:
    text = "ncclTopoTuneModel of NCCL's src/graph/tuning.cc: hwLat of trees over a network, less that of LL, 5 us"
    return Figure(microseconds * 1e-6, Source(text=text, date="2026-11-22", evidence="derived"))


class Protocol(NamedTuple):
    """How NCCL sends: what a hop takes beyond one of short messages, and the shares of the bandwidth that are data."""

    more_s: Figure
    ring: float
    tree: float


# busBw of rings and trees for each protocol in ncclTopoTuneModel: flags beside the data (half of LL, 8 bytes of 128)
PROTOCOLS = {
    "LL": Protocol(_more(0.0), 0.5, 0.92 / 3.8),
    "LL128": Protocol(_more(3.5), 0.92, 0.92 * 120 / 128),
    "Simple": Protocol(_more(9.0), 1.0, 0.92),
}


class Shape(NamedTuple):
    """A group of devices: so many nodes, and so many of its devices in each."""

    nodes: int
    each: int

    @property
    def devices(self) -> int:
        """All of them."""
        return self.nodes * self.each


class InNode(NamedTuple):
    """An all-reduce over the devices of one node: its latency, and its bus bandwidth as nccl-tests define it."""

    latency_s: float
    bus_bytes_per_s: float


def network_of(hardware: Hardware) -> Network:
    """Return the network between a device's nodes; NotModelledError where neither it nor its family states one."""
    if hardware.network is None:
        raise NotModelledError(
            f"several nodes of {hardware.name}", "the profile has no network between them", "Add network:, or one node"
        )
    return hardware.network


def network_bytes_per_s(hardware: Hardware, *, light: bool = False) -> float:
    """Return the bytes/s of one device to other nodes, NETWORK_FRACTION of its line rate; `light`: all of it."""
    return float(network_of(hardware).bytes_per_s) * (1.0 if light else float(NETWORK_FRACTION))


def all_reduce_s(shape: Shape, sent_bytes: Array, inside: InNode, hardware: Hardware) -> tuple[Array, float]:
    """Return the seconds of an all-reduce of S bytes over m nodes of g devices, n = m g, and the latency in them.

    A ring passes all devices, a tree has a chain of devices in each node and a binary tree of the nodes:

        ring: T = m L + 2 (m-1) h + 2 (n-1)/n S / (e B)       tree: T = L + 2 ceil(log2 m) h + 2 S / (e B)

    L: latency in a node, h: of a hop over the network, B: the lower of the bus bandwidth in a node and of g cards
    together (each device sends to its like in the next node), e: the share of it that a protocol leaves to data. Both
    move chunks in a pipeline, so that the slower link alone binds: a reduce-scatter in the node, an all-reduce over
    the nodes and an all-gather in the node, at the same time. The fastest of both algorithms with each of three
    protocols is taken, as by NCCL itself (ncclTopoTuneModel, src/graph/tuning.cc, read 2026-11-22; NVLS trees and
    SHARP are left out). An engine's own all-reduce ends at the node (vLLM: "custom allreduce is disabled because this
    process group spans across nodes").
    """
    nodes, network = shape.nodes, network_of(hardware)
    bus_bytes_per_s = min(inside.bus_bytes_per_s, shape.each * network_bytes_per_s(hardware))
    ways: list[tuple[float, Array]] = []
    for protocol in PROTOCOLS.values():
        hop_s = network.latency_s + protocol.more_s
        moved_s = sent_bytes / bus_bytes_per_s
        ring_s = nodes * inside.latency_s + 2 * (nodes - 1) * hop_s
        tree_s = inside.latency_s + 2 * math.ceil(math.log2(nodes)) * hop_s
        ways.append((ring_s, moved_s * (2 * (shape.devices - 1) / shape.devices / protocol.ring)))
        ways.append((tree_s, moved_s * (2 / protocol.tree)))
    latency_s = min(way[0] for way in ways)
    link_s = np.minimum.reduce([np.asarray(latency - latency_s + link) for latency, link in ways])
    return link_s, latency_s


def least_all_reduce_s(shape: Shape, sent_bytes: Array, link_bytes_per_s: float, hardware: Hardware) -> Array:
    """Return the seconds that no all-reduce over nodes can beat, those of the slower of its two links.

    max(2 (g-1)/g S / link, 2 (m-1)/m S / (g network)), at line rate; shapes as in `all_reduce_s`.
    """
    inside = 2 * (shape.each - 1) / shape.each / link_bytes_per_s
    across = 2 * (shape.nodes - 1) / shape.nodes / (shape.each * network_bytes_per_s(hardware, light=True))
    return sent_bytes * max(inside, across)
