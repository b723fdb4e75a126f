"""What published sources set for an engine and a load, where their rows do not say: a class for each source.

`Recipe` (recipe.py) lists all that a source may set and sets nothing; a source overrides what its scripts set.
"""

from collections.abc import Callable

from simulator.hardware.hardware import Hardware
from simulator.models.model import Model
from simulator.validation.measurements import Setup
from simulator.validation.sources.aiconfigurator import Aiconfigurator
from simulator.validation.sources.inferencemax import (
    DenseScripts,
    GptOssScripts,
    InferenceMax,
    MiniMaxScripts,
    QwenScripts,
)
from simulator.validation.sources.mlperf import Mlperf
from simulator.validation.sources.mlperf_xeon import MlperfOnXeons
from simulator.validation.sources.optimum_habana import OptimumHabana
from simulator.validation.sources.papers import (
    Argonne,
    ConsumerCards,
    DatabaseMart,
    Deplodock,
    DgxSparkBenches,
    IronwoodRecipes,
    LlmPerfBench,
    MushfiqRahman,
    RocmImages,
    SglangCookbook,
    Splitwise,
    StrixHaloToolboxes,
    TpuRecipes,
)
from simulator.validation.sources.recipe import Recipe
from simulator.validation.sources.trtllm_docs import (
    TrtllmBench,
    TrtllmEvicting,
    TrtllmOffline,
    TrtllmOnline,
    TrtllmStatic,
    TrtllmTable,
)

__all__ = ["RECIPES", "Recipe", "recipe_of"]

TABLE_RELEASES = ("0.11", "0.12", "0.13", "0.14")
ONLINE = "tensorrt-llm-docs-online-serving"


def _is_offline(setup: Setup, releases: tuple[str, ...] = ("",)) -> bool:
    """Tell whether all requests were queued in TensorRT-LLM at the start, in one of some releases, without a server."""
    is_offline = setup.engine.startswith("TensorRT-LLM") and setup.regime == "offline"
    return is_offline and setup.engine_version.startswith(releases) and setup.source != ONLINE


RECIPES: tuple[tuple[type[Recipe], Callable[[Setup], bool]], ...] = (  # which setups are of a source; the first counts
    (MiniMaxScripts, lambda setup: setup.client == "inferencemax" and "minimax" in setup.model.lower()),
    (DenseScripts, lambda setup: setup.client == "inferencemax" and "70b" in setup.model.lower()),
    (GptOssScripts, lambda setup: setup.client == "inferencemax" and "gpt-oss" in setup.model.lower()),
    (QwenScripts, lambda setup: setup.client == "inferencemax" and setup.model.startswith("Qwen3.5")),
    (InferenceMax, lambda setup: setup.client == "inferencemax"),
    (Aiconfigurator, lambda setup: setup.client == "aiconfigurator"),
    (MlperfOnXeons, lambda setup: setup.client == "mlperf" and "xeon" in setup.hardware.lower()),
    (Mlperf, lambda setup: setup.client == "mlperf"),
    (Argonne, lambda setup: setup.source.startswith("argonne")),
    (Deplodock, lambda setup: setup.source == "cloudrift-deplodock"),
    (ConsumerCards, lambda setup: setup.source == "holtmann-consumer-blackwell"),
    (RocmImages, lambda setup: setup.source == "rocm-vllm-dev-docker"),
    (SglangCookbook, lambda setup: setup.source == "sgl-cookbook"),
    (MushfiqRahman, lambda setup: setup.source == "mushfiqrahman-rtx4090"),
    (DatabaseMart, lambda setup: setup.source.startswith("databasemart")),
    (Splitwise, lambda setup: setup.source.startswith("splitwise")),
    (IronwoodRecipes, lambda setup: setup.source.startswith("google-tpu-recipes") and "TPU7x" in setup.hardware),
    (TpuRecipes, lambda setup: setup.source.startswith("google-tpu-recipes")),
    (OptimumHabana, lambda setup: setup.source == "optimum-habana-ci-baselines"),
    (LlmPerfBench, lambda setup: setup.source == "mlc-llm-perf-bench"),
    (StrixHaloToolboxes, lambda setup: setup.source == "kyuz0-strix-halo-toolboxes"),
    (DgxSparkBenches, lambda setup: setup.source == "llama.cpp-benches-dgx-spark"),
    (TrtllmBench, lambda setup: setup.client == "trtllm-bench"),
    (TrtllmOnline, lambda setup: setup.source == ONLINE),
    (TrtllmStatic, lambda setup: setup.source == "tensorrt-llm-docs-static"),
    (TrtllmTable, lambda setup: setup.source == "tensorrt-llm-docs-ifb" and _is_offline(setup, TABLE_RELEASES)),
    (TrtllmEvicting, lambda setup: setup.client == "gptManagerBenchmark" and setup.engine_version.startswith("0.10")),
    (TrtllmOffline, _is_offline),
)


def recipe_of(setup: Setup, model: Model, hardware: Hardware) -> Recipe:
    """Return what the source of a setup is known to set; the first class of RECIPES that it is of counts.

    MLPerf bounds the p99 of TTFT and TPOT of Llama-2-70B's server scenario at 2,000 and 200 ms
    (mlcommons/inference_policies).

    >>> from simulator.hardware.hardware import load_hardware
    >>> from simulator.models.model import load_model
    >>> server = Setup(client="mlperf", regime="open_loop", scenario="Server")
    >>> recipe_of(server, load_model("llama-2-70b"), load_hardware("h200-sxm")).latency_limits_s
    (2.0, 0.2)
    """
    kind = next((kind for kind, is_of in RECIPES if is_of(setup)), Recipe)
    return kind(setup, model, hardware)
