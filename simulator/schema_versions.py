"""Versions of the schemas of files, and how older files are read: docs/trust.md says what a version promises.

A schema has the name of the class that its files are read into, or written from. A file without `schema_version` is of
version 1.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from simulator.errors import ProfileError

KEY = "schema_version"
VERSIONS = {
    **{"Hardware": 2, "Family": 2, "PriceList": 2, "PurchaseList": 1, "Site": 1},
    **{"Model": 1, "Engine": 1, "WorkloadPreset": 1},
    "Measurement": 2,  # from 1: validation/older_notes.py, words of `load` and `notes` became typed columns
    "Result": 1,  # of json; what infercast writes and does not read
}
_ACHIEVABLE = {
    "achievable.stream_memory_fraction": "elementwise_memory_fraction",
    "achievable.stream_launch_s": "elementwise_launch_s",
}
RENAMED: dict[tuple[str, int], dict[str, str]] = {  # (schema, version): key of the version before -> its new name
    ("Hardware", 2): _ACHIEVABLE,
    ("Family", 2): _ACHIEVABLE,
    ("PriceList", 2): {"offers.*.kind": "commitment"},  # a star is each item of a list
}


def known_version(schema: str, given: object, where: str) -> int:
    """Return the version that a file states. Raises ProfileError where it is none, or newer than this program.

    >>> known_version("Hardware", "2", "l4.yaml")
    2
    """
    latest = VERSIONS.get(schema, 1)
    if not re.fullmatch("[1-9][0-9]{0,8}", str(given)):
        raise ProfileError(f"{where}: {KEY} {given!r}", "a version is a whole number from 1 on", f"Write {latest}")
    if int(str(given)) > latest:
        because = f"it is newer than {latest}, the latest that this infercast reads"
        raise ProfileError(f"{where}: {KEY} {given}", because, "Update infercast, or have the file written anew")
    return int(str(given))


def upgraded(schema: str, raw: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the mapping of a file under the keys of the latest version, without `schema_version`.

    >>> upgraded("PriceList", {"offers": ({"kind": "spot"},)}, "mine.yaml")
    {'offers': ({'commitment': 'spot'},)}

    Raises ProfileError as `known_version` does.
    """
    version = known_version(schema, raw.get(KEY, 1), where)
    found: Any = {key: value for key, value in raw.items() if key != KEY}
    for later in range(version + 1, VERSIONS.get(schema, 1) + 1):
        for key, name in RENAMED.get((schema, later), {}).items():
            found = _renamed(found, key.split("."), name)
    return dict(found)


def _renamed(value: Any, path: Sequence[str], name: str) -> Any:
    """Return a value with the key at a path under another name, as it is where the path leads nowhere."""
    key, rest = path[0], path[1:]
    if key == "*" and isinstance(value, tuple | list):
        return tuple(_renamed(each, rest, name) for each in value)
    if not isinstance(value, Mapping) or key not in value or (not rest and name in value):
        return value  # a key under both names stays, and is refused as unknown
    if rest:
        return {**value, key: _renamed(value[key], rest, name)}
    return {name if each == key else each: found for each, found in value.items()}
