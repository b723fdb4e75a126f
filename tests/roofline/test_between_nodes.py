"""Parallelism over several nodes: what crosses them, how long it takes, and that one node knows nothing of it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.deployment.deployment import deploy
from simulator.deployment.layouts import default_layout
from simulator.engines.device_kernels import DeviceKernels
from simulator.engines.engine import load_engine
from simulator.engines.kernels import Kernels
from simulator.errors import NotModelledError
from simulator.hardware.hardware import Hardware, Network, load_hardware
from simulator.models.model import load_model
from simulator.models.operations import Counts, Op
from simulator.profile import Figure, Source
from simulator.profile_folders import names
from simulator.reports.provenance import figures_behind, rests_on
from simulator.roofline.between_nodes import NETWORK_FRACTION, PROTOCOLS, network_bytes_per_s
from simulator.roofline.collectives import Links
from simulator.roofline.roofline import Rates
from simulator.roofline.speed_of_light import LightRates
from tests.oracle.all_reduce import Traffic, hierarchical, rings_over_all
from tests.support.for_each import for_each

H100 = load_hardware("h100-sxm")
GIVEN = Source(text="a test", date="2026-11-22", evidence="given")
SIZES = st.floats(1.0, 1e10)


def summed(devices: int) -> Op:
    """An all-reduce of a byte for each token."""
    return Op("sum", "all_reduce", link_bytes=Counts(tokens=1.0), link_devices=devices)


def all_reduce_s(hardware: Hardware, devices: int, size: float, *, kernels: Kernels | None = None) -> float:
    """Seconds of an all-reduce of so many bytes."""
    found = Links(DeviceKernels(hardware, kernels or Kernels())).transfer(summed(devices), Counts(1.0, size))
    return float(found.latency_s + found.link_s)


def joined(hardware: Hardware, devices: int) -> Hardware:
    """The same device with so many in one node, and rings that reach over all of them what they reach in its node."""
    link = hardware.link.model_copy(update={"devices": devices})
    known = hardware.achievable
    ring = known.ring_all_reduce.get(8) or known.all_reduce[8]
    wider = known.model_copy(update={"all_reduce": {devices: ring}, "ring_all_reduce": {}})
    return hardware.model_copy(update={"link": link, "achievable": wider})


def with_network(hardware: Hardware, bytes_per_s: float, latency_s: float) -> Hardware:
    return hardware.model_copy(
        update={
            "network": Network(
                name="a network", bytes_per_s=Figure(bytes_per_s, GIVEN), latency_s=Figure(latency_s, GIVEN)
            )
        }
    )


# ------------------------------------------------------------------------------------------------------- the equations


@pytest.mark.parametrize(("nodes", "each"), [(2, 1), (2, 2), (3, 2), (2, 4), (4, 4)])
def test_messages_of_rings_carry_what_the_equations_say(nodes, each):
    """Each card carries 2 (n-1)/n S / g numbers of NCCL's rings, 2 (m-1)/m S / g of the least that there can be."""
    devices, width = nodes * each, 960
    ways = {rings_over_all: 2 * (devices - 1) / devices, hierarchical: 2 * (nodes - 1) / nodes}
    for way, share in ways.items():
        vectors = [[float(device * 7 + at % 11) for at in range(width)] for device in range(devices)]
        sums = np.sum(vectors, axis=0).tolist()
        traffic: Traffic = way(vectors, each)
        assert vectors == [sums] * devices
        assert max(traffic.away.values()) == pytest.approx(share * width / each)
    assert all(sent == pytest.approx(2 * (each - 1) / each * width) for sent in traffic.inside.values())


def test_sixteen_h100_are_two_nodes_and_decode_by_a_tree_of_short_messages():
    """One token of 8,192 bf16 numbers: NCCL's 17.1 us in a node, two hops, and 2 x 16 KiB at 0.92/3.8 of 340 GB/s."""
    cards_bytes_per_s = 8 * 50e9 * 0.85
    expected = 17.1e-6 + 2 * 5e-6 + 2 * 16384 / (cards_bytes_per_s * 0.92 / 3.8)
    assert all_reduce_s(H100, 16, 16384.0) == pytest.approx(expected)
    assert H100.nodes(16) == 2


def test_long_messages_take_a_ring_at_the_speed_of_the_slower_link():
    """1 GB over 16: 2 x 15/16 of it at 340 GB/s of eight cards, which is below 385 GB/s of NVLink."""
    expected = 2 * 17.1e-6 + 2 * 14e-6 + 2 * 15 / 16 * 1e9 / 340e9
    assert all_reduce_s(H100, 16, 1e9) == pytest.approx(expected)
    faster = with_network(H100, 200e9, 5e-6)
    assert all_reduce_s(faster, 16, 1e9) == pytest.approx(2 * 17.1e-6 + 2 * 14e-6 + 2 * 15 / 16 * 1e9 / 385e9)


