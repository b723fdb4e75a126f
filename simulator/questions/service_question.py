"""A service as options say it: replicas, their router, what changes their number, and what fails."""

import math
import re
from dataclasses import dataclass

from simulator.cost.service import Service
from simulator.deployment.deployment import Deployment
from simulator.deployment.memory import memory_plan
from simulator.errors import InfercastError
from simulator.profile import Figure, Source
from simulator.questions.words import as_typed, comma_list, defaults, option_of, refuse_idle, seconds
from simulator.reports.provenance import Provenance
from simulator.simulation.autoscaler import LOAD_BYTES_PER_S, METRICS, START_S, Autoscaler, Failure, cold_start_s
from simulator.simulation.disaggregation import LINK_BYTES_PER_S, LINK_LATENCY_S
from simulator.simulation.routers import Router
from simulator.units import parse

LOAD_RATE = f"{LOAD_BYTES_PER_S / 1e9:g} GB/s"
LINK_BANDWIDTH = f"{LINK_BYTES_PER_S / 1e9:g} GB/s"
SCALING = ("sync_period", "down_delay", "cold_start", "load_rate")
AFFINITY_SLACK = Figure(Router().affinity_slack, Source(text="a few requests", date="", evidence="guess"))


@dataclass(frozen=True)
class ServiceQuestion:
    """How many replicas, behind which router, and what changes their number; options of `infercast fleet`.

    Names: `max_ongoing_requests` is Ray Serve's, the sync period that of the Kubernetes Horizontal Pod Autoscaler.

    Raises InfercastError for an option that changes nothing without another.

    >>> from simulator.deployment.deployment import deploy
    >>> ServiceQuestion(disaggregate="1:3").service(deploy("llama-3.1-8b", "l40s")).decode_replicas
    3
    """

    replicas: int = 2
    router: str = "round-robin"
    router_workers: int = 1
    max_ongoing_requests: int = 0
    autoscale: str = ""
    prefill_autoscale: str = ""
    prefill_min_replicas: int = 1
    min_replicas: int = 1
    sync_period: str = "15s"
    down_delay: str = "5min"
    cold_start: str = ""
    load_rate: str = LOAD_RATE
    fail: str = ""
    disaggregate: str = ""
    link_bandwidth: str = LINK_BANDWIDTH

    def __post_init__(self) -> None:
        needed = {
            "autoscale": ("min_replicas",),
            "prefill_autoscale": ("prefill_min_replicas",),
            "disaggregate": ("link_bandwidth", "prefill_autoscale"),
        }
        refuse_idle(self, needed if self.prefill_autoscale else {**needed, "autoscale": ("min_replicas", *SCALING)})

    def guesses(self) -> list[Provenance]:
        """Return the guesses in use: values that the user did not give."""
        defaulted = {name for name, default in defaults(self).items() if getattr(self, name) == default}
        starts = (self.autoscale or self.prefill_autoscale) and "cold_start" in defaulted
        found = {
            "start_s": (START_S, starts),
            "load_rate": (LOAD_BYTES_PER_S, starts and "load_rate" in defaulted),
            "link_bandwidth": (LINK_BYTES_PER_S, self.disaggregate and "link_bandwidth" in defaulted),
            "link_latency_s": (LINK_LATENCY_S, self.disaggregate),
            "affinity_slack": (AFFINITY_SLACK, self.router == "prefix-affinity"),
        }
        return [
            Provenance("fleet", name, float(figure), figure.source) for name, (figure, holds) in found.items() if holds
        ]

    def service(self, deployment: Deployment) -> Service:
        """Return the service that was asked for, of one deployment.

        Raises InfercastError for an option that cannot be read or contradicts another, UnitError for a rate without its
        unit.
        """
        prefill, replicas = 0, self.replicas
        if self.disaggregate:
            if replicas != defaults(self)["replicas"]:
                given = f"--replicas {replicas} with --disaggregate {self.disaggregate}"
                raise InfercastError(given, "its pools say how many replicas there are", "Leave --replicas out")
            match = re.fullmatch(r"(\d{1,9}):(\d{1,9})", self.disaggregate)
            if match is None or not min(int(match[1]), int(match[2])):
                given = f"--disaggregate {self.disaggregate!r}"
                raise InfercastError(given, "it is not two numbers of replicas above 0", "Give, say, 1:3")
            prefill, replicas = int(match[1]), int(match[1]) + int(match[2])
        return Service(
            deployment,
            replicas,
            Router(self.router, max_ongoing_requests=self.max_ongoing_requests, workers=self.router_workers),
            self._autoscaler("autoscale", replicas - prefill, self.min_replicas, deployment),
            tuple(_failure(each) for each in comma_list(self.fail, "--fail")) if self.fail else (),
            prefill,
            parse(self.link_bandwidth, "bytes_per_s"),
            prefill_autoscaler=self._autoscaler("prefill_autoscale", prefill, self.prefill_min_replicas, deployment),
        )

    def _autoscaler(self, option: str, most: int, least: int, deployment: Deployment) -> Autoscaler | None:
        asked = getattr(self, option)
        if not asked:
            return None
        metric, _, target = asked.partition(":")
        if not re.fullmatch(r"\d+(\.\d*)?", target):
            remedy = f"Give, say, {next(iter(METRICS))}:16"
            raise InfercastError(f"{option_of(option)} {asked!r}", "it is not METRIC:TARGET", remedy)
        with as_typed({option: asked}):
            return Autoscaler(
                target=float(target),
                max_replicas=most,
                min_replicas=least,
                metric=metric,
                interval_s=seconds(self.sync_period, "--sync-period"),
                down_delay_s=seconds(self.down_delay, "--down-delay"),
                cold_start_s=cold_start(self.cold_start, self.load_rate, deployment),
            )


def cold_start(given: str, load_rate: str, deployment: Deployment) -> float:
    """Return the seconds that a replica needs to start: as given, or as long as its weights take at a rate.

    Raises InfercastError for a time that cannot be read, UnitError for a rate without its unit.
    """
    if given:
        return seconds(given, "--cold-start")
    return cold_start_s(memory_plan(deployment).weight_bytes, parse(load_rate, "bytes_per_s"))


def _failure(text: str) -> Failure:
    match = re.fullmatch(r"(\d{1,9})@([^:]+)(?::(.+))?", text)
    if match is None:
        raise InfercastError(
            f"--fail {text!r}", "it is not REPLICA@TIME or REPLICA@TIME:TIME", "Give, say, 1@10min:5min"
        )
    at_s, repair_s = (seconds(each, "--fail") if each else math.inf for each in (match[2], match[3]))
    return Failure(at_s, int(match[1]), repair_s)
