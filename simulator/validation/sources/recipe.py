"""What a published source's scripts and configurations set for an engine and a load, where its rows do not say."""

from dataclasses import dataclass
from typing import NamedTuple

from simulator.deployment.layouts import usual_cache
from simulator.deployment.settings import Settings
from simulator.engines.engine import Engine
from simulator.hardware.hardware import Hardware
from simulator.models.layout import Layout
from simulator.models.model import Model
from simulator.models.number_formats import number_format
from simulator.profile import joined
from simulator.validation.measurements import SYNTHETIC, Setup
from simulator.workloads.arrivals import Arrivals, OpenLoop
from simulator.workloads.lengths import Distribution

POOLING = "vllm bench serve", "sglang.bench_serving"  # vllm/benchmarks/serve.py and its descendant pool all gaps
AIPERF_PROMPTS = 100  # distinct prompts that AIPerf repeats: the default --num-dataset-entries of its versions of 2025


class Limits(NamedTuple):
    """Limits of the engine: sequences and tokens of a step, share of the memory; None is the engine's default."""

    max_num_seqs: float | None = None
    max_num_batched_tokens: float | None = None
    memory_fraction: float | None = None


class Balancer(NamedTuple):
    """What is in front of several replicas: a router (--router) and its workers; "": they share the load evenly."""

    router: str = ""
    workers: int = 1


class Degrees(NamedTuple):
    """Tensor-, pipeline- and data-parallel degrees."""

    tp: int
    pp: int
    dp: int


class Load(NamedTuple):
    """Distributions of prompt and output lengths, and the mean output, in tokens."""

    prompt: Distribution
    output: Distribution
    output_tokens: float