def test_the_speed_of_light_over_nodes():
    """A ConnectX-7 has 400 Gbit/s = 50 GB/s, of which 85 % are reached; two DGX Spark exchange the sum once.

    16 H100 and 8 experts of a token: 1 - 1/2^8 other nodes of 15 (1 - (15/16)^8) = 6.049 other devices: 0.1647.
    """
    assert H100.network.bytes_per_s == 50e9
    assert network_bytes_per_s(H100) == pytest.approx(42.5e9)
    spark = load_hardware("gb10")
    found = LightRates(DeviceKernels(spark)).time(summed(2), Counts(1.0, 1e9))
    assert (found.seconds, found.overhead_s) == (pytest.approx(1e9 / spark.network.bytes_per_s), 0.0)
    tokens = Op("dispatch", "all_to_all", link_bytes=Counts(tokens=1.0), link_devices=16, choices=8)
    found = LightRates(DeviceKernels(H100)).time(tokens, Counts(1.0, 1e9))
    assert (found.seconds, found.overhead_s) == (pytest.approx(0.1647 * 1e9 / 50e9, rel=1e-3), 0.0)


def test_an_engines_own_all_reduce_ends_at_the_node():
    """vLLM's and TensorRT-LLM's kernels for a node, and 4 bits on AMD, are not used over two of them."""
    for name in ("vllm", "tensorrt-llm", "sglang"):
        for device in ("h100-sxm", "mi300x"):
            hardware = load_hardware(device)
            kernels = load_engine(name).kernels_on(hardware)
            plain = Kernels(fitted=kernels.fitted)
            ring = hardware.achievable.ring_all_reduce.get(8)
            if ring is None and kernels.rules.one_ring:
                continue
            for size in (1e4, 1e6, 1e8):
                times = [all_reduce_s(hardware, 16, size, kernels=each) for each in (kernels, plain)]
                assert times[0] == times[1]


def test_a_machine_of_one_device_has_the_network_alone():
    """Two DGX Spark: nothing in a node, two hops of a tree."""
    spark = load_hardware("gb10")
    assert spark.nodes(2) == 2
    least = min(2 * (spark.network.latency_s + each.more_s) for each in PROTOCOLS.values())
    assert all_reduce_s(spark, 2, 0.0) == pytest.approx(least)
    long_s = 1e9 / (spark.network.bytes_per_s * NETWORK_FRACTION)
    assert all_reduce_s(spark, 2, 1e9) == pytest.approx(long_s, rel=0.01)


@pytest.mark.parametrize(
    ("nodes", "tokens", "measured_us"),
    [
        *[(2, 2, 27.2), (4, 2, 29.3), (8, 2, 32.4), (2, 32, 59.8), (4, 32, 86.4), (8, 32, 97.5)],
        *[(2, 128, 142), (4, 128, 213), (8, 128, 250), (2, 1024, 541), (4, 1024, 967)],
        *[(2, 8192, 3338), (4, 8192, 6881)],  # over 8 nodes its routing is held to four of them, and ours is not
    ],
)
def test_all_to_alls_are_near_those_of_deepep_over_nodes(nodes, tokens, measured_us):
    """Combine of 7,168 bf16 numbers from 8 experts; so many tokens on each rank; aiconfigurator-core 0.12.0, H100.

    The faster of the kernels of low latency (here up to 32 tokens) and the normal ones.
    """
    ranks = 8 * nodes
    layout = default_layout(load_model("deepseek-v3"), dp=ranks, ep=ranks)
    way = next(op for op in load_model("deepseek-v3").ops(layout) if op.name == "combine")
    found = Links(DeviceKernels(H100)).transfer(way, Counts(1.0, float(tokens * ranks)))
    assert float(found.latency_s + found.link_s) * 1e6 == pytest.approx(measured_us, rel=0.19)


# ---------------------------------------------------------------------------------------------------------- properties


@settings(max_examples=40, deadline=None)
@given(
    device=st.sampled_from(["h100-sxm", "a100-sxm-80", "mi300x", "gaudi3", "b200-sxm", "l40s"]),
    nodes=st.integers(2, 16),
    size=SIZES,
)
def test_an_all_reduce_over_nodes_is_never_faster_than_in_one(device, nodes, size):
    hardware = load_hardware(device)
    if hardware.link is None:
        hardware = hardware.model_copy(update={"link": H100.link.model_copy(update={"devices": 8})})
    devices = 8 * nodes
    over, inside = all_reduce_s(hardware, devices, size), all_reduce_s(joined(hardware, devices), devices, size)
    assert over >= inside * (1 - 1e-12)
    assert over >= LightRates(DeviceKernels(hardware)).time(summed(devices), Counts(1.0, size)).seconds


@settings(max_examples=40, deadline=None)
@given(
    nodes=st.integers(1, 8), more=st.integers(0, 8), size=SIZES, slower=st.floats(1.0, 100.0), later=st.floats(0, 1e-4)
)
def test_more_nodes_and_a_slower_network_never_speed_one_up(nodes, more, size, slower, later):
    network = H100.network
    worse = with_network(H100, network.bytes_per_s / slower, network.latency_s + later)
    one_node = H100.achievable.model_copy(update={"all_reduce": {8: H100.achievable.ring_all_reduce[8]}})
    plain = H100.model_copy(update={"achievable": one_node})
    fewer = all_reduce_s(plain, 8 * nodes, size)
    assert all_reduce_s(H100, 8 * (nodes + more), size) >= fewer * (1 - 1e-12) or nodes + more == 1
    assert all_reduce_s(worse, 16, size) >= all_reduce_s(H100, 16, size) * (1 - 1e-12)


