"""The answer to a question without lists, as a value that travels between processes and lies in a store as text."""

import json
from dataclasses import dataclass
from sys import intern
from typing import Any

from simulator.errors import InfercastError
from simulator.files import parse_json
from simulator.frames import Row


@dataclass(frozen=True)
class CaseAnswer:
    """Rows of figures, and what is said about them.

    `notes`: sentences about one row, which a table of several puts behind the name of the row; `remarks`: more of them,
    for those who ask for details. `refused`: why there is no answer; then there are no rows.
    """

    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    refused: InfercastError | None = None

    def text(self) -> str:
        """Return it as a line of JSON. Floats come back to the bit; a tuple comes back as a list.

        >>> answer = CaseAnswer(({"ttft_s": 0.1, "high": float("inf")},))
        >>> answer.text(), CaseAnswer.read(answer.text()) == answer
        ('{"rows": [{"ttft_s": 0.1, "high": Infinity}], "notes": [], "remarks": []}', True)
        """
        if self.refused is not None:
            return json.dumps({"refused": [self.refused.given, self.refused.because, self.refused.remedy]})
        return json.dumps({"rows": self.rows, "notes": self.notes, "remarks": self.remarks})

    @classmethod
    def read(cls, text: str) -> "CaseAnswer":
        """Return the answer that `text` wrote. Raises InfercastError for another text."""
        try:
            told: dict[str, Any] = parse_json(text)
            if "refused" in told:
                return cls(refused=InfercastError(*told["refused"]))
            rows = ({intern(key): value for key, value in row.items()} for row in told["rows"])  # rows share their keys
            return cls(tuple(rows), tuple(told["notes"]), tuple(told["remarks"]))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InfercastError("a stored answer", f"it cannot be read ({error})", "Give a new --store") from error
