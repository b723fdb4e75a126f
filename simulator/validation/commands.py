"""The command line that asks what a row measured, and where in its JSON the answer stands."""

import shlex
from collections.abc import Iterator, Sequence

from simulator.errors import InfercastError
from simulator.validation.measurements import Measurement, Setup
from simulator.validation.prediction import Asked, ask


def commands(rows: Sequence[Measurement]) -> Iterator[str]:
    """Yield a line of shell for each row: the command, then as a comment its id and the key of its metric in JSON.

    A row that is not predicted is a comment with the reason.
    """
    known: dict[Setup, Asked | InfercastError] = {}
    for row in rows:
        if row.setup not in known:
            known[row.setup] = _asked(row.setup)
        yield _line(row, known[row.setup])


def _asked(setup: Setup) -> Asked | InfercastError:
    try:
        return ask(setup)
    except InfercastError as error:
        return error


def _line(row: Measurement, asked: Asked | InfercastError) -> str:
    named = f"{row.id}: {row.metric} {row.stat}"
    if isinstance(asked, InfercastError):
        return f"# {named}: not predicted: {asked}"
    try:
        key, scale = asked.key_of(row.metric, row.stat)
    except InfercastError as error:
        return f"# {named}: not predicted: {error}"
    question, times = asked.question_about(row.metric), "" if scale == 1 else f"{scale:g} x "
    return f"{shlex.join(question.command())} --format json  # {named} = {times}{key}"
