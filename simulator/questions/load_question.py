"""A question about a load, as `infercast simulate` takes it: deployment, workload, SLO, and how the run is counted."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from simulator.cost.scenario import Scenario
from simulator.cost.slo_rate import MOST_OF_ASKED, within_slo
from simulator.deployment.deployment import Deployment
from simulator.errors import InfercastError
from simulator.executors.program import file_digest
from simulator.questions.asked_columns import asked_columns
from simulator.questions.case_answer import CaseAnswer
from simulator.questions.deployment_question import DeploymentQuestion, loaded
from simulator.questions.load_notes import load_notes, load_remarks
from simulator.questions.load_rows import load_row
from simulator.questions.split_rows import queue_note, split_row
from simulator.questions.words import arguments, as_typed, plain, said
from simulator.questions.workload_question import WorkloadQuestion
from simulator.reports.provenance import Provenance
from simulator.reports.report import Report
from simulator.reports.slo import Slo, parse_slo
from simulator.simulation.engine_loop import Progress
from simulator.simulation.engine_workload import engine_workload
from simulator.simulation.routers import Router
from simulator.workloads.workload import Workload, load_workload


@dataclass(frozen=True)
class SloQuestion:
    """Bounds on latencies, such as "ttft:500ms,tpot:50ms", and the share of requests (0 to 1) that must keep them.

    >>> print(SloQuestion("ttft:500ms", slo_share=0.99).value())
    99% of requests with TTFT <= 500 ms
    """

    slo: str = ""
    slo_share: float = 0.95

    def value(self) -> Slo:
        """Return the SLO. Raises InfercastError or UnitError as `parse_slo` does.

        >>> SloQuestion("ttft:500ms,tpot:50ms").value().bounds_s
        {'ttft': 0.5, 'tpot': 0.05}
        """
        with as_typed(said(self)):
            return parse_slo(self.slo, self.slo_share)


@dataclass(frozen=True)
class RunQuestion:
    """How a load is run and counted; each field is an option of `infercast simulate`, whose help explains it.

    `replicas` identical replicas share the load evenly, and one is simulated; behind a `router` (with `router_workers`)
    all are. `whole_run`: count warm-up and drain. `within_slo`: run at the highest rate near the asked one that keeps
    the SLO. `assume_fits`: requests may be longer than the model's context.

    >>> RunQuestion(replicas=8).serving(WorkloadQuestion(max_concurrency="4")).replicas
    4
    """

    replicas: int = 1
    whole_run: bool = False
    within_slo: bool = False
    assume_fits: bool = False
    router: str = ""
    router_workers: int = 1

    @property
    def routing(self) -> Router | None:
        """The router in front of the replicas; None where they share the load evenly.

        Raises InfercastError for a router that is not known, and for workers of another than least-connections.

        >>> RunQuestion(replicas=8, router="least-connections", router_workers=64).routing.describe()
        'least-connections of 64 workers'
        """
        if self.router:
            return Router(self.router, workers=self.router_workers)
        if self.router_workers != 1:
            given = f"--router-workers {self.router_workers} without --router"
            raise InfercastError(given, "it would change nothing", "Give --router least-connections too")
        return None

    @property
    def shares(self) -> int:
        """Equal parts that the load is shared into: one per replica, or one for all behind a router."""
        return 1 if self.router else self.replicas

    def serving(self, users: WorkloadQuestion) -> Self:
        """Return it with the replicas that serve somebody: without a router, each has a request of --max-concurrency.

        >>> RunQuestion(replicas=8).serving(WorkloadQuestion(max_concurrency="1")).replicas
        1
        """
        return self if self.router else replace(self, replicas=min(self.replicas, users.in_flight or self.replicas))

    def scenario(self, deployment: Deployment, workload: Workload, slo: Slo) -> Scenario:
        """Return one deployment under one workload, ready to simulate."""
        return Scenario(
            deployment,
            workload,
            slo,
            replicas=self.replicas,
            whole_run=self.whole_run,
            assume_fits=self.assume_fits,
            router=self.routing,
        )

    def basis(self, scenario: Scenario) -> list[Provenance]:
        """Return the guesses and fits that the load itself rests on, beside those of the deployment."""
        engine = scenario.deployment.engine
        drifts = engine_workload(scenario.workload, scenario.deployment).lengths != scenario.workload.lengths
        used = [(engine.id, "drift_tokens", engine.drift_tokens)] if drifts else []
        if self.within_slo:
            used.append(("rate within the SLO", "most of asked", MOST_OF_ASKED))
        return [Provenance(profile, name, float(figure), figure.source) for profile, name, figure in used]

    def report(self, scenario: Scenario, progress: Progress | None = None) -> Report:
        """Simulate the load as asked or, with `within_slo`, at the highest rate within the SLO.

        `progress` is called with (requests finished, all requests). Raises as `simulate` and `within_slo` do.
        """
        return within_slo(scenario, progress) if self.within_slo else scenario.simulated(progress)


class SimulatedLoad(NamedTuple):
    """One simulated load: its scenario, the asked rate in requests/s of all replicas (None without one), its report."""

    scenario: Scenario
    rate_per_s: float | None
    report: Report

    def answer(self, level: float, *, explain: bool = False) -> CaseAnswer:
        """Return the figures as one row, with intervals at `level` (0 to 1), and what is said about them.

        `explain` adds the columns of the breakdown of latencies.
        """
        row = {**asked_columns(*self), **load_row(self.scenario, self.report, level)}
        notes, remarks = (tuple(said(self.scenario, self.report)) for said in (load_notes, load_remarks))
        if not explain:
            return CaseAnswer((row,), notes, remarks)
        return CaseAnswer(({**row, **split_row(self.report)},), notes, (*remarks, queue_note(self.report)))


@dataclass(frozen=True)
class LoadQuestion:
    """All that `infercast simulate` is asked: deployments, workload, SLO, and how the run is counted.

    >>> users = WorkloadQuestion(input_len="512", output_len="128", request_rate="1,2")
    >>> asked = LoadQuestion(DeploymentQuestion("llama-3.1-8b", "l40s,h100-sxm"), users)
    >>> [f"{each.deployment.hardware} {each.users.request_rate}" for each in asked.each()]
    ['l40s 1', 'l40s 2', 'h100-sxm 1', 'h100-sxm 2']
    """

    deployment: DeploymentQuestion
    users: WorkloadQuestion
    accepted: SloQuestion = field(default_factory=SloQuestion)
    run: RunQuestion = field(default_factory=RunQuestion)

    def command(self) -> list[str]:
        """Return the command line that asks this question, as a list of words."""
        groups = (self.deployment, self.users, self.accepted, self.run)
        return ["infercast", "simulate", *(word for each in groups for word in arguments(each))]

    def each(self) -> list["LoadQuestion"]:
        """Return a question for every combination of the comma lists, deployments first.

        Raises ProfileError for a name that no profile has, InfercastError or WorkloadError for options that contradict
        each other or lack one.
        """
        self.deployment.choices(), self.accepted.value(), self.run.routing  # refuse at once what nothing can mend
        loads = [plain(WorkloadQuestion, users) for users in self.users.each()]
        asked = [(users, plain(RunQuestion, self.run.serving(users))) for users in loads]
        for users, run in asked:
            users.workloads(run.shares)
        accepted = plain(SloQuestion, self.accepted)
        return [
            LoadQuestion(deployment, users, accepted, run)
            for deployment in self.deployment.each()
            for users, run in asked
        ]

    @property
    def together(self) -> "LoadQuestion":
        """Itself: it shares no work with others (`SweepQuestion.together`)."""
        return self

    def digests(self) -> Iterator[str]:
        """Yield the digests of the files that a question without lists names: profiles, a preset, a trace."""
        yield from self.deployment.digests()
        if self.users.workload:
            yield file_digest(loaded(load_workload, self.users.workload).path)
        if self.users.trace is not None:
            yield file_digest(self.users.trace)

    def scenario(self) -> tuple[Scenario, float | None]:
        """Return the scenario of a question without lists, and its rate in requests/s, None where it has none.

        Raises InfercastError where it is impossible.
        """
        [(rate, workload)] = self.users.workloads(self.run.shares)
        return self.run.scenario(self.deployment.deployment(), workload, self.accepted.value()), rate

    def simulated(self, progress: Progress | None = None) -> SimulatedLoad:
        """Simulate a question without lists. Raises InfercastError where that is impossible."""
        scenario, rate = self.scenario()
        return SimulatedLoad(scenario, rate, self.run.report(scenario, progress))

    def answer(self, level: float = 0.8, *, explain: bool = False) -> CaseAnswer:
        """Return the answer to a question without lists. Raises as `simulated` does."""
        return self.simulated().answer(level, explain=explain)
