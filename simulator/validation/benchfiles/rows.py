"""What the readers of result files share: rows by the columns of measurements, what the user states, and checks."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from simulator.errors import NotModelledError, ProfileError
from simulator.models.model import checkpoint

Cells = dict[str, Any]  # by the columns of measurements; a column that a file does not state is left out
POOLED = " of pooled gaps"  # ends the statistic of an itl_ms over all gaps of all requests, not over requests' means

VARIED = 0.3  # coefficient of variation from which lengths count as those of a data set


@dataclass(frozen=True, slots=True)
class Stated:
    """What a user says about the runs of a file, by columns of measurements; "" and 0 are not said."""

    hardware: str = ""
    n_gpus: int = 0
    tp: int = 0
    pp: int = 0
    model: str = ""
    weight_dtype: str = ""
    kv_dtype: str = ""
    engine: str = ""
    engine_version: str = ""
    input_len: float = 0
    output_len: float = 0
    batch: int = 0
    concurrency: int = 0
    request_rate: float = 0

    def cells(self) -> Cells:
        """Return what was said, by column."""
        return {name: value for name, value in asdict(self).items() if value}


NEEDED = {  # of every row: how to name it, and the flag that states it
    "hardware": ("hardware", "--hardware NAME"),
    "model": ("model", "--model NAME"),
    "engine": ("engine", "--engine NAME"),
    "engine_version": ("engine's version or the date", "--engine-version N"),
    "tp": ("tensor parallelism", "--tp N"),
    "input_len": ("prompt length", "--input-len N"),
    "output_len": ("output length", "--output-len N"),
    "regime": ("load", "--max-concurrency N or --rate N"),
}
ASKED = NEEDED | {"batch": ("batch size", "--batch N")}  # a reader that needs it sets it to None


def completed(cells: Cells, stated: Stated, path: Path, tool: str) -> Cells:
    """Return a row of a file, with what the user states in place of what the file says.

    Raises ProfileError where a needed column is neither in the file nor stated; it names all of them and their flags.
    """
    whole: Cells = {"source": f"{tool}, {path.name}", **cells, **stated.cells()}
    if "regime" not in whole:
        whole |= arrivals(number_or_none(whole.get("concurrency")), number_or_none(whole.get("request_rate")))
    if whole.get("source_date"):
        whole.setdefault("engine_version", "")
    whole = dict.fromkeys(NEEDED) | whole
    missing = [ASKED[name] for name in whole if name in ASKED and whole[name] is None]
    if missing:
        because = f"a file of {tool} does not state the {', the '.join(word for word, _ in missing)}"
        raise ProfileError(str(path), because, f"Give {', '.join(flag for _, flag in missing)}")
    return whole


def arrivals(concurrency: float | None, rate_per_s: float | None) -> Cells:
    """Return the columns that say how requests arrived; none where neither a limit in flight nor a rate (1/s) is known.

    >>> arrivals(8, math.inf)["regime"], arrivals(None, 2.0)["regime"], arrivals(None, math.inf)["regime"]
    ('closed_loop', 'open_loop', 'offline')
    """
    finite = rate_per_s is not None and math.isfinite(rate_per_s)
    if concurrency and finite:
        return not_predicted({}, f"rate {rate_per_s:g}/s held back to {int(concurrency)} in flight")
    if concurrency:
        return {"regime": "closed_loop", "concurrency": concurrency}
    if rate_per_s is None:
        return {}
    return {"regime": "open_loop" if finite else "offline", "request_rate": rate_per_s}


def not_predicted(cells: Cells, because: str) -> Cells:
    """Return the columns of a run of which something is not modelled: it is listed with `because` and not predicted."""
    return cells | {"not_modelled": because, "regime": ""}


def measured(cells: Cells, figures: Iterable[tuple[str, str, float | None]]) -> Iterator[Cells]:
    """Yield one row per figure (metric, stat, value) that is a number above 0."""
    for metric, stat, value in figures:
        if value is not None and 0 < value < math.inf:
            yield {**cells, "metric": metric, "stat": stat, "value": value}


def model_named(name: object) -> Cells:
    """Return the model profile and number format that a checkpoint's name or path tells; else the name itself.

    >>> model_named("/models/Llama-3.1-8B-Instruct-FP8"), model_named("me/mine")
    ({'model': 'llama-3.1-8b', 'weight_dtype': 'fp8'}, {'model': 'me/mine'})
    """
    if not name:
        return {}
    try:
        model, stored = checkpoint(str(name))
    except (ProfileError, NotModelledError):
        return {"model": name}  # it is named as missing, or why it is not modelled, later
    return {"model": model.id, **({"weight_dtype": stored} if stored else {})}


def number_or_none(value: object) -> float | None:
    """Return a number, from text too; None for anything else.

    >>> number_or_none("1,146.31"), number_or_none("inf"), number_or_none(None), number_or_none(True)
    (1146.31, inf, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value.replace(",", "")) if isinstance(value, str) else float(value)
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(found) else found


def inside(document: object, *path: str) -> Any:
    """Return the value under nested keys; None where one is missing.

    >>> inside({"a": {"b": 1}}, "a", "b"), inside({"a": []}, "a", "b")
    (1, None)
    """
    for key in path:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document


def ratio(total: object, parts: object) -> float | None:
    """Return total / parts; None where one is no number above 0."""
    whole, count = number_or_none(total), number_or_none(parts)
    return whole / count if whole and count and 0 < whole / count < math.inf else None
