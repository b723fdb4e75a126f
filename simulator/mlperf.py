"""What MLPerf Inference fixes for its language models, and what the published harnesses of its entries set.

Data sets: the lengths of openshift-psap/performance-dashboard mlperf-data/summaries (counted from the official files),
some hundred rows of each, read 2026-11-21. Limits: shared/facts/ecosystem.md, mlcommons/inference_policies@ac93e89.
Harness: closed/NVIDIA/configs of mlcommons/inference_results_v4.1 and v5.0 and of two copies of v5.1
(ykamiset/inference_results_v5.1; closed/{HPE,ASUSTeK,Cisco}/configs of ntuhpc/inference_results_v5.1); for AMD
closed/Dell/code/llama2-70b-99/VllmFp8 of v4.1 and closed/AMD/code/llama2-70b-99/harness_llm of v5.1; read 2026-11-21.
"""

from typing import NamedTuple

from simulator.errors import NotModelledError
from simulator.hardware import Hardware
from simulator.lengths import Distribution, Fixed, Independent, Lengths, LogNormal, Quantiles
from simulator.measurements import Setup

LEVELS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97, 1.0)
SPREAD = 0.8  # guess: the coefficient of variation of outputs; Mixtral's is 0.9, GPT-4's on OpenOrca 0.9
LONG_RUN = 40_000  # guess: requests of a copy in the ten to forty minutes of an offline run, mostly in a steady state
SERVER_S = 400.0  # simulated of the ten minutes and more of a server run: long beside its first half minute


class DataSet(NamedTuple):
    """Prompts, outputs where a run does not state their mean, and the longest output of a valid run."""

    prompts: Distribution
    output_tokens: float
    longest_output: int
    queries: int = 0  # the rules' least number, where it takes longer than their ten minutes


def _table(*tokens: int) -> Quantiles:
    return Quantiles(levels=LEVELS, tokens=tokens)


