"""Service-level objectives: bounds on each request's latencies, and the share of requests that must keep them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from simulator.errors import InfercastError, Setting, UnitError, nearest
from simulator.reports.batch_means import QUANTILES
from simulator.units import parse, scaled

METRICS = ("ttft", "tpot", "e2el", "queue")


@dataclass(frozen=True, slots=True)
class Slo:
    """Upper bounds in seconds by metric; a service meets the SLO if `share` of all sent requests keep every bound.

    Raises InfercastError for an unknown metric, a bound that is not positive, and a share outside of 0 to 1.
    """

    bounds_s: Mapping[str, float] = field(default_factory=dict)
    share: float = 0.95

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            because = "it must lie above 0 and below 1: a load without end has a request that misses any bound"
            raise InfercastError(Setting("share", self.share), because, "Give, say, 0.95")
        for metric, bound_s in self.bounds_s.items():
            if metric not in METRICS:
                because = f"{metric} is not measured per request"
                raise InfercastError(Setting("slo", f"{metric}:{bound_s:g}s"), because, nearest(metric, METRICS))
            if not bound_s > 0:
                because = "a bound must be above 0"
                raise InfercastError(Setting("slo", f"{metric}:{bound_s:g}s"), because, "Give, say, ttft:500ms")

    def __str__(self) -> str:
        return f"{self.asked} of requests with {self.bounds}" if self.bounds_s else "no SLO"

    @property
    def bounds(self) -> str:
        """The bounds in words, "" for none.

        >>> Slo({"ttft": 0.5, "tpot": 0.05}).bounds
        'TTFT <= 500 ms, TPOT <= 50 ms'
        """
        return ", ".join(f"{metric.upper()} <= {scaled(bound, 's')}" for metric, bound in self.bounds_s.items())

    @property
    def asked(self) -> str:
        """The share of requests in words, never rounded up to all.

        >>> Slo(share=0.999).asked
        '99.9%'
        """
        return f"{100 * self.share:.12g}%"

    @property
    def tail(self) -> str:
        """The statistic of latencies that a bound is held against: the lowest quantile of at least the asked share.

        >>> Slo().tail, Slo(share=0.99).tail, Slo(share=0.999).tail
        ('p95', 'p99', 'p99')
        """
        return next((name for name, share in QUANTILES.items() if share >= self.share), "p99")

    @property
    def within(self) -> str:
        """How to say of a rate that it keeps this SLO: "within the SLO", or "without an SLO" where nothing is bound."""
        return "within the SLO" if self.bounds_s else "without an SLO"


def parse_slo(text: str, share: float = 0.95) -> Slo:
    """Return the SLO in a text such as "ttft:500ms,tpot:50ms"; bare numbers are milliseconds (vLLM's --goodput).

    Raises InfercastError for a part that is not metric:bound and for a metric with two bounds, UnitError for a bound
    that is not a time.

    >>> parse_slo("ttft:500ms,tpot:50").bounds_s
    {'ttft': 0.5, 'tpot': 0.05}
    """
    bounds_s: dict[str, float] = {}
    for part in filter(None, (each.strip() for each in text.replace(" ", ",").split(","))):
        metric, colon, value = part.partition(":")
        if not colon or metric.lower() in bounds_s:
            because = f"{metric} has two bounds" if colon else "it is not one metric:bound"
            raise InfercastError(Setting("slo", part), because, "Write, say, ttft:500ms,tpot:50ms")
        bare = re.fullmatch(r"[+-]?[\d.]+([eE][+-]?\d+)?", value)
        try:
            bounds_s[metric.lower()] = parse(f"{value} ms" if bare else value, "s")
        except UnitError as error:
            raise UnitError(Setting("slo", part), error.because, error.remedy) from None
    return Slo(bounds_s, share)
