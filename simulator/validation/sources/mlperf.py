"""What MLPerf Inference fixes for its language models; mlperf_entries has what the harnesses of its entries set.

Data sets: the lengths of openshift-psap/performance-dashboard mlperf-data/summaries (counted from the official files),
some hundred rows of each, read 2026-11-21, of Llama-3.1-405B by kind, 2026-11-22, and of each part of the files of
Llama-2-70B (628 rows) and Mixtral (461), which are sorted by origin, 2026-11-28. Limits:
mlcommons/inference_policies@ac93e89. Front end of Llama-3.1-8B and DeepSeek-R1 in v5.1: one trtllm-serve for each
replica, whose client streams each token over HTTP but offline (llmlib/config.py, cores/trtllm_endpoint_core.py and
http_async_client.py of ykamiset's copy; read 2026-11-22).
"""

from typing import NamedTuple

import numpy as np

from simulator.engines.engine import Engine
from simulator.errors import NotModelledError
from simulator.models.layout import Layout
from simulator.validation.sources.mlperf_entries import (
    AMD_ENGINE,
    BLACKWELL,
    DUAL,
    GH200,
    H100,
    RULES,
    UNBRIDGED,
    Entry,
    entry_of,
    is_amd_v4,
    is_v4,
)
from simulator.validation.sources.recipe import Balancer, Degrees, Limits, Load, Recipe
from simulator.workloads.arrivals import Arrivals, OpenLoop, Released
from simulator.workloads.lengths import Distribution, Fixed, LogNormal, Quantiles

LEVELS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97, 1.0)
SPREAD = 0.8  # guess: the coefficient of variation of outputs; Mixtral's is 0.9, GPT-4's on OpenOrca 0.9
LONG_RUN = 40_000  # guess: requests of a replica in the ten to forty minutes of an offline run, mostly steady
RACK = 72  # devices of an NVL72
BOARD = 4  # H100 SXM that share one board without NVSwitch
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


def _table(mean: float, *tokens: int) -> Quantiles:
    """Return lengths with these quantiles at LEVELS and the mean that was counted, which lines between them miss."""
    return _scaled(Quantiles(levels=LEVELS, tokens=tokens), mean)


