"""Degrees of parallelism: what each costs on the links, and that a degree of one costs nothing."""

from dataclasses import replace

import numpy as np
import pytest

from simulator.deployment.deployment import Deployment, deploy
from simulator.deployment.layouts import default_layout
from simulator.deployment.memory import memory_plan
from simulator.engines.device_kernels import DeviceKernels
from simulator.engines.engine import load_engine
from simulator.engines.kernels import Kernels
from simulator.errors import NotModelledError, ProfileError
from simulator.hardware.hardware import load_hardware
from simulator.models.layout import Layout
from simulator.models.model import load_model
from simulator.models.operations import Counts, Op
from simulator.models.routed_experts import RANK_SPREAD, Experts
from simulator.roofline.between_nodes import network_bytes_per_s
from simulator.roofline.collectives import SEND_LATENCY_S, Links
from simulator.roofline.roofline import Rates
from simulator.roofline.speed_of_light import LightRates
from tests.support.kernels import kernels_with

H100 = load_hardware("h100-sxm")
MIXTRAL = load_model("mixtral-8x7b")
QUICK = Kernels().with_quick_reduce(True)
STEP = Counts(1.0, 64.0, 64.0, decode_reads=64 * 1000.0)


def placed(model: str, hardware: str = "h100-sxm", weights: str = "", **degrees: int) -> Deployment:
    return deploy(model, hardware, layout=default_layout(load_model(model), dtypes=(weights, ""), **degrees))


def test_one_device_has_no_links():
    assert not [op for op in placed("mixtral-8x7b", "b200-sxm").ops if op.link_devices > 1 or any(op.link_bytes)]


# --------------------------------------------------------------------------------------------- data-parallel attention


def test_a_rank_computes_its_share_of_the_batch_with_all_of_its_weights():
    one = {op.name: op for op in MIXTRAL.ops(Layout())}
    rank = {op.name: op for op in MIXTRAL.ops(Layout(ep=4, dp=4))}
    for name in ("qkv projection", "decode attention", "output head", "router"):
        assert rank[name].weight_bytes == one[name].weight_bytes
        assert rank[name].flops == pytest.approx(tuple(each / 4 for each in one[name].flops))
        assert rank[name].bytes_read(STEP) <= one[name].bytes_read(STEP)
    for name in ("experts up", "experts down"):
        routed = rank[name]
        assert routed.flops.tokens == one[name].flops.tokens / 4  # 2 of the 8 experts, all tokens
        assert routed.expert_bytes * routed.experts.total == one[name].expert_bytes * 2
    moved = [each["experts' activation and sum"].activation_bytes.tokens for each in (rank, one)]
    assert moved[0] == moved[1] / 4


def test_tokens_travel_once_to_each_rank_of_their_experts_and_back():
    """2 of 8 experts on 4 ranks: 3 (1 - (3/4)^2) = 1.3125 other ranks; 64 tokens of 4,096 bf16 numbers on 4 devices."""
    ops = [op for op in MIXTRAL.ops(Layout(ep=4, dp=4)) if op.experts or op.rate == "all_to_all"]
    assert [op.name for op in ops] == [
        "dispatch",
        "experts up",
        "experts' activation and sum",
        "experts down",
        "combine",
    ]
    ways = [ops[0], ops[-1]]
    assert STEP.dot(ways[0].link_bytes) == 64 / 4 * 1.3125 * 4096 * 2
    reached = H100.achievable.all_reduce[4]
    each = STEP.dot(ways[0].link_bytes) / reached.bus_bytes_per_s + reached.latency_s
    assert float(Rates(DeviceKernels(H100)).time(ways[0], STEP).seconds) == pytest.approx(ways[0].repeats * each)


