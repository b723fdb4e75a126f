"""What MLPerf Inference fixes for its language models, and what the published harnesses of its entries set.

Data sets: the lengths of openshift-psap/performance-dashboard mlperf-data/summaries (counted from the official files),
some hundred rows of each, read 2026-11-21, and of Llama-3.1-405B by kind, 2026-11-22. Limits:
mlcommons/inference_policies@ac93e89.
Harness: closed/NVIDIA/configs of mlcommons/inference_results_v4.1 and v5.0 and of two copies of v5.1
(ykamiset/inference_results_v5.1; closed/{HPE,ASUSTeK,Cisco}/configs of ntuhpc/inference_results_v5.1), builder.py of
v-shobhit/inference_results_v4.1; for AMD closed/Dell of v4.1 (code/llama2-70b-99, the scheduler in docker/vllm) and
harness_llm/models of closed/{AMD,MiTAC,GigaComputing,Vultr}/code of v5.1; read 2026-11-21 and 22; of v4.1
closed/{ASUSTeK,Fujitsu}/configs, and closed/RedHat/systems ("CUDA 12.2" is vLLM 0.5.1); read 2026-11-24. Front end of
Llama-3.1-8B and DeepSeek-R1 in v5.1: one trtllm-serve for each replica, whose client streams each token over HTTP but
offline (llmlib/config.py, cores/trtllm_endpoint_core.py and http_async_client.py of ykamiset's copy; read 2026-11-22).
"""

import re
from typing import NamedTuple

import numpy as np

from simulator.errors import NotModelledError
from simulator.models.operations import Layout
from simulator.validation.measurements import Setup
from simulator.validation.sources.recipe import Degrees, Limits, Load, Recipe
from simulator.workloads.arrivals import Arrivals, OpenLoop, Released
from simulator.workloads.lengths import Distribution, Fixed, LogNormal, Quantiles

LEVELS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97, 1.0)
SPREAD = 0.8  # guess: the coefficient of variation of outputs; Mixtral's is 0.9, GPT-4's on OpenOrca 0.9
LONG_RUN = 40_000  # guess: requests of a replica in the ten to forty minutes of an offline run, mostly steady
RACK = 72  # devices of an NVL72
SERVER_S = 600.0  # least seconds of a server run: min_duration of the rules
# min_duration of NVIDIA's server and interactive settings where they ask for more (read 2026-11-22: v4.1's, and v5.1's
# of B200); near saturation a run settles only within some e2e / (1 - load) = ten minutes
NVIDIA_S = {"llama-2-70b": (2_400.0, 1_200.0), "mixtral-8x7b": (2_400.0, 2_400.0)}


class DataSet(NamedTuple):
    """Prompts of a data set, mean output of a run that states none, and the longest output, in tokens."""

    prompts: Distribution
    output_tokens: float
    longest_output: int
    queries: int = 0  # the rules' least number, where it takes longer than their ten minutes
    rack_queries: int = 0  # the least number that NVIDIA asks of a rack of 72 devices (min_query_count of v5.1)
    outputs: Quantiles | None = None  # of the reference; a run's are these, at its own mean

    def outputs_of(self, mean: float) -> Distribution:
        """Return the distribution of outputs with this mean in tokens."""
        if self.outputs:
            return _scaled(self.outputs, mean)
        longest = max(self.longest_output, round(mean))
        return Fixed(longest) if mean >= longest else LogNormal(mean, SPREAD, longest)


def _scaled(lengths: Quantiles, mean: float) -> Quantiles:
    """Return lengths of the same shape with another mean.

    >>> _scaled(Quantiles(levels=(0, 0.5, 1), tokens=(10, 20, 50)), 50.0).tokens
    (20, 40, 100)
    """
    factor = mean / float(np.trapezoid(lengths.tokens, lengths.levels))
    return Quantiles(levels=lengths.levels, tokens=tuple(round(factor * each) for each in lengths.tokens))


def _table(*tokens: int) -> Quantiles:
    return Quantiles(levels=LEVELS, tokens=tokens)