DATA_SETS = {
    # OpenOrca: 6,144 of each of four origins, one after the other in the file, of mean 122, 190, 286 and 293
    "llama-2-70b": DataSet(_table(223, 48, 87, 112, 155, 268, 508, 658, 1015), 294.0, 1024),
    # 5,000 each of GSM8K with examples (mean 672), OpenOrca (of the origins 106, 211, 257 and 283 in the mean, and 910
    # long ones of 1,228) and MBXP (171)
    "mixtral-8x7b": DataSet(_table(414, 35, 112, 139, 245, 667, 700, 1241, 1948), 145.0, 1024),
    # 2,966 texts of mean 6,824 with outputs of 743, 2,430 reports of 9,860 with 898, and RULER's of 7,400 to 16,000
    # with 831 (790), 418 (1,250) and 211 (877): counted by kind, weighted, mean 9,370 and 691
    "llama-3.1-405b": DataSet(
        _table(9370, 509, 3287, 5578, 9932, 12_592, 14_571, 17_560, 19_988),
        684.0,
        2_000,
        queries=8_313,
        rack_queries=18 * 8_313,
        outputs=Quantiles(
            levels=(0.0, 0.1, 0.11, 0.25, 0.27, 0.5, 0.75, 0.9, 0.97, 1.0),
            tokens=(186, 223, 384, 446, 537, 751, 857, 976, 1089, 1332),
        ),
    ),
    # CNN's articles
    "llama-3.1-8b": DataSet(_table(952, 228, 473, 617, 860, 1204, 1586, 1959, 2540), 128.0, 128),
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
BATCHER_S = 0.3  # batcher_threshold of v4.1 (VllmFp8/mainVllmFp8_SyncServer.py)


class Mlperf(Recipe):
    """An entry to MLPerf Inference."""

    carries_fp8_cache = True  # of every entry
    has_data_set = True  # every run has one

    @property
    def entry(self) -> Entry | None:
        """What the harness sets for the model on the family of devices in the scenario; None where it is not known."""
        return entry_of(self.setup, self.model.id, self.hardware)

    @property
    def preset(self) -> tuple[str, str]:
        """The engine that runs, where it is not what the entry names."""
        return (self.entry and self.entry.engine) or super().preset

    @property
    def part(self) -> tuple[str, int] | None:
        """The device of an entry whose name is of several: GH200 has 144 GB there (class GH200_144GB_aarch64x1).

        Intel's cards of v5.1 are "Arc Pro B60 Dual 48G", of two devices (systems/1-node-4x-BMG-Pro-B60-Dual.json).
        Cards of ASUSTeK's entries to v4.1 have no bridge (accelerator_interconnect is N/A in closed/ASUSTeK/systems,
        4th Gen NVLink in those of HPE and Lenovo; read 2026-11-27). Its servers of four H100 SXM (Dell, Fujitsu) state
        "6x 4th Gen NVLink": a board without NVSwitch.
        """
        if self.hardware.id in UNBRIDGED and self.setup.submitter == "ASUSTeK" and is_v4(self.setup):
            return UNBRIDGED[self.hardware.id], 1
        if self.hardware.id in H100 and is_v4(self.setup) and self.setup.devices == BOARD:
            return "h100-sxm-4gpu", 1
        if self.hardware.id == DUAL:
            return DUAL, 2
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
        if is_v4(self.setup) and self.hardware.family in BLACKWELL:
            return "nvfp4"
        return "fp8" if "fp8" in self.hardware.peak_flops_per_s else self.model.weight_dtype

    @property
    def int4_dtype(self) -> str:
        """What a row calls int4: on Intel's cards inputs are quantised, too: to int8, a guess, the only 8 bits of XMX.

        VLLM_USE_SEPARATE_QUANT, VLLM_FUSE_NORM_QUANT and VLLM_FUSE_SILU_QUANT (model_init/*/init_env_shared), a scale
        a row (NUM_GROUPS -1 of calibration/quantize_8b.sh) of closed/Intel/code of v5.1, read 2026-11-28.
        """
        return "int4-w4a8" if self.hardware.id == DUAL else super().int4_dtype

    def cache_dtype(self, stated: str, weights: str, engine: Engine) -> str:
        """Return the number format of the KV cache: the stated one, or what the harness sets."""
        set_here = self.entry.cache_dtype if self.entry else ""
        return super().cache_dtype(stated or set_here, weights, engine)

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

    @property
    def balancer(self) -> Balancer:
        """Return what sends requests to the replica with the fewest in flight, in AMD's servers, simulated whole.

        schedule_algo of its harness (harness_llm/backends/common/server_sut.py of v5.1, read 2026-11-28) is
        shortest_queue, or shortest_queue_with_tokens, which adds 0.02 requests for each token of late prompts. Its
        engines tell of completions after 7 to 13 steps: a replica is then sent all that comes, and decodes while others
        are.
        """
        whole = self.preset[0] == AMD_ENGINE[0] and not is_amd_v4(self.setup) and self.setup.regime == "open_loop"
        return Balancer("least-connections") if whole else Balancer()

    def arrivals(self, rate_per_s: float, replicas: int) -> Arrivals:
        """Return a replica's share of Poisson arrivals that a balancer deals, or all that it is sent.

        A request goes to the replica with the fewest in flight: traffic_distribution_policy "load_balancing" of
        NVIDIA's harness (code/llmlib/config.py, harness_llm/main_llm.cc of v5.1); read 2026-11-22. AMD's of v4.1 deals
        whole batches in turn: all that came when BATCHER_S have passed since the last and one more has come
        (batch_samples_loop of VllmFp8/sync_sut.py, closed/Dell, read 2026-11-28).
        """
        if is_amd_v4(self.setup):
            return Released(rate_per_s, BATCHER_S * replicas + 1 / rate_per_s, replicas)
        return OpenLoop(rate_per_s, float(replicas), replicas if self.setup.engine.startswith("TensorRT") else 1)

    @property
    def latency_limits_s(self) -> tuple[float, float] | None:
        """Bounds in seconds on the p99 of TTFT and TPOT that a valid run of the scenario keeps; offline none."""
        if self.setup.regime != "open_loop":
            return None
        server, interactive = LIMITS_S.get(self.model.id, (None, None))
        return interactive if self.setup.scenario == "Interactive" else server