@settings(max_examples=40, deadline=None)
@given(
    degrees=st.sampled_from(
        [{"tp": 8}, {"tp": 2, "pp": 4}, {"tp": 8, "ep": 8}, {"dp": 8, "ep": 8}, {"tp": 4, "dp": 2, "ep": 8}, {"pp": 8}]
    ),
    model=st.sampled_from(["mixtral-8x7b", "deepseek-v3"]),
    tokens=st.integers(1, 8192),
    bytes_per_s=st.floats(1e6, 1e13),
)
def test_within_a_node_no_bit_depends_on_the_network(degrees, model, tokens, bytes_per_s):
    layout = default_layout(load_model(model), **degrees)
    counts = Counts(1.0, float(tokens), float(tokens), decode_reads=tokens * 1000.0)
    found = set()
    for network in (H100.network, with_network(H100, bytes_per_s, 1.0).network, None):
        hardware = H100.model_copy(update={"network": network})
        for op in load_model(model).ops(layout):
            if op.link_devices > 1:
                for rates in (Rates, LightRates):
                    cost = rates(DeviceKernels(hardware)).time(op, counts)
                    found.add(((op.name, op.repeats), rates, float(cost.link_s), float(cost.overhead_s)))
    assert len(found) == len({each[:2] for each in found}) > 0


@settings(max_examples=40, deadline=None)
@given(ranks=st.sampled_from([16, 32, 64, 128, 256]), tokens=st.integers(1, 8192))
def test_tokens_for_experts_in_other_nodes_never_arrive_earlier(ranks, tokens):
    layout = default_layout(load_model("deepseek-v3"), dp=ranks, ep=ranks)
    way = next(op for op in load_model("deepseek-v3").ops(layout) if op.rate == "all_to_all")
    wide = joined(H100, ranks)
    known = {8: H100.achievable.all_reduce[8], ranks: H100.achievable.all_reduce[8]}
    wide = wide.model_copy(update={"achievable": wide.achievable.model_copy(update={"all_reduce": known})})
    over, inside = (Links(DeviceKernels(each)).transfer(way, Counts(1.0, float(tokens))) for each in (H100, wide))
    assert over.link_s >= inside.link_s
    assert over.latency_s >= inside.latency_s


# -------------------------------------------------------------------------------------------- profiles and what is said


@for_each("device", names("hardware_profiles"))
def test_every_device_has_a_network_no_faster_than_what_links_its_node(device):
    hardware = load_hardware(device)
    assert hardware.network
    assert hardware.network.latency_s >= 1e-6
    link = hardware.link.bytes_per_s if hardware.link else hardware.pcie_bytes_per_s or math.inf
    assert hardware.network.bytes_per_s < link


@pytest.mark.parametrize(
    ("device", "devices"), [("h100-sxm", 8), ("gb200", 72), ("l40s", 8), ("gb10", 1), ("m3-ultra", 1)]
)
def test_nodes_are_those_of_the_machines(device, devices):
    assert load_hardware(device).node_devices == devices


def test_the_network_reaches_the_answer():
    across = deploy("llama-3.1-70b", "h100-sxm", layout=default_layout(load_model("llama-3.1-70b"), tp=16))
    figures = {each.figure: each for each in figures_behind(across)}
    assert figures["network.bytes_per_s"].source.evidence == "family"
    assert "fraction of the network" in rests_on(figures_behind(across), "guess")
    guessed = deploy("llama-3.1-70b", "l40s", layout=default_layout(load_model("llama-3.1-70b"), tp=16))
    assert "l40s: " in (said := rests_on(figures_behind(guessed), "guess"))
    assert "network.bytes_per_s" in said
    inside = deploy("llama-3.1-70b", "h100-sxm", layout=default_layout(load_model("llama-3.1-70b"), tp=8))
    assert not [each.figure for each in figures_behind(inside) if each.figure.startswith("network")]


def test_what_does_not_divide_over_nodes_is_refused():
    with pytest.raises(NotModelledError, match=r"9 devices of H100 SXM5 80 GB: .* do not divide evenly over 2 nodes"):
        H100.nodes(9)
    with pytest.raises(NotModelledError, match=r"it splits rows of matrices within a node\. Give --tp 8"):
        deploy("llama-3.1-70b", "rtx-4090", "llama.cpp", layout=default_layout(load_model("llama-3.1-70b"), tp=16))
    alone = H100.model_copy(update={"network": None})
    with pytest.raises(NotModelledError, match="several nodes of H100 SXM5 80 GB: the profile has no network"):
        all_reduce_s(alone, 16, 1.0)
