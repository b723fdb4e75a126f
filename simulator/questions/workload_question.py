"""The workload that is asked about: a preset, a trace or plain lengths, at a rate or a concurrency."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Self

from simulator.errors import Setting, WorkloadError, nearest
from simulator.questions.length_words import distribution, length_list
from simulator.questions.words import as_typed, distinct_parts, said, typed_number, whole
from simulator.workloads.arrivals import Arrivals, ClosedLoop, OpenLoop, Released
from simulator.workloads.lengths import Distribution, Independent, Lengths, Uniform
from simulator.workloads.trace_columns import AskedColumns
from simulator.workloads.workload import RepeatedPrompts, SharedPrefix, Workload, load_workload

ROUNDS = 10  # default requests per concurrent client of a closed loop, as InferenceMAX and most load generators send
AT_ONCE, AT_A_RATE = 3_000, 10_000  # default requests of an offline run (rate inf) and of an open loop
STRATEGIES = ("shuffle", "random")  # AIPerf's, the default first
Spread = Callable[[int, float], Distribution]


def _inferencemax_lengths(nominal_tokens: int, ratio: float) -> Uniform:
    """Return lengths from ratio x nominal to nominal. Source: InferenceMAX, benchmark_serving.py.

    >>> _inferencemax_lengths(1000, 0.8)
    Uniform(low_tokens=800, high_tokens=1000)
    """
    if not 0 < ratio <= 1:
        given = Setting("range_ratio", ratio), "of inferencemax"
        because = "lengths begin at a share of the nominal one"
        raise WorkloadError(given, because, "Give 0.8 for 80 to 100 %")
    return Uniform(max(1, round(ratio * nominal_tokens)), nominal_tokens)


SPREADS: dict[str, Spread] = {  # what --random-range-ratio means, by load generator (--client)
    "vllm": Uniform.around,
    "inferencemax": _inferencemax_lengths,
}


@dataclass(frozen=True)
class WorkloadQuestion:
    """What users send: one of a preset (`workload`), a `trace` or lengths, at a rate or with requests in flight.

    Each field is an option of the command line, whose help explains it (`infercast simulate --help`). Comma lists of
    lengths, rates, burstiness and requests in flight make every combination. Lengths are in tokens, `request_rate` is
    in requests/s over all replicas (inf for all at once), `release_period` in seconds; `balanced`: replicas
    share the load through a balancer that picks the one with the fewest in flight. The names are those of
    `vllm bench serve`; `num_dataset_entries`, `dataset_sampling_strategy` and `warmup_request_count` are AIPerf's.
    `prefix_len` tokens come before each prompt's own, one of `num_prefixes`.

    >>> [(rate, workload)] = WorkloadQuestion(workload="chat", request_rate="2", num_prompts=1_000).workloads()
    >>> rate, len(workload.requests())
    (2.0, 1000)
    """

    workload: str = ""
    trace: Path | None = None
    trace_columns: str = ""
    input_len: str = ""
    output_len: str = ""
    random_range_ratio: float = 0.0
    client: str = "vllm"
    request_rate: str = ""
    burstiness: str = ""
    release_period: float = 0.0
    balanced: bool = False
    max_concurrency: str = ""
    num_prompts: int | None = None
    num_dataset_entries: int = 0
    dataset_sampling_strategy: str = "shuffle"
    warmup_request_count: int = 0
    prefix_len: int = 0
    num_prefixes: int = 1
    seed: int = 0

    def each(self) -> list[Self]:
        """Return a question for every combination of the comma lists, rates last.

        >>> [(one.input_len, one.request_rate) for one in WorkloadQuestion(input_len="8,9", request_rate="1,2").each()]
        [('8', '1'), ('8', '2'), ('9', '1'), ('9', '2')]
        """
        lists: dict[str, list[Any]] = {
            "input_len": length_list(self.input_len, "--isl"),
            "output_len": length_list(self.output_len, "--osl"),
            "burstiness": distinct_parts(self.burstiness, "--burstiness"),
            "max_concurrency": distinct_parts(self.max_concurrency, "--max-concurrency"),
            "request_rate": distinct_parts(self.request_rate, "--request-rate"),
        }
        return [replace(self, **dict(zip(lists, chosen, strict=True))) for chosen in product(*lists.values())]

    def workloads(self, replicas: int = 1) -> list[tuple[float | None, Workload]]:
        """Return (rate, workload) of `each`; the rate is None in a closed loop and where all requests come at once.

        The rate is in requests/s of all `replicas`; the workload is the part of it that one replica is sent.

        Raises WorkloadError for options that contradict each other or lack one, and for rates, lengths or numbers of
        requests that are impossible; ProfileError for an unknown preset.

        >>> [(rate, load)] = WorkloadQuestion(input_len="512", output_len="128", request_rate="8").workloads(replicas=4)
        >>> rate, load.arrivals.rate_per_s
        (8.0, 2.0)
        """
        self._refuse_contradictions()
        if self.balanced and replicas == 1:
            because = "a load is balanced over several replicas, each of which is simulated behind a router"
            raise WorkloadError("--balanced with one share", because, "Give --replicas without --router")
        if self.trace is not None:
            return self._trace_workloads(self.trace, replicas)
        found = []
        for one in self.each():
            with as_typed(said(one)):
                found.append(one._workload(replicas))
        return found

    def one_load(self) -> tuple[float, Workload]:
        """Return the only rate in requests/s and its workload. Raises WorkloadError for several, and for none."""
        (rate, workload), *more = self.workloads()
        if more:
            raise WorkloadError("several loads", "one is asked about", "Give one --request-rate and one of each length")
        if rate is None:
            because = "no number of replicas follows"
            raise WorkloadError("requests that all come at once", because, "Give a finite --request-rate, say 2")
        return rate, workload

    def _workload(self, replicas: int) -> tuple[float | None, Workload]:
        """Return the rate and the workload of a question without lists."""
        lengths, burstiness, name = self._lengths()
        template = Workload(ClosedLoop(1), lengths, 1, self.seed, name, repeated=self._repeated, shared=self._shared)
        if self.in_flight is not None:
            if self.in_flight % replicas:
                given, because = f"--max-concurrency {self.in_flight} over {replicas} replicas", "they share it evenly"
                remedy = f"Give a multiple of {replicas}, or simulate all of them: --router round-robin"
                raise WorkloadError(given, because, remedy)
            share = self.in_flight // replicas
            count = self._count(ROUNDS * share, replicas)
            return None, replace(template, arrivals=ClosedLoop(share), request_count=count)
        if not self.request_rate:
            raise WorkloadError("no --request-rate", "nobody sends anything", "Give, say, --request-rate 2")
        rate = typed_number(self.request_rate, "--request-rate")
        at_once = math.isinf(rate) and rate > 0
        count = self._count(AT_ONCE if at_once else AT_A_RATE, replicas)
        arrivals = ClosedLoop(count) if at_once else self._arrivals(rate / replicas, burstiness, replicas)
        return None if at_once else rate, replace(template, arrivals=arrivals, request_count=count)

    @property
    def in_flight(self) -> int | None:
        """Requests in flight of a question without lists, over all replicas; None for an open loop.

        Raises InfercastError for anything but a whole number above 0.
        """
        return whole(self.max_concurrency, "--max-concurrency")

    def _count(self, default: int, replicas: int) -> int:
        """Return the requests that one replica is sent: --num-prompts / replicas, or a default."""
        if self.num_prompts is None:
            return default
        if self.num_prompts < 1:
            given = f"--num-prompts {self.num_prompts}"
            raise WorkloadError(given, "nobody sends anything", "Give, say, --num-prompts 1000")
        return max(1, self.num_prompts // replicas)

    def _arrivals(self, rate_per_s: float, burstiness: float, replicas: int) -> Arrivals:
        if self.balanced:  # of Poisson arrivals, which replicas take nearly in turn
            return OpenLoop(rate_per_s, float(replicas), replicas)
        if self.release_period:  # the batcher deals what it holds to one replica after the other
            return Released(rate_per_s, self.release_period * replicas, replicas)
        return OpenLoop(rate_per_s, burstiness)

    @property
    def _repeated(self) -> RepeatedPrompts | None:
        if not self.num_dataset_entries:
            return None
        strategy: Any = self.dataset_sampling_strategy
        return RepeatedPrompts(self.num_dataset_entries, strategy, self.warmup_request_count)

    @property
    def _shared(self) -> SharedPrefix | None:
        if not self.prefix_len:
            return None
        if self.num_dataset_entries:
            given = f"--prefix-len {self.prefix_len} with --num-dataset-entries {self.num_dataset_entries}"
            raise WorkloadError(given, "repeated prompts share all of their tokens", "Give one of the two")
        return SharedPrefix(self.prefix_len, self.num_prefixes)

    def _refuse_contradictions(self) -> None:
        self._refuse_lengths()
        self._refuse_gaps()
        self._refuse_prompts()
        if self.request_rate and self.max_concurrency:
            because = "the rate of a closed loop is an outcome"
            raise WorkloadError("--request-rate with --max-concurrency", because, "Give one of the two")
        if self.trace_columns and self.trace is None:
            because = "it says where a trace has its numbers"
            raise WorkloadError(f"--trace-columns {self.trace_columns} without --trace", because, "Give --trace FILE")
        if self.client not in SPREADS:
            because = "its meaning of --random-range-ratio is not known"
            raise WorkloadError(f"--client {self.client}", because, nearest(self.client, SPREADS))

    def _refuse_lengths(self) -> None:
        plain = bool(self.input_len or self.output_len)
        parts = {"--workload": self.workload, "--trace": self.trace, "--isl and --osl": plain}
        given = [name for name, value in parts.items() if value]
        if len(given) != 1:
            because = "they say different things" if given else "the lengths of the requests are not known"
            raise WorkloadError(
                " with ".join(given) or "no workload", because, "Give one of --workload, --trace, or --isl and --osl"
            )
        if plain and not (self.input_len and self.output_len):
            raise WorkloadError(
                f"{given[0]} in part", "a request has a prompt and an output", "Give both --isl and --osl"
            )
        if self.random_range_ratio and not plain:
            because = "its lengths are its own"
            raise WorkloadError(f"--random-range-ratio with {given[0]}", because, "Leave --random-range-ratio out")

    def _refuse_gaps(self) -> None:
        if self.burstiness and (self.trace is not None or self.max_concurrency):
            because = "only requests at a rate of your own have gaps to draw"
            raise WorkloadError("--burstiness with --trace or --max-concurrency", because, "Leave --burstiness out")
        if self.release_period and (self.burstiness or self.max_concurrency or self.trace):
            because = "a batcher holds Poisson arrivals at a rate of your own"
            contradiction = "--release-period with --burstiness, --max-concurrency or --trace"
            raise WorkloadError(contradiction, because, "Leave --release-period out")
        if self.balanced and (self.burstiness or self.release_period or self.max_concurrency or self.trace):
            because = "replicas share Poisson arrivals at a rate of your own"
            contradiction = "--balanced with --burstiness, --release-period, --max-concurrency or --trace"
            raise WorkloadError(contradiction, because, "Leave --balanced out")
        rates = (
            typed_number(each, "--request-rate") for each in distinct_parts(self.request_rate, "--request-rate") if each
        )
        options = {
            "--burstiness": self.burstiness,
            "--release-period": self.release_period,
            "--balanced": self.balanced,
        }
        given = next((name for name, value in options.items() if value), "")
        if given and math.inf in rates:
            because = "all requests come at once, without gaps"
            raise WorkloadError(f"{given} with --request-rate inf", because, f"Leave {given} out")

    def _refuse_prompts(self) -> None:
        if self.num_dataset_entries and self.trace is not None:
            because = "which prompts of a trace are the same is its own"
            raise WorkloadError("--num-dataset-entries with --trace", because, "Leave --num-dataset-entries out")
        strategy = f"--dataset-sampling-strategy {self.dataset_sampling_strategy}"
        if self.dataset_sampling_strategy not in STRATEGIES:
            hint = nearest(self.dataset_sampling_strategy, STRATEGIES)
            raise WorkloadError(strategy, "prompts are drawn in no such way", hint)
        is_drawn = self.dataset_sampling_strategy != STRATEGIES[0]
        if not self.num_dataset_entries and (is_drawn or self.warmup_request_count):
            given = strategy if is_drawn else f"--warmup-request-count {self.warmup_request_count}"
            raise WorkloadError(given, "no prompt is sent again", "Give --num-dataset-entries too")
        if self.prefix_len and self.trace is not None:
            because = "which prompts of a trace begin alike is its own"
            raise WorkloadError("--prefix-len with --trace", because, "Leave --prefix-len out")
        if self.num_prefixes != 1 and not self.prefix_len:
            raise WorkloadError(f"--num-prefixes {self.num_prefixes}", "nothing is shared", "Give --prefix-len too")

    def _lengths(self) -> tuple[Lengths, float, str]:
        shape = typed_number(self.burstiness, "--burstiness") if self.burstiness else None
        if self.workload:
            preset = load_workload(self.workload)
            return preset.lengths, float(preset.burstiness) if shape is None else shape, preset.id
        sides = (("--isl", self.input_len), ("--osl", self.output_len))
        spread = SPREADS[self.client]
        prompts, outputs = (distribution(text, self.random_range_ratio, option, spread) for option, text in sides)
        return Independent(prompts, outputs), 1.0 if shape is None else shape, ""

    def _trace_workloads(self, path: Path, replicas: int) -> list[tuple[float | None, Workload]]:
        if replicas > 1:
            because = "which replica serves which of its requests is a router's choice"
            raise WorkloadError(f"--trace with --replicas {replicas}", because, "Use `infercast fleet`")
        from simulator.workloads.traces import read_trace  # noqa: PLC0415  pandas takes half a second

        trace = read_trace(path, AskedColumns.of(self.trace_columns))
        replay = Workload.from_trace(trace, self.num_prompts)
        if self.max_concurrency:
            loops = [ClosedLoop(one.in_flight or 1) for one in self.each()]
            return [(None, replace(replay, arrivals=loop)) for loop in loops]
        own: Any = replay.arrivals
        rates = [typed_number(one.request_rate, "--request-rate") for one in self.each() if one.request_rate]
        at_own = None if math.isinf(own.rate_per_s) else own.rate_per_s
        return [(rate, replay.at_rate(rate)) for rate in rates] or [(at_own, replay)]
