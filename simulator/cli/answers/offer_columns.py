"""What is said about what is paid and used: the prices, the energy, the instances on spot."""

from simulator.cli.numbers import number
from simulator.cli.output import Column, Row, View
from simulator.cost.energy import COMPUTE_SHARE, HOST_W, IDLE_SHARE, MEMORY_SHARE
from simulator.hardware.sites import Site
from simulator.reports.provenance import Provenance
from simulator.units import counted


def price_notes(rows: list[Row]) -> list[str]:
    """Say what is paid for each row, of when its price is, and whether that is long ago."""
    told: dict[str, None] = {}
    for row in rows:
        stale = ", over 90 days old" if row["price_is_stale"] and row["price_date"] != "undated" else ""
        what = f"{row['instances']}, {row['price_date'] or 'your price'}{stale}" if row["instances"] else "no price"
        told[f"{row['hardware']}: {what}."] = None
    return list(told)


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


def _restarted(per_million: float) -> str:
    if per_million < 1:
        return "fewer than one in a million requests starts anew"
    return f"{per_million:,.0f} of a million requests start anew"


def spot_notes(rows: list[Row]) -> list[str]:
    """Say for each row on spot how many replicas are spare and how many requests start anew."""
    return [
        f"{row['hardware']} on spot: {row['instances']}; an instance is up {row['instance_up_share']:.2%} of the time; "
        f"{counted(row['spare_replicas'], 'spare replica')}; {_restarted(row['restarted_share'] * 1e6)}."
        for row in rows
        if row["spare_replicas"] is not None
    ]
