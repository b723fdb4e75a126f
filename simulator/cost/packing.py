"""Replicas packed into whole instances: what is rented, what stays empty, what the hour costs."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from simulator.errors import InfercastError
from simulator.frames import Framed, frame
from simulator.hardware.hardware import Hardware
from simulator.hardware.prices import Offer

if TYPE_CHECKING:
    import pandas as pd

LARGEST_SERVER = 16  # devices with a link of their own: trn1.32xlarge, a2-megagpu-16g; longer links leave the server


class ReplicaSize(NamedTuple):
    """Devices of a replica, and into how many equal parts it may be taken apart, each of which lies on one instance."""

    devices: int
    parts: int = 1

    @property
    def part_devices(self) -> int:
        """Devices of a part."""
        return math.ceil(self.devices / self.parts)

    def held(self, offer: Offer) -> int:
        """Return how many parts an instance holds.

        >>> from simulator.hardware.prices import own_offer
        >>> eight = own_offer("h100-sxm", 16.0, devices=8)
        >>> ReplicaSize(3).held(eight), ReplicaSize(16).held(eight), ReplicaSize(16, parts=2).held(eight)
        (2, 0, 1)
        """
        return offer.devices // self.part_devices


def replica_size(hardware: Hardware, devices: int) -> ReplicaSize:
    """Return the size of a replica of so many devices: in one part, so that it does not span instances.

    Where its layout needs several nodes it has as many parts. Where a link goes beyond one server (racks of GB200,
    slices of TPUs) instances are linked like devices of one, and each device is a part.

    >>> from simulator.hardware.hardware import load_hardware
    >>> h100, gb200 = load_hardware("h100-sxm"), load_hardware("gb200")
    >>> replica_size(h100, 8).parts, replica_size(h100, 16).parts, replica_size(gb200, 16).parts
    (1, 2, 16)
    """
    if hardware.link and hardware.link.devices > LARGEST_SERVER:
        return ReplicaSize(devices, devices)
    return ReplicaSize(devices, math.ceil(devices / hardware.node_devices))


@dataclass(frozen=True, repr=False)
class Packing(Framed):
    """Whole instances that hold some replicas, all of one provider, commitment and region.

    `instances`: each offer with how many of it.
    """

    instances: tuple[tuple[Offer, int], ...]
    replicas: int
    size: ReplicaSize

    def to_frame(self) -> "pd.DataFrame":
        """Return a row for each kind of instance: how many, of whom, at what price each (USD/h), since when."""
        return frame(
            {
                "count": count,
                **{name: getattr(offer, name) for name in ("instance", "provider", "region", "commitment", "devices")},
                "usd_per_hour": float(offer.usd_per_hour),
                "date": offer.date,
            }
            for offer, count in self.instances
        )

    @property
    def usd_per_hour(self) -> float:
        """US dollars an hour that are paid for all instances, used or not; electricity that is extra left out."""
        return sum(offer.usd_per_hour * count for offer, count in self.instances)

    def usd_per_hour_at(self, watts: float | None) -> float:
        """Return `usd_per_hour` and the electricity that is extra, of devices that take so many watts in all."""
        return self.usd_per_hour + self.instances[0][0].electricity_usd_per_hour(watts)

    @property
    def devices(self) -> int:
        """Devices of all instances."""
        return sum(offer.devices * count for offer, count in self.instances)

    @property
    def empty_devices(self) -> int:
        """Devices that are paid for and hold no replica."""
        return self.devices - self.replicas * self.size.devices

    @property
    def provider(self) -> str:
        """Provider of all instances."""
        return self.instances[0][0].provider

    def describe(self) -> str:
        """Say which instances, at what price together, of whom, and what stays empty.

        >>> from simulator.hardware.prices import own_offer
        >>> packed(ReplicaSize(2), 3, [own_offer("h100-sxm", 16.0, devices=8)]).describe()
        '1 x own price (8 x h100-sxm), $16.00/h (own price); 2 of 8 devices stay empty'
        """
        parts = (f"{count} x {offer.instance} ({offer.devices} x {offer.hardware})" for offer, count in self.instances)
        stay = "stays" if self.empty_devices == 1 else "stay"
        empty = f"; {self.empty_devices} of {self.devices} devices {stay} empty" if self.empty_devices else ""
        return f"{' + '.join(parts)}, ${self.usd_per_hour:,.2f}/h ({self.provider}){empty}"


def packed(size: ReplicaSize, replicas: int, offers: Iterable[Offer]) -> Packing:
    """Return the cheapest whole instances that hold some replicas; all of one provider, commitment and region.

    Least sum of n_i p_i with sum of n_i c_i >= replicas x parts, over how many n_i >= 0 of each instance with price
    p_i, which holds c_i parts: a covering knapsack, solved by dynamic programming over parts. At equal price the fewest
    devices win, then the first offer.

    Raises InfercastError where no offer has the devices that a part needs on one instance.

    >>> from simulator.hardware.prices import own_offer
    >>> offers = [own_offer("l40s", 1.0), own_offer("l40s", 6.0, devices=8)]
    >>> [packed(ReplicaSize(1), replicas, offers).usd_per_hour for replicas in (5, 7, 9)]
    [5.0, 6.0, 7.0]
    >>> packed(ReplicaSize(4), 1, offers).empty_devices
    4
    """
    fitting = sorted(_fitting(size, offers), key=_fleet)
    found = (_cover(list(fleet), size, replicas) for _, fleet in groupby(fitting, key=_fleet))
    return min(found, key=lambda packing: (packing.usd_per_hour, packing.devices))


def full_usd_per_hour(size: ReplicaSize, offers: Iterable[Offer]) -> float:
    """Return what a replica costs an hour where every instance is full: least p_i / c_i x parts, as in `packed`.

    Raises InfercastError as `packed` does.

    >>> from simulator.hardware.prices import own_offer
    >>> full_usd_per_hour(ReplicaSize(3), [own_offer("l40s", 6.0, devices=8)])
    3.0
    """
    return min(offer.usd_per_hour / size.held(offer) for offer in _fitting(size, offers)) * size.parts


def _fitting(size: ReplicaSize, offers: Iterable[Offer]) -> list[Offer]:
    every = tuple(offers)
    if not (fitting := [offer for offer in every if size.held(offer)]):
        largest = max((each.devices for each in every), default=0)
        because = f"the largest that is offered has {largest}" if every else "the price lists have no such offer"
        remedy = "Give --usd-per-hour, another --price or --provider, or a layout of fewer devices"
        raise InfercastError(f"an instance with {size.part_devices} devices", because, remedy)
    return fitting


def _fleet(offer: Offer) -> tuple[str, str, str]:
    return offer.provider, offer.commitment, offer.region


def _cover(fleet: Sequence[Offer], size: ReplicaSize, replicas: int) -> Packing:
    """Return the cheapest instances of one provider that hold the replicas: best[n] covers n parts.

    All but a few are of the instance that is cheapest by the part, which holds c: of c others, some hold together a
    multiple of c parts, and as many of the cheapest hold them for no more.
    """
    best: list[tuple[float, int, int]] = [(0.0, 0, -1)]
    held = [size.held(offer) for offer in fleet]
    by_part = [(each.usd_per_hour / parts, each.devices / parts) for each, parts in zip(fleet, held, strict=True)]
    full = by_part.index(min(by_part))
    alike = max(0, replicas * size.parts // held[full] - max(held))
    left = replicas * size.parts - alike * held[full]
    for needed in range(1, left + 1):
        before = (best[max(0, needed - parts)] for parts in held)
        choices = enumerate(zip(fleet, before, strict=True))
        best.append(min((usd + each.usd_per_hour, n + each.devices, place) for place, (each, (usd, n, _)) in choices))
    counts = Counter({full: alike})
    while left > 0:
        chosen = best[left][2]
        counts[chosen] += 1
        left -= held[chosen]
    return Packing(tuple((fleet[place], count) for place, count in sorted(counts.items()) if count), replicas, size)
