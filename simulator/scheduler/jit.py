"""Numba compilation with a disk cache that is keyed by the text of every compiled module of the package.

Numba's own cache looks at the file of one function only, so it misses changes in functions that this one calls.
"""

import errno
import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, ParamSpec, TypeVar, cast

import numba

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
# No reference counting: the compiled functions neither make nor keep arrays, and counting took two thirds of the time.
# No wrappers for C: nobody calls them, and they took 6 % of the time to compile.
OPTIONS = {"error_model": "numpy", "_nrt": False, "nogil": True, "no_cfunc_wrapper": True}
# Of the package: whatever is compiled, and the types of roofline that compiled functions take
COMPILED = ("scheduler/*.py", "simulation/*.py", "roofline/graphs.py", "roofline/step_model.py")


def inlined(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compile a function into its callers, for small functions where passing the whole state would dominate."""
    return compiled(function, inline="always")


def compiled(function: Callable[Parameters, Result], **options: str) -> Callable[Parameters, Result]:
    """Compile a function on its first call; NUMBA_DISABLE_JIT=1 keeps it Python.

    The machine code is kept on disk, in `cache_folder`. Where that cannot be written each process compiles anew: Numba
    would keep the code beside the source instead, where an edit of another file would not be noticed.
    """
    settings: Any = numba.config
    kept = _can_keep()
    previous, settings.CACHE_DIR = settings.CACHE_DIR, str(cache_folder()) if kept else ""
    try:
        jit: Any = numba.njit
        result: Any = jit(**OPTIONS, cache=kept, **options)(function)
    finally:
        settings.CACHE_DIR = previous
    if result is not function:
        _compile_once_for_all_constants(result)
    if kept and result is not function:
        result._cache.save_overload = partial(_kept_if_possible, result._cache.save_overload)
    return cast(Callable[Parameters, Result], result)


def _kept_if_possible(save: Callable[..., None], *code: Any) -> None:
    """Keep machine code on disk; where that is full, it is used all the same."""
    with suppress(OSError):
        save(*code)


@cache
def _can_keep() -> bool:
    try:
        cache_folder()
    except OSError:
        return False
    return True


def _compile_once_for_all_constants(dispatcher: Any) -> None:
    """Let callers that pass a constant use the version for its type: numba compiles one for each constant otherwise."""
    of_these: Any = dispatcher.get_call_template
    unliteral: Any = numba.types.unliteral

    def of_their_types(kinds: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return of_these(tuple(map(unliteral, kinds)), {name: unliteral(kind) for name, kind in named.items()})

    dispatcher.get_call_template = of_their_types


@cache
def cache_folder() -> Path:
    """Return the folder that keeps the machine code of these sources. Raises OSError where it cannot be written."""
    package = Path(__file__).parents[1]
    paths = sorted(path for pattern in COMPILED for path in package.glob(pattern))
    text = b"".join(path.read_bytes() for path in paths)
    home = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or _home() / ".cache"
    folder = Path(home) / "infercast" / hashlib.sha256(text).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=folder):
        return folder


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:  # a user without a name, as containers have
        raise OSError(errno.ENOENT, "there is no home", "~") from error
