"""Workloads: arrivals and lengths together, the requests that they make, presets fitted to published traces."""

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from simulator.arrays import Bools, Floats, Ints
from simulator.errors import ProfileError, Setting, WorkloadError, nearest
from simulator.limits import is_whole, refuse_beyond_memory
from simulator.profile import Number, Profile, Strict, find
from simulator.units import counted
from simulator.workloads.arrivals import Arrivals, ClosedLoop, OpenLoop, RecordedArrivals
from simulator.workloads.lengths import MAX_TOKENS, Banded, Fixed, Independent, Lengths, Recorded
from simulator.workloads.shared_prefixes import Prefixes

if TYPE_CHECKING:
    from simulator.workloads.traces import Trace

KIND = "workloads"
Sampling = Literal["shuffle", "random"]
MAX_REQUESTS = 100_000_000
DRAWN_FOR_SHARE = 100_000  # requests by which the share of long prompts is counted
LEAST_SHARE = 0.001  # of all requests in each of two parts
REQUEST_BYTES = 600  # of a request on its way through a run: drawn, copied, scheduled, reported
COLUMNS = {
    "arrival_s": np.float64,
    "prompt_tokens": np.int64,
    "output_tokens": np.int64,
    "priority": np.int64,
    "prefilled": np.bool_,
}


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """A table of n requests in the order of arrival: contiguous, read-only arrays of shape (n,).

    `arrival_s` float64, seconds, rising from 0 or later; `prompt_tokens` and `output_tokens` int64, at least 1.
    `concurrency` 0: each request arrives at its time. k > 0: a closed loop, all times are 0, the first k requests are
    in flight at once and each completion sends the next. `priority` int64: smaller goes first where the engine
    schedules by priority; `prefilled` bool: the KV cache of its prompt and its first token were computed elsewhere;
    both may be of shape (1,) for all requests. `prefixes`: which requests begin with the same tokens; of length 0 where
    none do. `seed`: that they were drawn with, for what a router draws. `asked_per_s`: rate in requests/s at which
    arrivals of an open loop were drawn; 0 for others.

    Raises WorkloadError for columns of different lengths or none, times that fall or are negative or not finite,
    lengths below 1, and a prefilled request of one output token.
    """

    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    concurrency: int = 0
    priority: Ints = field(default_factory=lambda: np.zeros(1, np.int64))
    prefilled: Bools = field(default_factory=lambda: np.zeros(1, np.bool_))
    prefixes: Prefixes = field(default_factory=lambda: Prefixes.of([]))
    seed: int = 0
    asked_per_s: float = 0.0

    def __post_init__(self) -> None:
        for name, kind in COLUMNS.items():
            array: NDArray[Any] = np.array(getattr(self, name), dtype=kind, order="C")  # a copy of our own
            if name in ("priority", "prefilled") and len(array) == 1:
                array = np.broadcast_to(array, len(self.arrival_s))
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        lengths = {len(getattr(self, name)) for name in COLUMNS} | {len(self.prefixes) or len(self.arrival_s)}
        if lengths != {len(self.arrival_s)} or lengths == {0}:
            raise WorkloadError("requests", "their columns differ in length or are empty", "Give one value per request")
        if not (np.isfinite(self.arrival_s).all() and self.arrival_s[0] >= 0 and (np.diff(self.arrival_s) >= 0).all()):
            raise WorkloadError("arrivals", "they are not finite, rising times from 0 on", "Sort and check them")
        if min(self.prompt_tokens.min(), self.output_tokens.min()) < 1:
            raise WorkloadError("lengths", "a request has at least one token each way", "Remove empty requests")
        if (self.prefilled & (self.output_tokens < 2)).any():
            because = "a request that comes with its cache and its first token has a second one to produce"
            raise WorkloadError("lengths", because, "Leave out those of one output token")

    def __len__(self) -> int:
        return len(self.arrival_s)

    def only(self, rows: Ints, arrival_s: Floats | None = None) -> Self:
        """Return the requests of some rows, shape (kept,), int64, at their own times or at others in seconds."""
        prefixes = self.prefixes
        if len(prefixes):
            prefixes = replace(prefixes, first=prefixes.first[rows], count=prefixes.count[rows])
        columns = {name: getattr(self, name)[rows] for name in COLUMNS}
        if arrival_s is not None:
            columns["arrival_s"] = arrival_s
        return replace(self, **columns, prefixes=prefixes)

    @property
    def max_prompt_tokens(self) -> int:
        """Tokens of the longest prompt."""
        return int(self.prompt_tokens.max())

    @property
    def max_total_tokens(self) -> int:
        """Most tokens of one request, prompt and output together."""
        return int((self.prompt_tokens + self.output_tokens).max())


