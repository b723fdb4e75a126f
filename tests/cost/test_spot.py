"""Spot: enough instances up against a simulation of interruptions, spare ones by hand, what is refused."""

import math

import numpy as np
import pytest

from simulator.cost.packing import ReplicaSize, packed
from simulator.cost.spot import Interruptions, spot_packed, up
from simulator.errors import InfercastError
from simulator.hardware.prices import own_offer

ONE, FOUR = own_offer("l40s", 1.0), own_offer("l40s", 3.0, devices=4)


def simulated_share(packing, replicas: int, spot: Interruptions, start_s: float, hours: int = 400_000) -> float:
    """Let each instance come and go on its own, and return the share of hours with enough replicas."""
    random = np.random.default_rng(1)
    up_s, away_s = 3600 / spot.per_hour, spot.replaced_after_s + start_s
    there = np.zeros(hours, int)
    left = packing.replicas * packing.size.parts
    for offer, count in packing.instances:
        for _ in range(count):
            held = min(packing.size.held(offer), left)
            left -= held
            lives_s = random.exponential(up_s, size=round(hours * 3600 / up_s * 2) + 10)
            starts_s = np.concatenate([[0.0], np.cumsum(lives_s + away_s)[:-1]])
            times_s = 3600.0 * np.arange(hours)
            place = np.searchsorted(starts_s, times_s, "right") - 1
            there += held * (times_s < starts_s[place] + lives_s[place])
    return float((there >= replicas * packing.size.parts).mean())


@pytest.mark.parametrize(("offers", "replicas", "kept"), [([ONE], 5, 4), ([FOUR], 8, 5), ([ONE, FOUR], 6, 5)])
def test_as_many_are_up_as_a_simulation_says(offers, replicas, kept):
    spot = Interruptions(0.9, 12 * 3600.0)
    packing = packed(ReplicaSize(1), replicas, offers)
    expected = up(packing, kept, spot.up_share(600.0))
    assert expected < 0.999
    assert simulated_share(packing, kept, spot, 600.0) == pytest.approx(expected, abs=0.004)


def test_spare_replicas_by_hand():
    """An instance is up 99 % of the time: 4 of 4 are for 96.1 %, 4 of 5 for 99.9 %, 4 of 6 for 99.998 %."""
    spot = Interruptions(1 - math.exp(-720 / 100), 3600 * 100 / 99, availability=0.999)
    assert spot.up_share(0.0) == pytest.approx(0.99)
    assert [
        spot_packed(ReplicaSize(1), 4, [ONE], Interruptions(*_at(spot, share)), 0.0).replicas for share in SHARES
    ] == [
        4,
        5,
        6,
    ]


SHARES = (0.96, 0.999, 0.9999)


def _at(spot: Interruptions, availability: float) -> tuple[float, float, float]:
    return spot.interrupted_per_month, spot.replaced_after_s, availability


def test_a_large_instance_is_lost_whole():
    """One of eight needs a second one, where eight of one need one or two."""
    spot, eight = Interruptions(0.2, 4 * 3600.0), own_offer("l40s", 8.0, devices=8)
    assert spot_packed(ReplicaSize(1), 8, [eight], spot, 0.0).devices == 16
    assert spot_packed(ReplicaSize(1), 8, [ONE], spot, 0.0).devices < 11


def test_without_interruptions_none_is_spare():
    assert spot_packed(ReplicaSize(1), 3, [ONE], Interruptions(0.0), 60.0) == packed(ReplicaSize(1), 3, [ONE])


@pytest.mark.parametrize(
    ("shares", "usual"), [((1.0, 60.0), "0.15"), ((-0.1, 60.0), "0.15"), ((0.1, 60.0, 1.0), "0.999")]
)
def test_a_share_is_below_one(shares, usual):
    with pytest.raises(InfercastError, match=f"it is a share below 1. Give, say, {usual}"):
        Interruptions(*shares)


def test_what_no_number_of_spares_reaches_is_refused():
    with pytest.raises(InfercastError, match="64 spare replicas do not reach it"):
        spot_packed(ReplicaSize(1), 100, [own_offer("l40s", 8.0, 8)], Interruptions(0.99, 1e6, 0.999), 0.0)
