"""What published sources set for an engine and a load, where their rows do not say: a class for each source.

`Recipe` (recipe.py) lists all that a source may set and sets nothing; a source overrides what its scripts set.
"""

from simulator.hardware.hardware import Hardware
from simulator.models.model import Model
from simulator.validation.measurements import Setup
from simulator.validation.sources.aiconfigurator import Aiconfigurator
from simulator.validation.sources.inferencemax import DenseScripts, GptOssScripts, InferenceMax, MiniMaxScripts
from simulator.validation.sources.mlperf import Mlperf
from simulator.validation.sources.mlperf_xeon import MlperfOnXeons
from simulator.validation.sources.papers import (
    Argonne,
    ConsumerCards,
    DatabaseMart,
    Deplodock,
    DgxSparkBenches,
    LlmPerfBench,
    Splitwise,
    StrixHaloToolboxes,
    TpuRecipes,
)
from simulator.validation.sources.recipe import Recipe
from simulator.validation.sources.trtllm_docs import TrtllmBench, TrtllmEvicting, TrtllmOffline, TrtllmTable

__all__ = ["RECIPES", "Recipe", "recipe_of"]

RECIPES: tuple[type[Recipe], ...] = (
    *(MiniMaxScripts, DenseScripts, GptOssScripts, InferenceMax),
    *(Aiconfigurator, MlperfOnXeons, Mlperf, Argonne, Deplodock, ConsumerCards, DatabaseMart, Splitwise),
    *(TpuRecipes, LlmPerfBench, StrixHaloToolboxes, DgxSparkBenches),
    *(TrtllmBench, TrtllmTable, TrtllmEvicting, TrtllmOffline),
    Recipe,  # of every other
)


def recipe_of(setup: Setup, model: Model, hardware: Hardware) -> Recipe:
    """Return what the source of a setup is known to set; the first class of RECIPES that matches counts.

    MLPerf bounds the p99 of TTFT and TPOT of Llama-2-70B's server scenario at 2,000 and 200 ms
    (mlcommons/inference_policies).

    >>> from simulator.hardware.hardware import load_hardware
    >>> from simulator.models.model import load_model
    >>> server = Setup(client="mlperf", regime="open_loop", scenario="Server")
    >>> recipe_of(server, load_model("llama-2-70b"), load_hardware("h200-sxm")).latency_limits_s
    (2.0, 0.2)
    """
    return next(each for each in RECIPES if each.matches(setup))(setup, model, hardware)
