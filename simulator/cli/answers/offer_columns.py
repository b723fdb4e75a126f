"""Columns of an answer for what is paid and used: instances and their prices, power, energy and CO2."""

from dataclasses import asdict, fields
from datetime import date

from simulator.cli.numbers import number
from simulator.cli.output import Column, Row, View
from simulator.cost.bill import tokens_per_s
from simulator.cost.capacity import Answer
from simulator.cost.energy import COMPUTE_SHARE, HOST_W, IDLE_SHARE, MEMORY_SHARE, Energy, energy
from simulator.cost.packing import Packing
from simulator.hardware.sites import Site
from simulator.reports.provenance import Provenance


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


def price_notes(rows: list[Row]) -> list[str]:
    """Say what is paid for each row, of when its price is, and whether that is long ago."""
    told: dict[str, None] = {}
    for row in rows:
        stale = ", over 90 days old" if row["price_is_stale"] and row["price_date"] != "undated" else ""
        what = f"{row['instances']}, {row['price_date'] or 'your price'}{stale}" if row["instances"] else "no price"
        told[f"{row['hardware']}: {what}."] = None
    return list(told)


def energy_columns(found: Answer, site: Site) -> Row:
    """Return the estimates of the power, energy and CO2 of all instances at a site, with what the data centre adds.

    None where the TDP of the device is not known, or no number of replicas keeps the SLO.
    """
    if found.watts is None:
        return dict.fromkeys(ENERGY)
    _, output_per_s = tokens_per_s(found.report, found.rate_per_s)
    return asdict(energy(found.watts, output_per_s, site))


def energy_view(varying: list[Column], rows: list[Row], site: Site) -> View:
    """Return the table of energy and CO2, titled as an estimate, with the site whose electricity it is."""
    columns = [
        *varying,
        Column("watts", "W", number(3)),
        Column("kwh_per_million_output_tokens", "kWh/M out", number(3)),
        Column("grams_per_million_output_tokens", "g CO2e/M out", number(3)),
        Column("output_tokens_per_joule", "tokens/J", number(3)),
    ]
    at = f"{site.id}, PUE {site.pue:g}, {site.grid_g_per_kwh:g} g CO2e/kWh"
    return View(f"Energy of all instances, an estimate ({at})", columns, rows)


def energy_guesses() -> list[Provenance]:
    """Return the shares of the TDP that the estimates of energy rest on."""
    found = {"idle": IDLE_SHARE, "memory-bound": MEMORY_SHARE, "compute-bound": COMPUTE_SHARE, "host_w": HOST_W}
    return [Provenance("power", name, float(figure), figure.source) for name, figure in found.items()]


def spot_columns(found: Answer) -> Row:
    """Return what spot instances add: spare replicas, how long an instance is up, which requests start anew."""
    packing, scenario = found.packing, found.scenario
    if packing is None or packing.instances[0][0].commitment != "spot":
        return dict.fromkeys(SPOT)
    restarted = scenario.interruptions.restarted_share(found.report.metrics["e2el"]["mean"])
    values = packing.replicas - found.replicas, scenario.interruptions.up_share(scenario.start_s), restarted
    return dict(zip(SPOT, values, strict=True))


SPOT = ("spare_replicas", "instance_up_share", "restarted_share")


def spot_notes(rows: list[Row]) -> list[str]:
    """Say for each row on spot how many replicas are spare and how many requests start anew."""
    return [
        f"{row['hardware']} on spot: an instance is up {row['instance_up_share']:.2%} of the time; "
        f"{row['spare_replicas']} spare replicas; {row['restarted_share'] * 1e6:.3g} of a million requests start anew."
        for row in rows
        if row["spare_replicas"] is not None
    ]
