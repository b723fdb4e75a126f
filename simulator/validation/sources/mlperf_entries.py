"""What the published harnesses of MLPerf Inference set for each entry.

Harness: closed/NVIDIA/configs of mlcommons/inference_results_v4.1 and v5.0 and of two copies of v5.1
(ykamiset/inference_results_v5.1; closed/{HPE,ASUSTeK,Cisco,Quanta_Cloud_Technology}/configs of
ntuhpc/inference_results_v5.1, entry by entry on 2026-11-27), builder.py of v-shobhit/inference_results_v4.1; for AMD
closed/Dell of v4.1 (code/llama2-70b-99, the scheduler in docker/vllm) and harness_llm/models of
closed/{AMD,MiTAC,GigaComputing,Vultr}/code of v5.1 (2026-11-21, 22 and 27); of v4.1 closed/{ASUSTeK,Fujitsu}/configs,
and closed/RedHat, whose "CUDA 12.2" is vLLM 0.5.1 (systems/*.json), a copy on each two of four L40S
(code/llama2-70b-99.9/README.md), with vLLM's defaults as far as is known; read 2026-11-24. Of v4.1 closed/HPE/configs,
too, whose copy of NVIDIA's is the submitted one (GH200's Mixtral has 51 requests/s there, as its log says; read
2026-11-27).
"""

import re
from typing import NamedTuple

from simulator.hardware.hardware import Hardware
from simulator.validation.measurements import Setup


class Entry(NamedTuple):
    """How an entry runs a model: degrees (0: as they fit); sequences and tokens of a step, of each rank and stage."""

    tp: int
    pp: int
    max_num_seqs: int
    max_num_batched_tokens: int
    engine: tuple[str, str] | None = None  # name and version of what runs, where it is not what the entry names
    attention_dp: bool = False  # attention runs data-parallel over the tensor degree, experts lie on all of its ranks
    memory_fraction: float | None = None
    num_scheduler_steps: int = 1  # decode steps that are decided at once
    least_free_share: float = 0.0  # of the cache: prompts wait while less of it is free
    least_waiting: int = 0  # requests for which prompts are computed twice in a row
    chunked_prefill: bool = True
    cache_dtype: str = ""  # of the KV cache, where it is not the row's or the checkpoint's
    prompt_interval: int = 0  # steps for which ranks of data-parallel attention wait for each other's prompts
    graph_batch_sizes: str = ""  # sequences of a rank whose decodes one CUDA graph launches; "": of any batch
    graph_padding: bool = False  # dummy requests fill a batch up to the next of them


# engine settings of an Entry
RULES = (
    "least_free_share",
    "least_waiting",
    "chunked_prefill",
    "prompt_interval",
    "num_scheduler_steps",
    "graph_batch_sizes",
    "graph_padding",
)
# Steps between prompts where attention is data-parallel (adp_balancing, PyExecutor._balance_adp_requests): a server's
# come after adp_balancing_timeout_iters, for hardly ever do all ranks have one; guess: offline all ranks have a place
# and a prompt after some 20 steps, and adp_balancing_batching_wait_iters of 10 follow
BALANCED_STEPS, GATHERED_STEPS = 9, 30
PYTORCH = ("tensorrt-pytorch", "1")  # TensorRT-LLM's PyTorch engine with CUDA graphs, not its C++ engine without
# cuda_graph_batch_sizes of DeepSeek-R1, of B200 and HPE's H200 and of racks of GB200; cuda_graph_padding_enabled is set
# beside them and with Llama-3.1-8B, which has those of code/llmlib/config.py: powers of two up to max_batch_size
# (bit_length). All of closed/{NVIDIA,HPE}/configs of the copies of v5.1, read 2026-11-28
DEEPSEEK_GRAPHS, RACK_GRAPHS = "128+256+384+512", "1+2+4+8+16+32+64+128+256+384+512"


