"""Sweeps: every combination of a question's lists, answered by an executor, and gone on with from a store."""

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from simulator.errors import InfercastError, InterruptedSweepError
from simulator.executors.choice import executor_named
from simulator.executors.executor import TaskExecutor
from simulator.executors.program import program_digest
from simulator.executors.results_store import ResultsStore
from simulator.frames import Framed, Row, frame
from simulator.questions.case_answer import CaseAnswer
from simulator.reports.intervals import refuse_level

if TYPE_CHECKING:
    import pandas as pd

    from simulator.simulation.engine_loop import Progress


class SweepQuestion(Protocol):
    """A question whose comma lists make several cases; frozen, and small when pickled."""

    def each(self) -> Sequence[Self]:
        """Return a question without lists for each case."""

    @property
    def together(self) -> Hashable:
        """What cases share that one process had better answer one after the other; of most each has its own."""

    def command(self) -> list[str]:
        """Return the command line that asks it: its canonical form."""

    def digests(self) -> Iterator[str]:
        """Yield the digests of the files that it names."""

    def answer(self, level: float, *, explain: bool) -> CaseAnswer:
        """Return the answer to a question without lists. Raises InfercastError where there is none."""


QuestionT = TypeVar("QuestionT", bound=SweepQuestion)


@dataclass(frozen=True)
class SweepCase(Generic[QuestionT]):
    """A question without lists, the share of measurements that intervals hold, and whether times are broken down."""

    question: QuestionT
    level: float = 0.8
    explain: bool = False

    @property
    def asked(self) -> str:
        """What is asked, as a digest: the question, and the files that are named.

        Raises ProfileError for a name that no profile has.
        """
        parts = (*self.question.command(), f"{self.level!r} {self.explain}", *self.question.digests())
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    @property
    def key(self) -> str:
        """What the answer follows from, as a digest: what is asked, and the program. Raises as `asked` does."""
        return _key(self.asked)

    def answer(self) -> CaseAnswer:
        """Return the answer, or why there is none."""
        try:
            return self.question.answer(self.level, explain=self.explain)
        except InfercastError as error:
            return CaseAnswer(refused=error)


@dataclass(frozen=True, repr=False)
class SweepAnswers(Framed, Generic[QuestionT]):
    """Answers to the cases of a sweep, in their order, as far as they are known.

    `store`: the file that keeps them; `interrupted`: by Ctrl-C.
    """

    cases: Sequence[SweepCase[QuestionT]]
    known: dict[int, CaseAnswer] = field(default_factory=dict)
    store: Path | str | None = None
    interrupted: bool = False

    @property
    def answered(self) -> list[tuple[SweepCase[QuestionT], CaseAnswer]]:
        """The cases that have an answer, with it."""
        found = ((self.cases[place], self.known[place]) for place in sorted(self.known))
        return [(case, answer) for case, answer in found if answer.refused is None]

    @property
    def rows(self) -> list[Row]:
        """The rows of all answers."""
        return [row for _, answer in self.answered for row in answer.rows]

    @property
    def refused(self) -> list[InfercastError]:
        """Why cases have no answer; the last error is of those that an interrupt left."""
        given = [self.known[place].refused for place in sorted(self.known)]
        if self.interrupted:
            remedy = f"Ask again with --store {self.store}" if self.store else "Give --store FILE, and it would go on"
            given.append(InterruptedSweepError.of(len(self.cases) - len(self.known), len(self.cases), remedy))
        return [error for error in given if error is not None]

    def to_frame(self) -> "pd.DataFrame":
        """Return one row per answer: the keys of the command line's csv."""
        return frame(self.rows)


