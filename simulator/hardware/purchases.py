"""What devices cost to buy: cards, modules and whole machines, dated."""

import os
from functools import cache
from typing import Annotated, Literal

from pydantic import Field

from simulator.hardware.hardware import device_path
from simulator.hardware.prices import first_day
from simulator.profile import Profile, Strict, Usd, find
from simulator.profile_folders import names

KIND = "hardware_profiles/purchases"


class Purchase(Strict):
    """Something that can be bought, with so many devices in it, in USD.

    `is_machine`: it holds all that runs the devices; a card or a module does not.
    """

    hardware: str
    devices: Annotated[int, Field(ge=1)] = 1
    item: str
    condition: Literal["new", "used"] = "new"
    is_machine: bool = False
    usd: Usd

    @property
    def date(self) -> str:
        """The day, month or year of the price as its source gives it."""
        return self.usd.source.date


class PurchaseList(Profile):
    """What devices of one vendor cost to buy."""

    vendor: str
    purchases: tuple[Purchase, ...]


def purchases(hardware: str) -> tuple[Purchase, ...]:
    """Return the newest price of each thing to buy with a device, named by id, alias or path; new before used.

    A thing is known by its number of devices, its condition, and whether it is a whole machine; of two prices of one
    day the lower counts. Raises ProfileError for a device that the library does not know.

    >>> [(each.devices, each.condition, each.usd) for each in purchases("h100-pcie")]
    [(1, 'new', 27500.0)]
    """
    device = device_path(hardware).stem
    newest: dict[tuple[bool, int, bool], Purchase] = {}
    for each in _all(os.environ.get("INFERCAST_PROFILES")):
        if each.hardware != device:
            continue
        key = each.condition == "used", each.devices, each.is_machine
        newest[key] = max(newest.get(key, each), each, key=_recency)
    return tuple(newest[key] for key in sorted(newest))


def _recency(purchase: Purchase) -> tuple[str, float]:
    day = first_day(purchase.date)
    return day.isoformat() if day else "", -purchase.usd


@cache
def _all(_own: str | None) -> tuple[Purchase, ...]:
    lists = (PurchaseList.from_yaml(find(KIND, name)) for name in names(KIND))
    return tuple(purchase for each in lists for purchase in each.purchases)