DATA_SETS = {
    "llama-2-70b": DataSet(_table(59, 103, 133, 217, 512, 613, 670, 1024), 294.0, 1024),  # OpenOrca, mean 307
    # OpenOrca (mean 331), GSM8K with examples (1,283) and MBXP (187) in equal parts
    "mixtral-8x7b": DataSet(_table(55, 114, 152, 309, 1079, 1434, 1743, 1893), 145.0, 1024),
    # 2,966 texts of mean 6,824 with outputs of 743, 2,430 reports of 9,860 with 898, and RULER's of 7,400 to 16,000
    # with 831 (790), 418 (1,250) and 211 (877): counted by kind, weighted, mean 9,370 and 691
    "llama-3.1-405b": DataSet(
        _table(509, 3287, 5578, 9932, 12_592, 14_571, 17_560, 19_988),
        684.0,
        2_000,
        queries=8_313,
        rack_queries=18 * 8_313,
        outputs=Quantiles(
            levels=(0.0, 0.1, 0.11, 0.25, 0.27, 0.5, 0.75, 0.9, 0.97, 1.0),
            tokens=(186, 223, 384, 446, 537, 751, 857, 976, 1089, 1332),
        ),
    ),
    # CNN's articles, mean 952
    "llama-3.1-8b": DataSet(_table(228, 473, 617, 860, 1204, 1586, 1959, 2540), 128.0, 128),
    "deepseek-r1": DataSet(LogNormal(800.0, SPREAD, 3_140), 3_880.0, 20_000, 26_328, 8 * 26_328),  # mean recalled
}
BEAMS = {"gpt-j-6b": 4}
LIMITS_S = {  # p99 of TTFT and TPOT of a valid run, server and interactive
    "llama-2-70b": ((2.0, 0.2), (0.45, 0.04)),
    "mixtral-8x7b": ((2.0, 0.2), (2.0, 0.2)),
    "llama-3.1-405b": ((6.0, 0.175), (4.5, 0.08)),
    "llama-3.1-8b": ((2.0, 0.1), (0.5, 0.03)),
    "deepseek-r1": ((2.0, 0.08), (1.5, 0.015)),
}


class Entry(NamedTuple):
    """How an entry runs a model: degrees (0: as they fit); sequences and tokens of a step, of each rank and stage."""

    tp: int
    pp: int
    max_num_seqs: int
    max_num_batched_tokens: int
    engine: tuple[str, str] | None = None  # name and version of what runs, where it is not what the entry names
    attention_dp: bool = False  # attention runs data-parallel over the tensor degree, experts lie on all of its ranks
    memory_fraction: float | None = None
    steps: int = 1  # scheduled at once (num_scheduler_steps): no prompt is admitted before they are over
    least_free_share: float = 0.0  # of the cache: prompts wait while less of it is free
    chunked_prefill: bool = True
    prompt_interval: int = 0  # steps for which ranks of data-parallel attention wait for each other's prompts


RULES = ("least_free_share", "chunked_prefill", "prompt_interval")  # engine settings of an Entry
# Steps between prompts where attention is data-parallel (adp_balancing, PyExecutor._balance_adp_requests): a server's
# come after adp_balancing_timeout_iters, for hardly ever do all ranks have one; guess: offline all ranks have a place
# and a prompt after some 20 steps, and adp_balancing_batching_wait_iters of 10 follow
BALANCED_STEPS, GATHERED_STEPS = 9, 30
PYTORCH = ("tensorrt-pytorch", "1")  # TensorRT-LLM's PyTorch engine with CUDA graphs, not its C++ engine without


def _dp(seqs: int, tokens: int, interval: int) -> Entry:
    return Entry(8, 1, seqs, tokens, PYTORCH, attention_dp=True, prompt_interval=interval)


