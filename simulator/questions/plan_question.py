"""How a load grows by the month and what a fleet keeps in reserve, as options of `infercast plan` say it."""

from dataclasses import dataclass

from simulator.cost.fleet_sizing import GrowingLoad, Scaling
from simulator.cost.plan import FleetPlan
from simulator.deployment.deployment import Deployment
from simulator.errors import InfercastError, WorkloadError
from simulator.questions.client_question import SessionQuestion, curve_of
from simulator.questions.service_question import LINK_BANDWIDTH, LOAD_RATE, cold_start
from simulator.questions.words import refuse_idle, share, whole_numbers
from simulator.reports.provenance import Provenance
from simulator.simulation.disaggregation import LINK_BYTES_PER_S, LINK_LATENCY_S
from simulator.units import parse
from simulator.workloads.arrivals import OpenLoop


@dataclass(frozen=True)
class PlanQuestion(SessionQuestion):
    """How the load grows, its sessions, and what a fleet keeps in reserve; each field is an option of `infercast plan`.

    Raises InfercastError for options that contradict each other, and for one that changes nothing without another.

    >>> PlanQuestion(growth="10%", months=3).demand(OpenLoop(2.0)).growth_per_month
    0.1
    """

    growth: str = "0%"
    months: int = 12
    rate_curve: str = ""
    headroom: str = "10%"
    spare: int = 0
    cold_start: str = ""
    load_rate: str = LOAD_RATE
    disaggregate: bool = False
    link_bandwidth: str = LINK_BANDWIDTH
    split_prompts: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.turns > 1 and self.split_prompts:
            given = f"--split-prompts {self.split_prompts} with --turns {self.turns}"
            raise InfercastError(given, "a session's prompts grow from one fleet into the other", "Give one of the two")
        refuse_idle(self, {"disaggregate": ("link_bandwidth",)})

    def in_pools(self, mixed: FleetPlan) -> tuple[FleetPlan, FleetPlan]:
        """Return a plan, and the same with fleets in two pools. Raises as `FleetPlan.in_pools` does."""
        return mixed, mixed.in_pools(parse(self.link_bandwidth, "bytes_per_s"))

    def thresholds(self) -> list[int]:
        """Return the lengths of prompts at which two fleets are tried. Raises InfercastError for what is no list."""
        return whole_numbers(self.split_prompts, "--split-prompts") if self.split_prompts else []

    def guesses(self) -> list[Provenance]:
        """Return the guesses of a search for pools: what the user did not give."""
        found = {"link_latency_s": LINK_LATENCY_S}
        if self.link_bandwidth == LINK_BANDWIDTH:
            found["link_bandwidth"] = LINK_BYTES_PER_S
        return [Provenance("fleet", name, float(each), each.source) for name, each in found.items()]

    def demand(self, arrivals: object) -> GrowingLoad:
        """Return the rates of every month. Raises InfercastError for anything but an open loop, and for no share."""
        if not isinstance(arrivals, OpenLoop):
            given = "a plan without a rate of its own"
            raise WorkloadError(given, "only a rate grows by the month", "Give --request-rate and no trace")
        curve = curve_of(self.rate_curve, arrivals) if self.rate_curve else arrivals
        return GrowingLoad(curve, share(self.growth, "--growth"), self.months)

    def scaling(self, deployment: Deployment) -> Scaling:
        """Return what starting a replica takes."""
        return Scaling(cold_start(self.cold_start, self.load_rate, deployment))
