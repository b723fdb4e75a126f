"""The result of simulating a fleet: finished and abandoned requests, steps, and changes of the replicas' state."""

from dataclasses import dataclass

import numpy as np

from simulator.arrays import Floats, Ints
from simulator.scheduler.state import Table
from simulator.simulation.engine_loop import Run
from simulator.simulation.fleet_state import OFF, STARTING

ROUNDING_S = 1e-9  # of sums of seconds, below any step


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRun(Run):
    """Result of simulating a fleet: a `Run` with requests in order of arrival, and columns that tell replicas apart.

    Per finished request, shape (finished,), int64: `row` of the request in the workload, `replica` that served (or
    decoded) it last, `retries` after failures, `timeouts` (cancellations by its client). Per abandoned request, shape
    (abandoned,): `abandoned` is its row (int64) and `abandoned_s` when it was first sent (float64; infinity for a turn
    after an abandoned one). `steps` have the columns `replica` and `work_s`, the seconds that all pipeline stages
    together take. `events` are changes of a replica's state; `replicas` and `stages` are counts, `closed_s` is the time
    of the last event. The first `prefill_replicas` only prefill; `transfer_s`, shape (finished,), float64: how long the
    KV cache of each request takes one of their links (0 without, and for one token).
    """

    row: Ints
    replica: Ints
    retries: Ints
    timeouts: Ints
    transfer_s: Floats
    abandoned: Ints
    abandoned_s: Floats
    events: Table
    replicas: int
    prefill_replicas: int
    closed_s: float

    @property
    def busy_s(self) -> float:
        """Seconds of all steps, summed over replicas."""
        return float(self.steps.work_s.sum())

    @property
    def engines(self) -> int:
        """Largest number of steps that may run at once: replicas x pipeline stages."""
        return self.replicas * self.stages

    @property
    def end_s(self) -> float:
        """End of the last step, in seconds."""
        return float((self.steps.start_s + self.steps.seconds).max(initial=0.0))

    def at_once(self, of_steps: Ints) -> tuple[float, int]:
        """Return mean and peak of a replica as `Run.at_once` does: of a pipeline the sum over the steps under way."""
        steps = self.steps
        if self.stages == 1 or not len(steps):
            return Run.at_once(self, of_steps)
        begin_s = steps.start_s + steps.replica * (self.end_s + 1.0)  # one replica after the other
        times_s = np.concatenate([begin_s + steps.seconds - ROUNDING_S, begin_s])
        order = np.argsort(times_s, kind="stable")
        amount, under_way = (
            np.cumsum(np.concatenate([-each, each])[order])[:-1] for each in (of_steps, np.ones_like(of_steps))
        )
        spans_s = np.diff(times_s[order])
        return float((amount * spans_s).sum() / spans_s[under_way > 0].sum()), int(amount.max())

    def intervals(self, state_from: int, *states_to: int) -> list[tuple[int, float, float]]:
        """Return (replica, start_s, end_s) of every time from a state `state_from` to the next of `states_to`."""
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
        """(replica, start_s, end_s) of all paid time: from each start until the replica is off, or the run ends."""
        return self.intervals(STARTING, OFF)

    @property
    def paid_s(self) -> float:
        """Paid replica-seconds."""
        return sum(end_s - start_s for _, start_s, end_s in self.paid_intervals)
