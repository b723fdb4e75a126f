"""Options of `infercast fleet` and `plan`: replicas, router, autoscaler, failures; clients; how a load grows."""

from dataclasses import dataclass
from typing import Annotated

from typer import Option

from simulator.cli.options.workload_options import RouterWorkers
from simulator.questions.client_question import ClientQuestion
from simulator.questions.plan_question import PlanQuestion
from simulator.questions.service_question import LINK_BANDWIDTH, LOAD_RATE, ServiceQuestion
from simulator.simulation.routers import ROUTERS

ColdStart = Annotated[
    str, Option("--cold-start", metavar="TIME", help="Of a replica.", show_default="weights / --load-rate + 30 s")
]
LoadRate = Annotated[str, Option("--load-rate", metavar="RATE", help="Weights per device and second; a guess.")]
LinkBandwidth = Annotated[
    str, Option("--link-bandwidth", metavar="RATE", help="Of the caches, per prefill replica; a guess.")
]
CurveOption = Annotated[
    str,
    Option("--rate-curve", metavar="FILE[:NAME]", help="Shape of the rate (ServeGen's CSV), or sine:SWING of a day."),
]
Turns = Annotated[int, Option("--turns", min=1, help="Requests of a session, each with all that was said.")]
ThinkTime = Annotated[str, Option("--think-time", metavar="TIME", help="Between an answer and the next turn.")]
History = Annotated[
    str,
    Option(
        "--history",
        metavar="NAME",
        help="What was said before: added to the given prompt lengths, or included in them.",
    ),
]


@dataclass(frozen=True)
class ServiceOptions(ServiceQuestion):
    """Options for the service: how many replicas, behind which router, and what changes their number."""

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


@dataclass(frozen=True)
class ClientOptions(ClientQuestion):
    """Options for the clients: sessions, timeouts and retries, and how the rate changes over the day."""

    turns: Turns = 1
    think_time: ThinkTime = "30s"
    history: History = "added"
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


@dataclass(frozen=True)
class PlanOptions(PlanQuestion):
    """Options for how the load grows, for sessions, and for what a fleet keeps in reserve."""

    turns: Turns = 1
    think_time: ThinkTime = "30s"
    history: History = "added"
    growth: Annotated[str, Option("--growth", metavar="SHARE", help="Of the load, per month: 10% or 0.1.")] = "0%"
    months: Annotated[int, Option("--months", min=1, max=120, help="To plan for.")] = 12
    rate_curve: CurveOption = ""
    headroom: Annotated[str, Option("--headroom", metavar="SHARE", help="On top of every rate.")] = "10%"
    spare: Annotated[int, Option("--spare", min=0, help="Replicas that may fail: 1 is N+1.")] = 0
    cold_start: ColdStart = ""
    load_rate: LoadRate = LOAD_RATE
    disaggregate: Annotated[
        bool, Option("--disaggregate", help="Search fleets in a prefill and a decode pool, too; the cheapest is taken.")
    ] = False
    link_bandwidth: LinkBandwidth = LINK_BANDWIDTH
    split_prompts: Annotated[
        str,
        Option(
            "--split-prompts",
            metavar="N,..",
            help="Also two fleets, for prompts up to N tokens and for longer ones; the cheapest is taken.",
        ),
    ] = ""
