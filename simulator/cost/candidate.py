"""A deployment that a search may choose, and what is learnt of it, wherever that is computed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from simulator.cost.capacity import Answer, answer
from simulator.cost.energy import busy_watts
from simulator.cost.lower_bounds import LowerBounds, lower_bounds
from simulator.cost.scenario import Scenario
from simulator.cost.spot import Interruptions
from simulator.deployment.deployment import Deployment
from simulator.errors import InfercastError
from simulator.hardware.hardware import Hardware
from simulator.hardware.prices import Offer
from simulator.models.layout import Layout
from simulator.models.model import Model
from simulator.reports.report import Report
from simulator.reports.slo import Slo
from simulator.workloads.workload import Workload


class Rental(NamedTuple):
    """Replicas that have to be paid for: on which device, and of how many of it each.

    `start_s`: seconds until a replica serves, for which spot instances need spare ones. `busy_w`: power in watts of all
    replicas beyond that of waiting devices, which owned ones pay; 0 where electricity is in the price.
    """

    hardware: Hardware
    devices: int
    replicas: int = 1
    start_s: float = 0.0
    busy_w: float = 0.0


@dataclass(frozen=True)
class Candidate:
    """A deployment that may be the answer: `build` makes it or raises InfercastError.

    `device_s`: seconds of one device that a request takes at least, by the data sheet (`LightBounds`). `order` is
    among candidates of equal cost: the lowest is taken, and the others are said to cost the same. `engine`: its name.
    """

    model: Model
    hardware: Hardware
    layout: Layout
    device_s: float
    build: Callable[[Layout], Deployment]
    order: int = 0
    engine: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """The model and the device, of which only the best candidate is an answer."""
        return self.model.id, self.hardware.id

    @property
    def devices(self) -> int:
        """Devices of one replica."""
        return self.layout.devices

    def rental(self, replicas: int, start_s: float, busy_w: float) -> Rental:
        """Return so many replicas of it, as a price is asked for them."""
        return Rental(self.hardware, self.devices, replicas, start_s, busy_w)


class BoundedCandidate(NamedTuple):
    """Bounds of a candidate; the highest rate within the SLO, in requests/s, and the metric missed at any, or ""."""

    bounds: LowerBounds
    most_per_s: float
    never: str


class TriedReplicas(NamedTuple):
    """Whether a number of replicas, each with its share of the rate in requests/s, keeps the SLO.

    `busy_w`: power in watts of all of them beyond that of waiting devices; 0 where electricity is in the price.
    """

    replicas: int
    share_per_s: float
    keeps: bool
    busy_w: float


class BoundLookup(NamedTuple):
    """A candidate to be built, and the load, at the asked rate, that its own steps bound.

    `quantile`: of the measurements, the share whose steps take less.
    """

    candidate: Candidate
    workload: Workload
    slo: Slo
    offers: tuple[Offer, ...]
    interruptions: Interruptions
    quantile: float


class LoadLookup(NamedTuple):
    """A scenario to be simulated at a share of the asked rate, in requests/s."""

    scenario: Scenario
    replicas: int
    share_per_s: float


class AnswerLookup(NamedTuple):
    """A scenario whose highest rate is searched, and the asked rate, in requests/s."""

    scenario: Scenario
    rate_per_s: float


def extra_watts(scenario: Scenario, report: Report, replicas: int) -> float:
    """Return the power in watts of replicas beyond that of waiting devices; 0 where electricity is in the price."""
    is_extra = any(each.usd_per_kwh for each in scenario.offers)
    return replicas * busy_watts(scenario.deployment, report) if is_extra else 0.0


def learned_of(
    asked: BoundLookup | LoadLookup | AnswerLookup,
) -> BoundedCandidate | TriedReplicas | Answer | InfercastError:
    """Look something up, wherever this runs; an error is told, not raised."""
    try:
        if isinstance(asked, AnswerLookup):
            return answer(asked.scenario, asked.rate_per_s)
        if isinstance(asked, LoadLookup):
            scenario = asked.scenario
            report = scenario.report(scenario.workload.at_rate(asked.share_per_s))
            busy_w = extra_watts(scenario, report, asked.replicas)
            return TriedReplicas(asked.replicas, asked.share_per_s, report.meets_slo, busy_w)
        built = asked.candidate.build(asked.candidate.layout)
        scenario = Scenario(built, asked.workload, asked.slo, asked.offers, interruptions=asked.interruptions)
        found = lower_bounds(scenario.at_quantile(asked.quantile))
        return BoundedCandidate(found, found.most_within(asked.slo), found.misses(asked.slo))
    except InfercastError as error:
        return error
