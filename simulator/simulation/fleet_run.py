"""What happened to a fleet: the requests that finished, where and how often, every step, and what was paid for."""

from dataclasses import dataclass

from simulator.scheduler.state import Floats, Ints, Table
from simulator.simulation.engine_loop import Run
from simulator.simulation.fleet_state import OFF, STARTING


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRun(Run):
    """What happened to a fleet: as for one engine, requests in the order of arrival, with where and how often.

    Rows are the requests that finished; `row` says which of the asked ones each is, `abandoned` which were given up,
    and `abandoned_s` when these were first sent (infinity: never, after an abandoned turn). `replica` served (or
    decoded) it last, `retries` are restarts after failures, `timeouts` cancellations. Steps have their replica, and
    `work_s`, the time that they take all stages together. `events` are changes of state.
    """

    row: Ints
    replica: Ints
    retries: Ints
    timeouts: Ints
    abandoned: Ints
    abandoned_s: Floats
    events: Table
    replicas: int
    stages: int
    closed_s: float

    @property
    def busy_s(self) -> float:
        """Seconds of steps, those of all replicas together."""
        return float(self.steps.work_s.sum())

    @property
    def engines(self) -> int:
        """How many steps may run at once: one in every stage of every replica."""
        return self.replicas * self.stages

    @property
    def end_s(self) -> float:
        """The end of the last step."""
        return float((self.steps.start_s + self.steps.seconds).max(initial=0.0))

    def intervals(self, state_from: int, *states_to: int) -> list[tuple[int, float, float]]:
        """Return (replica, start_s, end_s) of the times from an event of one state to the next of others."""
        found, since = [], dict[int, float]()
        for event in self.events:
            replica = int(event.replica)
            if event.state == state_from:
                since.setdefault(replica, float(event.time_s))
            elif event.state in states_to and replica in since:
                found.append((replica, since.pop(replica), float(event.time_s)))
        return found + [(replica, start_s, self.closed_s) for replica, start_s in since.items()]

    @property
    def paid_intervals(self) -> list[tuple[int, float, float]]:
        """(replica, start_s, end_s) of what is paid for: from each start to the moment of being off, or to the end."""
        return self.intervals(STARTING, OFF)

    @property
    def paid_s(self) -> float:
        """Replica-seconds paid for."""
        return sum(end_s - start_s for _, start_s, end_s in self.paid_intervals)
