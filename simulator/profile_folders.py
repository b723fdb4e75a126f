"""Where profiles lie, and their names: nothing is read, so that a shell completes them at once."""

import os
from functools import cache
from pathlib import Path

SCHEMA_LINE = "# yaml-language-server: $schema="  # and a path; of the language server of YAML


def folders(kind: str) -> tuple[Path, ...]:
    """Return the folders in which profiles of a kind ("hardware_profiles", ...) are searched, the user's own first."""
    own = os.environ.get("INFERCAST_PROFILES")
    return (Path(own) / kind, _shipped(kind)) if own else (_shipped(kind),)


@cache
def _shipped(kind: str) -> Path:
    package = Path(__file__).parent
    return next(path for path in (package / "profiles" / kind, package.parent / kind, package / kind) if path.is_dir())


def names(kind: str) -> list[str]:
    """Return the names of all profiles of a kind, sorted."""
    return sorted({path.stem for folder in folders(kind) for path in folder.glob("*.yaml")})


def schema_line(kind: str, folder: Path) -> str:
    """Return the first line of a profile in a folder: where the JSON Schema of its kind is, for editors."""
    schema = Path(os.path.relpath(_shipped(kind) / "schema.json", folder)).as_posix()
    return f"{SCHEMA_LINE}{schema}"
