"""All profiles by kind: which there are, their problems, and the JSON Schema of each kind."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from simulator.engines import engine
from simulator.errors import InfercastError, ProfileError, nearest
from simulator.hardware import hardware, prices, purchases, sites
from simulator.models import model
from simulator.profile import Profile, find, problems
from simulator.profile_folders import SCHEMA_LINE, folders, names
from simulator.schema_versions import KEY, VERSIONS
from simulator.workloads import workload

FIRST_LINE = f"{SCHEMA_LINE}schema.json"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of profile: its folder, its class, how it is loaded by name, and a check beyond its schema.

    `check` yields what is wrong with a profile, as text.
    """

    folder: str
    profile: type[Profile]
    load: Callable[[str], Profile]
    check: Callable[[Any], Iterator[str]]

    def names(self) -> list[str]:
        """Return the names of all profiles of this kind."""
        return names(self.folder)

    def files(self) -> list[Path]:
        """Return the path of every profile of this kind, the user's own first."""
        return [path for folder in folders(self.folder) for path in sorted(folder.glob("*.yaml"))]


def _check_hardware(device: hardware.Hardware) -> Iterator[str]:
    """Yield each achievable rate that neither the device nor its family or class has."""
    reached = hardware.load_hardware(device.id).achievable
    for part in ("decode_attention", "prefill_attention", "elementwise_memory_fraction"):
        if getattr(reached, part) is None:
            yield f"no achievable {part}, nor has its family or class"
    for peak in set(device.peak_flops_per_s) - set(reached.gemm):
        yield f"no achievable gemm for its {peak} peak, nor has its family or class"


def _check_model(one: model.Model) -> Iterator[str]:
    """Yield where parameters or KV-cache bytes per token differ from the published ones."""
    for what, ours, published in (
        ("parameters", float(one.parameters), one.published_parameters),
        ("cache bytes per token", one.cache_bytes(1), one.published_cache_bytes_per_token),
    ):
        if published is not None and ours != published:
            yield f"{ours:,.0f} {what}, published are {published:,.0f}"


def _check_prices(listed: prices.PriceList) -> Iterator[str]:
    yield from _check_devices(offer.hardware for offer in listed.offers)


def _check_purchases(listed: purchases.PurchaseList) -> Iterator[str]:
    yield from _check_devices(each.hardware for each in listed.purchases)


def _check_devices(devices: Iterable[str]) -> Iterator[str]:
    known = names(hardware.KIND)
    for device in sorted(set(devices) - set(known)):
        yield f"no device has the id {device!r}. {nearest(device, known)}"


def _no_check(_profile: Profile) -> Iterator[str]:
    return iter(())


def load_prices(name: str) -> prices.PriceList:
    """Return the price list of a provider. Raises ProfileError where there is none of that name."""
    return prices.PriceList.from_yaml(find(prices.KIND, name))


def _load_purchases(name: str) -> purchases.PurchaseList:
    return purchases.PurchaseList.from_yaml(find(purchases.KIND, name))


def _load_family(name: str) -> hardware.Family:
    return hardware.Family.from_yaml(find(FAMILIES, name))


FAMILIES = f"{hardware.KIND}/families"
KINDS = {
    "hardware": Kind(hardware.KIND, hardware.Hardware, hardware.load_hardware, _check_hardware),
    "models": Kind(model.KIND, model.Model, model.load_model, _check_model),
    "engines": Kind(engine.KIND, engine.Engine, engine.load_engine, _no_check),
    "purchases": Kind(purchases.KIND, purchases.PurchaseList, _load_purchases, _check_purchases),
    "sites": Kind(sites.KIND, sites.Site, sites.load_site, _no_check),
    "prices": Kind(prices.KIND, prices.PriceList, load_prices, _check_prices),
    "workloads": Kind(workload.KIND, workload.WorkloadPreset, workload.load_workload, _no_check),
    "families": Kind(FAMILIES, hardware.Family, _load_family, _no_check),
}


def kind(name: str) -> Kind:
    """Return a kind of profile by name. Raises ProfileError, with the nearest names and all, for an unknown one."""
    if name not in KINDS:
        near, every = nearest(name, KINDS), f"Kinds: {', '.join(KINDS)}"
        remedy = f"{near}. {every}" if near.startswith("Nearest") else every
        raise ProfileError(f"kind of profile {name!r}", "there is no such kind", remedy)
    return KINDS[name]


class _Generator(GenerateJsonSchema):
    """Leaves out defaults that are figures with a source, which JSON cannot represent."""

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a kind of profile, with which editors complete and check it.

    Raises ProfileError for an unknown kind.
    """
    profile = kind(name).profile
    form = profile.model_json_schema(schema_generator=_Generator)
    form["properties"][KEY] = {"type": "integer", "minimum": 1, "maximum": VERSIONS[profile.__name__]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **form}


def lint(chosen: Sequence[str] = tuple(KINDS)) -> list[tuple[Path, str]]:
    """Return every problem of the profiles of some kinds, as (file, what is wrong).

    Problems: a first line that names no schema, invalid YAML or values, a failed check of the kind, an alias that two
    profiles share. Raises ProfileError for an unknown kind.
    """
    return [problem for name in chosen for problem in _lint(kind(name))]


def _lint(one: Kind) -> Iterator[tuple[Path, str]]:
    known: dict[str, Path] = {path.stem.lower(): path for path in one.files()}
    for path in one.files():
        if not path.read_text(encoding="utf-8", errors="replace").startswith(SCHEMA_LINE):
            yield path, f"line 1 does not name its schema. Begin with {FIRST_LINE!r}."
        try:
            profile = one.profile.from_yaml(path)
            found = list(one.check(profile))
        except InfercastError as error:
            cause = error.__cause__
            every = problems(cause, str(path)) if isinstance(cause, ValidationError) else [error]
            yield from ((path, str(each).removeprefix(f"{path}: ")) for each in every)
            continue
        yield from ((path, each) for each in found)
        for alias in getattr(profile, "aliases", ()):
            if known.setdefault(alias.lower(), path).stem != path.stem:
                yield path, f"the alias {alias!r} is taken by {known[alias.lower()].stem}."