@pytest.mark.parametrize(("device", "copies"), [("h200-sxm", 7.0), ("gb200-nvl72", 0.875)])
def test_tokens_are_gathered_by_all_ranks_where_no_all_to_all_sends_them(device, copies):
    """Llama 4 chooses one expert: a token is on 7 other ranks of 8, or on one with the probability 7/8."""
    hardware, op = load_hardware(device), Op("dispatch", "all_to_all", link_devices=8, choices=1)
    op = replace(op, link_bytes=Counts(tokens=Experts(128, 1, 8).other_ranks * 1e6))
    kernels = load_engine("tensorrt-llm-1.2").kernels_on(hardware)
    reached = hardware.achievable.all_reduce[8].bus_bytes_per_s
    sent_s = Links(kernels).transfer(op, Counts(tokens=4.0)).link_s
    assert sent_s * reached == pytest.approx(copies * 4e6)
    light_s = LightRates(kernels).time(op, Counts(tokens=4.0)).seconds
    assert light_s * hardware.link.bytes_per_s == pytest.approx(0.875 * 4e6)


@pytest.mark.parametrize(("weights", "bits"), [("nvfp4", 4.5), ("fp8", 8.0), ("fp8-block", 16.0)])
def test_inputs_of_experts_that_are_quantised_first_travel_in_fewer_bits(weights, bits):
    """Four and a half of sixteen there, sixteen back (TensorRT-LLM, fused_moe_cutlass.py), and never in vLLM."""
    ops = placed("qwen3-235b-a22b", weights=weights, ep=8, dp=8).ops
    there, back = (op for op in ops if op.rate == "all_to_all")
    sent = {}
    for engine in ("tensorrt-llm-1.2", "vllm"):
        links = Links(load_engine(engine).kernels_on(H100))
        sent[engine] = [float(links.transfer(op, STEP).link_s) for op in (there, back)]
    assert sent["tensorrt-llm-1.2"][0] == pytest.approx(bits / 16 * sent["tensorrt-llm-1.2"][1])
    assert sent["vllm"][0] == sent["vllm"][1]
    lit = LightRates(load_engine("tensorrt-llm-1.2").kernels_on(H100))
    assert lit.time(there, STEP).seconds == lit.time(back, STEP).seconds


@pytest.mark.parametrize("tokens", [64, 8192])
def test_between_nodes_the_slow_link_binds(tokens):
    """16 ranks, 8 in a node: 8 of 15 others are away; to 1 - (1/2)^8 other nodes, 15 (1 - (15/16)^8) other ranks."""
    way = next(op for op in load_model("deepseek-v3").ops(Layout(ep=16, dp=16)) if op.rate == "all_to_all")
    many = Counts(1.0, float(tokens))
    sent, network = many.dot(way.link_bytes), network_bytes_per_s(H100)
    direct = 28e-6 + sent * 8 / 15 / network
    relayed = 95e-6 + sent * (1 - 0.5**8) / (15 * (1 - (15 / 16) ** 8)) / network
    assert (direct < relayed) == (tokens == 64)
    assert float(Rates(DeviceKernels(H100)).time(way, many).seconds) == pytest.approx(
        way.repeats * min(direct, relayed)
    )


def test_ranks_hold_the_cache_of_their_own_sequences():
    """Compressed vectors lie whole on each of tp devices, but once on dp ranks."""
    ranks, split = placed("deepseek-v3", "b200-sxm", dp=8, ep=8), placed("deepseek-v3", "b200-sxm", tp=8, ep=8)
    assert memory_plan(ranks).block_bytes == memory_plan(split).block_bytes / 8
    assert ranks.max_num_seqs == 8 * split.max_num_seqs
    assert ranks.layout.devices == 8


def popularity(experts: Experts, dice: np.random.Generator, spread: float = 1.0) -> np.ndarray:
    """Return the chances of experts to be drawn: alike, or of a gamma distribution where there are many."""
    drawn = dice.gamma(1.0 / spread, size=experts.total) if experts.uneven else np.ones(experts.total)
    return drawn / drawn.sum()


