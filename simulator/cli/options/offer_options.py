"""Options for what devices cost: which offers count, or a price of one's own. `cost` and `compare` take them alike."""

from dataclasses import dataclass, replace
from datetime import date
from typing import Annotated, Self, get_args

import typer

from simulator.cost.ownership import DEVICES_SHARE, LIFETIME_YEARS, Owner, owned_offers
from simulator.cost.spot import INTERRUPTED_PER_MONTH, REPLACED_AFTER_S, Interruptions
from simulator.day import today
from simulator.deployment.deployment import Deployment
from simulator.errors import InfercastError, nearest
from simulator.hardware.hardware import Hardware
from simulator.hardware.prices import Commitment, Offer, Terms, offers, own_offer, refuse_unknown
from simulator.hardware.sites import Site, load_site
from simulator.profile import Figure, Source
from simulator.questions.words import seconds, split
from simulator.reports.provenance import Provenance

Option = typer.Option
COMMITMENTS: tuple[Commitment, ...] = get_args(Commitment)
PRICE_HELP = f"{', '.join(COMMITMENTS)}: reserved is for a year, owned is bought."
REPLACED_AFTER = f"{REPLACED_AFTER_S / 60:g}min"


@dataclass(frozen=True)
class OwnerOptions:
    """Options for where devices stand, and for what owned ones cost."""

    site: Annotated[
        str, Option("--site", metavar="NAME", help="Country of the data centre: its electricity and its carbon.")
    ] = "us"
    pue: Annotated[
        float | None,
        Option("--pue", min=1.0, help="Power of the data centre over its machines'.", show_default="the site's"),
    ] = None
    usd_per_kwh: Annotated[
        float | None, Option("--usd-per-kwh", min=0.0, help="Price of electricity.", show_default="the site's")
    ] = None
    grid_g_per_kwh: Annotated[
        float | None, Option("--grid-g-per-kwh", min=0.0, help="CO2 of electricity.", show_default="the site's")
    ] = None
    colocation: Annotated[
        float | None,
        Option("--colocation", min=0.0, help="Space for owned machines, $ per kW a month.", show_default="the site's"),
    ] = None
    lifetime_years: Annotated[
        float, Option("--lifetime-years", help="Years over which owned machines are written off.")
    ] = float(LIFETIME_YEARS)
    staff_usd_per_month: Annotated[
        float, Option("--staff-usd-per-month", min=0.0, help="Wages for one owned machine.")
    ] = 0.0
    purchase_usd: Annotated[
        float | None,
        Option("--purchase-usd", min=0.0, help="Your price of a machine with --instance-devices; owned."),
    ] = None

    def place(self) -> Site:
        """Return the site with what the options change of it. Raises ProfileError for one that is not there."""
        given = Source(text="given by the user", date="", evidence="given")
        changes = {
            "pue": self.pue,
            "usd_per_kwh": self.usd_per_kwh,
            "grid_g_per_kwh": self.grid_g_per_kwh,
            "colocation_usd_per_kw_month": self.colocation,
        }
        figures = {name: Figure(value, given) for name, value in changes.items() if value is not None}
        return load_site(self.site).model_copy(update=figures)


