"""Columns of a row for what is paid and used: instances and their prices, power, energy and CO2."""

from dataclasses import asdict, fields
from datetime import date

from simulator.cost.bill import tokens_per_s
from simulator.cost.capacity import Answer
from simulator.cost.energy import Energy, energy
from simulator.cost.packing import Packing
from simulator.frames import Row
from simulator.hardware.sites import Site


def packing_columns(packing: Packing | None, on: date) -> Row:
    """Return the columns of a row that say what is rented, of whom, when it was priced and from which source."""
    if packing is None:
        return dict.fromkeys(PACKING)
    offers = [offer for offer, _ in packing.instances]
    texts = dict.fromkeys(offer.usd_per_hour.source.text for offer in offers)
    oldest = min(offers, key=lambda offer: (not offer.is_stale(on), offer.date))
    values = (
        packing.describe(),
        packing.devices,
        packing.empty_devices,
        packing.provider,
        oldest.commitment,
        oldest.date,
        any(offer.is_stale(on) for offer in offers),
        "; ".join(texts),
        oldest.usd_per_hour.source.evidence,
    )
    return dict(zip(PACKING, values, strict=True))


PACKING = (
    "instances",
    "paid_devices",
    "empty_devices",
    "price_provider",
    "price_commitment",
    "price_date",
    "price_is_stale",
    "price_source",
    "price_evidence",
)

ENERGY = tuple(each.name for each in fields(Energy))


def energy_columns(found: Answer, site: Site) -> Row:
    """Return the estimates of the power, energy and CO2 of all instances at a site, with what the data centre adds.

    None where the TDP of the device is not known, or no number of replicas keeps the SLO.
    """
    if found.watts is None:
        return dict.fromkeys(ENERGY)
    _, output_per_s = tokens_per_s(found.report, found.rate_per_s)
    return asdict(energy(found.watts, output_per_s, site))


def spot_columns(found: Answer) -> Row:
    """Return what spot instances add: spare replicas, how long an instance is up, which requests start anew."""
    packing, scenario = found.packing, found.scenario
    if packing is None or packing.instances[0][0].commitment != "spot":
        return dict.fromkeys(SPOT)
    restarted = scenario.interruptions.restarted_share(found.report.metrics["e2el"]["mean"])
    values = packing.replicas - found.replicas, scenario.interruptions.up_share(scenario.start_s), restarted
    return dict(zip(SPOT, values, strict=True))


SPOT = ("spare_replicas", "instance_up_share", "restarted_share")
