"""Packing: whole instances against every way to rent them, what stays empty, and dollars by hand."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import deploy
from simulator.cost.packing import ReplicaSize, full_usd_per_hour, packed, replica_size
from simulator.errors import InfercastError
from simulator.hardware.hardware import load_hardware
from simulator.hardware.prices import Offer, own_offer

SIZES = st.lists(st.tuples(st.integers(1, 8), st.integers(1, 20)), min_size=1, max_size=3)


def offer(devices: int, usd_per_hour: float, provider: str = "A") -> Offer:
    return own_offer("l40s", usd_per_hour, devices).model_copy(update={"provider": provider})


def cheapest_by_force(size: ReplicaSize, replicas: int, offers: list[Offer]) -> float | None:
    """Try every number of every instance, up to as many as there are parts; place the parts one by one."""
    most = range(replicas * size.parts + 1)
    prices = []
    for counts in product(most, repeat=len(offers)):
        placed = 0
        for each, count in zip(offers, counts, strict=True):
            for _ in range(count):  # part after part into one instance, as long as there is room
                left = each.devices
                while left >= size.part_devices:
                    left, placed = left - size.part_devices, placed + 1
        if placed >= replicas * size.parts:
            prices.append(sum(each.usd_per_hour * count for each, count in zip(offers, counts, strict=True)))
    return min(prices, default=None)


@given(st.integers(1, 4), st.integers(1, 2), st.integers(1, 3), SIZES)
def test_the_cheapest_instances_are_those_of_brute_force(part_devices, parts, replicas, sizes):
    size, offers = ReplicaSize(part_devices * parts, parts), [offer(devices, float(usd)) for devices, usd in sizes]
    expected = cheapest_by_force(size, replicas, offers)
    if expected is None:
        with pytest.raises(InfercastError, match=f"an instance with {part_devices} devices"):
            packed(size, replicas, offers)
        return
    found = packed(size, replicas, offers)
    assert found.usd_per_hour == pytest.approx(expected)
    assert sum(size.held(each) * count for each, count in found.instances) >= replicas * parts
    assert found.empty_devices == found.devices - replicas * size.devices >= 0
    assert found.usd_per_hour >= replicas * full_usd_per_hour(size, offers) - 1e-9


@given(st.integers(1, 400), SIZES)
def test_many_replicas_are_packed_as_part_by_part(replicas, sizes):
    best = [(0, 0)]
    for needed in range(1, replicas + 1):
        held = ((usd, devices, best[max(0, needed - devices)]) for devices, usd in sizes)
        best.append(min((usd + before[0], devices + before[1]) for usd, devices, before in held))
    found = packed(ReplicaSize(1), replicas, [offer(devices, float(usd)) for devices, usd in sizes])
    assert (found.usd_per_hour, found.devices) == best[-1]
    assert all(count for _, count in found.instances)


def test_no_number_of_replicas_takes_longer_to_pack_than_another():
    offers = [offer(1, 0.7), offer(4, 2.6), offer(8, 5.0)]
    some, many = (packed(ReplicaSize(1), replicas, offers) for replicas in (107, 8 * 10**12 + 107))
    more = {each: count + (10**12 if each.devices == 8 else 0) for each, count in some.instances}
    assert dict(many.instances) == more


@given(st.integers(1, 5), SIZES, SIZES)
def test_a_fleet_is_of_one_provider(replicas, ours, theirs):
    offers = [offer(*each) for each in ours], [offer(*each, provider="B") for each in theirs]
    apart = [packed(ReplicaSize(1), replicas, each).usd_per_hour for each in offers]
    together = packed(ReplicaSize(1), replicas, [*offers[0], *offers[1]])
    assert together.usd_per_hour == min(apart)
    assert len({each.provider for each, _ in together.instances}) == 1


@pytest.mark.parametrize(
    ("devices", "replicas", "sold", "usd_per_hour", "empty"),
    [
        (1, 1, [(8, 44.0)], 44.0, 7),  # one B200 of a node of eight: the node is paid
        (4, 1, [(1, 0.88), (4, 10.49)], 10.49, 0),  # four L40S that talk to each other are no four machines
        (3, 3, [(8, 16.0)], 32.0, 7),  # two of three fit in eight, and the third takes another eight
        (2, 5, [(2, 3.0), (8, 10.0)], 13.0, 0),
    ],
)
def test_what_is_paid_by_hand(devices, replicas, sold, usd_per_hour, empty):
    found = packed(ReplicaSize(devices), replicas, [offer(*each) for each in sold])
    assert (found.usd_per_hour, found.empty_devices) == (usd_per_hour, empty)


def test_a_replica_spans_instances_only_where_its_layout_needs_several_nodes():
    h100, gb200 = load_hardware("h100-sxm"), load_hardware("gb200")
    assert packed(replica_size(h100, 16), 2, [offer(8, 10.0)]).usd_per_hour == 40.0
    with pytest.raises(InfercastError, match="the largest that is offered has 4"):
        packed(replica_size(h100, 8), 1, [offer(4, 10.0)])
    assert packed(replica_size(gb200, 8), 3, [offer(4, 10.0)]).usd_per_hour == 60.0  # trays of one rack


def test_a_scenario_knows_the_size_of_its_replica():
    deployment = deploy("llama-3.1-8b", "h100-sxm")
    assert replica_size(deployment.hardware, deployment.devices) == ReplicaSize(1)


def test_a_frame_has_a_row_for_each_kind_of_instance():
    found = packed(ReplicaSize(2), 5, [offer(2, 3.0), offer(8, 10.0)])
    rows = found.to_frame()[["count", "devices", "usd_per_hour"]].to_numpy().tolist()
    assert rows == [[1, 2, 3.0], [1, 8, 10.0]]


def test_without_an_offer_the_remedy_names_the_options():
    with pytest.raises(InfercastError, match=r"no such offer.*--usd-per-hour"):
        packed(ReplicaSize(1), 1, [])


def test_at_one_price_the_fewest_devices_are_rented():
    """Two replicas of one device: two instances of one at $1 each, or one of four at $2."""
    assert packed(ReplicaSize(1), 2, [own_offer("l40s", 2.0, devices=4), own_offer("l40s", 1.0)]).devices == 2
