"""A plot as a file.

Matplotlib is imported with this module, which takes half a second: import it only where a plot is asked for.
"""

import io
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.text import Text

from simulator.errors import InfercastError
from simulator.files import write_whole

ENDINGS = (".png", ".svg", ".pdf")


def save(figure: Figure, path: Path) -> None:
    """Write a plot to a file in the format of its ending (.png, .svg or .pdf); equal plots, equal bytes.

    Raises InfercastError for another ending and if the file cannot be written.
    """
    if path.suffix.lower() not in ENDINGS:
        raise InfercastError(f"--plot {path}", "its ending names no format", f"Use one of {', '.join(ENDINGS)}")
    for text in figure.findobj(Text):  # a name of the user's with two $ is no formula; tick labels of ours are
        if isinstance(text, Text) and "$" in text.get_text() and "\\math" not in text.get_text():
            text.set_parse_math(False)
    buffer = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "infercast"}):  # a fixed salt, so that equal plots give equal files
        figure.savefig(buffer, format=path.suffix[1:].lower(), dpi=150, metadata=_without_date(path))
    write_whole(path, buffer.getvalue(), "--plot")


def _without_date(path: Path) -> dict[str, None]:
    """Return the metadata that keeps the date of drawing out of a file."""
    return {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower(), {})
