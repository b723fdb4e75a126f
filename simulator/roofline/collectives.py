"""What devices send: collectives in a node and over several, point to point, to and from the memory of their host."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from simulator.arrays import Array
from simulator.engines.device_kernels import DeviceKernels
from simulator.errors import NotModelledError, ProfileError
from simulator.hardware.achievable import Collective
from simulator.hardware.hardware import NODE_DEVICES, Hardware
from simulator.models.number_formats import number_format
from simulator.models.operations import Counts, Op
from simulator.models.routed_experts import others
from simulator.profile import Figure, Source
from simulator.roofline.between_nodes import (
    DIRECT_LATENCY_S,
    NETWORK_FRACTION,
    PROTOCOLS,
    RELAYED_LATENCY_S,
    InNode,
    Shape,
    all_reduce_s,
    all_to_all_s,
    direct_latency_s,
    network_bytes_per_s,
    network_of,
)

SEND_LATENCY_S = Figure(
    10e-6, Source(text="aiconfigurator-core 0.12.0's default for point to point", date="2026-11-21", evidence="guess")
)
# Bytes of an all-reduce, by devices, from which QuickReduce takes it: _QR_MIN_SIZE of vLLM's quick_all_reduce.py (read
# 2026-11-22) for INT4 and fp16, which bf16 is cast to; it has none for other groups
LONG_BYTES = {2: 1 << 20, 4: 2 << 20, 8: 2 << 20}
LINKED = ("all_reduce", "all_to_all", "send")
WIDE_BITS = 16.0  # of an activation
# Bytes of an all-reduce, by devices, from which vLLM's own kernel takes two stages (csrc/custom_all_reduce.cuh, read
# 2026-11-22); over two devices it has one
STAGED_BYTES = {4: 512 << 10, 8: 256 << 10}
# Bytes of an all-reduce up to which TensorRT-LLM's plugin sends it in one shot, and up to which its own kernels have a
# workspace, by devices: AllreducePlugin::selectImplementation and customAllReduceUtils.h, read 2026-11-28
ONE_SHOT_BYTES = {2: 16_000_000, 4: 1_000_000, 8: 500_000}
WORKSPACE_BYTES = {2: 16_000_000, 4: 8_000_000, 8: 8_000_000}
# What NCCL's protocol for long messages takes over PCIe beyond that for short ones: once, and on each hop of a ring
LONGER_START_S, LONGER_HOP_S = (
    Figure(
        seconds,
        Source(
            text=f"ncclTopoTuneModel of NCCL's src/graph/tuning.cc, a ring over PCI: {what} of Simple, less that of LL",
            date="2026-11-28",
            evidence="derived",
        ),
    )
    for what, seconds in (("baseLat", 1.8e-6), ("hwLat", 4.7e-6))
)
PCIE_FRACTION = Figure(
    0.82,
    Source(
        text="26 of 31.5 GB/s, as large pinned copies reach on PCIe 4.0 x16; recalled",
        date="2026-11-21",
        evidence="guess",
    ),
)


class Transfer(NamedTuple):
    """Seconds that the link works (an array by step, or one), and the seconds before it does."""

    link_s: Array
    latency_s: float


class Links:
    """Links of a device under an engine's collectives (KernelRules).

    One shot: each device sends all that it has to all others, which takes a link to each of them. Two stages, each with
    a barrier, take the latency twice: on eight H100 that is within 13 % of measured times from 4 KiB to 4 MiB (kernel
    tables), where the latency once is 32 % short at 1 MiB. What it takes to quantise numbers of
    `reduced_bits` is not counted.
    """

    def __init__(self, kernels: DeviceKernels) -> None:
        self.hardware, self.kernels = kernels.hardware, kernels

    def transfer(self, op: Op, counts: Counts) -> Transfer:
        """Return what an op sends in a step, once.

        Raises ProfileError or NotModelledError where the device's profile has no such link.
        """
        kinds = {
            "all_reduce": self._all_reduce,
            "all_to_all": self._all_to_all,
            "send": self._send,
            "host_link": self._host_link,
        }
        return kinds[op.rate](op, counts)

    def constants(self, op: Op) -> Iterator[tuple[str, Figure]]:
        """Yield the figures in Python, not in a profile, that the predicted time of an op rests on, each by name."""
        crosses = op.rate in LINKED and op.link_devices > self.hardware.node_devices
        if crosses:
            yield "fraction of the network", NETWORK_FRACTION
        if crosses and self.hardware.node_devices == int(NODE_DEVICES) and not self._states_node:
            yield "devices of a node", NODE_DEVICES
        if crosses and op.rate == "all_reduce":
            yield from ((f"hop of {name}", each.more_s) for name, each in PROTOCOLS.items())
        if crosses and op.rate == "all_to_all":
            yield "latency of an all-to-all", DIRECT_LATENCY_S
            yield "latency of a relayed all-to-all", RELAYED_LATENCY_S
        if op.rate == "all_reduce" and not crosses and self._by_nccl(op.link_devices):
            yield "start of a long all-reduce", LONGER_START_S
            yield "hop of a long all-reduce", LONGER_HOP_S
        if op.rate in ("send", "host_link"):
            yield "latency of a send", SEND_LATENCY_S
        if op.rate == "host_link":
            yield "fraction of PCIe", PCIE_FRACTION

    @property
    def _states_node(self) -> bool:
        """Whether the profile says how many devices a node has."""
        link = self.hardware.link
        return self.hardware.devices_per_node is not None or (link is not None and link.devices >= NODE_DEVICES)

    def _all_reduce(self, op: Op, counts: Counts) -> Transfer:
        """T = latency + 2 (n-1)/n bytes / bus bandwidth; by NCCL's ring where that is faster.

        In one shot (n-1) bytes / bus bandwidth; in two stages the latency twice; long ones of vLLM's QuickReduce in
        `reduced_bits` instead of 16 bits. By NCCL over PCIe as in `by_protocol`.
        """
        devices, rules = op.link_devices, self.kernels.rules
        if devices > self.hardware.node_devices:
            return self._all_reduce_over_nodes(op, counts)
        moved_bytes = counts.dot(op.link_bytes) * 2 * (devices - 1) / devices
        latency_s, bus_bytes_per_s = self._collective(devices)
        link_s = moved_bytes / bus_bytes_per_s
        sums = op.link_bytes.tokens > 0  # logits are gathered, by a collective of the same latency
        linked = self._linked(devices)
        if sums and self._by_nccl(devices):
            return Transfer(by_protocol(link_s, devices), latency_s)
        if sums and rules.all_reduce_shots:
            return Transfer(self._by_bytes(counts.dot(op.link_bytes), devices), latency_s)
        staged = sums and rules.staged and devices in STAGED_BYTES and linked
        if staged:
            link_s = link_s + latency_s
        ring = self.hardware.achievable.ring_all_reduce.get(devices)
        if ring is not None:
            more_s = ring.latency_s * self.kernels.fitted.link - latency_s
            link_s = np.minimum(link_s, moved_bytes / self._reached(ring) + more_s)
        once_s = counts.dot(op.link_bytes) * (devices - 1) / bus_bytes_per_s
        if staged:
            link_s = np.where(counts.dot(op.link_bytes) < STAGED_BYTES[devices], once_s, link_s)
        if rules.one_shot_tokens and sums and linked:
            link_s = np.where(counts.tokens <= rules.one_shot_tokens, once_s, link_s)
        link_s = quick_reduced(op, counts, link_s, moved_bytes / bus_bytes_per_s, rules.reduced_bits)
        return Transfer(link_s, latency_s)

    def _linked(self, devices: int) -> bool:
        return self.hardware.link is not None and self.hardware.link.devices >= devices

    def _by_nccl(self, devices: int) -> bool:
        """Whether a sum over so many devices of a node is NCCL's, over PCIe; over two it is the engine's own.

        vLLM and SGLang: "Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs"
        (custom_all_reduce.py; flashinfer-ai/flashinfer pull request 4393 says why).
        """
        cards = self.hardware.vendor == "NVIDIA" and self.hardware.device_class != "cpu"
        fewest = 1 if self.kernels.rules.all_reduce_shots else 2
        return cards and devices > fewest and not self._linked(devices)

    def _by_bytes(self, sent_bytes: Array, devices: int) -> Array:
        """Return the seconds beside the latency of an all-reduce of so many bytes by TensorRT-LLM's plugin.

        In one shot, then in two where it has them (KernelRules.all_reduce_shots), then by NCCL.
        """
        latency_s, bus_bytes_per_s = self._collective(devices)
        ring = self.hardware.achievable.ring_all_reduce.get(devices)
        rate, more_s = bus_bytes_per_s, 0.0
        if ring is not None:
            rate, more_s = self._reached(ring), ring.latency_s * self.kernels.fitted.link - latency_s
        size = min((each for each in ONE_SHOT_BYTES if each >= devices), default=max(ONE_SHOT_BYTES))
        around = 2 * (devices - 1) / devices * sent_bytes
        own_s = around / bus_bytes_per_s + latency_s
        two_shot_bytes = WORKSPACE_BYTES[size] if self.kernels.rules.all_reduce_shots > 1 else 0
        found: Array = np.where(sent_bytes <= two_shot_bytes, own_s, around / rate + more_s)
        once_s = (devices - 1) * sent_bytes / bus_bytes_per_s
        return np.where(sent_bytes < ONE_SHOT_BYTES[size], once_s, found)

    def _all_reduce_over_nodes(self, op: Op, counts: Counts) -> Transfer:
        """NCCL's, whatever the engine has of its own for a node (between_nodes.all_reduce_s)."""
        shape, sent_bytes = Shape.of(op, self.hardware), counts.dot(op.link_bytes)
        ring = self.hardware.achievable.ring_all_reduce.get(shape.each)
        if shape.each == 1:
            inside = InNode(0.0, math.inf)
        elif ring is not None:
            inside = InNode(ring.latency_s * self.kernels.fitted.link, self._reached(ring))
        else:
            inside = InNode(*self._collective(shape.each))
        return Transfer(*all_reduce_s(shape, sent_bytes, inside, self.hardware))

    def _all_to_all(self, op: Op, counts: Counts) -> Transfer:
        """T = latency + bytes to other devices / rate; over nodes, between_nodes.all_to_all_s.

        Where tokens are gathered (gathers_tokens), each goes to all R - 1 other ranks, not to those of its experts.
        Those of `sends_quantized` have the bits of the experts' format on their way there.
        """
        sent_bytes = counts.dot(op.link_bytes)
        if op.format in self.kernels.rules.sends_quantized:
            sent_bytes = sent_bytes * (number_format(op.format).bits / WIDE_BITS)
        if op.link_devices <= self.hardware.node_devices:
            latency_s, bytes_per_s = self._collective(op.link_devices)
            if self.hardware.node_devices <= (self.kernels.rules.gathers_tokens or 0.0):
                sent_bytes = sent_bytes * (op.link_devices - 1) / others(op.link_devices, op.choices)
            return Transfer(sent_bytes / bytes_per_s, latency_s)
        shape = Shape.of(op, self.hardware)
        bytes_per_s = self._collective(shape.each)[1] if shape.each > 1 else math.inf
        latency_s = direct_latency_s(self.hardware)
        return Transfer(all_to_all_s(shape, op, sent_bytes, bytes_per_s, self.hardware) - latency_s, latency_s)

    def _send(self, op: Op, counts: Counts) -> Transfer:
        """T = latency + bytes / rate, the mean of all sends: those that leave a node take the network.

        Within a node, no faster than an all-reduce of two devices. `sends_residual`: two tensors of one size.
        """
        away = sends_away(op, self.hardware)
        each_s, latency_s = ((1 - away) / self._pair_bytes_per_s() if away < 1 else 0.0), (1 - away) * SEND_LATENCY_S
        if away:
            each_s += away / network_bytes_per_s(self.hardware)
            latency_s += away * self._send_latency_s
        tensors = 2.0 if self.kernels.rules.sends_residual else 1.0
        return Transfer(tensors * counts.dot(op.link_bytes) * each_s, latency_s)

    def _host_link(self, op: Op, counts: Counts) -> Transfer:
        """T = latency + bytes / PCIe rate: weights from the host's memory."""
        return Transfer(op.bytes_read(counts) / host_bytes_per_s(self.hardware), float(SEND_LATENCY_S))

    @property
    def _send_latency_s(self) -> float:
        """Seconds before a send to another node: those within one, or a slower network's."""
        return max(float(SEND_LATENCY_S), float(network_of(self.hardware).latency_s))

    def _collective(self, devices: int) -> tuple[float, float]:
        """Return the latency and the bus bandwidth of a collective over so many devices."""
        known: dict[int, Collective] = self.hardware.achievable.all_reduce
        members = devices * self.hardware.seen_as
        size = min((each for each in known if each >= members), default=max(known, default=0))
        if not size:
            raise ProfileError(self.hardware.name, "no achievable all_reduce is known", "Add one")
        carries = known[min(known) if self.kernels.rules.one_ring else size]
        return known[size].latency_s * self.kernels.fitted.link, self._reached(carries)

    def _reached(self, collective: Collective) -> float:
        """Return the bus bandwidth, no more than the link's own where it is known."""
        link, reached = self.hardware.link, collective.bus_bytes_per_s
        most = link.bytes_per_s if link else self.hardware.pcie_bytes_per_s
        return min(reached, most or reached)

    def _pair_bytes_per_s(self) -> float:
        """Bytes per second from a device to another one in its node; the link's own where no all-reduce is known."""
        return self._collective(2)[1] if self.hardware.achievable.all_reduce else link_bytes_per_s(self.hardware)


