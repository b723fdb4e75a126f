"""Options for what devices cost: which offers count, or a price of one's own. `cost` and `compare` take them alike."""

from dataclasses import dataclass
from typing import Annotated

from typer import Option

from simulator.cost.ownership import LIFETIME_YEARS
from simulator.questions.price_question import COMMITMENTS, INTERRUPTED, REPLACED_AFTER, OfferQuestion, PriceQuestion

PRICE_HELP = f"{', '.join(COMMITMENTS)}: reserved is for a year, owned is bought."


@dataclass(frozen=True)
class OfferOptions(OfferQuestion):
    """Options for which offers count, where devices stand, and what owned ones cost."""

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


@dataclass(frozen=True)
class PriceOptions(OfferOptions, PriceQuestion):
    """The same, and how spot instances are taken back."""

    interrupted_per_month: Annotated[
        str,
        Option("--interrupted-per-month", metavar="SHARE", help="Share of spot instances taken back within 30 days."),
    ] = INTERRUPTED
    replaced_after: Annotated[
        str, Option("--replaced-after", metavar="TIME", help="Until another spot instance is there.")
    ] = REPLACED_AFTER
    availability: Annotated[
        str,
        Option(
            "--availability", metavar="SHARE", help="Share of the time in which the needed replicas are up, on spot."
        ),
    ] = "99.9%"


@dataclass(frozen=True)
class PriceAndApiOptions(PriceOptions):
    """Options for the offers that count, and for hosted APIs beside them."""

    vs_api: Annotated[
        bool, Option("--vs-api", help="Compare with hosted APIs of the same model (genai-prices, offline).")
    ] = False


@dataclass(frozen=True)
class SeveralPriceOptions(PriceAndApiOptions):
    """The same, for a list of commitments (`each`)."""

    price: Annotated[str, Option("--price", metavar="COMMITMENT,..", help=PRICE_HELP)] = "on-demand"
