"""The day of a question: prices age from it, and what is made carries it."""

import datetime
import os

from simulator.errors import InfercastError

TODAY = "INFERCAST_DATE"  # environment variable: the day of the question, for outputs that stay the same


def today() -> datetime.date:
    """Return the day of the question: that of the environment variable `TODAY`, or the clock's.

    Raises InfercastError where the variable is no date.
    """
    given = os.environ.get(TODAY)
    try:
        return datetime.date.fromisoformat(given) if given else datetime.date.today()
    except ValueError as error:
        raise InfercastError(f"{TODAY}={given}", "it is no date", "Give it as 2026-11-23") from error
