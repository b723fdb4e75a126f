"""The files of profiles: YAML that is read as plain values alone, and written with the line that names its schema."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from simulator.errors import ProfileError, reason
from simulator.files import MAX_DIGITS, read_text, write_whole
from simulator.profile_folders import schema_line

MAX_PROFILE_BYTES, MAX_DEPTH = 1_000_000, 20
NAMES = {"name", "aliases"}  # the keys of a profile by which it is found
_SCALARS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null")}
_CONSTRUCTOR = yaml.constructor.SafeConstructor()


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file of plain values: no tags, no anchors, no key twice.

    Raises ProfileError for anything else, and for a file that is missing, not a mapping or over `MAX_PROFILE_BYTES`.
    """
    try:
        text = read_text(path, MAX_PROFILE_BYTES / 1e6)
        _refuse_anchors_and_depth(text, str(path))
        node = yaml.compose(text, Loader=yaml.CSafeLoader)
        value = _plain(node, str(path)) if node else None
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(
            str(path), f"it cannot be read ({reason(error)})", "Check the path and the encoding"
        ) from error
    except yaml.YAMLError as error:
        raise ProfileError(
            str(path), f"it is not YAML ({str(error).replace(chr(10), ' ')})", "Mend the file"
        ) from error
    if not isinstance(value, dict):
        raise ProfileError(str(path), "a profile is a mapping of keys to values", "See the shipped ones for the form")
    return value


def read_names(path: Path) -> list[str]:
    """Return the `name` and the `aliases` of a profile's YAML file, which is read no further than these two.

    Raises ProfileError for a file that is missing, or is not YAML as far as it is read.
    """
    found: dict[str, list[str]] = {}
    key, depth = None, 0
    try:
        for event in yaml.parse(read_text(path, MAX_PROFILE_BYTES / 1e6), Loader=yaml.CSafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            text = event.value if isinstance(event, yaml.ScalarEvent) else None
            if key is None:
                key = text if depth == 1 else None
                continue
            if text is not None and key in NAMES:
                found.setdefault(key, []).append(text)
            if depth == 1:  # the key's value is over
                key = None
                if len(found) == len(NAMES):
                    break
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ProfileError(str(path), f"its names cannot be read ({reason(error)})", "Mend the file") from error
    return [each for values in found.values() for each in values]


def _refuse_anchors_and_depth(text: str, where: str) -> None:
    """Refuse anchors, which can multiply without limit, and nesting so deep that it exhausts the C stack."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise ProfileError(where, f"it is nested deeper than {MAX_DEPTH}", "Flatten it")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise ProfileError(where, "it uses a YAML anchor", "Write the value out in both places")


def _plain(node: yaml.Node, where: str) -> Any:
    """Return YAML nodes as plain immutable values; dates stay text, and no objects are constructed."""
    if isinstance(node, yaml.MappingNode) and node.tag.endswith(":map"):
        result: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = _plain(key_node, where)
            if isinstance(key, dict | tuple) or key in result:
                raise ProfileError(f"{where}: key {key!r}", "it is given twice or is no name", "Keep one plain key")
            result[key] = _plain(value_node, where)
        return result
    if isinstance(node, yaml.SequenceNode) and node.tag.endswith(":seq"):
        return tuple(_plain(item, where) for item in node.value)
    if node.tag.endswith(":timestamp"):
        return node.value
    if isinstance(node, yaml.ScalarNode) and node.tag in _SCALARS:
        if node.tag.endswith(":int") and len(node.value) > MAX_DIGITS:
            because = f"it is a whole number of more than {MAX_DIGITS} digits"
            raise ProfileError(f"{where}: {node.value[:40]}..", because, f"Write {MAX_DIGITS} digits at most")
        try:
            return _CONSTRUCTOR.construct_document(node)
        except (ValueError, KeyError, IndexError, OverflowError) as error:
            raise ProfileError(f"{where}: {node.value[:40]!r}", "it is no YAML value of its tag", "Quote it") from error
    raise ProfileError(f"{where}: tag {node.tag!r}", "a profile holds plain values only", "Remove the tag")


def write_yaml(path: Path, kind: str, profile: Mapping[str, Any]) -> Path:
    """Write a profile of a kind ("hardware_profiles", ...) with its folder; return the path.

    Raises InfercastError where it cannot be written.
    """
    body = yaml.safe_dump(dict(profile), sort_keys=False, default_flow_style=None, allow_unicode=True, width=120)
    write_whole(path, f"{schema_line(kind, path.parent)}\n{body}")
    return path


def refuse_name(name: str) -> None:
    """Raise ProfileError for a name of a profile that its file cannot have.

    >>> refuse_name("my-gpu")
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name):
        raise ProfileError(f"profile name {name!r}", "it is the name of a file", "Use a-z, 0-9, '.', '_' and '-'")