def _dp(seqs: int, tokens: int, interval: int, graphs: str = DEEPSEEK_GRAPHS, memory: float | None = None) -> Entry:
    graphed = Entry(8, 1, seqs, tokens, PYTORCH, True, memory, prompt_interval=interval, graph_batch_sizes=graphs)
    return graphed._replace(graph_padding=True, chunked_prefill=False)  # enable_chunked_context False


def _served(seqs: int, memory: float | None = None) -> Entry:
    sizes = "+".join(str(1 << each) for each in range(seqs.bit_length()))
    return Entry(1, 1, seqs, 12_000, PYTORCH, memory_fraction=memory, graph_batch_sizes=sizes, graph_padding=True)


HOPPER, BLACKWELL, RTX = ("hopper",), ("blackwell",), ("blackwell-rtx", "ada")
H100, H100_NVL, GB200 = ("h100-sxm",), ("h100-nvl",), ("gb200",)
ENTRIES: tuple[tuple[str, tuple[str, ...], str, Entry], ...] = (  # model, families or devices, scenarios' first letters
    ("llama-2-70b", BLACKWELL, "I", Entry(1, 1, 768, 768)),
    ("llama-2-70b", BLACKWELL, "", Entry(1, 1, 2048, 3584)),
    ("llama-2-70b", RTX, "I", Entry(1, 1, 4096, 8192, memory_fraction=0.75)),
    ("llama-2-70b", RTX, "", Entry(0, 1, 2048, 2048, memory_fraction=0.9)),
    ("llama-2-70b", HOPPER, "I", Entry(0, 1, 512, 256, memory_fraction=0.9)),
    ("llama-2-70b", H100, "", Entry(1, 2, 1024, 1024)),
    ("llama-2-70b", H100_NVL, "O", Entry(2, 1, 1300, 2048)),
    ("llama-2-70b", H100_NVL, "", Entry(2, 1, 640, 2048)),
    ("llama-2-70b", HOPPER, "", Entry(0, 1, 2048, 1536, memory_fraction=0.9)),
    ("llama-3.1-8b", BLACKWELL, "", _served(6000)),
    ("llama-3.1-8b", RTX, "I", Entry(1, 1, 2048, 1536, memory_fraction=0.98)),
    ("llama-3.1-8b", RTX, "", Entry(1, 1, 2048, 8192, memory_fraction=0.95)),
    ("llama-3.1-8b", HOPPER, "", Entry(1, 1, 2048, 1536, memory_fraction=0.9)),
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
    ("mixtral-8x7b", RTX, "O", Entry(1, 1, 2048, 9216, memory_fraction=0.98)),
    ("mixtral-8x7b", RTX, "", Entry(1, 1, 2048, 8192, memory_fraction=0.98, chunked_prefill=False)),
    ("mixtral-8x7b", H100, "", Entry(1, 1, 896, 8192)),
    ("mixtral-8x7b", HOPPER, "O", Entry(1, 1, 3072, 9216, memory_fraction=0.9)),
    ("mixtral-8x7b", HOPPER, "", Entry(1, 1, 3072, 8192, memory_fraction=0.9)),
    ("deepseek-r1", GB200, "O", _dp(512, 4608, GATHERED_STEPS, RACK_GRAPHS)),
    ("deepseek-r1", GB200, "", _dp(512, 3456, BALANCED_STEPS, RACK_GRAPHS)),
    ("deepseek-r1", BLACKWELL, "O", _dp(512, 4608, GATHERED_STEPS)),
    ("deepseek-r1", BLACKWELL, "", _dp(512, 3456, BALANCED_STEPS)),
    ("deepseek-r1", HOPPER, "", _dp(216, 4608, GATHERED_STEPS, memory=0.6)),
)
# where a submitter's entry is not as the others'. HPE's 8B is served by trtllm-serve (workers_per_core), the others' by
# the C++ engine: a guess from their flags, which are for its builder (gemm_swiglu_plugin) and ask for no such workers
SUBMITTED: tuple[tuple[str, tuple[str, tuple[str, ...], str, Entry]], ...] = (
    ("HPE", ("llama-3.1-8b", ("h200-sxm",), "", _served(2048, 0.99))),
    ("HPE", ("mixtral-8x7b", ("h200-sxm",), "O", Entry(1, 1, 3072, 9216, memory_fraction=0.97))),
    ("HPE", ("mixtral-8x7b", ("h200-sxm",), "", Entry(1, 1, 3072, 8192, memory_fraction=0.97))),
)
H200, GH200, H100_PCIE, L40S = ("h200-sxm",), ("gh200-96", "gh200-144"), ("h100-pcie",), ("l40s",)
UNBRIDGED = {"h100-nvl": "h100-nvl-unbridged", "h100-pcie": "h100-pcie-unbridged"}  # without their NVLink bridge
V4 = re.compile(r"TensorRT (9|10\.[0-2])\b")  # software that the logs of v4.1 name


