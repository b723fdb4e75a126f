"""Numba compilation with a disk cache that is keyed by the text of every compiled module of the package.

Numba's own cache looks at the file of one function only, so it misses changes in functions that this one calls.
"""

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numba

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
# No reference counting: the compiled functions neither make nor keep arrays, and counting took two thirds of the time.
OPTIONS = {"cache": True, "error_model": "numpy", "_nrt": False, "nogil": True}
COMPILED_FOLDERS = ("scheduler", "simulation")  # of the package: whatever is compiled lies in these


def inlined(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compile a function into its callers, for small functions where passing the whole state would dominate."""
    return compiled(function, inline="always")


def compiled(function: Callable[Parameters, Result], **options: str) -> Callable[Parameters, Result]:
    """Compile a function on its first call and keep the machine code on disk; NUMBA_DISABLE_JIT=1 keeps it Python."""
    settings: Any = numba.config
    previous, settings.CACHE_DIR = settings.CACHE_DIR, str(cache_folder())
    try:
        jit: Any = numba.njit
        result: Callable[Parameters, Result] = jit(**OPTIONS, **options)(function)
    finally:
        settings.CACHE_DIR = previous
    return result


@cache
def cache_folder() -> Path:
    """Return the folder that keeps the machine code of these sources."""
    package = Path(__file__).parents[1]
    paths = sorted(path for folder in COMPILED_FOLDERS for path in (package / folder).glob("*.py"))
    text = b"".join(path.read_bytes() for path in paths)
    home = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "infercast" / hashlib.sha256(text).hexdigest()[:16]
