"""Options for what devices cost: which offers count, or a price of one's own. `cost` and `compare` take them alike."""

from dataclasses import dataclass
from datetime import date
from typing import Annotated

import typer

from simulator.cli.output import Row
from simulator.cost.packing import Packing
from simulator.deployment.deployment import Deployment
from simulator.errors import InfercastError
from simulator.hardware.prices import Commitment, Offer, Terms, offers, own_offer, today

Option = typer.Option


@dataclass(frozen=True)
class OfferOptions:
    """Options for the offers that count."""

    price: Annotated[
        Commitment, Option("--price", help="Commitment: on-demand, reserved (a year), spot, or owned hardware.")
    ] = "on-demand"
    provider: Annotated[
        str,
        Option("--provider", metavar="GLOB,..", help="Providers that count.", show_default="all lists of clouds"),
    ] = ""
    region: Annotated[str, Option("--region", metavar="GLOB,..", help="Regions that count.", show_default="all")] = ""
    price_date: Annotated[
        str,
        Option("--price-date", metavar="YYYY-MM-DD", help="Day from which prices age.", show_default="today"),
    ] = ""
    usd_per_hour: Annotated[
        float | None, Option("--usd-per-hour", help="Your own price of one device, instead of the price lists.")
    ] = None
    instance_devices: Annotated[
        int | None,
        Option("--instance-devices", min=1, help="Devices of your own instance.", show_default="a replica's"),
    ] = None

    def terms(self) -> Terms:
        """Return which offers count. Raises InfercastError for a day that is none, and for options that exclude."""
        if self.instance_devices and self.usd_per_hour is None:
            given = f"--instance-devices {self.instance_devices}"
            raise InfercastError(given, "the price lists say how many devices an instance has", "Give --usd-per-hour")
        providers, regions = (tuple(filter(None, text.split(","))) for text in (self.provider, self.region))
        return Terms(self.price, providers, regions, self._day())

    def offers(self, deployment: Deployment) -> tuple[Offer, ...]:
        """Return the offers for a deployment, empty where its device has none. Raises as `terms` does."""
        terms, device = self.terms(), deployment.hardware.id
        if self.usd_per_hour is None:
            return offers(device, terms)
        each = self.instance_devices or deployment.devices
        return (own_offer(device, self.usd_per_hour * each, each),)

    def _day(self) -> date:
        try:
            return date.fromisoformat(self.price_date) if self.price_date else today()
        except ValueError as error:
            raise InfercastError(f"--price-date {self.price_date}", "it is no date", "Give it as 2026-11-23") from error


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
