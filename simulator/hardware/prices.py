"""Offers of devices by the hour: whole instances of providers, dated, and a user's own price."""

import datetime
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from typing import Annotated, Literal, get_args

from pydantic import Field

from simulator.day import today
from simulator.errors import InfercastError, ProfileError, Setting, nearest
from simulator.hardware.hardware import KIND as HARDWARE
from simulator.hardware.hardware import device_path
from simulator.profile import Profile, Strict, UsdPerHour, find
from simulator.profile_folders import names

KIND = "hardware_profiles/prices"
STALE_DAYS, OLD_DAYS = 90, 730
Commitment = Literal["on-demand", "reserved", "spot", "owned"]
ListKind = Literal["cloud", "marketplace", "estimate"]


class PriceRow(Strict):
    """One row of a price list: a whole instance with so many devices, in USD per hour.

    `host`: what else the instance has, where the list says it. `commitment`: reserved is for a year, spot can be taken
    away at any time. "owned": not rented, see `cost.ownership`.
    """

    hardware: str
    devices: Annotated[int, Field(ge=1)]
    instance: str
    commitment: Commitment
    region: str = ""
    host: str = ""
    usd_per_hour: UsdPerHour


class Offer(PriceRow):
    """An instance that can be had at a price: a row of a price list with its provider.

    `usd_per_kwh`: electricity that comes on top, per kWh at the device; 0 where the price holds it, as rents do.
    `is_list_price`: it stands in a cloud's list. Marketplaces show what single hosts ask at one moment, estimates are
    prices at which nobody rents; both count only for those who name them (`Terms.providers`).
    """

    provider: str
    is_list_price: bool = True
    usd_per_kwh: float = 0.0

    @property
    def usd_per_device_hour(self) -> float:
        """Price of the instance over its devices; less than one device of it cannot be rented.

        >>> own_offer("b200-sxm", 44.0, devices=8).usd_per_device_hour
        5.5
        """
        return self.usd_per_hour / self.devices

    def electricity_usd_per_hour(self, watts: float | None) -> float:
        """Return what comes on top an hour where devices take so many watts; nothing where that is not known.

        >>> own_offer("b200-sxm", 44.0).model_copy(update={"usd_per_kwh": 0.1}).electricity_usd_per_hour(5000.0)
        0.5
        """
        return self.usd_per_kwh * (watts or 0.0) / 1000

    @property
    def date(self) -> str:
        """The day, month or year of the price as its source gives it; "undated" where it gives none."""
        return self.usd_per_hour.source.date

    def is_stale(self, on: datetime.date, days: int = STALE_DAYS) -> bool:
        """Tell whether the price may be over so many days old on a day: undated, or its period began before.

        >>> offer = next(each for each in load_offers("h100-sxm") if each.date == "2026-07-20")
        >>> offer.is_stale(datetime.date(2026, 8, 1)), offer.is_stale(datetime.date(2026, 11, 23))
        (False, True)
        """
        since = first_day(self.date)
        given = self.usd_per_hour.source.evidence == "given"
        return not given and (since is None or (on - since).days > days)


class PriceList(Profile):
    """The offers of one provider; `kind`: a cloud's list, a marketplace of hosts, or estimates of nobody's prices."""

    provider: str
    kind: ListKind = "cloud"
    offers: tuple[PriceRow, ...]

    def as_offers(self) -> tuple[Offer, ...]:
        """Return the rows with their provider."""
        is_list_price = self.kind == "cloud"
        return tuple(Offer(provider=self.provider, is_list_price=is_list_price, **dict(row)) for row in self.offers)


@dataclass(frozen=True)
class Terms:
    """Which offers count: a commitment, and globs of providers and regions; without globs, every cloud's list.

    Globs ignore case. One that names a provider counts its offers whatever kind of list they are in. `on`: the day of
    the question, from which the age of prices is counted. Raises InfercastError for a commitment that no price has, and
    for one glob that is not in a tuple.

    >>> Terms(providers=("vast*",)).count(own_offer("l4", 1.0)), str(Terms("spot", regions=("us*",)))
    (False, 'spot in us*')
    """

    commitment: Commitment = "on-demand"
    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    on: datetime.date = field(default_factory=today)

    def __post_init__(self) -> None:
        if self.commitment not in get_args(Commitment):
            remedy = nearest(self.commitment, get_args(Commitment))
            raise InfercastError(Setting("commitment", self.commitment), "no price is of such a kind", remedy)
        for globs in (self.providers, self.regions):
            if isinstance(globs, str):
                raise InfercastError(f"{globs!r}", "providers and regions are several", f"Give ({globs!r},)")

    def count(self, offer: Offer) -> bool:
        """Tell whether an offer counts."""
        named = _matches(offer.provider, self.providers) if self.providers else offer.is_list_price
        return offer.commitment == self.commitment and named and _matches(offer.region, self.regions or ("*",))

    def __str__(self) -> str:
        limits = [f"of {', '.join(self.providers)}"] if self.providers else []
        limits += [f"in {', '.join(self.regions)}"] if self.regions else []
        return " ".join([self.commitment, *limits])