@pytest.mark.parametrize("batch", [64, 1024, 16_384])
@pytest.mark.parametrize(
    "experts", [Experts(8, 2, 8), Experts(256, 8, 8, uneven=True), Experts(256, 8, 32, uneven=True)]
)
def test_the_busiest_rank_is_as_busy_as_drawing_says(batch, experts):
    dice, most = np.random.default_rng(7), []
    for _ in range(2000):
        of_ranks = popularity(experts, dice, RANK_SPREAD).reshape(experts.ranks, -1).sum(axis=1)
        most.append(dice.multinomial(batch * experts.chosen, of_ranks).max())
    drawn = np.mean(most) / (batch * experts.chosen / experts.ranks)
    assert float(experts.busiest_tokens(float(batch))) == pytest.approx(drawn, rel=0.06)


@pytest.mark.parametrize("batch", [8, 64, 512])
def test_the_rank_with_the_most_experts_has_as_many_as_drawing_says(batch):
    dice, counts, experts = np.random.default_rng(7), [], Experts(256, 8, 8, uneven=True)
    for _ in range(100):
        chances = popularity(experts, dice)
        first = dice.exponential(size=(batch, 256)) / chances  # who comes first is drawn first, by these chances
        chosen = np.unique(np.argpartition(first, 8)[:, :8])
        counts.append(np.bincount(chosen // 32, minlength=8))
    assert float(experts.touched(float(batch))) == pytest.approx(np.sum(counts) / len(counts), rel=0.03)
    drawn = np.max(counts, axis=1).mean() / np.mean(counts)
    assert float(experts.busiest_experts(float(batch))) == pytest.approx(drawn, rel=0.06)


@pytest.mark.parametrize("rate", ["gemm", "elementwise"])
def test_experts_wait_for_the_busiest_rank(rate):
    routed = next(op for op in MIXTRAL.ops(Layout(tp=8, ep=8)) if op.experts and op.rate == rate)
    even = Op(**{name: getattr(routed, name) for name in routed.__slots__} | {"experts": Experts(8, 2)})
    many = Counts(1.0, 4096.0)
    slower = float(Rates(DeviceKernels(H100)).time(routed, many).seconds) / float(
        Rates(DeviceKernels(H100)).time(even, many).seconds
    )
    assert 1.02 < slower < 1.05
    assert (
        LightRates(DeviceKernels(H100)).time(routed, many).seconds
        == LightRates(DeviceKernels(H100)).time(even, many).seconds
    )


def test_the_rank_with_the_most_experts_reads_their_weights_for_longest():
    """Eight tokens reach some 50 of 128 experts, unevenly: as many more as drawing says (above)."""
    routed = next(op for op in load_model("qwen3-235b-a22b").ops(Layout(tp=8, ep=8)) if op.name == "experts up")
    few, alone = Counts(1.0, 8.0), replace(routed, experts=routed.experts._replace(ranks=1))
    waited, even = (Rates(DeviceKernels(H100)).time(op, few).memory_s for op in (routed, alone))
    assert waited / even == pytest.approx(float(routed.experts.busiest_experts(8.0)))
    assert waited > 1.2 * even


# -------------------------------------------------------------------------------------------------------- collectives


def test_small_messages_take_the_custom_all_reduce_and_large_ones_the_ring():
    """NCCL's 17.1 us and 385 GB/s on eight H100 win once 5.1 us and 285 GB/s take longer; on two devices never."""
    for devices in (2, 8):
        ways = H100.achievable.all_reduce[devices], H100.achievable.ring_all_reduce[devices]
        op = Op("sum", "all_reduce", link_bytes=Counts(tokens=1.0), link_devices=devices)
        chosen = set()
        for size in (4096.0, 1e6, 64e6, 1e9):
            moved = 2 * (devices - 1) / devices * size
            times = [way.latency_s + moved / way.bus_bytes_per_s for way in ways]
            assert float(Rates(DeviceKernels(H100)).time(op, Counts(1.0, size)).seconds) == pytest.approx(min(times))
            chosen.add(times.index(min(times)))
        assert chosen == ({0} if devices == 2 else {0, 1})


# us by KiB of NCCL on four RTX PRO 6000 (voipmonitor/rtx6kpro, optimization/pcie-oneshot-allreduce.md, read 2026-11-28;
# without 64 KiB, 71.2 us, as long as 512 KiB take)
FOUR_CARDS = {1: 13.5, 4: 13.2, 8: 13.9, 16: 14.7, 32: 15.6, 128: 24.7, 256: 40.9, 512: 71.7, 1024: 85.2}


def all_reduce_s(device: str, devices: int, size: float) -> float:
    hardware = load_hardware(device)
    op = Op("sum", "all_reduce", link_bytes=Counts(tokens=1.0), link_devices=devices)
    moved = Links(DeviceKernels(hardware)).transfer(op, Counts(1.0, size))
    return float(moved.link_s + moved.latency_s)


def test_nccl_sums_over_pcie_in_the_protocol_that_is_faster():
    """Half the bandwidth and no more (LL), or all of it and 1.8 us and 4.7 us a hop of the ring more (Simple)."""
    errors = [all_reduce_s("rtx-pro-6000-server", 4, kib * 1024) / (us * 1e-6) - 1 for kib, us in FOUR_CARDS.items()]
    assert np.mean(np.abs(errors)) < 0.06
    assert max(np.abs(errors)) < 0.18
    for devices, reached in ((4, 28e9), (8, 23e9)):
        hops = 2 * (devices - 1)
        long_s = all_reduce_s("rtx-pro-6000-server", devices, 1e9) - all_reduce_s("rtx-pro-6000-server", devices, 1.0)
        assert long_s == pytest.approx(hops / devices * 1e9 / reached + 1.8e-6 + hops * 4.7e-6)


@pytest.mark.parametrize(("device", "devices"), [("rtx-pro-6000-server", 2), ("rx-7900-xtx", 4), ("xeon-6980p", 4)])
def test_sums_that_are_not_nccls_have_one_protocol(device, devices):
    """A pair of cards has the engine's own kernel, AMD and processors have no NCCL: latency and bytes alone."""
    short_s, long_s = (all_reduce_s(device, devices, size) for size in (0.0, 1e6))
    reached = load_hardware(device).achievable.all_reduce[devices]
    assert short_s == pytest.approx(reached.latency_s)
    assert long_s - short_s == pytest.approx(1e6 * 2 * (devices - 1) / devices / reached.bus_bytes_per_s)


@pytest.mark.parametrize(("tp", "pp", "crossings"), [(4, 4, 1), (8, 2, 1), (8, 4, 3), (2, 4, 0), (1, 16, 1)])
def test_stages_in_other_nodes_are_reached_over_the_network(tp, pp, crossings):
    send = next(op for op in load_model("llama-3.1-70b").ops(Layout(tp=tp, pp=pp)) if op.rate == "send")
    size = 1000 * 8192 * 2
    reached = network_bytes_per_s(H100), float(H100.achievable.all_reduce[2].bus_bytes_per_s)
    for rates, (network, within), latency_s in ((Rates, reached, SEND_LATENCY_S), (LightRates, (50e9, 450e9), 0.0)):
        expected = size * (crossings / network + (pp - 1 - crossings) / within) + (pp - 1) * latency_s
        assert float(rates(DeviceKernels(H100)).time(send, Counts(1.0, 1000.0)).seconds) == pytest.approx(expected)


def test_a_stage_of_vllm_sends_two_tensors_as_fast_as_a_pair_of_cards_sums():
    """hidden_states and residual; 20 GB/s over the host's memory between two RTX 5090, which have 63 to the host."""
    send = next(op for op in load_model("glm-4.5-air").ops(Layout(pp=4)) if op.rate == "send")
    card, counts = load_hardware("rtx-5090"), Counts(1.0, 2048.0)
    for engine, tensors in (("vllm-0.33", 2), ("sglang-0.5.10", 1)):
        rates = Rates(load_engine(engine).kernels_on(card))
        link_s = float(rates.time(send, counts).link_s)
        assert link_s == pytest.approx(tensors * 3 * 2048 * 4096 * 2 / 20e9), engine


# ----------------------------------------------------------------------------------------------------------- refusals


def test_a_device_without_a_measured_all_reduce_is_refused():
    nothing = H100.achievable.model_copy(update={"all_reduce": {}})
    op = Op("sum", "all_reduce", link_bytes=Counts(tokens=1.0), link_devices=8)
    with pytest.raises(ProfileError, match="no achievable all_reduce"):
        Links(DeviceKernels(H100.model_copy(update={"achievable": nothing}))).transfer(op, STEP)


@pytest.mark.parametrize(
    ("degrees", "said"),
    [
        ({"dp": 2}, "Give ep 2"),
        ({"tp": 2, "dp": 2, "ep": 2}, "Give ep 4 .4 devices.; if tp counts the devices of all ranks, tp 1, dp 2, ep 2"),
        ({"tp": 4, "ep": 2}, "Give ep 1 or 4"),
        ({"dp": 3, "ep": 3}, "8 experts do not divide"),
    ],
)
def test_degrees_that_cannot_be_are_refused(degrees, said):
    with pytest.raises(NotModelledError, match=said):
        placed("mixtral-8x7b", **degrees)


def test_ranks_of_a_dense_model_are_replicas():
    with pytest.raises(NotModelledError, match="Leave dp out; `infercast fleet --replicas 2` simulates them"):
        placed("llama-3.1-8b", dp=2, ep=2)


@pytest.mark.parametrize(("degrees", "told"), [({"dp": 2}, "Leave dp out"), ({"ep": 2}, "Leave ep out")])
def test_a_dense_model_is_never_advised_degrees_that_are_refused(degrees, told):
    with pytest.raises(NotModelledError, match=told):
        default_layout(load_model("llama-3.1-8b"), **degrees)


def test_a_format_of_experts_is_refused_where_there_are_none():
    with pytest.raises(NotModelledError, match=r"fp8-experts for llama-3\.1-8b: it holds routed experts alone"):
        placed("llama-3.1-8b", weights="fp8-experts")


# -------------------------------------------------------------------------------------------------------- all-reduces


def test_one_shot_sends_everything_to_all_others_and_is_left_where_a_batch_is_larger():
    """64 tokens of 8,192 bf16 numbers to seven others at 285 GB/s: 25.8 us; two shots send 2 x 7/8 of them."""
    op = next(op for op in placed("llama-3.1-70b", tp=8).ops if op.rate == "all_reduce")
    kernels = Kernels(), kernels_with(one_shot_tokens=128.0)
    two, one = (Links(DeviceKernels(H100, each)) for each in kernels)
    each_s = 64 * 8192 * 2 / H100.achievable.all_reduce[8].bus_bytes_per_s
    assert one.transfer(op, STEP).link_s == pytest.approx(7 * each_s)
    assert two.transfer(op, STEP).link_s == pytest.approx(2 * 7 / 8 * each_s)
    largest, larger = (STEP._replace(tokens=tokens) for tokens in (128.0, 129.0))
    assert one.transfer(op, largest).link_s == pytest.approx(7 * 2 * each_s)
    assert one.transfer(op, larger) == two.transfer(op, larger)
    at_peak = [LightRates(DeviceKernels(H100, each)).time(op, STEP).seconds for each in kernels]
    assert at_peak[0] == at_peak[1]


@pytest.mark.parametrize(
    ("engine", "devices", "size", "shots"),
    [
        ("tensorrt-10.8", 8, 499_000.0, 1),
        ("tensorrt-10.8", 8, 501_000.0, 0),
        ("tensorrt-llm-0.11", 8, 501_000.0, 2),
        ("tensorrt-llm-0.11", 8, 8_100_000.0, 0),
        ("tensorrt-llm-0.14", 4, 999_000.0, 1),
        ("tensorrt-llm-0.14", 4, 1_001_000.0, 0),
        ("tensorrt-9", 2, 15_900_000.0, 1),
        ("tensorrt-9", 2, 16_100_000.0, 0),
    ],
)
def test_tensorrts_plugin_chooses_the_kernel_of_an_all_reduce_by_its_bytes(engine, devices, size, shots):
    """One shot: (n - 1) bytes at once; two: 2 (n - 1) / n bytes and the latency twice; none: NCCL's ring."""
    op = Op("sum", "all_reduce", link_bytes=Counts(tokens=1.0), link_devices=devices)
    kernels = load_engine(engine).kernels_on(H100)
    moved = Links(kernels).transfer(op, Counts(1.0, size))
    own, ring = H100.achievable.all_reduce[devices], H100.achievable.ring_all_reduce[devices]
    around = 2 * (devices - 1) / devices * size
    latencies, link_s = {
        0: (ring.latency_s, around / ring.bus_bytes_per_s),
        1: (own.latency_s, (devices - 1) * size / own.bus_bytes_per_s),
        2: (2 * own.latency_s, around / own.bus_bytes_per_s),
    }[shots]
    expected_s = latencies * kernels.fitted.link + link_s
    assert float(moved.link_s + moved.latency_s) == pytest.approx(float(expected_s))


def test_without_nvlink_tensorrts_plugin_leaves_a_pair_to_nccl():
    """AllreducePlugin::selectImplementation, isAuto && !mIsNVLINKSupported; vLLM sums a pair of cards by itself."""
    op = Op("sum", "all_reduce", link_bytes=Counts(tokens=1.0), link_devices=2)
    cards = load_hardware("h100-nvl-unbridged")
    plain_s, nccl_s = (
        Links(DeviceKernels(cards, kernels_with(all_reduce_shots=shots))).transfer(op, Counts(1.0, 16e6)).link_s
        for shots in (0, 1)
    )
    assert nccl_s - plain_s == pytest.approx(1.8e-6 + 2 * 4.7e-6)


def test_what_rests_on_constants_of_the_network_crosses_it():
    links = Links(DeviceKernels(H100))
    inside, across, tokens = (
        Op("op", rate, link_bytes=Counts(tokens=1.0), link_devices=devices)
        for rate, devices in (("all_reduce", 8), ("all_reduce", 16), ("all_to_all", 16))
    )
    names = [{name for name, _ in links.constants(op)} for op in (inside, across, tokens)]
    assert not names[0]
    assert {"fraction of the network", "hop of LL", "hop of Simple"} <= names[1]
    assert not any(name.startswith("hop of") for name in names[2])
    assert {"latency of an all-to-all", "latency of a relayed all-to-all"} <= names[2] - names[1]


def test_a_slow_link_inside_of_a_node_binds_an_all_to_all_over_nodes():
    """At 1 GB/s inside, less than a fiftieth of the network's rate, 16 devices take as long as their node's link."""
    op = Op("tokens", "all_to_all", link_bytes=Counts(tokens=8192.0), link_devices=16, choices=8)
    slow = {
        devices: each.model_copy(update={"bus_bytes_per_s": 1e9})
        for devices, each in H100.achievable.all_reduce.items()
    }
    slowed = H100.model_copy(update={"achievable": H100.achievable.model_copy(update={"all_reduce": slow})})
    fast_s, slow_s = (
        float(Links(DeviceKernels(each)).transfer(op, STEP._replace(tokens=4096.0)).link_s) for each in (H100, slowed)
    )
    assert slow_s > 5 * fast_s


@pytest.mark.parametrize(("kib", "measured_us"), [(4, 4.6), (64, 6.3), (1024, 17), (4096, 35)], ids="{} KiB".format)
def test_vllms_all_reduce_has_a_barrier_more_where_it_is_long(kib, measured_us):
    """Of eight H100, aiconfigurator-core 0.12.0 (facts/efficiency.md); 8,192 numbers in bf16 are 16 KiB a token."""
    op = next(op for op in placed("llama-3.1-70b", tp=8).ops if op.rate == "all_reduce")
    found = Links(DeviceKernels(H100, kernels_with(staged=True))).transfer(op, STEP._replace(tokens=kib / 16))
    assert float(found.latency_s + found.link_s) == pytest.approx(measured_us * 1e-6, rel=0.14)


@pytest.mark.parametrize(("devices", "kib"), [(4, 512), (8, 256)])
def test_two_stages_begin_at_a_size_of_its_own_for_each_group(devices, kib):
    op = Op("sum", "all_reduce", link_bytes=Counts(tokens=1.0), link_devices=devices)
    plain, staged = (Links(DeviceKernels(H100, kernels_with(staged=each))) for each in (False, True))
    short, long = (Counts(1.0, kib * 1024.0 - each) for each in (1, 0))
    once = plain.transfer(op, short).link_s * devices / 2  # all to all others, and not two parts of it
    assert staged.transfer(op, short).link_s == pytest.approx(once)
    twice = plain.transfer(op, long)
    assert staged.transfer(op, long).link_s == pytest.approx(twice.link_s + twice.latency_s)


@pytest.mark.parametrize(
    ("device", "tp", "rates"), [("h100-sxm", 2, Rates), ("h100-sxm", 8, LightRates), ("l40s", 4, Rates)]
)
def test_two_devices_and_the_speed_of_light_and_pcie_know_no_stages(device, tp, rates):
    hardware, op = (
        load_hardware(device),
        next(op for op in placed("llama-3.1-70b", tp=tp).ops if op.rate == "all_reduce"),
    )
    plain, staged = (rates(DeviceKernels(hardware, kernels_with(staged=each))).time(op, STEP) for each in (False, True))
    assert plain == staged


@pytest.mark.parametrize("hardware", ["l40s", "h100-pcie"])  # without links, and with a bridge between two
@pytest.mark.parametrize("rule", [{"one_shot_tokens": 128.0}, {"staged": True}, {"all_reduce_shots": 1}])
def test_devices_that_are_not_all_linked_reduce_by_a_ring(hardware, rule):
    """vLLM's custom_all_reduce.py leaves more than two devices that are not fully connected to NCCL."""
    op = next(op for op in placed("llama-3.1-70b", hardware, tp=8).ops if op.rate == "all_reduce")
    plain, changed = (Links(DeviceKernels(load_hardware(hardware), each)) for each in (Kernels(), kernels_with(**rule)))
    assert changed.transfer(op, STEP) == plain.transfer(op, STEP)
    linked = Links(DeviceKernels(H100, kernels_with(**rule))).transfer(op, STEP)
    assert linked != Links(DeviceKernels(H100)).transfer(op, STEP)


@pytest.mark.parametrize("kernels", [kernels_with(one_shot_tokens=128.0), kernels_with(all_reduce_shots=1), QUICK])
def test_logits_are_gathered_as_ever(kernels):
    """Neither one shot nor fewer bits: both are of sums. 256 rows of 128,256 logits are more than 2 MiB."""
    op = next(op for op in placed("llama-3.1-70b", tp=8).ops if op.name == "all-gather of logits")
    many = Counts(1.0, 64.0, 256.0)
    plain, changed = (Links(DeviceKernels(H100, each)) for each in (Kernels(), kernels))
    assert changed.transfer(op, many) == plain.transfer(op, many)


@pytest.mark.parametrize(("devices", "mebibytes"), [(2, 1), (4, 2), (8, 2)])
def test_quick_reduce_begins_at_a_size_of_its_own_for_each_group(devices, mebibytes):
    op = Op("sum", "all_reduce", link_bytes=Counts(tokens=1.0), link_devices=devices)
    links = Links(DeviceKernels(load_hardware("mi300x"), QUICK))
    short, long = (links.transfer(op, Counts(1.0, size)).link_s for size in (mebibytes * 2**20 - 1, mebibytes * 2**20))
    assert long == pytest.approx(short * 4.5 / 16)


def test_one_ring_carries_no_more_over_eight_devices_than_over_two():
    """MI300X: 38 GB/s between two devices, 269 over the seven links of eight; the latency is that of eight."""
    device = load_hardware("mi300x")
    op = next(op for op in placed("llama-3.1-70b", "mi300x", tp=8).ops if op.rate == "all_reduce")
    every, ring = (
        Links(DeviceKernels(device, kernels_with(one_ring=each))).transfer(op, STEP) for each in (False, True)
    )
    assert ring.link_s == pytest.approx(every.link_s * 269 / 38)
    assert ring.latency_s == every.latency_s
    assert (
        LightRates(DeviceKernels(device, kernels_with(one_ring=True))).time(op, STEP).seconds
        < op.repeats * every.link_s
    )


@pytest.mark.parametrize(
    ("device", "devices", "table", "most"),
    [
        ("mi300x", 4, {2: 7.18, 16: 7.26, 32: 7.58, 256: 14.39, 1024: 22.91, 2048: 36.64, 8192: 118.31}, 0.27),
        ("mi355x", 8, {24: 6.3, 48: 6.7, 96: 7.6, 192: 10.0, 384: 13.1, 768: 16.0, 1536: 24.2}, 0.15),
    ],
)
def test_vllms_own_all_reduce_takes_what_its_tables_say_on_instinct(device, devices, table, most):
    """Microseconds by KiB: vLLM's pull requests 19744 (four MI300) and 39080 (eight MI355X)."""
    rules = load_engine("vllm-0.14").kernels_on(load_hardware(device))
    links = Links(rules.with_fitted(link=1.0))
    op = Op("sum", "all_reduce", link_bytes=Counts(tokens=1.0), link_devices=devices)
    for kib, measured_us in table.items():
        found = links.transfer(op, Counts(1.0, kib * 1024.0))
        assert float(found.link_s + found.latency_s) == pytest.approx(measured_us * 1e-6, rel=most)


def test_quick_reduce_sends_long_sums_in_four_bits_and_a_scale_for_32():
    """8,192 tokens of 8,192 numbers to eight devices: 2 x 7/8 of 134 MB at 269 GB/s, in 4.5 bits instead of 16."""
    devices = load_hardware("mi300x")
    op = next(op for op in placed("llama-3.1-70b", "mi300x", tp=8).ops if op.rate == "all_reduce")
    plain, quick = (Links(DeviceKernels(devices, each)) for each in (Kernels(), QUICK))
    prompt = STEP._replace(tokens=8192.0)
    assert quick.transfer(op, prompt).link_s == pytest.approx(2 * 7 / 8 * 8192 * 8192 * 2 / 269e9 * 4.5 / 16)
    assert quick.transfer(op, STEP) == plain.transfer(op, STEP)  # 64 tokens are 1 MiB, less than two


def test_a_norm_over_all_heads_is_a_sum_over_all_devices():
    """Two squares of fp32 for each of 64 tokens, in each of 62 layers."""
    sums = [op for op in placed("minimax-m2.5", "h200-sxm", tp=4).ops if op.name == "all-reduce of norms"]
    assert [(op.repeats, STEP.dot(op.link_bytes)) for op in sums] == [(62, 64 * 8)]
    alone = placed("minimax-m2.5", "h200-sxm"), placed("llama-3.1-8b", tp=4)
    assert not [op for each in alone for op in each.ops if op.name == "all-reduce of norms"]


def test_an_all_reduce_of_packages_is_one_of_their_dies():
    """Two MI250 are four dies: the latency and the rate of four."""
    packages, dies = load_hardware("mi250"), load_hardware("mi250").model_copy(update={"seen_as": 1})
    op = next(op for op in placed("llama-3.1-8b", tp=4).ops if op.rate == "all_reduce")
    two = replace(op, link_devices=2)
    latencies = [Links(DeviceKernels(each)).transfer(of, STEP).latency_s for each, of in ((packages, two), (dies, op))]
    assert latencies[0] == latencies[1] == dies.achievable.all_reduce[4].latency_s
