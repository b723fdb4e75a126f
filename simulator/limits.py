"""Bounds of what may be asked for: ranges of plain numbers, and the memory that this machine has.

Generous, so that nobody meets them who means what he asks; without them one number asks for more than a machine has.
"""

import math
from numbers import Integral
from pathlib import Path

from simulator.errors import InfercastError
from simulator.units import LEAST, gibibytes

MOST_WHOLE = 2**31 - 1  # of anything counted: sums of two fit into 64 bits, and products too
MOST_NUMBER = 1e15  # of a number without a unit: tokens of all training runs together are fewer
MEMINFO, STATM, CONTAINER = Path("/proc/meminfo"), Path("/proc/self/statm"), Path("/sys/fs/cgroup")
SMALL_BYTES = 50e6  # of which any machine has enough: not worth a look
USUAL_BYTES = 8e9  # of memory, where the system does not tell
_SPARE = 0.8  # share of the free memory that one array of answers may take: others need some, too


def in_range(value: float, given: str, most: float = MOST_NUMBER) -> float:
    """Return a number of either sign up to `most`. `given` is what an error names.

    Raises InfercastError for numbers beyond, infinity and NaN, and for those that are closer to 0 than `units.LEAST`.

    >>> in_range(8.5, "--cpu-offload-gb 8.5")
    8.5
    """
    if not abs(value) <= most:
        raise InfercastError(given, f"it is not a number up to {most:,.0f}", f"Give {most:g} at most")
    if 0 < abs(value) < LEAST:
        raise InfercastError(given, f"it is less than {LEAST:g}, and not 0", f"Give 0, or {LEAST:g} at least")
    return value


def is_whole(value: object) -> bool:
    """Tell whether a value is a whole number, Python's or NumPy's: a column of pandas has the latter.

    >>> import numpy as np
    >>> is_whole(8), is_whole(np.int64(8)), is_whole(8.0), is_whole("8")
    (True, True, False, False)
    """
    return isinstance(value, Integral)


def known(value: float) -> float | None:
    """Return a number, None for one that is not finite: what is not known, or has no price, is left out.

    >>> known(2.5), known(math.nan), known(math.inf)
    (2.5, None, None)
    """
    return value if math.isfinite(value) else None


def free_bytes() -> float:
    """Return the memory in bytes that this process may still take: of the machine, its container and its own limit."""
    return min(machine_bytes(), _container_bytes(), _process_bytes())


def machine_bytes() -> float:
    """Return the memory in bytes that programs may still take, files in the page cache included."""
    if MEMINFO.is_file():
        for line in MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024
    return USUAL_BYTES


def _container_bytes() -> float:
    """Return what a container (cgroup v2) leaves, infinity outside of one; cached files can be given up."""
    try:
        most = (CONTAINER / "memory.max").read_text(encoding="ascii").strip()
        told = dict(line.split() for line in (CONTAINER / "memory.stat").read_text(encoding="ascii").splitlines())
    except OSError:
        return math.inf
    return math.inf if most == "max" else float(most) - float(told.get("anon", 0))


def _process_bytes() -> float:
    """Return what `ulimit -v` leaves, infinity without it."""
    try:
        import resource  # noqa: PLC0415  Windows lacks it

        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        held = float(STATM.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        return math.inf
    return math.inf if most == resource.RLIM_INFINITY else most - held


def refuse_beyond_memory(given: str, needed_bytes: float, remedy: str) -> None:
    """Raise InfercastError where an answer would take more than a share of the memory that is free here.

    >>> refuse_beyond_memory("1000 requests", 1e5, "Ask for fewer")
    """
    if needed_bytes < SMALL_BYTES:
        return
    usable_bytes = _SPARE * free_bytes()
    if needed_bytes > usable_bytes:
        because = f"it would take {gibibytes(needed_bytes, 1)} of memory, where {gibibytes(usable_bytes, 1)} is free"
        raise InfercastError(given, because, remedy)
