"""Spot instances: how many are needed so that enough are there while some are being replaced."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from simulator.cost.packing import Packing, ReplicaSize, packed
from simulator.errors import InfercastError, Setting
from simulator.hardware.prices import Offer
from simulator.profile import Figure, Source

COUNTED_H = 720.0  # 30 days: hours over which AWS counts interruptions
MOST_SPARE = 64  # replicas
INTERRUPTED_PER_MONTH = Figure(
    0.175,
    Source(
        text="share of instances that AWS took back within 30 days, middle of 15 to 20 % for H100; 5 to 10 % for A100 "
        "and L4 (https://www.thundercompute.com/blog/cloud-gpu-spot-instance-availability, of its Spot Instance "
        "Advisor); other clouds publish none",
        date="2026-02-24",
        evidence="derived",
    ),
)
REPLACED_AFTER_S = Figure(
    1800.0, Source(text="until another spot instance is there; hours where GPUs are scarce", date="", evidence="guess")
)


@dataclass(frozen=True)
class Interruptions:
    """How often spot instances are taken back, and how long it takes until another serves.

    `interrupted_per_month`: share of instances, 0 to 1, that are taken back within 30 days. `replaced_after_s`: until
    another one is there; the start of its replicas comes on top. `availability`: share of the time, 0 to 1, in which
    the needed replicas shall be up.
    """

    interrupted_per_month: float = float(INTERRUPTED_PER_MONTH)
    replaced_after_s: float = float(REPLACED_AFTER_S)
    availability: float = 0.999

    def __post_init__(self) -> None:
        for name, usual in (("interrupted_per_month", 0.15), ("availability", 0.999)):
            if not 0 <= (value := getattr(self, name)) < 1:
                raise InfercastError(Setting(name, value), "it is a share below 1", f"Give, say, {usual:g}")

    @property
    def per_hour(self) -> float:
        """Interruptions of an instance per hour: -ln(1 - share) / 720 h, as if they came at random.

        >>> round(Interruptions(0.2).per_hour, 6)
        0.00031
        """
        return -math.log1p(-self.interrupted_per_month) / COUNTED_H

    def up_share(self, start_s: float) -> float:
        """Return the share of the time in which an instance serves, whose replicas start in `start_s` seconds.

        1 / (1 + rate x outage): an alternating renewal process, up for 1 / rate on average, then away for
        `replaced_after_s` + `start_s`. Source: Ross, Introduction to Probability Models, section 7.5.

        >>> round(1 - Interruptions(0.2, 3600.0).up_share(0.0), 5)
        0.00031
        """
        return 1 / (1 + self.per_hour * (self.replaced_after_s + start_s) / 3600)

    def restarted_share(self, e2el_s: float) -> float:
        """Return the share of requests that start anew because their instance is taken back: rate x mean E2EL.

        >>> round(Interruptions(0.2).restarted_share(10.0) * 1e6, 2)
        0.86
        """
        return -math.expm1(-self.per_hour * e2el_s / 3600)


def is_spot(offers: Iterable[Offer]) -> bool:
    """Tell whether offers are of spot instances."""
    return any(offer.commitment == "spot" for offer in offers)


def rented(size: ReplicaSize, replicas: int, offers: Iterable[Offer], spot: Interruptions, start_s: float) -> Packing:
    """Return the cheapest instances that hold so many replicas; of spot offers as many as keep them up.

    `start_s`: until a replica has started. Raises InfercastError as `packed` and `spot_packed` do.
    """
    every = tuple(offers)
    return spot_packed(size, replicas, every, spot, start_s) if is_spot(every) else packed(size, replicas, every)


def spot_packed(
    size: ReplicaSize, replicas: int, offers: Iterable[Offer], spot: Interruptions, start_s: float
) -> Packing:
    """Return the cheapest spot instances of which enough are up: with spare replicas, as many as it takes.

    The first of `packed` for n, n + 1, ... replicas in which at least n are up for `spot.availability` of the time.
    Raises InfercastError as `packed` does, and where `MOST_SPARE` replicas are not enough.
    """
    every, up_share = tuple(offers), spot.up_share(start_s)
    for spare in range(MOST_SPARE + 1):
        found = packed(size, replicas + spare, every)
        if up(found, replicas, up_share) >= spot.availability:
            return found
    given = Setting("availability", spot.availability), f"on spot instances that are up {up_share:.3%} of the time"
    because = f"{MOST_SPARE} spare replicas do not reach it"
    raise InfercastError(given, because, "Give a lower --availability, or --price on-demand")


def up(packing: Packing, replicas: int, up_share: float) -> float:
    """Return the chance that at least so many replicas are up, when each instance is up on its own with `up_share`.

    A replica over several instances is up where all of its parts may be. Replicas fill one instance after the other.

    >>> from simulator.hardware.prices import own_offer
    >>> two = packed(ReplicaSize(1), 2, [own_offer("l40s", 1.0)])
    >>> round(up(two, 1, 0.9), 4), round(up(two, 2, 0.9), 4)
    (0.99, 0.81)
    """
    parts = packing.size.parts
    chances, left = np.ones(1), packing.replicas * parts  # chances[n]: of n parts up
    for offer, count in packing.instances:
        for _ in range(count):
            held = min(packing.size.held(offer), left)
            left -= held
            after = np.zeros(len(chances) + held)
            after[: len(chances)] += chances * (1 - up_share)
            after[held:] += chances * up_share
            chances = after
    return math.fsum(chances[replicas * parts :])
