"""The whole question about a load as one value: deployment, users, what they accept, what a device costs."""

from collections import deque
from dataclasses import dataclass, replace
from functools import cached_property

from simulator.deployment.deployment import Deployment
from simulator.deployment.memory import MemoryPlan, memory_plan
from simulator.deployment.memory_advice import refuse_misfit
from simulator.hardware.prices import Offer
from simulator.reports.report import Report, summarize
from simulator.reports.slo import Slo
from simulator.roofline.step_model import StepTable
from simulator.simulation.engine_loop import Progress
from simulator.simulation.replica import simulate_replica
from simulator.simulation.scheduler_limits import refuse_too_long
from simulator.simulation.sent import sent
from simulator.workloads.arrivals import RecordedArrivals
from simulator.workloads.workload import Requests, Workload

ENOUGH_REQUESTS, MOST_DRAWS = 1_000, 5  # of a load of fewer requests, several draws: one is an accident
_TABLES: deque[tuple[Deployment, StepTable]] = deque(maxlen=64)


def simulate(scenario: "Scenario", progress: Progress | None = None) -> Report:
    """Simulate a scenario's workload on one replica, as `infercast simulate` does.

    `progress` is called with (requests finished, all requests). Raises DoesNotFitError for a model without room,
    WorkloadError for requests that no step can take.
    """
    return scenario.simulated(progress)


@dataclass(frozen=True)
class Scenario:
    """A deployment, what users send to it, what they accept, and what a device costs.

    The workload is what one of `replicas` alike ones is sent. `whole`: the run counts from its first request to its
    last token, as load generators count, and not as users see it who go on. `assume_fits`: somebody has run it,
    whatever the model's context says.
    """

    deployment: Deployment
    workload: Workload
    slo: Slo = Slo()
    offer: Offer | None = None
    replicas: int = 1
    whole: bool = False
    assume_fits: bool = False

    @cached_property
    def memory(self) -> MemoryPlan:
        """Where the memory goes; DoesNotFitError for a misfit."""
        plan = memory_plan(self.deployment)
        refuse_misfit(plan)
        return plan

    @cached_property
    def table(self) -> StepTable:
        """The seconds of every step; that of an equal deployment where it is still known, for a sweep asks for many."""
        for known, table in reversed(_TABLES):
            if known == self.deployment:
                return table
        _TABLES.append((self.deployment, self.deployment.step_table()))
        return _TABLES[-1][1]

    def simulated(self, progress: Progress | None = None) -> Report:
        """Simulate the workload; one of few requests up to `MOST_DRAWS` times, each drawn anew, and averaged."""
        draws = [self.report(replace(self.workload, seed=seed), progress) for seed in self._seeds]
        return replace(draws[0], draws=tuple(draws[1:]))

    @property
    def _seeds(self) -> range:
        random = sent(self.workload, self.deployment).is_random
        draws = round(ENOUGH_REQUESTS / self.workload.request_count) if random else 1
        return range(self.workload.seed, self.workload.seed + max(1, min(MOST_DRAWS, draws)))

    def report(self, workload: Workload, progress: Progress | None = None) -> Report:
        """Simulate a workload on one replica. The warm-up of an open loop is dropped, unless the `whole` counts.

        A replayed trace has none, and benchmarks report the whole of a closed loop, its first wave too.
        """
        steady = not (self.whole or workload.arrivals.concurrency or isinstance(workload.arrivals, RecordedArrivals))
        if not self.assume_fits:
            refuse_too_long(self.memory, workload.requests())
        return self._served(sent(workload, self.deployment).requests(), progress, steady=steady)

    def again(self, report: Report, step_factor: float) -> Report:
        """Return the report of the same requests where all steps take so many times as long."""
        slower = self.with_steps(step_factor)

        def redone(each: Report) -> Report:
            made = slower._served(each.run.requests, steady=each.steady)
            return replace(made, skipped=each.skipped, is_limited=each.is_limited, of_asked=each.of_asked)

        return replace(redone(report), draws=tuple(map(redone, report.draws)))

    def with_steps(self, factor: float) -> "Scenario":
        """Return it with all steps `factor` times as long."""
        return replace(self, deployment=replace(self.deployment, step_factor=factor))

    def _served(self, requests: Requests, progress: Progress | None = None, *, steady: bool) -> Report:
        run = simulate_replica(self.deployment, self.table, requests, progress)
        request_s = self.deployment.request_s(run.requests.prompt_tokens)
        report = replace(summarize(run, self.slo, steady=steady, request_s=request_s), replicas=self.replicas)
        if not (steps := 0 if self.deployment.light else self.deployment.engine.gathered_steps):
            return report
        return replace(report, request_s=request_s + steps * report.metrics["tpot"].values["mean"])