HOPPER, BLACKWELL, RTX = ("hopper",), ("blackwell",), ("blackwell-rtx", "ada")
H100, H100_NVL = ("h100-sxm",), ("h100-nvl",)
ENTRIES: tuple[tuple[str, tuple[str, ...], str, Entry], ...] = (  # model, families or devices, scenarios' first letters
    ("llama-2-70b", BLACKWELL, "I", Entry(1, 1, 768, 768)),
    ("llama-2-70b", BLACKWELL, "", Entry(1, 1, 2048, 3584)),
    ("llama-2-70b", RTX, "", Entry(0, 1, 2048, 2048)),
    ("llama-2-70b", HOPPER, "I", Entry(0, 1, 512, 256, memory_fraction=0.9)),
    ("llama-2-70b", H100, "", Entry(1, 2, 1024, 1024)),
    ("llama-2-70b", H100_NVL, "O", Entry(2, 1, 1300, 2048)),
    ("llama-2-70b", H100_NVL, "", Entry(2, 1, 640, 2048)),
    ("llama-2-70b", HOPPER, "", Entry(0, 1, 2048, 1536, memory_fraction=0.9)),
    ("llama-3.1-8b", BLACKWELL, "", Entry(1, 1, 6000, 12_000, PYTORCH)),
    ("llama-3.1-8b", RTX, "", Entry(1, 1, 2048, 8192)),
    ("llama-3.1-8b", ("h200-nvl",), "", Entry(1, 1, 2048, 1536)),
    ("llama-3.1-8b", HOPPER, "", Entry(1, 1, 2048, 12_000, PYTORCH)),
    ("llama-3.1-405b", ("gb300",), "O", Entry(2, 1, 1536, 1536)),
    ("llama-3.1-405b", BLACKWELL, "O", Entry(2, 2, 128, 1536)),
    ("llama-3.1-405b", BLACKWELL, "I", Entry(4, 1, 256, 1536)),
    ("llama-3.1-405b", BLACKWELL, "", Entry(4, 1, 256, 2048)),
    ("llama-3.1-405b", H100, "O", Entry(8, 1, 256, 1536)),
    ("llama-3.1-405b", H100, "", Entry(8, 1, 64, 2560, memory_fraction=0.9)),
    ("llama-3.1-405b", HOPPER, "O", Entry(4, 2, 512, 1536)),
    ("llama-3.1-405b", HOPPER, "", Entry(8, 1, 64, 2560, memory_fraction=0.9)),
    ("mixtral-8x7b", BLACKWELL, "S", Entry(1, 1, 6144, 10_240)),
    ("mixtral-8x7b", BLACKWELL, "", Entry(1, 1, 6144, 14_336)),
    ("mixtral-8x7b", RTX, "", Entry(1, 1, 2048, 9216)),
    ("mixtral-8x7b", H100, "", Entry(1, 1, 896, 8192)),
    ("mixtral-8x7b", HOPPER, "O", Entry(1, 1, 3072, 8192)),
    ("mixtral-8x7b", HOPPER, "", Entry(1, 1, 1200, 8192)),
    ("deepseek-r1", BLACKWELL, "O", _dp(512, 4608, GATHERED_STEPS)),
    ("deepseek-r1", BLACKWELL, "", _dp(512, 3456, BALANCED_STEPS)),
    ("deepseek-r1", HOPPER, "", _dp(216, 4608, GATHERED_STEPS)),
)
H200, GH200, H100_PCIE, L40S = ("h200-sxm",), ("gh200-96",), ("h100-pcie",), ("l40s",)
V4 = re.compile(r"TensorRT (9|10\.[0-2])\b")  # software that the logs of v4.1 name


def _v4(tp: int, seqs: int, tokens: int = 16_384) -> Entry:
    return Entry(tp, 1, seqs, tokens, memory_fraction=0.9, chunked_prefill=False)


V4_ENTRIES = (  # where v4.1 differs: engines without chunked prompts, built for 16,384 tokens (builder.py, configs)
    ("llama-2-70b", H100, "O", _v4(2, 896)),
    ("llama-2-70b", H100, "", _v4(2, 1024)),
    ("llama-2-70b", H100_NVL, "O", _v4(2, 1300)),
    ("llama-2-70b", H100_NVL, "", _v4(2, 640)),
    ("llama-2-70b", H200, "O", _v4(1, 806)),
    ("llama-2-70b", H200, "", _v4(1, 896)),
    ("llama-2-70b", GH200, "", _v4(1, 806)),
    ("llama-2-70b", H100_PCIE, "", _v4(2, 896)),
    ("llama-2-70b", L40S, "", _v4(4, 1024)),
    ("mixtral-8x7b", H100, "O", _v4(1, 896, 8192)),
    ("mixtral-8x7b", H100, "", _v4(1, 896)),
    ("mixtral-8x7b", H200, "O", _v4(1, 3072)),
    ("mixtral-8x7b", H200, "", _v4(1, 1200, 8192)),
    ("mixtral-8x7b", GH200, "O", _v4(1, 806)),
    ("mixtral-8x7b", GH200, "", _v4(1, 1024)),
)


