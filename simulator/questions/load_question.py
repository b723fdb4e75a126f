"""A question about a load: which deployment, what users send, how the run is counted; and its answer."""

from dataclasses import dataclass, field

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
    """What users accept."""

    slo: str = ""
    slo_share: float = 0.95

    def value(self) -> Slo:
        """Return the bounds."""
        return parse_slo(self.slo, self.slo_share)


@dataclass(frozen=True)
class RunQuestion:
    """How a load is run and counted; each field is an option of `infercast simulate`, whose help explains it."""

    replicas: int = 1
    whole_run: bool = False
    within_slo: bool = False
    assume_fits: bool = False

    def scenario(self, deployment: Deployment, workload: Workload, slo: Slo) -> Scenario:
        """Return the question about one deployment and one workload as a value."""
        return Scenario(
            deployment, workload, slo, replicas=self.replicas, whole_run=self.whole_run, assume_fits=self.assume_fits
        )

    def basis(self, scenario: Scenario) -> list[Provenance]:
        """Return the figures that the load itself rests on, beside those of the deployment."""
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
        """Return the answer: the load as asked, or at the highest rate within the SLO."""
        return within_slo(scenario, progress) if self.within_slo else scenario.simulated(progress)


@dataclass(frozen=True)
class LoadQuestion:
    """What `infercast simulate` is asked."""

    deployment: DeploymentQuestion
    users: WorkloadQuestion
    accepted: SloQuestion = field(default_factory=SloQuestion)
    run: RunQuestion = field(default_factory=RunQuestion)

    def command(self) -> list[str]:
        """Return the command line that asks it."""
        groups = (self.deployment, self.users, self.accepted, self.run)
        return ["infercast", "simulate", *(word for each in groups for word in arguments(each))]
