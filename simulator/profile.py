"""Profiles: strict files, found by name, in which every figure has a unit and a source."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, core_schema

from simulator.errors import InfercastError, ProfileError, nearest
from simulator.files import is_file, named_file
from simulator.profile_files import read_names, read_yaml
from simulator.profile_folders import folders, names
from simulator.schema_versions import upgraded
from simulator.units import UNITS, parse

ProfileT = TypeVar("ProfileT", bound="Profile")
Evidence = Literal["datasheet", "measured", "fitted", "derived", "family", "guess", "given"]
LISTED = 12  # of a library's names in a message, where none is near


class Strict(BaseModel):
    """A frozen value read from YAML. An unknown key raises ProfileError, which names the nearest known key."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, raw: object) -> object:
        if not isinstance(raw, Mapping):
            return raw
        for key in raw:
            if key not in cls.model_fields:
                raise ProfileError(f"key {key!r}", "it is not a known key here", nearest(str(key), cls.model_fields))
        return raw


class Source(Strict):
    """Source of a figure: what it is, when it was looked up, and the kind of evidence."""

    text: str
    date: str
    evidence: Evidence


class Figure(float):
    """A float in SI units with its source; arithmetic on it gives plain floats.

    >>> bandwidth = Figure(864e9, Source(text="data sheet", date="2026-11", evidence="datasheet"))
    >>> bandwidth / 2, bandwidth.source.evidence
    (432000000000.0, 'datasheet')
    """

    __slots__ = ("source",)
    source: Source

    def __new__(cls, value: float, source: Source) -> Self:
        """Attach a source to a value that is in SI units already."""
        figure = super().__new__(cls, value)
        figure.source = source
        return figure

    def __getnewargs__(self) -> tuple[float, Source]:  # type: ignore[override]
        return float(self), self.source


def _source_of(raw: Mapping[str, Any], info: ValidationInfo) -> Source:
    """Return the source that `source: key` or `guess: reason` gives, of which there is one."""
    sources: Mapping[str, Source] = (info.context or {}).get("sources", {})
    if ("source" in raw) == ("guess" in raw):
        raise ProfileError(f"{dict(raw)}", "a figure has one source or is one guess", "Give source: or guess:")
    if "guess" in raw:
        return Source(text=str(raw["guess"]), date="", evidence="guess")
    source = sources.get(str(raw["source"]))
    if source is None:
        raise ProfileError(f"source {raw['source']!r}", "it is not in sources:", nearest(raw["source"], sources))
    return source


def _origin(raw: object, info: ValidationInfo) -> object:
    """Read `{source: key}` or `{guess: reason}`, as figures have it."""
    return _source_of(raw, info) if isinstance(raw, Mapping) else raw


_ORIGIN_SCHEMA = {
    "type": "object",
    "properties": {"source": {"type": "string"}, "guess": {"type": "string"}},
    "oneOf": [{"required": ["source"]}, {"required": ["guess"]}],
    "additionalProperties": False,
}
Origin = Annotated[Source, BeforeValidator(_origin), WithJsonSchema(_ORIGIN_SCHEMA)]


class _Quantity:
    """Pydantic's reader of `{value: 864 GB/s, source: key}`, or `{value: ..., guess: reason}`, as a Figure."""

    def __init__(
        self, dimension: str, maximum: float | None = None, *, positive: bool = False, whole: bool = False
    ) -> None:
        self.dimension, self.maximum, self.positive, self.whole = dimension, maximum, positive, whole

    def read(self, raw: object, info: ValidationInfo) -> Figure:
        if isinstance(raw, Figure):
            return raw
        if not isinstance(raw, Mapping):
            unit = list(UNITS[self.dimension])[-1]
            example = "{value: " + f"{raw} {unit}".strip() + ", source: datasheet}"
            raise ProfileError(f"{raw!r}", "it has no unit and no source", f"Write {example}, or guess: with a reason")
        for key in raw:
            if key not in ("value", "source", "guess"):
                raise ProfileError(f"key {key!r}", "a figure has no such part", "Parts: value, source or guess")
        value = parse(raw.get("value"), self.dimension)
        if self.maximum is not None and value > self.maximum:
            raise ProfileError(f"{raw['value']!r}", f"it is above {self.maximum:g}", f"Give {self.maximum:g} or less")
        if self.positive and value == 0:
            raise ProfileError(f"{raw['value']!r}", "it must be above 0", "Give a number above 0")
        if self.whole and not value.is_integer():
            raise ProfileError(f"{raw['value']!r}", "it must be a whole number", "Give a whole number")
        return Figure(value, _source_of(raw, info))

    def __get_pydantic_core_schema__(self, _source_type: object, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(
            self.read, serialization=core_schema.plain_serializer_function_ser_schema(float)
        )

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, _handler: object) -> JsonSchemaValue:
        units = "|".join(re.escape(unit) for unit in UNITS[self.dimension] if unit)
        value: JsonSchemaValue = {"type": "string", "pattern": rf"^[0-9][0-9_.]*([eE][+-]?[0-9]+)? ?({units})$"}
        if not units:
            value = {"type": "number", "minimum": 0} | ({} if self.maximum is None else {"maximum": self.maximum})
        return {
            "type": "object",
            "properties": {"value": value, "source": {"type": "string"}, "guess": {"type": "string"}},
            "required": ["value"],
            "oneOf": [{"required": ["source"]}, {"required": ["guess"]}],
            "additionalProperties": False,
        }


