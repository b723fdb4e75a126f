"""What a user will accept: bounds on each request's latencies, and the share of requests that must keep them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from simulator.errors import InfercastError, nearest
from simulator.units import parse, scaled

METRICS = ("ttft", "tpot", "e2el", "queue")


@dataclass(frozen=True, slots=True)
class Slo:
    """Upper bounds in seconds by metric; a service keeps them when `share` of all sent requests keep every one."""

    bounds_s: Mapping[str, float] = field(default_factory=dict)
    share: float = 0.95

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InfercastError(f"SLO share {self.share}", "it lies between 0 and 1", "Give, say, 0.95")
        for metric, bound_s in self.bounds_s.items():
            if metric not in METRICS:
                raise InfercastError(
                    f"SLO metric {metric!r}", "it is not measured per request", nearest(metric, METRICS)
                )
            if not bound_s > 0:
                raise InfercastError(f"SLO {metric} {bound_s}", "a bound is above 0", "Give, say, ttft:500ms")

    def __str__(self) -> str:
        bounds = ", ".join(f"{metric.upper()} <= {scaled(bound, 's')}" for metric, bound in self.bounds_s.items())
        return f"{self.share:.0%} of requests with {bounds}" if bounds else "no SLO"


def parse_slo(text: str, share: float = 0.95) -> Slo:
    """Read "ttft:500ms,tpot:50ms"; a bare number is in milliseconds, as in vLLM's --goodput.

    >>> parse_slo("ttft:500ms,tpot:50").bounds_s
    {'ttft': 0.5, 'tpot': 0.05}
    """
    bounds_s: dict[str, float] = {}
    for part in filter(None, (each.strip() for each in text.replace(" ", ",").split(","))):
        metric, colon, value = part.partition(":")
        if not colon or metric in bounds_s:
            raise InfercastError(f"SLO {part!r}", "it is not one metric:bound", "Write, say, ttft:500ms,tpot:50ms")
        bare = re.fullmatch(r"[+-]?[\d.]+([eE][+-]?\d+)?", value)
        bounds_s[metric.lower()] = parse(f"{value} ms" if bare else value, "s")
    return Slo(bounds_s, share)
