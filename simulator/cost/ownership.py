"""Owned hardware as offers: purchase over a lifetime, space, staff; electricity comes on top, by what is used."""

from dataclasses import dataclass

from simulator.cost.bill import HOURS_PER_MONTH
from simulator.cost.energy import host_watts
from simulator.errors import InfercastError, Setting
from simulator.hardware.hardware import Hardware
from simulator.hardware.prices import Offer
from simulator.hardware.purchases import Purchase, purchases
from simulator.hardware.sites import Site
from simulator.profile import Figure, Source

LEAST_YEARS = 0.01  # of a lifetime: four days
LIFETIME_YEARS = Figure(
    5.0,
    Source(
        text="https://research-viewer.pages.dev/orbital-ai-datacenters-3/pages/gpu-useful-life/: central estimate of "
        "analysts, 4 to 6; Nebius 4, Amazon and Lambda 5, CoreWeave 6",
        date="2026",
        evidence="derived",
    ),
)
DEVICES_SHARE = Figure(
    0.65,
    Source(
        text="https://amcompute.com/blog/hgx-dgx-mgx: GPUs are 60 to 70 % of the price of a server of 8 x H100; for "
        "other machines a guess",
        date="2026-03",
        evidence="guess",
    ),
)
MACHINE_SIZES = (1, 2, 4, 8)  # devices of a machine that is built from cards


@dataclass(frozen=True)
class Owner:
    """Who buys machines: where they stand, over how many years they are written off, and what runs them.

    `staff_usd_per_month`: wages for one machine. `usd`: price of a whole machine with `devices` devices, instead of the
    lists'.
    """

    site: Site
    lifetime_years: float = float(LIFETIME_YEARS)
    staff_usd_per_month: float = 0.0
    usd: float | None = None
    devices: int = 1

    def __post_init__(self) -> None:
        if self.lifetime_years < LEAST_YEARS:
            given = Setting("lifetime_years", self.lifetime_years)
            raise InfercastError(given, "a machine is written off over some time", "Give, say, 5")


def owned_offers(hardware: Hardware, owner: Owner) -> tuple[Offer, ...]:
    """Return an offer for each machine that can be bought with a device; new ones, or used where none is new.

    USD/h = price / (years x 8,760 h) + (colocation x kW set aside + staff) / 730 h; electricity is `usd_per_kwh` x PUE
    for each kWh that the machine takes (`energy.power_w`). A price of a card or a module is over `DEVICES_SHARE` for
    the machine around it. Set aside are the TDPs and the hosts' power.

    Raises InfercastError where the site has no price of electricity, or the device no TDP.
    """
    site = owner.site
    if site.usd_per_kwh is None:
        because = "the site has no price of electricity in dollars"
        raise InfercastError(f"site {site.id}", because, "Give --usd-per-kwh")
    if not hardware.tdp_w:
        because = "its power is not known, so neither is what its electricity costs"
        raise InfercastError(f"an own {hardware.id}", because, "Add tdp_w to its profile, or give --usd-per-hour")
    return tuple(
        _offer(machine, hardware, owner, site.usd_per_kwh * site.pue) for machine in _machines(hardware, owner)
    )


def _machines(hardware: Hardware, owner: Owner) -> tuple[Purchase, ...]:
    """Return whole machines: those of the lists or, where there are none, machines around cards."""
    if owner.usd is not None:
        given = Figure(owner.usd, Source(text="given by the user", date="", evidence="given"))
        return (Purchase(hardware=hardware.id, devices=owner.devices, item="machine", is_machine=True, usd=given),)
    every = purchases(hardware.id)
    for condition in ("new", "used"):
        found = [each for each in every if each.condition == condition]
        if machines := tuple(each for each in found if each.is_machine):
            return machines
        if found:
            sizes = (size for size in MACHINE_SIZES if size <= max(found[0].devices, hardware.node_devices))
            return tuple(_built(found[0], size) for size in sizes)
    return ()


def _built(card: Purchase, devices: int) -> Purchase:
    source = card.usd.source
    text = f"{source.text}; over {DEVICES_SHARE:g} for the machine ({DEVICES_SHARE.source.text})"
    usd = Figure(card.usd * devices / DEVICES_SHARE, source.model_copy(update={"text": text, "evidence": "derived"}))
    item = f"machine around {devices} card{'' if devices == 1 else 's'}"
    return card.model_copy(update={"devices": devices, "item": item, "usd": usd})


def _offer(machine: Purchase, hardware: Hardware, owner: Owner, usd_per_kwh: float) -> Offer:
    kilowatts = machine.devices * (float(hardware.tdp_w or 0.0) + host_watts(hardware)) / 1000
    colocation = float(owner.site.colocation_usd_per_kw_month or 0.0) * kilowatts
    written_off = machine.usd / (owner.lifetime_years * 12)
    usd_per_hour = (written_off + colocation + owner.staff_usd_per_month) / HOURS_PER_MONTH
    bought = f"{machine.condition}, ${machine.usd:,.0f} over {owner.lifetime_years:g} years"
    space = f", ${colocation:,.0f} a month for {kilowatts:.2g} kW of space" if colocation else ""
    text = f"{bought}{space}; {machine.usd.source.text}"
    source = machine.usd.source.model_copy(update={"text": text})
    return Offer(
        provider="owned",
        hardware=machine.hardware,
        devices=machine.devices,
        instance=f"{machine.item} ({bought})",
        commitment="owned",
        region=owner.site.id,
        usd_per_hour=Figure(usd_per_hour, source),
        usd_per_kwh=usd_per_kwh,
    )