def _v4(tp: int, seqs: int, tokens: int = 16_384, memory: float = 0.9) -> Entry:
    return Entry(tp, 1, seqs, tokens, memory_fraction=memory, chunked_prefill=False)


V4_ENTRIES = (  # where v4.1 differs: engines without chunked prompts, built for 16,384 tokens (builder.py, configs)
    ("llama-2-70b", H100, "O", _v4(2, 896)),
    ("llama-2-70b", H100, "", _v4(2, 1024)),
    ("llama-2-70b", H100_NVL, "O", _v4(2, 1300)),
    ("llama-2-70b", H100_NVL, "", _v4(2, 640)),
    ("llama-2-70b", H200, "O", _v4(1, 806)),
    ("llama-2-70b", H200, "", _v4(1, 896)),
    ("llama-2-70b", GH200, "", _v4(1, 806)),
    ("llama-2-70b", H100_PCIE, "O", _v4(2, 896, memory=0.97)),
    ("llama-2-70b", H100_PCIE, "", _v4(2, 896, memory=0.95)),
    ("llama-2-70b", L40S, "", _v4(4, 1024)),
    ("llama-2-70b", BLACKWELL, "", _v4(1, 2048, 3584, 0.97)),  # GB200's, at as many requests/s, in v-shobhit's copy
    ("mixtral-8x7b", H100, "O", _v4(1, 896, 8192)),
    ("mixtral-8x7b", H100, "", _v4(1, 896)),
    ("mixtral-8x7b", H200, "O", _v4(1, 3072)),
    ("mixtral-8x7b", H200, "", _v4(1, 1200, 8192)),
    ("mixtral-8x7b", GH200, "", _v4(1, 3072)),
)
V4_SUBMITTED = (  # where a submitter of v4.1 set something else
    ("HPE", ("llama-2-70b", H100, "O", _v4(2, 896, memory=0.95))),
    ("HPE", ("llama-2-70b", H100, "", _v4(2, 1024, memory=0.97))),
    ("HPE", ("llama-2-70b", H100_NVL, "O", _v4(2, 1300, memory=0.95))),
    ("HPE", ("llama-2-70b", H100_NVL, "", _v4(2, 1024, memory=0.95))),
)
RED_HAT = Entry(2, 1, 256, 4096, ("vllm", "0.5.1"))

# servers of closed/Intel of v5.1 (code/*/pytorch-xpu/model_init/*/init_env_server, init_env_shared, SUT.py; read
# 2026-11-27): requests for each of eight devices (QPS_PER_XPU 0.9625 of the stated 7.7), two on each card
DUAL = "arc-pro-b60"
INTEL_ENTRIES = {
    "llama-2-70b": Entry(2, 1, 160, 320, memory_fraction=0.99, cache_dtype="int8"),
    "llama-3.1-8b": Entry(1, 1, 448, 576, cache_dtype="int8"),
}


AMD_ENGINE = ("vllm-mlperf", "")  # AMD's branches of vLLM


def _amd(
    seqs: int, tokens: int, share: float | None = None, steps: int = 1, free: float = 0.0, waiting: int = 0
) -> Entry:
    return Entry(0, 1, seqs, tokens, AMD_ENGINE, False, share, steps, free, waiting)


