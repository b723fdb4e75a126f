"""Collectives over several nodes: all-reduces by NCCL's own model of rings and trees, all-to-alls as in DeepEP."""

import math
from typing import NamedTuple

import numpy as np

from simulator.arrays import Array
from simulator.errors import NotModelledError
from simulator.hardware.hardware import Hardware, Network
from simulator.models.operations import Op
from simulator.models.routed_experts import others
from simulator.profile import Figure, Source

TABLE = (
    "DeepEP on 2, 4 and 8 nodes of 8 H100 with a ConnectX-7 each (aiconfigurator-core 0.12.0 kernel tables, Apache-2.0)"
)
NETWORK_FRACTION = Figure(
    0.85,
    Source(
        text=f"{TABLE}: combining 128 more tokens takes as long as 41.7 to 43.4 of 50 GB/s would; as much in other "
        "networks, and in all-reduces",
        date="2026-11-22",
        evidence="guess",
    ),
)
DIRECT_LATENCY_S = Figure(
    23e-6,
    Source(
        text=f"{TABLE}: 22 to 32 us for two tokens by the kernels of low latency, less a hop of 5 us",
        date="2026-11-22",
        evidence="measured",
    ),
)
RELAYED_LATENCY_S = Figure(
    90e-6,
    Source(
        text=f"{TABLE}: straight lines through 1,024 and 8,192 tokens of the normal kernels leave 34 to 203 us, 95 in "
        "the median, less a hop of 5 us",
        date="2026-11-22",
        evidence="fitted",
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

    @classmethod
    def of(cls, op: Op, hardware: Hardware) -> "Shape":
        """Return the group over which an op sends."""
        nodes = hardware.nodes(op.link_devices)
        return cls(nodes, op.link_devices // nodes)

    @property
    def devices(self) -> int:
        """All of them."""
        return self.nodes * self.each

    @property
    def away(self) -> float:
        """Share of a device's others that lie in other nodes, (R - g) / (R - 1)."""
        return (self.devices - self.each) / (self.devices - 1)

    def once_per_node(self, choices: int) -> float:
        """Other nodes over other devices that a token goes to, which chooses so many of them at random."""
        return others(self.nodes, choices) / others(self.devices, choices)


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


def network_bytes_per_s(hardware: Hardware) -> float:
    """Return the bytes/s of one device to other nodes, NETWORK_FRACTION of its line rate."""
    return float(network_of(hardware).bytes_per_s) * float(NETWORK_FRACTION)


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


def all_to_all_s(shape: Shape, op: Op, sent_bytes: Array, bus_bytes_per_s: float, hardware: Hardware) -> Array:
    """Return the seconds of an all-to-all of S bytes a device to its R - 1 others, on m nodes of g devices, R = m g.

    A token goes to each device of its k experts by itself, or once to each node and on from there; what stays in a
    node moves at the same time:

        direct:   T = 23 us + h + max((1-a) S / B, a S / N),  a = (R-g)/(R-1)
        relayed:  T = 90 us + h + max(S / B, d S / N)

    h: a hop over the network, B: bus bandwidth in a node, N: of a card, d: other nodes over other devices that a token
    goes to, (m-1)(1-(1-1/m)^k) over the same of R. The faster is taken, as DeepEP's users take its kernels of low
    latency for decodes and the normal ones for prompts. Shapes as in `all_reduce_s`.
    """
    network, hop_s, away = network_bytes_per_s(hardware), network_of(hardware).latency_s, shape.away
    moved_s = np.maximum(sent_bytes * (1 - away) / bus_bytes_per_s, sent_bytes * away / network)
    direct_s: Array = direct_latency_s(hardware) + moved_s
    if not op.choices:
        return direct_s
    relayed_s = np.maximum(sent_bytes / bus_bytes_per_s, sent_bytes * shape.once_per_node(op.choices) / network)
    faster: Array = np.minimum(direct_s, RELAYED_LATENCY_S + hop_s + relayed_s)
    return faster


def direct_latency_s(hardware: Hardware) -> float:
    """Return the least seconds of an all-to-all over nodes."""
    return DIRECT_LATENCY_S + network_of(hardware).latency_s


def least_all_to_all_s(shape: Shape, op: Op, sent_bytes: Array, link_bytes_per_s: float, hardware: Hardware) -> Array:
    """Return the seconds that no all-to-all over nodes can beat: each token leaves its node once for each other node.

    Shapes as in `all_reduce_s`.
    """
    crossing = min(shape.once_per_node(op.choices), shape.away) if op.choices else shape.away
    network_s = sent_bytes * crossing / network_of(hardware).bytes_per_s
    least: Array = np.maximum(sent_bytes * (1 - shape.away) / link_bytes_per_s, network_s)
    return least


def least_all_reduce_s(shape: Shape, sent_bytes: Array, link_bytes_per_s: float, hardware: Hardware) -> Array:
    """Return the seconds that no all-reduce over nodes can beat, those of the slower of its two links.

    max(2 (g-1)/g S / link, 2 (m-1)/m S / (g network)), at line rate; shapes as in `all_reduce_s`.
    """
    inside = 2 * (shape.each - 1) / shape.each / link_bytes_per_s
    across = 2 * (shape.nodes - 1) / shape.nodes / (shape.each * network_of(hardware).bytes_per_s)
    return sent_bytes * max(inside, across)
