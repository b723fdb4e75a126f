"""Options for where a sweep is computed, and where its answers are kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Option

from simulator.cli.progress import progress_bar
from simulator.executors.choice import executor_named
from simulator.executors.executor import TaskExecutor
from simulator.questions.sweep import QuestionT, SweepAnswers, SweepCase, answers

Jobs = Annotated[int | None, Option("--jobs", metavar="N", min=1, help="Cores to use at most.", show_default="all")]
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
        """Return the answers to the cases, as `answers` does, which it raises like. stderr shows how far it is."""
        with progress_bar(label) as progress:
            return answers(cases, self.chosen(), self.store, progress)
