"""What devices cost: which offers count, or a price of one's own, and where owned devices stand."""

from dataclasses import dataclass, replace
from datetime import date
from typing import Self, get_args

from simulator.cost.ownership import DEVICES_SHARE, LIFETIME_YEARS, Owner, owned_offers
from simulator.cost.spot import INTERRUPTED_PER_MONTH, REPLACED_AFTER_S, Interruptions
from simulator.day import today
from simulator.deployment.deployment import Deployment
from simulator.errors import InfercastError, nearest
from simulator.hardware.hardware import Hardware
from simulator.hardware.prices import Commitment, Offer, Terms, offers, own_offer, refuse_unknown
from simulator.hardware.sites import Site, load_site
from simulator.profile import Figure, Source
from simulator.questions.words import comma_list, option_of, seconds, share
from simulator.reports.provenance import Provenance

COMMITMENTS: tuple[Commitment, ...] = get_args(Commitment)
INTERRUPTED = f"{float(INTERRUPTED_PER_MONTH):.3g}"
REPLACED_AFTER = f"{REPLACED_AFTER_S / 60:g}min"


@dataclass(frozen=True)
class OfferQuestion:
    """The offers that count, and machines of one's own; each field is an option of `infercast cost`.

    `price`: a commitment ("on-demand", "spot", "reserved" for a year, "owned"); `provider`, `region`: comma lists of
    patterns; `price_date`: the day from which prices age. `usd_per_hour`: your own price of one device, in instances of
    `instance_devices`.

    `site`: the country of the data centre, whose electricity and carbon `pue`, `usd_per_kwh`, `grid_g_per_kwh` and
    `colocation` ($ per kW a month) replace. `lifetime_years`: over which owned machines are written off;
    `staff_usd_per_month`: wages for one; `purchase_usd`: your price of one.

    >>> from simulator.deployment.deployment import deploy
    >>> [float(each.usd_per_hour) for each in OfferQuestion(usd_per_hour=2.5).offers(deploy("llama-3.1-8b", "l40s"))]
    [2.5]
    """

    price: str = "on-demand"
    provider: str = ""
    region: str = ""
    price_date: str = ""
    usd_per_hour: float | None = None
    instance_devices: int | None = None
    site: str = "us"
    pue: float | None = None
    usd_per_kwh: float | None = None
    grid_g_per_kwh: float | None = None
    colocation: float | None = None
    lifetime_years: float = float(LIFETIME_YEARS)
    staff_usd_per_month: float = 0.0
    purchase_usd: float | None = None

    @property
    def commitment(self) -> Commitment:
        """The only commitment. Raises InfercastError for several, and for one that is not known."""
        known = next((each for each in COMMITMENTS if each == self.price), None)
        if known is None:
            raise InfercastError(f"--price {self.price}", "it is not one commitment", nearest(self.price, COMMITMENTS))
        return known

    def guesses(self) -> list[Provenance]:
        """Return the guesses in use: values that the user did not give."""
        if self.price != "owned" or self.purchase_usd is not None:
            return []
        return [_guess("devices_share", DEVICES_SHARE)]

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
class PriceQuestion(OfferQuestion):
    """The offers that count, and how spot instances are taken back.

    `interrupted_per_month`: the share that is within 30 days; `replaced_after`: the time until another is there;
    `availability`: the share of the time in which the needed replicas are up.

    >>> PriceQuestion("spot", replaced_after="5min").interruptions().replaced_after_s
    300.0
    """

    interrupted_per_month: str = INTERRUPTED
    replaced_after: str = REPLACED_AFTER
    availability: str = "99.9%"

    def each(self) -> list[Self]:
        """Return the options for each commitment of --price. Raises InfercastError as `checked` does."""
        found = [replace(self, price=each) for each in comma_list(self.price, "--price")]
        for each in found:
            each.checked()
        return found

    def interruptions(self) -> Interruptions:
        """Return how spot instances are taken back. Raises InfercastError for shares that are none."""
        replaced_after_s = seconds(self.replaced_after, "--replaced-after")
        names = "interrupted_per_month", "availability"
        taken_back, up = (share(getattr(self, name), option_of(name)) for name in names)
        return Interruptions(taken_back, replaced_after_s, up)

    def guesses(self) -> list[Provenance]:
        """Return the guesses in use: values that the user did not give."""
        is_guess = self.price == "spot" and self.replaced_after == REPLACED_AFTER
        return [*super().guesses(), *([_guess("replaced_after_s", REPLACED_AFTER_S)] if is_guess else [])]

    def checked(self) -> Site:
        """Return the site, after the options are checked. Raises InfercastError for those that exclude each other."""
        self.terms()
        self.interruptions()
        return self.place()


def _guess(name: str, figure: Figure) -> Provenance:
    return Provenance("prices", name, float(figure), figure.source)
