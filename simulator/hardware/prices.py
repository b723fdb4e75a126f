"""Prices of devices by the hour: dated offers of providers, and a user's own price."""

import os
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from simulator.errors import ProfileError, nearest
from simulator.hardware.hardware import KIND as HARDWARE
from simulator.profile import Profile, Strict, UsdPerHour, find, names

KIND = "hardware_profiles/prices"
OfferKind = Literal["on-demand", "spot", "reserved", "estimate"]


class PriceRow(Strict):
    """One row of a price list: an instance with so many devices, in USD per hour."""

    hardware: str
    devices: Annotated[int, Field(ge=1)]
    instance: str
    kind: OfferKind
    region: str = ""
    usd_per_hour: UsdPerHour


class Offer(PriceRow):
    """A row of a price list with its provider; kind `estimate` is the cost of owning a device, not a rental."""

    provider: str

    @property
    def usd_per_device_hour(self) -> float:
        """Price of the instance over its devices.

        >>> cheapest("b200-sxm").devices, cheapest("b200-sxm").usd_per_device_hour
        (8, 5.5)
        """
        return self.usd_per_hour / self.devices

    @property
    def date(self) -> str:
        """The day, month or year of the price as its source gives it; "undated" where it gives none."""
        return self.usd_per_hour.source.date


class PriceList(Profile):
    """The offers of one provider."""

    provider: str
    offers: tuple[PriceRow, ...]


def load_offers(hardware: str) -> tuple[Offer, ...]:
    """Return every offer of a device, named by id, alias or path, cheapest per device first, of all kinds.

    A list in the user's own folder replaces the shipped list of the same file name. Raises ProfileError for a device
    that the library does not know.
    """
    device = _device_id(hardware)
    found = (offer for offer in _all_offers(os.environ.get("INFERCAST_PROFILES")) if offer.hardware == device)
    return tuple(sorted(found, key=lambda offer: (offer.usd_per_device_hour, offer.provider)))


def cheapest(hardware: str, kind: OfferKind = "on-demand") -> Offer:
    """Return the offer of a kind with the lowest price per device; ties go by the provider's name.

    Raises ProfileError, which names the kinds that there are, where no offer of the device has that kind.

    >>> cheapest("rtx-4090").provider
    'RunPod'
    """
    offers = load_offers(hardware)
    match = next((offer for offer in offers if offer.kind == kind), None)
    if match is None:
        kinds = ", ".join(sorted({offer.kind for offer in offers}))
        because = f"the price lists have only: {kinds}" if kinds else "no price list has it"
        remedy = f"Give --usd-per-hour, or add a row to {KIND}/*.yaml"
        raise ProfileError(f"{kind} price of {hardware!r}", because, remedy)
    return match


def own_offer(hardware: str, usd_per_hour: float, devices: int = 1) -> Offer:
    """Return the price that a user gives, for one instance with so many devices, labelled as given.

    Raises ProfileError for a price that is negative or no number, and for fewer than one device.

    >>> own_offer("h100-sxm", 16.0, devices=8).usd_per_device_hour
    2.0
    """
    row = {
        "hardware": _device_id(hardware),
        "devices": devices,
        "instance": "own price",
        "kind": "on-demand",
        "usd_per_hour": {"value": f"{usd_per_hour} USD/h", "source": "given"},
    }
    given = {"text": "given by the user", "date": "", "evidence": "given"}
    raw = {"provider": "own price", "sources": {"given": given}, "offers": (row,)}
    return _offers(PriceList.from_mapping(raw, "--usd-per-hour"))[0]


@cache
def _all_offers(_own: str | None) -> tuple[Offer, ...]:
    lists = (PriceList.from_yaml(find(KIND, name)) for name in names(KIND))
    offers = tuple(offer for each in lists for offer in _offers(each))
    known = set(names(HARDWARE))
    for offer in offers:
        if offer.hardware not in known:
            given = f"an offer of {offer.provider} for {offer.hardware!r}"
            raise ProfileError(given, "no device has that id", nearest(offer.hardware, known))
    return offers


def _offers(prices: PriceList) -> tuple[Offer, ...]:
    return tuple(Offer(provider=prices.provider, **dict(row)) for row in prices.offers)


def _device_id(hardware: str) -> str:
    return Path(find(HARDWARE, hardware)).stem