def load_offers(hardware: str) -> tuple[Offer, ...]:
    """Return every offer of a device, named by id, alias or path, cheapest per device first, of all commitments.

    A list in the user's own folder replaces the shipped list of the same file name. Raises ProfileError for a device
    that the library does not know.
    """
    device = _device_id(hardware)
    found = (offer for offer in _all_offers(os.environ.get("INFERCAST_PROFILES")) if offer.hardware == device)
    return tuple(sorted(found, key=lambda offer: (offer.usd_per_device_hour, offer.provider)))


def offers(hardware: str, terms: Terms | None = None) -> tuple[Offer, ...]:
    """Return the offers of a device that count, cheapest per device first; empty where there is none.

    Not used are offers that are older than the newest of the same instance, whatever its commitment and region; and
    those over `OLD_DAYS` days old, or undated, where a younger one has just as many devices.

    Raises ProfileError for a device that the library does not know.

    >>> [offer.instance for offer in offers("gaudi2")], offers("m4-pro", Terms("spot"))
    (['denvr_Gaudi2x8'], ())
    """
    terms = terms or Terms()
    found = [offer for offer in newest(load_offers(hardware)) if terms.count(offer)]
    young = {each.devices for each in found if not each.is_stale(terms.on, OLD_DAYS)}
    return tuple(each for each in found if each.devices not in young or not each.is_stale(terms.on, OLD_DAYS))


def refuse_unknown(terms: Terms) -> None:
    """Raise InfercastError for a provider or a region of which no price list has an offer.

    >>> refuse_unknown(Terms(providers=("a*",), regions=("us-*",)))
    """
    every = _all_offers(os.environ.get("INFERCAST_PROFILES"))
    names_of = {"provider": {each.provider for each in every}, "region": {each.region for each in every} - {""}}
    for what, globs in (("provider", terms.providers), ("region", terms.regions)):
        for glob in globs:
            if any(_matches(name, (glob,)) for name in names_of[what]):
                continue
            wider = sorted(name for name in names_of[what] if _matches(name, (f"{glob}*",)))
            names = sorted(names_of[what])
            known = f"Known: {', '.join(names)}" if what == "provider" else nearest(glob, names)
            remedy = f"Give '{glob}*', for {', '.join(wider)}" if wider else known
            raise InfercastError(f"--{what} {glob}", f"no price list has such a {what}", remedy)


def cheapest(hardware: str, terms: Terms | None = None) -> Offer:
    """Return the offer that counts with the lowest price per device. Raises ProfileError where there is none.

    >>> cheapest("gaudi2").devices
    8
    """
    terms = terms or Terms()
    if not (found := offers(hardware, terms)):
        remedy = f"Give --usd-per-hour, or add a row to {KIND}/*.yaml"
        raise ProfileError(f"a price of {hardware!r}", f"no offer that is {terms} has it", remedy)
    return found[0]


def newest(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """Return the offers without those that are older than the newest of the same provider's instance."""
    latest: dict[tuple[str, str, int, str], datetime.date] = {}
    every = [((each.provider, each.hardware, each.devices, each.instance), each) for each in offers]
    for instance, offer in every:
        latest[instance] = max(latest.get(instance, datetime.date.min), first_day(offer.date) or datetime.date.min)
    return tuple(offer for instance, offer in every if (first_day(offer.date) or datetime.date.min) == latest[instance])


def first_day(when: str) -> datetime.date | None:
    """Return the first day of a date, month or year; None for "undated".

    >>> first_day("2026-07"), first_day("undated")
    (datetime.date(2026, 7, 1), None)
    """
    parts = [int(part) for part in when.split("-") if part.isdigit()]
    return datetime.date(parts[0], *[*parts[1:], 1, 1][:2]) if parts else None


def own_offer(hardware: str, usd_per_hour: float, devices: int = 1, commitment: Commitment = "on-demand") -> Offer:
    """Return the price that a user gives, for one instance with so many devices, labelled as given.

    Raises ProfileError for a price that is negative or no number, and for fewer than one device.

    >>> own_offer("h100-sxm", 16.0, devices=8).usd_per_device_hour
    2.0
    """
    row = {
        "hardware": _device_id(hardware),
        "devices": devices,
        "instance": "own price",
        "commitment": commitment,
        "usd_per_hour": {"value": f"{usd_per_hour} USD/h", "source": "given"},
    }
    given = {"text": "given by the user", "date": "", "evidence": "given"}
    raw = {"provider": "own price", "sources": {"given": given}, "offers": (row,)}
    return PriceList.from_mapping(raw, "--usd-per-hour").as_offers()[0]


def _matches(text: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(text.lower(), glob.lower()) for glob in globs)


@cache
def _all_offers(_own: str | None) -> tuple[Offer, ...]:
    lists = (PriceList.from_yaml(find(KIND, name)) for name in names(KIND))
    found = tuple(offer for each in lists for offer in each.as_offers())
    known = set(names(HARDWARE))
    for offer in found:
        if offer.hardware not in known:
            given = f"an offer of {offer.provider} for {offer.hardware!r}"
            raise ProfileError(given, "no device has that id", nearest(offer.hardware, known))
    return found


def _device_id(hardware: str) -> str:
    return device_path(hardware).stem
