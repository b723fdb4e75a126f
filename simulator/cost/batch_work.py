"""Offline work: requests that are there all at once, and have to be done by a deadline, for the least money."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

from simulator.cost.bisection import bisect_first
from simulator.cost.energy import instance_watts
from simulator.cost.packing import Packing, packed
from simulator.cost.scenario import Scenario
from simulator.cost.spot import is_spot
from simulator.errors import InfercastError
from simulator.reports.report import Report
from simulator.workloads.arrivals import ClosedLoop

SAMPLE = 3_000  # most requests that are simulated, at least four times the sequences running at once
MOST_REPLICAS = 4_096


@dataclass(frozen=True)
class BatchWork:
    """Requests that are there all at once, on a deployment, and the time in which they have to be done.

    `scenario`: its workload has all requests, its offers hold the replicas. Instances are rented when the work begins
    and given back when it ends; they are paid by the second, the start of the replicas included.
    """

    scenario: Scenario
    deadline_s: float

    @cached_property
    def sample(self) -> Report:
        """Some of the requests, all at once, on one replica."""
        count = min(self.scenario.workload.request_count, max(SAMPLE, 4 * self.scenario.deployment.max_num_seqs))
        return self.report(count)

    def report(self, requests: int) -> Report:
        """Simulate so many of the requests, all at once, on one replica."""
        workload = replace(self.scenario.workload, arrivals=ClosedLoop(requests), request_count=requests)
        return self.scenario.report(workload)

    def seconds(self, replicas: int) -> float:
        """Return the time from renting the instances to the last token, in seconds.

        start + T(requests / replicas); a share of up to `SAMPLE` is simulated, of a larger one the rest goes on like
        the second half of the sample, which neither fills the engine nor drains it. On spot it is over the share of the
        time in which an instance is up (`Interruptions.up_share`).
        """
        share = math.ceil(self.scenario.workload.request_count / replicas)
        more = share - self.sample.sent
        work_s = (self.sample if more >= 0 else self.report(share)).run.end_s
        if more > 0:
            work_s += more * self._next_request_s
        return self.scenario.start_s + work_s / self.up_share

    @cached_property
    def _next_request_s(self) -> float:
        """Seconds by which one more request makes a large part longer."""
        requests = self.sample.sent
        return (self.sample.run.end_s - self.report(requests // 2).run.end_s) / (requests - requests // 2)

    @property
    def up_share(self) -> float:
        """Share of the time in which an instance is there, 0 to 1; 1 but for spot."""
        scenario = self.scenario
        return scenario.interruptions.up_share(scenario.start_s) if is_spot(scenario.offers) else 1.0


@dataclass(frozen=True)
class BatchAnswer:
    """Replicas that finish offline work in time, when they do, on which instances, and what it costs.

    `seconds`: from renting to the last token. `packing` is None without an offer.
    """

    work: BatchWork
    replicas: int
    seconds: float
    packing: Packing | None

    @property
    def watts(self) -> float | None:
        """Mean power of all replicas and empty devices, an estimate, without the data centre's; None without a TDP."""
        devices = self.packing.devices if self.packing else None
        return instance_watts(self.work.scenario.deployment, self.work.sample, self.replicas, devices)

    @property
    def usd(self) -> float | None:
        """US dollars for the work: instances from renting to giving back, with electricity of owned ones."""
        return None if self.packing is None else self.packing.usd_per_hour_at(self.watts) * self.seconds / 3600

    @property
    def tokens(self) -> tuple[float, float]:
        """Input and output tokens of the whole work, as the sample has them: none of rejected requests."""
        sample, requests = self.work.sample, self.work.scenario.workload.request_count
        return sample.input_tokens * requests / sample.sent, sample.output_tokens * requests / sample.sent


def batch_answer(work: BatchWork) -> BatchAnswer:
    """Return the cheapest number of replicas that finish the work in time.

    Tried are the fewest that do, and as many as fill the instances of these: the same money ends it sooner. Without an
    offer the fewest are returned.

    Raises InfercastError where no number of replicas is fast enough, DoesNotFitError and WorkloadError as `simulate`.
    """
    fewest = _fewest(work)
    offers, size = work.scenario.offers, work.scenario.replica_size
    if not offers:
        return BatchAnswer(work, fewest, work.seconds(fewest), None)
    requests, packing = work.scenario.workload.request_count, packed(size, fewest, offers)
    filled = min(requests, sum(size.held(offer) * count for offer, count in packing.instances) // size.parts)
    found = [
        BatchAnswer(work, replicas, work.seconds(replicas), packed(size, replicas, offers))
        for replicas in {fewest, filled}
    ]
    return min(found, key=lambda each: (each.usd or 0.0, each.seconds))


def _fewest(work: BatchWork) -> int:
    """Return the fewest replicas that finish in time: doubled until they do, then halved in between."""
    most = min(work.scenario.workload.request_count, MOST_REPLICAS)
    high = 1
    while work.seconds(high) > work.deadline_s:
        if high >= most:
            given = f"a deadline of {work.deadline_s:,.0f} s"
            because = (
                f"{most:,} replicas take {work.seconds(most):,.0f} s, of which {work.scenario.start_s:,.0f} s to start"
            )
            raise InfercastError(given, because, "Give a later --deadline, or a faster device")
        high = min(2 * high, most)
    return bisect_first(lambda replicas: work.seconds(replicas) <= work.deadline_s, high // 2, high)
