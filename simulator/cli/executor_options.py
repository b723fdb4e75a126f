"""Options for where a sweep is computed, and where its answers are kept."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from simulator.cli.options import Format
from simulator.cli.output import Result, emit
from simulator.cli.progress import progress_bar
from simulator.executors.choice import executor_named
from simulator.executors.executor import TaskExecutor
from simulator.questions.sweep import QuestionT, SweepAnswers, SweepCase, answers

Jobs = Annotated[
    int | None, Option("--jobs", metavar="N", min=1, help="Processes at most.", show_default="one for each core")
]
ExecutorName = Annotated[
    str, Option("--executor", metavar="dask://HOST:PORT", help="A Dask cluster.", show_default="this machine")
]


@dataclass(frozen=True)
class ExecutorOptions:
    """Options for who answers the cases of a sweep: processes of this machine or a cluster; and for a store."""

    jobs: Jobs = None
    executor: ExecutorName = ""
    store: Annotated[
        Path | None, Option("--store", metavar="FILE", help="Keep each answer; asked again, go on from there (SQLite).")
    ] = None

    def chosen(self) -> TaskExecutor:
        """Return the executor. Raises InfercastError for a name that stands for none."""
        return executor_named(self.executor, self.jobs)

    def answers(self, cases: Sequence[SweepCase[QuestionT]], label: str) -> SweepAnswers[QuestionT]:
        """Return the answers to the cases; on Ctrl-C those that are there. A bar on stderr shows how far it is.

        Raises InfercastError where all are refused, and as executors and stores do; KeyboardInterrupt where an
        interrupt comes before the first answer.
        """
        with progress_bar(label) as told:
            found = answers(cases, self.chosen(), self.store, told)
        if found.interrupted and not found.answered:
            raise KeyboardInterrupt
        return found

    def emit(self, result: Result, form: Format, found: SweepAnswers[Any]) -> None:
        """Write a result; of an interrupted sweep, say what is left, and exit with the code of an interrupt (130)."""
        if not found.interrupted:
            emit(result, form)
            return
        left = f"INTERRUPTED: {len(found.cases) - len(found.known):,} of {len(found.cases):,} cases are not answered"
        on = f"the same command with --store {self.store} goes on" if self.store else "with --store FILE it could go on"
        emit(replace(result, notes=[f"{left}; {on}.", *result.notes]), form)
        if form is Format.CSV:
            sys.stderr.write(f"infercast: {left}; {on}.\n")
        raise typer.Exit(130)
