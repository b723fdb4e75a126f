"""`infercast profiles`: list the profiles, show one in full with its sources, check all of them."""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer
from pydantic import BaseModel

from simulator.cli.answers.data_sheet import sheet
from simulator.cli.answers.profile_columns import HEADLINES
from simulator.cli.answers.profile_lint import KINDS, kind, lint, load_prices, schema
from simulator.cli.numbers import number
from simulator.cli.options.deployment_options import OutputFormat, Profiles, use_profiles
from simulator.cli.output import Column, Result, Row, View, emit
from simulator.cli.text_layout import Format
from simulator.errors import ProfileError
from simulator.hardware.hardware import Hardware
from simulator.hardware.prices import load_offers
from simulator.models.model import Model
from simulator.profile import Figure, Profile
from simulator.profile_folders import folders
from simulator.reports.figures_of_ops import sourced_figures
from simulator.reports.provenance import readable
from simulator.units import counted


def command(
    kind_name: Annotated[str, typer.Argument(metavar="[KIND]", help=", ".join(KINDS))] = "",
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="Name, alias or path of one profile; of prices, a device too.")
    ] = "",
    check: Annotated[bool, typer.Option("--lint", help="Load everything and report every problem.")] = False,
    as_schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of a kind.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Every key of a model or device, with its source.")] = False,
    own: Profiles = None,
    form: OutputFormat = Format.TEXT,
) -> None:
    """List, show and check the profiles of devices, models, engines, prices, sites and workloads.

    A figure is shown with its unit, its source and its evidence: a data sheet, a measurement, a fit to measurements, a
    derivation, the figure of a relative (family), or a guess.
    """
    use_profiles(own)
    if as_schema:
        typer.echo(json.dumps(schema(kind_name or "hardware"), indent=2))
    elif check:
        _lint([kind_name] if kind_name else list(KINDS), form)
    elif not kind_name:
        emit(_kinds(), form)
    else:
        emit(_one(kind_name, name, every=every) if name else _list(kind_name), form)


def _lint(names: list[str], form: Format) -> None:
    found = lint(names)
    rows: list[Row] = [{"file": str(path), "problem": problem} for path, problem in found]
    files = sum(len(kind(name).files()) for name in names)
    columns = (Column("file", "file", left=True), Column("problem", "problem", left=True))
    views = [View("Problems", columns, rows)] if rows else []
    emit(Result({"problems": rows}, views, [f"{files} profiles, {len(rows)} problems."]), form)
    if rows:
        raise typer.Exit(2)


def _kinds() -> Result:
    rows: list[Row] = [
        {"kind": name, "profiles": len(one.names()), "folder": str(folder)}
        for name, one in KINDS.items()
        for folder in folders(one.folder)
        if folder.is_dir()
    ]
    columns = (
        Column("kind", "kind", left=True),
        Column("profiles", "profiles"),
        Column("folder", "folder", left=True),
    )
    notes = ["infercast profiles KIND lists a kind, infercast profiles KIND NAME shows one in full."]
    return Result({"kinds": rows}, [View("Profiles", columns, rows)], notes)


def _list(name: str) -> Result:
    one = kind(name)
    headline, columns = HEADLINES[one.profile]
    loaded = [one.load(each) for each in one.names()]
    rows: list[Row] = [{"id": each.id, **headline(each)} for each in loaded]
    views = [View(f"{len(rows)} {name}", (Column("id", "id", left=True), *columns), rows)]
    return Result({name: rows}, views)


def _one(kind_name: str, name: str, *, every: bool) -> Result:
    if kind_name == "prices":
        return _offers(name)
    profile = kind(kind_name).load(name)
    whole = _every_key(kind_name, profile)
    if every or not isinstance(profile, Model | Hardware):
        return whole
    views, notes = sheet(profile), [profile.notes] if profile.notes else []
    if isinstance(profile, Model):
        notes += [f"Source: {each.text} ({each.date})." for each in profile.sources.values()]
    else:
        offers = next(iter(_offers(name).sections.values()))
        views += [View("Cheapest offers", CHEAPEST, offers[:SHOWN])] if offers else []
        lists = f"Of {counted(len(offers), 'offer')}; infercast profiles prices {name} lists all with their sources."
        notes.append(lists if offers else "No price list has it; --usd-per-hour is a price of your own.")
    notes.append(f"infercast profiles {kind_name} {name} --all shows every key, and the sources.")
    headline, _ = HEADLINES[type(profile)]
    return Result({"sheet": [{"id": profile.id, **headline(profile)}], **whole.sections}, views, notes)