MI300X, MI325X, MI355X = ("mi300x",), ("mi325x",), ("mi355x",)
# as above, and the scheduler of Llama-2-70b: setup_AMD/vllm_patches of ASUSTeK, setup/vllm_patches of open/AMD, v5.1
# (2026-11-27). MAX_TARGET_DECODE_BATCH sequences run, prompts wait for MIN_REQUIRE_PREFILL_GPU_BLOCK, 2,200 blocks of
# 32 tokens of 751,700, and directly after prompts for MIN_REQUIRE_PREFILL_QUERY requests. Between
# MIN_TARGET_DECODE_BATCH and the most, a multiple of STEP_DECODE_BATCH of those that run decode: not modelled
AMD_ENTRIES = (
    ("llama-2-70b", MI300X, "O", _amd(1536, 40_960, 0.98, 11, 0.094)),
    ("llama-2-70b", MI300X, "I", _amd(600, 40_960, 1.0, 8)),
    ("llama-2-70b", MI300X, "", _amd(608, 40_960, 1.0, 9, waiting=8)),
    ("llama-2-70b", MI325X, "O", _amd(2048, 65_536, 0.98, 7)),
    ("llama-2-70b", MI325X, "I", _amd(3840, 43_008, 1.0)),
    ("llama-2-70b", MI325X, "", _amd(832, 40_960, 1.0, 9, waiting=10)),
    ("llama-2-70b", MI355X, "O", _amd(3072, 40_960, 0.93, 19)),
    ("llama-2-70b", MI355X, "", _amd(2048, 40_960, 0.92, 9, waiting=8)),
    ("mixtral-8x7b", MI300X, "O", _amd(5000, 51_200, 0.97, 9)),
    ("mixtral-8x7b", MI300X, "", _amd(4096, 32_000, 0.99, 8)),
    ("mixtral-8x7b", MI325X, "O", _amd(4736, 51_200, 0.96, 13)),
    ("mixtral-8x7b", MI325X, "", _amd(2560, 32_000, 0.96, 10)),
)
AMD_V4 = (  # VLLM_SCHED_PREFILL_KVC_FREEPCT 31 in test_VllmFp8/test_VllmFp8_Offline_perf.sh, none in the server's
    ("llama-2-70b", MI300X, "O", _amd(2048, 65_536, 0.99, free=0.31)),
    ("llama-2-70b", MI300X, "", _amd(1024, 49_152, 0.97)),
)
AMD = _amd(2048, 65_536, free=0.3)  # every other; the share is the default of the harness of v5.0 (EnvConfig)


def entry_of(setup: Setup, model: str, hardware: Hardware) -> Entry | None:
    """Return what the harness sets for a model on the family of devices in the scenario; None where it is not known."""
    known, other = ENTRIES, None
    if hardware.vendor == "AMD":
        known, other = AMD_V4 if is_amd_v4(setup) else AMD_ENTRIES, AMD
    elif hardware.id == DUAL:
        return INTEL_ENTRIES.get(model) if setup.regime == "open_loop" else None
    elif setup.engine == "CUDA 12.2":
        return RED_HAT
    elif not setup.engine.startswith("TensorRT"):
        return None
    else:
        submitted, usual = (V4_SUBMITTED, (*V4_ENTRIES, *ENTRIES)) if is_v4(setup) else (SUBMITTED, ENTRIES)
        known = (*(entry for by, entry in submitted if by == setup.submitter), *usual)
    found = (
        each
        for name, families, scenarios, each in known
        if name == model
        and (hardware.family in families or hardware.id in families)
        and (not scenarios or setup.scenario.startswith(tuple(scenarios)))
    )
    return next(found, other)


def is_v4(setup: Setup) -> bool:
    """Tell whether an entry on NVIDIA's devices is of v4.1."""
    return bool(V4.match(setup.engine))


def is_amd_v4(setup: Setup) -> bool:
    """Tell whether an entry is AMD's of v4.1, which alone runs vLLM 0.4."""
    return setup.engine.startswith("vLLM 0.4")