def sweep(
    question: QuestionT,
    executor: TaskExecutor | str = "",
    store: Path | str | None = None,
    level: float = 0.8,
    jobs: int | None = None,
) -> SweepAnswers[QuestionT]:
    """Answer every combination of a question's comma lists, by `jobs` processes or by the cluster that `executor` says.

    `jobs`: None is one for each core; they start when the work turns out to be long, and import the script that asks:
    ask below `if __name__ == "__main__":`. `executor`: "dask://HOST:PORT" (extra `cluster`), or a `TaskExecutor`. The
    answers are the same to the bit. `store`: a file (SQLite) that keeps each answer once it is there; asked again, even
    after an interrupt or a crash, only what is not in it is computed. `level`: share of measurements that intervals
    hold, above 0 and up to 0.95. A case that is impossible is in `refused`.

    Raises InfercastError where all cases are impossible, and for a question that is wrong in every case.

    >>> from simulator import BatchQuestion, BatchSizes, DeploymentQuestion
    >>> asked = BatchQuestion(DeploymentQuestion("llama-3.1-8b", "l40s,h100-sxm"), BatchSizes("1,8"))
    >>> sweep(asked).to_frame()[["hardware", "batch", "cache_dtype"]].values.tolist()
    [['l40s', 1, 'bf16'], ['l40s', 8, 'bf16'], ['h100-sxm', 1, 'bf16'], ['h100-sxm', 8, 'bf16']]
    """
    refuse_level(level)
    if not hasattr(question, "each"):
        because = "a sweep answers a question with comma lists"
        raise InfercastError(f"sweep({question!r})", because, "Give a BatchQuestion, a LoadQuestion or a CostQuestion")
    cases = [SweepCase(each, level) for each in question.each()]
    chosen = executor_named(executor, jobs) if isinstance(executor, str) else executor
    found = answers(cases, chosen, store)
    if found.interrupted:
        raise KeyboardInterrupt
    return found


def answers(
    cases: Sequence[SweepCase[QuestionT]],
    executor: TaskExecutor,
    store: Path | str | None = None,
    progress: "Progress" = lambda _finished, _all: None,
) -> SweepAnswers[QuestionT]:
    """Return the answers to some cases. Ctrl-C ends it early, with those that are there (`interrupted`).

    `progress` is called with (cases that are answered, all cases).

    Every answer passes through its text (`CaseAnswer.text`), so that one from the store is the same to the bit. Raises
    the first refusal where all cases are refused, KeyboardInterrupt where it comes before the first answer, and
    InfercastError as executors and stores do.
    """
    answered: dict[int, CaseAnswer] = {}
    interrupted = False
    places: dict[str, list[int]] = {}
    for place, case in enumerate(cases):
        places.setdefault(case.asked, []).append(place)
    with ResultsStore.opened(Path(store)) if store is not None else nullcontext() as kept:

        def take(asked: str, text: str) -> None:
            answered.update(dict.fromkeys(places[asked], CaseAnswer.read(text)))
            progress(len(answered), len(cases))

        by_key = {_key(asked): asked for asked in places} if kept else {}

        def take_stored() -> None:
            for key, text in (kept.known(by_key) if kept else {}).items():
                if places[by_key[key]][0] not in answered:
                    take(by_key[key], text)

        take_stored()
        left = [(cases[where[0]], asked) for asked, where in places.items() if where[0] not in answered]
        tasks = _tasks(left)
        try:
            for place, texts in executor.finished(_answer_texts, tasks):
                for (case, asked), text in zip(tasks[place], texts, strict=True):
                    if kept:
                        kept.put(_key(asked), " ".join(case.question.command()), text)
                    take(asked, text)
        except KeyboardInterrupt:
            interrupted = True
            take_stored()  # the last may be stored and not taken yet
    found = SweepAnswers(cases, answered, store, interrupted)
    if found.refused and not found.answered:
        raise KeyboardInterrupt if found.interrupted else found.refused[0]
    return found


def _key(asked: str) -> str:
    return hashlib.sha256(f"{program_digest()}\0{asked}".encode()).hexdigest()


Keyed = tuple[SweepCase[Any], str]  # a case and the digest of what is asked


def _tasks(keyed: Iterable[Keyed]) -> list[list[Keyed]]:
    """Return the cases in bundles that share work, in the order of their first ones."""
    found: dict[Hashable, list[Keyed]] = {}
    for case, asked in keyed:
        found.setdefault(case.question.together, []).append((case, asked))
    return list(found.values())


def _answer_texts(task: list[Keyed]) -> list[str]:
    """Return the texts of answers, wherever this runs. Raises InfercastError where files differ from the asker's."""
    texts = []
    for case, asked in task:
        if case.asked != asked:
            given = " ".join(case.question.command())
            remedy = "Mount the same folder at the same path everywhere"
            raise InfercastError(given, "a file that it names has another content where it is answered", remedy)
        texts.append(case.answer().text())
    return texts
