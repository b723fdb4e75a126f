"""Answers that are tables: `to_frame()` makes a data frame of them, and a notebook shows it."""

from collections.abc import Iterable, Mapping
from math import isnan
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[str, Any]  # values by column
MOST_ROWS = 20  # that a notebook shows; `to_frame()` has all


def cell(value: Any) -> str:
    """Return a cell as text: floats with four significant digits, nothing for what is missing.

    >>> cell(1234.5678), cell(0.000123456), cell(59_112_345_678.9), cell(8030261248), cell(float("nan")), cell("vllm")
    ('1,235', '0.0001235', '59,110,000,000', '8,030,261,248', '', 'vllm')
    """
    if value is None or (isinstance(value, float) and isnan(value)):
        return ""
    if isinstance(value, bool) or not isinstance(value, Real):
        return str(value)
    if isinstance(value, Integral):
        return f"{value:,}"
    rounded = float(f"{value:.4g}")
    return f"{rounded:,.0f}" if 1e4 <= abs(rounded) < 1e15 else f"{rounded:,.4g}"


def frame(rows: Iterable[Row | tuple[Any, ...]], *names: str) -> "pd.DataFrame":
    """Return rows, mappings or named tuples, as a data frame; `names`: columns that name its rows.

    >>> frame([{"part": "weights", "bytes": 16.0}], "part").loc["weights", "bytes"].item()
    16.0
    """
    import pandas as pd  # noqa: PLC0415  takes half a second

    found = pd.DataFrame(list(rows))
    return found.set_index(list(names)) if names else found


class Framed:
    """An answer that is shown as its table: in notebooks as HTML, else as text. Its data class has `repr=False`."""

    __slots__ = ()

    def to_frame(self) -> "pd.DataFrame":
        """Return the answer as a table."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        import pandas as pd  # noqa: PLC0415  takes half a second

        frame = self.to_frame()
        with pd.option_context("display.max_colwidth", None):  # a browser folds what is long
            table = frame.head(MOST_ROWS).map(cell).to_html(border=0, index=_has_names(frame))
        return f"{table}<p>{_left_out(frame)}</p>"

    def __repr__(self) -> str:
        frame = self.to_frame()
        table = frame.head(MOST_ROWS).map(cell).to_string(index=_has_names(frame), max_colwidth=60)
        return f"{table}\n{_left_out(frame)}".rstrip()


def _left_out(frame: "pd.DataFrame") -> str:
    return f"{MOST_ROWS} of {len(frame):,} rows; to_frame() has all." if len(frame) > MOST_ROWS else ""


def _has_names(frame: "pd.DataFrame") -> bool:
    """Tell whether the rows have names, or numbers alone."""
    return any(frame.index.names)
