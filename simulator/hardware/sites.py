"""Where devices stand: the power that a data centre adds, what electricity and space cost, the carbon of the grid."""

from simulator.profile import GramsPerKwh, Positive, Profile, UsdPerKwh, UsdPerKwMonth, find

KIND = "hardware_profiles/sites"


class Site(Profile):
    """A country or region with its data centres.

    `pue`: power of a data centre over that of its machines. `usd_per_kwh`: of electricity, to industry.
    `colocation_usd_per_kw_month`: of space and cooling, by power set aside, without electricity.
    `grid_g_per_kwh`: grams of CO2-equivalent per kWh of the grid, over its life cycle.
    """

    name: str
    aliases: tuple[str, ...] = ()
    pue: Positive
    grid_g_per_kwh: GramsPerKwh
    usd_per_kwh: UsdPerKwh | None = None
    colocation_usd_per_kw_month: UsdPerKwMonth | None = None


def load_site(name: str) -> Site:
    """Return a site by id, alias or path. Raises ProfileError, with the nearest names, for one that is not there.

    >>> load_site("usa").grid_g_per_kwh, load_site("france").grid_g_per_kwh
    (384.4, 41.44)
    """
    return Site.from_yaml(find(KIND, name))