def _amd(seqs: int, tokens: int, share: float | None = None, steps: int = 1, free: float = 0.0) -> Entry:
    return Entry(0, 1, seqs, tokens, ("vllm-mlperf", ""), False, share, steps, free)


MI300X, MI325X = ("mi300x",), ("mi325x",)
# as above; guess, for the scheduler's code is not published: of Llama-2-70b offline MAX_TARGET_DECODE_BATCH is the most
# sequences that run, and the 2,200 blocks of MIN_REQUIRE_PREFILL_GPU_BLOCK, a tenth of the cache, are such a room
AMD_ENTRIES = (
    ("llama-2-70b", MI300X, "O", _amd(1536, 40_960, 0.98, free=0.1)),
    ("llama-2-70b", MI300X, "I", _amd(600, 40_960, 1.0, 8)),
    ("llama-2-70b", MI300X, "", _amd(650, 40_960, 1.0, 9)),
    ("llama-2-70b", MI325X, "O", _amd(2048, 65_536, 0.98)),
    ("llama-2-70b", MI325X, "I", _amd(3840, 43_008, 1.0)),
    ("llama-2-70b", MI325X, "", _amd(1024, 40_960, 1.0, 9)),
    ("mixtral-8x7b", MI300X, "O", _amd(5000, 51_200, 0.97)),
    ("mixtral-8x7b", MI300X, "", _amd(4096, 32_000, 0.99, 8)),
    ("mixtral-8x7b", MI325X, "O", _amd(4736, 51_200, 0.96)),
    ("mixtral-8x7b", MI325X, "", _amd(2560, 32_000, 0.96, 10)),
)
AMD_V4 = (  # VLLM_SCHED_PREFILL_KVC_FREEPCT 31 in test_VllmFp8/test_VllmFp8_Offline_perf.sh, none in the server's
    ("llama-2-70b", MI300X, "O", _amd(2048, 65_536, 0.99, free=0.31)),
    ("llama-2-70b", MI300X, "", _amd(1024, 49_152, 0.97)),
)
AMD = _amd(2048, 65_536, free=0.3)  # every other; the share is the default of the harness of v5.0 (EnvConfig)
BATCHER_S = 0.3  # batcher_threshold of v4.1 (VllmFp8/mainVllmFp8_SyncServer.py)


