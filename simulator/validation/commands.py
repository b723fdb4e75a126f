"""For a measured row, the command line that asks what it measured, and the key of the answer in the command's JSON."""

import shlex
from collections.abc import Iterator, Sequence

from simulator.errors import InfercastError
from simulator.validation.measurements import Measurement, Setup
from simulator.validation.prediction import Asked, ask


def row_commands(rows: Sequence[Measurement]) -> Iterator[str]:
    """Yield a line of shell for each row: the command, then as a comment the row's id and the JSON key of its metric.

    A row that cannot be predicted is a comment with the reason.
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