DATA_SETS = {
    "llama-2-70b": DataSet(_table(59, 103, 133, 217, 512, 613, 670, 1024), 294.0, 1024),  # OpenOrca, mean 307
    # OpenOrca (mean 331), GSM8K with examples (1,283) and MBXP (187) in equal parts
    "mixtral-8x7b": DataSet(_table(55, 114, 152, 309, 1079, 1434, 1743, 1893), 145.0, 1024),
    # mean recalled; half are RULER's 7,400 to 16,000
    "llama-3.1-405b": DataSet(LogNormal(9_428.0, 0.4, 20_000), 684.0, 2_000, 8_313),
    # CNN's articles, mean 952
    "llama-3.1-8b": DataSet(_table(228, 473, 617, 860, 1204, 1586, 1959, 2540), 128.0, 128),
    "deepseek-r1": DataSet(LogNormal(800.0, SPREAD, 3_140), 3_880.0, 20_000, 26_328),  # mean recalled
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


PYTORCH = ("tensorrt-pytorch", "1")  # TensorRT-LLM's PyTorch engine with captured graphs, not its engine in C++ without
HOPPER, BLACKWELL, RTX = ("hopper",), ("blackwell",), ("blackwell-rtx", "ada")
H100, H100_NVL = ("h100-sxm",), ("h100-nvl",)
ENTRIES: tuple[tuple[str, tuple[str, ...], str, Entry], ...] = (  # model, families or devices, scenarios' first letters
    ("llama-2-70b", BLACKWELL, "I", Entry(1, 1, 768, 768)),
    ("llama-2-70b", BLACKWELL, "", Entry(1, 1, 2048, 3584)),
    ("llama-2-70b", RTX, "", Entry(0, 1, 2048, 2048)),
    ("llama-2-70b", HOPPER, "I", Entry(0, 1, 512, 256)),
    ("llama-2-70b", H100, "O", Entry(2, 1, 896, 2048)),
    ("llama-2-70b", H100, "", Entry(2, 1, 1024, 2048)),
    ("llama-2-70b", H100_NVL, "O", Entry(2, 1, 1300, 2048)),
    ("llama-2-70b", H100_NVL, "", Entry(2, 1, 640, 2048)),
    ("llama-2-70b", HOPPER, "", Entry(0, 1, 2048, 1536)),
    ("llama-3.1-8b", BLACKWELL, "", Entry(1, 1, 6000, 12_000, PYTORCH)),
    ("llama-3.1-8b", RTX, "", Entry(1, 1, 2048, 8192)),
    ("llama-3.1-8b", HOPPER, "", Entry(1, 1, 2048, 12_000, PYTORCH)),
    ("llama-3.1-405b", BLACKWELL, "O", Entry(2, 2, 128, 1536)),
    ("llama-3.1-405b", BLACKWELL, "", Entry(4, 1, 256, 2048)),
    ("llama-3.1-405b", H100, "", Entry(8, 1, 256, 2560)),
    ("llama-3.1-405b", HOPPER, "O", Entry(4, 2, 512, 1536)),
    ("llama-3.1-405b", HOPPER, "", Entry(8, 1, 64, 2560)),
    ("mixtral-8x7b", BLACKWELL, "", Entry(1, 1, 6144, 14_336)),
    ("mixtral-8x7b", RTX, "", Entry(1, 1, 2048, 9216)),
    ("mixtral-8x7b", H100, "", Entry(1, 1, 896, 8192)),
    ("mixtral-8x7b", HOPPER, "O", Entry(1, 1, 3072, 8192)),
    ("mixtral-8x7b", HOPPER, "", Entry(1, 1, 1200, 8192)),
    ("deepseek-r1", BLACKWELL, "O", Entry(8, 1, 512, 4608, PYTORCH, attention_dp=True)),
    ("deepseek-r1", BLACKWELL, "", Entry(8, 1, 512, 3456, PYTORCH, attention_dp=True)),
    ("deepseek-r1", HOPPER, "", Entry(8, 1, 216, 4608, PYTORCH, attention_dp=True)),
)
AMD = Entry(0, 1, 2048, 65_536, ("vllm-mlperf", ""))  # every model's
BALANCED_STEPS = 9  # adp_balancing_timeout_iters of DeepSeek-R1's server settings


def is_mlperf(setup: Setup) -> bool:
    """Tell whether a run is an entry to MLPerf."""
    return setup.load.startswith("MLPerf")


def entry(setup: Setup, model: str, hardware: Hardware) -> Entry | None:
    """Return what the harness of an entry sets for a model on a family of devices; None where none is known."""
    if not is_mlperf(setup):
        return None
    if hardware.vendor == "AMD":
        return AMD
    if not setup.engine.startswith(("TensorRT", "CUDA")):
        return None
    scenario = setup.load.removeprefix("MLPerf").strip()
    found = (
        each
        for name, families, scenarios, each in ENTRIES
        if name == model
        and (hardware.family in families or hardware.id in families)
        and (not scenarios or scenario.startswith(tuple(scenarios)))
    )
    return next(found, None)


def lengths(setup: Setup, model: str) -> tuple[Lengths, float] | None:
    """Return the lengths of a model's data set and the mean output, which a run may state; None where none is known."""
    if model in BEAMS:
        given, because = f"{model} in MLPerf", f"its rules ask for {BEAMS[model]} beams, which are not modelled"
        raise NotModelledError(given, because, "Leave the row out")
    data = DATA_SETS.get(model)
    if data is None or setup.input_tokens:
        return None
    output = setup.output_tokens or data.output_tokens
    longest = max(data.longest_output, round(output))
    outputs = Fixed(longest) if output >= longest else LogNormal(output, SPREAD, longest)
    return Independent(data.prompts, outputs), output


def requests_of_copy(setup: Setup, model: str, copies: int) -> int:
    """Return how many requests of a run each copy serves; without a rate, a long run that is all there at once."""
    data = DATA_SETS.get(model)
    if data and data.queries:
        return data.queries // copies
    asked_per_s = setup.rate_per_s if setup.regime == "open_loop" else 0.0
    return round(SERVER_S * asked_per_s) // copies if asked_per_s else LONG_RUN


def waited_steps(setup: Setup, model: str, hardware: Hardware) -> int:
    """Return for how many steps a prompt waits for prompts of the other ranks; offline all are there at once."""
    found = entry(setup, model, hardware)
    return BALANCED_STEPS if found and found.attention_dp and setup.regime == "open_loop" else 0


def latency_limits_s(setup: Setup, model: str) -> tuple[float, float] | None:
    """Return the p99 of TTFT and TPOT that a valid run keeps, in seconds; None where none is known."""
    if setup.regime != "open_loop" or not is_mlperf(setup):
        return None
    server, interactive = LIMITS_S.get(model, (None, None))
    return interactive if "Interactive" in setup.load else server
