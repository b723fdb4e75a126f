"""Waiting times from queueing theory, beside a simulation: M/M/c (Erlang C) and M/G/1 (Pollaczek-Khinchine)."""

import math
from dataclasses import dataclass

from simulator.errors import InfercastError


def erlang_c(slots: int, load: float) -> float:
    """Return the probability that a request waits for one of `slots` servers; `load` = rate x mean service time.

    C = B / (1 - (load / slots) (1 - B)), with B of Erlang's loss formula: B(0) = 1, B(k) = load B / (k + load B).
    Source: Gross and Harris, Fundamentals of Queueing Theory, section 2.3. The usual example of call centres: 200 calls
    per hour of 3 minutes are 10 erlangs; with 14 agents 17.4 % of the callers wait.

    Raises InfercastError for less than one slot and for a negative or infinite load.

    >>> round(erlang_c(14, 10.0), 3)
    0.174
    """
    if slots < 1 or not 0 <= load < math.inf:
        raise InfercastError(
            f"{slots} slots under {load:g} erlangs",
            "slots must be 1 or more, the load finite and 0 or more",
            "Give, say, 8 slots and 4 erlangs",
        )
    if load >= slots:
        return 1.0
    lost = 1.0
    for busy in range(1, slots + 1):
        lost = load * lost / (busy + load * lost)
    return lost / (1 - load / slots * (1 - lost))


def m_m_c_wait_s(rate_per_s: float, service_s: float, slots: int) -> float:
    """Return the mean wait in seconds of an M/M/c queue: Poisson arrivals, `slots` servers, exponential service.

    W = C service / (slots - load), infinity if load >= slots (Gross and Harris, section 2.3). For the example of
    `erlang_c`, 7.8 seconds.

    >>> round(m_m_c_wait_s(200 / 3600, 180.0, 14), 1)
    7.8
    """
    load = rate_per_s * service_s
    return math.inf if load >= slots else erlang_c(slots, load) * service_s / (slots - load)


def m_g_1_wait_s(rate_per_s: float, service_s: float, cv2: float) -> float:
    """Return the mean wait in seconds of an M/G/1 queue: Poisson arrivals, one server, any service time.

    W = rho s (1 + cv2) / (2 (1 - rho)), infinity if rho >= 1, with `cv2` = variance / mean^2 of the service time
    (Pollaczek and Khinchine; Gross and Harris, section 5.1). At rho = 0.8 exponential service waits 4 service times,
    constant service half of it.

    >>> round(m_g_1_wait_s(0.8, 1.0, 1.0), 9), round(m_g_1_wait_s(0.8, 1.0, 0.0), 9)
    (4.0, 2.0)
    """
    load = rate_per_s * service_s
    return math.inf if load >= 1 else load * service_s * (1 + cv2) / (2 * (1 - load))


@dataclass(frozen=True, slots=True)
class QueueEstimate:
    """An engine seen as `slots` servers (or one that is `slots` times as fast), each busy `service_s` per request.

    `cv2` is the squared coefficient of variation of the service time. An orientation, not a prediction: a batch is not
    a set of servers, its service time grows with its size, and steps, tokens and KV-cache blocks are shared.
    """

    rate_per_s: float
    service_s: float
    cv2: float
    slots: int

    @property
    def load(self) -> float:
        """Mean share of the slots that are busy."""
        return self.rate_per_s * self.service_s / self.slots

    @property
    def erlang_c_wait_s(self) -> float:
        """Mean wait of M/M/c in seconds."""
        return m_m_c_wait_s(self.rate_per_s, self.service_s, self.slots)

    @property
    def m_g_1_wait_s(self) -> float:
        """Mean wait in seconds of M/G/1, with one server that is `slots` times as fast."""
        return m_g_1_wait_s(self.rate_per_s, self.service_s / self.slots, self.cv2)