@dataclass(frozen=True)
class Recipe:
    """A setup, and what its source sets for it; this class is of sources whose scripts are not known, and sets nothing.

    Each known source is a subclass, whose methods name where its scripts were read; RECIPES says which rows are of it.
    """

    setup: Setup
    model: Model
    hardware: Hardware

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
        return joined(self.setup.engine).removeprefix("nvidia").startswith(("tensorrt", "trtllm"))

    @property
    def preset(self) -> tuple[str, str]:
        """Name of the engine, and its release and date; the date counts where the release is unknown or nightly."""
        day = self.setup.date.partition(" ")[0]  # the number of a paper may follow
        return self.setup.engine or "vllm", f"{self.setup.engine_version} {day}"

    @property
    def decides_ahead(self) -> bool:
        """Whether the scripts turn on async scheduling: a step is scheduled while the one before runs."""
        return False

    @property
    def rules(self) -> dict[str, object]:
        """Engine settings that the scripts set, by our names (deployment/setting_names.py)."""
        return {}

    @property
    def streams(self) -> bool:
        """Whether clients receive each token as it is generated."""
        return True

    # --- the layout

    @property
    def part(self) -> tuple[str, int] | None:
        """Profile of the part of a device that each engine has to itself, and how many parts a device has."""
        return None

    @property
    def weights(self) -> str:
        """Number format of weights that a row does not state; "" for the checkpoint's."""
        return ""

    @property
    def fp8_dtype(self) -> str:
        """What a row calls fp8: the checkpoint of the model's publisher."""
        return self.model.published_fp8

    @property
    def fp4_dtype(self) -> str:
        """What a row calls nvfp4: the checkpoint that the model's profile names."""
        return "nvfp4"

    @property
    def int4_dtype(self) -> str:
        """What a row calls int4: GPTQ or AWQ, where the engine has no four bits of its own."""
        return "int4"

    def file_format(self, stated: str) -> str:
        """Return the format in the name of the file whose weights a row calls `stated`."""
        return stated

    def cache_dtype(self, stated: str, weights: str, engine: Engine) -> str:
        """Return the number format of the KV cache: the stated one, or fp8 where a quantised checkpoint carries it.

        `weights`: number format of the weights.
        """
        is_small = number_format(weights).compute[0] in ("fp8", "fp4")
        asked = "fp8" if self.carries_fp8_cache and is_small else ""
        usual = usual_cache(weights, engine) if self.carries_fp8_cache is None else ""
        return stated or asked or usual or self.model.dtype

    @property
    def carries_fp8_cache(self) -> bool | None:
        """Whether a checkpoint with fp8 or fp4 weights runs with an fp8 KV cache; None where the engine decides."""
        return None

    @property
    def degrees(self) -> Degrees | None:
        """Parallel degrees where a row states no tensor degree; None where the source does not set them either."""
        return None

    def limits(self, layout: Layout) -> Limits:
        """Return the limits that the scripts set for a layout."""
        return Limits()

    def settings(self, layout: Layout) -> Settings:
        """Return the engine settings: the limits that a row states, or else those that the scripts set."""
        known = self.limits(layout)
        seqs = self.setup.max_num_seqs or known.max_num_seqs
        tokens = self.setup.max_num_batched_tokens or known.max_num_batched_tokens
        return Settings(
            max_num_seqs=int(seqs) if seqs else None,
            max_num_batched_tokens=int(max(tokens, -(-(seqs or 1) // layout.pp))) if tokens else None,
            max_model_len=min(self.setup.max_model_len, self.model.max_context_tokens) or None,
            memory_fraction=self.setup.gpu_memory_utilization or known.memory_fraction,
        )

    # --- the load

    @property
    def balancer(self) -> Balancer:
        """What is in front of the replicas: an even share where that is not known."""
        return Balancer()

    def load(self) -> Load | None:
        """Return the lengths that the source fixes or its load generator draws; None for those of the row."""
        return None

    @property
    def client(self) -> str:
        """The load generator whose meaning `random_range_ratio` has (questions/workload_question.py)."""
        return "vllm"

    @property
    def random_range_ratio(self) -> float:
        """How far its load generator spreads both lengths (--random-range-ratio); 0 for equal lengths."""
        return 0.0

    @property
    def mean_of_nominal(self) -> float:
        """Mean length over the stated one."""
        return 1.0

    @property
    def has_data_set(self) -> bool:
        """Whether the stated lengths are means of a data set."""
        return self.setup.dataset not in SYNTHETIC

    @property
    def output_tokens(self) -> float:
        """Output tokens of each request of a batch."""
        return self.setup.output_tokens

    @property
    def request_count(self) -> float | None:
        """Requests of the run, of all replicas, that the source states or its scripts send; None where unknown."""
        return self.setup.num_prompts or None

    def requests_of_replica(self, replicas: int) -> int | None:
        """Return how many requests each replica serves under the source's rules for a run; None without rules."""
        return None

    def arrivals(self, rate_per_s: float, replicas: int) -> Arrivals:
        """Return the arrivals at each of `replicas`, at `rate_per_s` requests/s: Poisson unless stated otherwise."""
        return OpenLoop(rate_per_s, self.setup.burstiness or 1.0)

    @property
    def distinct_prompts(self) -> int:
        """How many prompts the load generator repeats (--num-dataset-entries); 0 where each request has its own."""
        usual = AIPERF_PROMPTS if self.setup.client == "aiperf" else 0
        return self.setup.num_dataset_entries or usual

    @property
    def draws_prompts(self) -> bool:
        """Whether each request draws one of these prompts; else all are sent once before any is repeated."""
        return False

    @property
    def warmup_requests(self) -> int:
        """Requests with these prompts that the load generator sends, and waits for, before the run."""
        return 0

    @property
    def gathered_steps(self) -> int:
        """Steps that the engine lets a prompt wait for others, before it computes them together."""
        return 0

    @property
    def pools_gaps(self) -> bool:
        """Whether an ITL is over the gaps of all requests together, and not over each request's mean gap."""
        return self.setup.client in POOLING

    @property
    def latency_limits_s(self) -> tuple[float, float] | None:
        """Bounds in seconds on the p99 of TTFT and TPOT that a valid run keeps; None without bounds."""
        return None

    @property
    def first_call_s(self) -> float:
        """Seconds that a timed run spends on its first call, where the source did not warm the engine up."""
        return 0.0