@dataclass(frozen=True)
class OfferOptions(OwnerOptions):
    """Options for the offers that count, and for machines of one's own."""

    price: Annotated[
        str,
        Option(
            "--price",
            metavar="COMMITMENT",
            help=PRICE_HELP,
        ),
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

    interrupted_per_month: Annotated[
        float, Option("--interrupted-per-month", help="Share of spot instances taken back within 30 days.")
    ] = float(INTERRUPTED_PER_MONTH)
    replaced_after: Annotated[
        str, Option("--replaced-after", metavar="TIME", help="Until another spot instance is there.")
    ] = REPLACED_AFTER
    availability: Annotated[
        float, Option("--availability", help="Share of the time in which the needed replicas are up, on spot.")
    ] = 0.999

    def each(self) -> list[Self]:
        """Return the options for each commitment of --price. Raises InfercastError as `checked` does."""
        found = [replace(self, price=each) for each in split(self.price, "--price")]
        for each in found:
            each.checked()
        return found

    @property
    def commitment(self) -> Commitment:
        """The only commitment. Raises InfercastError for several, and for one that is not known."""
        known = next((each for each in COMMITMENTS if each == self.price), None)
        if known is None:
            raise InfercastError(f"--price {self.price}", "it is not one commitment", nearest(self.price, COMMITMENTS))
        return known

    def interruptions(self) -> Interruptions:
        """Return how spot instances are taken back. Raises InfercastError for shares that are none."""
        replaced_after_s = seconds(self.replaced_after, "--replaced-after")
        return Interruptions(self.interrupted_per_month, replaced_after_s, self.availability)

    def guesses(self) -> list[Provenance]:
        """Return the guesses in use: values that the user did not give."""
        found: list[tuple[str, Figure]] = []
        if self.price == "owned" and self.purchase_usd is None:
            found.append(("devices_share", DEVICES_SHARE))
        if self.price == "spot" and self.replaced_after == REPLACED_AFTER:
            found.append(("replaced_after_s", REPLACED_AFTER_S))
        return [Provenance("prices", name, float(figure), figure.source) for name, figure in found]

    def checked(self) -> Site:
        """Return the site, after the options are checked. Raises InfercastError for those that exclude each other."""
        self.terms()
        self.interruptions()
        return self.place()

    def terms(self) -> Terms:
        """Return which offers count. Raises InfercastError for a day that is none, and for options that exclude."""
        own = self.usd_per_hour is not None or self.purchase_usd is not None
        if self.instance_devices and not own:
            given, remedy = f"--instance-devices {self.instance_devices}", "Give --usd-per-hour or --purchase-usd"
            raise InfercastError(given, "the price lists say how many devices an instance has", remedy)
        if self.purchase_usd is not None and self.price != "owned":
            given = f"--purchase-usd {self.purchase_usd:g} with --price {self.price}"
            raise InfercastError(given, "what is rented is not bought", "Give --price owned")
        if self.usd_per_hour is not None and not 0 <= self.usd_per_hour < float("inf"):
            given, because = f"--usd-per-hour {self.usd_per_hour:g}", "a price is finite and not negative"
            raise InfercastError(given, because, "Give, say, 2.5")
        if self.usd_per_hour is not None and self.price == "owned":
            given = f"--usd-per-hour {self.usd_per_hour:g} with --price owned"
            raise InfercastError(given, "an hour of an owned machine is computed", "Give --purchase-usd, or no --price")
        providers, regions = (tuple(filter(None, text.split(","))) for text in (self.provider, self.region))
        found = Terms(self.commitment, providers, regions, self._day())
        refuse_unknown(found)
        return found

    def offers(self, deployment: Deployment) -> tuple[Offer, ...]:
        """Return the offers for a deployment, empty where its device has none. Raises as `terms` does."""
        return self._offers(deployment.hardware, deployment.devices)

    def offers_for(self, hardware: Hardware, devices: int) -> tuple[Offer, ...]:
        """Return the offers for a replica of so many devices; empty where there is none, or an own one's power unknown.

        Raises as `terms` does.
        """
        return () if self.price == "owned" and not hardware.tdp_w else self._offers(hardware, devices)

    def _offers(self, hardware: Hardware, devices: int) -> tuple[Offer, ...]:
        terms, device = self.terms(), hardware.id
        each = self.instance_devices or devices
        if terms.commitment == "owned":
            owner = Owner(self.place(), self.lifetime_years, self.staff_usd_per_month, self.purchase_usd, each)
            return owned_offers(hardware, owner)
        if self.usd_per_hour is None:
            return offers(device, terms)
        return (own_offer(device, self.usd_per_hour * each, each, terms.commitment),)

    def _day(self) -> date:
        try:
            return date.fromisoformat(self.price_date) if self.price_date else today()
        except ValueError as error:
            raise InfercastError(f"--price-date {self.price_date}", "it is no date", "Give it as 2026-11-23") from error


@dataclass(frozen=True)
class OfferAndApiOptions(OfferOptions):
    """Options for the offers that count, and for hosted APIs beside them."""

    vs_api: Annotated[
        bool, Option("--vs-api", help="Compare with hosted APIs of the same model (genai-prices, offline).")
    ] = False


@dataclass(frozen=True)
class SeveralOfferOptions(OfferAndApiOptions):
    """The same, for a list of commitments (`each`)."""

    price: Annotated[str, Option("--price", metavar="COMMITMENT,..", help=PRICE_HELP)] = "on-demand"