Bytes = Annotated[Figure, _Quantity("bytes")]
BytesPerS = Annotated[Figure, _Quantity("bytes_per_s", positive=True)]
FlopsPerS = Annotated[Figure, _Quantity("flops_per_s", positive=True)]
Seconds = Annotated[Figure, _Quantity("s")]
Watts = Annotated[Figure, _Quantity("w")]
UsdPerHour = Annotated[Figure, _Quantity("usd_per_hour")]
Usd = Annotated[Figure, _Quantity("usd", positive=True)]
UsdPerKwh = Annotated[Figure, _Quantity("usd_per_kwh")]
UsdPerKwMonth = Annotated[Figure, _Quantity("usd_per_kw_month")]
GramsPerKwh = Annotated[Figure, _Quantity("g_per_kwh")]
Tokens = Annotated[Figure, _Quantity("tokens")]
Fraction = Annotated[Figure, _Quantity("fraction", maximum=1.0, positive=True)]
Number = Annotated[Figure, _Quantity("count")]
Positive = Annotated[Figure, _Quantity("count", positive=True)]
Whole = Annotated[Figure, _Quantity("count", positive=True, whole=True)]


class Profile(Strict):
    """A profile file: its id is the file's name, and its figures refer to its `sources`."""

    sources: dict[str, Source] = {}
    _id: str = PrivateAttr("")
    _path: Path = PrivateAttr(Path())

    @property
    def id(self) -> str:
        """Name of the file, by which the profile is asked for."""
        return self._id

    @property
    def path(self) -> Path:
        """The file that it was read from."""
        return self._path

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._id!r})" if self._id else super().__repr__()

    @classmethod
    def from_yaml(cls, path: Path) -> Self:
        """Return the profile in a file. Raises ProfileError, naming file and key, for any mistake in it."""
        profile: Self = _read(cls, path, path.stat().st_mtime_ns if is_file(path) else 0)
        return profile

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any], where: str) -> Self:
        """Return the profile in a mapping, of this version of its schema or an older one (schema_versions.py).

        Raises ProfileError for any mistake, which names the origin `where`.
        """
        raw = upgraded(cls.__name__, raw, where)
        given = raw.get("sources") or {}
        if not isinstance(given, Mapping):
            raise ProfileError(f"{where}: sources", "it is not a mapping of keys to sources", "Write key: {text: ...}")
        try:
            sources = {str(key): Source.model_validate(value) for key, value in given.items()}
            return cls.model_validate(raw, context={"sources": sources})
        except ValidationError as error:
            raise problems(error, where)[0] from error


@cache
def _read(cls: type[ProfileT], path: Path, _changed_ns: int) -> ProfileT:
    profile = cls.from_mapping(read_yaml(path), str(path))
    profile._id, profile._path = path.stem, path
    return profile


def problems(error: ValidationError, where: str) -> list[ProfileError]:
    """Return a ProfileError for every mistake that pydantic found; `where` names the file."""
    return [_in_three_parts(each, where) for each in error.errors(include_url=False)]


def _in_three_parts(mistake: ErrorDetails, where: str) -> ProfileError:
    place = ": ".join([where, ".".join(str(part) for part in mistake["loc"])]).rstrip(": ")
    cause = mistake.get("ctx", {}).get("error")
    if isinstance(cause, InfercastError):
        return ProfileError(f"{place}: {cause.given}", cause.because, cause.remedy)
    if mistake["type"] == "missing":
        return ProfileError(place, "this key is required and missing", "Add it")
    remedy = "Give what the schema says: infercast profiles KIND --schema"
    return ProfileError(f"{place}: {mistake['input']!r}", mistake["msg"], remedy)


def find(kind: str, name: str, groups: Iterable[str] = ()) -> Path:
    """Return the path of a profile, by its id, its name, one of its aliases, or its path ending in .yaml.

    Capitals do not matter, nor do spaces, hyphens, underscores and colons between words, nor a Hugging Face
    organisation.

    >>> find("hardware_profiles", "H100_SXM").stem, find("model_profiles", "llama3.1:70b Instruct").stem
    ('h100-sxm', 'llama-3.1-70b')

    Raises ProfileError with the nearest names, including those in `groups`, if there is none.
    """
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    for folder in folders(kind):
        if path := named_file(folder, name):
            return path
    aliases = _aliases(kind, os.environ.get("INFERCAST_PROFILES"))
    for each in (joined(name), joined(name).rpartition("/")[-1]):
        if each in aliases:
            return aliases[each]
    what = kind.rpartition("/")[-1].removesuffix("_profiles").rstrip("s")
    hint = nearest(name, {*names(kind), *groups}, most=LISTED)
    remedy = f"{hint}. `infercast profiles` lists all; they lie in {folders(kind)[-1]}"
    if is_file(Path(f"{name}.yaml")):
        remedy = f"Give {name}.yaml, which lies here: a profile outside of the library is named by its path"
    raise ProfileError(f"no {what} profile {name!r}", "no file and no alias has that name", remedy)


@cache
def _aliases(kind: str, _own: str | None) -> dict[str, Path]:
    return dict(_read_aliases(kind))


def joined(name: str) -> str:
    """Return a name as names are compared: without capitals, and without what stands between words.

    >>> joined("TensorRT_LLM"), joined("H100 SXM")
    ('tensorrtllm', 'h100sxm')
    """
    return re.sub(r"[\s_:-]+", "", name.lower())


def organisations(kind: str) -> set[str]:
    """Return the organisations in aliases of a kind's profiles, as `joined` has them.

    >>> "mistralai" in organisations("model_profiles")
    True
    """
    return {alias.partition("/")[0] for alias in _aliases(kind, os.environ.get("INFERCAST_PROFILES")) if "/" in alias}


def _read_aliases(kind: str) -> Iterator[tuple[str, Path]]:
    for folder in reversed(folders(kind)):
        for path in sorted(folder.glob("*.yaml")):
            for alias in (path.stem, *read_names(path)):
                yield joined(alias), path
                yield joined(alias.rpartition("/")[-1]), path  # without the organisation on Hugging Face
