"""Options of `infercast fleet`: replicas, router, autoscaler and failures; and how clients behave."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

import numpy as np
from typer import Option

from simulator.cli.options.workload_options import RouterWorkers
from simulator.cost.service import Service
from simulator.deployment.deployment import Deployment
from simulator.deployment.memory import memory_plan
from simulator.errors import InfercastError, nearest
from simulator.profile import Figure, Source
from simulator.questions.words import as_typed, option_of, seconds, split
from simulator.reports.provenance import Provenance
from simulator.simulation.autoscaler import LOAD_BYTES_PER_S, METRICS, START_S, Autoscaler, Failure, cold_start_s
from simulator.simulation.clients import Clients
from simulator.simulation.disaggregation import LINK_BYTES_PER_S, LINK_LATENCY_S
from simulator.simulation.routers import ROUTERS, Router
from simulator.simulation.sessions import Sessions
from simulator.units import parse
from simulator.workloads.arrivals import OpenLoop
from simulator.workloads.rate_curves import RateCurve, daily, read_rate_curve
from simulator.workloads.workload import Requests, Workload

ColdStart = Annotated[
    str, Option("--cold-start", metavar="TIME", help="Of a replica.", show_default="weights / --load-rate + 30 s")
]
LoadRate = Annotated[str, Option("--load-rate", metavar="RATE", help="Weights per device and second; a guess.")]
LOAD_RATE = f"{LOAD_BYTES_PER_S / 1e9:g} GB/s"
LinkBandwidth = Annotated[
    str, Option("--link-bandwidth", metavar="RATE", help="Of the caches, per prefill replica; a guess.")
]
LINK_BANDWIDTH = f"{LINK_BYTES_PER_S / 1e9:g} GB/s"
CurveOption = Annotated[
    str,
    Option("--rate-curve", metavar="FILE[:NAME]", help="Shape of the rate (ServeGen's CSV), or sine:SWING of a day."),
]


@dataclass(frozen=True)
class FleetOptions:
    """Options for the service: how many replicas, behind which router, and what changes their number.

    Names: `max_ongoing_requests` is Ray Serve's, the sync period that of the Kubernetes Horizontal Pod Autoscaler.

    Raises InfercastError for an option that changes nothing without another.
    """

    replicas: Annotated[int, Option("--replicas", min=1, help="Replicas; with --autoscale, at most.")] = 2
    router: Annotated[str, Option("--router", metavar="NAME", help=f"One of {', '.join(ROUTERS)}.")] = "round-robin"
    router_workers: RouterWorkers = 1
    max_ongoing_requests: Annotated[
        int, Option("--max-ongoing-requests", help="Per replica; the others wait at the router. 0: no limit.")
    ] = 0
    autoscale: Annotated[
        str, Option("--autoscale", metavar="METRIC:TARGET", help="Say concurrency:16 per replica, or queue:4.")
    ] = ""
    prefill_autoscale: Annotated[
        str, Option("--prefill-autoscale", metavar="METRIC:TARGET", help="Of the prefill pool; --autoscale: of decode.")
    ] = ""
    prefill_min_replicas: Annotated[
        int, Option("--prefill-min-replicas", min=0, help="With --prefill-autoscale; 0 scales to zero.")
    ] = 1
    min_replicas: Annotated[int, Option("--min-replicas", min=0, help="With --autoscale; 0 scales to zero.")] = 1
    sync_period: Annotated[
        str, Option("--sync-period", metavar="TIME", help="Between two looks of the autoscaler.")
    ] = "15s"
    down_delay: Annotated[
        str, Option("--down-delay", metavar="TIME", help="Fewer replicas only after so long of wanting fewer.")
    ] = "5min"
    cold_start: ColdStart = ""
    load_rate: LoadRate = LOAD_RATE
    fail: Annotated[
        str,
        Option("--fail", metavar="N@TIME:TIME,..", help="Replica N (from 0) dies at a time, for a time (or for good)."),
    ] = ""
    disaggregate: Annotated[
        str, Option("--disaggregate", metavar="P:D", help="P replicas prefill, D decode, at most, for --replicas.")
    ] = ""
    link_bandwidth: LinkBandwidth = LINK_BANDWIDTH

    def __post_init__(self) -> None:
        needed = {
            "autoscale": ("min_replicas",),
            "prefill_autoscale": ("prefill_min_replicas",),
            "disaggregate": ("link_bandwidth", "prefill_autoscale"),
        }
        _refuse_idle(self, needed if self.prefill_autoscale else {**needed, "autoscale": ("min_replicas", *SCALING)})

    def guesses(self) -> list[Provenance]:
        """Return the guesses in use: values that the user did not give."""
        defaulted = {name for name, default in _defaults(self).items() if getattr(self, name) == default}
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
            if replicas != _defaults(self)["replicas"]:
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
            tuple(_failure(each) for each in split(self.fail, "--fail")) if self.fail else (),
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


HISTORIES = ("added", "included")
SCALING = ("sync_period", "down_delay", "cold_start", "load_rate")
AFFINITY_SLACK = Figure(Router().affinity_slack, Source(text="a few requests", date="", evidence="guess"))


def _defaults(options: Any) -> dict[str, Any]:
    return {each.name: each.default for each in fields(options)}


def _refuse_idle(options: Any, dependents: Mapping[str, Sequence[str]]) -> None:
    """Raise InfercastError for an option that changes nothing without another; `dependents[other]` are such options."""
    default = _defaults(options)
    for needed, names in dependents.items():
        for name in names:
            if getattr(options, needed) == default[needed] and getattr(options, name) != default[name]:
                given, other = (f"--{each.replace('_', '-')}" for each in (name, needed))
                raise InfercastError(f"{given} without {other}", "it would change nothing", f"Give {other} too")


def _failure(text: str) -> Failure:
    match = re.fullmatch(r"(\d{1,9})@([^:]+)(?::(.+))?", text)
    if match is None:
        raise InfercastError(
            f"--fail {text!r}", "it is not REPLICA@TIME or REPLICA@TIME:TIME", "Give, say, 1@10min:5min"
        )
    at_s, repair_s = (seconds(each, "--fail") if each else math.inf for each in (match[2], match[3]))
    return Failure(at_s, int(match[1]), repair_s)


@dataclass(frozen=True)
class SessionOptions:
    """Options for sessions of several turns.

    Raises InfercastError for an option that changes nothing without another, and for a history that is neither.
    """

    turns: Annotated[int, Option("--turns", min=1, help="Requests of a session, each with all that was said.")] = 1
    think_time: Annotated[str, Option("--think-time", metavar="TIME", help="Between an answer and the next turn.")] = (
        "30s"
    )
    history: Annotated[
        str,
        Option(
            "--history",
            metavar="NAME",
            help="What was said before: added to the given prompt lengths, or included in them.",
        ),
    ] = "added"

    def __post_init__(self) -> None:
        _refuse_idle(self, {"turns": ("think_time", "history")})
        if self.history not in HISTORIES:
            given = f"--history {self.history}"
            raise InfercastError(given, "the lengths either hold it or not", nearest(self.history, HISTORIES))

    def sessions(self) -> Sessions:
        """Return the sessions. Raises InfercastError for a time that cannot be read."""
        return Sessions(self.turns, seconds(self.think_time, "--think-time"), self.history == "included")


@dataclass(frozen=True)
class ClientOptions(SessionOptions):
    """Options for the clients: sessions, timeouts and retries, and how the rate changes over the day.

    A rate curve is a CSV file of ServeGen, or a sine.

    Raises InfercastError for an option that changes nothing without another.
    """

    rate_curve: CurveOption = ""
    duration: Annotated[
        str,
        Option("--duration", metavar="TIME", help="Simulate so long instead of --num-prompts, say 24h; bare: seconds."),
    ] = ""
    network: Annotated[str, Option("--network", metavar="TIME", help="Round trip to the user.")] = "0s"
    streaming: Annotated[bool, Option("--streaming/--no-streaming", help="Tokens one by one, or all at the end.")] = (
        True
    )
    timeout: Annotated[
        str, Option("--timeout", metavar="TIME", help="Users cancel what has no token by then.", show_default="never")
    ] = ""
    max_retries: Annotated[int, Option("--max-retries", min=0, help="How often they send it again.")] = 0
    retry_delay: Annotated[str, Option("--retry-delay", metavar="TIME", help="How long after.")] = "1s"
    thinking_tokens: Annotated[
        int, Option("--thinking-tokens", min=0, help="Output tokens before the visible ones, and besides them.")
    ] = 0
    deadline: Annotated[
        str, Option("--deadline", metavar="TIME", help="Say whether everything is done by then (batch API).")
    ] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_idle(self, {"timeout": ("max_retries", "retry_delay")})

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