class Mlperf(Recipe):
    """An entry to MLPerf Inference."""

    @staticmethod
    def matches(setup: Setup) -> bool:
        """Tell whether a setup is of this source."""
        return setup.client == "mlperf"

    @property
    def entry(self) -> Entry | None:
        """What the harness sets for the model on the family of devices in the scenario; None where it is not known."""
        known, other = ENTRIES, None
        if self.hardware.vendor == "AMD":
            known, other = AMD_V4 if self._is_amd_v4 else AMD_ENTRIES, AMD
        elif not self.setup.engine.startswith("TensorRT"):
            return None
        elif self._is_v4:
            known = (*V4_ENTRIES, *ENTRIES)
        found = (
            each
            for name, families, scenarios, each in known
            if name == self.model.id
            and (self.hardware.family in families or self.hardware.id in families)
            and (not scenarios or self.setup.scenario.startswith(tuple(scenarios)))
        )
        return next(found, other)

    @property
    def _is_amd_v4(self) -> bool:
        return self.hardware.vendor == "AMD" and self.setup.engine.startswith("vLLM 0.4")

    @property
    def _is_v4(self) -> bool:
        return bool(V4.match(self.setup.engine))

    @property
    def preset(self) -> tuple[str, str]:
        """The engine that runs, where it is not what the entry names."""
        if self.setup.engine == "CUDA 12.2":
            return "vllm", "0.5.1"  # closed/RedHat/systems/L40S-RedHat-OpenShift.json of v4.1
        return (self.entry and self.entry.engine) or super().preset

    @property
    def part(self) -> tuple[str, int] | None:
        """The device of an entry where its name is of several: every GH200 of v4.1 has 144 GB (system_list)."""
        return ("gh200-144", 1) if self.hardware.id in GH200 else None

    @property
    def rules(self) -> dict[str, object]:
        """Engine settings that the harness sets, by our names."""
        found = self.entry
        usual = Entry._field_defaults
        return {name: getattr(found, name) for name in RULES if getattr(found, name) != usual[name]} if found else {}

    @property
    def streams(self) -> bool:
        """Whether clients receive each token: not offline (gen_config.streaming of llmlib/config.py)."""
        return self.setup.regime != "offline"

    @property
    def weights(self) -> str:
        """Number format of weights: fp8 where the device has it.

        v4.1's B200 was the first entry in FP4 (NVIDIA's blog, "What's the ROI? Getting the most out of LLM inference",
        2024-10; read 2026-11-24).
        """
        if self._is_v4 and self.hardware.family in BLACKWELL:
            return "nvfp4"
        return "fp8" if "fp8" in self.hardware.peak_flops_per_s else self.model.weight_dtype

    @property
    def carries_fp8_cache(self) -> bool:
        """True: every entry runs with an fp8 KV cache."""
        return True

    @property
    def degrees(self) -> Degrees | None:
        """Parallel degrees that the harness sets, where there are as many devices."""
        found = self.entry
        if not found or not 0 < found.tp * found.pp <= self.setup.devices:
            return None
        return Degrees(1, found.pp, found.tp) if found.attention_dp else Degrees(found.tp, found.pp, 1)

    def limits(self, layout: Layout) -> Limits:
        """Return the harness's limits; there are no more sequences than tokens of a step."""
        found = self.entry
        if not found:
            return Limits()
        tokens = found.max_num_batched_tokens
        return Limits(min(found.max_num_seqs, tokens) * layout.pp, tokens, found.memory_fraction)

    def load(self) -> Load | None:
        """Return the lengths of the model's data set and the mean output, which a run may state.

        Raises NotModelledError for beam search.
        """
        if self.model.id in BEAMS:
            beams = BEAMS[self.model.id]
            because = f"its rules ask for {beams} beams, which are not modelled"
            raise NotModelledError(f"{self.model.id} in MLPerf", because, "Leave the row out")
        data = DATA_SETS.get(self.model.id)
        if data is None or self.setup.input_tokens:
            return None
        output = self.setup.output_tokens or data.output_tokens
        return Load(data.prompts, data.outputs_of(output), output)

    @property
    def has_data_set(self) -> bool:
        """True: every run has one."""
        return True

    def requests_of_replica(self, replicas: int) -> int:
        """Return the requests of a run per replica: as the rules ask; LONG_RUN, all there at once, without a rate."""
        data = DATA_SETS.get(self.model.id)
        if data and data.queries:
            return (data.rack_queries if self.setup.devices == RACK else data.queries) // replicas
        asked_per_s = self.setup.rate_per_s if self.setup.regime == "open_loop" else 0.0
        return round(self._server_s * asked_per_s) // replicas if asked_per_s else LONG_RUN

    @property
    def _server_s(self) -> float:
        """Least seconds of a server or interactive run."""
        if self.hardware.vendor != "NVIDIA":
            return SERVER_S
        server, interactive = NVIDIA_S.get(self.model.id, (SERVER_S, SERVER_S))
        return interactive if self.setup.scenario == "Interactive" else server

    def arrivals(self, rate_per_s: float, replicas: int) -> Arrivals:
        """Return gamma gaps whose shape is the number of replicas: Poisson arrivals that replicas take in turn.

        A request goes to the replica with the fewest in flight: traffic_distribution_policy "load_balancing" of
        NVIDIA's harness (code/llmlib/config.py, harness_llm/main_llm.cc of v5.1), schedule_algo of AMD's
        (harness_llm/backends/common/server_sut.py); read 2026-11-22. AMD's of v4.1 deals whole batches in turn
        (VllmFp8/sync_sut.py): all that arrives within BATCHER_S; half of that is a part of request_s.
        """
        if self._is_amd_v4:
            return Released(rate_per_s, BATCHER_S * replicas)
        return OpenLoop(rate_per_s, float(replicas))

    @property
    def gathered_steps(self) -> int:
        """Steps that a prompt waits until those decided at once are over: half of them on average; offline none."""
        return self.entry.steps // 2 if self.entry and self.setup.regime == "open_loop" else 0

    @property
    def latency_limits_s(self) -> tuple[float, float] | None:
        """Bounds in seconds on the p99 of TTFT and TPOT that a valid run of the scenario keeps; offline none."""
        if self.setup.regime != "open_loop":
            return None
        server, interactive = LIMITS_S.get(self.model.id, (None, None))
        return interactive if self.setup.scenario == "Interactive" else server