@dataclass(frozen=True, slots=True)
class RepeatedPrompts:
    """A load generator that draws `entries` prompts once and repeats them, as AIPerf does (--num-dataset-entries).

    `sampling`, its --dataset-sampling-strategy: "shuffle" sends all prompts once, in a new order, before any is
    repeated; "random" draws each request's prompt. `warmup_requests` (--warmup-request-count) with these prompts are
    sent and finished before the run, so their prompts are in the prefix cache when it begins.

    Raises WorkloadError for less than one entry and for a negative number of warm-up requests.

    >>> RepeatedPrompts(3, warmup_requests=2).asked(4, seed=0)
    (array([1, 2, 1, 0]), array([2, 0]))
    """

    entries: int
    sampling: Sampling = "shuffle"
    warmup_requests: int = 0

    def __post_init__(self) -> None:
        refuse_beyond_memory(f"{self.entries:,} prompts to repeat", self.entries * 32.0, "Give fewer")
        if self.entries < 1 or self.warmup_requests < 0:
            given = f"{self.entries} prompts to repeat, {self.warmup_requests} requests to warm up"
            raise WorkloadError(
                given, "there is at least one prompt, and no fewer than no request", "Give, say, 100 and 0"
            )

    def asked(self, request_count: int, seed: int) -> tuple[Ints, Ints]:
        """Return the prompt index of each request, shape (request_count,), int64, and of each warm-up request."""
        rng, count = np.random.default_rng(seed), self.warmup_requests + request_count
        in_turn = [rng.permutation(self.entries) for _ in range(-(-count // self.entries))]
        drawn = rng.integers(self.entries, size=count) if self.sampling == "random" else np.concatenate(in_turn)
        return drawn[self.warmup_requests : count], drawn[: self.warmup_requests]


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """So many `tokens` before each prompt's own that requests share: a system prompt, or one of several documents.

    Each request has one of `count` prefixes at random. One is `vllm bench serve`'s --random-prefix-len, several its
    dataset prefix_repetition (--prefix-repetition-num-prefixes).

    Raises WorkloadError for less than one token or prefix.

    >>> SharedPrefix(2000, count=3).asked(5, seed=0)
    array([2, 1, 1, 0, 0])
    """

    tokens: int
    count: int = 1

    def __post_init__(self) -> None:
        if self.tokens < 1 or self.count < 1:
            given = f"{self.count} shared prefixes of {self.tokens} tokens"
            raise WorkloadError(given, "both are at least 1", "Give, say, --prefix-len 2000, or leave it out")

    def asked(self, request_count: int, seed: int) -> Ints:
        """Return the prefix of each request, shape (request_count,), int64."""
        return np.random.default_rng(seed).integers(self.count, size=request_count)


@dataclass(frozen=True, slots=True)
class PromptRange:
    """Prompts of more than `above` tokens, up to `up_to`, which are a `share` of all, above 0 to 1."""

    above: int
    up_to: int
    share: float

    def __str__(self) -> str:
        return f"prompts up to {self.up_to:,} tokens" if not self.above else f"prompts above {self.above:,} tokens"


@dataclass(frozen=True, slots=True)
class Workload:
    """Arrivals, lengths, number of requests and seed: all that users send, as one value.

    The seed makes three random streams (arrivals, prompts, outputs), so changing one part leaves the others unchanged.
    The first n requests do not depend on `request_count`. Raises WorkloadError for a count outside of 1 to MAX_REQUESTS
    and for a negative seed.

    >>> from simulator.workloads.lengths import Fixed, Independent
    >>> load = Workload(OpenLoop(rate_per_s=2.0), Independent(Fixed(512), Fixed(128)), request_count=1000)
    >>> print(load.describe())
    1,000 requests, Poisson arrivals at 2/s: prompts mean 512 (p95 512), outputs mean 128 (p95 128) tokens
    """

    arrivals: Arrivals
    lengths: Lengths
    request_count: int = 1000
    seed: int = 0
    name: str = ""
    prefixes: Prefixes = field(default_factory=lambda: Prefixes.of([]))  # of request_count requests or more, or of none
    repeated: RepeatedPrompts | None = None  # None: each request has a prompt of its own
    shared: SharedPrefix | None = None  # None: prompts begin with tokens of their own
    prompts: PromptRange | None = None  # None: all; else those that fall into it, of requests so many times as frequent

    def __post_init__(self) -> None:
        if not is_whole(self.request_count) or not 1 <= self.request_count <= MAX_REQUESTS:
            because = f"it is not a whole number from 1 to {MAX_REQUESTS:,}"
            raise WorkloadError(Setting("request_count", self.request_count), because, "Give, say, 1000")
        if not is_whole(self.seed) or self.seed < 0:
            raise WorkloadError(Setting("seed", self.seed), "it is not a whole number from 0 on", "Give, say, 0")

    @property
    def is_random(self) -> bool:
        """Whether another seed makes other requests: a trace, and a closed loop of equal requests, are as they are."""
        if isinstance(self.arrivals, RecordedArrivals):
            return False
        lengths = self.lengths
        equal = (
            isinstance(lengths, Independent) and isinstance(lengths.prompt, Fixed) and isinstance(lengths.output, Fixed)
        )
        drawn = self.repeated is not None or (self.shared is not None and self.shared.count > 1)
        return not (equal and isinstance(self.arrivals, ClosedLoop) and not drawn)

    @classmethod
    def from_trace(cls, trace: "Trace", request_count: int | None = None, speed: float = 1.0) -> Self:
        """Return the replay of a trace: its first `request_count` requests (None: all), `speed` times as fast.

        Drawing them raises WorkloadError if the trace has fewer.
        """
        arrivals = RecordedArrivals(trace.name, trace.arrival_s, speed)
        lengths = Recorded(trace.prompt_tokens, trace.output_tokens)
        count = len(trace) if request_count is None else request_count
        return cls(arrivals, lengths, count, prefixes=trace.prefixes)

    def at_rate(self, rate_per_s: float) -> Self:
        """Return the same requests at another mean rate in requests/s: same lengths, same gaps stretched.

        Raises WorkloadError for a closed loop.
        """
        return replace(self, arrivals=self.arrivals.at_rate(rate_per_s))

    def requests(self) -> Requests:
        """Return the requests; the same workload always draws the same ones.

        Raises InfercastError where they exceed the memory.
        """
        if self.prompts is not None:
            return self._in_range(self.prompts)
        needed_bytes = self.request_count * REQUEST_BYTES
        refuse_beyond_memory(f"{self.request_count:,} requests", needed_bytes, "Give fewer, say --num-prompts 100000")
        arrival_rng, prompt_rng, output_rng = map(np.random.default_rng, np.random.SeedSequence(self.seed).spawn(3))
        prompt_tokens, output_tokens = self.lengths.draw(self.request_count, prompt_rng, output_rng)
        arrival_s = self.arrivals.times_s(self.request_count, arrival_rng)
        prompt_tokens = prompt_tokens + (self.shared.tokens if self.shared else 0)
        prefixes = self.prefixes.head(self.request_count)
        return Requests(
            arrival_s,
            prompt_tokens,
            output_tokens,
            self.arrivals.concurrency,
            prefixes=prefixes,
            seed=self.seed,
            asked_per_s=self._asked_per_s,
        )

    @property
    def _asked_per_s(self) -> float:
        return self.arrivals.rate_per_s if isinstance(self.arrivals, OpenLoop) else 0.0

    def _in_range(self, asked: PromptRange) -> Requests:
        """Return the first requests with such prompts, of a load that is drawn whole: both parts are of one trace."""
        arrivals: Arrivals = self.arrivals
        if not arrivals.concurrency:
            arrivals = arrivals.at_rate(getattr(arrivals, "rate_per_s", 1.0) / asked.share)
        whole = replace(self, prompts=None, prefixes=Prefixes.of([]), arrivals=arrivals)
        count, rows = math.ceil(self.request_count / asked.share), np.zeros(0, np.int64)
        while len(rows) < self.request_count:
            count = math.ceil(1.1 * count) + 10
            found = replace(whole, request_count=count).requests()
            rows = np.flatnonzero((found.prompt_tokens > asked.above) & (found.prompt_tokens <= asked.up_to))
        kept = found.only(rows[: self.request_count])
        return replace(kept, prefixes=self.prefixes.head(self.request_count), asked_per_s=self._asked_per_s)

    def describe(self, sent: Requests | None = None) -> str:
        """Return one sentence on the workload, with the lengths of `sent` where requests were derived from it."""
        requests = self.requests() if sent is None else sent
        sides = (("prompts", requests.prompt_tokens), ("outputs", requests.output_tokens))
        lengths = ", ".join(f"{side} mean {t.mean():,.0f} (p95 {np.percentile(t, 95):,.0f})" for side, t in sides)
        many = counted(self.request_count, f"{self.name} request".strip())
        return f"{many}, {self.arrivals.describe()}: {lengths} tokens"


def split_by_prompt(workload: Workload, tokens: int) -> tuple[Workload, Workload]:
    """Return the requests with prompts of up to `tokens` and those with longer ones, each at its share of the rate.

    Both parts are of the same requests. Raises WorkloadError where one part has less than LEAST_SHARE of them, and for
    a closed loop.
    """
    prompts = replace(workload, request_count=DRAWN_FOR_SHARE).requests().prompt_tokens
    short = float((prompts <= tokens).mean())
    if not LEAST_SHARE <= short <= 1 - LEAST_SHARE:
        ends = f"prompts have {prompts.min():,} to {prompts.max():,} tokens"
        because = f"{ends}, {short:.1%} of them up to that"
        raise WorkloadError(f"prompts split at {tokens:,} tokens", because, "Give a number between")
    rate = getattr(workload.arrivals, "rate_per_s", 1.0)
    ranges = PromptRange(0, tokens, short), PromptRange(tokens, MAX_TOKENS, 1 - short)
    first, second = (replace(workload.at_rate(rate * each.share), prompts=each) for each in ranges)
    return first, second


class PresetLengths(Banded):
    """Lengths with the key of the source that they were fitted to."""

    source: str


class Agreement(Strict):
    """One statistic of the trace, and of the requests that the preset draws."""

    trace: float
    preset: float


class WorkloadPreset(Profile):
    """A kind of use, fitted to a published trace: lengths and burstiness, never a rate."""

    description: str
    notes: str = ""
    burstiness: Number
    lengths: PresetLengths
    fit: dict[str, Agreement]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.lengths.source not in self.sources:
            hint = nearest(self.lengths.source, self.sources)
            raise ProfileError(f"source {self.lengths.source!r}", "it is not in sources:", hint)
        self.arrivals(rate_per_s=1.0)  # refuses a burstiness that no arrivals can have
        return self

    def arrivals(self, rate_per_s: float) -> OpenLoop:
        """Return arrivals as bursty as the trace's, at a rate of your own in requests/s."""
        return OpenLoop(rate_per_s, float(self.burstiness))


def load_workload(name: str) -> WorkloadPreset:
    """Return a preset by name or path. Raises ProfileError with the nearest names for an unknown one.

    >>> load_workload("chat").fit["output_p95_tokens"]
    Agreement(trace=451.0, preset=456.0)
    """
    return WorkloadPreset.from_yaml(find(KIND, name))