def link_bytes_per_s(hardware: Hardware) -> float:
    """Return the bytes/s of a device's link to others of its node, by its data sheet.

    Raises NotModelledError for a device without one.
    """
    if hardware.link:
        return hardware.link.bytes_per_s
    if hardware.pcie_bytes_per_s:
        return hardware.pcie_bytes_per_s
    raise NotModelledError(f"several {hardware.name}", "the profile has no link between devices", "Use one device")


def quick_reduced(op: Op, counts: Counts, link_s: Array, quick_s: Array, bits: float | None) -> Array:
    """Return the seconds of an all-reduce, `quick_s` x bits / 16 of those that QuickReduce takes; else `link_s`."""
    if not bits or not op.link_bytes.tokens or op.link_devices not in LONG_BYTES:
        return link_s
    is_long = counts.dot(op.link_bytes) >= LONG_BYTES[op.link_devices]
    found: Array = np.where(is_long, quick_s * (bits / WIDE_BITS), link_s)
    return found


def by_protocol(moved_s: Array, devices: int) -> Array:
    """Return the seconds of NCCL's ring over PCIe beside its latency; `moved_s`: bytes at the bus bandwidth, any shape.

    Short messages go with a flag beside each word (LL), at half the bandwidth; long ones take more for each of the
    2 (n-1) hops (Simple), here 30 us over four devices and 68 over eight. The faster is taken. LL128 needs NVLink.
    Source: ncclTopoTuneModel (NVIDIA/nccl src/graph/tuning.cc). Four RTX PRO 6000 (voipmonitor/rtx6kpro,
    pcie-oneshot-allreduce.md, 1 KiB to 1 MiB) are met within 6 % in the mean; at the full bandwidth they are 18 to 42 %
    too fast from 128 KiB on.

    >>> [round(float(by_protocol(seconds * 1e-6, 4)) * 1e6, 1) for seconds in (9.4, 37.4)]
    [18.8, 67.4]
    """
    more_s = LONGER_START_S + 2 * (devices - 1) * LONGER_HOP_S
    faster: Array = np.minimum(moved_s / PROTOCOLS["LL"].ring, moved_s + more_s)
    return faster


def sends_away(op: Op, hardware: Hardware) -> float:
    """Return the share of the sends between pipeline stages that leave a node.

    Stages lie one after another, each on neighbours: k = node / (devices of a stage) of them in a node, so that
    (stages - 1) // k of the stages - 1 sends leave one.
    """
    if op.link_devices <= hardware.node_devices:
        return 0.0
    return op.repeats // max(1, hardware.node_devices * (op.repeats + 1) // op.link_devices) / op.repeats


def host_bytes_per_s(hardware: Hardware) -> float:
    """Return the bytes/s between a device and the memory of its host, PCIE_FRACTION of PCIe's own."""
    return pcie_bytes_per_s(hardware) * float(PCIE_FRACTION)


def pcie_bytes_per_s(hardware: Hardware) -> float:
    """Return PCIe's bytes/s between a device and its host. Raises ProfileError for a device without such a link."""
    if hardware.pcie_bytes_per_s is None:
        because = "the profile has no link to its host"
        raise ProfileError(f"offloading from {hardware.name}", because, "Leave offloading out, or add pcie_bytes_per_s")
    return float(hardware.pcie_bytes_per_s)