def _every_key(kind_name: str, profile: Profile) -> Result:
    facts: list[Row] = [{"key": path, "value": value} for path, value in _facts(profile)]
    texts = list(dict.fromkeys(figure.source.text for _, figure in sourced_figures(profile)))
    rows: list[Row] = [
        {
            "figure": path,
            "value": float(figure),
            "shown": readable(path, figure),
            **figure.source.model_dump(),
            "number": texts.index(figure.source.text) + 1,
        }
        for path, figure in sourced_figures(profile)
    ]
    sources: list[Row] = [{"number": place, "text": text} for place, text in enumerate(texts, start=1)]
    plain = (Column("key", "key", left=True), Column("value", "value", left=True))
    views = [View(f"{kind_name}: {profile.id}", plain, facts)]
    if rows:
        views += [View("Figures", FIGURES, rows), View("Sources", SOURCES, sources)]
    return Result({"facts": facts, "figures": rows}, views)


FIGURES = (
    Column("figure", "figure", left=True),
    Column("shown", "value"),
    Column("evidence", "evidence", left=True),
    Column("date", "date", left=True),
    Column("number", "source"),
)
OFFERS = (
    Column("provider", "provider", left=True),
    Column("hardware", "hardware", left=True),
    Column("devices", "devices"),
    Column("instance", "instance", left=True),
    Column("commitment", "commitment", left=True),
    Column("region", "region", left=True),
    Column("usd_per_hour", "$/h", number()),
    Column("usd_per_device_hour", "$/h per device", number()),
    Column("date", "date", left=True),
    Column("number", "source"),
)
SHOWN = 5  # of a device's offers, on its data sheet
CHEAPEST = [each for each in OFFERS if each.key not in ("hardware", "instance", "region", "usd_per_hour", "number")]
SOURCES = (Column("number", ""), Column("text", "source", left=True))


def _offers(name: str) -> Result:
    """Return the offers of a provider or, where no provider has that name, of a device."""
    providers = kind("prices").names()
    try:
        offers = load_prices(name).as_offers() if name in providers else load_offers(name)
    except ProfileError as error:
        remedy = f"Providers: {', '.join(providers)}. Of devices: {error.remedy}"
        raise ProfileError(f"prices of {name!r}", "it is neither a provider nor a device", remedy) from None
    texts = list(dict.fromkeys(each.usd_per_hour.source.text for each in offers))
    rows: list[Row] = [
        {
            **each.model_dump(exclude={"sources", "usd_per_hour"}),
            "usd_per_hour": float(each.usd_per_hour),
            "usd_per_device_hour": each.usd_per_device_hour,
            **each.usd_per_hour.source.model_dump(),
            "number": texts.index(each.usd_per_hour.source.text) + 1,
        }
        for each in offers
    ]
    sources: list[Row] = [{"number": place, "text": text} for place, text in enumerate(texts, start=1)]
    return Result({"offers": rows}, [View(f"offers: {name}", OFFERS, rows), View("Sources", SOURCES, sources)])


def _facts(value: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a profile that are not figures, each with its dotted path; empty ones are left out."""
    if isinstance(value, Figure) or value in (None, "", (), {}):
        return
    parts: list[tuple[Any, Any]]
    if isinstance(value, BaseModel):
        parts = [(each, getattr(value, each)) for each in type(value).model_fields if each != "sources"]
    elif isinstance(value, Mapping):
        parts = list(value.items())
    elif isinstance(value, tuple) and any(isinstance(each, BaseModel) for each in value):
        parts = list(enumerate(value))
    else:
        yield path, ", ".join(map(str, value)) if isinstance(value, tuple) else value
        return
    for each, part in parts:
        yield from _facts(part, f"{path}.{each}".lstrip("."))
