"""Options for the workload, the SLO and how a run is counted, shared by the commands that simulate."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Option

from simulator.questions.load_question import RunQuestion, SloQuestion
from simulator.questions.workload_question import WorkloadQuestion
from simulator.simulation.routers import ROUTERS

RouterWorkers = Annotated[
    int,
    Option(
        "--router-workers",
        min=1,
        help="Of least-connections: processes that each count only their own requests (nginx's worker_processes).",
    ),
]


@dataclass(frozen=True)
class RateOptions(WorkloadQuestion):
    """Options for what users send: a preset, a trace or plain lengths, at a rate."""

    workload: Annotated[
        str, Option("--workload", metavar="NAME", help="Preset: chat, code, rag, reasoning, summarize.")
    ] = ""
    trace: Annotated[
        Path | None,
        Option("--trace", metavar="FILE", help="Requests to replay: CSV or JSON lines; columns are found by name."),
    ] = None
    trace_columns: Annotated[
        str,
        Option(
            "--trace-columns",
            metavar="ROLE=NAME,..",
            help="Columns of the trace: prompt=NAME,output=NAME,time=NAME:UNIT (s, ms, us, ns).",
            show_default="by their names",
        ),
    ] = ""
    input_len: Annotated[
        str,
        Option(
            "--input-len",
            "--isl",
            metavar="N,..",
            help="Prompt tokens; also uniform:LOW:HIGH, lognormal:MEAN:CV[:MAX], ended:MEAN:MAX_TOKENS, "
            "quantiles:0=LOW,..,1=HIGH.",
        ),
    ] = ""
    output_len: Annotated[
        str, Option("--output-len", "--osl", metavar="N,..", help="Output tokens, in the same spellings.")
    ] = ""
    random_range_ratio: Annotated[
        float,
        Option("--random-range-ratio", "--range-ratio", help="Spread lengths evenly by this share around them."),
    ] = 0.0
    client: Annotated[
        str,
        Option(
            "--client",
            metavar="NAME",
            help="Whose --random-range-ratio: vllm (1 ± r) or inferencemax (r to 1).",
        ),
    ] = "vllm"
    request_rate: Annotated[
        str,
        Option(
            "--request-rate",
            "--rate",
            metavar="N,..",
            help="Requests per second, inf for all at once; a trace is stretched to it.",
        ),
    ] = ""
    burstiness: Annotated[
        str,
        Option(
            "--burstiness",
            metavar="N,..",
            help="1 Poisson, below 1 bursty, inf even.",
            show_default="the preset's, or 1",
        ),
    ] = ""
    release_period: Annotated[
        float, Option("--release-period", min=0.0, help="Seconds for which a batcher holds what arrives.")
    ] = 0.0
    balanced: Annotated[
        bool, Option("--balanced", help="A balancer sends each request to the replica with the fewest in flight.")
    ] = False
    num_prompts: Annotated[
        int | None,
        Option(
            "--num-prompts",
            help="Requests to simulate.",
            show_default="10 per place of a closed loop, 10000 at a rate, 3000 at once, or the whole trace",
        ),
    ] = None
    num_dataset_entries: Annotated[
        int, Option("--num-dataset-entries", min=0, help="AIPerf's: prompts that it repeats; 0: each is another.")
    ] = 0
    dataset_sampling_strategy: Annotated[
        str,
        Option("--dataset-sampling-strategy", metavar="NAME", help="AIPerf's: shuffle (in turn, mixed) or random."),
    ] = "shuffle"
    warmup_request_count: Annotated[
        int, Option("--warmup-request-count", min=0, help="AIPerf's: requests before the run, that warm the cache.")
    ] = 0
    prefix_len: Annotated[
        int,
        Option(
            "--prefix-len",
            "--random-prefix-len",
            min=0,
            help="Tokens before each prompt's own, the same for many requests: a system prompt.",
        ),
    ] = 0
    num_prefixes: Annotated[
        int,
        Option("--num-prefixes", "--prefix-repetition-num-prefixes", min=1, help="Different ones, drawn at random."),
    ] = 1
    seed: Annotated[int, Option("--seed", help="Seed of arrivals and lengths.")] = 0


@dataclass(frozen=True)
class WorkloadOptions(RateOptions):
    """The same, at a rate or with so many requests in flight."""

    max_concurrency: Annotated[
        str,
        Option("--max-concurrency", metavar="N,..", help="Closed loop: requests in flight, instead of a rate."),
    ] = ""


@dataclass(frozen=True)
class SloOptions(SloQuestion):
    """Options for the SLO: bounds on latencies, and the share of requests that must keep them."""

    slo: Annotated[
        str,
        Option(
            "--slo", metavar="BOUNDS", help="Say ttft:500ms,tpot:50ms (ttft, tpot, e2el, queue); bare numbers are ms."
        ),
    ] = ""
    slo_share: Annotated[float, Option("--slo-share", help="Share of requests that must keep every bound.")] = 0.95


@dataclass(frozen=True)
class RunOptions(RunQuestion):
    """Options for how a load is run and counted."""

    replicas: Annotated[
        int,
        Option(
            "--replicas", min=1, help="Alike replicas that share the load evenly: one is simulated; all with --router."
        ),
    ] = 1
    whole_run: Annotated[
        bool,
        Option("--whole-run", help="Count an open loop as load generators do: its first requests and its drain too."),
    ] = False
    within_slo: Annotated[
        bool, Option("--within-slo", help="Run at the highest rate, near the asked one, that keeps the SLO.")
    ] = False
    assume_fits: Annotated[
        bool, Option("--assume-fits", help="Somebody has run it: requests may be longer than the model's context.")
    ] = False
    router: Annotated[
        str,
        Option(
            "--router",
            metavar="NAME",
            help=f"Simulate all --replicas behind one: {', '.join(ROUTERS)}.",
            show_default="an even share",
        ),
    ] = ""
    router_workers: RouterWorkers = 1
