"""What a published source's scripts and configurations set for an engine and a load, where its rows do not say."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from simulator.deployment.deployment import Settings
from simulator.engines.engine import Engine
from simulator.hardware.hardware import Hardware
from simulator.models.model import Model
from simulator.models.number_formats import number_format
from simulator.models.operations import Layout
from simulator.validation.measurements import SYNTHETIC, Setup
from simulator.workloads.arrivals import Arrivals, OpenLoop
from simulator.workloads.lengths import Distribution

POOLING = "vllm bench serve", "sglang.bench_serving"  # vllm/benchmarks/serve.py and what SGLang made of it
AIPERF_PROMPTS = 100  # AIPerf draws so many prompts and repeats them (--num-dataset-entries of its versions of 2025)


class Limits(NamedTuple):
    """Sequences and tokens of a step, and the share of the memory that an engine takes; None is its default."""

    max_num_seqs: float | None = None
    max_num_batched_tokens: float | None = None
    memory_fraction: float | None = None


class Degrees(NamedTuple):
    """Tensor, pipeline and data degrees of a layout."""

    tp: int
    pp: int
    dp: int


class Load(NamedTuple):
    """The lengths of requests, and the mean tokens that they generate."""

    prompt: Distribution
    output: Distribution
    output_tokens: float


@dataclass(frozen=True)
class Recipe:
    """One setup of a source; this class is of a source whose scripts are not known, and sets nothing.

    Each known source is a class of its own: `wrote` tells its rows, and the rest says where its scripts were read.
    """

    setup: Setup
    model: Model
    hardware: Hardware

    @staticmethod
    def wrote(setup: Setup) -> bool:
        """Tell whether a setup is of this source."""
        return True

    # --- the engine

    @property
    def is_vllm(self) -> bool:
        """Whether the engine is vLLM."""
        return self.setup.engine.lower().startswith("vllm")

    @property
    def is_sglang(self) -> bool:
        """Whether the engine is SGLang."""
        return self.setup.engine.lower().startswith("sglang")

    @property
    def is_tensorrt(self) -> bool:
        """Whether the engine is TensorRT-LLM."""
        return self.setup.engine.startswith("TensorRT")

    @property
    def preset(self) -> tuple[str, str]:
        """Name and release of the engine, and the date, which counts where no release is stated (or a nightly one)."""
        day = self.setup.date.partition(" ")[0]  # (a paper's number may follow)
        return self.setup.engine or "vllm", f"{self.setup.engine_version} {day}"

    @property
    def decides_ahead(self) -> bool:
        """Whether the engine was asked to decide a step while the one before runs."""
        return False

    @property
    def rules(self) -> dict[str, object]:
        """The engine's rules that the scripts set, by field."""
        return {}

    @property
    def streams(self) -> bool:
        """Whether clients ask for each token as it is made."""
        return True

    # --- the layout

    @property
    def weights(self) -> str:
        """Number format of weights that a row does not state; "" for the checkpoint's."""
        return ""

    @property
    def fp8_dtype(self) -> str:
        """What a row calls fp8: the kind of the checkpoint, where that is scaled in blocks."""
        return self.model.weight_dtype if self.model.weight_dtype == "fp8-block" else "fp8"

    @property
    def int4_dtype(self) -> str:
        """What a row calls int4: GPTQ or AWQ, where the engine has no four bits of its own."""
        return "int4"

    def cache_dtype(self, stated: str, weights: str, engine: Engine) -> str:
        """Return the number format of the cache: the stated one, or fp8 where a quantised checkpoint carries it."""
        is_small = number_format(weights).compute[0] in ("fp8", "fp4")
        carries = engine.fp8_cache if self.carries_fp8_cache is None else self.carries_fp8_cache
        return stated or ("fp8" if is_small and carries else self.model.dtype)

    @property
    def carries_fp8_cache(self) -> bool | None:
        """Whether a quantised checkpoint runs with an fp8 cache; None where the engine decides."""
        return None

    @property
    def degrees(self) -> Degrees | None:
        """Degrees of the layout where a row states no tensor degree; None where they are not known either."""
        return None

    def limits(self, layout: Layout) -> Limits:
        """Return the limits that the scripts set."""
        return Limits()

    def settings(self, layout: Layout) -> Settings:
        """Return the limits that a row states, or else those that the scripts set."""
        known = self.limits(layout)
        seqs = self.setup.max_num_seqs or known.max_num_seqs
        tokens = self.setup.max_num_batched_tokens or known.max_num_batched_tokens
        return Settings(
            max_num_seqs=int(seqs) if seqs else None,
            max_num_batched_tokens=int(max(tokens, seqs or 1)) if tokens else None,
            max_model_len=min(self.setup.max_model_len, self.model.max_context_tokens) or None,
            memory_fraction=self.setup.gpu_memory_utilization or known.memory_fraction,
        )

    @property
    def max_model_len(self) -> int:
        """Tokens of one sequence that a server must have room for; where scripts are not known, of a request."""
        return math.ceil(self.setup.input_tokens + self.setup.output_tokens)

    @property
    def retried_fraction(self) -> float | None:
        """Share of the memory of the second start, with an fp8 cache, of a server that lacks it; None for no second."""
        return None

    # --- the load

    def load(self) -> Load | None:
        """Return the lengths that the source fixes or that its load generator draws; None for those of the row."""
        return None

    @property
    def client(self) -> str:
        """Whose meaning `random_range_ratio` has."""
        return "vllm"

    @property
    def random_range_ratio(self) -> float:
        """How far its load generator spreads both lengths; 0 for not at all."""
        return 0.0

    @property
    def mean_of_nominal(self) -> float:
        """The mean length over the stated one."""
        return 1.0

    @property
    def has_data_set(self) -> bool:
        """Whether the stated lengths are means of a data set."""
        return self.setup.dataset not in SYNTHETIC

    @property
    def output_tokens(self) -> float:
        """Tokens that a request of a batch generates."""
        return self.setup.output_tokens

    @property
    def request_count(self) -> float | None:
        """How many requests the source says that it sent, or that its scripts send."""
        return self.setup.num_prompts or None

    def requests_of_replica(self, replicas: int) -> int | None:
        """Return how many requests each replica serves in a run as long as the source asks; None without rules."""
        return None

    def arrivals(self, rate_per_s: float, replicas: int) -> Arrivals:
        """Return how requests come to each of the replicas, so many a second: Poisson where nothing else is stated."""
        return OpenLoop(rate_per_s, self.setup.burstiness or 1.0)

    @property
    def distinct_prompts(self) -> int:
        """How many prompts the load generator repeats; 0 where each request has its own."""
        usual = AIPERF_PROMPTS if self.setup.client == "aiperf" else 0
        return self.setup.num_dataset_entries or usual

    @property
    def draws_prompts(self) -> bool:
        """Whether each request draws one of these prompts; else they come in turn, all before one comes again."""
        return False

    @property
    def warming_requests(self) -> int:
        """How many requests with these prompts the load generator sends before the run, and waits for."""
        return 0

    @property
    def gathered_steps(self) -> int:
        """For how many steps more the engine lets a prompt wait for others, before it computes them together."""
        return 0

    @property
    def pools_gaps(self) -> bool:
        """Whether an ITL is of the gaps of all requests together, and not of each request's mean gap."""
        return self.setup.client in POOLING

    @property
    def latency_limits_s(self) -> tuple[float, float] | None:
        """The p99 of TTFT and TPOT that a valid run keeps, in seconds."""
        return None

    @property
    def first_call_s(self) -> float:
        """Seconds that a timed run spends on the first call, where the source did not warm it up."""
        return 0.0
