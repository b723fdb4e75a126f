"""What a router saves: `cost` and `compare` count replicas one by one, `plan` simulates the whole fleet."""

from collections.abc import Iterator

from simulator.cost.capacity import Answer
from simulator.cost.fleet_rates import FleetRates
from simulator.workloads.arrivals import OpenLoop

MOST_SIMULATED = 32  # replicas of a fleet that is simulated for a sentence: larger ones of long outputs take a minute


def router_savings(found: Answer) -> Iterator[str]:
    """Yield how many replicas are enough behind a router, where the answer has several and fewer of them are.

    Without a number for more than MOST_SIMULATED. Nothing of a trace, which `plan` does not take.
    """
    scenario, counted = found.scenario, found.replicas
    if counted < 2 or not isinstance(scenario.workload.arrivals, OpenLoop):
        return
    alone = f"{counted} replicas: each alone, with its share of the requests."
    if counted > MOST_SIMULATED:
        yield f"{alone} Behind a router fewer may be enough: infercast plan simulates the fleet."
        return
    fewest = FleetRates(scenario, found.capacity).fewest(found.rate_per_s, counted)
    if fewest == counted:
        return
    enough = "1 is" if fewest == 1 else f"{fewest} are"
    yield f"{alone} Behind a router to the least busy {enough} enough: infercast plan sizes such fleets."
