"""What clients do, as options say it: sessions of several turns, timeouts and retries, a rate over the day."""

import math
from dataclasses import dataclass, replace

import numpy as np

from simulator.errors import InfercastError, nearest
from simulator.questions.words import refuse_idle, seconds
from simulator.simulation.clients import Clients
from simulator.simulation.sessions import Sessions
from simulator.workloads.arrivals import OpenLoop
from simulator.workloads.rate_curves import RateCurve, daily, read_rate_curve
from simulator.workloads.workload import Requests, Workload

HISTORIES = ("added", "included")


@dataclass(frozen=True)
class SessionQuestion:
    """Sessions of several turns; each field is an option of `infercast fleet`.

    `turns`: requests of a session, each with all that was said before (`history`: added to the given prompt lengths, or
    included in them). `think_time`: between an answer and the next turn.

    Raises InfercastError for an option that changes nothing without another, and for a history that is neither.

    >>> print(SessionQuestion(turns=3, think_time="10s").sessions())
    sessions of 3 turns, 10 s apart, their history on top of the given lengths
    """

    turns: int = 1
    think_time: str = "30s"
    history: str = "added"

    def __post_init__(self) -> None:
        refuse_idle(self, {"turns": ("think_time", "history")})
        if self.history not in HISTORIES:
            given = f"--history {self.history}"
            raise InfercastError(given, "the lengths either hold it or not", nearest(self.history, HISTORIES))

    def sessions(self) -> Sessions:
        """Return the sessions. Raises InfercastError for a time that cannot be read."""
        return Sessions(self.turns, seconds(self.think_time, "--think-time"), self.history == "included")


@dataclass(frozen=True)
class ClientQuestion(SessionQuestion):
    """What clients do beside sending; each field is an option of `infercast fleet`, whose help explains it.

    Sessions, timeouts and retries, and how the rate changes over the day: a CSV file of ServeGen, or a sine.

    Raises InfercastError for an option that changes nothing without another.
    """

    rate_curve: str = ""
    duration: str = ""
    network: str = "0s"
    streaming: bool = True
    timeout: str = ""
    max_retries: int = 0
    retry_delay: str = "1s"
    thinking_tokens: int = 0
    deadline: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_idle(self, {"timeout": ("max_retries", "retry_delay")})

    def asked(self, workload: Workload) -> tuple[Workload, Requests, Clients]:
        """Return the workload with the asked rate curve and duration, its requests, and the clients that send them.

        Raises InfercastError for a time that cannot be read, and for a curve or a duration of anything but an open
        loop; WorkloadError for requests or clients that are impossible.
        """
        workload = self._shaped(workload)
        clients = Clients(
            network_s=seconds(self.network, "--network"),
            streaming=self.streaming,
            timeout_s=seconds(self.timeout, "--timeout") if self.timeout else math.inf,
            max_retries=self.max_retries,
            retry_delay_s=seconds(self.retry_delay, "--retry-delay"),
        )
        requests, clients = self.sessions().requests(workload, clients)
        if self.thinking_tokens:
            requests = replace(requests, output_tokens=requests.output_tokens + self.thinking_tokens)
            clients = replace(clients, thinking_tokens=np.full(len(requests), self.thinking_tokens))
        return workload, requests, clients

    def _shaped(self, workload: Workload) -> Workload:
        """Return the workload with the asked rate curve, and as many requests as the asked duration brings."""
        if not (self.rate_curve or self.duration):
            return workload
        arrivals: OpenLoop | RateCurve
        if isinstance(workload.arrivals, OpenLoop):
            arrivals = workload.arrivals
        else:
            given = "--rate-curve" if self.rate_curve else "--duration"
            raise InfercastError(
                f"{given} for {workload.arrivals.describe()}", "it shapes a rate", "Give --rate and no trace"
            )
        if self.rate_curve:
            arrivals = curve_of(self.rate_curve, arrivals)
        if self.duration:
            due = arrivals.expected(seconds(self.duration, "--duration"))
            workload = replace(workload, request_count=max(1, round(due)))
        return replace(workload, arrivals=arrivals)


def curve_of(text: str, arrivals: OpenLoop) -> RateCurve:
    """Return the rate curve that sine, sine:0.8, FILE or FILE:NAME names, around the rate and as bursty as arrivals.

    Raises InfercastError for a swing that is no share, WorkloadError for a file that cannot be read.
    """
    path, _, name = text.partition(":")
    if path != "sine":
        return replace(read_rate_curve(path, name, arrivals.rate_per_s), burstiness=arrivals.burstiness)
    try:
        return replace(daily(arrivals.rate_per_s, float(name or 0.8)), burstiness=arrivals.burstiness)
    except ValueError:
        raise InfercastError(f"--rate-curve {text}", "its swing is not a share from 0 to 1", "Give sine:0.8") from None
