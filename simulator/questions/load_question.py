"""A question about a load, as `infercast simulate` takes it: deployment, workload, SLO, and how the run is counted."""

from dataclasses import dataclass, field, replace
from typing import Self

from simulator.cost.scenario import Scenario
from simulator.cost.slo_rate import MOST_OF_ASKED, SHARE_SERVED, within_slo
from simulator.deployment.deployment import Deployment
from simulator.questions.deployment_question import DeploymentQuestion
from simulator.questions.words import arguments
from simulator.questions.workload_question import WorkloadQuestion
from simulator.reports.provenance import Provenance
from simulator.reports.report import Report
from simulator.reports.slo import Slo, parse_slo
from simulator.simulation.engine_loop import Progress
from simulator.simulation.sent import sent
from simulator.workloads.workload import Workload


@dataclass(frozen=True)
class SloQuestion:
    """Bounds on latencies, such as "ttft:500ms,tpot:50ms", and the share of requests (0 to 1) that must keep them."""

    slo: str = ""
    slo_share: float = 0.95

    def value(self) -> Slo:
        """Return the SLO. Raises InfercastError or UnitError as `parse_slo` does.

        >>> SloQuestion("ttft:500ms,tpot:50ms").value().bounds_s
        {'ttft': 0.5, 'tpot': 0.05}
        """
        return parse_slo(self.slo, self.slo_share)


@dataclass(frozen=True)
class RunQuestion:
    """How a load is run and counted; each field is an option of `infercast simulate`, whose help explains it.

    `replicas` identical replicas share the load evenly, and one is simulated. `whole_run`: count warm-up and drain.
    `within_slo`: run at the highest rate near the asked one that keeps the SLO. `assume_fits`: requests may be longer
    than the model's context.
    """

    replicas: int = 1
    whole_run: bool = False
    within_slo: bool = False
    assume_fits: bool = False

    def serving(self, users: WorkloadQuestion) -> Self:
        """Return it with the replicas that serve somebody: each has at least one of --max-concurrency requests.

        >>> RunQuestion(replicas=8).serving(WorkloadQuestion(max_concurrency="1")).replicas
        1
        """
        return replace(self, replicas=min(self.replicas, users.in_flight or self.replicas))

    def scenario(self, deployment: Deployment, workload: Workload, slo: Slo) -> Scenario:
        """Return one deployment under one workload, ready to simulate."""
        return Scenario(
            deployment, workload, slo, replicas=self.replicas, whole_run=self.whole_run, assume_fits=self.assume_fits
        )

    def basis(self, scenario: Scenario) -> list[Provenance]:
        """Return the guesses and fits that the load itself rests on, beside those of the deployment."""
        engine = scenario.deployment.engine
        drifts = sent(scenario.workload, scenario.deployment).lengths != scenario.workload.lengths
        used = [(engine.id, "drift_tokens", engine.drift_tokens)] if drifts else []
        if self.within_slo:
            used += [
                ("rate within the SLO", "share served", SHARE_SERVED),
                ("rate within the SLO", "most of asked", MOST_OF_ASKED),
            ]
        return [Provenance(profile, name, float(figure), figure.source) for profile, name, figure in used]

    def report(self, scenario: Scenario, progress: Progress | None = None) -> Report:
        """Simulate the load as asked or, with `within_slo`, at the highest rate within the SLO.

        `progress` is called with (requests finished, all requests). Raises as `simulate` and `within_slo` do.
        """
        return within_slo(scenario, progress) if self.within_slo else scenario.simulated(progress)


@dataclass(frozen=True)
class LoadQuestion:
    """All that `infercast simulate` is asked: deployments, workload, SLO, and how the run is counted."""

    deployment: DeploymentQuestion
    users: WorkloadQuestion
    accepted: SloQuestion = field(default_factory=SloQuestion)
    run: RunQuestion = field(default_factory=RunQuestion)

    def command(self) -> list[str]:
        """Return the command line that asks this question, as a list of words."""
        groups = (self.deployment, self.users, self.accepted, self.run)
        return ["infercast", "simulate", *(word for each in groups for word in arguments(each))]
