"""Which program computes: digests of its code and of the library of profiles, by which results are told apart."""

import hashlib
import os
import platform
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path

from simulator.errors import InfercastError, reason
from simulator.profile_folders import folders

PACKAGE = Path(__file__).parents[1]
LIBRARIES = ("hardware_profiles", "model_profiles")  # folders of profiles, with price lists and all else in them
CODE = {".py", ".yaml", ".json", ".gz", ".csv"}
ARITHMETIC = ("numpy", "numba")  # whose versions may change the last bit of a result


def program_digest() -> str:
    """Return a digest of all that computes but the profiles of models and devices: those are told apart one by one.

    It covers the package with its engines and workloads, the families of devices, price lists and sites, the user's own
    profiles of these kinds, and the versions of Python and of what does the arithmetic.
    """
    return _digest(*_own_files(), with_named=False)


def library_digest() -> str:
    """Return a digest of all that computes, with every profile of a model and of a device."""
    return _digest(*_own_files(), with_named=True)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file. Raises InfercastError where it cannot be read."""
    try:
        return _file_digest(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise InfercastError(str(path), f"it cannot be read ({reason(error)})", "Check the path") from error


@cache
def _file_digest(path: Path, _changed_ns: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _own_files() -> tuple[str, tuple[int, ...]]:
    """Return the folder of the user's own profiles, which may change while this runs, and when its files changed."""
    own = os.environ.get("INFERCAST_PROFILES", "")
    return own, tuple(path.stat().st_mtime_ns for path in _files(Path(own))) if own else ()


@cache
def _digest(own: str, _changed_ns: tuple[int, ...], *, with_named: bool) -> str:
    """Return the digest of the program as it was when first asked: what is imported does not change any more."""
    made = hashlib.sha256(" ".join([platform.python_version(), *map(version, ARITHMETIC)]).encode())
    shipped = (folders(kind)[-1] for kind in LIBRARIES)
    for root in (PACKAGE, *shipped, *([Path(own)] if own else [])):
        for path in _files(root):
            if with_named or not _is_named(path):
                made.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return made.hexdigest()


def _files(root: Path) -> Iterable[Path]:
    return sorted(path for path in root.rglob("*") if path.suffix in CODE and path.is_file())


def _is_named(path: Path) -> bool:
    """Whether a file is the profile of a model or of a device."""
    return path.suffix == ".yaml" and path.parent.name in LIBRARIES
